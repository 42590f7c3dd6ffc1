//! Figures over time of nodes and tasks, and live measurements.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::sse::{Event, KeepAlive};
use axum::response::{IntoResponse, NoContent, Sse};
use axum::{Extension, Json};
use futures_util::StreamExt;
use futures_util::stream;
use hostler_core::head::{Job, Refusal};
use hostler_model::{JobId, Metric, NodeName, Resources, RunId, TaskId, WallTime};
use hostler_proto::usage::{MAX_SPANS, Reading, SeriesView, UsageReport, UsageView};
use hostler_store::StoreError;
use hostler_store::series::{Curve, resample};
use serde::Deserialize;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use utoipa::ToSchema;

use super::error::ApiError;
use super::extract::{Json as Body, Path, Query};
use super::reply::EventStream;
use super::results::readable;
use super::who::{Agent, User};
use crate::answers::Answer;
use crate::head::Head;
use crate::usage::{MINUTE_MS, accept, minute_of};

/// Number of buckets, unless the request asks for another one.
const POINTS: u32 = 300;

/// Maximum number of buckets.
const MOST_POINTS: u32 = 1000;

/// Memory to reserve for one bucket of all metrics.
const POINT_BYTES: usize = 512;

/// Span of a node's figures, unless the request asks for another one.
const DAY_MINUTES: u64 = 24 * 60;

/// Interval of keep-alive comments on a quiet stream.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// The query of a request for figures over time.
#[derive(Deserialize, ToSchema)]
pub(crate) struct Span {
    /// Start, in milliseconds since the Unix epoch. If absent: a day before the end for a node, the start for a task.
    from: Option<WallTime>,
    /// End, in milliseconds since the Unix epoch; now if absent.
    to: Option<WallTime>,
    /// Maximum number of buckets: at most 1000; 300 if absent.
    points: Option<u32>,
    /// Rank of the node, for a task on several nodes; 0 if absent.
    #[serde(default)]
    node_rank: u32,
}

/// The query of a request for live measurements.
#[derive(Deserialize, ToSchema)]
pub(crate) struct Rank {
    /// Rank of the node, for a task on several nodes; 0 if absent.
    #[serde(default)]
    node_rank: u32,
}

/// `POST /agent/samples`.
pub(crate) async fn report(
    Agent(node): Agent,
    State(head): State<Arc<Head>>,
    Body(report): Body<UsageReport>,
) -> Result<NoContent, ApiError> {
    if report.spans.len() > MAX_SPANS {
        let message = format!("a report has at most {MAX_SPANS} spans");
        return Err(ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "bad_request", message));
    }
    if report.spans.iter().flat_map(|span| span.figures.values()).any(|bucket| bucket.seconds == 0) {
        let message = "`seconds` must be at least 1";
        return Err(ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "bad_request", message));
    }
    let accepted = accept(&head.engine, &node, report).await;
    head.usage.record(accepted, head.engine.now().wall);
    Ok(NoContent)
}

/// `GET /nodes/{name}/usage`.
pub(crate) async fn of_node(
    _: User,
    Extension(answer): Extension<Arc<Answer>>,
    State(head): State<Arc<Head>>,
    Path(name): Path<NodeName>,
    Query(span): Query<Span>,
) -> Result<Json<UsageView>, ApiError> {
    let limits = {
        let state = head.engine.state();
        let node = state.node(&name).ok_or_else(|| Refusal::NoSuchNode(name.clone()))?;
        Limits::of(&node.facts.resources)
    };
    let end = span.end(&head);
    let from = span.from.map_or_else(|| end.saturating_sub(DAY_MINUTES), |from| minute_of(from, 0));
    let series = Arc::clone(&head.usage.series);
    show(&head, &answer, &span, (from, end), &limits, move || series.of_node(&name, from, end)).await
}

/// `GET /jobs/{id}/tasks/{index}/usage`.
pub(crate) async fn of_task(
    user: User,
    Extension(answer): Extension<Arc<Answer>>,
    State(head): State<Arc<Head>>,
    Path((id, index)): Path<(JobId, u32)>,
    Query(span): Query<Span>,
) -> Result<Json<UsageView>, ApiError> {
    let job = readable(&head, &user, id).await?;
    check(&job, index, span.node_rank)?;
    let request = &job.on_each_node();
    let limits = Limits { cpus: request.cpus.into(), memory_bytes: request.memory_bytes, gpus: request.gpus.into() };
    let (from, end) = (span.from.map_or(0, |from| minute_of(from, 0)), span.end(&head));
    let (series, rank) = (Arc::clone(&head.usage.series), span.node_rank);
    let task = TaskId { job: id, index };
    show(&head, &answer, &span, (from, end), &limits, move || series.of_task(task, rank)).await
}

/// `GET /nodes/{name}/usage/live`.
pub(crate) async fn node_live(
    _: User,
    State(head): State<Arc<Head>>,
    Path(name): Path<NodeName>,
) -> Result<EventStream<Reading>, ApiError> {
    if head.engine.state().node(&name).is_none() {
        return Err(Refusal::NoSuchNode(name).into());
    }
    Ok(events(&head, head.live_usage.watch(&name, None)))
}

/// `GET /jobs/{id}/tasks/{index}/usage/live`.
pub(crate) async fn task_live(
    user: User,
    State(head): State<Arc<Head>>,
    Path((id, index)): Path<(JobId, u32)>,
    Query(Rank { node_rank }): Query<Rank>,
) -> Result<EventStream<Reading>, ApiError> {
    let job = readable(&head, &user, id).await?;
    check(&job, index, node_rank)?;
    let (node, run) = place(&job, index, node_rank).ok_or_else(|| {
        let message = format!("task {index} of job {id} is not running, so it has no live figures");
        ApiError::new(StatusCode::CONFLICT, "not_running", message)
            .hint(format!("`hostler job {id}` shows the task's state"))
    })?;
    Ok(events(&head, head.live_usage.watch(&node, Some(run))))
}

/// The node and the run of a task that has not ended there.
fn place(job: &Job, index: u32, rank: u32) -> Option<(NodeName, RunId)> {
    let active = job.active.get(&index)?;
    let part = active.part(rank).filter(|part| part.over.is_none())?;
    Some((part.node.clone(), active.run))
}

fn check(job: &Job, index: u32, rank: u32) -> Result<(), ApiError> {
    if !job.indices().contains(index) {
        return Err(Refusal::NoSuchTask { job: job.id, index }.into());
    }
    if rank >= job.spec.nodes {
        let message = format!("job {} has no node of rank {rank}", job.id);
        return Err(ApiError::new(StatusCode::NOT_FOUND, "no_such_node", message)
            .hint(format!("the job's ranks are 0 to {}", job.spec.nodes - 1)));
    }
    Ok(())
}

impl Span {
    /// The minute after the span.
    fn end(&self, head: &Head) -> u64 {
        let now = minute_of(head.engine.now().wall, 0) + 1;
        self.to.map_or(now, |to| minute_of(to, 0).min(now))
    }
}

/// What a task or a node may use.
struct Limits {
    cpus: u64,
    memory_bytes: u64,
    gpus: u64,
}

impl Limits {
    fn of(resources: &Resources) -> Self {
        Self {
            cpus: resources.cpus.len() as u64,
            memory_bytes: resources.memory_bytes,
            gpus: resources.gpus.len() as u64,
        }
    }

    fn of_metric(&self, metric: Metric) -> Option<f64> {
        match metric {
            Metric::Cpu => Some(self.cpus as f64),
            Metric::Memory => Some(self.memory_bytes as f64),
            Metric::Gpu => Some(self.gpus as f64),
            _ => None,
        }
    }
}

/// Reads curves on a thread that may block, and reduces them to the requested number of buckets.
async fn show(
    head: &Head,
    answer: &Answer,
    span: &Span,
    (from, end): (u64, u64),
    limits: &Limits,
    read: impl FnOnce() -> Result<Vec<Curve>, StoreError> + Send + 'static,
) -> Result<Json<UsageView>, ApiError> {
    let points = span.points.unwrap_or(POINTS).clamp(1, MOST_POINTS) as usize;
    answer.reserve(&head.client_limits, points * POINT_BYTES).await;
    let read = move || read().map(|curves| resample(&curves, from, end, points));
    let curve = tokio::task::spawn_blocking(read).await.map_err(ApiError::internal)??;
    let series = curve.columns.iter().map(|(&name, values)| {
        let of =
            |part: fn(&hostler_model::Bucket) -> f32| values.iter().map(|value| value.as_ref().map(part)).collect();
        SeriesView {
            name,
            unit: name.unit(),
            limit: limits.of_metric(name),
            min: of(|bucket| bucket.min),
            mean: of(|bucket| bucket.mean),
            max: of(|bucket| bucket.max),
        }
    });
    Ok(Json(UsageView {
        from: WallTime(i64::try_from(curve.start * MINUTE_MS).unwrap_or(i64::MAX)),
        step_ms: curve.width * MINUTE_MS,
        len: u32::try_from(curve.len).unwrap_or(u32::MAX),
        series: series.collect(),
    }))
}

/// Readings as server-sent events, until nobody measures any more or the head stops.
fn events(head: &Head, readings: broadcast::Receiver<Reading>) -> EventStream<Reading> {
    let stop = head.stop.clone().cancelled_owned();
    let events = stream::unfold(readings, |mut readings| async {
        loop {
            match readings.recv().await {
                Ok(reading) => {
                    let event = Event::default().json_data(reading).expect("API types are valid JSON");
                    return Some((Ok::<_, Infallible>(event), readings));
                }
                // A slow watcher misses readings.
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return None,
            }
        }
    });
    let response = Sse::new(events.take_until(stop)).keep_alive(KeepAlive::new().interval(KEEP_ALIVE));
    EventStream::new(response.into_response())
}
