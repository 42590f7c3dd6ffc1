//! The tools of the Python cluster manager whose place Hostler takes, by their names, flags and defaults: `cminfo`, `cmrun`, `cmkill`,
//! `cmconfigure` and `cmdaemon`.
//!
//! Each is a small front end to what `hostler` does anyway; `hostler shims` makes the links by which they are called. What the flags
//! of a tool leave out is what its users expect, unless operators of the cluster have set something else.

pub(crate) mod daemon;
pub(crate) mod info;
pub(crate) mod run;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Args, Command, FromArgMatches};

use crate::args::{Common, conclude, help_flag};
use crate::commands::act::Cancel;
use crate::commands::configure::Configure;
use crate::context::Context;
use crate::failure::Outcome;

/// A tool that talks to a head. Its type is its flags, and its documentation is its help text.
pub(crate) trait Tool: Args {
    /// What it is called.
    const NAME: &'static str;

    /// Does it.
    fn run(self, context: &Context) -> Outcome;
}

impl Tool for Cancel {
    const NAME: &'static str = "cmkill";

    fn run(self, context: &Context) -> Outcome {
        Self::run(self, context)
    }
}

impl Tool for Configure {
    const NAME: &'static str = "cmconfigure";

    fn run(self, context: &Context) -> Outcome {
        Self::run(self, context)
    }
}

/// Parses, runs, and says what went wrong.
pub(crate) fn main<T: Tool>(args: Vec<OsString>) -> ExitCode {
    let matches = definition::<T>().get_matches_from(args);
    let parsed = T::from_arg_matches(&matches).and_then(|tool| Ok((tool, Common::from_arg_matches(&matches)?)));
    let (tool, common) = parsed.unwrap_or_else(|error| error.exit());
    let context = common.context();
    conclude(&context, tool.run(&context))
}

/// The command line of a tool: its own flags, and those that every command understands.
pub(crate) fn definition<T: Tool>() -> Command {
    T::augment_args(Common::augment_args(bare(T::NAME))).disable_help_flag(true).arg(help_flag())
}

/// A command line without anything yet.
pub(crate) fn bare(name: &'static str) -> Command {
    Command::new(name).bin_name(name).version(env!("CARGO_PKG_VERSION")).max_term_width(120)
}
