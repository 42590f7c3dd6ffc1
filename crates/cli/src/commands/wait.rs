//! `hostler wait`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use hostler_client::Client;
use hostler_model::{JobId, JobState};
use hostler_proto::api::JobSummary;

use super::fetch::fetch_jobs;
use crate::context::{Context, block_on};
use crate::exit;
use crate::failure::{Failure, Outcome};
use crate::fetching::destination;
use crate::output::views;

/// How long one question to the head may stay open.
const ONE_QUESTION: Duration = Duration::from_secs(30);

/// Wait until jobs have ended; the exit code is 0 if all of them completed, 1 if not
#[derive(Debug, Args)]
pub(crate) struct Wait {
    /// The jobs
    #[arg(value_name = "ID", required = true)]
    ids: Vec<JobId>,

    /// Then fetch their results
    #[arg(long)]
    fetch: bool,

    /// Where to fetch to; implies --fetch
    #[arg(long, value_name = "DIR")]
    to: Option<PathBuf>,
}

impl Wait {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let fetches = self.fetch || self.to.is_some();
        let destination = fetches.then(|| destination(self.to.as_deref(), false)).transpose()?;
        let client = context.watching_client()?;
        block_on(async {
            let summaries = wait_for(context, &client, &self.ids).await?;
            if context.output.is_json() {
                context.output.json(&summaries);
            }
            let code = exit_code(&summaries);
            match destination {
                Some(destination) => Ok(code.max(fetch_jobs(context, &client, &self.ids, &destination).await?)),
                None => Ok(code),
            }
        })
    }
}

/// Waits for all of `ids` and says how those ended that did not complete.
pub(crate) async fn wait_for(context: &Context, client: &Client, ids: &[JobId]) -> Result<Vec<JobSummary>, Failure> {
    let mut summaries = Vec::new();
    for &id in ids {
        summaries.push(ended(client, id).await?);
    }
    for summary in summaries.iter().filter(|summary| summary.state != JobState::Completed) {
        context.output.say(&verdict(summary));
    }
    Ok(summaries)
}

/// Whether all of them completed.
pub(crate) fn exit_code(summaries: &[JobSummary]) -> u8 {
    let all_completed = summaries.iter().all(|summary| summary.state == JobState::Completed);
    if all_completed { exit::OK } else { exit::FAILED }
}

/// The job, once it has ended.
pub(crate) async fn ended(client: &Client, id: JobId) -> Result<JobSummary, Failure> {
    loop {
        let summary = client.job_when_ended(id, 0, ONE_QUESTION).await?.summary;
        if summary.state.is_ended() {
            return Ok(summary);
        }
    }
}

/// `job 12 failed with exit code 1`, with where to look.
fn verdict(job: &JobSummary) -> String {
    let how = views::ending(job);
    let tasks = match (&job.array, job.tasks.failed) {
        (Some(_), failed) => format!(" ({failed} of {} tasks did not complete)", job.tasks.total),
        (None, _) => String::new(),
    };
    format!("job {} {how}{tasks}; see `hostler job {}` and `hostler logs {}`", job.id, job.id, job.id)
}
