//! Temporary files of a store, before they are renamed into their places.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::remove::remove_tree;

/// A locked directory for temporary files of one store. A directory without a lock belongs to a killed process; opening
/// the store removes it.
#[derive(Debug)]
pub(super) struct Scratch {
    path: PathBuf,
    next: AtomicU64,
    _lock: File,
}

impl Scratch {
    pub(super) fn within(parent: &Path) -> io::Result<Self> {
        make_private(parent)?;
        for entry in fs::read_dir(parent)? {
            remove_if_abandoned(&entry?.path());
        }
        for attempt in 0u32.. {
            let path = parent.join(format!("{}-{attempt}", std::process::id()));
            match DirBuilder::new().mode(0o700).create(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                made => made?,
            }
            let lock = File::open(&path)?;
            // A concurrent cleanup may have removed the directory before it was locked.
            if lock.try_lock().is_ok() && path.exists() {
                return Ok(Self { path, next: AtomicU64::new(0), _lock: lock });
            }
        }
        unreachable!("more than four thousand million names are available")
    }

    /// Returns a unique path for a new file.
    pub(super) fn next_path(&self) -> PathBuf {
        self.path.join(self.next.fetch_add(1, Ordering::Relaxed).to_string())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // The next open of the store removes a remaining directory.
        let _ = remove_tree(&self.path);
    }
}

/// Removes the scratch directory at `path` if its process has ended, i.e. if its lock is free.
fn remove_if_abandoned(path: &Path) {
    if let Ok(lock) = File::open(path)
        && lock.try_lock().is_ok()
    {
        let _ = remove_tree(path);
    }
}

pub(super) fn make_private(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}
