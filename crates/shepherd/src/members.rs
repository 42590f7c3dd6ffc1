//! The processes of a job, found by descent and signalled without ever touching another process.
//!
//! The shepherd is a subreaper with no other children, so whatever descends from it belongs to the job, and a process
//! that is orphaned becomes its child. A pid found in `/proc` is only a hint: the signal goes through a pidfd, opened
//! first and then checked to be a child of a parent that is itself still alive and checked. A pid that was reused in
//! between fails the check, and a process that ended in between takes no signal.
//!
//! A single walk can miss processes that are being forked; callers repeat it until the kernel says that no child is
//! left.

use std::fs;
use std::os::fd::{AsFd, BorrowedFd};

use crate::process;
use crate::sys;

/// Live processes that descend from the calling one.
pub(crate) fn list() -> Vec<u32> {
    let mut found = Vec::new();
    walk(std::process::id(), &|| true, &mut |pid, _| found.push(pid));
    found
}

/// Sends `signals`, in order, to every live descendant of the calling process.
pub(crate) fn signal(signals: &[libc::c_int]) {
    walk(std::process::id(), &|| true, &mut |_, pidfd| {
        for &signal in signals {
            // It may have ended meanwhile; a set-user-id process of another user stays, and is reported as unkillable.
            let _ = sys::pidfd_signal(pidfd, signal);
        }
    });
}

/// Visits descendants of `parent`, children before their parents, so that a chain is seen whole before a link goes.
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
            // The kernel was built without these lists.
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
    fn both_ways_of_listing_find_a_child() {
        let mut child = Command::new("sleep").arg("60").spawn().expect("sleep exists");
        let me = std::process::id();
        let listed = children(me).contains(&child.id());
        let scanned = children_by_scan(me).contains(&child.id());
        let seen = list().contains(&child.id());
        child.kill().expect("it is ours");
        child.wait().expect("it is ours");
        assert!(listed && scanned && seen, "listed {listed}, scanned {scanned}, walked {seen}");
        assert!(!list().contains(&child.id()));
    }
}
