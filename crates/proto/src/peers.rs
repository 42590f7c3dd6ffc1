//! Peers: who gossips, as the head tells agents; and what an agent knows by gossip, as it tells the users of its machine.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use hostler_model::{Digest, Feature, NodeName};
use serde::{Deserialize, Serialize};

/// Where an agent answers [`LoadTable`] on its Unix socket, below the API's base; the head has no such path.
pub const LOAD_PATH: &str = "/load";

/// `GET /agent/peers`: the nodes that gossip with each other.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peers {
    /// Another number when anything of it is another.
    #[serde(default)]
    pub version: u64,
    /// What they share and nobody else has: 64 hexadecimal digits. It goes over the link's TLS and nowhere else.
    pub secret: String,
    /// All of them, the asking one among them.
    pub peers: Vec<GossipPeer>,
}

/// What an agent knows already, in the query of `GET /agent/peers`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Known {
    /// [`Peers::version`] of what it was told last.
    #[serde(default)]
    pub known: Option<u64>,
}

/// A node that gossips.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GossipPeer {
    /// Its number: small, and its own for as long as it is in the cluster.
    pub id: u32,
    /// Its name.
    pub name: NodeName,
    /// Where it gossips.
    pub address: SocketAddr,
    /// What it has that others may not have.
    #[serde(default)]
    pub features: BTreeSet<Feature>,
    /// By what it is known when commands are called: BLAKE3 of its certificate for that; absent when it takes none.
    #[serde(default)]
    pub call_key: Option<Digest>,
    /// Whether an operator wants nothing new on it.
    #[serde(default)]
    pub is_drained: bool,
}

/// `GET /load` on an agent's socket: what this node knows of all.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadTable {
    /// The node that knows this.
    pub node: NodeName,
    /// Every node that gossips, by name.
    pub nodes: Vec<NodeLoad>,
    /// How many datagrams were believed since this agent started.
    #[serde(default)]
    pub accepted: u64,
    /// How many were not: damaged, repeated, from a wrong address, or by somebody who does not know what the nodes share.
    #[serde(default)]
    pub refused: u64,
}

/// What is known of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeLoad {
    /// Its name.
    pub name: NodeName,
    /// Whether it is there.
    pub presence: NodePresence,
    /// How long ago it was last heard of, in milliseconds; zero for the node itself.
    pub silent_ms: u64,
    /// How it is; absent while nothing has come.
    pub load: Option<LoadView>,
}

/// Whether a node is there, as far as another one has heard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodePresence {
    /// It has been heard of lately.
    Live,
    /// It has fallen silent.
    Gone,
    /// It has not been heard of since this agent started.
    Unheard,
}

/// How a node is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadView {
    /// How long ago that was said, in milliseconds.
    pub age_ms: u64,
    /// Load average of the last minute, in hundredths.
    pub average: u32,
    /// CPUs that were busy in the last few seconds, in hundredths.
    pub recent: u32,
    /// Processes that run or could run.
    pub runnable: u32,
    /// CPUs that it gives.
    pub cpus: u32,
    /// CPUs that no scheduled job holds.
    pub cpus_unallocated: u32,
    /// Memory that it gives, in bytes.
    pub memory_bytes: u64,
    /// Memory that could be used now, in bytes.
    pub memory_free_bytes: u64,
    /// Memory that no scheduled job holds, in bytes; absent if the agent is of an older release.
    #[serde(default)]
    pub memory_unallocated_bytes: Option<u64>,
    /// Share of the last ten seconds in which something waited for a CPU, in thousandths; absent where the kernel does not say.
    pub cpu_pressure: Option<u16>,
    /// The same for memory.
    pub memory_pressure: Option<u16>,
    /// The same for IO.
    pub io_pressure: Option<u16>,
    /// How long it takes for a given amount of work, in hundredths of what a usual node takes: 200 is half as fast.
    #[serde(default = "usual")]
    pub load_weight: u32,
    /// How good its memory is, in hundredths: 200 counts twice as much as that of a usual node.
    #[serde(default = "usual")]
    pub memory_weight: u32,
    /// Whether commands may be sent to it.
    #[serde(default)]
    pub accepts: bool,
}

/// The weight of a usual node.
const fn usual() -> u32 {
    100
}
