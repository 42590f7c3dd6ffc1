//! Invitations: who may join, and how often somebody may guess.
//!
//! A secret has 128 random bits, so guessing it is hopeless; that wrong ones are answered slowly and counted is so that nobody tries, and
//! that whoever does is seen in the log. What exactly is wrong is never said: a stranger learns nothing about what codes there are.
//!
//! Invitations live in memory and on the monotonic clock: they end with the head's process, and an hour is an hour.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hostler_model::{Digest, NodeName};
use hostler_snapshot::chunk::digest_of;

use crate::trust::random_name;

/// How long an invitation can be taken.
const INVITATION_TTL: Duration = Duration::from_secs(3600);

/// Invitations that wait at once. The oldest makes room: whoever asks for more can ask again.
const MAX_INVITATIONS: usize = 10_000;

/// Wrong codes from one address that are answered within [`GUESS_WINDOW`]; who has made more is not listened to until that is over.
const MAX_GUESSES: u32 = 10;

/// The time over which wrong codes are counted.
const GUESS_WINDOW: Duration = Duration::from_secs(60);

/// Addresses that are remembered for their wrong codes. More at once are an attack from everywhere, against which the slow answers stand.
const MAX_GUESSERS: usize = 10_000;

/// Who may join.
#[derive(Default)]
pub(crate) struct Invitations {
    by_secret: Mutex<HashMap<Digest, Invited>>,
    guessers: Mutex<HashMap<IpAddr, Guesser>>,
}

/// A secret that was handed out; its hash is the key of the map.
struct Invited {
    /// For this node; for any name that is new when absent.
    node: Option<NodeName>,
    at: Instant,
    /// The request that took it. An agent that did not hear the answer may ask again with the same.
    taken_by: Option<Digest>,
}

/// Somebody who has shown wrong codes.
struct Guesser {
    wrong: u32,
    since: Instant,
}

/// Who wants to join.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Candidate<'a> {
    /// What they show.
    pub(crate) secret: &'a str,
    /// The name they ask for.
    pub(crate) node: Option<&'a NodeName>,
    /// Their machine's name.
    pub(crate) machine: Option<&'a NodeName>,
    /// The hash of their signing request.
    pub(crate) request: Digest,
}

/// As what a candidate may join.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ticket {
    /// The node's name.
    pub(crate) node: NodeName,
    /// Whether the invitation was made for this name.
    pub(crate) is_for_it: bool,
}

/// Why nobody joins. It does not say what is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotInvited {
    /// Whatever is wrong with it.
    #[error(
        "this join code does not let this machine in: it is unknown, older than an hour, was used already, or is for another node"
    )]
    Wrong,
    /// A good code without a name, from a machine without a usable one.
    #[error("the join code names no node, and neither does the request")]
    Nameless,
}

impl Invitations {
    /// A secret with which a node of this name, or of any new name, can join within an hour.
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

    /// Takes an invitation. It is given back with [`Self::give_back`] when the candidate does not become a node after all.
    ///
    /// # Errors
    /// When there is no such invitation for them.
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
        Ok(Ticket { node, is_for_it: invited.node.is_some() })
    }

    /// Lets an invitation that this request took be taken again.
    pub(crate) fn give_back(&self, candidate: &Candidate<'_>) {
        let mut invitations = self.by_secret();
        if let Some(invited) = invitations.get_mut(&digest_of(candidate.secret.as_bytes()))
            && invited.taken_by == Some(candidate.request)
        {
            invited.taken_by = None;
        }
    }

    /// How long this address is not listened to any more, because it has shown too many wrong codes.
    pub(crate) fn must_wait(&self, from: IpAddr) -> Option<Duration> {
        let guessers = self.guessers();
        let guesser = guessers.get(&network_of(from)).filter(|guesser| guesser.wrong >= MAX_GUESSES)?;
        GUESS_WINDOW.checked_sub(guesser.since.elapsed())
    }

    /// A wrong code came from this address.
    pub(crate) fn note_wrong(&self, from: IpAddr) {
        let mut guessers = self.guessers();
        if guessers.len() >= MAX_GUESSERS {
            guessers.retain(|_, guesser| guesser.since.elapsed() < GUESS_WINDOW);
        }
        if guessers.len() >= MAX_GUESSERS {
            return;
        }
        let fresh = || Guesser { wrong: 0, since: Instant::now() };
        let guesser = guessers.entry(network_of(from)).or_insert_with(fresh);
        if guesser.since.elapsed() >= GUESS_WINDOW {
            *guesser = fresh();
        }
        guesser.wrong += 1;
    }

    fn by_secret(&self) -> MutexGuard<'_, HashMap<Digest, Invited>> {
        self.by_secret.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn guessers(&self) -> MutexGuard<'_, HashMap<IpAddr, Guesser>> {
        self.guessers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What counts as one address: whoever has an IPv6 address has 2^64 of them.
fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => IpAddr::V6((address.to_bits() >> 64 << 64).into()),
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
    fn an_invitation_is_for_one_node_and_one_request() {
        let all = Invitations::default();
        let (a, b) = (node("a"), node("b"));
        let secret = all.invite(Some(a.clone()));
        assert_eq!(take(&all, "guess", Some(&a), 1), Err(NotInvited::Wrong));
        assert_eq!(take(&all, &secret, Some(&b), 1), Err(NotInvited::Wrong), "no hint that the secret is right");
        let ticket = Ticket { node: a.clone(), is_for_it: true };
        assert_eq!(take(&all, &secret, None, 1), Ok(ticket.clone()));
        assert_eq!(take(&all, &secret, Some(&a), 1), Ok(ticket.clone()), "the answer may have been lost");
        assert_eq!(take(&all, &secret, Some(&a), 2), Err(NotInvited::Wrong));
        let candidate = Candidate { secret: &secret, node: None, machine: None, request: Digest([1; 32]) };
        all.give_back(&candidate);
        assert_eq!(take(&all, &secret, Some(&a), 2), Ok(ticket));
    }

    #[test]
    fn one_without_a_name_is_for_any() {
        let all = Invitations::default();
        let a = node("a");
        let secret = all.invite(None);
        let nameless = Candidate { secret: &secret, node: None, machine: None, request: Digest([1; 32]) };
        assert_eq!(all.take(&nameless), Err(NotInvited::Nameless));
        assert_eq!(take(&all, &secret, Some(&a), 1), Ok(Ticket { node: a, is_for_it: false }));
        let secret = all.invite(None);
        assert_eq!(take(&all, &secret, None, 1), Ok(Ticket { node: node("machine"), is_for_it: false }));
    }

    #[test]
    fn an_invitation_ends() {
        let all = Invitations::default();
        let secret = all.invite(Some(node("a")));
        let long_ago = Instant::now().checked_sub(INVITATION_TTL).expect("the clock can tell");
        all.by_secret().values_mut().for_each(|invited| invited.at = long_ago);
        assert_eq!(take(&all, &secret, None, 1), Err(NotInvited::Wrong));
        all.invite(None);
        assert_eq!(all.by_secret().len(), 1, "the next one makes room");
    }

    #[test]
    fn who_guesses_is_not_listened_to_for_a_while() {
        let all = Invitations::default();
        let [guesser, neighbour, other] =
            ["2001:db8::1", "2001:db8::2", "192.0.2.1"].map(|text| text.parse::<IpAddr>().expect(text));
        for _ in 0..MAX_GUESSES {
            assert_eq!(all.must_wait(guesser), None);
            all.note_wrong(guesser);
        }
        assert!(all.must_wait(guesser).is_some() && all.must_wait(neighbour).is_some());
        assert_eq!(all.must_wait(other), None);
        let long_ago = Instant::now().checked_sub(GUESS_WINDOW).expect("the clock can tell");
        all.guessers().values_mut().for_each(|guesser| guesser.since = long_ago);
        assert_eq!(all.must_wait(guesser), None);
    }
}
