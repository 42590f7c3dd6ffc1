//! Which directories of the machine a sandbox may show as the job's folder or as the root directory of an image.
//!
//! Only [`open`] opens such a directory, for jobs and remote commands. The agent says what it has made for the job, and what
//! programs outside of the sandbox trust ([`crate::launch::Folders`]).

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use hostler_sys::MountTree;
use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2, readlinkat};
use nix::libc;
use nix::sys::stat::{FileStat, SFlag, fstat, stat};

use super::files::{WRITABLE, as_user, how, is, only_of_root, refuse_kernel};
use super::plan::{During, Plan};

/// Files by which the directory of any head or agent is recognized.
const OF_DAEMONS: [&str; 2] = ["trust/ca.key", "identity/credentials.pem"];

/// What a sandbox does with a directory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    /// The program may write to it.
    Folder,
    /// It is the root directory, read-only.
    Image,
}

/// Opens the job's folder.
pub(super) fn folder(host: &OwnedFd, plan: &Plan<'_>) -> io::Result<MountTree> {
    let what = format_args!("use {} as the job's folder", plan.folder);
    let tree = MountTree::copy(&open(host, plan, plan.folder, Use::Folder).during(what)?, false).during(what)?;
    tree.add(WRITABLE, false).during(what)?;
    Ok(tree)
}

/// Opens a directory that a sandbox may show, with the rights of the user.
///
/// # Errors
/// If the sandbox may not show it. The message says what to use instead.
pub(super) fn open(host: &OwnedFd, plan: &Plan<'_>, path: &str, wanted: Use) -> io::Result<OwnedFd> {
    if plan.wanted.folders.only_made {
        return open_made(host, plan, path);
    }
    let opened = match wanted {
        Use::Folder => match as_user(plan, || open_without_links_of_users(host, plan)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let why =
                    "No such file or directory on this node; create it there, or send a folder with `hostler submit`";
                return Err(io::Error::new(error.kind(), why));
            }
            opened => opened?.map_err(io::Error::other)?,
        },
        Use::Image => {
            // Everybody may read a root file system. So the user must be able to read and to enter the directory, as a shell would
            // have to: opening it without reading (`O_PATH`) needs rights to its parent directories only.
            let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
            let readable = OpenHow::new().flags(flags).resolve(ResolveFlag::RESOLVE_NO_MAGICLINKS);
            as_user(plan, || openat2(host, format!("{path}/.").as_str(), readable))?
        }
    };
    check(host, plan, &opened, wanted)?;
    Ok(opened)
}

/// Opens the folder that the agent has made for the job, or a directory in it. Looks at no other place, so that the message does
/// not say what is there.
fn open_made(host: &OwnedFd, plan: &Plan<'_>, path: &str) -> io::Result<OwnedFd> {
    let refused = || {
        io::Error::other(format!(
            "the agent runs as user {}, and a job of another user gets only the folder that the agent makes for it; send \
             your files with `hostler submit`",
            plan.user.name
        ))
    };
    let made = plan.wanted.folders.made.as_deref().ok_or_else(refused)?;
    let below = Path::new(".").join(Path::new(path).strip_prefix(made).map_err(|_| refused())?);
    let made = openat2(host, made, how(OFlag::O_DIRECTORY, ResolveFlag::empty()))?;
    match openat2(&made, &below, how(OFlag::O_DIRECTORY, ResolveFlag::RESOLVE_BENEATH)) {
        Err(Errno::EXDEV) => Err(refused()),
        opened => Ok(opened?),
    }
}

/// Refuses directories of others, and those with files that programs outside of the sandbox trust.
fn check(host: &OwnedFd, plan: &Plan<'_>, opened: &OwnedFd, wanted: Use) -> io::Result<()> {
    let refuse = |why: String| Err(io::Error::other(why));
    let folders = &plan.wanted.folders;
    let above = ancestors(opened.try_clone()?);
    check_owner(host, plan, &above, wanted)?;
    refuse_kernel(opened)?;
    if let Some(made) = &folders.made
        && levels_below(host, plan, &above, made)?.is_some()
    {
        return Ok(());
    }
    for path in folders.private.iter().chain(&folders.state) {
        let inside = reach(host, plan, path)?;
        if inside.is_some_and(|inside| ancestors(inside).iter().any(|it| is_same(it, opened))) {
            return refuse(format!(
                "programs outside of the sandbox trust the files of {path}; use a directory without them"
            ));
        }
    }
    for path in &folders.state {
        if levels_below(host, plan, &above, path)?.is_some() && !is_of_run(host, plan, &above)? {
            return refuse(format!("it is in {path}, where an agent keeps its state; use another directory"));
        }
    }
    if plan.is_unprivileged { check_keys(host, plan, &above) } else { Ok(()) }
}

/// Refuses directories that do not belong to the user, except for images that an admin lists.
fn check_owner(host: &OwnedFd, plan: &Plan<'_>, above: &[OwnedFd], wanted: Use) -> io::Result<()> {
    if fstat(&above[0])?.st_uid == plan.user.uid {
        return Ok(());
    }
    let remedy = match wanted {
        Use::Folder => "; a sandboxed job can write to its folder only, so start it in a folder of your own",
        Use::Image if is_listed(host, plan, above)? => return Ok(()),
        Use::Image => {
            ", and the node's admin does not list it in `[images] directories` of agent.toml; use a directory of your own, or \
             ask the admin to list it"
        }
    };
    Err(io::Error::other(format!("it does not belong to user {}{remedy}", plan.user.name)))
}

/// Refuses directories where programs keep keys. Those of an agent that is not root, and of a head beside it, belong to the job's
/// user.
fn check_keys(host: &OwnedFd, plan: &Plan<'_>, above: &[OwnedFd]) -> io::Result<()> {
    for path in &plan.wanted.folders.private {
        let levels = levels_below(host, plan, above, path)?;
        if let Some(name) = levels.map(|levels| hidden(&above[0], levels)).transpose()?.flatten() {
            return Err(io::Error::other(format!(
                "it is in the hidden directory {}, where programs keep keys and settings; use another directory",
                name.display()
            )));
        }
    }
    let is_of_daemon = |directory: &OwnedFd| {
        OF_DAEMONS.iter().any(|file| openat2(directory, *file, how(OFlag::empty(), ResolveFlag::empty())).is_ok())
    };
    if above.iter().any(is_of_daemon) {
        return Err(io::Error::other("a head or an agent keeps its state there; use another directory"));
    }
    Ok(())
}

/// How many levels a directory is below the one with this path; `None` if it is elsewhere.
fn levels_below(host: &OwnedFd, plan: &Plan<'_>, above: &[OwnedFd], path: &str) -> io::Result<Option<usize>> {
    let directory = reach(host, plan, path)?;
    Ok(directory.and_then(|directory| above.iter().position(|it| is_same(it, &directory))))
}

/// Whether a directory is one that an admin lists for images, or in one.
fn is_listed(host: &OwnedFd, plan: &Plan<'_>, above: &[OwnedFd]) -> io::Result<bool> {
    for path in &plan.wanted.folders.images {
        match only_of_root(host, plan, path) {
            Ok(listed) if above.iter().any(|it| is_same(it, &listed)) => return Ok(true),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                return Err(error)
                    .during(format_args!("allow {path}, which `[images] directories` of agent.toml lists"));
            }
        }
    }
    Ok(false)
}

/// The first hidden one of the last directories on the path of an open one.
fn hidden(opened: &OwnedFd, levels: usize) -> io::Result<Option<OsString>> {
    let path = std::fs::read_link(format!("/proc/self/fd/{}", opened.as_raw_fd()))?;
    let names: Vec<_> = path.iter().collect();
    let below = &names[names.len().saturating_sub(levels)..];
    Ok(below.iter().find(|name| name.as_encoded_bytes().starts_with(b".")).map(|name| (*name).to_owned()))
}

/// Opens the job's folder. Follows links of the system only: an earlier job in a folder above may have made others, which lead to
/// anything of the user. Returns why not, if there is such a link.
fn open_without_links_of_users(host: &OwnedFd, plan: &Plan<'_>) -> nix::Result<Result<OwnedFd, String>> {
    const MOST_LINKS: u32 = 40;
    let directory =
        |at: &OwnedFd, path: &Path| openat2(at, path, how(OFlag::O_DIRECTORY, ResolveFlag::RESOLVE_NO_SYMLINKS));
    let mut left = Path::new("/").join(plan.folder);
    for _ in 0..MOST_LINKS {
        match directory(host, &left) {
            Err(Errno::ELOOP) => {}
            opened => return opened.map(Ok),
        }
        // Replaces the first link by what it leads to.
        let (mut at, mut so_far) = (directory(host, Path::new("/"))?, PathBuf::from("/"));
        let mut parts = left.components();
        parts.next();
        let target = loop {
            let Some(part) = parts.next() else { return Err(Errno::ELOOP) };
            let found = openat2(&at, part.as_os_str(), how(OFlag::O_NOFOLLOW, ResolveFlag::RESOLVE_NO_SYMLINKS))?;
            let metadata = fstat(&found)?;
            if is(&metadata, SFlag::S_IFLNK) {
                let of_system = metadata.st_uid == 0 || plan.is_unprivileged && metadata.st_uid != plan.user.uid;
                if !of_system {
                    let link = so_far.join(part);
                    return Ok(Err(format!(
                        "{} is a symbolic link; use the directory that it leads to",
                        link.display()
                    )));
                }
                break readlinkat(&found, "")?;
            }
            so_far.push(part);
            at = found;
        };
        // There is no link in `so_far`, so `..` leads where it would have led.
        left = so_far.join(target).join(parts.as_path());
    }
    Err(Errno::ELOOP)
}

/// Whether a directory is the folder of a run, or in one.
fn is_of_run(host: &OwnedFd, plan: &Plan<'_>, above: &[OwnedFd]) -> io::Result<bool> {
    let Some((runs, folder)) = &plan.wanted.folders.of_runs else { return Ok(false) };
    let levels = levels_below(host, plan, above, runs)?;
    let Some(levels) = levels.filter(|levels| *levels >= 2) else { return Ok(false) };
    let flags = how(OFlag::O_DIRECTORY, ResolveFlag::RESOLVE_NO_SYMLINKS);
    let of_run = openat2(&above[levels - 1], folder.as_str(), flags);
    Ok(of_run.is_ok_and(|of_run| is_same(&of_run, &above[levels - 2])))
}

/// Opens a directory; `None` if there is none, or if the user cannot reach it, as the job cannot either.
fn reach(host: &OwnedFd, plan: &Plan<'_>, path: &str) -> io::Result<Option<OwnedFd>> {
    match as_user(plan, || Ok(openat2(host, path, how(OFlag::O_DIRECTORY, ResolveFlag::empty()))))? {
        Ok(directory) => Ok(Some(directory)),
        Err(Errno::ENOENT | Errno::ENOTDIR | Errno::EACCES) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// A directory and those above it.
fn ancestors(directory: OwnedFd) -> Vec<OwnedFd> {
    const MOST_LEVELS: usize = 256;
    let (root, mut all) = (identity(stat("/")), vec![directory]);
    while let [.., here] = all.as_slice()
        && all.len() < MOST_LEVELS
    {
        // The root directory is its own parent. Elsewhere, a directory may be mounted in itself.
        match openat2(here, "..", how(OFlag::O_DIRECTORY, ResolveFlag::empty())) {
            Ok(parent) if !is_same(&parent, here) || identity(fstat(here)) != root => all.push(parent),
            _ => break,
        }
    }
    all
}

fn is_same(one: &OwnedFd, other: &OwnedFd) -> bool {
    identity(fstat(one)).is_some_and(|it| Some(it) == identity(fstat(other)))
}

fn identity(metadata: nix::Result<FileStat>) -> Option<(libc::dev_t, libc::ino_t)> {
    metadata.ok().map(|metadata| (metadata.st_dev, metadata.st_ino))
}
