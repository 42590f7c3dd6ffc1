//! `hostler agent`: the daemon of a node.

use std::collections::BTreeSet;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use hostler_agent::headless::GOSSIP_PORT;
use hostler_agent::{Device, DeviceFile, Introduction, MachineGpu, NewAccounts, StatusPorts, Weight, Weights};
use hostler_cli::cluster::Daemon;
use hostler_cli::codes::{CodeArgument, JOIN_CODE};
use hostler_cli::config;
use hostler_cli::context::{Context, block_on};
use hostler_cli::daemons::places::AgentPlaces;
use hostler_cli::daemons::{self, keep_files_private};
use hostler_cli::exit;
use hostler_cli::failure::{During, Failure, Outcome};
use hostler_cli::flags::{GpuCap, Memory, TimeLimit, counted};
use hostler_client::ClientError;
use hostler_discovery::{Caps, Machine};
use hostler_model::{Counted, CpuSet, Feature, NodeName, Resources, format_bytes};
use hostler_proto::join::JoinCode;
use serde_json::json;

use crate::settings::{AgentSettings, GossipAt, PortAt, write_new};

/// Join this machine to a cluster, or run the agent of a node
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

/// Make this machine a node of a cluster, with a join code
///
/// On the head, `hostler node invite` prints a join code. The code is valid for one hour and one machine. The code is a
/// secret, and other users can see command lines: the command reads it from standard input. The command retries until
/// it reaches the head. If this machine already is a node, the new code replaces the node's name and cluster. A running
/// agent adopts the change without a restart, unless the name or the cluster of the node changes.
#[derive(Debug, Args)]
struct AgentJoin {
    /// `-` reads the join code from standard input [default: -]
    #[arg(value_name = "-", default_value = "-", hide_default_value = true)]
    code: CodeArgument,

    /// Name of the node [default: the name in the join code, else the hostname]
    #[arg(long, value_name = "NAME")]
    name: Option<NodeName>,

    /// Directory for all data of the node
    ///
    /// [default: /var/lib/hostler/agent for root, else a directory in the XDG state directory]
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,

    /// End the machine's tasks if it gets another name
    #[arg(long)]
    end_tasks: bool,
}

/// Run the agent of a node in the foreground and log to stderr
///
/// After `hostler agent join`, the command needs no options. By default, the node offers all CPUs and GPUs, and all
/// memory except a reserve for the system. HOSTLER_LOG sets the log level [default: info].
///
/// Settings are in /etc/hostler/agent.toml, or in agent.toml in the node's directory; options override settings. The
/// settings `cpus`, `memory`, `gpus`, `environments`, `accounts`, `homes`, `root_jobs`, `shared_machine`, `gossip`,
/// `load_weight` and `memory_weight` act like the options of the same names. `features` and the table `resources` act
/// like --feature and --resource. `remote_commands = false` acts like --no-remote-commands, and `remote_commands =
/// "sandboxed"` runs commands of other nodes in sandboxes. The keys `table` and `best` of the table `status` act like
/// --table-port and --best-port. The table `dsh` sets how remote commands choose a node. `read_only` of the table
/// `sandbox` lists directories and files that sandboxed jobs see, e.g. ["/opt/matlab"], and its `performance_counters =
/// true` lets exclusive ones measure with hardware counters. `directories` of the table `images` lists directories of
/// the node that all users may take as images (`dir:`), e.g. ["/opt/debian"]. `knobs` of the table `quiet_machine`
/// lists the settings of the machine that jobs may ask to change, and `stop_units` the services and timers that stop
/// meanwhile. `install_python = true` lets uv install Python versions that projects require. `uv` of the table
/// `environment` is the path of the uv that builds Python environments; by default the one on the agent's PATH, or one
/// that pip gets. `engines` lists the container engines that jobs may use, e.g. ["podman"]. `metrics` is an address at
/// which the agent serves its metrics to Prometheus, e.g. "127.0.0.1:9101"; an address that is not private also needs
/// `metrics_public = true`.
#[derive(Debug, Default, Args)]
pub(crate) struct AgentRun {
    /// Directory for jobs, environments and chunks
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,

    /// Separate directory for environments; agents of one user can share a directory
    #[arg(long, value_name = "DIR")]
    environments: Option<PathBuf>,

    /// Expected name of the node; fail if the node has another name
    #[arg(long, value_name = "NAME")]
    name: Option<NodeName>,

    /// Ids of the CPUs to offer, e.g. 0-3,8 [default: all usable CPUs]
    #[arg(long, value_name = "IDS")]
    cpus: Option<CpuSet>,

    /// Memory to offer, e.g. 64G [default: all except a reserve for the system]
    #[arg(long, value_name = "SIZE")]
    memory: Option<Memory>,

    /// Feature of the node, e.g. ssd; repeatable
    ///
    /// Jobs require features with --constraint. The architecture, e.g. x86_64, is always a feature.
    #[arg(long, value_name = "WORD")]
    feature: Vec<Feature>,

    /// Counted resource to offer, e.g. license=10; repeatable
    ///
    /// Jobs reserve the resource with --resource.
    #[arg(long, value_name = "NAME=COUNT")]
    resource: Vec<Counted>,

    /// GPUs to offer: `all`, `none`, or a list such as 0,2 [default: all]
    ///
    /// The list contains indices or unique ids of GPUs. `hostler node discover` shows both.
    #[arg(long, value_name = "GPUS")]
    gpus: Option<GpuCap>,

    /// For tests: use the machine that `hostler node discover --capture` wrote to this file
    #[arg(long, value_name = "FILE", hide = true)]
    machine_from: Option<PathBuf>,

    /// Also run jobs of root
    ///
    /// Without this option, an agent that root runs starts the jobs of all users except root. Each job runs as its own
    /// user.
    #[arg(long)]
    root_jobs: bool,
    /// Allow switching the machine off without checking whether other users need it
    ///
    /// Without this option, terminals in use and busy CPUs prevent the power-off. Use this option if several nodes run
    /// on one machine.
    #[arg(long)]
    shared_machine: bool,

    /// Wait this long before the start, like a machine that boots
    #[arg(long, value_name = "TIME", hide = true)]
    start_after: Option<TimeLimit>,

    /// Path of the Unix socket for users of this machine
    ///
    /// [default: /run/hostler/agent.sock, open to all users, if root runs the agent in the default directory; else
    /// agent.sock in the agent's directory; no socket if the head is on this machine]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,

    /// UDP address for gossip with other nodes; `none` turns gossip off
    ///
    /// By gossip, nodes tell each other their load. Other nodes must be able to reach this address. [default: any
    /// address, port 7761 or a free port]
    #[arg(long, value_name = "ADDRESS:PORT")]
    gossip: Option<GossipAt>,

    /// Turn remote commands off, both to and from other nodes
    ///
    /// `hostler exec` and `dsh` on this machine then run commands locally, or fail if their options require a certain
    /// node. On other machines they skip this node. The node still reports its load and runs jobs.
    #[arg(long)]
    no_remote_commands: bool,

    /// Time that work takes, relative to a usual node: 0.01 to 100 [default: 1]
    ///
    /// A node with the load weight 2 needs twice the time of a usual node and gets fewer remote commands.
    #[arg(long, value_name = "WEIGHT")]
    load_weight: Option<Weight>,

    /// Weight of the memory, relative to a usual node: 0.01 to 100 [default: 1]
    ///
    /// With the memory weight 2, used memory raises the node's score half as much. A node with a lower score is better.
    #[arg(long, value_name = "WEIGHT")]
    memory_weight: Option<Weight>,

    /// Serve the loads of all nodes as text at this TCP port, one line per node
    ///
    /// A port without an address is open on the loopback address only. Anyone who can connect to the port can read the
    /// loads.
    #[arg(long, value_name = "[ADDRESS:]PORT")]
    table_port: Option<PortAt>,

    /// Serve the load of the best node as text at this TCP port
    ///
    /// After each answer, the best node counts as busier for a short time. A port without an address is open on the
    /// loopback address only.
    #[arg(long, value_name = "[ADDRESS:]PORT")]
    best_port: Option<PortAt>,

    /// Create missing accounts of cluster users on this machine; needs root
    ///
    /// Do not use this option if a directory service or another tool manages accounts. The agent never changes or
    /// removes accounts.
    #[arg(long)]
    accounts: bool,

    /// With --accounts: also create the home directories of new accounts
    #[arg(long, requires = "accounts")]
    homes: bool,

    /// File with the join code for a new node
    #[arg(long, value_name = "FILE")]
    join_file: Option<PathBuf>,

    /// File from which the agent reads the address of a head on this machine
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
        keep_files_private();
        let code: JoinCode = self.code.read(output, &JOIN_CODE)?;
        let places = AgentPlaces::choose(self.directory.as_deref())?;
        Daemon::Agent.ensure_own(&places.directory)?;
        let introduction = Introduction { name: self.name, machine: machine_name(), may_end_runs: self.end_tasks };
        let mut said = String::new();
        let report = |error: &ClientError, wait: Duration| {
            let why = error.to_string();
            if said != why {
                output.say(&format!("{why}; retrying in {:.1} s (Ctrl-C stops)", wait.as_secs_f64()));
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
        if !places.settings.exists() {
            // The code is used up, so the machine has joined whether this succeeds or not.
            match write_new(&places.settings, AgentSettings::NEW) {
                Ok(()) => output.say(&format!("what the node offers can be changed in {}", places.settings.display())),
                Err(failure) => output.say(&format!("note: {}", failure.summary())),
            }
        }
        output.say(&match self.directory {
            _ if hostler_sys::is_locked(&places.directory) => {
                "the running agent adopts the change within half a minute; if the node's name or cluster has changed, restart the agent"
                    .to_owned()
            }
            Some(directory) => format!("next: `hostler agent run --directory {}`", directory.display()),
            None => "next: start the agent with `hostler agent run` or as a service".to_owned(),
        });
        if output.is_json() {
            output.json(&json!({ "node": node, "head": head }));
        }
        Ok(exit::OK)
    }
}

/// This machine's hostname without its domain, if it is a valid node name.
fn machine_name() -> Option<NodeName> {
    let name = nix::unistd::gethostname().ok()?.into_string().ok()?;
    name.split('.').next()?.parse().ok()
}

impl AgentRun {
    fn run(self) -> Outcome {
        daemons::begin()?;
        let pause = self.start_after;
        let config = self.config()?;
        if let Some(TimeLimit(pause)) = pause {
            std::thread::sleep(pause);
        }
        hostler_agent::run(config)?;
        Ok(exit::OK)
    }

    /// The settings of `hostler agent run` with these two ports as the only options.
    pub(crate) fn with_ports(table: PortAt, best: PortAt) -> Self {
        Self { table_port: Some(table), best_port: Some(best), ..Self::default() }
    }

    /// The socket for users of this machine. `None` if the head is on this machine, because users then connect to the
    /// head's socket.
    fn users_socket(&self, directory: &Path) -> Option<PathBuf> {
        // Only root's agent in the default directory is the agent of the whole machine.
        let is_the_machines = self.directory.is_none() && nix::unistd::geteuid().is_root();
        let usual = || if is_the_machines { config::AGENT_SOCKET.into() } else { directory.join("agent.sock") };
        self.socket.clone().or_else(|| self.head_file.is_none().then(usual))
    }

    /// Addresses for gossip, in order of preference. `set` is the address in the settings file.
    fn gossip_addresses(&self, set: Option<GossipAt>) -> Vec<SocketAddr> {
        let any =
            |port| [SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)), SocketAddr::from((Ipv4Addr::UNSPECIFIED, port))];
        match self.gossip.or(set) {
            Some(GossipAt::None) => Vec::new(),
            Some(GossipAt::Address(address)) => vec![address],
            None if self.head_file.is_some() => vec![SocketAddr::from((Ipv4Addr::LOCALHOST, 0))],
            // If another process uses the port, the agent chooses a free port.
            None => [any(GOSSIP_PORT), any(0)].concat(),
        }
    }

    /// Whether the agent creates missing accounts and their home directories, by the flags or the settings in `set`.
    fn accounts(&self, set: &AgentSettings) -> NewAccounts {
        match (self.accounts || set.accounts, self.homes || set.homes) {
            (false, _) => NewAccounts::Leave,
            (true, false) => NewAccounts::Create,
            (true, true) => NewAccounts::CreateWithHomes,
        }
    }

    /// The agent's configuration. Flags override the settings file, whose values limit the resources of the machine.
    pub(crate) fn config(self) -> Result<hostler_agent::Config, Failure> {
        let places = AgentPlaces::choose(self.directory.as_deref())?;
        if self.head_file.is_none() {
            Daemon::Agent.ensure_own(&places.directory)?;
        }
        let socket = self.users_socket(&places.directory);
        let caps = AgentSettings::read(&places.settings)?;
        let (accounts, gossip) = (self.accounts(&caps), self.gossip_addresses(caps.gossip));
        let there_is = machine(self.machine_from.as_deref())?;
        // Options replace both.
        let named_cpus = caps.cpus.as_ref().filter(|_| self.cpus.is_none());
        let named_bytes = caps.memory.map(|cap| cap.0).filter(|_| self.memory.is_none());
        let absent = absent((&there_is.usable, there_is.memory.usable_bytes), named_cpus, named_bytes);
        absent.iter().for_each(|note| tracing::warn!("{note}"));
        let gpus = gpus(&there_is, self.gpus.or(caps.gpus));
        let cpus = self.cpus.unwrap_or_else(|| capped(there_is.usable.clone(), caps.cpus.as_ref()));
        if cpus.is_empty() {
            return Err(Failure::usage("no CPU is left for the node").hint("choose CPUs, e.g. --cpus 0-3"));
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
            calls: !self.no_remote_commands && caps.remote_commands.unwrap_or(true),
            sandboxed_calls: caps.sandboxed_commands,
            weights,
            status,
            metrics: caps.metrics,
            sandbox: caps.sandbox,
            images: caps.images,
            quiet_machine: caps.quiet_machine,
            noise_limits: caps.noise_limits,
            policy: caps.policy,
            machines: None,
            directory: places.directory,
            environments: self.environments.or(caps.environments),
            name: self.name,
            resources: Resources {
                counted: if self.resource.is_empty() { caps.resources } else { counted(&self.resource)? },
                ..Resources::new(cpus, memory_bytes)
            },
            features: std::iter::once(architecture())
                .chain(gpus.iter().filter(|gpu| gpu.is_given).flat_map(|gpu| gpu_features(&gpu.gpu.name)))
                .chain(caps.features)
                .chain(self.feature)
                .collect(),
            topology: there_is.topology(),
            gpus,
            root_jobs: self.root_jobs || caps.root_jobs,
            install_python: caps.install_python,
            uv: caps.uv,
            engines: caps.engines.into_iter().collect(),
            shared_machine: self.shared_machine || caps.shared_machine,
            join_file: self.join_file,
            head_file: self.head_file,
        })
    }
}

/// The architecture of this machine, as a feature.
fn architecture() -> Feature {
    std::env::consts::ARCH.parse().expect("architecture names are valid features")
}

/// The features that name the model of a GPU, in short and in full: `gpu-a100` and `gpu-a100-sxm4-80gb` for `NVIDIA
/// A100-SXM4-80GB`, `gpu-rtx3090` and `gpu-rtx-3090` for `NVIDIA GeForce RTX 3090`.
fn gpu_features(name: &str) -> BTreeSet<Feature> {
    const BRANDS: [&str; 9] =
        ["nvidia", "amd", "intel", "tesla", "geforce", "quadro", "instinct", "radeon", "corporation"];
    let name = name.to_ascii_lowercase();
    let words =
        name.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty() && !BRANDS.contains(word));
    let words: Vec<&str> = words.collect();
    let model = words.iter().position(|word| word.contains(|c: char| c.is_ascii_digit())).map(|at| match at {
        // Such as `RTX 3090`.
        1.. if words[at].starts_with(|c: char| c.is_ascii_digit()) => words[at - 1..=at].concat(),
        _ => words[at].to_owned(),
    });
    let full = Some(words.join("-")).filter(|text| !text.is_empty());
    // A name that makes no feature, such as a very long one, has none.
    model.into_iter().chain(full).filter_map(|text| format!("gpu-{text}").parse().ok()).collect()
}

/// Resources in the settings file that the machine does not have.
fn absent(machine: (&CpuSet, u64), cpus: Option<&CpuSet>, memory_bytes: Option<u64>) -> Vec<String> {
    let (usable, usable_bytes) = machine;
    let mut absent = cpus.cloned().unwrap_or_default();
    absent.remove_all(usable);
    let cpus = (!absent.is_empty())
        .then(|| format!("agent.toml has the CPUs {absent}, but jobs can use only {usable} of this machine"));
    let memory = memory_bytes.filter(|cap| *cap > usable_bytes).map(|cap| {
        let [cap, usable] = [cap, usable_bytes].map(format_bytes);
        format!("agent.toml has {cap} of memory, but jobs can use only {usable} of this machine")
    });
    cpus.into_iter().chain(memory).collect()
}

/// Runs `hostler node discover` in a separate process, because queries of drivers start threads, and the agent must
/// fork while it is single-threaded. If a driver hangs, only that process hangs.
pub(crate) fn machine(captured: Option<&Path>) -> Result<Machine, Failure> {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("hostler").args(["node", "discover", "--json"]).stdin(Stdio::null()).stdout(Stdio::piped());
    if let Some(file) = captured {
        command.arg("--from").arg(file);
    }
    let what = || "cannot determine the resources of this machine".to_owned();
    let mut child = command.spawn().during(what)?;
    let answer = child.stdout.take().expect("stdout is piped");
    // Read one value, not to the end of the pipe: a hanging driver keeps the pipe open.
    let found = serde_json::Deserializer::from_reader(io::BufReader::new(answer)).into_iter().next();
    let found = found.transpose().map_err(io::Error::from).during(what)?;
    let given_up = Instant::now() + EXIT_TIME;
    while child.try_wait().during(what)?.is_none() && Instant::now() < given_up {
        std::thread::sleep(Duration::from_millis(1));
    }
    found.ok_or_else(|| Failure::new(what()).hint("run `hostler node discover` to see why"))
}

/// How long the discovery process may take to exit. Only a hanging driver takes longer.
const EXIT_TIME: Duration = Duration::from_secs(1);

/// Returns the machine's GPUs, and for each GPU whether jobs may use it.
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

/// The CPUs of `cpus` that `cap` allows.
pub(crate) fn capped(mut cpus: CpuSet, cap: Option<&CpuSet>) -> CpuSet {
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
    fn gpu_models_are_features() {
        for (name, features) in [
            ("NVIDIA A100-SXM4-80GB", "gpu-a100 gpu-a100-sxm4-80gb"),
            ("NVIDIA GeForce RTX 3090 Ti", "gpu-rtx-3090-ti gpu-rtx3090"),
            ("NVIDIA H200", "gpu-h200"),
            ("AMD Instinct MI250X", "gpu-mi250x"),
            ("Tesla V100-PCIE-16GB", "gpu-v100 gpu-v100-pcie-16gb"),
            ("Intel(R) Arc(TM) A770 Graphics", "gpu-a770 gpu-r-arc-tm-a770-graphics"),
            ("", ""),
        ] {
            let found: Vec<String> = gpu_features(name).iter().map(ToString::to_string).collect();
            assert_eq!(found.join(" "), features, "{name}");
        }
    }

    #[test]
    fn cap_adds_no_cpus() {
        let cpus = |text: &str| text.parse::<CpuSet>().expect(text);
        assert_eq!(capped(cpus("0-3"), Some(&cpus("2-9"))), cpus("2-3"));
        assert_eq!(capped(cpus("0-3"), None), cpus("0-3"));
        let said = |text: &str, bytes| absent((&cpus("0-3"), 4 << 30), Some(&cpus(text)), Some(bytes)).join("; ");
        assert_eq!(said("2-3", 4 << 30), "");
        let expected = "agent.toml has the CPUs 4-99, but jobs can use only 0-3 of this machine; agent.toml has 999G of memory, but \
                        jobs can use only 4G of this machine";
        assert_eq!(said("0-99", 999 << 30), expected);
    }
}
