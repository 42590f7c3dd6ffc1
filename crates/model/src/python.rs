//! Which versions of Python a project asks for.

use std::fmt;
use std::str::FromStr;

use pep440_rs::{Version, VersionSpecifiers};

use crate::{Constraint, ParseError};

/// The newest minor version of Python 3 that features are named for: far from any that there is.
const LAST_MINOR: u32 = 30;

/// The feature of nodes that install the version of Python that a project asks for.
pub const PYTHON_INSTALL: &str = "python-install";

/// The latest patch release that a minor version is taken to have.
const LAST_PATCH: u32 = 60;

/// Versions of Python, as `requires-python` says them: `>=3.10,<3.13`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PythonVersions(VersionSpecifiers);

impl PythonVersions {
    /// What a `.python-version` file asks for; `None` when its first line is no version, such as the name of an environment of pyenv's.
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

    /// Those that both ask for.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        Self(self.0.iter().chain(other.0.iter()).cloned().collect())
    }

    /// Whether a version such as `3.11.7` is one of them. What is no version is none.
    #[must_use]
    pub fn fit(&self, version: &str) -> bool {
        Version::from_str(version).is_ok_and(|version| self.0.contains(&version))
    }

    /// The nodes that may have one of them, by the features that agents name after minor versions, and those that may install one. A
    /// patch version is looked at on the node. `None` when every version of Python 3 will do.
    #[must_use]
    pub fn constraint(&self) -> Option<Constraint> {
        let may_fit = |minor: &u32| (0..=LAST_PATCH).any(|patch| self.fit(&format!("3.{minor}.{patch}")));
        let minors: Vec<u32> = (0..=LAST_MINOR).filter(may_fit).collect();
        if minors.len() as u32 > LAST_MINOR {
            return None;
        }
        let mut names: Vec<String> = minors.iter().map(|minor| format!("python3.{minor}")).collect();
        // No version at all: a feature that no node has says so.
        names.push(if names.is_empty() { "python-none" } else { PYTHON_INSTALL }.to_owned());
        Some(names.join("|").parse().expect("these are features"))
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
    fn versions_fit_as_the_packaging_standard_says() {
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
    fn constraint_names_the_minor_versions_that_may_fit() {
        let of = |text: &str| text.parse::<PythonVersions>().expect("valid").constraint().map(|it| it.to_string());
        assert_eq!(of(">=3.10,<3.13").as_deref(), Some("python3.10|python3.11|python3.12|python-install"));
        assert_eq!(of("==3.11.4").as_deref(), Some("python3.11|python-install"));
        assert_eq!(of("<3").as_deref(), Some("python-none"));
        assert_eq!(of(">=3"), None);
    }
}
