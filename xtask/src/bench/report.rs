//! Rows of the report: a figure, its comparison and its goal. Printed as a table, and written as JSON.

use std::path::Path;

use anyhow::{Context, Result};
use serde::Serialize;

use super::measure::Sample;

/// One line of the report.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) value: f64,
    pub(crate) unit: &'static str,
    pub(crate) lowest: f64,
    pub(crate) highest: f64,
    pub(crate) runs: usize,
    /// The floor or peer for comparison.
    pub(crate) beside: Option<Beside>,
    pub(crate) goal: Option<Verdict>,
}

/// A floor or peer, with the result of the comparison.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Beside {
    pub(crate) name: String,
    pub(crate) value: f64,
    /// The row's value divided by the peer's.
    pub(crate) ratio: f64,
}

/// Bound on the ratio of a row with a comparison, or else on its value.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Goal {
    AtMost(f64),
    AtLeast(f64),
}

/// A goal and whether it is met.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Verdict {
    pub(crate) text: String,
    pub(crate) met: bool,
}

impl Goal {
    fn judge(self, figure: f64) -> Verdict {
        match self {
            Self::AtMost(bound) => Verdict { text: format!("≤ {bound}"), met: figure <= bound },
            Self::AtLeast(bound) => Verdict { text: format!("≥ {bound}"), met: figure >= bound },
        }
    }
}

impl Row {
    /// A figure without a comparison.
    pub(crate) fn alone(sample: &Sample, unit: &'static str) -> Self {
        Self {
            name: sample.name.clone(),
            value: sample.median,
            unit,
            lowest: sample.lowest,
            highest: sample.highest,
            runs: sample.runs,
            beside: None,
            goal: None,
        }
    }

    /// Like [`Self::alone`], for a single measurement.
    pub(crate) fn once(name: impl Into<String>, value: f64, unit: &'static str) -> Self {
        Self::alone(&Sample::of(name, vec![value]), unit)
    }

    /// A figure with a comparison.
    pub(crate) fn beside(sample: &Sample, unit: &'static str, other: &Sample) -> Self {
        let beside = Beside { name: other.name.clone(), value: other.median, ratio: sample.median / other.median };
        Self { beside: Some(beside), ..Self::alone(sample, unit) }
    }

    pub(crate) fn with_goal(mut self, goal: Goal) -> Self {
        self.goal = Some(goal.judge(self.beside.as_ref().map_or(self.value, |beside| beside.ratio)));
        self
    }
}

/// Creates the rows of a comparison.
///
/// The first sample is the floor. Each other sample is compared with the floor. The sample named `subject` is also
/// compared with all others. `goals` bound the subject's ratio to the named samples.
pub(crate) fn compare(samples: &[Sample], unit: &'static str, subject: &str, goals: &[(&str, Goal)]) -> Vec<Row> {
    let Some((floor, others)) = samples.split_first() else { return Vec::new() };
    let mut rows = vec![Row::alone(floor, unit)];
    for sample in others {
        let is_subject = sample.name == subject;
        for other in samples.iter().filter(|other| other.name != sample.name) {
            if other.name != floor.name && !is_subject {
                continue;
            }
            let row = Row::beside(sample, unit, other);
            let goal = goals.iter().find(|(name, _)| is_subject && *name == other.name);
            rows.push(match goal {
                Some((_, goal)) => row.with_goal(*goal),
                None => row,
            });
        }
    }
    rows
}

#[derive(Debug, Serialize)]
pub(crate) struct Report {
    machine: Machine,
    /// Divisor of the numbers of jobs and files. Goals are meaningful only if it is 1.
    divided_by: usize,
    groups: Vec<GroupRows>,
}

#[derive(Debug, Serialize)]
struct GroupRows {
    group: &'static str,
    rows: Vec<Row>,
}

#[derive(Debug, Serialize)]
struct Machine {
    cpus: usize,
    processor: Option<String>,
    kernel: String,
}

impl Report {
    pub(crate) fn new(divided_by: usize) -> Self {
        let report = Self { machine: Machine::this(), divided_by, groups: Vec::new() };
        let Machine { cpus, processor, kernel } = &report.machine;
        println!("{cpus} CPUs ({}), Linux {kernel}", processor.as_deref().unwrap_or("unknown"));
        report
    }

    /// Prints and stores the rows of a group.
    pub(crate) fn add(&mut self, group: &'static str, rows: Vec<Row>) {
        print!("{}", table(&rows));
        self.groups.push(GroupRows { group, rows });
    }

    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(self)? + "\n";
        std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
    }
}

impl Machine {
    fn this() -> Self {
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        let cpuinfo = read("/proc/cpuinfo");
        let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        Self {
            cpus: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            processor: model.map(|(_, name)| name.to_owned()),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
        }
    }
}

/// The rows as an aligned table: name, value, spread; comparison; ratio; goal.
fn table(rows: &[Row]) -> String {
    let name_width = rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0);
    rows.iter()
        .map(|row| {
            let value = format!("{} {}", figure(row.value), row.unit);
            let spread = match row.runs {
                1 => String::new(),
                runs => format!("({} to {}, n={runs})", figure(row.lowest), figure(row.highest)),
            };
            let beside = row.beside.as_ref().map_or(String::new(), |Beside { name, value, ratio }| {
                format!("{} x {name} ({})", figure(*ratio), figure(*value))
            });
            let goal = row.goal.as_ref().map_or(String::new(), |Verdict { text, met }| {
                format!("goal {text}: {}", if *met { "met" } else { "MISSED" })
            });
            let line = format!("  {:<name_width$}  {value:>14}  {spread:<28}  {beside:<44}  {goal}", row.name);
            line.trim_end().to_owned() + "\n"
        })
        .collect()
}

/// Formats a figure with at least three digits.
fn figure(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(name: &str, figure: f64) -> Sample {
        Sample::of(name, vec![figure])
    }

    #[test]
    fn subject_is_compared_with_all_and_the_others_with_the_floor() {
        let samples = [sample("floor", 2.0), sample("peer", 10.0), sample("us", 8.0)];
        let goals = [("floor", Goal::AtMost(3.0)), ("peer", Goal::AtMost(0.8))];
        let rows = compare(&samples, "ms", "us", &goals);
        let seen: Vec<_> = rows
            .iter()
            .map(|row| {
                let beside = row.beside.as_ref().map(|beside| (beside.name.as_str(), beside.ratio));
                (row.name.as_str(), beside, row.goal.as_ref().map(|goal| goal.met))
            })
            .collect();
        let expected = [
            ("floor", None, None),
            ("peer", Some(("floor", 5.0)), None),
            ("us", Some(("floor", 4.0)), Some(false)),
            ("us", Some(("peer", 0.8)), Some(true)),
        ];
        assert_eq!(seen, expected);
    }

    #[test]
    fn goal_without_a_comparison_bounds_the_value() {
        let row = Row::once("list", 31.0, "ms").with_goal(Goal::AtMost(30.0));
        assert!(!row.goal.expect("the row has a goal").met);
    }

    #[test]
    fn rows_show_value_ratio_and_goal() {
        let row = Row::beside(&sample("us", 12.34), "ms", &sample("floor", 1.0)).with_goal(Goal::AtMost(10.0));
        let line = table(&[row]);
        for part in ["us", "12.3 ms", "12.3 x floor (1.00)", "goal ≤ 10: MISSED"] {
            assert!(line.contains(part), "{part} is not in {line}");
        }
    }
}
