//! The options that every command has, and how a command line ends: what clap found is printed, and so is the error of a command.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{Arg, ArgAction, Args, Error};
use hostler_model::parse_duration;

use crate::context::Context;
use crate::exit;
use crate::failure::{Failure, Outcome};
use crate::output::{Format, Output};

/// Heading of the options of [`Common`] and of `--help`.
pub const GLOBAL_OPTIONS: &str = "Global options";

/// The options that every command has.
#[derive(Debug, Args)]
pub struct Common {
    /// Address of the head: unix:/path/to/head.sock, or HOST:PORT after a login
    #[arg(
        long,
        global = true,
        env = "HOSTLER_HEAD",
        hide_env_values = true,
        value_name = "ADDRESS",
        help_heading = GLOBAL_OPTIONS,
        display_order = 900
    )]
    head: Option<String>,

    /// How long to wait while the head cannot be reached, e.g. 30s; 0s not at all
    #[arg(long, global = true, value_name = "TIME", value_parser = parse_duration, help_heading = GLOBAL_OPTIONS, display_order = 900)]
    wait_for_head: Option<Duration>,

    /// Print data as JSON
    #[arg(long, global = true, conflicts_with = "quiet", help_heading = GLOBAL_OPTIONS, display_order = 901)]
    pub json: bool,

    /// Print only data and errors
    #[arg(short, long, global = true, help_heading = GLOBAL_OPTIONS, display_order = 902)]
    quiet: bool,
}

/// Defines `--help`, so that the help lists the option under the heading of the global options. The option that clap
/// itself adds has no heading.
pub fn help_flag() -> Arg {
    Arg::new("help")
        .short('h')
        .long("help")
        .global(true)
        .action(ArgAction::Help)
        .help("Print help; -h prints a summary")
        .help_heading(GLOBAL_OPTIONS)
        .display_order(903)
}

/// Explains clap's error about an argument that is not UTF-8 text; `None` for other errors.
pub fn not_text(error: &Error, args: &[OsString]) -> Option<Failure> {
    let argument = args.iter().find(|argument| argument.to_str().is_none())?;
    (error.kind() == ErrorKind::InvalidUtf8).then(|| {
        Failure::usage(format!("the argument {argument:?} is not UTF-8 text"))
            .hint("if it is the name of a file, rename the file, or name its folder instead")
    })
}

/// Prints what clap found: a wrong command line, or the help or version that was asked for. Returns the exit code.
pub fn print(found: &Error) -> ExitCode {
    let code = u8::try_from(found.exit_code()).unwrap_or(exit::FAILED);
    match found.print().and_then(|()| io::stdout().flush()) {
        Err(error) if !found.use_stderr() => {
            let failure = Failure::output("standard output", &error);
            Output::new(Format::Text).fail(&failure);
            failure.exit.into()
        }
        _ => code.into(),
    }
}

/// Prints the error of a failed command and returns the exit code.
pub fn conclude(context: &Context, outcome: Outcome) -> ExitCode {
    match outcome {
        Ok(exit) => exit.into(),
        Err(failure) => {
            context.output.fail(&failure);
            failure.exit.into()
        }
    }
}

impl Common {
    /// Returns the output format and the head that the options choose.
    pub fn context(self) -> Context {
        let format = match (self.json, self.quiet) {
            (true, _) => Format::Json,
            (false, true) => Format::Quiet,
            (false, false) => Format::Text,
        };
        Context { output: Output::new(format), head: self.head, wait_for_head: self.wait_for_head }
    }
}
