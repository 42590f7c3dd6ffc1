//! What tasks and nodes used over time: pages of their own, and parts for other pages.

use std::sync::Arc;

use askama::Template;
use askama::filters::HtmlSafe;
use axum::Extension;
use axum::extract::Path;
use axum::response::Html;
use hostler_model::{JobId, JobState, Metric, NodeName};
use hostler_proto::api::JobDetail;
use hostler_proto::usage::{SeriesView, UsageView};

use crate::api::Refused;
use crate::chart::{Chart, charts};
use crate::page::{Frame, render};
use crate::recent::Recent;
use crate::url::Url;

/// Number of intervals in a chart, and in a chart on another page.
const POINTS: u32 = 96;
const FEW_POINTS: u32 = 48;

/// Charts that grow are loaded again after this many seconds: those of the last minutes, and those with a point per
/// minute or more.
const SOON_SECONDS: u32 = 3;
const LATER_SECONDS: u32 = 30;

/// Value of the parameter `span` for the last minutes.
const LIVE: &str = "live";

/// Time spans of a node's page: the value in the address, the label, and the length in hours.
const SPANS: [(&str, &str, i64); 4] =
    [("1h", "1 hour", 1), ("24h", "24 hours", 24), ("7d", "7 days", 7 * 24), ("90d", "90 days", 90 * 24)];

/// Hours on a node's own page.
const DAY_HOURS: i64 = 24;

/// Charts of what a task or a node used, as a part of a page.
#[derive(Debug, Clone, Template)]
#[template(path = "usage_charts.html")]
pub(crate) struct Usage {
    charts: Vec<Chart>,
    highest_memory: Option<u64>,
    mean_cpus: Option<f64>,
    /// Shown if there is no chart.
    nothing: &'static str,
    /// The script loads the charts again after this many seconds, if there can be new points.
    every: Option<u32>,
}

impl HtmlSafe for Usage {}

/// A task on the node with a rank.
#[derive(Debug, Clone, Copy)]
struct Subject {
    job: JobId,
    index: u32,
    rank: u32,
}

impl Subject {
    fn url(self) -> Url {
        Url::job(self.job).then("tasks").then(self.index).then("usage")
    }

    /// What the last attempt of the task used on the node.
    async fn usage(self, frame: &Frame, points: u32) -> Result<UsageView, Refused> {
        frame.api.get(&self.url().with("points", points).with("node_rank", self.rank)).await
    }
}

impl Usage {
    /// What the only task of a job used on its first node, without tables, for the job's page.
    pub(crate) async fn of_job(frame: &Frame, job: JobId, is_live: bool) -> Result<Self, Refused> {
        let view = Subject { job, index: 0, rank: 0 }.usage(frame, FEW_POINTS).await?;
        Ok(Self::of_task(frame, &view, is_live).without_values())
    }

    /// What a node used in the last day, without tables, for the node's page.
    pub(crate) async fn of_day(frame: &Frame, node: &NodeName) -> Result<Self, Refused> {
        let view = usage_of_node(frame, node, DAY_HOURS, FEW_POINTS).await?;
        Ok(Self::of_node(frame, &view).without_values())
    }

    fn of_task(frame: &Frame, view: &UsageView, is_live: bool) -> Self {
        let nothing = "Nothing was measured. A task is measured every ten seconds while it runs, and its figures arrive \
                       within about a minute.";
        let every = is_live.then_some(LATER_SECONDS);
        Self::new(view, frame, "limit", nothing, every)
    }

    fn of_node(frame: &Frame, view: &UsageView) -> Self {
        let nothing =
            "Nothing was measured. The figures of a node arrive about a minute after its agent has connected.";
        Self::new(view, frame, "for jobs", nothing, Some(LATER_SECONDS))
    }

    /// The last minutes, from a stream of the API that the caller may read. Limits are those in `known`.
    fn live(frame: &Frame, recent: &Arc<Recent>, stream: &Url, known: &UsageView, limit_name: &str) -> Self {
        let mut view = recent.view(&frame.api, stream.to_string(), frame.wall());
        for series in &mut view.series {
            series.limit = known.series.iter().find(|it| it.name == series.name).and_then(|it| it.limit);
        }
        let nothing = "Nothing was measured yet. The first values appear within a few seconds.";
        Self::new(&view, frame, limit_name, nothing, Some(SOON_SECONDS))
    }

    fn new(view: &UsageView, frame: &Frame, limit_name: &str, nothing: &'static str, every: Option<u32>) -> Self {
        let series = |metric| view.series.iter().find(|it| it.name == metric);
        let highest = |it: &SeriesView| it.max.iter().flatten().copied().reduce(f32::max);
        let mean = |it: &SeriesView| {
            let (sum, count) = it.mean.iter().flatten().fold((0.0, 0), |(sum, count), value| (sum + value, count + 1));
            (count > 0).then(|| f64::from(sum) / f64::from(count))
        };
        Self {
            charts: charts(view, &frame.zone, limit_name),
            highest_memory: series(Metric::Memory).and_then(highest).map(|bytes| bytes as u64),
            mean_cpus: series(Metric::Cpu).and_then(mean),
            nothing,
            every,
        }
    }

    /// The highest measured memory use, in bytes.
    pub(crate) const fn highest_memory(&self) -> Option<u64> {
        self.highest_memory
    }

    /// The mean number of busy CPUs while something was measured.
    pub(crate) const fn mean_cpus(&self) -> Option<f64> {
        self.mean_cpus
    }

    fn without_values(self) -> Self {
        Self { charts: self.charts.into_iter().map(Chart::without_values).collect(), ..self }
    }
}

/// What a node used in the last hours.
async fn usage_of_node(frame: &Frame, node: &NodeName, hours: i64, points: u32) -> Result<UsageView, Refused> {
    let from = frame.now.as_millisecond() - hours * 3_600_000;
    frame.api.get(&Url::node(node).then("usage").with("points", points).with("from", from)).await
}

/// A link that selects what the charts show.
struct Choice {
    label: String,
    url: Url,
    is_current: bool,
}

#[derive(Template)]
#[template(path = "usage.html")]
struct Page {
    frame: Frame,
    name: String,
    back: Url,
    spans: Vec<Choice>,
    ranks: Vec<Choice>,
    usage: Usage,
}

/// `GET /jobs/{id}/tasks/{index}/usage`.
pub(crate) async fn task(
    frame: Frame,
    Extension(recent): Extension<Arc<Recent>>,
    Path((job, index)): Path<(JobId, u32)>,
) -> Result<Html<String>, Refused> {
    let rank: u32 = frame.query.read("node_rank")?.unwrap_or(0);
    let subject = Subject { job, index, rank };
    let view = subject.usage(&frame, POINTS).await?;
    let detail: JobDetail = frame.api.get(&Url::job(job).with("index", index)).await?;
    let runs = detail.tasks_shown.iter().any(|task| task.index == index && task.state == JobState::Running);
    let is_live = runs && frame.query.get("span") == Some(LIVE);
    let here = subject.url();
    let usage = if is_live {
        Usage::live(&frame, &recent, &here.clone().then("live").with("node_rank", rank), &view, "limit")
    } else {
        Usage::of_task(&frame, &view, runs)
    };
    let whole = here.clone().with("node_rank", rank);
    let spans = if runs {
        let live =
            Choice { label: "Live, 5 minutes".to_owned(), url: whole.clone().with("span", LIVE), is_current: is_live };
        vec![Choice { label: "Since the start".to_owned(), url: whole, is_current: !is_live }, live]
    } else {
        Vec::new()
    };
    let ranks = (0..detail.summary.node_count).map(|number| Choice {
        label: format!("Node {number}"),
        url: here.clone().with("node_rank", number),
        is_current: number == rank,
    });
    let ranks = if detail.summary.node_count > 1 { ranks.collect() } else { Vec::new() };
    let name = if detail.summary.array.is_some() { format!("job {job}, task {index}") } else { format!("job {job}") };
    Ok(render(&Page { name, back: Url::job(job), spans, ranks, usage, frame }))
}

/// `GET /nodes/{name}/usage`.
pub(crate) async fn node(
    frame: Frame,
    Extension(recent): Extension<Arc<Recent>>,
    Path(name): Path<NodeName>,
) -> Result<Html<String>, Refused> {
    let wanted = frame.query.get("span");
    let is_live = wanted == Some(LIVE);
    let current = SPANS.iter().find(|span| wanted == Some(span.0)).unwrap_or(&SPANS[1]);
    let view = usage_of_node(&frame, &name, current.2, POINTS).await?;
    let here = Url::node(&name).then("usage");
    let usage = if is_live {
        Usage::live(&frame, &recent, &here.clone().then("live"), &view, "for jobs")
    } else {
        Usage::of_node(&frame, &view)
    };
    let choice = |value: &str, label: &str, is_current| Choice {
        label: label.to_owned(),
        url: here.clone().with("span", value),
        is_current,
    };
    let live = choice(LIVE, "Live, 5 minutes", is_live);
    let spans = SPANS.iter().map(|span| choice(span.0, span.1, !is_live && span.0 == current.0));
    let spans = [live].into_iter().chain(spans).collect();
    Ok(render(&Page { back: Url::node(&name), name: name.to_string(), spans, ranks: Vec::new(), usage, frame }))
}
