//! Admission control: limits on unauthenticated connections, and on the concurrent use of each authenticated party.
//!
//! A [`ConnectionSlots`] holds connections whose peer has not authenticated. It is bounded but never refuses a connection:
//! when it is full, it evicts the oldest connection of the network with the most connections. A handshake takes
//! milliseconds, so an honest peer finishes before its eviction, even if others open many silent connections.
//! [`UsageLimits`] limits the use of each authenticated party. Neither type reads a clock or a socket.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The network of a peer: its IPv4 address, or the /64 network of its IPv6 address, since a host usually controls a
/// whole /64.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Network(IpAddr);

impl From<IpAddr> for Network {
    fn from(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V6(address) => {
                let [a, b, c, d, ..] = address.segments();
                IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
            }
            address @ IpAddr::V4(_) => address,
        })
    }
}

/// The unauthenticated connections of a listener. Evicting a connection drops the `T` of the connection, e.g. the end
/// of a channel.
#[derive(Debug)]
pub struct ConnectionSlots<T> {
    most: usize,
    slots: Mutex<Slots<T>>,
}

#[derive(Debug)]
struct Slots<T> {
    /// Connections by number, oldest first.
    by_number: BTreeMap<u64, Connection<T>>,
    next: u64,
}

#[derive(Debug)]
struct Connection<T> {
    network: Network,
    is_known: bool,
    _connection: T,
}

/// An unauthenticated connection's entry in a waiting room. Dropping the value removes the entry.
#[derive(Debug)]
pub struct Slot<T> {
    slots: Arc<ConnectionSlots<T>>,
    number: u64,
}

impl<T> ConnectionSlots<T> {
    /// Creates a waiting room for at most `most` connections, at least one.
    #[must_use]
    pub fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most: most.max(1), slots: Mutex::new(Slots { by_number: BTreeMap::new(), next: 0 }) })
    }

    /// Adds a connection. If the room is full, evicts the oldest connection of the network with the most connections.
    /// Connections of a known network are evicted last while they fill at most half of the room. An attacker at a
    /// node's address therefore cannot evict everyone else.
    pub fn enter(self: &Arc<Self>, network: Network, is_known: bool, line: T) -> Slot<T> {
        let mut slots = self.slots();
        let number = slots.next;
        slots.next += 1;
        slots.by_number.insert(number, Connection { network, is_known, _connection: line });
        let gone = if slots.by_number.len() > self.most { slots.remove_one(self.most / 2) } else { None };
        drop(slots);
        // After the lock is released: dropping `T` may run code that takes the lock.
        drop(gone);
        Slot { slots: Arc::clone(self), number }
    }

    fn slots(&self) -> MutexGuard<'_, Slots<T>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Slots<T> {
    /// Evicts one connection. The connections of a known network come last if they are at most `kept`.
    fn remove_one(&mut self, kept: usize) -> Option<Connection<T>> {
        let mut of: BTreeMap<Network, usize> = BTreeMap::new();
        self.by_number.values().for_each(|connection| *of.entry(connection.network).or_default() += 1);
        // On a tie the oldest guest is evicted.
        let (number, _) = self.by_number.iter().min_by_key(|(number, connection)| {
            let count = of[&connection.network];
            (connection.is_known && count <= kept, std::cmp::Reverse(count), **number)
        })?;
        let number = *number;
        self.by_number.remove(&number)
    }
}

impl<T> Drop for Slot<T> {
    fn drop(&mut self) {
        let left = self.slots.slots().by_number.remove(&self.number);
        drop(left);
    }
}

/// Limits how many units, e.g. connections, each party uses at once.
#[derive(Debug)]
pub struct UsageLimits<K> {
    most: usize,
    of: Mutex<BTreeMap<K, usize>>,
}

/// One unit of a party's share. Dropping it frees the unit.
#[derive(Debug)]
pub struct UsagePermit<K: Clone + Ord> {
    shares: Arc<UsageLimits<K>>,
    party: K,
}

impl<K: Clone + Ord> UsageLimits<K> {
    /// Creates a limit of `most` units per party.
    #[must_use]
    pub fn of(most: usize) -> Arc<Self> {
        Arc::new(Self { most, of: Mutex::default() })
    }

    /// Returns the number of units that each party may use at once.
    #[must_use]
    pub fn most(&self) -> usize {
        self.most
    }

    /// Takes one unit for a party; `None` if the party already uses all its units.
    pub fn take(self: &Arc<Self>, party: K) -> Option<UsagePermit<K>> {
        let mut of = self.of.lock().unwrap_or_else(PoisonError::into_inner);
        let own = of.entry(party.clone()).or_default();
        if *own >= self.most {
            return None;
        }
        *own += 1;
        Some(UsagePermit { shares: Arc::clone(self), party })
    }
}

impl<K: Clone + Ord> Drop for UsagePermit<K> {
    fn drop(&mut self) {
        let mut of = self.shares.of.lock().unwrap_or_else(PoisonError::into_inner);
        if let Entry::Occupied(mut own) = of.entry(self.party.clone()) {
            *own.get_mut() -= 1;
            if *own.get() == 0 {
                own.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(text: &str) -> Network {
        text.parse::<IpAddr>().expect("an address").into()
    }

    /// A [`ConnectionSlots`] whose connections can be checked for eviction.
    struct Trial {
        slots: Arc<ConnectionSlots<Arc<()>>>,
        entered: Vec<(Slot<Arc<()>>, Arc<()>)>,
    }

    impl Trial {
        fn of(most: usize) -> Self {
            Self { slots: ConnectionSlots::new(most), entered: Vec::new() }
        }

        fn enter(&mut self, from: &str, is_known: bool) {
            let line = Arc::new(());
            let slot = self.slots.enter(network(from), is_known, Arc::clone(&line));
            self.entered.push((slot, line));
        }

        fn present(&self) -> Vec<bool> {
            self.entered.iter().map(|(_, line)| Arc::strong_count(line) == 2).collect()
        }
    }

    #[test]
    fn the_oldest_connection_of_the_largest_network_is_evicted() {
        let mut trial = Trial::of(3);
        for from in ["10.0.0.1", "10.0.0.2", "10.0.0.2"] {
            trial.enter(from, false);
        }
        assert_eq!(trial.present(), [true; 3]);
        trial.enter("10.0.0.3", false);
        assert_eq!(trial.present(), [true, false, true, true]);
        trial.enter("10.0.0.3", false);
        assert_eq!(trial.present(), [true, false, true, false, true]);
    }

    #[test]
    fn known_network_keeps_at_most_half_of_the_slots() {
        let mut trial = Trial::of(4);
        for from in ["10.0.0.1", "10.0.0.1", "10.0.0.9", "10.0.0.8"] {
            trial.enter(from, from == "10.0.0.1");
        }
        trial.enter("10.0.0.7", false);
        assert_eq!(trial.present(), [true, true, false, true, true]);
        trial.enter("10.0.0.1", true);
        assert_eq!(
            trial.present(),
            [false, true, false, true, true, true],
            "above half of the slots a known network is evicted first"
        );
        trial.enter("10.0.0.6", false);
        assert_eq!(trial.present(), [false, true, false, false, true, true, true]);
    }

    #[test]
    fn dropping_a_slot_frees_it() {
        let mut trial = Trial::of(2);
        trial.enter("10.0.0.1", false);
        trial.enter("10.0.0.1", false);
        drop(trial.entered.remove(0));
        trial.enter("10.0.0.2", false);
        assert_eq!(trial.present(), [true, true]);
        assert_eq!(trial.slots.slots().by_number.len(), 2);
    }

    #[test]
    fn ipv6_addresses_count_by_their_first_64_bits() {
        assert_eq!(network("2001:db8:1:2::1"), network("2001:db8:1:2:ffff::2"));
        assert_ne!(network("2001:db8:1:2::1"), network("2001:db8:1:3::1"));
        assert_eq!(network("::ffff:10.0.0.1"), network("10.0.0.1"));
        assert_ne!(network("10.0.0.1"), network("10.0.0.2"));
    }

    #[test]
    fn a_party_gets_no_more_than_its_share() {
        let shares = UsageLimits::of(2);
        let held = [shares.take("ada"), shares.take("ada")];
        assert!(held.iter().all(Option::is_some) && shares.take("ada").is_none() && shares.take("bob").is_some());
        drop(held);
        assert!(shares.take("ada").is_some());
        assert!(shares.of.lock().expect("the lock is not poisoned").is_empty());
    }
}
