//! The node: its properties, and the services that the modules share.

use std::net::IpAddr;
use std::sync::Arc;

use hostler_client::Client;
use hostler_model::{Advisory, NodeFacts, NodeName};
use hostler_shepherd::cgroup::{Controller, LeafSpec};
use hostler_shepherd::{Launcher, cgroup};
use hostler_snapshot::ChunkStore;

use crate::account::Accounts;
use crate::activity::Activity;
use crate::certificate::NoiseLimits;
use crate::directory::Runs;
use crate::engines::Engines;
use crate::environment::Environments;
use crate::forward::AcceptedConnections;
use crate::gossip::Gossiping;
use crate::gpus::Gpus;
use crate::images::Images;
use crate::job_network::Networks;
use crate::metrics::Metrics;
use crate::process_limits::ProcessLimits;
use crate::program_directory::ProgramDirectory;
use crate::program_in_image::ProgramInImage;
use crate::quiet::Quiet;
use crate::roster::NewAccounts;
use crate::sandbox::SandboxSettings;
use crate::shepherds::IdleShepherds;
use crate::usage::UsageMeter;

/// The node's properties and services that the modules share.
pub(crate) struct Node {
    pub(crate) name: NodeName,
    /// Facts about the node for the hello. `hello` adds the facts that change while the agent runs.
    pub(crate) facts: NodeFacts,
    pub(crate) gpus: Gpus,
    pub(crate) head: Client,
    pub(crate) launcher: Launcher,
    /// Path of this executable, which starts the processes of multi-process runs.
    pub(crate) program: String,
    /// The same for jobs with an image.
    pub(crate) program_in_image: ProgramInImage,
    /// Directory of this executable, if jobs may have it on their `PATH`.
    pub(crate) program_directory: Option<ProgramDirectory>,
    /// The cgroup tree for jobs, or the reason why there is none.
    pub(crate) cgroups: Result<cgroup::Tree, String>,
    /// How many processes tasks and commands may have.
    pub(crate) processes: ProcessLimits,
    /// Prefix of this agent's cgroup leaf names, unique on this machine.
    pub(crate) leaf_prefix: String,
    pub(crate) chunks: ChunkStore,
    pub(crate) chunk_cap_bytes: u64,
    pub(crate) accounts: Arc<Accounts>,
    pub(crate) environments: Environments,
    pub(crate) images: Images,
    pub(crate) runs: Runs,
    pub(crate) idle: IdleShepherds,
    pub(crate) new_accounts: NewAccounts,
    /// Load gossip, if the node takes part.
    pub(crate) gossiping: Option<Arc<Gossiping>>,
    /// What the agent counts.
    pub(crate) metrics: Metrics,
    /// Connections of runs to the machines of their users.
    pub(crate) accepted: AcceptedConnections,
    /// Measures the node and its runs.
    pub(crate) usage: Arc<UsageMeter>,
    /// Activity on the node other than jobs.
    pub(crate) activity: Arc<Activity>,
    /// Whether the node runs sandboxed jobs, or why it does not.
    pub(crate) sandbox: Result<(), String>,
    /// The networks of jobs whose sandboxes this node connects with those on other nodes, or why it does not.
    pub(crate) networks: Result<Networks, String>,
    /// Whether commands of other nodes run in a sandbox, also if they do not ask for one.
    pub(crate) demands_sandbox_of_commands: bool,
    pub(crate) sandbox_settings: SandboxSettings,
    /// Container engines that jobs may use.
    pub(crate) engines: Engines,
    /// Changes of the machine's settings for runs.
    pub(crate) quiet: Arc<Quiet>,
    /// Values up to which the node counts as quiet while an exclusive job runs.
    pub(crate) noise_limits: NoiseLimits,
    /// Whether other activity on the machine keeps it from being switched off.
    pub(crate) has_whole_machine: bool,
}

impl Node {
    /// Requests the list of gossiping nodes. `head` is the address at which the head was reached, if it is new.
    pub(crate) fn ask_for_peers(&self, head: Option<IpAddr>) {
        if let Some(gossiping) = &self.gossiping {
            gossiping.ask(head);
        }
    }

    /// The leaf with this name, if cgroups are available.
    pub(crate) fn leaf(&self, name: &str) -> Option<LeafSpec> {
        self.cgroups.as_ref().ok()?.leaf(&format!("{}{name}", self.leaf_prefix)).ok()
    }

    /// Limits that the kernel does not enforce here, and why.
    pub(crate) fn advisory(&self) -> Advisory {
        Advisory {
            cpus: self.missing(Controller::Cpuset),
            memory: self.missing(Controller::Memory),
            gpus: self.open_gpus(),
            users: self.accounts.shortcoming(),
            refuses_root: self.accounts.refuse_root(),
            sandbox: self.sandbox.clone().err(),
            quiet_machine: self.quiet.offered.clone().err(),
            job_network: self.networks.as_ref().err().cloned(),
        }
    }

    /// Why jobs can use GPUs of other jobs; `None` if the kernel prevents it.
    pub(crate) fn open_gpus(&self) -> Option<String> {
        self.gpus.shortcoming(self.missing(Controller::Devices))
    }

    /// Why the kernel does not enforce limits of this kind.
    fn missing(&self, controller: Controller) -> Option<String> {
        match &self.cgroups {
            Ok(tree) => tree.missing(controller).map(str::to_owned),
            Err(reason) => Some(reason.clone()),
        }
    }
}
