//! The steps that run: scripts of jobs, and what `srun` started.

use hostler_client::{Client, ClientError};
use hostler_model::{NodeName, TaskId, WallTime};
use hostler_proto::link::RunningStep;
use hostler_slurm::state::State;

use super::rows::Row;

/// The name of the step that runs a job's script.
pub(super) const BATCH: &str = "batch";

/// A step of a running task.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Step {
    /// Its number, or `batch`.
    pub(super) number: String,
    pub(super) name: String,
    pub(super) nodes: Vec<String>,
    pub(super) tasks: u32,
    pub(super) cpus: u32,
    pub(super) started_at: Option<WallTime>,
}

impl Step {
    fn of_script(row: &Row<'_>) -> Self {
        Self {
            number: BATCH.to_owned(),
            name: BATCH.to_owned(),
            nodes: row.nodes().first().map(|node| (*node).to_owned()).into_iter().collect(),
            tasks: 1,
            cpus: row.job.cpus,
            started_at: row.started_at(),
        }
    }

    fn launched(step: RunningStep) -> Self {
        Self {
            number: step.step.to_string(),
            name: step.name,
            nodes: step.nodes.iter().map(NodeName::to_string).collect(),
            tasks: step.tasks,
            // A step that overlaps holds none, but runs on some.
            cpus: step.cpus.max(step.tasks),
            started_at: Some(step.started_at),
        }
    }
}

/// The steps of a row, by number; the script is the last. Only the user of a job and operators see what a job has launched;
/// others see its script.
///
/// # Errors
/// See [`ClientError`]. If a node does not answer, its steps are left out without an error.
pub(super) async fn running(client: &Client, row: &Row<'_>) -> Result<Vec<Step>, ClientError> {
    let Some(index) = row.index().filter(|_| row.state() == State::Running) else { return Ok(Vec::new()) };
    let launched = match client.running_steps(TaskId { job: row.job.id, index }).await {
        Ok(steps) => steps,
        Err(error) if matches!(error.code(), Some("forbidden" | "node_unreachable" | "no_such_job")) => Vec::new(),
        Err(error) => return Err(error),
    };
    let script = (!row.job.allocation).then(|| Step::of_script(row));
    Ok(launched.into_iter().map(Step::launched).chain(script).collect())
}
