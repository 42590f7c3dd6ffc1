//! `hostler logs`.

use clap::Args;
use hostler_client::{Client, Follow, LogEvent};
use hostler_model::{JobId, TaskId};
use hostler_proto::link::Output;
use serde_json::json;

use super::target::Target;
use crate::context::{Context, block_on};
use crate::exit;
use crate::failure::{Failure, Outcome};

/// Print what jobs write: their stdout to stdout, their stderr and the preparation of their environment to stderr
#[derive(Debug, Args)]
pub(crate) struct Logs {
    /// A job such as 12, or a task of an array such as 12_3
    #[arg(value_name = "ID")]
    target: Target,

    /// Go on until the job has ended
    #[arg(short, long)]
    follow: bool,

    /// Only what the job wrote to stdout
    #[arg(long)]
    stdout: bool,

    /// Only what the job wrote to stderr
    #[arg(long)]
    stderr: bool,

    /// Only what the preparation of its environment wrote
    #[arg(long)]
    setup: bool,
}

impl Logs {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let client = context.watching_client()?;
        block_on(async {
            let tasks = tasks_of(&client, self.target).await?;
            if context.output.is_json() {
                return self.as_json(context, &client, &tasks).await;
            }
            for &task in &tasks {
                if tasks.len() > 1 {
                    context.output.say(&format!("==> {task} <=="));
                }
                print(context, &client, task, &self.chosen(), self.follow).await?;
            }
            Ok(exit::OK)
        })
    }

    fn chosen(&self) -> Vec<Output> {
        let chosen = [(self.setup, Output::Setup), (self.stdout, Output::Stdout), (self.stderr, Output::Stderr)];
        let all = !chosen.iter().any(|choice| choice.0);
        chosen.into_iter().filter(|choice| all || choice.0).map(|choice| choice.1).collect()
    }

    async fn as_json(&self, context: &Context, client: &Client, tasks: &[TaskId]) -> Outcome {
        let mut all = Vec::new();
        for &task in tasks {
            let mut value = json!({ "job": task.job, "index": task.index });
            for output in self.chosen() {
                let bytes = read(client, task, output, self.follow).await?;
                value[output.as_str()] = String::from_utf8_lossy(&bytes).into();
            }
            all.push(value);
        }
        context.output.json(&all);
        Ok(exit::OK)
    }
}

/// The tasks that a target stands for: itself, or every task of its job.
async fn tasks_of(client: &Client, target: Target) -> Result<Vec<TaskId>, Failure> {
    if let Some(index) = target.index {
        return Ok(vec![TaskId { job: target.job, index }]);
    }
    let job = client.job(target.job, 0).await?;
    Ok(match job.summary.array {
        Some(array) => array.indices.iter().map(|index| TaskId { job: target.job, index }).collect(),
        None => vec![TaskId { job: target.job, index: 0 }],
    })
}

/// Follows every task of a job to its end, one after another.
pub(crate) async fn follow_job(context: &Context, client: &Client, job: JobId) -> Result<(), Failure> {
    let tasks = tasks_of(client, Target { job, index: None }).await?;
    for &task in &tasks {
        if tasks.len() > 1 {
            context.output.say(&format!("==> {task} <=="));
        }
        print(context, client, task, &[Output::Setup, Output::Stdout, Output::Stderr], true).await?;
    }
    Ok(())
}

/// Prints outputs of a task; those that are followed at the same time, as they appear.
pub(crate) async fn print(
    context: &Context,
    client: &Client,
    task: TaskId,
    outputs: &[Output],
    follow: bool,
) -> Result<(), Failure> {
    if !follow {
        for &output in outputs {
            copy(context, Follow::up_to_now(client, task, output), output).await?;
        }
        return Ok(());
    }
    let has = |output| outputs.contains(&output);
    let one = async |output| match has(output) {
        true => copy(context, Follow::new(client, task, output), output).await,
        false => Ok(()),
    };
    tokio::try_join!(one(Output::Setup), one(Output::Stdout), one(Output::Stderr))?;
    Ok(())
}

/// Copies one output to ours, to its end.
async fn copy(context: &Context, mut follow: Follow<'_>, output: Output) -> Result<(), Failure> {
    while let Some(event) = follow.next().await? {
        match (event, output) {
            (LogEvent::Bytes(bytes), Output::Stdout) => context.output.job_stdout(&bytes),
            (LogEvent::Bytes(bytes), Output::Stderr | Output::Setup) => context.output.job_stderr(&bytes),
            (LogEvent::Attempt(attempt), Output::Stdout) => {
                context.output.say(&format!("note: the job was started again; attempt {attempt} writes from here on"));
            }
            // Said once is enough.
            (LogEvent::Attempt(_), Output::Stderr | Output::Setup) => {}
        }
    }
    Ok(())
}

/// Reads one output of a task into memory, from its last attempt.
pub(crate) async fn read(client: &Client, task: TaskId, output: Output, follow: bool) -> Result<Vec<u8>, Failure> {
    let mut reader = if follow { Follow::new(client, task, output) } else { Follow::up_to_now(client, task, output) };
    let mut all = Vec::new();
    while let Some(event) = reader.next().await? {
        match event {
            LogEvent::Bytes(bytes) => all.extend_from_slice(&bytes),
            LogEvent::Attempt(_) => all.clear(),
        }
    }
    Ok(all)
}
