//! The table of `hostler jobs`: a column per row of [`COLUMNS`], and who owns the listed jobs.

use std::collections::BTreeMap;
use std::str::FromStr;

use hostler_model::{JobState, ParseError, WallTime, format_bytes, format_ms, plural, shortened};
use hostler_proto::api::JobSummary;

use super::table::{Align, Table};
use super::text::Moment;
use super::views;

/// Users in [`totals`].
const USERS: usize = 6;

/// A column of the table.
pub(crate) struct Column {
    /// Name in `--columns`; the heading is the same in capital letters.
    name: &'static str,
    align: Align,
    is_usual: bool,
    value: fn(&JobSummary, &Moment) -> String,
}

static COLUMNS: [Column; 20] = [
    usual("id", Align::Right, |job, _| job.id.to_string()),
    usual("name", Align::Left, |job, _| shortened(&job.name, 32)),
    usual("user", Align::Left, |job, _| job.user.clone()),
    usual("state", Align::Left, |job, _| views::state(job)),
    usual("cpus", Align::Right, |job, _| on_nodes(job)),
    usual("memory", Align::Right, |job, _| format_bytes(job.memory_bytes)),
    usual(GPUS, Align::Right, |job, _| job.gpus.to_string()),
    usual("time", Align::Right, |job, moment| or_dash(job.started_at, |start| moment.span(start, job.ended_at))),
    usual("node", Align::Left, |job, _| views::nodes(&job.nodes)),
    usual("reason", Align::Left, |job, _| views::outcome(job)),
    other("limit", Align::Right, |job, _| or_dash(job.time_limit_ms, format_ms)),
    other("start", Align::Left, |job, moment| date(moment, job.started_at.or(job.expected_start_at))),
    other("submitted", Align::Left, |job, moment| date(moment, Some(job.submitted_at))),
    other("ended", Align::Left, |job, moment| date(moment, job.ended_at)),
    other("partition", Align::Left, |job, _| or_dash(job.partition.as_ref(), ToString::to_string)),
    other("priority", Align::Right, |job, _| job.priority.to_string()),
    other("tasks", Align::Right, |job, _| job.tasks.total.to_string()),
    other("attempt", Align::Right, |job, _| job.attempt.0.to_string()),
    other("exit", Align::Right, |job, _| or_dash(job.exit_code, |code| code.to_string())),
    other("nodes", Align::Left, |job, _| match job.nodes.as_slice() {
        [] => "-".to_owned(),
        nodes => super::text::words(nodes),
    }),
];

/// Usually left out where no job has a GPU.
const GPUS: &str = "gpus";

const fn usual(name: &'static str, align: Align, value: fn(&JobSummary, &Moment) -> String) -> Column {
    Column { name, align, is_usual: true, value }
}

const fn other(name: &'static str, align: Align, value: fn(&JobSummary, &Moment) -> String) -> Column {
    Column { name, align, is_usual: false, value }
}

fn or_dash<T>(value: Option<T>, show: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| "-".to_owned(), show)
}

fn date(moment: &Moment, at: Option<WallTime>) -> String {
    or_dash(at, |at| moment.date(at))
}

/// CPUs of a task; for several nodes e.g. `4x2`, four nodes with two CPUs each.
fn on_nodes(job: &JobSummary) -> String {
    if job.node_count == 1 { job.cpus.to_string() } else { format!("{}x{}", job.node_count, job.cpus) }
}

/// A column that a person chose.
#[derive(Clone, Copy)]
pub(crate) struct Chosen(&'static Column);

impl std::fmt::Debug for Chosen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0.name)
    }
}

impl FromStr for Chosen {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let names = || COLUMNS.iter().map(|column| column.name).collect::<Vec<_>>().join(", ");
        let found = COLUMNS.iter().find(|column| column.name.eq_ignore_ascii_case(text)).map(Self);
        found.ok_or_else(|| ParseError::new(text, format!("a column: {}", names())))
    }
}

/// The jobs as a table of the chosen columns, or of the usual ones if none is chosen.
pub(crate) fn table(jobs: &[JobSummary], chosen: &[Chosen], moment: &Moment, width: Option<usize>) -> String {
    let has_gpus = jobs.iter().any(|job| job.gpus > 0);
    let is_shown = |column: &&Column| column.is_usual && (column.name != GPUS || has_gpus);
    let columns: Vec<&Column> = match chosen {
        [] => COLUMNS.iter().filter(is_shown).collect(),
        chosen => chosen.iter().map(|it| it.0).collect(),
    };
    let headings: Vec<String> = columns.iter().map(|column| column.name.to_uppercase()).collect();
    let headings: Vec<(&str, Align)> =
        headings.iter().zip(&columns).map(|(heading, column)| (heading.as_str(), column.align)).collect();
    let mut table = Table::new(&headings);
    for job in jobs {
        table.row(columns.iter().map(|column| (column.value)(job, moment)));
    }
    table.render(width)
}

/// Whose jobs are listed, by state, such as `ada: 2 running, 30 pending; ben: 1 failed`. `None` for at most one job.
pub(crate) fn totals(jobs: &[JobSummary]) -> Option<String> {
    let mut by_user: BTreeMap<&str, BTreeMap<JobState, usize>> = BTreeMap::new();
    for job in jobs {
        let state = if job.state.is_ended() || job.state == JobState::Pending { job.state } else { JobState::Running };
        *by_user.entry(&job.user).or_default().entry(state).or_default() += 1;
    }
    let mut users: Vec<_> =
        by_user.into_iter().map(|(user, states)| (states.values().sum::<usize>(), user, states)).collect();
    users.sort_by(|one, other| other.0.cmp(&one.0).then_with(|| one.1.cmp(other.1)));
    let others = users.split_off(users.len().min(USERS));
    let of_user = |(_, user, states): &(usize, &str, BTreeMap<JobState, usize>)| {
        let states: Vec<String> = states.iter().map(|(state, count)| format!("{count} {state}")).collect();
        format!("{user}: {}", states.join(", "))
    };
    let mut parts: Vec<String> = users.iter().map(of_user).collect();
    if !others.is_empty() {
        let jobs: usize = others.iter().map(|it| it.0).sum();
        parts.push(format!("{}: {}", plural(others.len(), "other user"), plural(jobs, "job")));
    }
    (jobs.len() > 1).then(|| parts.join("; "))
}
