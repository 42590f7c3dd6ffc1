//! What every client command has at hand: where to print, which head, and a runtime when it needs one.

use std::future::Future;

use hostler_client::{Client, ClientError, Outage, Patience};

use crate::config;
use crate::failure::Failure;
use crate::output::Output;

/// One invocation.
#[derive(Debug)]
pub(crate) struct Context {
    /// The only way to say something.
    pub(crate) output: Output,
    /// What `--head` or HOSTLER_HEAD says.
    pub(crate) head: Option<String>,
}

impl Context {
    /// A client of the chosen cluster; nothing is connected yet.
    pub(crate) fn client(&self) -> Result<Client, Failure> {
        self.client_with(Patience::COMMAND)
    }

    /// A client for commands that wait for as long as it takes.
    pub(crate) fn watching_client(&self) -> Result<Client, Failure> {
        self.client_with(Patience::WATCH)
    }

    fn client_with(&self, patience: Patience) -> Result<Client, Failure> {
        let endpoint = config::endpoint(self.head.as_deref())?;
        let output = self.output.clone();
        Ok(Client::new(endpoint).with_patience(patience).watched_by(move |outage| match outage {
            Outage::Begins(error) => output.aside(&format!("{}; waiting for it to come back", brief(error))),
            Outage::Over => output.aside("the head is back"),
        }))
    }
}

/// One clause for an outage; the details come if it lasts.
fn brief(error: &ClientError) -> &'static str {
    match error {
        ClientError::Interrupted { .. } => "lost the connection to the head",
        _ => "the head is away",
    }
}

/// Runs `future` on a runtime of this thread: made when it is needed, since that costs as much as some commands take.
pub(crate) fn block_on<T>(future: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new("cannot start the runtime").because(&error))?;
    let result = runtime.block_on(future);
    // A read from standard input may block a helper thread for ever; nobody waits for it.
    runtime.shutdown_background();
    result
}
