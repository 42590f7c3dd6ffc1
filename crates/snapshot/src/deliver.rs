//! Delivers results into the user's destination: whole files only, resumable, and never over a user's file by
//! accident.
//!
//! Chunks arrive in any order and are written to files in `.hostler-partial/` inside the destination.
//! [`Delivery::finish`] makes them durable with one call and then renames them into place. A file in its place is
//! therefore whole, even after a power cut. After an interruption, [`Delivery::plan`] hashes the partial files and
//! requests only the missing chunks. It also reuses data that the destination already holds.
//!
//! Another user may be able to write to the destination. The partial files are therefore opened by descriptor, never
//! through a link, and only in directories that belong to this user.
//!
//! Some disks, such as FAT, cannot hold modes, times or links. The files are delivered without them, and
//! [`Delivered::not_held`] lists what is missing.
//!
//! A conflicting file of the user stays if it holds the same bytes; otherwise [`OnConflict`] decides. A file from an
//! earlier delivery of the same result is replaced if nobody has changed it since (see [`Earlier`]). A directory is
//! never replaced by another type, and nothing is written through a symbolic link.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use hostler_model::Digest;
use hostler_proto::manifest::{Chunk, Content, Entry, EntryKind, Manifest};
use nix::errno::Errno;
use nix::fcntl::{OFlag, RenameFlags, openat, renameat, renameat2};
use nix::sys::stat::{
    FchmodatFlags, FileStat, Mode, UtimensatFlags, fchmod, fchmodat, fstat, futimens, mkdirat, utimensat,
};
use nix::sys::time::TimeSpec;
use nix::unistd::{UnlinkatFlags, symlinkat, syncfs, unlinkat};

use crate::beneath::{Kind, Parents, Root, Stat, read_at, time_of};
use crate::check::check;
use crate::chunk::digest_of;
use crate::marker::{self, Earlier, RESULTS_MARKER};
use crate::paths;
use crate::remove::remove_tree_at;
use crate::sparse::{holds_chunk, is_hole, is_zeros, write_sparse};
use crate::store::{free_bytes, is_disk_full};
use crate::undelivered::{Conflict, DeliveryError};
use crate::wire::{self, WireError};

const PARTIAL: &str = ".hostler-partial";

/// Modification time of an entry that gets the time of its delivery.
pub const TIME_OF_DELIVERY: i64 = i64::MIN;

/// What to do with a user's file that differs from the delivered file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnConflict {
    /// Deliver nothing and list all conflicts.
    #[default]
    Refuse,
    Overwrite,
    /// Keep the user's files and deliver as `name.1`, `name.2` and so on.
    Rename,
}

/// A property of an entry that a disk may be unable to hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Property {
    Mode,
    Time,
    /// A symbolic link, which then does not exist.
    Link,
}

/// The result of a finished delivery.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Delivered {
    /// Number of files delivered.
    pub files: u64,
    /// The size of the delivered files, in bytes.
    pub bytes: u64,
    /// Files and links that already existed with the same content.
    pub kept: u64,
    /// Files and links of an earlier delivery of the same result that were replaced.
    pub replaced: u64,
    /// Files and links delivered under another name: original and new path.
    pub renamed: Vec<(Vec<u8>, Vec<u8>)>,
    /// What the disk cannot hold: property and path, sorted.
    pub not_held: Vec<(Property, Vec<u8>)>,
}

/// A delivery in progress: a plan, and the partial files that it fills.
#[derive(Debug)]
pub struct Delivery {
    destination: PathBuf,
    root: Root,
    on_conflict: OnConflict,
    /// What an earlier delivery of the same result left.
    earlier: Earlier,
    /// Directories in order, and whether each already exists.
    directories: Vec<(Entry, bool)>,
    files: Vec<Incoming>,
    links: Vec<(Entry, Vec<u8>)>,
    /// Where to write each missing chunk.
    wanted: HashMap<Digest, Vec<Place>>,
    partial: Partial,
    delivered: Delivered,
}

/// A file to deliver.
#[derive(Debug)]
struct Incoming {
    entry: Entry,
    content: Content,
    /// The path at which the file is delivered: the file's own path, or a new path by [`OnConflict::Rename`].
    place: Vec<u8>,
    /// Name of the partial file.
    partial: String,
}

#[derive(Debug, Clone, Copy)]
struct Place {
    file: usize,
    offset: u64,
    len: u32,
}

/// How an existing entry compares with the entry to deliver at the same path.
enum Standing {
    Nothing,
    Same,
    Different { can_be_settled: bool },
}

impl Delivery {
    /// Compares `manifest` with `destination`, which is created if needed, and with the partial files of an earlier
    /// attempt. Writes only to the partial area, and writes nothing if it refuses conflicts.
    ///
    /// `source` is the permanent name of the result, also when its content changes; the marker in the destination notes it.
    /// Without it, nothing is noted and no earlier delivery is replaced.
    ///
    /// # Errors
    /// [`DeliveryError::Conflicts`], [`DeliveryError::Busy`], or something cannot be read.
    pub fn plan(
        destination: &Path,
        manifest: &Manifest,
        on_conflict: OnConflict,
        source: Option<&str>,
    ) -> Result<Self, DeliveryError> {
        check(manifest)?;
        let on_error = |action| move |source| DeliveryError::Io { action, path: destination.to_owned(), source };
        fs::create_dir_all(destination).map_err(on_error("create"))?;
        let root = Root::open(destination).map_err(on_error("open"))?;
        let earlier = Earlier::read(&root, source);
        let plan = Plan::of(&root, manifest, on_conflict, &earlier)?;
        if !plan.conflicts.is_empty() {
            let destination = destination.to_owned();
            return Err(DeliveryError::Conflicts { destination, conflicts: plan.conflicts });
        }
        let partial = Partial::open(destination, &root, &digest_of(&hostler_proto::encode(manifest)))?;
        let mut delivery = Self {
            destination: destination.to_owned(),
            root,
            on_conflict,
            earlier,
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

    /// Adds a file and looks for its chunks in the partial area and in the existing file that the new file replaces.
    fn expect(&mut self, entry: Entry, content: Content, place: Vec<u8>) -> Result<(), DeliveryError> {
        let index = self.files.len();
        let partial = Partial::name_for(&entry, &content);
        let started = self.partial.reopen(&partial).ok();
        let replaced = self.root.open_file(&entry.path).ok();
        let holds = |file: Option<&File>, offset, chunk: &Chunk| {
            let bytes = read_at(file?, offset, chunk.len as usize).ok()?;
            (digest_of(&bytes) == chunk.digest).then_some(bytes)
        };
        let mut offset = 0;
        let mut found = Vec::new();
        for chunk in &content.chunks {
            // Completing a partial file sets its length, so that a range without data reads as zeros.
            let has_hole = |file: &File| is_hole(file, offset, u64::from(chunk.len));
            let is_hole = is_zeros(chunk) && started.as_ref().is_none_or(has_hole);
            if !is_hole && holds(started.as_ref(), offset, chunk).is_none() {
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
                // The file changed since it was hashed.
                None => self.wanted.entry(chunk.digest).or_default().push(place),
            }
        }
        Ok(())
    }

    /// Returns the digests of the missing chunks, each once, in the order of their files.
    #[must_use]
    pub fn missing(&self) -> Vec<Digest> {
        let mut seen = HashSet::with_capacity(self.wanted.len());
        (self.files.iter())
            .flat_map(|file| file.content.chunks.iter().map(|chunk| chunk.digest))
            .filter(|digest| self.wanted.contains_key(digest) && seen.insert(*digest))
            .collect()
    }

    /// Returns the number of bytes that are still missing in all files together.
    #[must_use]
    pub fn missing_bytes(&self) -> u64 {
        self.wanted.values().flatten().map(|place| u64::from(place.len)).sum()
    }

    /// Returns the number of files to write.
    #[must_use]
    pub fn missing_files(&self) -> usize {
        self.files.len()
    }

    /// Checks a chunk in its [`wire`] form and writes it to every file that needs it. Ignores a chunk that no file
    /// needs.
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
                return Err(damaged(WireError::Damaged(io::Error::other("the length differs from the manifest"))));
            }
            self.write(place, &bytes)?;
        }
        self.wanted.remove(digest);
        Ok(())
    }

    fn write(&self, place: Place, bytes: &[u8]) -> Result<(), DeliveryError> {
        let name = &self.files[place.file].partial;
        let file = self.partial.open_or_create(name);
        file.and_then(|file| write_sparse(&file, bytes, place.offset))
            .map(drop)
            .map_err(|source| self.failure("write", &self.partial.path.join(name), source))
    }

    /// Moves all files to their final paths and removes the partial area.
    ///
    /// # Errors
    /// [`DeliveryError::Incomplete`] while chunks are missing. [`DeliveryError::Conflicts`] if the user has created a
    /// conflicting file since the plan was made; make a new plan then.
    pub fn finish(mut self) -> Result<Delivered, DeliveryError> {
        if !self.wanted.is_empty() {
            return Err(DeliveryError::Incomplete(self.wanted.len()));
        }
        let mut not_held = Vec::new();
        for file in &self.files {
            let path = self.partial.path.join(&file.partial);
            self.complete(file, &mut not_held).map_err(|source| self.failure("complete", &path, source))?;
        }
        self.sync()?;
        self.make_directories()?;
        let mut conflicts = Vec::new();
        let mut failed = None;
        let mut placed = Vec::new();
        for file in std::mem::take(&mut self.files) {
            match self.put(&file.partial, &file.place) {
                Ok(()) => {
                    self.delivered.files += 1;
                    self.delivered.bytes += file.content.size;
                    placed.push(file.place);
                }
                // A disk may refuse a single name; the other files are delivered in any case.
                Err(error) => failed = failed.or(self.set_aside(&mut conflicts, file.place, error).err()),
            }
        }
        for (entry, place) in std::mem::take(&mut self.links) {
            match self.link(&entry, &place) {
                Ok(true) => placed.push(place),
                Ok(false) => not_held.push((Property::Link, place)),
                Err(error) => failed = failed.or(self.set_aside(&mut conflicts, place, error).err()),
            }
        }
        if !conflicts.is_empty() {
            return Err(DeliveryError::Conflicts { destination: self.destination, conflicts });
        }
        if let Some(failed) = failed {
            return Err(failed);
        }
        self.settle_directories(&mut not_held)?;
        not_held.sort_unstable();
        self.delivered.not_held = not_held;
        let marker = self.root.full(RESULTS_MARKER.as_bytes());
        let noted = self.earlier.note(&self.root, &placed).and_then(|note| match note {
            Some(note) => self.partial.write_marker(&note, &self.root),
            None => Ok(()),
        });
        noted.map_err(|source| self.failure("write", &marker, source))?;
        self.partial.remove(&self.root).map_err(|source| self.failure("remove", &self.partial.path, source))?;
        // Sync before reporting success: the caller may then delete the results elsewhere.
        self.sync()?;
        Ok(self.delivered)
    }

    fn sync(&self) -> Result<(), DeliveryError> {
        syncfs(self.root.as_fd()).map_err(|error| self.failure("sync", &self.destination, error.into()))
    }

    /// Sets length, mode and time of a partial file. The file's bytes were checked when they were received.
    fn complete(&self, file: &Incoming, not_held: &mut Vec<(Property, Vec<u8>)>) -> io::Result<()> {
        let partial = self.partial.open_or_create(&file.partial)?;
        partial.set_len(file.content.size)?;
        set_properties(&partial, &file.entry, &file.place, not_held)
    }

    fn make_directories(&self) -> Result<(), DeliveryError> {
        let mut parents = Parents::of(&self.root);
        for (entry, _) in self.directories.iter().filter(|(_, exists)| !exists) {
            // Create it with nearly its final mode, in case the delivery is interrupted before the mode is set.
            let mode = Mode::from_bits_truncate(entry.mode & 0o777) | Mode::S_IRWXU;
            let mut make = || match mkdirat(parents.directory_of(&entry.path)?, paths::name(&entry.path), mode) {
                // An interrupted attempt or the user has created it meanwhile.
                Err(Errno::EEXIST) => Ok(()),
                made => made.map_err(io::Error::from),
            };
            make().map_err(|source| self.failure("create", &self.root.full(&entry.path), source))?;
        }
        Ok(())
    }

    /// Sets modes and times of the created directories, deepest first, because adding files changed the times.
    fn settle_directories(&self, not_held: &mut Vec<(Property, Vec<u8>)>) -> Result<(), DeliveryError> {
        for (entry, _) in self.directories.iter().rev().filter(|(_, exists)| !exists) {
            let directory = self.root.open_directory(&entry.path);
            let settled = directory.and_then(|it| set_properties(&it, entry, &entry.path, not_held));
            settled.map_err(|source| self.failure("finish", &self.root.full(&entry.path), source))?;
        }
        Ok(())
    }

    /// Moves an entry of the partial area to its place.
    fn put(&self, partial: &str, place: &[u8]) -> io::Result<()> {
        let mut parents = Parents::of(&self.root);
        let (directory, name) = (parents.directory_of(place)?, paths::name(place));
        if self.on_conflict == OnConflict::Overwrite || self.earlier.is_untouched(&self.root, place) {
            return Ok(renameat(&self.partial.lock, partial, directory, name)?);
        }
        match renameat2(&self.partial.lock, partial, directory, name, RenameFlags::RENAME_NOREPLACE) {
            // Network file systems lack the flag, so a race between the check and the rename remains there.
            Err(Errno::EINVAL) if Stat::at(directory, name).is_err() => {
                Ok(renameat(&self.partial.lock, partial, directory, name)?)
            }
            Err(Errno::EINVAL) => Err(Errno::EEXIST.into()),
            done => Ok(done?),
        }
    }

    /// Delivers a link. Returns false, and changes nothing at its place, if the disk cannot hold links.
    fn link(&self, entry: &Entry, place: &[u8]) -> io::Result<bool> {
        let EntryKind::Symlink { target } = &entry.kind else { return Ok(true) };
        let partial = Partial::name_for(entry, &Content::default());
        let (area, name) = (&self.partial.lock, partial.as_str());
        // An interrupted attempt may have left it.
        let _ = unlinkat(area, name, UnlinkatFlags::NoRemoveDir);
        match symlinkat(target.as_slice(), area, name).map_err(io::Error::from) {
            Err(error) if is_beyond_disk(&error) => return Ok(false),
            done => done?,
        }
        let time = time_of(entry.modified_ns);
        match utimensat(area, name, &time, &time, UtimensatFlags::NoFollowSymlink).map_err(io::Error::from) {
            // The time of a link is optional.
            Err(error) if is_beyond_disk(&error) => {}
            done => done?,
        }
        self.put(name, place)?;
        Ok(true)
    }

    /// Adds a failure that is caused by a conflict to `conflicts`. Returns any other failure, which ends the delivery.
    fn set_aside(&self, conflicts: &mut Vec<Conflict>, path: Vec<u8>, error: io::Error) -> Result<(), DeliveryError> {
        let can_be_settled = match error.raw_os_error() {
            Some(libc::EEXIST) => true,
            Some(libc::EISDIR | libc::ENOTDIR | libc::ELOOP) => false,
            _ => return Err(self.failure("create", &self.root.full(&path), error)),
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

/// Sets mode and time of an open file or directory. Adds what the disk cannot hold to `not_held`, under the path `place`.
fn set_properties(
    file: &impl AsFd,
    entry: &Entry,
    place: &[u8],
    not_held: &mut Vec<(Property, Vec<u8>)>,
) -> io::Result<()> {
    let time = match entry.modified_ns {
        TIME_OF_DELIVERY => TimeSpec::UTIME_NOW,
        modified_ns => time_of(modified_ns),
    };
    let mode = fchmod(file, Mode::from_bits_truncate(entry.mode & 0o777));
    for (property, done) in [(Property::Mode, mode), (Property::Time, futimens(file, &time, &time))] {
        match done.map_err(io::Error::from) {
            Err(error) if is_beyond_disk(&error) => not_held.push((property, place.to_vec())),
            done => done?,
        }
    }
    Ok(())
}

/// Returns whether a call on a file of this process failed because the file system lacks the feature. FAT answers
/// `EPERM`, network disks one of the others.
fn is_beyond_disk(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EPERM | libc::EOPNOTSUPP | libc::ENOSYS))
}

/// A manifest compared with the destination.
#[derive(Default)]
struct Plan {
    directories: Vec<(Entry, bool)>,
    files: Vec<(Entry, Content, Vec<u8>)>,
    links: Vec<(Entry, Vec<u8>)>,
    conflicts: Vec<Conflict>,
    delivered: Delivered,
}

impl Plan {
    fn of(root: &Root, manifest: &Manifest, on_conflict: OnConflict, earlier: &Earlier) -> Result<Self, DeliveryError> {
        let mut plan = Self::default();
        for entry in &manifest.entries {
            let on_error = |source| DeliveryError::Io { action: "compare", path: root.full(&entry.path), source };
            match standing(root, &entry.path, entry).map_err(on_error)? {
                Standing::Nothing => plan.add(entry, entry.path.clone(), false),
                Standing::Same if entry.kind == EntryKind::Directory => plan.add(entry, entry.path.clone(), true),
                Standing::Same => plan.delivered.kept += 1,
                Standing::Different { can_be_settled: true } if earlier.is_untouched(root, &entry.path) => {
                    plan.add(entry, entry.path.clone(), false);
                    plan.delivered.replaced += 1;
                }
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

    /// Finds the first `name.N` that is free or already has the same content, so that a repeated delivery adds no
    /// copies.
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

/// Compares the entry at `place` with `entry`.
fn standing(root: &Root, place: &[u8], entry: &Entry) -> io::Result<Standing> {
    let stat = match root.stat(place) {
        Ok(stat) => stat,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Standing::Nothing),
        // A parent is a link or not a directory.
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

/// Returns whether the file at `place`, which has the right size, holds `content`.
fn holds(root: &Root, place: &[u8], content: &Content) -> io::Result<bool> {
    let file = root.open_file(place)?;
    let mut offset = 0;
    for chunk in &content.chunks {
        if !holds_chunk(&file, offset, chunk)? {
            return Ok(false);
        }
        offset += u64::from(chunk.len);
    }
    Ok(true)
}

/// The directory for unfinished files of one delivery, locked during the delivery.
#[derive(Debug)]
struct Partial {
    path: PathBuf,
    /// Name of the directory in the partial area.
    name: String,
    /// The partial area, which other deliveries to the same destination share.
    area: OwnedFd,
    lock: File,
    /// Owner of files that this process creates here. Usually its user; some network disks and FAT choose another one.
    owner: u32,
}

impl Partial {
    fn open(destination: &Path, root: &Root, manifest: &Digest) -> Result<Self, DeliveryError> {
        let name = manifest.to_string();
        let path = destination.join(PARTIAL).join(&name);
        let open = || {
            let area = open_private(root.as_fd(), PARTIAL)?;
            let owner = owner_of_new_files(&area)?;
            let lock = File::from(open_private(&area, &name)?);
            for directory in [area.as_fd(), lock.as_fd()] {
                check_owner(&fstat(directory)?, owner)?;
            }
            io::Result::Ok(Self { path: path.clone(), name, area, lock, owner })
        };
        let partial = open().map_err(|source| DeliveryError::Io { action: "create", path: path.clone(), source })?;
        partial.lock.try_lock().map_err(|_| DeliveryError::Busy(destination.to_owned()))?;
        Ok(partial)
    }

    /// Returns the name of a partial file, which is the same in every attempt.
    fn name_for(entry: &Entry, content: &Content) -> String {
        let mut key = entry.path.clone();
        key.push(0);
        content.chunks.iter().for_each(|chunk| key.extend_from_slice(&chunk.digest.0));
        digest_of(&key).to_string()
    }

    /// Opens a file of an earlier attempt.
    fn reopen(&self, name: &str) -> io::Result<File> {
        match self.open_file(name, OFlag::empty()) {
            // An attempt interrupted while finishing has left a file that its owner cannot write. Root never gets here.
            Err(error) if error.raw_os_error() == Some(libc::EACCES) => {
                fchmodat(&self.lock, name, Mode::S_IRUSR | Mode::S_IWUSR, FchmodatFlags::NoFollowSymlink)?;
                self.open_file(name, OFlag::empty())
            }
            opened => opened,
        }
    }

    fn open_or_create(&self, name: &str) -> io::Result<File> {
        self.open_file(name, OFlag::O_CREAT)
    }

    /// Opens a file that only this user can have made: neither a link nor another name of a file elsewhere.
    fn open_file(&self, name: &str, flags: OFlag) -> io::Result<File> {
        let flags = flags | OFlag::O_RDWR | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        let file = File::from(openat(&self.lock, name, flags, Mode::S_IRUSR | Mode::S_IWUSR)?);
        let stat = fstat(&file)?;
        check_owner(&stat, self.owner)?;
        if stat.st_mode & libc::S_IFMT == libc::S_IFREG && stat.st_nlink == 1 { Ok(file) } else { Err(foreign()) }
    }

    /// Replaces the marker in `root`. Keeps anything else of that name.
    fn write_marker(&self, content: &[u8], root: &Root) -> io::Result<()> {
        if !marker::may_replace(root) {
            return Ok(());
        }
        let mut file = self.open_or_create(RESULTS_MARKER)?;
        file.set_len(0)?;
        file.write_all(content)?;
        Ok(renameat(&self.lock, RESULTS_MARKER, root.as_fd(), RESULTS_MARKER)?)
    }

    fn remove(&self, root: &Root) -> io::Result<()> {
        remove_tree_at(&self.area, &self.name)?;
        match unlinkat(root.as_fd(), PARTIAL, UnlinkatFlags::RemoveDir) {
            // Another delivery has a directory there.
            Err(Errno::ENOTEMPTY | Errno::EEXIST) => Ok(()),
            removed => Ok(removed?),
        }
    }
}

/// Opens the directory `name` in `parent`, and creates it for this user alone if it is missing.
fn open_private(parent: impl AsFd, name: &str) -> io::Result<OwnedFd> {
    match mkdirat(&parent, name, Mode::S_IRWXU) {
        Ok(()) | Err(Errno::EEXIST) => {}
        Err(error) => return Err(error.into()),
    }
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    Ok(openat(&parent, name, flags, Mode::empty())?)
}

/// Creates and removes a file in `directory`; returns its owner.
fn owner_of_new_files(directory: impl AsFd) -> io::Result<u32> {
    let name = format!("owner-{}-{:?}", std::process::id(), std::thread::current().id());
    let flags = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC;
    // A process of this number that was killed may have left it.
    let _ = unlinkat(&directory, name.as_str(), UnlinkatFlags::NoRemoveDir);
    let owner = fstat(openat(&directory, name.as_str(), flags, Mode::empty())?)?.st_uid;
    unlinkat(&directory, name.as_str(), UnlinkatFlags::NoRemoveDir)?;
    Ok(owner)
}

fn check_owner(stat: &FileStat, owner: u32) -> io::Result<()> {
    if stat.st_uid == owner { Ok(()) } else { Err(foreign()) }
}

fn foreign() -> io::Error {
    let why = "another user has put something in its place; remove it, or choose another directory";
    io::Error::new(io::ErrorKind::PermissionDenied, why)
}
