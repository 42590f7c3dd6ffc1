//! Small file systems, for tests of full disks. They need root.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};

/// A small file system that everybody sees; gone when dropped.
pub struct SmallDisk {
    directory: PathBuf,
    /// What it lies in, unless that is memory.
    image: Option<PathBuf>,
}

impl SmallDisk {
    /// Mounts `bytes` of memory on `directory`, which is made if need be.
    ///
    /// # Panics
    /// When the system refuses, to others than root for instance.
    #[must_use]
    pub fn mount(directory: &Path, bytes: u64) -> Self {
        std::fs::create_dir_all(directory).expect("directories can be created");
        mount_memory(directory, bytes);
        Self { directory: directory.to_owned(), image: None }
    }

    /// Makes a file system of this kind, such as `btrfs`, in a file beside `directory` and mounts it there.
    ///
    /// # Panics
    /// When the system refuses, to others than root for instance, or lacks `mkfs` for that kind.
    #[must_use]
    pub fn of_kind(kind: &str, directory: &Path, bytes: u64) -> Self {
        std::fs::create_dir_all(directory).expect("directories can be created");
        let image = directory.with_added_extension("image");
        File::create(&image).expect("a file fits").set_len(bytes).expect("files can be sparse");
        run(Command::new(format!("mkfs.{kind}")).arg("-q").arg(&image));
        run(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(directory));
        Self { directory: directory.to_owned(), image: Some(image) }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Whoever still uses it keeps it; nobody else sees it any more.
        let _ = umount2(&self.directory, MntFlags::MNT_DETACH);
        let _ = self.image.take().map(std::fs::remove_file);
    }
}

fn run(command: &mut Command) {
    let outcome = command.output().unwrap_or_else(|error| panic!("{command:?} cannot be run: {error}"));
    assert!(outcome.status.success(), "{command:?} fails: {}", String::from_utf8_lossy(&outcome.stderr));
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
