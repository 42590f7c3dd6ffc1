//! The knobs: settings of the machine that a run with `--quiet-machine` may change. Pure, except that it lists directories.

use std::fs;
use std::path::{Path, PathBuf};

use hostler_model::CpuSet;
use serde::{Deserialize, Serialize};

use super::units::{self, Unit};

/// A group of settings, by its name in `agent.toml`. The order is that in which they are set; undoing goes backwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Knob {
    /// Units of systemd, by the setting `stop_units`. The first: some, such as `irqbalance`, write other settings here.
    Units,
    /// Preference between energy and performance. Before the governor: drivers refuse other preferences than `performance`
    /// while the governor is `performance`, so the governor must be the first to return to its old value.
    EnergyPreference,
    /// Frequency governor.
    Governor,
    /// Frequencies above the nominal one.
    Boost,
    /// Idle states of the CPUs.
    IdleStates,
    /// CPUs that handle interrupts.
    Interrupts,
    /// CPUs that run unbound work of the kernel.
    Workqueues,
    /// Transparent huge pages.
    HugePages,
    /// Watchdogs for locked-up CPUs.
    Watchdog,
    /// Sampling rate of performance counters.
    PerfSampling,
    /// Interval at which each CPU updates the statistics of memory.
    VmStat,
    /// How readily memory is moved to swap space.
    Swappiness,
    /// Automatic moves of memory between NUMA nodes.
    NumaBalancing,
    /// Moves of timers between CPUs.
    TimerMigration,
}

/// How a setting is written and compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Form {
    /// The file holds the value.
    Plain,
    /// The file lists all values, the present one in brackets: `always [madvise] never`.
    Choice,
    /// CPU ids: `0-3,8`.
    CpuList,
    /// CPUs as bits in groups of 32: `ffffffff,0000000f`.
    CpuMask,
    /// No file, but the name of a unit of systemd. The value is its state.
    Unit,
}

/// Files of a knob, and their value during a run.
struct Row {
    knob: Knob,
    /// Path below the root. `*` stands for a number.
    path: &'static str,
    form: Form,
    /// The value; empty stands for the CPUs of the machine that the node does not offer.
    value: &'static str,
}

const fn row(knob: Knob, path: &'static str, form: Form, value: &'static str) -> Row {
    Row { knob, path, form, value }
}

/// All knobs but [`Knob::Units`] and [`Knob::IdleStates`], which is a file that is held open.
const ROWS: [Row; 14] = [
    row(
        Knob::EnergyPreference,
        "sys/devices/system/cpu/cpufreq/policy*/energy_performance_preference",
        Form::Plain,
        "performance",
    ),
    row(Knob::Governor, "sys/devices/system/cpu/cpufreq/policy*/scaling_governor", Form::Plain, "performance"),
    row(Knob::Boost, "sys/devices/system/cpu/cpufreq/boost", Form::Plain, "0"),
    row(Knob::Boost, "sys/devices/system/cpu/intel_pstate/no_turbo", Form::Plain, "1"),
    row(Knob::Interrupts, "proc/irq/*/smp_affinity_list", Form::CpuList, ""),
    row(Knob::Workqueues, "sys/devices/virtual/workqueue/cpumask", Form::CpuMask, ""),
    row(Knob::HugePages, "sys/kernel/mm/transparent_hugepage/enabled", Form::Choice, "never"),
    // Not `watchdog`, which stands for both: written back, it would switch on one that was off.
    row(Knob::Watchdog, "proc/sys/kernel/nmi_watchdog", Form::Plain, "0"),
    row(Knob::Watchdog, "proc/sys/kernel/soft_watchdog", Form::Plain, "0"),
    row(Knob::PerfSampling, "proc/sys/kernel/perf_event_max_sample_rate", Form::Plain, "1"),
    row(Knob::VmStat, "proc/sys/vm/stat_interval", Form::Plain, "10"),
    row(Knob::Swappiness, "proc/sys/vm/swappiness", Form::Plain, "0"),
    row(Knob::NumaBalancing, "proc/sys/kernel/numa_balancing", Form::Plain, "0"),
    row(Knob::TimerMigration, "proc/sys/kernel/timer_migration", Form::Plain, "0"),
];

/// The file that keeps CPUs out of idle states while a process holds it open, from the root.
pub(super) const LATENCY: &str = "dev/cpu_dma_latency";

/// A file with the value that it should have during a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) knob: Knob,
    pub(super) path: PathBuf,
    pub(super) form: Form,
    pub(super) value: String,
}

/// A run that wants a quiet machine.
pub(super) struct Wish<'a> {
    pub(super) run: &'a str,
    pub(super) boot: &'a str,
    /// In the order in which they are set.
    pub(super) knobs: &'a [Knob],
    /// What [`Knob::Units`] stops.
    pub(super) units: &'a [Unit],
    /// Where the files of the machine are: `/`, except in tests.
    pub(super) root: &'a Path,
    /// CPUs of the machine that the node does not offer.
    pub(super) spare: &'a CpuSet,
}

impl Knob {
    /// The name in `agent.toml` and in certificates.
    pub(super) fn name(self) -> String {
        let name = serde_json::to_value(self).expect("a name is valid JSON");
        name.as_str().expect("a name is text").to_owned()
    }

    /// The files of this knob that the machine has, or the units.
    ///
    /// # Errors
    /// Why the machine does not offer the knob.
    pub(super) fn targets(self, wish: &Wish<'_>) -> Result<Vec<Target>, String> {
        let Wish { root, spare, .. } = *wish;
        if self == Self::Units {
            let target = |unit: &Unit| Target {
                knob: self,
                path: unit.name().into(),
                form: Form::Unit,
                value: units::STOPPED.to_owned(),
            };
            let (services, triggers): (Vec<&Unit>, Vec<&Unit>) = wish.units.iter().partition(|unit| unit.is_service());
            return Ok(triggers.into_iter().chain(services).map(target).collect());
        }
        let mut targets = Vec::new();
        for Row { path, form, value, .. } in ROWS.iter().filter(|row| row.knob == self) {
            if value.is_empty() && spare.is_empty() {
                return Err(
                    "the node offers all CPUs of its machine; leave one out with `cpus` in agent.toml".to_owned()
                );
            }
            let value = match (value.is_empty(), form) {
                (false, _) => (*value).to_owned(),
                (true, Form::CpuMask) => mask(spare),
                (true, _) => spare.to_string(),
            };
            let target = |path| Target { knob: self, path, form: *form, value: value.clone() };
            targets.extend(expand(root, path).into_iter().map(target));
        }
        if targets.is_empty() { Err("this machine has no such setting".to_owned()) } else { Ok(targets) }
    }
}

impl Form {
    /// The value in the content of a file, so that equal values are equal texts.
    pub(super) fn value_in(self, content: &str) -> String {
        let content = content.trim();
        match self {
            Self::Plain | Self::Unit => content.to_owned(),
            Self::Choice => {
                let chosen = content.split_whitespace().find_map(|word| word.strip_prefix('[')?.strip_suffix(']'));
                chosen.unwrap_or(content).to_owned()
            }
            Self::CpuList => content.parse::<CpuSet>().map_or_else(|_| content.to_owned(), |cpus| cpus.to_string()),
            Self::CpuMask => {
                let digits = content.replace(',', "");
                let digits = digits.trim_start_matches('0');
                if digits.is_empty() { "0".to_owned() } else { grouped(digits) }
            }
        }
    }
}

/// CPUs as a mask that the kernel understands.
fn mask(cpus: &CpuSet) -> String {
    let digit_of = |at: u32| (0..4).fold(0, |digit, bit| digit | (u32::from(cpus.contains(4 * at + bit)) << bit));
    let last = cpus.iter().last().unwrap_or(0) / 4;
    let digits: String = (0..=last).rev().filter_map(|at| char::from_digit(digit_of(at), 16)).collect();
    grouped(&digits)
}

/// Hexadecimal digits with a comma before each group of eight.
fn grouped(digits: &str) -> String {
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(8) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// The existing files of a pattern, in the order of their numbers.
fn expand(root: &Path, pattern: &str) -> Vec<PathBuf> {
    let Some((before, after)) = pattern.split_once('*') else {
        let path = root.join(pattern);
        return if path.exists() { vec![path] } else { Vec::new() };
    };
    let (directory, prefix) = before.rsplit_once('/').unwrap_or(("", before));
    let entries = fs::read_dir(root.join(directory)).into_iter().flatten().flatten();
    let number = |entry: &fs::DirEntry| entry.file_name().to_str()?.strip_prefix(prefix)?.parse::<u32>().ok();
    let mut numbers: Vec<u32> = entries.filter_map(|entry| number(&entry)).collect();
    numbers.sort_unstable();
    let path = |number: u32| root.join(format!("{before}{number}{after}"));
    numbers.into_iter().map(path).filter(|path| path.exists()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpus(text: &str) -> CpuSet {
        text.parse().expect("CPU ids")
    }

    #[test]
    fn equal_settings_are_equal_texts() {
        assert_eq!(Form::Plain.value_in("performance\n"), "performance");
        assert_eq!(Form::Choice.value_in("always [madvise] never\n"), "madvise");
        assert_eq!(Form::CpuList.value_in("0,1,2,3,8\n"), "0-3,8");
        for text in ["0000000f,00000001\n", "f,00000001", "f00000001"] {
            assert_eq!(Form::CpuMask.value_in(text), "f,00000001");
        }
        assert_eq!(Form::CpuMask.value_in("00000000\n"), "0");
        for text in ["0", "3", "0-3,32-35", "31", "64"] {
            let written = mask(&cpus(text));
            assert_eq!(Form::CpuMask.value_in(&written), written, "{text}");
        }
        assert_eq!(mask(&cpus("0-3,32-35")), "f,0000000f");
    }

    #[test]
    fn knob_covers_all_its_files_and_says_why_it_is_not_offered() {
        let top = tempfile::tempdir().expect("a temporary directory");
        let make = |path: &str| {
            let path = top.path().join(path);
            fs::create_dir_all(path.parent().expect("a parent")).expect("ours");
            fs::write(&path, "x\n").expect("ours");
            path
        };
        let targets = |knob: Knob, spare: &CpuSet| {
            let units =
                ["cron.service", "cron.timer"].map(|name| Unit::try_from(name.to_owned()).expect("the name of a unit"));
            knob.targets(&Wish { run: "", boot: "", knobs: &[], units: &units, root: top.path(), spare })
        };
        let none = CpuSet::default();
        let missing = targets(Knob::Governor, &none).expect_err("there is no file");
        assert_eq!(missing, "this machine has no such setting");
        let policies =
            [0, 2, 10].map(|at| make(&format!("sys/devices/system/cpu/cpufreq/policy{at}/scaling_governor")));
        make("sys/devices/system/cpu/cpufreq/policyx/scaling_governor");
        let found = targets(Knob::Governor, &none).expect("three files");
        assert_eq!(found.iter().map(|target| target.path.clone()).collect::<Vec<_>>(), policies);
        assert!(found.iter().all(|target| target.value == "performance"));

        make("sys/devices/virtual/workqueue/cpumask");
        make("proc/irq/7/smp_affinity_list");
        let refused = targets(Knob::Interrupts, &none).expect_err("no CPU is left");
        assert!(refused.starts_with("the node offers all CPUs of its machine"), "{refused}");
        for (knob, value) in [(Knob::Interrupts, "0,33"), (Knob::Workqueues, "2,00000001")] {
            let found = targets(knob, &cpus("0,33")).expect("one file");
            assert_eq!(found.iter().map(|target| target.value.as_str()).collect::<Vec<_>>(), [value]);
        }
        let units = targets(Knob::Units, &none).expect("two units");
        let units: Vec<_> = units.iter().map(|it| (it.path.to_str().expect("a name"), it.value.as_str())).collect();
        assert_eq!(units, [("cron.timer", "inactive"), ("cron.service", "inactive")], "the timer first");
        assert_eq!(Knob::IdleStates.name(), "idle-states");
    }
}
