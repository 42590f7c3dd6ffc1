//! A task's output and terminal. While the task runs, its node supplies the output; afterwards, the task's result
//! contains the output.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use futures_util::{SinkExt, StreamExt};
use hostler_core::head::{ConnectionId, Job, Refusal};
use hostler_listen::{UsageLimits, UsagePermit};
use hostler_model::{Attempt, Digest, JobId, JobState, NodeName, RunId, TaskId};
use hostler_proto::api::{ShortOutput, WATCHING_HEADER};
use hostler_proto::link::{HeadMessage, Output, StreamKind, StreamRequest};
use hostler_proto::manifest::{Content, ResultManifest};
use hostler_proto::record::EndedTask;
use serde::Deserialize;
use tokio::time::{Instant, timeout};
use utoipa::ToSchema;

use super::blobs::read;
use super::error::ApiError;
use super::extract::{Path, Query};
use super::reply::Binary;
use super::results::readable;
use super::until::until;
use super::who::User;
use crate::answers::Answer;
use crate::blobs::{Library, LibraryError, read_content};
use crate::client_limits::Party;
use crate::head::Head;
use crate::lease::Lease;
use crate::streams::{Extent, Place, Upload};
use crate::views::History;

/// Header with the attempt that wrote the output.
const ATTEMPT_HEADER: HeaderName = HeaderName::from_static("hostler-attempt");

/// Header with the offset of the first byte of the response.
const OFFSET_HEADER: HeaderName = HeaderName::from_static("hostler-offset");

/// Header with the size of the whole output when it was read.
const SIZE_HEADER: HeaderName = HeaderName::from_static("hostler-size");

/// Timeout for an agent to open a requested stream.
pub(super) const AGENT_TIME: Duration = Duration::from_secs(10);

/// Maximum size of a terminal message, in both directions.
pub(super) const TERMINAL_BYTES: usize = 1 << 20;

/// Maximum size of an output that comes with the job.
const SHORT_BYTES: u64 = 16 << 10;

/// A timeout that never expires in practice. The client that follows the output ends the wait by closing its
/// connection.
const FOREVER: Duration = Duration::from_secs(365 * 24 * 3600);

/// The query of a request for output.
#[derive(Deserialize, ToSchema)]
pub(crate) struct Part {
    /// Offset of the first byte.
    #[serde(default)]
    from: u64,
    /// Start this many bytes before the end instead of at `from`.
    #[schema(maximum = 262_144)]
    tail: Option<u64>,
    /// Maximum number of bytes; all if absent.
    #[schema(minimum = 1, maximum = 262_144)]
    limit: Option<u64>,
    /// Follow the output until the run ends; wait for a task that has not started.
    #[serde(default)]
    follow: bool,
    /// Rank of the node, for a task on several nodes; 0 if absent.
    #[serde(default)]
    node_rank: u32,
}

/// Maximum value of `tail` and `limit`.
const MAX_RANGE_BYTES: u64 = 256 << 10;

/// The bytes that a request wants.
#[derive(Debug, Clone, Copy)]
struct Range {
    output: Output,
    from: u64,
    tail: Option<u64>,
    limit: Option<u64>,
}

/// `GET /jobs/{id}/tasks/{index}/output/{output}`: bytes from offset `from` on, from the node with the given rank. With
/// `follow`, the response waits for the task's start and ends with the run.
pub(crate) async fn output(
    user: User,
    Extension(holds): Extension<Arc<Answer>>,
    State(head): State<Arc<Head>>,
    Path((id, index, output)): Path<(JobId, u32, Output)>,
    Query(Part { from, tail, limit, follow, node_rank: rank }): Query<Part>,
) -> Result<Binary, ApiError> {
    if tail.is_some_and(|tail| tail > MAX_RANGE_BYTES)
        || limit.is_some_and(|limit| !(1..=MAX_RANGE_BYTES).contains(&limit))
    {
        return Err(ApiError::bad_request(format!("`tail` and `limit` are at most {MAX_RANGE_BYTES} bytes")));
    }
    let range = Range { output, from, tail, limit };
    let task = TaskId { job: id, index };
    loop {
        if head.stop.is_cancelled() {
            return Err(ApiError::refusing("the head is stopping"));
        }
        match standing(&head, &user, task, rank).await? {
            Standing::Waiting(_) if follow => {
                until(&head, id, Instant::now() + FOREVER, |job| !job.is_some_and(|job| job.pending.contains(index)))
                    .await;
            }
            Standing::Waiting(attempt) => return Ok(empty(attempt)),
            Standing::Over(attempt, Some(manifest)) => {
                // The end of the task and its result may not be durable yet.
                head.engine.settled().await?;
                return from_manifest(&head, holds, attempt, manifest, range).await;
            }
            Standing::Over(attempt, None) => return Ok(empty(attempt)),
            Standing::Ended => return from_result(&head, holds, task, rank, range).await,
            Standing::Live(live) => {
                let reader = one_of(&head.streams.output_readers, &live, "read the output")?;
                // If there is no body, the task has just ended or moved to another node.
                let Range { output, from, tail, limit } = range;
                let what = StreamKind::Output { output, from, follow, tail, limit };
                if let Some(upload) = from_node(&head, &live, what, follow).await? {
                    let extent = upload.extent;
                    let body = upload.map(move |piece| {
                        let _until_the_end = &reader;
                        piece
                    });
                    return Ok(answer(live.run.attempt, extent, Body::from_stream(body)));
                }
            }
        }
    }
}

/// State of a task with regard to its output.
pub(super) enum Standing {
    /// Not started. The attempt is the previous one, or zero.
    Waiting(Attempt),
    Live(Live),
    /// Ended on the requested node, but not on all nodes of the task: the attempt, and the digest of the node's result.
    Over(Attempt, Option<Digest>),
    Ended,
}

/// A task that is placed on a node and has not ended there.
pub(super) struct Live {
    run: RunId,
    rank: u32,
    pub(super) node: NodeName,
    has_terminal: bool,
    pub(super) runs: bool,
}

pub(super) async fn standing(head: &Head, user: &User, task: TaskId, rank: u32) -> Result<Standing, ApiError> {
    let job: Arc<Job> = readable(head, user, task.job).await?;
    if rank >= job.spec.nodes {
        return Err(no_such_rank(&job, rank));
    }
    if let Some(active) = job.active.get(&task.index) {
        let part = active.part(rank).ok_or_else(|| no_such_rank(&job, rank))?;
        if let Some(over) = &part.over {
            return Ok(Standing::Over(active.run.attempt, over.manifest()));
        }
        return Ok(Standing::Live(Live {
            run: active.run,
            rank,
            node: part.node.clone(),
            has_terminal: job.spec.pty.is_some(),
            runs: active.started_at.is_some(),
        }));
    }
    if job.pending.contains(task.index) {
        return Ok(Standing::Waiting(Attempt(job.next_attempt(task.index).0 - 1)));
    }
    match job.ending_of(task.index) {
        Some(_) => Ok(Standing::Ended),
        None => Err(Refusal::NoSuchTask { job: task.job, index: task.index }.into()),
    }
}

/// The answer for a task without output.
fn empty(attempt: Attempt) -> Binary {
    answer(attempt, Extent::default(), Body::empty())
}

fn answer(attempt: Attempt, extent: Extent, body: Body) -> Binary {
    let headers = [
        (ATTEMPT_HEADER, attempt.to_string()),
        (OFFSET_HEADER, extent.offset.to_string()),
        (SIZE_HEADER, extent.size.to_string()),
        (CONTENT_TYPE, "application/octet-stream".to_owned()),
    ];
    Binary((headers, body).into_response())
}

/// Reads the output of an ended task from its result.
async fn from_result(
    head: &Arc<Head>,
    holds: Arc<Answer>,
    task: TaskId,
    rank: u32,
    range: Range,
) -> Result<Binary, ApiError> {
    let mut row = row_of(head, task).await?;
    if row.is_none() {
        // The end of the task may not be durable yet.
        head.engine.settled().await?;
        row = row_of(head, task).await?;
    }
    let attempt = row.as_ref().map_or(Attempt(0), |row| row.attempt);
    let Some(result) = row.and_then(|row| row.results().find(|result| result.rank == rank)) else {
        // The task never ran, or its output was lost with its node.
        return Ok(empty(attempt));
    };
    if !head.find_job(holds.party(), task.job).await?.is_some_and(|job| job.results.contains(task.index)) {
        return Err(ApiError::dropped(task));
    }
    from_manifest(head, holds, attempt, result.manifest, range).await
}

async fn from_manifest(
    head: &Arc<Head>,
    holds: Arc<Answer>,
    attempt: Attempt,
    manifest: Digest,
    Range { output, from, tail, limit }: Range,
) -> Result<Binary, ApiError> {
    let result = from_disk(head, holds.party(), move |library| library.result(&manifest)).await?;
    let content: &Content = match output {
        Output::Stdout => &result.stdout,
        Output::Stderr => &result.stderr,
        Output::Setup => &result.setup,
    };
    let offset = tail.map_or(from, |tail| content.size.saturating_sub(tail));
    let extent = Extent { offset, size: content.size };
    let head = Arc::clone(head);
    let read = move |digest| {
        let (head, holds) = (Arc::clone(&head), Arc::clone(&holds));
        async move { Ok(read(&head, &holds, digest, Library::get).await?) }
    };
    Ok(answer(attempt, extent, Body::from_stream(read_content(content, offset, limit, read))))
}

/// Reads the library on a thread for blocking work, of which a client may occupy only a few.
async fn from_disk<T: Send + 'static>(
    head: &Head,
    party: &Party,
    read: impl FnOnce(&Library) -> Result<T, LibraryError> + Send + 'static,
) -> Result<T, ApiError> {
    let library = Arc::clone(&head.library);
    let turn = head.client_limits.manifests.take(party, 1).await;
    let read = tokio::task::spawn_blocking(move || read(&library)).await.map_err(ApiError::internal)??;
    drop(turn);
    Ok(read)
}

/// The whole output of a job's only task. `None` unless it has ended, on one node, and its output is short text.
pub(super) async fn short_output(
    head: &Head,
    answer: &Answer,
    job: &Job,
    history: &History,
) -> Result<Option<ShortOutput>, ApiError> {
    let is_one = job.spec.array.is_none() && job.spec.nodes == 1 && job.results.contains(0);
    let row = history.rows.get(&0).filter(|_| is_one);
    let Some(result) = row.and_then(|row| row.results().next()) else { return Ok(None) };
    from_disk(head, answer.party(), move |library| {
        let ResultManifest { stdout, stderr, .. } = library.result(&result.manifest)?;
        Ok(short_text(library, &stdout)?
            .zip(short_text(library, &stderr)?)
            .map(|(stdout, stderr)| ShortOutput { stdout, stderr }))
    })
    .await
}

fn short_text(library: &Library, content: &Content) -> Result<Option<String>, LibraryError> {
    if content.size > SHORT_BYTES {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    for chunk in &content.chunks {
        bytes.extend_from_slice(&library.get(&chunk.digest)?);
    }
    Ok(String::from_utf8(bytes).ok())
}

async fn row_of(head: &Head, task: TaskId) -> Result<Option<EndedTask>, ApiError> {
    let history = head.history.clone();
    Ok(tokio::task::spawn_blocking(move || history.ended_one(task)).await.map_err(ApiError::internal)??)
}

/// Takes the place of one more client of a run's stream. The error says what the others do.
pub(super) fn one_of(
    places: &Arc<UsageLimits<RunId>>,
    live: &Live,
    what: &str,
) -> Result<UsagePermit<RunId>, ApiError> {
    places.take(live.run).ok_or_else(|| {
        let message = format!("{} clients already {what} of task {}, the maximum", places.most(), live.run.task);
        ApiError::new(StatusCode::TOO_MANY_REQUESTS, "too_many_watchers", message)
            .hint("end some of them, or try again later")
    })
}

/// Requests a stream of a live task from its node. Returns `None` if the task is no longer on the node; the caller
/// then checks the task's state again.
pub(super) async fn from_node(
    head: &Head,
    live: &Live,
    what: StreamKind,
    follow: bool,
) -> Result<Option<Upload>, ApiError> {
    let mut place: Place<Upload> = head.streams.outputs.wait_for(&live.node);
    if !ask(head, live, &place.name, what) {
        return unreachable(head, live, follow).await;
    }
    tokio::select! {
        upload = timeout(AGENT_TIME, place.arrival()) => match upload {
            Ok(Some(upload)) => Ok(Some(upload)),
            Ok(None) | Err(_) => unreachable(head, live, follow).await,
        },
        () = wait_until_gone(head, live) => Ok(None),
    }
}

/// Asks the node of a live task to open a stream. Returns `false` if the node is not connected.
pub(super) fn ask(head: &Head, live: &Live, stream: &str, what: StreamKind) -> bool {
    let request = StreamRequest { stream: stream.to_owned(), run: live.run, what };
    connection_of(head, live).is_some_and(|connection| head.engine.send(connection, HeadMessage::Stream(request)))
}

/// The connection of the node of a live task.
fn connection_of(head: &Head, live: &Live) -> Option<ConnectionId> {
    head.engine.state().node(&live.node).and_then(|node| node.link.as_ref()).map(|link| link.connection)
}

/// Returns when the run is no longer the task's current one, or has ended on the node of `live`.
pub(super) async fn wait_until_gone(head: &Head, live: &Live) {
    let run = live.run;
    let is_gone = |job: Option<&Job>| {
        let active = job.and_then(|job| job.active.get(&run.task.index)).filter(|active| active.run == run);
        active.and_then(|active| active.part(live.rank)).is_none_or(|part| part.over.is_some())
    };
    until(head, run.task.job, Instant::now() + FOREVER, is_gone).await;
}

/// Handles an unreachable node. With `follow`, waits briefly and returns `None`, so that the caller tries again.
/// Otherwise returns an error.
async fn unreachable(head: &Head, live: &Live, follow: bool) -> Result<Option<Upload>, ApiError> {
    const PAUSE: Duration = Duration::from_millis(500);
    if follow {
        // A node that reconnects does not change the job, so the wait also ends after a pause.
        let _ = timeout(PAUSE, wait_until_gone(head, live)).await;
        return Ok(None);
    }
    Err(silent(&live.node))
}

pub(super) fn silent(node: &NodeName) -> ApiError {
    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "node_unreachable", format!("node {node} does not respond"))
        .hint("the job is not affected; try again when the node is connected, or fetch the result after the job's end")
}

/// The query of a request for a terminal: the size of the client's window.
#[derive(Deserialize, ToSchema)]
pub(crate) struct Size {
    /// Height of the window in lines.
    #[serde(default = "default_rows")]
    rows: u16,
    /// Width of the window in characters.
    #[serde(default = "default_columns")]
    columns: u16,
}

const fn default_rows() -> u16 {
    24
}

const fn default_columns() -> u16 {
    80
}

/// `GET /jobs/{id}/tasks/{index}/attach`: a WebSocket with the task's terminal. Only the job's owner types and sets the
/// window's size: input of an operator would run with the owner's rights. It closes when the user loses the right to
/// attach.
pub(crate) async fn attach(
    user: User,
    Extension(lease): Extension<Lease>,
    State(head): State<Arc<Head>>,
    Path((id, index)): Path<(JobId, u32)>,
    Query(Size { rows, columns }): Query<Size>,
    upgrade: WebSocketUpgrade,
) -> Result<Response, ApiError> {
    let types = user.0.owns(&*readable(&head, &user, id).await?);
    let live = match standing(&head, &user, TaskId { job: id, index }, 0).await? {
        Standing::Live(live) if !live.has_terminal => return Err(no_terminal(id)),
        Standing::Live(live) if live.runs => live,
        Standing::Live(_) => {
            return Err(not_running(id, JobState::Starting.as_str()).hint("try again when the task runs"));
        }
        Standing::Waiting(_) => return Err(not_running(id, "waiting")),
        Standing::Over(..) | Standing::Ended => return Err(not_running(id, "over")),
    };
    let client_place = one_of(&head.streams.terminal_clients, &live, "are attached to the terminal")?;
    let mut place = head.streams.sockets.wait_for(&live.node);
    // A size of zero keeps the current one.
    let (rows, columns) = if types { (rows, columns) } else { (0, 0) };
    let agent = if ask(&head, &live, &place.name, StreamKind::Terminal { rows, columns }) {
        tokio::select! {
            agent = timeout(AGENT_TIME, place.arrival()) => agent.ok().flatten(),
            () = wait_until_gone(&head, &live) => return Err(not_running(id, "over")),
        }
    } else {
        None
    };
    let agent = agent.ok_or_else(|| silent(&live.node))?;
    let upgrade = upgrade.max_message_size(TERMINAL_BYTES).max_frame_size(TERMINAL_BYTES);
    let mut response = upgrade.on_upgrade(async move |client| {
        let _until_the_end = client_place;
        tokio::select! {
            () = join(client, agent, types) => {}
            () = head.stop.cancelled() => {}
            _ = lease.ended() => {}
        }
    });
    if !types {
        response.headers_mut().insert(WATCHING_HEADER, HeaderValue::from_static("true"));
    }
    Ok(response)
}

fn no_such_rank(job: &Job, rank: u32) -> ApiError {
    let last = job.spec.nodes - 1;
    ApiError::new(StatusCode::NOT_FOUND, "no_such_node", format!("job {} has no node of rank {rank}", job.id))
        .hint(format!("the job's ranks are 0 to {last}"))
}

fn no_terminal(id: JobId) -> ApiError {
    ApiError::new(StatusCode::CONFLICT, "no_terminal", format!("job {id} was submitted without a terminal"))
        .hint(format!("`hostler logs -f {id}` shows its output"))
}

fn not_running(id: JobId, standing: &str) -> ApiError {
    ApiError::new(
        StatusCode::CONFLICT,
        "not_running",
        format!("there is no terminal to attach to: the task is {standing}"),
    )
    .hint(format!("`hostler job {id}` shows the task's state"))
}

/// Relays messages in both directions until either side closes. Drops the client's messages unless the client `types`.
async fn join(client: WebSocket, agent: WebSocket, types: bool) {
    let (to_client, from_client) = client.split();
    let (to_agent, from_agent) = agent.split();
    tokio::select! {
        () = pass(from_client, to_agent, types) => {}
        () = pass(from_agent, to_client, true) => {}
    }
}

type Source = futures_util::stream::SplitStream<WebSocket>;
type Sink = futures_util::stream::SplitSink<WebSocket, Message>;

async fn pass(mut from: Source, mut to: Sink, relays: bool) {
    while let Some(Ok(message)) = from.next().await {
        match message {
            Message::Binary(_) | Message::Text(_) => {
                if relays && to.send(message).await.is_err() {
                    return;
                }
            }
            Message::Close(_) => break,
            // Each connection answers its own pings.
            Message::Ping(_) | Message::Pong(_) => {}
        }
    }
    // The peer may have closed the connection already.
    let _ = to.close().await;
}
