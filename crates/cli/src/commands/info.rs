//! `hostler info`.

use clap::Args;

use crate::context::{Context, block_on};
use crate::exit;
use crate::failure::Outcome;
use crate::output::views;

/// Show the cluster at a glance
#[derive(Debug, Args)]
pub(crate) struct Info {}

impl Info {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let client = context.client()?;
        let info = block_on(async { Ok(client.info().await?) })?;
        match context.output.is_json() {
            true => context.output.json(&info),
            false => context.output.data(&views::info(&info)),
        }
        Ok(exit::OK)
    }
}
