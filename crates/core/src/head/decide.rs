//! Turns commands into events: checks permissions, drops stale messages, and derives facts from agents' reports.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hostler_model::{
    Condition, Dependency, Digest, Epoch, Gauge, IndexSet, JobId, JobSpec, JobState, NodeName, RunId, Timestamp, Work,
    is_system_uid,
};
use hostler_proto::api::JobAction;
use hostler_proto::link::{AgentHello, AgentMessage, EndCause, Fate, RunAge, RunEnd, RunReport, RunStatus};

use super::command::{Caller, Command, Refusal};
use super::event::Event;
use super::ids::{ConnectionId, Now, SubmissionKey};
use super::jobs::change::decide_change;
use super::jobs::dependencies::{Other, Standing, standing};
use super::jobs::ended::{Ended, any_job};
use super::jobs::holds::Hold;
use super::jobs::job::{Active, Job, KeptFiles, Phase};
use super::jobs::submission::{Admission, check_dependencies, check_spec};
use super::limits::{MAX_DEPENDENCIES, MAX_REASON_CHARACTERS, is_reason};
use super::nodes::members::{decide_join, decide_key, decide_renewal};
use super::nodes::node::{Node, Silence};
use super::nodes::partitions::{admit, decide_partitions};
use super::notifications::{decide_alert, reports_down};
use super::power::{decide_drew, decide_power, decide_resting};
use super::settings::Setting;
use super::state::State;
use super::users::changes::decide_users;
use super::users::quotas::{refuses_more_waiting, refuses_tasks};

/// Returns the events that follow from `command`, in order. `ended` contains the ended jobs that the command refers to.
///
/// # Errors
/// When the command is refused. A refused command changes nothing.
pub fn decide(state: &State, command: &Command, ended: &Ended, now: Now) -> Result<Vec<Event>, Refusal> {
    match command {
        Command::Submit { caller, key, spec, environment, snapshot_is_complete } => {
            check_spec(spec)?;
            if state.job_of_key(*key).or(ended.of_key()).is_some() {
                return Ok(Vec::new());
            }
            let submission = Submission { key: *key, environment: *environment, ended };
            decide_submit(state, caller, spec, submission, *snapshot_is_complete)
        }
        Command::Act { caller, job, index, action } => {
            decide_action(state, ended, caller, (*job, *index), *action, now)
        }
        Command::CancelTasks { caller, job, indices } => decide_cancel(state, ended, caller, *job, indices),
        Command::RequeueWithFiles { caller, job: id, index, action, files } => {
            let mut events = decide_action(state, ended, caller, (*id, *index), *action, now)?;
            let job = any_job(state, ended, *id)?;
            for event in &mut events {
                if let Event::Requeued { keeps_completed, files: kept, .. } = event
                    && matches!(job.spec.work, Work::Project { .. })
                {
                    *kept = Some(Box::new(files_to_keep(job, *index, *keeps_completed, files)?));
                }
            }
            Ok(events)
        }
        Command::Change { caller, job, change } => {
            decide_change(state, ended, caller, own_job(state, ended, caller, *job)?, change, now)
        }
        Command::Fetched { caller, job, indices, attempt } => {
            let found = own_job(state, ended, caller, *job)?;
            // The head may delete a fetched result. An operator who reads a result must not cause that.
            if !caller.owns(found) {
                return Ok(Vec::new());
            }
            let ended = ended.job(*job).cloned();
            if let Some(attempt) = *attempt {
                let indices = indices.intersection(&found.earlier_results(attempt));
                let event = Event::EarlierFetched { job: *job, attempt, indices: indices.clone(), ended };
                return Ok(if indices.is_empty() { Vec::new() } else { vec![event] });
            }
            // A task without a result must not count as fetched when its result arrives later.
            let indices = indices.intersection(&found.results);
            Ok(if indices.is_empty() { Vec::new() } else { vec![Event::Fetched { job: *job, indices, ended }] })
        }
        Command::DropResults { job, indices } => {
            let fetched = any_job(state, ended, *job)?.fetched_results();
            let (indices, ended) = (indices.intersection(&fetched), ended.job(*job).cloned());
            Ok(if indices.is_empty() { Vec::new() } else { vec![Event::ResultsDropped { job: *job, indices, ended }] })
        }
        Command::Forget { jobs } => Ok(decide_forget(state, jobs, now)),
        Command::ForgetUnfetched { jobs, for_space } => {
            Ok(decide_forget_unfetched(state, ended, jobs, *for_space, now))
        }
        Command::Users(command) => {
            Ok(decide_users(&state.users, command, now)?.into_iter().map(Event::Users).collect())
        }
        Command::Partitions(command) => {
            Ok(decide_partitions(state, command)?.into_iter().map(Event::Partitions).collect())
        }
        Command::Power(command) => Ok(decide_power(state, command)?.into_iter().map(Event::Power).collect()),
        Command::Alert { alert, text } => Ok(decide_alert(state, *alert, text.as_deref())),
        Command::ForgetNode { node } => decide_forget_node(state, node),
        Command::Set { by, setting, value } => decide_setting(state, by, *setting, value.as_deref()),
        Command::DrainNode { node, by, reason } => decide_drain(state, node, by, reason.as_deref()),
        Command::ResumeNode { node } => decide_resume(state, node),
        Command::RemoveNode { node, by } => decide_remove_node(state, node, by),
        Command::Join { node, key, life_ms, replaces } => decide_join(state, node, *key, *life_ms, *replaces),
        Command::Renew { node, with, key, life_ms } => Ok(decide_renewal(state, node, *with, *key, *life_ms, now)?),
        Command::Hello { connection, key, hello, complete } => {
            let mut events = decide_key(state, &hello.node, *key, now)?;
            // A late hello describes an agent, or a boot, that a newer connection has replaced.
            if state.node(&hello.node).is_some_and(|node| node.newest_connection > Some(*connection)) {
                return Err(Refusal::Stale);
            }
            events.extend(decide_hello(state, *connection, hello, complete));
            Ok(events)
        }
        Command::Message { connection, message, result_is_complete } => {
            let node = state.node_of(*connection).ok_or(Refusal::Stale)?;
            let mut events = vec![Event::Heard { connection: *connection }];
            match message {
                AgentMessage::Heartbeat => {}
                AgentMessage::Report(report) => {
                    events.extend(decide_report(state, node, report, *result_is_complete, None));
                }
                AgentMessage::Resting { ask, busy, is_leaving } => {
                    let event = decide_resting(state, node, *ask, busy.as_deref(), *is_leaving);
                    events.extend(event.map(Event::Power));
                }
                AgentMessage::Drawing { milliwatts } => {
                    events.extend(decide_drew(state, &node.name, Gauge::Agent, *milliwatts).map(Event::Power));
                }
            }
            Ok(events)
        }
        Command::ConnectionEnded { connection } => Ok(state
            .node_of(*connection)
            .map(|_| Event::Disconnected { connection: *connection })
            .into_iter()
            .collect()),
        Command::Tick => Ok(decide_tick(state, now)),
    }
}

impl State {
    /// Returns the epoch that follows the last head's: the epoch for a head that starts now.
    #[must_use]
    pub fn next_epoch(&self) -> Epoch {
        Epoch(self.epoch.0 + 1)
    }
}

/// What a submission contains besides the job's specification.
struct Submission<'a> {
    key: SubmissionKey,
    environment: Option<Digest>,
    /// The dependencies that have already ended.
    ended: &'a Ended,
}

fn decide_submit(
    state: &State,
    caller: &Caller,
    spec: &Arc<JobSpec>,
    Submission { key, environment, ended }: Submission<'_>,
    snapshot_is_complete: bool,
) -> Result<Vec<Event>, Refusal> {
    state.users.check_not_blocked(&caller.user, caller.uid)?;
    if let Some(uid) = caller.uid.filter(|uid| is_system_uid(*uid) && !state.system_accounts().allow(*uid)) {
        return Err(Refusal::SystemAccount { user: caller.user.clone(), uid });
    }
    check_dependencies(state, ended, &spec.after)?;
    let admission = Admission { user: &caller.user, uid: caller.uid, operator: caller.operator, before: None };
    admission.check(state, spec, true)?;
    if matches!(spec.work, Work::Project { .. }) && !snapshot_is_complete {
        return Err(Refusal::SnapshotMissing);
    }
    let (user, uid) = (caller.user.clone(), caller.uid);
    let (job, spec) = (state.next_job(), after_namesakes(state, &user, spec));
    let (after, past) = (ended.states(), ended.past(&spec));
    Ok(vec![Event::Submitted { job, key, user, uid, spec, environment, after, past }])
}

/// Makes a singleton wait for the earlier jobs of its name and user. Older ones than the last thousand need not be named: the
/// singletons among them wait for each other.
fn after_namesakes(state: &State, user: &str, spec: &Arc<JobSpec>) -> Arc<JobSpec> {
    if !spec.singleton {
        return Arc::clone(spec);
    }
    let is_named = |job: JobId| spec.after.iter().any(|dependency| dependency.job == job);
    let namesakes = state.jobs().rev().filter(|job| job.user == user && job.spec.name == spec.name && !job.is_ended());
    let more = namesakes.filter(|job| !is_named(job.id)).take(MAX_DEPENDENCIES - spec.after.len());
    let more = more.map(|job| Dependency::new(Condition::AfterAny, job.id));
    let after = spec.after.iter().copied().chain(more).collect();
    Arc::new(JobSpec { after, ..JobSpec::clone(spec) })
}

fn decide_action(
    state: &State,
    ended: &Ended,
    caller: &Caller,
    (id, index): (JobId, Option<u32>),
    action: JobAction,
    now: Now,
) -> Result<Vec<Event>, Refusal> {
    let job = own_job(state, ended, caller, id)?;
    let other = |id| any_job(state, ended, id).map_or(Other::Forgotten, Other::Known);
    let stands = |it: &Dependency| standing(it, other(it.job), now.at);
    let recalled = ended.job(id).cloned();
    if let Some(index) = index
        && !job.indices().contains(index)
    {
        return Err(Refusal::NoSuchTask { job: id, index });
    }
    let wrong = |why| Err(Refusal::WrongState { job: id, why });
    match action {
        JobAction::Cancel if job.is_ended() => Ok(Vec::new()),
        JobAction::Cancel => {
            let is_named = |task: &u32| index.is_none_or(|index| index == *task);
            let ends_later = |active: &Active| active.ending != Some(EndCause::Cancelled);
            let changes = job.active.iter().any(|(task, active)| is_named(task) && ends_later(active))
                || index.map_or(!job.pending.is_empty(), |index| job.pending.contains(index));
            Ok(if changes { vec![Event::Cancelled { job: id, index }] } else { Vec::new() })
        }
        JobAction::Hold | JobAction::HoldForOwner => {
            let by_operator = action == JobAction::Hold && !caller.owns(job);
            decide_hold(job, index, by_operator)
        }
        JobAction::Release => decide_release(job, caller, index, recalled),
        JobAction::RequeueDependent if job.state() != JobState::Cancelled => wrong("is not cancelled"),
        JobAction::Requeue | JobAction::RequeueAll | JobAction::RequeueHeld { .. } | JobAction::RequeueDependent
            if job.active.is_empty() && job.endings.is_empty() =>
        {
            wrong("is already waiting")
        }
        JobAction::Requeue | JobAction::RequeueAll | JobAction::RequeueHeld { .. } | JobAction::RequeueDependent
            if job.lost_environment =>
        {
            wrong("has completed, and its environment variables were deleted; submit the job again")
        }
        JobAction::Requeue | JobAction::RequeueAll | JobAction::RequeueHeld { .. } | JobAction::RequeueDependent => {
            if action == JobAction::RequeueDependent
                && let Some(dependency) = job.spec.after.iter().find(|it| stands(it) == Standing::Never)
                && !(job.spec.has_alternatives() && job.spec.after.iter().any(|it| stands(it) != Standing::Never))
            {
                return Err(Refusal::NeverStarts { job: id, dependency: *dependency });
            }
            // A requeue deletes results, so completed tasks run again only if the user says so.
            let keeps_completed = !matches!(action, JobAction::RequeueAll | JobAction::RequeueHeld { completed: true });
            let (completed, others) = job.ended_counts();
            let has_completed = |index| job.ending_of(index).is_some_and(|it| it.state == JobState::Completed);
            let tasks = match index {
                Some(index) => u64::from(!(keeps_completed && has_completed(index))),
                None => job.active.len() as u64 + others + if keeps_completed { 0 } else { completed },
            };
            if tasks == 0 {
                return Err(Refusal::OnlyCompleted(id));
            }
            let unfetched = job.unfetched_results().filter(|it| index.is_none_or(|index| index == *it));
            let lost = unfetched.filter(|it| has_completed(*it)).count() as u64;
            if lost > 0 && !keeps_completed {
                return Err(Refusal::ResultsNotFetched { job: id, owner: job.user.clone(), tasks: lost });
            }
            // Tasks that wait again count like a submission.
            if !caller.operator {
                // A job that has not ended is in its partition already.
                if job.is_ended() {
                    admit(state, &job.user, &job.spec, true)?;
                }
                if job.pending.is_empty()
                    && let Some(why) = refuses_more_waiting(state, &job.user, &job.spec, None)
                {
                    return Err(Refusal::TooManyWaiting(why));
                }
                if let Some(refusal) = refuses_tasks(state, &job.user, &job.spec, tasks) {
                    return Err(refusal);
                }
            }
            let is_met =
                job.spec.has_alternatives() && job.spec.after.iter().any(|it| stands(it) == Standing::Satisfied);
            let is_forgiven =
                |it: &Dependency| !job.is_ended() && (it.condition != Condition::AfterCorr || job.unmet.contains(it));
            let waits_again = |it: &&Dependency| !is_met && !is_forgiven(it) && stands(it) == Standing::Open;
            let waits_for = job.spec.after.iter().filter(waits_again).copied().collect();
            let requeued = Event::Requeued { job: id, index, keeps_completed, waits_for, files: None, ended: recalled };
            let holds = matches!(action, JobAction::RequeueHeld { .. });
            let held = holds.then(|| Event::Held { job: id, index, by_operator: !caller.owns(job) });
            Ok(std::iter::once(requeued).chain(held).collect())
        }
    }
}

/// Cancels the given tasks; tasks that have ended are skipped. Refuses if the job has none of the given tasks.
fn decide_cancel(
    state: &State,
    ended: &Ended,
    caller: &Caller,
    id: JobId,
    indices: &IndexSet,
) -> Result<Vec<Event>, Refusal> {
    let job = own_job(state, ended, caller, id)?;
    if let Some(index) = indices.first().filter(|_| indices.is_disjoint(&job.indices())) {
        return Err(Refusal::NoSuchTask { job: id, index });
    }
    let mut live = indices.intersection(&job.pending);
    let ends_later = job.active.iter().filter(|(_, active)| active.ending != Some(EndCause::Cancelled));
    live.add_all(&ends_later.map(|(index, _)| *index).filter(|index| indices.contains(*index)).collect());
    Ok(if live.is_empty() { Vec::new() } else { vec![Event::TasksCancelled { job: id, indices: live }] })
}

/// Returns those of the `files` that the next attempts of ended tasks start with. Refuses if a task has run and its files are
/// not on the head.
fn files_to_keep(
    job: &Job,
    index: Option<u32>,
    keeps_completed: bool,
    files: &KeptFiles,
) -> Result<KeptFiles, Refusal> {
    let mut kept = KeptFiles::new();
    for (ending, tasks) in &job.endings {
        if keeps_completed && ending.state == JobState::Completed {
            continue;
        }
        for task in tasks.iter().filter(|task| index.is_none_or(|index| index == *task)) {
            match files.get(&task) {
                Some(results) => drop(kept.insert(task, results.clone())),
                None if ending.exit_code.is_some() || ending.state == JobState::NodeFail => {
                    let why = "has left no files on the head to start with; requeue it without --keep-files";
                    return Err(wrong_state(job, Some(task), why));
                }
                None => {}
            }
        }
    }
    Ok(kept)
}

/// Decides a hold of a job or of one of its tasks. A hold by its owner does not replace one by an operator.
fn decide_hold(job: &Job, index: Option<u32>, by_operator: bool) -> Result<Vec<Event>, Refusal> {
    let why = match index {
        Some(index) if job.pending.contains(index) => None,
        None if !job.pending.is_empty() => None,
        Some(index) if job.ending_of(index).is_some() => Some("has ended, so it cannot be held"),
        None if job.is_ended() => Some("has ended, so it cannot be held"),
        Some(_) | None => Some("has started, so it cannot be held"),
    };
    if let Some(why) = why {
        return Err(wrong_state(job, index, why));
    }
    let wanted = if by_operator { Hold::ByOperator } else { Hold::ByOwner };
    let is_known = job.hold_on(index).is_some_and(|hold| hold >= wanted);
    Ok(if is_known { Vec::new() } else { vec![Event::Held { job: job.id, index, by_operator }] })
}

/// Decides a release. The release of a job also releases the tasks that are held on their own. Tasks that an operator holds
/// stay held if the owner releases the job.
fn decide_release(
    job: &Job,
    caller: &Caller,
    index: Option<u32>,
    ended: Option<Arc<Job>>,
) -> Result<Vec<Event>, Refusal> {
    let hold = job.hold_on(index);
    if hold.is_none() && (index.is_some() || job.held_tasks.is_none()) {
        return Err(wrong_state(job, index, "is not held"));
    }
    let has_owners = match index {
        Some(_) => hold == Some(Hold::ByOwner),
        None => hold != Some(Hold::ByOperator) && job.is_held_by_owner(),
    };
    if !caller.operator && !has_owners {
        return Err(wrong_state(job, index, "is held by an operator; ask an operator to release it"));
    }
    let keeps_operators = index.is_none() && !caller.operator && !job.tasks_held_by_operator().is_empty();
    Ok(vec![Event::Released { job: job.id, index, keeps_operators, ended }])
}

/// The refusal of an action on a job or one of its tasks.
fn wrong_state(job: &Job, index: Option<u32>, why: &'static str) -> Refusal {
    match index.filter(|_| job.spec.array.is_some()) {
        Some(index) => Refusal::WrongTaskState { job: job.id, index, why },
        None => Refusal::WrongState { job: job.id, why },
    }
}

/// Looks up a job; refuses if the caller may not see and change it.
fn own_job<'a>(state: &'a State, ended: &'a Ended, caller: &Caller, id: JobId) -> Result<&'a Job, Refusal> {
    let job = any_job(state, ended, id)?;
    if caller.may_touch(job) { Ok(job) } else { Err(caller.refused(job)) }
}

/// Decides whether a node is forgotten: only without a connection, without runs, and without an entry in `power.toml`.
fn decide_forget_node(state: &State, name: &NodeName) -> Result<Vec<Event>, Refusal> {
    let node = state.node(name).ok_or_else(|| Refusal::NoSuchNode(name.clone()))?;
    let in_use = |why: String| Err(Refusal::NodeInUse { node: name.clone(), why });
    if state.power.is_planned(name) {
        return in_use("is switched on and off by the head; remove the node from power.toml first".to_owned());
    }
    match (&node.link, node.runs.len()) {
        (Some(_), _) => in_use("is connected; stop its agent first".to_owned()),
        (None, 0) => Ok(vec![Event::NodeForgotten { node: name.clone() }]),
        (None, 1) => in_use("still has a task".to_owned()),
        (None, tasks) => in_use(format!("still has {tasks} tasks")),
    }
}

/// Decides a drain. A drain with the same reason by the same operator changes nothing; a new reason replaces the old
/// reason.
fn decide_drain(state: &State, name: &NodeName, by: &str, reason: Option<&str>) -> Result<Vec<Event>, Refusal> {
    let node = state.node(name).ok_or_else(|| Refusal::NoSuchNode(name.clone()))?;
    if reason.is_some_and(|reason| !is_reason(reason)) {
        return Err(Refusal::BadSpec(format!("a reason is one line of at most {MAX_REASON_CHARACTERS} characters")));
    }
    if node.drain.as_ref().is_some_and(|drain| drain.by == by && drain.reason.as_deref() == reason) {
        return Ok(Vec::new());
    }
    let reason = reason.map(str::to_owned);
    Ok(vec![Event::NodeDrained { node: name.clone(), by: by.to_owned(), reason }])
}

fn decide_resume(state: &State, name: &NodeName) -> Result<Vec<Event>, Refusal> {
    let node = state.node(name).ok_or_else(|| Refusal::NoSuchNode(name.clone()))?;
    Ok(node.drain.iter().map(|_| Event::NodeResumed { node: name.clone() }).collect())
}

fn decide_remove_node(state: &State, name: &NodeName, by: &str) -> Result<Vec<Event>, Refusal> {
    if state.node(name).is_none() && state.member(name).is_none() {
        return Err(Refusal::NoSuchNode(name.clone()));
    }
    Ok(vec![Event::NodeRemoved { node: name.clone(), by: by.to_owned() }])
}

/// Decides a change of a setting. The result has no event if the setting already has the value, or is reset while it
/// has its default.
fn decide_setting(state: &State, by: &str, setting: Setting, text: Option<&str>) -> Result<Vec<Event>, Refusal> {
    let value = state.settings.changed(setting, text).map_err(Refusal::BadSetting)?;
    let before = state.set_by.get(&setting).and_then(|_| state.settings.get(setting));
    Ok(if value == before { Vec::new() } else { vec![Event::SettingChanged { setting, value, by: by.to_owned() }] })
}

/// Returns the events of an agent's hello: changes of the node, reports about its runs, and the end of runs that the
/// agent does not have.
fn decide_hello(state: &State, connection: ConnectionId, hello: &AgentHello, complete: &BTreeSet<RunId>) -> Vec<Event> {
    let mut events = Vec::new();
    let holds: Vec<RunId> = hello.runs.iter().map(|report| report.run).collect();
    let known = state.node(&hello.node);
    if known.is_some_and(|node| node.is_reported_down) {
        events.push(Event::NodeReported { node: hello.node.clone(), is_down: false });
    }
    if known.is_none_or(|node| node.facts != hello.facts || node.given_up) {
        events.push(Event::NodeSeen { node: hello.node.clone(), facts: Box::new(hello.facts.clone()) });
    }
    if let Some(node) = known {
        let held: BTreeSet<RunId> = holds.iter().copied().collect();
        let rebooted = node.facts.boot != hello.facts.boot;
        for &run in node.runs.keys().filter(|run| !held.contains(run)) {
            let Some((_, rank)) = state.part_on(&node.name, run) else { continue };
            let phase = state.active(run).and_then(|active| active.part(rank)).map_or(Phase::Placed, |part| part.phase);
            // Launches are sent again, but an older agent would not understand this one.
            let spec = state.job(run.task.job).map(|job| &job.spec);
            let is_unknown = spec.is_some_and(|spec| !spec.fits_abilities(&hello.facts));
            if phase > Phase::Placed || rebooted || is_unknown {
                events.push(gone(state, run, rank, format!("node {} reconnected without this run", node.name)));
            }
        }
    }
    events.extend(numbers_to_skip(state, hello).map(|last| Event::NumbersSkipped { last }));
    events.extend(unknown_runs(state, &hello.node, &holds));
    events.push(Event::Connected {
        node: hello.node.clone(),
        connection,
        pid: hello.pid,
        version: hello.version.clone(),
        holds,
    });
    if let Some(node) = known {
        // Each report is checked against the state before the hello, so only the first report about a run may count.
        let mut heard = BTreeSet::new();
        let reports = hello.runs.iter().filter(|report| heard.insert(report.run));
        let ages: BTreeMap<RunId, &RunAge> = hello.ages.iter().map(|age| (age.run, age)).collect();
        events.extend(reports.flat_map(|report| {
            let age = ages.get(&report.run).copied();
            let missed = age.map_or_else(Vec::new, |age| missed(state, node, report, age));
            missed.into_iter().chain(decide_report(state, node, report, complete.contains(&report.run), age))
        }));
    }
    events
}

/// Returns the last job number that new jobs must not get, because a node has had a run of a later job than the head knows. A
/// single node cannot use up the numbers.
fn numbers_to_skip(state: &State, hello: &AgentHello) -> Option<JobId> {
    const MOST: u64 = 1_000_000;
    let next = state.next_job();
    let seen = hello.runs.iter().map(|report| report.run.task.job).chain(hello.last_job).max()?;
    (seen >= next).then(|| seen.min(JobId(next.0 + MOST)))
}

/// Returns the events that keep runs of jobs that this head never had, until an operator resumes the node. The node is
/// drained, because the head does not know what the runs use.
fn unknown_runs(state: &State, name: &NodeName, holds: &[RunId]) -> Vec<Event> {
    const WHY: &str = "runs jobs that this head does not know";
    const MOST_NAMED: usize = 10;
    let runs: BTreeSet<RunId> = holds.iter().copied().filter(|run| state.is_unknown(run.task.job)).collect();
    let known = state.node(name);
    let before = known.map(|node| &node.unknown_runs);
    if before.map_or(runs.is_empty(), |before| *before == runs) {
        return Vec::new();
    }
    let mut events = vec![Event::UnknownRuns { node: name.clone(), runs: runs.clone() }];
    if before.is_none_or(|before| !runs.is_subset(before)) {
        let jobs: BTreeSet<JobId> = runs.iter().map(|run| run.task.job).collect();
        let named: Vec<String> = jobs.iter().take(MOST_NAMED).map(ToString::to_string).collect();
        let more =
            jobs.len().checked_sub(MOST_NAMED + 1).map_or_else(String::new, |more| format!(" and {} more", more + 1));
        let why = format!(
            "{WHY} ({}{more}): an older backup of the head was restored, or the node was in another cluster; `hostler node resume {name}` ends them and deletes their files",
            named.join(", ")
        );
        let drain = known.and_then(|node| node.drain.as_ref());
        let by = drain.map_or("hostler", |drain| &drain.by).to_owned();
        let earlier = drain.and_then(|drain| drain.reason.as_deref()?.split(WHY).next()).filter(|it| !it.is_empty());
        let reason = match earlier.map(|earlier| earlier.trim_end_matches("; ")) {
            Some(earlier) => format!("{earlier}; {why}"),
            None => why,
        };
        events.push(Event::NodeDrained { node: name.clone(), by, reason: Some(reason) });
    }
    events
}

/// Returns the event that ends a vanished part of a run. The task waits again if the part certainly never started;
/// otherwise the part is lost.
fn gone(state: &State, run: RunId, rank: u32, message: String) -> Event {
    // A job that is requeued after a loss needs no such check.
    let may_be_lost = state.job(run.task.job).is_some_and(|job| job.spec.requeue);
    let is_spared = !may_be_lost && never_started(state, run, rank);
    let (fate, message) = if is_spared { (Fate::Requeued, None) } else { (Fate::Lost, Some(message)) };
    Event::Ended { run, rank, end: RunEnd::without_result(fate, message) }
}

/// Returns whether a part that its agent does not have certainly never started, because the agent never confirmed the
/// launch or because not all nodes of the run were ready.
fn never_started(state: &State, run: RunId, rank: u32) -> bool {
    state.unconfirmed.contains(&(run, rank)) || waits_for_others(state, run)
}

/// Returns whether a run on several nodes waits until all these nodes are ready.
fn waits_for_others(state: &State, run: RunId) -> bool {
    state.active(run).is_some_and(|active| active.parts.len() > 1 && !active.has_begun())
}

/// Returns the start and the end of a run's process that the report of a later status leaves out.
fn missed(state: &State, node: &Node, report: &RunReport, age: &RunAge) -> Vec<Event> {
    let earlier = match &report.status {
        RunStatus::Completing => vec![RunStatus::Running],
        RunStatus::Ended(_) => vec![RunStatus::Running, RunStatus::Completing],
        RunStatus::Accepted | RunStatus::Staged | RunStatus::Ready { .. } | RunStatus::Running => Vec::new(),
    };
    let reports = earlier.into_iter().map(|status| RunReport { run: report.run, status });
    reports.flat_map(|report| decide_report(state, node, &report, false, Some(age))).collect()
}

/// Returns the events of an agent's report about a run; none if the report is stale or contains nothing new.
fn decide_report(
    state: &State,
    node: &Node,
    report: &RunReport,
    result_is_complete: bool,
    age: Option<&RunAge>,
) -> Vec<Event> {
    let run = report.run;
    let Some(active) = state.active(run) else { return Vec::new() };
    let Some(rank) = active.rank_of(&node.name) else { return Vec::new() };
    let Some(part) = active.part(rank).filter(|part| part.over.is_none()) else { return Vec::new() };
    let if_further = |phase: Phase, event| if phase > part.phase { vec![event] } else { Vec::new() };
    match &report.status {
        RunStatus::Accepted => if_further(Phase::Accepted, Event::Accepted { run, rank }),
        RunStatus::Staged => if_further(Phase::Staged, Event::Staged { run, rank }),
        RunStatus::Ready { port, endpoint } => {
            // A repeated report means that the answer was lost. A changed port means that the agent was restarted.
            let is_news = active.has_begun() || part.port != Some(*port);
            if is_news { vec![Event::Ready { run, rank, port: *port, endpoint: *endpoint }] } else { Vec::new() }
        }
        RunStatus::Running => {
            let ago_ms = age.map_or(0, |age| age.started_ms);
            if_further(Phase::Running, Event::Running { run, rank, ago_ms })
        }
        RunStatus::Completing => {
            let ago_ms = age.and_then(|age| age.exited_ms).unwrap_or(0);
            if_further(Phase::Completing, Event::Completing { run, rank, ago_ms })
        }
        RunStatus::Ended(end) => {
            // A result counts only when it is complete. Until then the run does not end, and the shell requests the result again.
            if end.result.is_some() && !result_is_complete {
                return Vec::new();
            }
            vec![Event::Ended { run, rank, end: end.without_content() }]
        }
    }
}

fn decide_tick(state: &State, now: Now) -> Vec<Event> {
    let mut events: Vec<Event> =
        state.overdue_nodes(now.at).flat_map(|node| decide_silence(state, node, now)).collect();
    events.extend(state.peers.are_due(now.at).then_some(Event::PeersTold));
    let begins = state.begins.iter().take_while(|(at, _)| *at <= now.wall);
    let delayed = state.delays.iter().take_while(|(at, _)| *at <= now.at);
    let due: BTreeSet<JobId> = begins.map(|(_, job)| *job).chain(delayed.map(|(_, job)| *job)).collect();
    events.extend(due.into_iter().map(|job| Event::BeginTimeCame { job }));
    events.extend(state.long_waits(now.at).into_iter().map(|job| Event::WaitedLong { job }));
    events
}

/// Returns the event that forgets the jobs in `ended` whose retention is over.
fn decide_forget(state: &State, ended: &[(JobId, Timestamp)], now: Now) -> Vec<Event> {
    let is_due = |(id, ended): &&(JobId, Timestamp)| state.kept_until(*ended) < now.at && state.job(*id).is_none();
    let jobs: Vec<JobId> = ended.iter().filter(is_due).map(|(id, _)| *id).collect();
    if jobs.is_empty() { Vec::new() } else { vec![Event::Forgotten { jobs, unfetched: BTreeMap::new() }] }
}

/// Returns the event that forgets those of the ended jobs that are due although nobody has fetched their files.
fn decide_forget_unfetched(state: &State, ended: &Ended, jobs: &[JobId], for_space: bool, now: Now) -> Vec<Event> {
    let is_over = |until: Option<Timestamp>| until.is_some_and(|until| until < now.at);
    let is_due = |job: &&Arc<Job>| {
        job.ended
            .is_some_and(|at| is_over(state.unfetched_until(at)) || for_space && is_over(Some(state.kept_until(at))))
    };
    let due = jobs.iter().filter_map(|id| ended.job(*id)).filter(is_due);
    let unfetched: BTreeMap<JobId, String> = due.map(|job| (job.id, job.user.clone())).collect();
    let jobs: Vec<JobId> = unfetched.keys().copied().collect();
    if jobs.is_empty() { Vec::new() } else { vec![Event::Forgotten { jobs, unfetched }] }
}

/// Returns the events for a node that has passed its next silence limit: it becomes suspect, goes down, or loses its
/// runs.
fn decide_silence(state: &State, node: &Node, now: Now) -> Vec<Event> {
    let name = node.name.clone();
    match node.silence {
        Silence::Short => vec![Event::Silent { node: name }],
        Silence::Suspect => {
            // A launch that the agent never confirmed may still have started: the confirmation may be lost.
            let may_run_again = |(run, _): &(RunId, u32)| {
                waits_for_others(state, *run) || state.job(run.task.job).is_some_and(|job| job.spec.requeue)
            };
            let parts = node.runs.keys().filter_map(|run| state.part_on(&name, *run));
            let again = parts.filter(may_run_again);
            let again: Vec<Event> =
                again.map(|(run, rank)| gone(state, run, rank, format!("node {name} is down"))).collect();
            let report = reports_down(state, node).then(|| Event::NodeReported { node: name.clone(), is_down: true });
            std::iter::once(Event::Down { node: name }).chain(report).chain(again).collect()
        }
        Silence::Down => vec![Event::NodeGivenUp { node: name, silent_since: now.wall_at(node.last_heard) }],
    }
}
