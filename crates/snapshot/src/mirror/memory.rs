//! The state of a tree at its last survey, so that the next survey need not read the whole tree.
//!
//! As in [`Seen`](crate::Seen), equal metadata mean equal content, except for a file that changed just before the
//! survey. Directories are remembered as well: an unchanged directory holds the same names, so it is
//! not read again. The memory is only a cache: chunks are checked when they are read, and without a memory everything
//! is read.
//!
//! The format is one run of bytes with a record per entry, sorted by path. It is read at once and traversed front to
//! back; records are decoded only when needed.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::Path;

use hostler_model::Digest;
use hostler_proto::manifest::{Chunk, Content, Entry, EntryKind};
use nix::unistd::Uid;

use crate::baseline::Mark;
use crate::beneath::{Kind, Stat};
use crate::chunk::digest_of;

/// The first bytes of the file, which identify the record format. Each change of the format needs another value.
const MAGIC: [u8; 8] = *b"hsttree4";

/// The size of the header in bytes: [`MAGIC`], the user's uid, and the digest of the records.
const HEAD_BYTES: usize = MAGIC.len() + 4 + 32;

/// The size of a record without its path and its rest, in bytes.
const FIXED_BYTES: usize = 80;

/// The size of a chunk in a record, in bytes: its digest and its length.
const CHUNK_BYTES: usize = 36;

/// The remembered metadata and digests of a tree's entries. The default is empty: every entry counts as new.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Memory {
    bytes: Vec<u8>,
    /// Where each record begins in `bytes`.
    places: Vec<u32>,
}

/// A remembered entry of the tree. The first record describes the root directory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Record<'m> {
    pub(crate) path: &'m [u8],
    pub(crate) kind: Kind,
    /// Whether equal metadata prove that the entry is unchanged. Otherwise, a change within the same tick may be
    /// invisible.
    pub(crate) is_settled: bool,
    /// The index of the record of the parent directory.
    pub(crate) parent: usize,
    pub(crate) mark: Mark,
    /// The digest of the entry.
    pub(crate) name: Digest,
    /// The chunks of a file, or the target of a link.
    rest: &'m [u8],
}

/// Writes a new memory, one entry at a time.
pub(crate) struct Writer {
    bytes: Vec<u8>,
    directories: HashMap<Vec<u8>, u32>,
    count: u32,
}

impl Memory {
    /// Reads a memory that [`Memory::save`] wrote. Returns an empty memory if the file is missing, invalid or another
    /// user's.
    #[must_use]
    pub fn load(path: &Path) -> Self {
        fs::read(path).ok().and_then(Self::understood).unwrap_or_default()
    }

    /// Writes the memory to `path` and replaces an existing file atomically.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn save(&self, path: &Path) -> io::Result<()> {
        hostler_sys::replace_file_unflushed(path, &self.bytes, 0o600)
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    /// Returns the record at `index`, which must be less than [`Memory::len`].
    pub(crate) fn record(&self, index: usize) -> Record<'_> {
        let at = self.places[index] as usize;
        record_at(&self.bytes[at..]).expect("the record was valid when the memory was read").0
    }

    /// Returns the index of the record of `path`.
    pub(crate) fn find(&self, path: &[u8]) -> Option<usize> {
        self.places.binary_search_by(|&at| path_at(&self.bytes[at as usize..]).cmp(path)).ok()
    }

    fn understood(bytes: Vec<u8>) -> Option<Self> {
        let (head, records) = bytes.split_at_checked(HEAD_BYTES)?;
        if head != head_of(records) {
            return None;
        }
        let mut places = Vec::with_capacity(records.len() / (FIXED_BYTES + CHUNK_BYTES));
        let mut at = HEAD_BYTES;
        while at < bytes.len() {
            let (record, length) = record_at(&bytes[at..])?;
            if record.parent >= places.len().max(1) {
                return None;
            }
            places.push(u32::try_from(at).ok()?);
            at += length;
        }
        Some(Self { bytes, places })
    }
}

impl Record<'_> {
    /// Returns whether the entry is unchanged: the record is settled, and all metadata match `stat`.
    pub(crate) fn is(&self, stat: &Stat) -> bool {
        self.is_settled && self.kind == stat.kind && self.mark == Mark::from(stat)
    }

    /// Decodes the entry.
    pub(crate) fn entry(&self) -> Entry {
        let kind = match self.kind {
            Kind::File => EntryKind::File(Content { size: self.mark.size, chunks: self.chunks().collect() }),
            Kind::Symlink => EntryKind::Symlink { target: self.rest.to_vec() },
            _ => EntryKind::Directory,
        };
        let modified_ns = if self.kind == Kind::Directory { 0 } else { self.mark.modified_ns };
        Entry { path: self.path.to_vec(), mode: self.mark.mode, modified_ns, kind }
    }

    fn chunks(&self) -> impl Iterator<Item = Chunk> {
        self.rest.chunks_exact(CHUNK_BYTES).map(|chunk| {
            let (digest, len) = chunk.split_at(32);
            Chunk { digest: Digest(digest.try_into().expect("split there")), len: number(len) as u32 }
        })
    }
}

impl Writer {
    /// Creates a memory that contains the metadata of the root directory.
    pub(crate) fn of(root: &Stat, is_settled: bool) -> Self {
        let mut writer = Self { bytes: vec![0; HEAD_BYTES], directories: HashMap::new(), count: 0 };
        writer.add(&[], root.kind, is_settled, &Mark::from(root), &Digest([0; 32]), |_| ());
        writer
    }

    /// Adds an entry. Entries must be added in the order of their paths.
    pub(crate) fn entry(&mut self, entry: &Entry, name: &Digest, stat: &Stat, is_settled: bool) {
        self.add(&entry.path, stat.kind, is_settled, &Mark::from(stat), name, |bytes| match &entry.kind {
            EntryKind::File(content) => content.chunks.iter().for_each(|chunk| {
                bytes.extend(chunk.digest.0);
                bytes.extend(chunk.len.to_le_bytes());
            }),
            EntryKind::Symlink { target } => bytes.extend(target),
            EntryKind::Directory => {}
        });
    }

    /// Adds an unchanged record from an earlier memory.
    pub(crate) fn again(&mut self, record: &Record<'_>, is_settled: bool) {
        let Record { path, kind, mark, name, rest, .. } = *record;
        self.add(path, kind, is_settled, &mark, &name, |bytes| bytes.extend(rest));
    }

    pub(crate) fn finish(mut self) -> Memory {
        let (head, records) = self.bytes.split_at_mut(HEAD_BYTES);
        head.copy_from_slice(&head_of(records));
        Memory::understood(self.bytes).unwrap_or_default()
    }

    fn add(
        &mut self,
        path: &[u8],
        kind: Kind,
        is_settled: bool,
        mark: &Mark,
        name: &Digest,
        rest: impl FnOnce(&mut Vec<u8>),
    ) {
        let parent = self.directories.get(crate::paths::parent(path)).copied().unwrap_or(0);
        if kind == Kind::Directory {
            self.directories.insert(path.to_vec(), self.count);
        }
        let Mark { size, modified_ns, changed_ns, inode, mode } = *mark;
        let begin = self.bytes.len();
        let kind = match kind {
            Kind::File => 0,
            Kind::Symlink => 1,
            _ => 2,
        };
        self.bytes.extend([kind, u8::from(is_settled)]);
        self.bytes.extend((path.len() as u16).to_le_bytes());
        self.bytes.extend([0; 4]);
        self.bytes.extend(parent.to_le_bytes());
        self.bytes.extend(mode.to_le_bytes());
        for word in [size, modified_ns.cast_unsigned(), changed_ns.cast_unsigned(), inode] {
            self.bytes.extend(word.to_le_bytes());
        }
        self.bytes.extend(name.0);
        self.bytes.extend(path);
        let before = self.bytes.len();
        rest(&mut self.bytes);
        let length = (self.bytes.len() - before) as u32;
        self.bytes[begin + 4..begin + 8].copy_from_slice(&length.to_le_bytes());
        self.count += 1;
    }
}

/// Returns the header for `records`. A file with another header was written by another user, or is damaged.
fn head_of(records: &[u8]) -> [u8; HEAD_BYTES] {
    let mut head = [0; HEAD_BYTES];
    let (magic, rest) = head.split_at_mut(MAGIC.len());
    magic.copy_from_slice(&MAGIC);
    rest[..4].copy_from_slice(&Uid::effective().as_raw().to_le_bytes());
    rest[4..].copy_from_slice(&digest_of(records).0);
    head
}

/// Decodes the first record of `bytes`. Also returns its length.
fn record_at(bytes: &[u8]) -> Option<(Record<'_>, usize)> {
    let (fixed, more) = bytes.split_at_checked(FIXED_BYTES)?;
    let kind = match fixed[0] {
        0 => Kind::File,
        1 => Kind::Symlink,
        2 => Kind::Directory,
        _ => return None,
    };
    let [size, modified, changed, inode] = [16, 24, 32, 40].map(|at| number(&fixed[at..at + 8]));
    let mark = Mark {
        size,
        modified_ns: modified.cast_signed(),
        changed_ns: changed.cast_signed(),
        inode,
        mode: number(&fixed[12..16]) as u32,
    };
    let (path, more) = more.split_at_checked(number(&fixed[2..4]) as usize)?;
    let rest = more.get(..number(&fixed[4..8]) as usize)?;
    let name = Digest(*fixed.last_chunk()?);
    let parent = number(&fixed[8..12]) as usize;
    let length = FIXED_BYTES + path.len() + rest.len();
    let is_settled = fixed[1] & 1 != 0;
    Some((Record { path, kind, is_settled, parent, mark, name, rest }, length))
}

/// Returns the path of the first record of `bytes`, which must be valid.
fn path_at(bytes: &[u8]) -> &[u8] {
    &bytes[FIXED_BYTES..][..number(&bytes[2..4]) as usize]
}

/// Decodes a little-endian number of up to eight bytes.
fn number(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(word)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn stat(kind: Kind, inode: u64) -> Stat {
        Stat { kind, mode: 0o644, size: 3, modified_ns: -5, changed_ns: 7, inode }
    }

    fn memory() -> Memory {
        let content = Content { size: 3, chunks: vec![Chunk { digest: digest_of(b"abc"), len: 3 }] };
        let entry = |path: &[u8], kind| Entry { path: path.to_vec(), mode: 0o644, modified_ns: -5, kind };
        let mut writer = Writer::of(&stat(Kind::Directory, 1), true);
        let directory = Entry { modified_ns: 0, ..entry(b"d\xff", EntryKind::Directory) };
        writer.entry(&directory, &digest_of(b"d"), &stat(Kind::Directory, 2), true);
        let file = entry(b"d\xff/f", EntryKind::File(content));
        writer.entry(&file, &digest_of(b"f"), &stat(Kind::File, 3), true);
        let link = entry(b"link", EntryKind::Symlink { target: b"../x".to_vec() });
        writer.entry(&link, &digest_of(b"l"), &stat(Kind::Symlink, 4), false);
        writer.finish()
    }

    #[test]
    fn saved_memory_is_loaded_unchanged() {
        let folder = tempfile::tempdir().expect("a temporary directory can be made");
        let path = folder.path().join("memory");
        memory().save(&path).expect("writable");
        let read = Memory::load(&path);
        assert_eq!((read.len(), &read), (4, &memory()));
        let [directory, file, link] = [1, 2, 3].map(|index| read.record(index));
        assert_eq!((directory.path, directory.parent, file.parent, link.parent), (&b"d\xff"[..], 0, 1, 0));
        assert!(matches!(file.entry().kind, EntryKind::File(content) if content.chunks[0].digest == digest_of(b"abc")));
        assert_eq!(link.entry().kind, EntryKind::Symlink { target: b"../x".to_vec() });
        assert_eq!(file.name, digest_of(b"f"));
        assert_eq!((read.find(b"d\xff/f"), read.find(b"d"), read.find(b"")), (Some(2), None, Some(0)));
        assert!(file.is(&stat(Kind::File, 3)) && !file.is(&stat(Kind::File, 4)) && !file.is(&stat(Kind::Symlink, 3)));
        assert!(!file.is(&Stat { changed_ns: 8, ..stat(Kind::File, 3) }));
        assert!(!link.is(&stat(Kind::Symlink, 4)), "the link changed just before the survey");
        let mut again = Writer::of(&stat(Kind::Directory, 1), true);
        (1..4).for_each(|index| again.again(&read.record(index), read.record(index).is_settled));
        assert_eq!(again.finish(), read);
    }

    #[test]
    fn damaged_memory_is_read_as_empty() {
        let whole = memory().bytes;
        for length in 0..whole.len() {
            assert!(Memory::understood(whole[..length].to_vec()).is_none(), "{length}");
        }
        for at in 0..whole.len() {
            let mut bad = whole.clone();
            bad[at] ^= 1;
            assert!(Memory::understood(bad).is_none(), "{at}");
        }
        assert!(Memory::load(Path::new("/nowhere")).is_empty());
    }

    proptest! {
        #[test]
        fn arbitrary_records_never_panic(records: Vec<u8>) {
            let bytes = [&head_of(&records)[..], &records].concat();
            let _ = Memory::understood(bytes);
        }
    }
}
