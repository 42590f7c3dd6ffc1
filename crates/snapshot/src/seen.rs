//! The contents of a folder's files at its last capture, so that unchanged files need not be read again.
//!
//! As in every such index, a file with equal metadata counts as unchanged: size, inode, mtime, and ctime, which
//! programs cannot set. A file changed just before it was read is not remembered, because a later change could have the same
//! time. The index is only a cache: chunks are checked when they are read for an upload, and without an index every
//! file is read.

use std::io;
use std::path::Path;

use hostler_proto::manifest::Content;
use serde::{Deserialize, Serialize};
use serde_bytes::{ByteBuf, Bytes};

use crate::baseline::{Mark, ticking_clock};
use crate::beneath::Stat;
use crate::index_file::{self, ByPath};

/// How old the last change of a file must be before the file is remembered, in nanoseconds: the precision of FAT, whose
/// time stamps are the coarsest.
const SETTLED_NS: i64 = 2_000_000_000;

/// Returns whether the metadata will show any later change of a file that was found at or after `now` (see
/// [`Seen::now`]).
pub(crate) fn is_settled(stat: &Stat, now: i64) -> bool {
    stat.changed_ns.max(stat.modified_ns).saturating_add(SETTLED_NS) < now
}

/// The contents of a folder's files by path. The default is empty: every file is read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Seen {
    files: ByPath<SeenFile>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct SeenFile {
    mark: Mark,
    content: Content,
}

impl Seen {
    /// Reads an index that [`Seen::save`] wrote; empty if it is missing or invalid.
    #[must_use]
    pub fn load(path: &Path) -> Self {
        Self { files: index_file::load(path) }
    }

    /// Writes the index to `path` and replaces an existing file atomically.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn save(&self, path: &Path) -> io::Result<()> {
        index_file::save(path, &self.files)
    }

    /// Returns the number of remembered files.
    #[must_use]
    pub fn len(&self) -> usize {
        self.files.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Returns the content of the file if all its metadata match.
    pub(crate) fn recall(&self, path: &[u8], stat: &Stat) -> Option<&Content> {
        let file = self.files.get(Bytes::new(path)).filter(|file| file.mark == Mark::from(stat));
        file.map(|file| &file.content)
    }

    /// Remembers the content of a file that was read after `now` (see [`Seen::now`]).
    pub(crate) fn remember(&mut self, path: &[u8], stat: &Stat, content: &Content, now: i64) {
        if is_settled(stat, now) {
            let file = SeenFile { mark: Mark::from(stat), content: content.clone() };
            self.files.insert(ByteBuf::from(path), file);
        }
    }

    /// Returns the time of the clock that stamps files, in nanoseconds.
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
    fn recently_changed_files_are_not_remembered() {
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
    fn damaged_memory_is_read_as_empty() {
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        let path = directory.path().join("seen");
        let mut seen = Seen::default();
        seen.remember(b"a\xff", &stat(), &Content::default(), 99 * SECOND);
        seen.save(&path).expect("writable");
        assert_eq!(Seen::load(&path), seen);
        std::fs::write(&path, b"something else").expect("writable");
        assert!(Seen::load(&path).is_empty());
        assert!(Seen::load(&directory.path().join("none")).is_empty());
    }
}
