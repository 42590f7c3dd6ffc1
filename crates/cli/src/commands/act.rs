//! `cancel`, `hold`, `release`, `requeue` and `signal`: act on jobs and array tasks.

use std::collections::BTreeSet;

use clap::Args;
use hostler_client::{Client, RecordFilter};
use hostler_model::{JobId, JobState, SignalNumber, SignalTarget, WallTime, plural};
use hostler_proto::api::{JobAction, JobRecord, JobSummary, TaskView};
use nix::sys::signal::{SigHandler, signal};

use super::target::Target;
use crate::context::{Context, block_on};
use crate::exit;
use crate::failure::{Failure, Outcome};

/// Cancel jobs; results written so far can still be fetched
#[derive(Debug, Args)]
pub(crate) struct Cancel {
    #[command(flatten)]
    targets: Targets,
}

/// Keep waiting jobs from starting until `hostler release`
#[derive(Debug, Args)]
pub(crate) struct Hold {
    #[command(flatten)]
    targets: Targets,
}

/// Allow held jobs to start
#[derive(Debug, Args)]
pub(crate) struct Release {
    #[command(flatten)]
    targets: Targets,
}

/// Queue jobs again; running jobs are stopped and start over
///
/// Of an array, this queues all tasks that run, or that failed, were cancelled, reached a limit or were lost with their
/// node. Completed tasks keep their results. A completed task runs again if you name it, e.g. 12_3, or with --completed.
///
/// A job whose tasks have all completed usually cannot be requeued, because the head has deleted the job's environment
/// variables. Submit such a job again.
///
/// Jobs that were cancelled because they depend on this job stay cancelled. With --dependents, they are queued again and
/// wait for this job.
#[derive(Debug, Args)]
pub(crate) struct Requeue {
    #[command(flatten)]
    targets: Targets,

    /// Also queue completed tasks again; this deletes their results
    #[arg(long)]
    completed: bool,

    /// Also queue the jobs that were cancelled because these jobs did not end as their dependencies required
    #[arg(long)]
    dependents: bool,
}

/// Send a signal to processes of a running job
///
/// The job's program gets the signal, but not the processes that it started. A node that the head cannot reach at this moment
/// gets none.
#[derive(Debug, Args)]
pub(crate) struct Signal {
    /// Id of a job, e.g. 12, or of an array task, e.g. 12_3
    #[arg(value_name = "ID")]
    target: Target,

    /// Name or number of the signal, e.g. USR1
    #[arg(value_name = "SIGNAL")]
    signal: SignalNumber,

    /// Who gets the signal: program, group (the program and the processes that it started), steps, or all
    #[arg(long, value_name = "TO", default_value = "program")]
    to: SignalTarget,
}

#[derive(Debug, Args)]
struct Targets {
    /// Ids of jobs, e.g. 12, or of array tasks, e.g. 12_3
    #[arg(value_name = "ID", required = true)]
    targets: Vec<Target>,
}

impl Cancel {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        act(context, &self.targets, JobAction::Cancel)
    }
}

impl Hold {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        act(context, &self.targets, JobAction::Hold)
    }
}

impl Release {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        act(context, &self.targets, JobAction::Release)
    }
}

impl Requeue {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let action = if self.completed { JobAction::RequeueAll } else { JobAction::Requeue };
        let targets = &self.targets.targets;
        let is_needed = self.dependents || !(context.output.is_json() || context.output.is_quiet());
        let dependents = match is_needed {
            true => block_on(cancelled_dependents(&context.client()?, targets))?,
            false => Vec::new(),
        };
        let code = act(context, &self.targets, action)?;
        if self.dependents {
            return requeue_dependents(context, &dependents).map(|()| code);
        }
        if !dependents.is_empty() {
            let listed = |ids: &mut dyn Iterator<Item = String>, between: &str| ids.collect::<Vec<_>>().join(between);
            let jobs = listed(&mut dependents.iter().map(ToString::to_string), ", ");
            let parents = listed(&mut targets.iter().map(ToString::to_string), " ");
            context.output.say(&format!(
                "note: dependent jobs stay cancelled: {jobs}; `hostler requeue --dependents {parents}` queues them too"
            ));
        }
        Ok(code)
    }
}

/// Queues cancelled dependents again, after the jobs that they depend on.
fn requeue_dependents(context: &Context, dependents: &[JobId]) -> Result<(), Failure> {
    let client = context.client()?;
    block_on(async {
        for &id in dependents {
            let summary = client.act(id, None, JobAction::Requeue).await?;
            context.output.say(&sentence(Target { job: id, index: None }, JobAction::Requeue, &summary));
        }
        Ok(())
    })
}

/// The jobs that were cancelled because `targets` did not end as required, directly or through others, in the order of
/// their submission.
async fn cancelled_dependents(client: &Client, targets: &[Target]) -> Result<Vec<JobId>, Failure> {
    let (mut parents, mut since) = (BTreeSet::new(), None);
    for target in targets {
        // The requeue itself reports an unknown job.
        let Ok(job) = client.job(target.job, 0).await else { continue };
        parents.insert(target.job);
        let submitted_at = job.summary.submitted_at;
        since = Some(since.map_or(submitted_at, |since: WallTime| since.min(submitted_at)));
    }
    if parents.is_empty() {
        return Ok(Vec::new());
    }
    let filter =
        RecordFilter { states: vec![JobState::Cancelled], ended_since: since, live: true, ..RecordFilter::default() };
    let mut because_of_them = Vec::new();
    for id in dependents_of(&parents, client.records(&filter).await?) {
        let is_for_dependency = |task: &TaskView| task.message.as_ref().is_some_and(|it| it.ends_with(NEVER_SATISFIED));
        if client.job(id, 1).await?.tasks_shown.first().is_some_and(is_for_dependency) {
            because_of_them.push(id);
        }
    }
    Ok(because_of_them)
}

/// The end of the message of a job that was cancelled because of its dependency.
const NEVER_SATISFIED: &str = "can never be satisfied";

/// The jobs of `records` that depend on `parents`, directly or through others, in the order of their submission.
fn dependents_of(parents: &BTreeSet<JobId>, mut records: Vec<JobRecord>) -> Vec<JobId> {
    records.sort_by_key(|record| record.id);
    let mut found = Vec::new();
    for record in records {
        let depends = |on: JobId| parents.contains(&on) || found.contains(&on);
        if record.after.iter().any(|dependency| depends(dependency.job)) {
            found.push(record.id);
        }
    }
    found
}

impl Signal {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let Self { target, signal, to } = self;
        let client = context.client()?;
        let sent = block_on(async { Ok(client.signal(target.job, target.index, signal, to).await?) })?;
        context.output.say(&format!("{signal} is sent to job {target}"));
        if sent.unreachable > 0 {
            let nodes = plural(sent.unreachable, "node");
            context.output.say(&format!("no signal went to {nodes} of the job that cannot be reached"));
        }
        if context.output.is_json() {
            context.output.json(&sent);
        }
        Ok(if sent.nodes == 0 { exit::FAILED } else { exit::OK })
    }
}

/// If this program runs inside the job, makes it ignore the SIGTERM that ends the job: a job that requeues itself must learn
/// that this succeeded. SIGKILL still follows after the grace period.
pub(crate) fn outlive_own_job(job: JobId) {
    if std::env::var("HOSTLER_JOB_ID").is_ok_and(|own| own == job.to_string()) {
        // SAFETY: this installs no handler.
        let _ = unsafe { signal(nix::sys::signal::Signal::SIGTERM, SigHandler::SigIgn) };
    }
}

/// Applies the action to every target, even if it fails for some. The exit code is that of the first failure.
fn act(context: &Context, targets: &Targets, action: JobAction) -> Outcome {
    let client = context.client()?;
    block_on(async {
        let mut summaries = Vec::new();
        let mut first_failure = None;
        for target in &targets.targets {
            outlive_own_job(target.job);
            match client.act(target.job, target.index, action).await {
                Ok(summary) => {
                    context.output.say(&sentence(*target, action, &summary));
                    summaries.push(summary);
                }
                Err(error) if first_failure.is_none() && targets.targets.len() == 1 => return Err(error.into()),
                Err(error) => {
                    let failure = crate::failure::Failure::from(error);
                    context.output.fail(&failure);
                    first_failure.get_or_insert(failure.exit);
                }
            }
        }
        if context.output.is_json() {
            context.output.json(&summaries);
        }
        Ok(first_failure.unwrap_or(exit::OK))
    })
}

fn sentence(target: Target, action: JobAction, summary: &JobSummary) -> String {
    let what = match target.index {
        Some(_) => format!("task {target}"),
        None => format!("job {target}"),
    };
    match action {
        JobAction::Cancel if summary.state.is_ended() => format!("{what} is {}", summary.state),
        JobAction::Cancel if summary.state == JobState::Pending && target.index.is_some() => {
            format!("{what} is cancelled")
        }
        JobAction::Cancel => format!("{what} is being cancelled"),
        JobAction::Hold => format!("{what} is held until `hostler release {target}`"),
        JobAction::Release => format!("{what} is released"),
        JobAction::Requeue | JobAction::RequeueAll => format!("{what} is queued again"),
    }
}

#[cfg(test)]
mod tests {
    use hostler_model::Dependency;

    use super::*;

    fn record(id: u64, after: &str) -> JobRecord {
        let value = serde_json::json!({
            "id": id, "name": "x", "user": "ada", "state": "cancelled", "nodes": 1, "tasks_per_node": 1, "cpus": 1,
            "memory_bytes": 1, "attempt": 0, "priority": 0, "requeue": false, "submitted_at": 0, "tasks": [],
        });
        let after = if after.is_empty() { Vec::new() } else { Dependency::parse_list(after).expect("dependencies") };
        JobRecord { after, ..serde_json::from_value(value).expect("a record") }
    }

    #[test]
    fn dependents_are_found_through_others_in_order() {
        let records = vec![
            record(9, "afterok:8"),
            record(7, ""),
            record(8, "afterok:6:5"),
            record(10, "after:7"),
            record(11, "afterany:9"),
        ];
        assert_eq!(dependents_of(&[JobId(6)].into(), records), [8, 9, 11].map(JobId));
    }
}
