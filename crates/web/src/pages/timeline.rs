//! The nodes over time: what ran in the last hour, what runs and until when at most, and what is kept free for whom.

use std::collections::BTreeMap;

use askama::Template;
use axum::response::Html;
use hostler_model::{JobId, JobState, NodeName, WallTime, format_ms, plural};
use hostler_proto::api::{JobDetail, JobRecord, JobSummary, NodeView, RecordPage, TaskView};

use crate::api::Refused;
use crate::page::{Frame, render};
use crate::parts::{Badge, Tone};
use crate::url::Url;

/// Most nodes with a lane.
const LANES: usize = 100;

/// Most tasks drawn above each other in a lane.
const MOST_ROWS: usize = 12;

/// How far back the lanes reach, and how far ahead at least and at most.
const HOUR_MS: i64 = 3_600_000;
const MIN_AHEAD_MS: i64 = HOUR_MS;
const MAX_AHEAD_MS: i64 = 12 * HOUR_MS;

/// Units of the drawing: the width of a lane, and the height of a task's bar with its margin.
const WIDTH: i64 = 1_000;
const ROW: usize = 9;

#[derive(Template)]
#[template(path = "timeline.html")]
struct Timeline {
    frame: Frame,
    lanes: Vec<Lane>,
    ticks: Vec<Tick>,
    /// Place of the present in a lane.
    now: i64,
    /// Sentences about nodes that are kept free.
    gaps: Vec<String>,
    hidden: usize,
}

/// A node.
struct Lane {
    node: NodeName,
    url: Url,
    badge: Badge,
    height: usize,
    bars: Vec<Bar>,
    /// Tasks that have no room in the lane.
    more: usize,
    label: String,
}

/// A task, or a time that is kept free for one. Short tasks of a job that follow each other are one bar.
struct Bar {
    job: JobId,
    url: Url,
    title: String,
    class: &'static str,
    colour: u64,
    x: i64,
    y: usize,
    width: i64,
    /// Where what is only expected begins.
    expected: Option<(i64, i64)>,
}

/// A time on the axis.
struct Tick {
    x: i64,
    label: String,
}

/// What is drawn on one node, in milliseconds since the Unix epoch.
struct Span {
    node: NodeName,
    job: JobId,
    title: String,
    kind: Kind,
    from: i64,
    to: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Ended,
    Failed,
    /// Runs; ends at the time limit at the latest.
    Running,
    /// Kept free from the expected start on.
    Kept,
}

/// From when to when lanes reach.
#[derive(Debug, Clone, Copy)]
struct Window {
    from: i64,
    to: i64,
}

impl Window {
    /// X coordinate of a time, clamped to the window.
    fn x(self, at: i64) -> i64 {
        (at.clamp(self.from, self.to) - self.from) * WIDTH / (self.to - self.from)
    }
}

/// `GET /timeline`.
pub(crate) async fn show(frame: Frame) -> Result<Html<String>, Refused> {
    let now = frame.wall();
    let nodes: Vec<NodeView> = frame.api.get(&Url::of(["nodes"]).with("limit", 1_000)).await?;
    let since = Url::of(["records"]).with("ended_since", now.0 - HOUR_MS);
    let ended: RecordPage = frame.api.get(&since).await?;
    let live = Url::of(["records"]).with("state", "starting,running,completing");
    let live: RecordPage = frame.api.get(&live).await?;
    let mut spans: Vec<Span> = ended.records.iter().chain(&live.records).flat_map(|job| spans_of(job, now)).collect();
    let mut gaps = Vec::new();
    let mut kept: BTreeMap<JobId, Vec<NodeName>> = BTreeMap::new();
    for node in &nodes {
        if let Some(job) = node.kept_for {
            kept.entry(job).or_default().push(node.name.clone());
        }
    }
    for (id, nodes) in kept {
        let job: JobDetail = frame.api.get(&Url::job(id).with("tasks", 0)).await?;
        spans.extend(nodes.iter().filter_map(|node| kept_for(&job.summary, node)));
        gaps.extend(gap(&job.summary, &nodes, now));
    }
    let last = spans.iter().filter(|span| span.to < i64::MAX).map(|span| span.to).max().unwrap_or(now.0);
    let window = Window { from: now.0 - HOUR_MS, to: last.clamp(now.0 + MIN_AHEAD_MS, now.0 + MAX_AHEAD_MS) };
    let hidden = nodes.len().saturating_sub(LANES);
    let lanes = nodes.iter().take(LANES).map(|node| Lane::new(node, &spans, window, now)).collect();
    Ok(render(&Timeline { lanes, ticks: ticks(window, now), now: window.x(now.0), gaps, hidden, frame }))
}

/// The tasks of a job on their nodes. A task without a time limit has no end.
fn spans_of(job: &JobRecord, now: WallTime) -> Vec<Span> {
    let of_task = |task: &TaskView| {
        let Some(start) = task.started_at else { return Vec::new() };
        let nodes = task.node.iter().chain(task.parts.iter().map(|part| &part.node));
        let mut nodes: Vec<&NodeName> = nodes.collect();
        nodes.sort();
        nodes.dedup();
        let limit = job.time_limit_ms.and_then(|limit| i64::try_from(limit).ok());
        let (kind, to) = match task.ended_at {
            Some(end) if task.state.is_failure() => (Kind::Failed, end.0),
            Some(end) => (Kind::Ended, end.0),
            None => (Kind::Running, limit.map_or(i64::MAX, |limit| start.0.saturating_add(limit).max(now.0))),
        };
        let index = if job.array.is_some() { format!("_{}", task.index) } else { String::new() };
        let state = match (kind, limit) {
            (Kind::Running, Some(_)) => format!("runs, for {} at most", span(now.0, to)),
            (Kind::Running, None) => "runs without a time limit".to_owned(),
            _ => format!("{}, ran {}", task.state.as_str().replace('_', " "), span(start.0, to)),
        };
        let title = format!("job {}{index} {} of {}: {state}", job.id, job.name, job.user);
        let one =
            |node: &NodeName| Span { node: node.clone(), job: job.id, title: title.clone(), kind, from: start.0, to };
        nodes.into_iter().map(one).collect()
    };
    job.tasks.iter().filter(|task| task.state != JobState::Pending).flat_map(of_task).collect()
}

fn span(from: i64, to: i64) -> String {
    format_ms(u64::try_from(to - from).unwrap_or(0) / 1000 * 1000)
}

/// The time for which a node is kept free.
fn kept_for(job: &JobSummary, node: &NodeName) -> Option<Span> {
    let from = job.expected_start_at?.0;
    let to =
        job.time_limit_ms.and_then(|limit| i64::try_from(limit).ok()).map_or(i64::MAX, |ms| from.saturating_add(ms));
    let title = format!("kept free for job {} {} of {}", job.id, job.name, job.user);
    Some(Span { node: node.clone(), job: job.id, title, kind: Kind::Kept, from, to })
}

/// What a reader can do with the nodes until the job starts.
fn gap(job: &JobSummary, nodes: &[NodeName], now: WallTime) -> Option<String> {
    let left = job.expected_start_at.map(|at| at.0 - now.0).filter(|left| *left > 60_000)?;
    let named: Vec<&str> = nodes.iter().take(4).map(NodeName::as_str).collect();
    let more = nodes.len().saturating_sub(named.len());
    let and_more = if more > 0 { format!(" and {}", plural(more, "other node")) } else { String::new() };
    let limit = span(0, left / 60_000 * 60_000);
    Some(format!(
        "{}{and_more} kept free for job {} {}: a job with a time limit of at most {limit} can still run there before.",
        named.join(", "),
        job.id,
        job.name
    ))
}

/// Each quarter of the past and of the future, with the present.
fn ticks(window: Window, now: WallTime) -> Vec<Tick> {
    let past = [4, 2].map(|part| now.0 - HOUR_MS * part / 4);
    let ahead = [1, 2, 3].map(|part| now.0 + (window.to - now.0) * part / 4);
    let label = |at: i64| match at - now.0 {
        0 => "now".to_owned(),
        past if past < 0 => format!("{} ago", span(at, now.0)),
        _ => format!("in {}", span(now.0, now.0 + (at - now.0) / 60_000 * 60_000)),
    };
    past.into_iter().chain([now.0]).chain(ahead).map(|at| Tick { x: window.x(at), label: label(at) }).collect()
}

impl Lane {
    fn new(node: &NodeView, spans: &[Span], window: Window, now: WallTime) -> Self {
        let mut own: Vec<&Span> = spans.iter().filter(|span| span.node == node.name && span.to > window.from).collect();
        own.sort_by_key(|span| (span.from, span.job));
        // When each row is free again.
        let mut rows: Vec<i64> = Vec::new();
        let (mut bars, mut more): (Vec<Bar>, usize) = (Vec::new(), 0);
        let mut last_of_row: Vec<usize> = Vec::new();
        for span in &own {
            let row = rows.iter().position(|free| *free <= span.from).unwrap_or(rows.len());
            if row == MOST_ROWS {
                more += 1;
                continue;
            }
            match rows.get_mut(row) {
                Some(free) => *free = span.to,
                None => rows.push(span.to),
            }
            let bar = Bar::new(span, row, window, now);
            match last_of_row.get_mut(row) {
                Some(last) if bars[*last].takes(&bar) => {}
                Some(last) => {
                    *last = bars.len();
                    bars.push(bar);
                }
                None => {
                    last_of_row.push(bars.len());
                    bars.push(bar);
                }
            }
        }
        let runs = own.iter().filter(|span| span.kind == Kind::Running).count();
        Self {
            node: node.name.clone(),
            url: Url::node(&node.name),
            badge: Badge::node(node.state),
            height: rows.len().max(1) * ROW,
            bars,
            more,
            label: format!("{} on {}: {runs} running", plural(own.len(), "task"), node.name),
        }
    }
}

impl Bar {
    /// Joins a bar of the same job that begins where this one ends, so that many short tasks stay few bars.
    fn takes(&mut self, next: &Self) -> bool {
        let end = self.x + self.width;
        let is_next = self.job == next.job && self.class == next.class && self.expected.is_none() && next.x <= end + 1;
        // Longer ones are separate: each can be seen.
        let is_short = self.title.starts_with("tasks of ") || self.width <= 3;
        if !is_next || !is_short || next.width > 3 {
            return false;
        }
        self.width = (next.x + next.width - self.x).max(self.width);
        self.title = format!("tasks of job {}", self.job);
        self.expected = next.expected;
        true
    }

    fn new(span: &Span, row: usize, window: Window, now: WallTime) -> Self {
        let (x, end) = (window.x(span.from), window.x(span.to));
        let class = match span.kind {
            Kind::Failed => Tone::Bad.class(),
            Kind::Kept => "kept",
            Kind::Ended | Kind::Running => "task",
        };
        let present = window.x(now.0);
        let is_running = span.kind == Kind::Running;
        Self {
            url: Url::job(span.job),
            title: span.title.clone(),
            class,
            colour: span.job.0 % 6,
            x,
            y: row * ROW,
            // The shortest task can be seen and pointed at.
            job: span.job,
            width: ((if is_running { present } else { end }) - x).max(2),
            expected: (is_running && end > present).then_some((present, end - present)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lane_of(spans: &[(i64, i64, Kind)]) -> Lane {
        let node: NodeName = "n1".parse().expect("a name");
        let to_span = |(id, (from, to, kind)): (usize, &(i64, i64, Kind))| Span {
            node: node.clone(),
            job: JobId(id as u64 + 1),
            title: String::new(),
            kind: *kind,
            from: *from,
            to: *to,
        };
        let spans: Vec<Span> = spans.iter().enumerate().map(to_span).collect();
        let view = serde_json::json!({
            "name": "n1", "state": "up", "power": "on", "cpus": 2, "cpus_free": 2, "memory_bytes": 0, "memory_free_bytes": 0,
            "tasks": 0, "agent_pid": 1, "version": "0.1.0"
        });
        let view: NodeView = serde_json::from_value(view).expect("a node");
        Lane::new(&view, &spans, Window { from: 0, to: 10_000 }, WallTime(5_000))
    }

    #[test]
    fn tasks_at_the_same_time_are_above_each_other() {
        let lane = lane_of(&[
            (-900, 1_000, Kind::Ended),
            (500, 2_000, Kind::Failed),
            (1_000, 8_000, Kind::Running),
            (2_500, i64::MAX, Kind::Running),
            (8_000, 9_000, Kind::Kept),
        ]);
        let places: Vec<(i64, usize, i64)> = lane.bars.iter().map(|bar| (bar.x, bar.y / ROW, bar.width)).collect();
        assert_eq!(places, [(0, 0, 100), (50, 1, 150), (100, 0, 400), (250, 1, 250), (800, 0, 100)]);
        let expected: Vec<_> = lane.bars.iter().map(|bar| bar.expected).collect();
        assert_eq!(expected, [None, None, Some((500, 300)), Some((500, 500)), None]);
        assert_eq!((lane.height, lane.more), (2 * ROW, 0));
        let crowd = lane_of(&[(0, 9_000, Kind::Running); 30]);
        assert_eq!((crowd.bars.len(), crowd.more), (MOST_ROWS, 18));
    }

    #[test]
    fn many_short_tasks_of_a_job_are_one_bar() {
        let bar = |job, x, width| Bar { job: JobId(job), x, width, ..lane_of(&[(0, 1, Kind::Ended)]).bars.remove(0) };
        let mut first = bar(1, 10, 2);
        assert!(first.takes(&bar(1, 12, 2)) && first.takes(&bar(1, 15, 3)));
        assert_eq!((first.x, first.width, first.title.as_str()), (10, 8, "tasks of job 1"));
        assert!(!first.takes(&bar(2, 18, 2)), "another job");
        assert!(!first.takes(&bar(1, 30, 2)), "a gap");
        assert!(!bar(1, 0, 50).takes(&bar(1, 50, 2)), "a task that can be seen alone");
    }
}
