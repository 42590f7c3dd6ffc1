//! `cmdaemon`: the daemon of a head or of a compute node.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Args, Command, FromArgMatches};
use hostler_cli::context::Context;
use hostler_cli::daemons::places::{AgentPlaces, HeadPlaces};
use hostler_cli::failure::Failure;
use hostler_cli::global_options::conclude;
use hostler_cli::output::{Format, Output};

use hostler_cli::cm::bare;

/// Run the head or the agent of this machine in the foreground
///
/// Without --head and --compute, the setup of the machine decides: after `hostler head init`, the command runs the
/// head; after `hostler agent join`, it runs the agent. All other options go to `hostler head run` or `hostler agent
/// run`; see their --help.
#[derive(Debug, Args)]
pub(crate) struct Cmdaemon {
    /// Run the head
    #[arg(long, conflicts_with = "compute")]
    head: bool,

    /// Run the agent of a compute node
    #[arg(long)]
    compute: bool,

    /// Options of `hostler head run` or `hostler agent run`
    #[arg(value_name = "FLAGS", trailing_var_arg = true, allow_hyphen_values = true)]
    flags: Vec<OsString>,
}

/// Parses `args` and runs the daemon.
pub(crate) fn main(args: Vec<OsString>) -> ExitCode {
    let matches = definition().get_matches_from(args);
    let daemon = Cmdaemon::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    match daemon.role() {
        Ok(role) => crate::args::main(command_line(role, daemon.flags)),
        Err(failure) => {
            conclude(&Context { output: Output::new(Format::Text), head: None, wait_for_head: None }, Err(failure))
        }
    }
}

pub(crate) fn definition() -> Command {
    Cmdaemon::augment_args(bare("cmdaemon"))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Head,
    Compute,
}

impl Cmdaemon {
    fn role(&self) -> Result<Role, Failure> {
        match (self.head, self.compute) {
            (true, _) => Ok(Role::Head),
            (false, true) => Ok(Role::Compute),
            (false, false) => {
                let (head, node) = (HeadPlaces::choose(None)?, AgentPlaces::choose(None)?);
                role_of(head.settings.exists(), node.directory.exists())
            }
        }
    }
}

/// The daemon for a machine that was set up as a head, as a node, as both or as neither.
fn role_of(is_head: bool, is_node: bool) -> Result<Role, Failure> {
    match (is_head, is_node) {
        (true, false) => Ok(Role::Head),
        (false, true) => Ok(Role::Compute),
        (true, true) => Err(Failure::usage("this machine is both a head and a compute node")
            .hint("choose one with --head or --compute")),
        (false, false) => Err(Failure::usage("this machine is not set up as a head or compute node")
            .hint("`hostler head init` makes it a head; `hostler agent join` makes it a compute node")
            .hint("or pass --head or --compute and the flags of that daemon")),
    }
}

/// The command line of `hostler` for the daemon.
fn command_line(role: Role, flags: Vec<OsString>) -> Vec<OsString> {
    // This tool has always started a head without a command that sets one up.
    let command: &[&str] = match role {
        Role::Head => &["hostler", "head", "run", "--new"],
        Role::Compute => &["hostler", "agent", "run"],
    };
    command.iter().map(OsString::from).chain(flags).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Cmdaemon, clap::Error> {
        Cmdaemon::from_arg_matches(&definition().try_get_matches_from(line.split_whitespace())?)
    }

    #[test]
    fn flags_are_passed_to_the_chosen_daemon() {
        let daemon = parse("cmdaemon --head --directory /d --listen 127.0.0.1:0").expect("a head");
        let line = command_line(daemon.role().expect("the flags choose a role"), daemon.flags);
        assert_eq!(line, ["hostler", "head", "run", "--new", "--directory", "/d", "--listen", "127.0.0.1:0"]);
        let daemon = parse("cmdaemon --compute").expect("an agent");
        assert_eq!(
            command_line(daemon.role().expect("the flags choose a role"), daemon.flags),
            ["hostler", "agent", "run"]
        );
        assert!(parse("cmdaemon --head --compute").is_err());
    }

    #[test]
    fn daemon_depends_on_the_setup_by_default() {
        assert_eq!((role_of(true, false), role_of(false, true)), (Ok(Role::Head), Ok(Role::Compute)));
        assert!(role_of(true, true).expect_err("both").render().contains("--head or --compute"));
        assert!(role_of(false, false).expect_err("neither").render().contains("hostler head init"));
    }
}
