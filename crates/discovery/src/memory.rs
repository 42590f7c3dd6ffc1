//! Memory of the machine, limits of control groups, and the part reserved for the system.

use serde::{Deserialize, Serialize};

use crate::cgroup::Groups;
use crate::{Note, Source, Topic};

/// Minimum reserve for the system: enough for an idle server distribution, the agent, and a shepherd per job.
const LEAST_RESERVE_BYTES: u64 = 256 << 20;

/// Large machines reserve the memory limit divided by this number (2 %), because page tables and kernel caches grow
/// with the memory.
const RESERVE_PART: u64 = 50;

/// No machine reserves more than the memory limit divided by this number (a quarter), so that small boards have memory
/// to offer.
const LARGEST_RESERVE_PART: u64 = 4;

/// The memory of a machine, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// Memory that the kernel manages.
    pub total_bytes: u64,
    /// Memory that control groups allow this process to use, without huge pages; at most `total_bytes`.
    pub limit_bytes: u64,
    /// The part reserved for the kernel, system services and the agent: 2 % of `limit_bytes`, but at least 256 MiB, and
    /// at most a quarter of `limit_bytes`.
    pub reserved_bytes: u64,
    pub usable_bytes: u64,
}

impl Memory {
    pub(crate) fn of(source: &Source, groups: &Groups, notes: &mut Vec<Note>) -> Self {
        let meminfo = source.lines("/proc/meminfo", &["MemTotal:", "Hugetlb:"]).unwrap_or_default();
        let group_limit = groups.memory_bytes(source);
        let Some(total) = kibibytes(&meminfo, "MemTotal:").or(group_limit) else {
            notes
                .push(Note::new(Topic::Memory, "/proc/meminfo does not contain the memory size; no memory is offered"));
            return Self::default();
        };
        // Huge pages are available only to programs that request them explicitly.
        let huge_pages = kibibytes(&meminfo, "Hugetlb:").unwrap_or(0).min(total);
        if huge_pages > 0 {
            let text = format!("{} are reserved for huge pages", hostler_model::format_bytes(huge_pages));
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

/// Reads a value of `/proc/meminfo`, which is in KiB, and returns it in bytes.
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
    fn reserve_scales_with_memory_within_its_limits() {
        assert_eq!(reserve(512 << 20), 128 << 20);
        assert_eq!(reserve(4 << 30), 256 << 20);
        assert_eq!(reserve(1 << 40), (1 << 40) / 50);
        assert_eq!(reserve(0), 0);
    }

    #[test]
    fn huge_pages_are_not_offered() {
        let (memory, notes) = usable("MemTotal: 8388608 kB\nHugetlb: 4194304 kB\n");
        assert_eq!((memory.total_bytes, memory.limit_bytes, notes), (8 << 30, 4 << 30, 1));
        assert_eq!(memory.usable_bytes, (4 << 30) - (256 << 20));
        assert_eq!(usable("MemTotal: 1 kB\nHugetlb: 99 kB\n").0.usable_bytes, 0);
        assert_eq!(usable("MemTotal: 99999999999999999999 kB"), (Memory::default(), 1));
    }
}
