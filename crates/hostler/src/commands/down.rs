//! `hostler down`: stops the embedded cluster.

use clap::Args;
use hostler_cli::cluster::Places;
use hostler_cli::context::{Context, block_on};
use hostler_cli::exit;
use hostler_cli::failure::Outcome;
use hostler_cli::xdg;
use hostler_client::LiveJobs;
use serde_json::json;

use crate::embedded::Lock;
use crate::embedded::stop::take_down;

/// Stop the cluster on this machine; state and results stay
///
/// The command fails if jobs are waiting or running, unless --cancel or --keep is given. `hostler up` starts the
/// cluster again.
#[derive(Debug, Args)]
pub(crate) struct Down {
    /// Cancel all jobs first
    #[arg(long, conflicts_with = "keep")]
    cancel: bool,

    /// Keep jobs: running jobs continue, waiting jobs wait for `hostler up`
    #[arg(long)]
    keep: bool,
}

impl Down {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let output = &context.output;
        let places = Places::from_environment()?;
        xdg::tell();
        let jobs = match (self.cancel, self.keep) {
            (true, _) => LiveJobs::Cancel,
            (_, true) => LiveJobs::Keep,
            _ => LiveJobs::Refuse,
        };
        if !places.state().exists() {
            output.say("no cluster is running");
            return Ok(exit::OK);
        }
        hostler_head::release_if_full(&places.head());
        let _lock = Lock::take(&places.lock(), || output.say("waiting for another `hostler up` or `hostler down`"))?;
        let stopped = block_on(take_down(&places, jobs, &|line| output.say(line)))?;
        if output.is_json() {
            output.json(&json!({ "stopped": stopped.processes }));
        } else if stopped.processes == 0 {
            output.say("no cluster is running");
        } else {
            if stopped.head_was_dead {
                output.say("note: the head was not running; running jobs continue, and the next `hostler up` tracks them again");
            }
            output.say("the cluster is stopped");
        }
        Ok(exit::OK)
    }
}
