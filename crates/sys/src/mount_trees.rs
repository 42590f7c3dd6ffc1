//! Mount trees by descriptor: file systems and copies of mounts that no path leads to until they are attached.
//!
//! A path can change its meaning between two calls, for example because somebody replaces a directory by a symbolic link.
//! A descriptor cannot. Needs root and Linux 5.12.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use nix::libc::{self, c_int, c_long, c_uint};

/// Attributes of mounts, as the kernel's `MOUNT_ATTR_` constants.
pub struct MountAttributes;

impl MountAttributes {
    /// Nobody can change files through the mount.
    pub const READ_ONLY: u64 = 1;
    /// Set-user-id bits have no effect.
    pub const NO_SUID: u64 = 2;
    /// Device files cannot be opened.
    pub const NO_DEVICES: u64 = 4;
    /// Files cannot be executed.
    pub const NO_EXECUTION: u64 = 8;
}

const OPEN_TREE_CLONE: c_uint = 1;
const OPEN_TREE_CLOEXEC: c_uint = libc::O_CLOEXEC as c_uint;
const AT_RECURSIVE: c_uint = 0x8000;
const AT_EMPTY_PATH: c_uint = libc::AT_EMPTY_PATH as c_uint;
const FSOPEN_CLOEXEC: c_uint = 1;
const FSMOUNT_CLOEXEC: c_uint = 1;
const FSCONFIG_SET_STRING: c_uint = 1;
const FSCONFIG_CMD_CREATE: c_uint = 6;
const MOVE_MOUNT_F_EMPTY_PATH: c_uint = 4;
const MOVE_MOUNT_T_EMPTY_PATH: c_uint = 0x40;

/// The kernel's `struct mount_attr`.
#[repr(C)]
struct RawAttributes {
    set: u64,
    clear: u64,
    propagation: u64,
    user_namespace: u64,
}

/// A mount with the mounts below it. If it was not attached, it disappears with this value.
#[derive(Debug)]
pub struct MountTree(OwnedFd);

impl MountTree {
    /// Copies the mount at an open file or directory of this mount namespace, with `recursive` also the mounts below it.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn copy(of: impl AsFd, recursive: bool) -> io::Result<MountTree> {
        let flags = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH | if recursive { AT_RECURSIVE } else { 0 };
        // SAFETY: the path is NUL-terminated, and the other arguments are integers.
        opened(unsafe { libc::syscall(libc::SYS_open_tree, raw(&of), c"".as_ptr(), flags) })
    }

    /// Creates a file system of a type, e.g. `tmpfs`, with these options and attributes. Lists of mounts show it as
    /// `hostler`.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn create(kind: &CStr, options: &[(&CStr, &str)], attributes: u64) -> io::Result<MountTree> {
        // SAFETY: the string is NUL-terminated.
        let context: OwnedFd = opened(unsafe { libc::syscall(libc::SYS_fsopen, kind.as_ptr(), FSOPEN_CLOEXEC) })?.0;
        for (name, value) in [(c"source", "hostler")].iter().chain(options) {
            let value = CString::new(*value)?;
            // SAFETY: both strings are NUL-terminated.
            check(unsafe {
                let (name, value) = (name.as_ptr(), value.as_ptr());
                libc::syscall(libc::SYS_fsconfig, raw(&context), FSCONFIG_SET_STRING, name, value, 0)
            })?;
        }
        let none = std::ptr::null::<u8>();
        // SAFETY: this command takes no strings.
        check(unsafe { libc::syscall(libc::SYS_fsconfig, raw(&context), FSCONFIG_CMD_CREATE, none, none, 0) })?;
        // SAFETY: the system call takes plain integers.
        opened(unsafe { libc::syscall(libc::SYS_fsmount, raw(&context), FSMOUNT_CLOEXEC, attributes as c_uint) })
    }

    /// Adds attributes, with `recursive` also to the mounts below.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn add(&self, attributes: u64, recursive: bool) -> io::Result<()> {
        let wanted = RawAttributes { set: attributes, clear: 0, propagation: 0, user_namespace: 0 };
        let flags = AT_EMPTY_PATH | if recursive { AT_RECURSIVE } else { 0 };
        // SAFETY: the path is NUL-terminated, and the kernel only reads the structure of this size.
        check(unsafe {
            let size = size_of::<RawAttributes>();
            libc::syscall(libc::SYS_mount_setattr, raw(&self.0), c"".as_ptr(), flags, &raw const wanted, size)
        })
    }

    /// Mounts the tree at an open file or directory of this mount namespace.
    ///
    /// # Errors
    /// When the kernel refuses, also if the one is a directory and the other is not.
    pub fn attach(&self, at: impl AsFd) -> io::Result<()> {
        let flags = MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH;
        // SAFETY: both paths are NUL-terminated.
        check(unsafe { libc::syscall(libc::SYS_move_mount, raw(&self.0), c"".as_ptr(), raw(&at), c"".as_ptr(), flags) })
    }
}

impl AsFd for MountTree {
    /// The root directory of the tree. Usable to find files in the tree.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn raw(fd: &impl AsFd) -> RawFd {
    fd.as_fd().as_raw_fd()
}

fn check(returned: c_long) -> io::Result<()> {
    if returned == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn opened(returned: c_long) -> io::Result<MountTree> {
    check(returned)?;
    // SAFETY: the kernel has just created this descriptor for this process.
    Ok(MountTree(unsafe { OwnedFd::from_raw_fd(returned as c_int) }))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use nix::errno::Errno;
    use nix::fcntl::{OFlag, open, openat};
    use nix::sys::stat::{Mode, mkdirat};

    use super::*;

    /// Needs root to make mounts.
    #[test]
    fn copy_of_a_directory_becomes_read_only_and_the_original_does_not() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        fs::write(folder.path().join("file"), "content").expect("writable");
        let directory = open(folder.path(), OFlag::O_PATH, Mode::empty()).expect("the directory exists");
        let copy = MountTree::copy(&directory, false).expect("root may copy mounts");
        copy.add(MountAttributes::READ_ONLY, false).expect("root may change mounts");
        openat(&copy, "file", OFlag::O_RDONLY, Mode::empty()).expect("the copy has the file");
        assert_eq!(mkdirat(&copy, "new", Mode::S_IRWXU), Err(Errno::EROFS));
        fs::write(folder.path().join("other"), "content").expect("the original stays writable");
    }

    /// Needs root to make mounts.
    #[test]
    fn new_file_system_is_empty_and_refuses_unknown_options() {
        let tmpfs = MountTree::create(c"tmpfs", &[(c"size", "1m")], MountAttributes::NO_SUID);
        mkdirat(tmpfs.expect("root may mount"), "new", Mode::S_IRWXU).expect("writable");
        MountTree::create(c"tmpfs", &[(c"colour", "red")], 0).expect_err("tmpfs has no such option");
    }
}
