//! `hostler step`, for programs of a job and for `mpirun`; and `hostler steps`, for agents.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use hostler_remote::Stream;
use hostler_remote::step::{Allocation, RemoteShell, Step as Wanted, StepError, VARIABLE, host, launch};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::broadcast;

use crate::args::conclude;
use crate::context::Context;
use crate::exit;
use crate::failure::{During, Failure, Outcome};
use crate::output::labelled::Labelled;
use crate::output::{Format, Output};

/// Signals that are passed on to a step.
const PASSED_ON: [fn() -> SignalKind; 6] = [
    SignalKind::interrupt,
    SignalKind::terminate,
    SignalKind::hangup,
    SignalKind::quit,
    SignalKind::user_defined1,
    SignalKind::user_defined2,
];

/// Run a command on another node of the current job
///
/// For programs in jobs started with --first-node. The command runs in the current directory, with the current
/// environment, as the job's user and within the job's limits. `hostler step` passes on standard input, output and
/// signals. When `hostler step` ends, the command is ended.
///
/// Exit codes: the exit code of the command; 125 if the node is unreachable; 126 or 127 if the node cannot execute the
/// command.
#[derive(Debug, Args)]
#[command(
    override_usage = "hostler step [OPTIONS] <NODE> <COMMAND>...\n       hostler step [OPTIONS] --all <COMMAND>..."
)]
pub(crate) struct Step {
    /// Run on all nodes of the job at once, including this one
    ///
    /// Each line of output starts with the node's name. If commands fail, the exit code is that of the failed node
    /// with the lowest rank.
    #[arg(long)]
    all: bool,

    /// Run the command without standard input
    #[arg(long)]
    no_input: bool,

    /// Name or rank of the node, then the command and the command's arguments
    #[arg(value_name = "NODE COMMAND", required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

impl Step {
    pub(crate) fn run(mut self, context: &Context) -> Outcome {
        let allocation = allocation()?;
        if self.all {
            return on_all(&context.output, &allocation, self.words);
        }
        let node = self.words.remove(0);
        let rank = rank_of(&allocation, &node.to_string_lossy())?;
        if self.words.is_empty() {
            return Err(Failure::usage("no command is given")
                .hint(format!("write the command after the node: hostler step {} hostname", node.display())));
        }
        on_one(&context.output, &allocation, rank, &Wanted { argv: self.words, has_input: !self.no_input })
    }
}

/// Acts as `ssh` for a launcher such as `mpirun`.
pub(crate) fn remote_shell(arguments: &[OsString]) -> ExitCode {
    let context = Context { output: Output::new(Format::Text), head: None };
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

/// The allocation of the job that contains this process.
fn allocation() -> Result<Allocation, Failure> {
    let path = std::env::var_os(VARIABLE).ok_or_else(|| {
        Failure::new(format!("not inside a job started with --first-node: {VARIABLE} is not set"))
            .hint("`hostler run --first-node -N 4 SCRIPT` starts SCRIPT on the first of four nodes; call this from SCRIPT")
            .exiting(exit::RUN_FAILED)
    })?;
    let path = Path::new(&path);
    Allocation::read(path)
        .during(|| format!("cannot read {}, which lists the nodes of this job", path.display()))
        .map_err(|failure| failure.exiting(exit::RUN_FAILED))
}

fn rank_of(allocation: &Allocation, node: &str) -> Result<u32, Failure> {
    allocation.rank_of(node).ok_or_else(|| {
        Failure::usage(format!("{node} is not a node of this job"))
            .hint(format!("the nodes of the job are {}; ranks start at 0", allocation.names()))
    })
}

/// Runs a future on a new runtime. Does not wait for a pending read of standard input.
fn finish<T>(future: impl Future<Output = T>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.during(|| "cannot start a runtime".to_owned())?;
    let value = runtime.block_on(future);
    runtime.shutdown_background();
    Ok(value)
}

/// Starts to receive the signals of this process, and sends their numbers to all subscribers.
fn signals() -> Result<broadcast::Sender<i32>, Failure> {
    let (sender, _) = broadcast::channel(16);
    for kind in PASSED_ON {
        let mut stream = signal(kind()).during(|| "cannot handle signals".to_owned())?;
        let sender = sender.clone();
        tokio::spawn(async move {
            while stream.recv().await.is_some() {
                let _ = sender.send(kind().as_raw_value());
            }
        });
    }
    Ok(sender)
}

fn on_one(output: &Output, allocation: &Allocation, rank: u32, wanted: &Wanted) -> Outcome {
    finish(async {
        let signals = signals()?;
        let write = |stream, bytes: &[u8]| {
            match stream {
                Stream::STDOUT => output.job_stdout(bytes),
                _ => output.job_stderr(bytes),
            }
            Ok(())
        };
        launch(allocation, rank, wanted, signals.subscribe(), write).await.map_err(|error| failure(&error))
    })?
}

fn on_all(output: &Output, allocation: &Allocation, argv: Vec<OsString>) -> Outcome {
    let wanted = Wanted { argv, has_input: false };
    let ends = finish(async {
        let signals = signals()?;
        let all = (0..).zip(&allocation.nodes).map(|(rank, place)| {
            let label = place.name.as_str();
            let mut stdout = Labelled::new(label, |lines: &[u8]| output.job_stdout(lines));
            let mut stderr = Labelled::new(label, |lines: &[u8]| output.job_stderr(lines));
            let (wanted, signals) = (&wanted, signals.subscribe());
            async move {
                let write = |stream, bytes: &[u8]| {
                    match stream {
                        Stream::STDOUT => stdout.add(bytes),
                        _ => stderr.add(bytes),
                    }
                    Ok(())
                };
                launch(allocation, rank, wanted, signals, write).await.map_err(|error| failure(&error))
            }
        });
        Ok::<_, Failure>(futures_util::future::join_all(all).await)
    })??;
    summarize(output, allocation, &ends)
}

/// Prints which nodes failed. Returns the exit code of the failed node with the lowest rank.
fn summarize(output: &Output, allocation: &Allocation, ends: &[Outcome]) -> Outcome {
    let mut first = exit::OK;
    for (place, end) in allocation.nodes.iter().zip(ends) {
        let code = match end {
            Ok(exit::OK) => continue,
            Ok(code) => {
                output.say(&format!("node {}: exit code {code}", place.name));
                *code
            }
            Err(failure) => {
                output.fail(failure);
                failure.exit
            }
        };
        first = if first == exit::OK { code } else { first };
    }
    Ok(first)
}

fn failure(error: &StepError) -> Failure {
    let code = if let StepError::Refused { code, .. } = error { *code } else { exit::RUN_FAILED };
    let failure = Failure::new(error.to_string()).because(error).exiting(code);
    match error {
        StepError::Unreachable { .. } => failure
            .hint("check that the port is open between the nodes; `hostler job` shows whether the job's task there still runs"),
        _ => failure,
    }
}

/// Accept the steps of a job on this node
#[derive(Debug, Args)]
#[command(hide = true)]
pub(crate) struct Steps {
    /// Program of the first node, and the program's arguments; empty on other nodes
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    argv: Vec<OsString>,
}

impl Steps {
    pub(crate) fn run(self) -> Outcome {
        let allocation = allocation()?;
        let program = (!self.argv.is_empty()).then_some(self.argv.as_slice());
        let what = || match program {
            Some([name, ..]) => format!("cannot start {}", Path::new(OsStr::new(name)).display()),
            _ => "cannot accept the steps of this job".to_owned(),
        };
        let code = host(&allocation, program).during(what)?;
        Ok(u8::try_from(code).unwrap_or(exit::FAILED))
    }
}
