//! What one party may take of the head at once, so that nobody keeps others out.
//!
//! Three kinds of parties have separate places. Strangers, who have shown nothing yet, wait in rooms from which the one that came first
//! goes when another comes. Users are counted by name, users of the head's machine also by uid before any request. Nodes are counted by
//! name, and never wait for users or strangers. Root of a node can ask in any number of names, so all users who come through one node have
//! a bounded share together.

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

/// Requests of one user whose answers are not sent yet. Many may wait for the end of a job or follow an output. All users of one node may
/// have as many together, which is more than an agent passes on at once.
const REQUESTS: usize = 1024;

/// Requests with a large body, and checks of uploaded folders or readings of manifests, of one party; others of that party wait.
const BODIES: usize = 4;
const COMMITS: usize = 1;

/// How many times what one party may have all users who come through one node may have together. Where all parties have a bounded number
/// together, it is a quarter of that.
const OF_ONE_NODES_USERS: usize = 4;

/// Uploads of one party, and of all users and all nodes; others wait. Each may hold what it gathers in memory.
const UPLOADS: usize = 16;
const UPLOADS_OF_USERS: usize = 64;
const UPLOADS_OF_NODES: usize = 64;

/// Memory for long chunks on their way, of one party and of all users or all nodes, in MiB: enough for one of the longest.
const LONG_MIB: usize = 80;
const LONG_MIB_OF_ALL: usize = 4 * LONG_MIB;

/// Memory of one party for answers until they are sent, in KiB: enough for one of the longest blobs. Others of that party wait.
const ANSWERS_KIB: usize = 80 << 10;

/// Memory of one party for the lists of chunks that it is being sent, in KiB: enough for one of the longest.
const LISTS_KIB: usize = 16 << 10;

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
    /// Requests of users whose answers are not sent yet.
    pub(crate) requests: Arc<Shares<String>>,
    /// Those of them that came through a node.
    pub(crate) relayed: Arc<Shares<NodeName>>,
    /// Who may send a large body.
    pub(crate) bodies: Turns,
    /// Who may have an upload checked.
    pub(crate) commits: Turns,
    /// Who may have the manifests of results read.
    pub(crate) manifests: Turns,
    /// Who may have so many KiB of answers in memory.
    pub(crate) answers: Turns,
    /// Who may have so many KiB of lists of chunks in memory.
    pub(crate) lists: Turns,
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
            relayed: Shares::of(REQUESTS),
            bodies: Turns::of(BODIES),
            commits: Turns::of(COMMITS),
            manifests: Turns::of(COMMITS),
            answers: Turns::of(ANSWERS_KIB),
            lists: Turns::of(LISTS_KIB),
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

/// Whom a request counts for: a party, and the node through which it came.
#[derive(Debug, Clone)]
pub(crate) struct Party {
    who: Who,
    through: Option<NodeName>,
}

#[cfg(test)]
impl Party {
    pub(crate) fn of_user(name: &str, through: Option<&str>) -> Self {
        let through = through.map(|node| node.parse().expect("a name"));
        Self { who: Who::User(name.to_owned()), through }
    }
}

/// Who has a share. Names of users and nodes cannot be mistaken for one another.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Who {
    User(String),
    Node(NodeName),
    Stranger,
    /// All users who come through a node.
    UsersOf(NodeName),
}

impl From<&Identity> for Party {
    fn from(identity: &Identity) -> Self {
        let (who, through) = match identity {
            Identity::User(person) => (Who::User(person.name.clone()), person.origin.node().cloned()),
            Identity::Agent(bearer) => (Who::Node(bearer.node.clone()), None),
            Identity::Nobody(_) => (Who::Stranger, None),
        };
        Self { who, through }
    }
}

/// Turns that somebody has. Dropping them gives them back.
pub(crate) type Held = Vec<OwnedSemaphorePermit>;

/// Turns of each party, of which all users of one node together have a bounded number: whoever has as many as it may have waits for its
/// own.
pub(crate) struct Turns {
    each: usize,
    of_one_nodes_users: usize,
    of: Mutex<BTreeMap<Who, Arc<Semaphore>>>,
}

/// Parties of which it is remembered how many turns they have, before those are forgotten that have none.
const REMEMBERED: usize = 1024;

impl Turns {
    fn of(each: usize) -> Self {
        Self { each, of_one_nodes_users: OF_ONE_NODES_USERS * each, of: Mutex::default() }
    }

    /// `count` turns of a party, when it has no more than its own with them.
    pub(crate) async fn take(&self, party: &Party, count: usize) -> Held {
        let count = count.min(self.each);
        let own = self.turns_of(party.who.clone(), self.each);
        let mut held = vec![take(own, count).await];
        if let Some(node) = &party.through {
            let of_node = self.turns_of(Who::UsersOf(node.clone()), self.of_one_nodes_users);
            held.push(take(of_node, count).await);
        }
        held
    }

    fn turns_of(&self, who: Who, most: usize) -> Arc<Semaphore> {
        let mut of = self.of.lock().unwrap_or_else(PoisonError::into_inner);
        if of.len() >= REMEMBERED {
            of.retain(|_, own| Arc::strong_count(own) > 1);
        }
        Arc::clone(of.entry(who).or_insert_with(|| Arc::new(Semaphore::new(most))))
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
        // No less than one party's share, or it could never be had.
        let each = Turns { of_one_nodes_users: (users / OF_ONE_NODES_USERS).max(each), ..Turns::of(each) };
        Self { each, users: Arc::new(Semaphore::new(users)), nodes: Arc::new(Semaphore::new(nodes)) }
    }

    /// `count` turns of a party; its own first, so that nobody waits in the common queue who may not have one.
    pub(crate) async fn take(&self, party: &Party, count: usize) -> Held {
        let count = count.min(self.each.each);
        let mut held = self.each.take(party, count).await;
        let lane = if matches!(party.who, Who::Node(_)) { &self.nodes } else { &self.users };
        held.push(take(Arc::clone(lane), count).await);
        held
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
        let [ada, bob] = ["ada", "bob"].map(|name| Party::of_user(name, None));
        let held = [lanes.take(&ada, 1).await, lanes.take(&ada, 1).await];
        assert!(lanes.take(&ada, 1).now_or_never().is_none());
        let third = lanes.take(&bob, 1).now_or_never().expect("there is one left");
        assert!(lanes.take(&bob, 1).now_or_never().is_none(), "all users together have three");
        let node = Party { who: Who::Node("n1".parse().expect("a name")), through: None };
        assert!(lanes.take(&node, 1).now_or_never().is_some(), "nodes have their own");
        drop((held, third));
        assert!(lanes.take(&bob, 2).now_or_never().is_some());
    }

    #[tokio::test]
    async fn users_of_one_node_have_a_quarter_together_whatever_they_are_called() {
        let (lanes, turns) = (Lanes::of(2, 8, 8), Turns::of(1));
        let mut held = Vec::new();
        for number in 0..2 {
            held.push(lanes.take(&Party::of_user(&format!("eve{number}"), Some("n1")), 1).await);
        }
        assert!(lanes.take(&Party::of_user("eve2", Some("n1")), 1).now_or_never().is_none());
        for number in 0..4 {
            held.push(turns.take(&Party::of_user(&format!("eve{number}"), Some("n1")), 1).await);
        }
        assert!(turns.take(&Party::of_user("eve4", Some("n1")), 1).now_or_never().is_none());
        // Whoever comes another way has room, a user of that node included; but a user has one share, by whatever way.
        for through in [Some("n2"), None] {
            let bob = Party::of_user("bob", through);
            held.push(lanes.take(&bob, 1).now_or_never().expect("there is room in the lane"));
            let turn = turns.take(&bob, 1).now_or_never().expect("it is his own");
            assert!(
                turns.take(&Party::of_user("bob", Some("n3")), 1).now_or_never().is_none(),
                "he has one turn in all"
            );
            drop(turn);
        }
        assert!(lanes.take(&Party::of_user("bob", Some("n3")), 1).now_or_never().is_none());
        drop(held);
        assert!(lanes.take(&Party::of_user("eve9", Some("n1")), 2).now_or_never().is_some());
        assert!(turns.take(&Party::of_user("eve9", Some("n1")), 1).now_or_never().is_some());
    }
}
