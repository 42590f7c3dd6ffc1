//! Gossip: a thread that exchanges load data with other nodes, and continues without the head.
//!
//! [`hostler_gossip`] implements the protocol; this module adds the socket, the clock, the disk and the measurements. A
//! separate thread ensures that other work of the agent does not delay gossip.

mod away;
mod choose;
mod disk;
mod hello;
mod machines;
mod measure;
mod ports;
mod views;

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::path::Path;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hostler_gossip::{
    Calls, Datagram, Gossip, Incarnation, Key, Load, Member, MemberId, Members, Node, Policy, Settings,
};
use hostler_model::{CpuSet, Digest, NodeName, Request, Timestamp};
use hostler_proto::peers::{GossipPeer, LoadTable, NodeLoad, Peers};
use tokio::sync::Notify;

pub(crate) use self::away::Away;
pub(crate) use self::choose::CallEndpoint;
use self::disk::Disk;
pub(crate) use self::hello::Hellos;
use self::hello::is_hello;
pub use self::machines::{Machine, Machines, Weight, Weights};
pub(crate) use self::measure::{Measure, Ticks, busy_between, ticks};
pub use self::ports::StatusPorts;
pub(crate) use self::ports::{Ports, Question, Source};
use self::views::view;
use crate::handle::Held;
use crate::mutex::lock;
use crate::random::{random, random_bits};

/// Receive buffer size. Longer datagrams are truncated, and then refused as invalid.
const RECEIVE_BYTES: usize = 2048;

/// Maximum sleep of the thread while the peer list is empty.
const IDLE: Duration = Duration::from_secs(1);

/// Delay after an unexpected receive error.
const TROUBLE: Duration = Duration::from_millis(100);

/// Maximum random delay before a request for the peer list. The delay spreads the requests of agents that are notified
/// at the same moment.
const SPREAD: Duration = Duration::from_millis(1500);

/// First and longest delay after a failed request for the peer list.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

pub(crate) struct Gossiping {
    name: NodeName,
    /// Resources that the node offers to jobs.
    total: Request,
    weights: Weights,
    /// Policy by which this node selects nodes for its remote commands.
    policy: Policy,
    /// The only machines that may get remote commands from this node; `None` allows all nodes.
    machines: Option<Machines>,
    /// Commands sent to nodes. Lock order: `part` before `calls`.
    calls: Mutex<Calls>,
    /// Port on which this node accepts remote commands; zero if it accepts none.
    command_port: AtomicU16,
    socket: UdpSocket,
    disk: Disk,
    /// Time at which the gossip clock was zero.
    began: Instant,
    /// This node's gossip state; `None` until the peer list is known.
    part: Mutex<Option<Part>>,
    /// Version of the last peer list from the head.
    known: Mutex<Option<u64>>,
    /// IP address at which this machine reaches the head.
    head: Mutex<Option<IpAddr>>,
    ask: Notify,
    /// The source of members and key in a cluster without a head; `None` if the head sends both.
    hellos: Option<Mutex<Hellos>>,
}

/// Gossip settings that operators configure.
#[derive(Default)]
pub(crate) struct Setup {
    /// Weights of the node, unless the machine list sets other weights.
    pub(crate) weights: Weights,
    pub(crate) policy: Policy,
    pub(crate) machines: Option<Machines>,
    /// The source of members and key in a cluster without a head; `None` if the head sends both.
    pub(crate) hellos: Option<Hellos>,
}

/// The node's state within the group of nodes that share a secret.
struct Part {
    gossip: Gossip,
    /// All gossiping nodes, as listed by the head.
    peers: Arc<[GossipPeer]>,
    secret: [u8; 32],
    /// This node's incarnation, as stored on the disk.
    life: Incarnation,
}

impl Gossiping {
    /// Opens a socket at the first free address and loads the state stored in `directory`, if any.
    ///
    /// # Errors
    /// If no address is available.
    pub(crate) fn begin(
        name: NodeName,
        total: Request,
        setup: Setup,
        addresses: &[SocketAddr],
        directory: Option<&Path>,
    ) -> io::Result<Arc<Self>> {
        let socket = open(addresses)?;
        socket.set_broadcast(setup.hellos.as_ref().is_some_and(Hellos::finds_machines))?;
        let disk = Disk::open(directory);
        let Setup { weights, policy, machines, hellos } = setup;
        let weights = machines.as_ref().map_or(weights, |machines| machines.weights(&name, weights));
        if machines.as_ref().is_some_and(|machines| machines.find(&name).is_none()) {
            tracing::warn!(node = %name, "this node is missing from the cluster file, so its users' commands run on other nodes");
        }
        let gossiping = Self {
            name,
            total,
            weights,
            policy,
            machines,
            calls: Mutex::default(),
            command_port: AtomicU16::new(0),
            socket,
            began: Instant::now(),
            part: Mutex::new(None),
            known: Mutex::new(None),
            head: Mutex::new(None),
            ask: Notify::new(),
            hellos: hellos.map(Mutex::new),
            disk,
        };
        let listed = gossiping.hellos.as_ref().map(|hellos| lock(hellos).peers());
        if let Some(peers) = listed.or_else(|| gossiping.disk.peers()) {
            gossiping.take(&peers);
        }
        Ok(Arc::new(gossiping))
    }

    /// Local address of the socket; may be unspecified.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.socket.local_addr().ok()
    }

    /// Requests the peer list. `head` is the head's IP address, given only after a new connection to the head.
    pub(crate) fn ask(&self, head: Option<IpAddr>) {
        if head.is_some() {
            *lock(&self.head) = head;
        }
        self.ask.notify_one();
    }

    /// Requests the peer list from the head whenever [`Self::ask`] is called.
    pub(crate) async fn keep(self: &Arc<Self>, head: &hostler_client::Client) -> std::convert::Infallible {
        loop {
            self.ask.notified().await;
            tokio::time::sleep(SPREAD.mul_f64(random())).await;
            let mut pause = PAUSES.0;
            loop {
                let known = *lock(&self.known);
                match head.peers(known).await {
                    Ok(None) => break,
                    Ok(Some(peers)) => {
                        // On a blocking thread, because it writes to the disk.
                        let this = Arc::clone(self);
                        let _ = tokio::task::spawn_blocking(move || this.learn(peers)).await;
                        break;
                    }
                    Err(error) => tracing::debug!("cannot get the peer list from the head: {error}"),
                }
                tokio::time::sleep(pause.mul_f64((1.0 + random()) / 2.0)).await;
                pause = (pause * 2).min(PAUSES.1);
            }
        }
    }

    /// Applies a peer list from the head, and stores it for a start without the head.
    fn learn(&self, mut peers: Peers) {
        *lock(&self.known) = Some(peers.version);
        self.seen_from_here(&mut peers.peers);
        if let Err(error) = self.disk.store_peers(&peers) {
            tracing::warn!(%error, "cannot store the peer list; gossip after a restart will need the head");
        }
        self.take(&peers);
    }

    /// Replaces loopback addresses in a peer list by the head's address. A node on the head's machine may connect
    /// through loopback, but on this machine a loopback address would mean this machine.
    fn seen_from_here(&self, peers: &mut [GossipPeer]) {
        let is_there = |peer: &&GossipPeer| peer.name == self.name && peer.address.ip().is_loopback();
        let Some(head) = *lock(&self.head) else { return };
        if peers.iter().any(|peer| is_there(&peer)) {
            return;
        }
        peers.iter_mut().filter(|peer| peer.address.ip().is_loopback()).for_each(|peer| peer.address.set_ip(head));
    }

    fn take(&self, peers: &Peers) {
        let Some(secret) = secret(&peers.secret) else {
            tracing::warn!(
                "the gossip key from the head is not 64 hexadecimal digits, so this node does not gossip; see gossip.key in the \
                 head's directory"
            );
            return;
        };
        let members = Arc::new(Members::new(peers.peers.iter().map(member)));
        let me = members.named(&self.name).map(|member| member.id);
        let now = self.now();
        let mut part = lock(&self.part);
        let before = part.take();
        let Some(me) = me else {
            if before.is_some() {
                tracing::info!("this node is not in the head's peer list");
            }
            return;
        };
        let all: Arc<[GossipPeer]> =
            peers.peers.iter().cloned().map(|peer| GossipPeer { address: canonical(peer.address), ..peer }).collect();
        let mut now_on = match before.filter(|part| part.gossip.me() == me && part.secret == secret) {
            Some(part) => part,
            // A new secret starts a new state: messages under the old secret have no effect.
            None => match self.disk.begin_life(&secret) {
                Ok(life) => Part {
                    gossip: Gossip::new(me, life, Key::new(&secret), Settings::default(), now),
                    peers: Arc::clone(&all),
                    secret,
                    life,
                },
                Err(error) => {
                    tracing::warn!(%error, "cannot store the incarnation, so this node does not gossip");
                    return;
                }
            },
        };
        now_on.gossip.set_members(members, now);
        now_on.peers = all;
        *part = Some(now_on);
    }

    /// Starts the thread. `held` returns what jobs hold; `cpu_ids` are the node's CPUs.
    ///
    /// # Errors
    /// If the system cannot start a thread.
    pub(crate) fn start(self: &Arc<Self>, held: impl Fn() -> Held + Send + 'static, cpu_ids: CpuSet) -> io::Result<()> {
        let gossiping = Arc::clone(self);
        let mut measure = Measure::of(cpu_ids);
        let talk = move || loop {
            gossiping.listen();
            gossiping.speak(&held(), &mut measure);
        };
        std::thread::Builder::new().name("gossip".to_owned()).spawn(talk)?;
        Ok(())
    }

    /// Receives datagrams until the next round is due.
    fn listen(&self) {
        let mut buffer = [0; RECEIVE_BYTES];
        loop {
            let wait = lock(&self.part).as_ref().map_or(IDLE, |part| self.until(part.gossip.next_round()));
            if wait.is_zero() {
                return;
            }
            let received = self.socket.set_read_timeout(Some(wait)).and_then(|()| self.socket.recv_from(&mut buffer));
            match received {
                Ok((length, from)) if self.hellos.is_some() && is_hello(&buffer[..length]) => {
                    self.hear_hello(canonical(from), &buffer[..length]);
                }
                Ok((length, from)) => {
                    let now = self.now();
                    let answers = match lock(&self.part).as_mut() {
                        Some(part) => part.gossip.receive(canonical(from), &buffer[..length], now),
                        None => Vec::new(),
                    };
                    self.send(answers);
                }
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    if lock(&self.part).is_none() {
                        return;
                    }
                }
                Err(error) => {
                    tracing::debug!(%error, "cannot receive a datagram");
                    // Avoid a busy loop on persistent errors.
                    std::thread::sleep(TROUBLE);
                }
            }
        }
    }

    /// Measures the load and runs a gossip round.
    fn speak(&self, held: &Held, measure: &mut Measure) {
        self.say_hello();
        let measured = measure.take();
        let port = self.command_port.load(Ordering::Relaxed);
        // The IP address is the one used for gossip.
        let commands = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port);
        let mib = |bytes: u64| u32::try_from(bytes >> 20).unwrap_or(u32::MAX);
        let memory_mib = mib(self.total.memory_bytes);
        let load = Load {
            average: measured.average,
            recent: measured.recent,
            runnable: measured.runnable,
            free_memory_mib: mib(measured.free_memory_bytes).min(memory_mib),
            pressure: measured.pressure,
            unallocated_cpus: self.total.cpus.saturating_sub(held.cpus.len()),
            unallocated_memory_mib: mib(self.total.memory_bytes.saturating_sub(held.memory_bytes)),
            load_weight: self.weights.load.hundredths(),
            memory_weight: self.weights.memory.hundredths(),
            accepts: port > 0 && held.by.is_none() && !self.is_drained(),
            ..Load::idle(self.total.cpus, memory_mib, commands)
        };
        let now = self.now();
        let mut part = lock(&self.part);
        let Some(Part { gossip, secret, life, .. }) = part.as_mut() else { return };
        gossip.publish(load);
        let datagrams = gossip.round(now, random_bits());
        let secret = *secret;
        // Peers reported a higher incarnation than the stored one.
        let outlived = gossip.incarnation() > *life;
        *life = gossip.incarnation();
        let life = *life;
        drop(part);
        self.forget_calls();
        self.send(datagrams);
        if outlived && let Err(error) = self.disk.outlive(&secret, life) {
            tracing::warn!(%error, "cannot store the incarnation; peers will report the incarnation after the next start");
        }
    }

    fn send(&self, datagrams: Vec<Datagram>) {
        for Datagram { to, bytes } in datagrams {
            // Unreachable nodes are detected by their silence.
            let _ = self.socket.send_to(&bytes, self.outward(to));
        }
    }

    /// Converts an address to the socket's address family.
    fn outward(&self, to: SocketAddr) -> SocketAddr {
        match (self.socket.local_addr(), to.ip()) {
            (Ok(SocketAddr::V6(_)), IpAddr::V4(v4)) => SocketAddr::new(v4.to_ipv6_mapped().into(), to.port()),
            _ => to,
        }
    }

    /// The load table of all nodes, sorted by name.
    pub(crate) fn table(&self) -> LoadTable {
        let now = self.now();
        let part = lock(&self.part);
        let mut nodes: Vec<NodeLoad> = part.iter().flat_map(|part| part.gossip.nodes(now)).map(view).collect();
        nodes.sort_by(|a, b| a.name.cmp(&b.name));
        let counters = part.as_ref().map(|part| part.gossip.counters()).unwrap_or_default();
        let node = self.name.clone();
        LoadTable { node, nodes, accepted: counters.accepted, refused: counters.refused.total() }
    }

    /// The nodes that may get commands from this node.
    fn counted<'a>(&self, gossip: &'a Gossip, now: Timestamp) -> Vec<Node<'a>> {
        let counts = |node: &Node<'_>| counts(self.machines.as_ref(), node);
        gossip.nodes(now).filter(counts).collect()
    }

    /// Whether an operator has drained this node.
    fn is_drained(&self) -> bool {
        let part = lock(&self.part);
        let own = part.iter().flat_map(|part| part.peers.iter()).find(|peer| peer.name == self.name);
        own.is_some_and(|own| own.is_drained)
    }

    fn now(&self) -> Timestamp {
        Timestamp(u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX))
    }

    /// Time until `at`; zero if it has passed.
    fn until(&self, at: Timestamp) -> Duration {
        Duration::from_millis(at.ms_since(self.now()))
    }
}

impl Source for Gossiping {
    async fn answer(&self, question: Question) -> String {
        let now = self.now();
        let part = lock(&self.part);
        let Some(Part { gossip, .. }) = part.as_ref() else { return String::new() };
        let mut calls = lock(&self.calls);
        let nodes = self.counted(gossip, now);
        match question {
            Question::Table => ports::table(&nodes, &self.policy, &calls, now),
            Question::Best => ports::best(&nodes, &self.policy, &mut calls, now, random_bits()),
        }
    }
}

/// Whether a node may get remote commands: `machines` contains the node, or is `None`.
fn counts(machines: Option<&Machines>, node: &Node<'_>) -> bool {
    machines.is_none_or(|machines| machines.find(&node.member.name).is_some())
}

/// Opens a socket at the first free address.
fn open(addresses: &[SocketAddr]) -> io::Result<UdpSocket> {
    let mut last = io::Error::from(ErrorKind::AddrNotAvailable);
    for address in addresses {
        match UdpSocket::bind(address) {
            Ok(socket) => return Ok(socket),
            Err(error) => last = io::Error::new(error.kind(), format!("cannot listen on {address} (UDP): {error}")),
        }
    }
    Err(last)
}

/// Converts an IPv4-mapped address to plain IPv4.
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

/// Parses a secret of 64 hexadecimal digits. The head derives this secret from a key that only the head knows.
fn secret(text: &str) -> Option<[u8; 32]> {
    text.parse::<Digest>().ok().map(|digest| digest.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gossip_secret_must_be_64_hexadecimal_digits() {
        assert_eq!(secret(&"0f".repeat(32)), Some([15; 32]));
        for text in ["", "0f", &"0g".repeat(32), &"é".repeat(32), &"0f".repeat(33)] {
            assert_eq!(secret(text), None, "{text}");
        }
    }
}
