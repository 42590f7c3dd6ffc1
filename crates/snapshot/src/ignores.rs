//! Decides which files a capture leaves out: by `.gitignore` (with git's semantics), `.hostlerignore`, and defaults.
//!
//! The defaults ([`LeftOutKind`]) are directories that can be rebuilt or that a job does not need. A `.hostlerignore`
//! can include them. A `.gitignore` cannot: its common pattern `!*/` would include all of them.
//!
//! The folder is the top. Ignore files above it, the user's global excludes and `.git/info/exclude` do not apply. A
//! capture therefore does not depend on the folder's location or on a repository. Nearer files win over farther ones,
//! later lines over earlier ones, and a `.hostlerignore` over all `.gitignore` files. As in git, nothing below an
//! excluded directory can be included again. Ignore files that are symbolic links are not read, and invalid patterns
//! are skipped. A `.gitignore` does not exclude files that git tracks; a `.hostlerignore` does.

use std::ffi::OsStr;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::rc::Rc;

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};

use crate::beneath::read_small;
use crate::marker::RESULTS_MARKER;

/// The file at the top of every virtual environment (PEP 405).
const ENVIRONMENT_MARKER: &str = "pyvenv.cfg";

/// Hostler's own files in a folder; never captured, at any depth.
const NEVER: [&[u8]; 3] = [b".hostler", b".hostler-partial", RESULTS_MARKER.as_bytes()];

/// The reason why a directory is left out without a user's rule.
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
    /// Results of a job: a directory with the marker that [`mark_results`](crate::mark_results) writes.
    Results,
}

/// A directory left out by default.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct LeftOut {
    pub kind: LeftOutKind,
    /// Path below the folder.
    pub path: Vec<u8>,
}

/// What the user's ignore rules excluded. Directories that the defaults leave out anyway do not count.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ignored {
    /// Number of files, without directories and links.
    pub files: u64,
    /// The size of the files together, in bytes.
    pub bytes: u64,
    pub largest: Option<LargestIgnored>,
    /// Whether there are more files than were counted.
    pub has_more: bool,
}

/// The largest file that ignore rules excluded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LargestIgnored {
    /// Path below the folder.
    pub path: Vec<u8>,
    /// Size in bytes.
    pub bytes: u64,
    /// The line for the folder's `.hostlerignore` that includes the file. `None` if a `.hostlerignore` excludes the
    /// file, or if no pattern can name it.
    pub pattern: Option<String>,
}

/// Returns the line of a `.hostlerignore` that includes the entry at `path`.
pub(crate) fn including_pattern(path: &[u8], is_directory: bool) -> Option<String> {
    let text = std::str::from_utf8(path).ok().filter(|text| !text.contains(['\n', '\r']))?;
    let mut pattern = String::from("!/");
    for letter in text.chars() {
        if matches!(letter, '*' | '?' | '[' | ']' | '\\' | '{' | '}' | ' ') && (letter != ' ' || text.ends_with(' ')) {
            pattern.push('\\');
        }
        pattern.push(letter);
    }
    pattern.extend(is_directory.then_some('/'));
    Some(pattern)
}

impl LeftOutKind {
    pub(crate) fn of_name(name: &[u8], is_directory: bool) -> Option<Self> {
        match name {
            // `.git` is a file in worktrees and submodules.
            b".git" => Some(Self::Git),
            b"__pycache__" if is_directory => Some(Self::PythonCache),
            b"node_modules" if is_directory => Some(Self::NodeModules),
            _ => None,
        }
    }

    /// Returns the kind of directory that contains an entry called `name`, if such directories are left out by default.
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

/// The ignore rules of one directory, with a link to the rules of its parent.
#[derive(Debug)]
pub(crate) struct Ignores {
    /// Length of the path of the rules' directory, which matching skips, in bytes.
    prefix: usize,
    hostler: Gitignore,
    git: Gitignore,
    outer: Option<Rc<Ignores>>,
}

impl Ignores {
    /// Reads the rules in the open `directory` at path `at`, which inherits `outer`.
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

/// What the ignore rules and the defaults say about an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The entry is captured. A directory may still be left out by default for its contents.
    Taken,
    /// The entry is captured, even if the defaults say otherwise: a `.hostlerignore` includes it.
    Included,
    /// The entry is never captured.
    Never,
    /// A `.hostlerignore` excludes the entry.
    Excluded,
    /// A `.gitignore` excludes the entry, unless git tracks it.
    Ignored,
    LeftOut(LeftOutKind),
}

/// Applies `rules` and the defaults to the entry at `path`. `name` is the path's last component. `is_below_ignored` says
/// that a `.gitignore` excludes the parent directory.
pub(crate) fn judge(
    rules: Option<&Rc<Ignores>>,
    path: &[u8],
    name: &[u8],
    is_directory: bool,
    is_below_ignored: bool,
) -> Verdict {
    if NEVER.contains(&name) {
        return Verdict::Never;
    }
    let levels = || rules.into_iter().flat_map(|rules| rules.levels());
    match levels().find_map(|level| level.judge(&level.hostler, path, is_directory)) {
        Some(true) => return Verdict::Excluded,
        Some(false) => return Verdict::Included,
        None => {}
    }
    // A directory that the user's rules exclude is not reported.
    if is_below_ignored || levels().find_map(|level| level.judge(&level.git, path, is_directory)) == Some(true) {
        return Verdict::Ignored;
    }
    LeftOutKind::of_name(name, is_directory).map_or(Verdict::Taken, Verdict::LeftOut)
}

fn parse(rules: Option<&[u8]>) -> Gitignore {
    let Some(rules) = rules else { return Gitignore::empty() };
    let rules = rules.strip_prefix("\u{feff}".as_bytes()).unwrap_or(rules);
    let mut builder = GitignoreBuilder::new("");
    for line in rules.split(|&byte| byte == b'\n') {
        if let Ok(line) = std::str::from_utf8(line) {
            // Like git, skip an invalid pattern.
            let _ = builder.add_line(None, line.strip_suffix('\r').unwrap_or(line));
        }
    }
    builder.build().unwrap_or_else(|_| Gitignore::empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pattern_includes_exactly_the_file_that_it_was_made_for() {
        for path in ["data", "a/b.bin", "we ird ", "#hash", "!bang", "a*b?", "[x]", "back\\slash", "{a,b}", "ü"] {
            let pattern = including_pattern(path.as_bytes(), false).expect("the path is text");
            let rules = parse(Some(pattern.as_bytes()));
            assert!(rules.matched(Path::new(path), false).is_whitelist(), "{path}: {pattern}");
            assert!(rules.matched(Path::new("axb1"), false).is_none(), "{path}: {pattern}");
        }
        assert_eq!(including_pattern(b"data", true).as_deref(), Some("!/data/"));
        assert_eq!(including_pattern(b"caf\xe9", false), None);
    }
}
