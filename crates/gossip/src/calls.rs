//! Commands in flight that loads of other nodes may not include yet.

use std::collections::BTreeMap;

use hostler_model::Timestamp;

use crate::{MemberId, Policy, Version};

/// Commands that this node has sent to other nodes, and nodes that it could not reach.
///
/// The published load of a node includes a command only after its next update. Until then, this table counts the
/// command. Otherwise many commands within a second would all go to the same node.
#[derive(Debug, Clone, Default)]
pub struct Calls {
    by_node: BTreeMap<MemberId, Vec<Call>>,
    /// Unreachable nodes, each with the time until which commands avoid the node.
    avoided: BTreeMap<MemberId, Timestamp>,
    sent: u64,
}

/// Identifies a command that was sent to a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket {
    node: MemberId,
    number: u64,
}

#[derive(Debug, Clone, Copy)]
struct Call {
    number: u64,
    at: Timestamp,
    /// The version of the node's load when the command started there.
    began: Option<Version>,
}

/// The maximum number of commands counted per node. Counting more would change nothing, because the node is full.
const MAX_CALLS: usize = 1024;

impl Calls {
    /// Records that a command was sent to a node.
    pub fn send(&mut self, node: MemberId, now: Timestamp) -> Ticket {
        self.sent += 1;
        let calls = self.by_node.entry(node).or_default();
        if calls.len() >= MAX_CALLS {
            calls.remove(0);
        }
        calls.push(Call { number: self.sent, at: now, began: None });
        Ticket { node, number: self.sent }
    }

    /// Records that a command has started. `version` is the node's [`crate::Gossip::version`] at that time. The command
    /// counts until it ends or the node's load includes it.
    pub fn began(&mut self, ticket: Ticket, version: Version) {
        let calls = self.by_node.get_mut(&ticket.node).into_iter().flatten();
        if let Some(call) = calls.into_iter().find(|call| call.number == ticket.number) {
            call.began = Some(version);
        }
    }

    /// Removes a command that has ended or never started.
    pub fn ended(&mut self, ticket: Ticket) {
        if let Some(calls) = self.by_node.get_mut(&ticket.node) {
            calls.retain(|call| call.number != ticket.number);
            if calls.is_empty() {
                self.by_node.remove(&ticket.node);
            }
        }
    }

    /// Records that a node is unreachable. Commands avoid the node for [`Policy::avoid_ms`], which is shorter than the
    /// time until gossip declares a node silent.
    pub fn unreachable(&mut self, node: MemberId, policy: &Policy, now: Timestamp) {
        self.avoided.retain(|_, until| now < *until);
        self.avoided.insert(node, now.plus_ms(policy.avoid_ms.into()));
    }

    /// Drops commands that no longer count and nodes that are no longer avoided. Call this regularly to bound the
    /// memory.
    pub fn forget(&mut self, load_version: impl Fn(MemberId) -> Version, policy: &Policy, now: Timestamp) {
        self.by_node.retain(|node, calls| {
            let version = load_version(*node);
            calls.retain(|call| call.counts(version, policy, now));
            !calls.is_empty()
        });
        self.avoided.retain(|_, until| now < *until);
    }

    /// Returns how many commands sent to the node are not included in a load of this version.
    pub(crate) fn in_flight(&self, node: MemberId, load: Version, policy: &Policy, now: Timestamp) -> u64 {
        let Some(calls) = self.by_node.get(&node) else { return 0 };
        calls.iter().filter(|call| call.counts(load, policy, now)).count() as u64
    }

    pub(crate) fn is_avoided(&self, node: MemberId, now: Timestamp) -> bool {
        self.avoided.get(&node).is_some_and(|until| now < *until)
    }
}

impl Call {
    fn counts(&self, load: Version, policy: &Policy, now: Timestamp) -> bool {
        match self.began {
            // The first load after the start may have been measured before it.
            Some(began) => load < Version { seq: began.seq.saturating_add(2), ..began },
            None => now.ms_since(self.at) < u64::from(policy.call_ms),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Incarnation;

    const NODE: MemberId = MemberId(4);

    const fn version(incarnation: u64, seq: u64) -> Version {
        Version { incarnation: Incarnation(incarnation), seq }
    }

    fn count(calls: &Calls, load: Version, now: u64) -> u64 {
        calls.in_flight(NODE, load, &Policy::default(), Timestamp(now))
    }

    #[test]
    fn command_counts_until_it_ends_or_the_load_includes_it() {
        let mut calls = Calls::default();
        let tickets: Vec<_> = (0..4).map(|_| calls.send(NODE, Timestamp(0))).collect();
        assert_eq!(count(&calls, version(1, 7), 0), 4);
        calls.ended(tickets[0]);
        calls.began(tickets[1], version(1, 7));
        assert_eq!(count(&calls, version(1, 8), 2999), 3);
        assert_eq!(count(&calls, version(1, 8), 3000), 1, "two were never reported as started");
        assert_eq!(count(&calls, version(1, 9), 3000), 0, "the second load after the start includes it");
        assert_eq!(count(&calls, version(2, 1), 0), 2, "the command ended with the restart of its node");
        calls.ended(tickets[1]);
        calls.ended(tickets[1]);
        assert_eq!(count(&calls, version(1, 7), 3000), 0);
        calls.forget(|_| version(1, 7), &Policy::default(), Timestamp(3000));
        assert!(calls.by_node.is_empty());
        calls.began(tickets[2], version(1, 7));
        assert_eq!(count(&calls, version(1, 7), 3000), 0, "the command was dropped");
    }

    #[test]
    fn unreachable_nodes_are_avoided_for_a_while() {
        let mut calls = Calls::default();
        calls.unreachable(NODE, &Policy::default(), Timestamp(100));
        assert!(calls.is_avoided(NODE, Timestamp(10_099)) && !calls.is_avoided(MemberId(5), Timestamp(100)));
        assert!(!calls.is_avoided(NODE, Timestamp(10_100)));
    }

    #[test]
    fn counted_commands_are_bounded() {
        let mut calls = Calls::default();
        (0..5000).for_each(|_| _ = calls.send(NODE, Timestamp(0)));
        assert_eq!(count(&calls, version(1, 1), 0), MAX_CALLS as u64);
    }
}
