//! Mounts: those that only one thread and the processes that it starts see, and those that users leave behind.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, open, openat2};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use nix::sys::stat::Mode;

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

/// Detaches all file systems mounted at or below `directory`, with those mounted on them, and waits for none of them.
/// Follows no links at or below the directory, because a user may exchange directories meanwhile. Needs root.
///
/// # Errors
/// When the kernel refuses.
pub fn detach_mounts(directory: &Path) -> io::Result<()> {
    let (Some(parent), Some(name)) = (directory.parent(), directory.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let parent = parent.canonicalize()?;
    let flags = OFlag::O_PATH | OFlag::O_CLOEXEC;
    let top = open(&parent, flags | OFlag::O_DIRECTORY, Mode::empty())?;
    let mounts = fs::read("/proc/self/mountinfo")?;
    let places = mounts.split(|byte| *byte == b'\n').filter_map(mount_point);
    let inside = places.filter_map(|place| place.strip_prefix(&parent).ok().map(Path::to_owned));
    // A file system is listed before those that are mounted on it, and takes them along.
    for place in inside.filter(|place| place.starts_with(name)) {
        let how = OpenHow::new().flags(flags).resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS);
        let root = match openat2(&top, &place, how) {
            Ok(root) => root,
            Err(Errno::ENOENT | Errno::ENOTDIR) => continue,
            Err(error) => return Err(error.into()),
        };
        match umount2(format!("/proc/self/fd/{}", root.as_raw_fd()).as_str(), MntFlags::MNT_DETACH) {
            // Somebody else has detached it.
            Ok(()) | Err(Errno::EINVAL) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// The mount point in a line of `mountinfo`, in which three octal digits stand for each blank and backslash.
fn mount_point(line: &[u8]) -> Option<PathBuf> {
    let field = line.split(|byte| *byte == b' ').nth(4)?;
    let mut parts = field.split(|byte| *byte == b'\\');
    let mut path = parts.next()?.to_vec();
    for part in parts {
        let (digits, rest) = part.split_at_checked(3)?;
        path.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok()?);
        path.extend_from_slice(rest);
    }
    Some(OsString::from_vec(path).into())
}

fn failed(what: &str, error: nix::Error) -> io::Error {
    let error = io::Error::from(error);
    io::Error::new(error.kind(), format!("{what}: {error}"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn mount_points_may_contain_blanks_and_backslashes() {
        let point = |line: &str| mount_point(line.as_bytes());
        assert_eq!(point(r"36 35 98:0 / /mnt/a\040b\134c rw - fuse x rw"), Some(r"/mnt/a b\c".into()));
        assert_eq!(
            [point(""), point(r"36 35 98:0 / /mnt/\04 rw"), point(r"36 35 98:0 / /\999 rw")],
            [None, None, None]
        );
    }

    /// Needs root.
    #[test]
    fn all_mounts_in_a_directory_are_detached_and_no_others() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let at = |name: &str| directory.path().join(name);
        for name in ["run", "run/a b", "run/a b/c", "other", "runner"] {
            fs::create_dir(at(name)).expect("this test owns the path");
            mount_tmpfs("test", &at(name), "size=1m").expect("needs root");
        }
        fs::create_dir(at("run/d")).expect("this test owns the path");
        mount_tmpfs("test", &at("run/d"), "size=1m").expect("needs root");
        let is_mounted = |name: &str| {
            let mounts = fs::read("/proc/self/mountinfo").expect("readable");
            mounts.split(|byte| *byte == b'\n').filter_map(mount_point).any(|point| point == at(name))
        };
        symlink(at("run"), at("link")).expect("this test owns the path");
        detach_mounts(&at("link")).expect("nothing is mounted there");
        assert!(is_mounted("run/d"));
        detach_mounts(&at("run/d")).expect("root has permission");
        assert!(is_mounted("run/a b/c") && !is_mounted("run/d"));
        detach_mounts(&at("run")).expect("root has permission");
        assert!(["run", "run/a b", "run/a b/c"].iter().all(|name| !is_mounted(name)));
        assert!(is_mounted("other") && is_mounted("runner"));
        detach_mounts(directory.path()).expect("root has permission");
        assert!(!is_mounted("other") && !is_mounted("runner"));
    }
}
