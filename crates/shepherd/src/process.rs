//! Identifies processes in a way that is safe against reused pids.
//!
//! A pid identifies a process only until it is reaped. Together with its start time and the boot id, it identifies the
//! process forever. Signals are sent through pidfds that are verified after opening.

use std::fs;
use std::ops::Range;

use serde::{Deserialize, Serialize};

/// A process, distinguished from later processes with the same pid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ProcessId {
    /// Pid in the pid namespace of the process that created this value.
    pub pid: u32,
    /// Field 22 of `/proc/PID/stat`: clock ticks between boot and the start of the process.
    pub start_time: u64,
}

impl ProcessId {
    /// The process that has `pid` now; `None` if no process has this pid.
    pub fn of(pid: u32) -> Option<ProcessId> {
        stat(pid).map(|stat| ProcessId { pid, start_time: stat.start_time })
    }

    pub(crate) fn current() -> ProcessId {
        let pid = std::process::id();
        // Without /proc the start time is 0. No later check can match it, so adoption is refused, which is safe.
        ProcessId::of(pid).unwrap_or(ProcessId { pid, start_time: 0 })
    }
}

/// The fields of `/proc/PID/stat` that this crate uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) state: u8,
    pub(crate) parent: u32,
    pub(crate) group: u32,
    pub(crate) start_time: u64,
}

impl Stat {
    /// Whether the process has ended but is not reaped yet.
    pub(crate) fn is_zombie(self) -> bool {
        matches!(self.state, b'Z' | b'X')
    }
}

pub(crate) fn stat(pid: u32) -> Option<Stat> {
    parse_stat(&fs::read(format!("/proc/{pid}/stat")).ok()?)
}

/// The name of a process, as `ps` shows it; `None` if the process has ended. A new process has its parent's name until it
/// executes a program.
pub(crate) fn name(pid: u32) -> Option<Vec<u8>> {
    fs::read(format!("/proc/{pid}/comm")).ok()
}

/// The addresses of this process's arguments, which `/proc/PID/cmdline` shows: fields 48 and 49 of `/proc/PID/stat`.
pub(crate) fn arguments() -> Option<Range<usize>> {
    let text = fs::read_to_string("/proc/self/stat").ok()?;
    let mut fields = text[text.rfind(')')? + 1..].split_ascii_whitespace().skip(45);
    let (start, end) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    (0 < start && start < end).then_some(start..end)
}

/// Parses `/proc/PID/stat`. The command name, field 2, may contain spaces and parentheses; parsing starts after the
/// last `)`.
fn parse_stat(text: &[u8]) -> Option<Stat> {
    let rest = &text[text.iter().rposition(|&byte| byte == b')')? + 1..];
    let mut fields = std::str::from_utf8(rest).ok()?.split_ascii_whitespace();
    let state = *fields.next()?.as_bytes().first()?;
    let parent = fields.next()?.parse().ok()?;
    let group = fields.next()?.parse().ok()?;
    let start_time = fields.nth(16)?.parse().ok()?;
    Some(Stat { state, parent, group, start_time })
}

/// The kernel's boot id, or an empty string if `/proc` does not provide it.
pub(crate) fn boot_id() -> String {
    hostler_sys::boot_id().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_parses_command_names_with_parentheses() {
        let line = b"42 (a) R 1 (b)) S 7 42 42 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 123456 0 0\n";
        assert_eq!(parse_stat(line), Some(Stat { state: b'S', parent: 7, group: 42, start_time: 123_456 }));
        assert_eq!(parse_stat(b"42 (truncated) S 7"), None);
        assert_eq!(parse_stat(b""), None);
    }

    #[test]
    fn process_id_of_this_process_is_stable() {
        let me = ProcessId::current();
        assert!(me.start_time > 0);
        assert_eq!(ProcessId::of(me.pid), Some(me));
    }
}
