//! `hostler why`: explains why a job waits.

use clap::Args;
use hostler_model::TaskId;

use super::choice::{self, Word};
use super::target::Target;
use crate::context::{Context, block_on};
use crate::exit;
use crate::failure::Outcome;
use crate::output::{text, views};

/// Explain why a job waits and estimate when the job starts
#[derive(Debug, Args)]
pub struct Why {
    /// The job: its id, e.g. 12; an array task, e.g. 12_3; its name; or `last` for your newest job
    #[arg(value_name = "JOB")]
    word: Word,
}

impl Why {
    pub fn run(self, context: &Context) -> Outcome {
        let client = context.client()?;
        let (why, moment) = block_on(async {
            let Target { job, index } = choice::one(&client, &self.word).await?;
            let why = match index {
                Some(index) => client.why_task(TaskId { job, index }).await?,
                None => client.why(job).await?,
            };
            Ok((why, text::Moment::of_head(&client).await?))
        })?;
        match context.output.is_json() {
            true => context.output.json(&why),
            false => context.output.data(&views::why(&why, &moment)),
        }
        Ok(exit::OK)
    }
}
