//! Records of the steps of jobs; part of [`crate::link`].

use hostler_model::{NodeName, WallTime};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The number of the record of a job's script.
pub const SCRIPT_STEP: u32 = u32::MAX - 4;

/// A step of a job: what `hostler step` or `srun` started on its nodes. The job's own programs write it, so only the job's user
/// may rely on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StepRecord {
    /// Number of the step within the job; 4294967291 for what the job's script used itself. A job that started no steps has
    /// no record of its script.
    pub step: u32,
    /// Name of the step's program.
    pub name: String,
    /// The nodes of the step.
    pub nodes: Vec<NodeName>,
    /// Number of the step's processes.
    pub tasks: u32,
    /// CPUs that the step held on all nodes; zero if it overlapped with other steps.
    pub cpus: u32,
    /// Time of the start.
    pub started_at: WallTime,
    /// Time of the end; absent while the step runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<WallTime>,
    /// The largest exit code of the step's processes; absent while it runs, and if its caller was lost.
    #[serde(default)]
    pub exit_code: Option<i32>,
    /// CPU time of the processes that have ended, in milliseconds.
    #[serde(default)]
    pub cpu_ms: u64,
    /// The part of `cpu_ms` that the kernel needed, in milliseconds.
    #[serde(default)]
    pub system_ms: u64,
    /// Peak memory of the largest process, in bytes.
    #[serde(default)]
    pub peak_memory_bytes: Option<u64>,
}

impl StepRecord {
    /// Whether this is what the job's script used itself.
    #[must_use]
    pub const fn is_script(&self) -> bool {
        self.step == SCRIPT_STEP
    }
}
