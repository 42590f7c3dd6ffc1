//! `hostler demo`: runs an example project in a temporary cluster.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use hostler_cli::cluster::{Places, Sizes};
use hostler_cli::commands::logs::show_setup;
use hostler_cli::context::{Context, block_on};
use hostler_cli::exit;
use hostler_cli::failure::{During, Failure, Outcome};
use hostler_cli::fetching;
use hostler_cli::interrupts::{Interrupts, exit_code};
use hostler_cli::output::table::{Align, Table};
use hostler_cli::output::views;
use hostler_cli::submission::narrate;
use hostler_cli::xdg;
use hostler_client::fetch::{Arrived, Destination};
use hostler_client::{CaptureCache, Client, Endpoint, LiveJobs, ProjectFolder, RetryLimits};
use hostler_model::{ArraySpec, JobId, JobSpec, JobState, Request, TaskId, Work};
use hostler_proto::api::{JobDetail, NodeView, TaskView};
use hostler_proto::link::Output;
use hostler_snapshot::OnConflict;
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use crate::embedded::start::bring_up;
use crate::embedded::stop::take_down;

/// The example project, compiled into the executable so that the demonstration works anywhere.
const EXAMPLE: &[(&str, &[u8])] = &[
    ("main.py", include_bytes!("../../../../examples/digits-sweep/main.py")),
    ("requirements.txt", include_bytes!("../../../../examples/digits-sweep/requirements.txt")),
    ("README.md", include_bytes!("../../../../examples/digits-sweep/README.md")),
];

/// Indices of the array: one task per model.
const TASKS: &str = "0-7";

/// Memory per task, unless the nodes have less.
const TASK_MEMORY_BYTES: u64 = 600 << 20;

/// How long one request to the head waits for the end of the job.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Run a guided demonstration in a temporary cluster
///
/// The command starts a private cluster with up to four virtual nodes, trains eight models that recognise handwritten digits,
/// downloads metrics and plots, and stops the cluster. The results are kept. The first run needs a network connection
/// to install scikit-learn.
#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// Directory for the results; replaces files of an earlier demonstration
    #[arg(long, value_name = "DIR", default_value = "hostler-demo-results")]
    to: PathBuf,
}

/// The values of `metrics.json` that the table shows.
#[derive(Debug, Deserialize, Serialize)]
struct Metrics {
    index: u32,
    model: String,
    parameters: serde_json::Value,
    accuracy: f64,
    train_seconds: f64,
}

impl Demo {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let destination =
            Destination { on_conflict: OnConflict::Overwrite, ..fetching::destination(Some(&self.to), true)? };
        let directory = tempfile::Builder::new()
            .prefix("hostler-demo-")
            .tempdir()
            .during(|| "cannot make a temporary directory".to_owned())?;
        block_on(async {
            let mut interrupts = Interrupts::take()?;
            let places = Places::below(directory.path());
            let outcome = tokio::select! {
                outcome = show(context, &places, directory.path(), &destination) => outcome,
                signal = interrupts.next() => {
                    context.output.say("stopping the demonstration");
                    Ok(exit_code(signal))
                }
            };
            // Clean up in any case; a second signal must not prevent that.
            let cleaned = clean_up(&places, directory).await;
            let code = outcome?;
            cleaned.map(|()| code)
        })
    }
}

async fn clean_up(places: &Places, directory: TempDir) -> Result<(), Failure> {
    if places.state().exists() {
        take_down(places, LiveJobs::Cancel, &|_| ()).await.or_else(|failure| match failure.exit {
            // A head that did not start has no jobs to cancel.
            exit::FAILED => Ok(crate::embedded::stop::Stopped::default()),
            _ => Err(failure),
        })?;
    }
    let path = directory.path().to_owned();
    directory.close().during(|| format!("cannot remove {}", path.display()))
}

async fn show(context: &Context, places: &Places, directory: &Path, destination: &Destination) -> Outcome {
    let output = &context.output;
    places.create()?;
    output.say("1. start a private cluster on this machine (hostler up)");
    let started = bring_up(places, Sizes::default(), false, None, |text| output.aside(&format!("   {text}"))).await?;
    output.say(&format!("   {}", describe(&started.nodes)));

    output.say(&format!(
        "2. submit a project folder that trains eight models (hostler submit digits-sweep main.py -a {TASKS})"
    ));
    let project = write_example(directory)?;
    let client = Client::new(Endpoint::Unix(places.socket()?)).with_retry_limits(RetryLimits::COMMAND);
    let narrate = narrate(output);
    let folder = ProjectFolder::open(&project, "main.py")?;
    let captured = folder.capture(&xdg::own_directories(&project), CaptureCache::default(), &narrate)?;
    let memory_bytes = started.nodes.iter().map(|node| node.memory_bytes).min().unwrap_or(0).min(TASK_MEMORY_BYTES);
    let spec = sweep(captured.work(&[]), memory_bytes)?;
    let job = captured.submit(&client, spec.into(), None, &narrate).await?;

    output.say(&format!("3. watch job {job} (hostler jobs, hostler logs {job} -f)"));
    let ended = watch(context, &client, job).await?;

    output.say(&format!("4. download the results (hostler fetch {job})"));
    let results = client.results(false, &[job]).await?.results;
    let haul = fetching::fetch(context, &client, &results, destination).await?;
    let metrics = read_metrics(&haul.arrived);
    present(context, &metrics, destination);
    match ended.summary.state {
        JobState::Completed if haul.is_complete => Ok(exit::OK),
        _ => Err(explain(&client, &ended).await),
    }
}

fn describe(nodes: &[NodeView]) -> String {
    let names: Vec<String> = nodes.iter().map(|node| node.name.to_string()).collect();
    format!("{} nodes are up: {}", nodes.len(), names.join(", "))
}

fn write_example(directory: &Path) -> Result<PathBuf, Failure> {
    let project = directory.join("digits-sweep");
    let write = || {
        fs::create_dir(&project)?;
        EXAMPLE.iter().try_for_each(|(name, bytes)| fs::write(project.join(name), bytes))
    };
    write().during(|| format!("cannot write {}", project.display()))?;
    Ok(project)
}

fn sweep(work: Work, memory_bytes: u64) -> Result<JobSpec, Failure> {
    let array: ArraySpec = TASKS.parse()?;
    Ok(JobSpec { array: Some(array), ..JobSpec::new("digits-sweep", work, Request::new(1, memory_bytes)) })
}

/// Prints state changes of the tasks, and the setup log of the first task, until all tasks have ended.
async fn watch(context: &Context, client: &Client, job: JobId) -> Result<JobDetail, Failure> {
    let first = TaskId { job, index: 0 };
    let mut setup = std::pin::pin!(show_setup(context, client, first, "   environment of task 0"));
    let mut setup_is_shown = false;
    let mut states = BTreeMap::new();
    loop {
        tokio::select! {
            detail = client.job_when_ended(job, u32::MAX, POLL_INTERVAL) => {
                let detail = detail?;
                detail.tasks_shown.iter().for_each(|task| say_change(context, &mut states, task));
                if detail.summary.state.is_ended() {
                    return Ok(detail);
                }
            }
            result = &mut setup, if !setup_is_shown => {
                result?;
                setup_is_shown = true;
            }
        }
    }
}

fn say_change(context: &Context, states: &mut BTreeMap<u32, JobState>, task: &TaskView) {
    if states.insert(task.index, task.state) == Some(task.state) {
        return;
    }
    let node = task.node.as_ref().map(|node| format!(" on {node}")).unwrap_or_default();
    let text = match task.state {
        JobState::Pending | JobState::Completing => return,
        JobState::Starting => format!("starts{node}"),
        JobState::Running => format!("runs{node}"),
        state => state.to_string(),
    };
    context.output.say(&format!("   task {} {text}", task.index));
}

/// Reads the metrics of all tasks that wrote a metrics file, best accuracy first.
fn read_metrics(arrived: &[Arrived]) -> Vec<Metrics> {
    let read = |result: &Arrived| serde_json::from_slice(&fs::read(result.path.join("metrics.json")).ok()?).ok();
    let mut metrics: Vec<Metrics> = arrived.iter().filter_map(read).collect();
    metrics.sort_by(|a, b| b.accuracy.total_cmp(&a.accuracy));
    metrics
}

fn present(context: &Context, metrics: &[Metrics], destination: &Destination) {
    let output = &context.output;
    if output.is_json() {
        output.json(metrics);
        return;
    }
    output.data(&table(metrics));
    output.say(&format!("plots, metrics and logs of every task are in {}", destination.directory.display()));
}

fn table(metrics: &[Metrics]) -> String {
    let mut table = Table::new(&[
        ("TASK", Align::Right),
        ("ACCURACY", Align::Right),
        ("TRAINED", Align::Right),
        ("MODEL", Align::Left),
        ("PARAMETERS", Align::Left),
    ]);
    for row in metrics {
        table.row([
            row.index.to_string(),
            format!("{:.2}%", row.accuracy * 100.0),
            format!("{:.2}s", row.train_seconds),
            row.model.clone(),
            parameters(&row.parameters),
        ]);
    }
    table.render(None)
}

/// Formats the parameters of a model, e.g. `C=1.0 gamma=0.002`.
fn parameters(value: &serde_json::Value) -> String {
    let pairs = value.as_object().into_iter().flatten().map(|(name, value)| format!("{name}={value}"));
    pairs.collect::<Vec<_>>().join(" ")
}

/// The error of a failed demonstration, with the last output of a failed task.
async fn explain(client: &Client, job: &JobDetail) -> Failure {
    let failure = Failure::new(format!("the demonstration failed: its job {}", views::ending(&job.summary)));
    let Some(task) = job.tasks_shown.iter().find(|task| task.state.is_ended() && task.state != JobState::Completed)
    else {
        return failure;
    };
    let failure = match &task.message {
        Some(message) => failure.because(&std::io::Error::other(message.clone())),
        None => failure,
    };
    let source =
        hostler_cli::commands::logs::Source { task: TaskId { job: job.summary.id, index: task.index }, ranks: 0..1 };
    for output in [Output::Stderr, Output::Setup] {
        let bytes = hostler_cli::commands::logs::read(client, &source, output, false).await.unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some(last) = text.lines().rfind(|line| !line.trim().is_empty()) {
            return failure.because(&std::io::Error::other(last.to_owned()));
        }
    }
    failure
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_shows_accuracy_time_and_parameters() {
        let row = |index, model: &str, accuracy| Metrics {
            index,
            model: model.to_owned(),
            parameters: serde_json::json!({ "C": 1.0, "gamma": 0.002 }),
            accuracy,
            train_seconds: 0.126,
        };
        let expected = "\
TASK  ACCURACY  TRAINED  MODEL  PARAMETERS
   2    98.70%    0.13s  SVC    C=1.0 gamma=0.002
   0     9.50%    0.13s  Other  C=1.0 gamma=0.002
";
        assert_eq!(table(&[row(2, "SVC", 0.987), row(0, "Other", 0.095)]), expected);
    }

    #[test]
    fn example_project_is_complete() {
        let project = tempfile::tempdir().expect("temporary directory");
        let path = write_example(project.path()).expect("writable");
        assert!(path.join("main.py").is_file() && path.join("requirements.txt").is_file());
    }
}
