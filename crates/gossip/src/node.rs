//! One node's part in the gossip: what it knows and what it says of itself. What it sends when is in `round.rs`, and what becomes of
//! what it receives in `receive.rs`.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

use hostler_model::Timestamp;

use crate::auth::Keyring;
use crate::awake::Awake;
use crate::budget::Budget;
use crate::table::{Entry, Presence, Published, Table};
use crate::wire::{Header, PACKET_OVERHEAD, Packer};
use crate::{Counters, Incarnation, Load, Member, MemberId, Members, Pace, Settings, Version};

/// A node's state in the gossip.
///
/// The agent calls [`Self::publish`] about once a second with what it has measured, [`Self::round`] when [`Self::next_round`] has come,
/// and [`Self::receive`] for every datagram; it sends what these answer. Times are milliseconds on the node's own monotonic clock, from
/// any beginning.
#[derive(Debug)]
pub struct Gossip {
    pub(crate) me: MemberId,
    pub(crate) keys: Keyring,
    pub(crate) settings: Settings,
    pub(crate) pace: Pace,
    pub(crate) table: Table,
    pub(crate) awake: Awake,
    pub(crate) counters: Counters,
    pub(crate) own: Own,
    /// What is to be passed on in the next rounds, each member at most once.
    pub(crate) beats: VecDeque<MemberId>,
    pub(crate) loads: VecDeque<MemberId>,
    pub(crate) budget: Budget,
    answers: Budget,
    pub(crate) next_round: Timestamp,
    /// By how much rounds have been late recently, in milliseconds: the most, of which each round on time forgets an eighth.
    pub(crate) late_ms: u32,
}

/// What this node says of itself.
#[derive(Debug)]
pub(crate) struct Own {
    pub(crate) version: Version,
    /// Counts the datagrams of this life.
    counter: u64,
    /// What was measured last.
    pub(crate) measured: Option<Load>,
    /// What was told last, as of which version and when.
    pub(crate) told: Option<Published>,
    /// When the next sign of life and the next load are due.
    pub(crate) beat_due: Timestamp,
    pub(crate) load_due: Timestamp,
}

/// Bytes to send, as one UDP datagram.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Datagram {
    /// To whom.
    pub to: SocketAddr,
    /// What.
    pub bytes: Vec<u8>,
}

/// What a node knows of a member, which may be itself.
#[derive(Debug, Clone, Copy)]
pub struct Node<'a> {
    /// Who it is.
    pub member: &'a Member,
    /// Whether it is there.
    pub presence: Presence,
    /// Whether it is the node that knows this.
    pub is_local: bool,
    /// The newest version that is known of.
    pub version: Version,
    /// Its newest load; `None` if none has come yet.
    pub load: Option<&'a Load>,
    /// The version of that load.
    pub load_version: Version,
    /// How long ago the last sign of life came, in milliseconds in which this node was awake; zero for itself.
    pub silent_ms: u64,
    /// How long ago the load came, likewise.
    pub load_age_ms: u64,
}

/// The share of the budget that may go into answers: one part in so many. Loads may use half of that, as news of who lives come first.
const ANSWERS_SHARE: usize = 5;

impl Gossip {
    /// A node that knows nobody yet. `incarnation` must be greater than that of any start before, as far as the disk remembers.
    #[must_use]
    pub fn new(me: MemberId, incarnation: Incarnation, keys: Keyring, settings: Settings, now: Timestamp) -> Self {
        let settings = settings.within_bounds();
        let budget_bytes = settings.budget_bytes as usize;
        Self {
            me,
            keys,
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

    /// Takes the members, this node among them; what is known of others is forgotten.
    pub fn set_members(&mut self, members: Arc<Members>, now: Timestamp) {
        self.pace = Pace::of(&self.settings, members.len());
        let expected_until = self.awake.at(now).plus_ms(self.settings.expect_ms.into());
        self.table.set_members(members, expected_until);
        let members = &self.table.members;
        self.beats.retain(|id| members.get(*id).is_some());
        self.loads.retain(|id| members.get(*id).is_some());
    }

    /// Its own number.
    #[must_use]
    pub const fn me(&self) -> MemberId {
        self.me
    }

    /// Takes other keys; see [`Keyring`].
    pub fn set_keys(&mut self, keys: Keyring) {
        self.keys = keys;
    }

    /// Says how this node is. It goes out with one of the next rounds; before the first time the node only listens and passes on.
    pub const fn publish(&mut self, load: Load) {
        self.own.measured = Some(load);
    }

    /// When [`Self::round`] is to be called next.
    #[must_use]
    pub const fn next_round(&self) -> Timestamp {
        self.next_round
    }

    /// The life that this node is in. It grows when peers have seen a later one than the disk remembered; the agent then writes it down,
    /// at leisure, since forgetting it only means that peers say so again.
    #[must_use]
    pub const fn incarnation(&self) -> Incarnation {
        self.own.version.incarnation
    }

    /// What this node has told last. A command that begins now is in the load of the second version after it at the latest.
    #[must_use]
    pub const fn version(&self) -> Version {
        self.own.version
    }

    /// How often there are news.
    #[must_use]
    pub const fn pace(&self) -> &Pace {
        &self.pace
    }

    /// About how much memory is taken by what is known of others, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.table.memory_bytes()
    }

    /// What came and went.
    #[must_use]
    pub const fn counters(&self) -> Counters {
        Counters { away_ms: self.awake.slept_ms(), ..self.counters }
    }

    /// What is known of every member, in the order of their numbers.
    pub fn nodes(&self, now: Timestamp) -> impl Iterator<Item = Node<'_>> {
        let now = self.awake.at(now);
        self.table.entries().map(move |(place, entry)| self.node(self.table.members.at(place), entry, now))
    }

    /// What is known of one member.
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

    /// Sends answers, as far as their share of the budget goes.
    pub(crate) fn answer(&mut self, place: usize, answers: Answers, now: Timestamp) -> Vec<Datagram> {
        let mut sent = Vec::new();
        let share = self.settings.budget_bytes as usize / ANSWERS_SHARE;
        for (packer, to_be_left) in [(answers.beats, 0), (answers.loads, share / 2)] {
            for body in packer.into_iter().flat_map(Packer::finish) {
                // What it takes at most: its header is not known yet.
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
        self.keys.seal(id, &mut bytes);
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

/// What a node answers to a datagram, if anything.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    pub(crate) beats: Option<Packer>,
    pub(crate) loads: Option<Packer>,
}

impl Own {
    /// Begins a life after the one that others have seen of this node, and tells of it in the next round.
    pub(crate) fn outlive(&mut self, seen: Version) {
        self.version = Version { incarnation: seen.incarnation.next(), seq: 0 };
        self.beat_due = Timestamp::default();
        self.load_due = Timestamp::default();
    }
}
