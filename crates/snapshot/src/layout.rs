//! Lays out a captured folder: writes a manifest and its chunks as a directory.
//!
//! Before the first write, the manifest is checked ([`crate::check`]) and the chunks are known to exist. Then the
//! layout makes directories, writes files on several threads and makes links. Directories get their modes and times
//! last, deepest first, because adding entries changes both. Files are always created anew and paths are opened
//! beneath the directory. So nothing outside can be touched, whatever the manifest says and other processes do.
//!
//! Every file is a separate file that the job may change. If the file system can, a file shares blocks with a whole
//! file of the store ([`ChunkStore::sharing_files`]) until it changes; otherwise it is written from chunks.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use hostler_model::Digest;
use hostler_proto::manifest::{Content, Entry, EntryKind, Manifest};
use nix::fcntl::{AtFlags, OFlag, openat};
use nix::sys::stat::{Mode, UtimensatFlags, fchmod, futimens, mkdirat, utimensat};
use nix::unistd::{Gid, Uid, fchown, fchownat, symlinkat};

use crate::baseline::Baseline;
use crate::beneath::{Parents, Root, Stat, time_of};
use crate::check::{ManifestError, check, check_but_links};
use crate::hashing::{on_threads, threads_for};
use crate::paths;
use crate::remove::remove_tree;
use crate::sparse::disk_bytes;
use crate::store::{Buffers, ChunkStore, ContentError, StoreError, free_bytes, is_disk_full};

/// How long a file system may take to report freed space as free. XFS frees in the background, btrfs on commit.
const SETTLES_WITHIN: Duration = Duration::from_secs(3);

/// Pause before the free space is measured again.
const SETTLE_PAUSE: Duration = Duration::from_millis(20);

#[derive(Debug, Clone, Default)]
pub struct LayoutOptions {
    /// Number of threads that write; 0 (the default) means one per processor.
    pub threads: usize,
    /// Keeps the set-user-ID and set-group-ID bits, which are dropped by default.
    pub keep_set_id: bool,
    /// Allows links that lead out of the folder. This is safe if only the folder's user follows them.
    pub links_may_leave: bool,
    /// Makes this user and group the owner of everything, including the directory. Requires root.
    pub owner: Option<(u32, u32)>,
}

#[derive(Debug)]
pub struct LaidOut {
    /// The baseline for [`crate::changes`].
    pub baseline: Baseline,
    pub files: u64,
    pub bytes: u64,
}

/// The reason why a folder was not laid out. Files already written are removed if the directory did not exist before.
#[derive(Debug, thiserror::Error)]
pub enum LayoutError {
    /// The manifest is invalid.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// The directory is not empty.
    #[error("{} is not empty", .0.display())]
    NotEmpty(PathBuf),
    /// The store lacks chunks of the manifest; lists them.
    #[error("{} chunks are not in the store", .0.len())]
    MissingChunks(Vec<Digest>),
    /// A chunk could not be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The length of a chunk differs from the manifest.
    #[error("chunk {0} has a different length in the manifest")]
    WrongLength(Digest),
    /// The file system of the directory is full, or the owner's quota is used up.
    #[error("no space left for {}: {needed} bytes are needed, {free} are free", .path.display())]
    DiskFull {
        path: PathBuf,
        /// The size of all files without holes, in bytes.
        needed: u64,
        /// Free space of the file system, in bytes.
        free: u64,
    },
    /// Any other error of the file system.
    #[error("cannot write {}", .path.display())]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// Writes the folder of `manifest` into `directory`, which is created or must be empty.
///
/// # Errors
/// See [`LayoutError`]. The manifest, the chunks and the free space are checked before the first write.
pub fn lay_out(
    manifest: &Manifest,
    chunks: &ChunkStore,
    directory: &Path,
    options: &LayoutOptions,
) -> Result<LaidOut, LayoutError> {
    if options.links_may_leave {
        check_but_links(manifest)?;
    } else {
        check(manifest)?;
    }
    check_chunks(manifest, chunks)?;
    let created = prepare(directory)?;
    let write = |shares| {
        let bytes = check_room(manifest, chunks, directory)?;
        let root = Root::open(directory).map_err(|source| LayoutError::Io { path: directory.to_owned(), source })?;
        Layout { manifest, chunks, root: &root, directory, bytes, shares, options }.run()
    };
    let laid_out = write(true);
    if laid_out.is_ok() || !created {
        return laid_out;
    }
    // The caller gets the error; files that cannot be removed stay.
    let _ = remove_tree(directory);
    let is_full = matches!(laid_out, Err(LayoutError::DiskFull { .. }));
    // Whole files are a cache: remove them to make space for the layout.
    if is_full && chunks.remove_whole_files().is_ok_and(|freed| freed.files > 0) {
        let until = Instant::now() + SETTLES_WITHIN;
        loop {
            chunks.settle();
            prepare(directory)?;
            let again = write(false);
            if again.is_err() {
                let _ = remove_tree(directory);
            }
            if !matches!(again, Err(LayoutError::DiskFull { .. })) || Instant::now() >= until {
                return again;
            }
            sleep(SETTLE_PAUSE);
        }
    }
    laid_out
}

fn files(manifest: &Manifest) -> impl Iterator<Item = (&Entry, &Content)> {
    manifest.entries.iter().filter_map(|entry| match &entry.kind {
        EntryKind::File(content) => Some((entry, content)),
        EntryKind::Directory | EntryKind::Symlink { .. } => None,
    })
}

fn check_chunks(manifest: &Manifest, chunks: &ChunkStore) -> Result<(), LayoutError> {
    let mut wanted: Vec<Digest> =
        files(manifest).flat_map(|(_, it)| it.chunks.iter().map(|chunk| chunk.digest)).collect();
    wanted.sort_unstable();
    wanted.dedup();
    let missing = chunks.missing(&wanted);
    if missing.is_empty() { Ok(()) } else { Err(LayoutError::MissingChunks(missing)) }
}

/// Creates the directory, or checks that it is empty. Returns whether it was created.
fn prepare(directory: &Path) -> Result<bool, LayoutError> {
    let on_error = |source| LayoutError::Io { path: directory.to_owned(), source };
    match DirBuilder::new().mode(0o700).create(directory) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let mut entries = fs::read_dir(directory).map_err(on_error)?;
            if entries.next().is_some() { Err(LayoutError::NotEmpty(directory.to_owned())) } else { Ok(false) }
        }
        Err(source) => Err(on_error(source)),
    }
}

/// Checks that the disk has space for all files. Returns their size in bytes, without holes.
fn check_room(manifest: &Manifest, chunks: &ChunkStore, directory: &Path) -> Result<u64, LayoutError> {
    let size_of = |is_counted: &dyn Fn(&Content) -> bool| {
        let counted = files(manifest).filter(|(_, content)| is_counted(content));
        counted.fold(0, |sum: u64, (_, content)| sum.saturating_add(disk_bytes(content)))
    };
    let bytes = size_of(&|_| true);
    let free = free_bytes(directory).map_err(|source| LayoutError::Io { path: directory.to_owned(), source })?;
    // Files that share blocks take no space. Count them only if needed, as the check costs a system call per file.
    if bytes > free && size_of(&|content| !chunks.has_whole(content)) > free {
        return Err(LayoutError::DiskFull { path: directory.to_owned(), needed: bytes, free });
    }
    Ok(bytes)
}

struct Layout<'a> {
    manifest: &'a Manifest,
    chunks: &'a ChunkStore,
    root: &'a Root,
    directory: &'a Path,
    /// The size of all files without holes, in bytes.
    bytes: u64,
    /// Whether files may share disk blocks with whole files of the store.
    shares: bool,
    options: &'a LayoutOptions,
}

impl Layout<'_> {
    fn run(&self) -> Result<LaidOut, LayoutError> {
        self.each(
            |kind| matches!(kind, EntryKind::Directory),
            |entry, parents| {
                // Private to this process until it is complete.
                Ok(mkdirat(parents.directory_of(&entry.path)?, paths::name(&entry.path), Mode::S_IRWXU)?)
            },
        )?;
        let mut baseline = self.write_files()?;
        self.each(|kind| matches!(kind, EntryKind::Symlink { .. }), |entry, parents| self.make_link(entry, parents))?;
        for entry in self.manifest.entries.iter().rev().filter(|entry| entry.kind == EntryKind::Directory) {
            let stat = self.finish_directory(entry).map_err(|source| self.failure(entry, source))?;
            baseline.record(&entry.path, &stat);
        }
        if let Some((user, group)) = self.options.owner {
            fchown(self.root.as_fd(), Some(Uid::from_raw(user)), Some(Gid::from_raw(group)))
                .map_err(|source| LayoutError::Io { path: self.directory.to_owned(), source: source.into() })?;
        }
        baseline.settle();
        let bytes = files(self.manifest).map(|(_, content)| content.size).sum();
        Ok(LaidOut { baseline, files: files(self.manifest).count() as u64, bytes })
    }

    /// Calls `make` for every entry of one kind, in order.
    fn each(
        &self,
        of_kind: impl Fn(&EntryKind) -> bool,
        mut make: impl FnMut(&Entry, &mut Parents<'_>) -> io::Result<()>,
    ) -> Result<(), LayoutError> {
        let mut parents = Parents::of(self.root);
        for entry in self.manifest.entries.iter().filter(|entry| of_kind(&entry.kind)) {
            make(entry, &mut parents).map_err(|source| self.failure(entry, source))?;
        }
        Ok(())
    }

    fn write_files(&self) -> Result<Baseline, LayoutError> {
        // Neighbours go to one thread, which opens their directory once.
        const BATCH: usize = 16;
        let files: Vec<_> = files(self.manifest).collect();
        let batches: Vec<_> = files.chunks(BATCH).collect();
        let (next, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
        let work = || -> Result<Baseline, LayoutError> {
            let mut baseline = Baseline::default();
            let mut parents = Parents::of(self.root);
            let mut buffers = Buffers::default();
            while let Some(batch) = batches.get(next.fetch_add(1, Ordering::Relaxed)) {
                for (entry, content) in *batch {
                    if stop.load(Ordering::Relaxed) {
                        return Ok(baseline);
                    }
                    let stat = self.write_file(entry, content, &mut parents, &mut buffers);
                    stop.fetch_or(stat.is_err(), Ordering::Relaxed);
                    baseline.record(&entry.path, &stat?);
                }
            }
            Ok(baseline)
        };
        let mut baseline = Baseline::default();
        for part in on_threads(threads_for(self.options.threads, files.len()), work) {
            baseline.merge(part?);
        }
        Ok(baseline)
    }

    fn write_file(
        &self,
        entry: &Entry,
        content: &Content,
        parents: &mut Parents<'_>,
        buffers: &mut Buffers,
    ) -> Result<Stat, LayoutError> {
        let failure = |source| self.failure(entry, source);
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let parent = parents.directory_of(&entry.path).map_err(failure)?;
        // Create it with its final mode, which usually saves setting it. The set-id bits come last.
        let mode = Mode::from_bits_truncate(entry.mode & 0o777);
        let file = openat(parent, paths::name(&entry.path), flags, mode);
        let file = file.map(File::from).map_err(|error| failure(error.into()))?;
        self.fill(&file, content, buffers).map_err(|error| match error {
            ContentError::Store(error) => LayoutError::Store(error),
            ContentError::WrongLength(digest) => LayoutError::WrongLength(digest),
            ContentError::Write(source) => failure(source),
        })?;
        self.finish(&file, entry).map_err(failure)
    }

    fn fill(&self, file: &File, content: &Content, buffers: &mut Buffers) -> Result<(), ContentError> {
        if self.shares && self.chunks.share_content(content, file, buffers)? {
            return Ok(());
        }
        self.chunks.write_content(content, file, buffers)
    }

    fn finish_directory(&self, entry: &Entry) -> io::Result<Stat> {
        let directory: OwnedFd = self.root.open_directory(&entry.path)?;
        self.finish(&directory, entry)
    }

    /// Sets owner, time and mode of an open file or directory. The owner comes first, because changing it clears mode
    /// bits.
    fn finish(&self, file: impl AsFd, entry: &Entry) -> io::Result<Stat> {
        if let Some((user, group)) = self.options.owner {
            fchown(&file, Some(Uid::from_raw(user)), Some(Gid::from_raw(group)))?;
        }
        let time = time_of(entry.modified_ns);
        futimens(&file, &time, &time)?;
        let kept = if self.options.keep_set_id { 0o7777 } else { 0o1777 };
        let stat = Stat::of(&file)?;
        if stat.mode == entry.mode & kept {
            return Ok(stat);
        }
        fchmod(&file, Mode::from_bits_truncate(entry.mode & kept))?;
        Stat::of(&file)
    }

    fn make_link(&self, entry: &Entry, parents: &mut Parents<'_>) -> io::Result<()> {
        let EntryKind::Symlink { target } = &entry.kind else { return Ok(()) };
        let (parent, name) = (parents.directory_of(&entry.path)?, paths::name(&entry.path));
        symlinkat(target.as_slice(), parent, name)?;
        if let Some((user, group)) = self.options.owner {
            let owner = (Some(Uid::from_raw(user)), Some(Gid::from_raw(group)));
            fchownat(parent, name, owner.0, owner.1, AtFlags::AT_SYMLINK_NOFOLLOW)?;
        }
        let time = time_of(entry.modified_ns);
        Ok(utimensat(parent, name, &time, &time, UtimensatFlags::NoFollowSymlink)?)
    }

    fn failure(&self, entry: &Entry, source: io::Error) -> LayoutError {
        if is_disk_full(&source) {
            let free = free_bytes(self.directory).unwrap_or(0);
            return LayoutError::DiskFull { path: self.directory.to_owned(), needed: self.bytes, free };
        }
        LayoutError::Io { path: self.root.full(&entry.path), source }
    }
}
