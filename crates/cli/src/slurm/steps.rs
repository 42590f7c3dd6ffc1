//! The steps of running tasks: scripts of jobs, and what `srun` started.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use hostler_client::{Client, ClientError};
use hostler_model::{NodeName, TaskId, WallTime};
use hostler_proto::link::StepRecord;
use hostler_slurm::state::State;

use super::rows::Row;

/// The name of the step that runs a job's script.
pub(super) const BATCH: &str = "batch";

/// What a command that lists steps could not do, in its errors.
pub(super) const LOAD: &str = "slurm_get_job_steps";

/// The number of running tasks whose steps [`launched_by`] requests. Programs call `sacct` often, for hundreds of jobs.
const MAX_TASKS: usize = 100;

/// How long a node may take to answer [`launched_by`].
const PATIENCE: Duration = Duration::from_secs(2);

/// After this many timeouts, [`launched_by`] asks no more nodes.
const MAX_TIMEOUTS: usize = 3;

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

    fn launched(step: StepRecord) -> Self {
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

/// The running steps of a row, by number; the script is the last. Only the user of a job and operators see what a job has launched;
/// others see its script.
///
/// # Errors
/// See [`ClientError`]. If a node does not answer, its steps are left out without an error.
pub(super) async fn running(client: &Client, row: &Row<'_>) -> Result<Vec<Step>, ClientError> {
    let Some(task) = running_task(row) else { return Ok(Vec::new()) };
    let script = (!row.job.allocation).then(|| Step::of_script(row));
    let running = launched(client, task).await?.into_iter().filter(|step| step.ended_at.is_none());
    Ok(running.map(Step::launched).chain(script).collect())
}

/// Requests the steps, except scripts, of the rows that are running: at most [`MAX_TASKS`] requests, one after
/// another. After a timeout, skips the other tasks of that user on that node: the node reads a directory of the user, who
/// can make it hang.
///
/// # Errors
/// See [`running`].
pub(super) async fn launched_by<'a>(
    client: &Client,
    rows: impl Iterator<Item = Row<'a>>,
) -> Result<BTreeMap<TaskId, Vec<StepRecord>>, ClientError> {
    let mut all = BTreeMap::new();
    let mut silent = BTreeSet::new();
    // A task that its nodes prepare has no steps yet.
    let rows = rows.filter(|row| row.task.is_some_and(|task| task.started_at.is_some()));
    let tasks = rows.filter_map(|row| Some((running_task(&row)?, (row.nodes().first().copied()?, &row.job.user))));
    for (task, place) in tasks.take(MAX_TASKS) {
        if silent.contains(&place) {
            continue;
        }
        let Ok(steps) = tokio::time::timeout(PATIENCE, launched(client, task)).await else {
            silent.insert(place);
            if silent.len() == MAX_TIMEOUTS {
                break;
            }
            continue;
        };
        all.insert(task, steps?);
    }
    Ok(all)
}

/// The task that a row shows, if the task is running.
fn running_task(row: &Row<'_>) -> Option<TaskId> {
    let index = row.index().filter(|_| row.state() == State::Running)?;
    Some(TaskId { job: row.job.id, index })
}

/// The steps that a running task has launched. None if the user may not see them or the node does not answer.
async fn launched(client: &Client, task: TaskId) -> Result<Vec<StepRecord>, ClientError> {
    match client.steps(task).await {
        Ok(steps) => Ok(steps),
        Err(error) if matches!(error.code(), Some("not_yours" | "node_unreachable" | "no_such_job")) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}
