//! Keeps whole files next to the chunks, so that layouts can share blocks instead of writing files.
//!
//! Some file systems can share blocks (btrfs, XFS). There, the second layout of a file writes it once to `whole/`,
//! and every later directory gets a clone of it (`FICLONE`). A clone takes constant time, and no disk space until it
//! is changed. It is an ordinary file, so a job may do anything with it. A file that is laid out only once costs
//! nothing extra.
//!
//! **Whole files are a cache.** Their chunks exist as well. After any failure (full disk, damaged file, other file
//! system), the file is written from its chunks. A whole file is named by the hash of its list of chunks, appears by
//! renaming and is never synced. Damage from a power cut is detected like any other: the file is read and compared
//! with the hashes of its chunks on its first use after a start, and whenever its metadata have changed. Whole files
//! count towards the store's size and are evicted before the chunks used with them.
//!
//! **Why not copies on other file systems.** Without shared blocks (ext4), copying a whole file takes half to three
//! quarters of the CPU time of writing it from chunks. The measured files had 50 KiB to 4 MiB. Copying saves about 50
//! ms per 100 MiB. But it would store everything twice, write as much as before plus once more at first, and skip the
//! check of laid out bytes. So the store detects such a file system when it is opened and keeps no whole files.
//!
//! **Why never hard links.** A hard link is the same inode. Its owner can make it writable and so change the cache
//! and every other job's file. A job runs as the agent's user or owns its files, so it could do that. With another
//! owner and no write permission, the job could not `chmod` or `touch` its own files. Files of equal content would
//! share one mode and one time. Besides, every link created or removed changes the inode's ctime, which
//! [`Baseline`](crate::Baseline) uses to find unchanged files: each start of a run would make all others read all
//! their files.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{MutexGuard, PoisonError};

use hostler_model::Digest;
use hostler_proto::manifest::Content;
use nix::errno::Errno;
use nix::sys::stat::futimens;
use nix::sys::time::TimeSpec;

use super::whole_files::{Known, WholeFiles};
use super::{Buffers, ChunkStore, ContentError, Freed, StoreError, is_disk_full, place_in};
use crate::beneath::{Stat, nanoseconds};
use crate::chunk::digest_of;
use crate::remove::remove_tree;

/// Size in bytes from which on files share blocks; shorter files are written from their chunks. Cloning takes about as
/// long as writing this much. In addition, a clone is not in the page cache, so the job reads it from the disk.
const WORTH_SHARING_BYTES: u64 = 128 << 10;

impl ChunkStore {
    /// Makes the store keep whole files too, so that layouts can share their blocks, if the file system supports it;
    /// see [`ChunkStore::shares_files`]. Intended for caches.
    #[must_use]
    pub fn sharing_files(mut self) -> Self {
        if self.can_clone() {
            self.whole = Some(WholeFiles::default());
        } else {
            // Left over from a time when the file system could share blocks.
            let _ = remove_tree(&self.whole_directory());
        }
        self
    }

    /// Returns whether layouts share disk blocks of unchanged files.
    #[must_use]
    pub fn shares_files(&self) -> bool {
        self.sharing().is_some()
    }

    /// Fills the empty file `target` with this content by sharing the blocks of a whole file. If the function returns
    /// false, `target` is still empty, and the caller must write it.
    ///
    /// # Errors
    /// A chunk of the content cannot be read.
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
                // A full disk is temporary; any other error would recur.
                whole.is_off.fetch_or(!is_disk_full(&error), Ordering::Relaxed);
                target.set_len(0).map_err(ContentError::Write)?;
                Ok(false)
            }
        }
    }

    /// Returns whether laying out this content will probably take no disk space, because a whole file exists.
    pub(crate) fn has_whole(&self, content: &Content) -> bool {
        let is_there = || fs::symlink_metadata(self.whole_path_of(&key_of(content))).is_ok();
        self.shares_files() && content.size >= WORTH_SHARING_BYTES && is_there()
    }

    /// Removes every whole file. The file system may report the space as free only after some [`Self::settle`]. Blocks
    /// shared with a job's directory stay in use.
    ///
    /// # Errors
    /// Errors of the file system.
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
        Ok(freed)
    }

    /// Makes the file system free the space of removed files: btrfs does so on commit, XFS in the background.
    pub(crate) fn settle(&self) {
        // If this fails, the next write shows the error.
        let _ = nix::unistd::syncfs(&self.handle);
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

    /// Tests with a small file whether files of this file system can share blocks.
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

    /// Opens the whole file with this key if it exists and is intact. Removes a damaged whole file.
    fn right_file(&self, whole: &WholeFiles, key: &Digest, content: &Content, buffers: &mut Buffers) -> Option<File> {
        let path = self.whole_path_of(key);
        let mut file = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW).open(&path).ok()?;
        if whole.is_unchanged(key, &file, None) {
            return Some(file);
        }
        let before = Stat::of(&file).ok()?;
        if before.size == content.size && holds(&mut file, content, buffers) {
            // Its metadata differ only if another thread has just renewed it, or another process is changing it.
            return whole.is_unchanged(key, &file, Some(before)).then_some(file);
        }
        // If it cannot be removed, the next check finds the damage again.
        let _ = Self::remove_locked(&mut self.ledger(), path);
        None
    }

    /// Writes the whole file with this key. Returns `None` if it cannot be written; the layout then continues without
    /// it.
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
                // Best effort: the next open of the store removes a remaining file.
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
        // Without write permission: this prevents accidental changes by a job of the same user.
        let file = (OpenOptions::new().read(true).write(true).create_new(true).mode(0o400))
            .open(temporary)
            .map_err(ContentError::Write)?;
        self.write_content(content, &file, buffers)?;
        self.publish(temporary, &self.whole_path_of(key), content.size).map_err(ContentError::Write)?;
        let stat = Stat::of(&file).map_err(ContentError::Write)?;
        Ok((file, stat))
    }
}

impl WholeFiles {
    /// Returns whether an open whole file counts as intact: its metadata equal those of its last verification, or
    /// `verified`, which the caller passes after verifying the file. Marks the whole file as used.
    fn is_unchanged(&self, key: &Digest, file: &File, verified: Option<Stat>) -> bool {
        // Held so that no other thread renews the file in between.
        let mut known = self.known();
        let Ok(now) = Stat::of(file) else { return false };
        if known.get(key) != Some(&Known::Right(now)) && verified != Some(now) {
            return false;
        }
        known.insert(*key, Known::Right(renew(file, now)));
        true
    }

    /// Returns whether to write a missing whole file: if its content was laid out before and no other thread is writing
    /// it.
    fn should_make(&self, key: &Digest) -> bool {
        // About 5 MiB. A forgotten file is verified again, or written one layout later.
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
            // A verified file is missing only after eviction or damage.
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

/// Returns the name of a whole file: the hash of its chunks' digests and lengths.
fn key_of(content: &Content) -> Digest {
    let mut hasher = blake3::Hasher::new();
    for chunk in &content.chunks {
        hasher.update(&chunk.digest.0).update(&chunk.len.to_le_bytes());
    }
    Digest(*hasher.finalize().as_bytes())
}

/// Returns whether `file` has exactly this content.
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

/// Marks a whole file as used now. Returns its new metadata.
fn renew(file: &File, stat: Stat) -> Stat {
    let renew_after = ChunkStore::RENEW_AFTER.as_nanos() as i64;
    let now = TimeSpec::from(std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default());
    let age = nanoseconds(now.tv_sec(), now.tv_nsec()).saturating_sub(stat.modified_ns);
    if (0..renew_after).contains(&age) || futimens(file, &now, &now).is_err() {
        return stat;
    }
    Stat::of(file).unwrap_or(stat)
}

/// Makes the empty file `to` share all disk blocks of `from`.
fn clone(from: &File, to: &File) -> io::Result<()> {
    // SAFETY: both descriptors are open during the call, and it uses no memory of this process.
    let answer = unsafe { libc::ioctl(to.as_raw_fd(), libc::FICLONE, from.as_raw_fd()) };
    Ok(Errno::result(answer).map(drop)?)
}
