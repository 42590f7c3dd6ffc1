//! `hostler logs`: prints the output of jobs.

use std::cell::RefCell;
use std::ops::Range;
use std::time::Instant;

use clap::Args;
use futures_util::TryStreamExt;
use futures_util::stream::FuturesUnordered;
use hostler_client::{Client, Follow, LogEvent};
use hostler_model::{JobId, JobState, TaskId, shortened};
use hostler_proto::link::Output;
use hostler_shepherd::merge::{Labels, Merger};
use serde_json::json;

use super::choice::{self, Word};
use super::target::Target;
use crate::context::{Context, block_on};
use crate::exit;
use crate::failure::{Failure, Outcome};
use crate::output::sections::{Section, Sections};

/// Print the output of a job or of an array task
///
/// The command prints the job's stdout to stdout. It prints the job's stderr and the log of the environment setup to
/// stderr.
#[derive(Debug, Args)]
pub struct Logs {
    /// The job: its id, e.g. 12; an array task, e.g. 12_3; its name; or `last` for your newest job
    #[arg(value_name = "JOB")]
    word: Word,

    /// Print new output until the job ends
    #[arg(short, long)]
    follow: bool,

    /// Print only the output of the node with this rank, for a job on several nodes
    ///
    /// The first node of the job has rank 0.
    #[arg(long, value_name = "RANK")]
    node_rank: Option<u32>,

    /// Print only stdout
    #[arg(long)]
    stdout: bool,

    /// Print only stderr
    #[arg(long)]
    stderr: bool,

    /// Print only the log of the environment setup
    #[arg(long)]
    setup: bool,
}

impl Logs {
    pub fn run(self, context: &Context) -> Outcome {
        let client = context.watching_client()?;
        block_on(async {
            let target = choice::one(&client, &self.word).await?;
            let mut sources = sources_of(&client, target).await?;
            if let Some(rank) = self.node_rank {
                sources.iter_mut().for_each(|source| source.ranks = rank..rank.saturating_add(1));
            }
            if context.output.is_json() {
                return self.as_json(context, &client, &sources).await;
            }
            let job = client.job(target.job, 0).await?.summary;
            if job.state == JobState::Pending {
                let why = job.reason.map(|reason| format!(": {reason}")).unwrap_or_default();
                context.output.say(&format!("note: job {} has no output yet, because it waits{why}", job.id));
            }
            print_all(context, &client, sources, &self.chosen(), self.follow).await?;
            Ok(exit::OK)
        })
    }

    fn chosen(&self) -> Vec<Output> {
        let chosen = [(self.setup, Output::Setup), (self.stdout, Output::Stdout), (self.stderr, Output::Stderr)];
        let all = !chosen.iter().any(|choice| choice.0);
        chosen.into_iter().filter(|choice| all || choice.0).map(|choice| choice.1).collect()
    }

    async fn as_json(&self, context: &Context, client: &Client, sources: &[Source]) -> Outcome {
        let mut all = Vec::new();
        for source in sources {
            for rank in source.ranks.clone() {
                let mut value = json!({ "job": source.task.job, "index": source.task.index });
                if source.ranks != (0..1) {
                    value["node_rank"] = rank.into();
                }
                for output in self.chosen() {
                    let one = Source { ranks: rank..rank + 1, ..source.clone() };
                    let bytes = read(client, &one, output, self.follow).await?;
                    value[output.as_str()] = String::from_utf8_lossy(&bytes).into();
                }
                all.push(value);
            }
        }
        context.output.json(&all);
        Ok(exit::OK)
    }
}

/// A task, and the ranks of the nodes whose output is read.
#[derive(Debug, Clone)]
pub struct Source {
    pub task: TaskId,
    /// Ranks of the nodes.
    pub ranks: Range<u32>,
}

/// The sources for a target: one task or all tasks of a job, each with all of the task's nodes.
async fn sources_of(client: &Client, target: Target) -> Result<Vec<Source>, Failure> {
    let job = client.job(target.job, 0).await?.summary;
    let source = |index| Source { task: TaskId { job: target.job, index }, ranks: 0..job.node_count };
    Ok(match (target.index, &job.array) {
        (Some(index), _) => vec![source(index)],
        (None, Some(array)) => array.indices.iter().map(source).collect(),
        (None, None) => vec![source(0)],
    })
}

/// Follows the tasks of a job to their end, one after another.
pub(crate) async fn follow_job(context: &Context, client: &Client, job: JobId) -> Result<(), Failure> {
    let sources = sources_of(client, Target { job, index: None }).await?;
    print_all(context, client, sources, &[Output::Setup, Output::Stdout, Output::Stderr], true).await
}

/// Prints outputs of tasks, one task after another. With several tasks, each output has a heading.
async fn print_all(
    context: &Context,
    client: &Client,
    sources: Vec<Source>,
    outputs: &[Output],
    follow: bool,
) -> Result<(), Failure> {
    let sections = Sections::new(&context.output);
    let has_headings = sources.len() > 1;
    for source in sources {
        let section = sections.section(has_headings.then(|| source.task.to_string()));
        print_in(&section, context, client, source, outputs, follow).await?;
    }
    Ok(())
}

/// Prints outputs of a task. When following, all outputs are printed as they appear. Output of several nodes is
/// interleaved by line.
pub(crate) async fn print(
    context: &Context,
    client: &Client,
    source: Source,
    outputs: &[Output],
    follow: bool,
) -> Result<(), Failure> {
    print_in(&Sections::new(&context.output).section(None), context, client, source, outputs, follow).await
}

async fn print_in(
    section: &Section<'_>,
    context: &Context,
    client: &Client,
    source: Source,
    outputs: &[Output],
    follow: bool,
) -> Result<(), Failure> {
    let labels = (source.ranks.len() > 1).then_some(Labels::None);
    let shown = Shown::new(context, section, labels);
    let all = source.ranks.flat_map(|rank| outputs.iter().map(move |output| (rank, *output)));
    if !follow {
        for (rank, output) in all {
            let reader = Follow::up_to_now(client, source.task, output).on_node(rank);
            shown.copy(reader, output, rank).await?;
        }
        return Ok(());
    }
    // Any error ends all copies at once; `try_join_all` may wait for the copies before it.
    let copies: FuturesUnordered<_> = all
        .map(|(rank, output)| shown.copy(Follow::new(client, source.task, output).on_node(rank), output, rank))
        .collect();
    copies.try_collect().await
}

/// Prints one output of a task, in which each line starts with the task's index.
pub(crate) async fn print_labelled(
    context: &Context,
    client: &Client,
    source: &Source,
    output: Output,
) -> Result<(), Failure> {
    let sections = Sections::new(&context.output);
    let section = sections.section(None);
    let shown = Shown::new(context, &section, Some(Labels::Numbers { width: 0 }));
    for rank in source.ranks.clone() {
        let reader = Follow::up_to_now(client, source.task, output).on_node(rank);
        shown.copy(reader, output, source.task.index).await?;
    }
    Ok(())
}

/// The outputs under whose headings merged text appears: the setup log shares standard error.
const STREAMS: [Output; 2] = [Output::Stdout, Output::Stderr];

/// This program's standard output and standard error, as outputs of tasks are copied to them.
struct Shown<'a> {
    context: &'a Context,
    section: &'a Section<'a>,
    /// One merger per stream, if several outputs are merged or if lines are labelled.
    mergers: Option<RefCell<[Merger; 2]>>,
}

impl<'a> Shown<'a> {
    /// Copies bytes unchanged if `labels` is `None`.
    fn new(context: &'a Context, section: &'a Section<'a>, labels: Option<Labels>) -> Self {
        let mergers = labels.map(|labels| RefCell::new([Merger::new(labels.clone()), Merger::new(labels)]));
        Self { context, section, mergers }
    }

    /// Copies one output of a task until the task's output ends. `writer` is the number in the label.
    async fn copy(&self, mut follow: Follow<'_>, output: Output, writer: u32) -> Result<(), Failure> {
        let stream = usize::from(output != Output::Stdout);
        // The job's standard error and the log of the setup are two outputs on this program's standard error.
        let source = (writer as usize, usize::from(output == Output::Setup));
        while let Some(event) = self.next(&mut follow).await? {
            match event {
                LogEvent::Bytes(bytes) if self.mergers.is_none() => self.section.write(output, &bytes)?,
                LogEvent::Bytes(bytes) => {
                    self.write_merged(stream, |merger| merger.add(source, &bytes, Instant::now()))?;
                }
                LogEvent::Attempt(attempt) => {
                    self.write_merged(stream, |merger| merger.finish(source))?;
                    // The call that copies stdout prints the note about the new attempt.
                    if output == Output::Stdout {
                        let text = format!("note: the job was started again; output of attempt {attempt} follows");
                        self.context.output.say(&text);
                    }
                }
            }
        }
        self.write_merged(stream, |merger| merger.finish(source))
    }

    /// Returns the next event. Meanwhile, writes incomplete lines that were held back for long enough.
    async fn next(&self, follow: &mut Follow<'_>) -> Result<Option<LogEvent>, Failure> {
        let mut next = std::pin::pin!(follow.next());
        // Each copy waits at least for the line that it has added itself.
        while let Some(due) = self.due() {
            tokio::select! {
                event = &mut next => return Ok(event?),
                () = tokio::time::sleep_until(due.into()) => {}
            }
            for stream in 0..2 {
                self.write_merged(stream, |merger| merger.write_due(Instant::now()))?;
            }
        }
        Ok(next.await?)
    }

    fn due(&self) -> Option<Instant> {
        self.mergers.as_ref().and_then(|mergers| mergers.borrow().iter().filter_map(Merger::due).min())
    }

    /// Writes what the merger of a stream returns.
    fn write_merged(&self, stream: usize, next: impl FnOnce(&mut Merger) -> Vec<u8>) -> Result<(), Failure> {
        let text = self.mergers.as_ref().map(|mergers| next(&mut mergers.borrow_mut()[stream]));
        self.section.write(STREAMS[stream], &text.unwrap_or_default())
    }
}

/// Reads one output of a task, from its last attempt. Outputs of several nodes are concatenated.
pub async fn read(client: &Client, source: &Source, output: Output, follow: bool) -> Result<Vec<u8>, Failure> {
    let mut all = Vec::new();
    for rank in source.ranks.clone() {
        let reader = if follow { Follow::new } else { Follow::up_to_now };
        let mut reader = reader(client, source.task, output).on_node(rank);
        let before = all.len();
        while let Some(event) = reader.next().await? {
            match event {
                LogEvent::Bytes(bytes) => all.extend_from_slice(&bytes),
                LogEvent::Attempt(_) => all.truncate(before),
            }
        }
    }
    Ok(all)
}

/// Prints the main lines of the setup log of a task, each after `lead`.
pub async fn show_setup(context: &Context, client: &Client, task: TaskId, lead: &str) -> Result<(), Failure> {
    let mut follow = Follow::new(client, task, Output::Setup);
    let mut line = Vec::new();
    while let Some(event) = follow.next().await? {
        let LogEvent::Bytes(bytes) = event else { continue };
        for &byte in bytes.iter() {
            if byte != b'\n' && byte != b'\r' {
                line.push(byte);
            } else if let Some(text) = headline(&std::mem::take(&mut line)) {
                context.output.say(&format!("{lead}: {text}"));
            }
        }
    }
    Ok(())
}

/// Returns a line of the setup log without the prefix `hostler: `; `None` for details such as single packages.
fn headline(line: &[u8]) -> Option<String> {
    const DETAILS: [&str; 7] = [
        "Collecting",
        "Downloading",
        "Installing collected",
        "Looking in",
        "Obtaining",
        "Requirement already",
        "Using cached",
    ];
    let text = String::from_utf8_lossy(line);
    let is_detail = text.starts_with([' ', '+', '-']) || DETAILS.iter().any(|word| text.starts_with(word));
    let own_words = text.strip_prefix("hostler: ").unwrap_or(&text);
    (!is_detail && !text.trim().is_empty()).then(|| shortened(own_words, 90))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn setup_log_is_reduced_to_main_lines() {
        for detail in
            ["", "  Downloading x.whl", "Collecting numpy", " + numpy==2.0", "Requirement already satisfied: x"]
        {
            assert_eq!(headline(detail.as_bytes()), None, "{detail}");
        }
        assert_eq!(headline(b"hostler: environment ready").as_deref(), Some("environment ready"));
        assert_eq!(headline(b"Installed 12 packages in 40ms").as_deref(), Some("Installed 12 packages in 40ms"));
    }
}
