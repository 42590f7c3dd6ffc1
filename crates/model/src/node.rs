//! Nodes: their facts and states.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{BootId, Digest, Expected, Feature, Hardware, ParseError, Request, Resources};

/// The facts that an agent reports about its node in the hello. The head stores the facts unchanged in its log and
/// state.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeFacts {
    /// The id of the machine's current boot.
    pub boot: BootId,
    /// Resources that the node offers.
    pub resources: Resources,
    /// Topology and properties of the CPUs and GPUs in `resources`.
    #[serde(default)]
    pub hardware: Hardware,
    /// Limits that the node cannot enforce, with the reasons.
    #[serde(default)]
    pub advisory: Advisory,
    /// Features of the node, for constraints.
    #[serde(default)]
    pub features: BTreeSet<Feature>,
    /// Address at which other nodes reach jobs on the node: the local address of the agent's connection to the head.
    #[serde(default)]
    pub address: Option<IpAddr>,
    /// UDP address for load gossip; absent if the node does not gossip. An unspecified IP address means the local
    /// address of the connection to the head.
    #[serde(default)]
    pub gossip_at: Option<SocketAddr>,
    /// BLAKE3 hash of the node's certificate for remote commands; absent if the node accepts no remote commands.
    #[serde(default)]
    pub call_key: Option<Digest>,
    /// Whether the node runs sandboxed jobs; false if its agent is older than sandboxes. [`Advisory::sandbox`] is the reason.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub runs_sandboxes: bool,
    /// Whether the node runs jobs with an image: it runs sandboxed jobs, and its agent is not older than images.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub runs_images: bool,
    /// Whether jobs may ask the node to make its machine quiet. [`Advisory::quiet_machine`] is the reason if not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub quiets_machine: bool,
    /// Whether the node connects the sandboxes of a job on several nodes. [`Advisory::job_network`] is the reason if not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub connects_sandboxes: bool,
}

impl NodeFacts {
    /// Creates the facts of a node with `resources` and no other facts.
    #[must_use]
    pub fn new(boot: &str, resources: Resources) -> Self {
        Self { boot: BootId(boot.to_owned()), resources, ..Self::default() }
    }

    /// Returns the facts of a machine that has not joined yet. Its agent is expected to run as root and to run every kind of job.
    #[must_use]
    pub fn expected(of: Expected) -> Self {
        let request = Request { cpus: of.cpus, memory_bytes: of.memory_bytes, ..Request::default() };
        let resources = Resources::of_request(&request, (0..of.cpus).collect(), BTreeSet::new());
        Self { runs_sandboxes: true, runs_images: true, connects_sandboxes: true, ..Self::new("", resources) }
    }
}

/// Protections that a node does not provide, mostly limits that its kernel cannot enforce. Each field is the reason, or
/// `None` if the node provides the protection.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Advisory {
    /// Why jobs can use CPUs of other jobs.
    pub cpus: Option<String>,
    /// Why jobs can use more memory than they requested.
    pub memory: Option<String>,
    /// Why jobs can use GPUs of other jobs. `None` also if the node has no GPUs.
    #[serde(default)]
    pub gpus: Option<String>,
    /// Why jobs are not protected from each other: they all run as the same user.
    #[serde(default)]
    pub users: Option<String>,
    /// Whether the node refuses jobs of root. Every node does unless an admin of the node allows these jobs.
    #[serde(default)]
    pub refuses_root: bool,
    /// Why the node runs no sandboxed jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<String>,
    /// Why jobs cannot ask the node to make its machine quiet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quiet_machine: Option<String>,
    /// Why the node does not connect the sandboxes of a job on several nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_network: Option<String>,
}

/// Whether a node can get work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    /// The node's agent is connected.
    Up,
    /// The agent has been silent for `suspect-after`. The node gets no new runs; running ones continue.
    Suspect,
    /// The agent has been silent for `down-after`. Runs that may run again move to other nodes; after `lost-after`, the
    /// head gives up the rest.
    Down,
    /// The power controller reports that the node is off. The head switches the node on when jobs need it.
    Off,
    /// The node is being switched on: its agent has not connected, or the node may not get work yet.
    Waking,
    /// The node is being switched off. Nothing runs there, and it gets no new runs.
    Stopping,
    /// An operator drains the node. It gets no new runs, and some runs continue.
    Draining,
    /// An operator has drained the node, and nothing runs there.
    Drained,
    /// An admin has removed the node, and its certificate is revoked. No list shows it; only notices have this state.
    Removed,
}

impl NodeState {
    /// All states that a node in a list can have.
    pub const ALL: [Self; 8] =
        [Self::Up, Self::Suspect, Self::Down, Self::Off, Self::Waking, Self::Stopping, Self::Draining, Self::Drained];

    /// Returns the state as a word in output and JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Suspect => "suspect",
            Self::Down => "down",
            Self::Off => "off",
            Self::Waking => "waking",
            Self::Stopping => "stopping",
            Self::Draining => "draining",
            Self::Drained => "drained",
            Self::Removed => "removed",
        }
    }
}

impl std::str::FromStr for NodeState {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let found = Self::ALL.into_iter().find(|state| state.as_str() == text);
        found.ok_or_else(|| ParseError::new(text, "a node state such as up, down or drained"))
    }
}
