//! The metadata of a work directory right after layout. It lets [`changes`](crate::changes()) find changes without
//! reading every file.
//!
//! A baseline is only a cache. A file with other metadata is hashed; without a baseline, every file is. Losing a
//! baseline costs time but no correctness. It is saved to a file, so a restarted agent still finds the changes of a
//! running job quickly.

use std::io;
use std::path::Path;
use std::thread;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use serde_bytes::{ByteBuf, Bytes};

use crate::beneath::{Stat, nanoseconds};
use crate::index_file::{self, ByPath};

/// Metadata of the files in a work directory right after layout, to find changed files later. The default is empty:
/// every file may have changed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Baseline {
    files: ByPath<Mark>,
}

/// File metadata. A file counts as unchanged if all fields match. Programs cannot set the ctime, so a restored
/// modification time does not hide a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Mark {
    pub(crate) size: u64,
    pub(crate) modified_ns: i64,
    pub(crate) changed_ns: i64,
    pub(crate) inode: u64,
    pub(crate) mode: u32,
}

impl Baseline {
    pub(crate) fn record(&mut self, path: &[u8], stat: &Stat) {
        self.files.insert(ByteBuf::from(path), Mark::from(stat));
    }

    /// Returns whether `path` still has the metadata that it was laid out with.
    pub(crate) fn is_untouched(&self, path: &[u8], stat: &Stat) -> bool {
        self.files.get(Bytes::new(path)) == Some(&Mark::from(stat))
    }

    /// Returns the permission bits of `path` at layout.
    pub(crate) fn mode(&self, path: &[u8]) -> Option<u32> {
        self.files.get(Bytes::new(path)).map(|mark| mark.mode)
    }

    /// Makes later changes visible in the metadata.
    ///
    /// Before Linux 6.13, file systems stamp changes with a clock that ticks every few milliseconds. A second change
    /// within one tick keeps the stamp. This function marks files of the current tick, so that they are hashed later.
    /// If hashing them would take longer than a tick, it waits for the next tick instead.
    pub(crate) fn settle(&mut self) {
        const WORTH_A_TICK_BYTES: u64 = 4 << 20;
        let now = ticking_clock();
        let mut recent: Vec<&mut Mark> = self.files.values_mut().filter(|mark| mark.changed_ns >= now).collect();
        if recent.iter().map(|mark| mark.size).sum::<u64>() > WORTH_A_TICK_BYTES {
            // The loop is bounded: stamps far in the future come from another machine's clock, and waiting does not
            // help.
            for _ in 0..20 {
                if recent.is_empty() {
                    break;
                }
                thread::sleep(Duration::from_millis(1));
                let now = ticking_clock();
                recent.retain(|mark| mark.changed_ns >= now);
            }
        }
        recent.into_iter().for_each(|mark| mark.changed_ns = Mark::NEVER);
    }

    pub(crate) fn merge(&mut self, other: Self) {
        self.files.extend(other.files);
    }

    /// Writes the baseline to `path` and replaces an existing file atomically.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn save(&self, path: &Path) -> io::Result<()> {
        index_file::save(path, &self.files)
    }

    /// Reads a baseline that [`Baseline::save`] wrote; empty if it is missing or invalid.
    #[must_use]
    pub fn load(path: &Path) -> Self {
        Self { files: index_file::load(path) }
    }
}

impl Mark {
    /// A time stamp that no file has.
    const NEVER: i64 = i64::MIN;
}

/// Returns the time of the kernel's coarse clock, which stamps files, in nanoseconds since the epoch.
pub(crate) fn ticking_clock() -> i64 {
    let time = clock_gettime(ClockId::CLOCK_REALTIME_COARSE).expect("Linux has this clock since 2.6.32");
    nanoseconds(time.tv_sec(), time.tv_nsec())
}

impl From<&Stat> for Mark {
    fn from(stat: &Stat) -> Self {
        let &Stat { size, modified_ns, changed_ns, inode, mode, .. } = stat;
        Self { size, modified_ns, changed_ns, inode, mode }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::beneath::Kind;

    #[test]
    fn survives_a_restart_and_is_empty_when_damaged() {
        let dir = tempfile::tempdir().expect("a temporary directory can be made");
        let path = dir.path().join("baseline");
        let stat = Stat { kind: Kind::File, mode: 0o644, size: 3, modified_ns: -5, changed_ns: 7, inode: 9 };
        let mut baseline = Baseline::default();
        baseline.record(b"a\xff/b", &stat);
        baseline.save(&path).expect("writable");
        assert_eq!(Baseline::load(&path), baseline);
        assert!(baseline.is_untouched(b"a\xff/b", &stat));
        assert!(!baseline.is_untouched(b"a\xff/b", &Stat { changed_ns: 8, ..stat }));
        assert!(!baseline.is_untouched(b"other", &stat));

        std::fs::write(&path, b"something else").expect("writable");
        assert_eq!(Baseline::load(&path), Baseline::default());
        assert_eq!(Baseline::load(&dir.path().join("none")), Baseline::default());
    }
}
