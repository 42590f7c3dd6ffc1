//! Chooses the caller's variables that are passed on to a command: all, or those of `--env-only` or the configuration
//! file.
//!
//! The head stores these variables as long as the job may run again, so do not pass on secrets that the job does not
//! need.

use crate::config;
use crate::failure::Failure;
use crate::flags::VariableNames;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PassedOn {
    All,
    Only(Vec<VariableNames>),
}

impl PassedOn {
    /// From `--env-only`, else from the configuration file.
    pub(crate) fn chosen(flags: &[VariableNames]) -> Result<Self, Failure> {
        if !flags.is_empty() {
            return Ok(Self::Only(flags.to_vec()));
        }
        Ok(config::env_only()?.map_or(Self::All, |names| Self::Only(vec![names])))
    }

    /// Whether the variable `name` is passed on.
    pub(crate) fn takes(&self, name: &str) -> bool {
        match self {
            Self::All => true,
            Self::Only(lists) => lists.iter().any(|list| list.contain(name)),
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
            assert!(list.parse::<VariableNames>().is_err(), "{list}");
        }
    }
}
