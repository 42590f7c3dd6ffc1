//! The members of the gossip, as the head defines them. The agent stores them on disk.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use hostler_model::{Feature, NodeName};
use serde::{Deserialize, Serialize};

/// A member's number in datagrams, assigned by the head. A node keeps its number while it is a member. Afterwards the number may be
/// reassigned; state of the former node is then dropped. Small, dense numbers make datagrams small.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MemberId(pub u32);

/// A node that takes part in gossip.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// The node's number in datagrams.
    pub id: MemberId,
    /// The node's name.
    pub name: NodeName,
    /// The node's UDP address, from which it sends and at which it receives.
    pub address: SocketAddr,
    /// The node's features, for constraints of commands. Its name is implicitly one of them.
    #[serde(default)]
    pub features: BTreeSet<Feature>,
}

/// The list of all members, including this node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Members {
    /// Sorted by number; each number occurs once.
    sorted: Vec<Member>,
    by_name: BTreeMap<NodeName, usize>,
}

impl Members {
    /// Creates the list. Of several members with the same number, the last one counts.
    pub fn new(members: impl IntoIterator<Item = Member>) -> Self {
        let by_id: BTreeMap<_, _> = members.into_iter().map(|member| (member.id, member)).collect();
        let sorted: Vec<_> = by_id.into_values().collect();
        let by_name = sorted.iter().enumerate().map(|(place, member)| (member.name.clone(), place)).collect();
        Self { sorted, by_name }
    }

    /// Returns the number of members.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.sorted.len()
    }

    /// Returns whether the list is empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.sorted.is_empty()
    }

    /// Returns the member with this number.
    #[must_use]
    pub fn get(&self, id: MemberId) -> Option<&Member> {
        self.place(id).map(|place| self.at(place))
    }

    /// Returns the member of this name.
    #[must_use]
    pub fn named(&self, name: &NodeName) -> Option<&Member> {
        self.by_name.get(name).map(|place| self.at(*place))
    }

    /// Iterates over the members in order of their numbers.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Member> {
        self.sorted.iter()
    }

    /// Returns the index of the member with this number, in order of numbers.
    pub(crate) fn place(&self, id: MemberId) -> Option<usize> {
        let first = self.sorted.first()?.id.0;
        // Correct if numbers are dense, which is common.
        let guess = id.0.checked_sub(first)? as usize;
        if self.sorted.get(guess).is_some_and(|member| member.id == id) {
            return Some(guess);
        }
        self.sorted.binary_search_by_key(&id, |member| member.id).ok()
    }

    pub(crate) fn at(&self, place: usize) -> &Member {
        &self.sorted[place]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(id: u32, name: &str) -> Member {
        let address = "10.0.0.1:7".parse().expect("an address");
        Member { id: MemberId(id), name: name.parse().expect("a name"), address, features: BTreeSet::new() }
    }

    #[test]
    fn members_are_found_by_number_and_by_name() {
        let members = Members::new([member(9, "c"), member(2, "a"), member(3, "b"), member(9, "d")]);
        assert_eq!(members.len(), 3);
        for (id, name) in [(2, "a"), (3, "b"), (9, "d")] {
            assert_eq!(members.get(MemberId(id)).map(|member| member.name.as_str()), Some(name));
            assert_eq!(members.named(&name.parse().expect("a name")).map(|member| member.id), Some(MemberId(id)));
        }
        assert_eq!(members.get(MemberId(1)), None);
        assert_eq!(members.get(MemberId(4)), None);
        assert_eq!(members.get(MemberId(u32::MAX)), None);
        assert_eq!(members.named(&"c".parse().expect("a name")), None);
    }
}
