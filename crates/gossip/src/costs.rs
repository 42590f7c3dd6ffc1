//! Costs of commands: run time by kind of command, and the overhead of running on another node.
//!
//! Running a command of a millisecond on an idle node costs more than it saves; for a command of a minute it pays. Measurements update
//! a moving average per kind of command.

use std::collections::BTreeMap;
use std::ffi::OsStr;

/// Measured run times and overheads of this node's commands, by kind of command.
#[derive(Debug, Clone, Default)]
pub struct Costs {
    kinds: BTreeMap<String, Kind>,
    /// The average overhead of all commands, in microseconds.
    overhead_us: Option<Average>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Kind {
    run_us: Option<Average>,
    overhead_us: Option<Average>,
}

/// The expected run time and overhead of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Estimate {
    /// The expected run time on an idle reference node, in microseconds.
    pub run_us: u64,
    /// The expected overhead of sending the command to another node and getting its result, in microseconds.
    pub overhead_us: u64,
}

/// An exponential moving average.
#[derive(Debug, Clone, Copy)]
struct Average(u64);

/// A new measurement counts for one part in this many of the average.
const INERTIA: u64 = 4;

/// The maximum number of kinds. At the limit, all kinds are dropped, since the table refills quickly.
const MAX_KINDS: usize = 1000;

/// The maximum length of a kind's name, in bytes.
const KIND_BYTES: usize = 64;

impl Average {
    fn and(before: Option<Self>, now: u64) -> Option<Self> {
        Some(Self(before.map_or(now, |Self(before)| before - before / INERTIA + now / INERTIA)))
    }
}

impl Costs {
    /// Returns the kind of a command: its program and mode. Compiling and linking, for example, take different times.
    #[must_use]
    pub fn kind<'a>(argv: impl IntoIterator<Item = &'a OsStr>) -> String {
        let mut words = argv.into_iter();
        let program = words.next().unwrap_or_default().to_string_lossy();
        let mut kind = program.rsplit('/').next().unwrap_or_default().to_owned();
        let modes = ["-c", "-E", "-S"];
        if let Some(mode) = words.find_map(|word| modes.into_iter().find(|mode| word == *mode)) {
            kind = format!("{kind} {mode}");
        }
        kind.truncate(kind.floor_char_boundary(KIND_BYTES));
        kind
    }

    /// Records that a command of this kind ran for `run_us` microseconds on a node with this score in thousandths.
    pub fn ran(&mut self, kind: &str, run_us: u64, score: u64) {
        let usual = run_us.saturating_mul(1000) / score.max(1000);
        let entry = self.entry(kind);
        entry.run_us = Average::and(entry.run_us, usual);
    }

    /// Records that a command of this kind took `overhead_us` microseconds more than its run time, because it was sent to
    /// another node.
    pub fn went(&mut self, kind: &str, overhead_us: u64) {
        let entry = self.entry(kind);
        entry.overhead_us = Average::and(entry.overhead_us, overhead_us);
        self.overhead_us = Average::and(self.overhead_us, overhead_us);
    }

    /// Returns the expected costs of a kind; `None` if its run time or the overhead is unknown.
    #[must_use]
    pub fn estimate(&self, kind: &str) -> Option<Estimate> {
        let known = self.kinds.get(kind).copied().unwrap_or_default();
        let (run, way) = (known.run_us?, known.overhead_us.or(self.overhead_us)?);
        Some(Estimate { run_us: run.0, overhead_us: way.0 })
    }

    fn entry(&mut self, kind: &str) -> &mut Kind {
        if self.kinds.len() >= MAX_KINDS && !self.kinds.contains_key(kind) {
            self.kinds.clear();
        }
        self.kinds.entry(kind.to_owned()).or_default()
    }
}

impl Estimate {
    /// Returns the overhead in thousandths of the run time, which is added to the score of every other node.
    #[must_use]
    pub fn overhead(&self) -> u64 {
        const MOST: u64 = 1_000_000;
        (self.overhead_us.saturating_mul(1000) / self.run_us.max(1)).min(MOST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(line: &str) -> String {
        Costs::kind(line.split(' ').map(OsStr::new))
    }

    #[test]
    fn kind_is_program_and_mode() {
        assert_eq!(kind("/usr/bin/gcc -O2 -c x.c -o x.o"), "gcc -c");
        assert_eq!(kind("gcc -o x x.o"), "gcc");
        assert_eq!(kind("sh -c true"), "sh -c");
        assert_eq!(kind(""), "");
        assert!(kind(&"é".repeat(100)).len() <= KIND_BYTES);
    }

    #[test]
    fn estimate_uses_the_common_overhead_for_a_new_kind() {
        let mut costs = Costs::default();
        assert_eq!(costs.estimate("gcc -c"), None);
        costs.ran("gcc -c", 400_000, 2000);
        assert_eq!(costs.estimate("gcc -c"), None, "no overhead is known");
        costs.went("true", 5_000);
        let estimate = costs.estimate("gcc -c").expect("run time and overhead are known");
        assert_eq!(estimate, Estimate { run_us: 200_000, overhead_us: 5_000 });
        assert_eq!(estimate.overhead(), 25);
        costs.went("gcc -c", 20_000);
        assert_eq!(costs.estimate("gcc -c").map(|estimate| estimate.overhead()), Some(100));
        assert_eq!(costs.estimate("true"), None, "the overhead is known, but not the run time");
        costs.ran("true", 0, 1000);
        assert_eq!(costs.estimate("true").map(|estimate| estimate.overhead()), Some(1_000_000));
    }

    #[test]
    fn averages_follow_changes_and_memory_is_bounded() {
        let mut costs = Costs::default();
        costs.went("a", 1_000);
        for _ in 0..30 {
            costs.ran("a", 8_000, 1000);
        }
        for _ in 0..30 {
            costs.ran("a", 80_000, 1000);
        }
        let run_us = costs.estimate("a").expect("known").run_us;
        assert!((79_000..=80_000).contains(&run_us), "{run_us}");
        for number in 0..2 * MAX_KINDS {
            costs.ran(&number.to_string(), 1, 1000);
        }
        assert!(costs.kinds.len() <= MAX_KINDS);
    }
}
