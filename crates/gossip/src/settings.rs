//! How fast, how much, how patient; and what follows from the number of members.

/// What operators may choose. All nodes of a cluster should have the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// The least time from one round to the next, in milliseconds. Up to a fifth more is added at random each time. At least 100.
    pub round_ms: u32,
    /// To how many members a node turns in a round. At least 1.
    pub fanout: u32,
    /// The most bytes that a node sends in any second, with the headers of IP and UDP. At least 4096.
    pub budget_bytes: u32,
    /// For how long a node may be silent in a cluster whose news are not slowed down by the budget, in milliseconds.
    pub silence_ms: u32,
    /// For how long members that have never been heard of are turned to like those that have, in milliseconds.
    pub expect_ms: u32,
}

impl Default for Settings {
    /// A round a second, to three members, 32 KiB a second, six seconds of silence.
    fn default() -> Self {
        Self { round_ms: 1000, fanout: 3, budget_bytes: 32 << 10, silence_ms: 6000, expect_ms: 30_000 }
    }
}

/// How often there are news, so that the budget suffices for all to be passed on.
///
/// Every node passes everything on that is new to it, once, to [`Settings::fanout`] members. What it sends is thus known beforehand, and
/// all nodes come to the same pace without talking about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// From one sign of life of a node to its next, in milliseconds.
    pub beat_ms: u64,
    /// From one load of a node to its next, in milliseconds, unless it changes much.
    pub load_ms: u64,
    /// After such a silence others ask those that they turn to anyway for news of a node, in milliseconds.
    pub ask_ms: u64,
    /// After such a silence they ask as many others besides, in milliseconds. What was heard so long ago is no sign of life for others.
    pub urgent_ms: u64,
    /// After such a silence a node has left the table, in milliseconds.
    pub silence_ms: u64,
}

/// What a beat takes in a datagram: two bytes for the node and its life, three for the sequence number, and its share of what a datagram
/// costs before it says anything.
const BEAT_BYTES: u64 = 6;

/// What a load takes, likewise.
const LOAD_BYTES: u64 = 44;

/// Up to so many members news are everywhere after a few rounds.
const SMALL: u64 = 50;

impl Pace {
    /// The pace of a cluster with so many members.
    #[must_use]
    pub fn of(settings: &Settings, members: usize) -> Self {
        let settings = settings.within_bounds();
        let round_ms = u64::from(settings.round_ms);
        let copies = (members as u64).saturating_mul(settings.fanout.into());
        // Shares of the budget, in percent; what is left is for questions, answers, and chance.
        let spread_ms = |bytes: u64, percent: u64| {
            let per_second = u64::from(settings.budget_bytes) * percent / 100;
            (copies.saturating_mul(bytes).saturating_mul(1000) / per_second).max(round_ms)
        };
        let beat_ms = spread_ms(BEAT_BYTES, 45);
        // Each doubling makes the ways of news longer and more different, and there are more to be wrong about.
        let further_ms = round_ms * u64::from((members as u64 / SMALL).max(1).ilog2());
        let silence_ms = u64::from(settings.silence_ms) + 3 * (beat_ms - round_ms) + further_ms;
        Self {
            beat_ms,
            load_ms: spread_ms(LOAD_BYTES, 35),
            ask_ms: silence_ms / 3,
            urgent_ms: silence_ms / 2,
            silence_ms,
        }
    }
}

impl Settings {
    /// The same, with what is too small raised to the least.
    pub(crate) fn within_bounds(&self) -> Self {
        let round_ms = self.round_ms.max(100);
        Self {
            round_ms,
            fanout: self.fanout.max(1),
            budget_bytes: self.budget_bytes.max(4096),
            silence_ms: self.silence_ms.max(2 * round_ms),
            expect_ms: self.expect_ms,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_clusters_are_fast_and_large_ones_slow_but_not_loud() {
        let settings = Settings::default();
        let pace = |members| Pace::of(&settings, members);
        assert_eq!(pace(5), Pace { beat_ms: 1000, load_ms: 1000, ask_ms: 2000, urgent_ms: 3000, silence_ms: 6000 });
        assert_eq!(pace(50), pace(5));
        let large = pace(4000);
        assert!((4500..5500).contains(&large.beat_ms) && large.load_ms < 60_000, "{large:?}");
        assert!((15_000..25_000).contains(&large.silence_ms), "{large:?}");
        for members in [0, 1, 700, 10_000, usize::MAX] {
            let pace = pace(members);
            assert!(pace.ask_ms < pace.urgent_ms && pace.urgent_ms < pace.silence_ms && pace.beat_ms >= 1000);
        }
    }

    #[test]
    fn settings_that_make_no_sense_are_raised_to_the_least() {
        let nothing = Settings { round_ms: 0, fanout: 0, budget_bytes: 0, silence_ms: 0, expect_ms: 0 };
        let pace = Pace::of(&nothing, 10);
        assert!(pace.beat_ms >= 100 && pace.silence_ms >= 200);
    }
}
