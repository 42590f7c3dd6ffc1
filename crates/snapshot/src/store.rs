//! Chunks on disk, named by their content.
//!
//! A chunk lies in its [`wire`] form in `ab/cdef…`, the hexadecimal digits of its hash. It appears there whole, by renaming,
//! after its hash was checked, and its hash is checked again whenever it is read: a damaged chunk is removed and reported as
//! such, and whoever needs it fetches it again. A head keeps uploads and results in a store; an agent uses one as a cache.
//!
//! **Durability** comes in groups: [`ChunkStore::sync`] makes everything inserted before it durable at once, so acknowledge
//! uploads after it. After a crash in between, a chunk can be present but empty; it counts as
//! absent. **Removal** ([`ChunkStore::sweep`], [`ChunkStore::evict_to`]) goes by a chunk's modification time, which asking
//! for it renews: a chunk that a client was just told to be present is not swept away before its submission refers to it.
//!
//! One program owns a store at a time; its threads share it.

use std::collections::HashSet;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use hostler_model::Digest;
use nix::sys::statvfs::statvfs;

use crate::chunk::digest_of;
use crate::pack;
use crate::wire::{self, WireError};

/// Why a store could not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The file system is full, or the owner's quota is used up.
    #[error("no space left in {}: {needed} bytes are needed, {free} are free", .path.display())]
    DiskFull {
        /// The store's directory.
        path: PathBuf,
        /// What was to be written, in bytes.
        needed: u64,
        /// What the file system had left, in bytes.
        free: u64,
    },
    /// The chunk is not there.
    #[error("chunk {0} is not in the store")]
    Missing(Digest),
    /// The chunk's file was damaged; it has been removed.
    #[error("chunk {digest} was damaged on disk and has been removed")]
    Corrupt {
        /// The chunk.
        digest: Digest,
        /// The cause.
        #[source]
        source: WireError,
    },
    /// What was to be inserted is not the chunk that it was said to be.
    #[error("refused chunk {digest}")]
    Refused {
        /// The name it came under.
        digest: Digest,
        /// The cause.
        #[source]
        source: WireError,
    },
    /// Anything else that the file system refused.
    #[error("cannot {action} {}", .path.display())]
    Io {
        /// What was attempted, as a verb.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

/// What a removal freed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Freed {
    /// Chunks removed.
    pub chunks: u64,
    /// Their size on disk, in bytes.
    pub bytes: u64,
}

/// A directory of chunks.
#[derive(Debug)]
pub struct ChunkStore {
    directory: PathBuf,
    /// Open from the start, so that the kernel tells us of every failed write-back since.
    handle: File,
    scratch: Scratch,
    /// Held while a chunk appears, disappears or is renewed. Holds the bytes in the store once they have been counted.
    ledger: Mutex<Option<u64>>,
    unsynced: Mutex<Unsynced>,
    /// Held while syncing, so that callers that come together share the work.
    syncing: Mutex<()>,
}

/// What was inserted since the last sync.
#[derive(Debug)]
enum Unsynced {
    Few(Vec<Digest>),
    /// Too many to sync one by one, or nobody knows which.
    Many,
}

impl ChunkStore {
    /// A chunk's time is not renewed more often than this, so that reading does not become writing.
    const RENEW_AFTER: Duration = Duration::from_secs(60);
    /// Up to so many chunks, which is an edited file or two, are synced one by one. Syncing the whole file system costs less
    /// for more of them, but waits for everything that anybody has written to it.
    const FEW: usize = 8;

    /// Opens the store in `directory`, creating it (private to its owner) if need be.
    ///
    /// # Errors
    /// When the directory cannot be made or read.
    pub fn open(directory: &Path) -> Result<Self, StoreError> {
        let on_error = |action| move |source| StoreError::Io { action, path: directory.to_owned(), source };
        make_private(directory).map_err(on_error("create"))?;
        let handle = File::open(directory).map_err(on_error("open"))?;
        let scratch = Scratch::within(&directory.join("tmp")).map_err(on_error("create a file in"))?;
        Ok(Self {
            directory: directory.to_owned(),
            handle,
            scratch,
            ledger: Mutex::new(None),
            // A predecessor may have been killed before its sync.
            unsynced: Mutex::new(Unsynced::Many),
            syncing: Mutex::new(()),
        })
    }

    /// Whether the store holds `digest`.
    #[must_use]
    pub fn contains(&self, digest: &Digest) -> bool {
        self.present(digest).is_some()
    }

    /// Those of `wanted` that the store lacks, in their order. Those that it has are renewed: they will not be removed as
    /// old for some time.
    #[must_use]
    pub fn missing(&self, wanted: &[Digest]) -> Vec<Digest> {
        wanted.iter().filter(|digest| !self.renew(digest)).copied().collect()
    }

    /// The bytes of a chunk, checked.
    ///
    /// # Errors
    /// [`StoreError::Missing`], or [`StoreError::Corrupt`] after removing a damaged chunk.
    pub fn get(&self, digest: &Digest) -> Result<Vec<u8>, StoreError> {
        let wire = self.get_wire(digest)?;
        wire::decode(digest, &wire).map_err(|source| match self.remove(digest) {
            Ok(_) => StoreError::Corrupt { digest: *digest, source },
            Err(error) => error,
        })
    }

    /// A chunk as it lies on disk, for a receiver that checks it. When the receiver complains, [`ChunkStore::get`] finds out
    /// whether the chunk is damaged here.
    ///
    /// # Errors
    /// [`StoreError::Missing`] or an error of the file system.
    pub fn get_wire(&self, digest: &Digest) -> Result<Vec<u8>, StoreError> {
        if !self.renew(digest) {
            return Err(StoreError::Missing(*digest));
        }
        let path = self.path_of(digest);
        match fs::read(&path) {
            Ok(wire) => Ok(wire),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(StoreError::Missing(*digest)),
            Err(source) => Err(StoreError::Io { action: "read", path, source }),
        }
    }

    /// The frames of a [`pack`] that holds the chunks `wanted`, read one at a time as they are asked for.
    pub fn pack<'a>(&'a self, wanted: &'a [Digest]) -> impl Iterator<Item = Result<Vec<u8>, StoreError>> + 'a {
        wanted.iter().map(|digest| Ok(pack::frame(digest, &self.get_wire(digest)?)))
    }

    /// Adds `raw` and says what it is called.
    ///
    /// # Errors
    /// [`StoreError::DiskFull`] or another error of the file system.
    pub fn add(&self, raw: &[u8]) -> Result<Digest, StoreError> {
        let digest = digest_of(raw);
        if !self.renew(&digest) {
            self.write(&digest, &wire::encode(raw))?;
        }
        Ok(digest)
    }

    /// Adds `raw`, which must be the content called `digest`.
    ///
    /// # Errors
    /// [`StoreError::Refused`] when it is not; [`StoreError::DiskFull`] or another error of the file system.
    pub fn insert(&self, digest: &Digest, raw: &[u8]) -> Result<(), StoreError> {
        wire::verify(digest, raw).map_err(|source| StoreError::Refused { digest: *digest, source })?;
        if self.renew(digest) { Ok(()) } else { self.write(digest, &wire::encode(raw)) }
    }

    /// Adds a chunk that arrived in its wire form, after decompressing and checking it.
    ///
    /// # Errors
    /// As [`ChunkStore::insert`].
    pub fn insert_wire(&self, digest: &Digest, wire: &[u8]) -> Result<(), StoreError> {
        wire::decode(digest, wire).map_err(|source| StoreError::Refused { digest: *digest, source })?;
        if self.renew(digest) { Ok(()) } else { self.write(digest, wire) }
    }

    /// Makes every insertion that has returned durable. Callers that come together share the work.
    ///
    /// # Errors
    /// When the file system could not write everything; what was inserted since the last sync may then be lost.
    pub fn sync(&self) -> Result<(), StoreError> {
        let _syncing = self.syncing.lock().unwrap_or_else(PoisonError::into_inner);
        // Nothing is left when the one we waited for has covered our insertions.
        let unsynced = std::mem::replace(&mut *self.unsynced(), Unsynced::Few(Vec::new()));
        let synced = match unsynced {
            Unsynced::Few(chunks) if chunks.is_empty() => Ok(()),
            Unsynced::Few(chunks) => self.sync_each(&chunks),
            Unsynced::Many => nix::unistd::syncfs(&self.handle).map_err(io::Error::from),
        };
        synced.map_err(|source| {
            *self.unsynced() = Unsynced::Many;
            self.failure("sync", &self.directory, source, 0)
        })
    }

    /// Syncs a few chunks and the directories that name them, without waiting for what others write to the file system.
    fn sync_each(&self, chunks: &[Digest]) -> io::Result<()> {
        let mut shards = HashSet::new();
        for digest in chunks {
            let path = self.path_of(digest);
            match File::open(&path) {
                Ok(file) => file.sync_all()?,
                // Removed since.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            }
            shards.extend(path.parent().map(Path::to_owned));
        }
        shards.iter().try_for_each(|shard| File::open(shard)?.sync_all())?;
        self.handle.sync_all()
    }

    fn unsynced(&self) -> MutexGuard<'_, Unsynced> {
        self.unsynced.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many bytes the chunks take on disk. The first call counts them, which takes seconds for millions.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn total_bytes(&self) -> Result<u64, StoreError> {
        let mut ledger = self.ledger();
        if let Some(bytes) = *ledger {
            return Ok(bytes);
        }
        let mut bytes = 0;
        self.each(|stored| bytes += stored.bytes)?;
        *ledger = Some(bytes);
        Ok(bytes)
    }

    /// How many bytes the file system has left for us.
    ///
    /// # Errors
    /// When it does not say.
    pub fn free_bytes(&self) -> Result<u64, StoreError> {
        free_bytes(&self.directory).map_err(|source| self.failure("measure", &self.directory, source, 0))
    }

    /// Removes the chunks that were not used for the longest time until at most `cap_bytes` are left. Those for which
    /// `keep` says so stay, even when that leaves more.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn evict_to(&self, cap_bytes: u64, keep: &dyn Fn(&Digest) -> bool) -> Result<Freed, StoreError> {
        let mut stored = Vec::new();
        self.each(|it| stored.push(it))?;
        let mut total: u64 = stored.iter().map(|it| it.bytes).sum();
        stored.sort_unstable_by_key(|it| it.used);
        let mut freed = Freed::default();
        for candidate in stored {
            if total <= cap_bytes {
                break;
            }
            if !keep(&candidate.digest) && self.remove_if_unused_since(&candidate)? {
                total -= candidate.bytes;
                freed.count(candidate.bytes);
            }
        }
        Ok(freed)
    }

    /// Removes the chunks that are not in `live` and were neither inserted nor asked for within `older_than`.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn sweep(&self, live: &HashSet<Digest>, older_than: Duration) -> Result<Freed, StoreError> {
        // A time that is not renewed can be this much older than the last use.
        let age = if older_than.is_zero() { older_than } else { older_than + Self::RENEW_AFTER };
        let limit = SystemTime::now().checked_sub(age).unwrap_or(SystemTime::UNIX_EPOCH);
        let mut candidates = Vec::new();
        self.each(|stored| {
            if stored.used <= limit && !live.contains(&stored.digest) {
                candidates.push(stored);
            }
        })?;
        let mut freed = Freed::default();
        for candidate in candidates {
            if self.remove_if_unused_since(&candidate)? {
                freed.count(candidate.bytes);
            }
        }
        Ok(freed)
    }

    /// Removes one chunk; says whether it was there.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn remove(&self, digest: &Digest) -> Result<bool, StoreError> {
        let mut ledger = self.ledger();
        self.remove_locked(&mut ledger, digest)
    }

    fn remove_locked(&self, ledger: &mut Option<u64>, digest: &Digest) -> Result<bool, StoreError> {
        let path = self.path_of(digest);
        let bytes = fs::symlink_metadata(&path).map_or(0, |metadata| metadata.len());
        match fs::remove_file(&path) {
            Ok(()) => {
                *ledger = ledger.map(|total| total.saturating_sub(bytes));
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(source) => Err(StoreError::Io { action: "remove", path, source }),
        }
    }

    /// Removes a chunk unless it was renewed since it was listed.
    fn remove_if_unused_since(&self, listed: &Stored) -> Result<bool, StoreError> {
        let mut ledger = self.ledger();
        match fs::symlink_metadata(self.path_of(&listed.digest)).and_then(|metadata| metadata.modified()) {
            Ok(used) if used == listed.used => self.remove_locked(&mut ledger, &listed.digest),
            _ => Ok(false),
        }
    }

    /// Marks a chunk as used now; says whether it is there.
    fn renew(&self, digest: &Digest) -> bool {
        let fresh = |used: SystemTime| used.elapsed().is_ok_and(|age| age < Self::RENEW_AFTER);
        let Some(used) = self.present(digest) else { return false };
        if fresh(used) {
            return true;
        }
        let _ledger = self.ledger();
        // It may have been removed between the question and the lock.
        let file = OpenOptions::new().append(true).open(self.path_of(digest));
        file.and_then(|file| file.set_modified(SystemTime::now())).is_ok()
    }

    /// When a chunk was last used, if it is there. An empty file is what a crash leaves of an insertion that was not synced.
    fn present(&self, digest: &Digest) -> Option<SystemTime> {
        let metadata = fs::symlink_metadata(self.path_of(digest)).ok()?;
        if metadata.len() > 0 { metadata.modified().ok() } else { None }
    }

    /// Puts a checked chunk in its place.
    fn write(&self, digest: &Digest, wire: &[u8]) -> Result<(), StoreError> {
        let temporary = self.scratch.next_path();
        let place = self.path_of(digest);
        let written = write_new(&temporary, wire).and_then(|()| self.publish(&temporary, &place, wire.len() as u64));
        if let Err(source) = written {
            // Best effort: what stays is removed when the store is next opened.
            let _ = fs::remove_file(&temporary);
            return Err(self.failure("write", &place, source, wire.len() as u64));
        }
        let mut unsynced = self.unsynced();
        match &mut *unsynced {
            Unsynced::Few(chunks) if chunks.len() < Self::FEW => chunks.push(*digest),
            unsynced => *unsynced = Unsynced::Many,
        }
        Ok(())
    }

    fn publish(&self, temporary: &Path, place: &Path, bytes: u64) -> io::Result<()> {
        let mut ledger = self.ledger();
        let replaced = fs::symlink_metadata(place).map_or(0, |metadata| metadata.len());
        match fs::rename(temporary, place) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                make_private(place.parent().expect("chunks lie in a shard"))?;
                fs::rename(temporary, place)?;
            }
            renamed => renamed?,
        }
        *ledger = ledger.map(|total| total + bytes - replaced.min(total));
        Ok(())
    }

    fn path_of(&self, digest: &Digest) -> PathBuf {
        let name = digest.to_string();
        let (shard, rest) = name.split_at(2);
        let mut path = PathBuf::with_capacity(self.directory.as_os_str().len() + 2 + name.len());
        path.push(&self.directory);
        path.push(shard);
        path.push(rest);
        path
    }

    /// Calls `each` for every chunk, in no particular order.
    fn each(&self, mut each: impl FnMut(Stored)) -> Result<(), StoreError> {
        for shard in 0..=u8::MAX {
            let shard = format!("{shard:02x}");
            let path = self.directory.join(&shard);
            let on_error = |source| StoreError::Io { action: "list", path: path.clone(), source };
            let entries = match fs::read_dir(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                entries => entries.map_err(on_error)?,
            };
            for entry in entries {
                let entry = entry.map_err(on_error)?;
                let name = entry.file_name();
                let digest = name.to_str().and_then(|rest| format!("{shard}{rest}").parse().ok());
                // Anything else in there is not ours; a chunk that goes meanwhile is gone.
                if let (Some(digest), Ok(metadata)) = (digest, entry.metadata()) {
                    let used = metadata.modified().map_err(on_error)?;
                    each(Stored { digest, bytes: metadata.size(), used });
                }
            }
        }
        Ok(())
    }

    fn ledger(&self) -> MutexGuard<'_, Option<u64>> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failure(&self, action: &'static str, path: &Path, source: io::Error, needed: u64) -> StoreError {
        if is_disk_full(&source) {
            let free = free_bytes(&self.directory).unwrap_or(0);
            return StoreError::DiskFull { path: self.directory.clone(), needed, free };
        }
        StoreError::Io { action, path: path.to_owned(), source }
    }
}

/// A chunk in a listing.
struct Stored {
    digest: Digest,
    bytes: u64,
    used: SystemTime,
}

impl Freed {
    fn count(&mut self, bytes: u64) {
        self.chunks += 1;
        self.bytes += bytes;
    }
}

/// A directory for unfinished files that lives as long as its store. It is locked, so that the next one to open the store
/// can tell what a killed predecessor left.
#[derive(Debug)]
struct Scratch {
    path: PathBuf,
    next: AtomicU64,
    _lock: File,
}

impl Scratch {
    fn within(parent: &Path) -> io::Result<Self> {
        make_private(parent)?;
        for entry in fs::read_dir(parent)? {
            remove_if_abandoned(&entry?.path());
        }
        for attempt in 0u32.. {
            let path = parent.join(format!("{}-{attempt}", std::process::id()));
            match DirBuilder::new().mode(0o700).create(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                made => made?,
            }
            let lock = File::open(&path)?;
            // Whoever removes abandoned ones may have taken it between these two lines.
            if lock.try_lock().is_ok() && path.exists() {
                return Ok(Self { path, next: AtomicU64::new(0), _lock: lock });
            }
        }
        unreachable!("four thousand million names are not all taken")
    }

    fn next_path(&self) -> PathBuf {
        self.path.join(self.next.fetch_add(1, Ordering::Relaxed).to_string())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What stays is removed when the store is next opened.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Removes the scratch directory of a program that has ended: nobody holds its lock.
fn remove_if_abandoned(path: &Path) {
    if let Ok(lock) = File::open(path)
        && lock.try_lock().is_ok()
    {
        let _ = fs::remove_dir_all(path);
    }
}

/// Creates a directory, and those above it, that only its owner may enter.
fn make_private(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?.write_all(bytes)
}

/// Whether an error means that there is no room, on the disk or in the quota.
pub(crate) fn is_disk_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// How many bytes the file system of `path` has left for us.
pub(crate) fn free_bytes(path: &Path) -> io::Result<u64> {
    let stat = statvfs(path)?;
    Ok(stat.blocks_available() * stat.fragment_size())
}
