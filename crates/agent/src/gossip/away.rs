//! Data source for the load ports in a process other than the agent: queries the local agent through its socket.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use hostler_client::Client;
use hostler_gossip::{Calls, Load, Member, MemberId, Node, Policy, Version};
use hostler_model::{NodeName, Timestamp};
use hostler_proto::peers::{LoadTable, NodeLoad};
use tokio::sync::Mutex;

use super::ports::{self, Question, Source};
use super::views;
use super::{Machines, counts};
use crate::random::random_bits;

/// How long an answer of the agent is cached. Caching limits the load on the agent.
const FRESH: Duration = Duration::from_millis(250);

/// Source of load data for a process other than the agent: queries the agent.
pub(crate) struct Away {
    agent: Client,
    policy: Policy,
    machines: Option<Machines>,
    began: Instant,
    /// The data from the agent. The lock also serializes queries to the agent.
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    asked: Option<Instant>,
    nodes: Vec<(Member, NodeLoad)>,
    /// Name of the local node.
    local: Option<NodeName>,
    /// Ids of the nodes in `calls`.
    numbers: HashMap<NodeName, MemberId>,
    calls: Calls,
    /// Whether the last query to the agent failed.
    has_query_failed: bool,
}

impl Away {
    pub(crate) fn new(agent: Client, policy: Policy, machines: Option<Machines>) -> Self {
        Self { agent, policy, machines, began: Instant::now(), known: Mutex::default() }
    }

    /// Queries the agent unless the cached answer is fresh.
    async fn refresh(&self, known: &mut Known) {
        if known.asked.is_some_and(|asked| asked.elapsed() < FRESH) {
            return;
        }
        known.asked = Some(Instant::now());
        match self.agent.load().await {
            Ok(table) => {
                known.take(table);
                known.has_query_failed = false;
            }
            Err(error) => {
                if !known.has_query_failed {
                    tracing::warn!(%error, "cannot query the local agent; the ports return nothing");
                }
                known.nodes.clear();
                known.has_query_failed = true;
            }
        }
    }
}

impl Known {
    fn take(&mut self, table: LoadTable) {
        let address = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0);
        let nodes = table.nodes.into_iter().map(|node| {
            let next = MemberId(self.numbers.len() as u32);
            let id = *self.numbers.entry(node.name.clone()).or_insert(next);
            (Member { id, name: node.name.clone(), address, features: Default::default() }, node)
        });
        self.nodes = nodes.collect();
        self.local = Some(table.node);
    }
}

impl Source for Away {
    async fn answer(&self, question: Question) -> String {
        let mut known = self.known.lock().await;
        self.refresh(&mut known).await;
        let Known { asked, nodes, local, calls, .. } = &mut *known;
        let now = Timestamp(u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX));
        let since = asked.map_or(0, |asked| u64::try_from(asked.elapsed().as_millis()).unwrap_or(u64::MAX));
        let loads: Vec<Option<Load>> = nodes.iter().map(|(_, node)| node.load.as_ref().map(views::load)).collect();
        let counted = |node: &Node<'_>| counts(self.machines.as_ref(), node);
        let nodes: Vec<_> = nodes
            .iter()
            .zip(&loads)
            .map(|(known, load)| node(known, load.as_ref(), local.as_ref(), since))
            .filter(counted)
            .collect();
        calls.forget(|_| Version::default(), &self.policy, now);
        match question {
            Question::Table => ports::table(&nodes, &self.policy, calls, now),
            Question::Best => ports::best(&nodes, &self.policy, calls, now, random_bits()),
        }
    }
}

/// Combines the load data that the agent reported for a node with the node's member entry.
fn node<'a>(
    (member, said): &'a (Member, NodeLoad),
    load: Option<&'a Load>,
    local: Option<&NodeName>,
    since_ms: u64,
) -> Node<'a> {
    Node {
        member,
        presence: views::presence(said.presence),
        is_local: local == Some(&member.name),
        version: Version::default(),
        load,
        load_version: Version::default(),
        silent_ms: said.silent_ms,
        load_age_ms: said.load.as_ref().map_or(0, |load| load.age_ms) + since_ms,
    }
}
