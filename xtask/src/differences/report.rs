//! What the comparison found: differences as they are found, and a table at the end.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::alike::Part;
use super::known::Known;
use super::side::Answer;

/// The result of one line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Status {
    Same,
    /// The known difference with this number.
    Known(usize),
    New,
}

/// What the two clusters answered to a line.
#[derive(Debug)]
pub(crate) struct Difference {
    pub(crate) state: String,
    pub(crate) line: String,
    /// The parts that differ.
    pub(crate) parts: Vec<Part>,
    pub(crate) slurm: Answer,
    pub(crate) hostler: Answer,
}

/// Numbers of lines.
#[derive(Debug, Default, Clone, Copy)]
struct Counts {
    same: usize,
    defended: usize,
    open: usize,
    new: usize,
}

#[derive(Debug)]
pub(crate) struct Report {
    is_json: bool,
    shows_known: bool,
    /// By command; generated lines are counted apart.
    counts: BTreeMap<String, Counts>,
    differences: Vec<Value>,
    used: BTreeSet<usize>,
}

impl Report {
    pub(crate) fn new(is_json: bool, shows_known: bool) -> Self {
        Self { is_json, shows_known, counts: BTreeMap::new(), differences: Vec::new(), used: BTreeSet::new() }
    }

    /// Counts a line, and prints its difference if there is one to show.
    pub(crate) fn add(&mut self, command: &str, status: Status, difference: &Difference, known: &[Known]) {
        let is_generated = difference.state == "generated";
        let name = if is_generated { format!("{command}, generated") } else { command.to_owned() };
        let counts = self.counts.entry(name).or_default();
        let (word, why) = match status {
            Status::Same => {
                counts.same += 1;
                return;
            }
            Status::Known(at) => {
                self.used.insert(at);
                let entry = &known[at];
                if entry.open {
                    counts.open += 1;
                } else {
                    counts.defended += 1;
                }
                (if entry.open { "open" } else { "defended" }, Some(entry.why.as_str()))
            }
            Status::New => {
                counts.new += 1;
                ("new", None)
            }
        };
        if self.is_json {
            self.differences.push(as_json(difference, word, why));
        } else if status == Status::New || self.shows_known {
            print(difference, word, why);
        }
    }

    /// Prints the table and the entries of `known` that no line needs; some are needed only in some runs, because the clusters
    /// place jobs differently. Fails if there are new differences.
    pub(crate) fn finish(self, known: &[Known]) -> Result<()> {
        let mut total = Counts::default();
        for counts in self.counts.values() {
            total.same += counts.same;
            total.defended += counts.defended;
            total.open += counts.open;
            total.new += counts.new;
        }
        let unused = known.iter().enumerate().filter(|(at, _)| !self.used.contains(at));
        let unused: Vec<&str> = unused.map(|(_, entry)| entry.name()).collect();
        if self.is_json {
            let commands: Value = self.counts.iter().map(|(name, counts)| (name.clone(), counts.json())).collect();
            let all = json!({
                "commands": commands, "total": total.json(), "differences": self.differences, "unused": unused,
            });
            println!("{}", serde_json::to_string_pretty(&all)?);
        } else {
            let header = ["command", "lines", "same", "defended", "open", "new"].map(str::to_owned);
            print_row(&header);
            for (name, counts) in &self.counts {
                print_row(&counts.row(name));
            }
            print_row(&total.row("all"));
            for name in &unused {
                println!("known.toml: no line needs the entry for `{name}`");
            }
        }
        ensure!(total.new == 0, "{} lines differ and are not in xtask/differences/known.toml", total.new);
        Ok(())
    }
}

impl Counts {
    const fn lines(self) -> usize {
        self.same + self.defended + self.open + self.new
    }

    fn row(self, name: &str) -> [String; 6] {
        let numbers = [self.lines(), self.same, self.defended, self.open, self.new].map(|number| number.to_string());
        let [lines, same, defended, open, new] = numbers;
        [name.to_owned(), lines, same, defended, open, new]
    }

    fn json(self) -> Value {
        let Self { same, defended, open, new } = self;
        json!({ "lines": self.lines(), "same": same, "defended": defended, "open": open, "new": new })
    }
}

fn print_row([name, numbers @ ..]: &[String; 6]) {
    let numbers: String = numbers.iter().map(|number| format!("{number:>10}")).collect();
    println!("{name:<20}{numbers}");
}

fn print(difference: &Difference, word: &str, why: Option<&str>) {
    let Difference { state, line, parts, slurm, hostler } = difference;
    println!("{word} in state {state}: {line}");
    for part in parts {
        println!("  {} of Slurm:", part.name());
        print_text(part.of(slurm));
        println!("  {} of Hostler:", part.name());
        print_text(part.of(hostler));
    }
    if let Some(why) = why {
        println!("  {why}");
    }
    println!();
}

/// Prints lines so that blanks at their ends can be seen.
fn print_text(text: &str) {
    for line in text.split_inclusive('\n') {
        println!(
            "    |{}",
            line.strip_suffix('\n').map_or_else(|| format!("{line} (no newline)"), |line| format!("{line}|"))
        );
    }
}

fn as_json(difference: &Difference, word: &str, why: Option<&str>) -> Value {
    let Difference { state, line, parts, slurm, hostler } = difference;
    let parts: Vec<&str> = parts.iter().map(|part| part.name()).collect();
    let answer = |answer: &Answer| json!({ "stdout": answer.stdout, "stderr": answer.stderr, "code": answer.code });
    json!({
        "state": state, "line": line, "status": word, "why": why, "parts": parts,
        "slurm": answer(slurm), "hostler": answer(hostler),
    })
}
