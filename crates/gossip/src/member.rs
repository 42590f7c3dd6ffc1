//! Who may be in the table: the head says it, the agent keeps it on its disk.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use hostler_model::{Feature, NodeName};
use serde::{Deserialize, Serialize};

/// A member's number in datagrams, given out by the head. A node keeps its number for as long as it is a member. When it has left, the
/// number may be given to another: what was known of the one is then forgotten. Small and dense numbers make small datagrams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MemberId(pub u32);

/// A node that may take part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Its number in datagrams.
    pub id: MemberId,
    /// Its name.
    pub name: NodeName,
    /// Where it sends its datagrams from and takes those of others.
    pub address: SocketAddr,
    /// What commands may ask of it; its name is one of them without being listed.
    #[serde(default)]
    pub features: BTreeSet<Feature>,
}

/// All members.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Members {
    /// In the order of their numbers, each of which is there once.
    sorted: Vec<Member>,
    by_name: BTreeMap<NodeName, usize>,
}

impl Members {
    /// These members; of several with the same number, the last.
    pub fn new(members: impl IntoIterator<Item = Member>) -> Self {
        let by_id: BTreeMap<_, _> = members.into_iter().map(|member| (member.id, member)).collect();
        let sorted: Vec<_> = by_id.into_values().collect();
        let by_name = sorted.iter().enumerate().map(|(place, member)| (member.name.clone(), place)).collect();
        Self { sorted, by_name }
    }

    /// How many there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.sorted.len()
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.sorted.is_empty()
    }

    /// The member with this number.
    #[must_use]
    pub fn get(&self, id: MemberId) -> Option<&Member> {
        self.place(id).map(|place| self.at(place))
    }

    /// The member of this name.
    #[must_use]
    pub fn named(&self, name: &NodeName) -> Option<&Member> {
        self.by_name.get(name).map(|place| self.at(*place))
    }

    /// In the order of their numbers.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Member> {
        self.sorted.iter()
    }

    /// At which place of the order this number is.
    pub(crate) fn place(&self, id: MemberId) -> Option<usize> {
        let first = self.sorted.first()?.id.0;
        // Right when numbers are dense, which they mostly are.
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
