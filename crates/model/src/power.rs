//! Power: whether machines are on, and what an operator wants to be done about it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{NodeName, WallTime};

/// What a machine's controller has confirmed. That it is not known is the absence of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Supply {
    /// The machine is on, whatever it does.
    On,
    /// The machine is off.
    Off,
}

/// What a controller is asked to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PowerVerb {
    /// To say whether the machine is on.
    Status,
    /// To switch it on.
    On,
    /// To have its operating system shut it down.
    OffGracefully,
    /// To switch it off, whatever it does.
    OffByForce,
}

impl PowerVerb {
    /// Whether the machine is to be off afterwards.
    #[must_use]
    pub const fn is_off(self) -> bool {
        matches!(self, Self::OffGracefully | Self::OffByForce)
    }
}

/// Where a node stands with its power.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PowerState {
    /// Its controller has confirmed that it is off.
    Off,
    /// It was switched on, and its agent has not come yet.
    Waking,
    /// Its agent is connected.
    Up,
    /// The same, and nothing runs there.
    Idle,
    /// It takes nothing more and is being switched off.
    Stopping,
    /// It did not do what it was told.
    Failed,
    /// Nobody knows.
    Unknown,
}

impl PowerState {
    /// The word shown to people and in JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Waking => "waking",
            Self::Up => "up",
            Self::Idle => "idle",
            Self::Stopping => "stopping",
            Self::Failed => "failed",
            Self::Unknown => "unknown",
        }
    }
}

/// What an operator wants about power, for the whole cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PowerPlan {
    /// What holds for all.
    pub policy: PowerPolicy,
    /// The nodes that can be switched on and off.
    pub nodes: BTreeMap<NodeName, PowerTraits>,
}

/// When nodes are switched on and off.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PowerPolicy {
    /// A node on which nothing has run for so long is switched off, in milliseconds.
    pub idle_ms: u64,
    /// No node is switched off sooner after it came, in milliseconds.
    pub min_up_ms: u64,
    /// So many nodes stay on even if nothing is to be done.
    pub keep_warm: u32,
    /// So many of the nodes may be on at once; all when absent.
    pub max_on: Option<u32>,
    /// So much may the nodes that are on draw together when they are busy, in watts; anything when absent.
    pub max_watts: Option<u32>,
    /// When nodes may be switched on; always when empty.
    pub hours: Vec<Hours>,
    /// How far the clocks on the wall are ahead of UTC, in minutes: [`Self::hours`] are by those.
    pub utc_offset_minutes: i32,
    /// A node whose agent has not come so long after it was switched on has failed, in milliseconds.
    pub boot_timeout_ms: u64,
    /// A node that is still on so long after it was told to shut down has failed to, in milliseconds.
    pub stop_timeout_ms: u64,
    /// Whether a node that is asked to shut down and has not by then is switched off by force. Nothing runs on it.
    pub force_off: bool,
    /// How often a controller is asked when something is going on, in milliseconds.
    pub watch_ms: u64,
    /// How often it is asked when not, in milliseconds.
    pub poll_ms: u64,
    /// A controller that accepts to switch a node on and does not is told again after so long, in milliseconds.
    pub again_ms: u64,
    /// How often it is told at most.
    pub tries: u32,
    /// A node that has failed is tried again after so long, in milliseconds; twice as long each time, up to a day.
    pub retry_ms: u64,
}

impl Default for PowerPolicy {
    fn default() -> Self {
        const MINUTE_MS: u64 = 60_000;
        Self {
            idle_ms: 10 * MINUTE_MS,
            min_up_ms: 10 * MINUTE_MS,
            keep_warm: 0,
            max_on: None,
            max_watts: None,
            hours: Vec::new(),
            utc_offset_minutes: 0,
            boot_timeout_ms: 15 * MINUTE_MS,
            stop_timeout_ms: 5 * MINUTE_MS,
            force_off: false,
            watch_ms: 5_000,
            poll_ms: MINUTE_MS,
            again_ms: MINUTE_MS,
            tries: 3,
            retry_ms: 10 * MINUTE_MS,
        }
    }
}

impl PowerPolicy {
    /// Whether nodes may be switched on at this time.
    #[must_use]
    pub fn allows(&self, wall: WallTime) -> bool {
        let minute = wall.0.div_euclid(60_000) + i64::from(self.utc_offset_minutes);
        let of_day = u16::try_from(minute.rem_euclid(i64::from(Hours::DAY))).expect("a day is shorter");
        self.hours.is_empty() || self.hours.iter().any(|hours| hours.contain(of_day))
    }
}

/// Some hours of each day, from the first to before the second minute since midnight; past midnight when that is not later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hours {
    /// The first minute.
    pub from: u16,
    /// The minute after the last.
    pub to: u16,
}

impl Hours {
    /// Minutes of a day.
    pub const DAY: u16 = 24 * 60;

    /// Whether a minute of the day is in them.
    #[must_use]
    pub const fn contain(self, minute: u16) -> bool {
        if self.from < self.to {
            self.from <= minute && minute < self.to
        } else {
            self.from <= minute || minute < self.to
        }
    }
}

/// What is known of one node's power beforehand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PowerTraits {
    /// What it draws.
    pub watts: Watts,
    /// How long it takes from being switched on until its agent comes, in milliseconds, as long as that was not seen.
    pub boot_ms: u64,
    /// For this node in place of [`PowerPolicy::idle_ms`].
    pub idle_ms: Option<u64>,
    /// Whether it is switched on and off as the queue needs it; else only by operators.
    pub is_managed: bool,
    /// Nobody has said what it draws: the figures are those of [`Watts::default`].
    #[serde(default)]
    pub are_watts_assumed: bool,
}

impl Default for PowerTraits {
    fn default() -> Self {
        Self { watts: Watts::default(), boot_ms: 180_000, idle_ms: None, is_managed: true, are_watts_assumed: true }
    }
}

/// What a machine draws, in watts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watts {
    /// While it is off: its controller.
    pub off: u32,
    /// While it does nothing.
    pub idle: u32,
    /// While all of it works.
    pub busy: u32,
}

impl Default for Watts {
    /// An old server with two processors.
    fn default() -> Self {
        Self { off: 8, idle: 90, busy: 200 }
    }
}

/// Energy, and how much of it somebody has measured. What nobody has measured is by the figures of [`Watts`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Energy {
    /// All of it, in microjoules.
    pub drawn_uj: u64,
    /// What of that was measured, in microjoules.
    pub measured_uj: u64,
}

impl Energy {
    /// What was drawn since an earlier reading of the same meter.
    #[must_use]
    pub const fn since(self, before: Self) -> Self {
        Self {
            drawn_uj: self.drawn_uj.saturating_sub(before.drawn_uj),
            measured_uj: self.measured_uj.saturating_sub(before.measured_uj),
        }
    }

    /// So many parts of it, of so many.
    #[must_use]
    pub fn share(self, parts: u32, of: u32) -> Self {
        let share = |all: u64| {
            let share = u128::from(all) * u128::from(parts) / u128::from(of.max(1));
            u64::try_from(share).unwrap_or(u64::MAX)
        };
        Self { drawn_uj: share(self.drawn_uj), measured_uj: share(self.measured_uj) }
    }

    /// Both together.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            drawn_uj: self.drawn_uj.saturating_add(other.drawn_uj),
            measured_uj: self.measured_uj.saturating_add(other.measured_uj),
        }
    }
}

/// Who has measured what a machine draws.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Gauge {
    /// Its agent, from the processors' own counters: processors and memory, not disks, fans and losses.
    Agent,
    /// Its controller: all of the machine.
    Controller,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hours_may_pass_midnight() {
        let (day, night) = (Hours { from: 8 * 60, to: 20 * 60 }, Hours { from: 22 * 60, to: 6 * 60 });
        assert!(day.contain(8 * 60) && !day.contain(20 * 60) && !day.contain(0));
        assert!(night.contain(22 * 60) && night.contain(0) && !night.contain(6 * 60));
        let policy = PowerPolicy { hours: vec![night], utc_offset_minutes: 120, ..PowerPolicy::default() };
        let at = |hour: i64| WallTime(hour * 3_600_000);
        assert!(policy.allows(at(20)) && policy.allows(at(3)) && !policy.allows(at(4)) && !policy.allows(at(12)));
        assert!(policy.allows(at(-4)), "before 1970");
    }
}
