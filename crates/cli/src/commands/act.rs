//! `cancel`, `hold`, `release`, `requeue` and `signal`: act on jobs and array tasks.

use clap::Args;
use hostler_model::{JobId, JobState, SignalNumber, SignalTarget, plural};
use hostler_proto::api::{JobAction, JobSummary};
use nix::sys::signal::{SigHandler, signal};

use super::target::Target;
use crate::context::{Context, block_on};
use crate::exit;
use crate::failure::Outcome;

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
#[derive(Debug, Args)]
pub(crate) struct Requeue {
    #[command(flatten)]
    targets: Targets,

    /// Also queue completed tasks again; this deletes their results
    #[arg(long)]
    completed: bool,
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
        act(context, &self.targets, action)
    }
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
