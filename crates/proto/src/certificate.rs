//! The measurement certificate: whether a node was quiet while an exclusive job ran.
//!
//! The agent of the node makes it. A figure that the machine does not tell is absent, and [`Certificate::unknown`] names it.

use std::collections::BTreeSet;

use hostler_model::CpuSet;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What disturbed a run of an exclusive job on one node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Certificate {
    /// Whether the node was quiet.
    pub verdict: Verdict,
    /// What disturbed the run, or why the verdict is unknown; empty for a quiet node.
    #[serde(default)]
    pub reasons: Vec<String>,
    /// Figures that this machine does not tell, or that were not measured.
    #[serde(default)]
    pub unknown: Vec<String>,
    /// The machine.
    #[serde(default)]
    pub machine: MeasuredMachine,
    /// The run itself.
    #[serde(default)]
    pub run: MeasuredRun,
    /// Everything else on the machine, while the run lasted.
    #[serde(default)]
    pub others: MeasuredOthers,
    /// The processors just before the run.
    #[serde(default)]
    pub before: ProcessorState,
    /// The processors just after the run.
    #[serde(default)]
    pub after: ProcessorState,
    /// What was changed on the machine while the run lasted; absent if the job did not ask for a quiet machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<QuietMachine>)]
    pub quiet_machine: Option<Box<QuietMachine>>,
}

/// Settings of a machine that were changed while a run lasted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct QuietMachine {
    /// The changed settings.
    #[serde(default)]
    pub changes: Vec<MachineChange>,
    /// Settings that the machine does not have or refuses to change.
    #[serde(default)]
    pub not_offered: Vec<KnobProblem>,
    /// Settings that are not as they were before the run.
    #[serde(default)]
    pub not_restored: Vec<KnobProblem>,
}

/// A changed setting, or several of the same kind.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MachineChange {
    /// Name of the group of settings in the node's `agent.toml`.
    pub knob: String,
    /// The setting's file; for several files, a pattern with `*`.
    pub path: String,
    /// Number of files.
    pub files: u32,
    /// Value before the run, and after it unless it is in `not_restored`; `various` stands for several.
    pub before: String,
    /// Value while the run lasted.
    pub during: String,
}

/// Why a setting, or several of the same kind, could not be changed or restored.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KnobProblem {
    /// Name of the group of settings in the node's `agent.toml`.
    pub knob: String,
    /// The setting's file; for several files, a pattern with `*`; absent if all files of the group are meant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Number of files; 0 if all files of the group are meant.
    #[serde(default)]
    pub files: u32,
    /// The reason.
    pub why: String,
}

impl QuietMachine {
    /// Returns what was changed in a few words, such as `changed governor; partly: interrupts; not offered: boost`.
    #[must_use]
    pub fn in_words(&self) -> String {
        let names = |all: &[KnobProblem]| all.iter().map(|it| it.knob.clone()).collect::<BTreeSet<_>>();
        let changed: BTreeSet<_> = self.changes.iter().map(|it| it.knob.clone()).collect();
        let refused = names(&self.not_offered);
        let parts = [
            ("changed", &changed - &refused),
            ("partly:", &changed & &refused),
            ("not offered:", &refused - &changed),
            ("not restored:", names(&self.not_restored)),
        ];
        let some = parts.into_iter().filter(|(_, names)| !names.is_empty());
        let words = some.map(|(what, names)| format!("{what} {}", names.into_iter().collect::<Vec<_>>().join(", ")));
        let nothing = changed.is_empty().then(|| "changed nothing".to_owned());
        nothing.into_iter().chain(words).collect::<Vec<_>>().join("; ")
    }
}

/// Whether a node was quiet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Nothing exceeded the node's thresholds.
    Quiet,
    /// Something exceeded a threshold.
    Noisy,
    /// Nothing was measured, or too little.
    #[default]
    Unknown,
}

impl Verdict {
    /// Returns the verdict's name in JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Quiet => "quiet",
            Self::Noisy => "noisy",
            Self::Unknown => "unknown",
        }
    }
}

/// The machine of a certificate.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MeasuredMachine {
    /// Model of the processors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_model: Option<String>,
    /// Version of the processors' microcode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub microcode: Option<String>,
    /// Release of the kernel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    /// Whether the machine is virtual, as far as its processors say.
    #[serde(default)]
    pub is_virtual: bool,
    /// Whether other nodes of the cluster run on the machine.
    #[serde(default)]
    pub is_shared: bool,
    /// Number of the node's logical CPUs.
    #[serde(default)]
    pub cpus: u32,
    /// Number of the node's cores.
    #[serde(default)]
    pub cores: u32,
    /// Number of the node's processor packages (sockets).
    #[serde(default)]
    pub packages: u32,
    /// Number of the node's NUMA nodes.
    #[serde(default)]
    pub numa_nodes: u32,
    /// Frequency governor of the first CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub governor: Option<String>,
    /// Whether the processors may exceed their nominal frequency.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boost: Option<bool>,
    /// State of simultaneous multithreading, e.g. `on`, `off` or `notsupported`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub smt: Option<String>,
}

/// Figures of the run. Times are microseconds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MeasuredRun {
    /// CPUs of the run.
    #[serde(default)]
    #[schema(value_type = String)]
    pub cpus: CpuSet,
    /// Time between the two readings of the machine's counters.
    #[serde(default)]
    pub wall_us: u64,
    /// CPU time of the run's processes.
    #[serde(default)]
    pub cpu_us: u64,
    /// Context switches because a process waited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub voluntary_switches: Option<u64>,
    /// Context switches because a process had to give up its CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub involuntary_switches: Option<u64>,
    /// Page faults that needed no disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minor_faults: Option<u64>,
    /// Page faults that needed a disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub major_faults: Option<u64>,
    /// Time in which a process of the run waited.
    #[serde(default)]
    pub waited: Waited,
    /// How often a CPU quota stopped the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota_stops: Option<u64>,
}

/// Figures of the machine while the run lasted. Times are microseconds, summed over all CPUs of the machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MeasuredOthers {
    /// CPU time of everything but the run: other processes and the kernel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_us: Option<u64>,
    /// Time that the hypervisor took from the machine's CPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steal_us: Option<u64>,
    /// Time in which CPUs were idle while a process waited for a disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iowait_us: Option<u64>,
    /// Context switches on the machine, those of the run included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_switches: Option<u64>,
    /// Interrupts on the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interrupts: Option<u64>,
    /// Time in which a process of the machine waited, those of the run included.
    #[serde(default)]
    pub waited: Waited,
    /// Pages that were moved to or from swap space.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub swapped_pages: Option<u64>,
    /// How often the processors slowed down because of heat or power.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throttles: Option<u64>,
}

/// Time in which at least one process waited, in microseconds (pressure stall information).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Waited {
    /// For a CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_us: Option<u64>,
    /// For memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_us: Option<u64>,
    /// For a disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub io_us: Option<u64>,
}

/// The processors at one time.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProcessorState {
    /// Lowest frequency of the run's CPUs, in kHz.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lowest_khz: Option<u64>,
    /// Highest frequency of the run's CPUs, in kHz.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub highest_khz: Option<u64>,
    /// Temperature of the hottest sensor, in thousandths of a degree Celsius.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature_mc: Option<i64>,
    /// The interruptions that a probe found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe: Option<Probe>,
}

/// Interruptions of a loop that does nothing but read the clock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Probe {
    /// CPU on which the loop ran.
    pub cpu: u32,
    /// Duration of the loop, in microseconds.
    pub duration_us: u64,
    /// Number of interruptions of at least five microseconds.
    pub gaps: u64,
    /// Sum of these interruptions, in nanoseconds.
    pub gaps_ns: u64,
    /// Longest interruption, in nanoseconds.
    pub longest_ns: u64,
}

impl Certificate {
    /// Creates a certificate without figures that says why there are none.
    #[must_use]
    pub fn without_figures(reason: impl Into<String>) -> Self {
        Self { reasons: vec![reason.into()], ..Self::default() }
    }

    /// Creates the certificate of a run whose figures are missing.
    #[must_use]
    pub fn of_restarted_agent() -> Self {
        Self::without_figures("the node's agent was restarted while the job ran, or could not store the figures")
    }

    /// Returns the certificate as one line, such as `noisy: other processes used 1.8 CPUs`.
    #[must_use]
    pub fn in_words(&self) -> String {
        let verdict = self.verdict.as_str();
        if self.reasons.is_empty() { verdict.to_owned() } else { format!("{verdict}: {}", self.reasons.join("; ")) }
    }

    /// Returns the largest size of the encoded certificate in bytes, about.
    #[must_use]
    pub fn encoded_size(&self) -> usize {
        const FIGURES: usize = 2048;
        const QUIET_MACHINE: usize = 8192;
        let quiet = self.quiet_machine.as_ref().map_or(0, |_| QUIET_MACHINE);
        let texts = self.reasons.iter().chain(&self.unknown).map(|text| text.len() + 16);
        FIGURES + quiet + texts.sum::<usize>()
    }
}
