//! `hostler submit`.

use std::path::PathBuf;

use clap::Args;
use hostler_model::{Environment, JobId};
use serde_json::json;

use super::fetch::fetch_jobs;
use super::logs::follow_job;
use super::wait::{exit_code, wait_for};
use crate::context::{Context, block_on};
use crate::exit;
use crate::failure::Outcome;
use crate::fetching::destination;
use crate::flags::JobFlags;
use crate::seen_folder::SeenFolder;
use crate::submission;

/// Queue a project folder; prints the job's id
///
/// The folder is captured as it is now, and only what the cluster does not have yet is uploaded. Left out are virtual environments,
/// __pycache__, .git, node_modules, results of jobs, and what .gitignore and .hostlerignore name; a line such as !venv/ in .hostlerignore
/// includes one. Its environment is built from requirements.txt, pyproject.toml or uv.lock, once. What the job creates or changes
/// in its folder comes home with `hostler fetch`, beside its output.
#[derive(Debug, Args)]
pub(crate) struct Submit {
    /// The project folder
    #[arg(value_name = "PROJECT")]
    project: PathBuf,

    /// What to run: a .py file or an executable in the folder, or a command
    #[arg(value_name = "ENTRYPOINT")]
    entrypoint: String,

    /// Arguments for it
    #[arg(value_name = "ARGS", last = true)]
    args: Vec<String>,

    #[command(flatten)]
    flags: JobFlags,

    /// Wait until the job has ended; the exit code says whether it completed
    #[arg(long, help_heading = "Afterwards")]
    wait: bool,

    /// Show the job's output as it appears, then fetch its results
    #[arg(long, help_heading = "Afterwards")]
    follow: bool,

    /// Wait, then fetch the results
    #[arg(long, help_heading = "Afterwards")]
    fetch: bool,

    /// Where to fetch to; implies --fetch
    #[arg(long, value_name = "DIR", help_heading = "Afterwards")]
    to: Option<PathBuf>,
}

impl Submit {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let fetches = self.fetch || self.follow || self.to.is_some();
        let destination = fetches.then(|| destination(self.to.as_deref(), false)).transpose()?;
        let client = if fetches || self.wait { context.watching_client()? } else { context.client()? };
        submission::check_project(&self.project, &self.entrypoint)?;
        // To read a large folder takes long, and is in vain when nobody is there to take it.
        block_on(async { Ok(client.info().await?) })?;
        let captured = submission::capture(context, &self.project, &self.entrypoint, SeenFolder::of(&self.project))?;
        let work = submission::project_work(captured.capture.digest, &self.entrypoint, &self.args);
        let mut spec = self.flags.spec(work, &submission::project_name(&self.project), Environment::new())?;
        let python = submission::ask_for_python(&self.project, &self.entrypoint, &mut spec)?;
        block_on(async {
            let id = match submission::submit_project(context, &client, &captured, spec, self.flags.unsaid()).await {
                Ok(submitted) => submitted.id,
                Err(failure) => return Err(submission::explain_python(&client, python, failure).await),
            };
            let waits = fetches || self.wait;
            if !(waits && context.output.is_json()) {
                announce(context, id);
            }
            if self.follow && !context.output.is_json() {
                follow_job(context, &client, id).await?;
            }
            if !waits {
                return Ok(exit::OK);
            }
            let ended = wait_for(context, &client, &[id]).await?;
            if context.output.is_json() {
                context.output.json(&ended[0]);
            }
            let code = exit_code(&ended);
            match destination {
                Some(destination) => Ok(code.max(fetch_jobs(context, &client, &[id], &destination).await?)),
                None => Ok(code),
            }
        })
    }
}

/// The id is the only data.
pub(crate) fn announce(context: &Context, id: JobId) {
    match context.output.is_json() {
        true => context.output.json(&json!({ "id": id })),
        false => context.output.data(&id.to_string()),
    }
}
