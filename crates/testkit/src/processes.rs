//! Queries of the kernel's process list.

use std::fs;

use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;

/// Whether a process with this pid exists and is not a zombie.
#[must_use]
pub fn is_alive(pid: u32) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    !matches!(state, None | Some('Z' | 'X'))
}

/// Sends a signal to a process. Does nothing if the process has just ended.
///
/// # Panics
/// If the kernel refuses the signal for another reason.
pub fn kill(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(pid).expect("a pid"));
    match signal::kill(pid, signal) {
        Ok(()) | Err(nix::errno::Errno::ESRCH) => {}
        Err(error) => panic!("cannot send {signal} to {pid}: {error}"),
    }
}

/// Pids of processes with `text` in their environment or command line, except zombies and the caller itself.
#[must_use]
pub fn processes_with(text: &str) -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let holds = |pid: &u32| {
        ["environ", "cmdline"].iter().any(|file| {
            let bytes = fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
            bytes.windows(text.len()).any(|window| window == text.as_bytes())
        })
    };
    pids.filter(|pid| *pid != std::process::id() && is_alive(*pid)).filter(holds).collect()
}

/// The abstract name of the Unix socket on which a process listens, as shepherds do.
///
/// # Panics
/// If there is none.
#[must_use]
pub fn listening_name(pid: u32) -> String {
    let held: Vec<String> = fs::read_dir(format!("/proc/{pid}/fd"))
        .expect("the process runs")
        .flatten()
        .filter_map(|entry| Some(fs::read_link(entry.path()).ok()?.to_str()?.to_owned()))
        .collect();
    let table = fs::read_to_string("/proc/net/unix").expect("the kernel lists its sockets");
    let name = table.lines().find_map(|line| {
        let (rest, name) = line.split_once(" @")?;
        held.contains(&format!("socket:[{}]", rest.split_whitespace().nth(6)?)).then_some(name)
    });
    name.expect("the process listens").to_owned()
}
