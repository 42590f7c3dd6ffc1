//! `hostler measure-runs`, the program of a measuring job: runs commands one after another and prints a line of JSON for
//! each run.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use clap::Args;
use hostler_model::Work;
use hostler_sys::wait_with_usage;
use nix::sys::memfd::{MFdFlags, memfd_create};
use serde::{Deserialize, Serialize};

use super::statistics::Dice;
use crate::exit;
use crate::failure::{During, Failure, Outcome};

/// The most bytes of a failed command's output that are kept.
const TAIL_BYTES: u64 = 2_000;

/// Run commands repeatedly and print the time of each run
#[derive(Debug, Args)]
#[command(hide = true)]
pub(crate) struct MeasureRuns {
    /// What to run, as JSON
    plan: String,
}

/// What to run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Plan {
    /// One command or two.
    pub(super) commands: Vec<Vec<String>>,
    /// Measured runs of each command.
    pub(super) runs: u32,
    /// Runs of each command before that.
    pub(super) warmup: u32,
    /// Decides the order of two commands in each round.
    pub(super) seed: u64,
    /// Whether the output goes to standard error.
    pub(super) shows_output: bool,
}

impl Plan {
    /// A command as one line, quoted for a shell.
    pub(super) fn line(&self, command: usize) -> String {
        Work::command(self.commands[command].clone(), "/").command_line()
    }
}

/// A line of the job's output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Line {
    /// A measured run that ended with exit code 0.
    Run(OneRun),
    /// A run that failed, which ends the measurement.
    Failed(FailedRun),
}

/// A measured run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct OneRun {
    /// Position of the command in the plan.
    pub(super) command: usize,
    /// Time from the start to the end of the process, in nanoseconds.
    pub(super) wall_ns: u64,
    /// CPU time in user mode, in microseconds.
    pub(super) user_us: u64,
    /// CPU time in the kernel, in microseconds.
    pub(super) system_us: u64,
    /// Largest resident memory of a process.
    pub(super) max_rss_bytes: u64,
}

/// A run that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FailedRun {
    /// Position of the command in the plan.
    pub(super) command: usize,
    /// What happened, e.g. `exit code 3`.
    pub(super) why: String,
    /// The last lines of its output.
    pub(super) output: String,
}

impl MeasureRuns {
    pub(crate) fn run(self) -> Outcome {
        let plan: Plan = serde_json::from_str(&self.plan)
            .map_err(|error| Failure::usage("the plan is not valid; `hostler measure` makes it").because(&error))?;
        let mut printed = io::stdout().lock();
        let mut print = |line: &Line| {
            let line = serde_json::to_string(line).expect("a line is valid JSON");
            writeln!(printed, "{line}").and_then(|()| printed.flush()).during(|| "cannot print a result".to_owned())
        };
        let mut kept = Kept::new(plan.shows_output)?;
        for (command, is_measured) in order(&plan) {
            match kept.run(&plan.commands[command], command) {
                Ok(run) if is_measured => print(&Line::Run(run))?,
                Ok(_) => {}
                Err(failed) => {
                    print(&Line::Failed(failed))?;
                    return Ok(exit::FAILED);
                }
            }
        }
        Ok(exit::OK)
    }
}

/// The commands in the order of their runs, and whether each run counts. Two commands run in rounds of one run each, and
/// chance decides which of them is first in a round.
fn order(plan: &Plan) -> Vec<(usize, bool)> {
    let mut dice = Dice::new(plan.seed);
    let mut order = Vec::new();
    for round in 0..plan.warmup.saturating_add(plan.runs) {
        let mut commands: Vec<usize> = (0..plan.commands.len()).collect();
        if dice.coin() {
            commands.reverse();
        }
        order.extend(commands.into_iter().map(|command| (command, round >= plan.warmup)));
    }
    order
}

/// The output of the last run: a file in memory, which no disk delays; `None` if the output goes to standard error.
struct Kept(Option<File>);

impl Kept {
    fn new(shows_output: bool) -> Result<Self, Failure> {
        if shows_output {
            return Ok(Self(None));
        }
        let file = memfd_create(c"output", MFdFlags::MFD_CLOEXEC);
        Ok(Self(Some(File::from(file.during(|| "cannot create a file in memory".to_owned())?))))
    }

    /// Where a run writes standard output and standard error.
    fn streams(&mut self) -> io::Result<[Stdio; 2]> {
        let stream = match &mut self.0 {
            None => return Ok([Stdio::from(io::stderr()), Stdio::from(io::stderr())]),
            Some(file) => file,
        };
        stream.set_len(0)?;
        stream.seek(SeekFrom::Start(0))?;
        Ok([Stdio::from(stream.try_clone()?), Stdio::from(stream.try_clone()?)])
    }

    /// Runs a command once.
    fn run(&mut self, argv: &[String], command: usize) -> Result<OneRun, FailedRun> {
        let failed = |why: String, output: String| FailedRun { command, why, output };
        let cannot = |error: &io::Error| failed(format!("cannot start {}: {error}", argv[0]), String::new());
        let [stdout, stderr] = self.streams().map_err(|error| cannot(&error))?;
        let mut program = Command::new(&argv[0]);
        program.args(&argv[1..]).stdin(Stdio::null()).stdout(stdout).stderr(stderr);
        let start = Instant::now();
        let child = program.spawn().map_err(|error| cannot(&error))?;
        let (status, used) = wait_with_usage(child).map_err(|error| cannot(&error))?;
        let wall = start.elapsed();
        if !status.success() {
            return Err(failed(why(status), self.tail()));
        }
        let number = |value: u128| u64::try_from(value).unwrap_or(u64::MAX);
        let micros = |time: Duration| number(time.as_micros());
        Ok(OneRun {
            command,
            wall_ns: number(wall.as_nanos()),
            user_us: micros(used.user),
            system_us: micros(used.system),
            max_rss_bytes: used.max_rss_bytes,
        })
    }

    /// The end of the last run's output.
    fn tail(&mut self) -> String {
        let Some(file) = &mut self.0 else { return String::new() };
        let mut bytes = Vec::new();
        let read = file.metadata().and_then(|metadata| {
            file.seek(SeekFrom::Start(metadata.len().saturating_sub(TAIL_BYTES)))?;
            file.take(TAIL_BYTES).read_to_end(&mut bytes)
        });
        if read.is_err() {
            return String::new();
        }
        String::from_utf8_lossy(&bytes).trim_end().to_owned()
    }
}

fn why(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("ended by signal {signal}"),
        (None, None) => "ended in an unknown way".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(commands: &[&str], runs: u32, warmup: u32, seed: u64) -> Plan {
        let commands = commands.iter().map(|it| vec!["sh".to_owned(), "-c".to_owned(), (*it).to_owned()]).collect();
        Plan { commands, runs, warmup, seed, shows_output: false }
    }

    #[test]
    fn commands_run_in_rounds_whose_order_depends_on_the_seed() {
        let order_of = |seed| order(&plan(&["true", "false"], 20, 2, seed));
        let order = order_of(1);
        assert_eq!((order.len(), order.iter().filter(|(_, is_measured)| *is_measured).count()), (44, 40));
        assert!(order.chunks(2).all(|round| round[0].0 + round[1].0 == 1 && round[0].1 == round[1].1), "{order:?}");
        assert_eq!(order, order_of(1));
        assert_ne!(order, order_of(2));
        let firsts = order.chunks(2).filter(|round| round[0].0 == 0).count();
        assert!((4..=18).contains(&firsts), "both commands are sometimes first: {order:?}");
    }

    #[test]
    fn failed_run_keeps_the_end_of_its_output() {
        let plan =
            plan(&["echo first; echo oops >&2; exit 3", "kill -9 $$", "head -c 9000 /dev/zero; exit 1"], 1, 0, 0);
        let mut kept = Kept::new(false).expect("a file in memory");
        let mut fails = |command: usize| kept.run(&plan.commands[command], command).expect_err("it fails");
        let first = fails(0);
        assert_eq!((first.why.as_str(), first.output.as_str()), ("exit code 3", "first\noops"));
        let killed = fails(1);
        assert_eq!((killed.why.as_str(), killed.output.as_str()), ("ended by signal 9", ""));
        assert_eq!(fails(2).output.len(), TAIL_BYTES as usize);
        let missing = kept.run(&["/nowhere".to_owned()], 0).expect_err("there is no such program");
        assert!(missing.why.starts_with("cannot start /nowhere: No such file"), "{}", missing.why);
    }

    #[test]
    fn run_is_timed() {
        let plan = plan(&["sleep 0.02"], 1, 0, 0);
        let run = Kept::new(false).expect("a file in memory").run(&plan.commands[0], 0).expect("it ends");
        assert!(run.wall_ns >= 20_000_000 && run.max_rss_bytes > 0, "{run:?}");
    }
}
