//! What each event does to the state. Nothing else changes it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hostler_model::{
    Advisory, BootId, Condition, Dependency, Ending, IndexSet, JobId, JobSpec, JobState, NodeName, Resources, RunId,
    Timestamp,
};
use hostler_proto::api::Notice;
use hostler_proto::link::{EndCause, Fate, HeadMessage, Launch, Placement, Usage};
use hostler_proto::record::EndedTask;

use super::event::{Changes, ConnectionId, Effect, Event, Now, Record, Stamped, Start, SubmissionKey};
use super::job::{Active, Job, Phase};
use super::node::{Link, Node, Silence};
use super::state::State;
use super::users::{tell_accounts, update_users};

/// Applies one event to the state and adds what follows from it to `changes`.
///
/// # Panics
/// When the event contradicts the state: it was decided for another one, or the log is damaged.
pub fn update(state: &mut State, stamped: &Stamped, changes: &mut Changes) {
    let now = stamped.now;
    state.last_event_at = state.last_event_at.max(now.at);
    let mut step = Step { state, now, changes };
    match &stamped.event {
        Event::EpochStarted { epoch } => step.start_epoch(*epoch),
        Event::Submitted { job, key, user, spec } => step.submit(*job, *key, user, spec),
        Event::Cancelled { job, index } => step.cancel(*job, *index),
        Event::Held { job } => step.state.change_job(*job, |job| job.held = true),
        Event::Released { job } => step.state.change_job(*job, |job| job.held = false),
        Event::Requeued { job, index } => step.requeue(*job, *index),
        Event::Placed { starts } => step.place(starts),
        Event::Accepted { run } => step.advance(*run, Phase::Accepted),
        Event::Running { run } => step.advance(*run, Phase::Running),
        Event::Completing { run } => step.advance(*run, Phase::Completing),
        Event::Ended { run, fate, message, result, usage } => {
            step.end_run(*run, &RunOver { fate: *fate, message: message.clone(), result: *result, usage: *usage });
        }
        Event::NodeSeen { node, boot, resources, advisory } => step.see_node(node, boot, resources, advisory),
        Event::NodeGivenUp { node } => step.give_up_node(node),
        Event::NodeForgotten { node } => step.state.remove_node(node),
        Event::Fetched { job, indices } => step.state.change_job(*job, |job| job.fetched.add_all(indices)),
        Event::ResultsDropped { job, indices } => step.state.change_job(*job, |job| {
            indices.iter().for_each(|index| {
                job.results.remove(index);
            });
        }),
        Event::Forgotten { jobs } => step.forget(jobs),
        Event::Users(event) => update_users(step.state, event, now, step.changes),
        Event::Connected { node, connection, pid, version, holds } => {
            step.connect(node, Link { connection: *connection, pid: *pid, version: version.clone() }, holds);
        }
        Event::Disconnected { connection } => step.disconnect(*connection),
        Event::Heard { connection } => step.hear(*connection),
        Event::Silent { node } => step.mark_silent(node),
        Event::Down { node } => step.mark_down(node),
    }
}

/// One event being applied.
struct Step<'a> {
    state: &'a mut State,
    now: Now,
    changes: &'a mut Changes,
}

/// The end of a run.
struct RunOver {
    fate: Fate,
    message: Option<String>,
    result: Option<hostler_model::Digest>,
    usage: Usage,
}

impl Step<'_> {
    fn start_epoch(&mut self, epoch: hostler_model::Epoch) {
        self.state.epoch = epoch;
        self.state.unconfirmed.clear();
        self.state.connections.clear();
        let names: Vec<NodeName> = self.state.nodes.keys().cloned().collect();
        for name in &names {
            self.state.change_node(name, |node| {
                node.link = None;
                node.silence = Silence::Short;
                node.last_heard = self.now.at;
            });
            self.state.sync_pool(name);
        }
    }

    fn submit(&mut self, id: JobId, key: SubmissionKey, user: &str, spec: &Arc<JobSpec>) {
        self.state.insert_job(Job {
            id,
            key,
            user: user.to_owned(),
            spec: Arc::clone(spec),
            submitted_at: self.now.wall,
            started_at: None,
            ended_at: None,
            ended: None,
            held: spec.hold,
            unmet: spec.after.clone(),
            pending: spec.array.as_ref().map_or_else(|| IndexSet::one(0), |array| array.indices.clone()),
            active: BTreeMap::new(),
            endings: BTreeMap::new(),
            attempts: BTreeMap::new(),
            results: IndexSet::default(),
            fetched: IndexSet::default(),
        });
        self.settle_dependencies(id);
        self.notify(id);
    }

    /// Pending tasks end at once; placed ones are told to end.
    fn cancel(&mut self, id: JobId, index: Option<u32>) {
        self.cancel_pending(id, index, None);
        self.end_active(id, index, EndCause::Cancelled);
        self.job_changed(id);
    }

    fn cancel_pending(&mut self, id: JobId, index: Option<u32>, message: Option<&str>) {
        let ending = Ending { state: JobState::Cancelled, exit_code: None };
        let job = Arc::clone(self.job(id));
        let gone: IndexSet = match index {
            Some(index) if job.pending.contains(index) => IndexSet::one(index),
            Some(_) => return,
            None => job.pending.clone(),
        };
        if gone.is_empty() {
            return;
        }
        // A row only where it says more than the job does: a cancelled array of a million must not write a million rows.
        if let (Some(message), Some(first)) = (message, gone.first()) {
            self.changes.records.push(Record::Ended(EndedTask {
                job: id,
                index: first,
                attempt: hostler_model::Attempt(0),
                ending,
                message: Some(message.to_owned()),
                node: None,
                started_at: None,
                ended_at: self.now.wall,
                result: None,
                usage: Usage::default(),
            }));
        }
        self.state.change_job(id, |job| {
            match index {
                Some(index) => {
                    job.pending.remove(index);
                }
                None => job.pending = IndexSet::default(),
            }
            job.endings.entry(ending).or_default().add_all(&gone);
        });
    }

    /// Tells the agents of a job's placed tasks to end them. The last cause stands: users may change their minds.
    fn end_active(&mut self, id: JobId, index: Option<u32>, cause: EndCause) {
        let runs: Vec<RunId> = self
            .job(id)
            .active
            .values()
            .filter(|active| active.ending != Some(cause) && index.is_none_or(|index| active.run.task.index == index))
            .map(|active| active.run)
            .collect();
        for run in runs {
            self.state.change_job(id, |job| {
                job.active.get_mut(&run.task.index).expect("just listed").ending = Some(cause);
            });
            self.send_end(run);
        }
    }

    /// Placed tasks are ended to run again, ended ones wait again.
    fn requeue(&mut self, id: JobId, index: Option<u32>) {
        self.end_active(id, index, EndCause::Requeued);
        let job = Arc::clone(self.job(id));
        let again: Vec<u32> = job
            .endings
            .values()
            .flat_map(IndexSet::iter)
            .filter(|&ended| index.is_none_or(|index| ended == index))
            .collect();
        for index in again {
            self.changes.records.push(Record::Reopened(job.task(index)));
            self.state.change_job(id, |job| {
                job.reopen(index);
                job.results.remove(index);
                job.fetched.remove(index);
                // Whether it was ever placed is not known any more, and a run that was lost may still go on somewhere: the next one
                // must not have its name.
                job.attempts.entry(index).or_insert(hostler_model::Attempt(1));
                job.pending.insert(index);
                (job.ended_at, job.ended) = (None, None);
            });
        }
        self.notify(id);
    }

    fn place(&mut self, starts: &[Start]) {
        let mut launches: BTreeMap<(ConnectionId, JobId), Vec<Placement>> = BTreeMap::new();
        let mut jobs = BTreeSet::new();
        for start in starts {
            let id = start.run.task.job;
            let index = start.run.task.index;
            let active = Active {
                run: start.run,
                node: start.node.clone(),
                resources: start.resources.clone(),
                phase: Phase::Placed,
                since: self.now.at,
                started_at: None,
                ending: None,
            };
            self.state.change_job(id, |job| {
                assert!(job.pending.remove(index), "only a pending task is placed");
                job.attempts.remove(&index);
                job.active.insert(index, active);
            });
            self.hold(start);
            self.state.unconfirmed.insert(start.run);
            if let Some(link) = &self.state.nodes[&start.node].link {
                let placement = Placement { run: start.run, resources: start.resources.clone() };
                launches.entry((link.connection, id)).or_default().push(placement);
            }
            jobs.insert(id);
        }
        for ((connection, job), runs) in launches {
            let launch = self.launch(job, runs);
            self.send(connection, HeadMessage::Launch(launch));
        }
        jobs.into_iter().for_each(|job| self.job_changed(job));
    }

    /// Allocates what a placement holds on its node.
    fn hold(&mut self, start: &Start) {
        let node = self.state.nodes.get_mut(&start.node).expect("a placement names a known node");
        assert!(
            node.free_cpus().is_superset(&start.resources.cpus)
                && node.free_memory_bytes() >= start.resources.memory_bytes,
            "the placement of {} exceeds what node {} has free",
            start.run,
            start.node
        );
        node.runs.insert(start.run, start.resources.clone());
        self.state.sync_pool(&start.node);
    }

    fn launch(&self, job: JobId, runs: Vec<Placement>) -> Launch {
        let job = self.job(job);
        Launch { job: job.id, user: job.user.clone(), spec: Arc::clone(&job.spec), array_len: job.len(), runs }
    }

    fn advance(&mut self, run: RunId, phase: Phase) {
        self.state.unconfirmed.remove(&run);
        let now = self.now;
        let id = run.task.job;
        self.state.change_job(id, |job| {
            let active = job.active.get_mut(&run.task.index).expect("the run is current");
            active.phase = active.phase.max(phase);
            if phase == Phase::Running {
                active.since = now.at;
                active.started_at = Some(now.wall);
                job.started_at = job.started_at.or(Some(now.wall));
            }
        });
        if phase == Phase::Running {
            self.settle_dependents(id);
        }
        self.notify(id);
    }

    fn end_run(&mut self, run: RunId, over: &RunOver) {
        let id = run.task.job;
        let index = run.task.index;
        let active = self.state.change_job(id, |job| job.active.remove(&index)).expect("the run is current");
        self.let_go(run, &active.node);
        let asked_again = active.ending == Some(EndCause::Requeued);
        let cancelled = active.ending == Some(EndCause::Cancelled);
        self.state.unconfirmed.remove(&run);
        let job_requeues = self.job(id).spec.requeue;
        let ending = match over.fate {
            Fate::Ended(_) if asked_again => None,
            Fate::Ended(ending) => Some(ending),
            Fate::Requeued | Fate::Lost if cancelled => Some(Ending { state: JobState::Cancelled, exit_code: None }),
            Fate::Requeued => None,
            Fate::Lost if job_requeues || asked_again => None,
            Fate::Lost => Some(Ending { state: JobState::NodeFail, exit_code: None }),
        };
        match ending {
            Some(ending) => self.end_task(&active, ending, over),
            None => self.state.change_job(id, |job| {
                job.attempts.insert(index, run.attempt);
                job.pending.insert(index);
            }),
        }
        self.job_changed(id);
    }

    fn end_task(&mut self, active: &Active, ending: Ending, over: &RunOver) {
        let run = active.run;
        let now = self.now;
        // A run so short that its start was never reported still has one.
        let ran = ending.exit_code.is_some();
        let started_at = active
            .started_at
            .or(ran.then(|| hostler_model::WallTime(now.wall.0 - i64::try_from(over.usage.wall_ms).unwrap_or(0))));
        self.changes.records.push(Record::Ended(EndedTask {
            job: run.task.job,
            index: run.task.index,
            attempt: run.attempt,
            ending,
            message: over.message.clone(),
            node: Some(active.node.clone()),
            started_at,
            ended_at: now.wall,
            result: over.result,
            usage: over.usage,
        }));
        self.state.change_job(run.task.job, |job| {
            job.endings.entry(ending).or_default().insert(run.task.index);
            if run.attempt.0 > 1 {
                job.attempts.insert(run.task.index, run.attempt);
            }
            if over.result.is_some() {
                job.results.insert(run.task.index);
            }
            job.started_at = job.started_at.or(started_at);
        });
    }

    /// Gives back what a run held and lets its agent remove it.
    fn let_go(&mut self, run: RunId, node: &NodeName) {
        let node = self.state.nodes.get_mut(node).expect("a run is on a known node");
        node.runs.remove(&run);
        let (name, connection) = (node.name.clone(), node.link.as_ref().map(|link| link.connection));
        self.state.sync_pool(&name);
        if let Some(connection) = connection {
            self.send(connection, HeadMessage::Forget { run });
        }
    }

    fn see_node(&mut self, name: &NodeName, boot: &BootId, resources: &Resources, advisory: &Advisory) {
        if self.state.nodes.contains_key(name) {
            self.state.change_node(name, |node| {
                node.boot = boot.clone();
                node.resources = resources.clone();
                node.advisory = advisory.clone();
                node.given_up = false;
            });
            return self.state.sync_pool(name);
        }
        let ix = self.state.next_ix();
        let node = Node {
            name: name.clone(),
            ix,
            boot: boot.clone(),
            resources: resources.clone(),
            advisory: advisory.clone(),
            runs: BTreeMap::new(),
            given_up: false,
            link: None,
            silence: Silence::Short,
            last_heard: self.now.at,
        };
        self.state.nodes.insert(name.clone(), node);
        self.state.enrol(name);
    }

    /// The agent holds what it lists; what was placed and is not among it never arrived and is sent again.
    fn connect(&mut self, name: &NodeName, link: Link, holds: &[RunId]) {
        let connection = link.connection;
        let now = self.now;
        let before = self.state.change_node(name, |node| {
            node.silence = Silence::Short;
            node.last_heard = now.at;
            node.link.replace(link)
        });
        if let Some(before) = before {
            self.state.connections.remove(&before.connection);
            self.changes.effects.push(Effect::Close { connection: before.connection });
        }
        let mine: BTreeSet<RunId> = self.state.nodes[name].runs.keys().copied().collect();
        let theirs: BTreeSet<RunId> = holds.iter().copied().collect();
        self.state.connections.insert(connection, name.clone());
        self.state.sync_pool(name);
        for &run in theirs.difference(&mine) {
            self.send(connection, HeadMessage::Forget { run });
        }
        let mut launches: BTreeMap<JobId, Vec<Placement>> = BTreeMap::new();
        for &run in mine.difference(&theirs) {
            self.state.unconfirmed.insert(run);
            let resources = self.state.nodes[name].runs[&run].clone();
            launches.entry(run.task.job).or_default().push(Placement { run, resources });
        }
        for (job, runs) in launches {
            let launch = self.launch(job, runs);
            self.send(connection, HeadMessage::Launch(launch));
        }
        for run in mine {
            self.send_end(run);
        }
        tell_accounts(self.state, connection, self.changes);
        self.notify_node(name);
    }

    fn disconnect(&mut self, connection: ConnectionId) {
        let Some(name) = self.state.connections.remove(&connection) else { return };
        let node = self.state.nodes.get_mut(&name).expect("a connection is a known node's");
        if node.link.as_ref().is_some_and(|link| link.connection == connection) {
            node.link = None;
            self.state.sync_pool(&name);
            self.notify_node(&name);
        }
    }

    fn hear(&mut self, connection: ConnectionId) {
        let Some(name) = self.state.connections.get(&connection).cloned() else { return };
        let now = self.now;
        self.state.change_node(&name, |node| node.last_heard = now.at);
    }

    fn mark_silent(&mut self, name: &NodeName) {
        let noticed = Timestamp(self.now.at.0.saturating_sub(self.state.settings.suspect_after_ms));
        let link = self.state.change_node(name, |node| {
            node.silence = Silence::Suspect;
            // A head that itself stood still noticed late: its agents get the time to come back that they would have had.
            node.last_heard = node.last_heard.max(noticed);
            node.link.take()
        });
        if let Some(link) = link {
            self.state.connections.remove(&link.connection);
            self.changes.effects.push(Effect::Close { connection: link.connection });
        }
        self.state.sync_pool(name);
        self.notify_node(name);
    }

    /// Its link was closed when it became suspect, and what can run again elsewhere follows as events of its own.
    fn mark_down(&mut self, name: &NodeName) {
        self.state.change_node(name, |node| node.silence = Silence::Down);
        self.notify_node(name);
    }

    fn give_up_node(&mut self, name: &NodeName) {
        let runs: Vec<RunId> = self.state.change_node(name, |node| {
            node.given_up = true;
            node.runs.keys().copied().collect()
        });
        self.state.sync_pool(name);
        let message = format!("node {name} was not heard of for too long");
        for run in runs {
            let over =
                RunOver { fate: Fate::Lost, message: Some(message.clone()), result: None, usage: Usage::default() };
            self.end_run(run, &over);
        }
        self.notify_node(name);
    }

    fn forget(&mut self, jobs: &[JobId]) {
        for &job in jobs {
            self.state.remove_job(job);
            self.changes.records.push(Record::Forgotten(job));
        }
    }

    /// After a task started, ended or waits again: times, whoever depends on the job, and whoever watches.
    fn job_changed(&mut self, id: JobId) {
        let now = self.now;
        if self.job(id).is_ended() && self.job(id).ended.is_none() {
            self.state.change_job(id, |job| {
                job.ended_at = Some(now.wall);
                job.ended = Some(now.at);
            });
        }
        self.settle_dependents(id);
        self.notify(id);
    }

    /// Looks again at every job that depends on this one.
    fn settle_dependents(&mut self, id: JobId) {
        let Some(dependents) = self.state.dependents.get(&id).cloned() else { return };
        dependents.into_iter().for_each(|dependent| self.settle_dependencies(dependent));
    }

    /// Drops the dependencies of a job that are satisfied; cancels it when one never can be.
    fn settle_dependencies(&mut self, id: JobId) {
        let job = Arc::clone(self.job(id));
        let mut unmet = Vec::new();
        let mut broken = None;
        for dependency in &job.unmet {
            match standing(dependency, self.state.job(dependency.job)) {
                Standing::Satisfied => {}
                Standing::Open => unmet.push(*dependency),
                Standing::Never => broken = Some(*dependency),
            }
        }
        if unmet.len() != job.unmet.len() {
            self.state.set_unmet(id, unmet);
        }
        if let Some(dependency) = broken {
            let state = self.state.job(dependency.job).map_or("gone", |job| job.state().as_str());
            let message = format!("job {} is {state}, so {dependency} can never be satisfied", dependency.job);
            self.cancel_pending(id, None, Some(&message));
            self.job_changed(id);
        }
    }

    fn job(&self, id: JobId) -> &Arc<Job> {
        self.state.job(id).expect("the event was decided for a job that exists")
    }

    fn send(&mut self, connection: ConnectionId, message: HeadMessage) {
        self.changes.effects.push(Effect::Send { connection, message });
    }

    /// Tells a run's agent to end it, if it is to be ended and the agent is connected.
    fn send_end(&mut self, run: RunId) {
        let Some(active) = self.state.active(run) else { return };
        let (Some(cause), Some(link)) = (active.ending, &self.state.nodes[&active.node].link) else { return };
        let connection = link.connection;
        let grace_ms = self.job(run.task.job).spec.grace_ms.unwrap_or(self.state.settings.grace_ms);
        self.send(connection, HeadMessage::End { run, cause, grace_ms });
    }

    fn notify(&mut self, id: JobId) {
        let state = self.job(id).state();
        self.changes.effects.push(Effect::Notify(Notice::Job { id, state }));
    }

    fn notify_node(&mut self, name: &NodeName) {
        let state = self.state.nodes[name].state();
        self.changes.effects.push(Effect::Notify(Notice::Node { name: name.clone(), state }));
    }
}

/// Where a dependency stands.
enum Standing {
    Satisfied,
    Open,
    Never,
}

/// Judges a dependency by the job it is on; a job that was dropped long ago has ended, nobody knows how.
fn standing(dependency: &Dependency, on: Option<&Arc<Job>>) -> Standing {
    let Some(job) = on else {
        return match dependency.condition {
            Condition::After | Condition::AfterAny => Standing::Satisfied,
            Condition::AfterOk | Condition::AfterNotOk => Standing::Never,
        };
    };
    let ended = job.is_ended();
    let verdict = |satisfied: bool| match (ended, satisfied) {
        (false, _) => Standing::Open,
        (true, true) => Standing::Satisfied,
        (true, false) => Standing::Never,
    };
    match dependency.condition {
        Condition::After => {
            let started = job.pending.is_empty() && job.active.values().all(|active| active.phase >= Phase::Running);
            if started { Standing::Satisfied } else { Standing::Open }
        }
        Condition::AfterAny => verdict(true),
        Condition::AfterOk => verdict(job.state() == JobState::Completed),
        Condition::AfterNotOk => verdict(job.state() != JobState::Completed),
    }
}
