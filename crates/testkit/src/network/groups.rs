//! Control groups for each host, so that nodes with the same directory names use different groups.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Prefix of the names of the hosts' control groups. The pid of the test follows.
const PREFIX: &str = "hostler-net-";

/// Version 1 controllers in which hosts have a group.
const CONTROLLERS: [&str; 3] = ["cpuset", "memory", "pids"];

/// The control groups of one host, one per hierarchy. Removed on drop.
pub(super) struct Groups(Vec<PathBuf>);

impl Groups {
    /// Creates the groups below the groups of the calling process. Skips hierarchies that are not writable.
    pub(super) fn make() -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("{PREFIX}{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let groups = own_groups().into_iter().map(|own| own.join(&name));
        let make = |group: &PathBuf| {
            // A killed test with the same pid may have left it.
            remove(group);
            fs::create_dir(group).is_ok() && inherit(group).is_ok()
        };
        Self(groups.filter(make).collect())
    }

    /// Shell commands with which a process enters all groups.
    pub(super) fn enter(&self) -> String {
        self.0.iter().map(|group| format!("echo 0 > {}/cgroup.procs\n", group.display())).collect()
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        // The kernel removes the last process from the group only a moment after its end.
        for _ in 0..100 {
            self.0.iter().for_each(|group| remove(group));
            if !self.0.iter().any(|group| group.exists()) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}

/// Removes the groups that killed tests left behind.
pub(super) fn sweep_stale() {
    for own in own_groups() {
        for entry in fs::read_dir(own).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let pid = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next()?.parse().ok());
            if pid.is_some_and(|pid| !crate::is_alive(pid)) {
                remove(&entry.path());
            }
        }
    }
}

/// The calling process's group in the unified hierarchy and in the hierarchies of [`CONTROLLERS`].
fn own_groups() -> Vec<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let found = groups.lines().filter_map(|line| {
        let [_, names, path] = line.splitn(3, ':').collect::<Vec<_>>()[..] else { return None };
        let is_wanted = names.is_empty() || names.split(',').any(|name| CONTROLLERS.contains(&name));
        is_wanted.then_some(())?;
        Some(mount_of(&mounts, names)?.join(path.trim_start_matches('/')))
    });
    found.collect()
}

/// Mount point of the hierarchy with these controllers. `names` is empty for the unified hierarchy.
fn mount_of(mounts: &str, names: &str) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let (place, kind) = line.split_once(" - ")?;
        let kind: Vec<&str> = kind.split(' ').collect();
        let is_it = match names {
            "" => kind[0] == "cgroup2",
            names => kind[0] == "cgroup" && names.split(',').all(|name| kind[2].split(',').any(|it| it == name)),
        };
        is_it.then(|| PathBuf::from(place.split(' ').nth(4).unwrap_or_default()))
    })
}

/// Copies CPUs and memory nodes from the parent, because an empty `cpuset` group accepts no processes.
fn inherit(group: &Path) -> std::io::Result<()> {
    let parent = group.parent().expect("a control group has a parent");
    for file in ["cpuset.cpus", "cpuset.mems"].map(Path::new).into_iter().filter(|file| group.join(file).exists()) {
        fs::write(group.join(file), fs::read(parent.join(file))?)?;
    }
    Ok(())
}

/// Removes a group and its child groups, unless they have processes.
fn remove(group: &Path) {
    let below = fs::read_dir(group).into_iter().flatten().flatten();
    below.filter(|entry| entry.path().is_dir()).for_each(|entry| remove(&entry.path()));
    let _ = fs::remove_dir(group);
}
