//! The table of command lines, in `xtask/differences/lines.txt`.
//!
//! A line of the file is one of these:
//!
//! - `# …`: a comment
//! - `== NAME: DESCRIPTION`: the start of a state; the jobs of the state before are cancelled
//! - `+ LINE`: a set-up that must succeed and is not compared; `+ NAME=LINE` stores its output in a variable of the shell
//! - `? LINE`: a condition of the set-up; the line is repeated until it succeeds
//! - anything else: a line of the shell that both clusters run, and whose output and exit code are compared

use anyhow::{Result, bail, ensure};

/// Commands whose lines are counted.
pub(crate) const COMMANDS: [&str; 11] =
    ["sbatch", "srun", "salloc", "squeue", "scancel", "sacct", "scontrol", "sinfo", "sacctmgr", "sshare", "sstat"];

/// What both clusters do in one state.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) name: String,
    pub(crate) steps: Vec<Step>,
}

/// A line of the table.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Runs a line that must succeed, and stores its output if there is a name.
    SetUp(Option<String>, String),
    /// Repeats a line until it succeeds.
    Wait(String),
    /// Compares what a line does.
    Compare(String),
}

/// Parses the table.
pub(crate) fn parse(text: &str) -> Result<Vec<State>> {
    let mut states: Vec<State> = Vec::new();
    for line in text.lines().map(str::trim_end).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some(name) = line.strip_prefix("== ") {
            let (name, _) = name.split_once(": ").unwrap_or((name, ""));
            states.push(State { name: name.to_owned(), steps: Vec::new() });
            continue;
        }
        let Some(state) = states.last_mut() else { bail!("`{line}` stands before the first state") };
        state.steps.push(step(line));
    }
    for state in &states {
        for step in &state.steps {
            if let Step::Compare(line) = step {
                ensure!(command(line).is_some(), "state {}: no known command in `{line}`", state.name);
            }
        }
    }
    Ok(states)
}

fn step(line: &str) -> Step {
    if let Some(condition) = line.strip_prefix("? ") {
        return Step::Wait(condition.to_owned());
    }
    let Some(set_up) = line.strip_prefix("+ ") else { return Step::Compare(line.to_owned()) };
    let is_name = |name: &str| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_uppercase());
    match set_up.split_once('=').filter(|(name, _)| is_name(name)) {
        Some((name, line)) => Step::SetUp(Some(name.to_owned()), line.to_owned()),
        None => Step::SetUp(None, set_up.to_owned()),
    }
}

/// The first of Slurm's commands in a line. The shell's function `batch` calls `sbatch`.
pub(crate) fn command(line: &str) -> Option<&'static str> {
    let words = line.split(|c: char| !c.is_ascii_alphanumeric());
    words
        .map(|word| if word == "batch" { "sbatch" } else { word })
        .find_map(|word| COMMANDS.into_iter().find(|command| *command == word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_valid() {
        let states = parse(include_str!("../../differences/lines.txt")).expect("the table is valid");
        let compared = states.iter().flat_map(|state| &state.steps).filter(|step| matches!(step, Step::Compare(_)));
        assert!(compared.count() >= 300, "the table has at least 300 lines");
    }

    #[test]
    fn steps_have_their_forms() {
        let states =
            parse("# x\n== one: first\n+ RUN=sbatch -H x\n+ touch a=b\n? test a\nsqueue -j $RUN\n").expect("valid");
        assert_eq!(
            states,
            [State {
                name: "one".to_owned(),
                steps: vec![
                    Step::SetUp(Some("RUN".to_owned()), "sbatch -H x".to_owned()),
                    Step::SetUp(None, "touch a=b".to_owned()),
                    Step::Wait("test a".to_owned()),
                    Step::Compare("squeue -j $RUN".to_owned()),
                ],
            }]
        );
        assert!(parse("squeue\n").is_err(), "a line needs a state");
        assert!(parse("== one\nls\n").is_err(), "a line needs a command");
    }
}
