//! Members without a head: the machines of a cluster file, or those on the local network that have the same key.
//!
//! Daemons send each other hellos, on the gossip's port. A hello shows a machine that has another list of machines or another
//! key. Without a list, machines find each other by hellos that they broadcast.
//!
//! ```text
//! hello   `h`   JSON of [`Hello`]   tag: 32 bytes, by a key derived from the shared one
//! ```

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use hostler_gossip::{MemberId, Presence};
use hostler_model::{Digest, NodeName};
use hostler_power::segments;
use hostler_proto::peers::{GossipPeer, Peers};
use serde::{Deserialize, Serialize};

use super::Gossiping;
use crate::mutex::lock;

/// The first byte of a hello. Gossip datagrams begin with their version.
const MARK: u8 = b'h';

/// Maximum length of a hello. Longer lists of machines are sent as a digest only.
const MOST_BYTES: usize = 1200;

/// How often a machine without a list broadcasts, in rounds of gossip, i.e. in about as many seconds.
const BROADCAST_ROUNDS: usize = 5;

/// How long a found machine may be away before it is forgotten.
const FORGET: Duration = Duration::from_secs(600);

/// How long a warning about a machine is not repeated.
const QUIET: Duration = Duration::from_secs(3600);

/// Maximum number of found machines, and of machines with a warning.
const MOST_MACHINES: usize = 4096;

/// The address of a machine whose name is not resolved yet. Nothing is sent there.
const UNKNOWN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// The machines that take part, and the key that they share.
pub(crate) struct Hellos {
    secret: [u8; 32],
    own: NodeName,
    /// Digest of the listed names; `None` if machines find each other.
    list: Option<Digest>,
    machines: BTreeMap<NodeName, Place>,
    /// Addresses of this machine on its networks. Without a list only.
    own_addresses: Vec<SocketAddr>,
    rounds: usize,
    warned: HashMap<SocketAddr, Instant>,
}

struct Place {
    address: SocketAddr,
    heard: Instant,
}

#[derive(Debug, Serialize, Deserialize)]
struct Hello {
    name: NodeName,
    /// Digest of the names in the sender's cluster file, if it has one.
    #[serde(default)]
    list: Option<Digest>,
    /// These names, unless they are too many.
    #[serde(default)]
    machines: Vec<NodeName>,
    /// Where the sender gossips, if it has no list. It must be the source address, so a replay from elsewhere has no effect.
    #[serde(default)]
    address: Option<SocketAddr>,
}

pub(super) fn is_hello(datagram: &[u8]) -> bool {
    datagram.first() == Some(&MARK)
}

/// A machine's number in gossip. It follows from the name alone, so machines with different lists agree on it.
fn number(name: &NodeName) -> MemberId {
    let [a, b, c, d, ..] = *blake3::hash(name.as_str().as_bytes()).as_bytes();
    MemberId(u32::from_le_bytes([a, b, c, d]))
}

impl Hellos {
    /// Takes part as `own`, with the `listed` machines or with all that have the same `secret`.
    ///
    /// # Errors
    /// If `own` is not listed, or two names have the same number.
    pub(crate) fn new(secret: [u8; 32], own: NodeName, listed: Option<&[NodeName]>) -> Result<Self, String> {
        let names: BTreeSet<&NodeName> =
            listed.map_or_else(|| BTreeSet::from([&own]), |listed| listed.iter().collect());
        if !names.contains(&own) {
            return Err(format!("the cluster file does not list this machine, {own}"));
        }
        let mut numbers = BTreeMap::new();
        for name in &names {
            if let Some(other) = numbers.insert(number(name), name) {
                return Err(format!(
                    "the names {other} and {name} have the same number in gossip; rename one of these machines"
                ));
            }
        }
        let list = listed.map(|_| digest(&names));
        let machines =
            names.into_iter().map(|name| (name.clone(), Place { address: UNKNOWN, heard: Instant::now() })).collect();
        Ok(Self { secret, own, list, machines, own_addresses: Vec::new(), rounds: 0, warned: HashMap::new() })
    }

    pub(super) const fn finds_machines(&self) -> bool {
        self.list.is_none()
    }

    pub(super) fn peers(&self) -> Peers {
        let peer = |(name, place): (&NodeName, &Place)| GossipPeer {
            id: number(name).0,
            name: name.clone(),
            address: place.address,
            features: BTreeSet::new(),
            call_key: None,
            is_drained: false,
        };
        Peers { version: 0, secret: Digest(self.secret).to_string(), peers: self.machines.iter().map(peer).collect() }
    }

    fn tag(&self, untagged: &[u8]) -> blake3::Hash {
        let key = blake3::derive_key("hostler dshd 2026-11-30 hellos", &self.secret);
        blake3::keyed_hash(&key, untagged)
    }

    fn seal(&self, address: Option<SocketAddr>) -> Vec<u8> {
        let machines = if self.finds_machines() { Vec::new() } else { self.machines.keys().cloned().collect() };
        let mut hello = Hello { name: self.own.clone(), list: self.list, machines, address };
        let mut bytes = hello.encode();
        if bytes.len() > MOST_BYTES {
            hello.machines.clear();
            bytes = hello.encode();
        }
        let tag = self.tag(&bytes);
        bytes.extend_from_slice(tag.as_bytes());
        bytes
    }

    fn open(&self, datagram: &[u8]) -> Option<Hello> {
        let (untagged, tag) = datagram.split_last_chunk::<{ blake3::OUT_LEN }>()?;
        // blake3 compares hashes in constant time.
        let is_ours = self.tag(untagged) == blake3::Hash::from_bytes(*tag);
        serde_json::from_slice(untagged.get(1..).filter(|_| is_ours)?).ok()
    }

    /// Handles a hello. Returns whether the machines have changed.
    fn hear(&mut self, from: SocketAddr, datagram: &[u8], is_live: impl FnOnce(&NodeName) -> bool) -> bool {
        let Some(hello) = self.open(datagram) else {
            let known = self.machines.iter().find(|(_, place)| place.address.ip() == from.ip());
            let who = known.map_or_else(|| "a machine".to_owned(), |(name, _)| format!("machine {name}"));
            // Strangers share one warning, so that forged addresses neither fill the log nor hide others.
            self.warn(
                if known.is_some() { from } else { UNKNOWN },
                &format!(
                    "{who} at {from} has another key; copy the key file of one machine to all that belong together"
                ),
            );
            return false;
        };
        let name = hello.name;
        if name == self.own {
            if !self.own_addresses.contains(&from) {
                self.warn(
                    from,
                    &format!("another machine, at {from}, is also called {name}; give each machine its own name"),
                );
            }
            return false;
        }
        if hello.list != self.list {
            let why = self.difference(&hello.machines, hello.list.is_some());
            self.warn(from, &format!("machine {name} at {from} {why}, then restart dshd"));
        }
        if !self.finds_machines() || hello.address != Some(from) {
            return false;
        }
        let collides = self.machines.keys().any(|other| *other != name && number(other) == number(&name));
        let has_room = self.machines.len() < MOST_MACHINES && !collides;
        match self.machines.get_mut(&name) {
            Some(place) if place.address == from => {
                place.heard = Instant::now();
                false
            }
            // Another address of the same machine.
            Some(_) if is_live(&name) => false,
            None if !has_room => {
                self.warn(from, &format!("machine {name} at {from} is left out: too many machines, or its name has the number of another one"));
                false
            }
            _ => {
                tracing::info!(machine = %name, at = %from, "found a machine");
                self.machines.insert(name, Place { address: from, heard: Instant::now() });
                true
            }
        }
    }

    /// How the list of another machine differs, and what to do.
    fn difference(&self, theirs: &[NodeName], has_list: bool) -> String {
        if has_list == self.finds_machines() {
            let which = if has_list {
                "has a cluster file, and this machine has none"
            } else {
                "has no cluster file, and this machine has one"
            };
            return format!("{which}; give all machines the same file, or none of them one");
        }
        let missing = |here: &NodeName| !theirs.contains(here);
        let ours: Vec<&str> = self.machines.keys().filter(|name| missing(name)).map(NodeName::as_str).collect();
        let news: Vec<&str> =
            theirs.iter().filter(|name| !self.machines.contains_key(*name)).map(NodeName::as_str).collect();
        let mut parts = Vec::new();
        if !news.is_empty() {
            parts.push(format!("only its file lists {}", news.join(", ")));
        }
        if !ours.is_empty() && !theirs.is_empty() {
            parts.push(format!("only the file of this machine lists {}", ours.join(", ")));
        }
        let parts = if parts.is_empty() { String::new() } else { format!(": {}", parts.join(", and ")) };
        format!("has another cluster file{parts}; give both machines the same file")
    }

    fn warn(&mut self, about: SocketAddr, text: &str) {
        self.warned.retain(|_, at| at.elapsed() < QUIET);
        if self.warned.len() < MOST_MACHINES && !self.warned.contains_key(&about) {
            self.warned.insert(about, Instant::now());
            tracing::warn!("{text}");
        }
    }

    /// The hellos of this round, and where they go.
    fn due(&mut self, port: u16) -> Vec<(SocketAddr, Vec<u8>)> {
        self.rounds += 1;
        if self.finds_machines() {
            if self.rounds % BROADCAST_ROUNDS != 1 {
                return Vec::new();
            }
            let networks =
                segments().inspect_err(|error| tracing::warn!(%error, "cannot list the networks of this machine"));
            let networks = networks.unwrap_or_default();
            let own = |address: Ipv4Addr| SocketAddr::from((address, port));
            self.own_addresses = networks.iter().map(|(address, _)| own(*address)).collect();
            return networks
                .iter()
                .map(|(address, all)| ((*all, port).into(), self.seal(Some(own(*address)))))
                .collect();
        }
        let others = self.machines.iter().filter(|(name, place)| **name != self.own && place.address != UNKNOWN);
        let others: Vec<SocketAddr> = others.map(|(_, place)| place.address).collect();
        let next = (!others.is_empty()).then(|| others[self.rounds % others.len()]);
        next.map(|to| (to, self.seal(None))).into_iter().collect()
    }
}

impl Hello {
    fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![MARK];
        serde_json::to_writer(&mut bytes, self).expect("names and addresses can be written as JSON");
        bytes
    }
}

fn digest(names: &BTreeSet<&NodeName>) -> Digest {
    let mut hasher = blake3::Hasher::new();
    for name in names {
        hasher.update(name.as_str().as_bytes()).update(b"\n");
    }
    Digest(*hasher.finalize().as_bytes())
}

impl Gossiping {
    pub(super) fn hear_hello(&self, from: SocketAddr, datagram: &[u8]) {
        let Some(hellos) = &self.hellos else { return };
        let mut hellos = lock(hellos);
        if hellos.hear(from, datagram, |name| self.is_live(name)) {
            self.take(&hellos.peers());
            // The newcomer may have missed the last broadcast.
            let own = hellos.own_addresses.clone();
            for address in own {
                let _ = self.socket.send_to(&hellos.seal(Some(address)), self.outward(from));
            }
        }
    }

    pub(super) fn say_hello(&self) {
        let (Some(hellos), Some(own)) = (&self.hellos, self.address()) else { return };
        let mut hellos = lock(hellos);
        for (to, hello) in hellos.due(own.port()) {
            let _ = self.socket.send_to(&hello, self.outward(to));
        }
        if hellos.finds_machines() {
            let before = hellos.machines.len();
            let own = hellos.own.clone();
            hellos.machines.retain(|name, place| *name == own || place.heard.elapsed() < FORGET || self.is_live(name));
            if hellos.machines.len() != before {
                self.take(&hellos.peers());
            }
        }
    }

    /// Sets the address of a listed machine.
    pub(crate) fn found(&self, name: &NodeName, address: SocketAddr) {
        let Some(hellos) = &self.hellos else { return };
        let mut hellos = lock(hellos);
        if let Some(place) = hellos.machines.get_mut(name).filter(|place| place.address != address) {
            place.address = address;
            self.take(&hellos.peers());
        }
    }

    fn is_live(&self, name: &NodeName) -> bool {
        let now = self.now();
        let part = lock(&self.part);
        let node = part.as_ref().and_then(|part| part.gossip.get(number(name), now));
        node.is_some_and(|node| node.presence == Presence::Live)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<NodeName> {
        text.split(' ').map(|name| name.parse().expect("a name")).collect()
    }

    fn hellos(secret: u8, own: &str, listed: Option<&str>) -> Hellos {
        let listed = listed.map(names);
        Hellos::new([secret; 32], own.parse().expect("a name"), listed.as_deref()).expect("listed")
    }

    fn at(text: &str) -> SocketAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn number_of_a_machine_does_not_depend_on_the_list() {
        let id = |listed| {
            let peers = hellos(1, "b", listed).peers().peers;
            peers.iter().find(|peer| peer.name.as_str() == "b").map(|peer| peer.id)
        };
        assert_eq!(id(Some("a b c")), id(Some("b z")));
        assert_eq!(id(Some("a b")), id(None));
        let missing = Hellos::new([1; 32], "d".parse().expect("a name"), Some(&names("a b")));
        assert!(missing.err().expect("not listed").contains("does not list this machine, d"));
    }

    #[test]
    fn different_lists_are_named() {
        let hellos = hellos(1, "a", Some("a b c"));
        let said = hellos.difference(&names("a b d"), true);
        assert_eq!(
            said,
            "has another cluster file: only its file lists d, and only the file of this machine lists c; give both machines the same file"
        );
        assert_eq!(hellos.difference(&[], true), "has another cluster file; give both machines the same file");
        assert!(hellos.difference(&[], false).contains("has no cluster file"));
    }

    #[test]
    fn only_hellos_with_the_key_and_their_own_address_add_a_machine() {
        let (here, there) = (at("10.0.0.1:7761"), at("10.0.0.2:7761"));
        let mut one = hellos(1, "a", None);
        let says = |secret, own, address| hellos(secret, own, None).seal(address);
        assert!(!one.hear(there, &says(2, "b", Some(there)), |_| false), "another key");
        assert!(!one.hear(there, &says(1, "b", Some(here)), |_| false), "a replay from another address");
        assert!(!one.hear(there, &says(1, "b", None), |_| false));
        assert!(!one.hear(there, &says(1, "a", Some(there)), |_| false), "the name of this machine");
        assert!(one.hear(there, &says(1, "b", Some(there)), |_| false));
        assert!(!one.hear(there, &says(1, "b", Some(there)), |_| false), "known already");
        let moved = at("10.0.0.3:7761");
        assert!(!one.hear(moved, &says(1, "b", Some(moved)), |_| true), "live at another address");
        assert!(one.hear(moved, &says(1, "b", Some(moved)), |_| false));
        let whole = says(1, "c", Some(there));
        for cut in 0..whole.len() {
            assert!(!one.hear(there, &whole[..cut], |_| false), "{cut} bytes");
        }
        let mut listed = hellos(1, "a", Some("a b"));
        assert!(!listed.hear(there, &says(1, "c", Some(there)), |_| false), "a list is complete");
    }

    #[test]
    fn long_lists_are_sent_as_a_digest() {
        let long: Vec<String> = (0..500).map(|number| format!("machine-{number}")).collect();
        let hellos = hellos(1, "machine-0", Some(&long.join(" ")));
        let sealed = hellos.seal(None);
        assert!(sealed.len() < MOST_BYTES && is_hello(&sealed));
        let hello = hellos.open(&sealed).expect("the same key");
        assert_eq!((hello.list, hello.machines.len()), (hellos.list, 0));
    }
}
