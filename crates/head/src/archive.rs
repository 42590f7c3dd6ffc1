//! Finds ended jobs, which are in the store or still being moved to the store.
//!
//! The state contains the other jobs. All queries about jobs go through [`crate::job_reads`].

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hostler_core::head::{EndedJobs, Job, PendingMoves, SubmissionKey, read_ended_job};
use hostler_model::{JobId, JobState, NodeName, PartitionName, Timestamp, WallTime, Work};
use hostler_proto::DecodeError;
use hostler_store::{JobFilter, Reader, StoreError};

/// A page ends early when the specifications or command lines of its jobs exceed this size. A single job may have a
/// megabyte.
pub(crate) const LONGEST_PAGE_BYTES: usize = 4 << 20;

/// Ended jobs per read. A single job may have a megabyte of arguments.
pub(crate) const READ_AT_ONCE: usize = 32;

/// Maximum number of ended jobs that a request examines, if the store cannot select the wanted ones.
const MAX_EXAMINED: usize = 4_096;

/// Number of bytes at the start of a command line that a search for a text examines. Arguments may have a megabyte, and
/// there may be many such jobs.
const SEARCHED_BYTES: usize = 16 << 10;

/// Finds ended jobs.
pub(crate) struct Archive {
    history: Reader,
    moves: Mutex<PendingMoves>,
}

/// Why an ended job cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ArchiveError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("an ended job cannot be read; a newer release may have written it")]
    Damaged(#[from] DecodeError),
    #[error("reading ended jobs failed: {0}")]
    Thread(#[from] tokio::task::JoinError),
}

impl Archive {
    pub(crate) fn new(history: Reader) -> Self {
        Self { history, moves: Mutex::default() }
    }

    /// Locks and returns the jobs that are being moved between the state and the store. Lock order: the state first,
    /// then this lock.
    pub(crate) fn moves(&self) -> MutexGuard<'_, PendingMoves> {
        self.moves.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the lock behind [`Self::moves`], for the engine's loop.
    pub(crate) fn moves_lock(&self) -> &Mutex<PendingMoves> {
        &self.moves
    }

    /// Returns the number of jobs that were deleted since the start because their retention time was over.
    pub(crate) fn forgotten(&self) -> u64 {
        self.moves().forgotten()
    }

    pub(crate) fn history(&self) -> &Reader {
        &self.history
    }
}

/// Finds only ended jobs that are durable.
impl EndedJobs for Archive {
    type Error = ArchiveError;

    fn job(&self, id: JobId) -> Result<Option<Arc<Job>>, ArchiveError> {
        self.history.ended_job(id)?.map(|bytes| read(&bytes)).transpose()
    }

    fn job_of_key(&self, key: SubmissionKey) -> Result<Option<JobId>, ArchiveError> {
        Ok(self.history.job_of_key(key.0)?)
    }

    fn first_ended(&self, awaiting: bool, limit: usize) -> Result<Vec<(JobId, Timestamp)>, ArchiveError> {
        Ok(self.history.first_ended(awaiting, limit)?)
    }
}

/// Decodes a stored job.
pub(crate) fn read(bytes: &[u8]) -> Result<Arc<Job>, ArchiveError> {
    Ok(read_ended_job(bytes)?)
}

/// Filter of a job list.
#[derive(Debug, Clone, Default)]
pub(crate) struct Wanted {
    /// Jobs of this user only; of all users when absent.
    pub(crate) user: Option<String>,
    /// Jobs with this name only.
    pub(crate) name: Option<String>,
    /// Jobs in these states only; in all states when empty.
    pub(crate) states: Vec<JobState>,
    /// With `states`: also jobs with a task in one of these states.
    pub(crate) any_task: bool,
    /// Jobs of this partition only.
    pub(crate) partition: Option<PartitionName>,
    /// Jobs with a task on this node only.
    pub(crate) node: Option<NodeName>,
    /// Jobs that contain this text only.
    pub(crate) text: Option<Text>,
    /// Jobs that ended at this time or later only.
    pub(crate) ended_since: Option<WallTime>,
}

/// A text to search for in jobs.
#[derive(Clone)]
pub(crate) struct Text {
    /// The text in lower case.
    lower: String,
    /// Whether the text may be part of an id.
    is_number: bool,
    /// Whether the caller may see the command line of a job.
    may_see: Arc<dyn Fn(&Job) -> bool + Send + Sync>,
}

impl std::fmt::Debug for Text {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Text").field("lower", &self.lower).finish_non_exhaustive()
    }
}

impl Text {
    pub(crate) fn new(text: &str, may_see: impl Fn(&Job) -> bool + Send + Sync + 'static) -> Self {
        let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
        Self { lower: text.to_lowercase(), is_number, may_see: Arc::new(may_see) }
    }

    /// Whether the job's name or id contains the text, or the start of its command line if the caller may see that.
    pub(crate) fn is_in(&self, job: &Job) -> bool {
        contains(&job.spec.name, &self.lower)
            || (self.is_number && job.id.to_string().contains(&self.lower))
            || ((self.may_see)(job) && self.is_in_command(&job.spec.work))
    }

    fn is_in_command(&self, work: &Work) -> bool {
        match work {
            Work::Project { entrypoint, args, .. } => self.is_in_words(std::iter::once(entrypoint).chain(args)),
            Work::Command { argv, .. } => self.is_in_words(argv),
        }
    }

    /// Whether a word contains the text. Examines [`SEARCHED_BYTES`].
    fn is_in_words<'a>(&self, words: impl IntoIterator<Item = &'a String>) -> bool {
        let mut left = SEARCHED_BYTES;
        for word in words {
            if contains(&word[..word.floor_char_boundary(left)], &self.lower) {
                return true;
            }
            // The space after a word counts too, so that empty words also end the search.
            left = left.saturating_sub(word.len() + 1);
            if left == 0 {
                break;
            }
        }
        false
    }
}

/// Whether the text contains a text in lower case. The time is proportional to the sum of both lengths, also for texts
/// such as `aaaa` and `aab`.
fn contains(text: &str, lower: &str) -> bool {
    text.to_lowercase().contains(lower)
}

pub(crate) struct Page {
    pub(crate) jobs: Vec<Arc<Job>>,
    /// Number of all matching jobs.
    pub(crate) total: u64,
    /// The last job that was examined, if the page is shorter than its limit although there may be more jobs: because
    /// its jobs are large, or because few of the examined jobs match.
    pub(crate) examined_to: Option<JobId>,
}

impl Wanted {
    pub(crate) fn wants(&self, job: &Job) -> bool {
        self.may_want(job) && self.text.as_ref().is_none_or(|text| text.is_in(job))
    }

    /// Whether the job matches the filter without its text. Takes little time, unlike the search for a text.
    pub(crate) fn may_want(&self, job: &Job) -> bool {
        self.user.as_ref().is_none_or(|user| *user == job.user)
            && self.name.as_ref().is_none_or(|name| **name == *job.spec.name)
            && (self.states.is_empty()
                || self.states.contains(&job.state())
                || self.any_task && job.has_task_in(&self.states))
            && self.partition.as_ref().is_none_or(|partition| job.spec.partition.as_ref() == Some(partition))
            && self.ended_since.is_none_or(|since| job.ended_at().is_some_and(|at| at >= since))
            && self
                .node
                .as_ref()
                .is_none_or(|node| job.active.values().any(|active| active.nodes().any(|it| it == node)))
    }

    /// Whether the store can select and count the jobs, because it knows their users and states.
    pub(crate) fn is_indexed(&self) -> bool {
        let Self { user: _, name, states: _, any_task: _, partition, node, text, ended_since } = self;
        name.is_none() && partition.is_none() && node.is_none() && text.is_none() && ended_since.is_none()
    }

    /// Whether jobs without [progress](Job::has_progress) may match.
    pub(crate) fn wants_waiting(&self) -> bool {
        let wants_state = self.states.is_empty() || self.states.contains(&JobState::Pending);
        wants_state && self.node.is_none() && self.ended_since.is_none()
    }

    /// Whether ended jobs may match.
    pub(crate) fn wants_ended(&self) -> bool {
        self.node.is_none() && (self.states.is_empty() || self.states.iter().any(|state| state.is_ended()))
    }
}

/// Reads a page of ended jobs from the store in small batches.
pub(crate) fn read_ended(
    history: &Reader,
    wanted: &Wanted,
    filter: &JobFilter,
    mut before: Option<JobId>,
    limit: usize,
) -> Result<Page, ArchiveError> {
    let mut page = Page { jobs: Vec::new(), total: 0, examined_to: None };
    let (mut bytes, mut examined, is_indexed) = (0, 0, wanted.is_indexed());
    loop {
        let some = if is_indexed { READ_AT_ONCE.min(limit - page.jobs.len()) } else { READ_AT_ONCE };
        let ended = history.ended_jobs(filter, before, some)?;
        if is_indexed && examined == 0 {
            page.total = ended.total;
        }
        for stored in &ended.jobs {
            let job = read(stored)?;
            before = Some(job.id);
            examined += 1;
            if !is_indexed && !wanted.wants(&job) {
                continue;
            }
            page.jobs.push(job);
            page.total += u64::from(!is_indexed);
            if page.jobs.len() == limit {
                return Ok(page);
            }
            bytes += stored.len();
            if bytes > LONGEST_PAGE_BYTES {
                page.examined_to = before;
                return Ok(page);
            }
        }
        if ended.jobs.len() < some {
            return Ok(page);
        }
        if !is_indexed && examined >= MAX_EXAMINED {
            page.examined_to = before;
            return Ok(page);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn search_ignores_case_and_examines_only_the_start_of_a_command_line() {
        let is_found = |text: &str, words: &[&str]| {
            let words: Vec<String> = words.iter().copied().map(str::to_owned).collect();
            Text::new(text, |_| true).is_in_words(&words)
        };
        assert!(is_found("TRAIN", &["python", "Train.py"]) && is_found("über", &["echo", "ÜBER"]));
        assert!(!is_found("y t", &["python", "train.py"]), "each word is searched alone");
        let after = |count: usize, end: &str| format!("{}{end}", "x".repeat(count));
        assert!(is_found("end", &[after(SEARCHED_BYTES - 3, "end").as_str()]));
        assert!(!is_found("end", &[after(SEARCHED_BYTES - 2, "end").as_str()]));
        assert!(!is_found("end", &[after(SEARCHED_BYTES - 1, "").as_str(), "end"]));
        assert!(!is_found("end", &[vec![""; SEARCHED_BYTES], vec!["end"]].concat()), "empty words count too");
        // The limit is in the middle of the last character.
        assert!(!is_found("ü", &[after(SEARCHED_BYTES - 1, "ü").as_str()]));
    }
}
