//! The report of a run's end for the head.

use std::sync::Arc;
use std::time::Duration;

use hostler_core::agent::{Exit, RunLaunch, Why};
use hostler_model::{Engine, NodeName, format_bytes};
use hostler_proto::certificate::Certificate;
use hostler_proto::link::{IoSource, IoUsage, StepRecord, Usage};
use hostler_remote::step::OUT_OF_MEMORY;
use hostler_shepherd::{Cause, ExitRecord, Io, LostReason, Status};

use super::outcome::{RunOutcome, is_out_of_memory, why_of};
use super::surroundings::Surroundings;
use crate::measure::certificate;
use crate::provision::variables::is_slurm_job;
use crate::runs::directory::Runs;
use crate::runs::steps;

/// Status of `docker run` and `podman run` when the engine itself has failed.
const ENGINE_FAILED: i32 = 125;

/// The ends of all runs on this node. Nothing else makes reports of them.
pub(crate) struct RunEnds {
    pub(crate) node: NodeName,
    pub(crate) runs: Arc<Runs>,
    pub(crate) surroundings: Surroundings,
}

impl RunEnds {
    /// Ends what surrounds a run that has ended, and returns the report.
    pub(crate) async fn conclude(&self, launch: &RunLaunch, outcome: &RunOutcome) -> Exit {
        self.surroundings.end(launch, outcome).await;
        match outcome {
            RunOutcome::Recorded(record) => {
                let steps = self.steps_of(launch).await;
                let certificate = certificate::of_ended(&self.runs, launch, record);
                self.with_disk(exit_of(record, launch, steps, certificate))
            }
            RunOutcome::Lost(reason) => self.with_disk(without_usage(Why::Lost, self.explain_loss(*reason))),
            RunOutcome::NotStarted { why, message } => without_usage(*why, message.clone()),
        }
    }

    /// The run's steps. Their file is in a directory of the user, who can mount a file system there that never answers.
    async fn steps_of(&self, launch: &RunLaunch) -> Vec<StepRecord> {
        if !launch.spec().first_node {
            return Vec::new();
        }
        let directory = self.runs.of(launch.run());
        tokio::task::spawn_blocking(move || steps::records(&directory)).await.unwrap_or_default()
    }

    /// Adds a note that the disk is full, because the run's own message, its output or its files may not have fit on the disk.
    /// Many programs do not fail then.
    fn with_disk(&self, mut exit: Exit) -> Exit {
        if self.runs.disk_is_full() {
            let lost = if exit.why == Why::Exited(0) { ", so output or files may be missing" } else { "" };
            let full = format!("the disk of node {} is full{lost}", self.node);
            exit.message = Some(exit.message.map_or_else(|| full.clone(), |message| format!("{message}; {full}")));
        }
        exit
    }

    /// Says why the end of a run is unknown.
    fn explain_loss(&self, reason: LostReason) -> String {
        let what = match reason {
            LostReason::Rebooted => "was restarted while the job ran",
            LostReason::ShepherdGone | LostReason::PidReused => {
                "does not know the job's exit status: its shepherd (the supervising process) was killed, or the machine's job service was stopped"
            }
            LostReason::NeverStarted => "never started the job",
            LostReason::Damaged => "has damaged files of this run",
        };
        format!("node {} {what}", self.node)
    }
}

fn without_usage(why: Why, message: String) -> Exit {
    Exit { why, message: Some(message), usage: Usage::default(), steps: Vec::new(), certificate: None }
}

/// Converts an exit record to the report.
fn exit_of(
    record: &ExitRecord,
    launch: &RunLaunch,
    steps: Vec<StepRecord>,
    certificate: Option<Box<Certificate>>,
) -> Exit {
    let memory = memory_message(record, launch.placement.resources.memory_bytes);
    // As in Slurm, a kill in a step is the step's end, and one in the script is that of the job.
    let is_of_step = steps.iter().any(|step| !step.is_script() && step.exit_code == Some(OUT_OF_MEMORY));
    let ends_script = launch.spec().surroundings.oom_fails || is_slurm_job(launch.spec()) && !is_of_step;
    let mut messages: Vec<String> = memory.into_iter().collect();
    if record.cause == Some(Cause::OutputLimit) {
        let cap = format_bytes(launch.job.output_cap_bytes());
        messages.push(format!(
            "the job wrote more than {cap} of output (setting output-cap), and this file system cannot discard the rest"
        ));
    }
    messages.extend(explain_engine(launch, &record.status));
    if let Status::StartFailed { message, .. } = &record.status {
        messages.push(message.clone());
    }
    if let Status::Signaled { signal, .. } = &record.status
        && record.cause.is_none()
    {
        messages.push(format!("ended by signal {signal}"));
    }
    if !record.unkillable.is_empty() {
        messages.push(format!("processes {:?} of the job could not be killed", record.unkillable));
    }
    messages.extend(record.log_error.iter().map(|error| format!("the job's output is incomplete: {error}")));
    Exit {
        why: why_of(record, ends_script),
        message: (!messages.is_empty()).then(|| messages.join("; ")),
        usage: Usage {
            wall_ms: millis(record.wall_time),
            user_ms: millis(record.user_time),
            system_ms: millis(record.system_time),
            max_rss_bytes: record.max_rss_bytes,
            memory_peak_bytes: record.memory_peak_bytes,
            io: record.io.map(io_of),
        },
        steps,
        certificate,
    }
}

/// Says what the status of a run's container engine means, if it is about the engine.
fn explain_engine(launch: &RunLaunch, status: &Status) -> Option<String> {
    let engine = launch.spec().surroundings.container.as_deref()?.engine;
    let is_failure = *status == Status::Exited { code: ENGINE_FAILED } && engine != Engine::Apptainer;
    is_failure.then(|| format!("{engine} did not run the container; the job's output says why"))
}

/// Message about processes that the kernel killed because of the memory limit.
fn memory_message(record: &ExitRecord, limit_bytes: u64) -> Option<String> {
    let limit = format_bytes(limit_bytes);
    if is_out_of_memory(record) {
        return Some(format!("the job exceeded its memory limit of {limit}; request more with --memory"));
    }
    // Says `earlier`, so that readers do not take the kill for the cause of the end.
    let before = if record.cause.is_some() { "earlier, " } else { "" };
    (record.oom_kill == Some(true)).then(|| {
        format!(
            "{before}the memory limit of {limit} was exceeded, and a process of the job was killed; request more with --memory"
        )
    })
}

fn io_of(io: Io) -> IoUsage {
    let source = match io.source {
        hostler_shepherd::IoSource::Leaf => IoSource::Cgroup,
        hostler_shepherd::IoSource::Processes => IoSource::Processes,
    };
    IoUsage { read_bytes: io.read_bytes, write_bytes: io.write_bytes, source }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use hostler_shepherd::{Containment, Limits, Moment};

    use super::*;

    /// The record of a run in which the kernel killed a process because of the memory limit.
    fn record_with_oom_kill(status: Status, cause: Option<Cause>) -> ExitRecord {
        let moment = Moment { boottime_ns: 1, unix_ms: 2 };
        ExitRecord {
            identity: "7.1".to_owned(),
            status,
            cause,
            started: moment,
            ended: moment,
            wall_time: Duration::from_secs(1),
            user_time: Duration::ZERO,
            system_time: Duration::ZERO,
            max_rss_bytes: 4096,
            stdout_bytes: 0,
            stderr_bytes: 0,
            oom_kill: Some(true),
            leftovers: 0,
            unkillable: Vec::new(),
            containment: Containment::Descent { reason: "a test".to_owned() },
            memory_peak_bytes: None,
            io: None,
            events: None,
            limits: Limits::default(),
            log_error: None,
        }
    }

    fn signaled(signal: i32) -> Status {
        Status::Signaled { signal, core_dumped: false }
    }

    #[test]
    fn killed_main_process_ends_the_run_as_out_of_memory() {
        for status in [signaled(9), Status::Exited { code: 137 }] {
            let record = record_with_oom_kill(status, None);
            assert_eq!(why_of(&record, false), Why::OutOfMemory(137));
            let message = memory_message(&record, 100 << 20);
            assert_eq!(
                message.as_deref(),
                Some("the job exceeded its memory limit of 100M; request more with --memory")
            );
            assert_eq!(why_of(&ExitRecord { oom_kill: Some(false), ..record.clone() }, true), Why::Exited(137));
            assert_eq!(why_of(&ExitRecord { oom_kill: None, ..record }, true), Why::Exited(137));
        }
    }

    #[test]
    fn killed_child_ends_a_script_of_slurm_as_out_of_memory() {
        let record = record_with_oom_kill(Status::Exited { code: 0 }, None);
        assert_eq!(why_of(&record, true), Why::OutOfMemory(137));
        assert_eq!(why_of(&record_with_oom_kill(signaled(15), Some(Cause::TimeLimit)), true), Why::TimeLimit(143));
    }

    #[test]
    fn killed_child_does_not_change_why_the_run_ended() {
        let exited = |code| Status::Exited { code };
        for (status, cause, why) in [
            (signaled(15), Some(Cause::TimeLimit), Why::TimeLimit(143)),
            (signaled(9), Some(Cause::TimeLimit), Why::TimeLimit(137)),
            (signaled(15), Some(Cause::Cancelled), Why::Asked(143)),
            (signaled(9), Some(Cause::Cancelled), Why::Asked(137)),
            (exited(0), Some(Cause::OutputLimit), Why::Exited(1)),
            (exited(3), None, Why::Exited(3)),
            (exited(0), None, Why::Exited(0)),
            (signaled(15), None, Why::Exited(143)),
        ] {
            let record = record_with_oom_kill(status, cause);
            assert_eq!(why_of(&record, false), why, "{record:?}");
            let message = memory_message(&record, 100 << 20).expect("a process was killed");
            let earlier = if record.cause.is_some() { "earlier, " } else { "" };
            let start = format!("{earlier}the memory limit of 100M was exceeded, and a process");
            assert!(message.starts_with(&start), "{message}");
            assert_eq!(memory_message(&ExitRecord { oom_kill: Some(false), ..record }, 100 << 20), None);
        }
    }
}
