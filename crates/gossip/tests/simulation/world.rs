//! A virtual network of nodes that run the production code. Datagrams are lost, delayed, duplicated and reordered; nodes crash, restart,
//! stall and lose their disks; clocks disagree. The same seed gives the same history.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, VecDeque};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use hostler_gossip::{Counters, Gossip, Incarnation, Key, Load, Member, MemberId, Members, Node, Presence, Settings};
use hostler_model::Timestamp;

/// The network and its nodes. Times are milliseconds since the start of the simulation.
pub(crate) struct World {
    pub(crate) now: u64,
    pub(crate) nodes: Vec<Host>,
    pub(crate) network: Network,
    pub(crate) settings: Settings,
    members: Arc<Members>,
    queue: BinaryHeap<Reverse<(u64, u64, Event)>>,
    events: u64,
    random: Random,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Network {
    /// Lost datagrams per thousand; likewise `doubled` for duplicated ones.
    pub(crate) lost: u64,
    pub(crate) doubled: u64,
    pub(crate) delay_ms: u64,
    /// The part of a divided network to which each node belongs.
    pub(crate) part: Vec<u8>,
    /// Links that drop everything in both directions.
    pub(crate) cut: BTreeSet<(usize, usize)>,
}

pub(crate) struct Host {
    pub(crate) gossip: Option<Gossip>,
    pub(crate) load: Option<Load>,
    /// The largest delay of the node's rounds in milliseconds; datagrams wait meanwhile.
    pub(crate) late_ms: u64,
    /// The most bytes that the node has sent within any second.
    pub(crate) peak_bytes: usize,
    /// The incarnation on the node's disk.
    disk: Incarnation,
    /// The offset of the node's clock, and the clock's rate error in millionths.
    clock: (u64, u64),
    /// How often the node has started; timers of earlier starts are ignored.
    starts: u64,
    stalled_until: u64,
    last_second: VecDeque<(u64, usize)>,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Round { node: usize, start: u64 },
    Arrival { from: usize, to: usize, bytes: Vec<u8> },
}

impl World {
    /// A cluster of stopped nodes.
    pub(crate) fn new(size: usize, settings: Settings, seed: u64) -> Self {
        let mut random = Random(seed);
        let members = Arc::new(Members::new((0..size).map(member)));
        let host = |_| Host {
            gossip: None,
            load: Some(load(100, 10_000)),
            late_ms: 0,
            peak_bytes: 0,
            disk: Incarnation(0),
            clock: (random.below(1 << 40), random.below(200)),
            starts: 0,
            stalled_until: 0,
            last_second: VecDeque::new(),
        };
        let nodes: Vec<_> = (0..size).map(host).collect();
        let network = Network { delay_ms: 5, part: vec![0; size], ..Network::default() };
        Self { now: 0, nodes, network, settings, members, queue: BinaryHeap::new(), events: 0, random }
    }

    /// A cluster whose nodes start within a second.
    pub(crate) fn running(size: usize, settings: Settings, seed: u64) -> Self {
        let mut world = Self::new(size, settings, seed);
        for node in 0..size {
            world.start_within(node, 1000);
        }
        world
    }

    /// Starts an agent, which increments the incarnation on its disk.
    pub(crate) fn start(&mut self, node: usize) {
        self.start_within(node, 1);
    }

    fn start_within(&mut self, node: usize, ms: u64) {
        let begin = self.now + self.random.below(ms);
        let host = &mut self.nodes[node];
        host.disk = host.disk.next();
        host.starts += 1;
        let now = host.clock_at(begin);
        let mut gossip = Gossip::new(MemberId(node as u32), host.disk, Key::new(&[7; 32]), self.settings, now);
        gossip.set_members(Arc::clone(&self.members), now);
        host.gossip = Some(gossip);
        let start = host.starts;
        self.enqueue(begin, Event::Round { node, start });
    }

    /// Kills an agent; its disk remains.
    pub(crate) fn kill(&mut self, node: usize) {
        self.nodes[node].gossip = None;
    }

    pub(crate) fn wipe(&mut self, node: usize) {
        self.nodes[node].disk = Incarnation(0);
    }

    /// Suspends the node for a while.
    pub(crate) fn stall(&mut self, node: usize, ms: u64) {
        self.nodes[node].stalled_until = self.now + ms;
    }

    pub(crate) fn run_for(&mut self, ms: u64) {
        let end = self.now + ms;
        while let Some(Reverse((at, ..))) = self.queue.peek()
            && *at <= end
        {
            let Some(Reverse((at, _, event))) = self.queue.pop() else { break };
            self.now = at;
            self.happen(event);
        }
        self.now = end;
    }

    /// Advances until a condition holds, checked every 200 ms; returns the time needed, or `None` after `most_ms`.
    pub(crate) fn run_until(&mut self, most_ms: u64, holds: impl Fn(&Self) -> bool) -> Option<u64> {
        let begin = self.now;
        while !holds(self) {
            if self.now - begin >= most_ms {
                return None;
            }
            self.run_for(200);
        }
        Some(self.now - begin)
    }

    fn happen(&mut self, event: Event) {
        let (Event::Round { node, .. } | Event::Arrival { to: node, .. }) = event;
        let stalled_until = self.nodes[node].stalled_until;
        if stalled_until > self.now {
            return self.enqueue(stalled_until, event);
        }
        match event {
            Event::Round { node, start } if start == self.nodes[node].starts => self.round(node),
            Event::Round { .. } => {}
            Event::Arrival { from, to, bytes } => {
                let host = &mut self.nodes[to];
                let clock = host.clock_at(self.now);
                let Some(gossip) = &mut host.gossip else { return };
                let sent = gossip.receive(address(from), &bytes, clock);
                self.carry(to, sent);
            }
        }
    }

    fn round(&mut self, node: usize) {
        let random = self.random.next();
        let host = &mut self.nodes[node];
        let clock = host.clock_at(self.now);
        let Some(gossip) = &mut host.gossip else { return };
        if let Some(load) = host.load {
            gossip.publish(load);
        }
        let sent = gossip.round(clock, random);
        host.disk = gossip.incarnation();
        let next = self.now + gossip.next_round().ms_since(clock);
        let (start, late_ms) = (host.starts, host.late_ms);
        self.carry(node, sent);
        let late_by = self.random.below(late_ms + 1);
        if late_by > 0 {
            self.nodes[node].stalled_until = self.now + late_by;
        }
        self.enqueue(next + late_by, Event::Round { node, start });
    }

    fn carry(&mut self, from: usize, sent: Vec<hostler_gossip::Datagram>) {
        for datagram in sent {
            self.nodes[from].count(self.now, datagram.bytes.len() + 48);
            let to = index(datagram.to);
            let link = (from.min(to), from.max(to));
            let is_cut = self.network.part[from] != self.network.part[to] || self.network.cut.contains(&link);
            if is_cut || self.random.below(1000) < self.network.lost {
                continue;
            }
            let copies = if self.random.below(1000) < self.network.doubled { 2 } else { 1 };
            for _ in 0..copies {
                let at = self.now + 1 + self.random.below(self.network.delay_ms);
                self.enqueue(at, Event::Arrival { from, to, bytes: datagram.bytes.clone() });
            }
        }
    }

    fn enqueue(&mut self, at: u64, event: Event) {
        self.events += 1;
        self.queue.push(Reverse((at, self.events, event)));
    }

    /// The running nodes.
    pub(crate) fn up(&self) -> impl Iterator<Item = usize> + Clone {
        (0..self.nodes.len()).filter(|node| self.nodes[*node].gossip.is_some())
    }

    /// The presence of `node` as `observer` sees it.
    pub(crate) fn sees(&self, observer: usize, node: usize) -> Presence {
        let gossip = self.nodes[observer].gossip.as_ref().expect("the observer runs");
        let clock = self.nodes[observer].clock_at(self.now);
        gossip.get(MemberId(node as u32), clock).expect("the observer knows the member").presence
    }

    /// The table of `observer`.
    pub(crate) fn table_of(&self, observer: usize) -> impl Iterator<Item = Node<'_>> {
        let host = &self.nodes[observer];
        host.gossip.as_ref().expect("the observer runs").nodes(host.clock_at(self.now))
    }

    /// The load average of `node` that `observer` knows.
    pub(crate) fn load_at(&self, observer: usize, node: usize) -> Option<u32> {
        let gossip = self.nodes[observer].gossip.as_ref().expect("the observer runs");
        gossip.get(MemberId(node as u32), Timestamp(0)).and_then(|node| node.load).map(|load| load.average)
    }

    /// How many other running nodes see `node` with this presence.
    pub(crate) fn observers(&self, node: usize, presence: Presence) -> usize {
        self.up().filter(|observer| *observer != node && self.sees(*observer, node) == presence).count()
    }

    /// Whether every running node sees these nodes live, with their loads.
    pub(crate) fn all_see(&self, nodes: impl IntoIterator<Item = usize>) -> bool {
        let nodes: Vec<_> = nodes.into_iter().collect();
        let knows = |observer: usize, node: usize| {
            self.sees(observer, node) == Presence::Live && self.load_at(observer, node).is_some()
        };
        self.up().all(|observer| nodes.iter().all(|node| knows(observer, *node)))
    }

    /// A sum over the running nodes.
    pub(crate) fn sum(&self, of: impl Fn(&Counters) -> u64) -> u64 {
        self.nodes.iter().filter_map(|host| host.gossip.as_ref()).map(|gossip| of(&gossip.counters())).sum()
    }
}

impl Host {
    fn clock_at(&self, world: u64) -> Timestamp {
        let (ahead, faster) = self.clock;
        Timestamp(ahead + world + world * faster / 1_000_000)
    }

    fn count(&mut self, now: u64, bytes: usize) {
        // The node's clock may be slightly faster than the simulation's.
        while self.last_second.front().is_some_and(|(at, _)| at + 999 <= now) {
            self.last_second.pop_front();
        }
        self.last_second.push_back((now, bytes));
        self.peak_bytes = self.peak_bytes.max(self.last_second.iter().map(|(_, bytes)| bytes).sum());
    }
}

/// A load with this average in hundredths, and this much free memory.
pub(crate) fn load(average: u32, free_memory_mib: u32) -> Load {
    let commands = "10.0.0.1:7707".parse().expect("an address");
    Load { average, recent: average, free_memory_mib, ..Load::idle(64, 256 << 10, commands) }
}

fn member(node: usize) -> Member {
    let name = format!("n{node}").parse().expect("a name");
    Member { id: MemberId(node as u32), name, address: address(node), features: BTreeSet::new() }
}

fn address(node: usize) -> SocketAddr {
    (Ipv4Addr::from(0x0A00_0000 + node as u32), 7706).into()
}

fn index(address: SocketAddr) -> usize {
    let SocketAddr::V4(address) = address else { panic!("the address is IPv6") };
    (u32::from(*address.ip()) - 0x0A00_0000) as usize
}

/// SplitMix64.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }
}
