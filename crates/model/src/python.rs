//! Python versions that a project requires.

use std::fmt;
use std::str::FromStr;

use pep440_rs::{Version, VersionSpecifiers};

use crate::{Constraint, ParseError};

/// The highest minor version of Python 3 for which nodes have features; far above any release.
const LAST_MINOR: u32 = 30;

/// The feature of nodes that can install the required Python version.
pub const PYTHON_INSTALL: &str = "python-install";

/// The highest patch release that is assumed for a minor version.
const LAST_PATCH: u32 = 60;

/// A set of Python versions in the form of `requires-python`: `>=3.10,<3.13`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PythonVersions(VersionSpecifiers);

impl PythonVersions {
    /// Parses a `.python-version` file; `None` if its first line is not a version, e.g. the name of a pyenv environment.
    #[must_use]
    pub fn of_version_file(text: &str) -> Option<Self> {
        let line = text.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with('#'))?;
        let version = ["cpython-", "cpython@", "cpython", "python"]
            .iter()
            .find_map(|prefix| line.strip_prefix(prefix))
            .unwrap_or(line);
        let parts = version.split('.').count();
        if !version.split('.').all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit())) {
            return None;
        }
        let specifier = if parts < 3 { format!("=={version}.*") } else { format!("=={version}") };
        specifier.parse().ok()
    }

    /// Returns the versions that are in both sets.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        Self(self.0.iter().chain(other.0.iter()).cloned().collect())
    }

    /// Returns whether the set contains a version such as `3.11.7`. False for text that is not a version.
    #[must_use]
    pub fn fit(&self, version: &str) -> bool {
        Version::from_str(version).is_ok_and(|version| self.0.contains(&version))
    }

    /// Returns a constraint for nodes that may have one of these versions, or can install one. The constraint names the
    /// features that agents report for minor versions; the node checks the patch version later. `None` if every version
    /// of Python 3 is allowed.
    #[must_use]
    pub fn constraint(&self) -> Option<Constraint> {
        let may_fit = |minor: &u32| (0..=LAST_PATCH).any(|patch| self.fit(&format!("3.{minor}.{patch}")));
        let minors: Vec<u32> = (0..=LAST_MINOR).filter(may_fit).collect();
        if minors.len() as u32 > LAST_MINOR {
            return None;
        }
        let mut names: Vec<String> = minors.iter().map(|minor| format!("python3.{minor}")).collect();
        // If no version is possible, use a feature that no node has.
        names.push(if names.is_empty() { "python-none" } else { PYTHON_INSTALL }.to_owned());
        Some(names.join("|").parse().expect("the names of Python features form a valid constraint"))
    }
}

impl FromStr for PythonVersions {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let parsed = VersionSpecifiers::from_str(text.trim());
        parsed.map(Self).map_err(|_| ParseError::new(text, "versions of Python, such as >=3.10 or >=3.10,<3.13"))
    }
}

impl fmt::Display for PythonVersions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_follow_the_packaging_standard() {
        for (asked, fitting, other) in [
            (">=3.13", "3.13.0", "3.11.7"),
            (">=3.10,<3.13", "3.12.9", "3.13.0"),
            ("==3.11.*", "3.11.7", "3.12.0"),
            ("~=3.11.4", "3.11.7", "3.11.2"),
            (">=3.9,!=3.11.*", "3.12.0", "3.11.7"),
        ] {
            let asked: PythonVersions = asked.parse().expect("valid");
            assert!(asked.fit(fitting) && !asked.fit(other), "{asked}");
        }
        assert!("three".parse::<PythonVersions>().is_err());
    }

    #[test]
    fn version_files_name_a_version_or_nothing() {
        let said = |text| PythonVersions::of_version_file(text).map(|versions| versions.to_string());
        assert_eq!(said("3.13\n").as_deref(), Some("==3.13.*"));
        assert_eq!(said("# ours\ncpython-3.12.1\n").as_deref(), Some("==3.12.1"));
        assert_eq!((said("my-environment\n"), said("pypy3.10"), said("")), (None, None, None));
    }

    #[test]
    fn constraint_names_the_possible_minor_versions() {
        let of = |text: &str| text.parse::<PythonVersions>().expect("valid").constraint().map(|it| it.to_string());
        assert_eq!(of(">=3.10,<3.13").as_deref(), Some("python3.10|python3.11|python3.12|python-install"));
        assert_eq!(of("==3.11.4").as_deref(), Some("python3.11|python-install"));
        assert_eq!(of("<3").as_deref(), Some("python-none"));
        assert_eq!(of(">=3"), None);
    }
}
