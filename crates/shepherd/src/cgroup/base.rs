//! The group that passes on controllers to the leaves, and the removal of its own processes.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::files::{ensure_group, put};
use crate::{process, sys};

/// Name of the sibling of the leaves' parent for processes that are not jobs.
const ASIDE: &str = "hostler-agent";

/// Service with a group reserved for jobs; a sibling of the agent's service.
const JOBS: &str = "hostler-jobs.service";

/// The group of the unified hierarchy that passes on controllers to the leaves' parent.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Base {
    pub(super) group: PathBuf,
    /// Whether the group is reserved for jobs, so that any process in it may be moved.
    is_for_jobs: bool,
}

impl Base {
    /// The base for a process in the group `own`.
    pub(super) fn of(own: &Path) -> Base {
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

/// Empties the base's own group, because only a group without own processes can pass on controllers. Moves its
/// processes into a sibling group of the leaves. Moves other programs' processes only if the base is reserved for
/// jobs. The error is the reason.
pub(super) fn vacate(base: &Base) -> Result<(), String> {
    let group = &base.group;
    // The kernel's root group has no type and no such restriction.
    if !group.join("cgroup.type").exists() {
        return Ok(());
    }
    let moved = move_aside(base);
    moved.map_err(|error| match error.raw_os_error() {
        Some(libc::EBUSY) => format!(
            "other processes are in the group `{}`, so it cannot pass controllers on; start the agent as a service, or with \
             `systemd-run --scope -p Delegate=yes`",
            group.display()
        ),
        _ => format!("cannot move processes within the group `{}`: {}", group.display(), sys::explain(&error)),
    })
}

fn move_aside(base: &Base) -> io::Result<()> {
    let members = fs::read_to_string(base.group.join("cgroup.procs"))?;
    let members: Vec<u32> = members.lines().filter_map(|line| line.parse().ok()).collect();
    if members.is_empty() {
        return Ok(());
    }
    let me = std::process::id();
    let is_ours = |pid: u32| pid == me || process::stat(pid).is_some_and(|stat| stat.parent == me);
    if !base.is_for_jobs && !members.iter().all(|&pid| is_ours(pid)) {
        return Err(io::Error::from_raw_os_error(libc::EBUSY));
    }
    let aside = base.group.join(ASIDE);
    ensure_group(&aside)?;
    members.iter().try_for_each(|pid| put(&aside.join("cgroup.procs"), &pid.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base_group_allows_agent_restarts() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let at = |name: &str| directory.path().join(name);
        let base = |name: &str| Base::of(&at(name));
        let own = |name: &str| Base { group: at(name), is_for_jobs: false };
        assert_eq!(base("hostler-agent.service"), own("hostler-agent.service"), "there is no service for jobs");
        assert_eq!(base("run-7.scope/hostler-agent"), own("run-7.scope"), "it has already moved aside");
        fs::create_dir(at(JOBS)).expect("the parent directory is writable");
        assert_eq!(base("hostler-agent.service"), Base { group: at(JOBS), is_for_jobs: true });
        assert_eq!(base("session-3.scope"), own("session-3.scope"), "a session, not a service");
        assert_eq!(Base::of(Path::new("/")), Base { group: "/".into(), is_for_jobs: false });
    }
}
