//! The queue: jobs by user, state, partition, node and text, and actions on several jobs at once.

use askama::Template;
use axum::response::{Html, IntoResponse, Response};
use hostler_model::{JobId, JobState, WallTime, plural};
use hostler_proto::api::{JobAction, JobOrder, JobPage, JobSummary};

use crate::api::Refused;
use crate::form::Fields;
use crate::notice::Notice;
use crate::page::{Confirm, Frame, render};
use crate::parts::{Badge, Time};
use crate::url::Url;
use crate::words;

/// Jobs per page. A page stays below 100 kB.
const JOBS: usize = 50;

/// Maximum number of jobs in one action.
const MAX_JOBS: usize = 500;

/// Choices of the filter for states: name in the address, label, and states for the API.
const STATES: [(&str, &str, &str); 8] = [
    ("live", "Not ended", "pending,starting,running,completing"),
    ("pending", "Waiting", "pending"),
    ("running", "Running", "starting,running,completing"),
    ("ended", "Ended", "completed,failed,cancelled,timeout,out_of_memory,node_fail,preempted"),
    ("failed", "Failed", "failed,timeout,out_of_memory,node_fail"),
    ("completed", "Completed", "completed"),
    ("cancelled", "Cancelled", "cancelled,preempted"),
    ("all", "All", ""),
];

/// States of [`STATES`] that select jobs by their own state. The others also select arrays with a task in such a state.
const WHOLE_JOBS: [&str; 3] = ["live", "ended", "all"];

/// States of [`STATES`] in which no job has ended. Only such lists can be sorted.
const SORTED: [&str; 3] = ["live", "pending", "running"];

/// Choices of the order.
const ORDERS: [(JobOrder, &str); 7] = [
    (JobOrder::Queue, "Running first, then the next to start"),
    (JobOrder::Newest, "Newest first"),
    (JobOrder::Oldest, "Oldest first"),
    (JobOrder::Priority, "Highest priority first"),
    (JobOrder::Name, "By name"),
    (JobOrder::User, "By user"),
    (JobOrder::Size, "Largest first"),
];

#[derive(Template)]
#[template(path = "jobs.html")]
struct Jobs {
    frame: Frame,
    filter: Filter,
    columns: Vec<Column>,
    rows: Vec<Row>,
    total: u64,
    is_total_exact: bool,
    is_first: bool,
    first: Url,
    next: Option<Url>,
    may_act: bool,
}

/// The filter in the address.
struct Filter {
    user: String,
    state: &'static str,
    partition: String,
    node: String,
    text: String,
    order: JobOrder,
}

/// The header of a column.
struct Column {
    label: &'static str,
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
    expected: Option<Time>,
    request: String,
    nodes: String,
    /// What happened last, and when.
    last: (&'static str, Time),
    is_own: bool,
}

/// `GET /jobs`.
pub(crate) async fn show(frame: Frame) -> Result<Html<String>, Refused> {
    let query = &frame.query;
    let wanted = query.text("state").unwrap_or("live");
    let (state, _, states) = STATES.iter().copied().find(|(name, ..)| *name == wanted).unwrap_or(STATES[0]);
    let text = |name| query.text(name).unwrap_or_default().to_owned();
    let user = query.get("user").unwrap_or(&frame.me.user).trim().to_owned();
    let chosen: Option<JobOrder> = query.read("order")?;
    let order = if SORTED.contains(&state) { chosen.unwrap_or(JobOrder::Queue) } else { JobOrder::Newest };
    let filter = Filter { user, state, partition: text("partition"), node: text("node"), text: text("q"), order };
    let before: Option<JobId> = query.read("before")?;
    let mut request = Url::of(["jobs"]).with("limit", JOBS);
    for (name, value) in [
        ("state", states),
        ("user", &filter.user),
        ("partition", &filter.partition),
        ("node", &filter.node),
        ("text", &filter.text),
        ("order", order.as_str()),
    ] {
        if !value.is_empty() {
            request = request.with(name, value);
        }
    }
    if !WHOLE_JOBS.contains(&state) {
        request = request.with("any_task", true);
    }
    if let Some(before) = before {
        request = request.with("before", before);
    }
    let JobPage { jobs, total, next, .. } = frame.api.get(&request).await?;
    let first = frame.here.without("before");
    let next = next.map(|next| first.clone().with("before", next));
    let rows: Vec<Row> = jobs.into_iter().map(|job| Row::new(&frame, job)).collect();
    let is_total_exact = filter.partition.is_empty() && filter.node.is_empty() && filter.text.is_empty();
    let may_act = rows.iter().any(|row| row.is_own);
    let columns = columns(&first, &filter);
    let is_first = before.is_none();
    Ok(render(&Jobs { filter, columns, rows, total, is_total_exact, is_first, first, next, may_act, frame }))
}

/// The headers of the table. `here` is the address of the list's first page.
fn columns(here: &Url, filter: &Filter) -> Vec<Column> {
    let of = |label, orders: &[(JobOrder, &'static str)]| {
        let at = orders.iter().position(|(order, _)| *order == filter.order);
        // Following the link of the current order leads to the column's next order.
        let next = at.map_or(0, |at| (at + 1) % orders.len().max(1));
        let next = orders.get(next).filter(|_| SORTED.contains(&filter.state));
        let url = next.map(|(order, _)| here.without("order").with("order", order.as_str()));
        Column { label, url, sort: at.map(|at| orders[at].1) }
    };
    vec![
        of("Job", &[(JobOrder::Newest, "descending"), (JobOrder::Oldest, "ascending")]),
        of("State and reason", &[(JobOrder::Queue, "ascending"), (JobOrder::Priority, "descending")]),
        of("User", &[(JobOrder::User, "ascending")]),
        of("Request", &[(JobOrder::Size, "descending")]),
        of("Nodes", &[]),
        of("Last change", &[]),
    ]
}

impl Filter {
    /// The order in words.
    fn order_in_words(&self) -> String {
        let found = ORDERS.iter().find(|(order, _)| *order == self.order);
        found.map(|(_, label)| label.to_lowercase()).unwrap_or_default()
    }
}

impl Row {
    fn new(frame: &Frame, job: JobSummary) -> Self {
        let words = match (&job.reason, job.array.is_some()) {
            (Some(reason), false) => reason.clone(),
            (Some(reason), true) => format!("{}. Pending tasks: {reason}", words::tasks(&job.tasks)),
            (None, false) if matches!(job.state, JobState::Running | JobState::Completed) => String::new(),
            (None, _) => words::state_of(&job),
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
            words: words::shortened(&words, 240),
            expected: job.expected_start_at.map(ago),
            request: words::request(&job),
            nodes,
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

/// Reads the name of an action.
fn action_of(name: Option<&str>) -> Result<JobAction, Refused> {
    let all = [JobAction::Cancel, JobAction::Hold, JobAction::Release, JobAction::Requeue];
    let found = all.into_iter().find(|action| name == Some(action.as_str()));
    found.ok_or_else(|| Refused::bad_request("the form names no action; choose cancel, hold, release or requeue"))
}

/// `POST /jobs/act`: an action on all checked jobs.
pub(crate) async fn act(frame: Frame, fields: Fields) -> Result<Response, Refused> {
    let action = action_of(fields.get("action"))?;
    let back = fields.get("back").and_then(Url::local).unwrap_or_else(|| Url::of(["jobs"]));
    let jobs: Vec<JobId> = fields.all("job").filter_map(|id| id.parse().ok()).take(MAX_JOBS + 1).collect();
    let index: Option<u32> = fields.read("index")?;
    if jobs.is_empty() {
        return Ok(frame.redirect(&back, Notice::bad(vec!["Nothing was done: no job is checked.".to_owned()])));
    }
    if jobs.len() > MAX_JOBS {
        return Err(Refused::bad_request(format!("at most {MAX_JOBS} jobs at once; use the command line for more")));
    }
    let destroys = !matches!(action, JobAction::Hold | JobAction::Release);
    if destroys && fields.get("confirmed") != Some("yes") {
        return Ok(ask(frame, action, &jobs, &fields, back).await.into_response());
    }
    let mut lines = Vec::new();
    let mut failed = 0;
    for id in &jobs {
        let mut url = Url::job(*id).then(action.as_str());
        if let Some(index) = index {
            url = url.with("index", index);
        }
        match frame.api.post::<JobSummary>(&url, &()).await {
            Ok(job) => lines.push(format!("Job {id} ({}): {}.", job.name, done(action))),
            Err(refused) => {
                failed += 1;
                lines.push(format!("Job {id}: not {}. {}.", done(action), sentence(&refused)));
            }
        }
    }
    let notice = Notice { is_good: failed == 0, ..Notice::bad(lines) };
    Ok(frame.redirect(&back, notice))
}

/// The reason of a refusal with its hints.
fn sentence(refused: &Refused) -> String {
    let mut text = refused.error.message.clone();
    for hint in &refused.error.hints {
        text.push_str("; ");
        text.push_str(hint);
    }
    text
}

const fn done(action: JobAction) -> &'static str {
    match action {
        JobAction::Cancel => "cancelled",
        JobAction::Hold | JobAction::HoldForOwner => "held",
        JobAction::Release => "released",
        JobAction::Requeue | JobAction::RequeueAll | JobAction::RequeueHeld { .. } | JobAction::RequeueDependent => {
            "requeued"
        }
    }
}

/// Asks before jobs are ended.
async fn ask(frame: Frame, action: JobAction, jobs: &[JobId], fields: &Fields, back: Url) -> Html<String> {
    let mut items = Vec::new();
    for id in jobs {
        let job: Result<hostler_proto::api::JobDetail, Refused> = frame.api.get(&Url::job(*id).with("tasks", 0)).await;
        items.push(match job {
            Ok(job) => {
                let job = job.summary;
                format!("Job {id} ({}, of {}): {}", job.name, job.user, words::state_of(&job).to_lowercase())
            }
            Err(refused) => format!("Job {id}: {}", refused.error.message),
        });
    }
    let which = plural(jobs.len(), "job");
    let (title, button) = match action {
        JobAction::Requeue => (
            format!(
                "Run {which} again from the start? Running tasks are ended first. Completed tasks keep their results."
            ),
            format!("Requeue {which}"),
        ),
        _ => (format!("Cancel {which}?"), format!("Cancel {which}")),
    };
    let repeated = fields.iter().filter(|(name, _)| !matches!(*name, "token" | "confirmed"));
    let fields = repeated.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    render(&Confirm { frame, title, items, url: Url::of(["jobs", "act"]), fields, button, back })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_of_states_are_known_to_the_api() {
        for (name, _, states) in STATES {
            let all: Vec<&str> = states.split(',').filter(|state| !state.is_empty()).collect();
            let is_known = |state: &&str| JobState::ALL.iter().any(|known| known.as_str() == *state);
            assert!(all.iter().all(is_known), "{name}");
        }
    }

    #[test]
    fn headers_link_to_the_next_order_of_their_column() {
        let columns_of = |state, order| {
            let text = String::new;
            let filter = Filter { user: text(), state, partition: text(), node: text(), text: text(), order };
            columns(&Url::of(["jobs"]).with("user", "ada").with("order", "name"), &filter)
        };
        let newest = columns_of("live", JobOrder::Newest);
        assert_eq!(newest[0].url.as_deref(), Some("/jobs?user=ada&order=oldest"));
        assert_eq!(
            newest.iter().map(|it| it.sort).collect::<Vec<_>>(),
            [Some("descending"), None, None, None, None, None]
        );
        let by_user = columns_of("pending", JobOrder::User);
        assert_eq!(by_user[0].url.as_deref(), Some("/jobs?user=ada&order=newest"));
        assert_eq!(
            (by_user[2].url.as_deref(), by_user[2].sort),
            (Some("/jobs?user=ada&order=user"), Some("ascending"))
        );
        assert!(columns_of("all", JobOrder::Newest).iter().all(|column| column.url.is_none()));
        let has_no_ended = |name: &&str| STATES.iter().any(|(known, _, states)| known == name && !states.is_empty());
        assert!(SORTED.iter().all(has_no_ended));
    }

    #[test]
    fn only_four_actions_exist() {
        assert_eq!(action_of(Some("hold")).expect("exists"), JobAction::Hold);
        assert!(action_of(Some("../cancel")).is_err());
        assert!(action_of(None).is_err());
    }
}
