//! Measurements of the last minutes, for pages that draw them while somebody looks.
//!
//! The first request for a node or a task subscribes to the API's live measurements. The subscription is shared by all
//! who look, and ends when nobody has asked for it for a while. Callers check first that the user may see the figures.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::Body;
use axum::http::Method;
use futures_util::StreamExt;
use hostler_model::{Metric, WallTime};
use hostler_proto::usage::{Reading, SeriesView, UsageView};
use tokio::time::{Instant, sleep_until};

use crate::api::Api;

/// How far back the measurements reach.
const SPAN_MS: i64 = 300_000;

/// Length of the chart when the first measurement is new.
const MIN_SPAN_MS: i64 = 60_000;

/// Length of an interval of the chart. There is a measurement every second.
const STEP_MS: i64 = 3_000;

/// Maximum number of measurements to keep for one subject.
const READINGS: usize = 400;

/// A subscription ends when nobody has asked for this long.
const IDLE: Duration = Duration::from_secs(20);

/// Maximum number of subscriptions. Further pages show no live measurements.
const SUBSCRIPTIONS: usize = 64;

/// Maximum size of an incomplete line.
const MAX_LINE_BYTES: usize = 64 << 10;

/// The subscriptions, by the path of the API's stream.
#[derive(Debug, Default)]
pub(crate) struct Recent(Mutex<HashMap<String, Subscription>>);

#[derive(Debug)]
struct Subscription {
    readings: VecDeque<Reading>,
    /// When a page last asked.
    asked: Instant,
}

impl Recent {
    /// What the API's stream at `path` has measured in the last minutes. Subscribes to it if nobody has.
    pub(crate) fn view(self: &Arc<Self>, api: &Api, path: String, now: WallTime) -> UsageView {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(subscription) = all.get_mut(&path) {
            subscription.asked = Instant::now();
            return view_of(&subscription.readings, now);
        }
        if all.len() < SUBSCRIPTIONS {
            let subscription = Subscription { readings: VecDeque::new(), asked: Instant::now() };
            all.insert(path.clone(), subscription);
            tokio::spawn(collect(Arc::clone(self), api.clone(), path));
        }
        view_of(&VecDeque::new(), now)
    }

    /// Adds measurements.
    fn add(&self, path: &str, new: impl Iterator<Item = Reading>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(subscription) = all.get_mut(path) else { return };
        subscription.readings.extend(new);
        let surplus = subscription.readings.len().saturating_sub(READINGS);
        subscription.readings.drain(..surplus);
    }

    /// When the subscription ends unless somebody asks.
    fn end(&self, path: &str) -> Instant {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(path).map_or_else(Instant::now, |subscription| subscription.asked + IDLE)
    }
}

/// Reads the API's stream until it ends or nobody asks any longer.
async fn collect(recent: Arc<Recent>, api: Api, path: String) {
    let response = api.send(Method::GET, &path, Body::empty()).await;
    if response.status().is_success() {
        let mut stream = response.into_body().into_data_stream();
        let mut rest = Vec::new();
        loop {
            let end = recent.end(&path);
            let piece = tokio::select! {
                piece = stream.next() => piece,
                () = sleep_until(end) => {
                    if recent.end(&path) > Instant::now() {
                        continue;
                    }
                    break;
                }
            };
            let Some(Ok(piece)) = piece else { break };
            rest.extend_from_slice(&piece);
            if let Some(end) = rest.iter().rposition(|byte| *byte == b'\n') {
                recent.add(&path, readings(&rest[..end]));
                rest.drain(..=end);
            }
            if rest.len() > MAX_LINE_BYTES {
                break;
            }
        }
    }
    recent.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&path);
}

/// The measurements in complete lines of an event stream.
fn readings(lines: &[u8]) -> impl Iterator<Item = Reading> {
    let data = lines.split(|byte| *byte == b'\n').filter_map(|line| line.strip_prefix(b"data:"));
    data.filter_map(|data| serde_json::from_slice(data).ok())
}

/// Measurements of the last minutes, in the form of figures over time.
fn view_of(readings: &VecDeque<Reading>, now: WallTime) -> UsageView {
    let first = readings.front().map_or(now.0, |reading| reading.at.0);
    let from = first.clamp(now.0 - SPAN_MS, now.0 - MIN_SPAN_MS).div_euclid(STEP_MS) * STEP_MS;
    let len = usize::try_from((now.0 - from) / STEP_MS).unwrap_or(0) + 1;
    let metrics: BTreeSet<Metric> = readings.iter().flat_map(|reading| reading.values.keys().copied()).collect();
    let series = metrics.into_iter().map(|name| {
        let mut steps: Vec<Vec<f32>> = vec![Vec::new(); len];
        for reading in readings {
            let step = usize::try_from((reading.at.0 - from).div_euclid(STEP_MS)).ok();
            if let (Some(step), Some(value)) = (step.and_then(|step| steps.get_mut(step)), reading.values.get(&name)) {
                step.push(*value);
            }
        }
        let of = |fold: fn(&[f32]) -> Option<f32>| steps.iter().map(|values| fold(values)).collect();
        SeriesView {
            name,
            unit: name.unit(),
            limit: None,
            min: of(|values| values.iter().copied().reduce(f32::min)),
            mean: of(|values| (!values.is_empty()).then(|| values.iter().sum::<f32>() / values.len() as f32)),
            max: of(|values| values.iter().copied().reduce(f32::max)),
        }
    });
    let series = series.collect();
    UsageView { from: WallTime(from), step_ms: STEP_MS.unsigned_abs(), len: u32::try_from(len).unwrap_or(0), series }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readings_become_intervals_and_old_ones_are_left_out() {
        let lines = b"data: {\"at\":700000,\"values\":{\"cpu\":1.0}}\n\n: keep-alive\n\ndata: rubbish\n\n\
            data: {\"at\":999000,\"values\":{\"cpu\":1.0}}\n\ndata: {\"at\":999500,\"values\":{\"cpu\":2.0}}\n";
        let readings: VecDeque<Reading> = readings(lines).collect();
        assert_eq!(readings.len(), 3);
        let view = view_of(&readings, WallTime(1_001_000));
        let [cpu] = view.series.as_slice() else { panic!("{view:?}") };
        assert_eq!((view.from, view.len, cpu.mean.len()), (WallTime(699_000), 101, 101));
        assert_eq!((cpu.mean[0], cpu.mean[1]), (Some(1.0), None));
        let at = cpu.mean.iter().rposition(Option::is_some).expect("there are values");
        assert_eq!((cpu.min[at], cpu.mean[at], cpu.max[at]), (Some(1.0), Some(1.5), Some(2.0)));
        let new: VecDeque<Reading> = readings.iter().skip(1).cloned().collect();
        assert_eq!(view_of(&new, WallTime(1_001_000)).len, 21, "the chart begins at the first measurement");
        let later = view_of(&readings, WallTime(2_000_000));
        assert!(later.series[0].mean.iter().all(Option::is_none), "old measurements are left out");
    }
}
