//! `hostler logs`: prints the output of jobs.

use std::ops::Range;

use clap::Args;
use futures_util::TryStreamExt;
use futures_util::stream::FuturesUnordered;
use hostler_client::{Client, Follow, LogEvent};
use hostler_model::{JobId, JobState, TaskId};
use hostler_proto::link::Output;
use serde_json::json;

use super::target::Target;
use crate::context::{Context, block_on};
use crate::exit;
use crate::failure::{Failure, Outcome};

/// Print the output of a job or of an array task
///
/// The command prints the job's stdout to stdout. It prints the job's stderr and the log of the environment setup to
/// stderr.
#[derive(Debug, Args)]
pub(crate) struct Logs {
    /// Id of a job, e.g. 12, or of an array task, e.g. 12_3
    #[arg(value_name = "ID")]
    target: Target,

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
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let client = context.watching_client()?;
        block_on(async {
            let mut sources = sources_of(&client, self.target).await?;
            if let Some(rank) = self.node_rank {
                sources.iter_mut().for_each(|source| source.ranks = rank..rank.saturating_add(1));
            }
            if context.output.is_json() {
                return self.as_json(context, &client, &sources).await;
            }
            let job = client.job(self.target.job, 0).await?.summary;
            if job.state == JobState::Pending {
                let why = job.reason.map(|reason| format!(": {reason}")).unwrap_or_default();
                context.output.say(&format!("note: job {} has no output yet, because it waits{why}", job.id));
            }
            let is_one = sources.len() == 1;
            for source in sources {
                if !is_one {
                    context.output.say(&format!("==> {} <==", source.task));
                }
                print(context, &client, source, &self.chosen(), self.follow).await?;
            }
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
pub(crate) struct Source {
    pub(crate) task: TaskId,
    /// Ranks of the nodes.
    pub(crate) ranks: Range<u32>,
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
    let is_one = sources.len() == 1;
    for source in sources {
        if !is_one {
            context.output.say(&format!("==> {} <==", source.task));
        }
        print(context, client, source, &[Output::Setup, Output::Stdout, Output::Stderr], true).await?;
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
    let is_mixed = source.ranks.len() > 1;
    let all = source.ranks.flat_map(|rank| outputs.iter().map(move |output| (rank, *output)));
    if !follow {
        for (rank, output) in all {
            copy(context, Follow::up_to_now(client, source.task, output).on_node(rank), output, is_mixed).await?;
        }
        return Ok(());
    }
    // Any error ends all copies at once; `try_join_all` may wait for the copies before it.
    let copies: FuturesUnordered<_> = all
        .map(|(rank, output)| copy(context, Follow::new(client, source.task, output).on_node(rank), output, is_mixed))
        .collect();
    copies.try_collect().await
}

/// Copies one output of a task to this program's output until the task's output ends.
async fn copy(context: &Context, mut follow: Follow<'_>, output: Output, by_line: bool) -> Result<(), Failure> {
    let write = |bytes: &[u8]| context.output.job_output(output == Output::Stdout, bytes);
    // The start of an incomplete line, held back so that output of other nodes does not split it.
    let mut line: Vec<u8> = Vec::new();
    while let Some(event) = follow.next().await? {
        match (event, output) {
            (LogEvent::Bytes(bytes), _) if by_line => {
                line.extend_from_slice(&bytes);
                let whole = line.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
                write(&line[..whole])?;
                line.drain(..whole);
            }
            (LogEvent::Bytes(bytes), _) => write(&bytes)?,
            (LogEvent::Attempt(attempt), Output::Stdout) => {
                line.clear();
                context.output.say(&format!("note: the job was started again; output of attempt {attempt} follows"));
            }
            // The call that copies stdout prints the note about the new attempt.
            (LogEvent::Attempt(_), Output::Stderr | Output::Setup) => line.clear(),
        }
    }
    if !line.is_empty() {
        line.push(b'\n');
        write(&line)?;
    }
    Ok(())
}

/// Reads one output of a task, from its last attempt. Outputs of several nodes are concatenated.
pub(crate) async fn read(client: &Client, source: &Source, output: Output, follow: bool) -> Result<Vec<u8>, Failure> {
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
