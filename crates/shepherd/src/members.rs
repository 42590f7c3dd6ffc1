//! Finds the processes of a job by descent, and signals them without affecting other processes.
//!
//! The shepherd is a subreaper without other children, so all its descendants belong to the job, and orphaned processes
//! become its children. A pid from `/proc` is only a hint. The signal is sent through a pidfd that is opened first, and
//! then verified to be a child of a verified live parent. A reused pid fails this check, and an ended process ignores
//! the signal.
//!
//! A single walk can miss processes that are being forked. Callers repeat it until the kernel reports that no child is
//! left.

use std::fs;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::launch::{Members, RunSignal};
use crate::process::{self, Stat};
use crate::sys;

/// Lists the live descendants of the calling process.
pub(crate) fn list() -> Vec<u32> {
    let mut found = Vec::new();
    walk(std::process::id(), &|| true, &mut |pid, _| found.push(pid));
    found
}

/// The live descendants of another process, with their pidfds. `lives` says whether that process is alive.
pub(crate) fn below(parent: u32, lives: &dyn Fn() -> bool) -> Vec<(u32, OwnedFd)> {
    let mut found = Vec::new();
    walk(parent, lives, &mut |pid, pidfd| found.extend(pidfd.try_clone_to_owned().ok().map(|pidfd| (pid, pidfd))));
    found
}

/// Sends `signals`, in order, to every live descendant of the calling process.
pub(crate) fn signal(signals: &[libc::c_int]) {
    walk(std::process::id(), &|| true, &mut |_, pidfd| {
        for &signal in signals {
            // The process may have ended. A set-user-id process of another user cannot be signalled; it is reported as
            // unkillable.
            let _ = sys::pidfd_signal(pidfd, signal);
        }
    });
}

/// The program of a sandbox with this init process; `None` if it has ended. Init has the first pid of the sandbox and
/// starts the program as its first child.
pub(crate) fn program_in_sandbox(init: u32) -> Option<u32> {
    let is_second = |pid: &u32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let pids = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
        pids.and_then(|pids| pids.split_ascii_whitespace().next_back()) == Some("2")
    };
    children(init).into_iter().find(is_second)
}

/// The process group of a process as its sandbox numbers it.
fn group_in_sandbox(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let groups = status.lines().find_map(|line| line.strip_prefix("NSpgid:"))?;
    // The first number is that of this process's own namespace.
    groups.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// Sends a signal to members of a run whose main process is `main`: the job's program, or a step host if `has_steps`. In a
/// sandbox, the host knows the groups of its steps by other numbers.
pub(crate) fn signal_some(main: u32, has_steps: bool, in_sandbox: bool, signal: &RunSignal) {
    let Some(host) = process::stat(main) else { return };
    // The host itself gets nothing: it runs the steps.
    let is_program = |pid: u32, stat: Stat| match has_steps {
        true => stat.parent == main && stat.group == host.group,
        false => pid == main,
    };
    let is_wanted = |pid: u32, stat: Stat| {
        let is_step = has_steps && stat.group != host.group && is_below_step(pid, main, host.group);
        let is_in_group = stat.group == host.group && !(has_steps && pid == main);
        match &signal.to {
            Members::Program => is_program(pid, stat),
            Members::Group => is_in_group,
            Members::Steps => is_step,
            Members::Groups(groups) => {
                let group = if in_sandbox { group_in_sandbox(pid) } else { Some(stat.group) };
                is_step && group.is_some_and(|group| groups.contains(&group))
            }
            Members::All => is_in_group || is_step,
        }
    };
    walk(std::process::id(), &|| true, &mut |pid, pidfd| {
        if process::stat(pid).is_some_and(|stat| is_wanted(pid, stat)) {
            let _ = sys::pidfd_signal(pidfd, signal.signal);
        }
    });
}

/// Whether a process has a child that executes another program than it does. A new child executes its parent's, and would pass
/// a signal to its parent's handlers.
pub(crate) fn has_started_another(parent: u32) -> bool {
    let program = |pid: u32| fs::read_link(format!("/proc/{pid}/exe"));
    let own = program(parent).ok();
    children(parent).into_iter().any(|child| program(child).map_or(true, |its| Some(its) != own))
}

/// Whether a process is in the process group of a step: a group whose leader the step host started.
fn is_below_step(pid: u32, host: u32, host_group: u32) -> bool {
    let Some(group) = process::stat(pid).map(|stat| stat.group) else { return false };
    process::stat(group).is_some_and(|leader| leader.parent == host && leader.group != host_group)
}

/// Visits the descendants of `parent`. Visits children before their parents, so that all ancestors of a visited process
/// still exist.
fn walk(parent: u32, parent_lives: &dyn Fn() -> bool, visit: &mut dyn FnMut(u32, BorrowedFd<'_>)) {
    for child in children(parent) {
        let Ok(pidfd) = sys::pidfd_open(child) else { continue };
        let Some(stat) = process::stat(child) else { continue };
        if stat.parent != parent || !parent_lives() {
            continue;
        }
        let lives = || !sys::pidfd_ended(pidfd.as_fd());
        walk(child, &lives, visit);
        if !stat.is_zombie() {
            visit(child, pidfd.as_fd());
        }
    }
}

fn children(parent: u32) -> Vec<u32> {
    let Ok(threads) = fs::read_dir(format!("/proc/{parent}/task")) else { return Vec::new() };
    let mut found = Vec::new();
    for thread in threads.filter_map(Result::ok) {
        match fs::read_to_string(thread.path().join("children")) {
            Ok(pids) => found.extend(pids.split_ascii_whitespace().filter_map(|pid| pid.parse::<u32>().ok())),
            // This kernel does not provide the lists of children.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return children_by_scan(parent),
            Err(_) => {}
        }
    }
    found
}

fn children_by_scan(parent: u32) -> Vec<u32> {
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|&pid| process::stat(pid).is_some_and(|stat| stat.parent == parent)).collect()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn children_are_found_by_list_and_by_scan() {
        let mut child = Command::new("sleep").arg("60").spawn().expect("sleep exists");
        let me = std::process::id();
        let listed = children(me).contains(&child.id());
        let scanned = children_by_scan(me).contains(&child.id());
        let seen = list().contains(&child.id());
        child.kill().expect("the test owns it");
        child.wait().expect("the test owns it");
        assert!(listed && scanned && seen, "listed {listed}, scanned {scanned}, walked {seen}");
        assert!(!list().contains(&child.id()));
    }
}
