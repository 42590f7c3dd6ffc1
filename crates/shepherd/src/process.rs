//! Naming a process so that a reused pid cannot be mistaken for it.
//!
//! A pid names a process only until it is reaped; together with its start time and the boot it belongs to it names
//! that process for ever. Signals are sent through pidfds that were checked after they were opened.

use std::fs;

use serde::{Deserialize, Serialize};

/// A process, told apart from any later one with the same pid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ProcessId {
    /// The pid in the namespace of whoever wrote this down.
    pub pid: u32,
    /// Field 22 of `/proc/PID/stat`: clock ticks between boot and the start of the process.
    pub start_time: u64,
}

impl ProcessId {
    /// The identity of the process that has `pid` now, or `None` if there is none.
    pub fn of(pid: u32) -> Option<ProcessId> {
        stat(pid).map(|stat| ProcessId { pid, start_time: stat.start_time })
    }

    /// The calling process.
    pub(crate) fn current() -> ProcessId {
        let pid = std::process::id();
        // Without /proc the start time is 0, no later check can match it, and adoption is refused: the safe side.
        ProcessId::of(pid).unwrap_or(ProcessId { pid, start_time: 0 })
    }
}

/// What we need from `/proc/PID/stat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) state: u8,
    pub(crate) parent: u32,
    pub(crate) start_time: u64,
}

impl Stat {
    /// Whether the process has ended and only waits to be reaped.
    pub(crate) fn is_zombie(self) -> bool {
        matches!(self.state, b'Z' | b'X')
    }
}

pub(crate) fn stat(pid: u32) -> Option<Stat> {
    parse_stat(&fs::read(format!("/proc/{pid}/stat")).ok()?)
}

/// The command name, field 2, may hold spaces and parentheses; everything after the last `)` is regular.
fn parse_stat(text: &[u8]) -> Option<Stat> {
    let rest = &text[text.iter().rposition(|&byte| byte == b')')? + 1..];
    let mut fields = std::str::from_utf8(rest).ok()?.split_ascii_whitespace();
    let state = *fields.next()?.as_bytes().first()?;
    let parent = fields.next()?.parse().ok()?;
    let start_time = fields.nth(17)?.parse().ok()?;
    Some(Stat { state, parent, start_time })
}

/// The kernel's name for this boot, or an empty string where `/proc` does not tell.
pub(crate) fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_survives_a_hostile_command_name() {
        let line = b"42 (a) R 1 (b)) S 7 42 42 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 123456 0 0\n";
        assert_eq!(parse_stat(line), Some(Stat { state: b'S', parent: 7, start_time: 123_456 }));
        assert_eq!(parse_stat(b"42 (truncated) S 7"), None);
        assert_eq!(parse_stat(b""), None);
    }

    #[test]
    fn this_process_is_itself() {
        let me = ProcessId::current();
        assert!(me.start_time > 0);
        assert_eq!(ProcessId::of(me.pid), Some(me));
    }
}
