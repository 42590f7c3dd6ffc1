//! `hostler job`: shows the details of a job.

use std::time::Duration;

use clap::Args;
use hostler_client::Client;
use hostler_model::{JobState, TaskId};
use hostler_proto::api::{JobDetail, ScriptView};
use hostler_proto::link::StepRecord;
use serde::Serialize;

use super::choice::{self, Word};
use super::target::Target;
use crate::context::{Context, block_on};
use crate::exit;
use crate::failure::Outcome;
use crate::output::{self, text, views};

/// Show the details of a job or of one array task
#[derive(Debug, Args)]
pub struct Job {
    /// The job: its id, e.g. 12; an array task, e.g. 12_3; its name; or `last` for your newest job
    #[arg(value_name = "JOB")]
    word: Word,

    /// Show at most N ended tasks of an array
    #[arg(long, value_name = "N", default_value_t = 100)]
    tasks: u32,

    /// Show only ended tasks of an array from this index on
    #[arg(long, value_name = "INDEX")]
    from: Option<u32>,

    /// Print the script of a job that has not completed
    #[arg(long, conflicts_with_all = ["tasks", "from"])]
    script: bool,
}

impl Job {
    pub fn run(self, context: &Context) -> Outcome {
        let client = context.client()?;
        let Target { job: id, index } = block_on(choice::one(&client, &self.word))?;
        if self.script {
            let script = block_on(async { Ok(client.script(id).await?) })?;
            if context.output.is_json() {
                context.output.json(&ScriptView { script });
            } else {
                context.output.job_text(&script);
            }
            return Ok(exit::OK);
        }
        let (job, running_steps, moment) = block_on(async {
            let mut job = match (index, self.from) {
                (Some(index), _) => client.task(TaskId { job: id, index }, Duration::ZERO).await?,
                (None, Some(from)) => client.job_from(id, self.tasks, from).await?,
                (None, None) => client.job(id, self.tasks).await?,
            };
            let running = add_steps(&client, &mut job).await;
            Ok((job, running, text::Moment::of_head(&client).await?))
        })?;
        let width = output::width();
        if context.output.is_json() {
            context.output.json(&Described { job, running_steps });
            return Ok(exit::OK);
        }
        let mut text = match index {
            Some(index) if job.summary.array.is_some() => views::task(&job, TaskId { job: id, index }, &moment, width),
            _ => views::job(&job, &moment, width),
        };
        if !running_steps.is_empty() {
            text.push('\n');
            text.push_str(&views::running_steps(&running_steps, &moment, width));
        }
        context.output.data(&text);
        Ok(exit::OK)
    }
}

/// How long a node may take to list the steps.
const STEPS_PATIENCE: Duration = Duration::from_secs(2);

/// A job as JSON.
#[derive(Serialize)]
struct Described {
    #[serde(flatten)]
    job: JobDetail,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    running_steps: Vec<StepRecord>,
}

/// If the only task shown is running, adds its ended steps to the task, and returns those that run. There are none if the
/// node does not answer, or the job is another user's.
async fn add_steps(client: &Client, job: &mut JobDetail) -> Vec<StepRecord> {
    let id = job.summary.id;
    let [task] = job.tasks_shown.as_mut_slice() else { return Vec::new() };
    if task.state != JobState::Running {
        return Vec::new();
    }
    let asked = tokio::time::timeout(STEPS_PATIENCE, client.steps(TaskId { job: id, index: task.index })).await;
    let steps = asked.unwrap_or_else(|_| Ok(Vec::new())).unwrap_or_default();
    let (running, ended) = steps.into_iter().partition(|step| step.ended_at.is_none());
    task.steps = ended;
    running
}
