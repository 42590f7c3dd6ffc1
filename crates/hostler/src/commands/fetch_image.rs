//! `hostler fetch-image`, for agents: asks a registry for a part of an image in a process of its own.

use clap::Args;
use hostler_cli::exit;
use hostler_cli::failure::{Failure, Outcome};

/// Read a part of an image from a registry, as standard input says
#[derive(Debug, Args)]
#[command(hide = true)]
pub(crate) struct FetchImage {}

impl FetchImage {
    pub(crate) fn run(self) -> Outcome {
        let Self {} = self;
        hostler_agent::fetch_image().map_err(|error| Failure::new(format!("{error:#}")))?;
        Ok(exit::OK)
    }
}
