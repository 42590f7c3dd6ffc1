//! Figures about the daemon's own process, from `/proc/self/stat`.

use std::fs;

use nix::unistd::{SysconfVar, sysconf};
use prometheus_client::registry::Registry;

use crate::{count, set};

/// Registers CPU time, memory and start time of this process. Figures that the system does not report are absent.
pub fn register_process(registry: &mut Registry) {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let Some(stat) = Stat::parse(&read("/proc/self/stat")) else { return };
    let configured = |name| sysconf(name).ok().flatten().map(|value| value as f64);
    if let Some(ticks) = configured(SysconfVar::CLK_TCK) {
        let help = "CPU time of the daemon's process, user and system";
        count(registry, "process_cpu_seconds", help, stat.cpu_ticks as f64 / ticks);
        if let Some(boot) = boot_seconds(&read("/proc/stat")) {
            let help = "Start of the daemon's process, in seconds since the Unix epoch";
            set(registry, "process_start_time_seconds", help, boot as f64 + stat.started_ticks as f64 / ticks);
        }
    }
    if let Some(page) = configured(SysconfVar::PAGE_SIZE) {
        let help = "Resident memory of the daemon's process";
        set(registry, "process_resident_memory_bytes", help, stat.resident_pages as f64 * page);
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Stat {
    cpu_ticks: u64,
    started_ticks: u64,
    resident_pages: u64,
}

impl Stat {
    /// Parses `/proc/PID/stat`. Fields are counted after the name, which may contain spaces and parentheses.
    fn parse(text: &str) -> Option<Self> {
        let (_, behind_name) = text.rsplit_once(')')?;
        let fields: Vec<&str> = behind_name.split_ascii_whitespace().collect();
        // The manual numbers fields from 1, and the first field after the name is the third.
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        Some(Self { cpu_ticks: field(14)? + field(15)?, started_ticks: field(22)?, resident_pages: field(24)? })
    }
}

/// Time at which the machine started, in seconds since the Unix epoch, from `/proc/stat`.
fn boot_seconds(stat: &str) -> Option<u64> {
    stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_names_with_parentheses_are_skipped() {
        let text =
            "7 (a) (b c) S 1 7 7 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 1 0 12345 1000000 77 18446744073709551615";
        assert_eq!(Stat::parse(text), Some(Stat { cpu_ticks: 300, started_ticks: 12_345, resident_pages: 77 }));
        assert_eq!((Stat::parse("7 (a) S 1"), Stat::parse("")), (None, None));
    }

    #[test]
    fn own_process_has_all_figures() {
        let mut registry = Registry::default();
        register_process(&mut registry);
        let text = crate::Format::Text.encode(&[&registry]);
        for name in ["process_cpu_seconds_total ", "process_start_time_seconds ", "process_resident_memory_bytes "] {
            assert!(text.lines().any(|line| line.starts_with(name)), "{text}");
        }
    }
}
