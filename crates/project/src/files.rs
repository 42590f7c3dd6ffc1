//! Reads files and trees that another user controls: only regular files, never blocking, and within limits.

use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, openat2};

use crate::{GoesOn, Stopped};

/// Maximum number of bytes of a file that are hashed or copied between two checks whether the job should continue.
const PIECE_BYTES: u64 = 1 << 20;

/// Minimum size as which a hashed file or folder counts, in bytes.
const LEAST_BYTES: u64 = 1 << 10;

/// Maximum number of files and folders of a project that a build copies or hashes.
const MOST_ENTRIES: usize = 1_000_000;

/// Maximum number of bytes of a project that a build copies or hashes. Holes in files count.
const MOST_TREE_BYTES: u64 = 64 << 30;

/// Maximum number of bytes of the relative paths of a project's files and folders, which the agent keeps in memory.
const MOST_NAME_BYTES: usize = 128 << 20;

/// Reads a regular file in a directory that another user controls. Other file types are errors, and never block. A
/// larger file is an [`io::ErrorKind::FileTooLarge`] error.
///
/// # Errors
/// If the path is not a regular file, cannot be read, or has more than `most_bytes`.
pub fn read_regular(path: &Path, most_bytes: u64) -> io::Result<Vec<u8>> {
    let bytes = read_start(path, most_bytes.saturating_add(1))?;
    within(bytes.len() as u64, most_bytes)?;
    Ok(bytes)
}

/// Reads the first bytes of a regular file.
///
/// # Errors
/// As [`read_regular`], for a file of any size.
pub fn read_start(path: &Path, most_bytes: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_regular(path)?.take(most_bytes).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Opens a regular file. Links in `/proc`, such as `/proc/self/fd/3`, lead nowhere: the agent may follow more of them than the user.
///
/// # Errors
/// If the path is not a regular file, or cannot be opened.
pub fn open_regular(path: &Path) -> io::Result<fs::File> {
    let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    let how = OpenHow::new().flags(flags).resolve(ResolveFlag::RESOLVE_NO_MAGICLINKS);
    let file = fs::File::from(openat2(AT_FDCWD, path, how)?);
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("not a regular file")) }
}

/// Checks the size of a file.
///
/// # Errors
/// [`io::ErrorKind::FileTooLarge`] for a larger file.
pub fn within(bytes: u64, most_bytes: u64) -> io::Result<()> {
    if bytes <= most_bytes {
        return Ok(());
    }
    let message = format!("the file has more than {}", hostler_model::format_bytes(most_bytes));
    Err(io::Error::new(io::ErrorKind::FileTooLarge, message))
}

/// Hashes names, executable bits and contents of everything below `path` (a file or a folder). The rules of the capture
/// alone decide what a project contains, so that a user can include `.git` for a version from it.
///
/// Returns the number of bytes hashed, or `None` if the tree has more than `most_bytes`. Each file and folder counts as at
/// least [`LEAST_BYTES`], because many small files take long too.
pub(crate) fn hash_tree(
    path: &Path,
    hasher: &mut blake3::Hasher,
    most_bytes: u64,
    goes_on: GoesOn<'_>,
) -> Result<Option<u64>, Stopped> {
    let mut bytes = 0_u64;
    for name in tree(path, u64::MAX, goes_on)? {
        let entry = below(path, &name);
        let metadata = fs::symlink_metadata(&entry)?;
        bytes = bytes.saturating_add(if metadata.is_file() { metadata.len().max(LEAST_BYTES) } else { LEAST_BYTES });
        if bytes > most_bytes {
            return Ok(None);
        }
        goes_on()?;
        hasher.update(name.as_os_str().as_encoded_bytes());
        hasher.update(&[0]);
        if metadata.is_symlink() {
            hasher.update(b"link");
            hasher.update(fs::read_link(&entry)?.as_os_str().as_encoded_bytes());
        } else if metadata.is_file() {
            hasher.update(if metadata.permissions().mode() & 0o111 == 0 { b"file" } else { b"exec" });
            hasher.update(&metadata.len().to_le_bytes());
            let mut source = open_regular(&entry)?;
            for_each_piece(metadata.len(), goes_on, |piece| {
                hasher.update_reader(Read::by_ref(&mut source).take(piece)).map(|_| ())
            })?;
        }
    }
    Ok(Some(bytes))
}

/// Processes a file in pieces, and checks before each piece whether the job should continue.
///
/// # Errors
/// If the job ends, or `process` fails.
pub fn for_each_piece(
    length: u64,
    goes_on: GoesOn<'_>,
    mut process: impl FnMut(u64) -> io::Result<()>,
) -> Result<(), Stopped> {
    let mut rest = length;
    while rest > 0 {
        goes_on()?;
        let piece = rest.min(PIECE_BYTES);
        process(piece)?;
        rest -= piece;
    }
    Ok(())
}

/// The path of an entry that [`tree`] has found below `root`.
pub fn below(root: &Path, name: &Path) -> PathBuf {
    // Joining an empty path would append a slash.
    if name.as_os_str().is_empty() { root.to_owned() } else { root.join(name) }
}

/// Relative paths of everything below `root`, parents first, sorted by name; the path of `root` itself is empty. Skips
/// larger files.
///
/// # Errors
/// If the job ends, a folder cannot be read, or the tree exceeds a limit.
pub fn tree(root: &Path, most_file_bytes: u64, goes_on: GoesOn<'_>) -> Result<Vec<PathBuf>, Stopped> {
    tree_within(root, most_file_bytes, MOST_NAME_BYTES, goes_on)
}

fn tree_within(
    root: &Path,
    most_file_bytes: u64,
    most_name_bytes: usize,
    goes_on: GoesOn<'_>,
) -> Result<Vec<PathBuf>, Stopped> {
    let mut found = Vec::new();
    let (mut bytes, mut name_bytes) = (0_u64, 0);
    let mut pending = vec![PathBuf::new()];
    let check = |entries: usize, bytes: u64, name_bytes: usize| {
        if entries <= MOST_ENTRIES && bytes <= MOST_TREE_BYTES && name_bytes <= most_name_bytes {
            return Ok(());
        }
        let most =
            format!("{MOST_ENTRIES} files, {} GiB, or {} MiB of paths", MOST_TREE_BYTES >> 30, most_name_bytes >> 20);
        Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("more than {most} below {}", root.display())))
    };
    while let Some(name) = pending.pop() {
        goes_on()?;
        let path = below(root, &name);
        let metadata = fs::symlink_metadata(&path)?;
        if metadata.is_file() && metadata.len() > most_file_bytes {
            continue;
        }
        bytes = bytes.saturating_add(if metadata.is_file() { metadata.len() } else { 0 });
        if metadata.is_dir() {
            for entry in fs::read_dir(&path)? {
                let inside = name.join(entry?.file_name());
                name_bytes += inside.as_os_str().len();
                pending.push(inside);
                // One directory may have any number of entries.
                check(found.len() + pending.len(), bytes, name_bytes)?;
            }
        }
        found.push(name);
        check(found.len() + pending.len(), bytes, name_bytes)?;
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_a_tree_have_a_total_size_limit() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        fs::create_dir(folder.path().join("long-name")).expect("writable");
        for name in ["a", "b"] {
            fs::write(folder.path().join("long-name").join(name), "").expect("writable");
        }
        let names = ["", "long-name", "long-name/a", "long-name/b"];
        let bytes: usize = names.iter().map(|name| name.len()).sum();
        let tree = |path: &Path, most_name_bytes| tree_within(path, 0, most_name_bytes, &|| Ok(()));
        assert_eq!(tree(folder.path(), bytes).expect("within the limit"), names.map(PathBuf::from));
        let error = tree(folder.path(), bytes - 1).expect_err("one byte too many");
        assert!(matches!(&error, Stopped::System(error) if error.kind() == io::ErrorKind::FileTooLarge), "{error:?}");
        assert_eq!(tree(&folder.path().join("long-name/a"), 0).expect("a file"), [PathBuf::new()]);
    }
}
