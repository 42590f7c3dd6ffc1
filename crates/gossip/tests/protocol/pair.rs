//! A few nodes whose datagrams the test delivers.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;

use hostler_gossip::{Datagram, Gossip, Incarnation, Key, Load, Member, MemberId, Members, Node, Presence, Settings};
use hostler_model::Timestamp;

/// Nodes 0, 1, 2 … of a cluster, all members of it.
pub(crate) struct Nodes {
    pub(crate) nodes: Vec<Gossip>,
    pub(crate) now: Timestamp,
    random: u64,
}

impl Nodes {
    pub(crate) fn new(count: u32) -> Self {
        let now = Timestamp(1_000_000);
        let mut nodes: Vec<_> = (0..count).map(|id| started(id, 1, now)).collect();
        nodes.iter_mut().for_each(|node| node.set_members(members(0..count), now));
        Self { nodes, now, random: 1 }
    }

    /// Runs one round on every node and delivers all datagrams and answers.
    pub(crate) fn round(&mut self) {
        for at in 0..self.nodes.len() {
            let sent = self.round_of(at);
            self.carry(at, sent);
        }
        self.now = self.now.plus_ms(1200);
    }

    /// The datagrams that one node sends in its round.
    pub(crate) fn round_of(&mut self, node: usize) -> Vec<Datagram> {
        self.random += 1;
        self.nodes[node].publish(load(4));
        self.nodes[node].round(self.now, self.random)
    }

    pub(crate) fn carry(&mut self, from: usize, sent: Vec<Datagram>) {
        for datagram in sent {
            let to = (0..self.nodes.len()).find(|to| address(*to as u32) == datagram.to).expect("a node of the test");
            let answers = self.nodes[to].receive(address(from as u32), &datagram.bytes, self.now);
            self.carry(to, answers);
        }
    }

    pub(crate) fn get(&self, observer: usize, id: u32) -> Node<'_> {
        self.nodes[observer].get(MemberId(id), self.now).expect("the observer knows the member")
    }

    pub(crate) fn sees(&self, observer: usize, id: u32) -> Presence {
        self.get(observer, id).presence
    }
}

pub(crate) fn started(id: u32, incarnation: u64, now: Timestamp) -> Gossip {
    Gossip::new(MemberId(id), Incarnation(incarnation), key(7), Settings::default(), now)
}

pub(crate) fn key(secret: u8) -> Key {
    Key::new(&[secret; 32])
}

pub(crate) fn members(ids: impl IntoIterator<Item = u32>) -> Arc<Members> {
    let member = |id| Member {
        id: MemberId(id),
        name: format!("n{id}").parse().expect("a name"),
        address: address(id),
        features: BTreeSet::new(),
    };
    Arc::new(Members::new(ids.into_iter().map(member)))
}

pub(crate) fn address(id: u32) -> SocketAddr {
    (std::net::Ipv4Addr::from(0x0A00_0000 + id), 7706).into()
}

pub(crate) fn load(cpus: u32) -> Load {
    Load::idle(cpus, 16 << 10, ([10, 0, 0, 9], 7707).into())
}
