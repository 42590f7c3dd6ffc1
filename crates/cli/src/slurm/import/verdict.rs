//! What Hostler makes of a setting of Slurm, and why.

use std::collections::BTreeMap;
use std::fmt;

use hostler_slurm::conf::{Place, Value};
use serde::Serialize;

/// What Hostler makes of a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Verdict {
    /// Hostler has the same setting.
    Taken,
    /// Hostler has a similar setting.
    Differs,
    /// Hostler has nothing like it.
    Missing,
    /// Hostler works without it.
    Unneeded,
}

impl Verdict {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Taken => "taken",
            Self::Differs => "differs",
            Self::Missing => "missing",
            Self::Unneeded => "unneeded",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A verdict with its reason: a sentence fragment that says what happens, or what to do instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Judgement {
    pub(super) verdict: Verdict,
    pub(super) note: String,
}

impl Judgement {
    pub(super) fn taken(note: impl Into<String>) -> Self {
        Self { verdict: Verdict::Taken, note: note.into() }
    }

    pub(super) fn differs(note: impl Into<String>) -> Self {
        Self { verdict: Verdict::Differs, note: note.into() }
    }

    pub(super) fn missing(note: impl Into<String>) -> Self {
        Self { verdict: Verdict::Missing, note: note.into() }
    }

    pub(super) fn unneeded(note: impl Into<String>) -> Self {
        Self { verdict: Verdict::Unneeded, note: note.into() }
    }
}

/// A line of the report: settings of one line of a file that share a judgement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Row {
    pub(super) file: String,
    pub(super) line: u32,
    pub(super) settings: Vec<String>,
    #[serde(rename = "result")]
    pub(super) verdict: Verdict,
    pub(super) note: String,
}

/// The rows of the report.
#[derive(Debug, Default)]
pub(super) struct Rows(Vec<Row>);

impl Rows {
    /// Adds a setting. It shares the row of an equal judgement of its line if that was added just before.
    pub(super) fn add(&mut self, value: &Value, judgement: Judgement) {
        self.add_text(&value.place, value.to_string(), judgement);
    }

    pub(super) fn add_text(&mut self, place: &Place, setting: String, Judgement { verdict, note }: Judgement) {
        let same_line = self.0.iter_mut().rev().take_while(|row| row.line == place.line && *row.file == *place.file);
        let same = same_line.into_iter().find(|row| row.verdict == verdict && row.note == note);
        match same {
            Some(row) => row.settings.push(setting),
            None => self.0.push(Row {
                file: place.file.as_ref().to_owned(),
                line: place.line,
                settings: vec![setting],
                verdict,
                note,
            }),
        }
    }

    /// Returns the rows by file, in the order in which the files were read, and by line.
    pub(super) fn into_sorted(self) -> Vec<Row> {
        let mut files: BTreeMap<String, usize> = BTreeMap::new();
        for row in &self.0 {
            let next = files.len();
            files.entry(row.file.clone()).or_insert(next);
        }
        let mut rows = self.0;
        rows.sort_by_key(|row| (files.get(&row.file).copied(), row.line));
        rows
    }
}

/// Whether a value switches off what it sets, such as `none`, `NO` or `preempt/none`.
pub(super) fn is_off(value: &str) -> bool {
    let value = value.to_ascii_lowercase();
    let last = value.rsplit('/').next().unwrap_or_default();
    let off = [
        "",
        "0",
        "no",
        "none",
        "off",
        "false",
        "all",
        "unlimited",
        "infinite",
        "-1",
        "n/a",
        "(null)",
        "default",
        "flat",
    ];
    off.contains(&last)
}

/// Whether a value means yes, or no. `None` if it is neither.
pub(super) fn is_yes(value: &str) -> Option<bool> {
    match value.to_ascii_lowercase().as_str() {
        "yes" | "up" | "true" | "1" => Some(true),
        "no" | "down" | "false" | "0" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_a_line_share_a_row_if_their_judgement_is_equal() {
        let place = |line| Place { file: "s".into(), line };
        let mut rows = Rows::default();
        for (line, setting, note) in [(1, "A=1", "x"), (1, "B=1", "y"), (1, "C=1", "x"), (2, "D=1", "x")] {
            rows.add_text(&place(line), setting.to_owned(), Judgement::unneeded(note));
        }
        rows.add_text(&place(1), "E=1".to_owned(), Judgement::unneeded("z"));
        let rows = rows.into_sorted();
        let found: Vec<_> = rows.iter().map(|row| (row.line, row.settings.join(" "), row.note.as_str())).collect();
        assert_eq!(
            found,
            [
                (1, "A=1 C=1".to_owned(), "x"),
                (1, "B=1".to_owned(), "y"),
                (1, "E=1".to_owned(), "z"),
                (2, "D=1".to_owned(), "x")
            ]
        );
    }

    #[test]
    fn values_that_switch_off_are_known() {
        for value in ["NO", "preempt/none", "None", "UNLIMITED", "ALL", "0", "topology/flat"] {
            assert!(is_off(value), "{value}");
        }
        for value in ["YES", "preempt/qos", "10", "node"] {
            assert!(!is_off(value), "{value}");
        }
        assert_eq!((is_yes("Yes"), is_yes("0"), is_yes("perhaps")), (Some(true), Some(false), None));
    }
}
