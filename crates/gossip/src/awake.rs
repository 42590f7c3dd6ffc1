//! A clock that stops while this node is suspended.
//!
//! A node that was suspended, stopped or without CPU has received nothing, so other nodes only seem to be silent. Silence is therefore
//! measured on a clock that advances at most one round between two inputs of the node, if the gap is longer than normal. A node that is
//! always late thus always waits longer (local health in the Lifeguard paper).

use hostler_model::Timestamp;

#[derive(Debug, Clone)]
pub(crate) struct Awake {
    last: Timestamp,
    suspended_ms: u64,
    /// The longest gap between two inputs that does not count as suspension, in milliseconds.
    most_ms: u64,
    round_ms: u64,
}

impl Awake {
    pub(crate) const fn new(round_ms: u64, now: Timestamp) -> Self {
        Self { last: now, suspended_ms: 0, most_ms: 2 * round_ms, round_ms }
    }

    /// Records an input and returns the time on this clock.
    pub(crate) fn input(&mut self, now: Timestamp) -> Timestamp {
        let awake = self.at(now);
        self.last = self.last.max(now);
        self.suspended_ms = self.last.0 - awake.0;
        awake
    }

    /// Returns the time on this clock. A time before the last input counts as the last input.
    pub(crate) fn at(&self, now: Timestamp) -> Timestamp {
        let gap_ms = now.ms_since(self.last);
        let counts_ms = if gap_ms > self.most_ms { self.round_ms } else { gap_ms };
        Timestamp(self.last.0 - self.suspended_ms).plus_ms(counts_ms)
    }

    /// Returns how long the node was suspended in total, in milliseconds.
    pub(crate) const fn suspended_ms(&self) -> u64 {
        self.suspended_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suspension_counts_as_one_round() {
        let mut awake = Awake::new(1000, Timestamp(10_000));
        assert_eq!(awake.input(Timestamp(11_000)), Timestamp(11_000));
        assert_eq!(awake.input(Timestamp(13_000)), Timestamp(13_000), "a late round is not a suspension");
        assert_eq!(awake.at(Timestamp(63_000)), Timestamp(14_000));
        assert_eq!(
            awake.input(Timestamp(63_000)),
            Timestamp(14_000),
            "a suspension of fifty seconds counts as one round"
        );
        assert_eq!(awake.suspended_ms(), 49_000);
        assert_eq!(awake.input(Timestamp(64_000)), Timestamp(15_000));
        assert_eq!(awake.input(Timestamp(1)), Timestamp(15_000), "the clock never goes back");
        assert_eq!(awake.input(Timestamp(64_500)), Timestamp(15_500));
        awake.input(Timestamp::NEVER);
        awake.input(Timestamp::NEVER);
    }
}
