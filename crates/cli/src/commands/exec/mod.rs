//! `hostler exec`, also called `dsh`: a command, now, on the node with the most room.

mod become_it;
mod call;
mod many;
mod report;
mod ship;

use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::path::PathBuf;

use clap::Args;
use hostler_calls::Ask;
use hostler_model::{Constraint, NodeName};
use hostler_steps::RemoteShell;

use crate::cm::Tool;
use crate::context::Context;
use crate::failure::{Failure, Outcome};
use crate::flags::Memory;

/// Run a command now, on the node with the most room, as if it ran here
///
/// The agent of this machine knows from the other nodes how busy they are, and chooses; no head is asked and nothing is queued. The command
/// has this directory (on a disk that the nodes share), environment, umask and resource limits, standard input, output and error, this terminal if
/// there is one, and signals; its exit code is that of this command. On this machine nothing stands between the command and its
/// streams. Exit codes of its own: 125 when it could not be run or its end is not known, 126 and 127 when it cannot be executed.
///
/// `make -j8 CC='dsh gcc'` compiles on all nodes; `hostler exec --node n2 htop` runs on one; `hostler exec --all uptime` on each.
#[derive(Debug, Args)]
pub(crate) struct Exec {
    #[command(flatten)]
    where_to: WhereTo,

    /// Start in this directory of the node, whatever is there, and not in the one that this is called in
    #[arg(short = 'C', long, value_name = "DIR")]
    directory: Option<PathBuf>,

    /// Take the tree along that this directory is in, to a node that does not share the disk, and bring back what the command writes there. The
    /// tree is DIR, else the nearest directory above that is under version control, else this directory
    #[arg(
        long,
        value_name = "DIR",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "",
        conflicts_with_all = ["directory", "all", "nodes", "rsh", "explain"]
    )]
    ship: Option<OsString>,

    /// With --ship, let the node's program of that name be another one than this machine's
    #[arg(long, requires = "ship")]
    any_program: bool,

    /// Give the command no standard input
    #[arg(short = 'n', long)]
    no_input: bool,

    /// Give the command no terminal even if there is one here
    #[arg(short = 'T', long)]
    no_terminal: bool,

    /// Say afterwards on standard error where it ran, how that node was judged, and how long it took
    #[arg(long = "where")]
    say_where: bool,

    /// Print how all nodes are judged, and run nothing
    #[arg(long)]
    explain: bool,

    /// On all nodes at once: every line of output begins with the node's name, and a summary of exit codes follows
    #[arg(long, conflicts_with_all = ["node", "nodes", "explain", "say_where"])]
    all: bool,

    /// On each of these nodes at once, such as n1,n2, as with --all
    #[arg(long, value_name = "NAMES", value_delimiter = ',', conflicts_with_all = ["node", "explain", "say_where"])]
    nodes: Vec<NodeName>,

    /// Take the command line of `rsh` or `ssh`: options, a node, and words for a shell there; for programs that launch by one of these
    #[arg(long, conflicts_with_all = ["all", "nodes", "node", "explain", "say_where"])]
    rsh: bool,

    /// The command and its arguments
    #[arg(value_name = "COMMAND", trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

/// Which nodes will do.
#[derive(Debug, Clone, Args)]
struct WhereTo {
    /// Only on nodes that can spare so much memory, which is then all that the command may have
    #[arg(short, long, value_name = "SIZE")]
    memory: Option<Memory>,

    /// Only on nodes with these features, such as 'gpu&ssd'
    #[arg(long, visible_alias = "feature", value_name = "FEATURES")]
    constraint: Option<Constraint>,

    /// On this node; of several, on the best of them
    #[arg(long, value_name = "NAME")]
    node: Vec<NodeName>,

    /// Not on this node; may be repeated
    #[arg(long, value_name = "NAME")]
    not: Vec<NodeName>,

    /// Here, unless another node is much better
    #[arg(long)]
    prefer_local: bool,
}

/// `dsh`: the same under the name of the original.
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
    pub(crate) fn run(mut self, context: &Context) -> Outcome {
        if self.rsh {
            self.as_remote_shell()?;
        }
        if self.command.is_empty() && !self.explain {
            return Err(Failure::usage("no command is given").hint("for example: hostler exec gcc -c x.c"));
        }
        if self.all || !self.nodes.is_empty() {
            return many::run(context, &self);
        }
        let mut ask = self.ask()?;
        if self.explain {
            return report::explain(context, ask);
        }
        let shipping =
            self.ship.as_deref().map(|root| ship::Shipping::of(&ask.command, ship::root_named(root), self.any_program));
        let shipping = shipping.transpose()?;
        ask.tree = shipping.as_ref().map(ship::Shipping::sought).transpose()?;
        call::run(context, ask, self.say_where, shipping)
    }

    /// The node and the command as such a command line names them.
    fn as_remote_shell(&mut self) -> Result<(), Failure> {
        let wanted = RemoteShell::parse(&self.command).map_err(|why| {
            Failure::usage(format!("--rsh takes the command line of ssh: {why}"))
                .hint("for example: hostler exec --rsh n2 uptime")
        })?;
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

    /// What the agent is asked.
    fn ask(&self) -> Result<Ask, Failure> {
        // Nobody runs a mere question.
        let argv = if self.command.is_empty() { vec!["true".into()] } else { self.command.clone() };
        let has_terminal =
            !self.no_terminal && !self.no_input && io::stdin().is_terminal() && io::stdout().is_terminal();
        let mut command = call::command(&argv, self.directory.as_deref(), has_terminal)?;
        command.has_input = !self.no_input && !call::is_null(io::stdin().as_fd());
        command.memory_bytes = self.where_to.memory.map(|memory| memory.0);
        Ok(Ask {
            command,
            constraint: self.where_to.constraint.clone(),
            only: self.where_to.node.clone(),
            not: self.where_to.not.clone(),
            prefer_local: self.where_to.prefer_local,
            tree: None,
            explain: self.explain,
        })
    }
}
