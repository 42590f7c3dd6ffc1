//! Settings of the protocol, and the update intervals that follow from them and the number of members.

/// Settings of the protocol. All nodes of a cluster should use the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// The minimum time between two rounds, in milliseconds; at least 100. Up to a fifth is added at random.
    pub round_ms: u32,
    /// The number of peers to which a round sends; at least 1.
    pub fanout: u32,
    /// The maximum number of bytes that a node sends in any second, with IP and UDP headers; at least 4096.
    pub budget_bytes: u32,
    /// How long a node may be silent before it is declared silent, in milliseconds. Large clusters allow more: see
    /// [`Pace::silence_ms`].
    pub silence_ms: u32,
    /// How long a member from which nothing has arrived yet is contacted like a live member, in milliseconds.
    pub expect_ms: u32,
}

impl Default for Settings {
    /// Returns one round per second to three peers, 32 KiB per second, and six seconds of silence.
    fn default() -> Self {
        Self { round_ms: 1000, fanout: 3, budget_bytes: 32 << 10, silence_ms: 6000, expect_ms: 30_000 }
    }
}

/// The update intervals of a cluster. They are so long that the budget suffices for forwarding all news.
///
/// Every node forwards each piece of news once, to [`Settings::fanout`] members. The traffic is therefore predictable,
/// and all nodes compute the same intervals without communication.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// The interval between heartbeats of a node, in milliseconds.
    pub beat_ms: u64,
    /// The interval between loads of a node, in milliseconds. A load that changes much is sent earlier.
    pub load_ms: u64,
    /// How long a node has been silent when other nodes ask their regular peers about it, in milliseconds.
    pub ask_ms: u64,
    /// How long a node has been silent when other nodes also ask further peers about it, in milliseconds. News about
    /// the node that is older than this time is not a sign of life.
    pub urgent_ms: u64,
    /// How long a node has been silent when other nodes declare it silent, in milliseconds.
    pub silence_ms: u64,
}

/// The size of a heartbeat in a datagram, in bytes: two for the member and its incarnation, three for the sequence
/// number, and a share of the datagram's overhead.
const BEAT_BYTES: u64 = 6;

/// The size of a load in a datagram, in bytes, with its share of the datagram's overhead.
const LOAD_BYTES: u64 = 44;

/// The number of members up to which news reach every node within a few rounds.
const SMALL: u64 = 50;

impl Pace {
    /// Computes the update intervals of a cluster with this many members.
    #[must_use]
    pub fn of(settings: &Settings, members: usize) -> Self {
        let settings = settings.within_bounds();
        let round_ms = u64::from(settings.round_ms);
        let copies = (members as u64).saturating_mul(settings.fanout.into());
        // Percentages of the budget; the rest is for questions, answers and variance.
        let spread_ms = |bytes: u64, percent: u64| {
            let per_second = u64::from(settings.budget_bytes) * percent / 100;
            (copies.saturating_mul(bytes).saturating_mul(1000) / per_second).max(round_ms)
        };
        let beat_ms = spread_ms(BEAT_BYTES, 45);
        // Each doubling makes paths longer and more variable, and there are more nodes to misjudge.
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
    /// Returns the settings, with values below their minimum raised to the minimum.
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
    fn pace_slows_down_with_the_size_of_the_cluster() {
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
    fn too_small_settings_are_raised_to_the_minimum() {
        let nothing = Settings { round_ms: 0, fanout: 0, budget_bytes: 0, silence_ms: 0, expect_ms: 0 };
        let pace = Pace::of(&nothing, 10);
        assert!(pace.beat_ms >= 100 && pace.silence_ms >= 200);
    }
}
