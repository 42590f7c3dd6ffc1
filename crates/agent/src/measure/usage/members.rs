//! Sums over the processes of a run, where no cgroup counts them.
//!
//! When a process ends and is waited for, its CPU time and its disk transfers move to its parent. The shepherd is the
//! parent of orphans, so the sums over all processes and the shepherd never miss a process that ended.

use std::fs;
use std::path::Path;

/// Maximum number of processes that are visited. Larger runs without a controller have gaps.
const MAX_MEMBERS: usize = 256;

/// Sums over the processes of a run. `None` if a process cannot be read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Sums {
    pub(super) cpu_ticks: Option<u64>,
    pub(super) memory_pages: Option<u64>,
    pub(super) read_bytes: Option<u64>,
    pub(super) write_bytes: Option<u64>,
    /// Processes and threads.
    pub(super) threads: Option<u64>,
}

/// Sums over `members`, and over the children of `shepherd` that have ended.
pub(super) fn sums(members: &[u32], shepherd: u32) -> Sums {
    if members.len() > MAX_MEMBERS {
        return Sums::default();
    }
    let io = |key| sum(members.iter().copied().chain([shepherd]), |pid| io_of(pid, key));
    Sums {
        cpu_ticks: sum(members.iter().copied(), |pid| stat_of(pid, &[11, 12, 13, 14]))
            .zip(stat_of(shepherd, &[13, 14]))
            .map(|(live, ended)| live + ended),
        memory_pages: sum(members.iter().copied(), |pid| {
            fs::read_to_string(format!("/proc/{pid}/statm")).ok()?.split(' ').nth(1)?.parse().ok()
        }),
        read_bytes: io("read_bytes:"),
        write_bytes: io("write_bytes:"),
        threads: sum(members.iter().copied(), |pid| stat_of(pid, &[17])),
    }
}

/// The sum of a value over processes. Skips processes that have ended in the meantime.
fn sum(pids: impl Iterator<Item = u32>, value: impl Fn(u32) -> Option<u64>) -> Option<u64> {
    let exists = |pid: u32| Path::new(&format!("/proc/{pid}/stat")).exists();
    pids.filter_map(|pid| match value(pid) {
        None if !exists(pid) => None,
        value => Some(value),
    })
    .sum()
}

/// Sum of fields of `/proc/PID/stat`, counted from 0 after the name.
fn stat_of(pid: u32, fields: &[usize]) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let values: Vec<&str> = text.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    fields.iter().map(|field| values.get(*field)?.parse::<u64>().ok()).sum()
}

fn io_of(pid: u32, key: &str) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/io")).ok()?;
    text.lines().find_map(|line| line.strip_prefix(key)?.trim().parse().ok())
}

/// The live descendants of a process; `None` if the kernel does not list children, or there are too many.
pub(super) fn descendants(pid: u32) -> Option<Vec<u32>> {
    let mut found = Vec::new();
    let mut open = vec![pid];
    while let Some(parent) = open.pop() {
        // A process that has ended has no children.
        let Ok(threads) = fs::read_dir(format!("/proc/{parent}/task")) else { continue };
        for thread in threads.flatten() {
            match fs::read_to_string(thread.path().join("children")) {
                Ok(children) => {
                    open.extend(children.split_ascii_whitespace().filter_map(|child| child.parse::<u32>().ok()));
                }
                Err(error) if error.kind() == std::io::ErrorKind::NotFound && thread.path().exists() => return None,
                Err(_) => {}
            }
        }
        if parent != pid {
            found.push(parent);
        }
        if found.len() > MAX_MEMBERS {
            return None;
        }
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn processes_of_a_run_are_found_and_summed() {
        let program = "sleep 60 & read line";
        let mut shell =
            Command::new("sh").args(["-c", program]).stdin(Stdio::piped()).spawn().expect("a shell can be started");
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
        let children = loop {
            let found = descendants(shell.id()).expect("the kernel lists children");
            if !found.is_empty() || std::time::Instant::now() > deadline {
                break found;
            }
        };
        let summed = sums(&[vec![shell.id()], children.clone()].concat(), std::process::id());
        let gone = sums(&[u32::MAX], std::process::id());
        for pid in &children {
            let _ = Command::new("kill").arg(pid.to_string()).status();
        }
        shell.kill().expect("the test owns it");
        shell.wait().expect("the test owns it");
        assert_eq!(children.len(), 1);
        assert_eq!(summed.threads, Some(2));
        assert!(summed.memory_pages > Some(0) && summed.cpu_ticks.is_some() && summed.write_bytes.is_some());
        assert_eq!(gone.threads, Some(0), "a process that has ended is skipped");
    }

    #[test]
    fn runs_with_too_many_processes_have_gaps() {
        assert_eq!(sums(&vec![1; MAX_MEMBERS + 1], 1), Sums::default());
    }
}
