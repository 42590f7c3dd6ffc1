//! A command on its caller's own terminal: the calling program becomes the command, in a cgroup of its own.
//!
//! No process stands between such a command and its caller, so the agent moves the existing process into a cgroup.
//! The cgroup outlives this agent. Its name identifies the process, so the next agent supervises it further.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hostler_shepherd::ProcessId;
use hostler_shepherd::cgroup::ExistingProcess;
use nix::libc;
use tokio::time::{Instant, sleep};

use super::peer::{Peer, Process};
use super::run;
use super::shared::Exec;
use crate::activity::CommandGuard;
use crate::readiness::Readiness;
use crate::runs::leaves::Leaves;

/// Start of a cgroup's name without the agent's prefix. The whole name is `here-PID-START_TIME-NUMBER`.
const NAME: &str = "here-";

/// Timeouts for a command's leftover processes to end, after SIGTERM and after SIGKILL.
const GRACES: [Duration; 2] = [Duration::from_secs(2), Duration::from_secs(10)];

/// Poll interval for leftover processes.
const LOOK: Duration = Duration::from_millis(20);

/// Applies a command's limits to its calling process and the children of this process, until all of them have ended.
/// Returns the limits that the kernel does not enforce, with the reasons.
pub(super) async fn enclose(exec: &Arc<Exec>, peer: &Peer, memory_bytes: Option<u64>, ended: Ended) -> Vec<String> {
    let none = |reason: &str| vec![format!("CPUs, memory and processes: {reason}")];
    let Some((process, handle)) = caller_process(peer) else {
        return none(
            "the calling process has ended, is in another container than the agent, or has another user's rights",
        );
    };
    let tree = match exec.host.leaves.tree() {
        Ok(tree) => tree,
        Err(reason) => return none(reason),
    };
    // A caller in the cgroup of a job or of another command must stay there, because leaving would evade its limits.
    if is_held(process.pid, tree.path()) {
        return Vec::new();
    }
    let number = exec.started.fetch_add(1, Ordering::Relaxed);
    let Some(spec) = exec.host.leaves.leaf(&name(process, number)) else { return none("it cannot be named") };
    // The kernel takes a while to move a process.
    let options = run::options(exec, memory_bytes);
    let made =
        tokio::task::spawn_blocking(move || ExistingProcess::around(process.pid, handle.as_fd(), &spec, &options))
            .await;
    match made.unwrap_or_else(|error| Err(io::Error::other(error))) {
        Ok(enclosure) => {
            let advisory = run::advisory(enclosure.limits());
            tokio::spawn(look_after(enclosure, process, Some(ended), exec.host.activity.begin()));
            advisory
        }
        Err(error) => none(&format!("cannot create a cgroup for the command: {error}")),
    }
}

/// Returns the caller's process and a pidfd of it; `None` if this agent cannot see the process.
fn caller_process(peer: &Peer) -> Option<(ProcessId, OwnedFd)> {
    let process = peer.process()?;
    Some((process.id(), process.handle().try_clone_to_owned().ok()?))
}

/// Returns whether a caller may already run in a cgroup of an agent on this machine, as programs of jobs do.
pub(super) fn may_be_in_a_leaf(exec: &Exec, peer: &Peer) -> bool {
    let process = peer.process().map(Process::id);
    exec.host.leaves.tree().is_ok_and(|tree| may_be_held(process, tree.path()))
}

/// Returns whether a process may already run in a cgroup of this machine's agents. An unknown process counts, because a
/// program of a job may end or change its user after its request, to evade the job's limits.
fn may_be_held(process: Option<ProcessId>, leaves: &Path) -> bool {
    process.is_none_or(|process| is_held(process.pid, leaves))
}

/// Called at the end of a command, with the command's run time.
pub(super) type Ended = Box<dyn FnOnce(Duration) + Send>;

fn name(process: ProcessId, number: u64) -> String {
    format!("{NAME}{}-{}-{number}", process.pid, process.start_time)
}

/// Returns the process in a cgroup's name, which is given without the agent's prefix; `None` if the process has ended.
fn process_of(name: &str) -> Option<ProcessId> {
    let mut parts = name.strip_prefix(NAME)?.split('-');
    let process = ProcessId { pid: parts.next()?.parse().ok()?, start_time: parts.next()?.parse().ok()? };
    (ProcessId::of(process.pid) == Some(process)).then_some(process)
}

/// Returns whether a process already runs in a cgroup of this machine's agents, or has ended.
fn is_held(pid: u32, leaves: &Path) -> bool {
    let Ok(groups) = fs::read_to_string(format!("/proc/{pid}/cgroup")) else { return true };
    let unified = groups.lines().find_map(|line| line.strip_prefix("0::"));
    // The mount point may differ, but the end of the path is the same.
    let parent = leaves.components().next_back().map(|last| last.as_os_str().to_owned());
    let mut above = unified.map(Path::new).into_iter().flat_map(|path| path.ancestors().skip(1));
    parent.is_some_and(|parent| above.any(|group| group.file_name() == Some(&parent)))
}

/// Returns the cgroups of commands that started before this agent and still run.
pub(crate) fn live_leaves(leaves: &Leaves) -> HashSet<String> {
    let Ok(tree) = leaves.tree() else { return HashSet::new() };
    let entries = fs::read_dir(tree.path()).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| name.strip_prefix(leaves.prefix()).and_then(process_of).is_some()).collect()
}

/// Supervises the commands that started before this agent.
pub(super) fn take_up(exec: &Arc<Exec>) {
    for name in live_leaves(&exec.host.leaves) {
        let own = name.strip_prefix(exec.host.leaves.prefix()).unwrap_or_default();
        let (process, spec) = (process_of(own), exec.host.leaves.leaf(own));
        if let (Some(process), Some(spec)) = (process, spec)
            && let Ok(enclosure) = ExistingProcess::open(&spec)
        {
            tokio::spawn(look_after(enclosure, process, None, exec.host.activity.begin()));
        }
    }
}

/// Waits for a command to end, ends its leftover processes, and removes its cgroup.
async fn look_after(
    enclosure: ExistingProcess,
    process: ProcessId,
    ended: Option<Ended>,
    _going: Option<CommandGuard>,
) {
    let began = Instant::now();
    // If the process has ended, its number may be reused, and there is nothing to wait for.
    if let Ok(handle) = handle_of(process) {
        handle.readable().await;
        if let Some(ended) = ended {
            ended(began.elapsed());
        }
    }
    for (signal, grace) in [libc::SIGTERM, libc::SIGKILL].into_iter().zip(GRACES) {
        if enclosure.is_empty() {
            break;
        }
        if signal == libc::SIGKILL {
            let _ = enclosure.kill();
        } else {
            enclosure.signal_all(signal);
            enclosure.signal_all(libc::SIGCONT);
        }
        let until = Instant::now() + grace;
        while !enclosure.is_empty() && Instant::now() < until {
            sleep(LOOK).await;
        }
    }
    if let Err(error) = enclosure.remove() {
        tracing::warn!(pid = process.pid, %error, "cannot remove the cgroup of an ended command");
    }
}

/// Returns a handle on a process that becomes readable when the process ends.
fn handle_of(process: ProcessId) -> io::Result<Readiness<OwnedFd>> {
    let handle = hostler_shepherd::pidfd_open(process.pid)?;
    if ProcessId::of(process.pid) != Some(process) {
        return Err(io::ErrorKind::NotFound.into());
    }
    Readiness::of(handle)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_of_a_cgroup_identifies_its_process() {
        let own = ProcessId::of(std::process::id()).expect("this process runs");
        assert_eq!(process_of(&name(own, 3)), Some(own));
        let earlier = ProcessId { start_time: own.start_time - 1, ..own };
        for name in [name(earlier, 3), "here-1".to_owned(), "call-1".to_owned(), "here--1-2".to_owned()] {
            assert_eq!(process_of(&name), None, "{name}");
        }
    }

    #[test]
    fn process_outside_the_tree_is_not_held() {
        let own = ProcessId::of(std::process::id()).expect("this process runs");
        assert!(!may_be_held(Some(own), Path::new("/sys/fs/cgroup/no-such-group-here")));
    }

    #[test]
    fn unknown_or_ended_process_may_be_held() {
        let leaves = Path::new("/sys/fs/cgroup/no-such-group-here");
        let ended = ProcessId { pid: u32::MAX, start_time: 1 };
        assert!(may_be_held(None, leaves) && may_be_held(Some(ended), leaves));
    }
}
