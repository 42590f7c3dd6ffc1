//! Figures over time: measures the node and its runs every ten seconds, and every second while somebody watches.
//!
//! The measurements of a minute are folded into smallest, mean and largest values ([`fold`]), which the agent sends to
//! the head once a minute. A minute that is lost does no harm. Nothing is stored on the node's disk.
//!
//! - [`machine`] and [`run`] measure, with files that stay open; [`members`] sums over processes where no cgroup counts.
//! - Measurements run on a thread that may block, because a file system or a driver may hang.

mod fold;
mod machine;
mod members;
mod read;
pub(crate) mod run;

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};
use hostler_client::Client;
use hostler_core::agent::RunLaunch;
use hostler_model::{CpuSet, GpuId, Metric, RunId};
use tokio::sync::{Notify, broadcast};
use tokio::time::{sleep, timeout};

use self::fold::{Folds, Subject, report};
use self::machine::MachineMeter;
pub(crate) use self::machine::{processor_sensors, waited};
use self::read::Buffer;
pub(crate) use self::read::value_of;
use self::run::RunMeter;
use self::run::RunPlace;
use crate::measure::gpu_use::GpuUse;
use crate::mutex::lock;
use crate::random::random;
use crate::runs::outcome::RunOutcome;
use crate::runs::surroundings::Surrounding;

/// Interval of measurements, and of measurements that a user watches.
const INTERVAL_MS: u64 = 10_000;
const WATCHED_MS: u64 = 1_000;

/// Maximum random delay of a report. The delay spreads the reports of all agents, which measure at the same moments.
const SPREAD: Duration = Duration::from_secs(5);

/// Timeout of a report.
const REPORT_TIMEOUT: Duration = Duration::from_secs(30);

/// Measurements kept for a slow watcher, who misses older ones.
const LINES: usize = 4;

/// Measures the node and its runs.
#[derive(Default)]
pub(crate) struct UsageMeter {
    runs: Mutex<BTreeMap<RunId, RunPlace>>,
    watched: Mutex<BTreeMap<Subject, broadcast::Sender<Bytes>>>,
    folds: Mutex<Folds>,
    /// Somebody has begun to watch.
    begun: Notify,
    /// Finished minutes wait for the head.
    finished: Notify,
}

/// The machine, and how its GPUs are measured.
pub(crate) struct Machine {
    /// CPUs that the node offers.
    pub(crate) cpus: CpuSet,
    /// Memory that the node offers, in bytes.
    pub(crate) memory_bytes: u64,
    /// The agent's directory.
    pub(crate) directory: PathBuf,
    /// Whether the machine's power use is that of the node.
    pub(crate) has_power: bool,
    /// The GPUs that the node offers.
    pub(crate) gpus: BTreeSet<GpuId>,
    pub(crate) gpu_use: GpuUse,
}

impl Surrounding for UsageMeter {
    fn attach(&self, launch: &RunLaunch, place: &RunPlace) {
        lock(&self.runs).insert(launch.run(), place.clone());
    }

    fn end<'a>(&'a self, launch: &'a RunLaunch, _outcome: &'a RunOutcome) -> BoxFuture<'a, ()> {
        lock(&self.runs).remove(&launch.run());
        lock(&self.watched).remove(&Some(launch.run()));
        ready(()).boxed()
    }
}

impl UsageMeter {
    /// Where a run on this node is measured, and so where its processes are.
    pub(crate) fn place_of(&self, run: RunId) -> Option<RunPlace> {
        lock(&self.runs).get(&run).cloned()
    }

    /// Watches a run, or the node: measures it every second, and returns each measurement as a line of JSON. `None` if
    /// the run is not on the node. The receiver is closed when the run ends.
    pub(crate) fn watch(&self, subject: Option<RunId>) -> Option<broadcast::Receiver<Bytes>> {
        if subject.is_some_and(|run| !lock(&self.runs).contains_key(&run)) {
            return None;
        }
        let mut watched = lock(&self.watched);
        let lines = watched.entry(subject).or_insert_with(|| broadcast::channel(LINES).0).subscribe();
        drop(watched);
        self.begun.notify_one();
        Some(lines)
    }

    /// What somebody watches.
    fn watched(&self) -> BTreeSet<Subject> {
        let mut watched = lock(&self.watched);
        watched.retain(|_, lines| lines.receiver_count() > 0);
        watched.keys().copied().collect()
    }

    /// Measures until the agent stops.
    pub(crate) async fn keep(self: &Arc<Self>, machine: Machine, head: &Client) -> Infallible {
        tokio::select! {
            never = self.measure(machine) => never,
            never = self.send_reports(head) => never,
        }
    }

    async fn measure(self: &Arc<Self>, machine: Machine) -> Infallible {
        let mut meters = Meters::open(machine);
        let mut last = now_ms();
        loop {
            let watched = self.watched();
            let now = now_ms();
            let interval = if watched.is_empty() { INTERVAL_MS } else { WATCHED_MS };
            tokio::select! {
                () = sleep(Duration::from_millis(interval - now % interval)) => {}
                () = self.begun.notified() => continue,
            }
            let now = now_ms();
            let is_complete = now / INTERVAL_MS != last / INTERVAL_MS;
            if is_complete {
                last = now;
            }
            let own = Arc::clone(self);
            let work = move || {
                own.measure_once(&mut meters, is_complete, &watched);
                meters
            };
            meters = tokio::task::spawn_blocking(work).await.expect("measuring does not panic");
            if is_complete && lock(&self.folds).has_waiting() {
                self.finished.notify_one();
            }
        }
    }

    /// Measures everything, or only what somebody watches.
    fn measure_once(&self, meters: &mut Meters, is_complete: bool, watched: &BTreeSet<Subject>) {
        let runs = lock(&self.runs).clone();
        meters.runs.retain(|run, meter| runs.get(run).is_some_and(|place| *place == meter.0.place));
        for (run, place) in &runs {
            meters.runs.entry(*run).or_insert_with(|| (RunMeter::open(place.clone()), None));
        }
        // The node is last, since its memory in use includes that of its runs.
        let subjects: Vec<Subject> = (runs.keys().copied().map(Some))
            .chain(std::iter::once(None))
            .filter(|it| is_complete || watched.contains(it))
            .collect();
        let gpus = if meters.wants_gpus(&subjects) { meters.machine.gpu_use.read() } else { BTreeMap::new() };
        for subject in subjects {
            let now = Instant::now();
            let (mut values, before, own_gpus) = meters.measure(subject, now);
            values.extend(gpu_values(&gpus, own_gpus));
            if watched.contains(&subject) {
                self.tell(subject, &values);
            }
            // The first measurement of a run has no rates, and covers no span.
            let span = before.map_or(Duration::from_millis(WATCHED_MS), |before| now.duration_since(before));
            let span_ms = u64::try_from(span.as_millis()).unwrap_or(u64::MAX).min(INTERVAL_MS * 2);
            lock(&self.folds).add(subject, &values, now_ms(), span_ms);
        }
        if is_complete {
            lock(&self.folds).finish(now_ms(), |subject| subject.is_none_or(|run| runs.contains_key(&run)));
        }
    }

    fn tell(&self, subject: Subject, values: &BTreeMap<Metric, f32>) {
        if let Some(lines) = lock(&self.watched).get(&subject) {
            let mut line = serde_json::to_vec(values).expect("a map of numbers is valid JSON");
            line.push(b'\n');
            // This fails only if all readers have disconnected.
            let _ = lines.send(line.into());
        }
    }

    async fn send_reports(&self, head: &Client) -> Infallible {
        let mut complaint = String::new();
        loop {
            self.finished.notified().await;
            sleep(SPREAD.mul_f64(random())).await;
            while lock(&self.folds).has_waiting() {
                let spans = lock(&self.folds).take();
                let sent = timeout(REPORT_TIMEOUT, head.report_usage(&report(&spans, now_ms()))).await;
                let failure = match sent {
                    Ok(Ok(())) => {
                        complaint.clear();
                        continue;
                    }
                    // The head refuses these spans and will refuse them again.
                    Ok(Err(error)) if error.code().is_some() && !error.is_transient() => error.to_string(),
                    Ok(Err(error)) => {
                        lock(&self.folds).put_back(spans);
                        error.to_string()
                    }
                    Err(_) => "no answer in time".to_owned(),
                };
                if failure != complaint {
                    tracing::debug!("cannot send figures to the head: {failure}");
                    complaint = failure;
                }
                break;
            }
        }
    }
}

/// Open files and last counters of everything that is measured.
struct Meters {
    machine: Machine,
    node: MachineMeter,
    node_at: Option<Instant>,
    /// The meter of each run, and when it was last read.
    runs: BTreeMap<RunId, (RunMeter, Option<Instant>)>,
    buffer: Buffer,
}

impl Meters {
    fn open(machine: Machine) -> Self {
        let Machine { cpus, memory_bytes, directory, has_power, .. } = &machine;
        let node = MachineMeter::open(cpus.clone(), *memory_bytes, directory.clone(), *has_power);
        Self { machine, node, node_at: None, runs: BTreeMap::new(), buffer: Buffer::default() }
    }

    /// Measures the node or a run. Also returns when it was last measured, and its GPUs.
    fn measure(
        &mut self,
        subject: Subject,
        now: Instant,
    ) -> (BTreeMap<Metric, f32>, Option<Instant>, &BTreeSet<GpuId>) {
        match subject {
            None => {
                let mut values = self.node.measure(&mut self.buffer, now);
                let of_runs = self.runs.values().map(|(meter, _)| meter.memory_used).sum();
                values.entry(Metric::Memory).and_modify(|used| *used = used.max(of_runs));
                (values, self.node_at.replace(now), &self.machine.gpus)
            }
            Some(run) => {
                let (meter, at) = self.runs.get_mut(&run).expect("each run has a meter");
                let values = meter.measure(&mut self.buffer, now);
                (values, at.replace(now), &meter.place.gpus)
            }
        }
    }

    fn wants_gpus(&self, subjects: &[Subject]) -> bool {
        subjects.iter().any(|subject| match subject {
            None => !self.machine.gpus.is_empty(),
            Some(run) => self.runs.get(run).is_some_and(|(meter, _)| !meter.place.gpus.is_empty()),
        })
    }
}

/// The sums over some GPUs; nothing if one of them cannot be measured.
fn gpu_values(
    all: &BTreeMap<GpuId, crate::measure::nvidia_smi::GpuReading>,
    own: &BTreeSet<GpuId>,
) -> Vec<(Metric, f32)> {
    if own.is_empty() {
        return Vec::new();
    }
    let readings: Option<Vec<_>> = own.iter().map(|id| all.get(id)).collect();
    let Some(readings) = readings else { return Vec::new() };
    let busy: Option<f32> = readings.iter().map(|reading| reading.busy).sum();
    let memory: Option<u64> = readings.iter().map(|reading| reading.memory_bytes).sum();
    let values = [(Metric::Gpu, busy), (Metric::GpuMemory, memory.map(|bytes| bytes as f32))];
    values.into_iter().filter_map(|(metric, value)| Some((metric, value?))).collect()
}

/// Milliseconds since the Unix epoch. All nodes measure at the same times, as far as their clocks agree.
fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
