//! What client commands share: the output, the chosen head and an async runtime.

use std::future::Future;
use std::time::Duration;

use hostler_client::{Client, ClientError, Outage, RetryLimits};

use crate::config;
use crate::failure::Failure;
use crate::output::Output;

/// The output and head of one invocation.
#[derive(Debug)]
pub struct Context {
    pub output: Output,
    /// The value of `--head` or HOSTLER_HEAD.
    pub head: Option<String>,
    /// How long to wait while the head cannot be reached; as long as the command does by itself if absent.
    pub wait_for_head: Option<Duration>,
}

impl Context {
    /// Returns a client of the chosen cluster. The client connects when it sends its first request.
    pub(crate) fn client(&self) -> Result<Client, Failure> {
        self.client_with(RetryLimits::COMMAND)
    }

    /// A client that retries without a time limit, for commands that wait for jobs.
    pub(crate) fn watching_client(&self) -> Result<Client, Failure> {
        self.client_with(RetryLimits::WATCH)
    }

    /// A client that neither retries nor prints, for a program that shows outages itself.
    pub(crate) fn quiet_client(&self) -> Result<Client, Failure> {
        Ok(Client::new(config::endpoint(self.head.as_deref())?).with_retry_limits(RetryLimits::NONE))
    }

    fn client_with(&self, retry_limits: RetryLimits) -> Result<Client, Failure> {
        let endpoint = config::endpoint(self.head.as_deref())?;
        let output = self.output.clone();
        let retry_limits = self.wait_for_head.map_or(retry_limits, RetryLimits::of);
        Ok(Client::new(endpoint).with_retry_limits(retry_limits).watched_by(move |outage| match outage {
            Outage::Begins(error) => output.say(&format!("{}; retrying", brief(error))),
            Outage::Over => output.say("connected to the head again"),
        }))
    }
}

/// Returns a short description of an outage. The client reports details if the outage lasts.
fn brief(error: &ClientError) -> &'static str {
    match error {
        ClientError::Interrupted { .. } => "connection to the head lost",
        _ => "the head is unreachable",
    }
}

/// Runs `future` on a runtime of this thread. Creates the runtime on demand, because the creation takes as long as some
/// commands.
pub fn block_on<T>(future: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new("cannot start the runtime").because(&error))?;
    let result = runtime.block_on(future);
    // A blocking read of standard input may never return; do not wait for it.
    runtime.shutdown_background();
    result
}
