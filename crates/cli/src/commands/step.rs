//! `hostler step`, for programs of a job and for `mpirun`; and `hostler steps`, for agents.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use hostler_model::plural;
use hostler_remote::step::{
    Allocation, Control, HostEnd, Process, RemoteShell, Step as Wanted, StepError, Surroundings, host, launch, layout,
};
use hostler_remote::{Report, StepClaim, Stream};
use hostler_shepherd::Cause;
use hostler_shepherd::merge::{Labels, Merger};
use nix::libc;
use tokio::sync::broadcast;

use crate::command_words::check_command;
use crate::context::Context;
use crate::exit;
use crate::failure::{During, Failure, Outcome};
use crate::global_options::conclude;
use crate::here::here;
use crate::output::{Format, Output};
use crate::steps::{self, Face, Plan, Task, Then, allocation, failure, finish, rank_of};

/// A second Ctrl-C within this time ends a step with several tasks.
const TWICE: Duration = Duration::from_secs(1);

/// Run a command on other nodes of the current job
///
/// For programs in jobs started with --first-node, and for commands of `hostler alloc`. The command runs in the current
/// directory, with the current environment, as the job's user and within the job's limits. `hostler step` passes on
/// standard input, output and signals. When `hostler step` ends, the command is ended.
///
/// With --tasks or --nodes, several processes run the command. Each has its rank in RANK, LOCAL_RANK and WORLD_SIZE.
/// Ctrl-C then shows which tasks run, and a second one within a second ends them.
///
/// Exit codes: the exit code of the command, or the largest one of several; 125 if a node is unreachable; 126 or 127 if
/// the node cannot execute the command.
#[derive(Debug, Args)]
#[command(
    override_usage = "hostler step [OPTIONS] <NODE> <COMMAND>...\n       hostler step [OPTIONS] --all <COMMAND>...\n       hostler step [OPTIONS] --tasks <N> <COMMAND>..."
)]
pub struct Step {
    /// Run on all nodes of the job at once, including this one
    ///
    /// Each line of output starts with the node's name. If commands fail, the exit code is that of the failed node
    /// with the lowest rank.
    #[arg(long, conflicts_with_all = ["tasks", "nodes"])]
    all: bool,

    /// Run this many processes, divided evenly among the nodes [default: one per node]
    #[arg(short = 'n', long, value_name = "N", value_parser = crate::flags::number::<1, 100_000>)]
    tasks: Option<u32>,

    /// Use this many nodes of the job [default: as many as --tasks needs, at most all]
    #[arg(short = 'N', long, value_name = "N", value_parser = crate::flags::at_least_one)]
    nodes: Option<u32>,

    /// Label each line of output with the rank of the process
    #[arg(short = 'l', long)]
    label: bool,

    /// End all processes when one fails
    #[arg(long)]
    kill_on_failure: bool,

    /// Run the command without standard input
    #[arg(long)]
    no_input: bool,

    /// Name or rank of the node, then the command and the command's arguments
    #[arg(value_name = "NODE COMMAND", required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

impl Step {
    pub fn run(mut self, context: &Context) -> Outcome {
        let allocation = allocation()?;
        check_command(context, "step", &self.words)?;
        if self.all {
            let one_each = vec![1; allocation.nodes.len()];
            return on_several(&context.output, &allocation, &one_each, &self);
        }
        if self.tasks.is_some() || self.nodes.is_some() {
            let counts = self.counts(&allocation)?;
            return on_several(&context.output, &allocation, &counts, &self);
        }
        let node = self.words.remove(0);
        check_command(context, "step", &self.words)?;
        let rank = rank_of(&allocation, &node.to_string_lossy())?;
        if self.words.is_empty() {
            return Err(Failure::usage("no command is given")
                .hint(format!("write the command after the node: hostler step {} hostname", node.display())));
        }
        on_one(&context.output, &allocation, rank, &Wanted { argv: self.words, has_input: !self.no_input })
    }

    /// The number of tasks on each node.
    fn counts(&self, allocation: &Allocation) -> Result<Vec<u32>, Failure> {
        let all = u32::try_from(allocation.nodes.len()).unwrap_or(u32::MAX);
        let nodes = self.nodes.unwrap_or_else(|| self.tasks.unwrap_or(all).min(all));
        if nodes > all {
            return Err(Failure::usage(format!("--nodes {nodes}: the job has {all}"))
                .hint(format!("the nodes of the job are {}", allocation.names())));
        }
        let tasks = self.tasks.unwrap_or(nodes);
        if tasks < nodes {
            return Err(Failure::usage(format!(
                "{} cannot run on {nodes} nodes; each node needs one",
                plural(tasks, "task")
            )));
        }
        Ok(layout(tasks, nodes))
    }
}

/// Acts as `ssh` for a launcher such as `mpirun`.
pub(crate) fn remote_shell(arguments: &[OsString]) -> ExitCode {
    let context = Context { output: Output::new(Format::Text), head: None, wait_for_head: None };
    let run = || {
        let wanted = RemoteShell::parse(arguments).map_err(|why| {
            Failure::usage(format!("not a valid command line of ssh: {why}"))
                .hint("launchers such as mpirun use this; call `hostler step` instead")
        })?;
        let allocation = allocation()?;
        let rank = rank_of(&allocation, &wanted.host)?;
        on_one(&context.output, &allocation, rank, &Wanted { argv: wanted.argv(), has_input: !wanted.no_input })
    };
    conclude(&context, run())
}

fn on_one(output: &Output, allocation: &Allocation, rank: u32, wanted: &Wanted) -> Outcome {
    finish(async {
        let mut signals = steps::signals()?;
        let (controls, control) = broadcast::channel(16);
        tokio::spawn(async move {
            while let Some(number) = signals.recv().await {
                let _ = controls.send(Control::Signal(number));
            }
        });
        let write = |stream, bytes: &[u8]| {
            match stream {
                Stream::STDOUT => output.job_stdout(bytes),
                _ => output.job_stderr(bytes),
            }
            Ok(())
        };
        launch(allocation, rank, wanted, control, write).await.map_err(|error| failure(&error))
    })?
}

/// Runs a step with this many tasks on each node.
fn on_several(output: &Output, allocation: &Allocation, counts: &[u32], step: &Step) -> Outcome {
    let directory = here()?;
    let surroundings = Surroundings::new(allocation, std::env::vars_os(), directory);
    let world_size = counts.iter().map(|count| u64::from(*count)).sum();
    let mut tasks = Vec::new();
    for (node, count) in (0..).zip(counts) {
        for local in 0..*count {
            let rank = tasks.len() as u64;
            let variables =
                if step.all { Vec::new() } else { hostler_shepherd::ranks::variables(rank, local, world_size) };
            let variables = variables.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
            let process = Process { argv: step.words.clone(), variables, terminal: None, messages: None };
            tasks.push(Task { node, process, has_input: !step.all && !step.no_input });
        }
    }
    let width = tasks.len().saturating_sub(1).to_string().len();
    let labels = match (step.all, step.label) {
        (true, _) => Some(Labels::Names(allocation.nodes.iter().map(|node| node.name.to_string()).collect())),
        (false, true) => Some(Labels::Numbers { width }),
        (false, false) => None,
    };
    let mut face = Screen {
        output,
        labelled: labels.map(|labels| [Merger::new(labels.clone()), Merger::new(labels)]),
        kills: step.kill_on_failure,
        passes_on: step.all,
        interrupted: None,
    };
    let claim = StepClaim {
        name: Path::new(&step.words[0]).file_name().unwrap_or(&step.words[0]).to_string_lossy().into_owned(),
        nodes: allocation
            .nodes
            .iter()
            .zip(counts)
            .filter(|(_, count)| **count > 0)
            .map(|(it, _)| it.name.clone())
            .collect(),
        tasks: u32::try_from(tasks.len()).unwrap_or(u32::MAX),
        // Steps of this command may overlap.
        cpus: Vec::new(),
    };
    let (tasks, ends) = finish(async {
        let signals = steps::signals()?;
        let links = steps::connect(allocation, tasks.iter().map(|task| task.node), None).await;
        let links = links.map_err(|error| failure(&error))?;
        let claimed = links[&0].claim(claim).await.map_err(|error| failure(&error))?;
        let plan = Plan { surroundings: &surroundings.of_step(&claimed), tasks, wait: None };
        let ends = steps::run(&plan, &links, &mut face, signals).await;
        claimed.finish(steps::outcome(&ends)).await;
        Ok::<_, Failure>((plan.tasks, ends))
    })??;
    summarize(output, allocation, &tasks, &ends, step.all)
}

/// Shows a step on this process's outputs.
struct Screen<'a> {
    output: &'a Output,
    /// Standard output and standard error, if their lines are labelled.
    labelled: Option<[Merger; 2]>,
    kills: bool,
    /// Whether the first Ctrl-C goes to the tasks.
    passes_on: bool,
    interrupted: Option<Instant>,
}

impl Face for Screen<'_> {
    fn output(&mut self, rank: usize, stream: Stream, bytes: &[u8]) -> io::Result<()> {
        let index = usize::from(stream == Stream::STDERR);
        match &mut self.labelled {
            Some(labelled) => {
                let lines = labelled[index].add((rank, 0), bytes, Instant::now());
                self.write(index, &lines);
            }
            None => self.write(index, bytes),
        }
        Ok(())
    }

    fn ended(&mut self, rank: usize, end: &Result<Report, StepError>) -> Then {
        self.write_from(|merger| merger.finish((rank, 0)));
        let has_failed = end.as_ref().map_or(true, |report| report.code != 0);
        if has_failed && self.kills { Then::End } else { Then::GoOn }
    }

    fn signalled(&mut self, number: i32, running: &[usize]) -> Then {
        if number != libc::SIGINT || self.passes_on {
            return Then::Signal(number);
        }
        if self.interrupted.replace(Instant::now()).is_some_and(|last| last.elapsed() < TWICE) {
            return Then::End;
        }
        let ranks: Vec<String> = running.iter().map(ToString::to_string).collect();
        self.output
            .say(&format!("running: tasks {}; press Ctrl-C again within a second to end them", ranks.join(", ")));
        Then::GoOn
    }

    fn due(&self) -> Option<Instant> {
        self.labelled.iter().flatten().filter_map(Merger::due).min()
    }

    fn write_due(&mut self) -> Then {
        let now = Instant::now();
        self.write_from(|merger| merger.write_due(now));
        Then::GoOn
    }
}

impl Screen<'_> {
    /// Writes what the mergers of both outputs return.
    fn write_from(&mut self, next: impl Fn(&mut Merger) -> Vec<u8>) {
        let texts: Vec<_> = self.labelled.iter_mut().flatten().map(next).collect();
        for (index, text) in texts.iter().enumerate() {
            self.write(index, text);
        }
    }

    fn write(&self, index: usize, bytes: &[u8]) {
        match index {
            _ if bytes.is_empty() => {}
            0 => self.output.job_stdout(bytes),
            _ => self.output.job_stderr(bytes),
        }
    }
}

/// Prints which tasks failed. Returns the largest exit code; with `first`, that of the failed task with the lowest rank.
fn summarize(
    output: &Output,
    allocation: &Allocation,
    tasks: &[Task],
    ends: &[Result<Report, StepError>],
    first: bool,
) -> Outcome {
    let mut worst = exit::OK;
    for (rank, (task, end)) in tasks.iter().zip(ends).enumerate() {
        let node = &allocation.nodes[task.node as usize].name;
        let who = if first { format!("node {node}") } else { format!("task {rank} on node {node}") };
        let code = match end {
            Ok(report) if report.code == 0 => continue,
            Ok(report) => {
                output.say(&format!("{who}: exit code {}", report.code));
                u8::try_from(report.code).unwrap_or(u8::MAX)
            }
            Err(error) => {
                let failure = failure(error);
                output.fail(&failure);
                failure.exit
            }
        };
        worst = match (first, worst) {
            (true, exit::OK) => code,
            (true, worst) => worst,
            (false, worst) => worst.max(code),
        };
    }
    Ok(worst)
}

/// Accept the steps of a job on this node
#[derive(Debug, Args)]
#[command(hide = true)]
pub struct Steps {
    /// Program of the first node, and the program's arguments; empty on other nodes
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    argv: Vec<OsString>,
}

impl Steps {
    pub fn run(self) -> Outcome {
        let allocation = allocation()?;
        let program = (!self.argv.is_empty()).then_some(self.argv.as_slice());
        let what = || match program {
            Some([name, ..]) => format!("cannot start {}", Path::new(OsStr::new(name)).display()),
            _ => "cannot accept the steps of this job".to_owned(),
        };
        let ends = [
            (Cause::TimeLimit, " DUE TO TIME LIMIT"),
            (Cause::Cancelled, ""),
            (Cause::Superseded, " DUE TO JOB REQUEUE"),
        ];
        let ends: Vec<_> = ends.iter().filter_map(|(cause, why)| Some((cause.signal_to_host()?, *why))).collect();
        match host(&allocation, program, &ends).during(what)? {
            HostEnd::Code(code) => Ok(u8::try_from(code).unwrap_or(exit::FAILED)),
            HostEnd::Abandoned => Err(Failure::new(format!(
                "the client that held this allocation was gone for {} s, so the allocation has ended",
                HostEnd::HOLDER_BOUND.as_secs()
            ))),
        }
    }
}
