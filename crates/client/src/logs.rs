//! A task's output, live: across reconnections by offset, across attempts by their number.

use bytes::Bytes;
use hostler_model::{Attempt, TaskId};
use hostler_proto::link::Output;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::time::{Duration, sleep};

use crate::connection::{Connection, failure};
use crate::patience::Tries;
use crate::routes::output_path;
use crate::{Client, ClientError};

/// The header in which the head says whose output it sends.
const ATTEMPT_HEADER: &str = "hostler-attempt";

/// The pause before asking again for the output of a task that is between two attempts.
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(200);

/// Which part of an output is wanted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OutputPart {
    /// The rank of the node among those of the task.
    pub node_rank: u32,
    /// Offset of the first byte.
    pub from: u64,
    /// Go on until the run ends; otherwise stop at what is there now.
    pub follow: bool,
}

/// One answer with output.
#[derive(Debug)]
pub struct OutputStream {
    /// Which attempt wrote it; zero when none has started.
    pub attempt: Attempt,
    body: Incoming,
    endpoint: crate::Endpoint,
    connection: Connection,
}

impl OutputStream {
    /// The next bytes, or `None` at the end. Cancel safe.
    ///
    /// # Errors
    /// [`ClientError::Interrupted`] when the connection broke before the end.
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
    /// A part of a task's output. Not tried again; for that there is [`Follow`].
    ///
    /// # Errors
    /// As for every call.
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

/// What following an output yields.
#[derive(Debug, PartialEq, Eq)]
pub enum LogEvent {
    /// The next bytes.
    Bytes(Bytes),
    /// Another attempt writes from here on; what came before was the work of an attempt that was given up.
    Attempt(Attempt),
}

/// One output of one task, until the task has ended for good.
#[derive(Debug)]
pub struct Follow<'a> {
    client: &'a Client,
    task: TaskId,
    output: Output,
    node_rank: u32,
    live: bool,
    /// Where the next byte is, in the output of `attempt`.
    offset: u64,
    attempt: Option<Attempt>,
    stream: Option<OutputStream>,
    /// Whether that stream has brought something.
    brought: bool,
    tries: Tries,
}

impl<'a> Follow<'a> {
    /// Follows from the first byte to the task's end.
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

    /// Reads what there is now and stops.
    #[must_use]
    pub fn up_to_now(client: &'a Client, task: TaskId, output: Output) -> Self {
        Self { live: false, ..Self::new(client, task, output) }
    }

    /// On the node of this rank among those of the task, instead of the first.
    #[must_use]
    pub fn on_node(self, node_rank: u32) -> Self {
        Self { node_rank, ..self }
    }

    /// What comes next, or `None` when the task has ended and all was read. Cancel safe: nothing is lost or repeated when the
    /// future is dropped.
    ///
    /// # Errors
    /// When the head says no, or stays away for longer than the client's patience.
    pub async fn next(&mut self) -> Result<Option<LogEvent>, ClientError> {
        loop {
            match self.step().await {
                Ok(Step::Event(event)) => {
                    self.client.back_again(&mut self.tries);
                    return Ok(Some(event));
                }
                Ok(Step::Again) => {}
                Ok(Step::End) => return Ok(None),
                // A head that is stopping says so in mid-stream; the next one goes on.
                Err(error) if error.code() == Some("refusing") => {
                    self.stream = None;
                    sleep(BETWEEN_ATTEMPTS).await;
                }
                Err(error) => {
                    self.stream = None;
                    self.client.away(&mut self.tries, error).await?;
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
            // A node whose run ended before it had opened the file sends nothing: what was written is in the result.
            self.live = false;
            return Ok(if self.brought { Step::End } else { Step::Again });
        }
        sleep(BETWEEN_ATTEMPTS).await;
        Ok(Step::Again)
    }

    /// Opens the stream where the last one ended, or at the start of a new attempt.
    async fn open(&mut self) -> Result<Step, ClientError> {
        let part = OutputPart { node_rank: self.node_rank, from: self.offset, follow: self.live };
        let stream = self.client.output(self.task, self.output, &part).await?;
        self.client.back_again(&mut self.tries);
        let previous = self.attempt.replace(stream.attempt);
        let is_new = previous.is_some_and(|previous| previous != stream.attempt);
        if is_new && self.offset > 0 {
            // What this stream left out belongs to another attempt: start over with this one's first byte.
            self.offset = 0;
            return Ok(Step::Event(LogEvent::Attempt(stream.attempt)));
        }
        self.stream = Some(stream);
        self.brought = false;
        Ok(Step::Again)
    }

    /// Whether the task will never write again, as opposed to waiting for its next attempt.
    async fn has_ended(&self) -> Result<bool, ClientError> {
        let detail = self.client.task(self.task, Duration::ZERO).await?;
        let task = detail.tasks_shown.iter().find(|task| task.index == self.task.index);
        Ok(detail.summary.state.is_ended() || task.is_some_and(|task| task.state.is_ended()))
    }
}

/// What one step of following came to.
enum Step {
    Event(LogEvent),
    Again,
    End,
}
