//! The job's folder: which directories may be one.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use hostler_sys::MountTree;
use nix::errno::Errno;
use nix::fcntl::{OFlag, ResolveFlag, openat2, readlinkat};
use nix::libc;
use nix::sys::stat::{FileStat, SFlag, fstat, stat};

use super::root::{WRITABLE, as_user, how, is, refuse_kernel};
use super::{During, Plan};
use crate::launch::AgentDirectory;

/// Opens the job's folder with the rights of the user, to whom it must belong.
pub(super) fn folder(host: &OwnedFd, plan: &Plan<'_>) -> io::Result<MountTree> {
    let what = format_args!("use {} as the job's folder", plan.folder);
    let opened = as_user(plan, || open_without_links_of_users(host, plan)).during(what)?;
    let opened = opened.map_err(io::Error::other).during(what)?;
    if fstat(&opened).during(what)?.st_uid != plan.user.uid {
        let why = format!(
            "it does not belong to user {}; a sandboxed job can write to its folder only, so start it in a folder of your own",
            plan.user.name
        );
        return Err(io::Error::other(why)).during(what);
    }
    refuse_kernel(&opened).during(what)?;
    for path in &plan.wanted.private {
        if contains(host, &opened, plan, path).during(format_args!("find {path}"))? {
            let why = format!(
                "{path} is there, with files that programs outside of the sandbox trust; start it in a folder without them"
            );
            return Err(io::Error::other(why)).during(what);
        }
    }
    if let Some(agent) = &plan.wanted.agent {
        let is_inside = is_inside(host, &opened, plan, agent);
        if is_inside.during(format_args!("find {}", agent.path))? {
            let why = format!("it is in {}, where an agent keeps its state; start it in another folder", agent.path);
            return Err(io::Error::other(why)).during(what);
        }
    }
    let tree = MountTree::copy(&opened, false).during(what)?;
    tree.add(WRITABLE, false).during(what)?;
    Ok(tree)
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

/// Whether a folder is in an agent's directory, but not in the folder of a run.
fn is_inside(host: &OwnedFd, folder: &OwnedFd, plan: &Plan<'_>, agent: &AgentDirectory) -> io::Result<bool> {
    let above = ancestors(folder.try_clone()?);
    let find = |path: &str| match open(host, plan, path)? {
        Some(directory) => io::Result::Ok(above.iter().position(|it| is_same(it, &directory))),
        None => Ok(None),
    };
    if find(&agent.path)?.is_none() {
        return Ok(false);
    }
    let Some(runs) = find(&agent.runs)?.filter(|levels| *levels >= 2) else { return Ok(true) };
    let flags = how(OFlag::O_DIRECTORY, ResolveFlag::RESOLVE_NO_SYMLINKS);
    let of_run = openat2(&above[runs - 1], agent.folder.as_str(), flags);
    Ok(!of_run.is_ok_and(|of_run| is_same(&of_run, &above[runs - 2])))
}

/// Whether a directory is this folder or below it.
pub(super) fn contains(host: &OwnedFd, folder: &OwnedFd, plan: &Plan<'_>, path: &str) -> io::Result<bool> {
    Ok(open(host, plan, path)?.is_some_and(|directory| ancestors(directory).iter().any(|it| is_same(it, folder))))
}

/// Opens a directory; `None` if there is none, or if the user cannot reach it, as the job cannot either.
fn open(host: &OwnedFd, plan: &Plan<'_>, path: &str) -> io::Result<Option<OwnedFd>> {
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
