//! Differences between texts, in the unified diff format.

use std::fmt::Write as _;

use crate::setup::Setup;

/// Number of unchanged lines around a change.
const CONTEXT: usize = 3;

/// A line of one text or of both.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Line<'a> {
    Both(&'a str),
    Old(&'a str),
    New(&'a str),
}

/// The differences between two setups; empty if there are none. `None` means that there is no setup.
#[must_use]
pub fn differences(is: Option<&Setup>, planned: Option<&Setup>) -> String {
    let documents = |setup: Option<&Setup>| setup.map(Setup::documents);
    let (old, new) = (documents(is), documents(planned));
    let mut text = String::new();
    let count = old.as_ref().or(new.as_ref()).map_or(0, |documents| documents.len());
    for number in 0..count {
        let part = |documents: &Option<[(&'static str, String); 4]>| {
            documents.as_ref().map(|documents| documents[number].clone()).unwrap_or_default()
        };
        let (before, after) = (part(&old), part(&new));
        let name = if after.0.is_empty() { before.0 } else { after.0 };
        text.push_str(&unified(name, &before.1, &after.1));
    }
    text
}

/// The differences between two versions of the text `name`; empty if there are none.
#[must_use]
pub fn unified(name: &str, old: &str, new: &str) -> String {
    let lines = align(&old.lines().collect::<Vec<_>>(), &new.lines().collect::<Vec<_>>());
    let is_change = |line: &Line| !matches!(line, Line::Both(_));
    if !lines.iter().any(is_change) {
        return String::new();
    }
    let mut text = format!("--- {name} (current)\n+++ {name} (planned)\n");
    let mut next = 0;
    while let Some(change) = (next..lines.len()).find(|at| is_change(&lines[*at])) {
        let start = change.saturating_sub(CONTEXT).max(next);
        let mut end = change + 1;
        // Changes with overlapping contexts form one hunk.
        while let Some(more) = (end..lines.len().min(end + 2 * CONTEXT + 1)).find(|at| is_change(&lines[*at])) {
            end = more + 1;
        }
        let end = (end + CONTEXT).min(lines.len());
        hunk(&lines, start, end, &mut text);
        next = end;
    }
    text
}

fn hunk(lines: &[Line<'_>], start: usize, end: usize, text: &mut String) {
    let is_old = |line: &Line| !matches!(line, Line::New(_));
    let is_new = |line: &Line| !matches!(line, Line::Old(_));
    let old = range(count(&lines[..start], is_old), count(&lines[start..end], is_old));
    let new = range(count(&lines[..start], is_new), count(&lines[start..end], is_new));
    writeln!(text, "@@ -{old} +{new} @@").expect("strings can be written to");
    for line in &lines[start..end] {
        let (mark, line) = match line {
            Line::Both(line) => (' ', line),
            Line::Old(line) => ('-', line),
            Line::New(line) => ('+', line),
        };
        writeln!(text, "{mark}{line}").expect("strings can be written to");
    }
}

fn count<'a>(lines: &[Line<'a>], is_in: impl Fn(&Line<'a>) -> bool) -> usize {
    lines.iter().filter(|line| is_in(line)).count()
}

/// Formats a range as `diff -u` does. The start of an empty range is the line before the range.
fn range(before: usize, inside: usize) -> String {
    format!("{},{inside}", if inside == 0 { before } else { before + 1 })
}

/// Aligns both texts with a longest common subsequence. Time and memory are proportional to the product of the lengths,
/// which is fine for configuration files.
fn align<'a>(old: &[&'a str], new: &[&'a str]) -> Vec<Line<'a>> {
    // common[i][j]: length of the longest common subsequence of old[i..] and new[j..].
    let mut common = vec![vec![0_u32; new.len() + 1]; old.len() + 1];
    for i in (0..old.len()).rev() {
        for j in (0..new.len()).rev() {
            common[i][j] = match old[i] == new[j] {
                true => common[i + 1][j + 1] + 1,
                false => common[i + 1][j].max(common[i][j + 1]),
            };
        }
    }
    let (mut i, mut j, mut lines) = (0, 0, Vec::new());
    while i < old.len() || j < new.len() {
        if i < old.len() && j < new.len() && old[i] == new[j] {
            lines.push(Line::Both(old[i]));
            (i, j) = (i + 1, j + 1);
        } else if i < old.len() && (j == new.len() || common[i + 1][j] >= common[i][j + 1]) {
            lines.push(Line::Old(old[i]));
            i += 1;
        } else {
            lines.push(Line::New(new[j]));
            j += 1;
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::description::{Description, EXAMPLE};

    #[test]
    fn changed_line_is_shown_with_its_context() {
        let old = "a\nb\nc\nd\ne\nf\ng\nh\n";
        let text = unified("x", old, &old.replace("e\n", "E\n"));
        let expected = "--- x (current)\n+++ x (planned)\n@@ -2,7 +2,7 @@\n b\n c\n d\n-e\n+E\n f\n g\n h\n";
        assert_eq!(text, expected);
        assert_eq!(unified("x", "", "a\n"), "--- x (current)\n+++ x (planned)\n@@ -0,0 +1,1 @@\n+a\n");
        assert_eq!(unified("x", old, old), "");
    }

    #[test]
    fn setups_differ_by_document() {
        let of = |text: &str| Setup::of(&Description::parse(text).expect("valid"));
        let (one, other) = (of(EXAMPLE), of(&EXAMPLE.replace("10.42.0.12", "10.42.0.13")));
        assert_eq!(differences(Some(&one), Some(&one)), "");
        let text = differences(Some(&one), Some(&other));
        assert!(text.contains("-dhcp-host=52:54:00:00:01:02,10.42.0.12,r2\n+dhcp-host"), "{text}");
        assert!(!text.contains("--- nftables"), "{text}");
        assert_eq!(differences(None, None), "");
        for name in ["interfaces", "nftables", "dnsmasq", "wireguard"] {
            assert!(differences(None, Some(&one)).contains(&format!("+++ {name} (planned)\n")), "{name}");
            assert!(differences(Some(&one), None).contains(&format!("--- {name} (current)\n")), "{name}");
        }
    }

    /// Applies a unified diff, like `patch`.
    fn patch(old: &str, difference: &str) -> String {
        let (old, mut at, mut new) = (old.lines().collect::<Vec<_>>(), 0, Vec::new());
        for line in difference.lines().skip(2) {
            if let Some(range) = line.strip_prefix("@@ -") {
                let (start, rest) = range.split_once(',').expect("a range");
                let start: usize = start.parse().expect("a number");
                let is_empty = rest.starts_with("0 ");
                let start = if is_empty { start } else { start - 1 };
                new.extend(&old[at..start]);
                at = start;
                continue;
            }
            let (mark, text) = line.split_at(1);
            if mark != "+" {
                assert_eq!(old[at], text, "the difference contains a line that does not exist");
                at += 1;
            }
            if mark != "-" {
                new.push(text);
            }
        }
        new.extend(&old[at..]);
        new.join("\n")
    }

    proptest! {
        #[test]
        fn difference_turns_one_text_into_the_other(old in "([a-c]\n){0,30}", new in "([a-c]\n){0,30}") {
            let difference = unified("x", &old, &new);
            prop_assert_eq!(difference.is_empty(), old == new);
            if !difference.is_empty() {
                prop_assert_eq!(patch(&old, &difference), new.trim_end());
            }
        }
    }
}
