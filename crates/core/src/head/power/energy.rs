//! Energy use of nodes: measured power, or the plan's wattages, over the times that a node was off, idle and busy.

use hostler_model::{Energy, Gauge, Timestamp, Watts};
use serde::{Deserialize, Serialize};

/// The smallest change of a power reading that counts as new, in milliwatts. A change below 2 % does not count either.
const MIN_CHANGE_MW: u64 = 1_000;

/// Adds up the energy of a node since an operator first listed it in power.toml.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meter {
    /// The time up to which the energy is added up.
    pub until: Timestamp,
    /// The energy that the node has used: the total, and the part that was measured.
    #[serde(default)]
    pub energy: Energy,
    /// The energy that the node would have used if it had never been off, in microjoules.
    #[serde(default)]
    pub always_on_uj: u64,
    /// How long the node was off, in milliseconds.
    pub off_ms: u64,
    /// The power that the node uses now, in milliwatts.
    #[serde(default)]
    pub draws_mw: u64,
    /// The last measurement since the node was switched on, in milliwatts, and its source.
    #[serde(default)]
    pub measured: Option<(Gauge, u64)>,
    /// The last measurement while the node was up and idle, in milliwatts.
    #[serde(default)]
    idle_mw: Option<u64>,
    /// The node's power while it is on, measured or estimated, in milliwatts.
    #[serde(default)]
    on_mw: u64,
    #[serde(default)]
    is_off: bool,
}

/// What a node's power depends on at one moment.
#[derive(Debug, Clone, Copy)]
pub(super) struct Load {
    pub(super) watts: Watts,
    pub(super) is_off: bool,
    /// Whether the last measurement is still valid.
    pub(super) is_measured: bool,
    /// How many of the node's CPUs are held by runs.
    pub(super) held: u32,
    /// How many CPUs the node has.
    pub(super) all: u32,
}

impl Meter {
    pub(super) const fn new(now: Timestamp) -> Self {
        let energy = Energy { drawn_uj: 0, measured_uj: 0 };
        let (measured, idle_mw) = (None, None);
        Self { until: now, energy, always_on_uj: 0, off_ms: 0, draws_mw: 0, measured, idle_mw, on_mw: 0, is_off: false }
    }

    /// Returns the meter with the energy added up to `now`.
    #[must_use]
    pub fn at(mut self, now: Timestamp) -> Self {
        self.count(now);
        self
    }

    fn count(&mut self, now: Timestamp) {
        let ms = now.ms_since(self.until);
        let drawn_uj = ms.saturating_mul(self.draws_mw);
        let measured_uj = if self.measured.is_some() { drawn_uj } else { 0 };
        self.energy = self.energy.plus(Energy { drawn_uj, measured_uj });
        self.always_on_uj = self.always_on_uj.saturating_add(ms.saturating_mul(self.on_mw));
        if self.is_off {
            self.off_ms += ms;
        }
        self.until = self.until.max(now);
    }

    /// Adds the energy up to `now` and sets the load that applies from `now` on.
    pub(super) fn read(&mut self, now: Timestamp, load: Load) {
        self.count(now);
        let Load { watts, is_off, is_measured, held, all } = load;
        self.is_off = is_off;
        if !is_measured {
            self.measured = None;
        }
        let busy_mw =
            u64::from(watts.busy.saturating_sub(watts.idle)) * 1_000 * u64::from(held) / u64::from(all.max(1));
        let figure = self.idle_mw.filter(|_| held == 0).unwrap_or(u64::from(watts.idle) * 1_000 + busy_mw);
        self.on_mw = self.measured.map_or(figure, |(_, mw)| mw);
        self.draws_mw = if is_off { u64::from(watts.off) * 1_000 } else { self.on_mw };
    }

    /// Stores a measurement; `None` removes the last measurement. The caller must call [`Self::read`] afterwards.
    pub(super) fn measure(&mut self, now: Timestamp, (gauge, mw): (Gauge, Option<u64>), is_idle: bool) {
        self.count(now);
        self.measured = mw.map(|mw| (gauge, mw));
        self.idle_mw = mw.filter(|_| is_idle).or(self.idle_mw);
    }

    /// Returns whether a measurement adds information. A gauge that measures a smaller part of the machine than the
    /// current gauge adds none.
    pub(super) fn is_news(&self, (gauge, mw): (Gauge, Option<u64>), is_idle: bool) -> bool {
        let differs = |before: u64, mw: u64| mw.abs_diff(before) >= MIN_CHANGE_MW.max(before / 50);
        match (self.measured, mw) {
            (Some((by, _)), _) if by > gauge => false,
            (Some((by, before)), Some(mw)) => {
                by != gauge || differs(before, mw) || is_idle && self.idle_mw.is_none_or(|idle| differs(idle, mw))
            }
            (Some((by, _)), None) => by == gauge,
            (None, mw) => mw.is_some(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A node that is on, with `held` of four CPUs held.
    fn on(held: u32) -> Load {
        let watts = Watts { off: 10, idle: 100, busy: 200 };
        Load { watts, is_off: false, is_measured: true, held, all: 4 }
    }

    fn off() -> Load {
        Load { is_off: true, is_measured: false, ..on(0) }
    }

    const J: u64 = 1_000_000;

    #[test]
    fn meter_counts_used_energy_and_always_on_energy() {
        let mut meter = Meter::new(Timestamp(0));
        meter.read(Timestamp(0), on(0));
        meter.read(Timestamp(1_000), on(2));
        assert_eq!((meter.energy.drawn_uj, meter.draws_mw), (100 * J, 150_000));
        meter.read(Timestamp(2_000), off());
        meter.read(Timestamp(5_000), on(0));
        assert_eq!((meter.energy.drawn_uj, meter.always_on_uj, meter.off_ms), (280 * J, 550 * J, 3_000));
        assert_eq!(meter.energy.measured_uj, 0);
    }

    #[test]
    fn measurements_count_until_the_machine_is_off() {
        let mut meter = Meter::new(Timestamp(0));
        let now = Timestamp(0);
        meter.read(now, on(0));
        meter.measure(now, (Gauge::Controller, Some(5_500)), true);
        meter.read(now, on(0));
        // Frequent readings lose nothing to rounding.
        (1..=2_000).for_each(|ms| meter.read(Timestamp(ms), on(0)));
        assert_eq!(meter.energy, Energy { drawn_uj: 11 * J, measured_uj: 11 * J });
        // The idle measurement does not apply to a busy node.
        meter.read(Timestamp(2_000), on(4));
        meter.measure(Timestamp(2_000), (Gauge::Controller, Some(190_000)), false);
        meter.read(Timestamp(2_000), on(4));
        meter.read(Timestamp(3_000), on(0));
        meter.read(Timestamp(3_000), off());
        meter.read(Timestamp(4_000), on(4));
        assert_eq!(meter.always_on_uj, (11 + 190) * J + 5_500 * 1_000);
        assert_eq!(meter.off_ms, 1_000, "off time counts even if the node then uses more power");
        assert_eq!(
            (meter.draws_mw, meter.measured),
            (200_000, None),
            "the plan's wattages apply until the next measurement"
        );
    }

    #[test]
    fn repeated_and_less_complete_measurements_are_ignored() {
        let mut meter = Meter::new(Timestamp(0));
        let (agent, controller) = (|mw| (Gauge::Agent, mw), |mw| (Gauge::Controller, mw));
        assert!(meter.is_news(agent(Some(50_000)), false) && !meter.is_news(agent(None), false));
        meter.measure(Timestamp(0), agent(Some(50_000)), false);
        assert!(!meter.is_news(agent(Some(50_900)), false) && meter.is_news(agent(Some(51_000)), false));
        assert!(meter.is_news(agent(Some(50_900)), true), "the first idle measurement");
        assert!(meter.is_news(agent(None), false) && meter.is_news(controller(Some(50_000)), false));
        assert!(!meter.is_news(controller(None), false), "a gauge that never measured changes nothing");
        meter.measure(Timestamp(0), controller(Some(90_000)), false);
        assert!(!meter.is_news(agent(Some(50_000)), false) && !meter.is_news(agent(None), false));
        assert!(!meter.is_news(controller(Some(91_500)), false), "a change below 2 % is ignored");
    }
}
