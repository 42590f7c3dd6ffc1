//! Memory: what the machine has, what control groups leave of it, and what stays with the system.

use serde::{Deserialize, Serialize};

use crate::cgroup::Groups;
use crate::{Note, Source, Topic};

/// The least that the system keeps: an idle server distribution, the agent and a shepherd for each job fit into it.
const LEAST_RESERVE_BYTES: u64 = 256 << 20;

/// One part in so many is kept on large machines, where page tables and the kernel's caches grow with the memory: 2 %.
const RESERVE_PART: u64 = 50;

/// But never more than one part in so many, or a board with 512 MiB would have nothing to give.
const LARGEST_RESERVE_PART: u64 = 4;

/// The memory of a machine, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// What the kernel manages.
    pub total_bytes: u64,
    /// What is left of it by control groups and huge pages; at most `total_bytes`.
    pub limit_bytes: u64,
    /// What stays with the kernel, the system's services and the agent: 2 % of the limit, at least 256 MiB, at most a quarter.
    pub reserved_bytes: u64,
    /// What jobs may be given.
    pub usable_bytes: u64,
}

impl Memory {
    pub(crate) fn of(source: &Source, groups: &Groups, notes: &mut Vec<Note>) -> Self {
        let meminfo = source.lines("/proc/meminfo", &["MemTotal:", "Hugetlb:"]).unwrap_or_default();
        let group_limit = groups.memory_bytes(source);
        let Some(total) = kibibytes(&meminfo, "MemTotal:").or(group_limit) else {
            notes
                .push(Note::new(Topic::Memory, "/proc/meminfo does not say how much memory there is: none is offered"));
            return Self::default();
        };
        // Set aside for programs that ask for huge pages by name, and useless to all others.
        let huge_pages = kibibytes(&meminfo, "Hugetlb:").unwrap_or(0).min(total);
        if huge_pages > 0 {
            let text = format!("{} are set aside as huge pages", hostler_model::format_bytes(huge_pages));
            notes.push(Note::new(Topic::Memory, text));
        }
        let ordinary = total - huge_pages;
        if let Some(limit) = group_limit.filter(|limit| *limit < ordinary) {
            let text = format!("a control group limits memory to {}", hostler_model::format_bytes(limit));
            notes.push(Note::new(Topic::Memory, text));
        }
        let limit = group_limit.map_or(ordinary, |limit| limit.min(ordinary));
        let reserved = reserve(limit);
        Self { total_bytes: total, limit_bytes: limit, reserved_bytes: reserved, usable_bytes: limit - reserved }
    }
}

fn reserve(limit_bytes: u64) -> u64 {
    (limit_bytes / RESERVE_PART).max(LEAST_RESERVE_BYTES).min(limit_bytes / LARGEST_RESERVE_PART)
}

/// A line of `/proc/meminfo`, in bytes.
fn kibibytes(meminfo: &str, key: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(key))?;
    line.split_ascii_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Fixture;

    fn usable(meminfo: &str) -> (Memory, usize) {
        let mut fixture = Fixture::default();
        fixture.insert("/proc/meminfo", meminfo);
        let mut notes = Vec::new();
        (Memory::of(&Source::fixture(fixture), &Groups::default(), &mut notes), notes.len())
    }

    #[test]
    fn the_system_keeps_what_it_needs() {
        assert_eq!(reserve(512 << 20), 128 << 20);
        assert_eq!(reserve(4 << 30), 256 << 20);
        assert_eq!(reserve(1 << 40), (1 << 40) / 50);
        assert_eq!(reserve(0), 0);
    }

    #[test]
    fn huge_pages_are_not_for_everyone() {
        let (memory, notes) = usable("MemTotal: 8388608 kB\nHugetlb: 4194304 kB\n");
        assert_eq!((memory.total_bytes, memory.limit_bytes, notes), (8 << 30, 4 << 30, 1));
        assert_eq!(memory.usable_bytes, (4 << 30) - (256 << 20));
        assert_eq!(usable("MemTotal: 1 kB\nHugetlb: 99 kB\n").0.usable_bytes, 0);
        assert_eq!(usable("MemTotal: 99999999999999999999 kB"), (Memory::default(), 1));
    }
}
