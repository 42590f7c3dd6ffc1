//! Warnings before the time limit of a job.

use std::time::Duration;

/// When to warn before the time limit, in minutes.
const MINUTES: [u64; 3] = [15, 5, 1];

/// The warnings that were given.
#[derive(Debug, Default)]
pub(super) struct Warnings {
    /// The last one, in minutes before the limit.
    last: Option<u64>,
}

impl Warnings {
    /// Whether to warn now that `left` remains. Each warning is given once, unless the limit was raised since.
    pub(super) fn is_due(&mut self, left: Duration) -> bool {
        let due = MINUTES.into_iter().filter(|minutes| left <= minutes_before(*minutes)).min();
        let is_new = due.is_some_and(|due| self.last.is_none_or(|last| due < last));
        self.last = due;
        is_new
    }

    /// Time until the next warning, if one is still to come.
    pub(super) fn next_in(left: Duration) -> Option<Duration> {
        MINUTES
            .into_iter()
            .filter_map(|minutes| left.checked_sub(minutes_before(minutes)))
            .filter(|it| !it.is_zero())
            .min()
    }
}

fn minutes_before(minutes: u64) -> Duration {
    Duration::from_secs(minutes * 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(left_seconds: &[u64], expected: &[u64]) {
        let mut warnings = Warnings::default();
        let due = left_seconds.iter().copied().filter(|left| warnings.is_due(Duration::from_secs(*left)));
        assert_eq!(due.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn each_warning_is_given_once() {
        check(&[3_600, 901, 900, 890, 301, 299, 298, 61, 60, 1, 0], &[900, 299, 60]);
        // A short limit, and a machine that slept.
        check(&[200, 190], &[200]);
        check(&[1_000, 30, 20], &[30]);
    }

    #[test]
    fn raised_limit_brings_the_warnings_again() {
        check(&[290, 3_600, 800, 280], &[290, 800, 280]);
        check(&[50, 250, 40], &[50, 40]);
    }

    #[test]
    fn next_warning_is_the_nearest_one() {
        let next = |left: u64| Warnings::next_in(Duration::from_secs(left)).map(|it| it.as_secs());
        assert_eq!([1_000, 900, 302, 61, 60, 0].map(next), [Some(100), Some(600), Some(2), Some(1), None, None]);
    }
}
