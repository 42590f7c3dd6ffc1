//! Known differences, in `xtask/differences/known.toml`: each has a sentence that defends it.

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use super::alike::{Part, has_more_lines};
use super::side::Answer;

/// Differences of some lines, with the reason why Hostler differs there.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Known {
    /// Lines that differ. `*` stands for any text.
    lines: Vec<String>,
    /// Parts of the answers that differ; all by default.
    #[serde(default)]
    parts: Vec<String>,
    /// Texts, one of which each differing part of Hostler's answer contains.
    #[serde(default)]
    hostler: Vec<String>,
    /// Texts, one of which each differing part of Slurm's answer contains.
    #[serde(default)]
    slurm: Vec<String>,
    /// Whether Hostler's text begins with the lines of Slurm's, and has more.
    #[serde(default)]
    adds: bool,
    /// Why Hostler differs.
    pub(crate) why: String,
    /// Whether Hostler should not differ.
    #[serde(default)]
    pub(crate) open: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    known: Vec<Known>,
}

/// Parses the list.
pub(crate) fn parse(text: &str) -> Result<Vec<Known>> {
    let File { known } = toml::from_str(text).context("known.toml is not valid")?;
    for entry in &known {
        let parts_exist = entry.parts.iter().all(|part| Part::ALL.iter().any(|known| known.name() == part));
        ensure!(parts_exist, "known.toml: {:?} is not a list of stdout, stderr and code", entry.parts);
        ensure!(!entry.lines.is_empty(), "known.toml: an entry has no lines");
        ensure!(entry.why.split_whitespace().count() >= 4, "known.toml: {:?} does not say why", entry.lines);
    }
    Ok(known)
}

impl Known {
    /// Whether this entry covers the difference of a line in some parts.
    pub(crate) fn covers(&self, line: &str, differing: &[Part], slurm: &Answer, hostler: &Answer) -> bool {
        self.lines.iter().any(|pattern| matches(pattern, line))
            && differing.iter().all(|part| {
                let is_listed = self.parts.is_empty() || self.parts.iter().any(|name| name == part.name());
                let (slurm, text) = (part.of(slurm), part.of(hostler));
                let has = |wanted: &[String], text: &str| {
                    *part == Part::Code
                        || wanted.is_empty()
                        || wanted.iter().any(|wanted| text.contains(wanted.as_str()))
                };
                is_listed
                    && has(&self.slurm, slurm)
                    && has(&self.hostler, text)
                    && (!self.adds || has_more_lines(slurm, text))
            })
    }

    /// The entry's first pattern, as its name in reports.
    pub(crate) fn name(&self) -> &str {
        &self.lines[0]
    }
}

/// Whether a text has the form of a pattern, in which `*` stands for any text.
fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_valid() {
        parse(include_str!("../../differences/known.toml")).expect("the list is valid");
    }

    #[test]
    fn patterns_match_whole_lines() {
        for (pattern, text, expected) in [
            ("squeue", "squeue", true),
            ("squeue", "squeue -l", false),
            ("squeue *", "squeue -l", true),
            ("*--version", "sacct --version", true),
            ("a*b*c", "a1b2c", true),
            ("a*b*c", "a1c2b", false),
            ("*", "", true),
            ("a*a", "a", false),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} and {text}");
        }
    }

    #[test]
    fn entries_cover_only_the_parts_they_name() {
        let text = "[[known]]\nlines = [\"squeue -x\"]\nparts = [\"stderr\"]\nhostler = [\"text\"]\nwhy = \"The texts are not alike.\"";
        let known = parse(text).expect("valid").remove(0);
        let says = |text: &str| Answer { stderr: text.to_owned(), ..Answer::default() };
        let covers = |line: &str, parts: &[Part], text| known.covers(line, parts, &says("a"), &says(text));
        assert!(covers("squeue -x", &[Part::Stderr], "a text"));
        assert!(!covers("squeue -x", &[Part::Stderr], "other"));
        assert!(!covers("squeue -x", &[Part::Stderr, Part::Code], "a text"));
        assert!(!covers("squeue", &[Part::Stderr], "a text"));
        let of_slurm = "[[known]]\nlines = [\"*\"]\nslurm = [\"plugin\"]\nwhy = \"It names its plugins here.\"";
        let of_slurm = parse(of_slurm).expect("valid").remove(0);
        assert!(of_slurm.covers("x", &[Part::Stderr], &says("a plugin"), &says("b")));
        assert!(!of_slurm.covers("x", &[Part::Stderr], &says("a"), &says("a plugin")));
        let adds =
            parse("[[known]]\nlines = [\"*\"]\nadds = true\nwhy = \"It says what to do.\"").expect("valid").remove(0);
        assert!(adds.covers("x", &[Part::Stderr], &says("a\nb\n"), &says("a\nb\nc\n")));
        assert!(!adds.covers("x", &[Part::Stderr], &says("a\nb\n"), &says("a\nc\n")));
        assert!(!adds.covers("x", &[Part::Stderr], &says("a\n"), &says("b\na\n")));
    }
}
