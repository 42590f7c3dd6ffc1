//! The lists of jobs and nodes: their columns, order and cells. A narrow screen shows the first columns only.

use std::cmp::{Ordering, Reverse};

use hostler_model::{JobId, JobState, Metric, NodeName, NodeState, PartitionName, WallTime, format_bytes};
use hostler_proto::api::{JobSummary, NodeView};

use super::filter::Filter;
use crate::output::text::Moment;
use crate::output::views;

/// The column by which a list is ordered, and the direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sort<C> {
    pub(super) column: C,
    pub(super) is_reversed: bool,
}

impl<C: Copy + PartialEq> Sort<C> {
    pub(super) const fn new(column: C) -> Self {
        Self { column, is_reversed: false }
    }

    /// Orders by the next column.
    pub(super) fn next(&mut self, all: &[C]) {
        let at = all.iter().position(|column| *column == self.column).unwrap_or(0);
        *self = Self::new(all[(at + 1) % all.len()]);
    }

    pub(super) fn reverse(&mut self) {
        self.is_reversed = !self.is_reversed;
    }

    fn apply(self, order: Ordering) -> Ordering {
        if self.is_reversed { order.reverse() } else { order }
    }
}

/// A list with a selected row, which stays selected when rows move.
#[derive(Debug)]
pub(super) struct List<T, I, C> {
    pub(super) all: Vec<T>,
    /// Whether the head has sent the list.
    pub(super) is_known: bool,
    pub(super) selected: Option<I>,
    pub(super) sort: Sort<C>,
    pub(super) filter: Filter,
}

/// Columns of the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum JobColumn {
    Id,
    Name,
    User,
    State,
    Time,
    Cpus,
    Memory,
    Gpus,
    Partition,
    Where,
}

impl JobColumn {
    pub(super) const ALL: [Self; 10] = [
        Self::Id,
        Self::Name,
        Self::User,
        Self::State,
        Self::Time,
        Self::Cpus,
        Self::Memory,
        Self::Gpus,
        Self::Partition,
        Self::Where,
    ];

    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::Id => "ID",
            Self::Name => "NAME",
            Self::User => "USER",
            Self::State => "STATE",
            Self::Time => "TIME",
            Self::Cpus => "CPUS",
            Self::Memory => "MEMORY",
            Self::Gpus => "GPUS",
            Self::Partition => "PARTITION",
            Self::Where => "NODE OR REASON",
        }
    }

    /// The width of the column on a screen of a width; the last column takes the rest.
    pub(super) fn width(self, screen: u16) -> u16 {
        match self {
            Self::Id => 6,
            Self::Name => 14 + (screen.saturating_sub(128) / 3).min(26),
            Self::Time => 13,
            Self::User => 9,
            Self::State => 12,
            Self::Cpus | Self::Gpus => 4,
            Self::Memory => 7,
            Self::Partition => 10,
            Self::Where => 24,
        }
    }

    /// Columns for a screen of this width. The list of all users needs their names.
    pub(super) fn fitting(width: u16, has_users: bool, has_gpus: bool) -> Vec<Self> {
        let wide = [(Self::Cpus, 92), (Self::Memory, 100), (Self::Partition, 128)];
        let is_shown = |column: &Self| match column {
            Self::User => has_users,
            Self::Gpus => has_gpus && width >= 112,
            column => wide.iter().all(|(it, from)| it != column || width >= *from),
        };
        Self::ALL.into_iter().filter(is_shown).collect()
    }

    fn compare(self, a: &JobSummary, b: &JobSummary) -> Ordering {
        match self {
            Self::Id => b.id.cmp(&a.id),
            Self::Name => a.name.cmp(&b.name),
            Self::User => a.user.cmp(&b.user),
            Self::State => group(a.state).cmp(&group(b.state)),
            Self::Time => a.started_at.is_none().cmp(&b.started_at.is_none()).then(a.started_at.cmp(&b.started_at)),
            Self::Cpus => (Reverse(a.cpus)).cmp(&Reverse(b.cpus)),
            Self::Memory => (Reverse(a.memory_bytes)).cmp(&Reverse(b.memory_bytes)),
            Self::Gpus => (Reverse(a.gpus)).cmp(&Reverse(b.gpus)),
            Self::Partition => a.partition.cmp(&b.partition),
            Self::Where => a.nodes.cmp(&b.nodes),
        }
    }

    pub(super) fn cell(self, job: &JobSummary, moment: &Moment) -> String {
        match self {
            Self::Id => job.id.to_string(),
            Self::Name => job.name.clone(),
            Self::User => job.user.clone(),
            Self::State => state_cell(job),
            Self::Time => time_cell(job, moment),
            Self::Cpus => job.cpus.to_string(),
            Self::Memory => format_bytes(job.memory_bytes),
            Self::Gpus => job.gpus.to_string(),
            Self::Partition => job.partition.as_ref().map_or("-", |partition| partition.as_str()).to_owned(),
            Self::Where => where_cell(job, moment),
        }
    }
}

/// Running jobs first, then those that wait, then those that ended.
const fn group(state: JobState) -> u8 {
    match state {
        JobState::Running => 0,
        JobState::Starting | JobState::Completing => 1,
        JobState::Pending => 2,
        _ => 3,
    }
}

/// The state; for an array, also the number of ended tasks.
fn state_cell(job: &JobSummary) -> String {
    let tasks = &job.tasks;
    match &job.array {
        Some(_) if !job.state.is_ended() => {
            format!("{} {}/{}", job.state, tasks.completed + tasks.failed + tasks.cancelled, tasks.total)
        }
        Some(_) | None => job.shown_state().to_owned(),
    }
}

/// The time that the job has run and its time limit, or how long it waits.
fn time_cell(job: &JobSummary, moment: &Moment) -> String {
    match (job.started_at, job.time_limit_ms) {
        (None, _) if job.state.is_ended() => "-".to_owned(),
        (None, _) => format!("({})", moment.span(job.submitted_at, None)),
        (Some(start), Some(limit)) if !job.state.is_ended() => {
            let limit = hostler_model::format_ms(limit);
            format!("{}/{limit}", moment.span(start, job.ended_at))
        }
        (Some(start), _) => moment.span(start, job.ended_at),
    }
}

/// What is wrong, when the job starts at the latest and why it waits, how it ended, or where it runs.
pub(super) fn where_cell(job: &JobSummary, moment: &Moment) -> String {
    let nodes: Vec<&str> = job.nodes.iter().map(NodeName::as_str).collect();
    let why = Some(views::outcome(job)).filter(|outcome| !outcome.is_empty());
    let start = job.expected_start_at.map(|at| moment.span(moment.now, Some(at)));
    let why = match (why, start) {
        (Some(why), Some(start)) => Some(format!("within {start}: {why}")),
        (why, _) => why,
    };
    match (why, nodes.as_slice()) {
        (Some(why), []) => why,
        (Some(why), [node, ..]) => format!("{node}: {why}"),
        (None, []) => "-".to_owned(),
        (None, nodes) => nodes.join(" "),
    }
}

impl List<JobSummary, JobId, JobColumn> {
    /// The rows that match the filter, in order.
    pub(super) fn shown(&self) -> Vec<&JobSummary> {
        let mut rows: Vec<&JobSummary> = self.all.iter().filter(|job| self.filter.matches(&words_of(job))).collect();
        let order =
            |a: &&JobSummary, b: &&JobSummary| self.sort.apply(self.sort.column.compare(a, b)).then(b.id.cmp(&a.id));
        rows.sort_by(order);
        rows
    }
}

/// The words of a job that a filter finds.
fn words_of(job: &JobSummary) -> impl Iterator<Item = &str> + Clone {
    [job.name.as_str(), job.user.as_str(), job.state.as_str()]
        .into_iter()
        .chain(job.partition.as_ref().map(PartitionName::as_str))
        .chain(job.reason.as_deref())
        .chain(job.nodes.iter().map(NodeName::as_str))
}

/// Columns of the nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NodeColumn {
    Name,
    State,
    Since,
    Cpus,
    Memory,
    Gpus,
    Tasks,
    Load,
    Jobs,
    Power,
    Partitions,
    Why,
}

impl NodeColumn {
    pub(super) const ALL: [Self; 12] = [
        Self::Name,
        Self::State,
        Self::Since,
        Self::Cpus,
        Self::Memory,
        Self::Gpus,
        Self::Tasks,
        Self::Load,
        Self::Jobs,
        Self::Power,
        Self::Partitions,
        Self::Why,
    ];

    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::Name => "NODE",
            Self::State => "STATE",
            Self::Since => "SINCE",
            Self::Cpus => "CPUS HELD",
            Self::Memory => "MEMORY HELD",
            Self::Gpus => "GPUS",
            Self::Tasks => "TASKS",
            Self::Load => "LOAD",
            Self::Jobs => "JOBS",
            Self::Power => "POWER",
            Self::Partitions => "PARTITIONS",
            Self::Why => "REASON",
        }
    }

    /// The width of the column on a screen of a width; the last column takes the rest.
    pub(super) const fn width(self, screen: u16) -> u16 {
        match self {
            Self::Name => 14,
            Self::State => 9,
            Self::Since => 7,
            Self::Cpus if screen >= BARS => 9 + BAR as u16 + 3,
            Self::Cpus => 9,
            Self::Memory => 12,
            Self::Gpus | Self::Tasks | Self::Load => 5,
            Self::Jobs => 40,
            Self::Power => 8,
            Self::Partitions | Self::Why => 12,
        }
    }

    /// Columns for a screen of this width.
    pub(super) fn fitting(width: u16, has_gpus: bool) -> Vec<Self> {
        let is_shown = |column: &Self| match column {
            Self::Gpus => has_gpus,
            Self::Partitions => width >= 100,
            Self::Load => width >= BARS,
            Self::Jobs => width >= 170,
            _ => true,
        };
        Self::ALL.into_iter().filter(is_shown).collect()
    }

    fn compare(self, a: &NodeView, b: &NodeView) -> Ordering {
        let held = |node: &NodeView| Reverse(node.cpus - node.cpus_free.min(node.cpus));
        match self {
            Self::Name => natural(a.name.as_str()).cmp(&natural(b.name.as_str())),
            Self::State => (a.state == NodeState::Up).cmp(&(b.state == NodeState::Up)).then(a.state.cmp(&b.state)),
            Self::Since => b.since.cmp(&a.since),
            Self::Cpus => held(a).cmp(&held(b)),
            Self::Memory => {
                let held = |node: &NodeView| Reverse(node.memory_bytes.saturating_sub(node.memory_free_bytes));
                held(a).cmp(&held(b))
            }
            Self::Gpus => Reverse(a.gpus).cmp(&Reverse(b.gpus)),
            Self::Tasks | Self::Jobs => Reverse(a.tasks).cmp(&Reverse(b.tasks)),
            Self::Load => load(b).total_cmp(&load(a)),
            Self::Power => a.power.cmp(&b.power),
            Self::Partitions => a.partitions.cmp(&b.partitions),
            Self::Why => (&a.reason, &a.why).cmp(&(&b.reason, &b.why)),
        }
    }

    pub(super) fn cell(self, node: &NodeView, moment: &Moment, screen: u16) -> String {
        match self {
            Self::Name => node.name.to_string(),
            Self::State => node.state.as_str().to_owned(),
            Self::Since => since_cell(node.since, moment),
            Self::Cpus => {
                let held = node.cpus.saturating_sub(node.cpus_free);
                let bar = if screen >= BARS { bar(held, node.cpus) } else { String::new() };
                format!("{bar}{held}/{}", node.cpus)
            }
            Self::Memory => {
                let held = node.memory_bytes.saturating_sub(node.memory_free_bytes);
                format!("{}/{}", format_bytes(held), format_bytes(node.memory_bytes))
            }
            Self::Gpus => format!("{}/{}", node.gpus.saturating_sub(node.gpus_free), node.gpus),
            Self::Tasks => node.tasks.to_string(),
            Self::Load if node.measured.is_some() => format!("{:.1}", load(node)),
            Self::Load => "-".to_owned(),
            Self::Jobs => jobs_cell(node),
            Self::Power => node.power.clone(),
            Self::Partitions => crate::output::text::words(&node.partitions),
            Self::Why => node.reason.clone().or_else(|| node.why.clone()).unwrap_or_default(),
        }
    }
}

/// Screens of this width have room for bars, which have this many characters.
const BARS: u16 = 130;
const BAR: usize = 10;

/// The held share of CPUs, such as `[|||||     ] `.
fn bar(held: u32, all: u32) -> String {
    let filled = (held as usize * BAR).div_ceil(all.max(1) as usize).min(BAR);
    format!("[{:<BAR$}] ", "|".repeat(filled))
}

fn load(node: &NodeView) -> f32 {
    let reading = node.measured.as_ref().and_then(|reading| reading.values.get(&Metric::Load));
    reading.copied().unwrap_or_default()
}

/// The jobs that hold the node, each once.
fn jobs_cell(node: &NodeView) -> String {
    let mut jobs: Vec<(JobId, &str)> = Vec::new();
    for run in node.holders.iter().flatten() {
        if jobs.iter().all(|(id, _)| *id != run.job) {
            jobs.push((run.job, &run.name));
        }
    }
    jobs.iter().map(|(id, name)| format!("{id} {name}")).collect::<Vec<_>>().join(", ")
}

fn since_cell(since: Option<WallTime>, moment: &Moment) -> String {
    since.map_or_else(|| "-".to_owned(), |since| moment.span(since, None))
}

/// A sort key in which `n2` comes before `n10`.
fn natural(name: &str) -> (&str, u64, &str) {
    let digits = name.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    (&name[..digits], name[digits..].parse().unwrap_or(0), name)
}

impl List<NodeView, NodeName, NodeColumn> {
    /// The rows that match the filter, in order.
    pub(super) fn shown(&self) -> Vec<&NodeView> {
        let words = |node: &NodeView| {
            let partitions = node.partitions.iter().map(ToString::to_string);
            let own = [node.name.to_string(), node.state.as_str().to_owned(), node.power.clone()];
            own.into_iter().chain(partitions).chain(node.reason.clone()).chain(node.why.clone()).collect::<Vec<_>>()
        };
        let matches = |node: &&NodeView| self.filter.matches(&words(node).iter().map(String::as_str));
        let mut rows: Vec<&NodeView> = self.all.iter().filter(matches).collect();
        let order = |a: &&NodeView, b: &&NodeView| {
            let by_name = NodeColumn::Name.compare(a, b);
            self.sort.apply(self.sort.column.compare(a, b)).then(by_name)
        };
        rows.sort_by(order);
        rows
    }
}
