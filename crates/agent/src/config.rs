//! The configuration of an agent.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;

use hostler_gossip::Policy;
use hostler_model::{Engine, Feature, NodeName, Resources, Topology};

use crate::containers::sandbox::SandboxSettings;
use crate::gossip::{Machines, StatusPorts, Weights};
use crate::measure::certificate::NoiseLimits;
use crate::measure::quiet::QuietSettings;
use crate::provision::gpus::MachineGpu;
use crate::provision::images::pull::ImageSettings;
use crate::users::roster::NewAccounts;

#[derive(Debug, Clone)]
pub struct Config {
    /// State directory of the node; only one agent may use it.
    pub directory: PathBuf,
    /// Separate directory for environments. Agents that run as the same user on one machine may share it.
    pub environments: Option<PathBuf>,
    /// Required node name; if absent, the name under which the node joined.
    pub name: Option<NodeName>,
    /// Resources that the node offers, without its GPUs.
    pub resources: Resources,
    /// Features of the node, which jobs can require.
    pub features: BTreeSet<Feature>,
    pub topology: Topology,
    /// GPUs of the machine, including those that the node does not offer.
    pub gpus: Vec<MachineGpu>,
    /// Whether to run jobs of root. Has no effect unless the agent runs as root.
    pub root_jobs: bool,
    /// Whether uv may install Python versions that projects request and the node lacks.
    pub install_python: bool,
    /// The uv that builds environments; by default one on the `PATH`, or else one that pip gets.
    pub uv: Option<PathBuf>,
    /// Container engines that jobs may use.
    pub engines: BTreeSet<Engine>,
    /// File with a join code, for a node that has not joined yet.
    pub join_file: Option<PathBuf>,
    /// File with the address of a head on the same machine.
    pub head_file: Option<PathBuf>,
    /// Socket for local users, if any.
    pub socket: Option<PathBuf>,
    /// Whether and how to create accounts for the cluster's users.
    pub accounts: NewAccounts,
    /// Whether the machine has other uses besides this node. If so, activity outside of jobs does not prevent a
    /// shutdown.
    pub shared_machine: bool,
    /// Addresses for gossip: the agent uses the first free one. Empty to disable gossip.
    pub gossip: Vec<SocketAddr>,
    /// Whether to run remote commands of other nodes, and to send remote commands to other nodes.
    pub calls: bool,
    /// Whether commands of other nodes run in a sandbox, also if they do not ask for one.
    pub sandboxed_calls: bool,
    /// The node's weights, which gossip distributes.
    pub weights: Weights,
    /// Policy that selects a node for a remote command sent from this node.
    pub policy: Policy,
    /// Machines that may get remote commands from this node, with their weights; all nodes if absent.
    pub machines: Option<Machines>,
    /// Addresses of the ports that serve load data as plain text.
    pub status: StatusPorts,
    /// What sandboxed jobs get besides the usual.
    pub sandbox: SandboxSettings,
    /// How images are pulled.
    pub images: ImageSettings,
    /// Which settings of the machine jobs may ask to change.
    pub quiet_machine: QuietSettings,
    /// Values up to which the node counts as quiet while an exclusive job runs.
    pub noise_limits: NoiseLimits,
    /// Address of the port for metrics, if any.
    pub metrics: Option<SocketAddr>,
}
