//! Comparisons of the accounts with the head's state and storage.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hostler_core::head::{Job, Part, State, SubmissionKey, explain};
use hostler_model::{Digest, IndexSet, JobId, TaskId};
use hostler_sched::Holding;

use super::account::{PartAccount, Standing};
use super::{Books, any_result};
use crate::cluster::disk::Disk;

/// The difference between a loaded state and the state from the log.
fn difference(loaded: &State, fold: &State) -> String {
    let other_job = loaded.jobs().zip(fold.jobs()).find(|(a, b)| hostler_proto::encode(a) != hostler_proto::encode(b));
    if let Some((loaded, fold)) = other_job {
        return format!("{loaded:?} instead of {fold:?}");
    }
    let other_node =
        loaded.nodes().zip(fold.nodes()).find(|(a, b)| hostler_proto::encode(a) != hostler_proto::encode(b));
    match other_node {
        Some((loaded, fold)) => format!("{loaded:?} instead of {fold:?}"),
        None => format!("{} jobs instead of {}", loaded.job_count(), fold.job_count()),
    }
}

/// Comparisons with the head's state.
impl Books {
    /// Checks the state that a head has loaded.
    pub(in crate::cluster) fn check_loaded(&mut self, state: &State, disk: &Disk) {
        let (events, last_sequence) = (self.events, disk.store.last_sequence());
        self.expect(last_sequence == events, || format!("the disk has {last_sequence} instead of {events} events"));
        let (mut loaded, mut fold) = (state.clone(), self.fold.clone());
        // A snapshot may have a later time than its last event.
        let latest = loaded.last_event_at.max(fold.last_event_at);
        (loaded.last_event_at, fold.last_event_at) = (latest, latest);
        let is_same = hostler_proto::encode(&loaded) == hostler_proto::encode(&fold);
        self.expect(is_same, || format!("the loaded state differs from the log: {}", difference(&loaded, &fold)));
        // In which order users have had their last turn is not stored.
        let queued = |state: &State| state.queue().map(|job| job.id).collect::<BTreeSet<_>>();
        self.expect(queued(&loaded) == queued(&fold), || "the loaded queue differs from the log".to_owned());
        self.check_settled(state, disk);
    }

    /// Checks that all accounts agree with the state and the stored data, while no write is in progress.
    pub(in crate::cluster) fn check_settled(&mut self, state: &State, disk: &Disk) {
        let acknowledged: Vec<(SubmissionKey, JobId)> =
            self.acknowledged.iter().map(|(key, job)| (*key, *job)).collect();
        let ended_jobs = disk.jobs();
        for (key, job) in acknowledged {
            let is_forgotten = self.jobs.get(&job).is_some_and(|account| account.is_forgotten);
            let ended = ended_jobs.get(&job);
            let is_live = state.job(job).is_some() && state.job_of_key(key) == Some(job);
            // An older release keeps ended jobs in the state as well.
            let is_there = is_live != ended.is_some_and(|ended| ended.key == key);
            self.expect(is_forgotten || is_there, || format!("invariant I1: job {job} was acknowledged and is gone"));
        }
        let mut differences = Vec::new();
        for (id, account) in self.jobs.iter().filter(|(_, account)| !account.is_forgotten) {
            let Some(job) = state.job(*id).or_else(|| ended_jobs.get(id)) else {
                differences.push(format!("job {id} is gone"));
                continue;
            };
            for (index, task) in &account.tasks {
                let agrees = match &task.at {
                    Standing::Waiting => job.pending.contains(*index),
                    Standing::Placed { run, parts, .. } => job.active.get(index).is_some_and(|active| {
                        let is_same = |(held, part): (&Part, &PartAccount)| {
                            (&held.node, &held.resources, held.over.is_some())
                                == (&part.node, &part.resources, part.is_over)
                        };
                        active.run == *run
                            && active.parts.len() == parts.len()
                            && active.parts.iter().zip(parts).all(is_same)
                    }),
                    Standing::Ended { state, result } => {
                        job.ending_of(*index).is_some_and(|ending| ending.state == *state)
                            && job.results.contains(*index) == (result.is_some() && !task.is_dropped)
                    }
                };
                if !agrees {
                    differences.push(format!("task {id}_{index} should be {:?}, but the job is {job:?}", task.at));
                }
            }
        }
        for node in state.nodes() {
            let mut free = node.facts.resources.clone();
            free.remove(&self.held_on(&node.name));
            if free != node.free_resources() {
                differences.push(format!("{} should have {free:?} free, not {:?}", node.name, node.free_resources()));
            }
        }
        if let Some(first) = differences.into_iter().next() {
            self.record_violation(format!("the accounts disagree: {first}"));
        }
        self.check_environments(state, &ended_jobs, &disk.store.environments());
        self.check_live(state);
        self.check_rows(disk);
        self.check_kept_results(disk);
    }

    /// Checks that exactly the jobs that run or may run have their environment.
    fn check_environments(&mut self, state: &State, ended: &BTreeMap<JobId, Arc<Job>>, kept: &BTreeMap<JobId, Digest>) {
        let needed = state.jobs().chain(ended.values()).filter_map(|job| Some((job.id, job.environment?)));
        let needed: BTreeMap<JobId, Digest> = needed.collect();
        self.expect(needed == *kept, || format!("the store has the environments of {kept:?}, but {needed:?} need one"));
    }

    /// Checks that every row of the history matches an ended task.
    fn check_rows(&mut self, disk: &Disk) {
        for row in disk.store.rows() {
            let task = TaskId { job: row.job, index: row.index };
            let account = self.jobs.get(&task.job).filter(|account| !account.is_forgotten);
            let standing = account.and_then(|account| account.tasks.get(&task.index)).map(|task| &task.at);
            let agrees = match standing {
                Some(Standing::Ended { state, result }) => (*state, *result) == (row.ending.state, any_result(&row)),
                Some(Standing::Waiting | Standing::Placed { .. }) | None => false,
            };
            if !agrees {
                return self.record_violation(format!("the history has {row:?}, but the task is {standing:?}"));
            }
        }
    }

    /// Checks the invariants that hold at any time.
    pub(in crate::cluster) fn check_live(&mut self, state: &State) {
        let waiting: u64 = state.jobs().map(|job| job.pending.len()).sum();
        let placed: u64 = state.jobs().map(|job| job.active.len() as u64).sum();
        let counts = state.live_counts();
        let counted = (counts.pending, counts.starting + counts.running + counts.completing);
        self.expect(counted == (waiting, placed), || {
            format!("{waiting} tasks wait and {placed} are placed: {counts:?}")
        });
        let partitions: BTreeSet<_> = state.queue().map(|job| job.spec.partition.as_ref()).collect();
        let mut places = partitions.into_iter().flat_map(|partition| {
            (0..).zip(state.queue_in(partition)).map(|(ahead, job)| ahead == state.ahead_of(job).all())
        });
        let is_counted = places.all(|is_right| is_right);
        self.expect(is_counted, || "the number of jobs ahead of a job in the queue is wrong".to_owned());
        let waiting: BTreeSet<_> = state.jobs().filter(|job| job.startable() > 0).map(|job| job.id).collect();
        let queued: Vec<_> = state.queue().map(|job| job.id).collect();
        let is_whole = queued.len() == waiting.len() && queued.iter().all(|job| waiting.contains(job));
        self.expect(is_whole, || format!("the queue has {queued:?}, but {waiting:?} wait"));
        let tier = |job: &Arc<Job>| {
            job.spec.partition.as_ref().and_then(|name| state.partitions.get(name)).map_or(0, |it| it.priority)
        };
        let is_sorted = state.queue().is_sorted_by_key(|job| (Reverse(tier(job)), Reverse(job.spec.priority)));
        self.expect(is_sorted, || format!("the queue is out of order: {queued:?}"));
        for job in state.jobs() {
            let ended: u64 = job.endings.values().map(IndexSet::len).sum();
            let adds_up = job.pending.len() + job.active.len() as u64 + ended == job.len();
            self.expect(adds_up, || format!("invariant I10: the tasks of job {} do not add up: {job:?}", job.id));
            let has_reason = job.pending.is_empty() || explain(state, job).is_some();
            self.expect(has_reason, || format!("invariant I10: job {} waits without a reason", job.id));
        }
        let mut held: BTreeMap<&str, Holding> = BTreeMap::new();
        for (job, active, node) in state.placed() {
            held.entry(&job.user).or_default().add(&node.runs[&active.run].counts(), 1);
        }
        let users = held.keys().copied().chain(state.jobs().map(|job| job.user.as_str())).collect::<BTreeSet<_>>();
        let is_known = |user: &&str| state.held_by(user) == held.get(user).copied().unwrap_or_default();
        let wrong = users.into_iter().find(|user| !is_known(user));
        self.expect(wrong.is_none(), || format!("the share of {wrong:?} is wrong"));
        for node in state.nodes() {
            let mut free = node.facts.resources.clone();
            for (run, held) in &node.runs {
                let is_free = free.includes(held);
                free.remove(held);
                self.expect(is_free, || format!("invariant I4: {run} shares CPUs, memory or GPUs of {}", node.name));
                self.expect(state.active(*run).is_some(), || {
                    format!("{run} holds resources of {}, but does not exist", node.name)
                });
            }
        }
    }

    /// Checks that the disk has the results of every task that is kept.
    fn check_kept_results(&mut self, disk: &Disk) {
        let kept = self.jobs.iter().filter(|(_, account)| !account.is_forgotten);
        let tasks = kept.flat_map(|(id, account)| account.tasks.iter().map(move |(index, task)| (*id, *index, task)));
        let tasks = tasks.filter(|(_, _, task)| !task.is_dropped);
        let lost = tasks.filter_map(|(id, index, task)| match &task.at {
            Standing::Ended { result: Some(result), .. } if !disk.holds_result(result) => Some(format!("{id}_{index}")),
            Standing::Ended { .. } | Standing::Placed { .. } | Standing::Waiting => None,
        });
        if let Some(task) = lost.into_iter().next() {
            self.record_violation(format!("invariant I5: the result of task {task} is gone"));
        }
    }
}
