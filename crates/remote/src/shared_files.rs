//! Refreshes cached attributes and directory entries of files on shared disks.
//!
//! A kernel caches the attributes of network files for a while, and FUSE programs may do the same. So a command may
//! miss recent writes of other machines, and its caller may miss the command's writes. Opening a file makes every
//! such file system ask the server. So does a `statx` with forced synchronisation. For a cached directory, creating
//! and removing an entry invalidates the cache.

use std::collections::BTreeSet;
use std::ffi::{CString, OsStr};
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::libc;
use nix::sys::statfs::statfs;

use crate::message::{Command, Proof};
use crate::paths::MOST_PATHS;

/// Magic numbers (`statfs`) of file systems that several machines can write: NFS, FUSE, CIFS, SMB, SMB 2, 9P, Ceph,
/// AFS, Lustre, GPFS, OCFS2, GFS2, BeeGFS, Coda.
const SHARED: [u64; 14] = [
    0x6969,
    FUSE,
    0xff53_4d42,
    0x517b,
    0xfe53_4d42,
    0x0102_1997,
    0x00c3_6400,
    0x5346_414f,
    0x0bd0_0bd0,
    0x4750_4653,
    0x7461_636f,
    0x0116_1970,
    0x1983_0326,
    0x7375_7245,
];

/// Magic number of FUSE. A FUSE program may have a cache of its own.
const FUSE: u64 = 0x6573_5546;

/// Returns whether other machines may write the files in a directory.
#[must_use]
pub fn is_shared(directory: &Path) -> bool {
    kind_of(directory).is_some_and(|kind| SHARED.contains(&kind))
}

fn kind_of(directory: &Path) -> Option<u64> {
    // The type's width and sign depend on the architecture; the numbers do not.
    #[allow(clippy::cast_sign_loss, clippy::unnecessary_cast)]
    statfs(directory).ok().map(|found| u64::from(found.filesystem_type().0 as u32))
}

/// Returns the paths that a command line may contain: each word, the text after an equals sign, and the text after an
/// option letter. Relative paths start at the command's directory.
#[must_use]
pub fn named(command: &Command) -> Vec<PathBuf> {
    let directory = command.directory();
    let mut paths = BTreeSet::new();
    for word in command.argv().iter().skip(1) {
        let bytes = word.as_bytes();
        let after_equals = bytes.iter().position(|byte| *byte == b'=').map(|at| &bytes[at + 1..]);
        let after_letter = bytes.strip_prefix(b"-").and_then(|rest| rest.get(1..));
        for name in [Some(bytes), after_equals, after_letter].into_iter().flatten() {
            if !name.is_empty() && !name.starts_with(b"-") {
                paths.insert(directory.join(OsStr::from_bytes(name)));
            }
        }
    }
    paths.into_iter().take(MOST_PATHS).collect()
}

/// Forces this machine to request the attributes of the files `paths` and of their directories from the file server.
/// Ignores errors.
pub fn refresh<'a>(paths: impl IntoIterator<Item = &'a Path>) {
    let mut directories = BTreeSet::new();
    for path in paths {
        if let Some(parent) = path.parent() {
            directories.insert(parent.to_owned());
        }
        // Open regular files only: a pipe would block, and a device might act.
        if fs::symlink_metadata(path).is_ok_and(|found| found.is_file()) {
            let _ = File::options()
                .read(true)
                .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY)
                .open(path);
        }
        ask_again(path);
    }
    for directory in directories {
        ask_again(&directory);
        if kind_of(&directory) == Some(FUSE) {
            forget_entries(&directory);
        }
    }
}

/// Calls `statx` on a file, and forces the kernel to bypass its cache.
fn ask_again(path: &Path) {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else { return };
    let flags = libc::AT_SYMLINK_NOFOLLOW | libc::AT_STATX_FORCE_SYNC;
    // SAFETY: all zeroes is a valid statx, and the call overwrites it. The path outlives the call.
    unsafe {
        let mut found: libc::statx = std::mem::zeroed();
        libc::statx(libc::AT_FDCWD, path.as_ptr(), flags, libc::STATX_BASIC_STATS, &raw mut found);
    }
}

/// Creates and removes an entry, so that a FUSE program drops its cached list of the directory.
fn forget_entries(directory: &Path) {
    let name = format!("{}{}x{}", Proof::FILE_PREFIX, std::process::id(), thread_number());
    let path = directory.join(name);
    if File::options().write(true).create_new(true).mode(0o600).open(&path).is_ok() {
        let _ = fs::remove_file(&path);
    }
}

fn thread_number() -> i32 {
    nix::unistd::gettid().as_raw()
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;

    #[test]
    fn paths_in_a_command_line_are_found() {
        let argv: Vec<OsString> =
            ["gcc", "-c", "-Iinclude", "-o", "out/x.o", "x.c", "-Wp,-MD=.x.d", "--flag"].map(Into::into).into();
        let names = named(&Command::new(&argv, [], "/src".into()));
        for name in ["/src/include", "/src/out/x.o", "/src/x.c", "/src/.x.d"] {
            assert!(names.contains(&PathBuf::from(name)), "{name}: {names:?}");
        }
        assert!(!names.iter().any(|name| name.to_string_lossy().contains("--flag")));
    }

    #[test]
    fn refreshing_changes_nothing_and_leaves_nothing() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("a");
        fs::write(&path, "a").expect("writable");
        refresh([path.as_path(), Path::new("/nonexistent-here/b"), Path::new("/dev/null")]);
        forget_entries(directory.path());
        assert_eq!(fs::read_dir(directory.path()).expect("the directory exists").count(), 1);
        assert!(!is_shared(Path::new("/proc")));
    }
}
