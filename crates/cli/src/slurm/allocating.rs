//! Allocations for `salloc` and `srun`: the request, the wait, and the variables of what runs in them.

use std::ffi::OsString;
use std::path::PathBuf;

use hostler_client::Client;
use hostler_model::{Environment, JobId, Submission, Work, text_of};
use hostler_proto::api::JobAction;
use hostler_slurm::getopt::{Opt, Order, Parsed};
use hostler_slurm::job_options::{JobOptions, Key};
use hostler_slurm::job_variables::{JobFacts, job_times, job_variables};
use tokio::sync::Notify;
use tokio::sync::mpsc::Receiver;

use super::container::only_for_jobs;
use super::placing::place;
use super::sbatch::{SUBMISSION_FAILED, own_commands};
use super::{Ended, Refused, mistaken_job, request, tell};
use crate::commands::run::own_directory;
use crate::context::Context;
use crate::exit;
use crate::steps::holding::{Held, Requested, Wait, prepare};

/// Variables of another job that contains the caller.
const OF_A_JOB: [&str; 16] = [
    "SLURM_JOB_",
    "SLURM_JOBID",
    "SLURM_STEP",
    "SLURM_ARRAY_",
    "SLURM_NTASKS",
    "SLURM_NPROCS",
    "SLURM_NNODES",
    "SLURM_NODE",
    "SLURM_TASK",
    "SLURM_CPUS_",
    "SLURM_MEM_",
    "SLURM_GPUS",
    "SLURM_GTIDS",
    "SLURM_PROCID",
    "SLURM_LOCALID",
    "SLURM_RESTART_COUNT",
];

/// A job for a command of this machine.
pub(crate) struct Wanted {
    pub(crate) options: JobOptions,
    pub(crate) spec: Submission,
    /// Whether the job must start at once.
    pub(crate) immediate: bool,
    /// Whether the job stays when this process ends.
    pub(crate) stays: bool,
}

/// How a command speaks of its job.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Speech {
    pub(crate) name: &'static str,
    /// What the errors of the submission begin with.
    pub(crate) failed: &'static str,
    /// Whether to name the job also when it need not wait.
    pub(crate) is_chatty: bool,
}

/// Parses the command line of a command whose first operand is a program, and applies what `own` leaves.
pub(crate) fn parse(name: &str, options: &[Opt<Key>], args: Vec<OsString>) -> Result<Parsed<Key>, Ended> {
    let parsed = hostler_slurm::getopt::parse(options, Order::StopAtOperand, args.into_iter().skip(1));
    parsed.map_err(|it| mistaken_job(name, &it))
}

/// Describes the job of a command.
pub(crate) fn describe(
    options: &JobOptions,
    speech: Speech,
    argv: &[OsString],
    default_name: &str,
    called: Option<&OsString>,
) -> Result<Submission, Ended> {
    options.clusters.as_deref().map_or(Ok(()), super::check_clusters)?;
    let directory = match &options.chdir {
        Some(path) => text_of(std::path::absolute(path).unwrap_or_else(|_| PathBuf::from(path))),
        None => own_directory()?,
    };
    let argv: Vec<String> = argv.iter().map(text_of).collect();
    let work = Work::command(argv, directory.clone());
    let commands = own_commands(called);
    let spec = request::submission(options, work, default_name, &directory, commands.as_deref());
    spec.map_err(|ended| ended.instead(SUBMISSION_FAILED, speech.failed))
}

/// Submits the job, waits for its resources, and holds them. `Err(code)`: a signal ended the wait.
pub(crate) async fn hold(
    context: &Context,
    client: &Client,
    wanted: &Wanted,
    speech: Speech,
    signals: &mut Receiver<i32>,
) -> Result<Result<Held, u8>, Ended> {
    let Wanted { options, spec, immediate, stays } = wanted;
    if spec.surroundings.image.is_some() {
        return Err(only_for_jobs());
    }
    let mut spec = spec.clone();
    let credentials = prepare(&mut spec, *stays)?;
    tell(context, speech.name, &request::warnings(options));
    let submitted = tokio::select! {
        placed = place(client, options, &spec) => placed.map_err(|refused: Refused| refused.ended(speech.failed, options))?,
        Some(number) = signals.recv() => {
            // The head gives an allocation back whose command does not come for it.
            tell(context, speech.name, &["interrupted before the head has answered; it may have the job".to_owned()]);
            return Ok(Err(exit::SIGNAL_BASE + u8::try_from(number).unwrap_or(0)));
        }
    };
    let id = submitted.id;
    let requested = Requested { job: id, credentials };
    let must_wait = Notify::new();
    let say = |text: String| {
        if !options.quiet {
            tell(context, speech.name, &[text]);
        }
    };
    let report = |wait| match wait {
        Wait::Pending(_) if *immediate => must_wait.notify_one(),
        Wait::Pending(job) => {
            if speech.is_chatty {
                say(format!("Pending job allocation {job}"));
            }
            say(format!("job {job} queued and waiting for resources"));
        }
        Wait::Granted { job, waited } => {
            if waited {
                say(format!("job {job} has been allocated resources"));
            }
            if speech.is_chatty {
                say(format!("Granted job allocation {job}"));
            }
        }
    };
    tokio::select! {
        held = requested.hold(client, report) => Ok(Ok(held?)),
        () = must_wait.notified() => {
            cancel(client, id).await;
            Err(Ended::error(format!("{}: Immediate execution impossible, insufficient resources", speech.failed)))
        }
        Some(number) = signals.recv() => {
            cancel(client, id).await;
            if speech.is_chatty {
                say(format!("Job allocation {id} has been revoked."));
            } else {
                say(format!("Job allocation {id} has been cancelled"));
            }
            Ok(Err(exit::SIGNAL_BASE + u8::try_from(number).unwrap_or(0)))
        }
    }
}

async fn cancel(client: &Client, id: JobId) {
    // It may have ended by itself.
    let _ = client.act(id, None, JobAction::Cancel).await;
}

/// The variables of a program on this machine that uses an allocation.
pub(crate) fn variables(held: &mut Held, spec: &Submission) -> Result<Environment, Ended> {
    let mut all = held.lay_out()?;
    let of_submission = spec.environment.iter().filter(|(name, _)| name.starts_with("SLURM_"));
    all.extend(of_submission.map(|(name, value)| (name.clone(), value.clone())));
    let nodes: Vec<String> = held.allocation.nodes.iter().map(|place| place.name.to_string()).collect();
    let (summary, each) = (&held.job.summary, held.job.on_each_node());
    let facts = JobFacts {
        job: summary.id.0,
        raw_id: summary.id.0,
        array_index: None,
        nodes: &nodes,
        node: "",
        node_rank: 0,
        ntasks: summary.labels.get("slurm.ntasks").and_then(|tasks| tasks.parse().ok()),
        tasks_per_node: held.job.tasks_per_node,
        cpus_per_node: each.cpus,
        memory_mib: each.memory_bytes >> 20,
        partition: summary.partition.as_ref().map(hostler_model::PartitionName::as_str),
        restarts: 0,
        gpus: each.gpus,
    };
    // The program runs on no node of the job.
    let of_a_node = [
        "SLURMD_NODENAME",
        "SLURM_NODEID",
        "SLURM_PROCID",
        "SLURM_LOCALID",
        "SLURM_GTIDS",
        "SLURM_TOPOLOGY_ADDR",
        "SLURM_TOPOLOGY_ADDR_PATTERN",
        "HOSTNAME",
        "ENVIRONMENT",
    ];
    let of_job = job_variables(&facts).into_iter().filter(|(name, _)| !of_a_node.contains(name));
    all.extend(of_job.map(|(name, value)| (name.to_owned(), value)));
    let now = u64::try_from(jiff::Timestamp::now().as_second()).unwrap_or_default();
    all.extend(job_times(now, held.job.summary.time_limit_ms).map(|(name, value)| (name.to_owned(), value)));
    Ok(all)
}

/// Whether a variable describes a job that contains the caller, or a part of it.
pub(crate) fn is_of_a_job(name: &str) -> bool {
    OF_A_JOB.iter().any(|start| name.starts_with(start)) || name == "SLURMD_NODENAME"
}
