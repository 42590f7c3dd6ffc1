//! Stores chunks on disk under the names of their hashes.
//!
//! A chunk lies in its [`wire`] form in `ab/cdef…`, the hexadecimal digits of its hash. Its hash is checked before it
//! is renamed into its place, and again on every read. A damaged chunk is removed and reported; the caller can then
//! fetch it again. A head keeps uploads and results in a store; an agent uses one as a cache.
//!
//! **Durability** comes in groups: [`ChunkStore::sync`] makes all earlier insertions durable at once. Acknowledge
//! uploads only after it. A crash before the sync can leave an empty file, which counts as absent. **Removal**
//! ([`ChunkStore::sweep`], [`ChunkStore::evict_to`]) goes by a chunk's modification time, which every query renews.
//! So after a client was told that a chunk is present, the chunk stays until the submission refers to it.
//!
//! A store may also keep [whole files](ChunkStore::sharing_files). They speed up layouts, count like chunks and can
//! be lost without harm.
//!
//! Only one process may use a store at a time; its threads share it.

mod scratch;
mod whole;
mod whole_files;

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use hostler_model::Digest;
use hostler_proto::manifest::Content;
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use nix::sys::statvfs::statvfs;

use self::scratch::{Scratch, make_private};
use self::whole_files::WholeFiles;
use crate::chunk::digest_of;
use crate::pack;
use crate::sparse::{is_zeros, write_sparse};
use crate::wire::{self, WireError};

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The file system is full, or the owner's quota is used up.
    #[error("no space left in {}: {needed} bytes are needed, {free} are free", .path.display())]
    DiskFull {
        path: PathBuf,
        /// Bytes to write.
        needed: u64,
        /// Free space of the file system, in bytes.
        free: u64,
    },
    #[error("chunk {0} is not in the store")]
    Missing(Digest),
    /// The chunk's file was damaged; it has been removed.
    #[error("chunk {digest} was damaged on disk and has been removed")]
    Corrupt {
        digest: Digest,
        #[source]
        source: WireError,
    },
    /// The bytes to insert do not match their digest.
    #[error("the bytes of chunk {digest} were refused")]
    Refused {
        digest: Digest,
        #[source]
        source: WireError,
    },
    /// Any other error of the file system.
    #[error("cannot {action} {}", .path.display())]
    Io {
        /// The attempted action, as a verb.
        action: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// What a removal has freed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Freed {
    /// Number of chunks removed.
    pub chunks: u64,
    /// Number of whole files removed.
    pub files: u64,
    /// Size of the removed files on disk, in bytes.
    pub bytes: u64,
    /// Number of chunks that are not live and stay only because they were used recently.
    pub young: u64,
}

/// The reason why a file could not be written from its chunks.
#[derive(Debug)]
pub(crate) enum ContentError {
    /// A chunk could not be read.
    Store(StoreError),
    /// A chunk's length differs from the length in the list of chunks.
    WrongLength(Digest),
    /// The file could not be written.
    Write(io::Error),
}

/// Buffers for reading and decompressing chunks, reused for each chunk.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    wire: Vec<u8>,
    raw: Vec<u8>,
}

#[derive(Debug)]
pub struct ChunkStore {
    directory: PathBuf,
    /// The store's directory, opened together with the store. The kernel reports every failed write-back since then on
    /// this handle.
    handle: File,
    scratch: Scratch,
    whole: Option<WholeFiles>,
    /// The size of the store in bytes once it has been counted. Locked while a chunk is added, removed or renewed.
    ledger: Mutex<Option<u64>>,
    unsynced: Mutex<Unsynced>,
    /// Locked during a sync, so that concurrent callers share its work.
    syncing: Mutex<()>,
}

/// The chunks that were inserted since the last sync.
#[derive(Debug)]
enum Unsynced {
    Few(Vec<Digest>),
    /// Too many chunks to sync individually, or an unknown set of chunks.
    Many,
}

impl ChunkStore {
    /// The minimum interval between two updates of a chunk's time of last use, so that reads do not cause constant
    /// writes.
    const RENEW_AFTER: Duration = Duration::from_secs(60);
    /// The maximum number of chunks (one or two edited files) that are synced individually. For more chunks, syncing
    /// the whole file system is cheaper, but it waits for the writes of all processes.
    const FEW: usize = 8;

    /// Opens the store in `directory`, and creates it (private to its owner) if needed.
    ///
    /// # Errors
    /// The directory cannot be created or read.
    pub fn open(directory: &Path) -> Result<Self, StoreError> {
        let on_error = |action| move |source| StoreError::Io { action, path: directory.to_owned(), source };
        make_private(directory).map_err(on_error("create"))?;
        let handle = File::open(directory).map_err(on_error("open"))?;
        let scratch = Scratch::within(&directory.join("tmp")).map_err(on_error("create a file in"))?;
        Ok(Self {
            directory: directory.to_owned(),
            handle,
            scratch,
            whole: None,
            ledger: Mutex::new(None),
            // An earlier process may have been killed before its sync.
            unsynced: Mutex::new(Unsynced::Many),
            syncing: Mutex::new(()),
        })
    }

    #[must_use]
    pub fn contains(&self, digest: &Digest) -> bool {
        self.present(digest).is_some()
    }

    /// Returns the chunks of `wanted` that the store lacks, in order. Marks all other chunks as used now, so that they
    /// are not soon removed as old.
    #[must_use]
    pub fn missing(&self, wanted: &[Digest]) -> Vec<Digest> {
        wanted.iter().filter(|digest| !self.renew(digest)).copied().collect()
    }

    /// Reads a chunk and checks it.
    ///
    /// # Errors
    /// [`StoreError::Missing`], or [`StoreError::Corrupt`] after removing a damaged chunk.
    pub fn get(&self, digest: &Digest) -> Result<Vec<u8>, StoreError> {
        let wire = self.get_wire(digest)?;
        wire::decode(digest, &wire).map_err(|source| self.remove_corrupt(digest, source))
    }

    /// Returns the length of a chunk according to its header, without reading the rest; `None` if it is missing or
    /// invalid.
    #[must_use]
    pub fn length_of(&self, digest: &Digest) -> Option<u64> {
        let file = File::open(self.path_of(digest)).ok()?;
        let wire_bytes = file.metadata().ok()?.len();
        let mut start = Vec::with_capacity(wire::START_BYTES);
        file.take(wire::START_BYTES as u64).read_to_end(&mut start).ok()?;
        wire::content_length(&start, wire_bytes)
    }

    /// Writes the bytes of `content` to the empty `file` and checks each chunk. Runs of zeros become holes. Does not
    /// renew the chunks: call [`missing`](Self::missing) first.
    pub(crate) fn write_content(
        &self,
        content: &Content,
        file: &File,
        buffers: &mut Buffers,
    ) -> Result<(), ContentError> {
        let (mut offset, mut has_holes) = (0, false);
        for chunk in &content.chunks {
            if is_zeros(chunk) {
                has_holes = true;
            } else {
                let raw = self.read(&chunk.digest, buffers).map_err(ContentError::Store)?;
                if raw.len() != chunk.len as usize {
                    return Err(ContentError::WrongLength(chunk.digest));
                }
                has_holes |= write_sparse(file, raw, offset).map_err(ContentError::Write)?;
            }
            offset += u64::from(chunk.len);
        }
        if has_holes { file.set_len(offset).map_err(ContentError::Write) } else { Ok(()) }
    }

    /// Reads a chunk and checks it.
    fn read<'b>(&self, digest: &Digest, buffers: &'b mut Buffers) -> Result<&'b [u8], StoreError> {
        let path = self.path_of(digest);
        let Buffers { wire, raw } = buffers;
        let wire = match File::open(&path).and_then(|mut file| read_all(&mut file, wire)) {
            Ok(wire) if !wire.is_empty() => wire,
            Ok(_) => return Err(StoreError::Missing(*digest)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(StoreError::Missing(*digest)),
            Err(source) => return Err(StoreError::Io { action: "read", path, source }),
        };
        wire::decode_into(digest, wire, raw).map_err(|source| self.remove_corrupt(digest, source))
    }

    fn remove_corrupt(&self, digest: &Digest, source: WireError) -> StoreError {
        match self.remove(digest) {
            Ok(_) => StoreError::Corrupt { digest: *digest, source },
            Err(error) => error,
        }
    }

    /// Returns the stored form of a chunk without a check, for a receiver that checks it. If the receiver reports
    /// damage, [`ChunkStore::get`] finds out whether the stored chunk is damaged.
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

    /// Starts to read the `wanted` chunks into the page cache, up to `most` bytes in total. Returns the size of these
    /// chunks immediately. Skips missing chunks.
    pub fn read_ahead<'a>(&self, wanted: impl IntoIterator<Item = &'a Digest>, most: u64) -> u64 {
        let mut bytes = 0;
        for digest in wanted {
            let Ok(file) = File::open(self.path_of(digest)) else { continue };
            let length = file.metadata().map_or(0, |metadata| metadata.len());
            if bytes + length > most {
                break;
            }
            if posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_WILLNEED).is_ok() {
                bytes += length;
            }
        }
        bytes
    }

    /// Iterates over the frames of a [`pack`] of the `wanted` chunks. Reads each chunk when its frame is requested.
    pub fn pack<'a>(&'a self, wanted: &'a [Digest]) -> impl Iterator<Item = Result<Vec<u8>, StoreError>> + 'a {
        wanted.iter().map(|digest| {
            pack::frame(digest, &self.get_wire(digest)?).map_err(|error| StoreError::Io {
                action: "send",
                path: self.path_of(digest),
                source: io::Error::other(error),
            })
        })
    }

    /// Adds `raw` as a chunk and returns its digest.
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

    /// Adds `raw` as a chunk. Its hash must be `digest`.
    ///
    /// # Errors
    /// [`StoreError::Refused`] if the hash differs; [`StoreError::DiskFull`] or another error of the file system.
    pub fn insert(&self, digest: &Digest, raw: &[u8]) -> Result<(), StoreError> {
        wire::verify(digest, raw).map_err(|source| StoreError::Refused { digest: *digest, source })?;
        if self.renew(digest) { Ok(()) } else { self.write(digest, &wire::encode(raw)) }
    }

    /// Decompresses, checks and adds a chunk in its wire form.
    ///
    /// # Errors
    /// As [`ChunkStore::insert`].
    pub fn insert_wire(&self, digest: &Digest, wire: &[u8]) -> Result<(), StoreError> {
        wire::decode(digest, wire).map_err(|source| StoreError::Refused { digest: *digest, source })?;
        if self.renew(digest) { Ok(()) } else { self.write(digest, wire) }
    }

    /// Makes every completed insertion durable. Concurrent callers share the work.
    ///
    /// # Errors
    /// The file system could not write everything; insertions since the last sync may then be lost.
    pub fn sync(&self) -> Result<(), StoreError> {
        let _syncing = self.syncing.lock().unwrap_or_else(PoisonError::into_inner);
        // Nothing is left if the previous lock holder has covered these insertions.
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

    /// Syncs a few chunks and their directories, without waiting for other processes' writes.
    fn sync_each(&self, chunks: &[Digest]) -> io::Result<()> {
        let mut shards = HashSet::new();
        for digest in chunks {
            let path = self.path_of(digest);
            match File::open(&path) {
                Ok(file) => file.sync_all()?,
                // The chunk was removed meanwhile.
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

    /// Returns the size of the chunks and whole files on disk, in bytes. The first call counts them, which takes
    /// seconds for millions of chunks.
    ///
    /// # Errors
    /// The directory cannot be read.
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

    /// Returns the free space of the file system for this user, in bytes.
    ///
    /// # Errors
    /// The file system does not report it.
    pub fn free_bytes(&self) -> Result<u64, StoreError> {
        free_bytes(&self.directory).map_err(|source| self.failure("measure", &self.directory, source, 0))
    }

    /// Removes the least recently used chunks and whole files until at most `cap_bytes` are left. Never removes chunks
    /// that `keep` accepts, even if more bytes are left then. Costs almost nothing below the limit.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn evict_to(&self, cap_bytes: u64, keep: &dyn Fn(&Digest) -> bool) -> Result<Freed, StoreError> {
        let mut freed = Freed::default();
        if self.total_bytes()? <= cap_bytes {
            return Ok(freed);
        }
        let mut stored = Vec::new();
        self.each(|it| stored.push(it))?;
        let mut total: u64 = stored.iter().map(|it| it.bytes).sum();
        stored.sort_by_cached_key(Stored::eviction_time);
        for candidate in stored {
            if total <= cap_bytes {
                break;
            }
            let is_kept = candidate.kind == StoredKind::Chunk && keep(&candidate.digest);
            if !is_kept && self.remove_if_unused_since(&candidate)? {
                total -= candidate.bytes;
                freed.count(&candidate);
            }
        }
        Ok(freed)
    }

    /// Removes chunks that `is_live` does not accept and that were neither inserted nor queried within `older_than`.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn sweep(&self, is_live: impl Fn(&Digest) -> bool, older_than: Duration) -> Result<Freed, StoreError> {
        // A chunk's time can be this much older than its last use, because renewals are limited.
        let age = if older_than.is_zero() { older_than } else { older_than + Self::RENEW_AFTER };
        let limit = SystemTime::now().checked_sub(age).unwrap_or(SystemTime::UNIX_EPOCH);
        let mut candidates = Vec::new();
        let mut freed = Freed::default();
        self.each(|stored| {
            if stored.kind == StoredKind::Chunk && !is_live(&stored.digest) {
                match stored.used <= limit {
                    true => candidates.push(stored),
                    false => freed.young += 1,
                }
            }
        })?;
        for candidate in candidates {
            if self.remove_if_unused_since(&candidate)? {
                freed.count(&candidate);
            }
        }
        Ok(freed)
    }

    /// Removes one chunk. Returns whether it existed.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn remove(&self, digest: &Digest) -> Result<bool, StoreError> {
        Self::remove_locked(&mut self.ledger(), self.path_of(digest))
    }

    fn remove_locked(ledger: &mut Option<u64>, path: PathBuf) -> Result<bool, StoreError> {
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

    /// Removes a file in the store unless the file was used after it was listed.
    fn remove_if_unused_since(&self, listed: &Stored) -> Result<bool, StoreError> {
        let path = match listed.kind {
            StoredKind::Chunk => self.path_of(&listed.digest),
            StoredKind::WholeFile => self.whole_path_of(&listed.digest),
        };
        let mut ledger = self.ledger();
        match fs::symlink_metadata(&path).and_then(|metadata| metadata.modified()) {
            Ok(used) if used == listed.used => Self::remove_locked(&mut ledger, path),
            _ => Ok(false),
        }
    }

    /// Marks a chunk as used now. Returns whether it exists.
    fn renew(&self, digest: &Digest) -> bool {
        let fresh = |used: SystemTime| used.elapsed().is_ok_and(|age| age < Self::RENEW_AFTER);
        let Some(used) = self.present(digest) else { return false };
        if fresh(used) {
            return true;
        }
        let _ledger = self.ledger();
        // The chunk may have been removed between the check and the lock.
        let file = OpenOptions::new().append(true).open(self.path_of(digest));
        file.and_then(|file| file.set_modified(SystemTime::now())).is_ok()
    }

    /// Returns when a chunk was last used; `None` if it is missing. A crash before a sync can leave an empty file,
    /// which counts as missing.
    fn present(&self, digest: &Digest) -> Option<SystemTime> {
        let metadata = fs::symlink_metadata(self.path_of(digest)).ok()?;
        if metadata.len() > 0 { metadata.modified().ok() } else { None }
    }

    /// Writes a checked chunk to a temporary file and renames it to its path.
    fn write(&self, digest: &Digest, wire: &[u8]) -> Result<(), StoreError> {
        let temporary = self.scratch.next_path();
        let place = self.path_of(digest);
        let written = write_new(&temporary, wire).and_then(|()| self.publish(&temporary, &place, wire.len() as u64));
        if let Err(source) = written {
            // Best effort: the next open of the store removes a remaining file.
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
                make_private(place.parent().expect("every chunk is in a subdirectory"))?;
                fs::rename(temporary, place)?;
            }
            renamed => renamed?,
        }
        *ledger = ledger.map(|total| total + bytes - replaced.min(total));
        Ok(())
    }

    fn path_of(&self, digest: &Digest) -> PathBuf {
        place_in(&self.directory, digest)
    }

    /// Calls `each` for every chunk and whole file, in no particular order.
    fn each(&self, mut each: impl FnMut(Stored)) -> Result<(), StoreError> {
        each_in(&self.directory, StoredKind::Chunk, &mut each)?;
        each_in(&self.whole_directory(), StoredKind::WholeFile, &mut each)
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

/// A file of the store: a chunk or a whole file.
struct Stored {
    kind: StoredKind,
    digest: Digest,
    bytes: u64,
    used: SystemTime,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StoredKind {
    Chunk,
    WholeFile,
}

impl Stored {
    /// Returns the time of last use for eviction. A whole file counts as older than the chunks used with it, because it
    /// can be rebuilt from the chunks, but the chunks come only from the head.
    fn eviction_time(&self) -> SystemTime {
        // Longer than any layout takes; a layout counts as a use of both.
        const WHOLE_FILES_SEEM_OLDER_BY: Duration = Duration::from_secs(15 * 60);
        match self.kind {
            StoredKind::Chunk => self.used,
            StoredKind::WholeFile => self.used.checked_sub(WHOLE_FILES_SEEM_OLDER_BY).unwrap_or(self.used),
        }
    }
}

impl Freed {
    fn count(&mut self, removed: &Stored) {
        match removed.kind {
            StoredKind::Chunk => self.chunks += 1,
            StoredKind::WholeFile => self.files += 1,
        }
        self.bytes += removed.bytes;
    }
}

/// Returns the path below `directory` for `digest`.
fn place_in(directory: &Path, digest: &Digest) -> PathBuf {
    let name = digest.to_string();
    let (shard, rest) = name.split_at(2);
    let mut path = PathBuf::with_capacity(directory.as_os_str().len() + 2 + name.len());
    path.push(directory);
    path.push(shard);
    path.push(rest);
    path
}

/// Calls `each` for every file in `directory` at a path from [`place_in`].
fn each_in(directory: &Path, kind: StoredKind, each: &mut impl FnMut(Stored)) -> Result<(), StoreError> {
    for shard in 0..=u8::MAX {
        let shard = format!("{shard:02x}");
        let path = directory.join(&shard);
        let on_error = |source| StoreError::Io { action: "list", path: path.clone(), source };
        let entries = match fs::read_dir(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            entries => entries.map_err(on_error)?,
        };
        for entry in entries {
            let entry = entry.map_err(on_error)?;
            let name = entry.file_name();
            let digest = name.to_str().and_then(|rest| format!("{shard}{rest}").parse().ok());
            // Skip other files, and files removed meanwhile.
            if let (Some(digest), Ok(metadata)) = (digest, entry.metadata()) {
                let used = metadata.modified().map_err(on_error)?;
                each(Stored { kind, digest, bytes: metadata.size(), used });
            }
        }
    }
    Ok(())
}

/// Reads `file` to its end into `buffer`, which grows if needed and never shrinks: clearing the buffer for every chunk
/// would cost more than reading a small chunk.
fn read_all<'b>(file: &mut File, buffer: &'b mut Vec<u8>) -> io::Result<&'b [u8]> {
    const FIRST_BYTES: usize = 512 << 10;
    let mut filled = 0;
    loop {
        if filled == buffer.len() {
            buffer.resize((2 * filled).max(FIRST_BYTES), 0);
        }
        match file.read(&mut buffer[filled..]) {
            Ok(0) => return Ok(&buffer[..filled]),
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Writes `bytes` to a new file that only the owner can access.
fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?.write_all(bytes)
}

/// Returns whether the disk is full or the quota is used up.
pub(crate) fn is_disk_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Returns the free space of the file system of `path` for this user, in bytes.
pub(crate) fn free_bytes(path: &Path) -> io::Result<u64> {
    let stat = statvfs(path)?;
    Ok(stat.blocks_available() * stat.fragment_size())
}
