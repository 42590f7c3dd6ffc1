//! Walking a folder: everything in it with its metadata, and everything that could not be captured.
//!
//! Directories are opened beneath the root, so a folder that changes during the walk cannot lead it elsewhere. The walk uses
//! no recursion and one open directory at a time: depth is bounded by the kernel's path length alone.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::io;
use std::os::fd::AsFd;
use std::rc::Rc;

use nix::dir::{Dir, Type};
use nix::fcntl::AtFlags;
use nix::unistd::{AccessFlags, Uid, faccessat};

use crate::beneath::{Kind, Root, Stat, link_text};
use crate::ignores::{Ignores, LeftOut, LeftOutKind, Verdict, judge};
use crate::paths::{self, show, stays_inside};

/// One thing in a folder that cannot be captured. Displays as a sentence without its full stop.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// Path below the folder.
    pub path: Vec<u8>,
    /// What is wrong with it.
    pub reason: ProblemReason,
}

/// Why something cannot be captured.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProblemReason {
    /// A socket of a running program.
    Socket,
    /// A named pipe.
    Pipe,
    /// A block or character device.
    Device,
    /// A symbolic link that leads out of the folder, directly or through other links.
    LinkOutside {
        /// The link's text.
        target: Vec<u8>,
    },
    /// A file or directory that may not be read, with the system's words.
    Unreadable(String),
    /// A file that kept changing while it was read.
    Changing,
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
            ProblemReason::Changing => write!(f, "{path} changed while it was being read"),
        }
    }
}

/// What a walk found, sorted by path.
#[derive(Debug, Default)]
pub(crate) struct Walked {
    pub(crate) found: Vec<Found>,
    pub(crate) problems: Vec<Problem>,
    /// Directories that are left out by default, sorted by kind and path.
    pub(crate) left_out: Vec<LeftOut>,
}

/// One file, directory or link that can be captured.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) path: Vec<u8>,
    pub(crate) stat: Stat,
    /// The text of a link; empty for anything else.
    pub(crate) target: Vec<u8>,
}

/// What a walk leaves out.
pub(crate) enum Rules<'a> {
    /// What the folder's files of rules say, and what is left out by default or always.
    IgnoreFiles,
    /// Paths for which the function says so.
    Skip(&'a dyn Fn(&[u8]) -> bool),
    /// The same, and links may lead anywhere.
    SkipKeepingLinks(&'a dyn Fn(&[u8]) -> bool),
}

/// Walks everything below `root`.
///
/// # Errors
/// When the root itself cannot be read; anything below it that cannot be is a [`Problem`].
pub(crate) fn walk(root: &Root, rules: &Rules<'_>) -> io::Result<Walked> {
    walk_up_to(usize::MAX, root, rules)
}

/// The same in a folder of somebody who may put more into it than there is memory for.
///
/// # Errors
/// Also when there are more than `most` files, directories and links.
pub(crate) fn walk_up_to(most: usize, root: &Root, rules: &Rules<'_>) -> io::Result<Walked> {
    let checks_access = !Uid::effective().is_root();
    let mut walk = Walk { root, rules, checks_access, most, todo: Vec::new(), walked: Walked::default() };
    // The folder itself is what the user asked for, whatever it is.
    let top = Todo { path: Vec::new(), ignores: None, may_be_left_out: false };
    walk.directory(&top)?;
    while let Some(todo) = walk.todo.pop() {
        if walk.count() > most {
            break;
        }
        if let Err(error) = walk.directory(&todo) {
            walk.on_unreadable(todo.path, &error);
        }
    }
    if walk.count() > most {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("there are more than {most} files")));
    }
    let mut walked = walk.walked;
    walked.left_out.sort_unstable();
    let left_out: HashSet<&[u8]> = walked.left_out.iter().map(|it| it.path.as_slice()).collect();
    walked.found.retain(|found| !left_out.contains(found.path.as_slice()));
    walked.found.sort_unstable_by(|a, b| a.path.cmp(&b.path));
    if !matches!(rules, Rules::SkipKeepingLinks(_)) {
        set_aside_links_outside(&mut walked);
    }
    walked.problems.sort_unstable();
    Ok(walked)
}

struct Walk<'a> {
    root: &'a Root,
    rules: &'a Rules<'a>,
    /// Root may read everything, so asking would only cost time.
    checks_access: bool,
    most: usize,
    todo: Vec<Todo>,
    walked: Walked,
}

/// A directory that was found and not read yet.
struct Todo {
    path: Vec<u8>,
    ignores: Option<Rc<Ignores>>,
    /// Whether it is left out if what is in it says so.
    may_be_left_out: bool,
}

impl Walk<'_> {
    fn count(&self) -> usize {
        self.walked.found.len() + self.walked.problems.len()
    }

    fn directory(&mut self, todo: &Todo) -> io::Result<()> {
        let at = todo.path.as_slice();
        let mut directory = Dir::from_fd(self.root.open_directory(at)?)?;
        // The names first: reading the directory borrows it, and so does asking about what is in it.
        let mut names = Vec::new();
        for entry in directory.iter() {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if !matches!(name, b"." | b"..") {
                names.push((name.to_vec(), entry.file_type()));
            }
            // One more than there may be is enough to know that there are too many.
            if names.len() > self.most {
                break;
            }
        }
        let kind = todo.may_be_left_out.then(|| names.iter().find_map(|(name, _)| LeftOutKind::of_content(name)));
        if let Some(kind) = kind.flatten() {
            self.walked.left_out.push(LeftOut { kind, path: at.to_vec() });
            return Ok(());
        }
        let ignores = match self.rules {
            Rules::IgnoreFiles => Ignores::enter(&directory, at, todo.ignores.as_ref())?,
            Rules::Skip(_) | Rules::SkipKeepingLinks(_) => None,
        };
        for (name, kind) in names {
            let path = paths::join(at, &name);
            match self.entry(&directory, &path, &name, kind, ignores.as_ref()) {
                Ok(()) => {}
                Err(error) => self.on_unreadable(path, &error),
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
    ) -> io::Result<()> {
        // Most file systems say the kind for free, which spares asking about what is left out.
        let early = match kind {
            Some(kind) => kind == Type::Directory,
            None => Stat::at(directory, name)?.kind == Kind::Directory,
        };
        let verdict = match self.rules {
            Rules::IgnoreFiles => judge(ignores, path, name, early),
            Rules::Skip(skips) | Rules::SkipKeepingLinks(skips) if skips(path) => Verdict::Excluded,
            Rules::Skip(_) | Rules::SkipKeepingLinks(_) => Verdict::Included,
        };
        match verdict {
            Verdict::Taken | Verdict::Included => {}
            Verdict::Excluded => return Ok(()),
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
            Kind::Directory => {
                let may_be_left_out = verdict == Verdict::Taken;
                self.todo.push(Todo { path: path.to_vec(), ignores: ignores.cloned(), may_be_left_out });
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
        let path = path.to_vec();
        match reason {
            None => self.walked.found.push(Found { path, stat, target }),
            Some(reason) => self.walked.problems.push(Problem { path, reason }),
        }
        Ok(())
    }

    /// Finds out before anything is read whether a file may be. What everybody may read needs no question.
    fn check_access(&self, directory: impl AsFd, name: &[u8], stat: &Stat) -> io::Result<()> {
        if self.checks_access && stat.mode & 0o444 != 0o444 {
            faccessat(directory, name, AccessFlags::R_OK, AtFlags::AT_EACCESS)?;
        }
        Ok(())
    }

    /// Something that vanished meanwhile was simply not there; anything else is named.
    fn on_unreadable(&mut self, path: Vec<u8>, error: &io::Error) {
        if error.kind() != io::ErrorKind::NotFound {
            self.walked.problems.push(Problem { path, reason: ProblemReason::Unreadable(plain(error)) });
        }
    }
}

/// An error in the system's words without its number.
pub(crate) fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    let mut text = text.split(" (os error").next().unwrap_or_default().to_owned();
    if let Some(first) = text.get_mut(..1) {
        first.make_ascii_lowercase();
    }
    text
}

/// Moves links that lead outside from what was found to the problems.
fn set_aside_links_outside(walked: &mut Walked) {
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
    let outside = walked.found.extract_if(.., |_| verdicts.next().expect("one verdict for each"));
    walked
        .problems
        .extend(outside.map(|it| Problem { path: it.path, reason: ProblemReason::LinkOutside { target: it.target } }));
}
