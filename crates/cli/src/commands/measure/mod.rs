//! `hostler measure`: measures the run time of a command, alone on a node.

mod across;
mod plot;
mod report;
mod runs;
mod statistics;

use std::path::PathBuf;

use clap::{ArgMatches, Args, Command, FromArgMatches};
use futures_util::future::join_all;
use hostler_client::Client;
use hostler_model::{
    Constraint, JobId, JobState, NodeName, NodePatterns, NodeState, PartitionName, Submission, TaskId, Work, plural,
};
use hostler_proto::api::{JobAction, JobDetail};
use hostler_proto::link::Output;
use tokio::sync::watch;

use self::across::Across;
use self::report::Measurement;
pub use self::runs::MeasureRuns;
use self::runs::{FailedRun, Line, Plan};
use super::logs::{Source, read};
use super::run::{own_directory, own_environment, own_umask};
use crate::command_words::check_command;
use crate::context::{Context, block_on};
use crate::exit;
use crate::failure::{During, Failure, Outcome};
use crate::flags::{JobFlags, Memory, TimeLimit, VariableNames};
use crate::interrupts::{Interrupts, exit_code};
use crate::output::views;
use crate::passed_on::PassedOn;

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
pub struct Measure {
    /// Number of measured runs
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20, value_parser = crate::flags::number::<1, 100_000>)]
    runs: u32,

    /// Number of runs before that, which do not count
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = crate::flags::number::<0, 100_000>)]
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

    /// Measure on each of these nodes, e.g. n1,n3 or n[1-4,7]; * means all
    ///
    /// Says whether results from nodes with the same processors can be compared: the medians differ by at most --tolerance
    /// with a confidence of 95 %.
    #[arg(long, value_name = "NODES", conflicts_with_all = ["against", "constraint"])]
    on_each: Option<NodePatterns>,

    /// Difference in percent up to which results of two nodes are comparable
    #[arg(long, value_name = "PERCENT", default_value_t = 2.0, requires = "on_each", value_parser = percent)]
    tolerance: f64,

    /// Draw all run times in this SVG file
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,

    /// Measure again up to N times while the node is noisy, and fail if it stays noisy
    #[arg(long, value_name = "N", value_parser = crate::flags::number::<0, 1000>)]
    require_quiet: Option<u32>,

    /// Show the output of the command on standard error
    ///
    /// By default, the output goes to a pipe, and only the end of a failed run's output is shown.
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
    #[arg(short, long, value_name = "N", value_parser = crate::flags::at_least_one)]
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

/// The exit code with which all measuring jobs have to stop.
type Stop = watch::Sender<Option<u8>>;

fn percent(text: &str) -> Result<f64, String> {
    let found = text.trim_end_matches('%').trim_end().parse().ok().filter(|value| (0.01..=100.0).contains(value));
    found.ok_or_else(|| "expected a percentage from 0.01 to 100".to_owned())
}

impl Measure {
    pub fn run(self, context: &Context) -> Outcome {
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
        let specs: Vec<Submission> = match &self.on_each {
            None => vec![spec.clone()],
            Some(patterns) => {
                let chosen = nodes(context, client, patterns).await?;
                chosen.iter().map(|node| Submission { constraint: Some(only(node)), ..spec.clone() }).collect()
            }
        };
        let stop = Stop::new(None);
        let mut interrupts = Interrupts::take()?;
        let mut all =
            std::pin::pin!(join_all(specs.iter().map(|spec| self.until_quiet(context, client, plan, spec, &stop))));
        let ended = loop {
            tokio::select! {
                ended = &mut all => break ended,
                signal = interrupts.next() => stop.send_replace(Some(exit_code(signal))),
            };
        };
        let (mut measured, mut failure) = (Vec::new(), None);
        for ended in ended {
            match ended {
                Ok(one) => measured.extend(one),
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        let is_complete = measured.len() == specs.len();
        if is_complete {
            return self.show(context, measured);
        }
        if !measured.is_empty() {
            // What the other nodes have measured stays true.
            self.show(context, measured)?;
        }
        match (failure, *stop.borrow()) {
            (Some(failure), _) => Err(failure),
            (None, code) => Ok(code.unwrap_or(exit::FAILED)),
        }
    }

    fn show(&self, context: &Context, measured: Vec<Measurement<'_>>) -> Outcome {
        if let Some(file) = &self.plot {
            let picture = plot::svg(&measured);
            std::fs::write(file, picture).during(|| format!("cannot write the plot {}", file.display()))?;
        }
        let (measured, broken): (Vec<_>, Vec<_>) = measured.into_iter().partition(|it| it.failed.is_none());
        let noisy = measured.iter().find(|it| !it.is_quiet()).map(|it| {
            let attempts = plural(it.attempts, "measurement");
            Failure::new(format!("node {} was not quiet in {attempts}: {}", it.node, it.verdict()))
        });
        let (json, text) = match measured.first().or(broken.first()) {
            Some(one) if self.on_each.is_none() => (one.json(), one.text()),
            _ => {
                let across = Across::new(measured, &broken, self.tolerance / 100.0);
                (across.json(), across.text())
            }
        };
        if context.output.is_json() {
            context.output.json(&json);
        } else {
            context.output.data(&text);
        }
        if let Some((failure, _)) = broken.into_iter().find_map(|it| it.failed) {
            return Err(failure);
        }
        match noisy {
            Some(failure) if self.require_quiet.is_some() => Err(failure),
            _ => Ok(exit::OK),
        }
    }

    /// Measures until the node is quiet, or until there was no quiet measurement in as many attempts as the user allows.
    /// `None` if it has to stop. A failure stops the other jobs.
    async fn until_quiet<'a>(
        &self,
        context: &Context,
        client: &Client,
        plan: &'a Plan,
        spec: &Submission,
        stop: &Stop,
    ) -> Result<Option<Measurement<'a>>, Failure> {
        let most = self.require_quiet.unwrap_or(0);
        let mut attempts = 1;
        loop {
            let measured = self.one_job(context, client, plan, spec, stop, attempts).await;
            match measured {
                Ok(Some(measured)) if measured.failed.is_none() && !measured.is_quiet() && attempts <= most => {
                    context.output.say(&format!("job {}: {}; measuring again", measured.job, measured.verdict()));
                    attempts += 1;
                }
                measured => {
                    if !measured.as_ref().is_ok_and(|it| it.as_ref().is_none_or(|it| it.failed.is_none())) {
                        stop.send_replace(Some(exit::FAILED));
                    }
                    return measured;
                }
            }
        }
    }

    /// Runs one measuring job. `None` if it has to stop, and the job was cancelled.
    async fn one_job<'a>(
        &self,
        context: &Context,
        client: &Client,
        plan: &'a Plan,
        spec: &Submission,
        stop: &Stop,
        attempts: u32,
    ) -> Result<Option<Measurement<'a>>, Failure> {
        let id = client.submit_new(spec.clone()).await?;
        let on = spec.constraint.as_ref().filter(|_| self.on_each.is_some());
        let on = on.map(|node| format!(" on node {node}")).unwrap_or_default();
        context.output.say(&format!("job {id} measures{on}"));
        let mut stopped = stop.subscribe();
        let job = tokio::select! {
            job = client.ended(id, 1) => job?,
            _ = stopped.wait_for(Option::is_some) => {
                context.output.say(&format!("cancelling job {id}"));
                client.act(id, None, JobAction::Cancel).await?;
                return Ok(None);
            }
        };
        let source = Source { task: TaskId { job: id, index: 0 }, ranks: 0..1 };
        if self.show_output {
            context.output.job_stderr(&read(client, &source, Output::Stderr, false).await?);
        }
        let printed = read(client, &source, Output::Stdout, false).await?;
        let lines = printed.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice::<Line>(line).ok());
        let (mut runs, mut failed) = (Vec::new(), None);
        for line in lines {
            match line {
                Line::Run(run) => runs.push(run),
                Line::Failed(run) => failed = Some((Self::failed(id, plan, &run), Some(run))),
            }
        }
        if failed.is_none() && (job.summary.state != JobState::Completed || runs.is_empty()) {
            failed = Some((incomplete(&job, &read(client, &source, Output::Stderr, false).await?), None));
        }
        let task = job.tasks_shown.first();
        let node = task.and_then(|task| task.node.as_ref()).map(ToString::to_string).unwrap_or_default();
        if let Some(wanted) = spec.constraint.as_ref().filter(|it| self.on_each.is_some() && it.to_string() != node) {
            return Err(Failure::new(format!(
                "job {id} ran on node {node}, which has the name of node {wanted} as a feature"
            ))
            .hint("`hostler node show` lists features; rename this one"));
        }
        let certificate = task.and_then(|task| task.certificate.as_deref()).cloned();
        Ok(Some(Measurement { job: id, node, plan, runs, certificate, attempts, failed }))
    }

    /// The error for a run that failed.
    fn failed(id: JobId, plan: &Plan, failed: &FailedRun) -> Failure {
        let command = plan.line(failed.command);
        let (kind, all) = if failed.is_warmup { ("warm-up run", plan.warmup) } else { ("run", plan.runs) };
        let message = format!("job {id}: {kind} {} of {all} of `{command}` failed: {}", failed.number, failed.why);
        let output = if failed.output.is_empty() { String::new() } else { format!("\nits output:\n{}", failed.output) };
        Failure::new(format!("{message}{output}"))
    }
}

/// The nodes that are up and whose names match.
async fn nodes(context: &Context, client: &Client, patterns: &NodePatterns) -> Result<Vec<NodeName>, Failure> {
    let mut all = client.nodes().await?;
    all.retain(|node| patterns.matches(&node.name));
    let (up, left_out): (Vec<_>, Vec<_>) = all.into_iter().partition(|node| node.state == NodeState::Up);
    for node in &left_out {
        context.output.say(&format!("node {} is not up, so it is left out", node.name));
    }
    match (up.is_empty(), left_out.is_empty()) {
        (false, _) => Ok(up.into_iter().map(|node| node.name).collect()),
        (true, true) => {
            Err(Failure::new(format!("no node matches {patterns}")).hint("`hostler nodes` lists the nodes"))
        }
        (true, false) => Err(Failure::new(format!("no node that matches {patterns} is up"))),
    }
}

/// The constraint that only this node satisfies.
fn only(node: &NodeName) -> Constraint {
    node.as_str().parse().expect("a node's name is a feature")
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
