//! Mounts that only one thread and the processes that it starts see.

use std::io;
use std::path::Path;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

/// Moves this thread to a new mount namespace. Mounts that are added outside later appear in the namespace too. Mounts
/// added in the namespace do not appear outside, and disappear with the last process in the namespace. Needs root.
///
/// # Errors
/// When the kernel refuses. The error names the failed step.
pub fn unshare_mounts() -> io::Result<()> {
    unshare(CloneFlags::CLONE_NEWNS).map_err(|error| failed("cannot create a mount namespace", error))?;
    change_propagation(Path::new("/"), MsFlags::MS_REC | MsFlags::MS_SLAVE)
}

/// Changes how mounts at and below `at` are shared with other namespaces.
///
/// # Errors
/// When the kernel refuses.
pub fn change_propagation(at: &Path, how: MsFlags) -> io::Result<()> {
    mount(None::<&str>, at, None::<&str>, how, None::<&str>)
        .map_err(|error| failed("cannot change the propagation of mounts", error))
}

/// Mounts an empty file system in memory, without device files and set-user-id programs. Lists of mounts show the file
/// system as `name`; `options` are tmpfs options, e.g. `size=1m`.
///
/// # Errors
/// When the kernel refuses.
pub fn mount_tmpfs(name: &str, at: &Path, options: &str) -> io::Result<()> {
    mount(Some(name), at, Some("tmpfs"), MsFlags::MS_NOSUID | MsFlags::MS_NODEV, Some(options))
        .map_err(|error| failed("cannot mount a tmpfs", error))
}

/// Bind-mounts `from`, with all mounts below it, at `to`.
///
/// # Errors
/// When the kernel refuses.
pub fn bind(from: &Path, to: &Path) -> io::Result<()> {
    Ok(mount(Some(from), to, None::<&str>, MsFlags::MS_BIND | MsFlags::MS_REC, None::<&str>)?)
}

fn failed(what: &str, error: nix::Error) -> io::Error {
    let error = io::Error::from(error);
    io::Error::new(error.kind(), format!("{what}: {error}"))
}
