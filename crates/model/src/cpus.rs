//! Sets of CPU ids.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::ParseError;
use crate::text::write_ranges;

/// A set of CPU ids, displayed in the kernel's format (`0-3,8`).
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct CpuSet {
    /// Bit `i % 64` of word `i / 64` is set if the set contains CPU `i`. The last word is never zero, so that equal
    /// sets compare equal.
    words: Vec<u64>,
}

impl CpuSet {
    /// Returns the ids `0..count`.
    #[must_use]
    pub fn first(count: u32) -> Self {
        (0..count).collect()
    }

    /// Returns the number of CPUs.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.words.iter().map(|word| word.count_ones()).sum()
    }

    /// Returns whether the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Returns whether CPU `id` is in the set.
    #[must_use]
    pub fn contains(&self, id: u32) -> bool {
        self.words.get(id as usize / 64).is_some_and(|word| word >> (id % 64) & 1 == 1)
    }

    /// Adds CPU `id`; returns whether it is new.
    pub fn insert(&mut self, id: u32) -> bool {
        let word = id as usize / 64;
        if self.words.len() <= word {
            self.words.resize(word + 1, 0);
        }
        let is_new = !self.contains(id);
        self.words[word] |= 1 << (id % 64);
        is_new
    }

    /// Iterates over the ids in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.words.iter().enumerate().flat_map(|(i, &word)| {
            let mut rest = word;
            std::iter::from_fn(move || {
                (rest != 0).then(|| {
                    let bit = rest.trailing_zeros();
                    rest &= rest - 1;
                    i as u32 * 64 + bit
                })
            })
        })
    }

    /// Returns the `count` lowest ids, or `None` when there are fewer.
    #[must_use]
    pub fn lowest(&self, count: u32) -> Option<Self> {
        let taken: Self = self.iter().take(count as usize).collect();
        (taken.len() == count).then_some(taken)
    }

    /// Adds every id of `other`.
    pub fn add_all(&mut self, other: &Self) {
        if self.words.len() < other.words.len() {
            self.words.resize(other.words.len(), 0);
        }
        self.words.iter_mut().zip(&other.words).for_each(|(mine, theirs)| *mine |= theirs);
    }

    /// Removes every id of `other`.
    pub fn remove_all(&mut self, other: &Self) {
        self.words.iter_mut().zip(&other.words).for_each(|(mine, theirs)| *mine &= !theirs);
        while self.words.last() == Some(&0) {
            self.words.pop();
        }
    }

    /// Returns the ids that are in both sets.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let mut words: Vec<_> = self.words.iter().zip(&other.words).map(|(mine, theirs)| mine & theirs).collect();
        while words.last() == Some(&0) {
            words.pop();
        }
        Self { words }
    }

    /// Returns whether any id is in both sets.
    #[must_use]
    pub fn intersects(&self, other: &Self) -> bool {
        self.words.iter().zip(&other.words).any(|(mine, theirs)| mine & theirs != 0)
    }

    /// Returns whether every id of `other` is in this set.
    #[must_use]
    pub fn is_superset(&self, other: &Self) -> bool {
        other.words.iter().enumerate().all(|(i, word)| word & !self.words.get(i).copied().unwrap_or(0) == 0)
    }
}

impl FromIterator<u32> for CpuSet {
    fn from_iter<I: IntoIterator<Item = u32>>(ids: I) -> Self {
        let mut set = Self::default();
        for id in ids {
            set.insert(id);
        }
        set
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut ids = self.iter().peekable();
        let ranges = std::iter::from_fn(|| {
            let first = ids.next()?;
            let mut last = first;
            while ids.next_if_eq(&(last + 1)).is_some() {
                last += 1;
            }
            Some((first, last))
        });
        write_ranges(f, ranges)
    }
}

impl fmt::Debug for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CpuSet({self})")
    }
}

/// An upper limit for CPU ids, above the number of CPUs that any kernel supports.
const MAX_CPUS: u32 = 1 << 16;

impl FromStr for CpuSet {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let error = || ParseError::new(text, "a list of CPUs such as 0-3,8");
        let mut set = Self::default();
        // A few bytes can name all CPUs, and can be repeated: bound the work.
        let mut room = MAX_CPUS;
        for part in text.trim().split(',').filter(|part| !part.is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let first: u32 = first.parse().map_err(|_| error())?;
            let last: u32 = last.parse().map_err(|_| error())?;
            if first > last || last >= MAX_CPUS {
                return Err(error());
            }
            room = room.checked_sub(last - first + 1).ok_or_else(error)?;
            (first..=last).for_each(|id| {
                set.insert(id);
            });
        }
        Ok(set)
    }
}

impl Serialize for CpuSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for CpuSet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_use_the_kernels_format() {
        for text in ["", "0", "0-3", "0-3,8", "1,3,5-7,64-66,130"] {
            assert_eq!(text.parse::<CpuSet>().expect("valid").to_string(), text);
        }
        assert!("3-1".parse::<CpuSet>().is_err());
        assert!("a".parse::<CpuSet>().is_err());
    }

    #[test]
    fn short_text_cannot_cause_unbounded_work() {
        assert!("0-65535".parse::<CpuSet>().is_ok());
        assert!("0-65535,0-65535".parse::<CpuSet>().is_err());
        assert!("0-65535,".repeat(400_000).parse::<CpuSet>().is_err());
    }

    #[test]
    fn removing_and_adding_restores_the_set() {
        let all = CpuSet::first(130);
        let mut free = all.clone();
        let taken = free.lowest(100).expect("enough free CPUs");
        free.remove_all(&taken);
        assert_eq!(free.to_string(), "100-129");
        assert_eq!(free.lowest(31), None);
        assert_eq!(free.intersection(&CpuSet::first(103)).to_string(), "100-102");
        assert_eq!(free.intersection(&taken), CpuSet::default());
        assert!(free.intersects(&CpuSet::first(101)) && free.intersects(&all));
        assert!(!free.intersects(&taken) && !free.intersects(&CpuSet::default()));
        free.add_all(&taken);
        assert_eq!(free, all);
        free.remove_all(&all);
        assert_eq!(free, CpuSet::default());
        assert!(all.is_superset(&taken) && !taken.is_superset(&all));
    }
}
