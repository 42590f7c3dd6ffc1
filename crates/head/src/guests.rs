//! What one party may take of the head at once, so that nobody keeps others out.
//!
//! Three kinds of parties have separate places. Strangers, who have shown nothing yet, wait in rooms from which the one that came first
//! goes when another comes. Users are counted by name, users of the head's machine also by uid before any request. Nodes are counted by
//! name, and never wait for users or strangers.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use hostler_core::doorway::{Network, Place, Share, Shares, WaitingRoom};
use hostler_model::NodeName;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::api::access::Identity;

/// Connections whose TLS handshake is not over. At a thousand new ones a second each has a quarter of a second for a handshake, which
/// takes milliseconds.
const HANDSHAKES: usize = 256;

/// Connections without a certificate whose handshake is over: enough for a shelf of servers that joins at once.
const STRANGERS: usize = 256;

/// Networks from which nodes have come that are remembered.
const KNOWN: usize = 4096;

/// Connections of one uid on the head's socket, of one user over TLS, and of one node.
const OF_ONE_UID: usize = 1024;
const OF_ONE_USER: usize = 256;
const OF_ONE_NODE: usize = 1024;

/// Requests of one user that are not answered yet. Many may wait for the end of a job.
const REQUESTS: usize = 1024;

/// Requests with a large body, and checks of uploaded folders or readings of manifests, of one party; others of that party wait.
const BODIES: usize = 4;
const COMMITS: usize = 1;

/// Uploads of one party, and of all users and all nodes; others wait. Each may hold what it gathers in memory.
const UPLOADS: usize = 16;
const UPLOADS_OF_USERS: usize = 64;
const UPLOADS_OF_NODES: usize = 64;

/// Memory for long chunks on their way, of one party and of all users or all nodes, in MiB: enough for one of the longest.
const LONG_MIB: usize = 80;
const LONG_MIB_OF_ALL: usize = 4 * LONG_MIB;

/// Says, by being dropped, that a stranger has to go.
type Line = oneshot::Sender<()>;

/// A stranger's place, and what ends when it has to be given up.
pub(crate) type Waiting = (Place<Line>, oneshot::Receiver<()>);

/// Who is here.
pub(crate) struct Guests {
    handshakes: Arc<WaitingRoom<Line>>,
    strangers: Arc<WaitingRoom<Line>>,
    known: Mutex<BTreeSet<Network>>,
    /// Connections on the socket, by uid.
    pub(crate) uids: Arc<Shares<u32>>,
    /// Connections over TLS of users who have shown a token.
    pub(crate) users: Arc<Shares<String>>,
    /// Connections with a certificate.
    pub(crate) nodes: Arc<Shares<NodeName>>,
    /// Requests of users that are not answered yet.
    pub(crate) requests: Arc<Shares<String>>,
    /// Who may send a large body.
    pub(crate) bodies: Turns,
    /// Who may have an upload checked.
    pub(crate) commits: Turns,
    /// Who may have the manifests of results read.
    pub(crate) manifests: Turns,
    /// Who may upload.
    pub(crate) uploads: Lanes,
    /// Who may have so many MiB of a long chunk in memory.
    pub(crate) long: Lanes,
}

impl Default for Guests {
    fn default() -> Self {
        Self {
            handshakes: WaitingRoom::new(HANDSHAKES),
            strangers: WaitingRoom::new(STRANGERS),
            known: Mutex::default(),
            uids: Shares::of(OF_ONE_UID),
            users: Shares::of(OF_ONE_USER),
            nodes: Shares::of(OF_ONE_NODE),
            requests: Shares::of(REQUESTS),
            bodies: Turns::of(BODIES),
            commits: Turns::of(COMMITS),
            manifests: Turns::of(COMMITS),
            uploads: Lanes::of(UPLOADS, UPLOADS_OF_USERS, UPLOADS_OF_NODES),
            long: Lanes::of(LONG_MIB, LONG_MIB_OF_ALL, LONG_MIB_OF_ALL),
        }
    }
}

impl Guests {
    /// A place for a connection whose handshake begins.
    pub(crate) fn begin(&self, from: IpAddr) -> Waiting {
        self.wait_in(&self.handshakes, from)
    }

    /// A place for a connection that has come without a certificate.
    pub(crate) fn stay(&self, from: IpAddr) -> Waiting {
        self.wait_in(&self.strangers, from)
    }

    fn wait_in(&self, room: &Arc<WaitingRoom<Line>>, from: IpAddr) -> Waiting {
        let (line, gone) = oneshot::channel();
        let network = Network::from(from);
        let is_known = self.known.lock().unwrap_or_else(PoisonError::into_inner).contains(&network);
        (room.enter(network, is_known, line), gone)
    }

    /// A node has come from there: who else does is not the first to go.
    pub(crate) fn know(&self, from: IpAddr) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= KNOWN {
            known.clear();
        }
        known.insert(from.into());
    }
}

/// Whom a request counts for. Names of users and nodes cannot be mistaken for one another.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Party {
    User(String),
    Node(NodeName),
    Stranger,
}

impl From<&Identity> for Party {
    fn from(identity: &Identity) -> Self {
        match identity {
            Identity::User(person) => Self::User(person.name.clone()),
            Identity::Agent(bearer) => Self::Node(bearer.node.clone()),
            Identity::Nobody(_) => Self::Stranger,
        }
    }
}

/// Turns of each party: whoever has as many as it may have waits for its own.
pub(crate) struct Turns {
    each: usize,
    of: Mutex<BTreeMap<Party, Arc<Semaphore>>>,
}

/// Parties of which it is remembered how many turns they have, before those are forgotten that have none.
const REMEMBERED: usize = 1024;

impl Turns {
    fn of(each: usize) -> Self {
        Self { each, of: Mutex::default() }
    }

    /// `count` turns of a party, when it has no more than its own with them.
    pub(crate) async fn take(&self, party: &Party, count: usize) -> OwnedSemaphorePermit {
        let own = {
            let mut of = self.of.lock().unwrap_or_else(PoisonError::into_inner);
            if of.len() >= REMEMBERED {
                of.retain(|_, own| Arc::strong_count(own) > 1);
            }
            Arc::clone(of.entry(party.clone()).or_insert_with(|| Arc::new(Semaphore::new(self.each))))
        };
        take(own, count.min(self.each)).await
    }
}

/// Turns of each party, of which all users together and all nodes together have a bounded number.
pub(crate) struct Lanes {
    each: Turns,
    users: Arc<Semaphore>,
    nodes: Arc<Semaphore>,
}

impl Lanes {
    fn of(each: usize, users: usize, nodes: usize) -> Self {
        Self { each: Turns::of(each), users: Arc::new(Semaphore::new(users)), nodes: Arc::new(Semaphore::new(nodes)) }
    }

    /// `count` turns of a party; its own first, so that nobody waits in the common queue who may not have one.
    pub(crate) async fn take(&self, party: &Party, count: usize) -> [OwnedSemaphorePermit; 2] {
        let count = count.min(self.each.each);
        let own = self.each.take(party, count).await;
        let lane = if matches!(party, Party::Node(_)) { &self.nodes } else { &self.users };
        [own, take(Arc::clone(lane), count).await]
    }
}

async fn take(semaphore: Arc<Semaphore>, count: usize) -> OwnedSemaphorePermit {
    let count = u32::try_from(count).unwrap_or(u32::MAX);
    semaphore.acquire_many_owned(count).await.expect("never closed")
}

/// A user's connection over TLS.
pub(crate) type UserShare = Share<String>;

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn a_party_waits_for_its_own_turns_and_for_no_other_partys() {
        let lanes = Lanes::of(2, 3, 1);
        let [ada, bob] = ["ada", "bob"].map(|name| Party::User(name.to_owned()));
        let held = [lanes.take(&ada, 1).await, lanes.take(&ada, 1).await];
        assert!(lanes.take(&ada, 1).now_or_never().is_none());
        let third = lanes.take(&bob, 1).now_or_never().expect("there is one left");
        assert!(lanes.take(&bob, 1).now_or_never().is_none(), "all users together have three");
        let node = Party::Node("n1".parse().expect("a name"));
        assert!(lanes.take(&node, 1).now_or_never().is_some(), "nodes have their own");
        drop((held, third));
        assert!(lanes.take(&bob, 2).now_or_never().is_some());
    }
}
