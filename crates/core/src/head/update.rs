//! Applies events to the head's state. Nothing else changes it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hostler_model::{
    Dependency, Ending, IndexSet, JobId, JobOccasion, JobState, NodeName, RunId, TaskId, Timestamp, WallTime,
};
use hostler_proto::link::{EndCause, Fate, HeadMessage, RunEnd, Usage};
use hostler_proto::record::EndedTask;
use hostler_proto::stages::Stages;

use super::event::{Changes, Effect, Event, Record, Stamped, TaskChange};
use super::ids::ConnectionId;
use super::jobs::dependencies::{Other, PastJobs, Standing, standing};
use super::jobs::job::{Job, KeptFiles, Phase};
use super::nodes::member::Key;
use super::nodes::node::{Drain, Link, Node, Silence};
use super::nodes::partitions::update_partitions;
use super::power::update_power;
use super::settings::{SetBy, Setting, SettingValue};
use super::state::State;
use super::step::Step;
use super::users::changes::{send_accounts, send_accounts_to_all, update_users};

/// The largest number of rows for waiting tasks that a user has cancelled together.
const MOST_NAMED_ROWS: usize = 1_000;

/// Applies one event to the state and adds its consequences to `changes`.
///
/// # Panics
/// When the event contradicts the state: it was decided for another state, or the log is damaged.
pub fn update(state: &mut State, stamped: &Stamped, changes: &mut Changes) {
    let now = stamped.now;
    state.last_event_at = state.last_event_at.max(now.at);
    state.last_event_wall = now.wall;
    let mut step = Step { state, now, changes, moved: Vec::new(), dependents: None };
    match &stamped.event {
        Event::EpochStarted { epoch, owner } => {
            step.state.owner = *owner;
            step.start_epoch(*epoch);
        }
        Event::Submitted { job, key, user, uid, spec, environment, after, past } => {
            let new = Job { environment: *environment, ..Job::new(*job, *key, (user, *uid), spec, now) };
            step.submit(new, PastJobs { states: after, facts: past });
        }
        Event::Cancelled { job, index } => step.cancel(*job, index.map(IndexSet::one).as_ref()),
        Event::TasksCancelled { job, indices } => step.cancel(*job, Some(indices)),
        Event::Held { job, index, by_operator } => {
            // A requeue before it may have ended the job at once, because a dependency can never be satisfied.
            if step.state.job(*job).is_some() {
                step.state.change_job(*job, |job| job.hold(*index, *by_operator));
            }
        }
        Event::Released { job, index, keeps_operators, ended } => {
            step.recall(ended.as_ref());
            step.state.change_job(*job, |job| job.release(*index, *keeps_operators));
        }
        Event::Requeued { job, index, keeps_completed, waits_for, files, ended } => {
            step.recall(ended.as_ref());
            step.keep_files(*job, *index, files.as_deref());
            if !waits_for.is_empty() {
                step.state.wait_for(*job, waits_for);
            } else if ended.as_ref().is_some_and(|job| job.spec.has_alternatives()) {
                // One of them was satisfied.
                step.state.set_unmet(*job, Box::default(), Vec::new());
                step.state.change_job(*job, |job| job.partly_met = None);
            }
            step.requeue(*job, *index, *keeps_completed);
        }
        Event::JobChanged { job, spec, after, past } => {
            step.change(*job, spec, PastJobs { states: after, facts: past });
        }
        Event::Placed { starts } => step.place(starts),
        Event::Accepted { run, rank } => step.advance(*run, *rank, Phase::Accepted, 0),
        Event::Staged { run, rank } => step.advance(*run, *rank, Phase::Staged, 0),
        Event::Ready { run, rank, port, endpoint } => step.get_ready(*run, *rank, *port, *endpoint),
        Event::Running { run, rank, ago_ms } => step.advance(*run, *rank, Phase::Running, *ago_ms),
        Event::Completing { run, rank, ago_ms } => step.advance(*run, *rank, Phase::Completing, *ago_ms),
        Event::Ended { run, rank, end } => step.end_part(*run, *rank, end.clone()),
        Event::NodeSeen { node, facts } => {
            step.state.peers.seen(step.state.nodes.get(node), facts, now.at);
            step.see_node(node, |node| {
                node.facts = (**facts).clone();
                (node.given_up, node.silent_since) = (false, None);
            });
        }
        Event::PeersTold => notify_peers(step.state, step.changes),
        Event::NodeGivenUp { node, silent_since } => step.give_up_node(node, *silent_since),
        Event::NodeReported { node, is_down } => step.report_node(node, *is_down),
        Event::BeginTimeCame { job } => step.come_to_time(*job),
        Event::WaitedLong { job } => step.report_long_wait(*job),
        Event::AlertRaised { alert, text } => step.change_alert(*alert, Some(text)),
        Event::AlertEnded { alert } => step.change_alert(*alert, None),
        Event::NodeForgotten { node } => step.state.remove_node(node, now.at),
        Event::NodeDrained { node, by, reason } => {
            step.set_drain(node, Some(Drain { by: by.clone(), reason: reason.clone(), at: now.wall }));
        }
        Event::NodeResumed { node } => step.resume(node),
        Event::UnknownRuns { node, runs } => {
            step.state.change_node(node, |node| node.unknown_runs.clone_from(runs));
        }
        Event::NodeRemoved { node, by } => step.remove_member(node, by),
        Event::NodeJoined { node, key, life_ms } => step.join(node, *key, *life_ms),
        Event::KeyRenewed { node, key, life_ms } => {
            step.state.renew_key(node, Key { key: *key, issued_at: now.at, life_ms: *life_ms });
        }
        Event::KeyUsed { node } => step.state.use_key(node),
        Event::Fetched { job, indices, ended } => {
            step.recall(ended.as_ref());
            step.state.change_job(*job, |job| job.fetched.add_all(indices));
        }
        Event::EarlierFetched { job, attempt, indices, ended } => {
            step.recall(ended.as_ref());
            let rows = indices.iter().map(|index| TaskId { job: *job, index });
            step.changes.records.extend(rows.map(|task| Record::EarlierFetched(task, *attempt)));
            step.state.change_job(*job, |job| job.drop_earlier(*attempt, indices));
        }
        Event::ResultsDropped { job, indices, ended } => {
            step.recall(ended.as_ref());
            step.state.change_job(*job, |job| {
                indices.iter().for_each(|index| {
                    job.results.remove(index);
                });
            });
        }
        Event::NumbersSkipped { last } => step.state.skip_numbers(*last),
        Event::Forgotten { jobs, unfetched } => step.forget(jobs, unfetched),
        Event::SettingChanged { setting, value, by } => step.change_setting(*setting, *value, by),
        Event::Users(event) => update_users(step.state, event, now, step.changes),
        Event::Partitions(event) => update_partitions(step.state, event, now.at),
        Event::Power(event) => update_power(&mut step, event),
        Event::Connected { node, connection, pid, version, holds } => {
            step.connect(
                node,
                Link { connection: *connection, pid: *pid, version: version.clone(), since: now.wall },
                holds,
            );
        }
        Event::Disconnected { connection } => step.disconnect(*connection),
        Event::Heard { connection } => step.hear(*connection),
        Event::Silent { node } => step.mark_silent(node),
        Event::Down { node } => step.mark_down(node),
    }
    step.archive_ended_jobs();
}

impl Step<'_> {
    fn start_epoch(&mut self, epoch: hostler_model::Epoch) {
        self.state.epoch = epoch;
        self.state.power.begin_epoch(epoch);
        self.state.unconfirmed.clear();
        self.state.connections.clear();
        let names: Vec<NodeName> = self.state.nodes.keys().cloned().collect();
        for name in &names {
            self.state.change_node(name, |node| {
                node.link = None;
                node.newest_connection = None;
                node.silence = Silence::Short;
                node.last_heard = self.now.at;
                node.is_awaited = true;
            });
            self.state.sync_pool(name);
        }
    }

    fn submit(&mut self, job: Job, past: PastJobs<'_>) {
        let id = job.id;
        if let Some(digest) = job.environment {
            self.changes.records.push(Record::Environment { job: id, digest });
        }
        let tasks = job.pending.len();
        self.state.insert_job(job);
        self.count(id, TaskChange::Submitted { tasks });
        self.settle_dependencies(id, past);
        self.notify(id);
    }

    /// Puts an ended job back into the state while the event is applied. If the job is live afterwards, it stays in the
    /// state.
    fn recall(&mut self, ended: Option<&Arc<Job>>) {
        let Some(job) = ended else { return };
        let mut job = Arc::clone(job);
        // Dependencies that ended meanwhile were settled, or the job was cancelled and the user wants to run it regardless.
        let is_open = |it: &&Dependency| {
            self.state.job(it.job).is_some_and(|on| standing(it, Other::Known(on), self.now.at) != Standing::Never)
        };
        let unmet: Box<[Dependency]> = job.unmet.iter().filter(is_open).copied().collect();
        if unmet.len() != job.unmet.len() {
            Arc::make_mut(&mut job).unmet = unmet;
        }
        self.moved.push(job.id);
        self.state.add_to_state(job);
    }

    /// Moves ended jobs from the state to the store, and deletes requeued jobs from the store.
    fn archive_ended_jobs(&mut self) {
        for id in std::mem::take(&mut self.moved) {
            match self.state.job(id) {
                Some(job) if job.is_ended() => {
                    let mut job = self.state.remove_job(id).expect("the job was found in the state");
                    let ended = Arc::make_mut(&mut job);
                    ended.drop_environment_if_completed();
                    ended.kept_files = None;
                    self.changes.records.push(Record::JobEnded(job));
                }
                Some(_) => self.changes.records.push(Record::JobReopened(id)),
                None => {}
            }
        }
    }

    /// Cancels a job or some of its tasks: ends waiting tasks at once, and tells the agents to end placed tasks.
    fn cancel(&mut self, id: JobId, tasks: Option<&IndexSet>) {
        let pending = &self.job(id).pending;
        let gone = tasks.map_or_else(|| pending.clone(), |tasks| tasks.intersection(pending));
        self.cancel_tasks(id, &gone, tasks.is_some(), None);
        self.end_active(id, tasks, EndCause::Cancelled);
        self.job_changed(id, &gone);
    }

    /// Cancels waiting tasks. `are_named`: a user has named these tasks, and not the job. The message says why they were cancelled.
    pub(super) fn cancel_tasks(&mut self, id: JobId, gone: &IndexSet, are_named: bool, message: Option<&str>) {
        let ending = Ending { state: JobState::Cancelled, exit_code: None };
        if gone.is_empty() {
            return;
        }
        let is_array = self.job(id).spec.array.is_some();
        self.count(id, TaskChange::Ended { state: ending.state, tasks: gone.len() });
        // Write a row only if it adds information: a cancelled array of a million tasks must not write a million rows. The message in
        // the first row applies to all tasks without a row, so tasks that were named need their own rows.
        let rows = match message {
            Some(_) => 1,
            None if are_named && is_array => MOST_NAMED_ROWS,
            None => 0,
        };
        for index in gone.iter().take(rows) {
            self.changes.records.push(Record::Ended(Box::new(EndedTask {
                job: id,
                index,
                attempt: hostler_model::Attempt(0),
                ending,
                message: message.map(str::to_owned),
                node: None,
                started_at: None,
                ended_at: self.now.wall,
                stages: Stages::default(),
                result: None,
                usage: Usage::default(),
                steps: Vec::new(),
                certificate: None,
                parts: Vec::new(),
            })));
        }
        let now = self.now;
        self.state.change_job(id, |job| {
            job.no_longer_wait(gone);
            job.ended_at = job.ended_at.max(Some(now.wall));
            job.endings.entry(ending).or_default().add_all(gone);
        });
    }

    /// Tells the agents to end a job's placed tasks. A later cause replaces an earlier one, e.g. cancel after requeue.
    fn end_active(&mut self, id: JobId, tasks: Option<&IndexSet>, cause: EndCause) {
        let runs: Vec<RunId> = self
            .job(id)
            .active
            .values()
            .filter(|active| {
                active.ending != Some(cause) && tasks.is_none_or(|tasks| tasks.contains(active.run.task.index))
            })
            .map(|active| active.run)
            .collect();
        for run in runs {
            self.state.change_job(id, |job| {
                job.active.get_mut(&run.task.index).expect("just listed").ending = Some(cause);
            });
            self.send_end(run);
        }
    }

    /// Requeues a job or one task: ends placed tasks, and makes ended tasks wait again. With `keeps_completed`, completed
    /// tasks do not change.
    fn requeue(&mut self, id: JobId, index: Option<u32>, keeps_completed: bool) {
        self.end_active(id, index.map(IndexSet::one).as_ref(), EndCause::Requeued);
        let job = Arc::clone(self.job(id));
        let mut again = IndexSet::default();
        for (ending, indices) in &job.endings {
            if !keeps_completed || ending.state != JobState::Completed {
                let named = index.map_or_else(|| indices.clone(), |index| IndexSet::one(index).intersection(indices));
                again.add_all(&named);
            }
        }
        if !again.is_empty() {
            // The results of this attempt stay until they are fetched.
            let kept: IndexSet = job.unfetched_results().filter(|index| again.contains(*index)).collect();
            self.changes.records.extend(again.iter().map(|index| match kept.contains(index) {
                true => Record::SetAside(job.task(index)),
                false => Record::Reopened(job.task(index)),
            }));
            let was_over = job.is_ended();
            drop(job);
            self.state.change_job(id, |job| {
                if was_over && !job.held_by_operator {
                    // The hold was on a job that has ended meanwhile, e.g. because it was cancelled.
                    job.release(None, true);
                }
                job.reopen(&again);
                kept.iter().for_each(|index| job.keep_earlier(job.last_attempt(index), index));
                job.results.remove_all(&again);
                job.fetched.remove_all(&again);
                for index in again.iter() {
                    // The state no longer knows whether the task was placed before, and a lost run may still be active
                    // somewhere. So the next run must have another id.
                    job.attempts.entry(index).or_insert(hostler_model::Attempt(1));
                }
                job.wait_again(&again);
                (job.ended_at, job.ended) = (None, None);
            });
        }
        self.wait_again_for_others(id, &again);
        self.notify(id);
    }

    /// Notes with which files the next attempts of tasks start that are about to be requeued. A task that ended without a result
    /// starts with the same files again.
    fn keep_files(&mut self, id: JobId, index: Option<u32>, files: Option<&KeptFiles>) {
        self.state.change_job(id, |job| {
            let is_requeued = |task: u32, job: &Job| index.is_none_or(|it| it == task) && !job.pending.contains(task);
            let mut kept = job.kept_files.take().unwrap_or_default();
            match files {
                Some(files) => kept.extend(files.clone()),
                None => kept.retain(|task, _| !is_requeued(*task, job)),
            }
            job.kept_files = Some(kept).filter(|kept| !kept.is_empty());
            let active = job.active.values_mut().filter(|active| index.is_none_or(|it| it == active.run.task.index));
            active.for_each(|active| active.keeps_files = files.is_some());
        });
    }

    pub(super) fn see_node(&mut self, name: &NodeName, note: impl FnOnce(&mut Node)) {
        self.state.partitions.forget_sets();
        if self.state.nodes.contains_key(name) {
            self.state.change_node(name, note);
            return self.state.sync_pool(name);
        }
        let mut node = Node::new(name.clone(), self.state.next_ix(), self.now.at);
        note(&mut node);
        self.state.nodes.insert(name.clone(), node);
        self.state.enrol(name);
    }

    /// Records an agent's connection and compares the agent's runs with the state. Tells the agent to forget unknown
    /// runs, and sends missing launches again.
    fn connect(&mut self, name: &NodeName, link: Link, holds: &[RunId]) {
        let connection = link.connection;
        let now = self.now;
        let before = self.state.change_node(name, |node| {
            node.silence = Silence::Short;
            node.last_heard = now.at;
            node.is_awaited = false;
            node.newest_connection = Some(connection);
            node.link.replace(link)
        });
        if let Some(before) = before {
            self.state.connections.remove(&before.connection);
            self.close(before.connection, "a newer connection of this node has replaced this one");
        }
        let mine: BTreeSet<RunId> = self.state.nodes[name].runs.keys().copied().collect();
        let theirs: BTreeSet<RunId> = holds.iter().copied().collect();
        self.state.connections.insert(connection, name.clone());
        self.state.sync_pool(name);
        // Before the launches, because the agent checks their users.
        send_accounts(self.state, connection, self.changes);
        let node = &self.state.nodes[name];
        let is_kept = |run: &&RunId| node.drain.is_some() && node.unknown_runs.contains(run);
        for run in theirs.difference(&mine).filter(|run| !is_kept(run)).copied().collect::<Vec<_>>() {
            self.send(connection, HeadMessage::Forget { run });
        }
        let mut launches: BTreeMap<JobId, Vec<(RunId, u32)>> = BTreeMap::new();
        for (run, rank) in mine.difference(&theirs).filter_map(|run| self.state.part_on(name, *run)) {
            launches.entry(run.task.job).or_default().push((run, rank));
        }
        for (job, parts) in launches {
            self.state.unconfirmed.extend(&parts);
            self.launch(connection, job, &parts);
        }
        for (run, rank) in mine.into_iter().filter_map(|run| self.state.part_on(name, run)).collect::<Vec<_>>() {
            self.send_limit_to(run, rank);
            self.send_end_to(run, rank);
        }
        self.tell_power(name);
        self.notify_node(name);
    }

    /// Ends the drain of a node. Its agent ends the runs of jobs that this head does not know, and removes their files; an
    /// agent that is not connected does so after its next hello.
    fn resume(&mut self, name: &NodeName) {
        self.set_drain(name, None);
        let node = &self.state.nodes[name];
        let Some(connection) = node.link.as_ref().map(|link| link.connection) else { return };
        for run in node.unknown_runs.clone() {
            self.send(connection, HeadMessage::Forget { run });
        }
    }

    fn disconnect(&mut self, connection: ConnectionId) {
        let Some(name) = self.state.connections.remove(&connection) else { return };
        let node = self.state.nodes.get_mut(&name).expect("every connection belongs to a known node");
        if node.link.as_ref().is_some_and(|link| link.connection == connection) {
            node.link = None;
            self.state.sync_pool(&name);
            self.request_power_status(&name);
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
            // If the head itself was stopped and notices late, its agents still get the full time to reconnect.
            node.last_heard = node.last_heard.max(noticed);
            node.link.take()
        });
        if let Some(link) = link {
            self.state.connections.remove(&link.connection);
            self.close(link.connection, "this node was silent for too long");
        }
        self.state.sync_pool(name);
        self.notify_node(name);
    }

    /// Marks a node as down. The node's connection was closed before. Separate events move runs to other nodes.
    fn mark_down(&mut self, name: &NodeName) {
        let noticed = Timestamp(self.now.at.0.saturating_sub(self.state.settings.down_after_ms));
        self.state.change_node(name, |node| {
            node.silence = Silence::Down;
            // A head that was stopped gives its agents time, as in `mark_silent`.
            node.last_heard = node.last_heard.max(noticed);
        });
        self.notify_node(name);
    }

    fn give_up_node(&mut self, name: &NodeName, silent_since: WallTime) {
        self.state.change_node(name, |node| {
            node.given_up = true;
            node.silent_since = Some(silent_since);
        });
        self.state.sync_pool(name);
        self.lose_runs(name, &format!("node {name} was silent for too long"));
        self.notify_node(name);
    }

    /// Gives up every run on a node.
    pub(super) fn lose_runs(&mut self, name: &NodeName, message: &str) {
        let runs: Vec<RunId> = self.state.nodes[name].runs.keys().copied().collect();
        for (run, rank) in runs.into_iter().filter_map(|run| self.state.part_on(name, run)).collect::<Vec<_>>() {
            let message = Some(message.to_owned());
            self.end_part(run, rank, RunEnd::without_result(Fate::Lost, message));
        }
    }

    pub(super) fn close(&mut self, connection: ConnectionId, reason: &str) {
        self.changes.effects.push(Effect::Close { connection, reason: reason.to_owned() });
    }

    fn forget(&mut self, jobs: &[JobId], unfetched: &BTreeMap<JobId, String>) {
        for &job in jobs {
            self.state.remove_job(job);
            self.changes.records.push(Record::Forgotten(job));
        }
        for (&job, user) in unfetched {
            self.state.remember_deleted(job, user.clone(), self.now.wall);
        }
    }

    /// Changes a setting. A change of the heartbeat interval closes all connections, because agents learn the interval
    /// in the hello.
    fn change_setting(&mut self, setting: Setting, value: Option<SettingValue>, by: &str) {
        let heartbeat_ms = self.state.settings.heartbeat_ms;
        self.state.change_settings(setting, value);
        match value {
            Some(_) => self.state.set_by.insert(setting, SetBy { user: by.to_owned(), at: self.now.wall }),
            None => self.state.set_by.remove(&setting),
        };
        if matches!(setting, Setting::RolesThroughNodes | Setting::SystemAccounts) {
            send_accounts_to_all(self.state, self.changes);
        }
        if self.state.settings.heartbeat_ms < heartbeat_ms {
            let connections: Vec<ConnectionId> = self.state.connections.keys().copied().collect();
            for connection in connections {
                self.close(
                    connection,
                    "the heartbeat interval has changed: the agent must reconnect to get the new one",
                );
                self.disconnect(connection);
            }
        }
    }

    /// Handles the time at which a job may start, or at which a delay of its dependencies ends.
    fn come_to_time(&mut self, id: JobId) {
        // An earlier event of the same moment may have ended the job.
        if self.state.job(id).is_some() {
            let now = self.now.wall;
            self.state
                .change_job(id, |job| job.too_early &= job.spec.begin.as_ref().is_some_and(|begin| **begin > now));
            self.settle_dependencies(id, PastJobs::default());
        }
    }

    /// Handles tasks that started, ended or wait again: sets times, checks dependents, and notifies clients.
    pub(super) fn job_changed(&mut self, id: JobId, tasks: &IndexSet) {
        let now = self.now;
        if self.job(id).is_ended() && self.job(id).ended.is_none() {
            self.state.change_job(id, |job| {
                job.ended = Some(now.at);
            });
            self.state.set_wait_limit(id, None);
            self.tell_owner(id, JobOccasion::End);
            self.moved.push(id);
        }
        self.settle_dependents(id, tasks);
        self.notify(id);
    }
}

/// Notifies all connected nodes that gossip.
fn notify_peers(state: &mut State, changes: &mut Changes) {
    state.peers.due = None;
    let links =
        state.nodes.values().filter(|node| node.facts.gossip_at.is_some()).filter_map(|node| node.link.as_ref());
    let tell = |link: &Link| Effect::Send { connection: link.connection, message: HeadMessage::PeersChanged };
    changes.effects.extend(links.map(tell));
}
