//! The cgroup leaf of a run: the kernel's own list of the job's processes, and the limits it holds them to.
//!
//! The unified hierarchy (version 2) lists and kills: membership, `cgroup.events`, `cgroup.kill` and CPU time need no
//! controller there, so that works on machines of version 2, on hybrid ones, and in a delegated subtree. Limits are
//! wherever each controller is: in the leaf itself, or on hybrid machines in a group of the same name in the controller's
//! own hierarchy of version 1. Each limit is either held by the kernel or reported as an
//! [`crate::Enforcement::Advisory`], with the reason.
//!
//! Leaves are made in `hostler/` below the agent's own group or, where systemd looks after the agent, below the group of
//! the service `hostler-jobs`. A group of version 2 that passes controllers on holds no processes of its own, and systemd
//! starts a service in nothing but the service's group: with jobs below that, an agent could not be started again.
//!
//! A shepherd never enters the leaf of the unified hierarchy,
//! so killing the leaf can never kill the shepherd. It does enter the groups of version 1, which nobody kills: its
//! children are born there, and moving each of them would cost more than all the rest of a launch.
//!
//! A process that nobody has started for us can be put into a leaf of its own by an [`Enclosure`], which no shepherd looks after.

mod devices;
mod enclosure;
mod hierarchies;
mod leaf;
mod limits;
pub(crate) mod wanted;

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

pub use self::devices::Device;
pub use self::enclosure::Enclosure;
use self::hierarchies::Hierarchies;
pub(crate) use self::leaf::{Entrant, Leaf};

/// The group that holds all leaves.
const PARENT: &str = "hostler";

/// The group beside [`PARENT`] that holds the processes which are no jobs.
const ASIDE: &str = "hostler-agent";

/// The service whose group, beside that of the agent's service, is for jobs.
const JOBS: &str = "hostler-jobs.service";

/// How long [`Tree::sweep`] waits for a killed leaf to become empty.
const SWEEP_BOUND: Duration = Duration::from_secs(5);

/// A part of the kernel that holds groups to a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Controller {
    /// Which CPUs.
    Cpuset,
    /// How much memory.
    Memory,
    /// How many processes and threads.
    Pids,
    /// Which devices. With version 2 it is no controller but a program, which needs none.
    Devices,
}

impl Controller {
    /// All of them.
    pub const ALL: [Controller; 4] = [Controller::Cpuset, Controller::Memory, Controller::Pids, Controller::Devices];

    /// The kernel's name.
    pub fn as_str(self) -> &'static str {
        match self {
            Controller::Cpuset => "cpuset",
            Controller::Memory => "memory",
            Controller::Pids => "pids",
            Controller::Devices => "devices",
        }
    }
}

/// Where a controller's limits are written for a leaf.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// In the leaf itself.
    Unified,
    /// In this group of the controller's own hierarchy of version 1.
    V1(PathBuf),
    /// Nowhere, for this reason.
    Missing(String),
}

/// The place where leaves are made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tree {
    parent: PathBuf,
    /// The parents, for version 1.
    controllers: BTreeMap<Controller, Place>,
}

/// The group of the unified hierarchy that passes controllers on to the leaves' parent.
#[derive(Debug, PartialEq, Eq)]
struct Base {
    group: PathBuf,
    /// There for jobs alone: whatever process is in it may be moved.
    is_for_jobs: bool,
}

impl Base {
    /// That of a process in the group `own`.
    fn of(own: &Path) -> Base {
        let name = own.file_name().unwrap_or_default();
        let jobs = own.with_file_name(JOBS);
        match own.parent() {
            Some(parent) if name == ASIDE => Base { group: parent.to_owned(), is_for_jobs: false },
            Some(_) if Path::new(name).extension().is_some_and(|kind| kind == "service") && jobs.is_dir() => {
                Base { group: jobs, is_for_jobs: true }
            }
            _ => Base { group: own.to_owned(), is_for_jobs: false },
        }
    }
}

/// Moves this process out of its group of the unified hierarchy into one below, if it is alone there: then the processes
/// it starts can pass controllers on to leaves, however many they are. Where it cannot, they say what is missing.
pub fn step_aside() {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let own = Hierarchies::parse(&read("/proc/self/mountinfo"), &read("/proc/self/cgroup")).unified;
    if let Some(own) = own.filter(|own| Tree::below(own).is_ok()) {
        let _ = limits::vacate(&Base::of(&own));
    }
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
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeafSpec {
    /// Its directory in the unified hierarchy.
    pub path: PathBuf,
    /// Where its limits are.
    #[serde(default)]
    pub controllers: BTreeMap<Controller, Place>,
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
        let own = Hierarchies::parse(&read("/proc/self/mountinfo")?, &read("/proc/self/cgroup")?);
        let base = Base::of(&own.unified.ok_or(Unavailable::NotMounted)?);
        let mut tree = Tree::below(&base.group)?;
        // Once a controller is passed on with processes there, the kernel takes no other controller and no process below.
        let vacated = limits::vacate(&base);
        for controller in Controller::ALL {
            let v1 = own.v1.get(&controller).map(|group| limits::prepare_v1(controller, &group.join(PARENT)));
            let place = match v1 {
                // In containers the hierarchy is often there to be looked at, and programs are taken all the same.
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

    /// Prepares the place for leaves without limits below the group `own`.
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
        leaf::create_group(&probe).and_then(|()| fs::remove_dir(&probe)).map_err(refused)?;
        Ok(Tree { parent, controllers: BTreeMap::new() })
    }

    /// The leaf called `name`, which the shepherd will make. Names are unique per attempt.
    ///
    /// # Errors
    /// When `name` is not a single plain path component.
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

    /// Why the kernel cannot hold leaves to a controller's limit; `None` when it can.
    pub fn missing(&self, controller: Controller) -> Option<&str> {
        match self.controllers.get(&controller) {
            Some(Place::Unified | Place::V1(_)) => None,
            Some(Place::Missing(reason)) => Some(reason),
            None => Some("no controller was looked for"),
        }
    }

    /// The names of the leaves there are that start with `prefix`: what somebody before us has made, as far as it was not removed.
    ///
    /// # Errors
    /// When the leaves cannot be listed.
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

    /// Kills and removes every leaf whose name starts with `prefix` and is not in `live`.
    ///
    /// # Errors
    /// When the leaves cannot be listed. A leaf that cannot be emptied is reported in the result.
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

    /// Kills and removes what is left of one leaf, whose shepherd is gone; `false` when it could not be emptied in time.
    pub fn end(&self, leaf: &Path) -> bool {
        let ended = end_leaf(leaf);
        for place in self.controllers.values() {
            if let (Place::V1(parent), Some(name)) = (place, leaf.file_name()) {
                let _ = leaf::remove_groups(&parent.join(name));
            }
        }
        ended
    }

    /// The directory that holds the leaves.
    pub fn path(&self) -> &Path {
        &self.parent
    }
}

/// Kills what is in a leaf nobody looks after, and removes it; `false` when it could not be emptied in time.
fn end_leaf(path: &Path) -> bool {
    let Ok(leaf) = Leaf::open(&LeafSpec { path: path.to_owned(), ..LeafSpec::default() }) else {
        return !path.exists();
    };
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

/// Removes the groups of version 1 of leaves that are gone. What cannot be removed has a process in it that the sweep
/// of the unified hierarchy could not end, or that is a shepherd on its way out: the next sweep gets it.
fn sweep_v1(parent: &Path, prefix: &str, live: &HashSet<String>) -> io::Result<()> {
    for entry in fs::read_dir(parent)? {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        if entry.file_type()?.is_dir() && name.starts_with(prefix) && !live.contains(&name) {
            let _ = leaf::remove_groups(&entry.path());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_are_kept_where_an_agent_can_be_started_again() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let at = |name: &str| directory.path().join(name);
        let base = |name: &str| Base::of(&at(name));
        let own = |name: &str| Base { group: at(name), is_for_jobs: false };
        assert_eq!(base("hostler-agent.service"), own("hostler-agent.service"), "no service for jobs");
        assert_eq!(base("run-7.scope/hostler-agent"), own("run-7.scope"), "it has stepped aside before");
        fs::create_dir(at(JOBS)).expect("it is ours");
        assert_eq!(base("hostler-agent.service"), Base { group: at(JOBS), is_for_jobs: true });
        assert_eq!(base("session-3.scope"), own("session-3.scope"), "not a service: somebody tries something");
        assert_eq!(Base::of(Path::new("/")), Base { group: "/".into(), is_for_jobs: false });
    }

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
}
