//! Which files a capture leaves out: `.gitignore` and `.hostlerignore`, as git reads the former.
//!
//! The folder is the top: files above it, the user's global excludes and `.git/info/exclude` have no say, so that a folder
//! is captured alike wherever it lies and whether or not it is a repository. Nearer files win over farther ones, later
//! lines over earlier ones, and anything that a `.hostlerignore` says wins over all `.gitignore` files. As in git, nothing
//! below an excluded directory can be included again, a file of rules that is a symbolic link is not read, and lines that
//! are no valid pattern are skipped. Unlike git, a file that is tracked although it is excluded is left out.

use std::ffi::OsStr;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::rc::Rc;

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};

use crate::beneath::read_small;

/// Never captured, at any depth: histories, and what Hostler itself keeps in folders.
const NEVER: [&[u8]; 3] = [b".git", b".hostler", b".hostler-partial"];

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

/// Whether the entry at `path`, called `name`, is left out under `rules`.
pub(crate) fn leaves_out(rules: Option<&Rc<Ignores>>, path: &[u8], name: &[u8], is_directory: bool) -> bool {
    if NEVER.contains(&name) {
        return true;
    }
    let Some(rules) = rules else { return false };
    let by_hostler = rules.levels().find_map(|level| level.judge(&level.hostler, path, is_directory));
    by_hostler.or_else(|| rules.levels().find_map(|level| level.judge(&level.git, path, is_directory))).unwrap_or(false)
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
