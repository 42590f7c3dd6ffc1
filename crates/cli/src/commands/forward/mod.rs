//! `hostler forward`: reaches TCP ports of a job from this machine.

mod local;
mod ports;
mod stdio;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use futures_util::future::select_all;
use hostler_client::{Client, ClientError};
use hostler_model::{JobState, NodeName, TaskId};
use hostler_proto::api::JobSummary;
use serde::Serialize;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use self::local::{Connection, Listener};
use self::ports::PortPair;
use self::stdio::Stdio;
use super::target::Target;
use crate::context::{Context, block_on};
use crate::exit;
use crate::failure::{Failure, Outcome};
use crate::interrupts::Interrupts;
use crate::output::views;

/// How long one request for the job's state may wait.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Pause after an outage of the head that outlasts the client's own retries, and after a failed `accept`.
const PAUSE: Duration = Duration::from_secs(1);

/// Time for the last bytes to arrive after the end of the job.
const CLOSING: Duration = Duration::from_secs(3);

/// Reach TCP ports of a running job from this machine
///
/// Each connection to a local port becomes a connection to the port of the job, until you press Ctrl-C or the job ends.
/// Everybody on this machine can connect to a local port; with --socket, only you can. Only the job's user can forward
/// ports.
#[derive(Debug, Args)]
pub(crate) struct Forward {
    /// Id of a job, e.g. 12, or of an array task, e.g. 12_3
    #[arg(value_name = "ID")]
    target: Target,

    /// Port of the job, e.g. 8888, or 9000:8888 for local port 9000, 0:8888 for a free one
    #[arg(value_name = "[LOCAL:]PORT", required = true)]
    ports: Vec<PortPair>,

    /// Listen on a Unix socket at this path instead of a local port, for you alone
    #[arg(long, value_name = "PATH", conflicts_with = "stdio")]
    socket: Option<PathBuf>,

    /// Connect standard input and output to the port, e.g. as an SSH ProxyCommand
    #[arg(long)]
    stdio: bool,

    /// Rank of the node, for a job on several nodes [default: 0]
    #[arg(long, value_name = "RANK", default_value_t = 0, hide_default_value = true)]
    node_rank: u32,
}

/// A port of a job, on one of its nodes.
#[derive(Debug, Clone, Copy)]
struct JobPort {
    task: TaskId,
    rank: u32,
    port: u16,
}

/// A forwarded port, as JSON.
#[derive(Serialize)]
struct Forwarded<'a> {
    /// Address of the local port, or path of the socket.
    local: &'a str,
    port: u16,
    #[serde(flatten)]
    task: TaskId,
    node: &'a NodeName,
}

impl Forward {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        if (self.stdio || self.socket.is_some()) && (self.ports.len() > 1 || self.ports[0].local.is_some()) {
            return Err(Failure::usage("--stdio and --socket take one port of the job, without a local port"));
        }
        block_on(async { if self.stdio { self.on_stdio(context).await } else { self.on_listeners(context).await } })
    }

    fn task(&self) -> TaskId {
        TaskId { job: self.target.job, index: self.target.index.unwrap_or(0) }
    }

    fn to(&self, port: u16) -> JobPort {
        JobPort { task: self.task(), rank: self.node_rank, port }
    }

    async fn on_stdio(&self, context: &Context) -> Outcome {
        let client = context.client()?;
        let carried = self.to(self.ports[0].port).carry(&client, &mut Stdio::take()).await;
        carried.map(|()| exit::OK).map_err(|error| match error.code() {
            Some("no_listener") => Failure::from(error).exiting(exit::FAILED),
            _ => error.into(),
        })
    }

    async fn on_listeners(&self, context: &Context) -> Outcome {
        let mut interrupts = Interrupts::take()?;
        let client = Arc::new(context.watching_client()?);
        let node = self.node(&client).await?;
        let mut listeners = Vec::new();
        for PortPair { local, port } in &self.ports {
            listeners.push(match &self.socket {
                Some(path) => Listener::on_socket(path)?,
                None => Listener::on_port(local.unwrap_or(*port)).await?,
            });
        }
        self.print(context, &listeners, &node)?;
        let ended = tokio::select! {
            ended = self.serve(context, &client, listeners) => ended?,
            _ = interrupts.next() => return Ok(exit::OK),
        };
        context.output.say(&format!(
            "job {} {}; its ports are no longer forwarded",
            self.target,
            views::ending(&ended)
        ));
        Ok(exit::OK)
    }

    /// Checks that the job's ports can be forwarded. Returns the node that has them.
    async fn node(&self, client: &Client) -> Result<NodeName, Failure> {
        let detail = match self.target.index {
            Some(_) => client.task(self.task(), Duration::ZERO).await?,
            None => client.job_when_ended(self.target.job, 1, Duration::ZERO).await?,
        };
        let refused = |why: String| Failure::new(format!("job {} {why}", self.target)).exiting(exit::REFUSED);
        if detail.summary.array.is_some() && self.target.index.is_none() {
            return Err(
                refused("is an array".to_owned()).hint(format!("name one of its tasks, e.g. {}_0", self.target))
            );
        }
        if detail.summary.user != client.me().await?.user {
            let why = format!("belongs to {}, who alone can forward its ports", detail.summary.user);
            return Err(refused(why));
        }
        let task = views::of_task(&detail, self.task().index);
        if task.state != JobState::Running {
            let failure = refused(format!("{}, so nothing listens on its ports", views::ending(&task)));
            return Err(match task.state.is_ended() {
                true => failure,
                false => failure.hint(format!("try again when it runs; `hostler why {}` says when", self.target.job)),
            });
        }
        let node = task.nodes.get(self.node_rank as usize).cloned();
        node.ok_or_else(|| refused(format!("has no node of rank {}", self.node_rank)))
    }

    fn print(&self, context: &Context, listeners: &[Listener], node: &NodeName) -> Result<(), Failure> {
        for (PortPair { port, .. }, listener) in self.ports.iter().zip(listeners) {
            let local = listener.address()?;
            if context.output.is_json() {
                context.output.json(&Forwarded { local: &local, port: *port, task: self.task(), node });
            } else {
                context.output.data(&format!("{local} -> port {port} of job {} on {node}", self.target));
            }
        }
        Ok(())
    }

    /// Forwards connections until the job ends. Returns how it ended.
    async fn serve(
        &self,
        context: &Context,
        client: &Arc<Client>,
        listeners: Vec<Listener>,
    ) -> Result<JobSummary, Failure> {
        let mut connections = JoinSet::new();
        let mut last_trouble = None;
        let job = self.ended(client);
        tokio::pin!(job);
        let ended = loop {
            tokio::select! {
                (port, accepted) = self.accept(&listeners) => match accepted {
                    Ok(connection) => {
                        let (client, to) = (Arc::clone(client), self.to(port));
                        connections.spawn(async move { (port, connection.carry(&client, to).await) });
                    }
                    Err(error) => {
                        context.output.say(&format!("cannot accept a connection: {error}"));
                        sleep(PAUSE).await;
                    }
                },
                Some(Ok((port, outcome))) = connections.join_next() => {
                    let trouble = trouble(port, outcome);
                    // A browser tries again and again.
                    if let Some(text) = trouble.as_ref().filter(|_| trouble != last_trouble) {
                        context.output.say(text);
                    }
                    last_trouble = trouble;
                }
                ended = &mut job => break ended?,
            }
        };
        drop(listeners);
        let rest = async { while connections.join_next().await.is_some() {} };
        // Connections that the local programs keep open end with this program.
        let _ = timeout(CLOSING, rest).await;
        Ok(ended)
    }

    /// The next connection, and the job's port for it. Cancel safe.
    async fn accept(&self, listeners: &[Listener]) -> (u16, io::Result<Connection>) {
        let all = listeners.iter().map(|listener| Box::pin(listener.accept()));
        let (accepted, at, _) = select_all(all).await;
        (self.ports[at].port, accepted)
    }

    /// Waits for the end of the task, however long the head is away.
    async fn ended(&self, client: &Client) -> Result<JobSummary, Failure> {
        loop {
            match client.task(self.task(), REQUEST_TIMEOUT).await {
                Ok(detail) => {
                    let task = views::of_task(&detail, self.task().index);
                    if task.state.is_ended() {
                        return Ok(task);
                    }
                }
                Err(error) if error.is_transient() => sleep(PAUSE).await,
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl JobPort {
    /// Connects to the port, and carries bytes to and from `near`.
    async fn carry(self, client: &Client, near: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> Result<(), ClientError> {
        client.forward(self.task, self.rank, self.port).await?.carry(near).await
    }
}

/// What to tell the user about a connection that has ended. Nothing about one that the local program broke off.
fn trouble(port: u16, outcome: Result<(), ClientError>) -> Option<String> {
    let error = outcome.err().filter(|error| !matches!(error, ClientError::Local(_)))?;
    let hints = error.hints().into_iter().map(|hint| format!("\nhint: {hint}"));
    Some(format!("a connection to port {port} failed: {error}{}", hints.collect::<String>()))
}
