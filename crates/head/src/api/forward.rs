//! Connections to TCP ports and Unix sockets of running tasks, and from them to their users; see [`hostler_proto::forward`].

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::http::StatusCode;
use axum::response::Response;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use hostler_model::{JobId, NodeName, TaskId};
use hostler_proto::forward::{Destination, ForwardAnswer, MAX_MESSAGE_BYTES, MAX_PATH_BYTES, SILENCE};
use hostler_proto::link::StreamKind;
use serde::Deserialize;
use tokio::time::{sleep, timeout};
use utoipa::ToSchema;

use super::error::ApiError;
use super::extract::{Path, Query};
use super::output::{AGENT_TIME, Live, Standing, ask, one_of, silent, standing, wait_until_gone};
use super::results::readable;
use super::who::User;
use crate::head::Head;
use crate::lease::Lease;

/// Time for the last bytes to arrive after the end of a task.
const CLOSING: Duration = Duration::from_secs(10);

/// The query of a request for a connection. One of `port`, `socket` and `accepted` is needed.
#[derive(Deserialize, ToSchema)]
pub(crate) struct Wanted {
    /// TCP port on which the task listens.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 65_535)]
    port: Option<u16>,
    /// Path of the Unix socket on which the task listens, relative to the task's folder or absolute.
    #[serde(default)]
    socket: Option<String>,
    /// Number of a connection that the task has made to a listener of `GET /jobs/{id}/tasks/{index}/listen`.
    #[serde(default)]
    accepted: Option<u64>,
    /// Rank of the node, for a task on several nodes; 0 if absent.
    #[serde(default)]
    node_rank: u32,
}

impl Wanted {
    fn destination(self) -> Result<Destination, ApiError> {
        match (self.port, self.socket, self.accepted) {
            (Some(0), None, None) => Err(ApiError::bad_request("`port` is 1 to 65535")),
            (Some(port), None, None) => Ok(Destination::Port(port)),
            (None, Some(path), None) => at_path(path),
            (None, None, Some(number)) => Ok(Destination::Accepted(number)),
            _ => Err(ApiError::bad_request("one of `port`, `socket` and `accepted` is needed")),
        }
    }
}

/// The query of a request for a listener. One of `port` and `socket` is needed.
#[derive(Deserialize, ToSchema)]
pub(crate) struct Listener {
    /// TCP port; 0 for any free one.
    #[serde(default)]
    port: Option<u16>,
    /// Path of the Unix socket, relative to the task's folder or absolute.
    #[serde(default)]
    socket: Option<String>,
    /// Rank of the node, for a task on several nodes; 0 if absent.
    #[serde(default)]
    node_rank: u32,
}

impl Listener {
    fn address(self) -> Result<Destination, ApiError> {
        match (self.port, self.socket) {
            (Some(port), None) => Ok(Destination::Port(port)),
            (None, Some(path)) => at_path(path),
            (Some(_), Some(_)) | (None, None) => Err(ApiError::bad_request("one of `port` and `socket` is needed")),
        }
    }
}

fn at_path(path: String) -> Result<Destination, ApiError> {
    if (1..=MAX_PATH_BYTES).contains(&path.len()) && !path.contains('\0') {
        return Ok(Destination::Socket(path));
    }
    Err(ApiError::bad_request(format!("`socket` is a path of at most {MAX_PATH_BYTES} bytes, without NUL")))
}

/// What the node of a task does: connect to a port or socket of the job, or listen on one.
#[derive(Debug, Clone)]
enum Request {
    Connect(Destination),
    Listen(Destination),
}

/// `GET /jobs/{id}/tasks/{index}/forward`: a WebSocket with a connection to a port or socket of the task. Only for the job's owner,
/// because servers in a job often trust everybody who reaches them. It breaks when the user loses rights or the task has
/// ended.
pub(crate) async fn forward(
    user: User,
    Extension(lease): Extension<Lease>,
    State(head): State<Arc<Head>>,
    Path((id, index)): Path<(JobId, u32)>,
    Query(wanted): Query<Wanted>,
    upgrade: WebSocketUpgrade,
) -> Result<Response, ApiError> {
    let node_rank = wanted.node_rank;
    let request = Request::Connect(wanted.destination()?);
    open(user, lease, head, TaskId { job: id, index }, node_rank, request, upgrade).await
}

/// `GET /jobs/{id}/tasks/{index}/listen`: a WebSocket that announces the connections that the task makes to a port or socket.
/// Only for the job's owner, who gets what the job sends.
pub(crate) async fn listen(
    user: User,
    Extension(lease): Extension<Lease>,
    State(head): State<Arc<Head>>,
    Path((id, index)): Path<(JobId, u32)>,
    Query(listener): Query<Listener>,
    upgrade: WebSocketUpgrade,
) -> Result<Response, ApiError> {
    let node_rank = listener.node_rank;
    let request = Request::Listen(listener.address()?);
    open(user, lease, head, TaskId { job: id, index }, node_rank, request, upgrade).await
}

/// Has the node of a task open a WebSocket, and joins it with that of the user.
async fn open(
    user: User,
    lease: Lease,
    head: Arc<Head>,
    task: TaskId,
    node_rank: u32,
    request: Request,
    upgrade: WebSocketUpgrade,
) -> Result<Response, ApiError> {
    let job = readable(&head, &user, task.job).await?;
    if !user.0.owns(&job) {
        return Err(user.0.refused(&job).into());
    }
    let live = match standing(&head, &user, task, node_rank).await? {
        Standing::Live(live) if live.runs => live,
        Standing::Live(_) => return Err(not_running(task, "is starting").hint("try again when it runs")),
        Standing::Waiting(_) => return Err(not_running(task, "is waiting").hint("try again when it runs")),
        Standing::Over(..) | Standing::Ended => return Err(not_running(task, "is over")),
    };
    let client_place = one_of(&head.streams.forwarded, &live, "are connected to ports or sockets")?;
    let agent = tokio::select! {
        agent = connect(&head, &live, task, &request) => agent?,
        () = wait_until_gone(&head, &live) => return Err(not_running(task, "is over")),
    };
    Ok(limited(upgrade).on_upgrade(async move |client| {
        let _until_the_end = client_place;
        let is_over = async {
            wait_until_gone(&head, &live).await;
            sleep(CLOSING).await;
        };
        tokio::select! {
            () = join(client, agent) => {}
            () = is_over => {}
            () = head.stop.cancelled() => {}
            _ = lease.ended() => {}
        }
    }))
}

/// Bounds the memory of a connection.
pub(super) fn limited(upgrade: WebSocketUpgrade) -> WebSocketUpgrade {
    let upgrade = upgrade.read_buffer_size(MAX_MESSAGE_BYTES);
    upgrade.max_message_size(MAX_MESSAGE_BYTES).max_frame_size(MAX_MESSAGE_BYTES)
}

/// Asks the node of a task to connect to a port or socket, or to listen there. Returns the agent's end of the WebSocket.
async fn connect(head: &Head, live: &Live, task: TaskId, request: &Request) -> Result<WebSocket, ApiError> {
    let kind = match request.clone() {
        Request::Connect(to) => to.into(),
        Request::Listen(Destination::Port(port)) => StreamKind::Listen { port, socket: None },
        Request::Listen(Destination::Socket(path)) => StreamKind::Listen { port: 0, socket: Some(path) },
        Request::Listen(Destination::Accepted(_)) => StreamKind::Listen { port: 0, socket: None },
    };
    let mut place = head.streams.sockets.wait_for(&live.node);
    let answer = async {
        if !ask(head, live, &place.name, kind) {
            return None;
        }
        let mut agent = place.arrival().await?;
        let Some(Ok(Message::Text(answer))) = agent.recv().await else { return None };
        Some((agent, serde_json::from_str(&answer).ok()?))
    };
    let (agent, answer) = timeout(AGENT_TIME, answer).await.ok().flatten().ok_or_else(|| silent(&live.node))?;
    let node = &live.node;
    match (answer, request) {
        (ForwardAnswer::Connected, _) => Ok(agent),
        (ForwardAnswer::Taken, Request::Connect(at) | Request::Listen(at)) => Err(taken(node, at)),
        (ForwardAnswer::Failed(why), Request::Connect(to)) => {
            Err(failed(format!("node {node} cannot connect to {to} of task {task}: {why}")))
        }
        (ForwardAnswer::Failed(why), Request::Listen(at)) => {
            let error = failed(format!("node {node} cannot listen on {at} in task {task}: {why}"));
            Err(match at {
                Destination::Port(1..1024) => error.hint("ports below 1024 are only for root"),
                _ => error,
            })
        }
        (
            ForwardAnswer::NothingListens | ForwardAnswer::NothingOnSocket,
            Request::Connect(to) | Request::Listen(to),
        ) => Err(no_listener(node, task, to)),
    }
}

fn failed(message: String) -> ApiError {
    ApiError::new(StatusCode::BAD_GATEWAY, "port_unreachable", message)
}

fn taken(node: &NodeName, at: &Destination) -> ApiError {
    let message = format!("{at} of node {node} is taken");
    let hint = match at {
        Destination::Socket(_) => "another program listens there, or the file is not a socket: choose another path",
        _ => "choose another port of the job, e.g. 0 for a free one",
    };
    ApiError::new(StatusCode::CONFLICT, "address_taken", message).hint(hint)
}

/// The answer does not reveal whether a program outside of the job listens there, or whether a file exists.
fn no_listener(node: &NodeName, task: TaskId, to: &Destination) -> ApiError {
    let message = match to {
        Destination::Accepted(_) => format!("the connection of task {task} has been given up"),
        _ => format!("nothing in task {task} listens on {to} of node {node}"),
    };
    let what = match to {
        Destination::Accepted(_) => return ApiError::new(StatusCode::CONFLICT, "no_listener", message),
        Destination::Port(_) => "port",
        Destination::Socket(_) => "path, which is relative to the job's folder",
    };
    let check = format!("check the {what}, and that the job has started its server");
    ApiError::new(StatusCode::CONFLICT, "no_listener", message)
        .hint(format!("{check}; the server must be a process of the job itself"))
        .hint("for a job on several nodes, --node-rank chooses the node")
}

fn not_running(task: TaskId, state: &str) -> ApiError {
    let message = format!("task {task} {state}, so nothing listens on its ports");
    ApiError::new(StatusCode::CONFLICT, "not_running", message)
        .hint(format!("`hostler job {}` shows the task's state", task.job))
}

/// Relays messages in both directions until both sides have closed, or one connection has broken.
async fn join(client: WebSocket, agent: WebSocket) {
    let (mut to_client, mut from_client) = client.split();
    let (mut to_agent, mut from_agent) = agent.split();
    let (is_complete, other) = tokio::select! {
        is_complete = pass(&mut from_client, &mut to_agent) => (is_complete, &mut from_agent),
        is_complete = pass(&mut from_agent, &mut to_client) => (is_complete, &mut from_client),
    };
    // The side that has closed has received everything. Dropping the connection of the other side now would discard bytes
    // that are on their way to it.
    while is_complete && matches!(timeout(SILENCE, other.next()).await, Ok(Some(Ok(_)))) {}
}

/// Relays messages one way, reading no message before the one before is sent. Returns whether the connection ended with
/// a close frame; otherwise it is broken.
async fn pass(from: &mut SplitStream<WebSocket>, to: &mut SplitSink<WebSocket, Message>) -> bool {
    while let Ok(Some(Ok(message))) = timeout(SILENCE, from.next()).await {
        match message {
            Message::Close(frame) => return to.send(Message::Close(frame)).await.is_ok(),
            // The WebSocket answers pings itself. A ping that is passed on shows the other end that this one lives.
            Message::Pong(_) => {}
            message => {
                if to.send(message).await.is_err() {
                    return false;
                }
            }
        }
    }
    false
}
