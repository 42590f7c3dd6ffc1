//! `hostler job`.

use clap::Args;
use hostler_model::JobId;

use crate::context::{Context, block_on};
use crate::exit;
use crate::failure::Outcome;
use crate::output::{self, views};

/// Show everything about a job
#[derive(Debug, Args)]
pub(crate) struct Job {
    /// The job
    #[arg(value_name = "ID")]
    id: JobId,

    /// Show at most this many tasks of an array that have ended
    #[arg(long, value_name = "N", default_value_t = 100)]
    tasks: u32,
}

impl Job {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let client = context.client()?;
        let job = block_on(async { Ok(client.job(self.id, self.tasks).await?) })?;
        match context.output.is_json() {
            true => context.output.json(&job),
            false => context.output.data(&views::job(&job, &views::Moment::now(), output::width())),
        }
        Ok(exit::OK)
    }
}
