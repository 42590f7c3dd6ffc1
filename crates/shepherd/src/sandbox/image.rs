//! The root directory of a sandbox from an image.
//!
//! The image is the lower layer of an overlay, and an empty file system in memory is the upper one. So the sandbox can have its
//! own /dev, /proc, /tmp and files in /etc on every image, and the image stays as it is. Before something is mounted, a
//! symbolic link or file of the image in its way is removed from the overlay: no mount point is behind a link.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

use hostler_sys::MountTree;
use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};
use nix::sys::stat::{Mode, SFlag, fstat, mkdirat};
use nix::unistd::{UnlinkatFlags, unlinkat};

use super::root::{WRITABLE, as_user, contains, how, is, refuse_kernel};
use super::{During, Plan};
use crate::launch::RootImage;

/// Opens the directory of an image: one of a user with the user's rights.
pub(super) fn open(host: &OwnedFd, plan: &Plan<'_>, image: &RootImage) -> io::Result<OwnedFd> {
    let what = format_args!("use {} as the root directory", image.path);
    let path = image.path.as_str();
    if !image.of_user {
        return openat2(host, path, how(OFlag::O_DIRECTORY, ResolveFlag::empty())).during(what);
    }
    // Everybody may read a root file system. So the user must be able to read and to enter the directory, as a shell would
    // have to: opening it without reading (`O_PATH`) needs rights to its parent directories only.
    let inside = format!("{path}/.");
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let readable = OpenHow::new().flags(flags).resolve(ResolveFlag::RESOLVE_NO_MAGICLINKS);
    let opened = as_user(plan, || openat2(host, inside.as_str(), readable)).during(what)?;
    check(host, plan, &opened).during(what)?;
    Ok(opened)
}

/// Refuses directories that are no root file system of an image, because they would show other parts of the machine.
fn check(host: &OwnedFd, plan: &Plan<'_>, opened: &OwnedFd) -> io::Result<()> {
    let refuse = |why: &str| Err(io::Error::other(why.to_owned()));
    let (metadata, machine) = (fstat(opened)?, fstat(host)?);
    if (metadata.st_dev, metadata.st_ino) == (machine.st_dev, machine.st_ino) {
        return refuse("it is the root directory of the machine");
    }
    if ![0, plan.user.uid].contains(&metadata.st_uid) {
        return refuse("it belongs neither to you nor to root");
    }
    refuse_kernel(opened)?;
    for path in &plan.wanted.private {
        if contains(host, opened, plan, path)? {
            return refuse(&format!("{path} is there"));
        }
    }
    let has = |name: &str| openat2(opened, name, how(OFlag::O_NOFOLLOW, ResolveFlag::RESOLVE_BENEATH)).is_ok();
    if !has("usr") && !has("bin") {
        return refuse("it has neither /usr nor /bin");
    }
    Ok(())
}

/// Creates the root file system of the sandbox: an overlay over the image, in this mounted file system.
pub(super) fn overlay(image: &OwnedFd, memory: &MountTree) -> io::Result<MountTree> {
    let make = |name: &str| -> io::Result<OwnedFd> {
        mkdirat(memory, name, Mode::from_bits_truncate(0o755))?;
        Ok(openat2(memory, name, how(OFlag::O_DIRECTORY, ResolveFlag::RESOLVE_NO_SYMLINKS))?)
    };
    let (upper, work) = (make("upper")?, make("work")?);
    let path = |descriptor: &OwnedFd| format!("/proc/self/fd/{}", descriptor.as_raw_fd());
    let (lower, upper, work) = (path(image), path(&upper), path(&work));
    let options = [(c"lowerdir", lower.as_str()), (c"upperdir", upper.as_str()), (c"workdir", work.as_str())];
    MountTree::create(c"overlay", &options, WRITABLE)
}

/// Removes a link or file of the image from the overlay if it is at the path, or in place of a parent directory.
pub(super) fn clear(root: &impl AsFd, path: &Path) -> io::Result<()> {
    let mut at = root.as_fd().try_clone_to_owned()?;
    for part in path.components() {
        match openat2(&at, part.as_os_str(), how(OFlag::O_NOFOLLOW, ResolveFlag::RESOLVE_NO_SYMLINKS)) {
            Ok(found) if is(&fstat(&found)?, SFlag::S_IFDIR) => at = found,
            Err(Errno::ENOENT) => break,
            // With these options, the kernel opens no link.
            Ok(_) | Err(Errno::ELOOP) => return Ok(unlinkat(&at, part.as_os_str(), UnlinkatFlags::NoRemoveDir)?),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
