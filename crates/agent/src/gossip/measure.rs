//! Load measurements from `/proc`. Missing data counts as zero.

use std::fs;

use hostler_gossip::Pressure;
use hostler_model::CpuSet;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Measured {
    /// Load average of the last minute, in hundredths.
    pub(super) average: u32,
    /// Average number of the node's CPUs that were busy in the last few seconds, in hundredths.
    pub(crate) recent: u32,
    /// Number of processes that run or are ready to run on the node's CPUs, without this process.
    pub(super) runnable: u32,
    /// Memory available without swapping, in bytes.
    pub(super) free_memory_bytes: u64,
    pub(super) pressure: Pressure,
}

/// Measures the load repeatedly, and keeps the last values for comparison.
#[derive(Debug)]
pub(crate) struct Measure {
    /// CPUs that the node offers.
    cpus: CpuSet,
    /// CPU time of the node's CPUs at the last measurement.
    before: Option<Ticks>,
    /// CPU time of the machine's other CPUs at the last measurement.
    outside: Option<Ticks>,
    /// Smoothed number of busy CPUs, in hundredths.
    recent: u32,
}

/// CPU time in clock ticks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Ticks {
    cpus: u32,
    busy: u64,
    all: u64,
}

impl Measure {
    pub(crate) const fn of(cpus: CpuSet) -> Self {
        Self { cpus, before: None, outside: None, recent: 0 }
    }

    /// Takes a measurement. Should be called about once per second.
    pub(crate) fn take(&mut self) -> Measured {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let stat = read("/proc/stat");
        let own = ticks(&stat, |cpu| self.cpus.contains(cpu));
        let others = ticks(&stat, |cpu| !self.cpus.contains(cpu));
        let last = self.before.and_then(|before| busy_between(before, own));
        let elsewhere = self.outside.and_then(|before| busy_between(before, others));
        self.recent = self.smoothed(last);
        (self.before, self.outside) = (Some(own), Some(others));
        Measured {
            average: average(&read("/proc/loadavg")),
            recent: self.recent,
            runnable: on_own_cpus(runnable(&stat).saturating_sub(1), own.cpus, last, elsewhere),
            free_memory_bytes: available(&read("/proc/meminfo")),
            pressure: Pressure {
                cpu: pressure(&read("/proc/pressure/cpu")),
                memory: pressure(&read("/proc/pressure/memory")),
                io: pressure(&read("/proc/pressure/io")),
            },
        }
    }

    /// Smoothed number of busy CPUs, in hundredths: the new value, if any, has twice the weight of the previous result.
    fn smoothed(&self, last: Option<u32>) -> u32 {
        last.map_or(self.recent, |last| (2 * last + self.recent) / 3)
    }
}

/// Number of busy CPUs between two measurements, in hundredths; `None` if no time has passed.
pub(crate) fn busy_between(before: Ticks, now: Ticks) -> Option<u32> {
    let (busy, all) = (now.busy.saturating_sub(before.busy), now.all.saturating_sub(before.all));
    let share = (busy.min(all) * 100 * u64::from(now.cpus)).checked_div(all)?;
    u32::try_from(share).ok()
}

/// Estimates how many of the machine's `all` runnable processes use the node's CPUs.
///
/// `busy` and `elsewhere` are the numbers of busy CPUs, in hundredths, inside and outside the node. The kernel counts
/// runnable processes only for the whole machine, but a process does not wait while its CPUs are idle.
fn on_own_cpus(all: u32, cpus: u32, busy: Option<u32>, elsewhere: Option<u32>) -> u32 {
    let whole = |hundredths: u32| (hundredths + 50) / 100;
    let Some(elsewhere) = elsewhere else { return all };
    let rest = all.saturating_sub(whole(elsewhere));
    let are_full = |busy: &u32| *busy >= 90 * cpus;
    busy.filter(|busy| !are_full(busy)).map_or(rest, |busy| rest.min(whole(busy)))
}

/// Sum of CPU time of the selected CPUs, from `/proc/stat`.
pub(crate) fn ticks(stat: &str, counts: impl Fn(u32) -> bool) -> Ticks {
    let mut sum = Ticks::default();
    for line in stat.lines() {
        let Some((id, rest)) = line.strip_prefix("cpu").and_then(|line| line.split_once(' ')) else { continue };
        if !id.parse().is_ok_and(&counts) {
            continue;
        }
        // user nice system idle iowait irq softirq steal; guest time is included in user.
        let times: Vec<u64> = rest.split_whitespace().take(8).map(|word| word.parse().unwrap_or(0)).collect();
        let all: u64 = times.iter().sum();
        let idle: u64 = times.iter().skip(3).take(2).sum();
        sum.cpus += 1;
        sum.all += all;
        sum.busy += all - idle;
    }
    sum
}

fn runnable(stat: &str) -> u32 {
    let line = stat.lines().find_map(|line| line.strip_prefix("procs_running "));
    line.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
}

/// One-minute load average from `/proc/loadavg`, in hundredths.
fn average(loadavg: &str) -> u32 {
    let load: f64 = loadavg.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(0.0);
    (load * 100.0).clamp(0.0, f64::from(u32::MAX)) as u32
}

fn available(meminfo: &str) -> u64 {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib: u64 = line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0);
    kib << 10
}

/// Share of the last ten seconds with waiting processes, in thousandths, from a line such as `some avg10=1.23 …`.
fn pressure(text: &str) -> Option<u16> {
    let some = text.lines().find(|line| line.starts_with("some "))?;
    let share: f64 = some.split_whitespace().find_map(|word| word.strip_prefix("avg10="))?.parse().ok()?;
    Some((share * 10.0).clamp(0.0, 1000.0) as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "cpu  400 0 100 1500 0 0 0 0 0 0\ncpu0 300 0 50 600 50 0 0 0 0 0\ncpu1 100 0 50 900 0 0 0 0 0 0\nintr 5\nprocs_running 3\n";

    #[test]
    fn proc_files_are_parsed() {
        assert_eq!(ticks(STAT, |cpu| cpu < 1), Ticks { cpus: 1, busy: 350, all: 1000 });
        assert_eq!(ticks(STAT, |_| true), Ticks { cpus: 2, busy: 500, all: 2050 });
        assert_eq!((runnable(STAT), average("0.75 2.04 2.50 3/245 1234\n")), (3, 75));
        assert_eq!(available("MemTotal: 9 kB\nMemAvailable:  4 kB\n"), 4096);
        assert_eq!(pressure("some avg10=12.34 avg60=0.00 avg300=0.00 total=1\nfull avg10=1.00\n"), Some(123));
        for text in ["", "cpu0", "some avg10=x", "procs_running many", "MemAvailable:"] {
            assert_eq!((ticks(text, |_| true), runnable(text), average(text)), Default::default(), "{text}");
            assert_eq!((available(text), pressure(text)), (0, None), "{text}");
        }
    }

    #[test]
    fn busy_cpus_are_smoothed() {
        let mut measure = Measure::of(CpuSet::first(2));
        assert_eq!(measure.smoothed(None), 0, "the first reading has no predecessor");
        let before = Ticks { cpus: 2, busy: 100, all: 1000 };
        let last = busy_between(before, Ticks { cpus: 2, busy: 300, all: 1200 });
        assert_eq!(measure.smoothed(last), 133, "both CPUs are busy, and two thirds show immediately");
        measure.recent = 133;
        assert_eq!(measure.smoothed(last), 177);
        assert_eq!(measure.smoothed(busy_between(before, Ticks::default())), 133, "no time has passed");
    }

    #[test]
    fn busy_cpus_are_computed_from_two_readings() {
        let at = |busy, all| Ticks { cpus: 2, busy, all };
        assert_eq!(busy_between(at(0, 0), at(150, 200)), Some(150));
        assert_eq!(busy_between(at(0, 0), at(0, 0)), None);
        assert_eq!(busy_between(at(9, 9), at(3, 19)), Some(0), "a CPU was taken away");
    }

    #[test]
    fn runnable_processes_on_other_cpus_are_excluded() {
        assert_eq!(on_own_cpus(4, 2, Some(50), None), 4, "without other CPUs, the kernel's count is exact");
        // Three processes share one of two CPUs.
        assert_eq!(on_own_cpus(3, 1, Some(100), Some(0)), 3);
        assert_eq!(on_own_cpus(3, 1, Some(45), Some(100)), 0);
        assert_eq!(on_own_cpus(3, 1, Some(60), Some(100)), 1);
        assert_eq!(on_own_cpus(6, 1, Some(98), Some(100)), 5, "if all CPUs are busy, the split is unknown");
        assert_eq!(on_own_cpus(0, 4, Some(300), Some(500)), 0);
        assert_eq!(on_own_cpus(9, 2, None, Some(100)), 8, "the node's own usage is unknown at first");
    }

    #[test]
    fn this_machine_can_be_measured() {
        let measured = Measure::of(CpuSet::first(1)).take();
        assert!(measured.free_memory_bytes > 0, "{measured:?}");
    }
}
