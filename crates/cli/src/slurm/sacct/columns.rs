//! What `sacct` can show of a job and of its script: the name, width and value of each field.

use std::borrow::Cow;

use hostler_model::WallTime;
use hostler_proto::api::{JobRecord, PartView};
use hostler_proto::link::Usage;
use hostler_slurm::size::{Unit, convert};
use hostler_slurm::table::{Column, Fit};
use hostler_slurm::time::long;

use super::super::CLUSTER;
use super::entry::{Entry, Report};

/// A field that a format may name.
pub(super) type Field = Column<Value>;

type Append = fn(&mut Report, &Entry<'_>, &mut String);

#[derive(Clone, Copy)]
pub(super) enum Value {
    /// Never known.
    None,
    Of(Append),
    /// Known for jobs only.
    OfJob(Append),
    /// Known for steps only.
    OfStep(Append),
}

impl Report {
    fn time(&self, at: Option<WallTime>, out: &mut String) {
        match at {
            Some(at) => out.push_str(&self.clock.write(at)),
            None => out.push_str("Unknown"),
        }
    }

    fn size(&self, amount: f64, unit: Unit, out: &mut String) {
        out.push_str(&convert(amount, unit, self.conversion));
    }

    /// Appends a number of bytes that Slurm counts in mebibytes.
    fn disk(&self, bytes: u64, out: &mut String) {
        let mebibytes = bytes as f64 / f64::from(1 << 20);
        if mebibytes > 0.0 && mebibytes <= 1.0 {
            number(format_args!("{mebibytes:.2}M"), out);
        } else {
            self.size(mebibytes, Unit::Mega, out);
        }
    }
}

const fn none(name: &'static str, width: i32, fit: Fit) -> Field {
    Field { name: Cow::Borrowed(name), width, fit, value: Value::None }
}

const fn of(name: &'static str, width: i32, fit: Fit, append: Append) -> Field {
    Field { name: Cow::Borrowed(name), width, fit, value: Value::Of(append) }
}

const fn of_job(name: &'static str, width: i32, fit: Fit, append: Append) -> Field {
    Field { name: Cow::Borrowed(name), width, fit, value: Value::OfJob(append) }
}

const fn of_step(name: &'static str, width: i32, fit: Fit, append: Append) -> Field {
    Field { name: Cow::Borrowed(name), width, fit, value: Value::OfStep(append) }
}

impl Value {
    /// Appends the value of an entry to a text; nothing if it is not known.
    pub(super) fn append(self, report: &mut Report, entry: &Entry<'_>, out: &mut String) {
        match (self, entry.is_step) {
            (Self::Of(append), _) | (Self::OfJob(append), false) | (Self::OfStep(append), true) => {
                append(report, entry, out);
            }
            (Self::None | Self::OfJob(_) | Self::OfStep(_), _) => {}
        }
    }
}

use Fit::{Number, Text, Time};

/// The fields, in the order of `sacct --helpformat`.
pub(super) const FIELDS: &[Field] = &[
    of("Account", 10, Text, |_, entry, out| out.push_str(entry.row.account())),
    none("AdminComment", 15, Text),
    of("AllocCPUS", 10, Number, |_, entry, out| number(entry.cpus(), out)),
    of("AllocNodes", 10, Text, |_, entry, out| number(if entry.is_allocated() { entry.nodes() } else { 0 }, out)),
    of("AllocTRES", 10, Text, |report, entry, out| {
        if entry.is_allocated() {
            out.push_str(&entry.tres(report.conversion));
        }
    }),
    of("AssocID", 7, Number, |_, _, out| out.push('0')),
    of_step("AveCPU", 10, Text, cpu_of_task),
    of_step("AveCPUFreq", 10, Text, |_, _, out| out.push('0')),
    of_step("AveDiskRead", 14, Text, disk_read),
    of_step("AveDiskWrite", 14, Text, disk_write),
    none("AvePages", 10, Text),
    of_step("AveRSS", 10, Text, resident),
    none("AveVMSize", 10, Text),
    none("BlockID", 16, Text),
    of("Cluster", 10, Text, |_, _, out| out.push_str(CLUSTER)),
    of_job("Comment", 14, Text, |_, entry, out| label(entry, "comment", out)),
    of_job("Constraints", 19, Text, |_, entry, out| label(entry, "slurm.features", out)),
    of("ConsumedEnergy", 14, Text, |_, _, out| out.push('0')),
    of("ConsumedEnergyRaw", 17, Number, |_, _, out| out.push('0')),
    none("Container", 19, Text),
    of("CPUTime", 10, Number, |report, entry, out| out.push_str(&long(report.elapsed(entry) * entry.cpus()))),
    of("CPUTimeRAW", 10, Number, |report, entry, out| number(report.elapsed(entry) * entry.cpus(), out)),
    of("DBIndex", -21, Number, |_, entry, out| number(entry.row.raw_id(), out)),
    of_job("DerivedExitCode", 15, Text, |_, entry, out| {
        let (code, signal) = entry.row.derived_exit(&[]);
        number(format_args!("{code}:{signal}"), out);
    }),
    of("Elapsed", 10, Number, |report, entry, out| out.push_str(&long(report.elapsed(entry)))),
    of("ElapsedRaw", 10, Number, |report, entry, out| number(report.elapsed(entry), out)),
    of("Eligible", 19, Time, |report, entry, out| {
        let at = if entry.is_step { report.start(entry) } else { entry.row.eligible_at() };
        report.time(at, out);
    }),
    of("End", 19, Time, |report, entry, out| report.time(report.end(entry), out)),
    of("ExitCode", 8, Text, |_, entry, out| {
        let (code, signal) = entry.exit();
        number(format_args!("{code}:{signal}"), out);
    }),
    none("Extra", 14, Text),
    none("FailedNode", 8, Text),
    none("Flags", 19, Text),
    of_job("GID", 6, Number, |report, entry, out| number(report.accounts.gid(&entry.row.job.user), out)),
    of_job("Group", 9, Text, |report, entry, out| out.push_str(&report.accounts.group(&entry.row.job.user))),
    of("JobID", -12, Text, |_, entry, out| out.push_str(&entry.id())),
    of("JobIDRaw", -12, Text, |_, entry, out| {
        number(entry.row.raw_id(), out);
        out.push_str(&entry.suffix());
    }),
    of("JobName", 10, Text, |_, entry, out| out.push_str(entry.name())),
    of_step("Layout", 9, Text, |_, _, out| out.push_str("Unknown")),
    of_job("Licenses", 10, Text, |_, entry, out| label(entry, "licenses", out)),
    of_step("MaxDiskRead", 12, Text, disk_read),
    of_step("MaxDiskReadNode", 15, Text, |_, entry, out| {
        node_with_most(entry, |usage| usage.io.map_or(0, |io| io.read_bytes), out);
    }),
    of_step("MaxDiskReadTask", 15, Number, rank),
    of_step("MaxDiskWrite", 12, Text, disk_write),
    of_step("MaxDiskWriteNode", 16, Text, |_, entry, out| {
        node_with_most(entry, |usage| usage.io.map_or(0, |io| io.write_bytes), out);
    }),
    of_step("MaxDiskWriteTask", 16, Number, rank),
    none("MaxPages", 8, Text),
    none("MaxPagesNode", 12, Text),
    none("MaxPagesTask", 14, Number),
    of_step("MaxRSS", 10, Text, resident),
    of_step("MaxRSSNode", 10, Text, |_, entry, out| node_with_most(entry, |usage| usage.max_rss_bytes, out)),
    of_step("MaxRSSTask", 10, Number, rank),
    none("MaxVMSize", 10, Text),
    none("MaxVMSizeNode", 14, Text),
    none("MaxVMSizeTask", 14, Number),
    none("McsLabel", 12, Text),
    of_step("MinCPU", 10, Text, cpu_of_task),
    of_step("MinCPUNode", 10, Text, |_, entry, out| node_with_most(entry, |_| 0, out)),
    of_step("MinCPUTask", 10, Number, rank),
    of("NCPUS", 10, Number, |_, entry, out| number(entry.cpus(), out)),
    of("NNodes", 8, Number, |_, entry, out| number(entry.nodes(), out)),
    of("NodeList", 15, Text, |_, entry, out| out.push_str(&entry.node_list())),
    of_step("NTasks", 8, Number, |_, entry, out| number(entry.tasks(), out)),
    of_job("Partition", 10, Text, |_, entry, out| out.push_str(entry.row.partition())),
    of_job("Planned", 10, Number, |report, entry, out| out.push_str(&long(report.planned(entry)))),
    of_job("PlannedCPU", 10, Number, |report, entry, out| out.push_str(&long(planned_cpu(report, entry)))),
    of_job("PlannedCPURAW", 13, Number, |report, entry, out| number(planned_cpu(report, entry), out)),
    of_job("Priority", 10, Number, |_, entry, out| number(entry.row.priority(), out)),
    of_job("QOS", 10, Text, |_, entry, out| out.push_str(entry.row.qos())),
    of_job("QOSRAW", 6, Number, |_, _, out| out.push('1')),
    of_job("QOSREQ", 10, Text, |_, entry, out| label(entry, "qos", out)),
    of_job("Reason", 22, Text, |_, entry, out| out.push_str(entry.row.reason())),
    of("ReqCPUFreq", 10, Text, frequency),
    of("ReqCPUFreqGov", 13, Text, frequency),
    of("ReqCPUFreqMax", 13, Text, frequency),
    of("ReqCPUFreqMin", 13, Text, frequency),
    of("ReqCPUS", 8, Number, |_, entry, out| number(requested_cpus(entry), out)),
    of_job("ReqMem", 10, Text, |report, entry, out| report.size(entry.row.memory_mib() as f64, Unit::Mega, out)),
    of("ReqNodes", 8, Text, |_, entry, out| number(entry.nodes(), out)),
    of_job("ReqTRES", 10, Text, |report, entry, out| out.push_str(&entry.tres(report.conversion))),
    of_job("Reservation", 20, Text, |_, entry, out| label(entry, "reservation", out)),
    none("ReservationId", 8, Number),
    of_job("Restarts", 8, Number, |_, entry, out| number(entry.row.restarts(), out)),
    of("Start", 19, Time, |report, entry, out| report.time(report.start(entry), out)),
    of("State", 10, Text, |report, entry, out| {
        out.push_str(entry.state().name());
        if let Some(uid) = entry.cancelled_by(&mut report.accounts) {
            number(format_args!(" by {uid}"), out);
        }
    }),
    of_job("StdErr", 20, Text, |_, entry, out| out.push_str(&entry.row.files()[2])),
    of_job("StdIn", 20, Text, |_, entry, out| out.push_str(&entry.row.files()[0])),
    of_job("StdOut", 20, Text, |_, entry, out| out.push_str(&entry.row.files()[1])),
    of("Submit", 19, Time, |report, entry, out| {
        let at = if entry.is_step { report.start(entry) } else { Some(entry.row.job.submitted_at) };
        report.time(at, out);
    }),
    of_job("SubmitLine", 20, Text, |_, entry, out| out.push_str(submit_line(entry.row.job))),
    of("Suspended", 10, Number, |_, _, out| out.push_str("00:00:00")),
    none("SystemComment", 15, Text),
    of("SystemCPU", 10, Text, |_, entry, out| cpu_time(entry, |usage| usage.system_ms, out)),
    of_job("Timelimit", 10, Text, |_, entry, out| match entry.row.limit() {
        Some(seconds) => out.push_str(&long(seconds)),
        None => out.push_str("UNLIMITED"),
    }),
    of_job("TimelimitRaw", 10, Text, |_, entry, out| match entry.row.limit() {
        Some(seconds) => number(seconds.div_ceil(60), out),
        None => out.push_str("UNLIMITED"),
    }),
    of("TotalCPU", 10, Text, |_, entry, out| cpu_time(entry, |usage| usage.user_ms + usage.system_ms, out)),
    of_step("TRESUsageInAve", 14, Text, usage_in),
    of_step("TRESUsageInMax", 14, Text, usage_in),
    of_step("TRESUsageInMaxNode", 18, Text, usage_in_nodes),
    of_step("TRESUsageInMaxTask", 18, Text, usage_in_ranks),
    of_step("TRESUsageInMin", 14, Text, usage_in),
    of_step("TRESUsageInMinNode", 18, Text, usage_in_nodes),
    of_step("TRESUsageInMinTask", 18, Text, usage_in_ranks),
    of_step("TRESUsageInTot", 14, Text, usage_in),
    of_step("TRESUsageOutAve", 15, Text, usage_out),
    of_step("TRESUsageOutMax", 15, Text, usage_out),
    of_step("TRESUsageOutMaxNode", 19, Text, usage_out_node),
    of_step("TRESUsageOutMaxTask", 19, Text, usage_out_rank),
    of_step("TRESUsageOutMin", 15, Text, usage_out),
    of_step("TRESUsageOutMinNode", 19, Text, usage_out_node),
    of_step("TRESUsageOutMinTask", 19, Text, usage_out_rank),
    of_step("TRESUsageOutTot", 15, Text, usage_out),
    of_job("UID", 6, Number, |report, entry, out| number(report.accounts.uid(&entry.row.job.user), out)),
    of_job("User", 9, Text, |_, entry, out| out.push_str(&entry.row.job.user)),
    of("UserCPU", 10, Text, |_, entry, out| cpu_time(entry, |usage| usage.user_ms, out)),
    of_job("WCKey", 10, Text, |_, entry, out| label(entry, "wckey", out)),
    of_job("WCKeyID", 10, Number, |_, _, out| out.push('0')),
    of_job("WorkDir", 20, Text, |_, entry, out| out.push_str(entry.row.job.directory.as_deref().unwrap_or_default())),
];

/// Appends a number.
fn number(number: impl std::fmt::Display, out: &mut String) {
    use std::fmt::Write;
    write!(out, "{number}").expect("text grows");
}

/// The command line that submitted a job. None, if another user may not see it or it was not submitted by a command of Slurm's.
pub(super) fn submit_line(job: &JobRecord) -> &str {
    job.surroundings.submit_line.as_ref().map_or("", |line| line)
}

fn label(entry: &Entry<'_>, name: &str, out: &mut String) {
    out.push_str(entry.row.label(name).unwrap_or_default());
}

fn with_usage(entry: &Entry<'_>, out: &mut String, append: impl FnOnce(Usage, &mut String)) {
    if let Some(usage) = entry.usage() {
        append(usage, out);
    }
}

const fn cpu_secs(usage: Usage) -> u64 {
    usage.user_ms.saturating_add(usage.system_ms) / 1000
}

fn cpu_of_task(_: &mut Report, entry: &Entry<'_>, out: &mut String) {
    with_usage(entry, out, |usage, out| out.push_str(&long(cpu_secs(usage))));
}

fn cpu_time(entry: &Entry<'_>, of: impl FnOnce(Usage) -> u64, out: &mut String) {
    out.push_str(&cpu_span(entry.usage().map_or(0, of)));
}

/// Writes CPU time: with milliseconds below an hour, unless there are none.
fn cpu_span(ms: u64) -> String {
    let (secs, ms) = (ms / 1000, ms % 1000);
    if secs < 3600 && ms > 0 { format!("{:02}:{:02}.{ms:03}", secs / 60, secs % 60) } else { long(secs) }
}

fn resident(report: &mut Report, entry: &Entry<'_>, out: &mut String) {
    with_usage(entry, out, |usage, out| report.size(usage.max_rss_bytes as f64, Unit::One, out));
}

fn disk_read(report: &mut Report, entry: &Entry<'_>, out: &mut String) {
    if let Some(io) = entry.usage().and_then(|usage| usage.io) {
        report.disk(io.read_bytes, out);
    }
}

fn disk_write(report: &mut Report, entry: &Entry<'_>, out: &mut String) {
    if let Some(io) = entry.usage().and_then(|usage| usage.io) {
        report.disk(io.write_bytes, out);
    }
}

/// Appends the node of the part with the largest figure.
fn node_with_most(entry: &Entry<'_>, of: impl Fn(Usage) -> u64, out: &mut String) {
    if entry.usage().is_none() {
        return;
    }
    if let Some(step) = entry.step {
        return out.push_str(step.nodes.first().map_or("", |node| node.as_str()));
    }
    let parts = entry.row.task.map_or(&[][..], |task| &task.parts);
    let figure = |part: &&PartView| part.usage.map_or(0, &of);
    // Of equal parts the first one counts.
    let most = parts.iter().rev().max_by_key(figure).map(|part| part.node.as_str());
    out.push_str(most.or_else(|| entry.row.nodes().first().copied()).unwrap_or_default());
}

fn rank(_: &mut Report, entry: &Entry<'_>, out: &mut String) {
    with_usage(entry, out, |_, out| out.push('0'));
}

fn frequency(_: &mut Report, entry: &Entry<'_>, out: &mut String) {
    out.push_str(if entry.is_step { "0" } else { "Unknown" });
}

fn requested_cpus(entry: &Entry<'_>) -> u64 {
    match entry.step {
        Some(_) => entry.cpus(),
        None if entry.is_step => entry.row.job.cpus.into(),
        None => entry.row.cpus(),
    }
}

fn planned_cpu(report: &Report, entry: &Entry<'_>) -> u64 {
    report.planned(entry).saturating_mul(entry.row.cpus())
}

fn usage_in(report: &mut Report, entry: &Entry<'_>, out: &mut String) {
    with_usage(entry, out, |usage, out| {
        number(format_args!("cpu={}", long(cpu_secs(usage))), out);
        if let Some(io) = usage.io {
            number(format_args!(",fs/disk={}", io.read_bytes), out);
        }
        out.push_str(",mem=");
        report.size(usage.max_rss_bytes as f64, Unit::One, out);
    });
}

fn usage_in_nodes(_: &mut Report, entry: &Entry<'_>, out: &mut String) {
    let (mut memory, mut disk) = (String::new(), String::new());
    node_with_most(entry, |usage| usage.max_rss_bytes, &mut memory);
    node_with_most(entry, |usage| usage.io.map_or(0, |io| io.read_bytes), &mut disk);
    let cpu = entry.row.nodes().first().copied().unwrap_or_default();
    with_usage(entry, out, |_, out| number(format_args!("cpu={cpu},fs/disk={disk},mem={memory}"), out));
}

fn usage_in_ranks(_: &mut Report, entry: &Entry<'_>, out: &mut String) {
    with_usage(entry, out, |_, out| out.push_str("cpu=0,fs/disk=0,mem=0"));
}

fn usage_out(_: &mut Report, entry: &Entry<'_>, out: &mut String) {
    if let Some(io) = entry.usage().and_then(|usage| usage.io) {
        number(format_args!("fs/disk={}", io.write_bytes), out);
    }
}

fn usage_out_node(_: &mut Report, entry: &Entry<'_>, out: &mut String) {
    if entry.usage().is_some_and(|usage| usage.io.is_some()) {
        out.push_str("fs/disk=");
        node_with_most(entry, |usage| usage.io.map_or(0, |io| io.write_bytes), out);
    }
}

fn usage_out_rank(_: &mut Report, entry: &Entry<'_>, out: &mut String) {
    if entry.usage().is_some_and(|usage| usage.io.is_some()) {
        out.push_str("fs/disk=0");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_has_milliseconds_below_an_hour() {
        for (ms, text) in [
            (0, "00:00:00"),
            (1234, "00:01.234"),
            (2000, "00:00:02"),
            (59_999, "00:59.999"),
            (3_599_001, "59:59.001"),
            (3_600_001, "01:00:00"),
            (90_000_500, "1-01:00:00"),
        ] {
            assert_eq!(cpu_span(ms), text);
        }
    }
}
