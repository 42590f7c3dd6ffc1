//! Whole files beside the chunks, so that a file can be laid out by sharing blocks instead of writing it.
//!
//! On a file system that can (btrfs, XFS), a file that is laid out for the second time is put together once in `whole/`, and
//! from then on every directory gets a clone of it (`FICLONE`): an instant, whatever its size, and no room on the disk until
//! somebody writes. A clone is a file like any other, so a job may do with it what it likes. What is used once costs nothing.
//!
//! **Whole files are a shortcut.** Their chunks are there as well, and whatever goes wrong here — no room, a damaged file,
//! another file system — the file is written from those. They lie under the hash of their list of chunks, appear by renaming
//! and are never synced: what a power cut tore is found like any damage, for a whole file is read and compared with the
//! hashes of its chunks when it is first used after a start, and whenever its metadata are not those it had then. They count
//! towards the store's size and are evicted with the chunks, before those that they were used with.
//!
//! **Why not copies elsewhere.** Where blocks cannot be shared (ext4), copying a whole file takes half to three quarters of
//! the processor time of putting it together from chunks, as measured for files of 50 KiB to 4 MiB: some 50 ms less for
//! 100 MiB. For that it would keep everything on the disk twice, write as much as before and once more to begin with, and give
//! up checking every byte that is laid out. So such a file system is noticed when the store is opened, and nothing is kept.
//!
//! **Why never hard links.** A link is the same inode. Who owns it can make it writable and change the cache and every other
//! job's file; a job runs as the agent's own user or owns its files, so it can. Were the inode somebody else's and without
//! write bits, the job could not `chmod` or `touch` its own files, and files of equal content would have one mode and one
//! time between them. And in every case the next link made or removed moves the inode's change time, by which
//! [`Baseline`](crate::Baseline) tells untouched files: each run's start would make all others read everything they have.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use hostler_model::Digest;
use hostler_proto::manifest::Content;
use nix::errno::Errno;
use nix::sys::stat::futimens;
use nix::sys::time::TimeSpec;

use super::{Buffers, ChunkStore, ContentError, Freed, StoreError, is_disk_full, place_in};
use crate::beneath::{Stat, nanoseconds};
use crate::chunk::digest_of;
use crate::remove::remove_tree;

/// Shorter files are written from their chunks. Cloning takes as long for a byte as for a gigabyte, about as long as writing
/// this much; and a clone is not in the page cache, so the job reads it from the disk.
const WORTH_SHARING_BYTES: u64 = 128 << 10;

/// What the store knows of whole files.
#[derive(Debug, Default)]
pub(super) struct WholeFiles {
    /// Set when clones turned out not to work where folders are laid out, say on another file system.
    is_off: AtomicBool,
    known: Mutex<HashMap<Digest, Known>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    /// It was laid out once.
    Seen,
    /// A thread is putting it together.
    BeingMade,
    /// Its content was right when its metadata were these.
    Right(Stat),
}

impl ChunkStore {
    /// Keeps whole files as well, to share their blocks when a folder is laid out, if the file system can; see
    /// [`ChunkStore::shares_files`]. Fit for a cache.
    #[must_use]
    pub fn sharing_files(mut self) -> Self {
        if self.can_clone() {
            self.whole = Some(WholeFiles::default());
        } else {
            // Left from a time when it could.
            let _ = remove_tree(&self.whole_directory());
        }
        self
    }

    /// Whether unchanged files share their blocks with what was laid out before.
    #[must_use]
    pub fn shares_files(&self) -> bool {
        self.sharing().is_some()
    }

    /// Gives `target`, an empty file, this content by sharing the blocks of a whole file. `false` when it did not: the file is
    /// empty still, and to be written.
    ///
    /// # Errors
    /// When a chunk that it is to be made of cannot be read.
    pub(crate) fn share_content(
        &self,
        content: &Content,
        target: &File,
        buffers: &mut Buffers,
    ) -> Result<bool, ContentError> {
        let Some(whole) = self.sharing().filter(|_| content.size >= WORTH_SHARING_BYTES) else { return Ok(false) };
        let key = key_of(content);
        let source = match self.right_file(whole, &key, content, buffers) {
            Some(file) => Some(file),
            None if whole.should_make(&key) => self.make(whole, &key, content, buffers)?,
            None => None,
        };
        let Some(source) = source else { return Ok(false) };
        match clone(&source, target) {
            Ok(()) => Ok(true),
            Err(error) => {
                // A full disk passes; anything else would only be met again.
                whole.is_off.fetch_or(!is_disk_full(&error), Ordering::Relaxed);
                target.set_len(0).map_err(ContentError::Write)?;
                Ok(false)
            }
        }
    }

    /// Whether laying out this content would probably take no room.
    pub(crate) fn has_whole(&self, content: &Content) -> bool {
        let is_there = || fs::symlink_metadata(self.whole_path_of(&key_of(content))).is_ok();
        self.shares_files() && content.size >= WORTH_SHARING_BYTES && is_there()
    }

    /// Removes every whole file, which frees what no job's directory shares, and waits until the file system counts it as free.
    ///
    /// # Errors
    /// Those of the file system.
    pub(crate) fn remove_whole_files(&self) -> Result<Freed, StoreError> {
        let mut freed = Freed::default();
        if self.sharing().is_some() {
            let mut files = Vec::new();
            super::each_in(&self.whole_directory(), super::StoredKind::WholeFile, &mut |it| files.push(it))?;
            for file in files {
                if Self::remove_locked(&mut self.ledger(), self.whole_path_of(&file.digest))? {
                    freed.count(&file);
                }
            }
        }
        if freed.files > 0 {
            // btrfs frees when it commits, XFS in the background. If it does not tell, the next write will.
            let _ = nix::unistd::syncfs(&self.handle);
        }
        Ok(freed)
    }

    pub(super) fn whole_directory(&self) -> PathBuf {
        self.directory.join("whole")
    }

    pub(super) fn whole_path_of(&self, key: &Digest) -> PathBuf {
        place_in(&self.whole_directory(), key)
    }

    fn sharing(&self) -> Option<&WholeFiles> {
        self.whole.as_ref().filter(|whole| !whole.is_off.load(Ordering::Relaxed))
    }

    /// Tries with a small file whether two can share blocks here.
    fn can_clone(&self) -> bool {
        let (from, to) = (self.scratch.next_path(), self.scratch.next_path());
        let try_it = || -> io::Result<()> {
            fs::write(&from, [7; 4096])?;
            clone(&File::open(&from)?, &File::create_new(&to)?)
        };
        let answer = try_it();
        let _ = (fs::remove_file(&from), fs::remove_file(&to));
        answer.is_ok()
    }

    /// The whole file, if it is there and right. A wrong one is removed.
    fn right_file(&self, whole: &WholeFiles, key: &Digest, content: &Content, buffers: &mut Buffers) -> Option<File> {
        let path = self.whole_path_of(key);
        let mut file = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW).open(&path).ok()?;
        if whole.believes(key, &file, None) {
            return Some(file);
        }
        let before = Stat::of(&file).ok()?;
        if before.size == content.size && holds(&mut file, content, buffers) {
            // Its metadata are others only if another thread has just renewed it, or somebody is at work on it.
            return whole.believes(key, &file, Some(before)).then_some(file);
        }
        // If it cannot be removed, it is found to be wrong again.
        let _ = Self::remove_locked(&mut self.ledger(), path);
        None
    }

    /// Puts the whole file together. `None` when it cannot be written, which is no reason not to lay out.
    fn make(
        &self,
        whole: &WholeFiles,
        key: &Digest,
        content: &Content,
        buffers: &mut Buffers,
    ) -> Result<Option<File>, ContentError> {
        let temporary = self.scratch.next_path();
        let made = self.write_whole(&temporary, key, content, buffers);
        let known = match &made {
            Ok((_, stat)) => Known::Right(*stat),
            Err(_) => Known::Seen,
        };
        whole.known().insert(*key, known);
        match made {
            Ok((file, _)) => Ok(Some(file)),
            Err(error) => {
                // Best effort: what stays is removed when the store is next opened.
                let _ = fs::remove_file(&temporary);
                if matches!(error, ContentError::Write(_)) { Ok(None) } else { Err(error) }
            }
        }
    }

    fn write_whole(
        &self,
        temporary: &Path,
        key: &Digest,
        content: &Content,
        buffers: &mut Buffers,
    ) -> Result<(File, Stat), ContentError> {
        // Without write permission: a job that strays here as our user has to mean it.
        let mut file = (OpenOptions::new().read(true).write(true).create_new(true).mode(0o400))
            .open(temporary)
            .map_err(ContentError::Write)?;
        self.write_content(content, &mut file, buffers)?;
        self.publish(temporary, &self.whole_path_of(key), content.size).map_err(ContentError::Write)?;
        let stat = Stat::of(&file).map_err(ContentError::Write)?;
        Ok((file, stat))
    }
}

impl WholeFiles {
    /// Whether an open file's metadata are those that it had when its content was last known to be right, or those it had when
    /// it was verified just now. Counts as a use.
    fn believes(&self, key: &Digest, file: &File, verified: Option<Stat>) -> bool {
        // Held so that no other thread renews the file in between.
        let mut known = self.known();
        let Ok(now) = Stat::of(file) else { return false };
        if known.get(key) != Some(&Known::Right(now)) && verified != Some(now) {
            return false;
        }
        known.insert(*key, Known::Right(renew(file, now)));
        true
    }

    /// Whether a file that is not there should be made: when it was laid out before, and nobody else is at it.
    fn should_make(&self, key: &Digest) -> bool {
        // Some five MiB. What is forgotten is verified again, or made one time later.
        const REMEMBERED: usize = 50_000;
        let mut known = self.known();
        if known.len() >= REMEMBERED {
            known.clear();
        }
        match known.get(key) {
            None => {
                known.insert(*key, Known::Seen);
                false
            }
            Some(Known::BeingMade) => false,
            // Right before and gone now, it was evicted or damaged.
            Some(Known::Seen | Known::Right(_)) => {
                known.insert(*key, Known::BeingMade);
                true
            }
        }
    }

    fn known(&self) -> MutexGuard<'_, HashMap<Digest, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The name of a whole file: the hash of its chunks' names and lengths.
fn key_of(content: &Content) -> Digest {
    let mut hasher = blake3::Hasher::new();
    for chunk in &content.chunks {
        hasher.update(&chunk.digest.0).update(&chunk.len.to_le_bytes());
    }
    Digest(*hasher.finalize().as_bytes())
}

/// Whether `file` holds exactly this content.
fn holds(file: &mut File, content: &Content, buffers: &mut Buffers) -> bool {
    let buffer = &mut buffers.raw;
    let chunks_are_right = content.chunks.iter().all(|chunk| {
        let length = chunk.len as usize;
        if buffer.len() < length {
            buffer.resize(length, 0);
        }
        let bytes = &mut buffer[..length];
        file.read_exact(bytes).is_ok() && digest_of(bytes) == chunk.digest
    });
    chunks_are_right && matches!(file.read(&mut [0]), Ok(0))
}

/// Marks a whole file as used now, and says what its metadata then are.
fn renew(file: &File, stat: Stat) -> Stat {
    let renew_after = ChunkStore::RENEW_AFTER.as_nanos() as i64;
    let now = TimeSpec::from(std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default());
    let age = nanoseconds(now.tv_sec(), now.tv_nsec()).saturating_sub(stat.modified_ns);
    if (0..renew_after).contains(&age) || futimens(file, &now, &now).is_err() {
        return stat;
    }
    Stat::of(file).unwrap_or(stat)
}

/// Makes `to`, an empty file, share all blocks of `from`.
fn clone(from: &File, to: &File) -> io::Result<()> {
    // SAFETY: both descriptors are open for as long as the call takes, and it takes no memory of ours.
    let answer = unsafe { libc::ioctl(to.as_raw_fd(), libc::FICLONE, from.as_raw_fd()) };
    Ok(Errno::result(answer).map(drop)?)
}
