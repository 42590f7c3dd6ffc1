//! `hostler submit`: submits a project folder as a job.

use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use hostler_client::{CaptureCache, CapturedFolder, ProjectFolder, Unread};
use hostler_model::{Environment, JobId, Submission};
use serde_json::json;

use super::dry_run::print;
use super::fetch::fetch_jobs;
use super::logs::follow_job;
use super::target::Target;
use super::wait::{exit_code, explain_waiting, for_desktop, wait_for};
use crate::context::{Context, block_on};
use crate::exit;
use crate::failure::{Failure, Outcome};
use crate::fetching::destination;
use crate::flags::{JobFlags, words};
use crate::here::absolute;
use crate::interrupts::{self, Interrupts};
use crate::submission::{narrate, not_used, with_not_used};
use crate::xdg;

/// Submit a project folder as a job and print the job id
///
/// The command takes a snapshot of the folder and uploads only the content that the head does not have yet. The
/// snapshot excludes virtual environments, __pycache__, .git, node_modules, results of jobs, and files that .gitignore
/// or .hostlerignore names. To include an excluded folder, add a line such as !venv/ to .hostlerignore.
///
/// Each node builds the Python environment once, from uv.lock, pylock.toml, requirements.txt, pyproject.toml or
/// setup.cfg. A line on stderr names other files with packages or Python versions, which do not count. The results of a
/// job are its output and the files that the job creates or changes in its folder. `hostler fetch` downloads the results.
///
/// Variables such as HOSTLER_JOB_ID, HOSTLER_ARRAY_INDEX and HOSTLER_CPUS describe the job to the program. The page
/// docs/reference/variables.md lists all of them.
#[derive(Debug, Args)]
pub struct Submit {
    /// Project folder
    #[arg(value_name = "PROJECT")]
    project: PathBuf,

    /// Program to run: a .py file or executable in the folder, or a command
    #[arg(value_name = "ENTRYPOINT")]
    entrypoint: String,

    /// Arguments of the program
    #[arg(value_name = "ARGS", last = true, value_parser = words())]
    args: Vec<String>,

    #[command(flatten)]
    flags: JobFlags,

    /// Submit only if none of your jobs has this key; otherwise print the id of that job
    ///
    /// A script that is interrupted may submit again with the same key. The job of the key must have the same folder,
    /// program, arguments and indices. A job keeps its key until its results are deleted.
    #[arg(long, value_name = "KEY", value_parser = NonEmptyStringValueParser::new())]
    key: Option<String>,

    /// Say when and where the job would start, or why the head would refuse it; upload and submit nothing
    #[arg(long, conflicts_with_all = ["key", "wait", "follow", "fetch", "bell", "to"])]
    dry_run: bool,

    /// Wait until the job has ended; exit with 0 if the job completed, else 1
    #[arg(long, help_heading = "Afterwards")]
    wait: bool,

    /// Print the output while the job runs, then download the results
    #[arg(long, help_heading = "Afterwards")]
    follow: bool,

    /// Wait until the job has ended, then download the results
    #[arg(long, help_heading = "Afterwards")]
    fetch: bool,

    /// Ring the bell of the terminal and show a desktop notification at the end; implies --wait
    #[arg(long, help_heading = "Afterwards")]
    bell: bool,

    /// Directory for the downloaded results; implies --fetch
    #[arg(long, value_name = "DIR", help_heading = "Afterwards")]
    to: Option<PathBuf>,
}

impl Submit {
    pub fn run(self, context: &Context) -> Outcome {
        let fetches = self.fetch || self.follow || self.to.is_some();
        let destination = fetches.then(|| destination(self.to.as_deref(), false)).transpose()?;
        let waits = fetches || self.wait || self.bell;
        let client = if waits { context.watching_client()? } else { context.client()? };
        // A deleted directory looks like an empty one.
        absolute(&self.project)?;
        let folder = ProjectFolder::open(&self.project, &self.entrypoint)?;
        // Capturing a large folder takes long, so first check that the head is reachable.
        block_on(async { Ok(client.info().await?) })?;
        let left_out = xdg::own_directories(&self.project);
        let (captured, spec, unread) = captured(context, folder, &self.project, &left_out, &self.flags, &self.args)?;
        if self.dry_run {
            let would = block_on(async { Ok(captured.dry_run(&client, &spec).await?) })?;
            return print(context, &would, &unread);
        }
        block_on(async {
            let id = captured.submit(&client, spec, self.key.as_deref(), &narrate(&context.output)).await?;
            if !(waits && context.output.is_json()) {
                announce(context, id, &unread);
            }
            if !waits {
                return Ok(exit::OK);
            }
            let jobs = [id];
            let waiting = async {
                if self.follow && !context.output.is_json() {
                    tokio::select! {
                        followed = follow_job(context, &client, id) => followed?,
                        never = explain_waiting(context, &client, id) => match never {},
                    }
                }
                wait_for(context, &client, &jobs, fetches).await
            };
            let mut interrupts = Interrupts::take()?;
            let ended = tokio::select! {
                ended = waiting => ended?,
                signal = interrupts.next() => {
                    context.output.say(&format!("job {id} continues; `hostler cancel {id}` ends it"));
                    return Ok(interrupts::exit_code(signal));
                }
            };
            if self.bell {
                context.output.ring(&for_desktop(&[Target { job: id, index: None }], &ended));
            }
            if context.output.is_json() {
                context.output.json(&with_not_used(&ended[0], &unread));
            }
            let code = exit_code(&ended);
            match destination {
                Some(destination) => tokio::select! {
                    fetched = fetch_jobs(context, &client, &jobs, &destination) => Ok(code.max(fetched?)),
                    signal = interrupts.next() => {
                        context.output.say(&format!("`hostler fetch {id}` downloads the results"));
                        Ok(interrupts::exit_code(signal))
                    }
                },
                None => Ok(code),
            }
        })
    }
}

/// Captures a folder for a job with these flags. Prints a note about what the job does not use, and returns that too.
pub(crate) fn captured(
    context: &Context,
    folder: ProjectFolder,
    path: &Path,
    left_out: &[PathBuf],
    flags: &JobFlags,
    args: &[String],
) -> Result<(CapturedFolder, Submission, Vec<Unread>), Failure> {
    let (name, cache) = (folder.name(), xdg::folder_cache().map(|cache| CaptureCache::of(&cache, path)));
    let mut captured = folder.capture(left_out, cache.unwrap_or_default(), &narrate(&context.output))?;
    let mut spec = flags.spec(captured.work(args), &name, Environment::new())?;
    // An image has its own Python and packages.
    let unread = match flags.image {
        None => captured.require_packages(&mut spec)?,
        Some(_) => Vec::new(),
    };
    not_used(&unread).iter().for_each(|line| context.output.say(line));
    Ok((captured, spec, unread))
}

/// Prints the id of the job, and nothing else, on stdout.
pub(crate) fn announce(context: &Context, id: JobId, unread: &[Unread]) {
    context.output.has_submitted(id);
    match context.output.is_json() {
        true => context.output.json(&with_not_used(&json!({ "id": id }), unread)),
        false => context.output.data(&id.to_string()),
    }
}
