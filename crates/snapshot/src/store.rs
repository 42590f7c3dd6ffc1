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
//! A store may keep [whole files](ChunkStore::sharing_files) beside the chunks they are made of. They are a shortcut for
//! laying out and count like chunks; nothing depends on them.
//!
//! One program owns a store at a time; its threads share it.

mod scratch;
mod whole;

use std::collections::HashSet;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use hostler_model::Digest;
use hostler_proto::manifest::Content;
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use nix::sys::statvfs::statvfs;

use self::scratch::Scratch;
use self::whole::WholeFiles;
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
    /// Whole files removed.
    pub files: u64,
    /// The size of all of them on disk, in bytes.
    pub bytes: u64,
}

/// Why the content of a file could not be put together.
#[derive(Debug)]
pub(crate) enum ContentError {
    /// A chunk could not be read.
    Store(StoreError),
    /// A chunk has another length than the content says.
    WrongLength(Digest),
    /// The file could not be written.
    Write(io::Error),
}

/// Room for one chunk, kept from one to the next.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    wire: Vec<u8>,
    raw: Vec<u8>,
}

/// A directory of chunks.
#[derive(Debug)]
pub struct ChunkStore {
    directory: PathBuf,
    /// Open from the start, so that the kernel tells us of every failed write-back since.
    handle: File,
    scratch: Scratch,
    whole: Option<WholeFiles>,
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
            whole: None,
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
        wire::decode(digest, &wire).map_err(|source| self.remove_corrupt(digest, source))
    }

    /// How long a chunk is, as it says, without reading more of it; `None` when it is not here or makes no sense.
    #[must_use]
    pub fn length_of(&self, digest: &Digest) -> Option<u64> {
        let file = File::open(self.path_of(digest)).ok()?;
        let wire_bytes = file.metadata().ok()?.len();
        let mut start = Vec::with_capacity(wire::START_BYTES);
        file.take(wire::START_BYTES as u64).read_to_end(&mut start).ok()?;
        wire::content_length(&start, wire_bytes)
    }

    /// Writes the bytes of `content` to `file`, chunk by chunk, each checked. The chunks are not renewed: ask whether they are
    /// [`missing`](Self::missing) before.
    pub(crate) fn write_content(
        &self,
        content: &Content,
        file: &mut impl Write,
        buffers: &mut Buffers,
    ) -> Result<(), ContentError> {
        for chunk in &content.chunks {
            let raw = self.read(&chunk.digest, buffers).map_err(ContentError::Store)?;
            if raw.len() != chunk.len as usize {
                return Err(ContentError::WrongLength(chunk.digest));
            }
            file.write_all(raw).map_err(ContentError::Write)?;
        }
        Ok(())
    }

    /// The bytes of a chunk, checked.
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

    /// Has the system bring chunks into memory that will be asked for soon, one by one until they are `most` bytes; how many bytes that are.
    /// It comes back at once. What is missing is passed over.
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

    /// The frames of a [`pack`] that holds the chunks `wanted`, read one at a time as they are asked for.
    pub fn pack<'a>(&'a self, wanted: &'a [Digest]) -> impl Iterator<Item = Result<Vec<u8>, StoreError>> + 'a {
        wanted.iter().map(|digest| {
            pack::frame(digest, &self.get_wire(digest)?).map_err(|error| StoreError::Io {
                action: "send",
                path: self.path_of(digest),
                source: io::Error::other(error),
            })
        })
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

    /// How many bytes the chunks, and the whole files beside them, take on disk. The first call counts them, which takes
    /// seconds for millions.
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

    /// Removes what was not used for the longest time, chunks and whole files, until at most `cap_bytes` are left. Chunks for
    /// which `keep` says so stay, even when that leaves more. Costs next to nothing while there is less.
    ///
    /// # Errors
    /// Those of the file system.
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

    /// Removes the chunks that are not live and were neither inserted nor asked for within `older_than`.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn sweep(&self, is_live: impl Fn(&Digest) -> bool, older_than: Duration) -> Result<Freed, StoreError> {
        // A time that is not renewed can be this much older than the last use.
        let age = if older_than.is_zero() { older_than } else { older_than + Self::RENEW_AFTER };
        let limit = SystemTime::now().checked_sub(age).unwrap_or(SystemTime::UNIX_EPOCH);
        let mut candidates = Vec::new();
        self.each(|stored| {
            if stored.kind == StoredKind::Chunk && stored.used <= limit && !is_live(&stored.digest) {
                candidates.push(stored);
            }
        })?;
        let mut freed = Freed::default();
        for candidate in candidates {
            if self.remove_if_unused_since(&candidate)? {
                freed.count(&candidate);
            }
        }
        Ok(freed)
    }

    /// Removes one chunk; says whether it was there.
    ///
    /// # Errors
    /// Those of the file system.
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

    /// Removes what was listed unless it was renewed since.
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
        place_in(&self.directory, digest)
    }

    /// Calls `each` for every chunk and every whole file, in no particular order.
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

/// A chunk or a whole file in a listing.
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
    /// What counts as its last use when something must go. A whole file goes before the chunks that it was used with: they can
    /// make it again, and are themselves only to be had from the head.
    fn eviction_time(&self) -> SystemTime {
        // Longer than it takes to lay out any folder, after which both count as used now.
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

/// Where something called `digest` lies below `directory`.
fn place_in(directory: &Path, digest: &Digest) -> PathBuf {
    let name = digest.to_string();
    let (shard, rest) = name.split_at(2);
    let mut path = PathBuf::with_capacity(directory.as_os_str().len() + 2 + name.len());
    path.push(directory);
    path.push(shard);
    path.push(rest);
    path
}

/// Calls `each` for everything that lies below `directory` where [`place_in`] puts it.
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
            // Anything else in there is not ours; what goes meanwhile is gone.
            if let (Some(digest), Ok(metadata)) = (digest, entry.metadata()) {
                let used = metadata.modified().map_err(on_error)?;
                each(Stored { kind, digest, bytes: metadata.size(), used });
            }
        }
    }
    Ok(())
}

/// Reads `file` to its end into `buffer`, which grows if need be and is kept as long as it is: clearing it for every chunk would
/// cost more than reading a small one.
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
