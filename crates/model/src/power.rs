//! Power management: states of machines, and the operator's plan.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{NodeName, WallTime};

/// Whether a machine is on, as its power controller reports it. An unknown state is represented by `None`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Supply {
    /// The machine is on. Its operating system need not run.
    On,
    /// The machine is off.
    Off,
}

/// A request to a power controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PowerVerb {
    /// Report whether the machine is on.
    Status,
    /// Switch the machine on.
    On,
    /// Shut the machine down through its operating system.
    OffGracefully,
    /// Cut the machine's power at once.
    OffByForce,
}

impl PowerVerb {
    /// Returns whether the request switches the machine off.
    #[must_use]
    pub const fn is_off(self) -> bool {
        matches!(self, Self::OffGracefully | Self::OffByForce)
    }
}

/// The power state of a node, for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PowerState {
    /// The power controller has confirmed that the node is off.
    Off,
    /// The node was switched on; its agent has not connected yet.
    Waking,
    /// The node's agent is connected.
    Up,
    /// The node's agent is connected, and nothing runs there.
    Idle,
    /// The node gets no more runs and is being switched off.
    Stopping,
    /// The node did not follow an order to switch on or off.
    Failed,
    /// Neither the agent nor the controller has said whether the node is on.
    Unknown,
}

impl PowerState {
    /// Returns the state as a word in output and JSON.
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

/// The operator's plan for switching nodes on and off, as in `power.toml`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PowerPlan {
    /// Rules for all nodes.
    pub policy: PowerPolicy,
    /// The nodes that can be switched on and off.
    pub nodes: BTreeMap<NodeName, PowerTraits>,
}

/// Rules for switching nodes on and off. All times are in milliseconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PowerPolicy {
    /// Switch a node off after it has been idle this long.
    pub idle_ms: u64,
    /// Keep a node on at least this long after its agent connects.
    pub min_up_ms: u64,
    /// Keep this many nodes on even if they are idle.
    pub keep_warm: u32,
    /// The maximum number of nodes that are on at the same time; unlimited when absent.
    pub max_on: Option<u32>,
    /// The maximum sum of the busy watts of all nodes that are on; unlimited when absent.
    pub max_watts: Option<u32>,
    /// The times of day at which nodes may be switched on; always when empty.
    pub hours: Vec<Hours>,
    /// The offset of local time from UTC in minutes. [`Self::hours`] are in local time.
    pub utc_offset_minutes: i32,
    /// Boot timeout: a node whose agent does not connect within this time after power-on has failed.
    pub boot_timeout_ms: u64,
    /// Stop timeout: a node that is still on this long after the order to shut down has failed to stop.
    pub stop_timeout_ms: u64,
    /// Whether to cut a node's power after `stop_timeout_ms`. No jobs run on the node then.
    pub force_off: bool,
    /// The interval for polling a controller while its node is switched on or off.
    pub watch_ms: u64,
    /// The interval for polling a controller at other times.
    pub poll_ms: u64,
    /// How long to wait before the head repeats an order, if the controller has accepted the order but not carried it
    /// out.
    pub again_ms: u64,
    /// The maximum number of times that an order is sent.
    pub tries: u32,
    /// How long to wait before the head retries a failed node. The wait doubles with each failure, up to a day.
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
    /// Returns whether nodes may be switched on at this time of day.
    #[must_use]
    pub fn allows(&self, wall: WallTime) -> bool {
        let minute = wall.0.div_euclid(60_000) + i64::from(self.utc_offset_minutes);
        let of_day = u16::try_from(minute.rem_euclid(i64::from(Hours::DAY))).expect("the minute of a day fits 16 bits");
        self.hours.is_empty() || self.hours.iter().any(|hours| hours.contain(of_day))
    }
}

/// A range of minutes of the day: `from` is the first minute, and `to` the first minute after the range. The range
/// spans midnight if `to` is not later than `from`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hours {
    /// The first minute of the range, counted from midnight.
    pub from: u16,
    /// The first minute after the range, counted from midnight.
    pub to: u16,
}

impl Hours {
    /// Minutes per day.
    pub const DAY: u16 = 24 * 60;

    /// Returns whether the range contains a minute of the day.
    #[must_use]
    pub const fn contain(self, minute: u16) -> bool {
        if self.from < self.to {
            self.from <= minute && minute < self.to
        } else {
            self.from <= minute || minute < self.to
        }
    }
}

/// What the plan says about one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PowerTraits {
    /// The node's power when it is off, idle and busy.
    pub watts: Watts,
    /// The expected time from power-on until the agent connects, in milliseconds; used until a boot is observed.
    pub boot_ms: u64,
    /// Overrides [`PowerPolicy::idle_ms`] for this node.
    pub idle_ms: Option<u64>,
    /// Whether the head switches the node on and off as the queue requires; otherwise only operators do.
    pub is_managed: bool,
    /// Whether the plan contains no watts for the node, so that [`Watts::default`] applies.
    #[serde(default)]
    pub are_watts_assumed: bool,
    /// What the machine will have, until its agent has connected for the first time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected: Option<Expected>,
}

/// The size of a machine that has not joined yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expected {
    /// CPUs, at least one.
    pub cpus: u32,
    /// Memory in bytes.
    pub memory_bytes: u64,
}

impl Default for PowerTraits {
    fn default() -> Self {
        Self {
            watts: Watts::default(),
            boot_ms: 180_000,
            idle_ms: None,
            is_managed: true,
            are_watts_assumed: true,
            expected: None,
        }
    }
}

/// The power of a machine when it is off, idle and busy, in watts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watts {
    /// Power while the machine is off, i.e. of its controller alone.
    pub off: u32,
    /// Power while the machine is on and idle.
    pub idle: u32,
    /// Power while the machine is fully loaded.
    pub busy: u32,
}

impl Default for Watts {
    /// Returns the values of an old server with two processors.
    fn default() -> Self {
        Self { off: 8, idle: 90, busy: 200 }
    }
}

/// An amount of energy, and the part of it that was measured. The rest is estimated from [`Watts`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Energy {
    /// The total, in microjoules.
    pub drawn_uj: u64,
    /// The measured part, in microjoules.
    pub measured_uj: u64,
}

impl Energy {
    /// Returns the energy used since an earlier reading of the same meter.
    #[must_use]
    pub const fn since(self, before: Self) -> Self {
        Self {
            drawn_uj: self.drawn_uj.saturating_sub(before.drawn_uj),
            measured_uj: self.measured_uj.saturating_sub(before.measured_uj),
        }
    }

    /// Returns the energy times `parts / of`.
    #[must_use]
    pub fn share(self, parts: u32, of: u32) -> Self {
        let share = |all: u64| {
            let share = u128::from(all) * u128::from(parts) / u128::from(of.max(1));
            u64::try_from(share).unwrap_or(u64::MAX)
        };
        Self { drawn_uj: share(self.drawn_uj), measured_uj: share(self.measured_uj) }
    }

    /// Adds the amounts; sums saturate.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            drawn_uj: self.drawn_uj.saturating_add(other.drawn_uj),
            measured_uj: self.measured_uj.saturating_add(other.measured_uj),
        }
    }
}

/// The source of a power measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Gauge {
    /// The agent reads the processors' counters: they cover processors and memory, but no disks, fans and losses.
    Agent,
    /// The power controller measures the whole machine.
    Controller,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hours_may_span_midnight() {
        let (day, night) = (Hours { from: 8 * 60, to: 20 * 60 }, Hours { from: 22 * 60, to: 6 * 60 });
        assert!(day.contain(8 * 60) && !day.contain(20 * 60) && !day.contain(0));
        assert!(night.contain(22 * 60) && night.contain(0) && !night.contain(6 * 60));
        let policy = PowerPolicy { hours: vec![night], utc_offset_minutes: 120, ..PowerPolicy::default() };
        let at = |hour: i64| WallTime(hour * 3_600_000);
        assert!(policy.allows(at(20)) && policy.allows(at(3)) && !policy.allows(at(4)) && !policy.allows(at(12)));
        assert!(policy.allows(at(-4)), "before 1970");
    }
}
