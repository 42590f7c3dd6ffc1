//! What a node has and no kernel knows: licences, cameras, places on a robot. Named and counted in the configuration.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Words that already mean something in a request.
const RESERVED: [&str; 10] = ["cpu", "cpus", "gpu", "gpus", "memory", "mem", "node", "nodes", "time", "tasks"];

const MAX_NAME: usize = 63;

/// More of anything than is counted.
const MAX_COUNT: u64 = 1_000_000_000;

/// Names with counts: `license-matlab = 4`.
///
/// A name begins with a lowercase letter, has letters, digits, `-`, `_` and `.` besides, at most 63 of them, and is none of the
/// words that a request already knows, such as `cpus`. A count is between 1 and a thousand millions.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "BTreeMap<String, u64>", into = "BTreeMap<String, u64>")]
pub struct Counted(BTreeMap<String, u64>);

/// Why something cannot be counted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CountedError {
    /// It is written in another way.
    #[error("`{0}` is not of the form NAME = COUNT, such as license-matlab = 4")]
    Form(String),
    /// Its name is none.
    #[error(
        "`{0}` is no name of a resource: it begins with a lowercase letter and has at most 63 lowercase letters, digits, `-`, `_` or `.`"
    )]
    Name(String),
    /// Its name means something else.
    #[error("`{0}` is discovered or asked for in another way: a counted resource needs a name of its own")]
    Reserved(String),
    /// Its count is none.
    #[error("`{name}` has the count {count}, which is not between 1 and 1000000000")]
    Count {
        /// Of the resource.
        name: String,
        /// As given.
        count: u64,
    },
    /// It is there already.
    #[error("`{0}` is counted twice")]
    Twice(String),
}

impl Counted {
    /// Names and counts, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(name, count)| (name.as_str(), *count))
    }

    /// How many there are; 0 of what is not counted.
    #[must_use]
    pub fn count(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// Whether nothing is counted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a resource.
    ///
    /// # Errors
    /// When the name or the count is not as the type says, or the name is there already.
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
        if self.0.insert(name.to_owned(), count).is_some() {
            return named(CountedError::Twice);
        }
        Ok(())
    }
}

impl TryFrom<BTreeMap<String, u64>> for Counted {
    type Error = CountedError;

    fn try_from(counts: BTreeMap<String, u64>) -> Result<Self, CountedError> {
        let mut counted = Self::default();
        counts.iter().try_for_each(|(name, count)| counted.insert(name, *count))?;
        Ok(counted)
    }
}

impl From<Counted> for BTreeMap<String, u64> {
    fn from(counted: Counted) -> Self {
        counted.0
    }
}

/// One `NAME = COUNT`, or several with commas or line breaks between them.
impl FromStr for Counted {
    type Err = CountedError;

    fn from_str(text: &str) -> Result<Self, CountedError> {
        let mut counted = Self::default();
        for part in text.split([',', '\n']).map(str::trim).filter(|part| !part.is_empty()) {
            let form = || CountedError::Form(part.to_owned());
            let (name, count) = part.split_once('=').ok_or_else(form)?;
            counted.insert(name.trim(), count.trim().parse().map_err(|_| form())?)?;
        }
        Ok(counted)
    }
}

impl fmt::Display for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<_> = self.iter().map(|(name, count)| format!("{name} = {count}")).collect();
        f.write_str(&parts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read_as_people_write_them() {
        let counted: Counted = "license-matlab = 4, camera=1\n".parse().expect("fine");
        assert_eq!(counted.to_string(), "camera = 1, license-matlab = 4");
        assert_eq!((counted.count("camera"), counted.count("robot")), (1, 0));
        assert_eq!(toml::from_str::<Counted>("camera = 1\nlicense-matlab = 4"), Ok(counted));
        assert!("".parse::<Counted>().expect("nothing is fine").is_empty());
    }

    #[test]
    fn mistakes_are_named() {
        for (text, part) in [
            ("camera", "NAME = COUNT"),
            ("camera = many", "NAME = COUNT"),
            ("camera = -1", "NAME = COUNT"),
            ("camera = 0", "between 1 and"),
            ("camera = 1000000001", "between 1 and"),
            ("Camera = 1", "no name"),
            ("1camera = 1", "no name"),
            ("my camera = 1", "no name"),
            ("gpus = 1", "discovered"),
            ("a = 1, a = 2", "twice"),
        ] {
            let error = text.parse::<Counted>().expect_err(text).to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
        assert!(toml::from_str::<Counted>("cpus = 3").is_err());
    }
}
