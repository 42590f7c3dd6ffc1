//! `hostler why`.

use clap::Args;
use hostler_model::JobId;

use crate::context::{Context, block_on};
use crate::exit;
use crate::failure::Outcome;
use crate::output::views;

/// Say why a job waits, and when it should start
#[derive(Debug, Args)]
pub(crate) struct Why {
    /// The job
    #[arg(value_name = "ID")]
    id: JobId,
}

impl Why {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let client = context.client()?;
        let why = block_on(async { Ok(client.why(self.id).await?) })?;
        match context.output.is_json() {
            true => context.output.json(&why),
            false => context.output.data(&views::why(&why, &views::Moment::now())),
        }
        Ok(exit::OK)
    }
}
