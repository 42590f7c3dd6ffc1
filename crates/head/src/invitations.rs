//! Invitations of new nodes, and protection against guessing of join codes.
//!
//! A join code contains 128 random bits, so guessing is hopeless. The head still delays wrong codes, and counts them
//! ([`crate::failures`]). An error never reveals which part of a single machine's code is wrong, so a stranger learns nothing about
//! existing codes.
//!
//! Invitations of single machines are kept in memory and use the monotonic clock. A restart of the head deletes them. The code of
//! a partition is valid for days and for many machines, so it is a part of the state and uses the wall clock.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hostler_core::head::{PartitionCode, Replaces, State};
use hostler_model::{Digest, NodeName, NodePatterns, PartitionName, WallTime, format_ms};
use hostler_snapshot::chunk::digest_of;

use crate::names::random_name;

const INVITATION_TTL: Duration = Duration::from_secs(3600);

/// Maximum number of open invitations. At the maximum, a new invitation replaces the oldest.
const MAX_INVITATIONS: usize = 10_000;

/// Default validity of a partition's code.
const PARTITION_CODE_MS: u64 = 7 * 24 * 3600 * 1000;

/// Longest validity of a partition's code.
const LONGEST_PARTITION_CODE_MS: u64 = 366 * 24 * 3600 * 1000;

/// A new secret for a partition's code, and the code for the state.
///
/// # Errors
/// If it would be valid for no time, or for longer than [`LONGEST_PARTITION_CODE_MS`].
pub(crate) fn partition_code(valid_ms: Option<u64>, now: WallTime) -> Result<(String, PartitionCode), String> {
    let valid_ms = valid_ms.unwrap_or(PARTITION_CODE_MS);
    if !(1..=LONGEST_PARTITION_CODE_MS).contains(&valid_ms) {
        return Err(format!(
            "a join code is valid for at most {}, and not for no time",
            format_ms(LONGEST_PARTITION_CODE_MS)
        ));
    }
    let secret = random_name();
    let until = WallTime(now.0.saturating_add_unsigned(valid_ms));
    Ok((secret.clone(), PartitionCode { secret: digest_of(secret.as_bytes()), until }))
}

/// Admits a machine with the code of a partition; `None` if the code is not that of a partition. The machine may replace a node
/// that is away, such as a virtual machine that was deleted.
pub(crate) fn by_partition_code(
    state: &State,
    candidate: &Candidate<'_>,
    now: WallTime,
) -> Option<Result<Ticket, NotInvited>> {
    let secret = digest_of(candidate.secret.as_bytes());
    let is_valid = |code: &PartitionCode| code.secret == secret && now < code.until;
    let partition = state.partitions.iter().find(|partition| partition.join_code.as_ref().is_some_and(is_valid))?;
    let Some(node) = candidate.node.or(candidate.machine) else { return Some(Err(NotInvited::Nameless)) };
    let (patterns, name) = (partition.nodes.clone(), partition.name.clone());
    Some(match patterns.matches(node) {
        true => Ok(Ticket { node: node.clone(), replaces: Replaces::Away }),
        false => Err(NotInvited::NotInPartition { node: node.clone(), partition: name, patterns }),
    })
}

/// Open invitations.
#[derive(Default)]
pub(crate) struct Invitations {
    by_secret: Mutex<HashMap<Digest, Invited>>,
}

/// An open invitation. Its key in the map is the hash of the secret.
struct Invited {
    /// The node that may join; any new name if absent.
    node: Option<NodeName>,
    at: Instant,
    /// The request that used the invitation. An agent that missed the answer may repeat this request.
    taken_by: Option<Digest>,
}

/// A machine that requests to join.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Candidate<'a> {
    pub(crate) secret: &'a str,
    pub(crate) node: Option<&'a NodeName>,
    /// The machine's host name, used if neither the invitation nor the request contains a node name.
    pub(crate) machine: Option<&'a NodeName>,
    /// Hash of the certificate signing request.
    pub(crate) request: Digest,
}

/// Permission to join as a certain node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ticket {
    pub(crate) node: NodeName,
    /// Which existing node of that name the machine may replace.
    pub(crate) replaces: Replaces,
}

/// Why a machine may not join. The error does not reveal which part of the code is wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotInvited {
    #[error(
        "the join code is not valid for this machine: it is unknown, too old, already used, ended, or for another node"
    )]
    Wrong,
    /// The code is valid, but neither the code nor the request contains a usable node name.
    #[error("neither the join code nor the request contains a node name")]
    Nameless,
    /// The code is that of a partition.
    #[error("this join code is for the nodes {patterns} of partition {partition}, not for {node}")]
    NotInPartition { node: NodeName, partition: PartitionName, patterns: NodePatterns },
}

impl Invitations {
    /// Creates a secret with which a node of this name, or of any new name, can join within an hour.
    pub(crate) fn invite(&self, node: Option<NodeName>) -> String {
        let secret = random_name();
        let mut invitations = self.by_secret();
        invitations.retain(|_, invited| invited.at.elapsed() < INVITATION_TTL);
        if invitations.len() >= MAX_INVITATIONS
            && let Some(oldest) = invitations.iter().min_by_key(|(_, invited)| invited.at).map(|(key, _)| *key)
        {
            invitations.remove(&oldest);
        }
        invitations.insert(digest_of(secret.as_bytes()), Invited { node, at: Instant::now(), taken_by: None });
        secret
    }

    /// Uses an invitation. If the node cannot join after all, [`Self::give_back`] makes the invitation valid again.
    ///
    /// # Errors
    /// No invitation matches.
    pub(crate) fn take(&self, candidate: &Candidate<'_>) -> Result<Ticket, NotInvited> {
        let mut invitations = self.by_secret();
        let invited = invitations
            .get_mut(&digest_of(candidate.secret.as_bytes()))
            .filter(|invited| invited.at.elapsed() < INVITATION_TTL)
            .filter(|invited| invited.taken_by.is_none_or(|taken| taken == candidate.request))
            .filter(|invited| {
                invited.node.is_none() || candidate.node.is_none() || invited.node.as_ref() == candidate.node
            })
            .ok_or(NotInvited::Wrong)?;
        let node = invited.node.as_ref().or(candidate.node).or(candidate.machine).ok_or(NotInvited::Nameless)?.clone();
        invited.taken_by = Some(candidate.request);
        let replaces = if invited.node.is_some() { Replaces::Any } else { Replaces::Nothing };
        Ok(Ticket { node, replaces })
    }

    /// Reverts [`Self::take`]: makes the invitation that this request used valid again.
    pub(crate) fn give_back(&self, candidate: &Candidate<'_>) {
        let mut invitations = self.by_secret();
        if let Some(invited) = invitations.get_mut(&digest_of(candidate.secret.as_bytes()))
            && invited.taken_by == Some(candidate.request)
        {
            invited.taken_by = None;
        }
    }

    /// Ends an invitation. Returns whether a machine could have joined with it.
    pub(crate) fn revoke(&self, secret: &str) -> bool {
        let mut invitations = self.by_secret();
        let is_open = |invited: &Invited| invited.taken_by.is_none() && invited.at.elapsed() < INVITATION_TTL;
        let key = digest_of(secret.as_bytes());
        // The machine that has used an invitation may still repeat its request.
        invitations.get(&key).is_some_and(is_open) && invitations.remove(&key).is_some()
    }

    fn by_secret(&self) -> MutexGuard<'_, HashMap<Digest, Invited>> {
        self.by_secret.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str) -> NodeName {
        name.parse().expect("a valid name")
    }

    fn take(all: &Invitations, secret: &str, node: Option<&NodeName>, request: u8) -> Result<Ticket, NotInvited> {
        let machine = "machine".parse().expect("a valid name");
        all.take(&Candidate { secret, node, machine: Some(&machine), request: Digest([request; 32]) })
    }

    #[test]
    fn invitation_is_valid_for_one_node_and_one_request() {
        let all = Invitations::default();
        let (a, b) = (node("a"), node("b"));
        let secret = all.invite(Some(a.clone()));
        assert_eq!(take(&all, "guess", Some(&a), 1), Err(NotInvited::Wrong));
        assert_eq!(
            take(&all, &secret, Some(&b), 1),
            Err(NotInvited::Wrong),
            "the error must not tell that the secret is right"
        );
        let ticket = Ticket { node: a.clone(), replaces: Replaces::Any };
        assert_eq!(take(&all, &secret, None, 1), Ok(ticket.clone()));
        assert_eq!(take(&all, &secret, Some(&a), 1), Ok(ticket.clone()), "the answer may have been lost");
        assert_eq!(take(&all, &secret, Some(&a), 2), Err(NotInvited::Wrong));
        let candidate = Candidate { secret: &secret, node: None, machine: None, request: Digest([1; 32]) };
        all.give_back(&candidate);
        assert_eq!(take(&all, &secret, Some(&a), 2), Ok(ticket));
    }

    #[test]
    fn invitation_without_a_name_accepts_any_name() {
        let all = Invitations::default();
        let a = node("a");
        let secret = all.invite(None);
        let nameless = Candidate { secret: &secret, node: None, machine: None, request: Digest([1; 32]) };
        assert_eq!(all.take(&nameless), Err(NotInvited::Nameless));
        assert_eq!(take(&all, &secret, Some(&a), 1), Ok(Ticket { node: a, replaces: Replaces::Nothing }));
        let secret = all.invite(None);
        assert_eq!(take(&all, &secret, None, 1), Ok(Ticket { node: node("machine"), replaces: Replaces::Nothing }));
    }

    #[test]
    fn invitation_expires() {
        let all = Invitations::default();
        let secret = all.invite(Some(node("a")));
        let long_ago = Instant::now().checked_sub(INVITATION_TTL).expect("enough uptime");
        all.by_secret().values_mut().for_each(|invited| invited.at = long_ago);
        assert_eq!(take(&all, &secret, None, 1), Err(NotInvited::Wrong));
        all.invite(None);
        assert_eq!(all.by_secret().len(), 1, "expired invitations are deleted");
    }
}
