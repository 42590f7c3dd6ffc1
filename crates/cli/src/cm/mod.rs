//! The tools of the Python cluster manager that Hostler replaces, with their names, flags and defaults: `cminfo`,
//! `cmrun`, `cmkill`, `cmconfigure` and `cmdaemon`.
//!
//! Each is a small front end to a `hostler` command; `hostler shims` creates the links. Defaults are those of the
//! original tools, unless the cluster's settings differ.

pub(crate) mod info;
pub(crate) mod run;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Args, Command, FromArgMatches};

use crate::commands::act::Cancel;
use crate::commands::configure::Configure;
use crate::context::Context;
use crate::failure::Outcome;
use crate::global_options::{Common, conclude, help_flag, not_text, print};
use crate::output::{Format, Output};

/// A client tool. The fields of the implementing type are the tool's flags, and the type's doc comment is the help
/// text.
pub(crate) trait Tool: Args {
    const NAME: &'static str;

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

/// Parses `args`, runs the tool and prints its error, if any.
#[expect(clippy::needless_pass_by_value, reason = "all tools have this signature")]
pub(crate) fn main<T: Tool>(args: Vec<OsString>) -> ExitCode {
    let matches = definition::<T>().try_get_matches_from(&args);
    let matches = match matches {
        Ok(matches) => matches,
        Err(error) => match not_text(&error, &args) {
            Some(failure) => {
                Output::new(Format::Text).fail(&failure);
                return failure.exit.into();
            }
            None => return print(&error),
        },
    };
    let parsed = T::from_arg_matches(&matches).and_then(|tool| Ok((tool, Common::from_arg_matches(&matches)?)));
    let (tool, common) = parsed.unwrap_or_else(|error| error.exit());
    let context = common.context();
    conclude(&context, tool.run(&context))
}

/// The command line of a tool: its own flags and the global options.
pub(crate) fn definition<T: Tool>() -> Command {
    T::augment_args(Common::augment_args(bare(T::NAME))).disable_help_flag(true).arg(help_flag())
}

/// A command line without options, with the program's version.
pub fn bare(name: &'static str) -> Command {
    Command::new(name).bin_name(name).version(hostler_proto::BUILD).max_term_width(120)
}
