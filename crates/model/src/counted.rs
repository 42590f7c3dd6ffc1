//! Counted resources: licences, cameras and other things that the kernel does not know. A node's configuration names and counts them, jobs
//! request them, and the scheduler assigns them like other resources.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use utoipa::openapi::{ObjectBuilder, RefOr, Schema, Type};

/// Names that a counted resource cannot have, because requests use them for other amounts.
const RESERVED: [&str; 10] = ["cpu", "cpus", "gpu", "gpus", "memory", "mem", "node", "nodes", "time", "tasks"];

/// Regular expression for valid names, which excludes the reserved names.
const NAMES: &str = "^(?!(cpus?|gpus?|memory|mem|nodes?|time|tasks)$)[a-z][a-z0-9._-]{0,62}$";

const MAX_NAME: usize = 63;

const MAX_COUNT: u64 = 1_000_000_000;

/// The maximum number of different names per node.
const MAX_KINDS: usize = 64;

/// Counted resources: names with counts, such as `license-matlab=4`. They are the total or free amounts of a node, or
/// the request of a job.
///
/// A name begins with a lowercase letter and has at most 63 lowercase letters, digits, `-`, `_` and `.`. Names such as
/// `cpus` are reserved. A count is between 1 and 1,000,000,000; an entry with count zero is removed. There are at most
/// 64 names.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "BTreeMap<String, u64>", into = "BTreeMap<String, u64>")]
pub struct Counted(
    /// `None` if nothing is counted, which is the common case and cheap to clone. The map is never empty.
    Option<Arc<Counts>>,
);

impl utoipa::PartialSchema for Counted {
    fn schema() -> RefOr<Schema> {
        let name = ObjectBuilder::new().schema_type(Type::String).pattern(Some(NAMES));
        let count = ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(1)).maximum(Some(MAX_COUNT));
        ObjectBuilder::new()
            .property_names(Some(Schema::from(name)))
            .additional_properties(Some(Schema::from(count)))
            .max_properties(Some(MAX_KINDS))
            .description(Some("Counted resources from the configurations of nodes, e.g. licences: counts by name."))
            .into()
    }
}

impl utoipa::ToSchema for Counted {}

type Counts = BTreeMap<Arc<str>, u64>;

/// Why a counted resource is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CountedError {
    /// The text does not have the form `NAME=COUNT`.
    #[error("`{0}` is not of the form NAME=COUNT, such as license-matlab=4")]
    Form(String),
    /// The name is not of the valid form.
    #[error(
        "`{0}` is not a valid resource name: it must begin with a lowercase letter and have at most 63 lowercase letters, \
         digits, `-`, `_` or `.`"
    )]
    Name(String),
    /// The name is reserved, such as `cpus`.
    #[error("`{0}` is reserved for other uses: choose another name for the counted resource")]
    Reserved(String),
    /// The count is zero or too large.
    #[error("`{name}` has the count {count}, which is not between 1 and 1000000000")]
    Count {
        /// The name of the resource.
        name: String,
        /// The invalid count.
        count: u64,
    },
    /// The name appears twice in a list.
    #[error("the resource `{0}` is listed twice")]
    Twice(String),
    /// The list has more than 64 names.
    #[error("a list has more than 64 different resources")]
    TooMany,
}

impl Counted {
    /// The value without any counted resource.
    pub const NONE: Self = Self(None);

    /// Names and counts, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.entries().map(|(name, count)| (&**name, *count))
    }

    /// Iterates over the entries, each as a separate `Counted`.
    pub fn each_alone(&self) -> impl Iterator<Item = Self> {
        self.entries().map(|(name, count)| Self(Some(Arc::new([(Arc::clone(name), *count)].into()))))
    }

    /// Returns the number of different names.
    #[must_use]
    pub fn kinds(&self) -> usize {
        self.0.as_ref().map_or(0, |counts| counts.len())
    }

    /// Returns the count of a name; 0 if the name is absent.
    #[must_use]
    pub fn count(&self, name: &str) -> u64 {
        self.0.as_ref().and_then(|counts| counts.get(name)).copied().unwrap_or(0)
    }

    /// Returns whether the set is empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Adds a resource.
    ///
    /// # Errors
    /// When the name or the count is invalid, or the name exists.
    pub fn insert(&mut self, name: &str, count: u64) -> Result<(), CountedError> {
        let named = |error: fn(String) -> CountedError| Err(error(name.to_owned()));
        if RESERVED.contains(&name) {
            return named(CountedError::Reserved);
        }
        let is_character = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || b"-_.".contains(&c);
        let begins_well = name.starts_with(|c: char| c.is_ascii_lowercase());
        if !begins_well || name.len() > MAX_NAME || !name.bytes().all(is_character) {
            return named(CountedError::Name);
        }
        if !(1..=MAX_COUNT).contains(&count) {
            return Err(CountedError::Count { name: name.to_owned(), count });
        }
        if self.count(name) > 0 {
            return named(CountedError::Twice);
        }
        if self.kinds() == MAX_KINDS {
            return Err(CountedError::TooMany);
        }
        Arc::make_mut(self.0.get_or_insert_default()).insert(name.into(), count);
        Ok(())
    }

    /// Returns whether each count is at least the count in `wanted`.
    #[must_use]
    pub fn covers(&self, wanted: &Self) -> bool {
        wanted.iter().all(|(name, count)| self.count(name) >= count)
    }

    /// Combines the two counts of each name with `amount`. Drops names whose result is zero.
    #[must_use]
    pub fn zip(&self, other: &Self, amount: impl Fn(u64, u64) -> u64) -> Self {
        if self.is_empty() && other.is_empty() {
            return Self::NONE;
        }
        let names = self.entries().chain(other.entries()).map(|(name, _)| name);
        let counts = names.map(|name| (Arc::clone(name), amount(self.count(name), other.count(name))));
        let counts: Counts = counts.filter(|(_, count)| *count > 0).collect();
        Self((!counts.is_empty()).then(|| Arc::new(counts)))
    }

    /// Adds the counts of each name. Sums saturate.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        self.zip(other, u64::saturating_add)
    }

    /// Subtracts the counts of `part`. The result is zero where `part` is larger.
    #[must_use]
    pub fn minus(&self, part: &Self) -> Self {
        self.zip(part, u64::saturating_sub)
    }

    fn entries(&self) -> impl Iterator<Item = (&Arc<str>, &u64)> {
        self.0.iter().flat_map(|counts| counts.iter())
    }
}

impl TryFrom<BTreeMap<String, u64>> for Counted {
    type Error = CountedError;

    fn try_from(counts: BTreeMap<String, u64>) -> Result<Self, CountedError> {
        let mut counted = Self::NONE;
        counts.iter().try_for_each(|(name, count)| counted.insert(name, *count))?;
        Ok(counted)
    }
}

impl From<Counted> for BTreeMap<String, u64> {
    fn from(counted: Counted) -> Self {
        counted.iter().map(|(name, count)| (name.to_owned(), count)).collect()
    }
}

/// Parses a comma-separated list of `NAME=COUNT`, or `NAME` for a count of one.
impl FromStr for Counted {
    type Err = CountedError;

    fn from_str(text: &str) -> Result<Self, CountedError> {
        let mut counted = Self::NONE;
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let form = || CountedError::Form(part.to_owned());
            let (name, count) = part.split_once('=').unwrap_or((part, "1"));
            counted.insert(name.trim(), count.trim().parse().map_err(|_| form())?)?;
        }
        Ok(counted)
    }
}

impl fmt::Display for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<_> = self.iter().map(|(name, count)| format!("{name}={count}")).collect();
        f.write_str(&parts.join(","))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn counted(text: &str) -> Counted {
        text.parse().expect(text)
    }

    #[test]
    fn counts_parse_from_the_command_line_form() {
        let some = counted("license-matlab = 4, camera");
        assert_eq!(some.to_string(), "camera=1,license-matlab=4");
        assert_eq!(counted(&some.to_string()), some);
        assert_eq!((some.count("camera"), some.count("robot")), (1, 0));
        let json = r#"{"camera":1,"license-matlab":4}"#;
        assert_eq!(serde_json::from_str::<Counted>(json).expect("counts"), some);
        assert_eq!(serde_json::to_string(&some).expect("JSON"), json);
        assert!(counted("").is_empty());
    }

    #[test]
    fn invalid_counts_are_refused_with_the_reason() {
        for (text, part) in [
            ("camera=many", "NAME=COUNT"),
            ("camera=", "NAME=COUNT"),
            ("camera=-1", "NAME=COUNT"),
            ("camera=0", "between 1 and"),
            ("camera=1000000001", "between 1 and"),
            ("Camera=1", "not a valid"),
            ("1camera=1", "not a valid"),
            ("my camera=1", "not a valid"),
            ("gpus=1", "reserved"),
            ("a=1,a=2", "twice"),
        ] {
            let error = text.parse::<Counted>().expect_err(text).to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
        for json in [r#"{"cpus":3}"#, r#"{"a":0}"#, r#"{"a":-1}"#, r#"["a"]"#] {
            assert!(serde_json::from_str::<Counted>(json).is_err(), "{json}");
        }
        let many: Vec<String> = (0..65).map(|i| format!("r{i}")).collect();
        assert_eq!(many.join(",").parse::<Counted>(), Err(CountedError::TooMany));
    }

    #[test]
    fn arithmetic() {
        let (have, wanted) = (counted("a=7,b=2"), counted("a=3,b"));
        assert!(have.covers(&wanted) && have.covers(&Counted::NONE) && !wanted.covers(&have));
        assert!(!have.covers(&counted("c")));
        assert_eq!(have.minus(&counted("a=3,b=2,c")), counted("a=4"), "an entry with count zero is removed");
        assert_eq!(counted("a=4").plus(&counted("a=3,b=2")), have);
        assert_eq!(have.zip(&counted("a=9,b=1,c=3"), u64::min), counted("a=7,b=1"));
    }

    proptest! {
        #[test]
        fn counts_round_trip_through_text(text in "([a-z0-9._-]{0,8}( ?= ?[0-9]{0,4})?,? ?){0,4}") {
            if let Ok(counted) = text.parse::<Counted>() {
                prop_assert_eq!(counted.to_string().parse(), Ok(counted));
            }
        }

        #[test]
        fn minus_and_plus_are_inverse_where_covered(have in amounts(), wanted in amounts()) {
            let left = have.minus(&wanted);
            prop_assert_eq!(have.covers(&wanted), left.plus(&wanted) == have);
            prop_assert_eq!(have.zip(&wanted, u64::min).plus(&left), have);
        }
    }

    /// Small amounts of three resources.
    fn amounts() -> impl Strategy<Value = Counted> {
        prop::collection::btree_map("[abc]", 1..5_u64, 0..3).prop_map(|counts| counts.try_into().expect("valid"))
    }
}
