//! Small file systems, for tests of full disks. They need root.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};

/// A file system in memory that everybody sees; gone when dropped.
pub struct SmallDisk(PathBuf);

impl SmallDisk {
    /// Mounts `bytes` on `directory`, which is made if need be.
    ///
    /// # Panics
    /// When the system refuses, to others than root for instance.
    #[must_use]
    pub fn mount(directory: &Path, bytes: u64) -> Self {
        std::fs::create_dir_all(directory).expect("directories can be made");
        mount_memory(directory, bytes);
        Self(directory.to_owned())
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Whoever still uses it keeps it; nobody else sees it any more.
        let _ = umount2(&self.0, MntFlags::MNT_DETACH);
    }
}

/// Mounts `bytes` on `directory`, seen by this thread and what it starts from now on. It goes with them, however the test ends.
///
/// # Panics
/// When the system refuses, to others than root for instance.
pub fn mount_for_this_thread(directory: &Path, bytes: u64) {
    unshare(CloneFlags::CLONE_NEWNS).expect("a mount namespace needs root: run this test as root");
    let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    mount(None::<&str>, "/", None::<&str>, private, None::<&str>).expect("mounts stay in this namespace");
    mount_memory(directory, bytes);
}

fn mount_memory(directory: &Path, bytes: u64) {
    let options = format!("size={bytes},mode=700");
    mount(Some("none"), directory, Some("tmpfs"), MsFlags::empty(), Some(options.as_str()))
        .expect("mounting needs root: run this test as root");
}

/// Writes a file until no more than `leave` bytes fit beside it.
///
/// # Panics
/// When the file cannot be made at all.
pub fn fill_disk(path: &Path, leave: u64) {
    let mut file = File::create(path).expect("a file fits");
    for piece in [1 << 16, 1] {
        while file.write_all(&vec![0; piece]).is_ok() {}
    }
    let size = file.metadata().expect("it is open").len();
    file.set_len(size - leave).expect("files can be cut");
}
