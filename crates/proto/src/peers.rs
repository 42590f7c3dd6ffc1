//! The list of gossiping nodes, which agents get from the head, and the load table, which an agent shows to local
//! users.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use hostler_model::{Digest, Feature, NodeName};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Path of [`LoadTable`] on the agent's Unix socket, below the API's base path. The head does not serve it.
pub const LOAD_PATH: &str = "/load";

/// Answer of `GET /agent/peers`: the nodes that gossip with each other.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Peers {
    /// Number that changes whenever the list or the secret changes.
    #[serde(default)]
    pub version: u64,
    /// Secret that the gossiping nodes share, as 64 hexadecimal digits. It is sent only over the TLS link.
    pub secret: String,
    /// All gossiping nodes, including the requesting one.
    pub peers: Vec<GossipPeer>,
}

/// Query of `GET /agent/peers`: the version of the list that the agent already has.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct Known {
    /// [`Peers::version`] of the last answer; absent in the first request.
    #[serde(default)]
    pub known: Option<u64>,
}

/// A node that gossips.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GossipPeer {
    /// Small number that identifies the node as long as the node belongs to the cluster.
    pub id: u32,
    /// Name of the node.
    pub name: NodeName,
    /// UDP address at which the node gossips.
    #[schema(value_type = String)]
    pub address: SocketAddr,
    /// Features of the node.
    #[serde(default)]
    pub features: BTreeSet<Feature>,
    /// BLAKE3 hash of the node's certificate for remote commands; absent if the node accepts no remote commands.
    #[serde(default)]
    pub call_key: Option<Digest>,
    /// Whether an operator has drained the node.
    #[serde(default)]
    pub is_drained: bool,
}

/// Answer of `GET /load` on an agent's socket: the load of all nodes, as far as the answering node knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadTable {
    /// Name of the node that answers.
    pub node: NodeName,
    /// All gossiping nodes by name.
    pub nodes: Vec<NodeLoad>,
    /// Datagrams accepted since the agent started.
    #[serde(default)]
    pub accepted: u64,
    /// Datagrams that the agent refused, because they were damaged or repeated, or came from an unexpected address or
    /// without the shared secret.
    #[serde(default)]
    pub refused: u64,
}

/// What an agent knows about the presence and the load of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeLoad {
    /// Name of the node.
    pub name: NodeName,
    /// Whether the node sends gossip.
    pub presence: NodePresence,
    /// Time since the node's last datagram arrived, in milliseconds; zero for the answering node.
    pub silent_ms: u64,
    /// Last known load; absent before the first datagram.
    pub load: Option<LoadView>,
}

/// Whether a node sends gossip, as seen by another node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodePresence {
    /// The node's datagrams arrive.
    Live,
    /// The node's datagrams have stopped.
    Gone,
    /// No datagram of the node has arrived since this agent started.
    Unheard,
}

/// Load of a node, in [`NodeLoad`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadView {
    /// Age of the load, in milliseconds.
    pub age_ms: u64,
    /// Load average of the last minute, in hundredths.
    pub average: u32,
    /// CPUs that were busy in the last few seconds, in hundredths.
    pub recent: u32,
    /// Processes that run or are ready to run.
    pub runnable: u32,
    /// CPUs that the node offers.
    pub cpus: u32,
    /// CPUs that no scheduled job holds.
    pub cpus_unallocated: u32,
    /// Memory that the node offers, in bytes.
    pub memory_bytes: u64,
    /// Memory that is available now, in bytes.
    pub memory_free_bytes: u64,
    /// Memory that no scheduled job holds, in bytes; absent for agents of older releases.
    #[serde(default)]
    pub memory_unallocated_bytes: Option<u64>,
    /// CPU pressure: share of the last ten seconds in which some process waited for a CPU, in thousandths. Absent if
    /// the kernel does not report it.
    pub cpu_pressure: Option<u16>,
    /// Memory pressure: share of the last ten seconds in which some process waited for memory, in thousandths. Absent
    /// if the kernel does not report it.
    pub memory_pressure: Option<u16>,
    /// IO pressure: share of the last ten seconds in which some process waited for IO, in thousandths. Absent if the
    /// kernel does not report it.
    pub io_pressure: Option<u16>,
    /// Time that the node needs for a given amount of work, in hundredths of a typical node's time: 200 means half as
    /// fast.
    #[serde(default = "usual")]
    pub load_weight: u32,
    /// Weight of the node's memory use in the choice of a node, in hundredths: 200 counts twice as much as a typical
    /// node's.
    #[serde(default = "usual")]
    pub memory_weight: u32,
    /// Whether the node accepts remote commands.
    #[serde(default)]
    pub accepts: bool,
}

/// Returns the weight of a typical node.
const fn usual() -> u32 {
    100
}
