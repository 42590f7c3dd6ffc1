//! Admission control: limits of each client's share of the head, so that no client blocks others.
//!
//! The three kinds of clients have separate limits. Connections of strangers (clients that have not identified
//! themselves) replace each other, see [`Admission`]. Users are counted by name; users on the head's machine also by uid
//! before any request. Nodes are counted by name and never wait for users or strangers.
//!
//! Root on a node can send requests under any number of user names. All users of one node together therefore have a
//! limited share.

use crate::identity::{Identity, Person};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hostler_listen::{Admission, Limits, Party as ConnectionOwner, UsageLimits};
use hostler_model::NodeName;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinError;

/// Maximum number of unidentified connections of a listener. With a thousand new ones per second, each has half a second
/// for its handshake, which takes milliseconds. A rack of servers may join at the same time.
const STRANGERS: usize = 512;

/// Time limit for connections without identification. Joining takes one request.
const STRANGER_TIME: Duration = Duration::from_secs(60);

/// Maximum number of identified connections on the TLS port and on the socket. A user may have a sixteenth of them.
const CONNECTIONS: usize = 16_384;
/// The same for the plain HTTP port.
const HTTP_CONNECTIONS: usize = 4096;

/// Maximum number of unfinished requests per user, and of all users of one node together. Many requests may wait for
/// jobs or follow output. An agent relays fewer requests concurrently.
const REQUESTS: usize = 1024;

/// Maximum number of concurrent requests with a large body per client. More requests wait.
const BODIES: usize = 4;
/// Maximum number of concurrent checks of snapshots per client, and of concurrent reads of manifests. More requests
/// wait.
const COMMITS: usize = 1;
/// Maximum number of concurrent long reads of jobs per client. More reads wait. Each read occupies one of the few threads
/// for blocking work, and decoding the largest job takes a good part of a second.
const JOB_READS: usize = 2;

/// The share of all users of one node together, as a multiple of a single client's share. If there is a total limit,
/// the share is the total divided by this number.
const NODE_USERS_FACTOR: usize = 4;

/// Maximum number of concurrent uploads per client. More uploads wait. Each upload may hold a batch of chunks in
/// memory.
const UPLOADS: usize = 16;
/// Maximum number of concurrent uploads of all users together.
const UPLOADS_OF_USERS: usize = 64;
/// Maximum number of concurrent uploads of all nodes together.
const UPLOADS_OF_NODES: usize = 64;

/// Maximum memory for a client's long chunks in transit, in MiB. It is enough for one chunk of maximum size.
const LONG_MIB: usize = 80;
/// Maximum memory for the long chunks of all users in transit, in MiB. All nodes together have the same limit.
const LONG_MIB_OF_ALL: usize = 4 * LONG_MIB;

/// Maximum memory for unsent responses per client, in KiB. It is enough for one blob of maximum size. More responses
/// wait.
const ANSWERS_KIB: usize = 80 << 10;

/// Maximum memory for lists of chunks to send per client, in KiB. It is enough for one list of maximum size.
const LISTS_KIB: usize = 16 << 10;

/// The owner of a connection.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Client {
    /// A user over TCP, with a token.
    User(String),
    /// A user on the socket.
    Uid(u32),
    /// All users on the socket whose uid has no account. One user can have thousands of such uids.
    Nameless,
    Node(NodeName),
}

impl ConnectionOwner for Client {
    fn share(&self, total: usize) -> usize {
        match self {
            Self::User(_) | Self::Uid(_) | Self::Nameless => total / 16,
            // An agent's own connections, and one for each client on its socket.
            Self::Node(_) => total / 4,
        }
    }

    fn is_node(&self) -> bool {
        matches!(self, Self::Node(_))
    }
}

/// The limits on the connections, requests and memory of clients, and the current use.
pub(crate) struct ClientLimits {
    /// Connections on the TLS port.
    pub(crate) port: Arc<Admission<Client>>,
    /// Connections on the plain HTTP port.
    pub(crate) http: Arc<Admission<Client>>,
    /// Connections on the socket.
    pub(crate) socket: Arc<Admission<Client>>,
    /// Unfinished requests of users.
    pub(crate) requests: Arc<UsageLimits<String>>,
    /// Unfinished requests that were relayed by a node.
    pub(crate) relayed: Arc<UsageLimits<NodeName>>,
    /// Requests with a large body.
    pub(crate) bodies: ClientSemaphores,
    /// Checks of uploaded snapshots.
    pub(crate) commits: ClientSemaphores,
    /// Reads of result manifests.
    pub(crate) manifests: ClientSemaphores,
    /// Long reads of jobs.
    job_reads: ClientSemaphores,
    /// Memory for unsent responses, in KiB.
    pub(crate) answers: ClientSemaphores,
    /// Memory for lists of chunks, in KiB.
    pub(crate) lists: ClientSemaphores,
    pub(crate) uploads: SharedSemaphores,
    /// Memory for long chunks, in MiB.
    pub(crate) long: SharedSemaphores,
}

impl Default for ClientLimits {
    fn default() -> Self {
        let connections =
            |total| Admission::new(Limits { strangers: STRANGERS, time: STRANGER_TIME, total }.within_descriptors());
        Self {
            port: connections(CONNECTIONS),
            http: connections(HTTP_CONNECTIONS),
            socket: connections(CONNECTIONS),
            requests: UsageLimits::of(REQUESTS),
            relayed: UsageLimits::of(REQUESTS),
            bodies: ClientSemaphores::of(BODIES),
            commits: ClientSemaphores::of(COMMITS),
            manifests: ClientSemaphores::of(COMMITS),
            job_reads: ClientSemaphores::of(JOB_READS),
            answers: ClientSemaphores::of(ANSWERS_KIB),
            lists: ClientSemaphores::of(LISTS_KIB),
            uploads: SharedSemaphores::of(UPLOADS, UPLOADS_OF_USERS, UPLOADS_OF_NODES),
            long: SharedSemaphores::of(LONG_MIB, LONG_MIB_OF_ALL, LONG_MIB_OF_ALL),
        }
    }
}

impl ClientLimits {
    /// Runs a long read of jobs, such as of ended jobs in the store, on a thread for blocking work. Waits while other
    /// reads of the client use its share of these threads. A read must not start another one.
    ///
    /// # Errors
    /// The read panicked.
    pub(crate) async fn read_jobs<T: Send + 'static>(
        &self,
        party: &Party,
        read: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, JoinError> {
        let turn = self.job_reads.take(party, 1).await;
        let read = move || {
            // The thread holds the permit, because a client that disconnects does not stop the read.
            let _turn = turn;
            read()
        };
        tokio::task::spawn_blocking(read).await
    }
}

/// The client that a request counts for, and the node that relayed it.
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

/// The owner of a share. A user and a node with the same name are different owners.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Who {
    User(String),
    Node(NodeName),
    Stranger,
    /// All users that send requests through a node.
    UsersOf(NodeName),
}

impl From<&Person> for Party {
    fn from(person: &Person) -> Self {
        Self { who: Who::User(person.name.clone()), through: person.origin.node().cloned() }
    }
}

impl From<&Identity> for Party {
    fn from(identity: &Identity) -> Self {
        match identity {
            Identity::User(person) => Self::from(person),
            Identity::Agent(bearer) => Self { who: Who::Node(bearer.node.clone()), through: None },
            Identity::Unidentified(_) => Self { who: Who::Stranger, through: None },
        }
    }
}

/// Acquired permits. Dropping them releases them.
pub(crate) type Held = Vec<OwnedSemaphorePermit>;

/// A semaphore per client, plus one for all users of each node. A client waits only for its own permits and, if a node
/// relayed the request, for the permits of the node's users.
pub(crate) struct ClientSemaphores {
    each: usize,
    of_one_nodes_users: usize,
    of: Mutex<BTreeMap<Who, Arc<Semaphore>>>,
}

/// Number of clients above which entries without permits in use are removed.
const REMEMBERED: usize = 1024;

impl ClientSemaphores {
    fn of(each: usize) -> Self {
        Self { each, of_one_nodes_users: NODE_USERS_FACTOR * each, of: Mutex::default() }
    }

    /// Acquires `count` permits of a client.
    pub(crate) async fn take(&self, party: &Party, count: usize) -> Held {
        let count = count.min(self.each);
        let own = self.semaphore_of(party.who.clone(), self.each);
        let mut held = vec![take(own, count).await];
        if let Some(node) = &party.through {
            let of_node = self.semaphore_of(Who::UsersOf(node.clone()), self.of_one_nodes_users);
            held.push(take(of_node, count).await);
        }
        held
    }

    fn semaphore_of(&self, who: Who, most: usize) -> Arc<Semaphore> {
        let mut of = self.of.lock().unwrap_or_else(PoisonError::into_inner);
        if of.len() >= REMEMBERED {
            of.retain(|_, own| Arc::strong_count(own) > 1);
        }
        Arc::clone(of.entry(who).or_insert_with(|| Arc::new(Semaphore::new(most))))
    }
}

/// Per-client semaphores plus total limits for all users and for all nodes.
pub(crate) struct SharedSemaphores {
    each: ClientSemaphores,
    users: Arc<Semaphore>,
    nodes: Arc<Semaphore>,
}

impl SharedSemaphores {
    fn of(each: usize, users: usize, nodes: usize) -> Self {
        // The share is at least one client's share, so that a single request can always be served.
        let each = ClientSemaphores {
            of_one_nodes_users: (users / NODE_USERS_FACTOR).max(each),
            ..ClientSemaphores::of(each)
        };
        Self { each, users: Arc::new(Semaphore::new(users)), nodes: Arc::new(Semaphore::new(nodes)) }
    }

    /// Acquires `count` permits of a client. Acquires the client's own permits first, so that a client that waits for
    /// its own permits does not block all others.
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

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn client_waits_only_for_its_own_permits() {
        let lanes = SharedSemaphores::of(2, 3, 1);
        let [ada, bob] = ["ada", "bob"].map(|name| Party::of_user(name, None));
        let held = [lanes.take(&ada, 1).await, lanes.take(&ada, 1).await];
        assert!(lanes.take(&ada, 1).now_or_never().is_none());
        let third = lanes.take(&bob, 1).now_or_never().expect("one permit is left");
        assert!(lanes.take(&bob, 1).now_or_never().is_none(), "all users together have three permits");
        let node = Party { who: Who::Node("n1".parse().expect("a name")), through: None };
        assert!(lanes.take(&node, 1).now_or_never().is_some(), "nodes have a separate limit");
        drop((held, third));
        assert!(lanes.take(&bob, 2).now_or_never().is_some());
    }

    #[tokio::test]
    async fn long_reads_of_one_user_use_two_threads_even_after_a_disconnect() {
        let limits = ClientLimits::default();
        let [ada, bob] = ["ada", "bob"].map(|name| Party::of_user(name, None));
        let (release, released) = std::sync::mpsc::sync_channel::<()>(1);
        let released = Arc::new(Mutex::new(released));
        let endless = || {
            let released = Arc::clone(&released);
            // Ends when the test drops the sender.
            move || released.lock().unwrap_or_else(PoisonError::into_inner).recv().is_ok()
        };
        for _ in 0..2 {
            // The future is dropped after its first poll, as when a client disconnects. The read goes on.
            assert!(limits.read_jobs(&ada, endless()).now_or_never().is_none());
        }
        assert!(limits.job_reads.take(&ada, 1).now_or_never().is_none(), "both reads still occupy a thread");
        assert_eq!(limits.read_jobs(&bob, || 7).await.expect("the read does not panic"), 7);
        drop(release);
        // Both permits are free once the threads have ended.
        drop(limits.job_reads.take(&ada, 2).await);
        assert_eq!(limits.read_jobs(&ada, || 8).await.expect("the read does not panic"), 8);
    }

    #[tokio::test]
    async fn users_of_one_node_share_a_quarter_under_any_names() {
        let (lanes, turns) = (SharedSemaphores::of(2, 8, 8), ClientSemaphores::of(1));
        let mut held = Vec::new();
        for number in 0..2 {
            held.push(lanes.take(&Party::of_user(&format!("eve{number}"), Some("n1")), 1).await);
        }
        assert!(lanes.take(&Party::of_user("eve2", Some("n1")), 1).now_or_never().is_none());
        for number in 0..4 {
            held.push(turns.take(&Party::of_user(&format!("eve{number}"), Some("n1")), 1).await);
        }
        assert!(turns.take(&Party::of_user("eve4", Some("n1")), 1).now_or_never().is_none());
        // Other connections are not affected. But each user has one share in total, over all connections.
        for through in [Some("n2"), None] {
            let bob = Party::of_user("bob", through);
            held.push(lanes.take(&bob, 1).now_or_never().expect("the lane has a free permit"));
            let turn = turns.take(&bob, 1).now_or_never().expect("bob has a permit left");
            assert!(
                turns.take(&Party::of_user("bob", Some("n3")), 1).now_or_never().is_none(),
                "a user has one permit over all connections"
            );
            drop(turn);
        }
        assert!(lanes.take(&Party::of_user("bob", Some("n3")), 1).now_or_never().is_none());
        drop(held);
        assert!(lanes.take(&Party::of_user("eve9", Some("n1")), 2).now_or_never().is_some());
        assert!(turns.take(&Party::of_user("eve9", Some("n1")), 1).now_or_never().is_some());
    }
}
