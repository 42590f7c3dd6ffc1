//! Python versions that a project requires.

use std::fmt;
use std::str::FromStr;

use pep440_rs::{Version, VersionSpecifier, VersionSpecifiers};

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

/// What the first line of a `.python-version` file says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VersionFile {
    /// Versions of CPython; `None` for all.
    pub versions: Option<PythonVersions>,
    /// A part of the line that does not count, e.g. the name of a pyenv environment, or the wish for another build.
    pub ignored: Option<String>,
}

impl VersionFile {
    /// Parses the forms that uv and pyenv write: `3.12`, `>=3.12`, `3.12-dev`, `3.13t`, `cpython-3.12.1-linux-x86_64-gnu`.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let lines =
            text.trim_start_matches('\u{feff}').lines().map(|line| line.split('#').next().unwrap_or(line).trim());
        let Some(line) = lines.into_iter().find(|line| !line.is_empty()) else { return Self::default() };
        let not_understood = || Self { versions: None, ignored: Some(line.to_owned()) };
        if ["any", "default"].contains(&line) {
            return Self::default();
        }
        if line.starts_with(['<', '>', '=', '~', '!']) {
            return line
                .parse()
                .map_or_else(|_| not_understood(), |versions| Self { versions: Some(versions), ignored: None });
        }
        // pyenv uses the first of several versions that it has.
        let Some(first) = line.split_whitespace().next() else { return Self::default() };
        let name = first.to_ascii_lowercase();
        let name = ["cpython", "python", "cp"].iter().find_map(|it| name.strip_prefix(it)).unwrap_or(&name);
        let (version, rest) = split_version(name.trim_start_matches(['-', '@']));
        let Some(specifier) = specifier_of(version) else { return not_understood() };
        let (build, rest) = rest.split_once('-').map_or((rest, ""), |(build, rest)| (build, rest));
        if !is_rest_of_version(rest) {
            return not_understood();
        }
        let ignored = match build {
            "" => None,
            "t" | "+freethreaded" => Some(format!("the free-threaded build in {first}")),
            "d" | "+debug" | "td" => Some(format!("the debug build in {first}")),
            _ => return not_understood(),
        };
        Self { versions: specifier.parse().ok(), ignored }
    }
}

/// Splits a name into a version with a suffix such as `rc1`, and the rest.
fn split_version(name: &str) -> (&str, &str) {
    let digits = |from: usize| {
        name[from..].find(|it: char| !it.is_ascii_digit() && it != '.').map_or(name.len(), |at| from + at)
    };
    let end = digits(0);
    let suffix = ["alpha", "beta", "rc", "a", "b"].iter().find(|suffix| name[end..].starts_with(**suffix));
    let end = suffix.map_or(end, |suffix| {
        let after = digits(end + suffix.len());
        if after > end + suffix.len() { after } else { end }
    });
    name.split_at(end)
}

/// The specifier of a version such as `3`, `3.12`, `3.12.1`, `312` or `3.14.0rc1`.
fn specifier_of(version: &str) -> Option<String> {
    let parts: Vec<&str> = version.split('.').collect();
    if parts.len() > 3 || parts.iter().any(|part| !part.starts_with(|it: char| it.is_ascii_digit())) {
        return None;
    }
    Some(match parts[..] {
        // uv reads `312` as 3.12.
        [compact] if compact.len() > 1 && compact.bytes().all(|it| it.is_ascii_digit()) => {
            format!("=={}.{}.*", &compact[..1], &compact[1..])
        }
        _ if version.bytes().all(|it| it.is_ascii_digit() || it == b'.') && parts.len() < 3 => format!("=={version}.*"),
        _ => format!("=={version}"),
    })
}

/// Whether what follows a version and a dash is `dev`, or platforms such as `linux-x86_64-gnu`.
fn is_rest_of_version(rest: &str) -> bool {
    const PLATFORMS: [&str; 10] =
        ["any", "dev", "linux", "macos", "darwin", "windows", "gnu", "musl", "none", "gnueabihf"];
    let is_processor = |part: &str| {
        ["x86", "aarch64", "arm", "i686", "ppc", "powerpc", "riscv", "s390"].iter().any(|it| part.starts_with(it))
    };
    rest.is_empty() || rest.split('-').all(|part| PLATFORMS.contains(&part) || is_processor(part))
}

impl PythonVersions {
    /// Returns the versions that are in both sets; `None` is the set of all.
    #[must_use]
    pub fn both(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        match (one, other) {
            (Some(one), Some(other)) => Some(Self(one.0.iter().chain(other.0.iter()).cloned().collect())),
            (one, other) => one.or(other),
        }
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
        // A version that is named exactly may be a pre-release.
        let named = |minor: u32| {
            let of_minor = |version: &&Version| version.release().starts_with(&[3, u64::from(minor)]);
            self.0.iter().map(VersionSpecifier::version).filter(of_minor).any(|version| self.0.contains(version))
        };
        let may_fit =
            |minor: &u32| named(*minor) || (0..=LAST_PATCH).any(|patch| self.fit(&format!("3.{minor}.{patch}")));
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
    fn version_files_are_parsed_or_reported() {
        for (text, versions) in [
            ("3.13\n", "==3.13.*"),
            ("3", "==3.*"),
            ("312", "==3.12.*"),
            ("\u{feff}# ours\ncpython-3.12.1  # why\n", "==3.12.1"),
            ("cpython@3.12", "==3.12.*"),
            ("cp312", "==3.12.*"),
            ("python-3.12.1", "==3.12.1"),
            ("python3.12", "==3.12.*"),
            ("3.12-dev", "==3.12.*"),
            ("3.14.0rc1", "==3.14.0rc1"),
            (">=3.12", ">=3.12"),
            (">=3.10, <3.13", ">=3.10, <3.13"),
            ("~=3.12.1", "~=3.12.1"),
            ("cpython-3.12.1-linux-x86_64-gnu", "==3.12.1"),
            ("cpython-3.12-macos-aarch64-none", "==3.12.*"),
            ("3.12.1 3.11.2\n3.10\n", "==3.12.1"),
        ] {
            let said = VersionFile::parse(text);
            assert_eq!(said.versions.map(|it| it.to_string()).as_deref(), Some(versions), "{text}");
            assert_eq!(said.ignored, None, "{text}");
        }
        for text in [
            "my-environment",
            "pypy3.10-7.3.12",
            "pypy3.10",
            "graalpy-23.1.0",
            "miniconda3-3.12-24.1",
            "3.12.1/envs/mine",
            "3.12-mine",
            "system",
            ">=three",
            "3.12.1.4",
            "3.12x",
        ] {
            let said = VersionFile::parse(text);
            assert_eq!((said.versions, said.ignored.as_deref()), (None, Some(text)));
        }
        for text in ["3.13t", "3.13t-dev", "cpython-3.13+freethreaded-linux-x86_64-gnu"] {
            let said = VersionFile::parse(text);
            assert_eq!(said.versions, "==3.13.*".parse().ok(), "{text}");
            assert_eq!(said.ignored, Some(format!("the free-threaded build in {text}")));
        }
        for text in ["", "# nothing\n", "any\n"] {
            assert_eq!(VersionFile::parse(text), VersionFile::default(), "{text}");
        }
    }

    #[test]
    fn constraint_names_the_possible_minor_versions() {
        let of = |text: &str| text.parse::<PythonVersions>().expect("valid").constraint().map(|it| it.to_string());
        assert_eq!(of(">=3.10,<3.13").as_deref(), Some("python3.10|python3.11|python3.12|python-install"));
        assert_eq!(of("==3.11.4").as_deref(), Some("python3.11|python-install"));
        assert_eq!(of("<3").as_deref(), Some("python-none"));
        assert_eq!(of(">=3"), None);
        assert_eq!(of("==3.14.0rc1").as_deref(), Some("python3.14|python-install"));
    }
}
