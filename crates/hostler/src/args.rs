//! The command line of `hostler`: its commands, global options and exit codes.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use hostler_cli::codes::refuse_exposed;
use hostler_cli::context::Context;
use hostler_cli::failure::Outcome;
use hostler_cli::output::{Format, Output};

use crate::command_groups::grouped;
use crate::commands::*;
use crate::mistakes::{with_tip, without_hidden};
use hostler_cli::commands::*;
use hostler_cli::global_options::{Common, conclude, help_flag, not_text, print};

/// Run jobs on a cluster of Linux machines
///
/// To try it, run `hostler demo`. To use it, start a cluster on this machine with `hostler up`, run a project folder
/// with `hostler submit FOLDER main.py`, and download the results with `hostler fetch --all`.
#[derive(Debug, Parser)]
#[command(name = "hostler", bin_name = "hostler", version = hostler_proto::BUILD, propagate_version = false, max_term_width = 120)]
#[command(disable_help_flag = true, arg = help_flag())]
pub(crate) struct Arguments {
    #[command(flatten)]
    common: Common,

    #[command(subcommand)]
    command: Command,
}

/// The command line of `hostler`, with its commands grouped in the help.
pub(crate) fn definition() -> clap::Command {
    grouped(Arguments::command())
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
    JobsFolder(jobs_folder::JobsFolder),
    Job(job::Job),
    Why(why::Why),
    Logs(logs::Logs),
    Wait(wait::Wait),
    Fetch(fetch::Fetch),
    Cancel(act::Cancel),
    Hold(act::Hold),
    Release(act::Release),
    Requeue(act::Requeue),
    Update(update::Update),
    Signal(act::Signal),
    Attach(attach::Attach),
    Forward(forward::Forward),
    Jupyter(jupyter::Jupyter),
    Measure(measure::Measure),
    Info(info::Info),
    History(history::History),
    Dashboard(dashboard::Dashboard),
    Nodes(nodes::Nodes),
    Top(top::Top),
    Node(node::Node),
    Login(login::Login),
    Logout(login::Logout),
    Configure(configure::Configure),
    Head(head::Head),
    Agent(agent::Agent),
    Gateway(gateway::Gateway),
    Import(import::Import),
    Classroom(classroom::Classroom),
    Ranks(ranks::Ranks),
    FetchImage(fetch_image::FetchImage),
    UnpackLayer(unpack_layer::UnpackLayer),
    MeasureRuns(measure::MeasureRuns),
    VirtualNode(virtual_node::VirtualNode),
    SessionLeader(session_leader::SessionLeader),
    Alloc(alloc::Alloc),
    Step(step::Step),
    Steps(step::Steps),
    Sim(sim::Sim),
    Shims(shims::Shims),
    Completions(completions::Completions),
    Gen(generate::Generate),
}

/// A command line whose only command is `exec`. A build calls `exec` thousands of times, and defining the other
/// commands takes longer than the work of `exec` itself.
#[derive(Debug, Parser)]
#[command(name = "hostler", disable_help_flag = true, arg = help_flag())]
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
    /// Parses `args`: first as a command line of `exec` alone; if that fails, as one of all commands, which also provides
    /// the errors and the help of `exec`.
    pub(crate) fn of(args: &[OsString]) -> Result<Self, clap::Error> {
        if args.get(1).is_some_and(|command| command == "exec")
            && let Ok(ExecAlone { common, command: OnlyExec::Exec(command) }) = ExecAlone::try_parse_from(args)
        {
            return Ok(Self { common, command: Command::Exec(command) });
        }
        let mut definition = definition();
        let mut matches = match definition.try_get_matches_from_mut(args) {
            // clap's own `help` suggests nothing for a misspelled command; the command itself does.
            Err(error) if error.kind() == ErrorKind::InvalidSubcommand && args[1] == "help" => {
                let without = args[..1].iter().chain(&args[2..]);
                return Err(definition.try_get_matches_from_mut(without).err().unwrap_or(error));
            }
            parsed => parsed?,
        };
        Self::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut definition))
    }
}

/// Parses `args`, runs the command and prints its error, if any.
#[expect(clippy::needless_pass_by_value, reason = "all tools have this signature")]
pub(crate) fn main(args: Vec<OsString>) -> ExitCode {
    if let Err(failure) = refuse_exposed(&args) {
        Output::new(Format::Text).fail(&failure);
        return failure.exit.into();
    }
    let Arguments { common, command } = match Arguments::of(&args) {
        Ok(arguments) => arguments,
        Err(error) => match not_text(&error, &args) {
            Some(failure) => {
                Output::new(Format::Text).fail(&failure);
                return failure.exit.into();
            }
            None => return print(&with_tip(without_hidden(error, &definition()), &args, &definition())),
        },
    };
    let context = common.context();
    let outcome = command.run(&context);
    conclude(&context, outcome)
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
            Self::JobsFolder(command) => command.run(context),
            Self::Job(command) => command.run(context),
            Self::Why(command) => command.run(context),
            Self::Logs(command) => command.run(context),
            Self::Wait(command) => command.run(context),
            Self::Fetch(command) => command.run(context),
            Self::Cancel(command) => command.run(context),
            Self::Hold(command) => command.run(context),
            Self::Release(command) => command.run(context),
            Self::Requeue(command) => command.run(context),
            Self::Update(command) => command.run(context),
            Self::Signal(command) => command.run(context),
            Self::Attach(command) => command.run(context),
            Self::Forward(command) => command.run(context),
            Self::Jupyter(command) => command.run(context),
            Self::Measure(command) => command.run(context),
            Self::Info(command) => command.run(context),
            Self::History(command) => command.run(context),
            Self::Dashboard(command) => command.run(context),
            Self::Nodes(command) => command.run(context),
            Self::Top(command) => command.run(context),
            Self::Node(command) => command.run(context),
            Self::Login(command) => command.run(context),
            Self::Logout(command) => command.run(context),
            Self::Configure(command) => command.run(context),
            Self::Head(command) => command.run(context),
            Self::Agent(command) => command.run(context),
            Self::Gateway(command) => command.run(context),
            Self::Import(command) => command.run(context),
            Self::Classroom(command) => command.run(context),
            Self::Ranks(command) => command.run(),
            Self::FetchImage(command) => command.run(),
            Self::UnpackLayer(command) => command.run(),
            Self::MeasureRuns(command) => command.run(),
            Self::VirtualNode(command) => command.run(),
            Self::SessionLeader(command) => command.run(),
            Self::Alloc(command) => command.run(context),
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
    use super::*;

    #[test]
    fn definition_passes_claps_checks() {
        definition().debug_assert();
    }

    #[test]
    fn submit_accepts_flags_after_positional_arguments() {
        let line = "hostler submit examples/digits-sweep main.py -a 0-7 -c 1 -m 600M --json -- --epochs 3";
        let arguments = Arguments::try_parse_from(line.split_whitespace()).expect(line);
        assert!(arguments.common.json && matches!(arguments.command, Command::Submit(_)));
    }

    #[test]
    fn run_passes_flags_after_the_command_to_it() {
        for line in ["hostler run -c 2 -- python3 -c pass", "hostler run -c 2 python3 -c pass --json"] {
            let arguments = Arguments::try_parse_from(line.split_whitespace()).expect(line);
            let Command::Run(run) = arguments.command else { panic!("{line} is a run") };
            assert_eq!(&run.job.command[..3], ["python3", "-c", "pass"], "{line}");
            assert!(!arguments.common.json, "{line}");
        }
    }

    #[test]
    fn forward_accepts_several_ports_and_its_ways_exclude_each_other() {
        let parse = |line: &str| Arguments::try_parse_from(line.split_whitespace());
        for line in ["hostler forward 12 8888 0:6006 ./a.sock", "hostler forward 12_3 22 --stdio --node-rank 1"] {
            assert!(parse(line).is_ok_and(|it| matches!(it.command, Command::Forward(_))), "{line}");
        }
        for line in ["hostler forward 12", "hostler forward 12 0", "hostler forward 12 22 --stdio --socket s"] {
            assert!(parse(line).is_err(), "{line}");
        }
    }

    #[test]
    fn every_visible_command_has_a_description() {
        for command in Arguments::command().get_subcommands() {
            assert!(command.is_hide_set() || command.get_about().is_some(), "{} has no help", command.get_name());
        }
    }

    #[test]
    fn exec_parses_alike_with_and_without_the_other_commands() {
        let lines: [&[&str]; 6] = [
            &["exec", "gcc", "-c", "x.c"],
            &["exec", "--node", "n2", "--json", "--", "true"],
            &["exec", "--report", "--head", "h:1", "--mirror=..", "make", "--json"],
            &["exec", "--quiet", "--json", "true"],
            &["exec", "--help"],
            &["exec", "--no-such-flag", "true"],
        ];
        for line in lines {
            let line = || ["hostler"].iter().chain(line).map(OsString::from).collect::<Vec<_>>();
            let said = |parsed: Result<Arguments, clap::Error>| {
                parsed.map(|it| format!("{it:?}")).map_err(|it| it.to_string())
            };
            assert_eq!(said(Arguments::of(&line())), said(Arguments::try_parse_from(line())));
        }
    }
}
