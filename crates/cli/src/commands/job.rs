//! `hostler job`: shows the details of a job.

use std::time::Duration;

use clap::Args;
use hostler_model::TaskId;
use hostler_proto::api::ScriptView;

use super::target::Target;
use crate::context::{Context, block_on};
use crate::exit;
use crate::failure::Outcome;
use crate::output::{self, text, views};

/// Show the details of a job or of one array task
#[derive(Debug, Args)]
pub(crate) struct Job {
    /// Id of a job, e.g. 12, or of an array task, e.g. 12_3
    #[arg(value_name = "ID")]
    target: Target,

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
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let client = context.client()?;
        let Target { job: id, index } = self.target;
        if self.script {
            let script = block_on(async { Ok(client.script(id).await?) })?;
            if context.output.is_json() {
                context.output.json(&ScriptView { script });
            } else {
                context.output.data(script.strip_suffix('\n').unwrap_or(&script));
            }
            return Ok(exit::OK);
        }
        let job = block_on(async {
            Ok(match (index, self.from) {
                (Some(index), _) => client.task(TaskId { job: id, index }, Duration::ZERO).await?,
                (None, Some(from)) => client.job_from(id, self.tasks, from).await?,
                (None, None) => client.job(id, self.tasks).await?,
            })
        })?;
        let (moment, width) = (text::Moment::now(), output::width());
        match (context.output.is_json(), index) {
            (true, _) => context.output.json(&job),
            (false, Some(index)) if job.summary.array.is_some() => {
                context.output.data(&views::task(&job, TaskId { job: id, index }, &moment, width));
            }
            (false, _) => context.output.data(&views::job(&job, &moment, width)),
        }
        Ok(exit::OK)
    }
}
