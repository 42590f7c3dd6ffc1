//! Limits: prepares the groups for each controller, and writes limits.

use std::fs;
use std::io;
use std::path::Path;

use super::devices::{self, Device};
use super::files::{ensure_group, put};
use super::spec::{Controller, Place};
use crate::sys;

/// A limit that can be written to controllers of both versions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Limit {
    Cpus(Vec<u32>),
    /// Maximum bytes of memory and swap together.
    Memory(u64),
    /// Maximum number of processes and threads.
    Processes(u64),
    Devices(Vec<Device>),
}

impl Limit {
    pub(super) fn controller(&self) -> Controller {
        match self {
            Limit::Cpus(_) => Controller::Cpuset,
            Limit::Memory(_) => Controller::Memory,
            Limit::Processes(_) => Controller::Pids,
            Limit::Devices(_) => Controller::Devices,
        }
    }

    /// Whether this kind of limit can be changed on an existing leaf. Denied devices cannot.
    pub(super) fn can_change(&self) -> bool {
        !matches!(self, Limit::Devices(_))
    }

    /// Applies the limit to a group of the unified hierarchy.
    pub(super) fn write_unified(&self, group: &Path) -> io::Result<()> {
        let write = |name: &str, value: String| put(&group.join(name), &value);
        match self {
            Limit::Cpus(cpus) => write("cpuset.cpus", list(cpus)),
            Limit::Memory(bytes) => {
                write("memory.max", bytes.to_string())?;
                // The file is missing on kernels without swap accounting.
                write("memory.swap.max", "0".to_owned()).or_else(unless_missing)
            }
            Limit::Processes(count) => write("pids.max", count.to_string()),
            Limit::Devices(denied) => devices::deny_unified(group, denied),
        }
    }

    /// Applies the limit to a version 1 group. `guests` is the number of processes in the group that do not belong to
    /// the job: 1 for a shepherd, else 0.
    pub(super) fn write_v1(&self, group: &Path, guests: u64) -> io::Result<()> {
        let write = |name: &str, value: String| put(&group.join(name), &value);
        match self {
            Limit::Cpus(cpus) => {
                // Both files are empty by default, and no process may enter the group before they are set.
                copy_from_parent(group, "cpuset.mems")?;
                write("cpuset.cpus", list(cpus))
            }
            Limit::Memory(bytes) => {
                // The first limit must never exceed the second, which is missing on kernels without swap accounting.
                write("memory.memsw.limit_in_bytes", "-1".to_owned()).or_else(unless_missing)?;
                write("memory.limit_in_bytes", bytes.to_string())?;
                write("memory.memsw.limit_in_bytes", bytes.to_string()).or_else(unless_missing)
            }
            Limit::Processes(count) => write("pids.max", (count + guests).to_string()),
            Limit::Devices(denied) => devices::deny_v1(group, denied),
        }
    }
}

/// Creates the group that contains all leaves in a version 1 hierarchy, and returns where leaves can be created.
pub(super) fn prepare_v1(controller: Controller, parent: &Path) -> Place {
    let prepared = ensure_group(parent).and_then(|()| match controller {
        Controller::Cpuset => {
            copy_from_parent(parent, "cpuset.mems")?;
            copy_from_parent(parent, "cpuset.cpus")
        }
        Controller::Memory | Controller::Pids | Controller::Devices => Ok(()),
    });
    match prepared {
        Ok(()) => Place::V1(parent.to_owned()),
        Err(error) => {
            Place::Missing(format!("cannot create the group `{}`: {}", parent.display(), sys::explain(&error)))
        }
    }
}

/// Enables a controller for the groups in `parent`, in the unified hierarchy.
pub(super) fn prepare_unified(controller: Controller, parent: &Path) -> Place {
    let name = controller.as_str();
    let own = parent.parent().unwrap_or(parent);
    let offered = fs::read_to_string(own.join("cgroup.controllers")).unwrap_or_default();
    if !offered.split_whitespace().any(|offered| offered == name) {
        return Place::Missing(format!("the group `{}` has no {name} controller", own.display()));
    }
    let enable = |group: &Path| put(&group.join("cgroup.subtree_control"), &format!("+{name}"));
    match enable(own).and_then(|()| ensure_group(parent)).and_then(|()| enable(parent)) {
        Ok(()) => Place::Unified,
        Err(error) => Place::Missing(format!(
            "cannot use the {name} controller of `{}`: {}; run as root, or under systemd with `Delegate=yes`",
            own.display(),
            sys::explain(&error)
        )),
    }
}

/// Enables IO accounting for the groups in `parent`, if the kernel supports it. Ignores errors.
pub(super) fn count_io(parent: &Path) {
    let enable = |group: &Path| put(&group.join("cgroup.subtree_control"), "+io");
    let _ = enable(parent.parent().unwrap_or(parent)).and_then(|()| enable(parent));
}

fn copy_from_parent(group: &Path, name: &str) -> io::Result<()> {
    let parent = group.parent().unwrap_or(group);
    put(&group.join(name), fs::read_to_string(parent.join(name))?.trim())
}

/// Formats a CPU list as the kernel does: `0,2,3`.
fn list(cpus: &[u32]) -> String {
    cpus.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
}

fn unless_missing(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}
