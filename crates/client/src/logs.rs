//! Live output of a task. The offset survives reconnections; a new attempt starts at 0.

use bytes::Bytes;
use hostler_model::{Attempt, TaskId};
use hostler_proto::link::Output;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::time::{Duration, sleep};

use crate::connection::{Connection, failure};
use crate::retry_limits::Tries;
use crate::{Client, ClientError};

/// Header with the number of the attempt that wrote the output.
const ATTEMPT_HEADER: &str = "hostler-attempt";

/// Poll interval between two attempts of a task.
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(200);

/// The requested part of an output.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OutputPart {
    /// Rank of the node within the task.
    pub node_rank: u32,
    /// Offset of the first byte.
    pub from: u64,
    /// Whether to continue until the run ends, instead of stopping at the present end of the output.
    pub follow: bool,
}

/// An answer with output.
#[derive(Debug)]
pub struct OutputStream {
    /// The attempt that wrote the output; 0 if none has started.
    pub attempt: Attempt,
    body: Incoming,
    endpoint: crate::Endpoint,
    connection: Connection,
}

impl OutputStream {
    /// The next bytes, or `None` at the end. Cancel safe.
    ///
    /// # Errors
    /// [`ClientError::Interrupted`] if the connection broke.
    pub async fn next(&mut self) -> Result<Option<Bytes>, ClientError> {
        while let Some(frame) = self.body.frame().await {
            let frame = frame.map_err(|error| failure(&self.endpoint, &error))?;
            if let Ok(bytes) = frame.into_data() {
                return Ok(Some(bytes));
            }
        }
        Ok(None)
    }
}

impl Client {
    /// Requests a part of a task's output. Not retried; see [`Follow`].
    pub async fn output(&self, task: TaskId, output: Output, part: &OutputPart) -> Result<OutputStream, ClientError> {
        let path = output_path(task, output, part);
        let (connection, response) = self.open(&path).await?;
        let attempt = response.headers().get(ATTEMPT_HEADER).and_then(|value| value.to_str().ok()?.parse().ok());
        Ok(OutputStream {
            attempt: Attempt(attempt.unwrap_or_default()),
            body: response.into_body(),
            endpoint: self.endpoint().clone(),
            connection,
        })
    }
}

/// The path of one output of a task.
fn output_path(task: TaskId, output: Output, part: &OutputPart) -> String {
    let OutputPart { node_rank, from, follow } = part;
    let output = output.as_str();
    format!("/jobs/{}/tasks/{}/output/{output}?from={from}&follow={follow}&node_rank={node_rank}", task.job, task.index)
}

/// An event while following an output.
#[derive(Debug, PartialEq, Eq)]
pub enum LogEvent {
    Bytes(Bytes),
    /// A new attempt has started; earlier bytes are from an attempt that was given up.
    Attempt(Attempt),
}

/// Follows one output of a task until the task has finally ended.
#[derive(Debug)]
pub struct Follow<'a> {
    client: &'a Client,
    task: TaskId,
    output: Output,
    node_rank: u32,
    live: bool,
    /// Offset of the next byte in the output of `attempt`.
    offset: u64,
    attempt: Option<Attempt>,
    stream: Option<OutputStream>,
    /// Whether the present stream has delivered bytes.
    brought: bool,
    tries: Tries,
}

impl<'a> Follow<'a> {
    /// Follows from the first byte until the task ends.
    #[must_use]
    pub fn new(client: &'a Client, task: TaskId, output: Output) -> Self {
        Self {
            client,
            task,
            output,
            node_rank: 0,
            live: true,
            offset: 0,
            attempt: None,
            stream: None,
            brought: false,
            tries: client.tries(),
        }
    }

    /// Reads the present output and stops.
    #[must_use]
    pub fn up_to_now(client: &'a Client, task: TaskId, output: Output) -> Self {
        Self { live: false, ..Self::new(client, task, output) }
    }

    /// Selects the node with this rank within the task, instead of the first.
    #[must_use]
    pub fn on_node(self, node_rank: u32) -> Self {
        Self { node_rank, ..self }
    }

    /// The next event, or `None` if the task has ended and all output was read. Cancel safe: no bytes are lost or
    /// repeated if the future is dropped.
    ///
    /// # Errors
    /// If the head refuses, or is unreachable for longer than the client's patience.
    pub async fn next(&mut self) -> Result<Option<LogEvent>, ClientError> {
        loop {
            match self.step().await {
                Ok(Step::Event(event)) => {
                    self.client.end_outage(&mut self.tries);
                    return Ok(Some(event));
                }
                Ok(Step::Again) => {}
                Ok(Step::End) => return Ok(None),
                // A stopping head ends the stream with this error. The restarted head continues the stream.
                Err(error) if error.code() == Some("refusing") => {
                    self.stream = None;
                    sleep(BETWEEN_ATTEMPTS).await;
                }
                Err(error) => {
                    self.stream = None;
                    self.client.retry_pause(&mut self.tries, error).await?;
                }
            }
        }
    }

    async fn step(&mut self) -> Result<Step, ClientError> {
        let Some(stream) = &mut self.stream else {
            return self.open().await;
        };
        if let Some(bytes) = stream.next().await? {
            self.offset += bytes.len() as u64;
            self.brought = true;
            return Ok(Step::Event(LogEvent::Bytes(bytes)));
        }
        if let Some(OutputStream { connection, .. }) = self.stream.take() {
            self.client.keep(connection);
        }
        if !self.live {
            return Ok(Step::End);
        }
        if self.has_ended().await? {
            // If the run ended before the node opened the output file, the stream is empty: read the output from the
            // result.
            self.live = false;
            return Ok(if self.brought { Step::End } else { Step::Again });
        }
        sleep(BETWEEN_ATTEMPTS).await;
        Ok(Step::Again)
    }

    /// Opens the stream at the present offset, or at the start of a new attempt.
    async fn open(&mut self) -> Result<Step, ClientError> {
        let part = OutputPart { node_rank: self.node_rank, from: self.offset, follow: self.live };
        let stream = self.client.output(self.task, self.output, &part).await?;
        self.client.end_outage(&mut self.tries);
        let previous = self.attempt.replace(stream.attempt);
        let is_new = previous.is_some_and(|previous| previous != stream.attempt);
        if is_new && self.offset > 0 {
            // The offset belongs to the earlier attempt: start at the first byte of this one.
            self.offset = 0;
            return Ok(Step::Event(LogEvent::Attempt(stream.attempt)));
        }
        self.stream = Some(stream);
        self.brought = false;
        Ok(Step::Again)
    }

    /// Returns whether the task has ended. If not, the task waits for its next attempt.
    async fn has_ended(&self) -> Result<bool, ClientError> {
        let detail = self.client.task(self.task, Duration::ZERO).await?;
        let task = detail.tasks_shown.iter().find(|task| task.index == self.task.index);
        Ok(detail.summary.state.is_ended() || task.is_some_and(|task| task.state.is_ended()))
    }
}

/// The result of one step of [`Follow`].
enum Step {
    Event(LogEvent),
    Again,
    End,
}
