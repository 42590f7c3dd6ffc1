//! Reads settings files: TOML with a fixed set of keys, and errors with hints.

use std::path::Path;
use std::str::FromStr;

use hostler_model::{Counted, quote_advice};

use crate::failure::{During, Failure};

/// A settings file; empty if the file does not exist.
#[derive(Debug, Default)]
pub struct Settings(toml::Table);

impl Settings {
    /// Reads a settings file that may contain only the given keys; `None` if the file does not exist.
    pub fn read(path: &Path, keys: &[&str]) -> Result<Option<Self>, Failure> {
        match std::fs::read_to_string(path) {
            Ok(text) => Self::parse(&text, keys)
                .map(Some)
                .map_err(|failure| failure.hint(format!("the file is {}", path.display()))),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).during(|| format!("cannot read {}", path.display())),
        }
    }

    /// Parses the text of a settings file that may contain only the given keys.
    pub fn parse(text: &str, keys: &[&str]) -> Result<Self, Failure> {
        let table = text.parse().map_err(|error| invalid("the configuration is not valid TOML", text, &error))?;
        Self::with_keys(table, keys, "the configuration")
    }

    fn with_keys(table: toml::Table, keys: &[&str], what: &str) -> Result<Self, Failure> {
        if let Some(key) = table.keys().find(|key| !keys.contains(&key.as_str())) {
            let failure = Failure::usage(format!("{what} has the unknown key `{key}`"));
            return Err(match closest(key, keys) {
                Some(known) => failure.hint(format!("did you mean `{known}`?")),
                None => failure.hint(format!("known keys: {}", keys.join(", "))),
            });
        }
        Ok(Self(table))
    }

    /// A text, if the key exists. `example` is a valid value for the hint.
    pub fn text(&self, key: &str, example: &str) -> Result<Option<&str>, Failure> {
        match self.0.get(key) {
            None => Ok(None),
            Some(toml::Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(wrong_type(key, other, "a string", example)),
        }
    }

    /// A string that is parsed as `T`, if the key exists.
    pub fn parsed<T: FromStr<Err: std::error::Error>>(&self, key: &str, example: &str) -> Result<Option<T>, Failure> {
        self.text(key, example)?.map(|text| meaning(key, text, example)).transpose()
    }

    /// A string or integer that is parsed as `T`, if the key exists.
    pub fn text_or_integer<T: FromStr<Err: std::error::Error>>(
        &self,
        key: &str,
        example: &str,
    ) -> Result<Option<T>, Failure> {
        match self.0.get(key) {
            Some(toml::Value::Integer(number)) => meaning(key, &number.to_string(), example).map(Some),
            _ => self.parsed(key, example),
        }
    }

    /// A float or integer, if the key exists.
    pub fn number(&self, key: &str, example: &str) -> Result<Option<f64>, Failure> {
        match self.0.get(key) {
            None => Ok(None),
            Some(toml::Value::Float(number)) => Ok(Some(*number)),
            Some(toml::Value::Integer(number)) => Ok(Some(*number as f64)),
            Some(other) => Err(wrong_type(key, other, "a number", example)),
        }
    }

    /// A boolean, if the key exists.
    pub fn truth(&self, key: &str, example: &str) -> Result<Option<bool>, Failure> {
        match self.0.get(key) {
            None => Ok(None),
            Some(toml::Value::Boolean(value)) => Ok(Some(*value)),
            Some(other) => Err(wrong_type(key, other, "true or false", example)),
        }
    }

    /// Returns the table `key`, which may contain only the given keys; empty if the key does not exist.
    pub fn table(&self, key: &str, keys: &[&str], example: &str) -> Result<Self, Failure> {
        match self.0.get(key) {
            None => Ok(Self::default()),
            Some(toml::Value::Table(table)) => Self::with_keys(table.clone(), keys, &format!("the table `{key}`")),
            Some(other) => Err(wrong_type(key, other, "a table", example)),
        }
    }

    /// Returns a value of type `T`, or the type's default value if the key does not exist.
    pub fn structure<T>(&self, key: &str, example: &str) -> Result<T, Failure>
    where
        T: serde::de::DeserializeOwned + Default,
    {
        match self.0.get(key) {
            None => Ok(T::default()),
            Some(value) => value.clone().try_into().map_err(|error| nonsense(key, &error, example)),
        }
    }

    /// A list of strings, each parsed as `T`; empty if the key does not exist.
    pub fn list<T: FromStr<Err: std::error::Error>>(&self, key: &str, example: &str) -> Result<Vec<T>, Failure> {
        let values = match self.0.get(key) {
            None => return Ok(Vec::new()),
            Some(toml::Value::Array(values)) => values,
            Some(other) => return Err(wrong_type(key, other, "a list", example)),
        };
        let of_text = |value: &toml::Value| match value {
            toml::Value::String(text) => meaning(key, text, example),
            other => Err(wrong_type(key, other, "a list of strings", example)),
        };
        values.iter().map(of_text).collect()
    }

    /// A table of names and counts; empty if the key does not exist.
    pub fn counts(&self, key: &str, example: &str) -> Result<Counted, Failure> {
        let values = match self.0.get(key) {
            None => return Ok(Counted::NONE),
            Some(toml::Value::Table(values)) => values,
            Some(other) => return Err(wrong_type(key, other, "a table of counts", example)),
        };
        let mut all = Counted::NONE;
        for (name, value) in values {
            let toml::Value::Integer(count) = value else {
                return Err(wrong_type(&format!("{key}.{name}"), value, "a count", example));
            };
            // A negative count gets the same error as 0.
            all.insert(name, u64::try_from(*count).unwrap_or(0)).map_err(|error| nonsense(key, &error, example))?;
        }
        Ok(all)
    }
}

fn meaning<T: FromStr<Err: std::error::Error>>(key: &str, text: &str, example: &str) -> Result<T, Failure> {
    text.parse().map_err(|error: T::Err| nonsense(key, &error, example))
}

fn nonsense(key: &str, error: &dyn std::error::Error, example: &str) -> Failure {
    Failure::usage(format!("`{key}` is not valid")).because(error).hint(format!("write {key} = {example}"))
}

fn wrong_type(key: &str, value: &toml::Value, wanted: &str, example: &str) -> Failure {
    Failure::usage(format!("`{key}` is a {}, not {wanted}", value.type_str())).hint(format!("write {key} = {example}"))
}

/// The error for settings that are not valid TOML, with advice if typographic quotes are the cause.
pub(crate) fn invalid(what: &str, text: &str, error: &toml::de::Error) -> Failure {
    let failure = Failure::usage(what).because(error);
    match error.span().and_then(|span| quote_advice(text, span.start)) {
        Some(advice) => failure.hint(advice),
        None => failure,
    }
}

/// The candidate closest to `word`, if a typing error can explain the difference.
pub(crate) fn closest<'a>(word: &str, candidates: &[&'a str]) -> Option<&'a str> {
    let best = candidates.iter().min_by_key(|candidate| distance(word, candidate))?;
    (distance(word, best) <= best.len().div_ceil(2)).then_some(best)
}

/// The Levenshtein distance of two words.
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, b) in to.iter().enumerate() {
            let replaced = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[to.len()]
}
