//! `hostler info`.

use clap::Args;

use crate::context::{Context, block_on};
use crate::exit;
use crate::failure::Outcome;
use crate::output::{self, partitions, views};

/// Show the cluster at a glance
#[derive(Debug, Args)]
pub(crate) struct Info {}

impl Info {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let client = context.client()?;
        let (info, parts) = block_on(async { Ok((client.info().await?, client.partitions().await?)) })?;
        let output = &context.output;
        if output.is_json() {
            output.json(&info);
            return Ok(exit::OK);
        }
        output.data(&views::info(&info));
        if !parts.is_empty() {
            output.data(&format!("\n{}", partitions::list(&parts, output::width())));
        }
        Ok(exit::OK)
    }
}
