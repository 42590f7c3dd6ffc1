//! `hostler gateway apply` and `confirm`, and the guard between them.

use std::io::{self, IsTerminal, Read};
use std::os::fd::AsFd;
use std::time::Duration;

use clap::Args;
use hostler_gateway::{Applied, Confirmation, Gateway, Step};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::termios::{FlushArg, tcflush};
use serde_json::json;

use super::File;
use super::plan::warnings;
use crate::context::Context;
use crate::exit;
use crate::failure::{Failure, Outcome};
use crate::flags::TimeLimit;

/// How often it is looked whether someone has confirmed elsewhere, in milliseconds.
const LOOK_MS: u16 = 200;

/// Make the machine what the description says, on trial until it is confirmed
///
/// All of it or nothing: a step that fails takes back those before it. What is made waits to be confirmed, by Enter here or by `hostler gateway
/// confirm` from anywhere; when neither comes in time, everything is put back as it was, also when this connection and this command are
/// gone by then. Nobody can lock themselves out.
#[derive(Debug, Args)]
pub(super) struct Apply {
    #[command(flatten)]
    file: File,

    /// For how long it waits to be confirmed
    #[arg(long, value_name = "TIME", default_value = "60s", conflicts_with = "yes")]
    confirm_within: TimeLimit,

    /// Do not wait: it stays, whatever it does
    #[arg(short, long)]
    yes: bool,
}

/// Keep what `apply` has made
#[derive(Debug, Args)]
pub(super) struct Confirm {}

/// Take back what nobody confirms; `apply` starts it
#[derive(Debug, Args)]
pub(super) struct Guard {
    /// Which attempt
    token: String,
}

impl Apply {
    pub(super) fn run(self, context: &Context, gateway: &Gateway) -> Outcome {
        let output = &context.output;
        let (description, setup) = self.file.read(gateway)?;
        let obstacles = gateway.plan(&setup)?.obstacles;
        warnings(&description, &obstacles).iter().for_each(|warning| output.say(&format!("warning: {warning}")));
        let within = (!self.yes).then_some(self.confirm_within.0);
        let applied = gateway.apply(setup, within)?;
        if output.is_json() {
            output.json(&applied);
        }
        match applied {
            Applied::Unchanged => output.say("nothing is to be done"),
            Applied::Confirmed { steps } => {
                tell(context, &steps);
                kept(context, gateway)?;
            }
            Applied::Trial { steps, token, confirm_within_secs } => {
                tell(context, &steps);
                return wait(context, gateway, &token, confirm_within_secs);
            }
        }
        Ok(exit::OK)
    }
}

impl Confirm {
    pub(super) fn run(self, context: &Context, gateway: &Gateway) -> Outcome {
        let boots = gateway.confirm()?;
        if context.output.is_json() {
            context.output.json(&json!({ "state": "confirmed", "after_boot": boots }));
        }
        kept(context, gateway)?;
        Ok(exit::OK)
    }
}

impl Guard {
    pub(super) fn run(self, gateway: &Gateway) -> Outcome {
        gateway.guard(&self.token)?;
        Ok(exit::OK)
    }
}

fn tell(context: &Context, steps: &[Step]) {
    for step in steps {
        context.output.say(&format!("done: {step}"));
    }
}

/// Says that it stays, and for how long.
fn kept(context: &Context, gateway: &Gateway) -> Result<(), Failure> {
    let by_systemd = gateway.status()?.running.is_some_and(|running| running.by_systemd);
    let boot = match by_systemd {
        true => "it will be there after a boot as well",
        false => "systemd does not run this machine: after a boot, call `hostler gateway start`",
    };
    context.output.say(&format!("the gateway stays as it is now; {boot}"));
    Ok(())
}

/// Waits for Enter, if someone is there to press it, or for a word from elsewhere.
fn wait(context: &Context, gateway: &Gateway, token: &str, secs: u64) -> Outcome {
    let output = &context.output;
    if !io::stdin().is_terminal() {
        output.say(&format!("call `hostler gateway confirm` within {secs} s, or everything is put back as it was"));
        return Ok(exit::OK);
    }
    // What was typed before the change says nothing about who is there after it.
    let _ = tcflush(io::stdin(), FlushArg::TCIFLUSH);
    output.say(&format!("are you still there? Press Enter within {secs} s, or everything is put back as it was"));
    let mut listens = true;
    loop {
        match gateway.confirmation(token)? {
            Confirmation::Waits(_) if listens && pressed(&mut listens) => {
                gateway.confirm()?;
            }
            Confirmation::Waits(_) if listens => {}
            Confirmation::Waits(_) => std::thread::sleep(Duration::from_millis(LOOK_MS.into())),
            Confirmation::Confirmed => {
                kept(context, gateway)?;
                return Ok(exit::OK);
            }
            Confirmation::RolledBack(back) => {
                let why = back.as_ref().map_or("it was taken back", |back| back.why.as_str());
                let problems = back.as_ref().map(|back| back.problems.clone()).unwrap_or_default();
                let failure = Failure::new(format!("everything is put back as it was: {why}"));
                return Err(problems
                    .into_iter()
                    .fold(failure, |failure, problem| failure.hint(format!("this could not be put back: {problem}"))));
            }
        }
    }
}

/// Whether Enter is pressed within a moment. A terminal that has gone away is not listened to any more.
fn pressed(listens: &mut bool) -> bool {
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
