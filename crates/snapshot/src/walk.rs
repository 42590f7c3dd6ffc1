//! Walks a folder: finds all entries with their metadata, and all entries that cannot be captured.
//!
//! Directories are opened beneath the root, so a folder that changes during the walk cannot redirect it. The walk
//! does not recurse and holds one directory open at a time. It stops as soon as it exceeds the
//! [`bounds`](crate::bounds).

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::OnceLock;

use hostler_model::format_bytes;
use nix::dir::{Dir, Type};
use nix::fcntl::AtFlags;
use nix::unistd::{AccessFlags, Uid, faccessat};

use crate::beneath::{Kind, Root, Stat, link_text};
use crate::bounds::{MOST_DEPTH, MOST_ENTRIES, Tally, TooMuch};
use crate::ignores::{Ignored, Ignores, LargestIgnored, LeftOut, LeftOutKind, Verdict, including_pattern, judge};
use crate::paths::{self, show, stays_inside};
use crate::tracked::tracked_though_ignored;

/// An entry of a folder that cannot be captured. The text of the value is a sentence without a full stop.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// Path below the folder.
    pub path: Vec<u8>,
    pub reason: ProblemReason,
}

/// The reason why an entry cannot be captured.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProblemReason {
    Socket,
    /// The entry is a named pipe.
    Pipe,
    /// The entry is a block or character device.
    Device,
    /// The entry is a symbolic link that leads out of the folder, directly or through other links.
    LinkOutside {
        target: Vec<u8>,
    },
    /// The file or directory cannot be read; with the system's error text.
    Unreadable(String),
    /// The file differed each time it was read.
    Changing,
    /// The file was still growing, so only its beginning was captured.
    Growing {
        /// The length of the captured beginning, in bytes.
        taken_bytes: u64,
    },
    /// The directory is nested too deeply.
    TooDeep,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = show(&self.path);
        match &self.reason {
            ProblemReason::Socket => write!(f, "{path} is a socket"),
            ProblemReason::Pipe => write!(f, "{path} is a named pipe"),
            ProblemReason::Device => write!(f, "{path} is a device"),
            ProblemReason::LinkOutside { target } => {
                write!(f, "{path} is a link to {}, which leads out of the folder", show(target))
            }
            ProblemReason::Unreadable(why) => write!(f, "{path} cannot be read: {why}"),
            ProblemReason::Growing { taken_bytes } => {
                write!(f, "{path} was still growing; its first {} were taken", format_bytes(*taken_bytes))
            }
            ProblemReason::Changing => write!(f, "{path} changed each time it was read"),
            ProblemReason::TooDeep => {
                let (start, _) =
                    path.char_indices().nth(SHOWN_CHARS).map_or((path.as_str(), ""), |(at, _)| path.split_at(at));
                write!(f, "{start}… is nested more than {MOST_DEPTH} directories deep")
            }
        }
    }
}

/// How many characters of a path are shown that is nested too deeply.
const SHOWN_CHARS: usize = 40;

/// The entries that a walk found, sorted by path.
#[derive(Debug, Default)]
pub(crate) struct Walked {
    pub(crate) found: Vec<Found>,
    pub(crate) problems: Vec<Problem>,
    /// Directories left out by default, sorted by kind and path.
    pub(crate) left_out: Vec<LeftOut>,
    /// What ignore files excluded.
    pub(crate) ignored: Ignored,
}

/// A file, directory or link that can be captured.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) path: Vec<u8>,
    pub(crate) stat: Stat,
    /// The target of a link; otherwise empty.
    pub(crate) target: Vec<u8>,
}

/// Returns whether `found`, which is sorted by path, has a file at `path` with the metadata `stat`.
pub(crate) fn has_stat(found: &[Found], path: &[u8], stat: &Stat) -> bool {
    found.binary_search_by(|it| it.path.as_slice().cmp(path)).is_ok_and(|at| found[at].stat == *stat)
}

/// Which entries a walk leaves out.
pub(crate) enum Rules<'a> {
    /// Entries that ignore files or the defaults exclude.
    IgnoreFiles {
        /// What git tracks; git is asked when a walk finds the first excluded entry.
        tracked: &'a OnceLock<HashSet<Vec<u8>>>,
        /// Whether to count what the user's rules exclude.
        counts: bool,
        /// Paths below the folder that are never captured.
        never: &'a [Vec<u8>],
    },
    /// Paths that the function accepts.
    Skip(&'a dyn Fn(&[u8]) -> bool),
    /// Paths that the function accepts. Links that lead out of the folder are not problems.
    SkipKeepingLinks(&'a dyn Fn(&[u8]) -> bool),
}

/// The reason why a walk failed.
#[derive(Debug)]
pub(crate) enum WalkError {
    /// The root itself cannot be read. An unreadable entry below it is a [`Problem`].
    Root(io::Error),
    /// The folder exceeds a limit.
    TooMuch(TooMuch),
}

pub(crate) fn walk(root: &Root, rules: &Rules<'_>) -> Result<Walked, WalkError> {
    walk_up_to(MOST_ENTRIES, root, rules)
}

/// Walks like [`walk`], with a limit of `most` entries.
pub(crate) fn walk_up_to(most: usize, root: &Root, rules: &Rules<'_>) -> Result<Walked, WalkError> {
    let checks_access = !Uid::effective().is_root();
    let tally = Tally::up_to(most);
    let mut walk = Walk {
        root,
        rules,
        checks_access,
        tally,
        todo: Vec::new(),
        excluded: VecDeque::new(),
        walked: Walked::default(),
    };
    // The folder itself is never left out by default, because the user named it.
    let top = Todo { path: Vec::new(), ignores: None, may_be_left_out: false, is_ignored: false };
    walk.directory(&top).map_err(|stop| match stop {
        Stop::Unreadable(error) => WalkError::Root(error),
        Stop::TooMuch(what) => WalkError::TooMuch(what),
    })?;
    while let Some(todo) = walk.todo.pop() {
        match walk.directory(&todo) {
            Ok(()) => {}
            Err(Stop::Unreadable(error)) => walk.on_unreadable(todo.path, &error).map_err(WalkError::TooMuch)?,
            Err(Stop::TooMuch(what)) => return Err(WalkError::TooMuch(what)),
        }
    }
    walk.count_excluded();
    let mut walked = walk.walked;
    walked.left_out.sort_unstable();
    let left_out: HashSet<&[u8]> = walked.left_out.iter().map(|it| it.path.as_slice()).collect();
    walked.found.retain(|found| !left_out.contains(found.path.as_slice()));
    walked.found.sort_unstable_by(|a, b| a.path.cmp(&b.path));
    if !matches!(rules, Rules::SkipKeepingLinks(_)) {
        make_inner_links_relative(root, &mut walked.found);
        move_outside_links_to_problems(&mut walked);
    }
    walked.problems.sort_unstable();
    Ok(walked)
}

struct Walk<'a> {
    root: &'a Root,
    rules: &'a Rules<'a>,
    /// Whether to check read permission. Root may read everything, so the check would only cost time.
    checks_access: bool,
    tally: Tally,
    todo: Vec<Todo>,
    /// Entries that the user's rules exclude, to be counted.
    excluded: VecDeque<Excluded>,
    walked: Walked,
}

/// An entry that the user's rules exclude, or an entry below one.
struct Excluded {
    path: Vec<u8>,
    /// The line of a `.hostlerignore` that includes it, if there is one.
    pattern: Option<Rc<str>>,
}

/// The maximum number of excluded entries that a walk counts. They may be far more than those that it captures.
const MOST_COUNTED: usize = 50_000;

/// A directory that the walk has not read yet.
struct Todo {
    path: Vec<u8>,
    ignores: Option<Rc<Ignores>>,
    /// Whether the directory may be left out by default because of its contents.
    may_be_left_out: bool,
    /// Whether a `.gitignore` excludes the directory, so that only tracked files in it are captured.
    is_ignored: bool,
}

/// Why a directory was not walked completely.
enum Stop {
    Unreadable(io::Error),
    TooMuch(TooMuch),
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Self::Unreadable(error)
    }
}

impl From<nix::Error> for Stop {
    fn from(error: nix::Error) -> Self {
        Self::Unreadable(error.into())
    }
}

impl From<TooMuch> for Stop {
    fn from(what: TooMuch) -> Self {
        Self::TooMuch(what)
    }
}

impl Walk<'_> {
    fn directory(&mut self, todo: &Todo) -> Result<(), Stop> {
        let at = todo.path.as_slice();
        let mut directory = Dir::from_fd(self.root.open_directory(at)?)?;
        // Collect the names first: reading the directory borrows it, and so does looking at its entries.
        let mut names = Vec::new();
        for entry in directory.iter() {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if !matches!(name, b"." | b"..") {
                names.push((name.to_vec(), entry.file_type()));
            }
            // One name over the limit proves that there are too many. Excluded entries do not count.
            if names.len() > self.tally.left().max(MOST_ENTRIES) {
                break;
            }
        }
        let kind = todo.may_be_left_out.then(|| names.iter().find_map(|(name, _)| LeftOutKind::of_content(name)));
        if let Some(kind) = kind.flatten() {
            self.walked.left_out.push(LeftOut { kind, path: at.to_vec() });
            return Ok(());
        }
        let ignores = match self.rules {
            Rules::IgnoreFiles { .. } => Ignores::enter(&directory, at, todo.ignores.as_ref())?,
            Rules::Skip(_) | Rules::SkipKeepingLinks(_) => None,
        };
        for (name, kind) in names {
            let path = paths::join(at, &name);
            match self.entry(&directory, &path, &name, kind, ignores.as_ref(), todo.is_ignored) {
                Ok(()) => {}
                Err(Stop::Unreadable(error)) => self.on_unreadable(path, &error)?,
                Err(stop) => return Err(stop),
            }
        }
        Ok(())
    }

    fn entry(
        &mut self,
        directory: &Dir,
        path: &[u8],
        name: &[u8],
        kind: Option<Type>,
        ignores: Option<&Rc<Ignores>>,
        is_below_ignored: bool,
    ) -> Result<(), Stop> {
        // Most file systems return the type with the name, which saves a system call for each excluded entry.
        let early = match kind {
            Some(kind) => kind == Type::Directory,
            None => Stat::at(directory, name)?.kind == Kind::Directory,
        };
        let verdict = match self.rules {
            Rules::IgnoreFiles { never, .. } if never.iter().any(|it| it == path) => Verdict::Never,
            Rules::IgnoreFiles { .. } => judge(ignores, path, name, early, is_below_ignored),
            Rules::Skip(skips) | Rules::SkipKeepingLinks(skips) if skips(path) => Verdict::Never,
            Rules::Skip(_) | Rules::SkipKeepingLinks(_) => Verdict::Included,
        };
        let is_tracked = verdict == Verdict::Ignored && self.is_tracked(path);
        match verdict {
            Verdict::Taken | Verdict::Included => {}
            Verdict::Ignored if is_tracked => {}
            Verdict::Never => return Ok(()),
            Verdict::Excluded | Verdict::Ignored => {
                let counts = matches!(self.rules, Rules::IgnoreFiles { counts: true, .. });
                // One more than can be counted shows that there are more.
                if counts && self.excluded.len() <= MOST_COUNTED && LeftOutKind::of_name(name, early).is_none() {
                    let is_by_git = verdict == Verdict::Ignored;
                    let pattern = if is_by_git { including_pattern(path, early) } else { None };
                    self.excluded.push_back(Excluded { path: path.to_vec(), pattern: pattern.map(Rc::from) });
                }
                return Ok(());
            }
            Verdict::LeftOut(kind) => {
                self.walked.left_out.push(LeftOut { kind, path: path.to_vec() });
                return Ok(());
            }
        }
        let stat = Stat::at(directory, name)?;
        let mut target = Vec::new();
        let reason = match stat.kind {
            Kind::File => {
                self.check_access(directory, name, &stat)?;
                None
            }
            Kind::Directory if depth(path) > MOST_DEPTH => Some(ProblemReason::TooDeep),
            Kind::Directory => {
                let may_be_left_out = verdict == Verdict::Taken;
                let (path, ignores) = (path.to_vec(), ignores.cloned());
                self.todo.push(Todo { path, ignores, may_be_left_out, is_ignored: is_tracked });
                None
            }
            Kind::Symlink => {
                target = link_text(directory, name)?;
                None
            }
            Kind::Pipe => Some(ProblemReason::Pipe),
            Kind::Socket => Some(ProblemReason::Socket),
            Kind::Device => Some(ProblemReason::Device),
        };
        let size = if stat.kind == Kind::File { stat.size } else { 0 };
        self.tally.add(path.len() + target.len(), size)?;
        let path = path.to_vec();
        match reason {
            None => self.walked.found.push(Found { path, stat, target }),
            Some(reason) => self.walked.problems.push(Problem { path, reason }),
        }
        Ok(())
    }

    fn is_tracked(&self, path: &[u8]) -> bool {
        let Rules::IgnoreFiles { tracked, .. } = self.rules else { return false };
        tracked.get_or_init(|| tracked_though_ignored(&self.root.full(b""))).contains(path)
    }

    /// Counts the files that the user's rules exclude, those at the top first. What cannot be read does not count.
    fn count_excluded(&mut self) {
        let mut room = MOST_COUNTED;
        while let Some(Excluded { path, pattern }) = self.excluded.pop_front() {
            if room == 0 {
                self.walked.ignored.has_more = true;
                return;
            }
            room -= 1;
            let Ok(stat) = self.root.stat(&path) else { continue };
            match stat.kind {
                Kind::File => self.walked.ignored.count(path, stat.size, pattern.as_deref()),
                Kind::Directory => self.enter_excluded(&path, pattern.as_ref()),
                _ => {}
            }
        }
    }

    /// Adds the entries of an excluded directory to those that are counted.
    fn enter_excluded(&mut self, path: &[u8], pattern: Option<&Rc<str>>) {
        let Ok(Ok(mut directory)) = self.root.open_directory(path).map(Dir::from_fd) else { return };
        let names = directory.iter().flatten().map(|entry| entry.file_name().to_bytes().to_vec());
        // One more than can be counted shows that there are more.
        let names = names.take((MOST_COUNTED + 3).saturating_sub(self.excluded.len()));
        let names: Vec<_> = names.filter(|name| !matches!(name.as_slice(), b"." | b"..")).collect();
        if names.iter().any(|name| LeftOutKind::of_content(name).is_some()) {
            return;
        }
        let names = names.into_iter().filter(|name| LeftOutKind::of_name(name, true).is_none());
        self.excluded
            .extend(names.map(|name| Excluded { path: paths::join(path, &name), pattern: pattern.map(Rc::clone) }));
    }

    /// Checks read permission before anything is read. World-readable files need no check.
    fn check_access(&self, directory: impl AsFd, name: &[u8], stat: &Stat) -> io::Result<()> {
        if self.checks_access && stat.mode & 0o444 != 0o444 {
            faccessat(directory, name, AccessFlags::R_OK, AtFlags::AT_EACCESS)?;
        }
        Ok(())
    }

    /// Ignores an entry that has vanished. Reports any other unreadable entry as a problem.
    fn on_unreadable(&mut self, path: Vec<u8>, error: &io::Error) -> Result<(), TooMuch> {
        if error.kind() != io::ErrorKind::NotFound {
            self.tally.add(path.len(), 0)?;
            self.walked.problems.push(Problem { path, reason: ProblemReason::Unreadable(plain(error)) });
        }
        Ok(())
    }
}

impl Ignored {
    fn count(&mut self, path: Vec<u8>, bytes: u64, pattern: Option<&str>) {
        self.files += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        if self.largest.as_ref().is_none_or(|largest| largest.bytes < bytes) {
            self.largest = Some(LargestIgnored { path, bytes, pattern: pattern.map(str::to_owned) });
        }
    }
}

/// Returns the number of components of a path.
fn depth(path: &[u8]) -> usize {
    path.iter().filter(|&&byte| byte == b'/').count() + 1
}

/// Returns the system's text for an error, without its number.
pub(crate) fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    let mut text = text.split(" (os error").next().unwrap_or_default().to_owned();
    if let Some(first) = text.get_mut(..1) {
        first.make_ascii_lowercase();
    }
    text
}

/// Makes absolute targets below the folder relative, so that they lead to the same place wherever the folder is laid out.
fn make_inner_links_relative(root: &Root, found: &mut [Found]) {
    let mut absolute = found.iter_mut().filter(|it| it.target.starts_with(b"/")).peekable();
    if absolute.peek().is_none() {
        return;
    }
    // Links may name the folder by the path that its user knows, or by the one without links.
    let root = root.full(b"");
    let folders: Vec<PathBuf> = [std::path::absolute(&root), root.canonicalize()].into_iter().flatten().collect();
    // `components` drops a slash at the end.
    let folders: Vec<PathBuf> = folders.iter().map(|folder| folder.components().collect()).collect();
    for link in absolute {
        let of = |folder: &PathBuf| paths::relative_target(&link.path, &link.target, folder.as_os_str().as_bytes());
        if let Some(target) = folders.iter().find_map(of) {
            link.target = target;
        }
    }
}

/// Moves links that lead outside from the found entries to the problems.
fn move_outside_links_to_problems(walked: &mut Walked) {
    let links: HashMap<&[u8], &[u8]> = (walked.found.iter())
        .filter(|found| found.stat.kind == Kind::Symlink)
        .map(|found| (found.path.as_slice(), found.target.as_slice()))
        .collect();
    let link_at = |path: &[u8]| links.get(path).copied();
    let mut effort = paths::EFFORT;
    let leads_outside: Vec<bool> = (walked.found.iter())
        .map(|it| it.stat.kind == Kind::Symlink && !stays_inside(&it.path, &it.target, &link_at, &mut effort))
        .collect();
    let mut verdicts = leads_outside.into_iter();
    let outside = walked.found.extract_if(.., |_| verdicts.next().expect("there is one verdict for each entry"));
    walked
        .problems
        .extend(outside.map(|it| Problem { path: it.path, reason: ProblemReason::LinkOutside { target: it.target } }));
}
