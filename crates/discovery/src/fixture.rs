//! A recorded machine: the files that discovery reads, in one document for bug reports and tests.
//!
//! ```toml
//! [files."/sys/devices/system/cpu"]
//! online = "0-3"
//!
//! [devices]
//! "/dev/nvidia0" = "195:0"
//! ```
//!
//! A directory exists if it contains a file. Links are not recorded.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use serde::{Deserialize, Serialize};

use crate::NvmlAnswer;

/// The recorded files of a machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fixture {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub about: String,
    /// Contents of files, by the path of their directory and their name.
    #[serde(default)]
    files: BTreeMap<String, BTreeMap<String, String>>,
    /// Character devices by path, with their numbers as `major:minor`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    devices: BTreeMap<String, String>,
    /// Response of NVIDIA's library; absent without the library.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nvml: Option<Result<NvmlAnswer, String>>,
}

/// Why a text is not a valid fixture.
#[derive(Debug, thiserror::Error)]
#[error("not a recorded machine")]
pub struct FixtureError(#[from] toml::de::Error);

impl Fixture {
    /// Parses the output of [`to_toml`](Self::to_toml), or a handwritten document.
    ///
    /// # Errors
    /// The text is not TOML, or contains unknown fields.
    pub fn parse(text: &str) -> Result<Self, FixtureError> {
        Ok(toml::from_str(text)?)
    }

    #[must_use]
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("tables of strings are valid TOML")
    }

    /// Adds or replaces a file. `path` is absolute.
    pub fn insert(&mut self, path: &str, content: &str) {
        if let Some((directory, name)) = path.rsplit_once('/') {
            self.files.entry(directory.to_owned()).or_default().insert(name.to_owned(), content.to_owned());
        }
    }

    /// Adds or replaces a character device. `path` is absolute.
    pub fn insert_device(&mut self, path: &str, major: u32, minor: u32) {
        self.devices.insert(path.to_owned(), format!("{major}:{minor}"));
    }

    pub(crate) fn read(&self, path: &str) -> Option<String> {
        let (directory, name) = path.rsplit_once('/')?;
        self.files.get(directory)?.get(name).cloned()
    }

    /// The entries of a directory, sorted.
    pub(crate) fn list(&self, directory: &str) -> BTreeSet<String> {
        let below = format!("{directory}/");
        let from = (Bound::Included(below.clone()), Bound::Unbounded);
        let directories = self.files.range(from.clone()).map(|(path, _)| path);
        let devices = self.devices.range(from).map(|(path, _)| path);
        let children = [directories.collect::<Vec<_>>(), devices.collect()]
            .into_iter()
            .flat_map(|paths| paths.into_iter().map_while(|path| path.strip_prefix(&below)))
            .filter_map(|rest| rest.split('/').next())
            .map(str::to_owned);
        let files = self.files.get(directory).into_iter().flat_map(|files| files.keys().cloned());
        files.chain(children).collect()
    }

    /// Major and minor number of a character device.
    pub(crate) fn device(&self, path: &str) -> Option<(u32, u32)> {
        let (major, minor) = self.devices.get(path)?.split_once(':')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recorded_machine_round_trips() {
        let mut fixture = Fixture { about: "a board".to_owned(), ..Fixture::default() };
        fixture.insert("/proc/meminfo", "MemTotal: 5 kB\nMemFree: \"2\" kB");
        fixture.insert("/sys/devices/system/cpu/online", "0-3");
        fixture.insert_device("/dev/nvidia0", 195, 0);
        let again = Fixture::parse(&fixture.to_toml()).expect("a written fixture can be parsed");
        assert_eq!(again, fixture);
        assert_eq!(again.read("/sys/devices/system/cpu/online").as_deref(), Some("0-3"));
        assert_eq!(again.read("/sys/devices/system/cpu"), None);
        assert_eq!(again.device("/dev/nvidia0"), Some((195, 0)));
        assert!(Fixture::parse("fils = 3").is_err());
    }

    #[test]
    fn directories_exist_if_they_contain_files() {
        let mut fixture = Fixture::default();
        for path in ["/a/b/c/x", "/a/b/y", "/a/bb/z", "/a/b-/z"] {
            fixture.insert(path, "");
        }
        fixture.insert_device("/a/d/e", 1, 2);
        let listed = |directory| fixture.list(directory).into_iter().collect::<Vec<_>>().join(" ");
        assert_eq!(listed("/a"), "b b- bb d");
        assert_eq!(listed("/a/b"), "c y");
        assert_eq!(listed("/a/d"), "e");
        assert_eq!(listed("/b"), "");
    }
}
