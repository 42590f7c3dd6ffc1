//! A probe of interruptions: a loop that only reads the clock, so every gap between two readings is time that something
//! else had the CPU, as the kernel's tracer `osnoise` measures it.

use std::time::{Duration, Instant};

use hostler_proto::certificate::Probe;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

/// Duration of a probe: long enough to see a process that competes for the CPU, short enough to delay nobody.
const DURATION: Duration = Duration::from_millis(50);

/// Shortest gap that counts, as in `rtla osnoise`.
const SHORTEST: Duration = Duration::from_micros(5);

/// Maximum number of probes in a row. On a node that also runs the head, the work of a submission ends within fewer.
const MOST_PROBES: u32 = 5;

/// Probes a CPU until a probe is quiet enough, at most [`MOST_PROBES`] times, and returns that probe, or else the least
/// interrupted one. `None` if the agent may not use this CPU.
pub(super) fn quietest(cpu: u32, is_quiet: impl Fn(&Probe) -> bool) -> Option<Probe> {
    let mut noisy = Vec::new();
    for _ in 0..MOST_PROBES {
        let found = probe(cpu)?;
        if is_quiet(&found) {
            return Some(found);
        }
        noisy.push(found);
    }
    noisy.into_iter().min_by_key(|it| (it.gaps_ns, it.longest_ns))
}

/// Probes a CPU from a thread of its own. `None` if the agent may not use this CPU.
fn probe(cpu: u32) -> Option<Probe> {
    let on_cpu = move || {
        let mut only = CpuSet::new();
        only.set(cpu as usize).ok()?;
        sched_setaffinity(Pid::from_raw(0), &only).ok()?;
        Some(watch(cpu))
    };
    std::thread::Builder::new().name("probe".to_owned()).spawn(on_cpu).ok()?.join().ok()?
}

fn watch(cpu: u32) -> Probe {
    let nanos = |span: Duration| u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
    let mut probe = Probe { cpu, ..Probe::default() };
    let start = Instant::now();
    let mut last = start;
    loop {
        let now = Instant::now();
        let gap = now.duration_since(last);
        if gap >= SHORTEST {
            probe.gaps += 1;
            probe.gaps_ns += nanos(gap);
            probe.longest_ns = probe.longest_ns.max(nanos(gap));
        }
        last = now;
        if now.duration_since(start) >= DURATION {
            probe.duration_us = nanos(now.duration_since(start)) / 1000;
            return probe;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn probe_runs_on_a_cpu_of_this_process_only() {
        let allowed = nix::sched::sched_getaffinity(Pid::from_raw(0)).expect("the kernel tells a process its CPUs");
        let is_allowed = |cpu: &usize| allowed.is_set(*cpu).unwrap_or(false);
        let cpu = (0..CpuSet::count()).find(is_allowed).expect("a process has a CPU") as u32;
        let probe = probe(cpu).expect("this process may use the CPU");
        assert_eq!(probe.cpu, cpu);
        assert!(probe.duration_us >= 50_000 && probe.gaps_ns / 1000 <= probe.duration_us, "{probe:?}");
        assert!(probe.longest_ns <= probe.gaps_ns && (probe.gaps == 0) == (probe.gaps_ns == 0), "{probe:?}");
        assert_eq!(super::probe(u32::MAX), None, "there is no such CPU");
        let probes = Cell::new(0);
        let second_is_quiet = |_: &Probe| probes.replace(probes.get() + 1) == 1;
        assert!(quietest(cpu, second_is_quiet).is_some() && probes.get() == 2);
        probes.set(10);
        assert!(quietest(cpu, second_is_quiet).is_some() && probes.get() == 15, "it gives up");
    }
}
