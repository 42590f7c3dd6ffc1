//! Dry runs of submissions.

use hostler_model::{JobId, NodeName, PartitionName, Reason, Submission, WallTime};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Request body of `POST /dry-run`: asks what would happen to a job if it was submitted now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DryRunRequest {
    /// Specification of the job, as in a submission. The head need not have the project folder.
    pub spec: Submission,
}

/// The answer to [`DryRunRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DryRunView {
    /// The id that the job would get.
    pub id: JobId,
    /// Partition of the job; absent if it has none.
    pub partition: Option<PartitionName>,
    /// CPUs of the first task on all its nodes together. An exclusive task gets all CPUs of its nodes instead.
    pub cpus: u64,
    /// Nodes on which the first task would start, or which would be reserved for it. Empty if that is not known yet.
    pub nodes: Vec<NodeName>,
    /// Latest time at which the first task would start, based on the time limits of running jobs; absent if it is unknown.
    pub starts_at: Option<WallTime>,
    /// Why the job would wait; absent if it would start at once.
    pub reason: Option<Reason>,
}
