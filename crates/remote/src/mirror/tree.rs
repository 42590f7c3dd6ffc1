//! Trees: their digests, and the difference between two trees.

use std::collections::BTreeSet;
use std::sync::Arc;

use hostler_model::Digest;
use hostler_proto::manifest::{Entry, EntryKind};
use hostler_snapshot::check::{ManifestError, check_entries};
use hostler_snapshot::chunk::digest_of;
use hostler_snapshot::mirror::Named;

use super::MOST_ENTRIES;

/// Short identifier of an entry: the first bytes of its digest.
type Tag = u64;

const TAG_BYTES: usize = size_of::<Tag>();

/// A directory with everything below it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tree {
    pub mode: u32,
    /// All entries, sorted by path.
    pub entries: Vec<Arc<Named>>,
}

/// A tree of which all tags and some complete entries are known.
#[derive(Debug)]
pub struct Partial {
    entries: Vec<Option<Arc<Named>>>,
}

/// Why a caller's description of a tree is invalid.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    #[error("the described tree does not have the announced digest")]
    OtherTree,
    #[error("the tree has more than {MOST_ENTRIES} files")]
    TooMany,
    #[error(transparent)]
    Malformed(#[from] ManifestError),
}

/// The changes that turn one tree into another.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Delta {
    /// New and changed entries, and the parent directories of changed and removed entries; sorted by path.
    pub entries: Vec<Entry>,
    /// Removed entries. Entries below a removed directory are not listed.
    pub removed: Vec<Vec<u8>>,
}

impl Tree {
    /// Returns the digest of the tree, and the tags of its entries.
    #[must_use]
    pub fn digest_and_tags(&self) -> (Digest, Vec<u8>) {
        let mut names = Vec::with_capacity(4 + 32 * self.entries.len());
        let mut tags = Vec::with_capacity(TAG_BYTES * self.entries.len());
        names.extend(self.mode.to_be_bytes());
        for entry in &self.entries {
            let Digest(name) = entry.name();
            names.extend(name);
            tags.extend(&name[..TAG_BYTES]);
        }
        (digest_of(&names), tags)
    }

    /// Returns the digest that names the tree.
    #[must_use]
    pub fn digest(&self) -> Digest {
        self.digest_and_tags().0
    }

    /// Returns the entry at `path`.
    #[must_use]
    pub fn at(&self, path: &[u8]) -> Option<&Entry> {
        self.place_of(path).map(|place| self.entries[place].entry())
    }

    /// Looks up the entries with the tags `tags` in this tree. Returns a partial tree with the entries that were found.
    #[must_use]
    pub fn recognise(&self, tags: &[u8]) -> Partial {
        let mut by_tag: Option<Vec<(Tag, u32)>> = None;
        let mut next = 0;
        let mut known = |tag| {
            // Usually the entry after the previous one matches.
            if let Some(entry) = self.entries.get(next).filter(|entry| tag_of(entry) == tag) {
                next += 1;
                return Some(Arc::clone(entry));
            }
            let by_tag = by_tag.get_or_insert_with(|| {
                let mut all: Vec<_> = self.entries.iter().map(|entry| tag_of(entry)).zip(0..).collect();
                all.sort_unstable();
                all
            });
            let found = by_tag.binary_search_by_key(&tag, |(tag, _)| *tag).ok();
            // An unknown entry has most likely replaced the expected one.
            next = found.map_or(next, |found| by_tag[found].1 as usize) + 1;
            found.map(|_| Arc::clone(&self.entries[next - 1]))
        };
        Partial { entries: tags_in(tags).map(&mut known).collect() }
    }

    fn place_of(&self, path: &[u8]) -> Option<usize> {
        self.entries.binary_search_by(|entry| entry.path.as_slice().cmp(path)).ok()
    }

    /// Returns the changes that turn this tree into `other`.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Delta {
        let mut delta = Delta::default();
        let mut changed: BTreeSet<usize> = BTreeSet::new();
        let mut before = self.entries.iter().peekable();
        for (place, entry) in other.entries.iter().enumerate() {
            // Most entries are identical.
            if before.next_if(|old| Arc::ptr_eq(old, entry)).is_some() {
                continue;
            }
            while let Some(old) = before.next_if(|old| old.path < entry.path) {
                other.note_removed(&old.path, &mut delta);
            }
            match before.next_if(|old| old.path == entry.path) {
                Some(old) if old.name() == entry.name() => {}
                _ => {
                    changed.insert(place);
                }
            }
        }
        before.for_each(|old| other.note_removed(&old.path, &mut delta));
        let mut needed = changed.clone();
        let changed = changed.iter().map(|&place| other.entries[place].path.as_slice());
        for path in changed.chain(delta.removed.iter().map(Vec::as_slice)) {
            needed.extend(above(path).filter_map(|above| other.place_of(above)));
        }
        delta.entries = needed.into_iter().map(|place| other.entries[place].entry().clone()).collect();
        delta
    }

    /// Adds a removed entry to `delta`. If its parent directory still exists, adds the directory as changed.
    fn note_removed(&self, path: &[u8], delta: &mut Delta) {
        let is_directory = |above: &[u8]| matches!(self.at(above), Some(Entry { kind: EntryKind::Directory, .. }));
        if above(path).next().is_none_or(is_directory) {
            delta.removed.push(path.to_vec());
        }
    }
}

impl Partial {
    /// Returns the indexes of the unknown entries.
    #[must_use]
    pub fn unknown(&self) -> Vec<u32> {
        (0..).zip(&self.entries).filter(|(_, known)| known.is_none()).map(|(place, _)| place).collect()
    }

    /// Completes the tree with the unknown entries `told`, in order.
    ///
    /// # Errors
    /// Fails when the result is invalid, or its digest is not `digest`.
    pub fn complete(self, digest: Digest, mode: u32, told: Vec<Entry>) -> Result<Tree, Fault> {
        if self.entries.len() > MOST_ENTRIES || told.len() > MOST_ENTRIES {
            return Err(Fault::TooMany);
        }
        let mut told = told.into_iter();
        let mut is_told = Vec::with_capacity(self.entries.len());
        let mut entries = Vec::with_capacity(self.entries.len());
        for known in self.entries {
            is_told.push(known.is_none());
            let told = || told.next().map(|entry| Arc::new(Named::new(entry)));
            entries.push(known.or_else(told).ok_or(Fault::OtherTree)?);
        }
        check_entries(entries.iter().map(|entry| entry.entry()).zip(is_told.iter().map(|is_told| !is_told)))?;
        let tree = Tree { mode: mode & 0o7777, entries };
        if told.next().is_some() || tree.digest() != digest {
            return Err(Fault::OtherTree);
        }
        Ok(tree)
    }
}

fn tag_of(entry: &Named) -> Tag {
    Tag::from_be_bytes(*entry.name().0.first_chunk().expect("a digest is longer than a tag"))
}

fn tags_in(bytes: &[u8]) -> impl Iterator<Item = Tag> {
    bytes.chunks_exact(TAG_BYTES).map(|tag| Tag::from_be_bytes(tag.try_into().expect("each chunk is as long as a tag")))
}

/// Returns the directories above `path`, nearest first.
fn above(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let parent = |path: &'_ [u8]| path.iter().rposition(|&byte| byte == b'/');
    std::iter::successors(parent(path).map(|end| &path[..end]), move |path| parent(path).map(|end| &path[..end]))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use hostler_proto::manifest::{Chunk, Content, Manifest, VERSION};
    use hostler_snapshot::check::check_but_links;
    use proptest::prelude::*;

    use super::*;

    fn entry(path: &str, kind: EntryKind) -> Entry {
        Entry { path: path.into(), mode: 0o644, modified_ns: 0, kind }
    }

    fn file(path: &str, text: &str) -> Entry {
        let chunk = Chunk { digest: digest_of(text.as_bytes()), len: text.len() as u32 };
        entry(path, EntryKind::File(Content { size: text.len() as u64, chunks: vec![chunk] }))
    }

    fn tree(entries: &[Entry]) -> Tree {
        let mut entries = entries.to_vec();
        entries.sort_by(|a, b| a.path.cmp(&b.path));
        named(entries)
    }

    fn named(entries: Vec<Entry>) -> Tree {
        Tree { mode: 0o755, entries: entries.into_iter().map(|entry| Arc::new(Named::new(entry))).collect() }
    }

    /// Generates trees with few names. Each name may be a file, a link, a directory or absent.
    fn trees() -> impl Strategy<Value = Tree> {
        prop::collection::btree_map("[ab](/[ab]){0,2}", 0_u8..6, 0..12).prop_map(|wanted| {
            let mut entries: BTreeMap<String, Entry> = BTreeMap::new();
            for (path, kind) in wanted {
                let parents: Vec<_> = path.match_indices('/').map(|(end, _)| path[..end].to_owned()).collect();
                let is_below_a_file = parents
                    .iter()
                    .any(|parent| entries.get(parent).is_some_and(|entry| entry.kind != EntryKind::Directory));
                if is_below_a_file {
                    continue;
                }
                for parent in parents {
                    entries.entry(parent.clone()).or_insert_with(|| entry(&parent, EntryKind::Directory));
                }
                let made = match kind {
                    0 => entry(&path, EntryKind::Directory),
                    1 => entry(&path, EntryKind::Symlink { target: b"x".into() }),
                    kind => file(&path, &format!("text {kind}")),
                };
                entries.insert(path, made);
            }
            named(entries.into_values().collect())
        })
    }

    /// Computes independently how an overlay shows a layer over a tree.
    fn overlaid(base: &Tree, delta: &Delta) -> BTreeMap<Vec<u8>, Entry> {
        let mut seen: BTreeMap<Vec<u8>, Entry> =
            base.entries.iter().map(|it| (it.path.clone(), it.entry().clone())).collect();
        let hide = |seen: &mut BTreeMap<Vec<u8>, Entry>, path: &[u8]| {
            let below = [path, b"/"].concat();
            seen.retain(|other, _| other != path && !other.starts_with(&below));
        };
        for path in &delta.removed {
            hide(&mut seen, path);
        }
        for entry in &delta.entries {
            let both = [seen.get(&entry.path), Some(entry)];
            if !both.iter().all(|it| it.is_some_and(|it| it.kind == EntryKind::Directory)) {
                hide(&mut seen, &entry.path);
            }
            seen.insert(entry.path.clone(), entry.clone());
        }
        seen
    }

    #[test]
    fn removed_directory_is_listed_once_with_its_parents() {
        let directory = |path| entry(path, EntryKind::Directory);
        let before = tree(&[directory("a"), directory("a/b"), file("a/b/c", "1"), file("a/d", "1"), file("e", "1")]);
        let after = tree(&[directory("a"), file("a/d", "1"), file("e", "2")]);
        let delta = before.difference(&after);
        assert_eq!(delta.removed, [b"a/b".to_vec()]);
        assert_eq!(delta.entries, [directory("a"), file("e", "2")]);
        assert_eq!(before.difference(&before), Delta::default());
    }

    proptest! {
        #[test]
        fn difference_over_the_old_tree_gives_the_new_one(before in trees(), after in trees()) {
            let delta = before.difference(&after);
            let expected = after.entries.iter().map(|it| (it.path.clone(), it.entry().clone())).collect();
            prop_assert_eq!(overlaid(&before, &delta), expected);
            let layer = Manifest { version: VERSION, entries: delta.entries.clone() };
            prop_assert!(check_but_links(&layer).is_ok(), "a layer has all directories that it needs");
            for path in &delta.removed {
                prop_assert!(above(path).all(|above| delta.entries.iter().any(|it| it.path == above)));
            }
        }

        #[test]
        fn only_unknown_entries_are_sent(before in trees(), after in trees()) {
            let (digest, tags) = after.digest_and_tags();
            let known = || before.recognise(&tags);
            let told: Vec<Entry> =
                known().unknown().into_iter().map(|place| after.entries[place as usize].entry().clone()).collect();
            prop_assert!(told.iter().all(|entry| before.entries.iter().all(|it| it.entry() != entry)));
            prop_assert_eq!(&known().complete(digest, 0o755, told.clone()).expect("the digest matches"), &after);
            prop_assert!(known().complete(digest, 0o700, told.clone()).is_err(), "a wrong mode is refused");
            let more = [told, vec![file("z", "more")]].concat();
            prop_assert!(known().complete(digest, 0o755, more).is_err(), "additional entries are refused");
        }

        #[test]
        fn hostile_descriptions_are_errors(before in trees(), tags: Vec<u8>, paths: Vec<String>) {
            let told: Vec<_> = paths.iter().map(|path| file(path, "x")).collect();
            let _ = Tree::default().recognise(&tags).complete(digest_of(b""), 0, told.clone());
            let known = before.entries.iter().flat_map(|entry| entry.name().0[..TAG_BYTES].to_vec());
            let tags: Vec<u8> = known.chain(tags).collect();
            prop_assert!(before.recognise(&tags).complete(digest_of(b""), 0, told).is_err());
        }

        #[test]
        fn known_entries_are_accepted_only_in_a_valid_tree(mut order in Just(vec![0_usize, 1, 2, 3]).prop_shuffle()) {
            let directory = |path| entry(path, EntryKind::Directory);
            let base = tree(&[directory("a"), directory("a/b"), file("a/b/c", "1"), file("d", "1")]);
            let is_sorted = order.is_sorted();
            for count in (1..=4).rev() {
                order.truncate(count);
                let entries: Vec<_> = order.iter().map(|&at| Arc::clone(&base.entries[at])).collect();
                let mixed = Tree { mode: 0o755, entries };
                let (digest, tags) = mixed.digest_and_tags();
                let whole = order.iter().enumerate().all(|(at, place)| *place == 3 || *place == at);
                let answer = base.recognise(&tags).complete(digest, 0o755, Vec::new());
                prop_assert_eq!(answer.is_ok(), order.is_sorted() && whole, "{:?}", order);
                prop_assert!(!is_sorted || answer.is_ok());
            }
        }
    }

    #[test]
    fn paths_outside_the_tree_are_refused() {
        for path in ["../x", "/etc/passwd", "a/../../x", "", "a//b"] {
            let bad = tree(&[file(path, "x")]);
            let (digest, tags) = bad.digest_and_tags();
            let told = bad.entries.iter().map(|it| it.entry().clone()).collect();
            let answer = Tree::default().recognise(&tags).complete(digest, bad.mode, told);
            assert!(matches!(answer, Err(Fault::Malformed(_))), "{path}");
        }
    }
}
