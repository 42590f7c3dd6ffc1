//! Power measurement with RAPL (running average power limit), the energy counters of Intel and AMD processors.
//!
//! Only root may read the counters, because they can leak secrets. They cover processors and memory. If there is a
//! counter for the whole platform, it is used instead.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

pub(crate) const POWERCAP: &str = "/sys/class/powercap";

/// The counters of a machine and the time of the last reading.
#[derive(Debug)]
pub(crate) struct Rapl {
    zones: Vec<Zone>,
    read_at: Instant,
}

/// An energy counter.
#[derive(Debug)]
struct Zone {
    energy: PathBuf,
    /// Value at which the counter wraps to zero, in microjoules.
    range_uj: u64,
    last_uj: u64,
}

impl Rapl {
    /// Finds the counters below `powercap`; `None` if none is readable.
    pub(crate) fn find(powercap: &Path) -> Option<Self> {
        let entries = fs::read_dir(powercap).ok()?.flatten();
        let named: Vec<(String, PathBuf)> = entries
            .map(|entry| entry.path())
            .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("intel-rapl:")))
            .filter_map(|path| Some((fs::read_to_string(path.join("name")).ok()?.trim().to_owned(), path)))
            .collect();
        let is_whole = |name: &str| name == "psys";
        // Memory has a counter separate from its package; cores are included in the package.
        let is_part = |name: &str| name.starts_with("package-") || name == "dram";
        let has_whole = named.iter().any(|(name, _)| is_whole(name));
        let wanted = named.iter().filter(|(name, _)| if has_whole { is_whole(name) } else { is_part(name) });
        // All counters or none: a partial sum would be wrong.
        let zones: Vec<Zone> = wanted.map(|(_, path)| Zone::open(path)).collect::<Option<_>>()?;
        (!zones.is_empty()).then(|| Self { zones, read_at: Instant::now() })
    }

    /// Mean power since the last call, in milliwatts; `None` if unknown.
    pub(crate) fn milliwatts(&mut self, now: Instant) -> Option<u64> {
        let ms = u64::try_from(now.duration_since(self.read_at).as_millis()).ok().filter(|ms| *ms > 0)?;
        let read: Vec<u64> = self.zones.iter().map(|zone| number(&zone.energy)).collect::<Option<_>>()?;
        self.read_at = now;
        let microjoules: u64 = self.zones.iter_mut().zip(read).map(|(zone, now)| zone.advance(now)).sum();
        Some(microjoules / ms)
    }
}

impl Zone {
    fn open(directory: &Path) -> Option<Self> {
        let energy = directory.join("energy_uj");
        let range_uj = number(&directory.join("max_energy_range_uj"))?;
        Some(Self { last_uj: number(&energy)?, energy, range_uj })
    }

    /// Returns the increase since the last reading, in microjoules.
    fn advance(&mut self, now: u64) -> u64 {
        let before = std::mem::replace(&mut self.last_uj, now);
        if now >= before { now - before } else { now + self.range_uj.saturating_sub(before) }
    }
}

fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn zone(powercap: &Path, directory: &str, name: &str, microjoules: u64) {
        let zone = powercap.join(directory);
        fs::create_dir_all(&zone).expect("this test owns the path");
        for (file, content) in [
            ("name", name.to_owned()),
            ("energy_uj", microjoules.to_string()),
            ("max_energy_range_uj", "1000000".to_owned()),
        ] {
            fs::write(zone.join(file), format!("{content}\n")).expect("this test owns the path");
        }
    }

    /// The reading after ten seconds.
    fn after_ten_seconds(rapl: &mut Rapl) -> Option<u64> {
        rapl.milliwatts(rapl.read_at + Duration::from_secs(10))
    }

    #[test]
    fn packages_and_memory_are_summed_without_cores() {
        let machine = tempfile::tempdir().expect("a directory");
        let powercap = machine.path();
        assert!(Rapl::find(powercap).is_none());
        zone(powercap, "intel-rapl:0", "package-0", 100_000);
        zone(powercap, "intel-rapl:0:0", "core", 50_000);
        zone(powercap, "intel-rapl:0:1", "dram", 990_000);
        let mut rapl = Rapl::find(powercap).expect("two counters are readable");
        zone(powercap, "intel-rapl:0", "package-0", 400_000);
        zone(powercap, "intel-rapl:0:0", "core", 350_000);
        // The memory counter has wrapped.
        zone(powercap, "intel-rapl:0:1", "dram", 90_000);
        assert_eq!(after_ten_seconds(&mut rapl), Some(40));
        fs::remove_file(powercap.join("intel-rapl:0/energy_uj")).expect("this test owns the path");
        assert_eq!(after_ten_seconds(&mut rapl), None);
    }

    #[test]
    fn platform_counter_replaces_the_others() {
        let machine = tempfile::tempdir().expect("a directory");
        zone(machine.path(), "intel-rapl:0", "package-0", 0);
        zone(machine.path(), "intel-rapl:1", "psys", 0);
        let mut rapl = Rapl::find(machine.path()).expect("a counter is readable");
        zone(machine.path(), "intel-rapl:0", "package-0", 500_000);
        zone(machine.path(), "intel-rapl:1", "psys", 700_000);
        assert_eq!(after_ten_seconds(&mut rapl), Some(70));
    }
}
