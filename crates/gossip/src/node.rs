//! The protocol state of one node. `round.rs` decides what it sends, `receive.rs` handles what it receives.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

use hostler_model::Timestamp;

use crate::auth::Key;
use crate::awake::Awake;
use crate::budget::Budget;
use crate::table::{Entry, Presence, Published, Table};
use crate::wire::{Header, PACKET_OVERHEAD, Packer};
use crate::{Counters, Incarnation, Load, Member, MemberId, Members, Pace, Settings, Version};

/// The state of a node's gossip protocol.
///
/// The agent calls [`Self::publish`] about once per second with its measurements, [`Self::round`] at
/// [`Self::next_round`], and [`Self::receive`] for every datagram. It sends the returned datagrams. Times are
/// milliseconds on the node's monotonic clock, with any origin.
#[derive(Debug)]
pub struct Gossip {
    pub(crate) me: MemberId,
    pub(crate) key: Key,
    pub(crate) settings: Settings,
    pub(crate) pace: Pace,
    pub(crate) table: Table,
    pub(crate) awake: Awake,
    pub(crate) counters: Counters,
    pub(crate) own: Own,
    /// Members whose heartbeats are forwarded in the next rounds, each at most once.
    pub(crate) beats: VecDeque<MemberId>,
    /// Members whose loads are forwarded in the next rounds, each at most once.
    pub(crate) loads: VecDeque<MemberId>,
    pub(crate) budget: Budget,
    answers: Budget,
    pub(crate) next_round: Timestamp,
    /// The recent delay of rounds in milliseconds: the maximum, which decays by an eighth with each round on time.
    pub(crate) late_ms: u32,
}

/// What this node publishes about itself.
#[derive(Debug)]
pub(crate) struct Own {
    pub(crate) version: Version,
    /// The number of datagrams sent in this incarnation.
    counter: u64,
    /// The load that the agent measured last.
    pub(crate) measured: Option<Load>,
    /// The load that was published last, with its version and time.
    pub(crate) told: Option<Published>,
    /// When the next heartbeat is due.
    pub(crate) beat_due: Timestamp,
    /// When the next load is due.
    pub(crate) load_due: Timestamp,
}

/// A UDP datagram to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Datagram {
    /// Where to send the datagram.
    pub to: SocketAddr,
    /// The payload of the datagram.
    pub bytes: Vec<u8>,
}

/// What this node knows about a member, which may be this node itself.
#[derive(Debug, Clone, Copy)]
pub struct Node<'a> {
    /// The member's number, name, address and features.
    pub member: &'a Member,
    /// Whether the member is live, silent or was never heard.
    pub presence: Presence,
    /// Whether the member is this node itself.
    pub is_local: bool,
    /// The newest version of the member that this node knows.
    pub version: Version,
    /// The member's newest load; `None` if none has arrived.
    pub load: Option<&'a Load>,
    /// The version of [`Self::load`].
    pub load_version: Version,
    /// The time since the member's last sign of life, in milliseconds, without the time that this node was suspended;
    /// zero for this node itself.
    pub silent_ms: u64,
    /// The age of the member's load, in milliseconds, without the time that this node was suspended.
    pub load_age_ms: u64,
}

/// Answers may use one part in this many of the budget. Loads may use half of the answers' part, since signs of life
/// come first.
const ANSWERS_SHARE: usize = 5;

impl Gossip {
    /// Creates a node that knows no other nodes yet. `incarnation` must be greater than at any earlier start, as far as
    /// the node's disk shows.
    #[must_use]
    pub fn new(me: MemberId, incarnation: Incarnation, key: Key, settings: Settings, now: Timestamp) -> Self {
        let settings = settings.within_bounds();
        let budget_bytes = settings.budget_bytes as usize;
        Self {
            me,
            key,
            settings,
            pace: Pace::of(&settings, 0),
            table: Table::new(Arc::default(), now),
            awake: Awake::new(settings.round_ms.into(), now),
            counters: Counters::default(),
            own: Own {
                version: Version { incarnation, seq: 0 },
                counter: 0,
                measured: None,
                told: None,
                beat_due: Timestamp::default(),
                load_due: Timestamp::default(),
            },
            beats: VecDeque::new(),
            loads: VecDeque::new(),
            budget: Budget::new(budget_bytes),
            answers: Budget::new(budget_bytes / ANSWERS_SHARE),
            next_round: now,
            late_ms: 0,
        }
    }

    /// Sets the members, which must include this node. Drops the state of nodes that are no longer members.
    pub fn set_members(&mut self, members: Arc<Members>, now: Timestamp) {
        self.pace = Pace::of(&self.settings, members.len());
        let expected_until = self.awake.at(now).plus_ms(self.settings.expect_ms.into());
        self.table.set_members(members, expected_until);
        let members = &self.table.members;
        self.beats.retain(|id| members.get(*id).is_some());
        self.loads.retain(|id| members.get(*id).is_some());
    }

    /// Returns the node's own number.
    #[must_use]
    pub const fn me(&self) -> MemberId {
        self.me
    }

    /// Sets the node's load, which a later round sends. Before the first call the node only listens and forwards.
    pub const fn publish(&mut self, load: Load) {
        self.own.measured = Some(load);
    }

    /// Returns the time at which [`Self::round`] must be called next.
    #[must_use]
    pub const fn next_round(&self) -> Timestamp {
        self.next_round
    }

    /// Returns this node's incarnation. The incarnation grows if peers know a later one than the node's disk. The agent
    /// should then store the new incarnation; if it does not, the peers report it again after the next start.
    #[must_use]
    pub const fn incarnation(&self) -> Incarnation {
        self.own.version.incarnation
    }

    /// Returns the version of the news that this node published last. A command that starts now is included in the
    /// second version after it.
    #[must_use]
    pub const fn version(&self) -> Version {
        self.own.version
    }

    /// Returns the current update intervals.
    #[must_use]
    pub const fn pace(&self) -> &Pace {
        &self.pace
    }

    /// Returns the approximate memory of the member table, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.table.memory_bytes()
    }

    /// Counters of datagrams and events.
    #[must_use]
    pub const fn counters(&self) -> Counters {
        Counters { away_ms: self.awake.suspended_ms(), ..self.counters }
    }

    /// Iterates over the state of every member, in order of their numbers.
    pub fn nodes(&self, now: Timestamp) -> impl Iterator<Item = Node<'_>> {
        let now = self.awake.at(now);
        self.table.entries().map(move |(place, entry)| self.node(self.table.members.at(place), entry, now))
    }

    /// Returns the state of one member.
    #[must_use]
    pub fn get(&self, id: MemberId, now: Timestamp) -> Option<Node<'_>> {
        let place = self.table.members.place(id)?;
        Some(self.node(self.table.members.at(place), self.table.entry(place), self.awake.at(now)))
    }

    fn node<'a>(&'a self, member: &'a Member, entry: Option<&'a Entry>, now: Timestamp) -> Node<'a> {
        let is_local = member.id == self.me;
        let published =
            if is_local { self.own.told.as_ref() } else { entry.and_then(|entry| entry.published.as_ref()) };
        let since = |at: Timestamp| now.ms_since(at);
        Node {
            member,
            presence: if is_local { Presence::Live } else { entry.map_or(Presence::Unheard, Entry::presence) },
            is_local,
            version: if is_local { self.own.version } else { entry.map_or(Version::default(), |entry| entry.version) },
            load: published.map(|published| &published.load),
            load_version: published.map_or(Version::default(), |published| published.version),
            silent_ms: if is_local { 0 } else { entry.map_or(0, |entry| since(entry.heard)) },
            load_age_ms: published.map_or(0, |published| since(published.heard)),
        }
    }

    /// Sends answers within their share of the budget.
    pub(crate) fn answer(&mut self, place: usize, answers: Answers, now: Timestamp) -> Vec<Datagram> {
        let mut sent = Vec::new();
        let share = self.settings.budget_bytes as usize / ANSWERS_SHARE;
        for (packer, to_be_left) in [(answers.beats, 0), (answers.loads, share / 2)] {
            for body in packer.into_iter().flat_map(Packer::finish) {
                // An upper bound, since the header is not known yet.
                let cost = body.len() + 64 + PACKET_OVERHEAD;
                if self.answers.room(now) < cost + to_be_left || !self.answers.take(cost, now) {
                    self.counters.over_budget += 1;
                    break;
                }
                self.send_body(place, &body, now, &mut sent);
            }
        }
        sent
    }

    pub(crate) fn send(&mut self, place: usize, packer: Packer, now: Timestamp, sent: &mut Vec<Datagram>) {
        for body in packer.finish() {
            self.send_body(place, &body, now, sent);
        }
    }

    fn send_body(&mut self, place: usize, body: &[u8], now: Timestamp, sent: &mut Vec<Datagram>) {
        let Member { id, address, .. } = *self.table.members.at(place);
        let header =
            Header { sender: self.me, incarnation: self.own.version.incarnation, counter: self.own.counter + 1 };
        let mut bytes = header.write();
        bytes.extend_from_slice(body);
        self.key.seal(id, &mut bytes);
        let cost = bytes.len() + PACKET_OVERHEAD;
        if self.budget.take(cost, now) {
            self.own.counter += 1;
            self.counters.sent += 1;
            self.counters.sent_bytes += cost as u64;
            sent.push(Datagram { to: address, bytes });
        } else {
            self.counters.over_budget += 1;
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Answers {
    pub(crate) beats: Option<Packer>,
    pub(crate) loads: Option<Packer>,
}

impl Own {
    /// Starts an incarnation after the one in `seen`, which peers know, and publishes it in the next round.
    pub(crate) fn start_incarnation_after(&mut self, seen: Version) {
        self.version = Version { incarnation: seen.incarnation.next(), seq: 0 };
        self.beat_due = Timestamp::default();
        self.load_due = Timestamp::default();
    }
}
