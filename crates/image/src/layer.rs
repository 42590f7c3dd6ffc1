//! Unpacks a layer: an archive of files that are added to a directory, or removed from it.
//!
//! Each path is resolved below the target directory, as if it were the root directory: part by part, without a call that
//! follows links. So symbolic links of an earlier layer work as in other programs, and none leads outside. Files are never overwritten, but replaced.
//!
//! What has no use in a read-only image of an ordinary user is left out: owners, device files, pipes, extended attributes,
//! set-user-id bits and other permissions than "everybody may read" and "everybody may execute".

use std::collections::{HashSet, VecDeque};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat, readlinkat};
use nix::sys::stat::{FileStat, Mode, SFlag, fchmod, fstatat, futimens, mkdirat};
use nix::sys::time::TimeSpec;
use nix::unistd::{UnlinkatFlags, linkat, symlinkat, unlinkat};
use tar::{Archive, Entry, EntryType};

use crate::compression::{Compression, without_content};
use crate::digest::{Hashing, Sha256};

/// Maximum number of directories in a path.
const MAX_DEPTH: usize = 100;

/// Maximum length of a path in bytes.
const MAX_PATH_BYTES: usize = 2048;

/// Maximum size of an uncompressed layer in bytes. Zeros count here, but not for [`Limits::bytes`].
const MAX_LAYER_BYTES: u64 = 32 << 30;

/// Number of bytes that are written at once, or become a hole if all of them are zero.
const CHUNK: usize = 64 << 10;

static ZEROS: [u8; CHUNK] = [0; CHUNK];

/// The largest size that the plain header of an archive's entry can state.
const MAX_PLAIN_BYTES: u64 = 0o77_777_777_777;

/// Position of an entry's kind in its header.
const KIND_BYTE: usize = 156;

const TOO_LARGE: &str = "makes the layer larger than 32 GiB; if it is a log of logins such as /var/log/lastlog, create the \
    image's user with `useradd --no-log-init`";

/// A directory's own permissions, and those of files that can be executed.
const OPEN: Mode = Mode::from_bits_truncate(0o755);

/// Permissions of other files.
const READABLE: Mode = Mode::from_bits_truncate(0o644);

/// Where a layer is, and what it must contain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LayerOrder {
    /// Position of the layer in its file, in bytes.
    pub offset: u64,
    /// Size of the layer in its file, in bytes.
    pub length: u64,
    /// Digest of the layer as it is in its file, if known.
    pub digest: Option<Sha256>,
    /// Digest of the uncompressed layer.
    pub diff_id: Sha256,
}

/// What a layer may at most contain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Sum of the bytes of all files, without holes: long runs of zeros take no place on the disk.
    pub bytes: u64,
    /// Number of files, directories, links and whiteouts.
    pub entries: u64,
}

/// What a layer has added.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Applied {
    /// Sum of the bytes of all files, without holes.
    pub bytes: u64,
    /// Number of files, directories, links and whiteouts.
    pub entries: u64,
}

/// Why a layer cannot be unpacked.
#[derive(Debug, thiserror::Error)]
pub enum LayerError {
    /// The content is not what the image says.
    #[error("the layer has the digest {found} instead of {expected}; copy the image again")]
    Digest {
        /// The digest that the image names.
        expected: Sha256,
        /// The digest of the content.
        found: Sha256,
    },
    /// The layer is larger than allowed.
    #[error("the layer exceeds the limit of {0}")]
    Limit(&'static str),
    /// The files of the layer are larger than allowed.
    #[error("the layer exceeds the limit of bytes of an image")]
    Bytes {
        /// By how many bytes, for all files of the layer.
        missing: u64,
    },
    /// An entry is not allowed.
    #[error("the layer's entry {path:?} {why}")]
    Entry {
        /// Path in the archive.
        path: PathBuf,
        /// What is wrong, as a verb phrase.
        why: &'static str,
    },
    /// The layer has a compression that is not read.
    #[error(
        "the layer is compressed with {0}; write the image again with gzip, e.g. `skopeo copy --dest-compress-format gzip \
         --dest-force-compress-format …`"
    )]
    Compression(Compression),
    /// The archive or the compression is damaged, or a file cannot be read.
    #[error("cannot read the layer: {0}")]
    Read(#[source] io::Error),
    /// A file cannot be written.
    #[error("cannot write {path:?}: {error}")]
    Write {
        /// Path in the archive.
        path: PathBuf,
        /// Reason.
        error: io::Error,
    },
}

/// Unpacks a layer into a directory, and verifies its digests. Without a directory, only verifies them.
///
/// # Errors
/// If the layer is hostile, damaged or too large, or if a file cannot be written. The directory may then contain a part of
/// the layer, and must not be used.
pub fn unpack(
    mut file: &File,
    order: &LayerOrder,
    root: Option<&OwnedFd>,
    limits: Limits,
) -> Result<Applied, LayerError> {
    file.seek(SeekFrom::Start(order.offset)).map_err(LayerError::Read)?;
    let mut packed = Hashing::new(file.take(order.length), order.length);
    let mut plain = Hashing::new(decompressor(&mut packed)?, MAX_LAYER_BYTES);
    let applied = root.map(|root| apply(&mut plain, root, limits)).transpose()?.unwrap_or_default();
    let found = plain.finish().map_err(read_error)?;
    expect(order.diff_id, found)?;
    // What follows the compressed data belongs to the digest too.
    let found = packed.finish().map_err(read_error)?;
    order.digest.map_or(Ok(()), |expected| expect(expected, found))?;
    // Only now, so that no header can claim a size that the layer does not have.
    match applied.bytes.saturating_sub(limits.bytes) {
        missing if root.is_some() && missing > 0 => Err(LayerError::Bytes { missing }),
        _ => Ok(applied),
    }
}

fn expect(expected: Sha256, found: Sha256) -> Result<(), LayerError> {
    if expected == found { Ok(()) } else { Err(LayerError::Digest { expected, found }) }
}

const LARGEST: &str = "32 GiB for an uncompressed layer";

fn read_error(error: io::Error) -> LayerError {
    match error.kind() {
        io::ErrorKind::FileTooLarge => LayerError::Limit(LARGEST),
        _ => LayerError::Read(without_content(error)),
    }
}

/// Decompresses a layer.
fn decompressor<'a>(packed: &'a mut Hashing<io::Take<&File>>) -> Result<Box<dyn Read + 'a>, LayerError> {
    let mut start = Vec::new();
    packed.take(Compression::START_BYTES).read_to_end(&mut start).map_err(LayerError::Read)?;
    let compression = Compression::of(&start);
    let all = BufReader::with_capacity(CHUNK, io::Cursor::new(start).chain(packed));
    Ok(match compression {
        None => Box::new(all),
        Some(Compression::Gzip) => Box::new(flate2::bufread::MultiGzDecoder::new(all)),
        Some(Compression::Zstd) => Box::new(zstd::stream::read::Decoder::with_buffer(all).map_err(LayerError::Read)?),
        Some(other) => return Err(LayerError::Compression(other)),
    })
}

/// Applies the entries of an uncompressed layer to a directory.
fn apply(plain: impl Read, root: &OwnedFd, limits: Limits) -> Result<Applied, LayerError> {
    let mut tree = Tree { root, created: HashSet::new(), applied: Applied::default(), plain_bytes: 0, limits };
    let mut archive = Archive::new(plain);
    for entry in archive.entries().map_err(read_error)? {
        tree.entry(&mut entry.map_err(read_error)?)?;
    }
    Ok(tree.applied)
}

/// The target directory, while one layer is unpacked.
struct Tree<'a> {
    root: &'a OwnedFd,
    /// The paths that this layer has created, and their parents. Whiteouts do not affect them.
    created: HashSet<PathBuf>,
    applied: Applied,
    /// Sum of the sizes of all files, with holes.
    plain_bytes: u64,
    limits: Limits,
}

impl Tree<'_> {
    fn entry(&mut self, entry: &mut Entry<'_, impl Read>) -> Result<(), LayerError> {
        self.applied.entries += 1;
        if self.applied.entries > self.limits.entries {
            return Err(LayerError::Limit("entries of an image"));
        }
        check_size(entry)?;
        let name = entry.path_bytes().into_owned();
        let path = plain_path(&name)?;
        let kind = match entry.header().entry_type() {
            // Archives from before POSIX have no kind for directories.
            EntryType::Regular if entry.header().as_bytes()[KIND_BYTE] == 0 && name.ends_with(b"/") => {
                EntryType::Directory
            }
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => EntryType::Regular,
            other => other,
        };
        if kind == EntryType::Regular {
            self.plain_bytes = self.plain_bytes.saturating_add(entry.size());
            if self.plain_bytes > MAX_LAYER_BYTES {
                return Err(refused(&path, TOO_LARGE));
            }
        }
        if self.is_full() {
            // The rest is only counted.
            return if kind == EntryType::Regular { self.copy(&path, entry, None) } else { Ok(()) };
        }
        let Some(name) = path.file_name() else {
            // The root directory itself.
            return Ok(());
        };
        if let Some(removed) = name.as_bytes().strip_prefix(b".wh.") {
            return self.whiteout(&path, removed);
        }
        match kind {
            EntryType::Directory => self.directory(&path),
            EntryType::Regular => self.file(&path, entry),
            EntryType::Symlink => {
                let target = entry.link_name_bytes().unwrap_or_default().into_owned();
                self.link(&path, &target)
            }
            EntryType::Link => {
                let target = entry.link_name_bytes().unwrap_or_default().into_owned();
                self.hard_link(&path, &target)
            }
            EntryType::Char | EntryType::Block | EntryType::Fifo | EntryType::XGlobalHeader => Ok(()),
            _ => Err(refused(&path, "is of an unknown kind")),
        }
    }

    /// Whether the files have more bytes than allowed.
    fn is_full(&self) -> bool {
        self.applied.bytes > self.limits.bytes
    }

    fn directory(&mut self, path: &Path) -> Result<(), LayerError> {
        let made = (|| {
            let (parent, name) = self.parent(path)?;
            match lookup(&parent, name)? {
                Some(found) if is_directory(&found) => Ok(()),
                Some(_) => {
                    remove(&parent, name)?;
                    mkdirat(&parent, name, OPEN)
                }
                None => mkdirat(&parent, name, OPEN),
            }
        })();
        self.noted(path, made)
    }

    fn file(&mut self, path: &Path, entry: &mut Entry<'_, impl Read>) -> Result<(), LayerError> {
        let is_program = entry.header().mode().unwrap_or(0) & 0o111 != 0;
        let modified = i64::try_from(entry.header().mtime().unwrap_or(0)).unwrap_or(0);
        let created = self.replaced(path, |parent, name| {
            let flags = OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_WRONLY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
            openat(parent, name, flags, READABLE)
        })?;
        let mut file = File::from(created);
        self.copy(path, entry, Some(&mut file))?;
        let time = TimeSpec::new(modified, 0);
        // Python recompiles modules whose time has changed. A time that the file system cannot store is left out.
        let _ = futimens(&file, &time, &time);
        let opened = fchmod(&file, if is_program { OPEN } else { READABLE });
        self.noted(path, opened)
    }

    /// Copies an entry's content, with a hole for each chunk of zeros. Without a file, and above the limit, only counts it.
    fn copy(
        &mut self,
        path: &Path,
        entry: &mut Entry<'_, impl Read>,
        mut into: Option<&mut File>,
    ) -> Result<(), LayerError> {
        let (size, mut chunk) = (entry.size(), Vec::with_capacity(CHUNK));
        let cannot = |error| LayerError::Write { path: path.to_owned(), error };
        let mut copied = 0;
        while copied < size {
            chunk.clear();
            let read = entry.take(CHUNK as u64).read_to_end(&mut chunk).map_err(read_error)?;
            if read == 0 {
                return Err(read_error(io::ErrorKind::UnexpectedEof.into()));
            }
            if chunk != ZEROS[..read] {
                self.applied.bytes = self.applied.bytes.saturating_add(read as u64);
                if let Some(file) = into.as_mut().filter(|_| !self.is_full()) {
                    file.write_all_at(&chunk, copied).map_err(cannot)?;
                }
            }
            copied += read as u64;
        }
        into.map_or(Ok(()), |file| file.set_len(size)).map_err(cannot)
    }

    fn link(&mut self, path: &Path, target: &[u8]) -> Result<(), LayerError> {
        self.replaced(path, |parent, name| symlinkat(OsStr::from_bytes(target), parent, name))
    }

    fn hard_link(&mut self, path: &Path, target: &[u8]) -> Result<(), LayerError> {
        let target = plain_path(target)?;
        if target == path {
            return Err(refused(path, "is a hard link to itself"));
        }
        let root = self.root;
        self.replaced(path, |parent, name| {
            let (from, source) = (open_directory(root, target.parent())?, target.file_name().unwrap_or_default());
            linkat(&from, source, parent, name, AtFlags::empty())
        })
    }

    /// Removes what lower layers have at the path, and creates something there.
    fn replaced<T>(
        &mut self,
        path: &Path,
        create: impl FnOnce(&OwnedFd, &OsStr) -> nix::Result<T>,
    ) -> Result<T, LayerError> {
        let made = (|| {
            let (parent, name) = self.parent(path)?;
            if lookup(&parent, name)?.is_some() {
                remove(&parent, name)?;
            }
            create(&parent, name)
        })();
        self.noted(path, made)
    }

    /// Handles `.wh.NAME`: removes NAME of lower layers, or all of their files in the directory.
    fn whiteout(&mut self, path: &Path, removed: &[u8]) -> Result<(), LayerError> {
        let parent = path.parent().unwrap_or(Path::new(""));
        let purged = match removed {
            // The directory itself stays, also if the layer has no entry for it.
            b".wh..opq" => match open_directory(self.root, Some(parent)) {
                Err(Errno::ENOENT | Errno::ENOTDIR) => Ok(()),
                opened => opened.and_then(|directory| self.purge_inside(&directory, parent)),
            },
            // Notes of a file system, which no other program needs.
            _ if removed.starts_with(b".wh.") => Ok(()),
            b"" | b"." | b".." => return Err(refused(path, "removes no file")),
            _ => self.purge(&parent.join(OsStr::from_bytes(removed))),
        };
        purged.map_err(|errno| LayerError::Write { path: path.to_owned(), error: errno.into() })
    }

    /// Removes what this layer has not created, at and below a path.
    fn purge(&self, path: &Path) -> nix::Result<()> {
        let parent = match open_directory(self.root, path.parent()) {
            Err(Errno::ENOENT | Errno::ENOTDIR) => return Ok(()),
            opened => opened?,
        };
        let name = path.file_name().unwrap_or_default();
        match lookup(&parent, name)? {
            None => Ok(()),
            Some(_) if !self.created.contains(path) => remove(&parent, name),
            Some(found) if is_directory(&found) => self.purge_inside(&open_below(&parent, name)?, path),
            Some(_) => Ok(()),
        }
    }

    fn purge_inside(&self, directory: &OwnedFd, path: &Path) -> nix::Result<()> {
        for name in names(directory)? {
            self.purge(&path.join(&name))?;
        }
        Ok(())
    }

    /// Opens the directory that contains a path, and creates it if it is missing. Created directories count as entries.
    fn parent<'p>(&mut self, path: &'p Path) -> nix::Result<(OwnedFd, &'p OsStr)> {
        let name = path.file_name().unwrap_or_default();
        match open_directory(self.root, path.parent()) {
            Err(Errno::ENOENT) => {}
            opened => return Ok((opened?, name)),
        }
        let missing = path.parent().unwrap_or(Path::new(""));
        let (above, directory) = self.parent(missing)?;
        // A symbolic link that leads nowhere stays in the way.
        mkdirat(&above, directory, OPEN)?;
        self.applied.entries += 1;
        Ok((open_directory(self.root, Some(missing))?, name))
    }

    /// Notes a created path with its parents, or explains why it could not be created.
    fn noted<T>(&mut self, path: &Path, made: nix::Result<T>) -> Result<T, LayerError> {
        let made = made.map_err(|errno| LayerError::Write { path: path.to_owned(), error: errno.into() })?;
        for path in path.ancestors().filter(|path| !path.as_os_str().is_empty()) {
            if !self.created.insert(path.to_owned()) {
                break;
            }
        }
        Ok(made)
    }
}

/// Refuses an entry whose size differs between its two headers: another program would find other entries in the archive.
fn check_size(entry: &mut Entry<'_, impl Read>) -> Result<(), LayerError> {
    let (size, plain) = (entry.size(), entry.header().entry_size().map_err(read_error)?);
    // The header has the size without holes, and the archive's reader verifies the sum of all parts.
    if entry.header().entry_type() == EntryType::GNUSparse {
        return Ok(());
    }
    let mut has_map = false;
    for extension in entry.pax_extensions().map_err(read_error)?.into_iter().flatten() {
        has_map |= extension.map_err(read_error)?.key_bytes().starts_with(b"GNU.sparse.");
    }
    if has_map {
        let why = "is a sparse file in the PAX format; write the layer without `tar --sparse`";
        return Err(refused(Path::new(OsStr::from_bytes(&entry.path_bytes())), why));
    }
    // The plain header cannot state more.
    if size != plain && size <= MAX_PLAIN_BYTES {
        return Err(refused(Path::new(OsStr::from_bytes(&entry.path_bytes())), "has two different sizes"));
    }
    Ok(())
}

/// A path without leading slashes and dots. Empty for the root directory.
fn plain_path(bytes: &[u8]) -> Result<PathBuf, LayerError> {
    let whole = Path::new(OsStr::from_bytes(bytes));
    let mut plain = PathBuf::new();
    for part in bytes.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => return Err(refused(whole, "has `..` in its path")),
            part if part.contains(&0) => return Err(refused(whole, "has a NUL in its path")),
            part => plain.push(OsStr::from_bytes(part)),
        }
    }
    if plain.as_os_str().len() > MAX_PATH_BYTES || plain.components().count() > MAX_DEPTH {
        return Err(LayerError::Limit("2048 bytes and 100 directories in a path"));
    }
    Ok(plain)
}

fn refused(path: &Path, why: &'static str) -> LayerError {
    LayerError::Entry { path: path.to_owned(), why }
}

/// Opens a directory below the root directory. Follows symbolic links as if that were the root directory of the machine.
///
/// Each part is opened on its own, without following links. A system call for all of it (`openat2`) is not available in a
/// sandbox. No other process changes the directory meanwhile.
fn open_directory(root: &OwnedFd, path: Option<&Path>) -> nix::Result<OwnedFd> {
    const MAX_LINKS: usize = 40;
    let parts = |path: &Path| path.as_os_str().as_bytes().split(|byte| *byte == b'/').map(<[u8]>::to_vec).collect();
    let mut ahead: VecDeque<Vec<u8>> = parts(path.unwrap_or(Path::new("")));
    let (mut passed, mut links) = (Vec::<OwnedFd>::new(), 0);
    while let Some(part) = ahead.pop_front() {
        let at = passed.last().unwrap_or(root);
        let name = OsStr::from_bytes(&part);
        match part.as_slice() {
            b"" | b"." => continue,
            b".." => {
                passed.pop();
                continue;
            }
            _ => {}
        }
        match open_below(at, name) {
            Ok(directory) => passed.push(directory),
            Err(error @ (Errno::ELOOP | Errno::ENOTDIR)) => {
                let target = readlinkat(at, name).map_err(|_| error)?;
                links += 1;
                if links > MAX_LINKS {
                    return Err(Errno::ELOOP);
                }
                if target.as_bytes().starts_with(b"/") {
                    passed.clear();
                }
                let rest = std::mem::replace(&mut ahead, parts(Path::new(&target)));
                ahead.extend(rest);
            }
            Err(error) => return Err(error),
        }
    }
    passed.pop().map_or_else(|| open_below(root, OsStr::new(".")), Ok)
}

/// Opens a directory in another one, but none behind a link.
fn open_below(parent: &OwnedFd, name: &OsStr) -> nix::Result<OwnedFd> {
    openat(parent, name, OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC, Mode::empty())
}

fn lookup(parent: &OwnedFd, name: &OsStr) -> nix::Result<Option<FileStat>> {
    match fstatat(parent, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
        Ok(found) => Ok(Some(found)),
        Err(Errno::ENOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

fn is_directory(found: &FileStat) -> bool {
    found.st_mode & SFlag::S_IFMT.bits() == SFlag::S_IFDIR.bits()
}

/// Removes a file, a link, or a directory with its contents.
fn remove(parent: &OwnedFd, name: &OsStr) -> nix::Result<()> {
    if lookup(parent, name)?.is_some_and(|found| is_directory(&found)) {
        let directory = open_below(parent, name)?;
        for name in names(&directory)? {
            remove(&directory, &name)?;
        }
        return unlinkat(parent, name, UnlinkatFlags::RemoveDir);
    }
    unlinkat(parent, name, UnlinkatFlags::NoRemoveDir)
}

fn names(directory: &OwnedFd) -> nix::Result<Vec<std::ffi::OsString>> {
    // A descriptor of its own, because reading moves the position.
    let mut all = Dir::openat(directory.as_fd(), ".", OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty())?;
    let mut found = Vec::new();
    for entry in all.iter() {
        let name = entry?.file_name().to_bytes().to_vec();
        if name != b"." && name != b".." {
            found.push(std::os::unix::ffi::OsStringExt::from_vec(name));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests;
