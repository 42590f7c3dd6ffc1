//! A cache of what project folders contained: one file per folder.
//!
//! The cache is optional. Without it, or if its directory cannot be written, every capture reads every file.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use hostler_snapshot::Seen;
use hostler_snapshot::mirror::Memory;

/// Entries of folders that were not submitted for this long are deleted.
const KEPT: Duration = Duration::from_secs(60 * 24 * 3600);

/// The cache entry of one folder. The default stores nothing and is always empty.
#[derive(Debug, Default)]
pub struct CaptureCache {
    file: Option<PathBuf>,
}

impl CaptureCache {
    /// The entry of the folder at `path`, in the cache `directory`.
    pub fn of(directory: &Path, path: &Path) -> Self {
        Self { file: path.canonicalize().ok().map(|path| directory.join(name(&path))) }
    }

    /// The entry of the tree at `path` for `exec --mirror`, which also copies files that .gitignore lists.
    pub fn of_tree(directory: &Path, path: &Path) -> Self {
        Self { file: path.canonicalize().ok().map(|path| directory.join(format!("{}-tree", name(&path)))) }
    }

    /// What the folder contained at its last capture.
    pub fn recall(&self) -> Seen {
        self.file.as_deref().map(Seen::load).unwrap_or_default()
    }

    /// What the tree contained when a command last used it.
    pub fn recall_tree(&self) -> Memory {
        self.file.as_deref().map(Memory::load).unwrap_or_default()
    }

    /// Stores what the folder contains now, and deletes old entries.
    pub fn remember(&self, seen: &Seen) {
        self.save(|file| seen.save(file));
    }

    /// Stores what the tree contains now, and deletes old entries.
    pub fn remember_tree(&self, memory: &Memory) {
        self.save(|file| memory.save(file));
    }

    fn save(&self, save: impl FnOnce(&Path) -> io::Result<()>) {
        let Some(file) = &self.file else { return };
        let Some(directory) = file.parent() else { return };
        // The cache is optional, so write errors are ignored.
        let _ = fs::create_dir_all(directory).and_then(|()| save(file));
        let is_old = |path: &Path| {
            let modified = fs::metadata(path).and_then(|metadata| metadata.modified());
            modified.is_ok_and(|time| SystemTime::now().duration_since(time).is_ok_and(|age| age > KEPT))
        };
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            if is_old(&entry.path()) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    /// Deletes the entry, because it turned out to be wrong.
    pub(crate) fn forget(&self) {
        if let Some(file) = &self.file {
            let _ = fs::remove_file(file);
        }
    }
}

/// A file name of fixed length for a path.
fn name(path: &Path) -> String {
    hostler_snapshot::chunk::digest_of(path.as_os_str().as_encoded_bytes()).to_string()
}
