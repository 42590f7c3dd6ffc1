//! Stops an embedded cluster: asks the head to stop, then ends the processes that remain.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use hostler_cli::exit;
use hostler_cli::failure::{During, Failure};
use hostler_client::{Client, ClientError, Endpoint, JobFilter, LiveJobs, RetryLimits};
use hostler_model::{JobState, NodeName};
use hostler_proto::api::LiveCounts;
use hostler_remote::socket_beside;
use nix::sys::signal::Signal;

use hostler_cli::cluster::process::ProcessId;
use hostler_cli::cluster::{Places, Record, RunningHead};

/// How long processes may take to end after the head has agreed to stop. The head notifies its clients before it ends.
const HEAD_STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// How long processes may take to end after SIGTERM.
const SIGNAL_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Stopped {
    /// Number of processes that were running.
    pub(crate) processes: usize,
    /// Whether the head was not running, so that only agents were stopped.
    pub(crate) head_was_dead: bool,
}

/// How long a stop may take before it says which jobs it waits for.
const TELL_AFTER: Duration = Duration::from_secs(3);

/// Stops all processes, and passes to `tell` what it waits for. The caller holds the lock.
///
/// # Errors
/// Fails if jobs are waiting or running and `jobs` is [`LiveJobs::Refuse`]; then nothing is stopped.
pub(crate) async fn take_down(places: &Places, jobs: LiveJobs, tell: &impl Fn(&str)) -> Result<Stopped, Failure> {
    let mut record = Record::load(&places.record())?;
    let alive = record.alive();
    let head_was_dead = !ask_head(places, jobs, tell).await?;
    if head_was_dead && !alive.is_empty() && jobs == LiveJobs::Cancel {
        return Err(Failure::new("cannot cancel jobs: the head is not running")
            .hint("`hostler up` starts the head again with all jobs"));
    }
    // The head tells agents to stop. Signals end agents that have no connection to a head.
    end(&alive, if head_was_dead { Duration::ZERO } else { HEAD_STOP_TIMEOUT })?;
    record.head = None;
    record.nodes.iter_mut().for_each(|node| node.agent = None);
    if !alive.is_empty() {
        // On a full disk the record stays unchanged. That is safe: processes that have ended are recognised.
        record.save(&places.record()).ok();
    }
    // Agents that were killed leave their sockets.
    for node in &record.nodes {
        let socket = places.node_socket(&node.name);
        for stale in [socket_beside(&socket), socket] {
            drop(std::fs::remove_file(stale));
        }
    }
    places.remove_empty();
    Ok(Stopped { processes: alive.len(), head_was_dead })
}

/// Stops the agent of one node. The caller holds the lock.
pub(crate) fn stop_node(places: &Places, name: &NodeName) -> Result<(), Failure> {
    let mut record = Record::load(&places.record())?;
    let Some(node) = record.nodes.iter_mut().find(|node| node.name == *name) else { return Ok(()) };
    if let Some(agent) = node.agent.take() {
        end(&[agent], Duration::ZERO)?;
        record.save(&places.record())?;
    }
    Ok(())
}

/// Asks the head to stop; returns whether the head was running.
async fn ask_head(places: &Places, jobs: LiveJobs, tell: &impl Fn(&str)) -> Result<bool, Failure> {
    if let Some(Err(failure)) = RunningHead::of(&places.head()).map(|head| head.wait_for_socket()) {
        // A signal stops the head too, and keeps all jobs.
        return if jobs == LiveJobs::Keep { Ok(true) } else { Err(failure) };
    }
    let client = Client::new(Endpoint::Unix(places.socket()?)).with_retry_limits(RetryLimits::NONE);
    let info = match client.info().await {
        Ok(info) => info,
        Err(ClientError::Connect { .. } | ClientError::Interrupted { .. }) => return Ok(false),
        Err(error) => return Err(error.into()),
    };
    if jobs == LiveJobs::Refuse && live(&info.tasks) > 0 {
        return Err(refusal(&info.tasks));
    }
    let stopped = tokio::select! {
        stopped = client.shutdown(jobs) => stopped,
        never = tell_what_lasts(&client, tell) => match never {},
    };
    match stopped {
        Ok(()) => Ok(true),
        // A job was submitted between the two requests.
        Err(ClientError::Refused { .. }) if jobs == LiveJobs::Refuse => Err(refusal(&client.info().await?.tasks)),
        Err(error) => Err(error.into()),
    }
}

/// Says which jobs have not ended, whenever that changes.
async fn tell_what_lasts(client: &Client, tell: &impl Fn(&str)) -> Infallible {
    let filter = JobFilter { states: JobState::LIVE.to_vec(), limit: Some(1), ..JobFilter::default() };
    let mut told = String::new();
    loop {
        tokio::time::sleep(TELL_AFTER).await;
        let Ok(page) = client.jobs(&filter).await else { continue };
        let Some(job) = page.jobs.first() else { continue };
        let does = job.message.as_ref().map_or_else(String::new, |message| format!(": {message}"));
        let more = if page.total > 1 { format!(" (and {} more)", page.total - 1) } else { String::new() };
        let line = format!("waiting for job {}{more}, which is {}{does}", job.id, job.state);
        if line != told {
            tell(&line);
            told = line;
        }
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
    Failure::new(format!("the cluster keeps running: {what}"))
        .hint("`hostler down --keep` stops the cluster: running jobs continue, waiting jobs start after the next `hostler up`")
        .hint("`hostler down --cancel` cancels all jobs first")
        .exiting(exit::REFUSED)
}

/// Waits `retry_limits` for processes to end, then sends SIGTERM, then SIGKILL.
fn end(processes: &[ProcessId], retry_limits: Duration) -> Result<(), Failure> {
    let mut left = wait_for_remaining(processes, retry_limits)?;
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        for process in &left {
            process.signal(signal).during(|| format!("cannot end process {}", process.pid))?;
        }
        left = wait_for_remaining(&left, SIGNAL_TIMEOUT)?;
    }
    match left.first() {
        None => Ok(()),
        Some(process) => Err(Failure::new(format!("process {} does not end, even after SIGKILL", process.pid))),
    }
}

/// The processes that have not ended within `retry_limits`.
fn wait_for_remaining(processes: &[ProcessId], retry_limits: Duration) -> Result<Vec<ProcessId>, Failure> {
    let deadline = Instant::now() + retry_limits;
    let mut left = Vec::new();
    for process in processes {
        let time = deadline.saturating_duration_since(Instant::now());
        if !process.wait_gone(time).during(|| format!("cannot wait for process {}", process.pid))? {
            left.push(process.clone());
        }
    }
    Ok(left)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusal_counts_tasks_and_names_both_options() {
        let text = refusal(&LiveCounts { pending: 2, starting: 1, running: 2, completing: 0 }).render();
        assert!(
            text.starts_with("error: the cluster keeps running: 5 tasks are live (2 waiting, 3 running)\n"),
            "{text}"
        );
        assert!(text.contains("--keep") && text.contains("--cancel"), "{text}");
    }
}
