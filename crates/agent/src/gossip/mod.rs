//! Gossip: a thread that tells other nodes how this one is and hears how they are, with the head's help or without it.
//!
//! Everything that is decided is decided in [`hostler_gossip`]; here are the socket, the clock, the disk and the measurements. The thread
//! is one of its own so that nothing else the agent does holds it up.

mod disk;
mod measure;

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hostler_gossip::{Datagram, Gossip, Key, Keyring, Load, Member, MemberId, Members, Node, Presence, Settings};
use hostler_model::{NodeName, Request, Timestamp};
use hostler_proto::peers::{GossipPeer, LoadTable, LoadView, NodeLoad, NodePresence, Peers};
use tokio::sync::Notify;

use self::disk::Disk;
use self::measure::Measure;
use crate::engine::Handle;
use crate::link::random;

/// More than any datagram of ours: what is longer is cut off, and refused for that.
const RECEIVE_BYTES: usize = 2048;

/// How long the thread sleeps at most while it knows of nobody.
const IDLE: Duration = Duration::from_secs(1);

/// How long to wait before asking the head who gossips, at most: agents that are told at the same moment ask at different ones.
const SPREAD: Duration = Duration::from_millis(1500);

/// The first and the longest pause after the head did not say.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// This node's part in the gossip.
pub(crate) struct Gossiping {
    name: NodeName,
    /// What it gives to jobs.
    total: Request,
    socket: UdpSocket,
    disk: Disk,
    /// The beginning of its clock.
    began: Instant,
    /// `None` until it is known who the others are.
    part: Mutex<Option<Gossip>>,
    ask: Notify,
}

impl Gossiping {
    /// Opens the socket at one of the addresses, the first that is free, and takes up what is on the disk.
    ///
    /// # Errors
    /// When no address can be had, or the disk cannot be read or written.
    pub(crate) fn begin(
        name: NodeName,
        total: Request,
        addresses: &[SocketAddr],
        directory: &Path,
    ) -> io::Result<Arc<Self>> {
        let socket = open(addresses)?;
        let disk = Disk::open(directory)?;
        let gossiping =
            Self { name, total, socket, began: Instant::now(), part: Mutex::new(None), ask: Notify::new(), disk };
        if let Some(peers) = gossiping.disk.peers() {
            gossiping.take(&peers);
        }
        Ok(Arc::new(gossiping))
    }

    /// The port at which others reach it.
    pub(crate) fn port(&self) -> Option<u16> {
        self.socket.local_addr().ok().map(|address| address.port())
    }

    /// The head may have something new to say about who gossips.
    pub(crate) fn ask(&self) {
        self.ask.notify_one();
    }

    /// Asks the head whenever there is reason to.
    pub(crate) async fn keep(&self, head: &hostler_client::Client) -> std::convert::Infallible {
        loop {
            self.ask.notified().await;
            tokio::time::sleep(SPREAD.mul_f64(random())).await;
            let mut pause = PAUSES.0;
            loop {
                match head.peers().await {
                    Ok(peers) => break self.learn(&peers),
                    // A head of an older release, which has told nobody either.
                    Err(error) if error.code() == Some("no_such_route") => break,
                    Err(error) => tracing::debug!("the head does not say who gossips: {error}"),
                }
                tokio::time::sleep(pause.mul_f64((1.0 + random()) / 2.0)).await;
                pause = (pause * 2).min(PAUSES.1);
            }
        }
    }

    /// Takes what the head has said, and keeps it for a start without the head.
    fn learn(&self, peers: &Peers) {
        if let Err(error) = self.disk.store_peers(peers) {
            tracing::warn!(%error, "cannot keep who gossips; a restart of this agent will need the head");
        }
        self.take(peers);
    }

    fn take(&self, peers: &Peers) {
        let Some(secret) = secret(&peers.secret) else {
            tracing::warn!("what nodes that gossip should share is no such thing; this one does not take part");
            return;
        };
        let keys = Keyring { sign: Key::new(&secret), also: None };
        let members = Arc::new(Members::new(peers.peers.iter().map(member)));
        let Some(me) = members.named(&self.name).map(|member| member.id) else { return };
        let now = self.now();
        let mut part = self.part();
        let gossip = match part.take().filter(|gossip| gossip.me() == me) {
            Some(mut gossip) => {
                gossip.set_keys(keys);
                gossip
            }
            None => Gossip::new(me, self.disk.incarnation(), keys, Settings::default(), now),
        };
        part.insert(gossip).set_members(members, now);
    }

    /// Starts the thread.
    ///
    /// # Errors
    /// When the system has none to give.
    pub(crate) fn start(self: &Arc<Self>, engine: Handle, cpu_ids: hostler_model::CpuSet) -> io::Result<()> {
        let gossiping = Arc::clone(self);
        let mut measure = Measure::of(cpu_ids);
        let talk = move || loop {
            gossiping.listen();
            gossiping.speak(&engine, &mut measure);
        };
        std::thread::Builder::new().name("gossip".to_owned()).spawn(talk)?;
        Ok(())
    }

    /// Takes what comes until the next round is due.
    fn listen(&self) {
        let mut buffer = [0; RECEIVE_BYTES];
        loop {
            let wait = self.part().as_ref().map_or(IDLE, |gossip| self.until(gossip.next_round()));
            if wait.is_zero() {
                return;
            }
            let received = self.socket.set_read_timeout(Some(wait)).and_then(|()| self.socket.recv_from(&mut buffer));
            match received {
                Ok((length, from)) => {
                    let now = self.now();
                    let answers = match self.part().as_mut() {
                        Some(gossip) => gossip.receive(canonical(from), &buffer[..length], now),
                        None => Vec::new(),
                    };
                    self.send(answers);
                }
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    if self.part().is_none() {
                        return;
                    }
                }
                // Such as that a datagram sent before was for nobody.
                Err(error) => tracing::trace!(%error, "nothing received"),
            }
        }
    }

    /// Measures, and does a round.
    fn speak(&self, engine: &Handle, measure: &mut Measure) {
        let measured = measure.take();
        let held = engine.held();
        let commands = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0);
        let mib = |bytes: u64| u32::try_from(bytes >> 20).unwrap_or(u32::MAX);
        let memory_mib = mib(self.total.memory_bytes);
        let load = Load {
            average: measured.average,
            recent: measured.recent,
            runnable: measured.runnable,
            free_memory_mib: mib(measured.free_memory_bytes).min(memory_mib),
            pressure: measured.pressure,
            unallocated_cpus: self.total.cpus.saturating_sub(held.cpus),
            unallocated_memory_mib: mib(self.total.memory_bytes.saturating_sub(held.memory_bytes)),
            ..Load::idle(self.total.cpus, memory_mib, commands)
        };
        let now = self.now();
        let mut part = self.part();
        let Some(gossip) = part.as_mut() else { return };
        gossip.publish(load);
        let datagrams = gossip.round(now, random_bits());
        let incarnation = gossip.incarnation();
        drop(part);
        self.send(datagrams);
        if let Err(error) = self.disk.outlive(incarnation) {
            tracing::debug!(%error, "cannot write down which life this is; peers will tell");
        }
    }

    fn send(&self, datagrams: Vec<Datagram>) {
        for Datagram { to, bytes } in datagrams {
            // Whoever is not there is noticed by its silence.
            let _ = self.socket.send_to(&bytes, self.outward(to));
        }
    }

    /// An address as the socket wants it.
    fn outward(&self, to: SocketAddr) -> SocketAddr {
        match (self.socket.local_addr(), to.ip()) {
            (Ok(SocketAddr::V6(_)), IpAddr::V4(v4)) => SocketAddr::new(v4.to_ipv6_mapped().into(), to.port()),
            _ => to,
        }
    }

    /// What is known of all, by name.
    pub(crate) fn table(&self) -> LoadTable {
        let now = self.now();
        let part = self.part();
        let mut nodes: Vec<NodeLoad> = part.iter().flat_map(|gossip| gossip.nodes(now)).map(view).collect();
        nodes.sort_by(|a, b| a.name.cmp(&b.name));
        LoadTable { node: self.name.clone(), nodes }
    }

    fn part(&self) -> MutexGuard<'_, Option<Gossip>> {
        self.part.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Timestamp {
        Timestamp(u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX))
    }

    /// How long until then, zero when it has passed.
    fn until(&self, at: Timestamp) -> Duration {
        Duration::from_millis(at.ms_since(self.now()))
    }
}

/// The socket at the first address that is free.
fn open(addresses: &[SocketAddr]) -> io::Result<UdpSocket> {
    let mut last = io::Error::from(ErrorKind::AddrNotAvailable);
    for address in addresses {
        match UdpSocket::bind(address) {
            Ok(socket) => return Ok(socket),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// An address of version 4 as such, also where the socket takes both.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

fn member(peer: &GossipPeer) -> Member {
    Member {
        id: MemberId(peer.id),
        name: peer.name.clone(),
        address: canonical(peer.address),
        features: peer.features.clone(),
    }
}

fn view(node: Node<'_>) -> NodeLoad {
    let of_load = |load: &Load| LoadView {
        age_ms: node.load_age_ms,
        average: load.average,
        recent: load.recent,
        runnable: load.runnable,
        cpus: load.cpus,
        cpus_unallocated: load.unallocated_cpus,
        memory_bytes: u64::from(load.memory_mib) << 20,
        memory_free_bytes: u64::from(load.free_memory_mib) << 20,
        cpu_pressure: load.pressure.cpu,
        memory_pressure: load.pressure.memory,
        io_pressure: load.pressure.io,
    };
    NodeLoad {
        name: node.member.name.clone(),
        presence: match node.presence {
            Presence::Live => NodePresence::Live,
            Presence::Silent => NodePresence::Gone,
            Presence::Unheard => NodePresence::Unheard,
        },
        silent_ms: node.silent_ms,
        load: node.load.map(of_load),
    }
}

/// 64 hexadecimal digits as bytes.
fn secret(text: &str) -> Option<[u8; 32]> {
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    let mut bytes = [0; 32];
    for (i, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * i..2 * i + 2], 16).ok()?;
    }
    Some(bytes)
}

/// 64 bits that nobody knows beforehand.
fn random_bits() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_64_digits() {
        assert_eq!(secret(&"0f".repeat(32)), Some([15; 32]));
        for text in ["", "0f", &"0g".repeat(32), &"é".repeat(32), &"0f".repeat(33)] {
            assert_eq!(secret(text), None, "{text}");
        }
    }
}
