//! Invariants that hold for all inputs in any order.

use std::collections::BTreeMap;

use hostler_gossip::{Datagram, Gossip, MemberId, Version};
use hostler_model::Timestamp;
use proptest::prelude::*;

use crate::pair::{address, load, members, started};

/// Number of nodes. Node 3 may be removed as a member; the other nodes never know node 4 as a member.
const NODES: u32 = 5;

/// A step of a random history.
#[derive(Debug, Clone)]
enum Step {
    /// Time passes on all nodes.
    Pass(u64),
    /// A node runs a round.
    Round(usize),
    /// An earlier datagram arrives, possibly again, damaged, or from another address.
    Arrive { datagram: usize, damage: Option<(usize, u8)>, from: Option<u32> },
    /// Random bytes arrive.
    Garbage { to: usize, from: u32, bytes: Vec<u8> },
    /// An agent restarts; it may have lost its incarnation.
    Restart { node: usize, forgets: bool },
    /// The members change on one node.
    Members { node: usize, with_third: bool },
}

fn step() -> impl Strategy<Value = Step> {
    let node = 0..NODES as usize;
    let damage = proptest::option::weighted(0.2, (0..1300_usize, 1..=255_u8));
    let from = proptest::option::weighted(0.1, 0..NODES);
    prop_oneof![
        3 => (0..3000_u64).prop_map(Step::Pass),
        4 => node.clone().prop_map(Step::Round),
        8 => (any::<usize>(), damage, from).prop_map(|(datagram, damage, from)| Step::Arrive { datagram, damage, from }),
        1 => (node.clone(), 0..NODES, proptest::collection::vec(any::<u8>(), 0..100))
            .prop_map(|(to, from, bytes)| Step::Garbage { to, from, bytes }),
        1 => (node.clone(), any::<bool>()).prop_map(|(node, forgets)| Step::Restart { node, forgets }),
        1 => (node, any::<bool>()).prop_map(|(node, with_third)| Step::Members { node, with_third }),
    ]
}

/// The nodes and all sent datagrams.
struct World {
    nodes: Vec<Gossip>,
    now: Timestamp,
    sent: Vec<(u32, Datagram)>,
    /// The bytes that each node has sent in the last second, counted independently.
    spent: Vec<Vec<(Timestamp, usize)>>,
    /// The newest version that each observer has known of each node since its last start.
    known: BTreeMap<(usize, u32), Version>,
}

impl World {
    fn new() -> Self {
        let now = Timestamp(0);
        let mut world = Self {
            nodes: (0..NODES).map(|id| started(id, 1, now)).collect(),
            now,
            sent: Vec::new(),
            spent: vec![Vec::new(); NODES as usize],
            known: BTreeMap::new(),
        };
        for node in 0..NODES as usize {
            world.set_members(node, true);
        }
        world
    }

    fn set_members(&mut self, node: usize, with_third: bool) {
        // Node 4 considers itself a member.
        let ids = (0..NODES).filter(|id| (with_third || *id != 3) && (*id != 4 || node == 4));
        self.nodes[node].set_members(members(ids), self.now);
        if !with_third {
            self.known.remove(&(node, 3));
        }
    }

    fn happen(&mut self, step: Step, at: usize) -> Result<(), TestCaseError> {
        match step {
            Step::Pass(ms) => self.now = self.now.plus_ms(ms),
            Step::Round(node) => {
                self.nodes[node].publish(load(at as u32));
                let sent = self.nodes[node].round(self.now, at as u64);
                self.note(node, sent)?;
            }
            Step::Arrive { datagram, damage, from } => {
                let Some((sender, datagram)) = self.sent.get(datagram % self.sent.len().max(1)).cloned() else {
                    return Ok(());
                };
                let mut bytes = datagram.bytes;
                if let Some((at, flip)) = damage {
                    let length = bytes.len();
                    bytes[at % length] ^= flip;
                }
                let to = (0..NODES).find(|id| address(*id) == datagram.to).expect("a node of the test") as usize;
                let accepted = self.nodes[to].counters().accepted;
                let answers = self.nodes[to].receive(address(from.unwrap_or(sender)), &bytes, self.now);
                if damage.is_some() || from.is_some_and(|from| from != sender) {
                    prop_assert_eq!(self.nodes[to].counters().accepted, accepted);
                    prop_assert!(answers.is_empty());
                }
                self.note(to, answers)?;
            }
            Step::Garbage { to, from, bytes } => {
                let answers = self.nodes[to].receive(address(from), &bytes, self.now);
                prop_assert!(answers.is_empty());
            }
            Step::Restart { node, forgets } => {
                let incarnation = if forgets { 1 } else { self.nodes[node].incarnation().0 + 1 };
                self.nodes[node] = started(node as u32, incarnation, self.now);
                self.spent[node].clear();
                self.known.retain(|(observer, _), _| *observer != node);
                self.set_members(node, true);
            }
            Step::Members { node, with_third } => self.set_members(node, with_third),
        }
        Ok(())
    }

    /// Records sent datagrams and checks the budget.
    fn note(&mut self, node: usize, sent: Vec<Datagram>) -> Result<(), TestCaseError> {
        let spent = &mut self.spent[node];
        spent.retain(|(at, _)| self.now.ms_since(*at) < 1000);
        for datagram in sent {
            prop_assert!(datagram.bytes.len() + 48 <= 1280);
            spent.push((self.now, datagram.bytes.len() + 48));
            self.sent.push((node as u32, datagram));
        }
        let bytes: usize = spent.iter().map(|(_, bytes)| bytes).sum();
        prop_assert!(bytes <= 32 << 10, "{bytes} bytes in a second");
        Ok(())
    }

    /// Checks that versions never decrease and that the table contains only members.
    fn check(&mut self) -> Result<(), TestCaseError> {
        for observer in 0..self.nodes.len() {
            for node in self.nodes[observer].nodes(self.now) {
                let MemberId(id) = node.member.id;
                prop_assert!(id != 4 || observer == 4, "a stranger is in the table");
                prop_assert!(node.load_version <= node.version);
                let known = self.known.entry((observer, id)).or_default();
                prop_assert!(node.version >= *known, "{observer} replaced a newer version of {id} by an older one");
                *known = node.version;
            }
            prop_assert!(self.nodes[observer].memory_bytes() < 4096);
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn no_input_breaks_an_invariant(steps in proptest::collection::vec(step(), 1..300)) {
        let mut world = World::new();
        for (at, step) in steps.into_iter().enumerate() {
            world.happen(step, at)?;
            world.check()?;
        }
    }
}
