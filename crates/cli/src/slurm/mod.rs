//! Commands with the names of Slurm, one file each. They parse what Slurm's commands parse and print what those print, and
//! reach the head through its public API only. The texts are in the crate `slurm`.

mod allocating;
mod clock;
mod container;
pub(crate) mod import;
mod job_json;
mod json;
mod machines;
mod node_files;
mod options;
mod placing;
mod refused;
mod request;
mod rows;
pub(crate) mod sacct;
pub(crate) mod sacctmgr;
pub(crate) mod salloc;
pub(crate) mod sattach;
pub(crate) mod sbatch;
pub(crate) mod sbcast;
pub(crate) mod scancel;
pub(crate) mod scontrol;
pub(crate) mod sinfo;
pub(crate) mod squeue;
pub(crate) mod srun;
pub(crate) mod sshare;
pub(crate) mod sstat;
mod steps;
mod table;
mod test_only;

use std::ffi::OsString;
use std::process::ExitCode;

use hostler_client::ClientError;
use hostler_slurm::container_options::CONTAINER_OPTIONS;
use hostler_slurm::getopt::{Mistake, Opt};
use hostler_slurm::job_options::{BadValue, JOB_OPTIONS, Key, MISTAKE};

use crate::context::Context;
use crate::output::{Format, Output};

pub(crate) use refused::Refused;

/// What `--version` prints. Clients choose their options by it.
const VERSION: &str = "slurm 24.05.8";

/// The name of the cluster in variables and options.
const CLUSTER: &str = "hostler";

/// Why a command ends early: lines to print, and an exit code.
#[derive(Debug)]
pub(crate) struct Ended {
    lines: Vec<Line>,
    code: u8,
}

#[derive(Debug)]
enum Line {
    /// Printed after the command's name.
    Named(String),
    Plain(String),
    /// Printed on stdout.
    Asked(String),
}

/// The exit code of a command.
pub(crate) type Outcome = Result<u8, Ended>;

impl Ended {
    /// An error with exit code 1.
    pub(crate) fn error(text: impl std::fmt::Display) -> Self {
        Self { lines: vec![Line::Named(format!("error: {text}"))], code: 1 }
    }

    /// An error that leaves the command nothing to do, with exit code 1.
    pub(crate) fn fatal(text: impl std::fmt::Display) -> Self {
        Self { lines: vec![Line::Named(format!("fatal: {text}"))], code: 1 }
    }

    /// An error whose text does not begin with the command's name.
    pub(crate) fn plain(text: impl Into<String>) -> Self {
        Self { lines: vec![Line::Plain(text.into())], code: 1 }
    }

    /// The end of a command that only prints a text that the user asks for.
    pub(crate) fn printed(text: String) -> Self {
        Self { lines: vec![Line::Asked(text)], code: 0 }
    }

    /// An end without a message.
    pub(crate) const fn silent(code: u8) -> Self {
        Self { lines: Vec::new(), code }
    }

    /// Adds a line.
    pub(crate) fn and(mut self, line: impl Into<String>) -> Self {
        self.lines.push(Line::Named(line.into()));
        self
    }

    /// Adds a line that does not begin with the command's name.
    pub(crate) fn and_plain(mut self, line: impl Into<String>) -> Self {
        self.lines.push(Line::Plain(line.into()));
        self
    }

    /// Replaces a text in all lines.
    pub(crate) fn instead(self, text: &str, by: &str) -> Self {
        let replace = |line| match line {
            Line::Named(line) => Line::Named(line.replace(text, by)),
            Line::Plain(line) => Line::Plain(line.replace(text, by)),
            asked @ Line::Asked(_) => asked,
        };
        Self { lines: self.lines.into_iter().map(replace).collect(), code: self.code }
    }

    /// The texts of the lines.
    #[cfg(test)]
    pub(crate) fn texts(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().map(|(Line::Named(text) | Line::Plain(text) | Line::Asked(text))| text.as_str())
    }
}

impl From<crate::failure::Failure> for Ended {
    fn from(failure: crate::failure::Failure) -> Self {
        Self::error(failure.summary())
    }
}

/// Runs a command: `args` begins with the name by which it was called.
pub(crate) fn main(name: &str, args: Vec<OsString>, command: fn(&Context, Vec<OsString>) -> Outcome) -> ExitCode {
    let context =
        Context { output: Output::new(Format::Text), head: std::env::var("HOSTLER_HEAD").ok(), wait_for_head: None };
    match command(&context, args) {
        Ok(code) => code.into(),
        Err(Ended { lines, code }) => {
            for line in lines {
                match line {
                    Line::Named(text) => tell(&context, name, &[text]),
                    Line::Plain(text) => context.output.say(&text),
                    Line::Asked(text) => {
                        print(&context, &text);
                    }
                }
            }
            code.into()
        }
    }
}

/// Prints lines on stderr, each after the command's name.
pub(crate) fn tell(context: &Context, name: &str, lines: &[String]) {
    lines.iter().for_each(|line| context.output.say(&format!("{name}: {line}")));
}

/// Prints a text, and returns the exit code of success.
pub(crate) fn print(context: &Context, text: &str) -> u8 {
    context.output.job_stdout(text.as_bytes());
    0
}

/// Prints scripts of jobs, and returns the exit code of success.
pub(crate) fn print_scripts(context: &Context, text: &str) -> u8 {
    context.output.job_text(text);
    0
}

/// The error for a mistake in a command line, as `getopt_long` and the command print it.
pub(crate) fn mistaken(name: &str, mistake: &Mistake) -> Ended {
    let hint = format!("Try \"{name} --help\" for more information");
    Ended { lines: vec![Line::Named(mistake.to_string()), Line::Plain(hint)], code: 1 }
}

/// The error for a mistake in a command line of `sbatch`, `salloc` or `srun`.
pub(crate) fn mistaken_job(name: &str, mistake: &Mistake) -> Ended {
    Ended { code: MISTAKE, ..mistaken(name, mistake) }
}

/// The error for a wrong value of an option that describes a job.
pub(crate) fn bad_value(BadValue { text, code }: BadValue) -> Ended {
    let mut lines = text.split('\n');
    let first = Ended { code, ..Ended::error(lines.next().unwrap_or_default()) };
    lines.fold(first, |ended, line| ended.and(format!("error: {line}")))
}

/// The options of a command that describes jobs, in the order in which `getopt_long` lists them.
pub(crate) fn job_options(own: &[Opt<Key>]) -> Vec<Opt<Key>> {
    let mut all: Vec<Opt<Key>> = JOB_OPTIONS.iter().chain(CONTAINER_OPTIONS).chain(own).copied().collect();
    all.sort_by_key(|option| option.long);
    all
}

/// The refusal of a job with components of its own.
pub(crate) fn heterogeneous() -> Ended {
    Ended::error("Heterogeneous jobs are not supported")
}

/// The error of a command such as `squeue` that could not read from the head. `what` is Slurm's name for the failed call, such
/// as `slurm_load_jobs`.
pub(crate) fn unreadable(what: &str, error: ClientError) -> Ended {
    let refused = Refused::from(error);
    let ended = Ended::plain(format!("{what} error: {}", refused.text));
    // Without an answer the text says everything.
    if refused.code.is_none() { ended } else { refused.lines().fold(ended, Ended::and) }
}

/// Refuses a list of clusters with another one than this.
pub(crate) fn check_clusters(list: &str) -> Result<(), Ended> {
    let is_known = |name: &&str| [CLUSTER, "all", "linux"].contains(name);
    match list.split(',').map(str::trim).find(|name| !name.is_empty() && !is_known(name)) {
        Some(name) => Err(Ended::error(format!("No cluster '{name}' known by database."))
            .and(format!("hint: the name of this cluster is {CLUSTER}"))),
        None => Ok(()),
    }
}

/// The value of an option as text.
pub(crate) fn text(value: Option<&OsString>) -> String {
    value.map(|value| value.to_string_lossy().into_owned()).unwrap_or_default()
}

/// The name of the user who calls a command.
pub(crate) fn own_name() -> Result<String, Ended> {
    let user = nix::unistd::User::from_uid(nix::unistd::Uid::effective()).ok().flatten();
    user.map(|user| user.name).ok_or_else(|| Ended::error("The name of the current user is unknown"))
}

/// The items of a list with commas.
pub(crate) fn items(list: &str) -> Vec<String> {
    list.split(',').map(str::trim).filter(|item| !item.is_empty()).map(str::to_owned).collect()
}
