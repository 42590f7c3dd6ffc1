//! `hostler forward`: reaches TCP ports and Unix sockets of a job from this machine, and the other way round.

pub(super) mod local;
mod pair;
mod reverse;
mod server;
mod stdio;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use futures_util::future::{join_all, pending, select_all};
use hostler_client::Client;
use hostler_model::{JobState, NodeName, TaskId};
use hostler_proto::api::JobSummary;
use hostler_proto::forward::Destination;
use serde::Serialize;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use self::local::{Connection, Listener};
use self::pair::Pair;
use self::reverse::{JobListener, Reverse};
use self::server::trouble;
pub(super) use self::server::{JobServer, PAUSE};
use self::stdio::Stdio;
use super::choice::{self, Word};
use super::target::Target;
use crate::context::{Context, block_on};
use crate::exit;
use crate::failure::{Failure, Outcome};
use crate::interrupts::Interrupts;
use crate::output::views;

/// How long one request for the job's state may wait.
pub(super) const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Time for the last bytes to arrive after the end of the job.
const CLOSING: Duration = Duration::from_secs(3);

/// Reach ports and Unix sockets of a job from this machine
///
/// Each connection to a local port becomes a connection to the TCP port or socket of the job, until you press Ctrl-C or the
/// job ends. Everybody on this machine can connect to a local port; with --socket, only you can. Only the job's user can
/// forward ports and sockets.
#[derive(Debug, Args)]
pub struct Forward {
    /// The job: its id, e.g. 12; an array task, e.g. 12_3; its name; or `last` for your newest job
    #[arg(value_name = "JOB")]
    job: Word,

    /// Port of the job, e.g. 8888, or 9000:8888 for local port 9000, 0:8888 for a free one
    ///
    /// Also the path of a Unix socket that contains a slash, e.g. ./job.sock in the job's folder, or 9000:/path/job.sock.
    /// Without a local port, any free one leads to a socket.
    #[arg(value_name = "[LOCAL:]PORT", required_unless_present = "reverse")]
    pairs: Vec<Pair>,

    /// Let the job reach a port from here: its port 8081, or 8081:9000 for port 9000 here
    ///
    /// Only programs of the job can connect, to 127.0.0.1:8081 on its node. 0:9000 takes a free port, 8081:HOST:80 leads
    /// to another machine, and ./job.sock:9000 is a Unix socket in the job's folder. May be given several times.
    #[arg(long, value_name = "PORT[:TARGET]", conflicts_with = "stdio")]
    reverse: Vec<Reverse>,

    /// Listen on a Unix socket at this path instead of a local port, for you alone
    #[arg(long, value_name = "PATH", conflicts_with = "stdio")]
    socket: Option<PathBuf>,

    /// Connect standard input and output to the job, e.g. as an SSH ProxyCommand
    #[arg(long)]
    stdio: bool,

    /// Rank of the node, for a job on several nodes [default: 0]
    #[arg(long, value_name = "RANK", default_value_t = 0, hide_default_value = true)]
    node_rank: u32,
}

/// A forwarded port or socket, as JSON.
#[derive(Serialize)]
struct Forwarded<'a> {
    /// Address of the local port, or path of the socket.
    local: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    port: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    socket: Option<&'a str>,
    /// Whether the job connects to the local address.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    reverse: bool,
    #[serde(flatten)]
    task: TaskId,
    node: &'a NodeName,
}

impl Forward {
    pub fn run(self, context: &Context) -> Outcome {
        if self.socket.is_some() && self.pairs.is_empty() {
            return Err(Failure::usage("--socket needs one port or socket of the job"));
        }
        let is_one = matches!(&self.pairs[..], [Pair { local: None, .. }]);
        if (self.stdio || self.socket.is_some()) && !is_one {
            return Err(Failure::usage(
                "--stdio and --socket take one port or socket of the job, without a local port",
            ));
        }
        let client = if self.stdio { context.client()? } else { context.watching_client()? };
        block_on(async {
            let forwarding = Forwarding { target: choice::one(&client, &self.job).await?, flags: self };
            match forwarding.flags.stdio {
                true => forwarding.on_stdio(&client).await,
                false => forwarding.on_listeners(context, Arc::new(client)).await,
            }
        })
    }
}

/// The command, with the job that it names.
struct Forwarding {
    target: Target,
    flags: Forward,
}

impl Forwarding {
    fn task(&self) -> TaskId {
        TaskId { job: self.target.job, index: self.target.index.unwrap_or(0) }
    }

    fn server(&self, at: &Destination) -> JobServer {
        JobServer { task: self.task(), rank: self.flags.node_rank, at: at.clone() }
    }

    async fn on_stdio(&self, client: &Client) -> Outcome {
        let carried = self.server(&self.flags.pairs[0].to).carry(client, &mut Stdio::take()).await;
        carried.map(|()| exit::OK).map_err(|error| match error.code() {
            Some("no_listener") => Failure::from(error).exiting(exit::FAILED),
            _ => error.into(),
        })
    }

    async fn on_listeners(&self, context: &Context, client: Arc<Client>) -> Outcome {
        let mut interrupts = Interrupts::take()?;
        let node = self.node(&client).await?;
        let mut ways = Vec::new();
        for pair in &self.flags.pairs {
            let listener = match &self.flags.socket {
                Some(path) => Listener::on_socket(path)?,
                None => Listener::on_port(pair.local_port())
                    .await
                    .map_err(|failure| failure.hint("use another local port, e.g. 0:8888 for a free one"))?,
            };
            ways.push((listener, self.server(&pair.to)));
        }
        let mut listeners = Vec::new();
        for Reverse { at, target } in &self.flags.reverse {
            listeners.push(JobListener::start(&client, self.server(at), target.clone()).await?);
        }
        self.print(context, &ways, &listeners, &node)?;
        let reversed = join_all(listeners.into_iter().map(|listener| listener.serve(context, &client)));
        let end = async {
            tokio::select! {
                ended = self.ended(&client) => ended,
                // Its futures have no end.
                _ = reversed, if !self.flags.reverse.is_empty() => pending().await,
            }
        };
        let ended = tokio::select! {
            ended = serve(context, &client, ways, end) => ended?,
            _ = interrupts.next() => return Ok(exit::OK),
        };
        context.output.say(&format!("job {} {}; nothing is forwarded any more", self.target, views::ending(&ended)));
        Ok(exit::OK)
    }

    /// Checks that the job's servers can be reached. Returns their node.
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
            let why = format!("belongs to {}, who alone can reach its ports", detail.summary.user);
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
        let node = task.nodes.get(self.flags.node_rank as usize).cloned();
        node.ok_or_else(|| refused(format!("has no node of rank {}", self.flags.node_rank)))
    }

    fn print(
        &self,
        context: &Context,
        ways: &[(Listener, JobServer)],
        listeners: &[JobListener],
        node: &NodeName,
    ) -> Result<(), Failure> {
        for (listener, JobServer { at, .. }) in ways {
            let local = listener.address()?;
            if context.output.is_json() {
                context.output.json(&self.forwarded(&local, at, node));
            } else {
                context.output.data(&format!("{local} -> {at} of job {} on {node}", self.target));
            }
        }
        for JobListener { at: JobServer { at, .. }, target, .. } in listeners {
            let local = target.as_str();
            if context.output.is_json() {
                context.output.json(&Forwarded { reverse: true, ..self.forwarded(local, at, node) });
            } else {
                context.output.data(&format!("{at} of job {} on {node} -> {local}", self.target));
            }
        }
        Ok(())
    }

    fn forwarded<'a>(&self, local: &'a str, at: &'a Destination, node: &'a NodeName) -> Forwarded<'a> {
        let (port, socket) = match at {
            Destination::Port(port) => (Some(*port), None),
            Destination::Socket(path) => (None, Some(&path[..])),
            Destination::Accepted(_) => (None, None),
        };
        Forwarded { local, port, socket, reverse: false, task: self.task(), node }
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

/// Forwards the connections that each listener accepts to its server, until `end` is ready. Returns the value of `end`.
pub(super) async fn serve<T>(
    context: &Context,
    client: &Arc<Client>,
    ways: Vec<(Listener, JobServer)>,
    end: impl Future<Output = T>,
) -> T {
    let mut connections = JoinSet::new();
    let mut last_trouble = None;
    tokio::pin!(end);
    let ended = loop {
        tokio::select! {
            (server, accepted) = accept(&ways), if !ways.is_empty() => match accepted {
                Ok(connection) => {
                    let (client, server) = (Arc::clone(client), server.clone());
                    connections.spawn(async move {
                        let outcome = connection.carry(&client, &server).await;
                        (server.at, outcome)
                    });
                }
                Err(error) => {
                    context.output.say(&format!("cannot accept a connection: {error}"));
                    sleep(PAUSE).await;
                }
            },
            Some(Ok((to, outcome))) = connections.join_next() => {
                let trouble = trouble(&to, outcome);
                // A browser tries again and again.
                if let Some(text) = trouble.as_ref().filter(|_| trouble != last_trouble) {
                    context.output.say(text);
                }
                last_trouble = trouble;
            }
            ended = &mut end => break ended,
        }
    };
    drop(ways);
    let rest = async { while connections.join_next().await.is_some() {} };
    // Connections that the local programs keep open end with this program.
    let _ = timeout(CLOSING, rest).await;
    ended
}

/// The next connection, and the server that it is for. Cancel safe.
async fn accept(ways: &[(Listener, JobServer)]) -> (&JobServer, io::Result<Connection>) {
    let all = ways.iter().map(|(listener, _)| Box::pin(listener.accept()));
    let (accepted, at, _) = select_all(all).await;
    (&ways[at].1, accepted)
}
