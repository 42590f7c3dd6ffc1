//! `hostler why`: explains why a job waits.

use clap::Args;
use hostler_model::TaskId;

use super::target::Target;
use crate::context::{Context, block_on};
use crate::exit;
use crate::failure::Outcome;
use crate::output::{text, views};

/// Explain why a job waits and estimate when the job starts
#[derive(Debug, Args)]
pub(crate) struct Why {
    /// Id of a job, e.g. 12, or of an array task, e.g. 12_3
    #[arg(value_name = "ID")]
    target: Target,
}

impl Why {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let client = context.client()?;
        let Target { job, index } = self.target;
        let why = block_on(async {
            Ok(match index {
                Some(index) => client.why_task(TaskId { job, index }).await?,
                None => client.why(job).await?,
            })
        })?;
        match context.output.is_json() {
            true => context.output.json(&why),
            false => context.output.data(&views::why(&why, &text::Moment::now())),
        }
        Ok(exit::OK)
    }
}
