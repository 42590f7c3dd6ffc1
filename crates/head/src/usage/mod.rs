//! Figures over time: what agents report every minute, and live measurements.
//!
//! Reports do not pass through the engine: they change nothing that the head decides, and a lost minute does no harm. A
//! thread of its own writes them to [`Series`]. If it falls behind, new reports are dropped.

pub(crate) mod live;

use std::collections::HashMap;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hostler_model::{JobId, NodeName, RunId, WallTime};
use hostler_proto::usage::{Reading, UsageReport, UsageSpan};
use hostler_store::StoreError;
use hostler_store::series::{Measured, Series, Subject};

use crate::engine::Engine;

/// Length of a minute in milliseconds.
pub(crate) const MINUTE_MS: u64 = 60_000;

/// Maximum number of reports that wait for the disk.
const QUEUE_LEN: usize = 256;

/// Maximum number of reports per transaction.
const REPORTS_AT_ONCE: usize = 64;

/// Maximum age of a span. Older spans are ignored.
const MAX_AGE_MS: u64 = 30 * MINUTE_MS;

/// Age from which the last figures of a node say nothing about its present.
const CURRENT_MS: i64 = 5 * 60_000;

/// Interval of the maintenance of stored figures.
const MAINTAIN_EVERY: Duration = Duration::from_secs(3600);

/// Jobs that are checked at once for whether they still exist.
const JOBS_AT_ONCE: usize = 256;

/// The stored figures.
pub(crate) struct UsageHistory {
    pub(crate) series: Arc<Series>,
    reports: SyncSender<Vec<Measured>>,
    /// The newest figures of each node.
    last: Mutex<HashMap<NodeName, Reading>>,
}

impl UsageHistory {
    /// Opens the database and starts the thread that writes it. Without a usable disk, keeps the figures in memory until
    /// the head stops.
    ///
    /// # Errors
    /// Neither is possible.
    pub(crate) fn open(path: &Path, engine: Engine) -> anyhow::Result<Self> {
        let series = Series::open(path).or_else(|error| {
            tracing::warn!(%error, "cannot store figures over time; they are lost when the head stops");
            Series::in_memory()
        })?;
        let series = Arc::new(series);
        let (reports, queue) = sync_channel(QUEUE_LEN);
        let own = Arc::clone(&series);
        std::thread::Builder::new().name("figures".into()).spawn(move || keep(&own, &engine, &queue))?;
        Ok(Self { series, reports, last: Mutex::default() })
    }

    /// The newest figures of a node, unless they are old.
    pub(crate) fn last_of(&self, node: &NodeName, now: WallTime) -> Option<Reading> {
        self.last().get(node).filter(|reading| is_current(reading, now)).cloned()
    }

    fn last(&self) -> MutexGuard<'_, HashMap<NodeName, Reading>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues figures; drops them if the disk is too slow.
    pub(crate) fn record(&self, measured: Vec<Measured>, now: WallTime) {
        for Measured { subject, minute, figures } in &measured {
            let Subject::Node(node) = subject else { continue };
            let at = WallTime(i64::try_from(minute * MINUTE_MS).unwrap_or(i64::MAX));
            let mut last = self.last();
            if last.get(node).is_none_or(|reading| reading.at <= at) {
                last.retain(|_, reading| is_current(reading, now));
                let values = figures.iter().map(|(metric, bucket)| (*metric, bucket.mean)).collect();
                last.insert(node.clone(), Reading { at, values });
            }
        }
        if !measured.is_empty() && self.reports.try_send(measured).is_err() {
            tracing::debug!("dropped figures over time: the disk is too slow");
        }
    }
}

const fn is_current(reading: &Reading, now: WallTime) -> bool {
    now.0.saturating_sub(reading.at.0) < CURRENT_MS
}

/// Writes reports and maintains the database until the head ends.
fn keep(series: &Series, engine: &Engine, reports: &Receiver<Vec<Measured>>) {
    let mut maintain_at = Instant::now();
    let mut forgotten = None;
    let mut complaint = String::new();
    loop {
        let outcome = match reports.recv_timeout(maintain_at.saturating_duration_since(Instant::now())) {
            Ok(first) => {
                let more = reports.try_iter().take(REPORTS_AT_ONCE);
                series.record(&std::iter::once(first).chain(more).flatten().collect::<Vec<_>>())
            }
            Err(RecvTimeoutError::Timeout) => {
                maintain_at = Instant::now() + MAINTAIN_EVERY;
                let now = minute_of(engine.now().wall, 0);
                series.maintain(now).and_then(|()| forget_old_jobs(series, engine, &mut forgotten))
            }
            Err(RecvTimeoutError::Disconnected) => return,
        };
        let trouble = outcome.err().map(|error| error.to_string()).unwrap_or_default();
        if !trouble.is_empty() && trouble != complaint {
            tracing::warn!("figures over time are incomplete: {trouble}");
        }
        complaint = trouble;
    }
}

/// Deletes the figures of jobs that the head no longer knows. `checked` is the number of forgotten jobs at the last
/// check.
fn forget_old_jobs(series: &Series, engine: &Engine, checked: &mut Option<u64>) -> Result<(), StoreError> {
    let forgotten = engine.archive().forgotten();
    if *checked == Some(forgotten) {
        return Ok(());
    }
    let mut after: Option<JobId> = None;
    loop {
        let jobs = series.jobs(after, JOBS_AT_ONCE)?;
        let Some(last) = jobs.last().copied() else { break };
        let gone: Vec<JobId> = jobs.into_iter().filter(|job| matches!(engine.find_job(*job), Ok(None))).collect();
        series.forget(&gone)?;
        after = Some(last);
    }
    *checked = Some(forgotten);
    Ok(())
}

/// The minute, since the Unix epoch, that was `age_ms` before `now`.
pub(crate) fn minute_of(now: WallTime, age_ms: u64) -> u64 {
    u64::try_from(now.0).unwrap_or_default().saturating_sub(age_ms) / MINUTE_MS
}

/// The figures in a report that `node` may make: its own, and those of runs that the head placed on it.
pub(crate) async fn accept(engine: &Engine, node: &NodeName, report: UsageReport) -> Vec<Measured> {
    let now = engine.now().wall;
    let mut accepted = Vec::new();
    for UsageSpan { run, age_ms, mut figures } in report.spans {
        figures.retain(|metric, bucket| {
            bucket.is_valid() && if run.is_some() { metric.is_of_runs() } else { metric.is_of_nodes() }
        });
        if figures.is_empty() || age_ms > MAX_AGE_MS {
            continue;
        }
        let subject = match run {
            None => Subject::Node(node.clone()),
            Some(run) => match rank_of(engine, run, node).await {
                Some(rank) => Subject::Run { run, rank },
                None => {
                    tracing::debug!(%node, %run, "ignored figures of a run that is not on the node");
                    continue;
                }
            },
        };
        accepted.push(Measured { subject, minute: minute_of(now, age_ms), figures });
    }
    accepted
}

/// The rank of a node in a run, which may have ended; `None` if the run is not on this node.
async fn rank_of(engine: &Engine, run: RunId, node: &NodeName) -> Option<u32> {
    let task = run.task;
    {
        let state = engine.state();
        if let Some(job) = state.job(task.job)
            && let Some(active) = job.active.get(&task.index)
        {
            return active.rank_of(node).filter(|_| active.run == run);
        }
    }
    let history = engine.archive().history().clone();
    let row = tokio::task::spawn_blocking(move || history.ended_one(task)).await.ok()?.ok()??;
    let is_same = row.attempt == run.attempt;
    let rank = match row.parts.as_slice() {
        [] => (row.node.as_ref() == Some(node)).then_some(0),
        parts => (0..).zip(parts).find(|(_, part)| part.node == *node).map(|(rank, _)| rank),
    };
    rank.filter(|_| is_same)
}
