//! Changes of submitted jobs.
//!
//! A changed job passes the same checks as a new one ([`super::submission`]), as far as the change matters for them. Anything can change
//! while no task runs; while tasks run, only what needs no other placement.

use std::collections::BTreeSet;
use std::sync::Arc;

use hostler_model::{Condition, Dependency, JobId, JobSpec, Labels, RunId, WallTime};
use hostler_proto::jobs::JobChange;
use hostler_proto::link::HeadMessage;

use super::dependencies::{Other, PastJobs, Standing, standing};
use super::dependency::distinct;
use super::ended::{Ended, any_job};
use super::job::Job;
use super::runs::connection_of;
use super::submission::{Admission, check_dependencies, check_spec};
use crate::head::command::{Caller, Refusal};
use crate::head::event::Event;
use crate::head::ids::Now;
use crate::head::state::State;
use crate::head::step::Step;

/// Decides a change of a job. If all values are already set, there are no events, so a client may repeat a request.
pub(in crate::head) fn decide_change(
    state: &State,
    ended: &Ended,
    caller: &Caller,
    job: &Job,
    change: &JobChange,
    now: Now,
) -> Result<Vec<Event>, Refusal> {
    let wrong = |why| Err(Refusal::WrongState { job: job.id, why });
    if job.is_ended() {
        return wrong("has ended, so it cannot be changed");
    }
    let before = &*job.spec;
    let mut spec = changed(before, change, now.wall)?;
    if change.partition.is_some() {
        state.partitions.add_demands(&mut spec);
    }
    spec.demand_engine();
    if spec == *before {
        return Ok(Vec::new());
    }
    let is_moved = is_moved(before, &spec);
    let waits = spec.priority == before.priority && spec.after == before.after && spec.begin == before.begin;
    if job.pending.is_empty() && (is_moved || !waits) {
        return wrong("has started, so only its name, labels, time limit and requeue can be changed");
    }
    if !job.active.is_empty() && is_moved {
        return wrong("has tasks that run, so its partition, nodes and resources cannot be changed");
    }
    if !job.active.is_empty() && !caller.operator && is_raised(before.time_limit_ms, spec.time_limit_ms) {
        return Err(Refusal::NotAllowed("only operators raise the time limit of a job that has tasks that run"));
    }
    check_spec(&spec)?;
    let is_within_limits = !is_moved && !is_raised(before.time_limit_ms, spec.time_limit_ms);
    let admission = Admission { user: &job.user, uid: job.uid, operator: caller.operator, before: Some(before) };
    admission.check(state, &spec, !is_within_limits)?;
    if spec.after != before.after {
        check_new_dependencies(state, ended, job, &spec, now)?;
    }
    let (after, past) = (ended.states(), ended.past(&spec));
    Ok(vec![Event::JobChanged { job: job.id, spec: Arc::new(spec), after, past }])
}

/// Returns the specification after a change.
fn changed(before: &JobSpec, change: &JobChange, now: WallTime) -> Result<JobSpec, Refusal> {
    let mut spec = before.clone();
    let JobChange { name, time_limit_ms, priority, partition, constraint, begin, after, requeue, .. } = change;
    if let Some(name) = name {
        spec.name = name.as_str().into();
    }
    spec.time_limit_ms = time_limit_ms.map_or(before.time_limit_ms, |limit| Some(limit).filter(|ms| *ms > 0));
    spec.priority = priority.unwrap_or(before.priority);
    spec.partition = partition.clone().or(spec.partition);
    spec.constraint = constraint.clone().unwrap_or(spec.constraint);
    spec.begin = begin.map_or(spec.begin, |begin| begin.map(|begin| Box::new(begin.at(now))));
    if let Some(after) = after {
        spec.after = after.as_slice().into();
        spec.singleton = false;
    }
    spec.requeue = requeue.unwrap_or(before.requeue);
    spec.nodes = change.nodes.unwrap_or(before.nodes);
    spec.tasks_per_node = change.tasks_per_node.unwrap_or(before.tasks_per_node);
    spec.request.cpus = change.cpus.unwrap_or(before.request.cpus);
    spec.request.memory_bytes = change.memory_bytes.unwrap_or(before.request.memory_bytes);
    spec.request.gpus = change.gpus.unwrap_or(before.request.gpus);
    spec.request.counted = change.counted.clone().unwrap_or(spec.request.counted);
    if let Some(limit) = change.array_limit {
        let array = spec.array.as_mut().ok_or(Refusal::Contradiction("the job is not an array"))?;
        array.limit = Some(limit).filter(|limit| *limit > 0);
    }
    if !change.labels.is_empty() {
        let mut labels: Labels = spec.labels.take().map(|labels| *labels).unwrap_or_default();
        for (name, value) in &change.labels {
            match value {
                Some(value) => drop(labels.insert(name.clone(), value.clone())),
                None => drop(labels.remove(name)),
            }
        }
        spec.labels = Some(labels).filter(|labels| !labels.is_empty()).map(Box::new);
    }
    Ok(spec)
}

/// Whether the nodes that the job may use, or what it has on them, change.
fn is_moved(before: &JobSpec, after: &JobSpec) -> bool {
    let of = |spec: &JobSpec| {
        let size = (spec.request.clone(), spec.nodes, spec.tasks_per_node);
        (spec.partition.clone(), spec.constraint.clone(), size, spec.surroundings.clone())
    };
    of(before) != of(after)
}

/// Whether a time limit is higher than before; no limit is the highest.
fn is_raised(before: Option<u64>, after: Option<u64>) -> bool {
    after.unwrap_or(u64::MAX) > before.unwrap_or(u64::MAX)
}

/// Refuses new dependencies that do not exist, can never be satisfied, or wait for this job themselves.
fn check_new_dependencies(state: &State, ended: &Ended, job: &Job, spec: &JobSpec, now: Now) -> Result<(), Refusal> {
    let still = still_met(job, spec);
    let to_meet = spec.after.iter().filter(|dependency| !still.contains(dependency));
    check_dependencies(state, ended, to_meet.clone())?;
    if any_waits_for(state, to_meet.clone().map(|dependency| dependency.job), job.id) {
        return Err(Refusal::Contradiction(
            "a job that `after` names waits for this job, so the jobs would wait for each other",
        ));
    }
    let stands = |it: &Dependency| {
        let other = any_job(state, ended, it.job).map_or(Other::Forgotten, Other::Known);
        standing(it, other, now.at)
    };
    if spec.has_alternatives() && spec.after.iter().all(|it| stands(it) == Standing::Never) {
        return Err(Refusal::Contradiction("no alternative in `after` can still be satisfied"));
    }
    for dependency in to_meet {
        let is_known = job.spec.after.contains(dependency);
        // Of several alternatives, one is enough. Of tasks with counterparts, some may start.
        let must_hold = !dependency.alternative && dependency.condition != Condition::AfterCorr;
        if !is_known && must_hold && stands(dependency) == Standing::Never {
            return Err(Refusal::Contradiction(
                "a dependency can never be satisfied, since its job has ended otherwise",
            ));
        }
    }
    Ok(())
}

/// Returns the dependencies of a changed job that it had before and that are satisfied for all tasks. Alternatives are checked again,
/// since the job does not know which of them was satisfied.
fn still_met(job: &Job, spec: &JobSpec) -> Vec<Dependency> {
    if job.spec.has_alternatives() || spec.has_alternatives() {
        return Vec::new();
    }
    let is_met = |it: &&Dependency| job.spec.after.contains(it) && !job.open_dependencies().any(|open| open == *it);
    spec.after.iter().filter(is_met).copied().collect()
}

/// Whether one of `jobs` is `on`, or waits for it, directly or through other jobs. Looks at each job once.
fn any_waits_for(state: &State, jobs: impl Iterator<Item = JobId>, on: JobId) -> bool {
    let mut seen = BTreeSet::new();
    let mut open: Vec<JobId> = jobs.collect();
    while let Some(next) = open.pop() {
        if next == on {
            return true;
        }
        if seen.insert(next) {
            open.extend(state.job(next).into_iter().flat_map(|job| job.open_dependencies()).map(|it| it.job));
        }
    }
    false
}

impl Step<'_> {
    /// Gives a job another specification. `past` has the dependencies that have left the state.
    pub(in crate::head) fn change(&mut self, id: JobId, spec: &Arc<JobSpec>, past: PastJobs<'_>) {
        // The indexes of the state depend on the specification.
        let job = self.state.remove_job(id).expect("the event was decided for a job that exists");
        let mut job = Arc::unwrap_or_clone(job);
        let has_new_dependencies = job.spec.after != spec.after;
        if has_new_dependencies {
            let still = still_met(&job, spec);
            // A delay that runs keeps its end. Which tasks are free is decided anew.
            let mut delays = job.delays().to_vec();
            delays.retain(|delay| spec.after.contains(&delay.dependency));
            let is_open =
                |it: &&Dependency| !still.contains(it) && !delays.iter().any(|delay| delay.dependency == **it);
            job.unmet = distinct(spec.after.iter().filter(is_open).copied());
            job.partly_met = None;
            job.change_partly_met(|it| it.delays = delays);
        }
        let before = std::mem::replace(&mut job.spec, Arc::clone(spec));
        if before.begin != spec.begin {
            job.too_early = spec.begin.as_ref().is_some_and(|begin| **begin > self.now.wall);
        }
        let has_new_limit = before.time_limit_ms != spec.time_limit_ms;
        job.active.values_mut().for_each(|active| active.has_new_limit |= has_new_limit);
        let runs: Vec<_> = job.active.values().map(|active| (active.run, active.parts.len() as u32)).collect();
        self.state.add_to_state(Arc::new(job));
        if has_new_dependencies {
            self.settle_dependencies(id, past);
        }
        if has_new_limit {
            runs.iter().for_each(|(run, parts)| (0..*parts).for_each(|rank| self.send_limit_to(*run, rank)));
        }
        self.state.needs_pass = true;
        self.notify(id);
    }

    /// Tells the agent of one part the job's time limit, if the limit has changed while the job ran.
    pub(in crate::head) fn send_limit_to(&mut self, run: RunId, rank: u32) {
        let Some(active) = self.state.active(run).filter(|active| active.has_new_limit) else { return };
        let Some(part) = active.part(rank) else { return };
        if let Some(connection) = connection_of(self.state, part) {
            let time_limit_ms = self.job(run.task.job).spec.time_limit_ms;
            self.send(connection, HeadMessage::TimeLimit { run, time_limit_ms });
        }
    }
}
