//! Job arrays: their indices, and compact index sets.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::ParseError;
use crate::text::{text_schema, write_ranges};

/// A set of array indices as sorted, disjoint, non-adjacent inclusive ranges: a million tasks in the same state need one pair.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct IndexSet {
    ranges: Ranges,
}

/// The ranges of a set. Up to one range, as for a job without an array, needs no allocation.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
enum Ranges {
    #[default]
    None,
    One([(u32, u32); 1]),
    /// Two or more ranges.
    #[expect(clippy::box_collection, reason = "a box makes every set two words smaller")]
    Several(Box<Vec<(u32, u32)>>),
}

impl std::ops::Deref for Ranges {
    type Target = [(u32, u32)];

    fn deref(&self) -> &Self::Target {
        match self {
            Self::None => &[],
            Self::One(one) => one,
            Self::Several(several) => several,
        }
    }
}

impl std::ops::DerefMut for Ranges {
    fn deref_mut(&mut self) -> &mut Self::Target {
        match self {
            Self::None => &mut [],
            Self::One(one) => one,
            Self::Several(several) => several,
        }
    }
}

impl From<Vec<(u32, u32)>> for Ranges {
    fn from(ranges: Vec<(u32, u32)>) -> Self {
        match ranges.as_slice() {
            [] => Self::None,
            [one] => Self::One([*one]),
            _ => Self::Several(Box::new(ranges)),
        }
    }
}

impl Ranges {
    fn insert(&mut self, at: usize, range: (u32, u32)) {
        if let Self::Several(several) = self {
            return several.insert(at, range);
        }
        let mut ranges = self.to_vec();
        ranges.insert(at, range);
        *self = ranges.into();
    }

    fn remove(&mut self, at: usize) {
        match self {
            Self::Several(several) if several.len() > 2 => {
                several.remove(at);
            }
            _ => {
                let mut ranges = self.to_vec();
                ranges.remove(at);
                *self = ranges.into();
            }
        }
    }
}

impl IndexSet {
    /// The set without indices.
    pub const EMPTY: Self = Self { ranges: Ranges::None };

    /// Creates a set with one index.
    #[must_use]
    pub fn one(index: u32) -> Self {
        Self { ranges: Ranges::One([(index, index)]) }
    }

    /// Returns the number of indices.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.ranges.iter().map(|(first, last)| u64::from(last - first) + 1).sum()
    }

    /// Returns the memory that the ranges use, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        std::mem::size_of_val(&*self.ranges)
    }

    /// Returns the number of ranges without gaps.
    #[must_use]
    pub fn range_count(&self) -> usize {
        self.ranges.len()
    }

    /// Returns whether the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Returns the lowest index.
    #[must_use]
    pub fn first(&self) -> Option<u32> {
        self.ranges.first().map(|range| range.0)
    }

    /// Returns the highest index.
    #[must_use]
    pub fn last(&self) -> Option<u32> {
        self.ranges.last().map(|range| range.1)
    }

    /// Returns the lowest index that is at least `from`.
    #[must_use]
    pub fn next_from(&self, from: u32) -> Option<u32> {
        let at = self.ranges.partition_point(|range| range.1 < from);
        self.ranges.get(at).map(|range| range.0.max(from))
    }

    /// Returns the lowest index from `from` on that is not in the set.
    #[must_use]
    pub fn next_gap_from(&self, from: u32) -> u32 {
        let at = self.ranges.partition_point(|range| range.1 < from);
        self.ranges.get(at).filter(|range| range.0 <= from).map_or(from, |range| range.1.saturating_add(1))
    }

    /// Returns whether `index` is in the set.
    #[must_use]
    pub fn contains(&self, index: u32) -> bool {
        let at = self.ranges.partition_point(|range| range.1 < index);
        self.ranges.get(at).is_some_and(|range| range.0 <= index)
    }

    /// Returns the number of lower indices in the set; `None` if `index` is not in the set.
    #[must_use]
    pub fn position(&self, index: u32) -> Option<u64> {
        let at = self.ranges.partition_point(|range| range.1 < index);
        let (first, _) = self.ranges.get(at).filter(|range| range.0 <= index)?;
        let before: u64 = self.ranges[..at].iter().map(|(first, last)| u64::from(last - first) + 1).sum();
        Some(before + u64::from(index - first))
    }

    /// Returns the index at a position; `None` if the set has fewer indices.
    #[must_use]
    pub fn nth(&self, mut position: u64) -> Option<u32> {
        for &(first, last) in self.ranges.iter() {
            let len = u64::from(last - first) + 1;
            if position < len {
                return Some(first + u32::try_from(position).expect("a range has at most 2^32 indices"));
            }
            position -= len;
        }
        None
    }

    /// Iterates over the indices in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.ranges.iter().flat_map(|&(first, last)| first..=last)
    }

    /// Returns whether every index is in `other`.
    #[must_use]
    pub fn is_subset(&self, other: &Self) -> bool {
        self.ranges.iter().all(|(first, last)| {
            let at = other.ranges.partition_point(|range| range.1 < *first);
            other.ranges.get(at).is_some_and(|range| range.0 <= *first && *last <= range.1)
        })
    }

    /// Returns whether no index is in `other`.
    #[must_use]
    pub fn is_disjoint(&self, other: &Self) -> bool {
        self.ranges.iter().all(|(first, last)| {
            let at = other.ranges.partition_point(|range| range.1 < *first);
            other.ranges.get(at).is_none_or(|range| range.0 > *last)
        })
    }

    /// Adds `index`; returns whether it is new.
    pub fn insert(&mut self, index: u32) -> bool {
        let at = self.ranges.partition_point(|range| range.1 < index);
        if self.ranges.get(at).is_some_and(|range| range.0 <= index) {
            return false;
        }
        let joins_left = at > 0 && index > 0 && self.ranges[at - 1].1 == index - 1;
        let joins_right = self.ranges.get(at).is_some_and(|range| range.0 == index + 1);
        match (joins_left, joins_right) {
            (true, true) => {
                self.ranges[at - 1].1 = self.ranges[at].1;
                self.ranges.remove(at);
            }
            (true, false) => self.ranges[at - 1].1 = index,
            (false, true) => self.ranges[at].0 = index,
            (false, false) => self.ranges.insert(at, (index, index)),
        }
        true
    }

    /// Removes `index`; returns whether it was in the set.
    pub fn remove(&mut self, index: u32) -> bool {
        let at = self.ranges.partition_point(|range| range.1 < index);
        let Some(&(first, last)) = self.ranges.get(at).filter(|range| range.0 <= index) else {
            return false;
        };
        match (first == index, last == index) {
            (true, true) => {
                self.ranges.remove(at);
            }
            (true, false) => self.ranges[at].0 = index + 1,
            (false, true) => self.ranges[at].1 = index - 1,
            (false, false) => {
                self.ranges[at].1 = index - 1;
                self.ranges.insert(at + 1, (index + 1, last));
            }
        }
        true
    }

    /// Adds every index of `other`.
    pub fn add_all(&mut self, other: &Self) {
        if let [(first, last)] = *other.ranges
            && first == last
        {
            self.insert(first);
            return;
        }
        let mut all: Vec<(u32, u32)> = self.ranges.iter().chain(other.ranges.iter()).copied().collect();
        all.sort_unstable();
        self.ranges = merge(all).into();
    }
}

impl IndexSet {
    /// Removes every index of `other`.
    pub fn remove_all(&mut self, other: &Self) {
        match *other.ranges {
            [(first, last)] if first == last => drop(self.remove(first)),
            _ => *self = self.difference(other),
        }
    }

    /// Returns the indices that are in both sets. The cost depends on the ranges of this set, not on those of `other`.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let mut both = Vec::new();
        for &(first, last) in &*self.ranges {
            let at = other.ranges.partition_point(|range| range.1 < first);
            let common = other.ranges[at..].iter().take_while(|range| range.0 <= last);
            both.extend(common.map(|range| (range.0.max(first), range.1.min(last))));
        }
        Self { ranges: both.into() }
    }

    /// Returns the indices that are not in `other`. The cost depends on the ranges of this set, not on those of `other`.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        let mut rest = Vec::new();
        for &(first, last) in &*self.ranges {
            let at = other.ranges.partition_point(|range| range.1 < first);
            // The first index that is not decided yet; `None` after the highest possible index.
            let mut next = Some(first);
            for taken in other.ranges[at..].iter().take_while(|range| range.0 <= last) {
                rest.extend(next.filter(|next| *next < taken.0).map(|next| (next, taken.0 - 1)));
                next = taken.1.checked_add(1);
            }
            rest.extend(next.filter(|next| *next <= last).map(|next| (next, last)));
        }
        Self { ranges: rest.into() }
    }
}

/// Joins sorted ranges that touch or overlap.
fn merge(sorted: Vec<(u32, u32)>) -> Vec<(u32, u32)> {
    let mut merged: Vec<(u32, u32)> = Vec::with_capacity(sorted.len());
    for (first, last) in sorted {
        match merged.last_mut() {
            Some(previous) if first <= previous.1.saturating_add(1) => previous.1 = previous.1.max(last),
            _ => merged.push((first, last)),
        }
    }
    merged
}

impl FromIterator<u32> for IndexSet {
    fn from_iter<I: IntoIterator<Item = u32>>(indices: I) -> Self {
        let mut ranges: Vec<(u32, u32)> = indices.into_iter().map(|index| (index, index)).collect();
        ranges.sort_unstable();
        Self { ranges: merge(ranges).into() }
    }
}

impl fmt::Display for IndexSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_ranges(f, self.ranges.iter().copied())
    }
}

impl fmt::Debug for IndexSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IndexSet({self})")
    }
}

const ARRAY: &str = "a list of array indices of at most 1,000,000, such as 0-99, 1-9:2, 1,5,7 or 0-99%10";

/// The highest array index.
pub(crate) const MAX_INDEX: u32 = 1_000_000;

impl FromStr for IndexSet {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let error = || ParseError::new(text, ARRAY);
        let number = |text: &str| text.trim().parse::<u32>().ok().filter(|n| *n <= MAX_INDEX).ok_or_else(error);
        let mut ranges = Vec::new();
        // A few bytes can name half a million indices, and can be repeated: bound the ranges.
        let mut room = MAX_INDEX as usize + 1;
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (range, step) = match part.split_once(':') {
                Some((range, step)) if range.contains('-') => (range, number(step)?),
                Some(_) => return Err(error()),
                None => (part, 1),
            };
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let (first, last) = (number(first)?, number(last)?);
            if first > last || step == 0 {
                return Err(error());
            }
            let count = if step == 1 { 1 } else { ((last - first) / step) as usize + 1 };
            room = room.checked_sub(count).ok_or_else(error)?;
            if step == 1 {
                ranges.push((first, last));
            } else {
                ranges.extend((first..=last).step_by(step as usize).map(|index| (index, index)));
            }
        }
        ranges.sort_unstable();
        Ok(Self { ranges: merge(ranges).into() })
    }
}

text_schema!(
    IndexSet,
    "index-list",
    "^0*([0-9]{1,6}|1000000)(-0*([0-9]{1,6}|1000000)(:[1-9][0-9]{0,6})?)?(,0*([0-9]{1,6}|1000000)(-0*([0-9]{1,6}|1000000)(:[1-9][0-9]{0,6})?)?)*$",
    "Array indices of at most 1,000,000, such as `0-5,7` or `1-9:2`. A range ends at or after its start."
);

text_schema!(
    ArraySpec,
    "array",
    "^0*([0-9]{1,6}|1000000)(-0*([0-9]{1,6}|1000000)(:[1-9][0-9]{0,6})?)?(,0*([0-9]{1,6}|1000000)(-0*([0-9]{1,6}|1000000)(:[1-9][0-9]{0,6})?)?)*(%[1-9][0-9]{0,8})?$",
    "Array indices of at most 1,000,000, such as `0-99` or `1-9:2`, and after `%` how many tasks may run at once. A range ends at or \
     after its start."
);

impl Serialize for IndexSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for IndexSet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// An array as given by `-a/--array`: the indices, and how many tasks may run at once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ArraySpec {
    /// The indices; at least one, each at most 1,000,000.
    pub indices: IndexSet,
    /// How many tasks may run at once; unlimited when absent.
    pub limit: Option<u32>,
}

impl FromStr for ArraySpec {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let error = || ParseError::new(text, ARRAY);
        let (indices, limit) = match text.split_once('%') {
            Some((indices, limit)) => {
                let limit = limit.trim().parse().ok().filter(|limit| *limit > 0).ok_or_else(error)?;
                (indices, Some(limit))
            }
            None => (text, None),
        };
        let indices: IndexSet = indices.parse().map_err(|_| error())?;
        if indices.is_empty() { Err(error()) } else { Ok(Self { indices, limit }) }
    }
}

impl fmt::Display for ArraySpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.indices.fmt(f)?;
        self.limit.map_or(Ok(()), |limit| write!(f, "%{limit}"))
    }
}

impl TryFrom<String> for ArraySpec {
    type Error = ParseError;

    fn try_from(text: String) -> Result<Self, ParseError> {
        text.parse()
    }
}

impl From<ArraySpec> for String {
    fn from(array: ArraySpec) -> Self {
        array.to_string()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn short_text_cannot_use_unbounded_memory() {
        assert_eq!("0-1000000:2".parse::<IndexSet>().map(|set| set.len()), Ok(500_001));
        assert_eq!("0-1000000".parse::<IndexSet>().map(|set| set.len()), Ok(1_000_001));
        let error = "0-1000000:2,".repeat(80_000).parse::<IndexSet>().expect_err("forty billion indices");
        assert!(error.to_string().len() < 500, "the error does not repeat a megabyte");
    }

    #[test]
    fn arrays_parse_from_the_command_line_form() {
        let cases = [
            ("0-99", "0-99", 100),
            ("1-9:2", "1,3,5,7,9", 5),
            ("1,5,7", "1,5,7", 3),
            ("0-9%3", "0-9%3", 10),
            ("7", "7", 1),
        ];
        for (text, written, count) in cases {
            let array: ArraySpec = text.parse().expect(text);
            assert_eq!((array.to_string().as_str(), array.indices.len()), (written, count), "{text}");
        }
        for text in ["", "%3", "5-1", "0:3", "1-9:0", "0-9%0", "a", "1--2", "0-2000000", "4294967295"] {
            assert!(text.parse::<ArraySpec>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn sets_are_intersected_and_subtracted_as_plain_sets(
            one in prop::collection::btree_set(0_u32..60, 0..40),
            other in prop::collection::btree_set(0_u32..60, 0..40),
            from in 0_u32..70,
        ) {
            let compact = |plain: &BTreeSet<u32>| plain.iter().copied().collect::<IndexSet>();
            let (left, right) = (compact(&one), compact(&other));
            prop_assert_eq!(left.intersection(&right), compact(&(&one & &other)));
            prop_assert_eq!(left.difference(&right), compact(&(&one - &other)));
            prop_assert_eq!(left.next_gap_from(from), (from..).find(|index| !one.contains(index)).expect("a gap"));
            let (mut joined, mut reduced) = (left.clone(), left);
            joined.add_all(&right);
            reduced.remove_all(&right);
            prop_assert_eq!(joined, compact(&(&one | &other)));
            prop_assert_eq!(reduced, compact(&(&one - &other)));
        }

        #[test]
        fn behaves_as_a_set(changes in prop::collection::vec((any::<bool>(), 0_u32..60), 0..200)) {
            let mut compact = IndexSet::default();
            let mut plain = BTreeSet::new();
            for (add, index) in changes {
                if add {
                    prop_assert_eq!(compact.insert(index), plain.insert(index));
                } else {
                    prop_assert_eq!(compact.remove(index), plain.remove(&index));
                }
                prop_assert!(compact.iter().eq(plain.iter().copied()));
                prop_assert_eq!(compact.len(), plain.len() as u64);
                prop_assert_eq!(compact.next_from(index), plain.range(index..).next().copied());
                prop_assert_eq!(&plain.iter().copied().collect::<IndexSet>(), &compact);
                prop_assert_eq!(&compact.to_string().parse::<IndexSet>().expect("round trip"), &compact);
            }
        }
    }
}
