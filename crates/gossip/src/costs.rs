//! What commands cost: how long those of a kind run, and what the way to another node adds.
//!
//! A command that runs for a millisecond is not worth the way to an idle node, and one that runs for a minute is. What is measured of each
//! command goes into an average of its kind, in which recent ones count most.

use std::collections::BTreeMap;
use std::ffi::OsStr;

/// What was measured so far.
#[derive(Debug, Clone, Default)]
pub struct Costs {
    kinds: BTreeMap<String, Kind>,
    /// The way there of all commands.
    way_us: Option<Average>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Kind {
    run_us: Option<Average>,
    way_us: Option<Average>,
}

/// What commands of a kind may be expected to cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Estimate {
    /// How long they run on an idle usual node, in microseconds.
    pub run_us: u64,
    /// What the way to another node and back adds, in microseconds.
    pub way_us: u64,
}

/// An average in which the last of so many counts as much as all before.
#[derive(Debug, Clone, Copy)]
struct Average(u64);

/// By how much one measurement moves an average: one part in so many.
const INERTIA: u64 = 4;

/// The most kinds that are told apart. Beyond that all are forgotten: it learns quickly.
const MOST_KINDS: usize = 1000;

/// Longer names are no names.
const KIND_BYTES: usize = 64;

impl Average {
    fn and(before: Option<Self>, now: u64) -> Option<Self> {
        Some(Self(before.map_or(now, |Self(before)| before - before / INERTIA + now / INERTIA)))
    }
}

impl Costs {
    /// What commands of this kind are, by the program and what it is told to do: compiling takes other times than linking.
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

    /// A command of this kind ran for so long, in microseconds, on a node with this score, in thousandths.
    pub fn ran(&mut self, kind: &str, run_us: u64, score: u64) {
        let usual = run_us.saturating_mul(1000) / score.max(1000);
        let entry = self.entry(kind);
        entry.run_us = Average::and(entry.run_us, usual);
    }

    /// The way there and back took so long, in microseconds.
    pub fn went(&mut self, kind: &str, way_us: u64) {
        let entry = self.entry(kind);
        entry.way_us = Average::and(entry.way_us, way_us);
        self.way_us = Average::and(self.way_us, way_us);
    }

    /// What a command of this kind may be expected to cost; `None` while nothing is known of either part.
    #[must_use]
    pub fn estimate(&self, kind: &str) -> Option<Estimate> {
        let known = self.kinds.get(kind).copied().unwrap_or_default();
        let (run, way) = (known.run_us?, known.way_us.or(self.way_us)?);
        Some(Estimate { run_us: run.0, way_us: way.0 })
    }

    /// How long commands of this kind run on an idle usual node, in microseconds.
    #[must_use]
    pub fn run_us(&self, kind: &str) -> Option<u64> {
        self.kinds.get(kind)?.run_us.map(|run| run.0)
    }

    fn entry(&mut self, kind: &str) -> &mut Kind {
        if self.kinds.len() >= MOST_KINDS && !self.kinds.contains_key(kind) {
            self.kinds.clear();
        }
        self.kinds.entry(kind.to_owned()).or_default()
    }
}

impl Estimate {
    /// What the way adds to the score of another node, in thousandths of the command's own time.
    #[must_use]
    pub fn way(&self) -> u64 {
        const MOST: u64 = 1_000_000;
        (self.way_us.saturating_mul(1000) / self.run_us.max(1)).min(MOST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(line: &str) -> String {
        Costs::kind(line.split(' ').map(OsStr::new))
    }

    #[test]
    fn kinds_are_programs_and_what_they_are_told_to_do() {
        assert_eq!(kind("/usr/bin/gcc -O2 -c x.c -o x.o"), "gcc -c");
        assert_eq!(kind("gcc -o x x.o"), "gcc");
        assert_eq!(kind("sh -c true"), "sh -c");
        assert_eq!(kind(""), "");
        assert!(kind(&"é".repeat(100)).len() <= KIND_BYTES);
    }

    #[test]
    fn what_is_known_of_a_kind_is_said_and_the_rest_is_taken_from_others() {
        let mut costs = Costs::default();
        assert_eq!(costs.estimate("gcc -c"), None);
        costs.ran("gcc -c", 400_000, 2000);
        assert_eq!(costs.estimate("gcc -c"), None, "nothing has gone anywhere");
        costs.went("true", 5_000);
        let estimate = costs.estimate("gcc -c").expect("both are known");
        assert_eq!(estimate, Estimate { run_us: 200_000, way_us: 5_000 });
        assert_eq!(estimate.way(), 25);
        costs.went("gcc -c", 20_000);
        assert_eq!(costs.estimate("gcc -c").map(|estimate| estimate.way()), Some(100));
        assert_eq!(costs.estimate("true"), None, "its way is known, and not how long it runs");
        costs.ran("true", 0, 1000);
        assert_eq!(costs.estimate("true").map(|estimate| estimate.way()), Some(1_000_000));
    }

    #[test]
    fn it_follows_what_changes_and_stays_small() {
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
        for number in 0..2 * MOST_KINDS {
            costs.ran(&number.to_string(), 1, 1000);
        }
        assert!(costs.kinds.len() <= MOST_KINDS);
    }
}
