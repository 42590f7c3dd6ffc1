//! `hostler agent`: the daemon of a node.

use std::io::{self, BufRead, IsTerminal};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use hostler_agent::{Device, DeviceFile, Introduction, MachineGpu, NewAccounts, StatusPorts, Weight, Weights};
use hostler_client::ClientError;
use hostler_discovery::{Caps, Machine};
use hostler_model::{Counted, CpuSet, Feature, NodeName};
use hostler_proto::join::JoinCode;
use serde_json::json;

use crate::config;
use crate::context::{Context, block_on};
use crate::daemons::ignore_umask_of_root;
use crate::daemons::log::log_to_stderr;
use crate::daemons::places::AgentPlaces;
use crate::daemons::settings::{AgentSettings, GossipAt, PortAt};
use crate::exit;
use crate::failure::{During, Failure, Outcome};
use crate::flags::{GpuCap, Memory, TimeLimit, counted};

/// The longest line that is read as a join code, in bytes.
const MAX_CODE_BYTES: u64 = 4096;

/// The agent of a node: runs jobs and brings their results to the head
#[derive(Debug, Args)]
pub(crate) struct Agent {
    #[command(subcommand)]
    command: AgentCommand,
}

#[derive(Debug, Subcommand)]
enum AgentCommand {
    Join(AgentJoin),
    Run(Box<AgentRun>),
}

/// Make this machine a node of a cluster, with a code that `hostler node invite` has printed there
///
/// A code is good for one machine and one hour. It holds a secret: on a command line other users of this machine can see it, so `-`, or no
/// code at all, reads it from standard input. While the head is away or busy this goes on trying. A node that has joined before becomes the
/// one of the code; an agent that runs for it takes that up by itself, unless the node's name or cluster is another now.
#[derive(Debug, Args)]
struct AgentJoin {
    /// The join code; `-` reads it from standard input
    #[arg(value_name = "CODE", default_value = "-", hide_default_value = true)]
    code: String,

    /// The node's name; by default the one that it was invited under, else this machine's
    #[arg(long, value_name = "NAME")]
    name: Option<NodeName>,

    /// Where the node keeps everything; /var/lib/hostler/agent for root, in the XDG state directory for others
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,
}

/// Run an agent in the foreground; it logs to stderr as HOSTLER_LOG says (info by default)
///
/// It needs no flags once `hostler agent join` has been called: the node gives all CPUs, memory and GPUs that it may use, less a little
/// memory for the system. `cpus`, `memory`, `gpus` and `environments` in /etc/hostler/agent.toml, or agent.toml in the node's directory, cap what it gives;
/// `features` and the table `resources` there say what else it has; `accounts`, `homes` and `root_jobs` set to true are the flags of these
/// names; with `install_python = true` uv may install versions of Python that projects ask for. `gossip` says where it tells other nodes of its load; with `calls = false` it tells of it and takes no commands. `load_weight`, `memory_weight` and the tables `status` and `dsh` are about how commands are spread over nodes.
#[derive(Debug, Default, Args)]
pub(crate) struct AgentRun {
    /// Where it keeps jobs, environments and chunks
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,

    /// Where it keeps environments instead; agents of the same user may share it
    #[arg(long, value_name = "DIR")]
    environments: Option<PathBuf>,

    /// The node's name, if it must be this one; by default it is what the node has joined as
    #[arg(long, value_name = "NAME")]
    name: Option<NodeName>,

    /// The CPUs it gives, such as 0-3,8; by default all that it may use
    #[arg(long, value_name = "IDS")]
    cpus: Option<CpuSet>,

    /// The memory it gives; by default all less a little
    #[arg(long, value_name = "SIZE")]
    memory: Option<Memory>,

    /// Something that the machine has and others may not have, for `--constraint`, such as ssd; may be repeated. Its architecture, such as
    /// x86_64, is one in any case
    #[arg(long, value_name = "WORD")]
    feature: Vec<Feature>,

    /// Something that the machine has and no kernel knows, such as license=10, for jobs to hold with `--resource`; may be repeated
    #[arg(long, value_name = "NAME=COUNT")]
    resource: Vec<Counted>,

    /// The GPUs it gives: `all`, `none`, or a list of indices and unique ids; by default all. `hostler node discover` shows them
    #[arg(long, value_name = "GPUS")]
    gpus: Option<GpuCap>,

    /// For tests: take the machine for the one that `hostler node discover --capture` has captured in this file
    #[arg(long, value_name = "FILE", hide = true)]
    machine_from: Option<PathBuf>,

    /// Run jobs of root too; without this an agent of root runs those of all other users, each as its user
    #[arg(long)]
    root_jobs: bool,
    /// What others do on this machine does not keep it from being switched off: terminals in use, CPUs that are busy. For machines with
    /// several nodes
    #[arg(long)]
    shared_machine: bool,

    /// Wait for so long before anything else, as a machine does that starts
    #[arg(long, value_name = "TIME", hide = true)]
    start_after: Option<TimeLimit>,

    /// The socket for users of this machine; /run/hostler/agent.sock for everybody when root runs the agent in its usual place,
    /// agent.sock in its directory otherwise, and none when the head is on this machine
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,

    /// Where it tells other nodes of its load and hears of theirs, by UDP: an address at which they reach this machine and a port, or
    /// `none`; by default any address and port 7761, or any port that is free
    #[arg(long, value_name = "ADDRESS:PORT")]
    gossip: Option<GossipAt>,

    /// Tell other nodes of its load and hear of theirs, but run no commands for them and send them none: `hostler exec` and `dsh` pass this
    /// machine by, and nobody can call them here. Jobs are another matter
    #[arg(long)]
    no_calls: bool,

    /// How long it takes for work, compared with a usual node, from 0.01 to 100: 2 is half as fast, and gets fewer commands
    #[arg(long, value_name = "WEIGHT")]
    load_weight: Option<Weight>,

    /// How good its memory is, compared with that of a usual node, from 0.01 to 100: 2 is twice as good
    #[arg(long, value_name = "WEIGHT")]
    memory_weight: Option<Weight>,

    /// Answer at this port with the loads of all nodes in plain text, one line each; a number alone is a port of the loopback address.
    /// Whoever can connect can read it
    #[arg(long, value_name = "[ADDRESS:]PORT")]
    table_port: Option<PortAt>,

    /// Answer at this port with the line of the best node, which then counts as busier for a while
    #[arg(long, value_name = "[ADDRESS:]PORT")]
    best_port: Option<PortAt>,

    /// Create accounts that users of the cluster lack on this machine; only root can
    ///
    /// Not done unless asked for: on machines whose accounts come from a directory or a roster of their own, another hand would only
    /// disturb. No account is ever changed or removed.
    #[arg(long)]
    accounts: bool,

    /// Create home directories along with accounts
    #[arg(long, requires = "accounts")]
    homes: bool,

    /// A file with a join code, for a node that has not joined yet
    #[arg(long, value_name = "FILE")]
    join_file: Option<PathBuf>,

    /// A file in which a head on this machine says its address
    #[arg(long, value_name = "FILE")]
    head_file: Option<PathBuf>,
}

impl Agent {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        match self.command {
            AgentCommand::Join(command) => command.run(context),
            AgentCommand::Run(command) => command.run(),
        }
    }
}

impl AgentJoin {
    fn run(self, context: &Context) -> Outcome {
        let output = &context.output;
        ignore_umask_of_root();
        let text = match self.code.as_str() {
            "-" => {
                if io::stdin().is_terminal() {
                    output.say("paste the join code, then press Enter:");
                }
                read_line()?
            }
            text => text.to_owned(),
        };
        if text.trim().is_empty() {
            return Err(Failure::usage("there is no join code on standard input")
                .hint("paste the one that `hostler node invite` prints on the head's machine"));
        }
        let code: JoinCode = text.parse()?;
        let places = AgentPlaces::choose(self.directory.as_deref())?;
        let introduction = Introduction { name: self.name, machine: machine_name() };
        let mut said = String::new();
        let report = |error: &ClientError, wait: Duration| {
            let why = error.to_string();
            if said != why {
                output.say(&format!("{why}; trying again, next in {:.1} s (Ctrl-C gives up)", wait.as_secs_f64()));
                said = why;
            }
        };
        let (node, head) = block_on(async {
            hostler_agent::join(&places.directory, &code, introduction, report).await.map_err(|error| {
                match error.downcast::<hostler_client::ClientError>() {
                    Ok(error) => Failure::from(error),
                    Err(error) => Failure::from(error),
                }
            })
        })?;
        output.say(&format!("this machine is node {node} of the cluster at {head}"));
        output.say(&match self.directory {
            _ if hostler_agent::is_running(&places.directory) => {
                "its agent is running and takes this up within half a minute; if the node had another name or cluster before, restart it"
                    .to_owned()
            }
            Some(directory) => format!("next: `hostler agent run --directory {}`", directory.display()),
            None => "next: `hostler agent run`, or as a service".to_owned(),
        });
        if output.is_json() {
            output.json(&json!({ "node": node, "head": head }));
        }
        Ok(exit::OK)
    }
}

/// A line of standard input.
fn read_line() -> Result<String, Failure> {
    let mut line = String::new();
    io::Read::take(io::stdin().lock(), MAX_CODE_BYTES)
        .read_line(&mut line)
        .during(|| "cannot read the join code".to_owned())?;
    Ok(line)
}

/// This machine's name without its domain, if a node can have it.
fn machine_name() -> Option<NodeName> {
    let name = nix::unistd::gethostname().ok()?.into_string().ok()?;
    name.split('.').next()?.parse().ok()
}

impl AgentRun {
    fn run(self) -> Outcome {
        log_to_stderr()?;
        let pause = self.start_after;
        let config = self.config()?;
        if let Some(TimeLimit(pause)) = pause {
            std::thread::sleep(pause);
        }
        hostler_agent::run(config)?;
        Ok(exit::OK)
    }

    /// The usual agent of this machine, as `hostler agent run` without flags, but with these ports.
    pub(crate) fn with_ports(table: PortAt, best: PortAt) -> Self {
        Self { table_port: Some(table), best_port: Some(best), ..Self::default() }
    }

    /// The socket for users of this machine. Where the head is, its own is better.
    fn users_socket(&self, directory: &Path) -> Option<PathBuf> {
        // An agent in a place of its own is not the machine's.
        let is_the_machines = self.directory.is_none() && nix::unistd::geteuid().is_root();
        let usual = || if is_the_machines { config::AGENT_SOCKET.into() } else { directory.join("agent.sock") };
        self.socket.clone().or_else(|| self.head_file.is_none().then(usual))
    }

    /// Where it gossips, the first that is free. `set` is what the settings say.
    fn gossip_addresses(&self, set: Option<GossipAt>) -> Vec<SocketAddr> {
        let any =
            |port| [SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)), SocketAddr::from((Ipv4Addr::UNSPECIFIED, port))];
        match self.gossip.or(set) {
            Some(GossipAt::None) => Vec::new(),
            Some(GossipAt::Address(address)) => vec![address],
            None if self.head_file.is_some() => vec![SocketAddr::from((Ipv4Addr::LOCALHOST, 0))],
            None => [any(GOSSIP_PORT), any(0)].concat(),
        }
    }

    /// `set` is what the settings say.
    fn accounts(&self, set: &AgentSettings) -> NewAccounts {
        match (self.accounts || set.accounts, self.homes || set.homes) {
            (false, _) => NewAccounts::Leave,
            (true, false) => NewAccounts::Create,
            (true, true) => NewAccounts::CreateWithHomes,
        }
    }

    /// Flags as they are; else what there is, capped by the settings file.
    pub(crate) fn config(self) -> Result<hostler_agent::Config, Failure> {
        let places = AgentPlaces::choose(self.directory.as_deref())?;
        let socket = self.users_socket(&places.directory);
        let caps = AgentSettings::read(&places.settings)?;
        let (accounts, gossip) = (self.accounts(&caps), self.gossip_addresses(caps.gossip));
        let there_is = machine(self.machine_from.as_deref())?;
        let gpus = gpus(&there_is, self.gpus.or(caps.gpus));
        let cpus = self.cpus.unwrap_or_else(|| capped(there_is.usable.clone(), caps.cpus.as_ref()));
        if cpus.is_empty() {
            return Err(Failure::usage("a node without a CPU can run nothing").hint("name some: --cpus 0-3"));
        }
        let memory_bytes = match self.memory {
            Some(memory) => memory.0,
            None => there_is.memory.usable_bytes.min(caps.memory.map_or(u64::MAX, |cap| cap.0)),
        };
        let weights = Weights {
            load: self.load_weight.unwrap_or(caps.weights.load),
            memory: self.memory_weight.unwrap_or(caps.weights.memory),
        };
        let port = |named: Option<PortAt>, set| named.map(|PortAt(at)| at).or(set);
        let status = StatusPorts {
            table: port(self.table_port, caps.status.table),
            best: port(self.best_port, caps.status.best),
        };
        Ok(hostler_agent::Config {
            socket,
            accounts,
            gossip,
            calls: !self.no_calls && caps.calls.unwrap_or(true),
            weights,
            status,
            policy: caps.policy,
            machines: None,
            directory: places.directory,
            environments: self.environments.or(caps.environments),
            name: self.name,
            cpus,
            memory_bytes,
            counted: if self.resource.is_empty() { caps.resources } else { counted(&self.resource)? },
            features: std::iter::once(architecture()).chain(caps.features).chain(self.feature).collect(),
            topology: there_is.topology(),
            gpus,
            root_jobs: self.root_jobs || caps.root_jobs,
            install_python: caps.install_python,
            shared_machine: self.shared_machine || caps.shared_machine,
            join_file: self.join_file,
            head_file: self.head_file,
        })
    }
}

/// The UDP port at which nodes gossip, unless another process has it.
const GOSSIP_PORT: u16 = 7761;

/// What this machine's instructions are, as a feature.
fn architecture() -> Feature {
    std::env::consts::ARCH.parse().expect("the names of architectures are words")
}

/// What there is, as a process of its own finds it: drivers are asked on threads, an agent must fork while it has none, and a driver
/// that hangs is left behind with that process.
fn machine(captured: Option<&Path>) -> Result<Machine, Failure> {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("hostler").args(["node", "discover", "--json"]).stdin(Stdio::null()).stdout(Stdio::piped());
    if let Some(file) = captured {
        command.arg("--from").arg(file);
    }
    let what = || "cannot find out what this machine has to give".to_owned();
    let mut child = command.spawn().during(what)?;
    let answer = child.stdout.take().expect("it is a pipe");
    // Not to the end of the pipe, which is open for as long as a driver hangs.
    let found = serde_json::Deserializer::from_reader(io::BufReader::new(answer)).into_iter().next();
    let found = found.transpose().map_err(io::Error::from).during(what)?;
    let given_up = Instant::now() + EXIT_TIME;
    while child.try_wait().during(what)?.is_none() && Instant::now() < given_up {
        std::thread::sleep(Duration::from_millis(1));
    }
    found.ok_or_else(|| Failure::new(what()).hint("`hostler node discover` says why"))
}

/// How long the process that has looked at the machine may take to go: longer only in the hands of a driver.
const EXIT_TIME: Duration = Duration::from_secs(1);

/// The machine's GPUs, and which of them may be given.
fn gpus(machine: &Machine, cap: Option<GpuCap>) -> Vec<MachineGpu> {
    let given = match cap {
        None | Some(GpuCap::All) => machine.clone(),
        Some(GpuCap::Only(picks)) => {
            let before = machine.notes.len();
            let capped = machine.clone().capped(&Caps { gpus: Some(picks), ..Caps::default() });
            capped.notes[before..].iter().for_each(|note| tracing::warn!("{note}"));
            capped
        }
    };
    let file = |file: &hostler_discovery::DeviceFile| DeviceFile {
        path: file.path.clone(),
        device: Device { major: file.major, minor: file.minor },
    };
    let gpu = |gpu: &hostler_discovery::Gpu| MachineGpu {
        gpu: gpu.summary(),
        index: gpu.index,
        devices: gpu.devices.iter().map(file).collect(),
        is_given: given.gpus.iter().any(|given| given.index == gpu.index),
    };
    machine.gpus.iter().map(gpu).collect()
}

/// Those CPUs that there are and that may be given.
fn capped(mut cpus: CpuSet, cap: Option<&CpuSet>) -> CpuSet {
    if let Some(cap) = cap {
        let mut others = cpus.clone();
        others.remove_all(cap);
        cpus.remove_all(&others);
    }
    cpus
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cap_gives_nothing_that_is_not_there() {
        let cpus = |text: &str| text.parse::<CpuSet>().expect(text);
        assert_eq!(capped(cpus("0-3"), Some(&cpus("2-9"))), cpus("2-3"));
        assert_eq!(capped(cpus("0-3"), None), cpus("0-3"));
    }
}
