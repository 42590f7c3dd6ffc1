//! Ended jobs. The head's store keeps them; the state does not.
//!
//! The event that ends a job's last task removes the job from the state as [`Record::JobEnded`]. The store keeps that record in the same
//! transaction as the event. For a command about an ended job, the head's shell [looks the job up](Ended::look_up) and passes it to
//! [`crate::head::decide`]. An event that changes an ended job contains the job. So the log alone rebuilds the state, and the state's size
//! depends only on live jobs.
//!
//! Until its transaction is durable, an ended job is neither in the state nor readable from the store. [`PendingMoves`] holds it meanwhile.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use hostler_model::{JobId, JobSpec, JobState, Timestamp, WallTime};
use hostler_proto::api::JobAction;

use super::dependency::PastJob;
use super::job::{DeletedJob, Job};
use crate::head::command::{Command, Refusal};
use crate::head::event::Record;
use crate::head::ids::SubmissionKey;
use crate::head::limits::MAX_DEPENDENCIES;
use crate::head::state::State;

/// The ended jobs that a command refers to, read from the store before the command is decided.
#[derive(Debug, Clone, Default)]
pub struct Ended {
    of_key: Option<JobId>,
    jobs: BTreeMap<JobId, Arc<Job>>,
}

/// Read access to the store's ended jobs.
pub trait EndedJobs {
    /// The error when the store cannot be read.
    type Error;

    /// Returns an ended job by id; `None` if the store does not have it.
    ///
    /// # Errors
    /// When the store cannot be read.
    fn job(&self, id: JobId) -> Result<Option<Arc<Job>>, Self::Error>;

    /// Returns the id of the ended job that was submitted with this key.
    ///
    /// # Errors
    /// When the store cannot be read.
    fn job_of_key(&self, key: SubmissionKey) -> Result<Option<JobId>, Self::Error>;

    /// Returns the jobs that ended first, at most `limit`, with the times of their ends, oldest first: with `awaiting`, those
    /// whose files [wait for their user](Job::awaits_fetch), else all others.
    ///
    /// # Errors
    /// When the store cannot be read.
    fn first_ended(&self, awaiting: bool, limit: usize) -> Result<Vec<(JobId, Timestamp)>, Self::Error>;
}

impl Ended {
    /// Looks up the ended jobs that `command` refers to.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn look_up<S: EndedJobs>(
        state: &State,
        moves: &PendingMoves,
        store: &S,
        command: &Command,
    ) -> Result<Self, S::Error> {
        let mut ended = Self::default();
        match command {
            Command::Submit { key, spec, .. } => {
                if state.job_of_key(*key).is_none() {
                    ended.of_key = moves.find_key(store, *key)?;
                }
                // A retry of an accepted submission needs no dependencies.
                if ended.of_key.is_none() {
                    // A submission with more dependencies is refused anyway.
                    for dependency in spec.after.iter().take(MAX_DEPENDENCIES) {
                        ended.add(state, moves, store, dependency.job)?;
                    }
                }
            }
            Command::Act {
                job,
                action:
                    action @ (JobAction::Requeue
                    | JobAction::RequeueAll
                    | JobAction::RequeueHeld { .. }
                    | JobAction::RequeueDependent),
                ..
            }
            | Command::RequeueWithFiles { job, action, .. } => {
                ended.add(state, moves, store, *job)?;
                let is_needed = |job: &Arc<Job>| *action == JobAction::RequeueDependent || job.spec.has_alternatives();
                if let Some(dependent) = ended.job(*job).cloned().filter(is_needed) {
                    for dependency in &*dependent.spec.after {
                        ended.add(state, moves, store, dependency.job)?;
                    }
                }
            }
            Command::Change { job, change, .. } => {
                ended.add(state, moves, store, *job)?;
                for dependency in change.after.iter().flatten().take(MAX_DEPENDENCIES) {
                    ended.add(state, moves, store, dependency.job)?;
                }
            }
            Command::Act { job, .. }
            | Command::CancelTasks { job, .. }
            | Command::Fetched { job, .. }
            | Command::DropResults { job, .. } => {
                ended.add(state, moves, store, *job)?;
            }
            Command::ForgetUnfetched { jobs, .. } => {
                for job in jobs {
                    ended.add(state, moves, store, *job)?;
                }
            }
            _ => {}
        }
        Ok(ended)
    }

    fn add<S: EndedJobs>(&mut self, state: &State, moves: &PendingMoves, store: &S, id: JobId) -> Result<(), S::Error> {
        if state.job(id).is_none()
            && !self.jobs.contains_key(&id)
            && let Some(job) = moves.find(store, id)?
        {
            self.jobs.insert(id, job);
        }
        Ok(())
    }

    /// Returns the ended job that was submitted with the command's key.
    #[must_use]
    pub fn of_key(&self) -> Option<JobId> {
        self.of_key
    }

    /// Returns an ended job by id, if the command refers to it.
    pub(in crate::head) fn job(&self, id: JobId) -> Option<&Arc<Job>> {
        self.jobs.get(&id)
    }

    /// Returns what a job of this specification must know of ended jobs that it depends on, besides their states.
    pub(in crate::head) fn past(&self, spec: &JobSpec) -> Vec<(JobId, PastJob)> {
        let needed: BTreeSet<JobId> = spec.after.iter().filter(|it| PastJob::is_needed(it)).map(|it| it.job).collect();
        needed.into_iter().filter_map(|id| Some((id, PastJob::of(self.job(id)?, spec)))).collect()
    }

    /// Returns the states of the ended jobs that the command refers to.
    pub(in crate::head) fn states(&self) -> Vec<(JobId, JobState)> {
        self.jobs.values().map(|job| (job.id, job.state())).collect()
    }
}

/// Jobs that have left the state or returned to it, and whose change in the store is not durable yet.
///
/// The shell [notes](Self::note) every record with the number of its write round, under the lock of the state. It
/// [settles](Self::settle) rounds as they become durable. A lookup asks the state first, then these moves, then the
/// store.
#[derive(Debug, Clone, Default)]
pub struct PendingMoves {
    jobs: BTreeMap<JobId, Move>,
    keys: BTreeMap<SubmissionKey, JobId>,
    rounds: VecDeque<(u64, JobId)>,
    reopened: u64,
    forgotten: u64,
}

#[derive(Debug, Clone)]
struct Move {
    round: u64,
    /// The ended job; `None` when the job leaves the store because it runs again or was forgotten.
    job: Option<Arc<Job>>,
}

impl PendingMoves {
    /// Adds a record that is written to the store in this round. Round numbers increase.
    pub fn note(&mut self, record: &Record, round: u64) {
        match record {
            Record::JobReopened(_) => self.reopened += 1,
            Record::Forgotten(_) => self.forgotten += 1,
            Record::Ended(_)
            | Record::Reopened(_)
            | Record::SetAside(_)
            | Record::EarlierEnded(_)
            | Record::EarlierFetched(..)
            | Record::JobEnded(_)
            | Record::Environment { .. }
            | Record::Message { .. } => {}
        }
        let (id, job) = match record {
            Record::JobEnded(job) => (job.id, Some(Arc::clone(job))),
            Record::JobReopened(id) | Record::Forgotten(id) => (*id, None),
            Record::Ended(_)
            | Record::Reopened(_)
            | Record::SetAside(_)
            | Record::EarlierEnded(_)
            | Record::EarlierFetched(..)
            | Record::Environment { .. }
            | Record::Message { .. } => return,
        };
        if let Some(job) = &job {
            self.keys.insert(job.key, id);
        }
        self.put(id, Some(Move { round, job }));
        self.rounds.push_back((round, id));
    }

    /// Drops the records of all rounds up to this one, which are durable now.
    pub fn settle(&mut self, round: u64) {
        while let Some((noted, id)) = self.rounds.pop_front_if(|(noted, _)| *noted <= round) {
            // A later round may have moved the job again.
            if self.jobs.get(&id).is_some_and(|last| last.round == noted) {
                self.put(id, None);
            }
        }
    }

    /// Drops all records, because the state was loaded again.
    pub fn clear(&mut self) {
        *self = Self { reopened: self.reopened, forgotten: self.forgotten, ..Self::default() };
    }

    /// Returns the number of ended jobs that were requeued.
    #[must_use]
    pub fn reopened(&self) -> u64 {
        self.reopened
    }

    /// Returns the number of jobs that were forgotten because their retention was over.
    #[must_use]
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }

    fn put(&mut self, id: JobId, new: Option<Move>) {
        let key = |it: &Move| it.job.as_ref().map(|job| job.key);
        let new_key = new.as_ref().and_then(key);
        let old = match new {
            Some(new) => self.jobs.insert(id, new),
            None => self.jobs.remove(&id),
        };
        if let Some(old_key) = old.as_ref().and_then(key).filter(|old| Some(*old) != new_key) {
            self.keys.remove(&old_key);
        }
    }

    /// Returns the jobs that have left the state and may not be in the store yet, by ascending id.
    pub fn jobs(&self) -> impl DoubleEndedIterator<Item = &Arc<Job>> {
        self.jobs.values().filter_map(|it| it.job.as_ref())
    }

    /// Returns the ids of jobs whose latest record may not be in the store yet, ascending.
    pub fn ids(&self) -> impl Iterator<Item = JobId> {
        self.jobs.keys().copied()
    }

    /// Looks up a job that is not in the state. `None`: ask the store. `Some(None)`: the job does not exist, even if
    /// the store still has it.
    #[must_use]
    pub fn job(&self, id: JobId) -> Option<Option<&Arc<Job>>> {
        self.jobs.get(&id).map(|it| it.job.as_ref())
    }

    /// Looks up a job by its submission key, among jobs that have left the state and may not be in the store yet.
    #[must_use]
    pub fn job_of_key(&self, key: SubmissionKey) -> Option<JobId> {
        self.keys.get(&key).copied()
    }

    fn find<S: EndedJobs>(&self, store: &S, id: JobId) -> Result<Option<Arc<Job>>, S::Error> {
        match self.job(id) {
            Some(job) => Ok(job.cloned()),
            None => store.job(id),
        }
    }

    fn find_key<S: EndedJobs>(&self, store: &S, key: SubmissionKey) -> Result<Option<JobId>, S::Error> {
        if let Some(id) = self.job_of_key(key) {
            return Ok(Some(id));
        }
        // The store's copy of a moving job is out of date.
        Ok(store.job_of_key(key)?.filter(|id| self.job(*id).is_none()))
    }
}

/// Most [`DeletedJob`]s that the state remembers.
const MOST_DELETED: usize = 10_000;

impl State {
    /// Returns the end of the retention of a job that ended at this time.
    #[must_use]
    pub fn kept_until(&self, ended: Timestamp) -> Timestamp {
        ended.plus_ms(self.settings.retention_ms)
    }

    /// Returns when a job that ended at this time is deleted although its files were not fetched. `None`: only when the disk
    /// needs their space.
    #[must_use]
    pub fn unfetched_until(&self, ended: Timestamp) -> Option<Timestamp> {
        let kept_ms = self.settings.unfetched_retention_ms?;
        Some(ended.plus_ms(kept_ms.max(self.settings.retention_ms)))
    }

    /// Returns when an ended job is deleted. `None` if that depends on its user or on the disk.
    #[must_use]
    pub fn job_kept_until(&self, job: &Job) -> Option<Timestamp> {
        let ended = job.ended?;
        if job.awaits_fetch() { self.unfetched_until(ended) } else { Some(self.kept_until(ended)) }
    }

    /// Remembers a job that was deleted before anybody had fetched its files, for the length of another retention.
    pub(in crate::head) fn remember_deleted(&mut self, job: JobId, user: String, at: WallTime) {
        let retention_ms = self.settings.retention_ms;
        self.deleted.retain(|_, deleted| at.ms_since(deleted.at) <= retention_ms);
        self.deleted.insert(job, DeletedJob { user, at });
        while self.deleted.len() > MOST_DELETED {
            self.deleted.pop_first();
        }
    }

    /// Returns the refusal for a job that does not exist.
    #[must_use]
    pub fn missing_job(&self, id: JobId) -> Refusal {
        match self.deleted.get(&id) {
            Some(deleted) => Refusal::Deleted { job: id, at: deleted.at },
            None => Refusal::NoSuchJob(id),
        }
    }
}

/// Looks up a job, live or ended.
pub(in crate::head) fn any_job<'a>(state: &'a State, ended: &'a Ended, id: JobId) -> Result<&'a Job, Refusal> {
    state.job(id).or_else(|| ended.job(id)).map(Arc::as_ref).ok_or_else(|| state.missing_job(id))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use hostler_model::{JobSpec, Request, Work};

    use super::*;

    struct Stored(Vec<Arc<Job>>);

    impl EndedJobs for Stored {
        type Error = Infallible;

        fn job(&self, id: JobId) -> Result<Option<Arc<Job>>, Infallible> {
            Ok(self.0.iter().find(|job| job.id == id).cloned())
        }

        fn job_of_key(&self, key: SubmissionKey) -> Result<Option<JobId>, Infallible> {
            Ok(self.0.iter().find(|job| job.key == key).map(|job| job.id))
        }

        fn first_ended(&self, _: bool, _: usize) -> Result<Vec<(JobId, Timestamp)>, Infallible> {
            Ok(Vec::new())
        }
    }

    fn job(id: u64) -> Arc<Job> {
        let spec = JobSpec::new("test", Work::command(["true"], "/"), Request::new(1, 1));
        let key = SubmissionKey(u128::from(id));
        Arc::new(Job::new(JobId(id), key, ("ada", None), &Arc::new(spec), Default::default()))
    }

    #[test]
    fn moves_take_precedence_over_the_store() {
        let store = Stored(vec![job(1), job(2)]);
        let mut moves = PendingMoves::default();
        moves.note(&Record::JobEnded(job(3)), 1);
        moves.note(&Record::Forgotten(JobId(2)), 1);
        let found = |moves: &PendingMoves| {
            [1, 2, 3].map(|id| {
                let by_id = moves.find(&store, JobId(id)).expect("infallible").is_some();
                let by_key = moves.find_key(&store, SubmissionKey(u128::from(id))).expect("infallible").is_some();
                assert_eq!(by_id, by_key);
                by_id
            })
        };
        assert_eq!(found(&moves), [true, false, true]);
        moves.settle(1);
        assert_eq!(moves.ids().count(), 0);
        assert_eq!(found(&moves), [true, true, false], "once everything is durable, the store decides");
    }

    #[test]
    fn settling_a_round_keeps_jobs_that_a_later_round_moved() {
        let mut moves = PendingMoves::default();
        moves.note(&Record::JobEnded(job(1)), 1);
        moves.note(&Record::JobReopened(JobId(1)), 2);
        moves.settle(1);
        assert_eq!(moves.job(JobId(1)), Some(None));
        moves.note(&Record::JobEnded(job(1)), 3);
        moves.settle(2);
        assert_eq!(moves.job_of_key(SubmissionKey(1)), Some(JobId(1)));
        moves.settle(3);
        assert_eq!((moves.job(JobId(1)), moves.job_of_key(SubmissionKey(1))), (None, None));
        assert!(moves.rounds.is_empty() && moves.keys.is_empty());
    }
}
