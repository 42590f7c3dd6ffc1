//! The tree that a command takes along, at the caller's end: what it is, what the node asks about it, and what comes back.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use hostler_calls::ship::{
    Came, Described, Homecoming, MOST_BYTES, MOST_ENTRIES, Mark, Supplier, Tree, Went, belongs_to_machine, is_left_out,
    is_program, places_of_program,
};
use hostler_calls::{Command, Frame, Ship, Sought};
use hostler_model::{Digest, format_bytes, format_duration};
use hostler_snapshot::chunk::digest_of;
use hostler_snapshot::{Memory, News, Placing, Survey, survey};
use serde_json::{Value, json};

use crate::exit;
use crate::failure::{During, Failure};
use crate::seen_folder::SeenFolder;
use crate::xdg;

/// What makes a directory the root of a tree.
const ROOTS: [&str; 7] = [".git", ".hg", ".svn", ".bzr", ".jj", "_darcs", ".pijul"];

/// A tree before its command has started.
pub(super) struct Shipping {
    root: PathBuf,
    any_program: bool,
    /// Since it has been looked at.
    supplier: Option<Supplier<'static>>,
    /// After how much of it the kernel was asked.
    asked: usize,
}

/// A tree while its command runs.
pub(super) struct UnderWay {
    described: Described,
    asked: usize,
    went: Went,
    home: Homecoming,
}

/// What it has cost to take the tree along.
#[derive(Debug, Clone, Copy)]
pub(super) struct Freight {
    files: usize,
    asked: usize,
    went: Went,
    came: Came,
    placing: Duration,
}

impl Shipping {
    /// The tree of a command, at which nobody has looked yet: where the command stays, nobody has to.
    pub(super) fn of(command: &Command, root: Option<&Path>, any_program: bool) -> Result<Self, Failure> {
        let directory = command.directory();
        let root = root.map_or_else(|| Ok(root_of(&directory)), fs::canonicalize);
        let root = root.during(|| "there is no such tree".to_owned())?;
        if !directory.starts_with(&root) {
            return Err(Failure::usage(format!("{} is not in {}", directory.display(), root.display()))
                .hint("--ship=DIR names a directory above the one that the command starts in"));
        }
        if belongs_to_machine(&root) {
            return Err(Failure::usage(format!("{} belongs to the machine and cannot be taken along", root.display()))
                .hint("call it in a directory of its own, or name one with --ship=DIR"));
        }
        Ok(Self { root, any_program, supplier: None, asked: 0 })
    }

    /// The tree before it was looked at: where it is, and as of when it is remembered.
    pub(super) fn sought(&self) -> Result<Sought, Failure> {
        let found = fs::metadata(&self.root).during(|| "there is no such tree".to_owned())?;
        let since = SeenFolder::of_tree(&self.root).tree_as_of().map(|as_of| as_of.moment);
        Ok(Sought::new(&self.root, (found.dev(), found.ino()), since))
    }

    /// Looks at it, as far as by the news something may have changed.
    pub(super) fn look(&mut self, command: &Command, news: &News) -> Result<Ship, Failure> {
        let root = &self.root;
        let again = root.clone();
        let (described, asked) =
            describe(root, true, news).during(|| format!("cannot look at the tree {}", root.display()))?;
        let program = if self.any_program { None } else { program_of(command, root) };
        let ship = Ship::new(root.clone(), described.digest(), program);
        // A file that does not hold what it held may be one that is not as it is remembered.
        let mut looks_closely = false;
        self.asked = asked;
        let again = move || {
            describe(&again, !std::mem::replace(&mut looks_closely, true), &News::default())
                .map(|(described, _)| described)
        };
        self.supplier = Some(Supplier::new(described, again));
        Ok(ship)
    }

    /// Takes a frame; one that is about something else comes back.
    pub(super) fn hear(&mut self, frame: Frame, agent: &mut UnixStream) -> io::Result<Option<Frame>> {
        match &mut self.supplier {
            Some(supplier) => supplier.hear(frame, agent),
            None => Ok(Some(frame)),
        }
    }

    /// The command has started.
    pub(super) fn set_out(self) -> Result<UnderWay, Failure> {
        let supplier = self.supplier.ok_or_else(|| {
            Failure::new("the agent of this machine has not asked for the tree").exiting(exit::MISMATCH)
        })?;
        let (described, went) = supplier.finish();
        let placing = Placing::begin(&self.root, token()).during(|| "the tree is gone".to_owned())?;
        let home = Homecoming::new(placing, described.as_of_ns());
        Ok(UnderWay { described, asked: self.asked, went, home })
    }
}

impl UnderWay {
    /// Takes a piece of what has been written.
    pub(super) fn take(&mut self, piece: &[u8]) {
        self.home.take(piece);
    }

    /// Puts what has been written in place.
    pub(super) fn finish(self) -> Result<Freight, Failure> {
        let began = std::time::Instant::now();
        let entries = self.described.entries();
        let came = self.home.finish(entries).map_err(|why| {
            Failure::new(format!("what the command has written is not here: {why}"))
                .hint("unless something is said of putting it in place, nothing has changed here; call it again")
                .exiting(exit::RUN_FAILED)
        })?;
        Ok(Freight { files: entries.len(), asked: self.asked, went: self.went, came, placing: began.elapsed() })
    }
}

impl Freight {
    pub(super) fn in_words(&self) -> String {
        let Self { files, asked: _, went, came, placing } = self;
        format!(
            "the tree of {files} files: {} went there in {}, {} with {} files came back, put in place in {}",
            format_bytes(went.bytes),
            format_duration(went.took),
            format_bytes(came.bytes),
            came.entries,
            format_duration(*placing),
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

/// The nearest directory at or above that is under version control; else the directory itself.
fn root_of(directory: &Path) -> PathBuf {
    let is_root = |at: &&Path| ROOTS.iter().any(|name| at.join(name).exists()) && at.parent().is_some();
    directory.ancestors().find(is_root).unwrap_or(directory).to_owned()
}

/// A tree, and after how much of it the kernel was asked.
fn describe(root: &Path, recalls: bool, news: &News) -> io::Result<(Described, usize)> {
    let began_ns = now_ns();
    let folder = SeenFolder::of_tree(root);
    let memory = if recalls { folder.recall_tree() } else { Memory::default() };
    let Survey { mode, entries, sources, memory, asked } = survey(root, &memory, news, &is_left_out, &is_too_much)?;
    if let Some(memory) = memory {
        folder.remember_tree(&memory);
    }
    // What was written while the tree was looked at is in it, too, and what is made of it is no older.
    let now = now_ns();
    let newest = entries.iter().map(|entry| entry.modified_ns).filter(|modified| *modified <= now).max();
    let described = Described::new(Tree { mode, entries }, sources, began_ns.max(newest.unwrap_or(0)));
    Ok((described, asked))
}

fn is_too_much(entries: usize, bytes: u64) -> Option<String> {
    (entries > MOST_ENTRIES || bytes > MOST_BYTES).then(|| {
        let most = format_bytes(MOST_BYTES);
        format!(
            "it has {entries} files of {}, and no more than {MOST_ENTRIES} of {most} can be taken along",
            format_bytes(bytes)
        )
    })
}

/// What the program holds that the command means here; `None` when it is in the tree or nowhere.
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
        remember(&memory, &serde_json::to_vec(&(mark, digest)).expect("it is plain data"));
    }
    Some(digest)
}

/// Nothing depends on it, so that it cannot be written is nobody's concern.
fn remember(path: &Path, bytes: &[u8]) {
    let temporary = path.with_extension(format!("{:x}", token()));
    let made = path.parent().map_or(Ok(()), fs::create_dir_all);
    let written = made.and_then(|()| fs::write(&temporary, bytes)).and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
}

/// Something that tells this process from all others.
fn token() -> u64 {
    u64::from(std::process::id()) << 32 ^ now_ns().cast_unsigned()
}

fn now_ns() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

/// The directory of `--ship=DIR`; none for `--ship`.
pub(super) fn root_named(value: &OsStr) -> Option<&Path> {
    (!value.is_empty()).then(|| Path::new(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_is_what_is_under_version_control() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let below = folder.path().join("a/b");
        fs::create_dir_all(&below).expect("writable");
        assert_eq!(root_of(&below), below);
        fs::write(folder.path().join("a/.git"), "gitdir: elsewhere").expect("writable");
        assert_eq!(root_of(&below), folder.path().join("a"));
    }
}
