//! Opens files of the machine with the rights of the user or so that nobody can have exchanged them, and creates those of the sandbox.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use hostler_sys::MountAttributes;
use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat, openat2};
use nix::libc;
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, mkdirat};
use nix::sys::statfs::{CGROUP_SUPER_MAGIC, CGROUP2_SUPER_MAGIC, FsType, PROC_SUPER_MAGIC, SYSFS_MAGIC, fstatfs};

use super::plan::Plan;

pub(super) const LOCKED: u64 = MountAttributes::READ_ONLY | MountAttributes::NO_SUID | MountAttributes::NO_DEVICES;
pub(super) const WRITABLE: u64 = MountAttributes::NO_SUID | MountAttributes::NO_DEVICES;

/// Options to open a path without reading it.
pub(super) fn how(flags: OFlag, resolve: ResolveFlag) -> OpenHow {
    OpenHow::new().flags(OFlag::O_PATH | OFlag::O_CLOEXEC | flags).resolve(ResolveFlag::RESOLVE_NO_MAGICLINKS | resolve)
}

/// Opens a directory or file that an admin names. Nobody but root may be able to exchange it.
pub(super) fn only_of_root(host: &OwnedFd, plan: &Plan<'_>, path: &str) -> io::Result<OwnedFd> {
    let refuse = |why: String| Err(io::Error::other(why));
    let Ok(inside) = relative(path) else { return refuse("it is not an absolute path without `..`".to_owned()) };
    let (mut found, mut so_far) = (host.try_clone()?, PathBuf::from("/"));
    for part in inside.components() {
        found = openat2(&found, part.as_os_str(), how(OFlag::O_NOFOLLOW, ResolveFlag::RESOLVE_NO_SYMLINKS))?;
        so_far.push(part);
        let (metadata, name) = (fstat(&found)?, so_far.display());
        if is(&metadata, SFlag::S_IFLNK) {
            return refuse(format!("{name} is a symbolic link; name the place that it leads to"));
        }
        // An unprivileged sandbox cannot tell root from other users but its own.
        let is_of_others = metadata.st_uid != 0 && !plan.is_unprivileged;
        // With an access control list, the bits of the group say what named users may do at most.
        if is_of_others || metadata.st_mode & 0o022 != 0 {
            return refuse(format!("users other than root may change {name}; use `chown root` and `chmod go-w`"));
        }
    }
    refuse_kernel(&found)?;
    Ok(found)
}

/// Refuses file systems that show processes and settings of the machine.
pub(super) fn refuse_kernel(found: &OwnedFd) -> io::Result<()> {
    const OF_THE_KERNEL: [FsType; 4] = [PROC_SUPER_MAGIC, SYSFS_MAGIC, CGROUP_SUPER_MAGIC, CGROUP2_SUPER_MAGIC];
    if OF_THE_KERNEL.contains(&fstatfs(found)?.filesystem_type()) {
        return Err(io::Error::other("it is in a file system of the kernel"));
    }
    Ok(())
}

/// Runs `act` with the user's rights to files. The supplementary groups stay those of the user.
pub(super) fn as_user<T>(plan: &Plan<'_>, act: impl FnOnce() -> nix::Result<T>) -> io::Result<T> {
    if plan.is_unprivileged {
        // Capabilities in a user namespace override no permissions of files of users outside.
        return Ok(act()?);
    }
    let user = plan.user;
    // SAFETY: system calls with integers, and with memory that outlives them. The C library's `setgroups` would try to
    // reach other threads.
    unsafe {
        crate::sys::check(libc::syscall(libc::SYS_setgroups, user.groups.len(), user.groups.as_ptr()))?;
        libc::setfsgid(user.gid);
        // Also takes away the capabilities that override file permissions.
        libc::setfsuid(user.uid);
    }
    let done = act();
    // SAFETY: the system calls take plain integers.
    unsafe {
        libc::setfsuid(0);
        libc::setfsgid(0);
    }
    Ok(done?)
}

/// A path without the leading slash. Only absolute paths without `..` have a place in the tree.
pub(super) fn relative(path: &str) -> io::Result<&Path> {
    let path = Path::new(path);
    let is_plain = path.components().skip(1).all(|part| matches!(part, Component::Normal(_)));
    match path.strip_prefix("/") {
        Ok(inside) if is_plain && !inside.as_os_str().is_empty() => Ok(inside),
        _ => Err(io::Error::other(format!("{} cannot be the path of a job's folder or file", path.display()))),
    }
}

/// Opens a directory in the tree. Creates missing directories, and follows no symbolic links.
pub(super) fn directory(root: &impl AsFd, path: &Path) -> io::Result<OwnedFd> {
    let mut at = root.as_fd().try_clone_to_owned()?;
    for part in path.components() {
        match mkdirat(&at, part.as_os_str(), Mode::from_bits_truncate(0o755)) {
            Ok(()) | Err(Errno::EEXIST) => {}
            Err(error) => return Err(error.into()),
        }
        let found = how(OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW, ResolveFlag::RESOLVE_NO_SYMLINKS);
        at = openat2(&at, part.as_os_str(), found)?;
    }
    Ok(at)
}

/// Creates an empty file in the tree, with missing directories.
pub(super) fn file(root: &impl AsFd, path: &Path) -> io::Result<OwnedFd> {
    let (parent, name) = (path.parent().unwrap_or(Path::new("")), path.file_name().unwrap_or_default());
    let flags = OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_WRONLY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    Ok(openat(&directory(root, parent)?, name, flags, Mode::from_bits_truncate(0o644))?)
}

/// Returns whether a file is of this kind.
pub(super) fn is(metadata: &FileStat, kind: SFlag) -> bool {
    metadata.st_mode & SFlag::S_IFMT.bits() == kind.bits()
}
