//! `hostler submit`: submits a project folder as a job.

use std::collections::BTreeSet;
use std::path::PathBuf;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use hostler_client::fetch::Destination;
use hostler_client::{Client, ProjectFolder};
use hostler_model::{JobId, plural};
use hostler_proto::api::JobSummary;

use super::dry_run::print;
use super::fetch::fetch_jobs;
use super::lines::Lines;
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
use crate::keyed::Given;
use crate::submission::{announce, captured, narrate, with_not_used};
use crate::xdg;

/// The project that stands for the lines of standard input.
const STANDARD_INPUT: &str = "-";

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
///
/// With - instead of a folder, each line of standard input is a job: a command for the shell, which runs in the current
/// directory as with `hostler run`, or a JSON object whose keys are options, e.g. {"command": ["./fit", "7"], "cpus": 4}
/// or {"project": "model", "entrypoint": "main.py"}. Options on the command line are the defaults of all lines.
#[derive(Debug, Args)]
pub struct Submit {
    /// Project folder, or - to submit a job for each line of standard input
    #[arg(value_name = "PROJECT")]
    project: PathBuf,

    /// Program to run: a .py file or executable in the folder, or a command
    #[arg(value_name = "ENTRYPOINT")]
    entrypoint: Option<String>,

    /// Arguments of the program
    #[arg(value_name = "ARGS", last = true, value_parser = words())]
    args: Vec<String>,

    // Before `flags`, which takes the values out of what was parsed.
    #[command(flatten)]
    given: Given,

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
        let has_lines = self.project.as_os_str() == STANDARD_INPUT;
        let entrypoint = self.entrypoint.as_deref().unwrap_or_default();
        if entrypoint.is_empty() && !has_lines {
            return Err(Failure::usage("the program to run is missing")
                .hint("name the folder, then the program in it, e.g. `hostler submit . main.py` for this folder"));
        }
        let then = Afterwards {
            context,
            fetches: self.fetch || self.follow || self.to.is_some(),
            waits: self.wait || self.bell || self.fetch || self.follow || self.to.is_some(),
            bell: self.bell,
        };
        let destination = then.fetches.then(|| destination(self.to.as_deref(), false)).transpose()?;
        let client = if then.waits { context.watching_client()? } else { context.client()? };
        if has_lines {
            return self.each_line(&client, &then, destination);
        }
        // A deleted directory looks like an empty one.
        absolute(&self.project)?;
        let folder = ProjectFolder::open(&self.project, entrypoint)?;
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
            if !(then.waits && context.output.is_json()) {
                announce(context, id, &unread);
            }
            if !then.waits {
                return Ok(exit::OK);
            }
            let follow = async {
                if self.follow && !context.output.is_json() {
                    tokio::select! {
                        followed = follow_job(context, &client, id) => followed?,
                        never = explain_waiting(context, &client, id) => match never {},
                    }
                }
                Ok(())
            };
            let report = |ended: &[JobSummary]| {
                if context.output.is_json() {
                    context.output.json(&with_not_used(&ended[0], &unread));
                }
            };
            then.wait(&client, &[id], follow, report, destination).await
        })
    }

    /// Submits a job for each line of standard input.
    fn each_line(&self, client: &Client, then: &Afterwards<'_>, destination: Option<Destination>) -> Outcome {
        for (is_given, option) in
            [(self.dry_run, "--dry-run"), (self.follow, "--follow"), (self.key.is_some(), "--key")]
        {
            if is_given {
                return Err(Failure::usage(format!("`hostler submit -` does not take {option}")));
            }
        }
        if let Some(word) = self.entrypoint.as_ref().or(self.args.first()) {
            return Err(Failure::usage(format!(
                "unexpected argument {word:?}: with `hostler submit -`, programs and arguments are in the lines"
            )));
        }
        block_on(async {
            let (mut jobs, failed) = Lines::new(then.context, client, &self.given).submit().await?;
            // Several lines may have the same key.
            let mut known = BTreeSet::new();
            jobs.retain(|job| known.insert(*job));
            let code = match then.waits && !jobs.is_empty() {
                true => {
                    let report = |ended: &[JobSummary]| {
                        if then.context.output.is_json() {
                            ended.iter().for_each(|job| then.context.output.json(job));
                        }
                    };
                    then.wait(client, &jobs, async { Ok(()) }, report, destination).await?
                }
                false => exit::OK,
            };
            match failed {
                0 => Ok(code),
                _ => {
                    Err(Failure::new(format!("{} not submitted", plural(failed, "line")))
                        .exiting(code.max(exit::FAILED)))
                }
            }
        })
    }
}

/// What the command does when it has submitted jobs.
struct Afterwards<'a> {
    context: &'a Context,
    waits: bool,
    fetches: bool,
    bell: bool,
}

impl Afterwards<'_> {
    /// Waits until the jobs have ended, reports them and downloads their results. Runs `first` before; a signal
    /// ends both.
    async fn wait(
        &self,
        client: &Client,
        jobs: &[JobId],
        first: impl Future<Output = Result<(), Failure>>,
        report: impl FnOnce(&[JobSummary]),
        destination: Option<Destination>,
    ) -> Outcome {
        let Self { context, fetches, .. } = *self;
        let waiting = async {
            first.await?;
            wait_for(context, client, jobs, fetches).await
        };
        let mut interrupts = Interrupts::take()?;
        let ended = tokio::select! {
            ended = waiting => ended?,
            signal = interrupts.next() => {
                context.output.say(&match jobs {
                    [id] => format!("job {id} continues; `hostler cancel {id}` ends it"),
                    _ => format!("{} continue; `hostler cancel` with their ids ends them", plural(jobs.len(), "job")),
                });
                return Ok(interrupts::exit_code(signal));
            }
        };
        if self.bell {
            let targets: Vec<_> = jobs.iter().map(|job| Target { job: *job, index: None }).collect();
            context.output.ring(&for_desktop(&targets, &ended));
        }
        report(&ended);
        let code = exit_code(&ended);
        match destination {
            Some(destination) => tokio::select! {
                fetched = fetch_jobs(context, client, jobs, &destination) => Ok(code.max(fetched?)),
                signal = interrupts.next() => {
                    context.output.say(&match jobs {
                        [id] => format!("`hostler fetch {id}` downloads the results"),
                        _ => "`hostler fetch --all` downloads the results".to_owned(),
                    });
                    Ok(interrupts::exit_code(signal))
                }
            },
            None => Ok(code),
        }
    }
}
