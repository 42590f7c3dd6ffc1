//! Handling of received datagrams.
//!
//! Cheap checks come first, and the state changes only after all checks: sender, source address, tag, replay, and that every item can be
//! decoded.

use std::net::SocketAddr;

use hostler_model::Timestamp;

use crate::auth::{Arrival, ReplayWindow};
use crate::load::MAX_LOAD_BYTES;
use crate::node::{Answers, Gossip};
use crate::table::{Entry, Presence, Published};
use crate::wire::{Header, Item, MAX_DATAGRAM, Malformed, Packer, Standing, TAG_BYTES, items};
use crate::{Datagram, Load, MemberId, Version};

/// The minimum interval between two corrections sent to a node that has started with an old incarnation, in
/// milliseconds.
const CORRECTION_MS: u64 = 1000;

impl Gossip {
    /// Handles a datagram from this address and returns answers to its questions. Refused datagrams are counted.
    pub fn receive(&mut self, from: SocketAddr, datagram: &[u8], now: Timestamp) -> Vec<Datagram> {
        let awake = self.awake.input(now);
        let (place, header, body) = match self.trusted(from, datagram) {
            Ok(trusted) => trusted,
            Err(refused) => {
                *refused.counter(self) += 1;
                return Vec::new();
            }
        };
        match self.arrive(place, header, awake) {
            Arrival::New => {}
            Arrival::Repeated => {
                self.counters.refused.repeated += 1;
                return Vec::new();
            }
            Arrival::TooLate => {
                self.counters.refused.too_late += 1;
                return self.correct(place, now);
            }
        }
        self.counters.accepted += 1;
        let mut answers = Answers::default();
        for item in items(body).flatten() {
            self.take(&item, &mut answers, awake);
        }
        self.answer(place, answers, now)
    }

    /// Returns the sender and the body of a datagram, or why it is refused. The datagram must be authentic and
    /// completely decodable.
    fn trusted<'a>(&self, from: SocketAddr, datagram: &'a [u8]) -> Result<(usize, Header, &'a [u8]), Refusal> {
        let untagged = datagram.len().checked_sub(TAG_BYTES).filter(|_| datagram.len() <= MAX_DATAGRAM);
        let untagged = untagged.ok_or(Refusal::Malformed)?;
        let (header, _) = Header::read(&datagram[..untagged])?;
        if header.sender == self.me || self.table.members.place(self.me).is_none() {
            return Err(Refusal::Stranger);
        }
        let place = self.table.members.place(header.sender).ok_or(Refusal::Stranger)?;
        let expected = self.table.members.at(place).address;
        if (from.ip().to_canonical(), from.port()) != (expected.ip().to_canonical(), expected.port()) {
            return Err(Refusal::WrongAddress);
        }
        let untagged = self.key.open(self.me, datagram).ok_or(Refusal::WrongTag)?;
        let (header, body) = Header::read(untagged)?;
        for item in items(body) {
            if let Item::Load { load, .. } = item? {
                read_load(load)?;
            }
        }
        Ok((place, header, body))
    }

    /// Records an authentic datagram of a member.
    fn arrive(&mut self, place: usize, header: Header, now: Timestamp) -> Arrival {
        let entry = self.table.entry_or_new(place, now);
        let (incarnation, window) = &mut entry.window;
        if header.incarnation < entry.version.incarnation || header.incarnation < *incarnation {
            return Arrival::TooLate;
        }
        if header.incarnation > *incarnation {
            (*incarnation, *window) = (header.incarnation, ReplayWindow::default());
        }
        let arrival = window.arrive(header.counter);
        if arrival == Arrival::New {
            entry.version = entry.version.max(Version { incarnation: header.incarnation, seq: 0 });
            entry.spoke(now);
        }
        arrival
    }

    /// Handles one item and adds the answer, if it is a question.
    fn take(&mut self, item: &Item<'_>, answers: &mut Answers, now: Timestamp) {
        match *item {
            Item::Beat { id, version, standing } => self.learn(id, version, standing, None, now),
            Item::Load { id, version, standing, load } => {
                if let Ok(decoded) = read_load(load) {
                    self.learn(id, version, standing, Some((decoded, load)), now);
                }
            }
            Item::ExecRequest { id, known } => self.answer_ask(id, known, answers, now),
            Item::Want { id, known } => self.answer_want(id, known, answers, now),
        }
    }

    fn learn(
        &mut self,
        id: MemberId,
        version: Version,
        standing: Standing,
        load: Option<(Load, &[u8])>,
        now: Timestamp,
    ) {
        if id == self.me {
            // Others have seen an incarnation of this node that its disk has lost.
            if version > self.own.version {
                self.own.start_incarnation_after(version);
            }
            return;
        }
        let Some(place) = self.table.members.place(id) else {
            self.counters.about_strangers += 1;
            return;
        };
        let pace = self.pace;
        let entry = self.table.entry_or_new(place, now);
        let is_news = standing == Standing::News;
        if entry.learn(version, standing, &pace, now) && is_news && !entry.beat_waits {
            entry.beat_waits = true;
            self.beats.push_back(id);
        }
        if let Some((load, encoded)) = load
            && entry.learn_load(version, load, encoded, now)
            && is_news
            && !entry.load_waits
        {
            entry.load_waits = true;
            self.loads.push_back(id);
        }
    }

    fn answer_ask(&self, id: MemberId, known: Version, answers: &mut Answers, now: Timestamp) {
        let (version, standing) = if id == self.me {
            (self.own.version, Standing::Answer)
        } else {
            let Some(entry) = self.known(id) else { return };
            (entry.version, self.standing(entry, now))
        };
        if version > known {
            answers.beats.get_or_insert_default().push(&Item::Beat { id, version, standing });
        }
    }

    fn answer_want(&self, id: MemberId, known: Version, answers: &mut Answers, now: Timestamp) {
        let (published, standing) = if id == self.me {
            (self.own.told.as_ref(), Standing::Answer)
        } else {
            let Some(entry) = self.known(id) else { return };
            (entry.published.as_ref(), self.standing(entry, now))
        };
        if let Some(Published { version, encoded, .. }) = published.filter(|published| published.version > known) {
            let item = Item::Load { id, version: *version, standing, load: encoded };
            answers.loads.get_or_insert_default().push(&item);
        }
    }

    /// Sends a member the newest known version of the member itself, because the member has started with an old
    /// incarnation.
    fn correct(&mut self, place: usize, now: Timestamp) -> Vec<Datagram> {
        let id = self.table.members.at(place).id;
        let Some(entry) = self.table.entry_mut(place) else { return Vec::new() };
        if entry.corrected.is_some_and(|at| now.ms_since(at) < CORRECTION_MS) {
            return Vec::new();
        }
        entry.corrected = Some(now);
        let mut correction = Packer::default();
        correction.push(&Item::Beat { id, version: entry.version, standing: Standing::Old });
        self.answer(place, Answers { beats: Some(correction), loads: None }, now)
    }

    fn known(&self, id: MemberId) -> Option<&Entry> {
        self.table.members.place(id).and_then(|place| self.table.entry(place))
    }

    /// Returns how the receiver of an answer should treat news about this member.
    fn standing(&self, entry: &Entry, now: Timestamp) -> Standing {
        let is_life = entry.presence() == Presence::Live && entry.is_fresh(&self.pace, now);
        if is_life { Standing::Answer } else { Standing::Old }
    }
}

fn read_load(bytes: &[u8]) -> Result<Load, Malformed> {
    if bytes.len() <= MAX_LOAD_BYTES { Load::decode(bytes) } else { Err(Malformed) }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Refusal {
    Malformed,
    Stranger,
    WrongAddress,
    WrongTag,
}

impl From<Malformed> for Refusal {
    fn from(_: Malformed) -> Self {
        Self::Malformed
    }
}

impl Refusal {
    const fn counter(self, gossip: &mut Gossip) -> &mut u64 {
        let refused = &mut gossip.counters.refused;
        match self {
            Self::Malformed => &mut refused.malformed,
            Self::Stranger => &mut refused.stranger,
            Self::WrongAddress => &mut refused.wrong_address,
            Self::WrongTag => &mut refused.wrong_tag,
        }
    }
}
