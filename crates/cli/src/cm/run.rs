//! `cmrun`: queues a command as a job.

use std::str::FromStr;

use clap::Args;
use hostler_client::Client;
use hostler_model::{ParseError, PartialRequest, Submission, Work, parse_bytes};
use hostler_proto::settings::SettingSource;

use super::Tool;
use crate::commands::run::{Attended, own_directory, own_environment, own_umask};
use crate::commands::target::derived_name;
use crate::context::{Context, block_on};
use crate::exit;
use crate::failure::{Failure, Outcome};
use crate::flags::words;
use crate::passed_on::PassedOn;
use crate::submission::announce;

/// Default memory per node, in bytes.
const DEFAULT_MEMORY_BYTES: u64 = 100 << 20;

/// Characters with a meaning in a shell, apart from white space.
const SHELL_CHARACTERS: &str = "|&;<>()$`\\\"'*?[]#~=%{}!";

/// Queue a command as a job and print the job's id
///
/// The command runs in the current directory, which must exist on the nodes, with the current environment. Several
/// arguments are a program and its arguments. A single argument of several words is a shell command, e.g. cmrun 'make
/// && ./a.out'. `hostler logs` prints the output. Operators can change the defaults with `hostler configure setting`.
#[derive(Debug, Args)]
pub(crate) struct Cmrun {
    /// Name of the job [default: the first word of the command]
    #[arg(short, long, value_name = "NAME")]
    alias: Option<String>,

    /// Run on N nodes at once [default: 1]
    #[arg(short, long, value_name = "N", value_parser = crate::flags::at_least_one)]
    nodes: Option<u32>,

    /// Processes per node [default: 1]
    #[arg(short, long, value_name = "N", value_parser = crate::flags::number::<1, 4096>)]
    processes: Option<u32>,

    /// CPUs per node [default: 1]
    #[arg(long, value_name = "N", value_parser = crate::flags::at_least_one)]
    num_cpus_per_node: Option<u32>,

    /// Memory per node in megabytes, or with a unit, e.g. 2G [default: 100]
    #[arg(long, value_name = "MB")]
    mem_per_node: Option<Megabytes>,

    /// GPUs per node [default: 0]
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    gpus: u32,

    /// Time limit in hours, e.g. 1 or 0.25; 0 means no time limit [default: none]
    #[arg(short, long, value_name = "HOURS", allow_negative_numbers = true)]
    time_limit: Option<Hours>,

    /// Wait for the job, print the job's output, and exit like `hostler run`
    #[arg(short, long)]
    wait: bool,

    /// Command and its arguments, or one argument with a shell command
    #[arg(value_name = "COMMAND", required = true, trailing_var_arg = true, value_parser = words())]
    command: Vec<String>,
}

/// An amount of memory in bytes, at least one megabyte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Megabytes(u64);

impl FromStr for Megabytes {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let error = || ParseError::new(text, "a number of megabytes such as 100, or a size such as 2G");
        let bytes = match text.parse::<u64>() {
            Ok(megabytes) => megabytes.checked_mul(1 << 20).ok_or_else(error)?,
            Err(_) => parse_bytes(text).map_err(|_| error())?,
        };
        if bytes < 1 << 20 { Err(error()) } else { Ok(Self(bytes)) }
    }
}

/// A time limit in milliseconds; `None` means no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Hours(Option<u64>);

impl FromStr for Hours {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let hours: Option<f64> = text.parse().ok().filter(|hours: &f64| hours.is_finite() && *hours < 1e6);
        let hours = hours.ok_or_else(|| ParseError::new(text, "a number of hours such as 2 or 0.25"))?;
        Ok(Self((hours > 0.0).then(|| (hours * 3_600_000.0).ceil() as u64)))
    }
}

impl Tool for Cmrun {
    const NAME: &'static str = "cmrun";

    fn run(self, context: &Context) -> Outcome {
        let mut spec = self.spec()?;
        if !self.wait {
            let client = context.client()?;
            let id = block_on(async {
                choose_memory(&client, &mut spec).await?;
                Ok(client.submit_new(spec).await?)
            })?;
            announce(context, id, &[]);
            return Ok(exit::OK);
        }
        let client = context.watching_client()?;
        let attended = Attended { context, client: &client, array: None, label: false };
        // Exit codes below 125 belong to the command, so all failures exit with 125.
        let outcome = block_on(async {
            choose_memory(&client, &mut spec).await?;
            attended.run(spec).await
        });
        outcome.map_err(|failure| failure.exiting(exit::RUN_FAILED))
    }
}

impl Cmrun {
    fn spec(&self) -> Result<Submission, Failure> {
        let request = PartialRequest {
            cpus: self.num_cpus_per_node,
            memory_bytes: self.mem_per_node.map(|memory| memory.0),
            gpus: self.gpus,
            ..PartialRequest::default()
        };
        if let Some(flag) = self.command.first().filter(|word| word.starts_with('-')) {
            return Err(Failure::usage(format!("cmrun has no flag `{flag}`"))
                .hint("flags come before the command; `cmrun --help` lists them"));
        }
        let work = Work::command(argv(&self.command), own_directory()?);
        Ok(Submission {
            request,
            nodes: self.nodes,
            tasks_per_node: self.processes,
            time_limit_ms: self.time_limit.map(|limit| limit.0.unwrap_or(0)),
            environment: own_environment(&PassedOn::chosen(&[])?),
            umask: Some(own_umask()),
            ..Submission::with_defaults(self.name()?, work)
        })
    }

    fn name(&self) -> Result<String, Failure> {
        if let Some(alias) = &self.alias {
            return Ok(alias.clone());
        }
        let first = self.command[0].split_whitespace().next();
        let first = first.ok_or_else(|| Failure::usage("the command is empty").hint("e.g. cmrun hostname"))?;
        Ok(derived_name(first))
    }
}

/// Requests the default memory of `cmrun` if neither the user nor an operator has set the memory. Other commands have a
/// larger default.
async fn choose_memory(client: &Client, spec: &mut Submission) -> Result<(), Failure> {
    if spec.request.memory_bytes.is_none() {
        let settings = client.settings().await?;
        let is_set = |name: &str| settings.iter().any(|it| it.name == name && it.source != SettingSource::Default);
        spec.request.memory_bytes = (!is_set("default-memory")).then_some(DEFAULT_MEMORY_BYTES);
    }
    Ok(())
}

/// Returns the arguments to execute: the words, or `sh -c TEXT` for a single text with white space or with characters
/// that have a meaning in a shell.
fn argv(command: &[String]) -> Vec<String> {
    match command {
        [text] if text.contains(|c: char| c.is_whitespace() || SHELL_CHARACTERS.contains(c)) => {
            ["sh", "-c", text].map(str::to_owned).to_vec()
        }
        words => words.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use clap::FromArgMatches;

    use super::super::definition;
    use super::*;

    fn parse(words: &[&str]) -> Result<Cmrun, clap::Error> {
        let all = std::iter::once("cmrun").chain(words.iter().copied());
        Cmrun::from_arg_matches(&definition::<Cmrun>().try_get_matches_from(all)?)
    }

    fn spec(words: &[&str]) -> Submission {
        parse(words).expect("flags").spec().expect("a job")
    }

    fn words(spec: &Submission) -> Vec<&str> {
        let Work::Command { argv, .. } = &spec.work else { panic!("a command") };
        argv.iter().map(String::as_str).collect()
    }

    #[test]
    fn defaults_match_the_original_tool() {
        let spec = spec(&["./compute.sh", "-n", "3"]);
        assert_eq!((spec.nodes, spec.tasks_per_node, spec.time_limit_ms), (None, None, None));
        assert_eq!(spec.request, PartialRequest::default());
        assert_eq!((&*spec.name, words(&spec)), ("./compute.sh", vec!["./compute.sh", "-n", "3"]));
    }

    #[test]
    fn short_and_long_flags_are_parsed() {
        let short = ["-a", "mini", "-n", "2", "-p", "3", "-t", "0.5"];
        let long = ["--alias", "mini", "--nodes", "2", "--processes", "3", "--time-limit", "0.5"];
        for flags in [short, long] {
            let more = ["--num-cpus-per-node", "2", "--mem-per-node", "128", "x"];
            let line: Vec<&str> = flags.into_iter().chain(more).collect();
            let spec = spec(&line);
            assert_eq!((&*spec.name, spec.nodes, spec.tasks_per_node), ("mini", Some(2), Some(3)));
            assert_eq!((spec.request.cpus, spec.request.memory_bytes), (Some(2), Some(128 << 20)));
            assert_eq!(spec.time_limit_ms, Some(1_800_000));
        }
        assert_eq!(spec(&["-t", "-1", "x"]).time_limit_ms, Some(0), "no time limit was chosen");
        assert_eq!(spec(&["-t", "0", "x"]).time_limit_ms, Some(0));
        assert_eq!((spec(&["x"]).request.gpus, spec(&["--gpus", "2", "x"]).request.gpus), (0, 2));
        assert_eq!(spec(&["--mem-per-node", "2G", "x"]).request.memory_bytes, Some(2 << 30));
    }

    #[test]
    fn single_text_runs_in_a_shell() {
        let both = spec(&["make && ./a.out"]);
        assert_eq!((&*both.name, words(&both)), ("make", vec!["sh", "-c", "make && ./a.out"]));
        assert_eq!(words(&spec(&["./a.out"])), ["./a.out"]);
        assert_eq!(words(&spec(&["echo", "$HOME"])), ["echo", "$HOME"], "several words go to the command unchanged");
        assert_eq!(words(&spec(&["-n2", "echo", "-n", "x"])), ["echo", "-n", "x"], "flags of the command are its own");
    }

    #[test]
    fn invalid_values_are_rejected() {
        let bad = [
            &["-n", "0", "x"][..],
            &["-p", "0", "x"],
            &["--mem-per-node", "0", "x"],
            &["--mem-per-node", "much", "x"],
            &["-t", "soon", "x"],
            &["-t", "inf", "x"],
            &["-t", "nan", "x"],
            &["--gres", "1", "x"],
            &[],
        ];
        bad.iter().for_each(|line| assert!(parse(line).is_err(), "{line:?}"));
        for line in [&[" "][..], &["--", "--version"]] {
            let failure = parse(line).expect("clap accepts the command").spec().expect_err("nonsense");
            assert_eq!(failure.exit, exit::USAGE, "{line:?}");
        }
        assert_eq!(*spec(&[&"ü".repeat(300)]).name, *"ü".repeat(255), "a job's name has at most 255 characters");
    }
}
