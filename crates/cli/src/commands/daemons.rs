//! The daemons: `hostler head run` and `hostler agent run`.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use hostler_agent::Accounts;
use hostler_model::{CpuSet, NodeName};
use tracing_subscriber::EnvFilter;

use crate::config;
use crate::exit;
use crate::failure::{Failure, Outcome};
use crate::flags::Memory;

/// The head of a cluster: takes jobs, decides what runs where, keeps results
#[derive(Debug, Args)]
pub(crate) struct Head {
    #[command(subcommand)]
    command: HeadCommand,
}

#[derive(Debug, Subcommand)]
enum HeadCommand {
    Run(HeadRun),
}

/// Run a head in the foreground; it logs to stderr as HOSTLER_LOG says (info by default)
#[derive(Debug, Args)]
struct HeadRun {
    /// Where it keeps its state
    #[arg(long, value_name = "DIR")]
    directory: PathBuf,

    /// The Unix socket for users of this machine
    #[arg(long, value_name = "PATH")]
    socket: PathBuf,

    /// Where agents connect
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    listen: SocketAddr,

    /// What results may take before fetched ones are dropped; half of the disk by default
    #[arg(long, value_name = "SIZE")]
    results_cap: Option<Memory>,

    /// The head is part of a cluster on this machine alone
    #[arg(long)]
    embedded: bool,
}

/// The agent of a node: runs jobs and brings their results to the head
#[derive(Debug, Args)]
pub(crate) struct Agent {
    #[command(subcommand)]
    command: AgentCommand,
}

#[derive(Debug, Subcommand)]
enum AgentCommand {
    Run(AgentRun),
}

/// Run an agent in the foreground; it logs to stderr as HOSTLER_LOG says (info by default)
#[derive(Debug, Args)]
struct AgentRun {
    /// Where it keeps jobs, environments and chunks
    #[arg(long, value_name = "DIR")]
    directory: PathBuf,

    /// Where it keeps environments instead; agents of the same user may share it
    #[arg(long, value_name = "DIR")]
    environments: Option<PathBuf>,

    /// The node's name
    #[arg(long, value_name = "NAME")]
    name: NodeName,

    /// The CPUs it gives, such as 0-3,8
    #[arg(long, value_name = "IDS")]
    cpus: CpuSet,

    /// The memory it gives
    #[arg(long, value_name = "SIZE")]
    memory: Memory,

    /// A file with a join code; needed until the node has joined
    #[arg(long, value_name = "FILE")]
    join_file: Option<PathBuf>,

    /// A file in which a head on this machine says its address
    #[arg(long, value_name = "FILE")]
    head_file: Option<PathBuf>,

    /// The socket for users of this machine; /run/hostler/agent.sock for everybody when root runs the agent, agent.sock in its
    /// directory otherwise, and none when the head is on this machine
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,

    /// Create accounts that users of the cluster lack on this machine; only root can
    ///
    /// Not done unless asked for: on machines whose accounts come from a directory or a roster of their own, another hand would only
    /// disturb. No account is ever changed or removed.
    #[arg(long)]
    accounts: bool,

    /// Create home directories along with accounts
    #[arg(long, requires = "accounts")]
    homes: bool,
}

impl Head {
    pub(crate) fn run(self) -> Outcome {
        let HeadCommand::Run(HeadRun { directory, socket, listen, results_cap, embedded }) = self.command;
        log_to_stderr()?;
        let results_cap_bytes = results_cap.map(|size| size.0);
        hostler_head::run(hostler_head::Config { directory, socket, listen, embedded, results_cap_bytes })?;
        Ok(exit::OK)
    }
}

impl Agent {
    pub(crate) fn run(self) -> Outcome {
        let AgentCommand::Run(run) = self.command;
        let (socket, accounts) = (run.users_socket(), run.accounts());
        let AgentRun { directory, environments, name, cpus, memory, join_file, head_file, .. } = run;
        if cpus.is_empty() {
            return Err(Failure::usage("a node without a CPU can run nothing").hint("name some: --cpus 0-3"));
        }
        log_to_stderr()?;
        let memory_bytes = memory.0;
        hostler_agent::run(hostler_agent::Config {
            directory,
            environments,
            name,
            cpus,
            memory_bytes,
            join_file,
            head_file,
            socket,
            accounts,
        })?;
        Ok(exit::OK)
    }
}

impl AgentRun {
    /// The socket for users of this machine. Where the head is, its own is better.
    fn users_socket(&self) -> Option<PathBuf> {
        let usual = || match nix::unistd::geteuid().is_root() {
            true => config::AGENT_SOCKET.into(),
            false => self.directory.join("agent.sock"),
        };
        self.socket.clone().or_else(|| self.head_file.is_none().then(usual))
    }

    fn accounts(&self) -> Accounts {
        match (self.accounts, self.homes) {
            (false, _) => Accounts::Leave,
            (true, false) => Accounts::Create,
            (true, true) => Accounts::CreateWithHomes,
        }
    }
}

/// Sends the log where a service manager or `up` collects it.
fn log_to_stderr() -> Result<(), Failure> {
    let wanted = std::env::var("HOSTLER_LOG").unwrap_or_else(|_| "info".to_owned());
    let filter = EnvFilter::try_new(&wanted).map_err(|error| {
        Failure::usage(format!("HOSTLER_LOG is `{wanted}`, which is no log filter"))
            .because(&error)
            .hint("such as info, debug or hostler_head=debug,info")
    })?;
    tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false).with_writer(io::stderr).init();
    Ok(())
}

/// The description of the API, JSON.
pub(crate) fn openapi() -> String {
    hostler_head::openapi()
}
