//! The cgroup leaf of a run: the kernel's own list of the job's processes.
//!
//! Only the unified (v2) hierarchy is used here, and only for what needs no controller: membership, `cgroup.events`,
//! `cgroup.kill` and CPU time. That works on pure v2 machines, on hybrid ones, and in a delegated subtree. Limits by
//! v1 or v2 controllers belong in a layer above, which adds its hierarchies to [`LeafSpec`] and reports each limit as
//! an [`crate::Enforcement`].
//!
//! Leaves are made in `hostler/` below the agent's own group. A shepherd never enters its leaf, so killing
//! the leaf can never kill the shepherd.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::fcntl::{OFlag, open, openat};
use nix::sys::stat::Mode;
use serde::{Deserialize, Serialize};

/// The group that holds all leaves.
const PARENT: &str = "hostler";

/// How long [`Tree::sweep`] waits for a killed leaf to become empty.
const SWEEP_BOUND: Duration = Duration::from_secs(5);

/// The place where leaves are made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tree {
    parent: PathBuf,
}

/// Why there can be no leaves, and what would change that.
#[derive(Debug, thiserror::Error)]
pub enum Unavailable {
    /// The kernel's tables cannot be read.
    #[error("cannot read `{path}`")]
    Unreadable {
        /// Which one.
        path: &'static str,
        /// Why.
        source: io::Error,
    },
    /// There is no version 2 hierarchy.
    #[error("no cgroup2 file system is mounted; `mount -t cgroup2 none /sys/fs/cgroup` provides it")]
    NotMounted,
    /// Not ours to write.
    #[error("cannot make a group in `{parent}`; run as root, or under systemd with `Delegate=yes`")]
    NotWritable {
        /// The agent's own group.
        parent: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A name that is not one path component.
    #[error("`{0}` cannot name a leaf")]
    Name(String),
}

/// A leaf to be made by the shepherd.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeafSpec {
    /// Its directory in the unified hierarchy.
    pub path: PathBuf,
}

/// What [`Tree::sweep`] did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sweep {
    /// Leaves that are gone now.
    pub removed: Vec<String>,
    /// Leaves whose processes did not die in time.
    pub stuck: Vec<String>,
}

impl Tree {
    /// Finds and prepares the place for leaves below the calling process's own group.
    ///
    /// # Errors
    /// When there is no unified hierarchy, or it may not be written; the run then works without a leaf.
    pub fn find() -> Result<Tree, Unavailable> {
        let read =
            |path: &'static str| fs::read_to_string(path).map_err(|source| Unavailable::Unreadable { path, source });
        let own = own_group(&read("/proc/self/mountinfo")?, &read("/proc/self/cgroup")?);
        Tree::below(&own.ok_or(Unavailable::NotMounted)?)
    }

    /// Prepares the place for leaves below the group `own`.
    ///
    /// # Errors
    /// When it may not be written.
    pub fn below(own: &Path) -> Result<Tree, Unavailable> {
        let refused = |source| Unavailable::NotWritable { parent: own.to_owned(), source };
        // Moving a process takes write access to the common ancestor as well as to the leaf.
        nix::unistd::access(&own.join("cgroup.procs"), nix::unistd::AccessFlags::W_OK)
            .map_err(|errno| refused(errno.into()))?;
        let parent = own.join(PARENT);
        let probe = parent.join(format!("probe-{}", std::process::id()));
        create_group(&probe).and_then(|()| fs::remove_dir(&probe)).map_err(refused)?;
        Ok(Tree { parent })
    }

    /// The leaf called `name`, which the shepherd will make. Names are unique per attempt.
    ///
    /// # Errors
    /// When `name` is not a single plain path component.
    pub fn leaf(&self, name: &str) -> Result<LeafSpec, Unavailable> {
        if name.is_empty() || name.starts_with('.') || name.contains(['/', '\0', '\n']) {
            return Err(Unavailable::Name(name.to_owned()));
        }
        Ok(LeafSpec { path: self.parent.join(name) })
    }

    /// Kills and removes every leaf whose name starts with `prefix` and is not in `live`.
    ///
    /// # Errors
    /// When the leaves cannot be listed. A leaf that cannot be emptied is reported in the result.
    pub fn sweep(&self, prefix: &str, live: &HashSet<String>) -> io::Result<Sweep> {
        let mut sweep = Sweep::default();
        for entry in fs::read_dir(&self.parent)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            if !entry.file_type()?.is_dir() || !name.starts_with(prefix) || live.contains(&name) {
                continue;
            }
            let list = if end_leaf(&entry.path()) { &mut sweep.removed } else { &mut sweep.stuck };
            list.push(name);
        }
        Ok(sweep)
    }

    /// The directory that holds the leaves.
    pub fn path(&self) -> &Path {
        &self.parent
    }
}

/// Kills what is in a leaf nobody looks after, and removes it; `false` when it could not be emptied in time.
fn end_leaf(path: &Path) -> bool {
    let Ok(leaf) = Leaf::open(path) else { return !path.exists() };
    let deadline = Instant::now() + SWEEP_BOUND;
    while !leaf.is_empty() {
        // Repeated, because a process may be moved in after the first time.
        let killed = leaf.kill();
        if Instant::now() >= deadline || killed.is_err() {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    leaf.remove().is_ok()
}

/// The calling process's own group as a path, from the texts of `mountinfo` and `/proc/self/cgroup`.
fn own_group(mountinfo: &str, cgroups: &str) -> Option<PathBuf> {
    let (root, mount_point) = mountinfo.lines().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let mut before = before.split(' ').skip(3);
        (after.split(' ').next()? == "cgroup2").then_some((before.next()?, before.next()?))
    })?;
    let group = cgroups.lines().find_map(|line| line.strip_prefix("0::"))?;
    // In a container the mount may show only part of the hierarchy.
    let group = Path::new(group).strip_prefix(root).unwrap_or(Path::new("")).to_owned();
    // A group outside of our view cannot be written through it.
    if group.components().any(|part| part == std::path::Component::ParentDir) {
        return None;
    }
    Some(Path::new(&unescape(mount_point)).join(group))
}

/// `mountinfo` writes blanks in paths as octal escapes.
fn unescape(path: &str) -> String {
    path.replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\")
}

/// A leaf in use. What is read for every run is kept open: opening costs more than reading.
#[derive(Debug)]
pub(crate) struct Leaf {
    path: PathBuf,
    directory: OwnedFd,
    events: Option<File>,
    cpu_stat: Option<File>,
    /// Only with the memory controller.
    memory_events: Option<File>,
}

impl Leaf {
    /// Makes the leaf. One of that name left over and empty is replaced, a populated one is an error.
    pub(crate) fn create(path: &Path) -> io::Result<Leaf> {
        match create_group(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                fs::remove_dir(path)?;
                fs::create_dir(path)?;
            }
            other => other?,
        }
        Leaf::open(path)
    }

    fn open(path: &Path) -> io::Result<Leaf> {
        let directory = open(path, OFlag::O_DIRECTORY | OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty())?;
        let file =
            |name| openat(&directory, name, OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty()).ok().map(File::from);
        let (events, cpu_stat) = (file("cgroup.events"), file("cpu.stat"));
        let memory_events = file("memory.events");
        Ok(Leaf { path: path.to_owned(), directory, events, cpu_stat, memory_events })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// For `CLONE_INTO_CGROUP`.
    pub(crate) fn directory(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }

    /// A descriptor that takes the pid of a process to be moved in.
    pub(crate) fn members_file(&self) -> io::Result<OwnedFd> {
        Ok(openat(&self.directory, "cgroup.procs", OFlag::O_WRONLY | OFlag::O_CLOEXEC, Mode::empty())?)
    }

    /// Whether no process is in the leaf or below it. Unreadable means removed, hence empty.
    pub(crate) fn is_empty(&self) -> bool {
        read(self.events.as_ref()).is_none_or(|text| value(&text, "populated") != Some(1))
    }

    /// Kills everything in the leaf and below it, atomically.
    pub(crate) fn kill(&self) -> io::Result<()> {
        let file = openat(&self.directory, "cgroup.kill", OFlag::O_WRONLY | OFlag::O_CLOEXEC, Mode::empty())?;
        nix::unistd::write(&file, b"1")?;
        Ok(())
    }

    /// Pids directly in the leaf, for reports only.
    pub(crate) fn members(&self) -> Vec<u32> {
        let procs = openat(&self.directory, "cgroup.procs", OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty());
        let text = procs.ok().and_then(|file| io::read_to_string(File::from(file)).ok()).unwrap_or_default();
        text.lines().filter_map(|line| line.parse().ok()).collect()
    }

    /// User and system time of everything that ever ran in the leaf.
    pub(crate) fn cpu_times(&self) -> Option<(Duration, Duration)> {
        let text = read(self.cpu_stat.as_ref())?;
        let micros = |key| value(&text, key).map(Duration::from_micros);
        Some((micros("user_usec")?, micros("system_usec")?))
    }

    /// How many processes of the leaf were killed for lack of memory; `None` without the memory controller.
    pub(crate) fn oom_kills(&self) -> Option<u64> {
        value(&read(self.memory_events.as_ref())?, "oom_kill")
    }

    /// Removes the leaf and the groups the job made in it.
    pub(crate) fn remove(self) -> io::Result<()> {
        remove_groups(&self.path)
    }
}

/// What a small file of the kernel says now.
fn read(file: Option<&File>) -> Option<String> {
    let mut buffer = [0; 1024];
    let length = file?.read_at(&mut buffer, 0).ok()?;
    Some(String::from_utf8_lossy(&buffer[..length]).into_owned())
}

/// Makes a group, and the one that holds it, which somebody may have tidied away while it was empty.
fn create_group(path: &Path) -> io::Result<()> {
    match (fs::create_dir(path), path.parent()) {
        (Err(error), Some(parent)) if error.kind() == io::ErrorKind::NotFound => {
            match fs::create_dir(parent) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
            fs::create_dir(path)
        }
        (made, _) => made,
    }
}

fn remove_groups(path: &Path) -> io::Result<()> {
    match fs::remove_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
            for entry in fs::read_dir(path)?.filter_map(Result::ok) {
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    remove_groups(&entry.path())?;
                }
            }
            fs::remove_dir(path)
        }
        other => other,
    }
}

/// The number after `key` in a file of `key number` lines.
fn value(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw\n\
        35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n\
        41 31 0:38 / /sys/fs/cgroup/unified rw,relatime shared:9 - cgroup2 cgroup2 rw\n";

    #[test]
    fn finds_the_unified_hierarchy_wherever_it_is_mounted() {
        let own = |mountinfo, cgroups| own_group(mountinfo, cgroups).map(|path| path.display().to_string());
        assert_eq!(own(HYBRID, "4:memory:/x\n0::/\n").as_deref(), Some("/sys/fs/cgroup/unified/"));
        let pure = "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n";
        let slice = "0::/user.slice/user-1000.slice/user@1000.service/app.slice\n";
        let expected = format!("/sys/fs/cgroup{}", slice.trim().trim_start_matches("0::"));
        assert_eq!(own(pure, slice), Some(expected));
        let container = "30 23 0:26 /docker/abc /sys/fs/cgroup rw - cgroup2 cgroup rw\n";
        assert_eq!(own(container, "0::/docker/abc/agent\n").as_deref(), Some("/sys/fs/cgroup/agent"));
        assert_eq!(own(pure, "0::/../outside\n"), None);
        assert_eq!(own("35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n", "0::/\n"), None);
    }

    #[test]
    fn leaf_names_stay_inside_the_tree() {
        let tree = Tree { parent: PathBuf::from("/g/hostler") };
        assert_eq!(tree.leaf("7.1").expect("plain").path, Path::new("/g/hostler/7.1"));
        for name in ["", ".", "..", "a/b", ".hidden", "a\nb"] {
            assert!(tree.leaf(name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn keyed_values_are_matched_whole() {
        assert_eq!(value("populated 1\nfrozen 0\n", "populated"), Some(1));
        assert_eq!(value("oom_kill_group 3\noom_kill 2\n", "oom_kill"), Some(2));
        assert_eq!(value("", "populated"), None);
    }
}
