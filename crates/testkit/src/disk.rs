//! Small file systems, for tests of full disks. They need root.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use hostler_sys::{mount_tmpfs, unshare_mounts};
use nix::mount::{MntFlags, umount2};

/// A small file system, unmounted on drop.
pub struct SmallDisk {
    directory: PathBuf,
    /// File with the file system; `None` if it is in memory.
    image: Option<PathBuf>,
}

impl SmallDisk {
    /// Mounts a file system of `bytes` in memory on `directory`, and creates the directory if it does not exist.
    ///
    /// # Panics
    /// If the system refuses, e.g. without root.
    #[must_use]
    pub fn mount(directory: &Path, bytes: u64) -> Self {
        std::fs::create_dir_all(directory).expect("directories can be created");
        mount_memory(directory, bytes);
        Self { directory: directory.to_owned(), image: None }
    }

    /// Creates a file system of this kind, e.g. `btrfs`, in a file next to `directory`, and mounts it on `directory`.
    ///
    /// # Panics
    /// If the system refuses, e.g. without root, or lacks `mkfs` for that kind.
    #[must_use]
    pub fn of_kind(kind: &str, directory: &Path, bytes: u64) -> Self {
        std::fs::create_dir_all(directory).expect("directories can be created");
        let image = directory.with_added_extension("image");
        File::create(&image).expect("the disk has space").set_len(bytes).expect("files can be sparse");
        run(Command::new(format!("mkfs.{kind}")).arg("-q").arg(&image));
        run(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(directory));
        Self { directory: directory.to_owned(), image: Some(image) }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Processes that still use the mount keep it; other processes no longer see it.
        let _ = umount2(&self.directory, MntFlags::MNT_DETACH);
        let _ = self.image.take().map(std::fs::remove_file);
    }
}

fn run(command: &mut Command) {
    let outcome = command.output().unwrap_or_else(|error| panic!("{command:?} cannot be run: {error}"));
    assert!(outcome.status.success(), "{command:?} fails: {}", String::from_utf8_lossy(&outcome.stderr));
}

/// Mounts a file system of `bytes` in memory on `directory`, visible only to this thread and its later children. The
/// kernel unmounts it when all of them have ended, even after a failed test.
///
/// # Panics
/// If the system refuses, e.g. without root.
pub fn mount_for_this_thread(directory: &Path, bytes: u64) {
    unshare_mounts().expect("a mount namespace needs root: run this test as root");
    mount_memory(directory, bytes);
}

fn mount_memory(directory: &Path, bytes: u64) {
    mount_tmpfs("none", directory, &format!("size={bytes},mode=700"))
        .expect("mounting needs root: run this test as root");
}

/// Fills the disk with a file, except for at most `leave` bytes.
///
/// # Panics
/// If the file cannot be created.
pub fn fill_disk(path: &Path, leave: u64) {
    let mut file = File::create(path).expect("the disk has space");
    for piece in [1 << 16, 1] {
        while file.write_all(&vec![0; piece]).is_ok() {}
    }
    let size = file.metadata().expect("an open file has metadata").len();
    file.set_len(size - leave).expect("files can be truncated");
}
