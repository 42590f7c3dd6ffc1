//! What ran: sums of a period, and ended jobs with what they used.

use askama::Template;
use axum::response::Html;
use hostler_model::{JobState, format_bytes};
use hostler_proto::accounting::{AccountingGroup, AccountingPage, EndedJobView, HistoryPage, JobEndings};
use jiff::ToSpan;
use jiff::civil::Date;

use crate::api::Refused;
use crate::page::{Frame, render};
use crate::parts::Badge;
use crate::url::Url;
use crate::words;

/// Number of jobs on a page.
const PER_PAGE: usize = 50;

/// Number of groups in the table of sums.
const SHOWN_GROUPS: usize = 25;

/// By what the sums can be grouped.
const GROUPS: [&str; 4] = ["name", "partition", "user", "day"];

/// What the filter by ending offers, and the label of each.
const ENDINGS: [(&[JobState], &str); 8] = [
    (&JobState::FAILED, "any failure"),
    (&[JobState::Completed], "completed"),
    (&[JobState::Failed], "failed"),
    (&[JobState::Timeout], "time limit"),
    (&[JobState::OutOfMemory], "out of memory"),
    (&[JobState::NodeFail], "node lost"),
    (&[JobState::Cancelled], "cancelled"),
    (&[JobState::Preempted], "preempted"),
];

#[derive(Template)]
#[template(path = "history.html")]
struct HistoryView {
    frame: Frame,
    usage: AccountingPage,
    jobs: Vec<Row>,
    /// Values of the filter by ending, and their labels.
    endings: Vec<(String, &'static str)>,
    state: String,
    user: String,
    name: String,
    by: String,
    first: Option<Url>,
    next: Option<Url>,
    more_groups: usize,
}

struct Row {
    job: EndedJobView,
    url: Url,
    badge: Badge,
}

impl Row {
    fn new(job: EndedJobView) -> Self {
        Self { url: Url::job(job.summary.id), badge: Badge::job(job.summary.state), job }
    }

    /// CPUs asked for, and the average number of CPUs used.
    fn cpus(&self) -> String {
        let asked = self.job.summary.cpus;
        match self.job.cpu_efficiency {
            Some(share) => format!("{:.1} of {asked}", share * f64::from(asked)),
            None => self.unmeasured(&asked),
        }
    }

    fn memory(&self) -> String {
        let asked = format_bytes(self.job.summary.memory_bytes);
        match self.job.peak_memory_bytes {
            Some(peak) => format!("{} of {asked}", format_bytes(peak)),
            None => self.unmeasured(&asked),
        }
    }

    /// What was asked for, unless the job never ran.
    fn unmeasured(&self, asked: &impl std::fmt::Display) -> String {
        if self.job.summary.started_at.is_some() { format!("– of {asked}") } else { "–".to_owned() }
    }
}

impl HistoryView {
    fn hours(&self, hours: &f64) -> String {
        number(*hours)
    }

    fn share(&self, share: &Option<f64>) -> String {
        share.map_or_else(|| "–".to_owned(), |share| format!("{:.0} %", share * 100.0))
    }

    fn energy(&self, group: &AccountingGroup) -> String {
        number(group.watt_hours / 1000.0)
    }

    /// The key of a group, or words for an empty one.
    fn key<'a>(&self, group: &'a AccountingGroup) -> &'a str {
        match (group.key.as_str(), self.by.as_str()) {
            ("", "partition") => "no partition",
            ("", "name") => "other names",
            (key, _) => key,
        }
    }

    /// Heading of the first column of the sums.
    fn by_label(&self) -> &'static str {
        match self.by.as_str() {
            "user" => "User",
            "partition" => "Partition",
            "day" => "Day",
            _ => "Name",
        }
    }

    fn has_energy(&self) -> bool {
        self.usage.total.watt_hours > 0.0
    }

    fn has_gpus(&self) -> bool {
        self.usage.total.gpu_hours > 0.0
    }
}

/// A number with about three significant digits.
fn number(value: f64) -> String {
    match value {
        0.0 => "0".to_owned(),
        _ if value < 0.01 => "< 0.01".to_owned(),
        _ if value < 10.0 => format!("{value:.2}"),
        _ if value < 1000.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// The endings of jobs in words, without those that none has.
fn endings(endings: &JobEndings) -> String {
    let all = JobEndings::STATES.into_iter().zip(endings.counts());
    let said = all.filter(|(_, count)| *count > 0).map(|(state, count)| format!("{count} {}", word(state)));
    said.collect::<Vec<_>>().join(", ")
}

fn word(state: JobState) -> String {
    state.as_str().replace('_', " ")
}

/// `GET /history`.
pub(crate) async fn show(frame: Frame) -> Result<Html<String>, Refused> {
    let query = |name: &str| frame.query.text(name).unwrap_or_default().to_owned();
    let [state, name, before] = ["state", "name", "before"].map(query);
    // Lists show the caller's own jobs first. An empty field means all users.
    let user = match frame.query.get("user") {
        Some(user) => user.trim().to_owned(),
        None => frame.me.user.clone(),
    };
    let user = if frame.is_operator() { user } else { frame.me.user.clone() };
    let by = frame.query.text("by").filter(|by| GROUPS.contains(by)).unwrap_or(GROUPS[0]);
    let mut sums = Url::of(["accounting"]).with("by", by);
    let (from, to) = period(&frame)?;
    sums = sums.with("from", from).with("to", to);
    let mut list = Url::of(["history"]).with("limit", PER_PAGE).with("from", from).with("to", to);
    let mut page = Url::of(["history"]).with("from", from).with("to", to).with("by", by).with("user", &user);
    if !user.is_empty() {
        sums = sums.with("user", &user);
        list = list.with("user", &user);
    }
    for (field, value) in [("state", &state), ("name", &name)] {
        if !value.is_empty() {
            list = list.with(field, value);
            page = page.with(field, value);
        }
    }
    if !before.is_empty() {
        list = list.with("before", &before);
    }
    let mut usage: AccountingPage = frame.api.get(&sums).await?;
    let history: HistoryPage = frame.api.get(&list).await?;
    let more_groups = usage.groups.len().saturating_sub(SHOWN_GROUPS);
    if by != "day" {
        usage.groups.truncate(SHOWN_GROUPS);
    }
    Ok(render(&HistoryView {
        usage,
        more_groups: if by == "day" { 0 } else { more_groups },
        jobs: history.jobs.into_iter().map(Row::new).collect(),
        endings: ENDINGS.map(|(states, label)| (words::states(states), label)).into(),
        first: (!before.is_empty()).then(|| page.clone()),
        next: history.next.map(|next| page.with("before", next)),
        state,
        user,
        name,
        by: by.to_owned(),
        frame,
    }))
}

/// The first and the last day: the last 30 days unless the address says otherwise.
fn period(frame: &Frame) -> Result<(Date, Date), Refused> {
    let today = frame.now.to_zoned(jiff::tz::TimeZone::UTC).date();
    let to = frame.query.read("to")?.unwrap_or(today);
    let from = match frame.query.read("from")? {
        Some(from) => from,
        None => to.checked_sub(29.days()).map_err(|_| Refused::bad_request("`to` is too early"))?,
    };
    Ok((from, to))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_few_digits() {
        for (value, text) in [(0.0, "0"), (0.001, "< 0.01"), (1.234, "1.23"), (12.34, "12.3"), (123_456.7, "123457")] {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn endings_are_said_in_words() {
        let counts = JobEndings { completed: 3, out_of_memory: 1, ..JobEndings::default() };
        assert_eq!(endings(&counts), "3 completed, 1 out of memory");
    }
}
