//! The connections of one listener, and which of them must end.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit};
use thiserror::Error;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::network::{Network, Origin};

/// Maximum number of remembered networks of trusted parties.
const KNOWN: usize = 4096;

/// The owner of identified connections.
pub trait Party: Clone + Ord + Send + Sync + 'static {
    /// The maximum number of connections of this party, if all parties together have `total`.
    fn share(&self, total: usize) -> usize {
        total / 16
    }

    /// Whether unidentified connections of this party's network are closed last.
    fn is_node(&self) -> bool {
        false
    }
}

/// The only party of a listener.
impl Party for () {
    fn share(&self, total: usize) -> usize {
        total
    }
}

/// The size of a listener.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Maximum number of unidentified connections.
    pub strangers: usize,
    /// Maximum time without identification.
    pub time: Duration,
    /// Maximum number of identified connections of all parties together.
    pub total: usize,
}

impl Limits {
    /// The limits of a listener that identifies nobody.
    #[must_use]
    pub fn of_strangers(strangers: usize, time: Duration) -> Self {
        Self { strangers, time, total: 0 }
    }

    /// Lowers the total to a quarter of the descriptors that this process may open: a listener out of descriptors would
    /// block everybody.
    #[must_use]
    pub fn within_descriptors(self) -> Self {
        let most = getrlimit(Resource::RLIMIT_NOFILE).map_or(usize::MAX, |(soft, _)| soft as usize);
        Self { total: self.total.min(most / 4), ..self }
    }
}

/// A socket that accepts connections.
pub trait Listener {
    type Stream;

    /// Accepts the next connection.
    fn accept(&mut self) -> impl Future<Output = io::Result<(Self::Stream, Origin)>> + Send;
}

#[expect(clippy::disallowed_methods, reason = "this is how Admission accepts")]
impl Listener for TcpListener {
    type Stream = TcpStream;

    async fn accept(&mut self) -> io::Result<(TcpStream, Origin)> {
        let (stream, from) = Self::accept(self).await?;
        Ok((stream, Origin::Network(from.ip().into())))
    }
}

#[expect(clippy::disallowed_methods, reason = "this is how Admission accepts")]
impl Listener for UnixListener {
    type Stream = UnixStream;

    async fn accept(&mut self) -> io::Result<(UnixStream, Origin)> {
        let (stream, _) = Self::accept(self).await?;
        let uid = stream.peer_cred()?.uid();
        Ok((stream, Origin::Uid(uid)))
    }
}

/// Whether a connection may stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Unidentified since that time.
    Stranger(Instant),
    Identified,
    /// Others needed the place.
    Evicted,
}

/// The error for a party that has all connections of its share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the maximum of {most} connections is in use")]
pub struct TooMany {
    pub most: usize,
}

/// The connections of one or several listeners.
pub struct Admission<P> {
    limits: Limits,
    table: Mutex<Table<P>>,
}

/// Connections by the number of their last change between identified and unidentified, oldest first.
struct Table<P> {
    strangers: BTreeMap<u64, Connection<P>>,
    identified: BTreeMap<u64, Connection<P>>,
    next: u64,
    /// Number of identified connections of each party.
    of: BTreeMap<P, usize>,
    /// Networks from which nodes have connected.
    known: BTreeSet<Network>,
}

struct Connection<P> {
    origin: Origin,
    owner: Option<P>,
    standing: watch::Sender<Standing>,
}

impl<P: Party> Admission<P> {
    #[must_use]
    pub fn new(limits: Limits) -> Arc<Self> {
        let table = Table {
            strangers: BTreeMap::new(),
            identified: BTreeMap::new(),
            next: 0,
            of: BTreeMap::new(),
            known: BTreeSet::new(),
        };
        Arc::new(Self { limits, table: Mutex::new(table) })
    }

    /// Adds an unidentified connection, and returns its number. If there are too many, one of them ends.
    pub(crate) fn add_stranger(&self, origin: Origin, standing: &watch::Sender<Standing>) -> u64 {
        let mut table = self.table();
        let number = table.add(Connection { origin, owner: None, standing: standing.clone() });
        table.limit_strangers(self.limits.strangers);
        number
    }

    /// Gives a connection to a party, unless it has been closed. The number changes under the lock only.
    pub(crate) fn identify(&self, own: &AtomicU64, party: &P) -> Result<(), TooMany> {
        let mut table = self.table();
        let number = own.load(Ordering::Relaxed);
        if table.identified.get(&number).is_some_and(|connection| connection.owner.as_ref() == Some(party)) {
            return Ok(());
        }
        let most = party.share(self.limits.total).max(1);
        if table.of.get(party).is_some_and(|count| *count >= most) {
            return Err(TooMany { most });
        }
        let Some(mut connection) = table.remove(number) else { return Ok(()) };
        if let Origin::Network(network) = connection.origin
            && party.is_node()
        {
            table.know(network);
        }
        connection.owner = Some(party.clone());
        connection.standing.send_replace(Standing::Identified);
        own.store(table.add(connection), Ordering::Relaxed);
        table.limit_identified(self.limits.total);
        Ok(())
    }

    /// Makes a connection unidentified again, as the newest one. One that is unidentified already stays as old as it is, but its
    /// time begins again.
    pub(crate) fn forget(&self, own: &AtomicU64) {
        let mut table = self.table();
        let number = own.load(Ordering::Relaxed);
        if let Some(stranger) = table.strangers.get(&number) {
            stranger.standing.send_replace(Standing::Stranger(Instant::now()));
            return;
        }
        let Some(mut connection) = table.remove(number) else { return };
        connection.owner = None;
        connection.standing.send_replace(Standing::Stranger(Instant::now()));
        own.store(table.add(connection), Ordering::Relaxed);
        table.limit_strangers(self.limits.strangers);
    }

    /// Frees the place of a connection. Returns whether it had one.
    pub(crate) fn leave(&self, own: &AtomicU64) -> bool {
        let mut table = self.table();
        table.remove(own.load(Ordering::Relaxed)).is_some()
    }

    pub(crate) fn stranger_time(&self) -> Duration {
        self.limits.time
    }

    fn table(&self) -> MutexGuard<'_, Table<P>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<P: Party> Table<P> {
    fn add(&mut self, connection: Connection<P>) -> u64 {
        let number = self.next;
        self.next += 1;
        match &connection.owner {
            None => self.strangers.insert(number, connection),
            Some(party) => {
                *self.of.entry(party.clone()).or_default() += 1;
                self.identified.insert(number, connection)
            }
        };
        number
    }

    fn remove(&mut self, number: u64) -> Option<Connection<P>> {
        let connection = self.strangers.remove(&number).or_else(|| self.identified.remove(&number))?;
        if let Some(party) = &connection.owner {
            let count = self.of.get_mut(party).expect("each party with a connection is counted");
            *count -= 1;
            if *count == 0 {
                self.of.remove(party);
            }
        }
        Some(connection)
    }

    fn know(&mut self, network: Network) {
        if self.known.len() >= KNOWN {
            self.known.clear();
        }
        self.known.insert(network);
    }

    /// If there are more than `most` unidentified connections, closes the oldest one of the origin that has the most. The
    /// connections of a known network come last while they fill at most half of the places. An attacker at a node's
    /// address therefore cannot evict everyone else.
    fn limit_strangers(&mut self, most: usize) {
        if self.strangers.len() <= most {
            return;
        }
        let mut of: BTreeMap<Origin, usize> = BTreeMap::new();
        self.strangers.values().for_each(|connection| *of.entry(connection.origin).or_default() += 1);
        let is_known = |origin| matches!(origin, Origin::Network(network) if self.known.contains(&network));
        let keeps = |origin| is_known(origin) && of[&origin] <= most / 2;
        // On a tie the oldest connection is closed.
        let rank = |number: u64, origin| (keeps(origin), std::cmp::Reverse(of[&origin]), number);
        let first = self.strangers.iter().min_by_key(|(number, connection)| rank(**number, connection.origin));
        self.evict(first.map(|(number, _)| *number));
    }

    /// If there are more than `most` identified connections, closes the oldest one of the party that has the most.
    fn limit_identified(&mut self, most: usize) {
        if self.identified.len() <= most.max(1) {
            return;
        }
        let largest = self.of.iter().max_by_key(|(_, count)| **count).map(|(party, _)| party);
        let first = self.identified.iter().find(|(_, connection)| connection.owner.as_ref() == largest);
        self.evict(first.map(|(number, _)| *number));
    }

    fn evict(&mut self, number: Option<u64>) {
        if let Some(connection) = number.and_then(|number| self.remove(number)) {
            connection.standing.send_replace(Standing::Evicted);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;
    use crate::place::Place;

    /// A party that is a node if its name begins with `n`.
    #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
    struct Named(&'static str);

    impl Party for Named {
        fn share(&self, total: usize) -> usize {
            total / 2
        }

        fn is_node(&self) -> bool {
            self.0.starts_with('n')
        }
    }

    struct Trial {
        admission: Arc<Admission<Named>>,
        entered: Vec<Arc<Place<Named>>>,
    }

    impl Trial {
        fn of(strangers: usize, total: usize) -> Self {
            let limits = Limits { strangers, time: Duration::from_secs(60), total };
            Self { admission: Admission::new(limits), entered: Vec::new() }
        }

        fn enter(&mut self, from: &str) {
            let address: IpAddr = from.parse().expect("an address");
            self.entered.push(Arc::new(Place::new(&self.admission, Origin::Network(address.into()))));
        }

        fn enter_as(&mut self, from: &str, party: &'static str) -> Result<(), TooMany> {
            self.enter(from);
            self.entered.last().expect("a connection has entered").identify(&Named(party))
        }

        fn present(&self) -> Vec<bool> {
            self.entered.iter().map(|place| place.standing() != Standing::Evicted).collect()
        }
    }

    #[test]
    fn the_oldest_connection_of_the_largest_network_is_evicted() {
        let mut trial = Trial::of(3, 0);
        for from in ["10.0.0.1", "10.0.0.2", "10.0.0.2"] {
            trial.enter(from);
        }
        assert_eq!(trial.present(), [true; 3]);
        trial.enter("10.0.0.3");
        assert_eq!(trial.present(), [true, false, true, true]);
        trial.enter("10.0.0.3");
        assert_eq!(trial.present(), [true, false, true, false, true]);
    }

    #[test]
    fn network_of_a_node_keeps_at_most_half_of_the_places() {
        let mut trial = Trial::of(4, 8);
        trial.enter_as("10.0.0.1", "n1").expect("its first connection");
        for from in ["10.0.0.1", "10.0.0.1", "10.0.0.9", "10.0.0.8"] {
            trial.enter(from);
        }
        trial.enter("10.0.0.7");
        assert_eq!(trial.present(), [true, true, true, false, true, true]);
        trial.enter("10.0.0.1");
        assert_eq!(
            trial.present(),
            [true, false, true, false, true, true, true],
            "above half of the places, a known network is evicted first"
        );
        trial.enter("10.0.0.6");
        assert_eq!(trial.present(), [true, false, true, false, false, true, true, true]);
    }

    #[test]
    fn dropping_a_place_frees_it() {
        let mut trial = Trial::of(2, 4);
        trial.enter("10.0.0.1");
        trial.enter_as("10.0.0.1", "ada").expect("her first connection");
        drop(trial.entered.drain(..));
        let table = trial.admission.table();
        assert!(table.strangers.is_empty() && table.identified.is_empty() && table.of.is_empty());
    }

    #[test]
    fn party_gets_no_more_than_its_share_and_the_refused_connection_stays_unidentified() {
        let mut trial = Trial::of(8, 4);
        for _ in 0..2 {
            trial.enter_as("10.0.0.1", "ada").expect("within her share");
        }
        assert_eq!(trial.enter_as("10.0.0.1", "ada"), Err(TooMany { most: 2 }));
        assert!(matches!(trial.entered[2].standing(), Standing::Stranger(_)));
        trial.entered[0].identify(&Named("ada")).expect("the connection is hers already");
        trial.enter_as("10.0.0.1", "bob").expect("bob has a share of his own");
        trial.entered[0].forget();
        trial.entered[2].identify(&Named("ada")).expect("one of her places is free again");
        assert_eq!(trial.present(), [true; 4]);
    }

    #[test]
    fn newcomer_displaces_the_oldest_connection_of_the_party_with_the_most() {
        let mut trial = Trial::of(8, 4);
        for party in ["ada", "eve", "eve", "bob"] {
            trial.enter_as("10.0.0.1", party).expect("within the share");
        }
        trial.enter_as("10.0.0.1", "cy").expect("within the share");
        assert_eq!(trial.present(), [true, false, true, true, true]);
        assert_eq!(trial.admission.table().identified.len(), 4);
    }

    #[test]
    fn forgotten_connection_is_the_newest_stranger() {
        let mut trial = Trial::of(2, 4);
        trial.enter_as("10.0.0.1", "ada").expect("her first connection");
        trial.enter("10.0.0.1");
        trial.entered[0].forget();
        trial.enter("10.0.0.1");
        assert_eq!(trial.present(), [true, false, true]);
        trial.entered[0].forget();
        trial.enter("10.0.0.1");
        assert_eq!(trial.present(), [false, false, true, true], "more requests of a stranger make it no younger");
    }
}
