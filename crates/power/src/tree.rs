//! Finds and kills all processes that a program has started, so that none of them outlives its timeout.
//!
//! A process belongs to the program if it is in the program's process group, descends from such a process, or has the
//! program's mark in its environment. The mark also finds processes with their own session whose parent has ended.
//!
//! A pid from `/proc` may be reused. The signal therefore goes through a pidfd that was opened before the process was
//! checked again.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Environment variable with the mark by which a program and the processes that it has started are found.
pub(crate) const MARK: &str = "HOSTLER_POWER_MARK";

/// Maximum number of scans for processes that were forked during the previous scan.
const ROUNDS: usize = 100;

/// Number of scans with an unchanged result before the search ends. The remaining processes hang in the kernel, and die
/// when the kernel releases them.
const MAX_UNCHANGED_SCANS: usize = 20;

/// A program and all processes that it has started. Dropping it kills them.
#[derive(Debug)]
pub(crate) struct Tree {
    leader: u32,
    mark: String,
    released: bool,
}

/// Fields of `/proc/PID/stat`.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    is_zombie: bool,
    parent: u32,
    group: u32,
    started: u64,
}

impl Tree {
    /// Creates a unique mark.
    pub(crate) fn new_mark() -> String {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        format!("{}-{}-{}", std::process::id(), now.as_nanos(), COUNT.fetch_add(1, Ordering::Relaxed))
    }

    /// Creates the tree of a program. The process `leader` leads a process group, carries the mark and was not waited
    /// for.
    pub(crate) const fn new(leader: u32, mark: String) -> Self {
        Self { leader, mark, released: false }
    }

    /// Consumes the tree without killing the remaining processes.
    pub(crate) fn release(mut self) {
        self.released = true;
    }

    fn kill(&self) {
        let (mut before, mut unchanged) = (Vec::new(), 0);
        for _ in 0..ROUNDS {
            let members = self.members();
            unchanged = if members == before { unchanged + 1 } else { 0 };
            if members.is_empty() || unchanged == MAX_UNCHANGED_SCANS {
                return;
            }
            for (pid, stat) in &members {
                // Ignore processes that have ended, or that now belong to another user.
                let _ = kill_if_same(*pid, stat);
            }
            before = members;
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// The living processes of the tree.
    fn members(&self) -> Vec<(u32, Stat)> {
        let mut others: BTreeMap<u32, Stat> = pids().filter_map(|pid| Some((pid, stat(pid)?))).collect();
        others.retain(|_, stat| !stat.is_zombie);
        let marked = format!("{MARK}={}", self.mark);
        let mut members = Vec::new();
        let mut known = BTreeSet::from([self.leader]);
        loop {
            let found: Vec<u32> = others
                .iter()
                .filter(|(pid, stat)| {
                    stat.group == self.leader
                        || known.contains(*pid)
                        || known.contains(&stat.parent)
                        || members.is_empty() && carries(**pid, &marked)
                })
                .map(|(pid, _)| *pid)
                .collect();
            if found.is_empty() {
                return members;
            }
            for pid in found {
                known.insert(pid);
                members.extend(others.remove(&pid).map(|stat| (pid, stat)));
            }
        }
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        if !self.released {
            self.kill();
        }
    }
}

fn pids() -> impl Iterator<Item = u32> {
    fs::read_dir("/proc").into_iter().flatten().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

fn stat(pid: u32) -> Option<Stat> {
    parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Parses `/proc/PID/stat`. The process name in brackets may contain any characters, including brackets.
fn parse_stat(text: &str) -> Option<Stat> {
    let (_, rest) = text.rsplit_once(") ")?;
    let fields: Vec<&str> = rest.split(' ').collect();
    Some(Stat {
        is_zombie: matches!(*fields.first()?, "Z" | "X"),
        parent: fields.get(1)?.parse().ok()?,
        group: fields.get(2)?.parse().ok()?,
        started: fields.get(19)?.parse().ok()?,
    })
}

fn carries(pid: u32, marked: &str) -> bool {
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    environment.split(|byte| *byte == 0).any(|variable| variable == marked.as_bytes())
}

fn kill_if_same(pid: u32, seen: &Stat) -> io::Result<()> {
    // SAFETY: the call takes plain integers.
    let fd = check(unsafe { libc::syscall(libc::SYS_pidfd_open, pid as libc::pid_t, 0) })?;
    // SAFETY: the kernel has just created this descriptor; it is close-on-exec.
    let pidfd = unsafe { OwnedFd::from_raw_fd(fd as libc::c_int) };
    if stat(pid).is_none_or(|now| now.started != seen.started) {
        return Ok(());
    }
    let info = std::ptr::null::<libc::siginfo_t>();
    // SAFETY: a null siginfo is allowed and means "as kill(2) does".
    check(unsafe { libc::syscall(libc::SYS_pidfd_send_signal, pidfd.as_raw_fd(), libc::SIGKILL, info, 0) })?;
    Ok(())
}

fn check(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_name_cannot_forge_fields() {
        let text = "12 (a) R 1 (b) Z) S 7 8 8 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4711 0 0";
        assert_eq!(parse_stat(text), Some(Stat { is_zombie: false, parent: 7, group: 8, started: 4711 }));
        for cut in 0..text.len() - 8 {
            assert_eq!(parse_stat(&text[..cut]), None, "{cut}");
        }
        assert!(stat(std::process::id()).is_some_and(|stat| !stat.is_zombie && stat.started > 0));
    }
}
