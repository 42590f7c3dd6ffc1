//! What users see of a step: its outputs, its signals, and how its tasks ended.

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use hostler_model::{JobId, PathFacts};
use hostler_remote::step::{StepError, detected};
use hostler_remote::{Report, Stream};
use hostler_shepherd::merge::{Labels, Merger};
use hostler_slurm::ids::split_far_number;
use hostler_slurm::pmi::{Effect, Server};
use hostler_slurm::step_variables::StepFacts;
use hostler_sys::RawTerminal;
use nix::libc;

use super::super::{Ended, own_name, tell};
use super::asked::{Asked, NAME};
use crate::context::Context;
use crate::failure::Failure;
use crate::output::window_size;
use crate::steps::{Face, Then, failure};

/// A second Ctrl-C within this time ends the step.
const TWICE: Duration = Duration::from_secs(1);

/// Where outputs of tasks go.
enum Sink {
    Stdout,
    Stderr,
    File(File),
}

/// The position of the sink of each task's standard output and standard error, by rank; `None`: the output is dropped.
type SinkOf = [Vec<Option<usize>>; 2];

/// The position of the sink for this process's standard output, and of the one for its standard error.
const OWN: [usize; 2] = [0, 1];

/// The view of a step.
pub(super) struct Screen<'a> {
    context: &'a Context,
    /// Id of the step, for messages.
    step: String,
    is_labelled: bool,
    sinks: Vec<(Sink, Merger)>,
    sink_of: SinkOf,
    kills: bool,
    quits: bool,
    has_terminal: bool,
    interrupted: Option<Instant>,
    /// Why this process's output could not be written. The step then ends.
    lost: Option<Failure>,
    /// The manager of an MPI program's processes.
    manager: Option<Server>,
    /// Since when the MPI program cannot go on. The step then ends.
    aborted: Option<Instant>,
}

impl<'a> Screen<'a> {
    pub(super) fn new(
        context: &'a Context,
        asked: &Asked,
        facts: &StepFacts<'_>,
        nodes: &[String],
        manager: Option<Server>,
    ) -> Result<Self, Ended> {
        let tasks = facts.places.len();
        let width = tasks.saturating_sub(1).to_string().len();
        let (sinks, sink_of) = sinks(asked, facts, nodes)?;
        Ok(Self {
            context,
            step: format!("StepId={}.{}", facts.raw_id, facts.step),
            is_labelled: asked.label,
            sinks: sinks.into_iter().map(|sink| (sink, Merger::new(Labels::Numbers { width }))).collect(),
            sink_of,
            kills: asked.kill_on_bad_exit,
            quits: asked.quit_on_interrupt,
            has_terminal: asked.pty,
            interrupted: None,
            lost: None,
            manager,
            aborted: None,
        })
    }

    /// The error that ended the step because this process's output could not be written. After a closed pipe, the exit
    /// code is that of SIGPIPE, without a message.
    pub(super) fn lost_output(&mut self) -> Option<Ended> {
        let failure = self.lost.take()?;
        Some(if failure.is_closed_pipe() { Ended::silent(128 + libc::SIGPIPE as u8) } else { failure.into() })
    }

    /// Gives the keys of this process's terminal to the step's terminal, until the result is dropped.
    pub(super) fn begin_terminal(&self) -> Result<Option<RawTerminal>, Ended> {
        let begin =
            || RawTerminal::begin().map_err(|error| Ended::error(format!("cannot control the terminal: {error}")));
        (self.has_terminal && io::stdin().is_terminal()).then(begin).transpose()
    }

    /// Writes the incomplete last lines.
    pub(super) fn finish(&mut self) {
        for rank in 0..self.sink_of[0].len() {
            self.flush(rank);
        }
    }

    fn flush(&mut self, rank: usize) {
        for index in 0..2 {
            let Some(sink) = self.sink_of[index][rank] else { continue };
            let rest = self.sinks[sink].1.finish((rank, index));
            // The task has ended, so nobody needs the error.
            let _ = self.write(sink, &rest);
        }
    }

    fn write(&mut self, sink: usize, bytes: &[u8]) -> io::Result<()> {
        match &mut self.sinks[sink].0 {
            _ if bytes.is_empty() => {}
            Sink::File(file) => file.write_all(bytes)?,
            own => {
                let is_stdout = matches!(own, Sink::Stdout);
                if let Err(failure) = self.context.output.job_output(is_stdout, bytes) {
                    self.lost.get_or_insert(failure);
                    return Err(io::Error::other("the output of srun is lost"));
                }
            }
        }
        Ok(())
    }

    fn say(&self, text: &str) {
        tell(self.context, NAME, &[text.to_owned()]);
    }

    /// Ends the step of an MPI program. Once is enough, so its manager goes.
    fn abort(&mut self, why: &str) {
        if self.manager.take().is_some() {
            self.say(&format!("error: {why}"));
            self.aborted = Some(Instant::now());
        }
    }
}

impl Face for Screen<'_> {
    fn output(&mut self, rank: usize, stream: Stream, bytes: &[u8]) -> io::Result<()> {
        let index = usize::from(stream == Stream::STDERR);
        let Some(sink) = self.sink_of[index][rank] else { return Ok(()) };
        if !self.is_labelled {
            return self.write(sink, bytes);
        }
        let lines = self.sinks[sink].1.add((rank, index), bytes, Instant::now());
        self.write(sink, &lines)
    }

    fn message(&mut self, rank: usize, bytes: &[u8]) -> Vec<(usize, Vec<u8>)> {
        let effects = self.manager.as_mut().map(|manager| manager.receive(rank, bytes)).unwrap_or_default();
        let mut replies = Vec::new();
        for effect in effects {
            match effect {
                Effect::Send(rank, bytes) => replies.push((rank, bytes)),
                Effect::Abort(why) => self.abort(&why),
            }
        }
        replies
    }

    fn unread(&mut self, rank: usize) {
        self.abort(&format!("task {rank} does not read the answers to it"));
    }

    fn due(&self) -> Option<Instant> {
        self.sinks.iter().filter_map(|(_, merger)| merger.due()).chain(self.aborted).min()
    }

    fn write_due(&mut self) -> Then {
        let now = Instant::now();
        for sink in 0..self.sinks.len() {
            let lines = self.sinks[sink].1.write_due(now);
            // `lost` keeps an error of this process's output. The task's next output reports an error of a file.
            let _ = self.write(sink, &lines);
        }
        if self.aborted.take().is_some() || self.lost.is_some() { Then::End } else { Then::GoOn }
    }

    fn ended(&mut self, rank: usize, end: &Result<Report, StepError>) -> Then {
        self.flush(rank);
        if self.lost.is_some() {
            return Then::End;
        }
        if let Some(why) = self.manager.as_mut().and_then(|manager| manager.ended(rank)) {
            self.abort(&why);
        }
        let has_failed = end.as_ref().map_or(true, |report| report.code != 0);
        // Once is enough: further tasks fail because the step ends.
        if !has_failed || !std::mem::take(&mut self.kills) {
            return Then::GoOn;
        }
        self.say(&format!("Terminating {}", self.step));
        Then::End
    }

    fn signalled(&mut self, number: i32, running: &[usize]) -> Then {
        match number {
            libc::SIGWINCH => window_size().map_or(Then::GoOn, Then::Resize),
            libc::SIGTERM | libc::SIGQUIT => {
                self.say("forcing job termination");
                Then::End
            }
            libc::SIGINT => {
                let is_second = self.interrupted.replace(Instant::now()).is_some_and(|last| last.elapsed() < TWICE);
                if is_second || self.quits {
                    self.say(&format!("sending Ctrl-C to {}", self.step));
                    return Then::End;
                }
                self.say("interrupt (one more within 1 sec to abort)");
                self.say(&format!("{} {}: running", self.step, tasks(running)));
                Then::GoOn
            }
            number => Then::Signal(number),
        }
    }
}

/// The job and the index of the array's task that has a number, if this process belongs to the task.
pub(super) fn array_task(number: u64) -> (JobId, Option<u32>) {
    let value = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
    let own = || {
        let index = value("SLURM_ARRAY_TASK_ID")?.try_into().ok()?;
        Some((value("SLURM_ARRAY_JOB_ID").filter(|_| value("SLURM_JOB_ID") == Some(number))?, Some(index)))
    };
    let (job, index) = own().unwrap_or_else(|| split_far_number(number));
    (JobId(job), index)
}

/// Opens the files for the outputs of all tasks. Returns all sinks, and the position of each output's sink.
fn sinks(asked: &Asked, facts: &StepFacts<'_>, nodes: &[String]) -> Result<(Vec<Sink>, SinkOf), Ended> {
    let mut sinks = vec![Sink::Stdout, Sink::Stderr];
    let mut files = BTreeMap::new();
    let user = own_name().unwrap_or_default();
    let (job, index) = array_task(facts.raw_id);
    let expanded = |pattern: &str, rank: usize| {
        let place = facts.places[rank];
        let paths = PathFacts {
            job,
            number: facts.raw_id,
            index: index.unwrap_or_default(),
            name: asked.options.job_name.as_deref().unwrap_or_default(),
            user: &user,
            node: &nodes[place],
            node_rank: u32::try_from(place).unwrap_or_default(),
            rank: rank as u64,
            step: Some(facts.step),
            restarts: 0,
        };
        paths.expand(pattern)
    };
    let mut sink = |pattern: Option<&str>, index: usize, rank: usize| -> Result<Option<usize>, Ended> {
        match pattern {
            None | Some("all" | "") => return Ok(Some(OWN[index])),
            Some("none") => return Ok(None),
            Some(text) => {
                if let Ok(only) = text.parse::<usize>() {
                    return Ok((only == rank).then_some(OWN[index]));
                }
            }
        }
        let path = PathBuf::from(expanded(pattern.unwrap_or_default(), rank));
        if let Some(open) = files.get(&path) {
            return Ok(Some(*open));
        }
        let append = asked.options.append == Some(true);
        let opened = OpenOptions::new().create(true).write(true).append(append).truncate(!append).open(&path);
        let file = opened.map_err(|error| Ended::error(format!("Unable to open {}: {error}", path.display())))?;
        sinks.push(Sink::File(file));
        files.insert(path, sinks.len() - 1);
        Ok(Some(sinks.len() - 1))
    };
    let (output, error) = (asked.options.output.as_deref(), asked.options.error.as_deref());
    let mut all = [Vec::new(), Vec::new()];
    for rank in 0..facts.places.len() {
        all[0].push(sink(output, 0, rank)?);
        all[1].push(sink(error.or(output), 1, rank)?);
    }
    Ok((sinks, all))
}

/// Prints which tasks of a step failed, and returns the largest exit code. `places`: the node of each task.
pub(super) fn summarize(context: &Context, step: &str, places: &[&str], ends: &[Result<Report, StepError>]) -> u8 {
    let mut worst = 0;
    let mut groups: BTreeMap<(&str, String), Vec<usize>> = BTreeMap::new();
    for (rank, end) in ends.iter().enumerate() {
        let (code, text) = match end {
            Ok(report) if report.code == 0 => continue,
            Ok(report) => (u8::try_from(report.code).unwrap_or(u8::MAX), how(report)),
            Err(StepError::Refused { code, message }) => {
                // The codes of the errors for no such file and for no permission.
                let number = match code {
                    127 => libc::ENOENT,
                    126 => libc::EACCES,
                    _ => 1,
                };
                let name = format!("slurmstepd-{}", places[rank]);
                tell(context, &name, &[format!("error: {}", without_place(message, places[rank]))]);
                (u8::try_from(number).unwrap_or(1), format!("Exited with exit code {number}"))
            }
            Err(error) => {
                let failure = failure(error);
                tell(context, NAME, &[format!("error: {}", failure.summary())]);
                worst = worst.max(1);
                continue;
            }
        };
        worst = worst.max(code);
        groups.entry((places[rank], text)).or_default().push(rank);
    }
    for ((node, text), ranks) in groups {
        tell(context, NAME, &[format!("error: {node}: {}: {text}", tasks(&ranks))]);
        if text == KILLED_FOR_MEMORY {
            tell(context, "slurmstepd", &[detected(ranks.len() as u64, step)]);
        }
    }
    worst
}

/// The message of a node about a program that did not start, in Slurm's words: without the node's name and the error's number.
fn without_place(message: &str, node: &str) -> String {
    let text = message.strip_prefix(&format!("node {node} cannot start ")).map(|rest| format!("execve(): {rest}"));
    let text = text.unwrap_or_else(|| message.to_owned());
    text.split(" (os error ").next().unwrap_or(&text).to_owned()
}

/// How a process failed that the kernel killed for memory.
const KILLED_FOR_MEMORY: &str = "Out Of Memory";

/// How a process failed.
fn how(report: &Report) -> String {
    if report.out_of_memory {
        return KILLED_FOR_MEMORY.to_owned();
    }
    let Some(signal) = report.signal else { return format!("Exited with exit code {}", report.code) };
    // SAFETY: the text belongs to the C library, and lasts until the next call by this thread.
    let text = unsafe { CStr::from_ptr(libc::strsignal(signal)) };
    text.to_string_lossy().into_owned()
}

/// Names tasks: `task 0`, `tasks 0-2,4`.
fn tasks(ranks: &[usize]) -> String {
    let range = |run: &[usize]| match run {
        [one] => one.to_string(),
        run => format!("{}-{}", run[0], run[run.len() - 1]),
    };
    let list: Vec<String> = ranks.chunk_by(|a, b| a + 1 == *b).map(range).collect();
    let word = if ranks.len() == 1 { "task" } else { "tasks" };
    format!("{word} {}", list.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_are_named_by_ranges() {
        assert_eq!(tasks(&[0]), "task 0");
        assert_eq!(tasks(&[0, 1, 2, 4]), "tasks 0-2,4");
        let report = |code, signal| Report { code, signal, ..Report::default() };
        assert_eq!(how(&report(3, None)), "Exited with exit code 3");
        assert_eq!(how(&report(137, Some(9))), "Killed");
    }
}
