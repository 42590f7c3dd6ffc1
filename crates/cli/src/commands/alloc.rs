//! `hostler alloc`: holds resources while a command of this machine runs.

use std::os::unix::process::CommandExt;
use std::process::Stdio;

use clap::Args;
use hostler_model::{Work, os_string_of};
use nix::libc;
use serde_json::json;

use super::run::{own_directory, own_environment, own_umask};
use crate::command_words::check_command;
use crate::context::{Context, block_on};
use crate::exit;
use crate::failure::{During, Failure, Outcome};
use crate::flags::{JobFlags, words};
use crate::passed_on::PassedOn;
use crate::steps;
use crate::steps::holding::{Held, Wait, request};

/// Hold resources while a command or a shell runs on this machine
///
/// Waits until the resources are free, then runs the command here with the variables of a job, such as HOSTLER_NODE_LIST.
/// `hostler step` and `mpirun` start processes on the nodes. When the command ends, the allocation ends.
///
/// Exit codes: the exit code of the command; 125 if no resources could be allocated.
#[derive(Debug, Args)]
pub struct Alloc {
    #[command(flatten)]
    flags: JobFlags,

    /// Keep the allocation when this command is lost, e.g. because the terminal closes
    ///
    /// The allocation then lasts until its time limit or until `hostler cancel`.
    #[arg(long)]
    keep: bool,

    /// Command and arguments [default: a shell]
    #[arg(value_name = "COMMAND", trailing_var_arg = true, value_parser = words())]
    command: Vec<String>,
}

impl Alloc {
    pub fn run(self, context: &Context) -> Outcome {
        check_command(context, "alloc", &self.command)?;
        let command = if self.command.is_empty() { vec![shell()] } else { self.command.clone() };
        let program = command[0].rsplit('/').next().unwrap_or_default().to_owned();
        let work = Work::command(command.clone(), own_directory()?);
        let mut spec = self.flags.spec(work, &program, own_environment(&PassedOn::All))?;
        spec.umask = Some(own_umask());
        if spec.array.is_some() || spec.pty.is_some() {
            return Err(Failure::usage("an allocation has no array and no terminal of its own"));
        }
        let client = context.watching_client()?;
        let outcome = block_on(async {
            let mut signals = steps::signals()?;
            let requested = request(&client, spec, self.keep).await?;
            let id = requested.job;
            let tell = |wait| match wait {
                Wait::Pending(job) => context.output.say(&format!("job {job} waits; `hostler why {job}` says why")),
                Wait::Granted { .. } => {}
            };
            let held = tokio::select! {
                held = requested.hold(&client, tell) => held,
                Some(number) = signals.recv() => {
                    client.act(id, None, hostler_proto::api::JobAction::Cancel).await?;
                    return Ok(exit::SIGNAL_BASE + number as u8);
                }
            };
            let mut held = held?;
            let variables = held.lay_out()?;
            context.output.say(&format!("job {id}: {}", held.allocation.names()));
            let variables: Vec<_> = variables.into_iter().map(|(name, value)| (name, Some(value))).collect();
            let lost = || {
                let why = format!("job {id} has ended, so its nodes are lost; `hostler job {id}` says why");
                context.output.say(&why);
            };
            let code = attend(&mut held, &command, &variables, &mut signals, lost).await?;
            held.release(&client, code).await?;
            if context.output.is_json() {
                context.output.json(&json!({ "id": id, "exit_code": code }));
            }
            Ok(code)
        });
        outcome.map_err(|failure: Failure| failure.exiting(exit::RUN_FAILED))
    }
}

/// The user's shell.
fn shell() -> String {
    std::env::var("SHELL").ok().filter(|shell| shell.starts_with('/')).unwrap_or_else(|| "/bin/sh".to_owned())
}

/// Runs the command on this machine with changed variables, and returns its exit code. Calls `lost` if the allocation ends
/// before the command.
pub(crate) async fn attend(
    held: &mut Held,
    command: &[String],
    variables: &[(String, Option<String>)],
    signals: &mut tokio::sync::mpsc::Receiver<i32>,
    lost: impl Fn(),
) -> Outcome {
    let mut child = start(command, variables)?;
    let mut is_revoked = false;
    loop {
        tokio::select! {
            status = child.wait() => {
                return Ok(exit::of(status.during(|| format!("cannot wait for {}", command[0]))?));
            }
            Some(number) = signals.recv() => pass_on(&child, number),
            () = held.revoked(), if !is_revoked => {
                is_revoked = true;
                lost();
            }
        }
    }
}

/// Starts a command that uses an allocation.
fn start(command: &[String], variables: &[(String, Option<String>)]) -> Result<tokio::process::Child, Failure> {
    let mut process = std::process::Command::new(os_string_of(&command[0]));
    process.args(command[1..].iter().map(|word| os_string_of(word))).stdin(Stdio::inherit());
    for (name, value) in variables {
        match value {
            Some(value) => process.env(name, os_string_of(value)),
            None => process.env_remove(name),
        };
    }
    // These would describe another job: the one in which this process runs.
    for name in ["HOSTLER_NODE", "HOSTLER_NODE_RANK", "HOSTLER_CPU_IDS", "HOSTLER_ARRAY_INDEX", "HOSTLER_ARRAY_LEN"] {
        process.env_remove(name);
    }
    process.arg0(os_string_of(&command[0]));
    tokio::process::Command::from(process).spawn().during(|| format!("cannot start {}", command[0]))
}

/// Passes on a signal to the command. The keys of a terminal signal the command too, because it is in the same group.
fn pass_on(child: &tokio::process::Child, number: i32) {
    let is_by_terminal = matches!(number, libc::SIGINT | libc::SIGQUIT);
    let pid = child.id().and_then(|pid| i32::try_from(pid).ok());
    let (Some(pid), Ok(signal)) = (pid, nix::sys::signal::Signal::try_from(number)) else { return };
    if !is_by_terminal {
        let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), signal);
    }
}
