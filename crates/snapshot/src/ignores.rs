//! Which files a capture leaves out: what `.gitignore` and `.hostlerignore` name, as git reads the former, and a few directories by
//! default.
//!
//! The defaults ([`LeftOutKind`]) are directories that can be made again from the rest of the folder, or that a job does not need. A
//! `.hostlerignore` can include them, a `.gitignore` cannot: `!*/`, which is common there, would include all of them.
//!
//! The folder is the top: files above it, the user's global excludes and `.git/info/exclude` have no say, so that a folder
//! is captured alike wherever it lies and whether or not it is a repository. Nearer files win over farther ones, later
//! lines over earlier ones, and anything that a `.hostlerignore` says wins over all `.gitignore` files. As in git, nothing
//! below an excluded directory can be included again, a file of rules that is a symbolic link is not read, and lines that
//! are no valid pattern are skipped. Unlike git, a file that is tracked although it is excluded is left out.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::rc::Rc;

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};

use crate::beneath::read_small;

/// The file that marks a directory which Hostler wrote results into.
pub const RESULTS_MARKER: &str = ".hostler-results";

/// The file that every virtual environment has at its top (PEP 405).
const ENVIRONMENT_MARKER: &str = "pyvenv.cfg";

/// Never captured, at any depth: what Hostler itself keeps in folders.
const NEVER: [&[u8]; 3] = [b".hostler", b".hostler-partial", RESULTS_MARKER.as_bytes()];

const MARKER_TEXT: &str = "\
Hostler wrote the results of a job into this directory.
`hostler submit` leaves such directories out of the folder that it captures.
To include this one, add a line such as !12/ to the folder's .hostlerignore, or delete this file.
";

/// Why a directory is left out although no rule of the user's says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LeftOutKind {
    /// `.git`: the history of a repository.
    Git,
    /// A Python virtual environment: a directory with a `pyvenv.cfg`.
    VirtualEnvironment,
    /// `__pycache__`: compiled Python files.
    PythonCache,
    /// `node_modules`: installed JavaScript packages.
    NodeModules,
    /// Results of a job: a directory with the marker that [`mark_results`] writes.
    Results,
}

/// A directory that is left out by default.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct LeftOut {
    /// Why.
    pub kind: LeftOutKind,
    /// Path below the folder.
    pub path: Vec<u8>,
}

impl LeftOutKind {
    fn of_name(name: &[u8], is_directory: bool) -> Option<Self> {
        match name {
            // A file in worktrees and submodules.
            b".git" => Some(Self::Git),
            b"__pycache__" if is_directory => Some(Self::PythonCache),
            b"node_modules" if is_directory => Some(Self::NodeModules),
            _ => None,
        }
    }

    /// The kind of a directory by one of the names in it.
    pub(crate) fn of_content(name: &[u8]) -> Option<Self> {
        if name == ENVIRONMENT_MARKER.as_bytes() {
            Some(Self::VirtualEnvironment)
        } else if name == RESULTS_MARKER.as_bytes() {
            Some(Self::Results)
        } else {
            None
        }
    }
}

/// Marks `directory` as one that Hostler writes results into, so that captures leave it out. A mark that is there stays.
///
/// # Errors
/// When the file cannot be written.
pub fn mark_results(directory: &Path) -> io::Result<()> {
    // `create_new` neither follows a link nor replaces anything.
    match File::options().write(true).create_new(true).open(directory.join(RESULTS_MARKER)) {
        Ok(mut file) => file.write_all(MARKER_TEXT.as_bytes()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

/// The rules that hold in one directory: its own, then its parent's.
#[derive(Debug)]
pub(crate) struct Ignores {
    /// How many bytes of a path come before the part that these rules see.
    prefix: usize,
    hostler: Gitignore,
    git: Gitignore,
    outer: Option<Rc<Ignores>>,
}

impl Ignores {
    /// The rules in `directory`, which is open at path `at` and inherits `outer`.
    pub(crate) fn enter(directory: impl AsFd, at: &[u8], outer: Option<&Rc<Self>>) -> io::Result<Option<Rc<Self>>> {
        let hostler = read_small(directory.as_fd(), ".hostlerignore")?;
        let git = read_small(directory.as_fd(), ".gitignore")?;
        if hostler.is_none() && git.is_none() {
            return Ok(outer.cloned());
        }
        let prefix = if at.is_empty() { 0 } else { at.len() + 1 };
        let (hostler, git) = (parse(hostler.as_deref()), parse(git.as_deref()));
        Ok(Some(Rc::new(Self { prefix, hostler, git, outer: outer.cloned() })))
    }

    fn levels(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |level| level.outer.as_deref())
    }

    fn judge(&self, rules: &Gitignore, path: &[u8], is_directory: bool) -> Option<bool> {
        if rules.is_empty() {
            return None;
        }
        match rules.matched(Path::new(OsStr::from_bytes(&path[self.prefix..])), is_directory) {
            Match::None => None,
            Match::Ignore(_) => Some(true),
            Match::Whitelist(_) => Some(false),
        }
    }
}

/// What the rules say of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Taken; a directory may still be left out by default, for what is in it.
    Taken,
    /// Taken, whatever the defaults say: a `.hostlerignore` includes it.
    Included,
    /// Left out by a rule, or because it is never captured.
    Excluded,
    /// Left out by default.
    LeftOut(LeftOutKind),
}

/// What `rules` and the defaults say of the entry at `path`, called `name`.
pub(crate) fn judge(rules: Option<&Rc<Ignores>>, path: &[u8], name: &[u8], is_directory: bool) -> Verdict {
    if NEVER.contains(&name) {
        return Verdict::Excluded;
    }
    let levels = || rules.into_iter().flat_map(|rules| rules.levels());
    match levels().find_map(|level| level.judge(&level.hostler, path, is_directory)) {
        Some(true) => return Verdict::Excluded,
        Some(false) => return Verdict::Included,
        None => {}
    }
    // What the user leaves out anyway needs no mention.
    if levels().find_map(|level| level.judge(&level.git, path, is_directory)) == Some(true) {
        return Verdict::Excluded;
    }
    LeftOutKind::of_name(name, is_directory).map_or(Verdict::Taken, Verdict::LeftOut)
}

fn parse(rules: Option<&[u8]>) -> Gitignore {
    let Some(rules) = rules else { return Gitignore::empty() };
    let rules = rules.strip_prefix("\u{feff}".as_bytes()).unwrap_or(rules);
    let mut builder = GitignoreBuilder::new("");
    for line in rules.split(|&byte| byte == b'\n') {
        if let Ok(line) = std::str::from_utf8(line) {
            // Git ignores a line that is no pattern, and so do we.
            let _ = builder.add_line(None, line.strip_suffix('\r').unwrap_or(line));
        }
    }
    builder.build().unwrap_or_else(|_| Gitignore::empty())
}
