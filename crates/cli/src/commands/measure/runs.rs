//! `hostler measure-runs`, the program of a measuring job: runs commands one after another and prints a line of JSON for
//! each run.

use std::io::{self, PipeReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use hostler_model::Work;
use hostler_sys::wait_with_usage;
use serde::{Deserialize, Serialize};

use super::statistics::Dice;
use crate::exit;
use crate::failure::{During, Failure, Outcome};

/// The most bytes of a failed command's output that are kept.
const TAIL_BYTES: usize = 2_000;

/// How long a run's output may go on after its end, because of processes that it has left behind.
const LEFT_BEHIND: Duration = Duration::from_millis(100);

/// Run commands repeatedly and print the time of each run
#[derive(Debug, Args)]
#[command(hide = true)]
pub struct MeasureRuns {
    /// What to run, as JSON
    plan: String,
}

/// What to run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Plan {
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
pub(crate) struct OneRun {
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
pub(crate) struct FailedRun {
    /// Position of the command in the plan.
    pub(super) command: usize,
    /// Number of the run among those of its command, from 1, and among warm-up or measured runs.
    pub(super) number: u32,
    /// Whether it is a run that does not count.
    pub(super) is_warmup: bool,
    /// What happened, e.g. `exit code 3`.
    pub(super) why: String,
    /// The last lines of its output.
    pub(super) output: String,
}

impl MeasureRuns {
    pub fn run(self) -> Outcome {
        let plan: Plan = serde_json::from_str(&self.plan)
            .map_err(|error| Failure::usage("the plan is not valid; `hostler measure` makes it").because(&error))?;
        let mut printed = io::stdout().lock();
        let mut print = |line: &Line| {
            let line = serde_json::to_string(line).expect("a line is valid JSON");
            writeln!(printed, "{line}").and_then(|()| printed.flush()).during(|| "cannot print a result".to_owned())
        };
        for (at, (command, is_measured)) in order(&plan).into_iter().enumerate() {
            match one_run(&plan.commands[command], command, plan.shows_output) {
                Ok(run) if is_measured => print(&Line::Run(run))?,
                Ok(_) => {}
                Err((why, output)) => {
                    let round = u32::try_from(at / plan.commands.len()).unwrap_or(u32::MAX);
                    let number = if is_measured { round - plan.warmup } else { round } + 1;
                    print(&Line::Failed(FailedRun { command, number, is_warmup: !is_measured, why, output }))?;
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

/// The end of a run's output. A thread reads the output from a pipe, so it takes no memory, however long it is.
struct Tail {
    bytes: Arc<Mutex<Vec<u8>>>,
    /// Disconnected at the end of the output.
    ended: Receiver<()>,
}

impl Tail {
    fn of(mut output: PipeReader) -> Self {
        let bytes: Arc<Mutex<Vec<u8>>> = Arc::default();
        // Nothing is sent: only the end of the sender counts.
        let (sender, ended) = sync_channel(0);
        let kept = Arc::clone(&bytes);
        thread::spawn(move || {
            let _until_the_end = sender;
            let mut buffer = vec![0; 64 << 10];
            loop {
                match output.read(&mut buffer) {
                    Ok(0) => return,
                    Ok(read) => {
                        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                        kept.extend(&buffer[read.saturating_sub(TAIL_BYTES)..read]);
                        let excess = kept.len().saturating_sub(TAIL_BYTES);
                        kept.drain(..excess);
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(_) => return,
                }
            }
        });
        Self { bytes, ended }
    }

    /// Waits for the end of the output, and returns the last of it.
    fn text(&self) -> String {
        let _ = self.ended.recv_timeout(LEFT_BEHIND);
        let bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&bytes).trim_end().to_owned()
    }
}

/// Runs a command once. On failure, returns what happened and the end of the output.
fn one_run(argv: &[String], command: usize, shows_output: bool) -> Result<OneRun, (String, String)> {
    let cannot = |error: io::Error| (format!("cannot start {}: {error}", argv[0]), String::new());
    let (streams, tail) = streams(shows_output).map_err(cannot)?;
    let [stdout, stderr] = streams;
    let mut program = Command::new(&argv[0]);
    program.args(&argv[1..]).stdin(Stdio::null()).stdout(stdout).stderr(stderr);
    let start = Instant::now();
    let child = program.spawn().map_err(cannot)?;
    let (status, used) = wait_with_usage(child).map_err(cannot)?;
    let wall = start.elapsed();
    // It has the other end of the pipe.
    drop(program);
    // Also after a good run, so that no output of it disturbs the next one.
    let output = tail.map(|tail| tail.text()).unwrap_or_default();
    if !status.success() {
        return Err((why(status), output));
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

/// Where a run writes standard output and standard error.
fn streams(shows_output: bool) -> io::Result<([Stdio; 2], Option<Tail>)> {
    if shows_output {
        return Ok(([io::stderr().into(), io::stderr().into()], None));
    }
    let (reader, writer) = io::pipe()?;
    Ok(([writer.try_clone()?.into(), writer.into()], Some(Tail::of(reader))))
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
        let fails = |command: usize| one_run(&plan.commands[command], command, false).expect_err("it fails");
        assert_eq!(fails(0), ("exit code 3".to_owned(), "first\noops".to_owned()));
        assert_eq!(fails(1), ("ended by signal 9".to_owned(), String::new()));
        assert_eq!(fails(2).1.len(), TAIL_BYTES);
        let (missing, _) = one_run(&["/nowhere".to_owned()], 0, false).expect_err("there is no such program");
        assert!(missing.starts_with("cannot start /nowhere: No such file"), "{missing}");
    }

    #[test]
    fn process_that_a_run_leaves_behind_delays_nothing_and_can_still_write() {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        let path = file.path().display();
        let plan = plan(&[&format!("(sleep 0.3; echo late && echo written > {path}) & echo early; exit 4")], 1, 0, 0);
        let begun = Instant::now();
        assert_eq!(one_run(&plan.commands[0], 0, false), Err(("exit code 4".to_owned(), "early".to_owned())));
        assert!(begun.elapsed() < Duration::from_millis(300), "it waited for the other process");
        let until = Instant::now() + Duration::from_secs(20);
        while std::fs::read_to_string(file.path()).expect("readable") != "written\n" {
            assert!(Instant::now() < until, "the other process could not write");
            thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn run_is_timed() {
        let plan = plan(&["sleep 0.02"], 1, 0, 0);
        let run = one_run(&plan.commands[0], 0, false).expect("it ends");
        assert!(run.wall_ns >= 20_000_000 && run.max_rss_bytes > 0, "{run:?}");
    }
}
