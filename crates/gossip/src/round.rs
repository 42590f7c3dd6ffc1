//! What a node sends in a round: news about itself, news that it forwards, and questions.

use hostler_model::Timestamp;

use crate::dice::Dice;
use crate::node::Gossip;
use crate::table::{Entry, Presence, Published};
use crate::wire::{Item, MAX_BODY, PACKET_OVERHEAD, Packer, Standing};
use crate::{Datagram, Load, MemberId, Version};

/// The number of questions about silent members per peer and round, per KiB of the budget.
const ASKS_PER_KIB: usize = 3;

/// The number of questions about missing loads per peer and round, per 2 KiB of the budget.
const WANTS_PER_2_KIB: usize = 1;

/// The size of an item without its load, in bytes, to plan the contents of datagrams.
const ITEM_BYTES: usize = 7;

/// The peers to which a round sends, as indexes in the list of members.
#[derive(Debug)]
struct Turn {
    /// Peers that get news and questions.
    peers: Vec<usize>,
    /// Further peers, which get only urgent questions.
    reserve: Vec<usize>,
    /// A silent member that gets a message, so that it learns of this node when it returns.
    knocked: Option<usize>,
}

/// A member, and the newest version of the member that this node knows.
type Question = (MemberId, Version);

#[derive(Debug, Default)]
struct Questions {
    /// Members that have been silent for a while.
    asks: Vec<Question>,
    /// Members that are about to be declared silent.
    urgent: Vec<Question>,
    /// Members whose load is missing or old.
    wants: Vec<Question>,
}

/// What a node publishes about itself in a round: nothing, a heartbeat, or its load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OwnNews {
    None,
    Beat,
    Load,
}

impl Gossip {
    /// Runs a round: declares members silent and returns the datagrams with news. `random` must be unpredictable for
    /// other machines.
    ///
    /// Call this at [`Self::next_round`]. A late call is harmless. An early call only uses up the budget.
    pub fn round(&mut self, now: Timestamp, random: u64) -> Vec<Datagram> {
        let mut dice = Dice::new(random);
        let awake = self.awake.input(now);
        let round_ms = self.settings.round_ms;
        let late_ms = u32::try_from(now.ms_since(self.next_round)).unwrap_or(u32::MAX);
        self.late_ms = late_ms.max(self.late_ms - self.late_ms.div_ceil(8));
        // At least a round, so that the bytes of a round have left the budget's window when the next one begins.
        self.next_round = now.plus_ms(u64::from(round_ms) + dice.below(round_ms as usize / 5 + 1) as u64);
        self.counters.expired += self.table.expire(&self.pace, awake);
        let Some(my_place) = self.table.members.place(self.me) else { return Vec::new() };
        let news = self.tell(awake, &mut dice);
        let turn = self.turn(my_place, awake, &mut dice);
        let questions = self.questions(awake, &mut dice);
        let mut sent = Vec::new();
        self.send_news(&turn.peers, &news, &questions, now, &mut sent);
        if !questions.urgent.is_empty() {
            for &place in &turn.reserve {
                let mut packer = Packer::default();
                questions.urgent.iter().for_each(|&(id, known)| packer.push(&Item::ExecRequest { id, known }));
                self.send(place, packer, now, &mut sent);
            }
        }
        if let Some(knocked) = turn.knocked {
            let mut packer = Packer::default();
            self.pack_own(&news, &mut packer);
            self.send(knocked, packer, now, &mut sent);
        }
        sent
    }

    /// Increments this node's version if its heartbeat or load is due. Returns what to publish.
    fn tell(&mut self, now: Timestamp, dice: &mut Dice) -> OwnNews {
        let Some(measured) = self.own.measured else { return OwnNews::None };
        let load = Load { late_ms: self.late_ms, ..measured };
        // Use the round that is closest to the due time.
        let soon = now.plus_ms(u64::from(self.settings.round_ms) / 2);
        let beat_is_due = soon >= self.own.beat_due;
        let has_changed = self.own.told.as_ref().is_none_or(|told| load.differs_much(&told.load));
        let load_is_due = soon >= self.own.load_due || (beat_is_due && has_changed);
        if !beat_is_due && !load_is_due {
            return OwnNews::None;
        }
        // Random intervals keep nodes that started together from sending together.
        let mut after = |ms: u64| now.plus_ms(ms * 3 / 4 + dice.below(ms as usize / 2) as u64);
        self.own.version.seq += 1;
        self.own.beat_due = after(self.pace.beat_ms);
        if !load_is_due {
            return OwnNews::Beat;
        }
        self.own.load_due = after(self.pace.load_ms);
        let encoded = load.encode().into();
        self.own.told = Some(Published { version: self.own.version, load, encoded, heard: now });
        OwnNews::Load
    }

    /// Chooses the peers to which this round sends.
    fn turn(&self, my_place: usize, now: Timestamp, dice: &mut Dice) -> Turn {
        let others = self.table.entries().filter(|(place, _)| *place != my_place);
        let (mut expected, mut missing) = (Vec::new(), Vec::new());
        for (place, entry) in others {
            if self.table.is_expected(entry, now) { &mut expected } else { &mut missing }.push(place);
        }
        let fanout = self.settings.fanout as usize;
        let drawn = expected.len().min(2 * fanout);
        for at in 0..drawn {
            let other = at + dice.below(expected.len() - at);
            expected.swap(at, other);
        }
        // All present nodes together contact each missing node about twice per round.
        let knocks = !missing.is_empty() && dice.happens(2 * missing.len(), expected.len() + 1);
        let knocked = knocks.then(|| missing[dice.below(missing.len())]);
        expected.truncate(drawn);
        let reserve = expected.split_off(fanout.min(drawn));
        Turn { peers: expected, reserve, knocked }
    }

    /// Sends the same news to all peers, and different questions to each.
    fn send_news(
        &mut self,
        peers: &[usize],
        own: &OwnNews,
        questions: &Questions,
        now: Timestamp,
        sent: &mut Vec<Datagram>,
    ) {
        if peers.is_empty() {
            return;
        }
        let awake = self.awake.at(now);
        let overhead = PACKET_OVERHEAD + 64;
        let room = self.budget.room(now) / peers.len() * MAX_BODY / (MAX_BODY + overhead);
        let asked = (questions.asks.len() + questions.wants.len()).div_ceil(peers.len()) + questions.urgent.len();
        let room = room.saturating_sub(asked * ITEM_BYTES + 64);
        let (beats, loads) = self.take_news(room, awake);
        for (at, &peer) in peers.iter().enumerate() {
            let mut packer = Packer::default();
            self.pack_own(own, &mut packer);
            for &id in &loads {
                self.with_entry(id, |entry| {
                    let Some(published) = &entry.published else { return };
                    let (version, load) = (published.version, &*published.encoded);
                    packer.push(&Item::Load { id, version, standing: Standing::News, load });
                });
            }
            for &id in &beats {
                self.with_entry(id, |entry| {
                    packer.push(&Item::Beat { id, version: entry.version, standing: Standing::News });
                });
            }
            questions.urgent.iter().for_each(|&(id, known)| packer.push(&Item::ExecRequest { id, known }));
            // Ask only one peer about each member that is not urgent.
            let of_this_one = |all: &[Question]| all.iter().copied().skip(at).step_by(peers.len()).collect::<Vec<_>>();
            of_this_one(&questions.asks)
                .into_iter()
                .for_each(|(id, known)| packer.push(&Item::ExecRequest { id, known }));
            of_this_one(&questions.wants).into_iter().for_each(|(id, known)| packer.push(&Item::Want { id, known }));
            self.send(peer, packer, now, sent);
        }
    }

    /// Adds this node's own news.
    fn pack_own(&self, news: &OwnNews, packer: &mut Packer) {
        let (id, version, standing) = (self.me, self.own.version, Standing::News);
        match (news, &self.own.told) {
            (OwnNews::Load, Some(told)) => packer.push(&Item::Load { id, version, standing, load: &told.encoded }),
            (OwnNews::Load | OwnNews::Beat, _) => packer.push(&Item::Beat { id, version, standing }),
            (OwnNews::None, _) => {}
        }
    }

    /// Takes the members whose heartbeats and loads are forwarded in this round, within `room` bytes. Heartbeats take
    /// precedence, but loads get at least two fifths.
    fn take_news(&mut self, room: usize, now: Timestamp) -> (Vec<MemberId>, Vec<MemberId>) {
        let (mut loads, bytes) = self.take_loads(room * 2 / 5, now);
        let room = room - bytes;
        let beats = self.take_beats(room / ITEM_BYTES, now);
        let beats = self.without(beats, &loads);
        loads.extend(self.take_loads(room - beats.len() * ITEM_BYTES, now).0);
        loads.sort_unstable();
        (beats, loads)
    }

    /// Takes up to `most` members whose heartbeats wait to be forwarded, in order of their numbers.
    fn take_beats(&mut self, most: usize, now: Timestamp) -> Vec<MemberId> {
        let mut taken = Vec::new();
        while taken.len() < most
            && let Some(id) = self.beats.pop_front()
        {
            let pace = self.pace;
            let Some(entry) = self.entry_mut(id) else { continue };
            entry.beat_waits = false;
            // A beat that has waited too long is not news.
            if entry.is_fresh(&pace, now) {
                taken.push(id);
            }
        }
        taken.sort_unstable();
        taken
    }

    /// Takes members whose loads wait to be forwarded, in order of their numbers, and up to `most_bytes` in total. Also
    /// returns the bytes used.
    fn take_loads(&mut self, most_bytes: usize, now: Timestamp) -> (Vec<MemberId>, usize) {
        let mut taken = Vec::new();
        let mut bytes = 0;
        while let Some(&id) = self.loads.front() {
            let pace = self.pace;
            let Some(entry) = self.entry_mut(id) else {
                self.loads.pop_front();
                continue;
            };
            let is_fresh = entry.is_fresh(&pace, now);
            let length = ITEM_BYTES + entry.published.as_ref().map_or(0, |published| published.encoded.len());
            if is_fresh && bytes + length > most_bytes {
                break;
            }
            entry.load_waits = false;
            self.loads.pop_front();
            if is_fresh {
                bytes += length;
                taken.push(id);
            }
        }
        taken.sort_unstable();
        (taken, bytes)
    }

    /// Returns the heartbeats without those of members whose load is in the same datagram, since a load includes a
    /// heartbeat.
    fn without(&self, mut beats: Vec<MemberId>, loads: &[MemberId]) -> Vec<MemberId> {
        beats.retain(|id| {
            let mut is_said = false;
            if loads.binary_search(id).is_ok() {
                let of_load = |entry: &Entry| entry.published.as_ref().map(|published| published.version);
                self.with_entry(*id, |entry| is_said = of_load(entry) == Some(entry.version));
            }
            !is_said
        });
        beats
    }

    /// Chooses questions about members that have been silent for a while or were never heard, and about missing or old
    /// loads. If there are too many questions, takes a random subset.
    fn questions(&self, now: Timestamp, dice: &mut Dice) -> Questions {
        let members = self.table.entries().map(|(place, entry)| (self.table.members.at(place).id, entry));
        let expected = members.filter(|(id, entry)| *id != self.me && self.table.is_expected(*entry, now));
        let mut questions = Questions::default();
        for (id, entry) in expected {
            let Some(entry) = entry.filter(|entry| entry.presence() == Presence::Live) else {
                questions.asks.push((id, Version::default()));
                continue;
            };
            let silent_ms = now.ms_since(entry.heard);
            if silent_ms > self.pace.urgent_ms {
                questions.urgent.push((id, entry.version));
            } else if silent_ms > self.pace.ask_ms {
                questions.asks.push((id, entry.version));
            }
            let load = entry.published.as_ref();
            if load.is_none_or(|load| now.ms_since(load.heard) > self.pace.load_ms * 5 / 2) {
                questions.wants.push((id, load.map_or(Version::default(), |load| load.version)));
            }
        }
        let budget_kib = self.settings.budget_bytes as usize / 1024;
        let fanout = self.settings.fanout as usize;
        some_of(&mut questions.asks, fanout * budget_kib * ASKS_PER_KIB, dice);
        some_of(&mut questions.urgent, budget_kib * ASKS_PER_KIB, dice);
        some_of(&mut questions.wants, fanout * budget_kib / 2 * WANTS_PER_2_KIB, dice);
        questions
    }

    fn with_entry(&self, id: MemberId, then: impl FnOnce(&Entry)) {
        if let Some(entry) = self.table.members.place(id).and_then(|place| self.table.entry(place)) {
            then(entry);
        }
    }

    fn entry_mut(&mut self, id: MemberId) -> Option<&mut Entry> {
        let place = self.table.members.place(id)?;
        self.table.entry_mut(place)
    }
}

/// Keeps `most` consecutive elements, from a random start.
fn some_of<T>(all: &mut Vec<T>, most: usize, dice: &mut Dice) {
    if all.len() > most {
        let begin = dice.below(all.len());
        all.rotate_left(begin);
        all.truncate(most);
    }
}
