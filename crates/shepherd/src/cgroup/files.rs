//! Operations on groups and their control files.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

/// Writes a control file. Never creates it: cgroup file systems answer that with a permission error, even if the file
/// is only missing.
pub(super) fn put(path: &Path, text: &str) -> io::Result<()> {
    fs::OpenOptions::new().write(true).open(path)?.write_all(text.as_bytes())
}

/// Creates a group, and its parent if that was removed while it was empty.
pub(super) fn create_group(path: &Path) -> io::Result<()> {
    match (fs::create_dir(path), path.parent()) {
        (Err(error), Some(parent)) if error.kind() == io::ErrorKind::NotFound => {
            match fs::create_dir(parent) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
            fs::create_dir(path)
        }
        (made, _) => made,
    }
}

/// Creates a group unless it exists.
pub(super) fn ensure_group(path: &Path) -> io::Result<()> {
    match create_group(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

/// Removes a group and its child groups, if they have no processes.
pub(super) fn remove_groups(path: &Path) -> io::Result<()> {
    match fs::remove_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
            for entry in fs::read_dir(path)?.filter_map(Result::ok) {
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    remove_groups(&entry.path())?;
                }
            }
            fs::remove_dir(path)
        }
        other => other,
    }
}
