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
            let code = wait_for(context, &client, &self.ids).await?;
            match destination {
                Some(destination) => Ok(code.max(fetch_jobs(context, &client, &self.ids, &destination).await?)),
                None => Ok(code),
            }
        })
    }
}

/// Waits for all of `ids`, says how those ended that did not complete, and gives the exit code of `wait`.
pub(crate) async fn wait_for(context: &Context, client: &Client, ids: &[JobId]) -> Outcome {
    let mut summaries = Vec::new();
    for &id in ids {
        summaries.push(ended(client, id).await?);
    }
    for summary in summaries.iter().filter(|summary| summary.state != JobState::Completed) {
        context.output.say(&verdict(summary));
    }
    if context.output.is_json() {
        context.output.json(&summaries);
    }
    let all_completed = summaries.iter().all(|summary| summary.state == JobState::Completed);
    Ok(if all_completed { exit::OK } else { exit::FAILED })
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
    let how = match (job.state, job.exit_code) {
        (JobState::Failed, Some(code)) => format!("failed with exit code {code}"),
        (JobState::Failed, None) => "failed".to_owned(),
        (JobState::Cancelled, _) => "was cancelled".to_owned(),
        (JobState::Timeout, _) => "ran out of time".to_owned(),
        (JobState::OutOfMemory, _) => "ran out of memory".to_owned(),
        (JobState::NodeFail, _) => "was lost with its node".to_owned(),
        (state, _) => format!("ended as {state}"),
    };
    let tasks = match (&job.array, job.tasks.failed) {
        (Some(_), failed) => format!(" ({failed} of {} tasks did not complete)", job.tasks.total),
        (None, _) => String::new(),
    };
    format!("job {} {how}{tasks}; see `hostler job {}` and `hostler logs {}`", job.id, job.id, job.id)
}
