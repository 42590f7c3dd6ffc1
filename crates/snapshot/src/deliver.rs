//! Bringing results home: whole files only, resumable, and never over a user's file by accident.
//!
//! Files are assembled in `.hostler-partial/` inside the destination, chunk by chunk as they arrive, in any order.
//! [`Delivery::finish`] makes them durable with one call and then renames them into place, so a file in its place is whole
//! even after a power cut. What an interrupted delivery left is found again by its content: [`Delivery::plan`] hashes the
//! partial files and asks only for the chunks that they lack, and nothing that the destination already has is asked for.
//!
//! Files of the user's that are in the way stay as they are if they hold the same bytes; otherwise [`OnConflict`] decides.
//! A directory is never replaced by something else, and nothing is written through a symbolic link.

use std::collections::{HashMap, HashSet};
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use hostler_model::Digest;
use hostler_proto::manifest::{Chunk, Content, Entry, EntryKind, Manifest};
use nix::errno::Errno;
use nix::fcntl::{RenameFlags, renameat, renameat2};
use nix::sys::stat::{Mode, UtimensatFlags, fchmod, futimens, mkdirat, utimensat};
use nix::unistd::{UnlinkatFlags, symlinkat, syncfs, unlinkat};

use crate::beneath::{Kind, Parents, Root, Stat, read_at, time_of};
use crate::check::{ManifestError, check};
use crate::chunk::digest_of;
use crate::paths::{self, show};
use crate::remove::remove_tree;
use crate::store::{free_bytes, is_disk_full};
use crate::wire::{self, WireError};

const PARTIAL: &str = ".hostler-partial";

/// What to do with a file of the user's that differs from the one to be delivered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnConflict {
    /// Deliver nothing and name them all.
    #[default]
    Refuse,
    /// Replace them.
    Overwrite,
    /// Keep them and deliver beside them, as `name.1`, `name.2` and so on.
    Rename,
}

/// Something of the user's that is in the way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// Path below the destination.
    pub path: Vec<u8>,
    /// Whether [`OnConflict::Overwrite`] and [`OnConflict::Rename`] can help. They cannot when a directory and something
    /// else claim the same name, or when a directory on the way is a symbolic link.
    pub can_be_settled: bool,
}

/// Why a delivery did not succeed. What has arrived stays for the next attempt.
#[derive(Debug, thiserror::Error)]
pub enum DeliveryError {
    /// The manifest is not acceptable.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// Files of the user's are in the way; all of them are listed, sorted by path.
    #[error("{} already holds something else:{}", .destination.display(), listed(.conflicts))]
    Conflicts {
        /// The destination.
        destination: PathBuf,
        /// What is in the way.
        conflicts: Vec<Conflict>,
    },
    /// Another program is delivering the same to the same place.
    #[error("another delivery of the same results to {} is under way", .0.display())]
    Busy(PathBuf),
    /// A chunk that arrived is not what it is called.
    #[error("chunk {digest} arrived damaged")]
    Damaged {
        /// The chunk.
        digest: Digest,
        /// The cause.
        #[source]
        source: WireError,
    },
    /// Finishing was asked for while chunks were missing.
    #[error("{0} chunks have not arrived")]
    Incomplete(usize),
    /// The destination's file system is full.
    #[error("no space left in {}: {needed} bytes are still to come, {free} are free", .path.display())]
    DiskFull {
        /// The destination.
        path: PathBuf,
        /// How many bytes were still to arrive.
        needed: u64,
        /// What the file system had left, in bytes.
        free: u64,
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

fn listed(conflicts: &[Conflict]) -> String {
    conflicts.iter().map(|conflict| format!("\n  {}", show(&conflict.path))).collect()
}

/// What a finished delivery did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Delivered {
    /// Files put in place.
    pub files: u64,
    /// Their size in bytes.
    pub bytes: u64,
    /// Files and links that were there already.
    pub kept: u64,
    /// Files and links that got another name, with that name.
    pub renamed: Vec<(Vec<u8>, Vec<u8>)>,
}

/// A delivery under way.
#[derive(Debug)]
pub struct Delivery {
    destination: PathBuf,
    root: Root,
    on_conflict: OnConflict,
    /// Directories, in order, with whether they are there already.
    directories: Vec<(Entry, bool)>,
    files: Vec<Incoming>,
    links: Vec<(Entry, Vec<u8>)>,
    /// Where each chunk that has not arrived belongs.
    wanted: HashMap<Digest, Vec<Place>>,
    partial: Partial,
    delivered: Delivered,
}

/// A file to be put in place.
#[derive(Debug)]
struct Incoming {
    entry: Entry,
    content: Content,
    /// The name under which it will be put: its own, or another by [`OnConflict::Rename`].
    place: Vec<u8>,
    partial: PathBuf,
}

#[derive(Debug, Clone, Copy)]
struct Place {
    file: usize,
    offset: u64,
    len: u32,
}

/// What stands where an entry should go.
enum Standing {
    Nothing,
    Same,
    Different { can_be_settled: bool },
}

impl Delivery {
    /// Compares `manifest` with what is in `destination`, which is created if need be, and with what an earlier attempt
    /// left there. Writes nothing but the partial area, and not even that if there are conflicts to refuse.
    ///
    /// # Errors
    /// [`DeliveryError::Conflicts`], [`DeliveryError::Busy`], or when something cannot be read.
    pub fn plan(destination: &Path, manifest: &Manifest, on_conflict: OnConflict) -> Result<Self, DeliveryError> {
        check(manifest)?;
        let on_error = |action| move |source| DeliveryError::Io { action, path: destination.to_owned(), source };
        fs::create_dir_all(destination).map_err(on_error("create"))?;
        let root = Root::open(destination).map_err(on_error("open"))?;
        let plan = Plan::of(&root, manifest, on_conflict)?;
        if !plan.conflicts.is_empty() {
            let destination = destination.to_owned();
            return Err(DeliveryError::Conflicts { destination, conflicts: plan.conflicts });
        }
        let partial = Partial::open(destination, &digest_of(&hostler_proto::encode(manifest)))?;
        let mut delivery = Self {
            destination: destination.to_owned(),
            root,
            on_conflict,
            directories: plan.directories,
            files: Vec::with_capacity(plan.files.len()),
            links: plan.links,
            wanted: HashMap::new(),
            partial,
            delivered: plan.delivered,
        };
        for (entry, content, place) in plan.files {
            delivery.expect(entry, content, place)?;
        }
        Ok(delivery)
    }

    /// Adds a file, looking for its chunks in the partial area and in the file that it would replace.
    fn expect(&mut self, entry: Entry, content: Content, place: Vec<u8>) -> Result<(), DeliveryError> {
        let index = self.files.len();
        let partial = self.partial.path_for(&entry, &content);
        // An attempt that was interrupted while finishing may have left a file that its owner cannot write.
        let _ = fs::set_permissions(&partial, Permissions::from_mode(0o600));
        let started = OpenOptions::new().read(true).write(true).open(&partial).ok();
        let replaced = self.root.open_file(&entry.path).ok();
        let holds = |file: Option<&File>, offset, chunk: &Chunk| {
            let bytes = read_at(file?, offset, chunk.len as usize).ok()?;
            (digest_of(&bytes) == chunk.digest).then_some(bytes)
        };
        let mut offset = 0;
        let mut found = Vec::new();
        for chunk in &content.chunks {
            if holds(started.as_ref(), offset, chunk).is_none() {
                if holds(replaced.as_ref(), offset, chunk).is_some() {
                    found.push((offset, *chunk));
                } else {
                    let place = Place { file: index, offset, len: chunk.len };
                    self.wanted.entry(chunk.digest).or_default().push(place);
                }
            }
            offset += u64::from(chunk.len);
        }
        self.files.push(Incoming { entry, content, place, partial });
        for (offset, chunk) in found {
            let bytes = holds(replaced.as_ref(), offset, &chunk);
            let place = Place { file: index, offset, len: chunk.len };
            match bytes {
                Some(bytes) => self.write(place, &bytes)?,
                // It changed under our eyes.
                None => self.wanted.entry(chunk.digest).or_default().push(place),
            }
        }
        Ok(())
    }

    /// The chunks that have not arrived, in the order of the files that they belong to, each once.
    #[must_use]
    pub fn missing(&self) -> Vec<Digest> {
        let mut seen = HashSet::with_capacity(self.wanted.len());
        (self.files.iter())
            .flat_map(|file| file.content.chunks.iter().map(|chunk| chunk.digest))
            .filter(|digest| self.wanted.contains_key(digest) && seen.insert(*digest))
            .collect()
    }

    /// How many bytes of files have not arrived.
    #[must_use]
    pub fn missing_bytes(&self) -> u64 {
        self.wanted.values().flatten().map(|place| u64::from(place.len)).sum()
    }

    /// Takes a chunk that arrived in its [`wire`] form, checks it and writes it wherever it belongs. One that is not wanted
    /// (any more) is ignored.
    ///
    /// # Errors
    /// [`DeliveryError::Damaged`], [`DeliveryError::DiskFull`] or another error of the file system.
    pub fn accept(&mut self, digest: &Digest, wire: &[u8]) -> Result<(), DeliveryError> {
        if !self.wanted.contains_key(digest) {
            return Ok(());
        }
        let damaged = |source| DeliveryError::Damaged { digest: *digest, source };
        let bytes = wire::decode(digest, wire).map_err(damaged)?;
        for &place in &self.wanted[digest] {
            if place.len as usize != bytes.len() {
                return Err(damaged(WireError::Damaged(io::Error::other("its length is not the manifest's"))));
            }
            self.write(place, &bytes)?;
        }
        self.wanted.remove(digest);
        Ok(())
    }

    fn write(&self, place: Place, bytes: &[u8]) -> Result<(), DeliveryError> {
        let path = &self.files[place.file].partial;
        let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path);
        file.and_then(|file| file.write_all_at(bytes, place.offset))
            .map_err(|source| self.failure("write", path, source))
    }

    /// Puts everything in place and removes the partial area.
    ///
    /// # Errors
    /// [`DeliveryError::Incomplete`] while chunks are missing. [`DeliveryError::Conflicts`] when the user has put a file in
    /// the way since the plan was made; plan again then.
    pub fn finish(mut self) -> Result<Delivered, DeliveryError> {
        if !self.wanted.is_empty() {
            return Err(DeliveryError::Incomplete(self.wanted.len()));
        }
        for file in &self.files {
            self.complete(file).map_err(|source| self.failure("complete", &file.partial, source))?;
        }
        self.sync()?;
        self.make_directories()?;
        let mut conflicts = Vec::new();
        for file in std::mem::take(&mut self.files) {
            match self.put(&file) {
                Ok(()) => {
                    self.delivered.files += 1;
                    self.delivered.bytes += file.content.size;
                }
                Err(error) => self.set_aside(&mut conflicts, file.place, error)?,
            }
        }
        for (entry, place) in std::mem::take(&mut self.links) {
            if let Err(error) = self.link(&entry, &place) {
                self.set_aside(&mut conflicts, place, error)?;
            }
        }
        if !conflicts.is_empty() {
            return Err(DeliveryError::Conflicts { destination: self.destination, conflicts });
        }
        self.settle_directories()?;
        self.partial.remove().map_err(|source| self.failure("remove", &self.partial.path, source))?;
        // Whoever hears of success may delete the results elsewhere.
        self.sync()?;
        Ok(self.delivered)
    }

    fn sync(&self) -> Result<(), DeliveryError> {
        syncfs(self.root.as_fd()).map_err(|error| self.failure("sync", &self.destination, error.into()))
    }

    /// Gives a partial file the length, mode and time of the whole one. Its bytes were checked as they came.
    fn complete(&self, file: &Incoming) -> io::Result<()> {
        let partial = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&file.partial)?;
        partial.set_len(file.content.size)?;
        fchmod(&partial, Mode::from_bits_truncate(file.entry.mode & 0o777))?;
        let time = time_of(file.entry.modified_ns);
        Ok(futimens(&partial, &time, &time)?)
    }

    fn make_directories(&self) -> Result<(), DeliveryError> {
        let mut parents = Parents::of(&self.root);
        for (entry, _) in self.directories.iter().filter(|(_, exists)| !exists) {
            // With nearly its own mode already, in case we are interrupted before it is settled.
            let mode = Mode::from_bits_truncate(entry.mode & 0o777) | Mode::S_IRWXU;
            let mut make = || match mkdirat(parents.directory_of(&entry.path)?, paths::name(&entry.path), mode) {
                // Made by an attempt that was interrupted here, or by the user just now.
                Err(Errno::EEXIST) => Ok(()),
                made => made.map_err(io::Error::from),
            };
            make().map_err(|source| self.failure("create", &self.root.full(&entry.path), source))?;
        }
        Ok(())
    }

    /// Modes and times of the directories that were made, deepest first: putting files in them changed the times.
    fn settle_directories(&self) -> Result<(), DeliveryError> {
        for (entry, _) in self.directories.iter().rev().filter(|(_, exists)| !exists) {
            let settle = || {
                let directory = self.root.open_directory(&entry.path)?;
                fchmod(&directory, Mode::from_bits_truncate(entry.mode & 0o777))?;
                let time = time_of(entry.modified_ns);
                io::Result::Ok(futimens(&directory, &time, &time)?)
            };
            settle().map_err(|source| self.failure("finish", &self.root.full(&entry.path), source))?;
        }
        Ok(())
    }

    fn put(&self, file: &Incoming) -> io::Result<()> {
        let mut parents = Parents::of(&self.root);
        let (directory, name) = (parents.directory_of(&file.place)?, paths::name(&file.place));
        let partial = paths::name(file.partial.as_os_str().as_bytes());
        if self.on_conflict == OnConflict::Overwrite {
            return Ok(renameat(&self.partial.lock, partial, directory, name)?);
        }
        match renameat2(&self.partial.lock, partial, directory, name, RenameFlags::RENAME_NOREPLACE) {
            // Network file systems lack the flag. The window between question and renaming is theirs.
            Err(Errno::EINVAL) if Stat::at(directory, name).is_err() => {
                Ok(renameat(&self.partial.lock, partial, directory, name)?)
            }
            Err(Errno::EINVAL) => Err(Errno::EEXIST.into()),
            done => Ok(done?),
        }
    }

    fn link(&self, entry: &Entry, place: &[u8]) -> io::Result<()> {
        let EntryKind::Symlink { target } = &entry.kind else { return Ok(()) };
        let mut parents = Parents::of(&self.root);
        let (directory, name) = (parents.directory_of(place)?, paths::name(place));
        if self.on_conflict == OnConflict::Overwrite && Stat::at(directory, name).is_ok() {
            unlinkat(directory, name, UnlinkatFlags::NoRemoveDir)?;
        }
        symlinkat(target.as_slice(), directory, name)?;
        let time = time_of(entry.modified_ns);
        Ok(utimensat(directory, name, &time, &time, UtimensatFlags::NoFollowSymlink)?)
    }

    /// Sorts a failure to put something in place: something in the way is collected, anything else ends the delivery.
    fn set_aside(&self, conflicts: &mut Vec<Conflict>, path: Vec<u8>, error: io::Error) -> Result<(), DeliveryError> {
        let can_be_settled = match error.raw_os_error() {
            Some(libc::EEXIST) => true,
            Some(libc::EISDIR | libc::ENOTDIR | libc::ELOOP) => false,
            _ => return Err(self.failure("put in place", &self.root.full(&path), error)),
        };
        conflicts.push(Conflict { path, can_be_settled });
        Ok(())
    }

    fn failure(&self, action: &'static str, path: &Path, source: io::Error) -> DeliveryError {
        if is_disk_full(&source) {
            let free = free_bytes(&self.destination).unwrap_or(0);
            return DeliveryError::DiskFull { path: self.destination.clone(), needed: self.missing_bytes(), free };
        }
        DeliveryError::Io { action, path: path.to_owned(), source }
    }
}

/// A manifest compared with what stands in the destination.
#[derive(Default)]
struct Plan {
    directories: Vec<(Entry, bool)>,
    files: Vec<(Entry, Content, Vec<u8>)>,
    links: Vec<(Entry, Vec<u8>)>,
    conflicts: Vec<Conflict>,
    delivered: Delivered,
}

impl Plan {
    fn of(root: &Root, manifest: &Manifest, on_conflict: OnConflict) -> Result<Self, DeliveryError> {
        let mut plan = Self::default();
        for entry in &manifest.entries {
            let on_error = |source| DeliveryError::Io { action: "compare", path: root.full(&entry.path), source };
            match standing(root, &entry.path, entry).map_err(on_error)? {
                Standing::Nothing => plan.add(entry, entry.path.clone(), false),
                Standing::Same if entry.kind == EntryKind::Directory => plan.add(entry, entry.path.clone(), true),
                Standing::Same => plan.delivered.kept += 1,
                Standing::Different { can_be_settled: true } if on_conflict == OnConflict::Overwrite => {
                    plan.add(entry, entry.path.clone(), false);
                }
                Standing::Different { can_be_settled: true } if on_conflict == OnConflict::Rename => {
                    plan.add_beside(root, manifest, entry).map_err(on_error)?;
                }
                Standing::Different { can_be_settled } => {
                    plan.conflicts.push(Conflict { path: entry.path.clone(), can_be_settled });
                }
            }
        }
        Ok(plan)
    }

    fn add(&mut self, entry: &Entry, place: Vec<u8>, exists: bool) {
        match &entry.kind {
            EntryKind::Directory => self.directories.push((entry.clone(), exists)),
            EntryKind::File(content) => self.files.push((entry.clone(), content.clone(), place)),
            EntryKind::Symlink { .. } => self.links.push((entry.clone(), place)),
        }
    }

    /// Finds the first `name.N` that is free or holds the same already, so that a repeated delivery adds nothing.
    fn add_beside(&mut self, root: &Root, manifest: &Manifest, entry: &Entry) -> io::Result<()> {
        let is_taken = |place: &[u8]| manifest.entries.binary_search_by(|it| it.path.as_slice().cmp(place)).is_ok();
        for number in 1u32.. {
            let place = [&entry.path, format!(".{number}").as_bytes()].concat();
            match standing(root, &place, entry)? {
                Standing::Nothing if !is_taken(&place) => {
                    self.delivered.renamed.push((entry.path.clone(), place.clone()));
                    self.add(entry, place, false);
                    break;
                }
                Standing::Same if !is_taken(&place) => {
                    self.delivered.renamed.push((entry.path.clone(), place));
                    self.delivered.kept += 1;
                    break;
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Compares what is at `place` with `entry`.
fn standing(root: &Root, place: &[u8], entry: &Entry) -> io::Result<Standing> {
    let stat = match root.stat(place) {
        Ok(stat) => stat,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Standing::Nothing),
        // A directory on the way is a link, or no directory.
        Err(error) if matches!(error.raw_os_error(), Some(libc::ELOOP | libc::ENOTDIR | libc::EXDEV)) => {
            return Ok(Standing::Different { can_be_settled: false });
        }
        Err(error) => return Err(error),
    };
    let same = match (&entry.kind, stat.kind) {
        (EntryKind::Directory, Kind::Directory) => true,
        (EntryKind::File(content), Kind::File) => stat.size == content.size && holds(root, place, content)?,
        (EntryKind::Symlink { target }, Kind::Symlink) => root.read_link(place)? == *target,
        _ => false,
    };
    if same {
        return Ok(Standing::Same);
    }
    let a_directory = stat.kind == Kind::Directory || entry.kind == EntryKind::Directory;
    Ok(Standing::Different { can_be_settled: !a_directory })
}

/// Whether the file at `place`, which has the right size, holds `content`.
fn holds(root: &Root, place: &[u8], content: &Content) -> io::Result<bool> {
    let file = root.open_file(place)?;
    let mut offset = 0;
    for chunk in &content.chunks {
        if digest_of(&read_at(&file, offset, chunk.len as usize)?) != chunk.digest {
            return Ok(false);
        }
        offset += u64::from(chunk.len);
    }
    Ok(true)
}

/// The area for unfinished files of one delivery, locked while it is under way.
#[derive(Debug)]
struct Partial {
    path: PathBuf,
    lock: File,
}

impl Partial {
    fn open(destination: &Path, manifest: &Digest) -> Result<Self, DeliveryError> {
        let path = destination.join(PARTIAL).join(manifest.to_string());
        let open = || {
            make_directory(&destination.join(PARTIAL))?;
            make_directory(&path)?;
            File::open(&path)
        };
        let lock = open().map_err(|source| DeliveryError::Io { action: "create", path: path.clone(), source })?;
        lock.try_lock().map_err(|_| DeliveryError::Busy(destination.to_owned()))?;
        Ok(Self { path, lock })
    }

    /// Where a file is assembled: the same place at the next attempt.
    fn path_for(&self, entry: &Entry, content: &Content) -> PathBuf {
        let mut key = entry.path.clone();
        key.push(0);
        content.chunks.iter().for_each(|chunk| key.extend_from_slice(&chunk.digest.0));
        self.path.join(digest_of(&key).to_string())
    }

    fn remove(&self) -> io::Result<()> {
        remove_tree(&self.path)?;
        match fs::remove_dir(self.path.parent().expect("it lies in the partial directory")) {
            // Another delivery has an area there.
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(()),
            removed => removed,
        }
    }
}

/// Makes a private directory, or checks that it is one: a link of that name would lead our writes away.
fn make_directory(path: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            if fs::symlink_metadata(path)?.is_dir() {
                Ok(())
            } else {
                Err(Errno::ENOTDIR.into())
            }
        }
        made => made,
    }
}
