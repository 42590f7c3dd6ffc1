//! The queue: jobs by user, state, partition, node and text, one line each, as a page and as a spreadsheet.

use askama::Template;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use hostler_model::{JobId, WallTime, format_ms, shortened};
use hostler_proto::api::{JobOrder, JobPage, JobSummary};

use crate::api::Refused;
use crate::cookies;
use crate::job_filter::{Filter, SORTED, STATES};
use crate::page::{Frame, render};
use crate::parts::{Badge, Time};
use crate::url::Url;
use crate::words;

/// Jobs per page. A page stays below 100 kB.
const JOBS: usize = 50;

/// Maximum number of jobs in a spreadsheet.
const MAX_LINES: usize = 20_000;

/// Cookie with the columns that the reader chose, separated by dots.
const CHOSEN: &str = "hostler-columns";

/// States with a number on their tab. The number of all jobs that ever ended is of no use, so those tabs have none.
const COUNTED: [&str; 4] = ["live", "running", "pending", "failed"];

/// Choices of the order.
const ORDERS: [(JobOrder, &str); 10] = [
    (JobOrder::Queue, "running first, then the next to start"),
    (JobOrder::Newest, "newest first"),
    (JobOrder::Oldest, "oldest first"),
    (JobOrder::Priority, "highest priority first"),
    (JobOrder::Name, "by name"),
    (JobOrder::User, "by user"),
    (JobOrder::Size, "largest first"),
    (JobOrder::Started, "those that have run longest first"),
    (JobOrder::Limit, "shortest limit first"),
    (JobOrder::Partition, "by partition"),
];

/// A column of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Column {
    Job,
    State,
    User,
    Time,
    Partition,
    Priority,
    Limit,
    Request,
    Nodes,
    Submitted,
    Change,
}

/// The columns that a reader may choose; the first two are always there.
const CHOICES: [Column; 9] = [
    Column::User,
    Column::Time,
    Column::Partition,
    Column::Priority,
    Column::Limit,
    Column::Request,
    Column::Nodes,
    Column::Submitted,
    Column::Change,
];

impl Column {
    /// Name in the address.
    const fn name(self) -> &'static str {
        match self {
            Self::Job => "job",
            Self::State => "state",
            Self::User => "user",
            Self::Time => "time",
            Self::Partition => "partition",
            Self::Priority => "priority",
            Self::Limit => "limit",
            Self::Request => "request",
            Self::Nodes => "nodes",
            Self::Submitted => "submitted",
            Self::Change => "change",
        }
    }

    const fn label(self) -> &'static str {
        match self {
            Self::Job => "Job",
            Self::State => "State and reason",
            Self::User => "User",
            Self::Time => "Time and limit",
            Self::Partition => "Partition",
            Self::Priority => "Priority",
            Self::Limit => "Limit",
            Self::Request => "Request",
            Self::Nodes => "Nodes",
            Self::Submitted => "Submitted",
            Self::Change => "Last change",
        }
    }

    /// The orders that following the heading's link goes through, and the value of `aria-sort` for each.
    const fn orders(self) -> &'static [(JobOrder, &'static str)] {
        match self {
            Self::Job => {
                &[(JobOrder::Newest, "descending"), (JobOrder::Oldest, "ascending"), (JobOrder::Name, "ascending")]
            }
            Self::State => &[(JobOrder::Queue, "ascending")],
            Self::User => &[(JobOrder::User, "ascending")],
            Self::Time => &[(JobOrder::Started, "descending")],
            Self::Partition => &[(JobOrder::Partition, "ascending")],
            Self::Priority => &[(JobOrder::Priority, "descending")],
            Self::Limit => &[(JobOrder::Limit, "ascending")],
            Self::Request => &[(JobOrder::Size, "descending")],
            Self::Nodes | Self::Submitted | Self::Change => &[],
        }
    }

    /// Whether the column is shown to a reader who has chosen none.
    const fn is_usual(self) -> bool {
        !matches!(self, Self::Partition | Self::Priority | Self::Limit | Self::Submitted)
    }
}

#[derive(Template)]
#[template(path = "jobs.html")]
struct Jobs {
    frame: Frame,
    filter: Filter,
    tabs: Vec<Tab>,
    headings: Vec<Heading>,
    /// Which of [`CHOICES`] are shown.
    choices: Vec<(Column, bool)>,
    rows: Vec<Row>,
    total: u64,
    is_total_exact: bool,
    is_first: bool,
    first: Url,
    next: Option<Url>,
    sheet: Url,
    may_act: bool,
}

/// A choice of states.
struct Tab {
    label: &'static str,
    url: Url,
    is_current: bool,
    count: Option<u64>,
}

/// The heading of a column.
struct Heading {
    column: Column,
    /// Sorts the list by the column.
    url: Option<Url>,
    /// Value of `aria-sort`, if the list is sorted by the column.
    sort: Option<&'static str>,
}

/// A job in the table.
struct Row {
    job: JobSummary,
    url: Url,
    badge: Badge,
    /// Why it waits, or how it ended.
    words: String,
    time: String,
    limit: String,
    request: String,
    nodes: String,
    submitted: Time,
    /// What happened last, and when.
    last: (&'static str, Time),
    is_own: bool,
}

/// `GET /jobs`. The parameters `columns` and `column` choose the columns, also for later visits.
pub(crate) async fn show(frame: Frame, headers: HeaderMap) -> Result<Response, Refused> {
    let query = &frame.query;
    let filter = Filter::read(query, &frame.me.user)?;
    let before: Option<JobId> = query.read("before")?;
    let request = filter.request(JOBS);
    let request = match before {
        Some(before) => request.with("before", before),
        None => request,
    };
    let JobPage { jobs, total, next, .. } = frame.api.get(&request).await?;
    let chosen = query.get("columns").map(|_| {
        let names: Vec<&str> =
            CHOICES.map(Column::name).into_iter().filter(|name| query.all("column").any(|it| it == *name)).collect();
        names.join(".")
    });
    let kept = chosen.as_deref().or_else(|| cookies::value(&headers, CHOSEN));
    let has_partition = jobs.iter().any(|job| job.partition.is_some());
    let choices = choices(kept, has_partition);
    let here = frame.here.without("columns").without("column").without("done");
    let first = here.without("before");
    let next = next.map(|next| first.clone().with("before", next));
    let rows: Vec<Row> = jobs.into_iter().map(|job| Row::new(&frame, job)).collect();
    let page = render(&Jobs {
        tabs: tabs(&frame, &first, &filter).await?,
        headings: headings(&first, &filter, &choices),
        choices,
        may_act: rows.iter().any(|row| row.is_own),
        rows,
        total,
        is_total_exact: filter.is_counted(),
        is_first: before.is_none(),
        sheet: Url::local(&first.replacen("/jobs", "/jobs.csv", 1)).unwrap_or_else(|| Url::of(["jobs.csv"])),
        first,
        next,
        filter,
        frame,
    });
    Ok(match chosen {
        Some(chosen) => ([cookies::kept_for_a_year(CHOSEN, &chosen)], page).into_response(),
        None => page.into_response(),
    })
}

/// Which columns are shown: those in `kept`, or the usual ones and the partition where a job has one.
fn choices(kept: Option<&str>, has_partition: bool) -> Vec<(Column, bool)> {
    let is_shown = |column: Column| match kept {
        Some(kept) => kept.split('.').any(|name| name == column.name()),
        None => column.is_usual() || (column == Column::Partition && has_partition),
    };
    CHOICES.into_iter().map(|column| (column, is_shown(column))).collect()
}

/// The choices of states. Those of a filter that the API counts exactly have their numbers.
async fn tabs(frame: &Frame, here: &Url, filter: &Filter) -> Result<Vec<Tab>, Refused> {
    let mut tabs = Vec::new();
    for (state, label, _) in STATES {
        let count = match filter.is_counted() && COUNTED.contains(&state) {
            true => Some(frame.api.get::<JobPage>(&filter.in_state(state).request(1)).await?.total),
            false => None,
        };
        let url = here.without("state").without("order").with("state", state);
        tabs.push(Tab { label, url, is_current: state == filter.state, count });
    }
    Ok(tabs)
}

/// The headings of the table. `here` is the address of the list's first page.
fn headings(here: &Url, filter: &Filter, choices: &[(Column, bool)]) -> Vec<Heading> {
    let shown = choices.iter().filter(|(_, is_shown)| *is_shown).map(|(column, _)| *column);
    let heading = |column: Column| {
        let orders = column.orders();
        let at = orders.iter().position(|(order, _)| *order == filter.order);
        // Following the link of the current order leads to the column's next order.
        let next = at.map_or(0, |at| (at + 1) % orders.len().max(1));
        let next = orders.get(next).filter(|_| SORTED.contains(&filter.state));
        let url = next.map(|(order, _)| here.without("order").with("order", order.as_str()));
        Heading { column, url, sort: at.map(|at| orders[at].1) }
    };
    [Column::Job, Column::State].into_iter().chain(shown).map(heading).collect()
}

impl Jobs {
    /// The order in words.
    fn order_in_words(&self) -> &'static str {
        ORDERS.iter().find(|(order, _)| *order == self.filter.order).map_or("", |(_, label)| label)
    }

    /// The filter but for the state and the order, as fields of a form.
    fn filtered(&self) -> [(&'static str, &str); 4] {
        let Filter { user, text, partition, node, .. } = &self.filter;
        [("user", user), ("q", text), ("partition", partition), ("node", node)]
    }

    /// The order, if the reader chose it.
    fn chosen_order(&self) -> Option<&'static str> {
        self.frame.query.text("order").map(|_| self.filter.order.as_str())
    }
}

impl Row {
    fn new(frame: &Frame, job: JobSummary) -> Self {
        let words = match (&job.reason, job.array.is_some()) {
            (Some(reason), false) => reason.clone(),
            (Some(reason), true) => format!("{}. Pending tasks: {reason}", words::tasks(&job.tasks)),
            (None, _) => words::beside(&job),
        };
        let words = match &job.message {
            Some(message) if words.is_empty() => message.clone(),
            Some(message) => format!("{words}: {message}"),
            None => words,
        };
        let nodes: Vec<&str> = job.nodes.iter().take(3).map(hostler_model::NodeName::as_str).collect();
        let more = job.nodes.len().saturating_sub(nodes.len());
        let nodes = nodes.join(", ") + &if more > 0 { format!(" and {more} more") } else { String::new() };
        let ago = |at: WallTime| frame.ago(at);
        let last = match (job.ended_at, job.started_at) {
            (Some(at), _) => ("ended", ago(at)),
            (None, Some(at)) => ("started", ago(at)),
            (None, None) => ("submitted", ago(job.submitted_at)),
        };
        Self {
            url: Url::job(job.id),
            badge: Badge::shown(&job),
            words: shortened(&words, 240),
            time: words::time_of(&job, frame.wall()),
            limit: job.time_limit_ms.map(format_ms).unwrap_or_default(),
            request: words::request(&job),
            nodes,
            submitted: ago(job.submitted_at),
            last,
            is_own: may_change(frame, &job),
            job,
        }
    }
}

/// Whether the caller may act on the job. Only decides which buttons a page shows; the API decides about requests.
pub(crate) fn may_change(frame: &Frame, job: &JobSummary) -> bool {
    frame.is_operator() || job.user == frame.me.user
}

/// `GET /jobs.csv`: the jobs of a list as a spreadsheet.
pub(crate) async fn sheet(frame: Frame) -> Result<Response, Refused> {
    let filter = Filter::read(&frame.query, &frame.me.user)?;
    let (jobs, _) = filter.all(&frame.api, MAX_LINES).await?;
    let headers = [
        (header::CONTENT_TYPE, "text/csv; charset=utf-8"),
        (header::CONTENT_DISPOSITION, "attachment; filename=\"jobs.csv\""),
    ];
    Ok((headers, in_csv(&jobs)).into_response())
}

/// Lines of comma-separated values, in the units of the API.
fn in_csv(jobs: &[JobSummary]) -> Vec<u8> {
    let heading = [
        "job",
        "name",
        "user",
        "state",
        "reason",
        "partition",
        "priority",
        "nodes",
        "node_count",
        "cpus",
        "memory_bytes",
        "gpus",
        "tasks",
        "time_limit_ms",
        "submitted_at",
        "started_at",
        "ended_at",
        "exit_code",
        "attempt",
    ];
    let number = |value: Option<i64>| value.map(|value| value.to_string()).unwrap_or_default();
    let time = |at: Option<WallTime>| {
        let at = at.and_then(|at| jiff::Timestamp::from_millisecond(at.0).ok());
        at.map(|at| at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()).unwrap_or_default()
    };
    let mut lines = csv::Writer::from_writer(Vec::new());
    let lines_of = |job: &JobSummary| {
        let nodes: Vec<&str> = job.nodes.iter().map(hostler_model::NodeName::as_str).collect();
        [
            job.id.to_string(),
            no_formula(&job.name),
            no_formula(&job.user),
            job.shown_state().to_owned(),
            no_formula(job.reason.as_deref().or(job.message.as_deref()).unwrap_or_default()),
            job.partition.as_ref().map(ToString::to_string).unwrap_or_default(),
            job.priority.to_string(),
            nodes.join(" "),
            job.node_count.to_string(),
            job.cpus.to_string(),
            job.memory_bytes.to_string(),
            job.gpus.to_string(),
            job.tasks.total.to_string(),
            job.time_limit_ms.map(|ms| ms.to_string()).unwrap_or_default(),
            time(Some(job.submitted_at)),
            time(job.started_at),
            time(job.ended_at),
            number(job.exit_code.map(i64::from)),
            job.attempt.0.to_string(),
        ]
    };
    lines.write_record(heading).expect("memory takes all writes");
    for job in jobs {
        lines.write_record(lines_of(job)).expect("memory takes all writes");
    }
    lines.into_inner().expect("memory takes all writes")
}

/// A text that spreadsheets take for a formula gets an apostrophe, which makes it a text.
fn no_formula(text: &str) -> String {
    if text.starts_with(['=', '+', '-', '@', '\t', '\r']) { format!("'{text}") } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headings_link_to_the_next_order_of_their_column() {
        let of = |state, order| {
            let text = String::new;
            let filter = Filter { user: text(), state, partition: text(), node: text(), text: text(), order };
            headings(&Url::of(["jobs"]).with("user", "ada").with("order", "name"), &filter, &choices(None, false))
        };
        let newest = of("live", JobOrder::Newest);
        assert_eq!(newest[0].url.as_deref(), Some("/jobs?user=ada&order=oldest"));
        let sorts: Vec<_> = newest.iter().map(|it| it.sort).collect();
        assert_eq!(sorts, [Some("descending"), None, None, None, None, None, None]);
        let by_user = of("pending", JobOrder::User);
        assert_eq!(by_user[0].url.as_deref(), Some("/jobs?user=ada&order=newest"));
        assert_eq!(
            (by_user[2].url.as_deref(), by_user[2].sort),
            (Some("/jobs?user=ada&order=user"), Some("ascending"))
        );
        assert!(of("all", JobOrder::Newest).iter().all(|heading| heading.url.is_none()));
        let of_columns = CHOICES.iter().flat_map(|column| column.orders());
        let of_all = Column::Job.orders().iter().chain(Column::State.orders()).chain(of_columns);
        let reached: Vec<JobOrder> = of_all.map(|(order, _)| *order).collect();
        assert!(JobOrder::ALL.iter().all(|order| reached.contains(order)), "each order is a heading's: {reached:?}");
    }

    #[test]
    fn chosen_columns_are_kept_and_unknown_ones_ignored() {
        let shown = |kept, has_partition| {
            let choices = choices(kept, has_partition).into_iter();
            choices.filter(|(_, is_shown)| *is_shown).map(|(column, _)| column.name()).collect::<Vec<_>>()
        };
        assert_eq!(shown(None, false), ["user", "time", "request", "nodes", "change"]);
        assert_eq!(shown(None, true), ["user", "time", "partition", "request", "nodes", "change"]);
        assert_eq!(shown(Some("limit.<b>.time"), true), ["time", "limit"]);
        assert!(shown(Some(""), true).is_empty());
    }

    #[test]
    fn spreadsheets_get_no_formulas() {
        assert_eq!(no_formula("=cmd|' /C calc'!A0"), "'=cmd|' /C calc'!A0");
        assert_eq!(no_formula("train=1"), "train=1");
    }
}
