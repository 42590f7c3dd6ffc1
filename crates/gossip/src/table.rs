//! The state of every member.

use std::collections::BTreeMap;
use std::sync::Arc;

use hostler_model::Timestamp;

use crate::auth::ReplayWindow;
use crate::wire::Standing;
use crate::{Incarnation, Load, Member, Members, Pace, Version};

/// Whether a member is live, as this node sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Presence {
    /// No message from the member has arrived since this agent started or the node became a member.
    Unheard,
    /// A sign of life from the member has arrived recently.
    Live,
    /// The member has been silent for too long.
    Silent,
}

/// The maximum additional silence that is allowed for a node with late rounds, in milliseconds.
const MAX_ALLOWANCE_MS: u64 = 10_000;

/// The state of each member, by its index in [`Members`]. The number of members bounds the size of the table.
///
/// Times are on a clock that stops while this node is suspended: see `awake.rs`.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) members: Arc<Members>,
    /// `None` for members about which nothing has arrived.
    entries: Vec<Option<Box<Entry>>>,
    /// Until this time, members that were never heard from are contacted like live members.
    pub(crate) expected_until: Timestamp,
}

#[derive(Debug)]
pub(crate) struct Entry {
    /// The newest known version. It never decreases, so old news cannot make a silent node live again.
    pub(crate) version: Version,
    /// When the last sign of life arrived, or else the first news.
    pub(crate) heard: Timestamp,
    life: Life,
    pub(crate) published: Option<Published>,
    /// The incarnation of the member's last datagram, and which datagrams of this incarnation have arrived directly.
    pub(crate) window: (Incarnation, ReplayWindow),
    /// When the member was last informed that its incarnation is outdated.
    pub(crate) corrected: Option<Timestamp>,
    pub(crate) beat_waits: bool,
    pub(crate) load_waits: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Life {
    /// No sign of life has arrived.
    Unheard,
    Live,
    /// The member has been declared silent. `stirred` is when a newer version arrived once; that may have been delayed
    /// old news. A second newer version is a sign of life.
    Silent {
        stirred: Option<Timestamp>,
    },
}

/// The newest load of a member, as it was received.
#[derive(Debug)]
pub(crate) struct Published {
    pub(crate) version: Version,
    pub(crate) load: Load,
    /// The encoded load as received, including fields of newer versions of the protocol.
    pub(crate) encoded: Box<[u8]>,
    pub(crate) heard: Timestamp,
}

impl Table {
    pub(crate) fn new(members: Arc<Members>, expected_until: Timestamp) -> Self {
        let entries = members.iter().map(|_| None).collect();
        Self { members, entries, expected_until }
    }

    /// Sets the members. Keeps the state of members that remain.
    pub(crate) fn set_members(&mut self, members: Arc<Members>, expected_until: Timestamp) {
        let entries = std::mem::take(&mut self.entries);
        // Compare names as well, since a number may have been reassigned.
        let who = |member: &Member| (member.id, member.name.clone());
        let mut known: BTreeMap<_, _> = self.members.iter().map(who).zip(entries).collect();
        let has_new = members.iter().any(|member| !known.contains_key(&who(member)));
        self.entries = members.iter().map(|member| known.remove(&who(member)).flatten()).collect();
        self.members = members;
        if has_new {
            self.expected_until = expected_until;
        }
    }

    pub(crate) fn entry(&self, place: usize) -> Option<&Entry> {
        self.entries[place].as_deref()
    }

    pub(crate) fn entry_mut(&mut self, place: usize) -> Option<&mut Entry> {
        self.entries[place].as_deref_mut()
    }

    /// Returns the entry of a member. Creates the entry if nothing has arrived about the member before.
    pub(crate) fn entry_or_new(&mut self, place: usize, now: Timestamp) -> &mut Entry {
        self.entries[place].get_or_insert_with(|| Box::new(Entry::new(now)))
    }

    /// Iterates over the entries in order of their indexes.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (usize, Option<&Entry>)> {
        self.entries.iter().map(Option::as_deref).enumerate()
    }

    /// Returns the approximate memory in bytes, without the shared list of members.
    pub(crate) fn memory_bytes(&self) -> usize {
        let known = self.entries.iter().flatten();
        let published = known.clone().filter_map(|entry| entry.published.as_ref());
        self.entries.capacity() * size_of::<Option<Box<Entry>>>()
            + known.count() * size_of::<Entry>()
            + published.map(|published| published.encoded.len()).sum::<usize>()
    }

    /// Returns whether a member should be contacted regularly, because it is live or expected to be.
    pub(crate) fn is_expected(&self, entry: Option<&Entry>, now: Timestamp) -> bool {
        match entry.map(Entry::presence) {
            Some(Presence::Live) => true,
            Some(Presence::Silent) => false,
            Some(Presence::Unheard) | None => now < self.expected_until,
        }
    }

    /// Declares members silent whose silence exceeds the limit; returns how many.
    pub(crate) fn expire(&mut self, pace: &Pace, now: Timestamp) -> u64 {
        let live = self.entries.iter_mut().flatten().filter(|entry| entry.life == Life::Live);
        let mut expired = 0;
        for entry in live.filter(|entry| now.ms_since(entry.heard) > pace.silence_ms + entry.allowance_ms()) {
            entry.life = Life::Silent { stirred: None };
            expired += 1;
        }
        expired
    }
}

impl Entry {
    fn new(now: Timestamp) -> Self {
        Self {
            version: Version::default(),
            heard: now,
            life: Life::Unheard,
            published: None,
            window: (Incarnation::default(), ReplayWindow::default()),
            corrected: None,
            beat_waits: false,
            load_waits: false,
        }
    }

    pub(crate) const fn presence(&self) -> Presence {
        match self.life {
            Life::Unheard => Presence::Unheard,
            Life::Live => Presence::Live,
            Life::Silent { .. } => Presence::Silent,
        }
    }

    /// Records a version of the member, received from any node. Returns whether it is newer than the known one.
    pub(crate) fn learn(&mut self, version: Version, standing: Standing, pace: &Pace, now: Timestamp) -> bool {
        if version <= self.version {
            return false;
        }
        self.version = version;
        if standing != Standing::Old {
            self.sign_of_life(pace, now);
        }
        true
    }

    /// Records a load of the member, received from any node. Returns whether it is newer than the known one.
    pub(crate) fn learn_load(&mut self, version: Version, load: Load, encoded: &[u8], now: Timestamp) -> bool {
        let is_newer = self.published.as_ref().is_none_or(|published| published.version < version);
        if is_newer {
            self.published = Some(Published { version, load, encoded: encoded.into(), heard: now });
        }
        is_newer
    }

    /// Records an authentic datagram from the member itself.
    pub(crate) const fn spoke(&mut self, now: Timestamp) {
        self.life = Life::Live;
        self.heard = now;
    }

    /// Returns the additional silence that is allowed because the member's rounds are late, in milliseconds: twice the
    /// delay, since one message may be lost.
    fn allowance_ms(&self) -> u64 {
        let late_ms = self.published.as_ref().map_or(0, |published| published.load.late_ms);
        (2 * u64::from(late_ms)).min(MAX_ALLOWANCE_MS)
    }

    /// Returns whether the last sign of life is so recent that other nodes should treat it as a sign of life.
    pub(crate) const fn is_fresh(&self, pace: &Pace, now: Timestamp) -> bool {
        now.ms_since(self.heard) <= pace.urgent_ms
    }

    fn sign_of_life(&mut self, pace: &Pace, now: Timestamp) {
        self.life = match self.life {
            Life::Unheard | Life::Live => Life::Live,
            Life::Silent { stirred: Some(at) } if now.ms_since(at) >= pace.beat_ms / 2 => Life::Live,
            Life::Silent { stirred } => Life::Silent { stirred: stirred.or(Some(now)) },
        };
        self.heard = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Member, Settings};

    const fn version(incarnation: u64, seq: u64) -> Version {
        Version { incarnation: Incarnation(incarnation), seq }
    }

    fn members(ids: impl IntoIterator<Item = u32>) -> Arc<Members> {
        let member = |id| Member {
            id: crate::MemberId(id),
            name: format!("n{id}").parse().expect("a name"),
            address: "10.0.0.1:7".parse().expect("an address"),
            features: std::collections::BTreeSet::new(),
        };
        Arc::new(Members::new(ids.into_iter().map(member)))
    }

    fn pace() -> Pace {
        Pace::of(&Settings::default(), 5)
    }

    /// A member that was live with version 1.100 and has been declared silent six seconds later.
    fn silent() -> (Table, Timestamp) {
        let mut table = Table::new(members([1]), Timestamp(0));
        let entry = table.entry_or_new(0, Timestamp(0));
        assert!(entry.learn(version(1, 100), Standing::News, &pace(), Timestamp(0)));
        assert_eq!(table.expire(&pace(), Timestamp(6000)), 0);
        assert_eq!(table.expire(&pace(), Timestamp(6001)), 1);
        assert_eq!(presence(&table), Presence::Silent);
        (table, Timestamp(6001))
    }

    fn learn(table: &mut Table, version: Version, standing: Standing, at: Timestamp) -> Presence {
        let entry = table.entry_mut(0).expect("the member is known");
        let before = entry.version;
        assert_eq!(entry.learn(version, standing, &pace(), at), version > before);
        assert_eq!(entry.version, before.max(version), "versions never go back");
        presence(table)
    }

    fn presence(table: &Table) -> Presence {
        table.entry(0).map_or(Presence::Unheard, Entry::presence)
    }

    #[test]
    fn late_nodes_get_more_time() {
        for (late_ms, patience_ms) in [(0, 6000), (3000, 12_000), (60_000, 16_000)] {
            let mut table = Table::new(members([1]), Timestamp(0));
            let entry = table.entry_or_new(0, Timestamp(0));
            entry.learn(version(1, 1), Standing::News, &pace(), Timestamp(0));
            let load = Load { late_ms, ..Load::idle(1, 1, "10.0.0.1:7".parse().expect("an address")) };
            entry.learn_load(version(1, 1), load, &[], Timestamp(0));
            assert_eq!(table.expire(&pace(), Timestamp(patience_ms)), 0, "{late_ms}");
            assert_eq!(table.expire(&pace(), Timestamp(patience_ms + 1)), 1, "{late_ms}");
        }
    }

    #[test]
    fn old_versions_do_not_revive_a_silent_node() {
        let (mut table, now) = silent();
        for seq in [1, 99, 100] {
            assert_eq!(learn(&mut table, version(1, seq), Standing::News, now), Presence::Silent);
            assert_eq!(learn(&mut table, version(0, 1000 + seq), Standing::News, now), Presence::Silent);
        }
    }

    #[test]
    fn second_newer_version_revives_a_silent_node() {
        for (first, second) in [(version(1, 101), version(1, 102)), (version(2, 1), version(2, 2))] {
            let (mut table, now) = silent();
            assert_eq!(learn(&mut table, first, Standing::News, now), Presence::Silent);
            assert_eq!(learn(&mut table, second, Standing::Answer, now.plus_ms(1000)), Presence::Live);
            assert_eq!(table.expire(&pace(), now.plus_ms(6999)), 0);
        }
        let (mut table, now) = silent();
        assert_eq!(learn(&mut table, version(1, 101), Standing::News, now), Presence::Silent);
        let at_once = learn(&mut table, version(1, 102), Standing::News, now.plus_ms(10));
        assert_eq!(at_once, Presence::Silent, "both versions may come from delayed old news");
    }

    #[test]
    fn own_datagram_revives_a_silent_node_at_once() {
        let (mut table, now) = silent();
        table.entry_mut(0).expect("the member is known").spoke(now);
        assert_eq!(presence(&table), Presence::Live);
        assert_eq!(table.expire(&pace(), now.plus_ms(6000)), 0);
    }

    #[test]
    fn versions_marked_old_raise_the_tombstone_without_reviving() {
        let (mut table, now) = silent();
        for seq in [200, 201, 202] {
            let at = now.plus_ms(10 * seq);
            assert_eq!(learn(&mut table, version(1, seq), Standing::Old, at), Presence::Silent);
        }
        assert_eq!(learn(&mut table, version(1, 150), Standing::News, now.plus_ms(9000)), Presence::Silent);
        assert_eq!(table.entry(0).map(|entry| entry.version), Some(version(1, 202)));
    }

    #[test]
    fn versions_marked_old_do_not_make_an_unheard_node_live() {
        let mut table = Table::new(members([1]), Timestamp(0));
        table.entry_or_new(0, Timestamp(0));
        assert_eq!(learn(&mut table, version(1, 5), Standing::Old, Timestamp(0)), Presence::Unheard);
        assert_eq!(learn(&mut table, version(1, 5), Standing::News, Timestamp(0)), Presence::Unheard);
        assert_eq!(learn(&mut table, version(1, 6), Standing::News, Timestamp(0)), Presence::Live);
    }

    #[test]
    fn changing_members_keeps_the_state_of_the_others() {
        let mut table = Table::new(members([1, 2, 3]), Timestamp(5));
        for place in 0..3 {
            let entry = table.entry_or_new(place, Timestamp(0));
            entry.learn(version(1, 10 + place as u64), Standing::News, &pace(), Timestamp(0));
        }
        table.set_members(members([1, 3]), Timestamp(99));
        assert_eq!(table.expected_until, Timestamp(5), "no member was added");
        table.set_members(members([1, 2, 3, 4]), Timestamp(99));
        assert_eq!(table.expected_until, Timestamp(99));
        let versions: Vec<_> = table.entries().map(|(_, entry)| entry.map(|entry| entry.version.seq)).collect();
        assert_eq!(versions, [Some(10), None, Some(12), None], "a removed member starts without state");
    }
}
