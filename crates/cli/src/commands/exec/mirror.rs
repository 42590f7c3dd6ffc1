//! The caller's side of `--mirror`: describes the tree, sends the content that the node requests, and stores the files
//! that the node returns.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use hostler_client::CaptureCache;
use hostler_model::{Digest, format_bytes, format_duration, plural};
use hostler_remote::mirror::{
    Described, MOST_BYTES, MOST_ENTRIES, Mark, ReceivedStats, ResultReceiver, SentStats, Supplier, Tree,
    belongs_to_machine, is_ignored, is_program, places_of_program,
};
use hostler_remote::{Command, Frame, TreeSpec};
use hostler_snapshot::chunk::digest_of;
use hostler_snapshot::mirror::{Memory, Placing, Survey, survey};
use serde_json::{Value, json};

use crate::exit;
use crate::failure::{During, Failure};
use crate::xdg;

/// Names that mark the root of a source tree.
const ROOTS: [&str; 7] = [".git", ".hg", ".svn", ".bzr", ".jj", "_darcs", ".pijul"];

/// The source tree of a command that has not started yet.
pub(super) struct LocalTree {
    root: PathBuf,
    any_program: bool,
    /// Sends content to the node; set by [`Self::look`].
    supplier: Option<Supplier<'static>>,
    /// Number of files whose attributes were read instead of taken from the cache.
    asked: usize,
}

/// The source tree of a running command.
pub(super) struct ActiveMirror {
    described: Described,
    asked: usize,
    went: SentStats,
    home: ResultReceiver,
}

/// Sizes and durations of the copies to and from the node.
#[derive(Debug, Clone, Copy)]
pub(super) struct MirrorCost {
    files: usize,
    asked: usize,
    went: SentStats,
    came: ReceivedStats,
    placing: Duration,
}

impl LocalTree {
    /// Determines the source tree of a command. Does not read the files, because a command that runs on this machine
    /// needs no copy.
    pub(super) fn of(command: &Command, root: Option<&Path>, any_program: bool) -> Result<Self, Failure> {
        let directory = command.directory();
        let root = root.map_or_else(|| Ok(root_of(&directory)), fs::canonicalize);
        let root = root.during(|| "cannot access the tree".to_owned())?;
        if !directory.starts_with(&root) {
            return Err(Failure::usage(format!("{} is not in the tree {}", directory.display(), root.display()))
                .hint("--mirror=DIR must name a parent of the command's directory"));
        }
        if belongs_to_machine(&root) {
            return Err(Failure::usage(format!("{} is a system directory and cannot be copied", root.display()))
                .hint("run this in another directory, or name one with --mirror=DIR"));
        }
        Ok(Self { root, any_program, supplier: None, asked: 0 })
    }

    /// Reads the tree and returns its description for the node.
    pub(super) fn look(&mut self, command: &Command) -> Result<TreeSpec, Failure> {
        let root = &self.root;
        let again = root.clone();
        let (described, asked) = describe(root, true)
            .during(|| format!("cannot copy the tree {}", root.display()))
            .map_err(|failure| failure.exiting(exit::RUN_FAILED))?;
        let program = if self.any_program { None } else { program_of(command, root) };
        let mirror = TreeSpec::new(root.clone(), described.digest(), program);
        // If a file has changed since, the cache may be wrong for other files too: describe the tree again without the
        // cache.
        let mut skips_cache = false;
        self.asked = asked;
        let again =
            move || describe(&again, !std::mem::replace(&mut skips_cache, true)).map(|(described, _)| described);
        self.supplier = Some(Supplier::new(described, again));
        Ok(mirror)
    }

    /// Handles a frame about the tree. Returns any other frame unchanged.
    pub(super) fn hear(&mut self, frame: Frame, agent: &mut UnixStream) -> io::Result<Option<Frame>> {
        match &mut self.supplier {
            Some(supplier) => supplier.hear(frame, agent),
            None => Ok(Some(frame)),
        }
    }

    /// Prepares to receive files from the node, once the command has started.
    pub(super) fn start_receiving(self) -> Result<ActiveMirror, Failure> {
        let supplier = self.supplier.ok_or_else(|| {
            Failure::new("the agent of this machine has not asked for the tree").exiting(exit::MISMATCH)
        })?;
        let (described, went) = supplier.finish();
        let placing = Placing::begin(&self.root, token()).during(|| "cannot access the tree".to_owned())?;
        let home = ResultReceiver::new(placing, described.as_of_ns());
        Ok(ActiveMirror { described, asked: self.asked, went, home })
    }
}

impl ActiveMirror {
    /// Receives a piece of the files that the node returns.
    pub(super) fn take(&mut self, piece: &[u8]) {
        self.home.take(piece);
    }

    /// Moves all received files to their places in the tree.
    pub(super) fn finish(self) -> Result<MirrorCost, Failure> {
        let began = std::time::Instant::now();
        let entries = self.described.entries();
        let came = self.home.finish(entries).map_err(|why| {
            Failure::new(format!("the command's files were not copied back: {why}"))
                .hint("unless the error is about storing a file, the local tree is unchanged; run the command again")
                .exiting(exit::RUN_FAILED)
        })?;
        Ok(MirrorCost { files: entries.len(), asked: self.asked, went: self.went, came, placing: began.elapsed() })
    }
}

impl MirrorCost {
    pub(super) fn to_text(self) -> String {
        let Self { files, asked: _, went, came, placing } = self;
        format!(
            "tree of {}: sent {} in {}, received {} in {}, stored in {}",
            plural(files, "file"),
            format_bytes(went.bytes),
            format_duration(went.took),
            format_bytes(came.bytes),
            plural(came.entries, "file"),
            format_duration(placing),
        )
    }

    pub(super) fn as_json(&self) -> Value {
        let millis = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        json!({
            "files": self.files,
            "asked_files": self.asked,
            "sent_bytes": self.went.bytes,
            "sent_chunks": self.went.chunks,
            "sent_ms": millis(self.went.took),
            "returned_bytes": self.came.bytes,
            "returned_files": self.came.entries,
            "removed_files": self.came.removed,
            "placing_ms": millis(self.placing),
        })
    }
}

/// The nearest parent directory (or `directory` itself) under version control, else `directory`.
fn root_of(directory: &Path) -> PathBuf {
    let is_root = |at: &&Path| ROOTS.iter().any(|name| at.join(name).exists()) && at.parent().is_some();
    directory.ancestors().find(is_root).unwrap_or(directory).to_owned()
}

/// Describes a tree. Also returns the number of files whose attributes were read.
fn describe(root: &Path, recalls: bool) -> io::Result<(Described, usize)> {
    let began_ns = now_ns();
    let folder = xdg::folder_cache().map(|cache| CaptureCache::of_tree(&cache, root)).unwrap_or_default();
    let memory = if recalls { folder.recall_tree() } else { Memory::default() };
    let Survey { mode, entries, sources, memory, asked } = survey(root, &memory, &is_ignored, &is_too_much)?;
    if let Some(memory) = memory {
        folder.remember_tree(&memory);
    }
    // The survey may include files that were written meanwhile, so the description has the time of the newest file.
    let now = now_ns();
    let newest = entries.iter().map(|entry| entry.modified_ns).filter(|modified| *modified <= now).max();
    let described = Described::new(Tree { mode, entries }, sources, began_ns.max(newest.unwrap_or(0)));
    Ok((described, asked))
}

fn is_too_much(entries: usize, bytes: u64) -> Option<String> {
    (entries > MOST_ENTRIES || bytes > MOST_BYTES).then(|| {
        let most = format_bytes(MOST_BYTES);
        format!(
            "the tree has {entries} files of {} in total; the limits are {MOST_ENTRIES} files and {most}",
            format_bytes(bytes)
        )
    })
}

/// Digest of the command's program on this machine; `None` if it is in the tree or does not exist.
fn program_of(command: &Command, root: &Path) -> Option<Digest> {
    let path = places_of_program(command).into_iter().find(|path| is_program(path))?;
    if path.starts_with(root) {
        return None;
    }
    let (file, mark) = Mark::open(&path).ok()?;
    let memory = xdg::directory("XDG_CACHE_HOME", ".cache")
        .map(|cache| cache.join("hostler/programs").join(digest_of(path.as_os_str().as_bytes()).to_string()));
    let known = memory.as_ref().and_then(|memory| fs::read(memory).ok());
    let known: Option<(Mark, Digest)> = known.and_then(|known| serde_json::from_slice(&known).ok());
    if let Some((_, digest)) = known.filter(|(known, _)| *known == mark) {
        return Some(digest);
    }
    let digest = mark.digest(file).ok()?;
    if let Some(memory) = memory {
        remember(&memory, &serde_json::to_vec(&(mark, digest)).expect("plain data serializes to JSON"));
    }
    Some(digest)
}

/// Writes a cache file. The cache is optional, so errors are ignored.
fn remember(path: &Path, bytes: &[u8]) {
    let made = path.parent().map_or(Ok(()), fs::create_dir_all);
    let _ = made.and_then(|()| hostler_sys::replace_file_unflushed(path, bytes, 0o600));
}

/// A number that differs between processes.
fn token() -> u64 {
    u64::from(std::process::id()) << 32 ^ now_ns().cast_unsigned()
}

fn now_ns() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

/// The directory of `--mirror=DIR`; `None` for a plain `--mirror`.
pub(super) fn root_named(value: &OsStr) -> Option<&Path> {
    (!value.is_empty()).then(|| Path::new(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tree_root_is_the_nearest_directory_under_version_control() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let below = folder.path().join("a/b");
        fs::create_dir_all(&below).expect("writable");
        assert_eq!(root_of(&below), below);
        fs::write(folder.path().join("a/.git"), "gitdir: elsewhere").expect("writable");
        assert_eq!(root_of(&below), folder.path().join("a"));
    }
}
