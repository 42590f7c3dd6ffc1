//! Files and directories with a mode of their own, whatever the umask. Replacing a file is atomic: a reader sees the old
//! content or the new.

use std::ffi::CString;
use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use nix::libc;

/// Creates a directory, and the missing ones above it, each with exactly `mode`. Existing directories stay as they are.
///
/// # Errors
/// When a directory cannot be created, or `path` is something else.
pub fn create_directory(path: &Path, mode: u32) -> io::Result<()> {
    match (create_new_directory(path, mode), path.parent()) {
        (Err(error), Some(parent)) if error.kind() == io::ErrorKind::NotFound => {
            create_directory(parent, mode)?;
            create_directory(path, mode)
        }
        (Err(error), _) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        (made, _) => made,
    }
}

/// Creates a directory with exactly `mode` that does not exist yet.
///
/// # Errors
/// When the directory exists, or cannot be created.
pub fn create_new_directory(path: &Path, mode: u32) -> io::Result<()> {
    fs::DirBuilder::new().mode(mode).create(path)?;
    // Not by path: another user may have replaced it, if it is in a directory of others.
    let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW;
    File::options().read(true).custom_flags(flags).open(path)?.set_permissions(Permissions::from_mode(mode))
}

/// Creates a directory like [`create_directory`], or sets the mode of an existing one.
///
/// # Errors
/// As [`create_directory`], or when the mode cannot be set.
pub fn make_directory(path: &Path, mode: u32) -> io::Result<()> {
    create_directory(path, mode)?;
    if fs::metadata(path)?.mode() & 0o7777 == mode {
        return Ok(());
    }
    fs::set_permissions(path, Permissions::from_mode(mode))
}

/// Replaces the file at `path` atomically. The new file has exactly `mode` and is synced on return. After a crash, the
/// old or the new file exists.
///
/// # Errors
/// When the file cannot be written; the old file remains.
pub fn replace_file(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    replace(path, bytes, mode, true)?;
    path.parent().map_or(Ok(()), |directory| File::open(directory)?.sync_all())
}

/// Replaces a file like [`replace_file`], but does not sync it. Suitable for caches only, because a power failure may
/// damage the file.
///
/// # Errors
/// When the file cannot be written; the old file remains.
pub fn replace_file_unflushed(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    replace(path, bytes, mode, false)
}

/// Returns the uid of the owner of a directory, as far as the kernel knows it without asking the file system, which may
/// never answer. `None` if `path` is not a directory. The directory above must be on a file system that answers.
#[must_use]
pub fn known_owner_of_directory(path: &Path) -> Option<u32> {
    let path = CString::new(path.as_os_str().as_bytes()).ok()?;
    let flags = libc::AT_SYMLINK_NOFOLLOW | libc::AT_NO_AUTOMOUNT | libc::AT_STATX_DONT_SYNC;
    // SAFETY: all zeroes is a valid statx, and the call overwrites it. The path outlives the call.
    let (result, found) = unsafe {
        let mut found: libc::statx = std::mem::zeroed();
        (libc::statx(libc::AT_FDCWD, path.as_ptr(), flags, libc::STATX_BASIC_STATS, &raw mut found), found)
    };
    let is_directory = u32::from(found.stx_mode) & libc::S_IFMT == libc::S_IFDIR;
    (result == 0 && is_directory).then_some(found.stx_uid)
}

fn replace(path: &Path, bytes: &[u8], mode: u32, flush: bool) -> io::Result<()> {
    let temporary = temporary_name(path);
    let write = || {
        match fs::remove_file(&temporary) {
            // A crashed process with the same id may have left this file, perhaps with another mode.
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = File::options().write(true).create_new(true).mode(mode).open(&temporary)?;
        file.set_permissions(Permissions::from_mode(mode))?;
        file.write_all(bytes)?;
        if flush {
            file.sync_all()?;
        }
        fs::rename(&temporary, path)
    };
    let written = write();
    if written.is_err() {
        // The file may not exist. The first error matters.
        let _ = fs::remove_file(&temporary);
    }
    written
}

/// Returns a path next to `path` that no other thread or process uses.
fn temporary_name(path: &Path) -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    path.with_added_extension(format!("{}-{}.partial", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_do_not_depend_on_the_umask() {
        let top = tempfile::tempdir().expect("a temporary directory can be created");
        let at = |name: &str| top.path().join(name);
        let mode = |name: &str| fs::metadata(at(name)).expect("it exists").permissions().mode() & 0o777;
        // The usual umask takes the right to write from others.
        create_directory(&at("a/b"), 0o777).expect("writable");
        assert_eq!((mode("a"), mode("a/b")), (0o777, 0o777));
        create_directory(&at("a/b"), 0o700).expect("it exists");
        assert_eq!(mode("a/b"), 0o777, "an existing directory stays as it is");
        make_directory(&at("a/b"), 0o711).expect("ours");
        assert_eq!(mode("a/b"), 0o711);
        replace_file(&at("file"), b"", 0o666).expect("writable");
        assert_eq!(mode("file"), 0o666);
        std::os::unix::fs::symlink("/nowhere", at("link")).expect("writable");
        for taken in ["file", "link"] {
            assert!(create_directory(&at(taken), 0o700).is_err(), "{taken}");
        }
        assert!(create_new_directory(&at("a"), 0o700).is_err(), "it exists");
    }

    #[test]
    fn replaced_file_is_complete_and_has_its_mode() {
        let directory = tempfile::tempdir().expect("a temporary directory can be created");
        let path = directory.path().join("state");
        fs::write(&path, "old").expect("the directory is writable");
        std::thread::scope(|scope| {
            for text in ["a".repeat(10_000), "b".repeat(20_000)] {
                let path = &path;
                scope.spawn(move || replace_file(path, text.as_bytes(), 0o600).expect("the directory is writable"));
            }
        });
        let text = fs::read_to_string(&path).expect("the file exists");
        assert!(text == "a".repeat(10_000) || text == "b".repeat(20_000));
        assert_eq!(fs::metadata(&path).expect("the file exists").permissions().mode() & 0o777, 0o600);
        assert_eq!(
            fs::read_dir(directory.path()).expect("the directory exists").count(),
            1,
            "no temporary file remains"
        );
    }

    #[test]
    fn failed_replacement_leaves_nothing() {
        let directory = tempfile::tempdir().expect("a temporary directory can be created");
        fs::create_dir(directory.path().join("state")).expect("the directory is writable");
        assert!(replace_file_unflushed(&directory.path().join("state"), b"new", 0o600).is_err());
        assert_eq!(fs::read_dir(directory.path()).expect("the directory exists").count(), 1);
    }
}
