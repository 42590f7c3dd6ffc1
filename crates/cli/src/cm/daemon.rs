//! `cmdaemon`: the daemon of a head or of a compute node.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{ArgGroup, Args, Command, FromArgMatches};

use super::bare;

/// Run the daemon of this machine in the foreground: the head's, or that of a compute node
///
/// What follows --head or --compute are the flags of `hostler head run` or `hostler agent run`, whose --help explains them.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("role").args(["head", "compute"]).required(true)))]
pub(crate) struct Cmdaemon {
    /// This machine is the head
    #[arg(long)]
    head: bool,

    /// This machine is a compute node
    #[arg(long)]
    compute: bool,

    /// Flags of the daemon
    #[arg(value_name = "FLAGS", trailing_var_arg = true, allow_hyphen_values = true)]
    flags: Vec<OsString>,
}

/// Parses, and is the daemon from then on.
pub(crate) fn main(args: Vec<OsString>) -> ExitCode {
    let matches = definition().get_matches_from(args);
    let daemon = Cmdaemon::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    crate::args::main(daemon.command_line())
}

/// The command line of the tool.
pub(crate) fn definition() -> Command {
    Cmdaemon::augment_args(bare("cmdaemon"))
}

impl Cmdaemon {
    /// The same in words that `hostler` understands.
    fn command_line(self) -> Vec<OsString> {
        let kind = if self.head { "head" } else { "agent" };
        ["hostler", kind, "run"].into_iter().map(OsString::from).chain(self.flags).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Vec<OsString>, clap::Error> {
        let matches = definition().try_get_matches_from(line.split_whitespace())?;
        Ok(Cmdaemon::from_arg_matches(&matches)?.command_line())
    }

    #[test]
    fn it_is_one_of_the_daemons() {
        let line = parse("cmdaemon --head --directory /d --listen 127.0.0.1:0").expect("a head");
        assert_eq!(line, ["hostler", "head", "run", "--directory", "/d", "--listen", "127.0.0.1:0"]);
        assert_eq!(parse("cmdaemon --compute").expect("an agent"), ["hostler", "agent", "run"]);
        assert!(parse("cmdaemon").is_err() && parse("cmdaemon --head --compute").is_err());
    }
}
