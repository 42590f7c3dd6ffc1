//! `hostler measure`: measures the run time of a command, alone on a node.

mod report;
mod runs;
mod statistics;

use std::time::Duration;

use clap::{ArgMatches, Args, Command, FromArgMatches};
use hostler_client::Client;
use hostler_model::{Constraint, JobId, JobState, PartitionName, Submission, TaskId, Work, plural};
use hostler_proto::api::{JobAction, JobDetail};
use hostler_proto::certificate::{Certificate, Verdict};
use hostler_proto::link::Output;

use self::report::Measurement;
pub(crate) use self::runs::MeasureRuns;
use self::runs::{FailedRun, Line, OneRun, Plan};
use super::logs::{Source, read};
use super::run::{own_directory, own_environment, own_umask};
use crate::command_words::check_command;
use crate::context::{Context, block_on};
use crate::exit;
use crate::failure::{Failure, Outcome};
use crate::flags::{JobFlags, Memory, TimeLimit, VariableNames};
use crate::interrupts::{Interrupts, exit_code};
use crate::output::views;
use crate::passed_on::PassedOn;
use crate::submission::submit_command;

/// How long one request to the head may wait.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Measure the run time of a command, alone on a node
///
/// One job with --exclusive runs the command again and again, and nothing else runs on its node. Prints the median with
/// its confidence interval, the spread, outliers and drift, and whether the node was quiet. The command runs in the current
/// directory, which must also exist on the node, with the current environment and without standard input.
///
/// The node's PATH must contain `hostler`, with --sandbox in /usr.
///
/// Exit codes: 1 if a run of the command failed, or if the node was noisy with --require-quiet; 124 if the job reached its
/// time limit; 128 + N if signal N ended this command.
#[derive(Debug, Args)]
pub(crate) struct Measure {
    /// Number of measured runs
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    runs: u32,

    /// Number of runs before that, which do not count
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(0..=100_000))]
    warmup: u32,

    /// Compare with this command, e.g. './bench --fast'; quotes as in a shell
    ///
    /// Both commands run in each round, in random order, so that slow changes of the machine affect both. No shell runs
    /// the command; use `sh -c '…'` for one.
    #[arg(long, value_name = "COMMAND")]
    against: Option<String>,

    /// Seed of the random order of two commands [default: random]
    #[arg(long, value_name = "N", requires = "against")]
    seed: Option<u64>,

    /// Measure again up to N times while the node is noisy, and fail if it stays noisy
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=1000))]
    require_quiet: Option<u32>,

    /// Show the output of the command on standard error
    ///
    /// By default, the output goes to a file in memory, and only that of a failed run is shown.
    #[arg(long)]
    show_output: bool,

    /// Pass on only these environment variables, e.g. PATH,HOME,LC_*; repeatable
    ///
    /// [default: all variables, or `env_only` in config.toml]
    #[arg(long, value_name = "NAMES")]
    env_only: Vec<VariableNames>,

    #[command(flatten)]
    node: NodeFlags,

    /// Command and arguments
    #[arg(value_name = "COMMAND", required = true, trailing_var_arg = true)]
    command: Vec<String>,
}

/// Which node the job needs, as for `hostler run`.
#[derive(Debug, Args)]
#[command(next_help_heading = "Job")]
struct NodeFlags {
    /// CPUs that the node must have at least [default: the setting default-cpus]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    cpus: Option<u32>,

    /// Memory that the node must have at least, e.g. 600M or 2G
    #[arg(short, long, value_name = "SIZE")]
    memory: Option<Memory>,

    /// GPUs that the node must have at least [default: 0]
    #[arg(short, long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    gpus: u32,

    /// Time limit for all runs together, e.g. 90s or 1h30m
    #[arg(short, long, value_name = "TIME")]
    time: Option<TimeLimit>,

    /// Run only on nodes of this partition; `hostler info` lists partitions
    #[arg(short, long, value_name = "NAME")]
    partition: Option<PartitionName>,

    /// Run only on nodes with these features or names, e.g. ssd, 'intel&!old', 'n1|n2'
    #[arg(long, value_name = "FEATURES")]
    constraint: Option<Constraint>,

    /// Run the command in a sandbox
    #[arg(long)]
    sandbox: bool,

    /// Tune kernel settings for stable timings while the job runs
    #[arg(long)]
    quiet_machine: bool,
}

impl NodeFlags {
    /// The flags of `hostler run` that describe the same job.
    fn of_job(&self) -> JobFlags {
        let command = JobFlags::augment_args(Command::new("job"));
        let defaults: ArgMatches = command.get_matches_from(["job", "--exclusive"]);
        let defaults = JobFlags::from_arg_matches(&defaults).expect("a job needs no flags");
        JobFlags {
            cpus: self.cpus,
            memory: self.memory,
            gpus: self.gpus,
            time: self.time,
            partition: self.partition.clone(),
            constraint: self.constraint.clone(),
            sandbox: self.sandbox,
            quiet_machine: self.quiet_machine,
            ..defaults
        }
    }
}

/// What came of one measuring job.
enum Ended {
    Measured(Vec<OneRun>, Box<JobDetail>),
    /// A signal ended this command.
    Interrupted(u8),
}

impl Measure {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        check_command(context, "measure", &self.command)?;
        let plan = self.plan()?;
        let spec = self.spec(&plan)?;
        let client = context.watching_client()?;
        block_on(self.measure(context, &client, &plan, &spec))
    }

    fn plan(&self) -> Result<Plan, Failure> {
        let mut commands = vec![self.command.clone()];
        if let Some(line) = &self.against {
            let words = hostler_slurm::script::words(line)
                .map_err(|quote| Failure::usage(format!("--against {line}: the quote {quote} does not end")))?;
            if words.is_empty() {
                return Err(Failure::usage("--against names no command").hint("e.g. --against './bench --fast'"));
            }
            commands.push(words);
        }
        let random = || u64::from(u32::from_ne_bytes(hostler_sys::random()));
        Ok(Plan {
            commands,
            runs: self.runs,
            warmup: self.warmup,
            seed: self.seed.unwrap_or_else(random),
            shows_output: self.show_output,
        })
    }

    fn spec(&self, plan: &Plan) -> Result<Submission, Failure> {
        let plan = serde_json::to_string(plan).expect("a plan is valid JSON");
        let argv = vec!["hostler".to_owned(), "measure-runs".to_owned(), "--".to_owned(), plan];
        let work = Work::Command { argv, directory: own_directory()?.into(), script: None };
        let program = self.command[0].rsplit('/').next().unwrap_or_default();
        let environment = own_environment(&PassedOn::chosen(&self.env_only)?);
        let mut spec = self.node.of_job().spec(work, &format!("measure {program}"), environment)?;
        spec.umask = Some(own_umask());
        Ok(spec)
    }

    async fn measure(&self, context: &Context, client: &Client, plan: &Plan, spec: &Submission) -> Outcome {
        let mut interrupts = Interrupts::take()?;
        let most = self.require_quiet.unwrap_or(0);
        for attempt in 0.. {
            let (runs, job) = match self.one_job(context, client, plan, spec, &mut interrupts).await? {
                Ended::Measured(runs, job) => (runs, job),
                Ended::Interrupted(code) => return Ok(code),
            };
            let task = job.tasks_shown.first();
            let certificate = task.and_then(|task| task.certificate.as_deref()).cloned();
            let is_quiet = certificate.as_ref().is_some_and(|it: &Certificate| it.verdict == Verdict::Quiet);
            let node = task.and_then(|task| task.node.as_ref()).map(ToString::to_string).unwrap_or_default();
            let measured = Measurement { job: job.summary.id, node, plan, runs, certificate, attempts: attempt + 1 };
            if !is_quiet && attempt < most {
                context.output.say(&format!("job {}: {}; measuring again", job.summary.id, measured.verdict()));
                continue;
            }
            if context.output.is_json() {
                context.output.json(&measured.json());
            } else {
                context.output.data(&measured.text());
            }
            if self.require_quiet.is_some() && !is_quiet {
                let attempts = plural(attempt + 1, "measurement");
                return Err(Failure::new(format!("the node was not quiet in {attempts}: {}", measured.verdict())));
            }
            break;
        }
        Ok(exit::OK)
    }

    /// Runs one measuring job. A signal cancels it.
    async fn one_job(
        &self,
        context: &Context,
        client: &Client,
        plan: &Plan,
        spec: &Submission,
        interrupts: &mut Interrupts,
    ) -> Result<Ended, Failure> {
        let id = submit_command(client, spec.clone()).await?;
        context.output.say(&format!("job {id} measures"));
        let job = {
            let mut ending = std::pin::pin!(ended(client, id));
            tokio::select! {
                job = &mut ending => job?,
                signal = interrupts.next() => {
                    context.output.say(&format!("cancelling job {id}"));
                    client.act(id, None, JobAction::Cancel).await?;
                    return Ok(Ended::Interrupted(exit_code(signal)));
                }
            }
        };
        let source = Source { task: TaskId { job: id, index: 0 }, ranks: 0..1 };
        if self.show_output {
            context.output.job_stderr(&read(client, &source, Output::Stderr, false).await?);
        }
        let printed = read(client, &source, Output::Stdout, false).await?;
        let lines = printed.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice::<Line>(line).ok());
        let mut runs = Vec::new();
        for line in lines {
            match line {
                Line::Run(run) => runs.push(run),
                Line::Failed(failed) => return Err(Self::failed(id, plan, &failed)),
            }
        }
        if job.summary.state != JobState::Completed || runs.is_empty() {
            return Err(incomplete(&job, &read(client, &source, Output::Stderr, false).await?));
        }
        Ok(Ended::Measured(runs, Box::new(job)))
    }

    /// The error for a run that failed.
    fn failed(id: JobId, plan: &Plan, failed: &FailedRun) -> Failure {
        let command = plan.line(failed.command);
        let message = format!("job {id}: a run of `{command}` failed: {}", failed.why);
        let output = if failed.output.is_empty() { String::new() } else { format!("\nits output:\n{}", failed.output) };
        Failure::new(format!("{message}{output}"))
    }
}

async fn ended(client: &Client, id: JobId) -> Result<JobDetail, Failure> {
    loop {
        let job = client.job_when_ended(id, 1, REQUEST_TIMEOUT).await?;
        if job.summary.state.is_ended() {
            return Ok(job);
        }
    }
}

/// The error for a job that did not complete. `stderr` is what the job wrote.
fn incomplete(job: &JobDetail, stderr: &[u8]) -> Failure {
    let message = job.tasks_shown.iter().find_map(|task| task.message.as_deref());
    let message = message.map(|message| format!(": {message}")).unwrap_or_default();
    let stderr = String::from_utf8_lossy(stderr);
    let stderr = stderr.trim_end();
    let stderr = if stderr.is_empty() { String::new() } else { format!("\n{stderr}") };
    let failure = Failure::new(format!("job {} {}{message}{stderr}", job.summary.id, views::ending(&job.summary)));
    let failure = if message.contains("hostler") && message.contains("No such file") {
        failure.hint("the node's PATH has no `hostler`; with --sandbox, it must be in /usr/bin or /usr/local/bin")
    } else {
        failure
    };
    if job.summary.state == JobState::Timeout { failure.exiting(exit::RUN_TIMEOUT) } else { failure }
}
