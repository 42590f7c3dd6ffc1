//! The stages of a task's last attempt, and when each began.
//!
//! The head notes the times when reports of agents arrive. Agents delay reports by milliseconds and leave out what a later report
//! replaces, so a stage of a few milliseconds may be missing.

use hostler_model::{JobState, WallTime};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::api::TaskView;

/// When the last attempt of a task reached each stage. `started_at` and `ended_at` are beside it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Stages {
    /// Time at which the head placed the task on its nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placed_at: Option<WallTime>,
    /// Time at which all nodes had the files of the captured folder and began to provide the environment. Absent for
    /// commands without a captured folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub staged_at: Option<WallTime>,
    /// Time at which the process had ended on all nodes, or could not start, so that they collected the results.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exited_at: Option<WallTime>,
    /// Time at which the head had the results of a process that ended at `ended_at`. Absent for older records, and if no process ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collected_at: Option<WallTime>,
}

/// A step in the life of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// The task waits for a node.
    Queued,
    /// Nodes fetch the files of the captured folder.
    Staging,
    /// Nodes build the environment, or find one that is built.
    Environment,
    /// Staging and environment, if the head does not know when one followed the other.
    Preparing,
    /// The process runs.
    Running,
    /// Nodes collect and upload the results.
    Collecting,
}

impl Stage {
    /// Name of the stage, for tables.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Staging => "staging",
            Self::Environment => "environment",
            Self::Preparing => "preparing",
            Self::Running => "running",
            Self::Collecting => "collecting",
        }
    }
}

/// A stage, its begin, and its end unless it lasts.
pub type Step = (Stage, WallTime, Option<WallTime>);

/// Returns the steps in the life of a task, in order. The first begins with the submission, so it includes earlier attempts.
#[must_use]
pub fn timeline(submitted_at: WallTime, task: &TaskView) -> Vec<Step> {
    let Stages { placed_at, staged_at, exited_at, collected_at } = task.stages;
    let (started_at, ended_at) = (task.started_at, task.ended_at);
    let mut steps = vec![(Stage::Queued, submitted_at, placed_at.or(started_at).or(ended_at))];
    if let Some(placed) = placed_at {
        let prepared = started_at.or(exited_at).or(ended_at);
        match staged_at {
            Some(staged) => {
                steps.push((Stage::Staging, placed, Some(staged)));
                steps.push((Stage::Environment, staged, prepared));
            }
            None if task.state == JobState::Starting => steps.push((Stage::Staging, placed, prepared)),
            None => steps.push((Stage::Preparing, placed, prepared)),
        }
    }
    if let Some(started) = started_at {
        steps.push((Stage::Running, started, exited_at.or(ended_at)));
    }
    steps.extend(exited_at.map(|exited| (Stage::Collecting, exited, collected_at.or(ended_at))));
    steps
}
