//! How fast tasks end at present, for estimates of when the waiting ones are through.
//!
//! Kept in memory for each partition; a head that has just started knows nothing.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use hostler_model::PartitionName;
use hostler_proto::api::Pace;

/// The longest time that counts as the present.
const WINDOW: Duration = Duration::from_secs(15 * 60);

/// Counts within this time are added up.
const GRAIN: Duration = Duration::from_secs(15);

/// Least time over which a pace is known.
const LEAST: Duration = Duration::from_secs(60);

/// The tasks that have ended, by partition.
#[derive(Debug, Default)]
pub(crate) struct Ends {
    by_partition: Mutex<HashMap<Option<PartitionName>, Counts>>,
}

/// Numbers of tasks and the time from which on they ended, oldest first.
type Counts = VecDeque<(Instant, u64)>;

impl Ends {
    pub(super) fn add(&self, partition: Option<&PartitionName>, tasks: u64, now: Instant) {
        let mut all = self.by_partition.lock().unwrap_or_else(PoisonError::into_inner);
        let counts = all.entry(partition.cloned()).or_default();
        match counts.back_mut() {
            Some((since, sum)) if now.duration_since(*since) < GRAIN => *sum += tasks,
            _ => counts.push_back((now, tasks)),
        }
        while counts.front().is_some_and(|(at, _)| now.duration_since(*at) > WINDOW) {
            counts.pop_front();
        }
    }

    /// The pace at which tasks end in the partitions for which `counts` returns true, and the time that `waiting` more tasks take
    /// at this pace. `None` if no task has ended, or if the first one ended less than a minute ago.
    pub(crate) fn pace(
        &self,
        counts: impl Fn(Option<&PartitionName>) -> bool,
        waiting: u64,
        now: Instant,
    ) -> Option<Pace> {
        let all = self.by_partition.lock().unwrap_or_else(PoisonError::into_inner);
        let counted = all.iter().filter(|(partition, _)| counts(partition.as_ref()));
        let recent: Vec<(Instant, u64)> =
            counted.flat_map(|(_, ends)| ends).filter(|(at, _)| now.duration_since(*at) <= WINDOW).copied().collect();
        let over = now.duration_since(recent.iter().map(|(at, _)| *at).min()?);
        let ended: u64 = recent.iter().map(|(_, tasks)| tasks).sum();
        let ms = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        let through_in_ms = ms(over).saturating_mul(waiting) / ended.max(1);
        (over >= LEAST).then_some(Pace { ended, over_ms: ms(over), through_in_ms })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pace_is_that_of_the_last_quarter_of_an_hour_in_the_partition() {
        let ends = Ends::default();
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let lab: PartitionName = "lab".parse().expect("a name");
        let pace = |lab_only: bool, waiting, now| {
            let pace = ends.pace(|partition| !lab_only || partition == Some(&lab), waiting, now);
            pace.map(|pace| (pace.ended, pace.over_ms, pace.through_in_ms))
        };
        assert_eq!(pace(false, 5, at(0)), None);
        (0..60).for_each(|second| ends.add(Some(&lab), 1, at(second)));
        assert_eq!(pace(true, 30, at(59)), None, "too early");
        assert_eq!(pace(true, 30, at(60)), Some((60, 60_000, 30_000)));
        ends.add(None, 20, at(30));
        assert_eq!(pace(false, 80, at(60)), Some((80, 60_000, 60_000)));
        assert_eq!(pace(true, 0, at(120)), Some((60, 120_000, 0)));
        assert_eq!(pace(true, 10, at(2_000)), None, "nothing has ended for long");
    }
}
