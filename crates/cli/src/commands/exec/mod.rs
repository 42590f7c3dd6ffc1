//! `hostler exec`, also called `dsh`: runs a command at once on the best node.

mod call;
mod exec_command;
mod headless;
mod many;
mod mirror;
mod report;

use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use clap::Args;
use hostler_model::{Constraint, NodeName, Rank};
use hostler_remote::ExecRequest;
use hostler_remote::step::RemoteShell;

use crate::cm::Tool;
use crate::command_words::check_command;
use crate::context::Context;
use crate::exit;
use crate::failure::{Failure, Outcome};
use crate::flags::Memory;

/// Run a command now on the best node, without a queue
///
/// The best node is the node with the lowest score, which depends on the node's load and memory. The agent of this
/// machine chooses the node without asking the head. The command runs in the current directory. That directory must be
/// on a disk that the nodes share; otherwise, --mirror copies the source tree. The command keeps the current
/// environment, umask, resource limits, standard streams, terminal and signals. It gets the node's CPUs and memory that
/// no job holds. If jobs hold all CPUs of the node, the command and the jobs share these CPUs.
///
/// Exit codes: the exit code of the command; 125 if the command could not run or its exit status is unknown; 126 or 127
/// if the node cannot execute the command.
///
/// Examples: `make -j8 CC='dsh gcc'` compiles on all nodes, `hostler exec --node n2 htop` runs on one node, `hostler
/// exec --all uptime` runs on each node.
#[derive(Debug, Args)]
pub struct Exec {
    #[command(flatten)]
    where_to: WhereTo,

    /// Run in this directory of the node instead of the current directory
    #[arg(short = 'C', long, value_name = "DIR")]
    directory: Option<PathBuf>,

    /// Copy the source tree to a node without the shared disk, and copy changes back
    ///
    /// DIR is the source tree. [default: the nearest parent directory under version control, else the current
    /// directory]
    #[arg(
        long,
        value_name = "DIR",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "",
        conflicts_with_all = ["directory", "all", "nodes", "rsh", "explain"]
    )]
    mirror: Option<OsString>,

    /// With --mirror: allow the node's program to differ from this machine's program
    #[arg(long, requires = "mirror")]
    any_program: bool,

    /// Run the command in a sandbox, which nothing but the directory outlives
    ///
    /// As for jobs with `hostler run --sandbox`: without a network, and without other files of yours. The directory must
    /// be yours, and your home directory must not be in it. ^Z has no effect.
    #[arg(long, conflicts_with = "mirror")]
    sandbox: bool,

    /// Run the command without standard input
    #[arg(short = 'n', long)]
    no_input: bool,

    /// Run the command without a terminal, even if called from a terminal
    #[arg(short = 'T', long)]
    no_terminal: bool,

    /// Afterwards, print the node, the node's score and the run time on stderr
    #[arg(long)]
    report: bool,

    /// Print the score of each node without running a command; lower is better
    #[arg(long)]
    explain: bool,

    /// Run on all nodes at once; label output with node names
    ///
    /// The command has neither input nor a terminal. At the end, failures are listed and successes are counted on
    /// stderr. The exit code is that of the first node on which the command failed. If a node accepts no commands, e.g. because
    /// it is drained or down, it is named, and the exit code is 125.
    #[arg(long, conflicts_with_all = ["node", "nodes", "explain", "report", "prefer_local", "rank"])]
    all: bool,

    /// With --all: only the nodes that accept commands now; others do not count as failures
    #[arg(long, requires = "all")]
    available: bool,

    /// Run on each of these nodes at once, e.g. n1,n2; output as with --all
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        conflicts_with_all = ["node", "exclude", "explain", "report", "prefer_local", "rank"]
    )]
    nodes: Vec<NodeName>,

    /// Accept the command line of `rsh` or `ssh`: options, node, shell command
    ///
    /// For programs that start remote commands with `rsh` or `ssh`.
    #[arg(long, conflicts_with_all = ["all", "nodes", "node", "explain", "report"])]
    rsh: bool,

    /// Command and arguments
    #[arg(value_name = "COMMAND", trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

/// Options that restrict the nodes on which the command may run.
#[derive(Debug, Clone, Args)]
struct WhereTo {
    /// Require this much free memory on the node; also the command's memory limit
    #[arg(short, long, value_name = "SIZE")]
    memory: Option<Memory>,

    /// Run only on nodes with these features, e.g. 'gpu&ssd'
    #[arg(long, visible_alias = "feature", value_name = "FEATURES")]
    constraint: Option<Constraint>,

    /// Run on this node; repeatable, to use the best of several nodes
    #[arg(long, value_name = "NAME")]
    node: Vec<NodeName>,

    /// Do not run on this node; repeatable
    #[arg(long, value_name = "NAME")]
    exclude: Vec<NodeName>,

    /// Run on this machine unless another node has a much better score
    #[arg(long)]
    prefer_local: bool,

    /// Choose the node with the lowest value of this expression, e.g. 'load * load_weight' or '1e6 / free_memory'
    ///
    /// Names: load, busy, cpus, free_memory and memory in MiB, cpu_pressure, memory_pressure, io_pressure, load_weight,
    /// memory_weight, under_way, score. Operators: + - * / ( ) min(a, b) max(a, b).
    #[arg(long, value_name = "EXPRESSION", allow_hyphen_values = true)]
    rank: Option<Rank>,
}

/// Run a command now on the best node, like `hostler exec`
#[derive(Debug, Args)]
#[command(override_usage = "dsh [OPTIONS] <COMMAND>...")]
pub(crate) struct Dsh {
    #[command(flatten)]
    exec: Exec,
}

impl Tool for Dsh {
    const NAME: &'static str = "dsh";

    fn run(self, context: &Context) -> Outcome {
        self.exec.run(context)
    }
}

impl Exec {
    /// Codes below 125 belong to the command, so all failures but mistakes on the command line exit with 125.
    pub fn run(self, context: &Context) -> Outcome {
        self.call(context).map_err(|failure| match failure.exit {
            exit::FAILED => failure.exiting(exit::RUN_FAILED),
            _ => failure,
        })
    }

    fn call(mut self, context: &Context) -> Outcome {
        if self.rsh {
            self.as_remote_shell()?;
        } else {
            check_command(context, "exec", &self.command)?;
        }
        if self.command.is_empty() && !self.explain {
            return Err(Failure::usage("no command is given").hint("e.g. hostler exec gcc -c x.c"));
        }
        if self.all || !self.nodes.is_empty() {
            let mut nodes = many::Nodes { present: self.nodes.clone(), missing: Vec::new() };
            if self.all {
                nodes = all_nodes(self.ask()?)?;
            }
            if self.available {
                nodes.missing.clear();
            }
            return many::run(context, &nodes, |node| self.on_node(node));
        }
        let ask = self.ask()?;
        if self.explain {
            report::scores(context, &*call::choice(ask)?);
            return Ok(exit::OK);
        }
        let local_tree = self
            .mirror
            .as_deref()
            .map(|root| mirror::LocalTree::of(&ask.command, mirror::root_named(root), self.any_program));
        let local_tree = local_tree.transpose()?;
        call::run(context, ask, self.report, local_tree)
    }

    /// This program as `dsh`, with the same command for one node.
    fn on_node(&self, node: &NodeName) -> Command {
        let mut command = Command::new("/proc/self/exe");
        command.arg0(Dsh::NAME).arg("--node").arg(node.as_str()).args(["--no-input", "--no-terminal"]);
        if let Some(memory) = &self.where_to.memory {
            command.arg("--memory").arg(memory.0.to_string());
        }
        if let Some(constraint) = &self.where_to.constraint {
            command.arg("--constraint").arg(constraint.to_string());
        }
        if let Some(directory) = &self.directory {
            command.arg("-C").arg(directory);
        }
        if self.sandbox {
            command.arg("--sandbox");
        }
        command.arg("--").args(&self.command);
        command
    }

    /// Takes the node and the command from a command line of `ssh`.
    fn as_remote_shell(&mut self) -> Result<(), Failure> {
        let wanted = RemoteShell::parse(&self.command).map_err(|why| {
            Failure::usage(format!("not a valid command line of ssh: {why}")).hint("e.g. hostler exec --rsh n2 uptime")
        })?;
        let own = nix::unistd::User::from_uid(nix::unistd::geteuid()).ok().flatten().map(|user| user.name);
        if let Some(user) = wanted.user.as_ref().filter(|user| own.as_ref().is_some_and(|own| own != *user)) {
            return Err(Failure::usage(format!("the command would run as you, not as {user}"))
                .hint("a command on a node runs as its caller; leave out the user's name"));
        }
        self.command = wanted.argv();
        self.where_to.node = vec![wanted.host.parse()?];
        self.no_input |= wanted.no_input;
        self.no_terminal = true;
        if self.directory.is_none() {
            let home = std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
            self.directory = Some(home.unwrap_or_else(|| "/".into()));
        }
        Ok(())
    }

    /// Builds the request to the agent from the options.
    fn ask(&self) -> Result<ExecRequest, Failure> {
        // `--explain` runs no command, but a request needs one.
        let argv = if self.command.is_empty() { vec!["true".into()] } else { self.command.clone() };
        let terminals =
            [!self.no_input && io::stdin().is_terminal(), io::stdout().is_terminal(), io::stderr().is_terminal()];
        let on_terminal = terminals.map(|is_terminal| is_terminal && !self.no_terminal);
        let mut command = call::command(&argv, self.directory.as_deref(), on_terminal)?;
        command.has_input = !self.no_input && !call::is_null(io::stdin().as_fd());
        command.sandbox = self.sandbox;
        command.memory_bytes = self.where_to.memory.map(|memory| memory.bytes_for("a command")).transpose()?;
        Ok(ExecRequest {
            command,
            constraint: self.where_to.constraint.clone(),
            only: self.where_to.node.clone(),
            not: self.where_to.exclude.clone(),
            prefer_local: self.where_to.prefer_local,
            rank: self.where_to.rank.clone(),
            mirrors_tree: self.mirror.is_some(),
            explain: self.explain,
        })
    }
}

/// All nodes that the caller means.
fn all_nodes(ask: ExecRequest) -> Result<many::Nodes, Failure> {
    let constraint = ask.constraint.clone();
    let choice = *call::choice(ask)?;
    let mut names: Vec<_> = choice.candidates.iter().map(|how| how.node.clone()).collect();
    if let (true, Some(constraint)) = (names.is_empty(), constraint) {
        let failure =
            Failure::new(format!("no node that has {constraint} can run this command")).exiting(exit::RUN_FAILED);
        let reasons = choice.unfit.iter().take(8).map(|(node, why)| format!("{node}: {why}"));
        return Err(reasons.fold(failure, Failure::hint));
    }
    names.sort();
    let mut missing = choice.unfit;
    missing.retain(|(node, _)| !choice.unwanted.contains(node));
    Ok(many::Nodes { present: names, missing })
}
