//! `scontrol show job` and `scontrol show step`.

use std::collections::BTreeMap;

use hostler_client::{Client, ClientError, RecordFilter};
use hostler_model::{GpuId, IndexSet, JobId, JobState, TaskId, WallTime};
use hostler_proto::api::{JobRecord, NodeRunView, NodeView};
use hostler_slurm::hostlist::compress;
use hostler_slurm::ids::split_far_number;
use hostler_slurm::size::{Conversion, exact};
use hostler_slurm::state::State;
use hostler_slurm::time::long;

use super::super::clock::Clock;
use super::super::machines::NULL;
use super::super::rows::{Accounts, Row, rows, split_code, task_with_number};
use super::super::steps::{self, Step};
use super::super::{Ended, Outcome, job_json};
use super::Session;
use super::record::Record;

/// How long jobs that have ended are shown. Slurm forgets them after five minutes; programs that look less often would
/// take a forgotten job for a lost one.
const KEPT_MS: i64 = 60 * 60 * 1000;

/// What Slurm says about a job that it does not know.
const INVALID: &str = "slurm_load_jobs error: Invalid job id specified";

/// A job, or a task of an array, as the user names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Named {
    job: JobId,
    index: Option<u32>,
}

impl Named {
    /// Parses `12`, `12_3`, and the numbers of array tasks.
    fn parse(text: &str) -> Option<Self> {
        let number = |text: &str| text.parse::<u64>().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()));
        let (job, index) = match text.split_once('_') {
            None => split_far_number(number(text)?),
            Some((job, "")) => (number(job)?, Some(0)),
            Some((job, index)) => (number(job)?, Some(u32::try_from(number(index)?).ok()?)),
        };
        (job > 0).then_some(Self { job: JobId(job), index })
    }

    /// Resolves the number of an array's task.
    fn among(self, records: &[JobRecord]) -> Self {
        let task = |record: &JobRecord| Some(Self { job: record.id, index: Some(task_with_number(record, self.job)?) });
        records.iter().find_map(task).filter(|_| self.index.is_none()).unwrap_or(self)
    }
}

/// The jobs of the cluster that a user may still see, or one of them.
async fn load(client: &Client, job: Option<JobId>, now: WallTime) -> Result<Vec<JobRecord>, ClientError> {
    if let Some(job) = job {
        return client.records(&RecordFilter { jobs: vec![job], ..RecordFilter::default() }).await;
    }
    let live = JobState::ALL.into_iter().filter(|state| !state.is_ended()).collect();
    let ended_since = Some(WallTime(now.0 - KEPT_MS));
    let mut all = client.records(&RecordFilter { states: live, ..RecordFilter::default() }).await?;
    all.extend(client.records(&RecordFilter { ended_since, ..RecordFilter::default() }).await?);
    all.sort_by_key(|record| record.id);
    // A job may end between the two requests.
    all.dedup_by_key(|record| record.id);
    Ok(all)
}

/// Whether a row is shown: it has not ended, or not long ago.
fn is_kept(row: &Row<'_>, now: WallTime) -> bool {
    row.ended_at().is_none_or(|ended| ended.0 >= now.0 - KEPT_MS)
}

impl Session<'_> {
    pub(super) fn show_jobs(&self, id: Option<&str>) -> Outcome {
        let bad = || Ended::plain("scontrol_print_job error: Invalid job id specified");
        let mut named = id.map(|id| Named::parse(id).ok_or_else(bad)).transpose()?;
        let clock = self.clock("slurm_load_jobs")?;
        let now = clock.now;
        let job = named.map(|named| named.job);
        let records = self.ask("slurm_load_jobs", async |client| load(client, job, now).await)?;
        named = named.map(|named| named.among(&records));
        // A waiting task that is named is shown alone.
        let splits = named.is_some_and(|named| named.index.is_some());
        let mut shown: Vec<Row<'_>> =
            records.iter().flat_map(|record| rows(record, splits)).filter(|row| is_kept(row, now)).collect();
        if named.is_some() && shown.is_empty() {
            return Err(Ended::plain(INVALID));
        }
        if let Some(Named { job, index: Some(index) }) = named {
            shown.retain(|row| row.has_any(&IndexSet::one(index)));
            if shown.is_empty() {
                return self.not_found(&format!("Job {job}_{index} not found"));
            }
        }
        let mut accounts = Accounts::default();
        if self.json {
            return self.print(&job_json::document(&shown, now, &mut accounts));
        }
        if shown.is_empty() {
            return self.print("No jobs in the system\n");
        }
        let (mut live, mut nodes) = (BTreeMap::new(), None);
        if self.details {
            nodes = Some(self.ask("slurm_load_node", async |client| client.nodes_in_use().await)?);
            let rows = shown.iter().copied();
            live = self.ask(steps::LOAD, async |client| steps::launched_by(client, rows).await)?;
        }
        let mut write = |row: &Row<'_>| {
            let mut record = describe(row, nodes.as_deref(), &clock, &mut accounts);
            if self.details {
                let task = row.index().map(|index| TaskId { job: row.job.id, index });
                let live = task.and_then(|task| live.get(&task)).map_or(&[][..], Vec::as_slice);
                let (code, signal) = row.derived_exit(live);
                record.maybe("DerivedExitCode", Some(&format!("{code}:{signal}")));
            }
            record.write(self.one_line)
        };
        self.print(&shown.iter().map(&mut write).collect::<String>())
    }

    /// Shows the steps that run, of one job or of all.
    pub(super) fn show_steps(&self, id: Option<&str>) -> Outcome {
        let (job, step) = id.map_or((None, None), |id| match id.split_once('.') {
            Some((job, step)) => (Some(job), Some(step)),
            None => (Some(id), None),
        });
        let not_found = || format!("Job step {} not found", id.unwrap_or_default());
        let mut named = job.map(|job| Named::parse(job).ok_or_else(|| Ended::plain(not_found()))).transpose()?;
        let clock = self.clock(steps::LOAD)?;
        let now = clock.now;
        let job = named.map(|named| named.job);
        let records = self.ask(steps::LOAD, async |client| load(client, job, now).await)?;
        named = named.map(|named| named.among(&records));
        if step.is_some() && records.is_empty() {
            return Err(Ended::plain("slurm_get_job_steps error: Invalid job id specified"));
        }
        let mut accounts = Accounts::default();
        let takes = |row: &Row<'_>| {
            let index = named.and_then(|named| named.index);
            row.state() == State::Running && index.is_none_or(|index| row.has_any(&IndexSet::one(index)))
        };
        let mut text = String::new();
        for row in records.iter().flat_map(|record| rows(record, false)).filter(takes) {
            let steps = self.ask(steps::LOAD, async |client| steps::running(client, &row).await)?;
            for step in steps.iter().filter(|it| step.is_none_or(|step| step == it.number)) {
                text.push_str(&describe_step(&row, step, &clock, &mut accounts).write(self.one_line));
            }
        }
        match (text.is_empty(), id) {
            (false, _) => self.print(&text),
            (true, None) => self.print("No job steps in the system\n"),
            (true, Some(_)) => self.not_found(&not_found()),
        }
    }
}

/// The memory that the user asked for, with Slurm's name for it.
fn memory(row: &Row<'_>) -> (&'static str, String) {
    match row.memory_mib_per_cpu() {
        Some(mebibytes) => ("MinMemoryCPU", exact(mebibytes)),
        None => ("MinMemoryNode", exact(row.memory_mib_per_node())),
    }
}

/// The record of a job.
fn describe(row: &Row<'_>, nodes: Option<&[NodeView]>, clock: &Clock, accounts: &mut Accounts) -> Record {
    let mut record = Record::default();
    head_lines(row, accounts, &mut record);
    time_lines(row, clock, &mut record);
    place_lines(row, &mut record);
    request_lines(row, nodes, &mut record);
    file_lines(row, &mut record);
    record
}

/// Who the job is and what state it is in.
fn head_lines(row: &Row<'_>, accounts: &mut Accounts, record: &mut Record) {
    let job = row.job;
    let (id, name) = (row.raw_id(), &job.name);
    match row.array_task() {
        None => record.line(&[("JobId", &id), ("JobName", name)]),
        Some(task) => {
            let all: [(&str, &dyn std::fmt::Display); 3] =
                [("JobId", &id), ("ArrayJobId", &job.id), ("ArrayTaskId", &task)];
            let limit = job.array.as_ref().and_then(|array| array.limit);
            match &limit {
                Some(limit) => record.line(&[&all[..], &[("ArrayTaskThrottle", limit), ("JobName", name)]].concat()),
                None => record.line(&[&all[..], &[("JobName", name)]].concat()),
            }
        }
    }
    let user = format!("{}({})", job.user, accounts.uid(&job.user));
    let group = format!("{}({})", accounts.group(&job.user), accounts.gid(&job.user));
    record.line(&[("UserId", &user), ("GroupId", &group), ("MCS_label", &"N/A")]);
    record.line(&[
        ("Priority", &row.priority()),
        ("Nice", &row.label("slurm.nice").unwrap_or("0")),
        ("Account", &row.account()),
        ("QOS", &row.qos()),
    ]);
    record.line(&[("JobState", &row.state().name()), ("Reason", &row.reason()), ("Dependency", &row.dependency())]);
    // The signal that ended a cancelled script.
    let (code, signal) = match row.task.and_then(|task| task.exit_code) {
        Some(code) if row.state() == State::Cancelled => split_code(code),
        _ => row.exit(),
    };
    record.line(&[
        ("Requeue", &u8::from(job.requeue)),
        ("Restarts", &row.restarts()),
        ("BatchFlag", &u8::from(!job.allocation)),
        ("Reboot", &0),
        ("ExitCode", &format_args!("{code}:{signal}")),
    ]);
}

fn time_lines(row: &Row<'_>, clock: &Clock, record: &mut Record) {
    let write = |at: Option<WallTime>| at.map_or_else(|| "Unknown".to_owned(), |at| clock.write(at));
    let limit = row.limit().map_or_else(|| "UNLIMITED".to_owned(), long);
    record.line(&[("RunTime", &long(row.elapsed(clock.now))), ("TimeLimit", &limit), ("TimeMin", &"N/A")]);
    let (submitted, eligible) = (write(Some(row.job.submitted_at)), write(row.eligible_at()));
    record.line(&[("SubmitTime", &submitted), ("EligibleTime", &eligible)]);
    record.line(&[("AccrueTime", &eligible)]);
    record.line(&[
        ("StartTime", &write(row.expected_start())),
        ("EndTime", &write(row.expected_end())),
        ("Deadline", &"N/A"),
    ]);
    record.line(&[
        ("SuspendTime", &"None"),
        ("SecsPreSuspend", &0),
        ("LastSchedEval", &write(row.started_at().or(Some(row.job.submitted_at)))),
        ("Scheduler", &"Main"),
    ]);
}

fn place_lines(row: &Row<'_>, record: &mut Record) {
    let host = row.label("slurm.submit_host").unwrap_or("localhost");
    record.line(&[("Partition", &row.partition()), ("AllocNode:Sid", &format_args!("{host}:0"))]);
    record.line(&[
        ("ReqNodeList", &row.named_nodes("slurm.nodelist")),
        ("ExcNodeList", &row.named_nodes("slurm.exclude")),
    ]);
    record.line(&[("NodeList", &row.node_list())]);
    record.maybe("BatchHost", row.batch_host().filter(|_| !row.nodes().is_empty()));
}

fn request_lines(row: &Row<'_>, nodes: Option<&[NodeView]>, record: &mut Record) {
    let job = row.job;
    let (tasks, each) = (row.tasks(), row.cpus_per_task());
    record.line(&[
        ("NumNodes", &job.nodes),
        ("NumCPUs", &row.cpus()),
        ("NumTasks", &tasks),
        ("CPUs/Task", &each),
        ("ReqB:S:C:T", &"0:0:*:*"),
    ]);
    let tres = row.tres(Conversion::Exact);
    record.line(&[("ReqTRES", &tres)]);
    record.line(&[("AllocTRES", &if row.nodes().is_empty() { NULL } else { &tres })]);
    let per_node = row.label("slurm.ntasks_per_node").unwrap_or("0");
    record.line(&[("Socks/Node", &"*"), ("NtasksPerN:B:S:C", &format_args!("{per_node}:0:*:*")), ("CoreSpec", &"*")]);
    if let Some(nodes) = nodes {
        allocation_lines(row, nodes, record);
    }
    let least = each.saturating_mul(per_node.parse::<u32>().unwrap_or(0).max(1));
    let (name, memory) = memory(row);
    record.line(&[("MinCPUsNode", &least), (name, &memory), ("MinTmpDiskNode", &0)]);
    let has_list = row.label("slurm.nodelist").or(row.label("slurm.exclude")).is_some();
    let constraint = job.constraint.as_ref().filter(|_| !has_list).map(ToString::to_string);
    let features = row.label("slurm.features").or(constraint.as_deref()).unwrap_or(NULL);
    record.line(&[("Features", &features), ("DelayBoot", &"00:00:00")]);
    record.line(&[
        ("OverSubscribe", &row.over_subscribe()),
        ("Contiguous", &0),
        ("Licenses", &row.label("licenses").unwrap_or(NULL)),
        ("Network", &NULL),
    ]);
}

fn file_lines(row: &Row<'_>, record: &mut Record) {
    let job = row.job;
    record.line(&[("Command", &row.command().as_deref().unwrap_or(NULL))]);
    record.line(&[("WorkDir", &job.directory.as_deref().unwrap_or(NULL))]);
    record.maybe("Comment", row.label("comment"));
    if !job.allocation {
        let [input, output, error] = row.files();
        record.line(&[("StdErr", &error)]);
        record.line(&[("StdIn", &input)]);
        record.line(&[("StdOut", &output)]);
    }
    record.maybe("TresPerNode", Some(&row.gres()));
}

/// What the job holds on each of its nodes, for `--details`.
fn allocation_lines(row: &Row<'_>, nodes: &[NodeView], record: &mut Record) {
    let gres = |gpus: &[GpuId]| {
        let ids: Vec<&str> = gpus.iter().map(GpuId::as_str).collect();
        if ids.is_empty() { String::new() } else { format!("gpu:{}(IDX:{})", ids.len(), ids.join(",")) }
    };
    let is_its = |run: &&NodeRunView| run.job == row.job.id && run.index == row.index().unwrap_or(0);
    let runs = nodes.iter().flat_map(|node| node.holders.iter().flatten().filter(is_its).map(move |run| (node, run)));
    let runs: Vec<(&NodeView, &NodeRunView)> = runs.collect();
    let gpus: usize = runs.iter().map(|(_, run)| run.gpu_ids.len()).sum();
    record.line(&[("JOB_GRES", &if gpus > 0 { format!("gpu:{gpus}") } else { NULL.to_owned() })]);
    for (node, run) in runs {
        record.line(&[
            ("  Nodes", &node.name),
            ("CPU_IDs", &run.cpu_ids),
            ("Mem", &(run.memory_bytes >> 20)),
            ("GRES", &gres(&run.gpu_ids)),
        ]);
    }
}

/// The record of a step.
fn describe_step(row: &Row<'_>, step: &Step, clock: &Clock, accounts: &mut Accounts) -> Record {
    let mut record = Record::default();
    let started = step.started_at.map_or_else(|| "Unknown".to_owned(), |at| clock.write(at));
    record.line(&[
        ("StepId", &format_args!("{}.{}", row.id(), step.number)),
        ("UserId", &accounts.uid(&row.job.user)),
        ("StartTime", &started),
        ("TimeLimit", &"UNLIMITED"),
    ]);
    let nodes = compress(&step.nodes);
    record.line(&[("State", &"RUNNING"), ("Partition", &row.partition()), ("NodeList", &nodes)]);
    record.line(&[
        ("Nodes", &step.nodes.len()),
        ("CPUs", &step.cpus),
        ("Tasks", &step.tasks),
        ("Name", &step.name),
        ("Network", &NULL),
    ]);
    record.line(&[("TRES", &NULL)]);
    record.line(&[("ResvPorts", &NULL)]);
    record.line(&[("CPUFreqReq", &"Default")]);
    record.line(&[("SrunHost:Pid", &"(null):0")]);
    record
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_have_slurms_forms() {
        let named = |job, index| Some(Named { job: JobId(job), index });
        assert_eq!((Named::parse("12"), Named::parse("12_3")), (named(12, None), named(12, Some(3))));
        assert_eq!((Named::parse("4000000012"), Named::parse("12_")), (named(12, Some(3)), named(12, Some(0))));
        for text in ["", "x", "0", "=3", "3,4", "3.0", "12_x", "+3", "12_3_4"] {
            assert_eq!(Named::parse(text), None, "{text}");
        }
    }
}
