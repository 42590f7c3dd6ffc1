//! The command line of `hostler`: its commands, what they share, and how their outcome becomes an exit code.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use crate::commands::*;
use crate::context::Context;
use crate::failure::Outcome;
use crate::mistakes::with_tip;
use crate::output::{Format, Output};

/// Turns Linux machines into a compute cluster: one machine, or many
///
/// Try it: `hostler demo` shows everything on this machine and leaves nothing behind. `hostler up` starts a cluster that stays;
/// `hostler submit FOLDER main.py` runs a project on it and `hostler fetch --all` brings the results home.
#[derive(Debug, Parser)]
#[command(name = "hostler", bin_name = "hostler", version, propagate_version = false, max_term_width = 120)]
pub(crate) struct Arguments {
    #[command(flatten)]
    common: Common,

    #[command(subcommand)]
    command: Command,
}

/// What every command understands.
#[derive(Debug, Args)]
pub(crate) struct Common {
    /// The cluster to use, as unix:/path/to/head.sock or the HOST:PORT of a login
    #[arg(
        long,
        global = true,
        env = "HOSTLER_HEAD",
        hide_env_values = true,
        value_name = "ADDRESS",
        display_order = 900
    )]
    head: Option<String>,

    /// Print data as JSON
    #[arg(long, global = true, conflicts_with = "quiet", display_order = 901)]
    json: bool,

    /// Say nothing but data and errors
    #[arg(short, long, global = true, display_order = 902)]
    quiet: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    Demo(demo::Demo),
    Up(up::Up),
    Down(down::Down),
    Submit(submit::Submit),
    Run(run::Run),
    #[command(override_usage = "hostler exec [OPTIONS] <COMMAND>...")]
    Exec(exec::Exec),
    Jobs(jobs::Jobs),
    Job(job::Job),
    Why(why::Why),
    Logs(logs::Logs),
    Wait(wait::Wait),
    Fetch(fetch::Fetch),
    Cancel(act::Cancel),
    Hold(act::Hold),
    Release(act::Release),
    Requeue(act::Requeue),
    Attach(attach::Attach),
    Info(info::Info),
    Nodes(nodes::Nodes),
    Node(node::Node),
    Login(login::Login),
    Logout(login::Logout),
    Configure(configure::Configure),
    Head(head::Head),
    Agent(agent::Agent),
    Gateway(gateway::Gateway),
    Ranks(ranks::Ranks),
    VirtualNode(virtual_node::VirtualNode),
    Seat(seat::Seat),
    Step(step::Step),
    Steps(step::Steps),
    Sim(sim::Sim),
    Shims(shims::Shims),
    Completions(completions::Completions),
    Gen(generate::Generate),
}

/// `exec` without all other commands: a build calls it thousands of times, and to define those takes longer than all that it does itself.
#[derive(Debug, Parser)]
#[command(name = "hostler")]
struct ExecAlone {
    #[command(flatten)]
    common: Common,

    #[command(subcommand)]
    command: OnlyExec,
}

#[derive(Debug, Subcommand)]
enum OnlyExec {
    #[command(override_usage = "hostler exec [OPTIONS] <COMMAND>...")]
    Exec(exec::Exec),
}

impl Arguments {
    /// What it is given; whatever needs an explanation gets it from the definition of everything.
    fn of(args: Vec<OsString>) -> Result<Self, clap::Error> {
        if args.get(1).is_some_and(|command| command == "exec")
            && let Ok(ExecAlone { common, command: OnlyExec::Exec(command) }) = ExecAlone::try_parse_from(&args)
        {
            return Ok(Self { common, command: Command::Exec(command) });
        }
        Self::try_parse_from(args)
    }
}

/// Parses, runs, and says what went wrong.
pub(crate) fn main(args: Vec<OsString>) -> ExitCode {
    let Arguments { common, command } = Arguments::of(args).unwrap_or_else(|error| with_tip(error).exit());
    let context = common.context();
    let outcome = command.run(&context);
    conclude(&context, outcome)
}

/// Says why something failed, if it did, and makes an exit code of it.
pub(crate) fn conclude(context: &Context, outcome: Outcome) -> ExitCode {
    match outcome {
        Ok(exit) => exit.into(),
        Err(failure) => {
            context.output.fail(&failure);
            failure.exit.into()
        }
    }
}

impl Common {
    /// What a command has at hand, as these flags want it.
    pub(crate) fn context(self) -> Context {
        let format = match (self.json, self.quiet) {
            (true, _) => Format::Json,
            (false, true) => Format::Quiet,
            (false, false) => Format::Text,
        };
        Context { output: Output::new(format), head: self.head }
    }
}

impl Command {
    fn run(self, context: &Context) -> Outcome {
        match self {
            Self::Demo(command) => command.run(context),
            Self::Up(command) => command.run(context),
            Self::Down(command) => command.run(context),
            Self::Submit(command) => command.run(context),
            Self::Run(command) => command.run(context),
            Self::Exec(command) => command.run(context),
            Self::Jobs(command) => command.run(context),
            Self::Job(command) => command.run(context),
            Self::Why(command) => command.run(context),
            Self::Logs(command) => command.run(context),
            Self::Wait(command) => command.run(context),
            Self::Fetch(command) => command.run(context),
            Self::Cancel(command) => command.run(context),
            Self::Hold(command) => command.run(context),
            Self::Release(command) => command.run(context),
            Self::Requeue(command) => command.run(context),
            Self::Attach(command) => command.run(context),
            Self::Info(command) => command.run(context),
            Self::Nodes(command) => command.run(context),
            Self::Node(command) => command.run(context),
            Self::Login(command) => command.run(context),
            Self::Logout(command) => command.run(context),
            Self::Configure(command) => command.run(context),
            Self::Head(command) => command.run(context),
            Self::Agent(command) => command.run(context),
            Self::Gateway(command) => command.run(context),
            Self::Ranks(command) => command.run(),
            Self::VirtualNode(command) => command.run(),
            Self::Seat(command) => command.run(),
            Self::Step(command) => command.run(context),
            Self::Steps(command) => command.run(),
            Self::Sim(command) => command.run(context),
            Self::Shims(command) => command.run(context),
            Self::Completions(command) => command.run(context),
            Self::Gen(command) => command.run(context),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn flags_may_follow_the_project() {
        let line = "hostler submit examples/digits-sweep main.py -a 0-7 -c 1 -m 600M --json -- --epochs 3";
        let arguments = Arguments::try_parse_from(line.split_whitespace()).expect(line);
        assert!(arguments.common.json && matches!(arguments.command, Command::Submit(_)));
    }

    #[test]
    fn a_command_keeps_its_own_flags() {
        for line in ["hostler run -c 2 -- python3 -c pass", "hostler run -c 2 python3 -c pass --json"] {
            let arguments = Arguments::try_parse_from(line.split_whitespace()).expect(line);
            let Command::Run(run) = arguments.command else { panic!("{line} is a run") };
            assert_eq!(&run.command[..3], ["python3", "-c", "pass"], "{line}");
            assert!(!arguments.common.json, "{line}");
        }
    }

    #[test]
    fn every_command_says_what_it_does() {
        for command in Arguments::command().get_subcommands() {
            assert!(command.is_hide_set() || command.get_about().is_some(), "{} has no help", command.get_name());
        }
    }

    #[test]
    fn exec_is_understood_as_it_is_among_all_commands() {
        let lines: [&[&str]; 6] = [
            &["exec", "gcc", "-c", "x.c"],
            &["exec", "--node", "n2", "--json", "--", "true"],
            &["exec", "--where", "--head", "h:1", "--ship=..", "make", "--json"],
            &["exec", "--quiet", "--json", "true"],
            &["exec", "--help"],
            &["exec", "--no-such-flag", "true"],
        ];
        for line in lines {
            let line = || ["hostler"].iter().chain(line).map(OsString::from).collect::<Vec<_>>();
            let said = |parsed: Result<Arguments, clap::Error>| {
                parsed.map(|it| format!("{it:?}")).map_err(|it| it.to_string())
            };
            assert_eq!(said(Arguments::of(line())), said(Arguments::try_parse_from(line())));
        }
    }
}
