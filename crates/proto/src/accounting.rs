//! What ended jobs held and used: sums over a period, and the list of ended jobs.

use hostler_model::{JobState, PartitionName, WallTime};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::api::JobSummary;
use crate::power::Cost;

/// What a job held and used on all its nodes, over all its runs, requeued runs included. Each field is a sum.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Consumption {
    /// Held CPUs times the time for which they were held, in milliseconds.
    pub cpu_held_ms: u64,
    /// CPU time that processes used, in milliseconds.
    pub cpu_used_ms: u64,
    /// Held GPUs times the time for which they were held, in milliseconds.
    pub gpu_held_ms: u64,
    /// Held memory in MiB, times the time for which it was held, in milliseconds.
    pub memory_held_mib_ms: u64,
    /// Peak memory of each run in MiB, times the duration of the run in milliseconds.
    pub memory_used_mib_ms: u64,
    /// Share of the job in the energy of its nodes, in microjoules.
    pub energy_uj: u64,
}

impl Consumption {
    /// Adds the fields; sums saturate.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            cpu_held_ms: self.cpu_held_ms.saturating_add(other.cpu_held_ms),
            cpu_used_ms: self.cpu_used_ms.saturating_add(other.cpu_used_ms),
            gpu_held_ms: self.gpu_held_ms.saturating_add(other.gpu_held_ms),
            memory_held_mib_ms: self.memory_held_mib_ms.saturating_add(other.memory_held_mib_ms),
            memory_used_mib_ms: self.memory_used_mib_ms.saturating_add(other.memory_used_mib_ms),
            energy_uj: self.energy_uj.saturating_add(other.energy_uj),
        }
    }
}

impl Consumption {
    /// Subtracts the fields of a part of these sums.
    #[must_use]
    pub const fn minus(self, part: Self) -> Self {
        Self {
            cpu_held_ms: self.cpu_held_ms.saturating_sub(part.cpu_held_ms),
            cpu_used_ms: self.cpu_used_ms.saturating_sub(part.cpu_used_ms),
            gpu_held_ms: self.gpu_held_ms.saturating_sub(part.gpu_held_ms),
            memory_held_mib_ms: self.memory_held_mib_ms.saturating_sub(part.memory_held_mib_ms),
            memory_used_mib_ms: self.memory_used_mib_ms.saturating_sub(part.memory_used_mib_ms),
            energy_uj: self.energy_uj.saturating_sub(part.energy_uj),
        }
    }
}

/// What a job held and used, in the state and in the store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobUse {
    /// The sums over all runs. `energy_uj` is zero; the job has the energy in another field.
    pub sums: Consumption,
    /// The largest memory of a run on one node, in bytes.
    pub peak_memory_bytes: u64,
}

/// By what [`AccountingPage`] groups jobs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum GroupBy {
    /// By user.
    #[default]
    User,
    /// By partition.
    Partition,
    /// By name of the job.
    Name,
    /// By day.
    Day,
}

/// Answer of `GET /accounting`: jobs that ended in a period.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AccountingPage {
    /// First day of the period, as `YYYY-MM-DD` in UTC.
    pub from: String,
    /// Last day of the period.
    pub to: String,
    /// User whose jobs are counted; absent for all users.
    pub user: Option<String>,
    /// By what the groups are formed.
    pub by: GroupBy,
    /// Groups with the most core time first; with `by=day`, in the order of days. At most 200, or 366 days.
    pub groups: Vec<AccountingGroup>,
    /// Sum of all jobs in the period, also of groups that are not listed.
    pub total: AccountingGroup,
}

/// Jobs that ended in a period: all jobs of a user, partition, name or day.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AccountingGroup {
    /// The user, partition, name or day. Empty for jobs without a partition, for names beyond the first hundred of a
    /// user and day, and in the total.
    pub key: String,
    /// Number of jobs.
    pub jobs: u64,
    /// Number of jobs with each ending.
    pub endings: JobEndings,
    /// Time for which the jobs held CPUs, times the number of CPUs, in hours.
    pub core_hours: f64,
    /// Time for which the jobs held GPUs, times the number of GPUs, in hours.
    pub gpu_hours: f64,
    /// Share of the jobs in the energy of their nodes, in watt-hours. Estimated where a node has no meter; zero for
    /// nodes whose power the head does not manage.
    pub watt_hours: f64,
    /// Cost of `watt_hours`, at the present price in the head's `power.toml`; absent without a price.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<Cost>,
    /// CPU time that processes used, divided by the CPU time that the jobs held; absent if they held none.
    pub cpu_efficiency: Option<f64>,
    /// Peak memory of the runs, divided by their requested memory, weighted by requested memory and time; absent if the
    /// jobs held none.
    pub memory_efficiency: Option<f64>,
}

/// Number of jobs with each ending.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JobEndings {
    /// Exit code 0.
    pub completed: u64,
    /// Another exit code, or no start.
    pub failed: u64,
    /// Cancelled by a user.
    pub cancelled: u64,
    /// Ended at the time limit.
    pub timeout: u64,
    /// Ended at the memory limit.
    pub out_of_memory: u64,
    /// Lost with a node.
    pub node_fail: u64,
    /// Displaced by another job.
    pub preempted: u64,
}

impl JobEndings {
    /// The ended states in the order of [`Self::counts`].
    pub const STATES: [JobState; 7] = JobState::ENDED;

    /// Creates the counts of the states in the order of [`Self::STATES`].
    #[must_use]
    pub const fn new([completed, failed, cancelled, timeout, out_of_memory, node_fail, preempted]: [u64; 7]) -> Self {
        Self { completed, failed, cancelled, timeout, out_of_memory, node_fail, preempted }
    }

    /// Returns the counts in the order of [`Self::STATES`].
    #[must_use]
    pub const fn counts(self) -> [u64; 7] {
        let Self { completed, failed, cancelled, timeout, out_of_memory, node_fail, preempted } = self;
        [completed, failed, cancelled, timeout, out_of_memory, node_fail, preempted]
    }
}

/// Answer of `GET /history`: a page of ended jobs, the latest end first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct HistoryPage {
    /// Ended jobs. A page can be short although there are more, because the head limits the work for one page.
    pub jobs: Vec<EndedJobView>,
    /// Value of the query parameter `before` for the next page; absent on the last page.
    pub next: Option<String>,
}

/// An ended job, in [`HistoryPage`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct EndedJobView {
    /// The fields that the list of jobs also has.
    #[serde(flatten)]
    pub summary: JobSummary,
    /// Time for which the job held CPUs, times the number of CPUs, in hours.
    pub core_hours: f64,
    /// Time for which the job held GPUs, times the number of GPUs, in hours.
    pub gpu_hours: f64,
    /// Share of the job in the energy of its nodes, in watt-hours; absent if no node has a meter.
    pub watt_hours: Option<f64>,
    /// CPU time that processes used, divided by the CPU time that the job held; absent if it held none.
    pub cpu_efficiency: Option<f64>,
    /// Largest memory of a task on one node, in bytes; absent if no task ran.
    pub peak_memory_bytes: Option<u64>,
    /// What to request next time, as a sentence; absent if the job used what it requested.
    pub suggestion: Option<String>,
}

/// What the store keeps about an ended job for sums and lists.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EndedUse {
    /// Name of the job.
    pub name: String,
    /// Partition of the job.
    pub partition: Option<PartitionName>,
    /// When the job ended.
    pub ended_at: WallTime,
    /// What the job held and used.
    pub sums: Consumption,
}
