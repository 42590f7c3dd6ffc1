//! `hostler gateway apply` and `confirm`, and the guard process that rolls back.

use std::io::{self, IsTerminal, Read};
use std::os::fd::AsFd;
use std::time::Duration;

use clap::Args;
use hostler_cli::context::Context;
use hostler_cli::exit;
use hostler_cli::failure::{Failure, Outcome};
use hostler_cli::flags::TimeLimit;
use hostler_gateway::{Applied, Gateway, Trial};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::termios::{FlushArg, tcflush};
use serde_json::json;

use super::failure;
use super::file::File;
use super::plan::warnings;

/// How often `apply` checks for a confirmation from elsewhere, in milliseconds.
const LOOK_MS: u16 = 200;

/// Apply the configuration file; roll back unless you confirm in time
///
/// Confirm the change with Enter, or from another terminal with `hostler gateway confirm`. Without a confirmation in
/// time, the gateway rolls back the whole change, even if your connection and this command have ended. Therefore a
/// change cannot lock you out. If a command of the change fails, everything is rolled back at once.
#[derive(Debug, Args)]
pub(super) struct Apply {
    #[command(flatten)]
    file: File,

    /// Time until the rollback if you do not confirm the change
    #[arg(long, value_name = "TIME", default_value = "60s", conflicts_with = "yes")]
    confirm_within: TimeLimit,

    /// Keep the change without waiting for a confirmation
    #[arg(short, long)]
    yes: bool,
}

/// Confirm and keep the change that `apply` has made
#[derive(Debug, Args)]
pub(super) struct Confirm {}

/// Roll back unless the change is confirmed; for use by `apply`
#[derive(Debug, Args)]
pub(super) struct Guard {}

impl Apply {
    pub(super) fn run(self, context: &Context, gateway: &Gateway) -> Outcome {
        let output = &context.output;
        let setup = self.file.read(gateway)?;
        let obstacles = gateway.plan(&setup).map_err(failure)?.obstacles;
        warnings(&setup.description, &obstacles).iter().for_each(|warning| output.say(&format!("warning: {warning}")));
        let within = (!self.yes).then_some(self.confirm_within.0);
        let applied = gateway.apply(&setup, within).map_err(failure)?;
        if output.is_json() {
            output.json(&applied);
        }
        match applied {
            Applied::Unchanged { .. } => output.say("nothing to change; the files are loaded again"),
            Applied::Confirmed { commands } => {
                tell(context, &commands);
                report_kept_change(context, gateway);
            }
            Applied::Trial { commands, confirm_within_secs } => {
                tell(context, &commands);
                return wait(context, gateway, confirm_within_secs);
            }
        }
        Ok(exit::OK)
    }
}

impl Confirm {
    pub(super) fn run(self, context: &Context, gateway: &Gateway) -> Outcome {
        gateway.confirm().map_err(failure)?;
        if context.output.is_json() {
            context.output.json(&json!({ "state": "confirmed", "after_boot": gateway.starts_at_boot() }));
        }
        report_kept_change(context, gateway);
        Ok(exit::OK)
    }
}

impl Guard {
    pub(super) fn run(self, gateway: &Gateway) -> Outcome {
        gateway.guard().map_err(failure)?;
        Ok(exit::OK)
    }
}

/// Prints the commands that ran.
pub(super) fn tell(context: &Context, commands: &[String]) {
    for command in commands {
        context.output.say(&format!("done: {command}"));
    }
}

/// Prints that the change is kept, and whether it survives a boot.
fn report_kept_change(context: &Context, gateway: &Gateway) {
    let boot = match gateway.starts_at_boot() {
        true => "the system restores the gateway at boot",
        false => "this machine does not run systemd: call `hostler gateway start` after a boot",
    };
    context.output.say(&format!("the gateway is confirmed; {boot}"));
}

/// Waits for Enter if stdin is a terminal, or for a confirmation from elsewhere.
fn wait(context: &Context, gateway: &Gateway, secs: u64) -> Outcome {
    let output = &context.output;
    if !io::stdin().is_terminal() {
        output.say(&format!("run `hostler gateway confirm` within {secs} s, or everything is rolled back"));
        return Ok(exit::OK);
    }
    // Discard input from before the change: it does not show that the connection still works.
    let _ = tcflush(io::stdin(), FlushArg::TCIFLUSH);
    output.say(&format!("press Enter within {secs} s to confirm, or everything is rolled back"));
    let mut listens = true;
    loop {
        match gateway.trial().map_err(failure)? {
            Some(Trial::Waits { secs: 1.. }) if listens => {
                if wait_for_enter(&mut listens) {
                    gateway.confirm().map_err(failure)?;
                }
            }
            Some(_) => std::thread::sleep(Duration::from_millis(LOOK_MS.into())),
            None => break,
        }
    }
    let Some((why, problem)) = gateway.outcome().map_err(failure)? else {
        report_kept_change(context, gateway);
        return Ok(exit::OK);
    };
    let failure = Failure::new(format!("everything is rolled back: {why}"));
    Err(if problem.is_empty() { failure } else { failure.hint(format!("not rolled back: {problem}")) })
}

/// Whether Enter is pressed within the poll interval. Clears `listens` if the terminal is closed.
fn wait_for_enter(listens: &mut bool) -> bool {
    let stdin = io::stdin();
    let ready = poll(&mut [PollFd::new(stdin.as_fd(), PollFlags::POLLIN)], PollTimeout::from(LOOK_MS));
    if !matches!(ready, Ok(1..)) {
        return false;
    }
    let mut bytes = [0; 256];
    match stdin.lock().read(&mut bytes) {
        Ok(count @ 1..) => bytes[..count].contains(&b'\n'),
        _ => {
            *listens = false;
            false
        }
    }
}
