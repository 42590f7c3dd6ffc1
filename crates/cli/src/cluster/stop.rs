//! Taking an embedded cluster down: the head stops by request, then every process that was started is seen to be gone.

use std::time::Duration;

use hostler_client::{Client, ClientError, Endpoint, LiveJobs, Patience};
use hostler_proto::api::LiveCounts;
use nix::sys::signal::Signal;

use super::process::ProcessId;
use super::{Places, Record};
use crate::exit;
use crate::failure::{During, Failure};

/// How long a process may take to end by itself, and again after TERM.
const PATIENCE: Duration = Duration::from_secs(10);

/// What was stopped.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Stopped {
    /// How many processes.
    pub(crate) processes: usize,
    /// Whether the head had died before, so that only the agents were there to be stopped.
    pub(crate) head_was_dead: bool,
}

/// Stops everything. The caller holds the lock.
///
/// # Errors
/// When jobs are live and `jobs` is [`LiveJobs::Refuse`]; then nothing was stopped.
pub(crate) async fn take_down(places: &Places, jobs: LiveJobs) -> Result<Stopped, Failure> {
    let mut record = Record::load(&places.record())?;
    let alive = record.alive();
    let head_was_dead = !ask_head(places, jobs).await?;
    if head_was_dead && !alive.is_empty() && jobs == LiveJobs::Cancel {
        return Err(Failure::new("jobs cannot be cancelled: the head does not run")
            .hint("`hostler up` starts it again, with every job it had"));
    }
    for process in &alive {
        let is_head = record.head.as_ref() == Some(process);
        end(process, if head_was_dead && !is_head { Duration::ZERO } else { PATIENCE })?;
    }
    record.head = None;
    record.nodes.iter_mut().for_each(|node| node.agent = None);
    if !alive.is_empty() {
        record.save(&places.record())?;
    }
    Ok(Stopped { processes: alive.len(), head_was_dead })
}

/// Asks the head to stop; says whether there was one.
async fn ask_head(places: &Places, jobs: LiveJobs) -> Result<bool, Failure> {
    let client = Client::new(Endpoint::Unix(places.socket()?)).with_patience(Patience::NONE);
    let info = match client.info().await {
        Ok(info) => info,
        Err(ClientError::Connect { .. } | ClientError::Interrupted { .. }) => return Ok(false),
        Err(error) => return Err(error.into()),
    };
    if jobs == LiveJobs::Refuse && live(&info.tasks) > 0 {
        return Err(refusal(&info.tasks));
    }
    match client.shutdown(jobs).await {
        Ok(()) => Ok(true),
        // A job slipped in between the two calls.
        Err(ClientError::Refused { .. }) if jobs == LiveJobs::Refuse => Err(refusal(&client.info().await?.tasks)),
        Err(error) => Err(error.into()),
    }
}

fn live(tasks: &LiveCounts) -> u64 {
    tasks.pending + tasks.starting + tasks.running + tasks.completing
}

fn refusal(tasks: &LiveCounts) -> Failure {
    let running = live(tasks) - tasks.pending;
    let what = match (tasks.pending, running) {
        (0, 1) => "1 task is running".to_owned(),
        (0, running) => format!("{running} tasks are running"),
        (1, 0) => "1 task is waiting".to_owned(),
        (pending, 0) => format!("{pending} tasks are waiting"),
        (pending, running) => format!("{} tasks are live ({pending} waiting, {running} running)", pending + running),
    };
    Failure::new(format!("the cluster stays up: {what}"))
        .hint("`hostler down --keep` stops the cluster but not what runs; it goes on, and what waits starts after `hostler up`")
        .hint("`hostler down --cancel` cancels every job first")
        .exiting(exit::REFUSED)
}

/// Waits `patience` for a process to end, then sends TERM, then KILL.
fn end(process: &ProcessId, patience: Duration) -> Result<(), Failure> {
    let failed = || format!("cannot end process {}", process.pid);
    if process.wait_gone(patience).during(failed)? {
        return Ok(());
    }
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        process.signal(signal).during(failed)?;
        if process.wait_gone(PATIENCE).during(failed)? {
            return Ok(());
        }
    }
    Err(Failure::new(format!("process {} does not end, not even when killed", process.pid)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_counts_and_names_both_ways_out() {
        let text = refusal(&LiveCounts { pending: 2, starting: 1, running: 2, completing: 0 }).render();
        assert!(text.starts_with("error: the cluster stays up: 5 tasks are live (2 waiting, 3 running)\n"), "{text}");
        assert!(text.contains("--keep") && text.contains("--cancel"), "{text}");
    }
}
