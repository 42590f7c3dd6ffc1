//! Storage of captured folders and results, as chunks named by their content.
//!
//! Blobs are stored in two places. Large and uploaded chunks are files in a [`ChunkStore`]. Small results are part of a
//! report and are stored in a table of the store, in the same transaction as their event. This saves a file and an
//! fsync per result.
//!
//! Chunks have no reference counts. A collection marks the chunks that known jobs and results refer to, and deletes the
//! others. It keeps chunks that were queried or uploaded within the last hour, or within the last minutes if the disk is nearly
//! full or results were dropped, because a reference may follow. All functions here block on the disk.

mod collect;
mod make_room;
mod marks;
mod pins;
mod room;

use std::collections::{HashMap, HashSet};
use std::io;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::{Stream, stream};
use hostler_model::{Digest, format_bytes};
use hostler_proto::manifest::{Chunk, Content, EntryKind, Manifest, ResultManifest};
use hostler_snapshot::check::{self, ManifestError};
use hostler_snapshot::pack::Frame;
use hostler_snapshot::{ChunkStore, chunk, wire};
use hostler_store::{Reader, StoreError, Writer};
use nix::sys::statvfs::statvfs;

use self::pins::Pins;
use self::room::Room;

/// Time since the last use of a blob after which a collection may delete the blob.
const YOUNG: Duration = Duration::from_secs(3600);

/// As [`YOUNG`], while space is scarce. A client whose chunk was deleted meanwhile uploads the chunk again.
const YOUNG_IN_NEED: Duration = Duration::from_secs(120);

/// Wait before another collection while space is scarce: after it, every chunk that is unused now may be deleted.
const NEXT_IN_NEED: Duration = Duration::from_secs(185);

/// How long a positive completeness check stays valid. Below [`YOUNG_IN_NEED`], because each check also renews the age of
/// the chunks.
const COMPLETENESS_TTL: Duration = Duration::from_secs(60);

/// Maximum number of remembered completeness checks. A busy head sees thousands of results per minute, and another
/// check is cheap.
const REMEMBERED: usize = 4_096;

/// Disk space kept free for running work: this size, or on a small disk the disk size divided by [`RESERVE_PART`].
const RESERVE_BYTES: u64 = 512 << 20;
const RESERVE_PART: u64 = 20;

/// By default, all results together may use the disk's size divided by this number.
const RESULTS_PART: u64 = 2;

/// Size above which manifests are read one at a time, because a decoded manifest takes several times its size in
/// memory.
const LONG_MANIFEST_BYTES: u64 = 4 << 20;

/// The head's storage of folders and results.
pub(crate) struct Library {
    directory: PathBuf,
    chunks: ChunkStore,
    table: Reader,
    writer: Writer,
    /// Manifests that were found complete, and when.
    complete: Mutex<HashMap<Digest, Instant>>,
    pins: Mutex<Pins>,
    /// Set when blobs were added or released since the last collection.
    changed: AtomicBool,
    /// Set when results were dropped whose chunks are still on the disk.
    in_need: AtomicBool,
    /// Number of collections that have begun.
    turns: AtomicUsize,
    room: Room,
    /// Held while a long manifest is in memory.
    long: Mutex<()>,
}

/// A decoded manifest. If the manifest is long, the value also holds the lock for long manifests.
struct Opened<'a> {
    anything: AnyManifest,
    _turn: Option<MutexGuard<'a, ()>>,
}

impl Deref for Opened<'_> {
    type Target = AnyManifest;

    fn deref(&self) -> &AnyManifest {
        &self.anything
    }
}

/// A decoded manifest of a folder or of a result.
pub(crate) enum AnyManifest {
    Folder(Manifest),
    Result(ResultManifest),
}

/// Why a manifest cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LibraryError {
    /// The blob was never uploaded, or it was collected.
    #[error("blob {0} is not on the head")]
    Missing(Digest),
    #[error("{missing} of the {total} chunks of {manifest} are not on the head")]
    Incomplete {
        manifest: Digest,
        missing: usize,
        /// Number of chunks in the manifest.
        total: usize,
    },
    /// The bytes are not a manifest.
    #[error("{0} is not a manifest")]
    NotAManifest(Digest),
    /// The manifest is invalid.
    #[error(transparent)]
    BadManifest(#[from] ManifestError),
    #[error(transparent)]
    Chunks(#[from] hostler_snapshot::StoreError),
    #[error(transparent)]
    Table(#[from] StoreError),
}

impl Library {
    /// Opens the chunk files in `directory` and the store's table. Results may use `cap_bytes`, or half of the disk.
    ///
    /// # Errors
    /// The directory cannot be created.
    pub(crate) fn open(
        directory: &Path,
        table: Reader,
        writer: Writer,
        cap_bytes: Option<u64>,
    ) -> Result<Self, hostler_snapshot::StoreError> {
        let chunks = ChunkStore::open(directory)?;
        // Without a known disk size, there is no limit.
        let share = || statvfs(directory).map_or(u64::MAX, |stat| stat.blocks() * stat.fragment_size() / RESULTS_PART);
        Ok(Self {
            room: Room::new(cap_bytes.unwrap_or_else(share)),
            directory: directory.to_owned(),
            chunks,
            table,
            writer,
            complete: Mutex::default(),
            pins: Mutex::default(),
            // The previous process may have left unused chunks.
            changed: AtomicBool::new(true),
            in_need: AtomicBool::new(false),
            turns: AtomicUsize::new(0),
            long: Mutex::default(),
        })
    }

    /// The verified bytes of a blob.
    ///
    /// # Errors
    /// [`LibraryError::Missing`], or a disk error.
    pub(crate) fn get(&self, digest: &Digest) -> Result<Bytes, LibraryError> {
        if let Some(bytes) = self.table.blob(digest)? {
            return Ok(bytes);
        }
        match self.chunks.get(digest) {
            Ok(bytes) => Ok(bytes.into()),
            Err(hostler_snapshot::StoreError::Missing(_)) => Err(LibraryError::Missing(*digest)),
            Err(error) => Err(error.into()),
        }
    }

    /// The size of a blob's file. `None` for a blob in the table, which is always small.
    pub(crate) fn length_of(&self, digest: &Digest) -> Option<u64> {
        self.chunks.length_of(digest)
    }

    /// A blob in wire format.
    ///
    /// # Errors
    /// Like [`Library::get`].
    pub(crate) fn get_wire(&self, digest: &Digest) -> Result<Vec<u8>, LibraryError> {
        if let Some(bytes) = self.table.blob(digest)? {
            return Ok(wire::encode(&bytes));
        }
        match self.chunks.get_wire(digest) {
            Ok(wire) => Ok(wire),
            Err(hostler_snapshot::StoreError::Missing(_)) => Err(LibraryError::Missing(*digest)),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns those of `digests` that are not stored on the head, in the order of `digests`. The stored ones are kept
    /// for at least an hour.
    ///
    /// # Errors
    /// The table cannot be read.
    pub(crate) fn missing(&self, digests: &[Digest]) -> Result<Vec<Digest>, LibraryError> {
        let not_files = self.chunks.missing(digests);
        if not_files.is_empty() {
            return Ok(not_files);
        }
        // Pins the blobs before the query, so that a concurrent collection keeps them.
        self.pins().ask(&not_files);
        let missing = self.table.missing_blobs(&not_files)?;
        self.pins().forget(&missing);
        Ok(missing)
    }

    /// Protects blobs that are about to be stored with an event, so that no collection deletes them.
    pub(crate) fn expect(&self, blobs: &[(Digest, Vec<u8>)]) {
        self.pins().bring(blobs.iter().map(|(digest, _)| *digest));
        self.note_change();
    }

    /// Adds the chunks of a pack after verification. They are durable after [`Library::commit`].
    ///
    /// # Errors
    /// Errors of the chunk store. Chunks before the failed one are kept.
    pub(crate) fn insert(&self, frames: &[Frame]) -> Result<(), LibraryError> {
        self.changed.store(true, Ordering::Release);
        for frame in frames {
            self.chunks.insert_wire(&frame.digest, &frame.wire)?;
        }
        Ok(())
    }

    /// Validates a manifest, checks that all its chunks exist, and makes them durable.
    ///
    /// # Errors
    /// The manifest is incomplete or invalid, or the disk fails.
    pub(crate) fn commit(&self, manifest: &Digest) -> Result<(), LibraryError> {
        let anything = self.read_manifest(manifest)?;
        check::check(anything.tree())?;
        self.check_complete(manifest, &anything)?;
        self.chunks.sync()?;
        self.remember(*manifest);
        Ok(())
    }

    /// Whether a manifest and all its chunks exist and are durable.
    ///
    /// # Errors
    /// The disk fails.
    pub(crate) fn is_complete(&self, manifest: &Digest) -> Result<bool, LibraryError> {
        if self.complete().get(manifest).is_some_and(|seen| seen.elapsed() < COMPLETENESS_TTL) {
            return Ok(true);
        }
        let seen = self.read_manifest(manifest).and_then(|anything| self.check_complete(manifest, &anything));
        match seen {
            Ok(()) => {
                self.chunks.sync()?;
                self.remember(*manifest);
                Ok(true)
            }
            Err(LibraryError::Missing(_) | LibraryError::Incomplete { .. } | LibraryError::NotAManifest(_)) => {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Returns the size of a result in bytes, or `None` if chunks are missing. The chunks may be in the store or in the
    /// report that contains the result.
    ///
    /// # Errors
    /// The disk fails.
    pub(crate) fn complete_size(
        &self,
        manifest: &Digest,
        inline: &[(Digest, Vec<u8>)],
    ) -> Result<Option<u64>, LibraryError> {
        let Some(result) = result_among(manifest, inline) else {
            return Ok(if self.is_complete(manifest)? { Some(self.read_manifest(manifest)?.bytes()) } else { None });
        };
        let others = not_among(&result, inline);
        if !self.missing(&others)?.is_empty() {
            return Ok(None);
        }
        self.chunks.sync()?;
        Ok(Some(result.bytes()))
    }

    /// The result manifest with this digest.
    ///
    /// # Errors
    /// The manifest does not exist, or is not a result.
    pub(crate) fn result(&self, manifest: &Digest) -> Result<ResultManifest, LibraryError> {
        match self.read_manifest(manifest)?.anything {
            AnyManifest::Result(result) => Ok(result),
            AnyManifest::Folder(_) => Err(LibraryError::NotAManifest(*manifest)),
        }
    }

    /// All blobs that a result refers to, and its manifest.
    ///
    /// # Errors
    /// The blob does not exist, or is not a manifest.
    pub(crate) fn referenced_blobs(&self, manifest: &Digest) -> Result<HashSet<Digest>, LibraryError> {
        let mut named = self.read_manifest(manifest)?.digests();
        named.insert(*manifest);
        Ok(named)
    }

    /// Reads up to `most` bytes of a folder's chunks ahead into the page cache. Returns the number of bytes that the
    /// kernel was asked to read.
    ///
    /// # Errors
    /// The blob does not exist, or is not a manifest.
    pub(crate) fn read_ahead(&self, manifest: &Digest, most: u64) -> Result<u64, LibraryError> {
        Ok(self.chunks.read_ahead(&self.referenced_blobs(manifest)?, most))
    }

    fn read_manifest(&self, manifest: &Digest) -> Result<Opened<'_>, LibraryError> {
        // Manifests in the table were part of a report, so they are short.
        let is_long = self.chunks.length_of(manifest).is_some_and(|bytes| bytes > LONG_MANIFEST_BYTES);
        let turn = is_long.then(|| self.long.lock().unwrap_or_else(PoisonError::into_inner));
        Ok(Opened { anything: Self::read(manifest, &self.get(manifest)?)?, _turn: turn })
    }

    fn read(manifest: &Digest, bytes: &[u8]) -> Result<AnyManifest, LibraryError> {
        if let Ok(result) = hostler_proto::decode(bytes) {
            return Ok(AnyManifest::Result(result));
        }
        match hostler_proto::decode(bytes) {
            Ok(folder) => Ok(AnyManifest::Folder(folder)),
            Err(_) => Err(LibraryError::NotAManifest(*manifest)),
        }
    }

    fn check_complete(&self, manifest: &Digest, anything: &AnyManifest) -> Result<(), LibraryError> {
        let mut digests: Vec<Digest> = anything.digests().into_iter().collect();
        // Include the manifest itself, to renew its age with that of its chunks.
        digests.push(*manifest);
        let missing = self.missing(&digests)?.len();
        if missing == 0 {
            Ok(())
        } else {
            Err(LibraryError::Incomplete { manifest: *manifest, missing, total: digests.len() - 1 })
        }
    }

    /// Returns a message for users if the disk is too full for uploads and submissions.
    pub(crate) fn too_full(&self) -> Option<String> {
        // A disk that does not report its usage will report an error on a write.
        let (free, size) = self.disk()?;
        let reserve = RESERVE_BYTES.min(size / RESERVE_PART);
        (free < reserve).then(|| {
            format!(
                "the head's disk is nearly full: {} free in {}; new uploads and submissions need {}",
                format_bytes(free),
                self.directory.display(),
                format_bytes(reserve)
            )
        })
    }

    /// Free space and size of the disk, in bytes.
    pub(crate) fn disk(&self) -> Option<(u64, u64)> {
        let stat = statvfs(&self.directory).ok()?;
        let unit = stat.fragment_size();
        Some((stat.blocks_available() * unit, stat.blocks() * unit))
    }

    /// Returns a message for operators if the disk will soon be too full for uploads and submissions.
    pub(crate) fn nearly_full(&self) -> Option<String> {
        let stat = statvfs(&self.directory).ok()?;
        let free = stat.blocks_available() * stat.fragment_size();
        let reserve = RESERVE_BYTES.min(stat.blocks() * stat.fragment_size() / RESERVE_PART);
        (free / 2 < reserve).then(|| {
            format!(
                "{} free in {}; below {}, the head refuses uploads and submissions",
                format_bytes(free),
                self.directory.display(),
                format_bytes(reserve)
            )
        })
    }

    /// Disk usage of results, and its limit.
    pub(crate) fn room(&self) -> &Room {
        &self.room
    }

    /// Requests a collection at the next opportunity.
    pub(crate) fn note_change(&self) {
        self.changed.store(true, Ordering::Release);
    }

    /// Remembers that a manifest is complete.
    fn remember(&self, manifest: Digest) {
        let mut complete = self.complete();
        if complete.len() >= REMEMBERED {
            complete.clear();
        }
        complete.insert(manifest, Instant::now());
    }

    fn complete(&self) -> MutexGuard<'_, HashMap<Digest, Instant>> {
        self.complete.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pins(&self) -> MutexGuard<'_, Pins> {
        self.pins.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AnyManifest {
    /// The distinct digests of all chunks in the manifest.
    fn digests(&self) -> HashSet<Digest> {
        self.chunks().map(|chunk| chunk.digest).collect()
    }

    /// All chunks in the manifest, including repeated ones.
    fn chunks(&self) -> impl Iterator<Item = &Chunk> {
        let files = self.tree().entries.iter().filter_map(|entry| match &entry.kind {
            EntryKind::File(content) => Some(content),
            EntryKind::Directory | EntryKind::Symlink { .. } => None,
        });
        let outputs = match self {
            Self::Folder(_) => [None; 4],
            Self::Result(result) => {
                [Some(&result.stdout), Some(&result.stderr), Some(&result.setup), result.certificate.as_deref()]
            }
        };
        let contents = files.chain(outputs.into_iter().flatten());
        contents.flat_map(|content| &content.chunks)
    }

    /// Total size of the chunks, in bytes.
    fn bytes(&self) -> u64 {
        self.chunks().map(|chunk| u64::from(chunk.len)).sum()
    }

    fn tree(&self) -> &Manifest {
        match self {
            Self::Folder(folder) => folder,
            Self::Result(result) => &result.tree,
        }
    }
}

/// Computes the digest under which these bytes are stored.
pub(crate) fn name_of(bytes: &[u8]) -> Digest {
    chunk::digest_of(bytes)
}

/// The size of a result in bytes, if its report contains all its chunks. `None` when the disk must be checked.
pub(crate) fn inline_size(manifest: &Digest, inline: &[(Digest, Vec<u8>)]) -> Option<u64> {
    let result = result_among(manifest, inline)?;
    not_among(&result, inline).is_empty().then(|| result.bytes())
}

fn result_among(manifest: &Digest, inline: &[(Digest, Vec<u8>)]) -> Option<AnyManifest> {
    let (_, bytes) = inline.iter().find(|(digest, _)| digest == manifest)?;
    hostler_proto::decode(bytes).ok().map(AnyManifest::Result)
}

/// The chunks of a result that its report does not contain.
fn not_among(result: &AnyManifest, inline: &[(Digest, Vec<u8>)]) -> Vec<Digest> {
    let mut digests = result.digests();
    inline.iter().for_each(|(digest, _)| {
        digests.remove(digest);
    });
    digests.into_iter().collect()
}

/// Streams the bytes of `content` from offset `from`, at most `limit` bytes. `read` loads each chunk.
pub(crate) fn read_content<F: Future<Output = io::Result<Bytes>>, R: Fn(Digest) -> F>(
    content: &Content,
    from: u64,
    limit: Option<u64>,
    read: R,
) -> impl Stream<Item = io::Result<Bytes>> + use<F, R> {
    let (chunks, skip) = chunks_from(content, from);
    let left = limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
    stream::try_unfold((read, chunks.into_iter(), skip, left), |(read, mut chunks, skip, left)| async move {
        let Some(chunk) = chunks.next().filter(|_| left > 0) else { return Ok(None) };
        let bytes = read(chunk.digest).await?;
        let skip = skip.min(bytes.len());
        let rest = bytes.slice(skip..skip + left.min(bytes.len() - skip));
        let left = left - rest.len();
        Ok(Some((rest, (read, chunks, 0, left))))
    })
}

/// The chunks of `content` from offset `from` on, and the number of bytes to skip in the first one.
fn chunks_from(content: &Content, from: u64) -> (Vec<Chunk>, usize) {
    let mut skip = from;
    let chunks = content.chunks.iter().copied().skip_while(|chunk| {
        let is_before = skip >= u64::from(chunk.len);
        if is_before {
            skip -= u64::from(chunk.len);
        }
        is_before
    });
    let chunks: Vec<Chunk> = chunks.collect();
    (chunks, usize::try_from(skip).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use hostler_proto::manifest::{Entry, VERSION};
    use hostler_snapshot::pack;
    use hostler_store::{Batch, Change, MemoryStore, Store};

    use super::*;

    fn library(directory: &Path) -> Library {
        let store = MemoryStore::new();
        let reader = store.reader();
        Library::open(directory, reader, Writer::start(store).expect("a thread"), None).expect("a directory of chunks")
    }

    fn frame(raw: &[u8]) -> Frame {
        Frame { digest: name_of(raw), wire: wire::encode(raw) }
    }

    fn content(parts: &[&[u8]]) -> Content {
        let chunks: Vec<Chunk> =
            parts.iter().map(|part| Chunk { digest: name_of(part), len: part.len() as u32 }).collect();
        Content { size: chunks.iter().map(|chunk| u64::from(chunk.len)).sum(), chunks }
    }

    fn folder(parts: &[&[u8]]) -> Vec<u8> {
        let kind = EntryKind::File(content(parts));
        let entry = Entry { path: b"data".to_vec(), mode: 0o644, modified_ns: 0, kind };
        hostler_proto::encode(&Manifest { version: VERSION, entries: vec![entry] })
    }

    #[test]
    fn folder_is_complete_when_all_chunks_are_uploaded() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let library = library(directory.path());
        let manifest = folder(&[b"one", b"two"]);
        let name = name_of(&manifest);
        assert!(matches!(library.commit(&name), Err(LibraryError::Missing(_))));
        library.insert(&[frame(&manifest), frame(b"one")]).expect("inserted");
        let error = library.commit(&name).expect_err("a chunk is missing");
        assert_eq!(error.to_string(), format!("1 of the 2 chunks of {name} are not on the head"));
        assert!(!library.is_complete(&name).expect("the disk works"));
        library.insert(&[frame(b"two")]).expect("inserted");
        library.commit(&name).expect("complete");
        assert!(library.is_complete(&name).expect("the disk works"));
    }

    #[test]
    fn content_with_a_wrong_digest_is_rejected() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let library = library(directory.path());
        let forged = Frame { digest: name_of(b"good"), wire: wire::encode(b"evil") };
        assert!(matches!(library.insert(&[forged]), Err(LibraryError::Chunks(_))));
        assert_eq!(library.missing(&[name_of(b"good")]).expect("the disk works"), [name_of(b"good")]);
    }

    #[test]
    fn manifest_with_a_path_outside_the_folder_is_rejected() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let library = library(directory.path());
        let entry = Entry { path: b"../evil".to_vec(), mode: 0o644, modified_ns: 0, kind: EntryKind::Directory };
        let manifest = hostler_proto::encode(&Manifest { version: VERSION, entries: vec![entry] });
        library.insert(&[frame(&manifest)]).expect("inserted");
        assert!(matches!(library.commit(&name_of(&manifest)), Err(LibraryError::BadManifest(_))));
    }

    #[test]
    fn small_blobs_in_the_table_are_found_and_sent() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let library = library(directory.path());
        let name = name_of(b"small");
        let change = Change::PutBlob(name, Bytes::from_static(b"small"));
        library.writer.commit_and_wait(Batch::of_changes(vec![change])).expect("memory is available");
        assert_eq!(library.missing(&[name]).expect("the disk works"), []);
        assert_eq!(library.get(&name).expect("the blob exists"), "small");
        let wire = library.get_wire(&name).expect("the blob exists");
        assert_eq!(wire::decode(&name, &wire).expect("a valid chunk"), b"small");
        assert!(pack::frame(&name, &wire).is_ok());
    }

    #[tokio::test]
    async fn content_is_read_from_any_offset() {
        use futures_util::TryStreamExt;
        let directory = tempfile::tempdir().expect("a temporary directory");
        let library = library(directory.path());
        let parts: [&[u8]; 3] = [b"abc", b"defg", b"h"];
        library.insert(&parts.map(frame)).expect("inserted");
        for from in 0..12 {
            let read = async |digest| library.get(&digest).map_err(io::Error::other);
            let pieces: Vec<Bytes> =
                read_content(&content(&parts), from, None, read).try_collect().await.expect("all chunks exist");
            assert_eq!(pieces.concat(), &b"abcdefgh"[usize::try_from(from).expect("small").min(8)..], "from {from}");
        }
    }
}
