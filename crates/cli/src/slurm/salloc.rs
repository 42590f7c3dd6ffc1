//! `salloc`: holds resources while a command of this machine runs.

use std::ffi::OsString;

use hostler_model::{Environment, SignalNumber, text_of};
use hostler_slurm::job_options::{JobOptions, Key, MISTAKE, SALLOC_OPTIONS, SALLOC_VARIABLES};

use super::allocating::{Speech, Wanted, describe, hold, is_of_a_job, parse, variables};
use super::node_files::{apply, place_by_file};
use super::{Ended, Outcome, VERSION, heterogeneous, job_options, print, tell};
use crate::commands::alloc::attend;
use crate::context::{Context, block_on};
use crate::steps;

pub(crate) const NAME: &str = "salloc";

const SPEECH: Speech = Speech { name: NAME, failed: "Job submit/allocate failed", is_chatty: true };

/// The system's text for a program that does not exist.
const NOT_FOUND: &str = "No such file or directory";

const USAGE: &str = "Usage: salloc [OPTIONS(0)...] [ : [OPTIONS(N)...]] [command(0) [args(0)...]]\n\
    \n\
    Holds resources while a command or a shell runs on this machine. The options are those of Slurm's salloc; `hostler\n\
    alloc` does the same with Hostler's own options.\n";

/// What `salloc` does besides describing a job.
#[derive(Debug, Default)]
struct Own {
    no_shell: bool,
    immediate: bool,
}

pub(crate) fn run(context: &Context, args: Vec<OsString>) -> Outcome {
    let called = args.first().cloned();
    let all = job_options(SALLOC_OPTIONS);
    let given = parse(NAME, &all, args)?;
    let (mut options, mut own) = (JobOptions::default(), Own::default());
    for (name, key) in SALLOC_VARIABLES {
        if let Some(value) = std::env::var_os(format!("SALLOC_{name}")) {
            apply(&mut options, *key, Some(&value))?;
        }
    }
    for (key, value) in &given.options {
        if matches!(key, Key::Own(..)) {
            apply(&mut options, *key, value.as_ref())?;
        }
        match key {
            Key::Own("help" | "usage", _) => return Ok(print(context, USAGE)),
            Key::Own("version", _) => return Ok(print(context, &format!("{VERSION}\n"))),
            Key::Own("no-shell", _) => own.no_shell = true,
            Key::Own("immediate", _) => own.immediate = true,
            Key::Own("kill-command", _) => check_kill_command(value.as_ref())?,
            key => apply(&mut options, *key, value.as_ref())?,
        }
    }
    place_by_file(&mut options)?;
    if given.operands.first().is_some_and(|word| word == ":") {
        return Err(heterogeneous());
    }
    let command = if given.operands.is_empty() { vec![shell()] } else { given.operands };
    let default_name = if own.no_shell { "no-shell" } else { "interactive" };
    let spec = describe(&options, SPEECH, &command, default_name, called.as_ref())?;
    let wanted = Wanted { options, spec, immediate: own.immediate, stays: own.no_shell };
    let client = context.watching_client()?;
    let outcome = async { Ok(allocate(context, &client, &wanted, &command, own.no_shell).await) };
    block_on(outcome)?
}

async fn allocate(
    context: &Context,
    client: &hostler_client::Client,
    wanted: &Wanted,
    command: &[OsString],
    no_shell: bool,
) -> Outcome {
    let mut signals = steps::signals()?;
    let mut held = match hold(context, client, wanted, SPEECH, &mut signals).await? {
        Ok(held) => held,
        Err(code) => return Ok(code),
    };
    if no_shell {
        variables(&mut held, &wanted.spec)?;
        held.leave();
        return Ok(0);
    }
    let variables = variables(&mut held, &wanted.spec)?;
    let id = held.job.summary.id;
    let command: Vec<String> = command.iter().map(text_of).collect();
    let told = |text: &str| {
        if !wanted.options.quiet {
            tell(context, NAME, &[text.to_owned()]);
        }
    };
    let revoked = || told(&format!("Job allocation {id} has been revoked."));
    let ended = attend(&mut held, &command, &clean(variables), &mut signals, revoked).await;
    let code = ended.unwrap_or_else(|failure| {
        let causes = failure.causes().join(": ");
        let text = match causes.starts_with(NOT_FOUND) {
            true => format!("_fork_command: Unable to find command \"{}\"", command[0]),
            false => format!("{}: {causes}", failure.summary()),
        };
        tell(context, NAME, &[format!("error: {text}")]);
        1
    });
    told(&format!("Relinquishing job allocation {id}"));
    held.release(client, code).await?;
    Ok(code)
}

/// Adds empty values for the variables of another job that contains this process; they are then removed.
fn clean(variables: Environment) -> Vec<(String, Option<String>)> {
    let of_another = std::env::vars().map(|(name, _)| name);
    let of_another = of_another.filter(|name| is_of_a_job(name) && !variables.contains_key(name));
    let removed: Vec<_> = of_another.map(|name| (name, None)).collect();
    variables.into_iter().map(|(name, value)| (name, Some(value))).chain(removed).collect()
}

/// Refuses a signal that does not exist.
fn check_kill_command(signal: Option<&OsString>) -> Result<(), Ended> {
    let is_signal = |signal: &OsString| signal.to_str().is_some_and(|text| text.parse::<SignalNumber>().is_ok());
    if signal.is_none_or(is_signal) {
        return Ok(());
    }
    Err(Ended { code: MISTAKE, ..Ended::error("Invalid --kill-command specification") })
}

/// The user's shell.
fn shell() -> OsString {
    std::env::var_os("SHELL")
        .filter(|shell| shell.to_string_lossy().starts_with('/'))
        .unwrap_or_else(|| "/bin/sh".into())
}
