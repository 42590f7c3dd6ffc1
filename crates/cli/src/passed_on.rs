//! Chooses the caller's variables that are passed on to a command: all, or those of `--env-only` or the configuration
//! file.
//!
//! The head stores these variables as long as the job may run again, so do not pass on secrets that the job does not
//! need.

use std::str::FromStr;

use hostler_model::ParseError;

use crate::config;
use crate::failure::Failure;

/// Names of variables, separated by commas. A name that ends with `*` matches all names with this prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Names(Vec<String>);

impl FromStr for Names {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let names: Vec<String> =
            text.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect();
        let is_name = |name: &String| {
            let plain = name.strip_suffix('*').unwrap_or(name);
            !plain.contains(['=', '*', '\0']) && !plain.contains(char::is_whitespace)
        };
        if names.iter().all(is_name) {
            Ok(Self(names))
        } else {
            Err(ParseError::new(text, "a list of variables such as PATH,HOME,LC_*, or an empty list"))
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PassedOn {
    All,
    Only(Vec<Names>),
}

impl PassedOn {
    /// From `--env-only`, else from the configuration file.
    pub(crate) fn chosen(flags: &[Names]) -> Result<Self, Failure> {
        if !flags.is_empty() {
            return Ok(Self::Only(flags.to_vec()));
        }
        Ok(config::env_only()?.map_or(Self::All, |names| Self::Only(vec![names])))
    }

    /// Whether the variable `name` is passed on.
    pub(crate) fn takes(&self, name: &str) -> bool {
        let matches = |pattern: &String| match pattern.strip_suffix('*') {
            Some(beginning) => name.starts_with(beginning),
            None => pattern == name,
        };
        match self {
            Self::All => true,
            Self::Only(lists) => lists.iter().flat_map(|list| &list.0).any(matches),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_named_variables_are_passed_on() {
        let only = |lists: &[&str]| PassedOn::Only(lists.iter().map(|list| list.parse().expect(list)).collect());
        let some = only(&["PATH, LC_*", "HOME"]);
        let taken: Vec<&str> =
            ["PATH", "HOME", "LC_ALL", "LC", "PATHS", "TOKEN"].into_iter().filter(|it| some.takes(it)).collect();
        assert_eq!(taken, ["PATH", "HOME", "LC_ALL"]);
        assert!(!only(&[""]).takes("PATH") && only(&["*"]).takes("TOKEN") && PassedOn::All.takes("TOKEN"));
        for list in ["A=b", "A*B", "A B"] {
            assert!(list.parse::<Names>().is_err(), "{list}");
        }
    }
}
