//! All processes that a program has started, so that none of them outlives its time.
//!
//! A process belongs if it is in the program's group, descends from one that belongs, or carries the program's mark in its environment: so
//! those are found as well that have a session of their own and whose parent has gone. A pid found in `/proc` is only a hint: the signal
//! goes through a pidfd, opened before the process was looked at again.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The variable that carries a program's mark.
pub(crate) const MARK: &str = "HOSTLER_POWER_MARK";

/// How often it is looked for processes that were being forked while others were killed.
const ROUNDS: usize = 100;

/// How often the same ones are found before nobody waits for them any more: they hang in the kernel, and end when that lets them go.
const PATIENCE: usize = 20;

/// A program with all that it has started; killed when it is dropped.
#[derive(Debug)]
pub(crate) struct Tree {
    leader: u32,
    mark: String,
    released: bool,
}

/// What `/proc` says of a process.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    is_zombie: bool,
    parent: u32,
    group: u32,
    started: u64,
}

impl Tree {
    /// A mark that no other program carries, on this boot or before.
    pub(crate) fn new_mark() -> String {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        format!("{}-{}-{}", std::process::id(), now.as_nanos(), COUNT.fetch_add(1, Ordering::Relaxed))
    }

    /// The tree of this process, which leads its group, carries the mark and has not been waited for.
    pub(crate) const fn new(leader: u32, mark: String) -> Self {
        Self { leader, mark, released: false }
    }

    /// Lets whatever is left of it live.
    pub(crate) fn release(mut self) {
        self.released = true;
    }

    fn kill(&self) {
        let (mut before, mut unchanged) = (Vec::new(), 0);
        for _ in 0..ROUNDS {
            let members = self.members();
            unchanged = if members == before { unchanged + 1 } else { 0 };
            if members.is_empty() || unchanged == PATIENCE {
                return;
            }
            for (pid, stat) in &members {
                // One that has ended meanwhile needs nothing; one that became another user's cannot be helped.
                let _ = kill_if_same(*pid, stat);
            }
            before = members;
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Those that live.
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

/// The name in brackets may hold anything, brackets included.
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
    // SAFETY: plain integers go in.
    let fd = check(unsafe { libc::syscall(libc::SYS_pidfd_open, pid as libc::pid_t, 0) })?;
    // SAFETY: the kernel has just made this descriptor for us; it is close-on-exec.
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
    fn a_name_cannot_pose_as_something_else() {
        let text = "12 (a) R 1 (b) Z) S 7 8 8 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4711 0 0";
        assert_eq!(parse_stat(text), Some(Stat { is_zombie: false, parent: 7, group: 8, started: 4711 }));
        for cut in 0..text.len() - 8 {
            assert_eq!(parse_stat(&text[..cut]), None, "{cut}");
        }
        assert!(stat(std::process::id()).is_some_and(|stat| !stat.is_zombie && stat.started > 0));
    }
}
