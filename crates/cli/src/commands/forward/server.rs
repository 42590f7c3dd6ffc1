//! Servers of jobs, and connections with them.

use std::time::Duration;

use hostler_client::{Client, ClientError};
use hostler_model::TaskId;
use hostler_proto::forward::Destination;
use tokio::io::{AsyncRead, AsyncWrite};

/// Pause after an outage of the head that outlasts the client's own retries, and after a failed `accept`.
pub(in crate::commands) const PAUSE: Duration = Duration::from_secs(1);

/// A server of a job, on one of its nodes.
#[derive(Debug, Clone)]
pub(in crate::commands) struct JobServer {
    pub(in crate::commands) task: TaskId,
    pub(in crate::commands) rank: u32,
    pub(in crate::commands) at: Destination,
}

impl JobServer {
    /// Connects to the server, and carries bytes to and from `near`.
    pub(super) async fn carry(
        &self,
        client: &Client,
        near: &mut (impl AsyncRead + AsyncWrite + Unpin),
    ) -> Result<(), ClientError> {
        client.forward(self.task, self.rank, &self.at).await?.carry(near).await
    }
}

/// What to tell the user about a connection that has ended. Nothing about one that the local program broke off.
pub(super) fn trouble(to: &Destination, outcome: Result<(), ClientError>) -> Option<String> {
    let error = outcome.err().filter(|error| !matches!(error, ClientError::Local(_)))?;
    let hints = error.hints().into_iter().map(|hint| format!("\nhint: {hint}"));
    let preposition = if matches!(to, Destination::Accepted(_)) { "from" } else { "to" };
    Some(format!("a connection {preposition} {to} failed: {error}{}", hints.collect::<String>()))
}
