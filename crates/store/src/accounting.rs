//! Queries for sums over ended jobs, and for lists of ended jobs by the time of their end.
//!
//! The store keeps the sums of each day, user, partition and job name. It adds an ended job to the sums in the transaction that
//! stores the job. A query over a month therefore reads thousands of rows, however many jobs have ended, and the sums outlive
//! the jobs.

use std::ops::RangeInclusive;

use bytes::Bytes;
use hostler_model::{JobId, JobState, WallTime};
use hostler_proto::accounting::{Consumption, EndedUse, GroupBy, JobEndings};

/// How many days the store keeps sums.
pub(crate) const KEPT_DAYS: i64 = 400;

/// How many names of jobs a user and day have sums of their own. Further jobs count under an empty name, so that a user
/// who gives each job another name does not fill the store.
pub(crate) const MOST_NAMES: usize = 100;

/// How many ended jobs a query by time reads at most, matching or not.
pub(crate) const MOST_EXAMINED: usize = 20_000;

/// Milliseconds of a day.
const DAY_MS: i64 = 86_400_000;

/// The day of a time: the number of days since 1970-01-01 UTC.
#[must_use]
pub const fn day_of(time: WallTime) -> i64 {
    time.0.div_euclid(DAY_MS)
}

/// Selects sums of ended jobs.
#[derive(Debug, Clone)]
pub struct SumsFilter {
    /// The days on which the jobs ended, as [`day_of`] counts them.
    pub days: RangeInclusive<i64>,
    /// The jobs' owner; any user if absent.
    pub user: Option<String>,
    /// By what to group the jobs. A day is a decimal number.
    pub by: GroupBy,
    /// Maximum number of groups. Groups with the most core time come first, days in order.
    pub limit: usize,
}

/// The sums of some jobs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sums {
    /// The number of jobs with each ending.
    pub endings: JobEndings,
    /// What the jobs held and used.
    pub consumed: Consumption,
}

/// Selected sums.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GroupedSums {
    /// The sums of each group.
    pub groups: Vec<(String, Sums)>,
    /// The sums of all selected jobs.
    pub total: Sums,
}

/// Selects ended jobs by the time of their end.
#[derive(Debug, Clone)]
pub struct HistoryFilter {
    /// The jobs' owner; any user if absent.
    pub user: Option<String>,
    /// The final states; any state if empty.
    pub states: Vec<JobState>,
    /// A text that the jobs' names contain, in lower case; any name if empty.
    pub name: String,
    /// The jobs ended at this time or later.
    pub from: WallTime,
    /// The jobs ended before this position: by end time, then by id.
    pub before: (WallTime, JobId),
    /// Maximum number of jobs.
    pub limit: usize,
    /// A page ends when its jobs reach this size.
    pub most_bytes: usize,
}

/// Ended jobs, the latest end first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct History {
    /// The encoded jobs.
    pub jobs: Vec<Bytes>,
    /// The last position that was read, if there may be more jobs.
    pub next: Option<(WallTime, JobId)>,
}

/// Collects a page of [`History`].
#[derive(Debug, Default)]
pub(crate) struct Collector {
    pub(crate) page: History,
    examined: usize,
    bytes: usize,
}

impl Sums {
    /// The sums of one job.
    pub(crate) fn of(state: JobState, used: &EndedUse) -> Self {
        let counts = JobEndings::STATES.map(|ending| u64::from(ending == state));
        Self { endings: JobEndings::new(counts), consumed: used.sums }
    }

    /// Adds the sums of other jobs.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let (mut counts, others) = (self.endings.counts(), other.endings.counts());
        counts.iter_mut().zip(others).for_each(|(count, other)| *count = count.saturating_add(other));
        Self { endings: JobEndings::new(counts), consumed: self.consumed.plus(other.consumed) }
    }

    /// Subtracts the sums of jobs that were added before.
    #[must_use]
    pub(crate) fn minus(self, other: Self) -> Self {
        let (mut counts, others) = (self.endings.counts(), other.endings.counts());
        counts.iter_mut().zip(others).for_each(|(count, other)| *count = count.saturating_sub(other));
        Self { endings: JobEndings::new(counts), consumed: self.consumed.minus(other.consumed) }
    }

    /// The number of jobs.
    #[must_use]
    pub fn jobs(&self) -> u64 {
        self.endings.counts().iter().sum()
    }
}

impl HistoryFilter {
    fn wants(&self, name: &str, state: JobState) -> bool {
        (self.states.is_empty() || self.states.contains(&state))
            && (self.name.is_empty() || name.to_lowercase().contains(&self.name))
    }
}

impl Collector {
    /// Examines the next job, and adds it if the filter selects it. Returns whether the page goes on.
    pub(crate) fn add<E>(
        &mut self,
        wanted: &HistoryFilter,
        at: (WallTime, JobId),
        (name, state): (&str, JobState),
        bytes: impl FnOnce() -> Result<Bytes, E>,
    ) -> Result<bool, E> {
        if self.page.jobs.len() == wanted.limit || self.examined == MOST_EXAMINED || self.bytes >= wanted.most_bytes {
            return Ok(false);
        }
        self.examined += 1;
        self.page.next = Some(at);
        if wanted.wants(name, state) {
            let bytes = bytes()?;
            self.bytes += bytes.len();
            self.page.jobs.push(bytes);
        }
        Ok(true)
    }

    /// The page, after the last job was examined.
    pub(crate) fn at_end(mut self) -> History {
        self.page.next = None;
        self.page
    }
}
