//! Cgroup leaves: the group of one run, which lists the job's processes and enforces limits.
//!
//! The unified hierarchy (version 2) provides membership, `cgroup.events`, `cgroup.kill` and CPU time without any
//! controller. This works with version 2, on hybrid machines and in a delegated subtree. A limit is applied at its
//! controller: in the leaf, or on hybrid machines in a group of the same name in the controller's version 1
//! hierarchy. Each limit is either enforced by the kernel or reported as [`crate::Enforcement::Advisory`] with a
//! reason.
//!
//! Leaves are created in `hostler/` below the agent's own group or, if systemd manages the agent, below the group of
//! the service `hostler-jobs`. A version 2 group that passes on controllers has no processes of its own, but systemd
//! starts a service only in the service's own group. With jobs below that group, the agent could not be restarted.
//!
//! A shepherd never enters the leaf in the unified hierarchy, so killing the leaf never kills the shepherd. It does
//! enter the version 1 groups, which are never killed as a whole, because its children then start there. Moving each
//! child would cost more than the rest of a launch.
//!
//! An [`ExistingProcess`] puts an existing process into a separate leaf, without a shepherd.

mod base;
mod devices;
mod enclosure;
mod files;
mod hierarchies;
mod leaf;
mod limits;
mod spec;
pub(crate) mod wanted;

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use self::base::{Base, vacate};
pub use self::devices::Device;
pub use self::enclosure::ExistingProcess;
use self::files::{create_group, put, remove_groups};
use self::hierarchies::Hierarchies;
pub(crate) use self::leaf::{Entrant, Leaf};
pub use self::spec::{Controller, LeafSpec, Place};

/// Name of the group that contains all leaves.
const PARENT: &str = "hostler";

/// Timeout of [`Tree::sweep`] for a killed leaf to become empty.
const SWEEP_BOUND: Duration = Duration::from_secs(5);

/// The parent of all leaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tree {
    parent: PathBuf,
    /// Where the limits of each controller are applied. For version 1, the place is the parent of the leaves' groups.
    controllers: BTreeMap<Controller, Place>,
}

/// Moves this process from its unified group into a child group, if it is alone there. Agents that it starts can then
/// pass on controllers to leaves. If this fails, the agents report which limits are missing.
pub fn leave_cgroup() {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let own = Hierarchies::parse(&read("/proc/self/mountinfo"), &read("/proc/self/cgroup")).unified;
    if let Some(own) = own.filter(|own| Tree::below(own).is_ok()) {
        let _ = vacate(&Base::of(&own));
    }
}

/// The reason why leaves cannot be used, and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum Unavailable {
    /// A kernel table is unreadable.
    #[error("cannot read `{path}`")]
    Unreadable { path: &'static str, source: io::Error },
    /// The unified hierarchy is not mounted.
    #[error("no cgroup2 file system is mounted; `mount -t cgroup2 none /sys/fs/cgroup` provides it")]
    NotMounted,
    /// The group is not writable.
    #[error("cannot create a group in `{parent}`; run as root, or under systemd with `Delegate=yes`")]
    NotWritable { parent: PathBuf, source: io::Error },
    /// The name is not a single path component.
    #[error("`{0}` is not a valid leaf name")]
    Name(String),
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sweep {
    pub removed: Vec<String>,
    /// Names of leaves with processes that did not end in time.
    pub stuck: Vec<String>,
}

impl Tree {
    /// Finds and prepares the parent of leaves below the calling process's group.
    ///
    /// # Errors
    /// If the unified hierarchy is missing or not writable. Runs then work without a leaf.
    pub fn find() -> Result<Tree, Unavailable> {
        let read =
            |path: &'static str| fs::read_to_string(path).map_err(|source| Unavailable::Unreadable { path, source });
        let own = Hierarchies::parse(&read("/proc/self/mountinfo")?, &read("/proc/self/cgroup")?);
        let base = Base::of(&own.unified.ok_or(Unavailable::NotMounted)?);
        let mut tree = Tree::below(&base.group)?;
        // With processes in the group, it could not pass on further controllers, and child groups could not get
        // processes.
        let vacated = vacate(&base);
        for controller in Controller::ALL {
            let v1 = own.v1.get(&controller).map(|group| limits::prepare_v1(controller, &group.join(PARENT)));
            let place = match v1 {
                // In containers the version 1 hierarchy is often read-only, but device programs still work.
                Some(Place::Missing(_)) | None if controller == Controller::Devices => {
                    devices::prepare_unified(&tree.parent)
                }
                Some(place) => place,
                None => match &vacated {
                    Ok(()) => limits::prepare_unified(controller, &tree.parent),
                    Err(reason) => Place::Missing(reason.clone()),
                },
            };
            tree.controllers.insert(controller, place);
        }
        if vacated.is_ok() {
            limits::count_io(&tree.parent);
        }
        Ok(tree)
    }

    /// Prepares a group below the group `own` as the parent of leaves. These leaves have no limits.
    ///
    /// # Errors
    /// If the group is not writable.
    pub fn below(own: &Path) -> Result<Tree, Unavailable> {
        let refused = |source| Unavailable::NotWritable { parent: own.to_owned(), source };
        // Moving a process needs write access to the common ancestor and to the leaf.
        nix::unistd::access(&own.join("cgroup.procs"), nix::unistd::AccessFlags::W_OK)
            .map_err(|errno| refused(errno.into()))?;
        let parent = own.join(PARENT);
        let probe = parent.join(format!("probe-{}", std::process::id()));
        create_group(&probe).and_then(|()| fs::remove_dir(&probe)).map_err(refused)?;
        Ok(Tree { parent, controllers: BTreeMap::new() })
    }

    /// Describes the leaf called `name`, for the shepherd to create. Names are unique per attempt.
    ///
    /// # Errors
    /// If `name` is not a single plain path component.
    pub fn leaf(&self, name: &str) -> Result<LeafSpec, Unavailable> {
        if name.is_empty() || name.starts_with('.') || name.contains(['/', '\0', '\n']) {
            return Err(Unavailable::Name(name.to_owned()));
        }
        let place = |(&controller, place): (&Controller, &Place)| {
            let place = match place {
                Place::V1(parent) => Place::V1(parent.join(name)),
                other => other.clone(),
            };
            (controller, place)
        };
        Ok(LeafSpec { path: self.parent.join(name), controllers: self.controllers.iter().map(place).collect() })
    }

    /// Why the kernel cannot enforce a controller's limit; `None` if it can.
    pub fn missing(&self, controller: Controller) -> Option<&str> {
        match self.controllers.get(&controller) {
            Some(Place::Unified | Place::V1(_)) => None,
            Some(Place::Missing(reason)) => Some(reason),
            None => Some("the controller was not set up"),
        }
    }

    /// The lowest limit of processes that groups above the leaves have, such as that of a container or a login session.
    /// `None` without a limit, or if no group with limits of processes is accessible.
    pub fn process_limit_above(&self) -> Option<u64> {
        let limit_of = |group: &Path| fs::read_to_string(group.join("pids.max")).ok()?.trim().parse().ok();
        self.processes()?.ancestors().skip(1).filter_map(limit_of).min()
    }

    /// Limits the processes of all leaves together.
    ///
    /// # Errors
    /// [`io::ErrorKind::Unsupported`] without a controller of processes, or that of the kernel.
    pub fn limit_processes(&self, most: u64) -> io::Result<()> {
        let group = self.processes().ok_or(io::ErrorKind::Unsupported)?;
        put(&group.join("pids.max"), &most.to_string())
    }

    /// The group of all leaves that can limit processes.
    fn processes(&self) -> Option<&Path> {
        match self.controllers.get(&Controller::Pids)? {
            Place::Unified => Some(&self.parent),
            Place::V1(parent) => Some(parent),
            Place::Missing(_) => None,
        }
    }

    /// Names of existing leaves with this prefix, including leaves that earlier processes created.
    ///
    /// # Errors
    /// If the leaves cannot be listed.
    pub fn names(&self, prefix: &str) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.parent)? {
            let entry = entry?;
            if let Ok(name) = entry.file_name().into_string()
                && name.starts_with(prefix)
                && entry.file_type()?.is_dir()
            {
                names.push(name);
            }
        }
        Ok(names)
    }

    /// Kills and removes all leaves with names that start with `prefix` and are not in `live`.
    ///
    /// # Errors
    /// If the leaves cannot be listed. Leaves that cannot be emptied are listed in the result.
    pub fn sweep(&self, prefix: &str, live: &HashSet<String>) -> io::Result<Sweep> {
        let mut sweep = Sweep::default();
        for name in self.names(prefix)?.into_iter().filter(|name| !live.contains(name)) {
            let list = if end_leaf(&self.parent.join(&name)) { &mut sweep.removed } else { &mut sweep.stuck };
            list.push(name);
        }
        for place in self.controllers.values() {
            if let Place::V1(parent) = place {
                sweep_v1(parent, prefix, live)?;
            }
        }
        Ok(sweep)
    }

    /// Kills the processes of a leaf that has no shepherd, and removes the leaf; `false` if processes or groups remain after
    /// the timeout.
    pub fn end(&self, leaf: &Path) -> bool {
        let mut ended = end_leaf(leaf);
        for place in self.controllers.values() {
            if let (Place::V1(parent), Some(name)) = (place, leaf.file_name()) {
                ended &= remove_groups(&parent.join(name)).is_ok();
            }
        }
        ended
    }

    /// Directory that contains the leaves.
    pub fn path(&self) -> &Path {
        &self.parent
    }
}

/// Kills the processes of a leaf that has no shepherd, and removes the leaf; `false` if processes remain after
/// [`SWEEP_BOUND`].
fn end_leaf(path: &Path) -> bool {
    let Ok(leaf) = Leaf::open(&LeafSpec { path: path.to_owned(), ..LeafSpec::default() }) else {
        return !path.exists();
    };
    let deadline = Instant::now() + SWEEP_BOUND;
    while !leaf.is_empty() {
        // Repeated, because a process may have been moved in after the last kill.
        let killed = leaf.kill();
        if Instant::now() >= deadline || killed.is_err() {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    leaf.remove().is_ok()
}

/// Removes the version 1 groups of removed leaves. Leaves a group with a process to the next sweep: the process is
/// unkillable, or is a shepherd that is exiting.
fn sweep_v1(parent: &Path, prefix: &str, live: &HashSet<String>) -> io::Result<()> {
    for entry in fs::read_dir(parent)? {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        if entry.file_type()?.is_dir() && name.starts_with(prefix) && !live.contains(&name) {
            let _ = remove_groups(&entry.path());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaf_names_stay_inside_the_tree() {
        let controllers = BTreeMap::from([(Controller::Memory, Place::V1("/m/hostler".into()))]);
        let tree = Tree { parent: PathBuf::from("/g/hostler"), controllers };
        let leaf = tree.leaf("7.1").expect("plain");
        assert_eq!(leaf.path, Path::new("/g/hostler/7.1"));
        assert_eq!(leaf.controllers[&Controller::Memory], Place::V1("/m/hostler/7.1".into()));
        for name in ["", ".", "..", "a/b", ".hidden", "a\nb"] {
            assert!(tree.leaf(name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn leaf_has_ended_when_all_its_groups_are_removed() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let (parent, pids) = (directory.path().join("unified"), directory.path().join("pids"));
        // Like a group with a process, a directory with a file cannot be removed.
        fs::create_dir_all(pids.join("7.1/busy")).expect("a directory can be made");
        fs::write(pids.join("7.1/busy/process"), "").expect("a file can be made");
        let tree = Tree { parent, controllers: BTreeMap::from([(Controller::Pids, Place::V1(pids.clone()))]) };
        let leaf = tree.leaf("7.1").expect("plain").path;
        assert!(!tree.end(&leaf));
        fs::remove_file(pids.join("7.1/busy/process")).expect("it exists");
        fs::remove_dir(pids.join("7.1/busy")).expect("it is empty");
        assert!(tree.end(&leaf) && !pids.join("7.1").exists());
    }
}
