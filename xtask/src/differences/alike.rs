//! Whether two answers are the same, except for times, ids and paths that differ between any two clusters.

use super::side::{Answer, Side};

/// Words before a number that is the id of a job.
const BEFORE_IDS: [&str; 12] = [
    "job",
    "Job",
    "jobid",
    "JobId",
    "JOB",
    "allocation",
    "ArrayJobId",
    "step",
    "StepId",
    "STEP",
    "AllocNode:Sid",
    "pid",
];
/// Largest difference of two elapsed times, in seconds.
const ELAPSED_TOLERANCE: u64 = 120;

/// The parts of an answer that may differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Stdout,
    Stderr,
    Code,
}

impl Part {
    pub(crate) const ALL: [Self; 3] = [Self::Stdout, Self::Stderr, Self::Code];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
            Self::Code => "code",
        }
    }

    pub(crate) fn of(self, answer: &Answer) -> &str {
        match self {
            Self::Stdout => &answer.stdout,
            Self::Stderr => &answer.stderr,
            Self::Code => &answer.code,
        }
    }
}

/// Replaces the home directory of a cluster by a name of the same length, and ids in its variables by those of the other one.
pub(crate) fn redact(answer: &Answer, side: &Side, other: &Side) -> Answer {
    let home = side.home().display().to_string();
    let common = format!("{}work", &home[..home.len() - 4]);
    let same_variable = |name: &str| other.variables.iter().find(|(known, _)| known == name);
    let pairs: Vec<(&str, &str)> = side
        .variables
        .iter()
        .filter_map(|(name, id)| Some((id.as_str(), same_variable(name)?.1.as_str())))
        .filter(|(id, other)| id != other)
        .collect();
    let text = |text: &str| replace_numbers(&text.replace(&home, &common), &pairs);
    Answer { stdout: text(&answer.stdout), stderr: text(&answer.stderr), code: answer.code.clone() }
}

/// Replaces whole numbers.
fn replace_numbers(text: &str, pairs: &[(&str, &str)]) -> String {
    let mut out = String::with_capacity(text.len());
    for piece in pieces(text, |c| c.is_ascii_digit()) {
        let replaced = pairs.iter().find(|(number, _)| *number == piece);
        out.push_str(replaced.map_or(piece, |(_, other)| other));
    }
    out
}

/// Splits a text into the longest pieces whose characters all do, or all do not, satisfy `is`.
fn pieces(text: &str, is: impl Fn(char) -> bool) -> Vec<&str> {
    let mut found = Vec::new();
    let mut start = 0;
    let mut last = None;
    for (at, c) in text.char_indices() {
        if last.is_some_and(|last| last != is(c)) {
            found.push(&text[start..at]);
            start = at;
        }
        last = Some(is(c));
    }
    if start < text.len() {
        found.push(&text[start..]);
    }
    found
}

/// The parts in which two redacted answers differ.
pub(crate) fn differences(one: &Answer, other: &Answer) -> Vec<Part> {
    Part::ALL.into_iter().filter(|part| !same_text(part.of(one), part.of(other))).collect()
}

/// Whether the first text has lines, and the second begins with them, except for times and ids, and has more.
pub(crate) fn has_more_lines(one: &str, other: &str) -> bool {
    let lines = one.lines().count();
    let first: String = other.split_inclusive('\n').take(lines).collect();
    lines > 0 && other.lines().count() > lines && same_text(one, &first)
}

/// Whether two texts are the same, except for times and ids. All ids of a text have the same distance from those of the other one.
fn same_text(one: &str, other: &str) -> bool {
    if one == other {
        return true;
    }
    let separators = |c: char| c.is_ascii_whitespace() || "=|,;()\"".contains(c);
    let (one, other) = (pieces(one, separators), pieces(other, separators));
    let mut before = "";
    let mut word = "";
    let mut distance = None;
    one.len() == other.len()
        && one.iter().zip(&other).all(|(a, b)| {
            if !a.starts_with(separators) {
                before = word;
                word = a;
            }
            a == b || both_times(a, b) || both_ids(before, a, b, &mut distance)
        })
}

fn both_times(one: &str, other: &str) -> bool {
    let is_timestamp = |text: &str| {
        let shape: String = text.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
        shape == "0000-00-00T00:00:00"
    };
    if is_timestamp(one) && is_timestamp(other) {
        return true;
    }
    let punctuation = |text: &str| -> String { text.chars().filter(char::is_ascii_punctuation).collect() };
    match (elapsed(one), elapsed(other)) {
        // A limit is a whole number of minutes, and must be the same.
        (Some(a), Some(b)) if [a, b].iter().any(|time| *time > 0 && time % 60 == 0) => a == b,
        (Some(a), Some(b)) => a.abs_diff(b) <= ELAPSED_TOLERANCE && punctuation(one) == punctuation(other),
        _ => false,
    }
}

/// The seconds of an elapsed time such as `0:07`, `00:00:07`, `1-00:00:00` or `00:00.012`.
fn elapsed(text: &str) -> Option<u64> {
    let text = text.split_once('.').map_or(text, |(whole, _)| whole);
    let (days, clock) = text.split_once('-').unwrap_or(("0", text));
    let parts: Vec<&str> = clock.split(':').collect();
    let last_has_two_digits = parts.last().is_some_and(|last| last.len() == 2);
    if !(2..=3).contains(&parts.len()) || !last_has_two_digits {
        return None;
    }
    let clock = parts.iter().try_fold(0, |sum, part| Some(sum * 60 + part.parse::<u64>().ok()?))?;
    Some(days.parse::<u64>().ok()? * 86_400 + clock)
}

/// Whether two words are ids of jobs with as many digits, perhaps with more text around them. The first ids that differ set the
/// distance; ids that were replaced have none.
fn both_ids(before: &str, one: &str, other: &str, distance: &mut Option<i64>) -> bool {
    let is_id = BEFORE_IDS.contains(&before) || [one, other].iter().all(|word| word.starts_with("slurm-"));
    let shape = |text: &str| -> String { text.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect() };
    if !is_id || shape(one) != shape(other) {
        return false;
    }
    let numbers = |text: &str| -> Vec<i64> {
        text.split(|c: char| !c.is_ascii_digit()).filter_map(|number| number.parse().ok()).collect()
    };
    let has_process = ["pid", "AllocNode:Sid"].contains(&before);
    numbers(one).iter().zip(numbers(other)).all(|(a, b)| {
        let between = b - a;
        has_process || between == 0 || *distance.get_or_insert(between) == between
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_ids_are_alike_and_other_texts_are_not() {
        for (one, other, alike) in [
            ("", "", true),
            ("a 1\n", "a 2\n", false),
            ("  101 x  0:07 n1\n", "  101 x  0:09 n1\n", true),
            ("  101 x  0:07 n1\n", " 101 x  0:07 n1\n", false),
            ("0:0", "1:0", false),
            ("0:07", "9:07", false),
            ("00:00.012", "00:00.100", true),
            ("00:00.012", "00:00:00", false),
            ("Submitted batch job 101\n", "Submitted batch job 103\n", true),
            ("Submitted batch job 101\n", "Submitted batch job 1003\n", false),
            ("Start=2026-01-02T03:04:05|x", "Start=2026-01-02T03:04:09|x", true),
            ("Start=2026-01-02T03:04:05", "Start=Unknown", false),
            ("slurm-101.out", "slurm-104.out", true),
            ("job 101 then job 102", "job 105 then job 106", true),
            ("job 101 then job 102", "job 105 then job 107", false),
            ("0:10", "1:00", false),
            ("10:30", "11:00", false),
            ("1:00", "1:00", true),
        ] {
            assert_eq!(same_text(one, other), alike, "{one:?} and {other:?}");
        }
    }

    #[test]
    fn ids_are_replaced_as_whole_numbers() {
        assert_eq!(replace_numbers("101_3 1010 x101", &[("101", "105")]), "105_3 1010 x105");
    }
}
