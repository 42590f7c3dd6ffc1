//! Dependencies: which conditions of a job on other jobs hold, and which of its tasks may start.
//!
//! A job has a list of dependencies that are not settled (`unmet`), and a list of those whose delay runs ([`PartlyMet`]). While either list
//! has an entry, only the tasks in `freed` may start. With conditions on whole jobs, all tasks become free at once. With `aftercorr`,
//! each task becomes free, or is cancelled, when its counterpart ends: such an event concerns one index, and costs nothing for the
//! other tasks. A settled dependency stays settled when the other job is requeued. Tasks that were requeued, or lost with their node,
//! wait again for the dependencies that are still open for them.
//!
//! Every open dependency names a job in the state, since a dependency on a job that ends is settled for all tasks.

use std::collections::VecDeque;
use std::sync::Arc;

use hostler_model::{Condition, Dependency, IndexSet, JobId, JobSpec, JobState, Timestamp};

use super::dependency::{Delay, PastJob};
use super::job::{Job, Phase};
use crate::head::state::State;
use crate::head::step::{Dependent, Step};

impl PastJob {
    /// Returns the facts about an ended job that a job of specification `dependent` needs.
    pub(in crate::head) fn of(job: &Job, dependent: &JobSpec) -> Self {
        let mut needed = IndexSet::default();
        for dependency in dependent.after.iter().filter(|it| it.job == job.id) {
            needed.add_all(&dependency.task.map(IndexSet::one).unwrap_or_default());
            if let (Condition::AfterCorr, Some(array)) = (dependency.condition, &dependent.array) {
                needed.add_all(&array.indices);
            }
        }
        let ended = job.endings.iter().filter(|_| job.spec.array.is_some());
        let endings = ended.map(|(ending, indices)| (*ending, needed.intersection(indices)));
        Self { began: began_before_end(job), endings: endings.filter(|(_, indices)| !indices.is_empty()).collect() }
    }

    /// Returns whether a dependency needs more than the final state of its job.
    pub(in crate::head) fn is_needed(dependency: &Dependency) -> bool {
        dependency.task.is_some() || dependency.delay_minutes > 0 || dependency.condition == Condition::AfterCorr
    }
}

/// Returns when an ended job began. The tasks of an array began at different times, and no times of single tasks are known here:
/// returns when the array ended.
fn began_before_end(job: &Job) -> Timestamp {
    let ended = job.ended.unwrap_or_default();
    match (job.started_at, job.ended_at) {
        (Some(started), Some(ended_at)) if job.spec.array.is_none() => {
            Timestamp(ended.0.saturating_sub(ended_at.ms_since(started)))
        }
        _ => ended,
    }
}

/// What is known of the job that a dependency names.
#[derive(Clone, Copy)]
pub(in crate::head) enum Other<'a> {
    /// A live job, or an ended job from the store.
    Known(&'a Job),
    /// A job that had ended when the dependent job was submitted.
    Past(JobState, Option<&'a PastJob>),
    /// A job that was forgotten.
    Forgotten,
}

/// The ended jobs that a submission depends on.
#[derive(Clone, Copy, Default)]
pub(in crate::head) struct PastJobs<'a> {
    pub(in crate::head) states: &'a [(JobId, JobState)],
    pub(in crate::head) facts: &'a [(JobId, PastJob)],
}

impl<'a> PastJobs<'a> {
    fn find(self, state: &'a State, id: JobId) -> Other<'a> {
        if let Some(job) = state.job(id) {
            return Other::Known(job);
        }
        let facts = self.facts.iter().find(|(job, _)| *job == id).map(|(_, facts)| facts);
        let ended = self.states.iter().find(|(job, _)| *job == id);
        ended.map_or(Other::Forgotten, |(_, state)| Other::Past(*state, facts))
    }
}

impl Other<'_> {
    /// Returns `None` if the job or task has not ended, and `Some(None)` if its final state is unknown because the job was forgotten.
    fn end(self, task: Option<u32>) -> Option<Option<JobState>> {
        match (self, task) {
            (Self::Known(job), None) => job.is_ended().then(|| Some(job.state())),
            (Self::Known(job), Some(index)) => match job.ending_of(index) {
                Some(ending) => Some(Some(ending.state)),
                None => job.is_ended().then_some(None),
            },
            (Self::Past(state, _), None) => Some(Some(state)),
            (Self::Past(_, facts), Some(index)) => {
                let mut endings = facts.into_iter().flat_map(|facts| &facts.endings);
                Some(endings.find(|(_, indices)| indices.contains(index)).map(|(ending, _)| ending.state))
            }
            (Self::Forgotten, _) => Some(None),
        }
    }

    /// Returns when the job or task began, or was cancelled before it began; `None` if neither has happened. For an array, this is when
    /// its last task began. If a task of an array has ended, its times are not known: returns a later time.
    fn began(self, task: Option<u32>, now: Timestamp) -> Option<Timestamp> {
        const LONG_AGO: Timestamp = Timestamp(0);
        let job = match self {
            Self::Known(job) if job.is_ended() => return Some(began_before_end(job)),
            Self::Known(job) => job,
            Self::Past(_, facts) => return Some(facts.map_or(LONG_AGO, |facts| facts.began)),
            Self::Forgotten => return Some(LONG_AGO),
        };
        match task {
            None => {
                let begun =
                    job.pending.is_empty() && job.active.values().all(|active| active.phase() >= Phase::Running);
                begun.then(|| job.active.values().map(|active| active.since).max().unwrap_or(now))
            }
            Some(index) => match job.active.get(&index) {
                Some(active) if active.phase() >= Phase::Running => Some(active.since),
                Some(_) => None,
                None if job.pending.contains(index) => None,
                None => Some(now),
            },
        }
    }
}

/// How far a condition on a job, or on one of its tasks, is settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::head) enum Standing {
    Satisfied,
    /// The condition holds from this time on.
    Delayed(Timestamp),
    Open,
    Never,
}

/// Checks a dependency against the job that it names. Treats `aftercorr` as a condition on the whole job.
pub(in crate::head) fn standing(dependency: &Dependency, other: Other<'_>, now: Timestamp) -> Standing {
    if dependency.condition == Condition::After {
        let Some(began) = other.began(dependency.task, now) else { return Standing::Open };
        let until = began.plus_ms(dependency.delay_ms());
        let is_over = dependency.delay_minutes == 0 || until <= now;
        return if is_over { Standing::Satisfied } else { Standing::Delayed(until) };
    }
    let Some(end) = other.end(dependency.task) else { return Standing::Open };
    let is_met = match dependency.condition {
        Condition::After | Condition::AfterAny => true,
        Condition::AfterOk | Condition::AfterCorr => end == Some(JobState::Completed),
        Condition::AfterNotOk => end.is_some_and(|state| state != JobState::Completed),
    };
    if is_met { Standing::Satisfied } else { Standing::Never }
}

/// What the dependencies of a job mean for some of its tasks.
struct Tally {
    is_any: bool,
    /// The tasks in question.
    tasks: IndexSet,
    /// Tasks for which a dependency is satisfied.
    satisfied: IndexSet,
    /// Tasks for which a dependency is open.
    open: IndexSet,
    /// Tasks for which a dependency can never be satisfied.
    never: IndexSet,
    /// The last such dependency.
    broken: Option<Dependency>,
}

impl Tally {
    fn new(job: &Job, tasks: IndexSet) -> Self {
        let none = IndexSet::default;
        Self {
            is_any: job.spec.has_alternatives(),
            tasks,
            satisfied: none(),
            open: none(),
            never: none(),
            broken: None,
        }
    }

    fn add(&mut self, job: &Job, dependency: &Dependency, other: Other<'_>, standing: Standing) {
        let mut rest = self.tasks.clone();
        if dependency.condition == Condition::AfterCorr && job.spec.array.is_some() {
            let (indices, endings) = match other {
                Other::Known(job) => (job.spec.array.as_ref().map(|array| &array.indices), Some(&job.endings)),
                Other::Past(_, facts) => (None, facts.map(|facts| &facts.endings)),
                Other::Forgotten => (None, None),
            };
            let is_array = indices.is_some() || !matches!(other, Other::Known(_));
            for (ending, ended) in endings.into_iter().flatten().filter(|_| is_array) {
                let tasks = rest.intersection(ended);
                rest.remove_all(&tasks);
                self.note(dependency, &tasks, ending.state == JobState::Completed);
            }
            let waiting = indices.map(|indices| rest.intersection(indices)).unwrap_or_default();
            rest.remove_all(&waiting);
            self.open.add_all(&waiting);
        }
        match standing {
            Standing::Satisfied => self.note(dependency, &rest, true),
            Standing::Never => self.note(dependency, &rest, false),
            Standing::Open | Standing::Delayed(_) => self.open.add_all(&rest),
        }
    }

    fn note(&mut self, dependency: &Dependency, tasks: &IndexSet, is_satisfied: bool) {
        if is_satisfied {
            self.satisfied.add_all(tasks);
        } else if !tasks.is_empty() {
            self.never.add_all(tasks);
            self.broken = Some(*dependency);
        }
    }

    /// The tasks that may start.
    fn free(&self) -> IndexSet {
        let Self { tasks, satisfied, open, never, .. } = self;
        if self.is_any { satisfied.clone() } else { tasks.difference(open).difference(never) }
    }

    /// The tasks that can never start.
    fn dead(&self) -> IndexSet {
        let Self { tasks, satisfied, open, never, .. } = self;
        if self.is_any { tasks.difference(satisfied).difference(open) } else { never.clone() }
    }

    /// The tasks that still wait, regardless of dependencies that can never be satisfied.
    fn waiting(&self) -> IndexSet {
        if self.is_any { self.open.difference(&self.satisfied) } else { self.open.clone() }
    }
}

impl Step<'_> {
    /// Checks every job that depends on this job, after some tasks of this job started or ended. A check may cancel a job, and so
    /// concern the dependents of that job. They are queued: a call for each job of a long chain would overflow the stack.
    pub(in crate::head) fn settle_dependents(&mut self, id: JobId, tasks: &IndexSet) {
        let Some(dependents) = self.state.dependents.get(&id).filter(|dependents| !dependents.is_empty()) else {
            return;
        };
        let dependents = dependents.iter().map(|job| Dependent { job: *job, tasks: tasks.clone() });
        if let Some(queue) = &mut self.dependents {
            return queue.extend(dependents);
        }
        self.dependents = Some(dependents.collect());
        while let Some(next) = self.dependents.as_mut().and_then(VecDeque::pop_front) {
            self.settle(next.job, Some(&next.tasks), PastJobs::default());
        }
        self.dependents = None;
    }

    /// Drops settled dependencies of a job. Frees the tasks whose dependencies are satisfied, and cancels the tasks whose dependencies
    /// can never be satisfied. `past` has the dependencies that have left the state.
    pub(in crate::head) fn settle_dependencies(&mut self, id: JobId, past: PastJobs<'_>) {
        self.settle(id, None, past);
    }

    /// With `counterparts`, `aftercorr` is checked only for tasks with these indices, unless the other job has ended.
    fn settle(&mut self, id: JobId, counterparts: Option<&IndexSet>, past: PastJobs<'_>) {
        let job = Arc::clone(self.job(id));
        if !job.waits_for_others() {
            return;
        }
        let now = self.now.at;
        let stands = |it: &Dependency| standing(it, past.find(self.state, it.job), now);
        let standings: Vec<(Dependency, Standing)> = job.unmet.iter().map(|it| (*it, stands(it))).collect();
        let is_over = |delay: &&Delay| delay.until <= now;
        let is_unchanged =
            standings.iter().all(|(_, it)| *it == Standing::Open) && !job.delays().iter().any(|it| is_over(&it));
        let tasks = match counterparts {
            Some(indices) if is_unchanged => indices.intersection(&job.pending).difference(job.freed()),
            _ => job.pending.difference(job.freed()),
        };
        let has_counterparts = job.unmet.iter().any(|it| it.condition == Condition::AfterCorr);
        if is_unchanged && (tasks.is_empty() || counterparts.is_some() && !has_counterparts) {
            return;
        }
        let mut tally = Tally::new(&job, tasks);
        for (dependency, standing) in &standings {
            tally.add(&job, dependency, past.find(self.state, dependency.job), *standing);
        }
        for delay in job.delays() {
            let standing = if is_over(&delay) { Standing::Satisfied } else { Standing::Open };
            tally.add(&job, &delay.dependency, Other::Forgotten, standing);
        }
        let message = tally.broken.map(|broken| why_never(&job, &broken, past.find(self.state, broken.job)));
        let left = (!is_unchanged).then(|| {
            let is_met = job.spec.has_alternatives()
                && (standings.iter().any(|(_, it)| *it == Standing::Satisfied)
                    || job.delays().iter().any(|it| is_over(&it)));
            let open = standings.iter().filter(|(_, it)| *it == Standing::Open && !is_met);
            let begun = standings.iter().filter_map(|(dependency, it)| match it {
                Standing::Delayed(until) => Some(Delay { dependency: *dependency, until: *until }),
                Standing::Satisfied | Standing::Open | Standing::Never => None,
            });
            let delays = job.delays().iter().filter(|it| !is_over(it)).copied().chain(begun).filter(|_| !is_met);
            (open.map(|(it, _)| *it).collect(), delays.collect())
        });
        let (free, dead) = (tally.free(), tally.dead());
        // A second reference would make each change below copy the job.
        drop(job);
        if let Some((unmet, delays)) = left {
            self.state.set_unmet(id, unmet, delays);
        }
        if !is_unchanged || !free.is_empty() {
            self.state.change_job(id, |job| match job.waits_for_others() {
                true => job.change_partly_met(|it| it.freed.add_all(&free)),
                false => job.partly_met = None,
            });
        }
        if !dead.is_empty() {
            self.cancel_tasks(id, &dead, false, message.as_deref());
            self.job_changed(id, &dead);
        }
    }

    /// Makes requeued or lost tasks wait again for those dependencies that are open for them.
    pub(in crate::head) fn wait_again_for_others(&mut self, id: JobId, requeued: &IndexSet) {
        let job = Arc::clone(self.job(id));
        if !job.waits_for_others() {
            return;
        }
        let mut tally = Tally::new(&job, requeued.intersection(&job.pending));
        for dependency in &job.unmet {
            let other = PastJobs::default().find(self.state, dependency.job);
            tally.add(&job, dependency, other, standing(dependency, other, self.now.at));
        }
        for delay in job.delays() {
            tally.add(&job, &delay.dependency, Other::Forgotten, Standing::Open);
        }
        let waiting = tally.waiting();
        drop(job);
        self.state.change_job(id, |job| job.change_partly_met(|it| it.freed.remove_all(&waiting)));
        self.settle_dependencies(id, PastJobs::default());
    }
}

/// Says why a dependency can never be satisfied.
fn why_never(job: &Job, broken: &Dependency, other: Other<'_>) -> String {
    let broken = broken.plain();
    let never = "can never be satisfied";
    if broken.condition == Condition::AfterCorr && job.spec.array.is_some() {
        // One text for all tasks, since the record of one task may stand for several.
        let on = broken.job;
        return format!("the task of job {on} with the same index has not completed, so {broken} {never}");
    }
    let state = other.end(broken.task).flatten().map_or("gone", JobState::as_str);
    match broken.task {
        Some(index) => format!("task {}_{index} has ended ({state}), so {broken} {never}", broken.job),
        None => format!("job {} has ended ({state}), so {broken} {never}", broken.job),
    }
}
