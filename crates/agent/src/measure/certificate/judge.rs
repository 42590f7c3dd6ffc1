//! From two readings of a machine to a certificate. Pure.
//!
//! The kernel counts the time of all processes in ticks of usually ten milliseconds, but the time of the run's processes
//! exactly. The difference is therefore meaningful only over many ticks.

use hostler_proto::certificate::{
    Certificate, MeasuredMachine, MeasuredOthers, MeasuredRun, Probe, ProcessorState, Verdict, Waited,
};
use serde::{Deserialize, Serialize};

use super::parse::Stat;

/// Shortest time over which the CPU time of other processes means anything.
const SHORTEST_US: u64 = 100_000;

/// Less CPU time of other processes, or of the hypervisor, may be an error of the counters and does not count.
const COUNTER_ERROR_US: u64 = 50_000;

/// Values up to which a node counts as quiet: the table `measurement` of `agent.toml`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NoiseLimits {
    /// CPU time of other processes, in thousandths of one CPU.
    pub others_millicpus: u32,
    /// CPU time that the hypervisor took, in thousandths of the machine's CPU time in use.
    pub steal_permille: u32,
    /// Time in which a probe was interrupted, in thousandths.
    pub gap_permille: u32,
    /// Longest interruption of a probe, in microseconds.
    pub gap_us: u32,
    /// Time in which a process of the run waited for memory, in thousandths.
    pub memory_wait_permille: u32,
}

impl Default for NoiseLimits {
    fn default() -> Self {
        Self { others_millicpus: 50, steal_permille: 10, gap_permille: 30, gap_us: 1_000, memory_wait_permille: 10 }
    }
}

impl NoiseLimits {
    /// Whether something interrupted the probe no more than on a quiet node.
    pub(super) fn allow(&self, probe: &Probe) -> bool {
        let duration_ns = u128::from(probe.duration_us) * 1000;
        let is_much = u128::from(probe.gaps_ns) * 1000 > duration_ns * u128::from(self.gap_permille);
        let is_long = probe.longest_ns > u64::from(self.gap_us) * 1000;
        !is_much && !is_long
    }
}

/// Counters of the machine and of the run's cgroup at one time.
#[derive(Debug, Clone, Default)]
pub(super) struct Reading {
    pub(super) stat: Option<Stat>,
    /// On the whole machine.
    pub(super) waited: Waited,
    pub(super) swapped_pages: Option<u64>,
    pub(super) throttles: Option<u64>,
}

/// Completes the certificate of a run. `run` has the figures of the run's own processes.
pub(super) fn certificate(
    machine: MeasuredMachine,
    run: MeasuredRun,
    [before, after]: [(Reading, ProcessorState); 2],
    limits: &NoiseLimits,
) -> Certificate {
    let others = others(&before.0, &after.0, run.cpu_us);
    let busy_us = before.0.stat.zip(after.0.stat).map(|(before, after)| after.busy_us.saturating_sub(before.busy_us));
    let mut made = Certificate { machine, run, others, before: before.1, after: after.1, ..Certificate::default() };
    made.unknown = unknown(&made);
    made.reasons = reasons(&made, busy_us.unwrap_or(0), limits);
    let has_figures = made.others.cpu_us.is_some() || made.before.probe.is_some();
    made.verdict = match (made.reasons.is_empty(), has_figures) {
        (false, _) => Verdict::Noisy,
        (true, true) => Verdict::Quiet,
        (true, false) => {
            made.reasons.push("this machine tells nothing about other processes".to_owned());
            Verdict::Unknown
        }
    };
    made
}

/// Activity of everything except the run between two readings.
fn others(before: &Reading, after: &Reading, run_us: u64) -> MeasuredOthers {
    let since = |before: Option<u64>, after: Option<u64>| Some(after?.saturating_sub(before?));
    let stat = |of: fn(&Stat) -> u64| since(before.stat.as_ref().map(of), after.stat.as_ref().map(of));
    MeasuredOthers {
        cpu_us: stat(|it| it.busy_us).map(|busy| busy.saturating_sub(run_us)),
        steal_us: stat(|it| it.steal_us),
        iowait_us: stat(|it| it.iowait_us),
        context_switches: stat(|it| it.context_switches),
        interrupts: stat(|it| it.interrupts),
        waited: Waited {
            cpu_us: since(before.waited.cpu_us, after.waited.cpu_us),
            memory_us: since(before.waited.memory_us, after.waited.memory_us),
            io_us: since(before.waited.io_us, after.waited.io_us),
        },
        swapped_pages: since(before.swapped_pages, after.swapped_pages),
        throttles: since(before.throttles, after.throttles),
    }
}

/// Names the figures that are missing.
fn unknown(made: &Certificate) -> Vec<String> {
    let Certificate { machine, run, others, before, after, .. } = made;
    let has = |name: &'static str, is_known: bool| (!is_known).then_some(name);
    let missing = [
        has("model of the processors", machine.cpu_model.is_some()),
        has("microcode", machine.microcode.is_some()),
        has("kernel", machine.kernel.is_some()),
        has("frequency governor", machine.governor.is_some()),
        has("frequency boost", machine.boost.is_some()),
        has("multithreading", machine.smt.is_some()),
        has("frequencies", before.highest_khz.is_some() && after.highest_khz.is_some()),
        has("temperature", before.temperature_mc.is_some() && after.temperature_mc.is_some()),
        has("throttling of the processors", others.throttles.is_some()),
        has("CPU time of other processes", others.cpu_us.is_some()),
        has("interruptions", before.probe.is_some() && after.probe.is_some()),
        has("context switches and page faults", run.minor_faults.is_some()),
        has("waiting times of the run", run.waited.memory_us.is_some()),
        has("waiting times of the machine", others.waited.memory_us.is_some()),
        has("swapping", others.swapped_pages.is_some()),
    ];
    let mut missing: Vec<String> = missing.into_iter().flatten().map(str::to_owned).collect();
    if run.wall_us < SHORTEST_US && others.cpu_us.is_some() {
        missing.push("share of other processes: the run was shorter than 100 ms".to_owned());
    }
    missing
}

/// What exceeds the limits. `busy_us` is the CPU time in use on the whole machine.
fn reasons(made: &Certificate, busy_us: u64, limits: &NoiseLimits) -> Vec<String> {
    let Certificate { run, others, before, after, .. } = made;
    let is_long = run.wall_us >= SHORTEST_US;
    let mut reasons = Vec::new();
    let exceeds = |part_us: u64, whole_us: u64, thousandths: u32| {
        u128::from(part_us) * 1000 > u128::from(whole_us) * u128::from(thousandths)
    };
    if let Some(others_us) = others.cpu_us
        && is_long
        && others_us > COUNTER_ERROR_US
        && exceeds(others_us, run.wall_us, limits.others_millicpus)
    {
        reasons.push(format!("other processes used {} CPUs", decimal(others_us, run.wall_us)));
    }
    if let Some(steal_us) = others.steal_us
        && is_long
        && steal_us > COUNTER_ERROR_US
        && exceeds(steal_us, busy_us.saturating_add(steal_us), limits.steal_permille)
    {
        let share = percent(steal_us, busy_us.saturating_add(steal_us));
        reasons.push(format!("the hypervisor took {share} of the CPU time"));
    }
    for (when, state) in [("before", before), ("after", after)] {
        reasons.extend(state.probe.and_then(|probe| interrupted(&probe, when, limits)));
    }
    if let Some(throttles) = others.throttles.filter(|&count| count > 0) {
        reasons.push(format!("the processors slowed down {throttles} times because of heat or power"));
    }
    if let Some(stops) = run.quota_stops.filter(|&count| count > 0) {
        reasons.push(format!("a CPU quota stopped the job {stops} times"));
    }
    if let Some(pages) = others.swapped_pages.filter(|&count| count > 0) {
        reasons.push(format!("the machine swapped {pages} pages"));
    }
    if let Some(waited_us) = run.waited.memory_us
        && is_long
        && exceeds(waited_us, run.wall_us, limits.memory_wait_permille)
    {
        reasons.push(format!("the job waited for memory for {} of the time", percent(waited_us, run.wall_us)));
    }
    reasons
}

/// Says that a probe was interrupted too much; `None` if it was not.
fn interrupted(probe: &Probe, when: &str, limits: &NoiseLimits) -> Option<String> {
    (!limits.allow(probe)).then(|| {
        let share = percent(probe.gaps_ns, probe.duration_us.saturating_mul(1000));
        let longest = probe.longest_ns as f64 / 1e6;
        format!("{when} the run, a probe was interrupted for {share} of the time ({longest:.1} ms at once)")
    })
}

/// A quotient with two significant digits or one decimal place.
fn decimal(part: u64, whole: u64) -> String {
    let value = part as f64 / whole.max(1) as f64;
    if value < 0.095 { format!("{value:.2}") } else { format!("{value:.1}") }
}

fn percent(part: u64, whole: u64) -> String {
    format!("{:.1} %", part as f64 * 100.0 / whole.max(1) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;

    fn at(busy_us: u64, steal_us: u64) -> Reading {
        let stat = Stat { busy_us, steal_us, iowait_us: 7, context_switches: busy_us / 1000, interrupts: 3 };
        let waited = Waited { cpu_us: Some(1), memory_us: Some(2), io_us: Some(3) };
        Reading { stat: Some(stat), waited, swapped_pages: Some(5), throttles: None }
    }

    fn state(gaps_ns: u64, longest_ns: u64) -> ProcessorState {
        let probe = Probe { cpu: 0, duration_us: 50_000, gaps: 9, gaps_ns, longest_ns };
        ProcessorState { probe: Some(probe), ..ProcessorState::default() }
    }

    fn run(wall_us: u64, cpu_us: u64) -> MeasuredRun {
        let waited = Waited { cpu_us: Some(900_000), memory_us: Some(0), io_us: Some(0) };
        MeasuredRun { wall_us, cpu_us, minor_faults: Some(1), waited, ..MeasuredRun::default() }
    }

    /// A run of two seconds on one CPU, while everything else used `others_us`.
    fn judged(others_us: u64, steal_us: u64) -> Certificate {
        let before = (at(40 * SECOND, 9 * SECOND), state(50_000, 8_000));
        let after = (at(42 * SECOND + others_us, 9 * SECOND + steal_us), state(60_000, 9_000));
        let run = run(2 * SECOND, 2 * SECOND);
        certificate(MeasuredMachine::default(), run, [before, after], &NoiseLimits::default())
    }

    #[test]
    fn undisturbed_run_is_quiet_and_lists_what_is_unknown() {
        let made = judged(20_000, 0);
        assert_eq!((made.verdict, made.in_words()), (Verdict::Quiet, "quiet".to_owned()));
        assert_eq!((made.others.cpu_us, made.others.steal_us), (Some(20_000), Some(0)));
        assert_eq!(made.others.context_switches, Some(2_020));
        for name in ["frequencies", "temperature", "throttling of the processors", "microcode"] {
            assert!(made.unknown.iter().any(|it| it == name), "{name} is not listed: {:?}", made.unknown);
        }
        assert!(!made.unknown.iter().any(|it| it.contains("interruptions") || it.contains("swapping")));
    }

    #[test]
    fn other_processes_are_named_with_their_share() {
        assert_eq!(judged(3_600_000, 0).in_words(), "noisy: other processes used 1.8 CPUs");
        assert_eq!(judged(140_000, 0).in_words(), "noisy: other processes used 0.07 CPUs");
        assert_eq!(judged(90_000, 0).verdict, Verdict::Quiet, "less than a twentieth of a CPU");
    }

    #[test]
    fn hypervisor_is_named_with_its_share() {
        assert_eq!(judged(0, 100_000).in_words(), "noisy: the hypervisor took 4.8 % of the CPU time");
        assert_eq!(judged(0, 40_000).verdict, Verdict::Quiet, "within the error of the counters");
    }

    #[test]
    fn interrupted_probe_is_named() {
        let quiet = (at(40 * SECOND, 0), state(1000, 900));
        let limits = NoiseLimits::default();
        let judge = |before: ProcessorState, after: ProcessorState| {
            let readings = [(quiet.0.clone(), before), (at(41 * SECOND, 0), after)];
            certificate(MeasuredMachine::default(), run(SECOND, SECOND), readings, &limits)
        };
        let often = judge(state(4_000_000, 100_000), state(0, 0)).in_words();
        assert_eq!(often, "noisy: before the run, a probe was interrupted for 8.0 % of the time (0.1 ms at once)");
        let long = judge(state(0, 0), state(400_000, 2_100_000)).in_words();
        assert!(long.contains("after the run") && long.contains("(2.1 ms at once)"), "{long}");
    }

    #[test]
    fn throttling_swapping_quota_and_memory_pressure_are_named() {
        let mut after = at(40 * SECOND + SECOND, 0);
        (after.swapped_pages, after.throttles) = (Some(12), Some(4));
        let before = Reading { throttles: Some(1), ..at(40 * SECOND, 0) };
        let mut run = run(SECOND, SECOND);
        (run.quota_stops, run.waited.memory_us) = (Some(2), Some(50_000));
        let readings = [(before, state(0, 0)), (after, state(0, 0))];
        let made = certificate(MeasuredMachine::default(), run, readings, &NoiseLimits::default());
        let expected = [
            "the processors slowed down 3 times because of heat or power",
            "a CPU quota stopped the job 2 times",
            "the machine swapped 7 pages",
            "the job waited for memory for 5.0 % of the time",
        ];
        assert_eq!(made.reasons, expected);
    }

    #[test]
    fn short_run_is_not_judged_by_coarse_counters() {
        let readings = [(at(40 * SECOND, 0), state(0, 0)), (at(40 * SECOND + 80_000, 0), state(0, 0))];
        let made = certificate(MeasuredMachine::default(), run(20_000, 10_000), readings, &NoiseLimits::default());
        assert_eq!(made.verdict, Verdict::Quiet);
        assert!(made.unknown.iter().any(|it| it.contains("shorter than 100 ms")), "{:?}", made.unknown);
    }

    #[test]
    fn machine_that_tells_nothing_has_no_verdict() {
        let nothing = (Reading::default(), ProcessorState::default());
        let readings = [nothing.clone(), nothing];
        let made = certificate(MeasuredMachine::default(), run(SECOND, 1), readings, &NoiseLimits::default());
        assert_eq!(made.verdict, Verdict::Unknown);
        assert!(made.in_words().starts_with("unknown: this machine tells nothing"), "{}", made.in_words());
    }

    #[test]
    fn limits_of_the_settings_apply() {
        let limits = NoiseLimits { others_millicpus: 2_000, ..NoiseLimits::default() };
        let readings = [(at(40 * SECOND, 0), state(0, 0)), (at(42 * SECOND, 0), state(0, 0))];
        let made = certificate(MeasuredMachine::default(), run(SECOND, SECOND), readings, &limits);
        assert_eq!(made.verdict, Verdict::Quiet, "{:?}", made.reasons);
    }
}
