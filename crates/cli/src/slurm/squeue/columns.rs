//! What `squeue` can show of a job: for each column its letter in a short format, its names in a long one, its header and
//! its value. Values that this cluster does not have are those of a Slurm that does not use them.

use hostler_model::WallTime;
use hostler_slurm::hostlist::compress;
use hostler_slurm::size::{Conversion, Unit, convert};
use hostler_slurm::state::State;
use hostler_slurm::time::short;

use super::super::CLUSTER;
use super::super::clock::Clock;
use super::super::rows::{Accounts, Row, raw_status};
use super::super::steps::Step;

/// What Slurm prints for an absent text.
const NULL: &str = "(null)";
/// What Slurm prints for an absent number or time.
const ABSENT: &str = "N/A";

/// A column that a format may name.
pub(super) struct Column {
    /// The letter in a short format; 0 if it has none.
    pub(super) letter: u8,
    /// Names in a long format, in lower case.
    pub(super) names: &'static [&'static str],
    pub(super) header: &'static str,
    pub(super) value: Value,
    /// Whether a text at the right of the column may be longer than the column.
    pub(super) overflows: fn(&str) -> bool,
}

pub(super) enum Value {
    /// The same text for all jobs.
    Fixed(&'static str),
    /// Appends the value of a row to a text.
    Of(fn(&mut Printer, &Row<'_>, &mut String)),
}

/// What values need besides their row.
#[derive(Debug)]
pub(super) struct Printer {
    pub(super) clock: Clock,
    pub(super) accounts: Accounts,
    pub(super) conversion: Conversion,
    /// The step of the line, in a table of steps.
    pub(super) step: Step,
}

impl Printer {
    pub(super) fn new(clock: Clock, conversion: Conversion) -> Self {
        Self { clock, accounts: Accounts::default(), conversion, step: Step::default() }
    }

    pub(super) fn time(&self, at: Option<WallTime>, out: &mut String) {
        match at {
            Some(at) => out.push_str(&self.clock.write(at)),
            None => out.push_str(ABSENT),
        }
    }

    fn memory(&self, mebibytes: u64, out: &mut String) {
        out.push_str(&convert(mebibytes as f64, Unit::Mega, self.conversion));
    }
}

const fn fixed(letter: u8, names: &'static [&'static str], header: &'static str, text: &'static str) -> Column {
    Column { letter, names, header, value: Value::Fixed(text), overflows: |_| false }
}

const fn of(
    letter: u8,
    names: &'static [&'static str],
    header: &'static str,
    value: fn(&mut Printer, &Row<'_>, &mut String),
) -> Column {
    Column { letter, names, header, value: Value::Of(value), overflows: |_| false }
}

impl Column {
    const fn overflowing(mut self, overflows: fn(&str) -> bool) -> Self {
        self.overflows = overflows;
        self
    }
}

/// Appends a number.
fn number(number: impl std::fmt::Display, out: &mut String) {
    use std::fmt::Write;
    write!(out, "{number}").expect("text grows");
}

fn is_list(text: &str) -> bool {
    !text.starts_with('(')
}

fn is_span(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_digit()) || text == "INVALID"
}

/// The columns of jobs.
pub(super) const COLUMNS: &[Column] = &[
    of(b'a', &["account"], "ACCOUNT", |_, row, out| out.push_str(row.account())),
    of(b'A', &["jobid"], "JOBID", |_, row, out| number(row.raw_id(), out)),
    of(b'b', &["tres-per-node", "gres"], "TRES_PER_NODE", |_, row, out| push_or(out, &row.gres(), ABSENT)),
    of(b'B', &["batchhost"], "EXEC_HOST", |_, row, out| out.push_str(row.batch_host().unwrap_or("n/a"))),
    of(b'c', &["mincpus"], "MIN_CPUS", |_, row, out| number(row.min_cpus_per_node(), out)),
    of(b'C', &["numcpus"], "CPUS", |_, row, out| number(row.cpus(), out)),
    fixed(b'd', &["mintmpdisk"], "MIN_TMP_DISK", "0"),
    of(b'D', &["numnodes"], "NODES", |_, row, out| number(row.job.nodes, out)),
    of(b'e', &["endtime"], "END_TIME", |printer, row, out| end(printer, row, out)),
    of(b'E', &["dependency"], "DEPENDENCY", |_, row, out| push_or(out, &row.dependency(), NULL)),
    of(b'f', &["feature"], "FEATURES", |_, row, out| label(row, "slurm.features", out)),
    of(b'F', &["arrayjobid"], "ARRAY_JOB_ID", |_, row, out| number(row.job.id, out)),
    of(b'g', &["groupname"], "GROUP", |printer, row, out| out.push_str(&printer.accounts.group(&row.job.user))),
    of(b'G', &["groupid"], "GROUP", |printer, row, out| number(printer.accounts.gid(&row.job.user), out)),
    of(b'h', &["oversubscribe", "shared"], "OVER_SUBSCRIBE", |_, row, out| out.push_str(row.over_subscribe())),
    fixed(b'H', &["sockets"], "SOCKETS_PER_NODE", "*"),
    of(b'i', &["jobarrayid"], "JOBID", |_, row, out| out.push_str(&row.id())),
    fixed(b'I', &["cores"], "CORES_PER_SOCKET", "*"),
    of(b'j', &["name"], "NAME", |_, row, out| out.push_str(&row.job.name)),
    fixed(b'J', &["threads"], "THREADS_PER_CORE", "*"),
    of(b'k', &["comment"], "COMMENT", |_, row, out| label(row, "comment", out)),
    of(b'K', &["arraytaskid"], "ARRAY_TASK_ID", |_, row, out| {
        out.push_str(row.array_task().as_deref().unwrap_or(ABSENT));
    }),
    of(b'l', &["timelimit"], "TIME_LIMIT", |_, row, out| limit(row.limit(), out)).overflowing(is_span),
    of(b'L', &["timeleft"], "TIME_LEFT", time_left).overflowing(is_span),
    of(b'm', &["minmemory"], "MIN_MEMORY", |printer, row, out| printer.memory(min_memory(row), out)),
    of(b'M', &["timeused"], "TIME", |printer, row, out| {
        out.push_str(&short(row.elapsed(printer.clock.now)));
    })
    .overflowing(is_span),
    of(b'n', &["reqnodes"], "REQ_NODES", |_, row, out| out.push_str(&row.named_nodes("slurm.nodelist"))),
    of(b'N', &["nodelist"], "NODELIST", |_, row, out| out.push_str(&row.node_list())).overflowing(|_| true),
    of(b'o', &["command"], "COMMAND", |_, row, out| out.push_str(row.command().as_deref().unwrap_or(NULL))),
    fixed(b'O', &["contiguous"], "CONTIGUOUS", "0"),
    of(b'p', &["priority"], "PRIORITY", |_, row, out| {
        number(format_args!("{:.14}", f64::from(row.priority()) / f64::from(u32::MAX)), out);
    }),
    of(b'P', &["partition"], "PARTITION", |_, row, out| out.push_str(row.partition())),
    of(b'q', &["qos"], "QOS", |_, row, out| out.push_str(row.qos())),
    of(b'Q', &["prioritylong"], "PRIORITY", |_, row, out| number(row.priority(), out)),
    of(b'r', &["reason"], "REASON", |_, row, out| out.push_str(row.reason())),
    of(b'R', &["reasonlist"], "NODELIST(REASON)", |_, row, out| reason_or_nodes(row, out)).overflowing(is_list),
    fixed(b's', &["selectjobinfo"], "", ""),
    of(b'S', &["starttime"], "START_TIME", |printer, row, out| printer.time(row.expected_start(), out)),
    of(b't', &["statecompact"], "ST", |_, row, out| out.push_str(row.state().code())),
    of(b'T', &["state"], "STATE", |_, row, out| out.push_str(row.state().name())),
    of(b'u', &["username"], "USER", |_, row, out| out.push_str(&row.job.user)),
    of(b'U', &["userid"], "UID", |printer, row, out| number(printer.accounts.uid(&row.job.user), out)),
    of(b'v', &["reservation"], "RESERVATION", |_, row, out| label(row, "reservation", out)),
    of(b'V', &["submittime"], "SUBMIT_TIME", |printer, row, out| printer.time(Some(row.job.submitted_at), out)),
    of(b'w', &["wckey"], "WCKEY", |_, row, out| label(row, "wckey", out)),
    of(b'W', &["licenses"], "LICENSES", |_, row, out| label(row, "licenses", out)),
    of(b'x', &["excnodes"], "EXC_NODES", |_, row, out| out.push_str(&row.named_nodes("slurm.exclude"))),
    fixed(b'X', &["corespec"], "CORE_SPEC", ABSENT),
    of(b'y', &["nice"], "NICE", |_, row, out| out.push_str(row.label("slurm.nice").unwrap_or("0"))),
    fixed(b'Y', &["schednodes"], "SCHEDNODES", NULL).overflowing(|_| true),
    fixed(b'z', &["sct"], "S:C:T", "*:*:*"),
    of(b'Z', &["workdir"], "WORK_DIR", |_, row, out| out.push_str(row.job.directory.as_deref().unwrap_or(NULL))),
    of(0, &["accruetime"], "ACCRUE_TIME", |printer, row, out| printer.time(row.eligible_at(), out)),
    fixed(0, &["admin_comment"], "ADMIN_COMMENT", NULL),
    of(0, &["allocnodes"], "ALLOC_NODES", |_, row, out| label(row, "slurm.submit_host", out)),
    fixed(0, &["allocsid"], "ALLOC_SID", "0"),
    fixed(0, &["associd"], "ASSOC_ID", "0"),
    of(0, &["batchflag"], "BATCH_FLAG", |_, row, out| number(u8::from(!row.job.allocation), out)),
    fixed(0, &["boardspernode"], "BOARDS_PER_NODE", "0"),
    fixed(0, &["burstbuffer"], "BURST_BUFFER", NULL),
    fixed(0, &["burstbufferstate"], "BURST_BUFFER_STATE", NULL),
    fixed(0, &["cluster"], "CLUSTER", CLUSTER),
    fixed(0, &["clusterfeature"], "CLUSTER_FEATURES", NULL),
    fixed(0, &["container"], "CONTAINER", NULL),
    fixed(0, &["containerid"], "CONTAINER_ID", NULL),
    of(0, &["cpus-per-task", "cpuspertask"], "CPUS_PER_TASK", |_, row, out| number(row.cpus_per_task(), out)),
    fixed(0, &["cpus-per-tres"], "CPUS_PER_TRES", ABSENT),
    fixed(0, &["deadline"], "DEADLINE", ABSENT),
    fixed(0, &["delayboot"], "DELAY_BOOT", "0:00"),
    of(0, &["derivedec"], "DERIVED_EC", |_, row, out| number(raw_status(row.derived_exit(&[])), out)),
    of(0, &["eligibletime"], "ELIGIBLE_TIME", |printer, row, out| printer.time(row.eligible_at(), out)),
    of(0, &["exit_code"], "EXIT_CODE", |_, row, out| number(raw_status(row.exit()), out)),
    fixed(0, &["hetjobid", "packjobid"], "HET_JOB_ID", ABSENT),
    fixed(0, &["hetjobidset", "packjobidset"], "HET_JOB_ID_SET", ABSENT),
    fixed(0, &["hetjoboffset", "packjoboffset"], "HET_JOB_OFFSET", ABSENT),
    of(0, &["lastschedeval"], "LAST_SCHED_EVAL", |printer, row, out| {
        printer.time(row.started_at().or(Some(row.job.submitted_at)), out);
    }),
    of(0, &["maxcpus"], "MAX_CPUS", |_, row, out| number(row.cpus(), out)),
    of(0, &["maxnodes"], "MAX_NODES", |_, row, out| number(row.job.nodes, out)),
    fixed(0, &["mcslabel"], "MCSLABEL", NULL),
    fixed(0, &["mem-per-tres"], "MEM_PER_TRES", ABSENT),
    fixed(0, &["mintime"], "TIME_MIN", "0:00"),
    fixed(0, &["network"], "NETWORK", NULL),
    fixed(0, &["ntperboard"], "NTASKS_PER_BOARD", "0"),
    fixed(0, &["ntpercore"], "NTASKS_PER_CORE", ABSENT),
    of(0, &["ntpernode"], "NTASKS_PER_NODE", |_, row, out| {
        out.push_str(row.label("slurm.ntasks_per_node").unwrap_or("0"));
    }),
    fixed(0, &["ntpersocket"], "NTASKS_PER_SOCKET", ABSENT),
    of(0, &["numtasks", "numtask"], "TASKS", |_, row, out| number(row.tasks(), out)),
    fixed(0, &["origin"], "ORIGIN", "NA"),
    fixed(0, &["originraw"], "ORIGIN_RAW", "NA"),
    of(0, &["pendingtime"], "PENDING_TIME", |printer, row, out| {
        let until = row.started_at().unwrap_or(printer.clock.now);
        number(until.ms_since(row.job.submitted_at) / 1000, out);
    }),
    fixed(0, &["preemptabletime"], "PREEMPTABLE_TIME", ABSENT),
    fixed(0, &["preempttime"], "PREEMPT_TIME", ABSENT),
    fixed(0, &["prefer"], "PREFER", NULL),
    fixed(0, &["profile"], "PROFILE", "NotSet"),
    fixed(0, &["reboot"], "REBOOT", "0"),
    fixed(0, &["reqswitch"], "REQ_SWITCH", "0"),
    of(0, &["requeue"], "REQUEUE", |_, row, out| number(u8::from(row.job.requeue), out)),
    fixed(0, &["resizetime"], "RESIZE_TIME", ABSENT),
    of(0, &["restartcnt"], "RESTART_COUNT", |_, row, out| number(row.restarts(), out)),
    fixed(0, &["siblingsactive"], "ACTIVE_SIBLINGS", "NA"),
    fixed(0, &["siblingsactiveraw"], "ACTIVE_SIBLINGS_RAW", "NA"),
    fixed(0, &["siblingsviable"], "VIABLE_SIBLINGS", "NA"),
    fixed(0, &["siblingsviableraw"], "VIALBLE_SIBLINGS_RAW", "NA"),
    fixed(0, &["sperboard"], "SOCKETS_PER_BOARD", "0"),
    of(0, &["stderr"], "STDERR", |_, row, out| push_or(out, &row.files()[2], NULL)),
    of(0, &["stdin"], "STDIN", |_, row, out| push_or(out, &row.files()[0], NULL)),
    of(0, &["stdout"], "STDOUT", |_, row, out| push_or(out, &row.files()[1], NULL)),
    fixed(0, &["system_comment"], "SYSTEM_COMMENT", NULL),
    of(0, &["tres-alloc", "tres"], "TRES_ALLOC", |printer, row, out| out.push_str(&row.tres(printer.conversion))),
    fixed(0, &["tres-bind"], "TRES_BIND", ABSENT),
    fixed(0, &["tres-freq"], "TRES_FREQ", ABSENT),
    fixed(0, &["tres-per-job"], "TRES_PER_JOB", ABSENT),
    fixed(0, &["tres-per-socket"], "TRES_PER_SOCKET", ABSENT),
    fixed(0, &["tres-per-task"], "TRES_PER_TASK", ABSENT),
    fixed(0, &["wait4switch"], "WAIT4SWITCH", "0:00"),
];

/// The columns of steps. A step's line has the row of its task, too.
pub(super) const STEP_COLUMNS: &[Column] = &[
    of(b'A', &["numtasks", "numtask"], "TASKS", |printer, _, out| number(printer.step.tasks, out)),
    fixed(b'b', &["gres", "tres-per-node"], "TRES_PER_JOB", ABSENT),
    of(b'i', &["stepid"], "STEPID", |printer, row, out| out.push_str(&format!("{}.{}", row.id(), printer.step.number))),
    of(b'j', &["stepname"], "NAME", |printer, _, out| out.push_str(&printer.step.name)),
    fixed(b'l', &["timelimit"], "TIME_LIMIT", "UNLIMITED"),
    of(b'M', &["timeused"], "TIME", |printer, _, out| {
        let since = printer.step.started_at.map_or(0, |at| printer.clock.now.0 - at.0);
        out.push_str(&short(u64::try_from(since / 1000).unwrap_or(0)));
    }),
    of(b'N', &["nodes"], "NODELIST", |printer, _, out| out.push_str(&compress(&printer.step.nodes)))
        .overflowing(|_| true),
    of(b'P', &["partition"], "PARTITION", |_, row, out| out.push_str(row.partition())),
    of(b'S', &["starttime"], "START_TIME", |printer, _, out| printer.time(printer.step.started_at, out)),
    of(b'u', &["username"], "USER", |_, row, out| out.push_str(&row.job.user)),
    of(b'U', &["userid"], "UID", |printer, row, out| number(printer.accounts.uid(&row.job.user), out)),
    of(0, &["arrayjobid"], "ARRAY_JOB_ID", |_, row, out| number(row.job.id, out)),
    of(0, &["arraytaskid"], "ARRAY_TASK_ID", |_, row, out| push_or(out, &row.array_task().unwrap_or_default(), ABSENT)),
    fixed(0, &["cluster"], "CLUSTER", ""),
    fixed(0, &["container"], "CONTAINER", ""),
    fixed(0, &["containerid"], "CONTAINER_ID", ""),
    fixed(0, &["cpufreq"], "CPU_FREQ", ABSENT),
    fixed(0, &["cpus-per-tres"], "CPUS_PER_TRES", ABSENT),
    of(0, &["jobid"], "JOB_ID", |_, row, out| number(row.raw_id(), out)),
    fixed(0, &["mem-per-tres"], "MEM_PER_TRES", ABSENT),
    fixed(0, &["network"], "NETWORK", ABSENT),
    of(0, &["numcpus"], "NUM_CPUS", |printer, _, out| number(printer.step.cpus, out)),
    fixed(0, &["resvports"], "RESERVED_PORTS", ABSENT),
    fixed(0, &["stepstate"], "STATE", "RUNNING"),
    fixed(0, &["tres-bind"], "TRES_BIND", ABSENT),
    fixed(0, &["tres-freq"], "TRES_FREQ", ABSENT),
    fixed(0, &["tres-per-step", "tres-per-job"], "TRES_PER_STEP", ABSENT),
    fixed(0, &["tres-per-socket"], "TRES_PER_SOCKET", ABSENT),
    fixed(0, &["tres-per-task"], "TRES_PER_TASK", ABSENT),
];

/// Appends a text; another one if it is empty.
fn push_or(out: &mut String, text: &str, otherwise: &str) {
    out.push_str(if text.is_empty() { otherwise } else { text });
}

fn label(row: &Row<'_>, name: &str, out: &mut String) {
    out.push_str(row.label(name).unwrap_or(NULL));
}

/// The least memory of each node, or of each CPU if the user gave that, in mebibytes.
fn min_memory(row: &Row<'_>) -> u64 {
    row.memory_mib_per_cpu().unwrap_or_else(|| row.memory_mib_per_node())
}

fn end(printer: &Printer, row: &Row<'_>, out: &mut String) {
    match row.expected_end() {
        None if row.expected_start().is_some() => out.push_str("NONE"),
        end => printer.time(end, out),
    }
}

fn limit(seconds: Option<u64>, out: &mut String) {
    match seconds {
        Some(seconds) => out.push_str(&short(seconds)),
        None => out.push_str("UNLIMITED"),
    }
}

fn time_left(printer: &mut Printer, row: &Row<'_>, out: &mut String) {
    let elapsed = row.elapsed(printer.clock.now);
    match row.limit().map(|limit| limit.checked_sub(elapsed)) {
        Some(None) => out.push_str("INVALID"),
        left => limit(left.flatten(), out),
    }
}

/// Why the job waits or failed, in parentheses, or its nodes.
fn reason_or_nodes(row: &Row<'_>, out: &mut String) {
    match row.state() {
        State::Pending | State::Failed | State::Timeout | State::OutOfMemory => {
            out.push('(');
            out.push_str(row.reason());
            out.push(')');
        }
        _ => out.push_str(&row.node_list()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn letters_and_names_are_unique() {
        for columns in [COLUMNS, STEP_COLUMNS] {
            let letters: Vec<u8> = columns.iter().map(|column| column.letter).filter(|letter| *letter > 0).collect();
            assert_eq!(letters.iter().collect::<BTreeSet<_>>().len(), letters.len());
            let names: Vec<&str> = columns.iter().flat_map(|column| column.names).copied().collect();
            assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
            assert!(names.iter().all(|name| *name == name.to_ascii_lowercase()));
        }
        assert!((b'a'..=b'z').chain(b'A'..=b'Z').all(|letter| COLUMNS.iter().any(|column| column.letter == letter)));
    }
}
