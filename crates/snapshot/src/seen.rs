//! What the files of a folder held when it was last captured, so that those that did not change need not be read again.
//!
//! As with every such index, the kernel's metadata stand for the content: size, inode, the time of the last modification, and
//! that of the last change of metadata, which programs cannot set. A file that had changed only just before it was read is not
//! remembered, as a later change could bear the same time. The memory is a shortcut, not a truth: chunks are checked
//! when they are read for an upload, and without a memory every file is read.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::Path;

use hostler_proto::manifest::Content;
use serde_bytes::ByteBuf;

use crate::baseline::{Mark, ticking_clock};
use crate::beneath::Stat;

/// How old the last change of a file must be before it is remembered, in nanoseconds: the coarsest stamps that file systems
/// give, which are those of FAT.
const SETTLED_NS: i64 = 2_000_000_000;

/// Whether what was found at or after `now`, by [`Seen::now`], can no longer change without showing.
pub(crate) fn is_settled(stat: &Stat, now: i64) -> bool {
    stat.changed_ns.max(stat.modified_ns).saturating_add(SETTLED_NS) < now
}

/// The contents of a folder's files, by path. Empty by default, which makes every file be read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Seen {
    files: HashMap<Vec<u8>, (Mark, Content)>,
}

/// The file's form: a version, then paths with marks and contents.
type Stored = (u16, Vec<(ByteBuf, Mark, Content)>);

const VERSION: u16 = 1;

impl Seen {
    /// Reads what [`Seen::save`] wrote; empty when there is nothing that can be understood.
    #[must_use]
    pub fn load(path: &Path) -> Self {
        match fs::read(path).map(|bytes| rmp_serde::from_slice::<Stored>(&bytes)) {
            Ok(Ok((VERSION, files))) => Self {
                files: files.into_iter().map(|(path, mark, content)| (path.into_vec(), (mark, content))).collect(),
            },
            _ => Self::default(),
        }
    }

    /// Writes it to `path`, replacing what is there as a whole.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn save(&self, path: &Path) -> io::Result<()> {
        let files = self.files.iter();
        let files =
            files.map(|(path, (mark, content))| (ByteBuf::from(path.clone()), *mark, content.clone())).collect();
        let stored: Stored = (VERSION, files);
        let encoded = rmp_serde::to_vec(&stored).expect("numbers and byte strings can always be encoded");
        hostler_sys::replace_file_unflushed(path, &encoded, 0o600)
    }

    /// How many files it remembers.
    #[must_use]
    pub fn len(&self) -> usize {
        self.files.len()
    }

    /// Whether it remembers nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// What the file held, if it is the same by all that the kernel says.
    pub(crate) fn recall(&self, path: &[u8], stat: &Stat) -> Option<&Content> {
        self.files.get(path).filter(|(mark, _)| *mark == Mark::from(stat)).map(|(_, content)| content)
    }

    /// Remembers what a file holds that was read after `now`, by [`Seen::now`].
    pub(crate) fn remember(&mut self, path: &[u8], stat: &Stat, content: &Content, now: i64) {
        if is_settled(stat, now) {
            self.files.insert(path.to_vec(), (Mark::from(stat), content.clone()));
        }
    }

    /// The clock that files are stamped with.
    pub(crate) fn now() -> i64 {
        ticking_clock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::beneath::Kind;

    const SECOND: i64 = 1_000_000_000;

    fn stat() -> Stat {
        Stat { kind: Kind::File, mode: 0o644, size: 3, modified_ns: 5 * SECOND, changed_ns: 6 * SECOND, inode: 9 }
    }

    #[test]
    fn what_changed_just_now_is_not_remembered() {
        let mut seen = Seen::default();
        seen.remember(b"a", &stat(), &Content::default(), 7 * SECOND);
        assert!(seen.is_empty());
        seen.remember(b"a", &stat(), &Content::default(), 9 * SECOND);
        assert!(seen.recall(b"a", &stat()).is_some());
        assert!(seen.recall(b"b", &stat()).is_none());
        for other in [
            Stat { changed_ns: 7 * SECOND, ..stat() },
            Stat { modified_ns: 4 * SECOND, ..stat() },
            Stat { size: 4, ..stat() },
            Stat { inode: 8, ..stat() },
        ] {
            assert!(seen.recall(b"a", &other).is_none(), "{other:?}");
        }
    }

    #[test]
    fn a_damaged_memory_is_an_empty_one() {
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        let path = directory.path().join("seen");
        let mut seen = Seen::default();
        seen.remember(b"a\xff", &stat(), &Content::default(), 99 * SECOND);
        seen.save(&path).expect("writable");
        assert_eq!(Seen::load(&path), seen);
        fs::write(&path, b"something else").expect("writable");
        assert!(Seen::load(&path).is_empty());
        assert!(Seen::load(&directory.path().join("none")).is_empty());
    }
}
