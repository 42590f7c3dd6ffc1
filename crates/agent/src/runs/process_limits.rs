//! How many processes and threads the tasks and remote commands of a node may have.
//!
//! The kernel has a limited number of process ids for the whole machine, and a container or a service may have fewer. What
//! jobs could use up would be missing for the system, for the agent and for other jobs. So a reserve remains for the
//! system, and the rest is divided by CPUs: tasks on different CPUs cannot use up each other's share. That also holds for
//! several agents on one machine, since each counts its CPUs among those of the machine.
//!
//! A task or command gets at least [`LEAST`], also where its share is smaller. That cannot happen with the kernel's usual
//! 1024 process ids for each CPU, but in a container with a low limit. Then, with nodes of `hostler up` that share CPUs, and
//! with more than [`COMMANDS`] commands, the shares may exceed the whole. The limit of the group of all jobs holds anyway.

use std::fs;

use hostler_shepherd::cgroup::Tree;
use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::{Pid, SysconfVar, sysconf};

/// Maximum for one task or command: enough for any program that is not a mistake.
const MOST: u64 = 8192;

/// Minimum for one task or command: enough for a shell, an interpreter and their threads.
const LEAST: u64 = 64;

/// Maximum of what stays for the system.
const RESERVE: u64 = 4096;

/// Number of remote commands that may use their limit at the same time, for each set of CPUs.
const COMMANDS: u64 = 4;

/// A limit of the kernel, for all programs on these CPUs together.
#[derive(Debug, Clone, Copy)]
struct Ceiling {
    processes: u64,
    cpus: u64,
}

impl Ceiling {
    /// What all tasks and commands together may have.
    fn for_all(self) -> u64 {
        self.processes.saturating_sub(RESERVE.min(self.processes / 8)).max(1)
    }

    /// A third of that, since commands hold no CPUs.
    fn for_commands(self) -> u64 {
        self.for_all() / 3
    }

    fn share_of(self, cpus: u64, all: u64) -> u64 {
        u64::try_from(u128::from(all) * u128::from(cpus) / u128::from(self.cpus)).unwrap_or(MOST)
    }
}

/// The limits of a node.
#[derive(Debug)]
pub(crate) struct ProcessLimits {
    /// Number of the node's CPUs.
    cpus: u64,
    ceilings: Vec<Ceiling>,
}

impl ProcessLimits {
    /// Reads the limits of this machine and of the group in which the agent runs. `cpus`: number of the node's CPUs.
    pub(crate) fn of_this_machine(cpus: u32, cgroups: Option<&Tree>) -> Self {
        let number = |name: &str| {
            fs::read_to_string(format!("/proc/sys/kernel/{name}")).ok().and_then(|text| text.trim().parse().ok())
        };
        let online = sysconf(SysconfVar::_NPROCESSORS_ONLN).ok().flatten().and_then(|count| u64::try_from(count).ok());
        let usable = sched_getaffinity(Pid::from_raw(0))
            .ok()
            .map(|own| (0..CpuSet::count()).filter(|cpu| own.is_set(*cpu).unwrap_or_default()).count() as u64);
        // The kernel's defaults, if they cannot be read.
        let of_machine = number("pid_max").unwrap_or(32768_u64).min(number("threads-max").unwrap_or(u64::MAX));
        let of_group = cgroups.and_then(Tree::process_limit_above);
        Self::new(cpus.into(), (of_machine, online.unwrap_or(1)), of_group.map(|most| (most, usable.unwrap_or(1))))
    }

    fn new(cpus: u64, of_machine: (u64, u64), of_group: Option<(u64, u64)>) -> Self {
        let ceiling = |(processes, its_cpus): (u64, u64)| Ceiling { processes, cpus: its_cpus.max(cpus).max(1) };
        Self { cpus, ceilings: [Some(of_machine), of_group].into_iter().flatten().map(ceiling).collect() }
    }

    /// The limit of a task with this number of CPUs, and of each build of its environment.
    pub(crate) fn of_task(&self, cpus: u32) -> u64 {
        self.limit(|ceiling| ceiling.share_of(u64::from(cpus).max(1), ceiling.for_all() - ceiling.for_commands()))
    }

    /// The limit of a remote command.
    pub(crate) fn of_command(&self) -> u64 {
        self.limit(|ceiling| ceiling.share_of(self.cpus, ceiling.for_commands()) / COMMANDS)
    }

    /// The limit of everything that agents on this machine start.
    pub(crate) fn of_all(&self) -> u64 {
        self.ceilings.iter().map(|ceiling| ceiling.for_all()).min().unwrap_or(MOST)
    }

    fn limit(&self, share: impl Fn(Ceiling) -> u64) -> u64 {
        self.ceilings.iter().map(|ceiling| share(*ceiling)).min().unwrap_or(MOST).clamp(LEAST, MOST)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The kernel's own number of process ids for each CPU. It has never fewer than 32768.
    const USUAL_FOR_EACH_CPU: u64 = 1024;

    proptest! {
        #[test]
        fn limits_of_all_tasks_and_commands_of_a_machine_fit(
            // The CPUs of each task, by node.
            nodes in prop::collection::vec(prop::collection::vec(1_u32..40, 1..8), 1..8),
            idle in 0_u64..64,
            more in 0_u64..5_000_000,
        ) {
            let cpus_of = |tasks: &[u32]| tasks.iter().map(|cpus| u64::from(*cpus)).sum::<u64>();
            let cpus = nodes.iter().map(|tasks| cpus_of(tasks)).sum::<u64>() + idle;
            let processes = (USUAL_FOR_EACH_CPU * cpus).max(32768) + more;
            let mut sum = 0;
            for tasks in &nodes {
                let limits = ProcessLimits::new(cpus_of(tasks), (processes, cpus), None);
                let all = tasks.iter().map(|cpus| limits.of_task(*cpus)).chain([limits.of_command(); 4]);
                for limit in all {
                    prop_assert!((64..=8192).contains(&limit), "{limit}");
                    sum += limit;
                }
                prop_assert!(limits.of_all() + 4096 <= processes);
                prop_assert!(sum <= limits.of_all(), "{sum} of {}", limits.of_all());
            }
        }

        #[test]
        fn all_jobs_together_leave_something_to_the_system(processes in 8_u64..10_000_000, group in 8_u64..10_000_000, cpus in 0_u64..1000) {
            let limits = ProcessLimits::new(cpus, (processes, 64), Some((group, 2)));
            let least = processes.min(group);
            prop_assert!(limits.of_all() < least && limits.of_all() >= least - least / 8);
        }
    }

    #[test]
    fn limits_follow_the_machine_and_the_group() {
        let small = ProcessLimits::new(2, (32768, 2), None);
        assert_eq!((small.of_task(1), small.of_task(2), small.of_command(), small.of_all()), (8192, 8192, 2389, 28672));
        let many_cpus = ProcessLimits::new(32, (32768, 32), None);
        assert_eq!((many_cpus.of_task(1), many_cpus.of_task(4), many_cpus.of_task(32)), (597, 2389, 8192));
        // A container with two of the CPUs.
        let container = ProcessLimits::new(2, (4_194_304, 128), Some((1024, 2)));
        assert_eq!((container.of_task(1), container.of_command(), container.of_all()), (299, 74, 896));
        let tight = ProcessLimits::new(64, (4_194_304, 64), Some((512, 64)));
        assert_eq!((tight.of_task(1), tight.of_command(), tight.of_all()), (64, 64, 448), "the least is enough to run");
        // A virtual node with more CPUs than its machine.
        assert_eq!(ProcessLimits::new(64, (32768, 2), None).of_task(64), 8192);
    }
}
