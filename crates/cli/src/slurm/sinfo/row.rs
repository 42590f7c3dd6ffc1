//! A row of `sinfo`: nodes of a partition, and how many of them and of their CPUs are in use.

use std::fmt;

use super::super::machines::{Machine, Part};

/// Nodes of a partition.
#[derive(Debug)]
pub(super) struct Row<'a> {
    pub(super) part: &'a Part,
    /// Position of the partition among all.
    pub(super) place: usize,
    pub(super) machines: Vec<&'a Machine>,
}

/// Numbers of nodes or CPUs: allocated, idle, others and all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) allocated: u64,
    pub(super) idle: u64,
    pub(super) other: u64,
}

impl Counts {
    pub(super) const fn total(self) -> u64 {
        self.allocated + self.idle + self.other
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}/{}", self.allocated, self.idle, self.other, self.total())
    }
}

impl Row<'_> {
    pub(super) fn node_counts(&self) -> Counts {
        let mut counts = Counts::default();
        for machine in &self.machines {
            let state = machine.state();
            match (state.is_busy(), state.is_out()) {
                (true, _) => counts.allocated += 1,
                (false, true) => counts.other += 1,
                (false, false) => counts.idle += 1,
            }
        }
        counts
    }

    pub(super) fn cpu_counts(&self) -> Counts {
        let mut counts = Counts::default();
        for machine in &self.machines {
            let (used, all) = (u64::from(machine.cpus_used()), u64::from(machine.view.cpus));
            counts.allocated += used;
            let free = all.saturating_sub(used);
            *(if machine.state().is_out() { &mut counts.other } else { &mut counts.idle }) += free;
        }
        counts
    }

    pub(super) fn state_number(&self) -> u32 {
        self.machines.first().map_or(0, |machine| machine.state().number())
    }
}
