//! Limits the memory that descriptions of trees take in this agent, for each user and for all users together.
//!
//! States of a tree share most of their entries, so each entry is counted once. A [`Reservation`] counts it while it is
//! received, and the [`HeldTree`]s that contain it keep it counted until the last of them is dropped.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::{Arc, Mutex};

use hostler_model::format_bytes;
use hostler_proto::manifest::{Chunk, Entry, EntryKind};
use hostler_remote::mirror::Tree;
use hostler_snapshot::mirror::Named;

use crate::mutex::lock;

/// The limit for all users is the node's memory divided by this number, between the two bounds below.
const PART_OF_NODE: u64 = 8;

/// Minimum of the limit for all users, in bytes, so that small nodes can take a tree.
const LEAST_OF_ALL: u64 = 128 << 20;

/// Maximum of the limit for all users, in bytes.
const MOST_OF_ALL: u64 = 2 << 30;

/// Maximum of the limit for one user, in bytes. The limit is also at most half of the limit for all users.
const MOST_OF_ONE: u64 = 512 << 20;

/// Memory of an entry without its path and content, in bytes: the entry and its digest, the counters of its [`Arc`], and
/// the allocator's overhead.
const ENTRY_BYTES: usize = size_of::<Named>() + 2 * size_of::<usize>() + 32;

/// The limits, and the memory in use.
#[derive(Debug)]
pub(super) struct MemoryLimits {
    of_one: u64,
    of_all: u64,
    used: Mutex<Used>,
}

/// Bytes in use.
#[derive(Debug, Default)]
struct Used {
    by_all: u64,
    by_user: BTreeMap<u32, u64>,
}

/// Bytes that are counted for one user. Dropping the value frees them.
#[derive(Debug)]
pub(super) struct Reservation {
    limits: Arc<MemoryLimits>,
    uid: u32,
    bytes: u64,
}

/// A limit is reached.
#[derive(Debug, thiserror::Error)]
#[error(
    "the descriptions of {} mirrored trees take {} of the node's memory, and {} more would exceed the limit of {}",
    if uid.is_some() { "this user's" } else { "all users'" },
    format_bytes(*used),
    format_bytes(*more),
    format_bytes(*limit)
)]
pub(super) struct Exceeded {
    /// The user whose limit is reached; `None` for the limit of all users.
    pub(super) uid: Option<u32>,
    used: u64,
    more: u64,
    limit: u64,
}

impl MemoryLimits {
    /// Returns the limits for a node with this memory.
    pub(super) fn of_node(memory_bytes: u64) -> Arc<Self> {
        let of_all = (memory_bytes / PART_OF_NODE).clamp(LEAST_OF_ALL, MOST_OF_ALL);
        Self::new((of_all / 2).min(MOST_OF_ONE), of_all)
    }

    /// Creates limits for one user and for all users, in bytes.
    pub(super) fn new(of_one: u64, of_all: u64) -> Arc<Self> {
        Arc::new(Self { of_one, of_all, used: Mutex::default() })
    }

    /// Returns an empty reservation of a user.
    pub(super) fn reservation(self: &Arc<Self>, uid: u32) -> Reservation {
        Reservation { limits: Arc::clone(self), uid, bytes: 0 }
    }

    #[cfg(test)]
    pub(super) fn used_by(&self, uid: u32) -> u64 {
        lock(&self.used).by_user.get(&uid).copied().unwrap_or_default()
    }
}

impl Reservation {
    /// Counts more bytes.
    ///
    /// # Errors
    /// Fails when a limit would be exceeded; nothing more is counted then.
    pub(super) fn grow(&mut self, bytes: u64) -> Result<(), Exceeded> {
        let MemoryLimits { of_one, of_all, used } = &*self.limits;
        let mut used = lock(used);
        let by_user = used.by_user.get(&self.uid).copied().unwrap_or_default();
        for (uid, limit, used) in [(Some(self.uid), *of_one, by_user), (None, *of_all, used.by_all)] {
            if bytes > limit.saturating_sub(used) {
                return Err(Exceeded { uid, used, more: bytes, limit });
            }
        }
        used.by_all += bytes;
        *used.by_user.entry(self.uid).or_default() += bytes;
        self.bytes += bytes;
        Ok(())
    }

    /// Frees all bytes above `bytes`.
    fn shrink_to(&mut self, bytes: u64) {
        let freed = self.bytes.saturating_sub(bytes);
        self.bytes -= freed;
        self.free(freed);
    }

    fn free(&self, bytes: u64) {
        let mut used = lock(&self.limits.used);
        used.by_all = used.by_all.saturating_sub(bytes);
        let rest = used.by_user.get(&self.uid).copied().unwrap_or_default().saturating_sub(bytes);
        if rest == 0 {
            used.by_user.remove(&self.uid);
        } else {
            used.by_user.insert(self.uid, rest);
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.free(self.bytes);
    }
}

/// A tree whose memory is counted.
///
/// Other owners of the tree's entries must drop them before the last tree that contains them, so that the count stays
/// exact.
#[derive(Debug)]
pub(super) struct HeldTree {
    tree: Tree,
    memory: Reservation,
}

impl HeldTree {
    /// Creates a tree. `memory` has counted the list of the entries, and `new_bytes` for the entries that no other tree
    /// contains. Anything else that it has counted is freed.
    pub(super) fn new(tree: Tree, mut memory: Reservation, new_bytes: u64) -> Self {
        memory.shrink_to(list_bytes(tree.entries.len()) + new_bytes);
        Self { tree, memory }
    }
}

impl Deref for HeldTree {
    type Target = Tree;

    fn deref(&self) -> &Tree {
        &self.tree
    }
}

impl Drop for HeldTree {
    fn drop(&mut self) {
        let entries = std::mem::take(&mut self.tree.entries);
        let list = list_bytes(entries.len());
        // An entry that another tree contains stays counted. If two threads drop the last two trees at once, exactly one
        // of them gets the entry.
        let freed: u64 = entries.into_iter().filter_map(Arc::into_inner).map(|named| bytes_of(&named)).sum();
        self.memory.bytes = list + freed;
    }
}

/// Memory of a tree's list of entries, in bytes.
const fn list_bytes(entries: usize) -> u64 {
    (entries * size_of::<Arc<Named>>()) as u64
}

/// Approximate memory of an entry, in bytes.
pub(super) fn bytes_of(entry: &Entry) -> u64 {
    let content = match &entry.kind {
        EntryKind::File(content) => content.chunks.capacity() * size_of::<Chunk>(),
        EntryKind::Symlink { target } => target.capacity(),
        EntryKind::Directory => 0,
    };
    (ENTRY_BYTES + entry.path.capacity() + content) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tree of the user 1 with entries that other trees contain and new ones.
    fn held(limits: &Arc<MemoryLimits>, shared: &[Arc<Named>], new: &[&str]) -> HeldTree {
        let new = new.iter().map(|path| {
            let path = path.as_bytes().to_vec();
            Arc::new(Named::new(Entry { path, mode: 0o755, modified_ns: 0, kind: EntryKind::Directory }))
        });
        let new: Vec<_> = new.collect();
        let new_bytes = new.iter().map(|named| bytes_of(named)).sum();
        let entries: Vec<_> = shared.iter().cloned().chain(new).collect();
        let mut memory = limits.reservation(1);
        // The last number stands for buffers, which are freed.
        memory.grow(list_bytes(entries.len()) + new_bytes + 1000).expect("within the limits");
        HeldTree::new(Tree { mode: 0o755, entries }, memory, new_bytes)
    }

    #[test]
    fn dropping_a_reservation_frees_its_bytes() {
        let limits = MemoryLimits::new(100, 150);
        let mut reservation = limits.reservation(1);
        reservation.grow(60).expect("within the limits");
        reservation.grow(41).expect_err("beyond the limit of the user");
        reservation.grow(40).expect("a refused reservation counts nothing");
        drop(reservation);
        assert_eq!(limits.used_by(1), 0);
        let mut whole = limits.reservation(1);
        whole.grow(100).expect("the user's memory is free again");
        limits.reservation(2).grow(50).expect("the memory of all users is free again");
    }

    #[test]
    fn refusal_says_which_limit_is_reached() {
        let limits = MemoryLimits::new(100 << 20, 150 << 20);
        let (mut ada, mut bob) = (limits.reservation(1), limits.reservation(2));
        ada.grow(90 << 20).expect("within the limits");
        let error = ada.grow(20 << 20).expect_err("beyond the limit of the user");
        assert_eq!(error.uid, Some(1));
        let expected = "the descriptions of this user's mirrored trees take 90M of the node's memory, and 20M more would \
                        exceed the limit of 100M";
        assert_eq!(error.to_string(), expected);
        let error = bob.grow(70 << 20).expect_err("beyond the limit of all users");
        assert_eq!(error.uid, None);
        assert!(error.to_string().contains("all users' mirrored trees take 90M"), "{error}");
        bob.grow(60 << 20).expect("one user cannot use the memory of all");
    }

    #[test]
    fn limits_follow_the_memory_of_the_node() {
        let limits = |gib: u64| {
            let limits = MemoryLimits::of_node(gib << 30);
            (limits.of_one >> 20, limits.of_all >> 20)
        };
        assert_eq!([0, 4, 16, 1024].map(limits), [(64, 128), (256, 512), (512, 2048), (512, 2048)]);
    }

    #[test]
    fn entry_is_counted_once_until_its_last_tree_is_dropped() {
        for is_older_first in [true, false] {
            let limits = MemoryLimits::new(1 << 20, 1 << 20);
            let older = held(&limits, &[], &["a", "b"]);
            let used = limits.used_by(1);
            let entry_bytes = bytes_of(&older.entries[0]);
            assert_eq!(used, 2 * entry_bytes + list_bytes(2));
            let newer = held(&limits, &older.entries[..1], &["c"]);
            assert_eq!(limits.used_by(1), used + entry_bytes + list_bytes(2));
            let (first, last) = if is_older_first { (older, newer) } else { (newer, older) };
            drop(first);
            assert_eq!(limits.used_by(1), used, "the remaining tree has two entries");
            drop(last);
            assert_eq!(limits.used_by(1), 0);
        }
    }
}
