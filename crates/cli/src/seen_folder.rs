//! Where the command line remembers what it has seen of project folders: one file a folder in the user's cache directory.
//!
//! Nothing depends on it. Without a cache directory, or with one that cannot be written, every capture reads every file.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use hostler_snapshot::{AsOf, Memory, Seen};

use crate::xdg;

/// Folders that were not submitted for this long are forgotten.
const KEPT: Duration = Duration::from_secs(60 * 24 * 3600);

/// What is remembered of one folder.
pub(crate) struct SeenFolder {
    file: Option<PathBuf>,
}

impl SeenFolder {
    /// Of the folder at `path`.
    pub(crate) fn of(path: &Path) -> Self {
        Self { file: directory().zip(path.canonicalize().ok()).map(|(directory, path)| directory.join(name(&path))) }
    }

    /// Of the tree at `path` as commands take it along: nothing in it is ignored.
    pub(crate) fn of_tree(path: &Path) -> Self {
        let path = path.canonicalize().ok();
        Self { file: directory().zip(path).map(|(directory, path)| directory.join(format!("{}-tree", name(&path)))) }
    }

    /// Of nothing, for what is not to leave a trace.
    pub(crate) fn none() -> Self {
        Self { file: None }
    }

    /// What it held when it was last captured.
    pub(crate) fn recall(&self) -> Seen {
        self.file.as_deref().map(Seen::load).unwrap_or_default()
    }

    /// What was in a tree when a command last took it along.
    pub(crate) fn recall_tree(&self) -> Memory {
        self.file.as_deref().map(Memory::load).unwrap_or_default()
    }

    /// As of when that is, if the tree was watched.
    pub(crate) fn tree_as_of(&self) -> Option<AsOf> {
        self.file.as_deref().and_then(Memory::claimed)
    }

    /// Remembers what it holds now, and forgets folders that nobody submits any more.
    pub(crate) fn remember(&self, seen: &Seen) {
        self.save(|file| seen.save(file));
    }

    /// The same for a tree.
    pub(crate) fn remember_tree(&self, memory: &Memory) {
        self.save(|file| memory.save(file));
    }

    fn save(&self, save: impl FnOnce(&Path) -> io::Result<()>) {
        let Some(file) = &self.file else { return };
        let Some(directory) = file.parent() else { return };
        // Nothing depends on it, so a cache that cannot be written is nobody's concern.
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

    /// Forgets the folder: what was remembered of it turned out to be wrong.
    pub(crate) fn forget(&self) {
        if let Some(file) = &self.file {
            let _ = fs::remove_file(file);
        }
    }
}

fn directory() -> Option<PathBuf> {
    Some(xdg::directory("XDG_CACHE_HOME", ".cache")?.join("hostler/folders"))
}

/// A file name for a path of any length.
fn name(path: &Path) -> String {
    hostler_snapshot::chunk::digest_of(path.as_os_str().as_encoded_bytes()).to_string()
}
