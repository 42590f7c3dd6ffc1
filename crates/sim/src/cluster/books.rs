//! The checkers: independent accounts of durable events, of answers to users and of processes.
//!
//! The accounts use the head's state for comparison only. Only a durable event, an answer to a user, or the start or
//! end of a process changes an account.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hostler_core::agent::Why;
use hostler_core::head::{Changes, Event, Record, Settings, Stamped, Start, State, SubmissionKey, update};
use hostler_model::{
    Digest, Epoch, IndexSet, JobId, JobSpec, JobState, NodeName, Request, Resources, RunId, TaskId, Timestamp,
};
use hostler_proto::link::Fate;
use hostler_proto::record::EndedTask;

use super::disk::{Disk, empty_state};
use super::quotas::Allowance;

mod account;
mod checks;
mod past;
pub(super) mod places;
mod processes;

use self::account::{Broken, JobAccount, PartAccount, Past, Standing, TaskAccount};
use self::places::Places;

pub(super) struct Books {
    /// The first violation.
    wrong: Option<String>,
    nodes: BTreeMap<NodeName, Resources>,
    names: Vec<NodeName>,
    jobs: BTreeMap<JobId, JobAccount>,
    keys: BTreeMap<SubmissionKey, JobId>,
    acknowledged: BTreeMap<SubmissionKey, JobId>,
    /// Every run that was ever placed.
    placed: BTreeSet<RunId>,
    /// The processes, by run and node.
    processes: BTreeMap<(RunId, usize), Process>,
    /// Nodes that an operator has drained.
    pub(super) drained: BTreeSet<NodeName>,
    /// Nodes that are shutting down, and whether the head may order their controllers to switch them off.
    pub(super) leaving: BTreeMap<NodeName, bool>,
    allowance: Allowance,
    pub(super) places: Places,
    retention_ms: u64,
    /// The epoch of the current or last head.
    epoch: Epoch,
    /// The time in the simulated world at which the last event reached the disk.
    in_world: Timestamp,
    /// The state that follows from the durable events alone, without any restart.
    fold: State,
    events: u64,
}

/// A run's process, on its node.
struct Process {
    resources: Resources,
    is_alive: bool,
    /// How the process ended, according to its exit record.
    exit: Option<Why>,
}

impl Books {
    pub(super) fn new(nodes: Vec<(NodeName, Resources)>, settings: &Settings) -> Self {
        Self {
            wrong: None,
            names: nodes.iter().map(|(name, _)| name.clone()).collect(),
            nodes: nodes.into_iter().collect(),
            jobs: BTreeMap::new(),
            keys: BTreeMap::new(),
            acknowledged: BTreeMap::new(),
            placed: BTreeSet::new(),
            processes: BTreeMap::new(),
            drained: BTreeSet::new(),
            leaving: BTreeMap::new(),
            allowance: Allowance::default(),
            places: Places::default(),
            retention_ms: settings.retention_ms,
            epoch: Epoch(0),
            in_world: Timestamp(0),
            fold: empty_state(settings),
            events: 0,
        }
    }

    /// Records a violation; only the first is kept.
    pub(super) fn record_violation(&mut self, what: String) {
        self.wrong.get_or_insert(what);
    }

    pub(super) fn take_wrong(&mut self) -> Option<String> {
        self.wrong.take()
    }

    pub(super) fn expect(&mut self, holds: bool, otherwise: impl FnOnce() -> String) {
        if !holds {
            self.record_violation(otherwise());
        }
    }

    pub(super) fn jobs(&self) -> u64 {
        self.jobs.len() as u64
    }

    pub(super) fn processes(&self) -> u64 {
        self.processes.len() as u64
    }

    pub(super) fn events(&self) -> u64 {
        self.events
    }
}

/// Checks of durable events.
impl Books {
    /// Accounts for an event that is on the disk.
    pub(super) fn see(&mut self, stamped: &Stamped, disk: &Disk, in_world: Timestamp) {
        self.events += 1;
        self.in_world = in_world;
        let mut changes = Changes::default();
        update(&mut self.fold, stamped, &mut changes);
        let records = &changes.records;
        match &stamped.event {
            Event::Submitted { job, key, spec, .. } => self.see_submission(*job, *key, spec, stamped.now.at),
            Event::Cancelled { job, index } => self.see_cancel(*job, |task| index.is_none_or(|index| index == task)),
            Event::TasksCancelled { job, indices } => self.see_cancel(*job, |task| indices.contains(task)),
            Event::Held { job, index, .. } => self.account(*job).hold(*index),
            Event::Released { job, index, .. } => self.account(*job).release(*index),
            Event::Requeued { job, index, keeps_completed, .. } => {
                self.see_requeue(*job, *index, *keeps_completed, records);
            }
            Event::JobChanged { job, spec, .. } => self.account(*job).spec = Arc::clone(spec),
            Event::Placed { starts } => {
                starts
                    .chunk_by(|one, next| one.run == next.run)
                    .for_each(|parts| self.see_placement(parts, stamped.now.at));
            }
            Event::Accepted { run, rank } | Event::Staged { run, rank } => self.see_progress(*run, *rank, |_| {}),
            Event::Ready { run, rank, .. } => self.see_progress(*run, *rank, |part| part.is_ready = true),
            Event::Running { run, rank, .. } | Event::Completing { run, rank, .. } => {
                self.see_progress(*run, *rank, |part| part.has_run = true);
            }
            Event::Ended { run, rank, end } => self.see_end(*run, *rank, end.fate, records),
            Event::NodeGivenUp { node, .. } => self.see_node_given_up(node, records),
            Event::Forgotten { jobs, .. } => jobs.iter().for_each(|job| self.see_forgotten(*job, stamped.now.at)),
            Event::NodeForgotten { node } => {
                self.note_resumed(node);
                let held = self.held_on(node);
                self.expect(held == Resources::default(), || {
                    format!("{node} is forgotten while {held:?} is held there")
                });
            }
            Event::Fetched { job, indices, .. } => indices.iter().for_each(|index| self.see_fetched(*job, index)),
            Event::ResultsDropped { job, indices, .. } => {
                indices.iter().for_each(|index| self.see_dropped(*job, index));
            }
            Event::EpochStarted { epoch, .. } => self.epoch = *epoch,
            Event::Users(event) => self.allowance.see(event),
            Event::Partitions(event) => self.places.see(event),
            Event::NodeDrained { node, .. } => self.note_drained(node),
            Event::Power(event) => self.see_power(event),
            Event::NodeResumed { node } => self.note_resumed(node),
            Event::NodeRemoved { node, .. } => self.see_node_removed(node, records),
            Event::NodeSeen { .. }
            | Event::EarlierFetched { .. }
            | Event::SettingChanged { .. }
            | Event::NodeJoined { .. }
            | Event::NumbersSkipped { .. }
            | Event::UnknownRuns { .. }
            | Event::KeyRenewed { .. }
            | Event::KeyUsed { .. }
            | Event::NodeReported { .. }
            | Event::BeginTimeCame { .. }
            | Event::WaitedLong { .. }
            | Event::AlertRaised { .. }
            | Event::AlertEnded { .. } => {}
            Event::Connected { .. }
            | Event::Disconnected { .. }
            | Event::Heard { .. }
            | Event::Silent { .. }
            | Event::PeersTold
            | Event::Down { .. } => {
                self.record_violation("a transient event was stored".to_owned());
            }
        }
        for record in records {
            self.see_record(record, disk);
        }
        self.note_progress(stamped.now.at);
    }

    fn account(&mut self, job: JobId) -> &mut JobAccount {
        self.jobs.get_mut(&job).expect("events refer to submitted jobs")
    }

    fn task(&mut self, task: TaskId) -> &mut TaskAccount {
        self.account(task.job).tasks.get_mut(&task.index).expect("events refer to existing tasks")
    }

    fn see_submission(&mut self, job: JobId, key: SubmissionKey, spec: &Arc<JobSpec>, submitted_at: Timestamp) {
        let earlier = self.keys.insert(key, job);
        let is_known = earlier.is_some_and(|earlier| !self.jobs[&earlier].is_forgotten);
        self.expect(!is_known, || format!("invariant I1: the submission of job {job} made job {earlier:?} before"));
        self.expect(!self.jobs.contains_key(&job), || format!("invariant I1: job id {job} is used twice"));
        let indices = spec.array.as_ref().map_or_else(|| IndexSet::one(0), |array| array.indices.clone());
        let task = TaskAccount {
            at: Standing::Waiting,
            is_cancelled: false,
            is_asked_again: false,
            is_fetched: false,
            is_dropped: false,
            past: Past::default(),
        };
        let account = JobAccount {
            spec: Arc::clone(spec),
            submitted: Arc::clone(spec),
            tasks: indices.iter().map(|index| (index, task.clone())).collect(),
            is_held: spec.hold,
            named_holds: BTreeMap::new(),
            is_forgotten: false,
            was_requeued: false,
            submitted_at,
            ended_at: None,
            past: Past::default(),
        };
        self.jobs.insert(job, account);
    }

    fn see_cancel(&mut self, job: JobId, is_named: impl Fn(u32) -> bool) {
        for (_, task) in self.account(job).tasks.iter_mut().filter(|(at, _)| is_named(**at)) {
            match task.at {
                Standing::Waiting => task.at = Standing::Ended { state: JobState::Cancelled, result: None },
                Standing::Placed { .. } => {
                    task.is_cancelled = true;
                    task.is_asked_again = false;
                }
                Standing::Ended { .. } => {}
            }
        }
    }

    fn see_requeue(&mut self, job: JobId, index: Option<u32>, keeps_completed: bool, records: &[Record]) {
        let is_kept = |task: &TaskAccount| {
            keeps_completed && matches!(task.at, Standing::Ended { state: JobState::Completed, .. })
        };
        for record in records {
            if let Record::Reopened(reopened) = record {
                let is_lost = is_kept(self.task(*reopened));
                let account = self.task(*reopened);
                let has_result = matches!(account.at, Standing::Ended { result: Some(_), .. });
                let is_lost = is_lost || has_result && !account.is_fetched && !account.is_dropped;
                self.expect(!is_lost, || format!("invariant I12: the result of task {reopened} is given up"));
            }
        }
        let account = self.account(job);
        account.was_requeued = true;
        if account.tasks.values().all(|task| matches!(task.at, Standing::Ended { .. })) {
            // A hold ends with the job. Nobody here is an operator, whose hold would stay.
            account.release(None);
        }
        let named = |at: &u32| index.is_none_or(|index| index == *at);
        let tasks = self.account(job).tasks.iter_mut();
        for (_, task) in tasks.filter(|(at, task)| named(at) && !is_kept(task)) {
            task.is_cancelled = false;
            task.is_asked_again = matches!(task.at, Standing::Placed { .. });
        }
    }

    fn see_placement(&mut self, starts: &[Start], now: Timestamp) {
        let run = &starts[0].run;
        starts.iter().for_each(|start| self.check_not_drained(*run, &start.node));
        starts.iter().for_each(|start| self.check_not_leaving(*run, &start.node));
        let spec = Arc::clone(&self.jobs[&run.task.job].spec);
        starts.iter().for_each(|start| self.check_may_use(*run, &spec, &start.node));
        let job = &self.jobs[&run.task.job];
        let task = job.tasks[&run.task.index].clone();
        let (request, is_exclusive) = (job.spec.request.clone(), job.spec.surroundings.exclusive);
        let mut met = job.spec.after.iter().map(|on| self.is_met(job, run.task.index, on, now));
        let is_ready = if spec.has_alternatives() { met.any(|met| met) } else { met.all(|met| met) };
        let is_held = job.holds(run.task.index);
        let active = job.tasks.values().filter(|task| matches!(task.at, Standing::Placed { .. })).count() as u32;
        let is_within_limit = job.spec.array.as_ref().and_then(|array| array.limit).is_none_or(|limit| active < limit);
        let is_new = self.placed.insert(*run);
        self.expect(is_new, || format!("invariant I3: {run} is placed a second time"));
        self.expect(task.at == Standing::Waiting, || {
            format!("invariant I3: {run} is placed while its task is {:?}", task.at)
        });
        self.expect(!task.is_cancelled, || format!("{run} is placed after its job was cancelled"));
        self.expect(!is_held, || format!("{run} is placed while its job is held"));
        self.expect(is_ready, || format!("{run} is placed before its dependencies are met"));
        self.expect(is_within_limit, || format!("{run} is placed beyond the limit of its array"));
        let wanted = self.jobs[&run.task.job].spec.nodes as usize;
        let distinct = starts.iter().map(|start| &start.node).collect::<BTreeSet<_>>().len();
        self.expect((starts.len(), distinct) == (wanted, wanted), || {
            format!("{run} is placed on {distinct} nodes, but requests {wanted}")
        });
        for Start { node, resources, .. } in starts {
            let given = resources.counts();
            let has = self.nodes[node].counts();
            let offered = self.places.offers.get(node).map_or(has.cpus, |most| has.cpus.min(*most));
            let request = if is_exclusive { Request { cpus: offered, ..has } } else { request.clone() };
            self.expect(request == given, || format!("invariant I4: {run} gets {given:?}, but requests {request:?}"));
            let held = self.held_on(node);
            self.expect(held.cpus.len() + given.cpus <= offered, || {
                format!(
                    "invariant I4: {given:?} for {run} exceed the {offered} CPUs that {node} offers; {held:?} is held"
                )
            });
            let mut free = self.nodes[node].clone();
            free.remove(&held);
            let fits =
                free.includes(resources) && held.memory_bytes + resources.memory_bytes <= self.nodes[node].memory_bytes;
            self.expect(fits, || {
                format!("invariant I4: {resources:?} for {run} does not fit on {node}, where {held:?} is held")
            });
        }
        let part = |start: &Start| PartAccount {
            node: start.node.clone(),
            resources: start.resources.clone(),
            sent_in: run.epoch,
            has_arrived: false,
            is_ready: false,
            has_run: false,
            is_over: false,
        };
        let parts = starts.iter().map(part).collect();
        self.task(run.task).at = Standing::Placed { run: *run, parts, broken: None };
        self.check_quota(*run);
    }

    /// Checks that all placed tasks of a user together, on all nodes, stay within the quota.
    fn check_quota(&mut self, run: RunId) {
        let mut held = (0, 0, 0);
        for task in self.jobs.values().flat_map(|job| job.tasks.values()) {
            if let Standing::Placed { parts, .. } = &task.at {
                held.2 += 1;
                for part in parts.iter().filter(|part| !part.is_over) {
                    held.0 += u64::from(part.resources.cpus.len());
                    held.1 += part.resources.memory_bytes;
                }
            }
        }
        let (cpus, memory, tasks) = held;
        let is_allowed = self.allowance.allows(cpus, memory, tasks);
        self.expect(is_allowed, || {
            format!("{run} is placed beyond a quota: {cpus} CPUs, {memory} bytes, {tasks} tasks")
        });
    }

    /// Returns the resources in use on a node.
    pub(super) fn held_on(&self, on: &NodeName) -> Resources {
        let mut held = Resources::default();
        for task in self.jobs.values().flat_map(|job| job.tasks.values()) {
            let Standing::Placed { parts, .. } = &task.at else { continue };
            for part in parts.iter().filter(|part| part.node == *on && !part.is_over) {
                held.add(&part.resources);
            }
        }
        held
    }

    /// Accounts for an accepted hello. Runs placed on the node but absent from its hello have not arrived; the head
    /// sends them again.
    pub(super) fn see_hello(&mut self, hello: &NodeName, holds: &[RunId]) {
        let epoch = self.epoch;
        for task in self.jobs.values_mut().flat_map(|job| job.tasks.values_mut()) {
            if let Standing::Placed { run, parts, .. } = &mut task.at
                && !holds.contains(run)
            {
                parts.iter_mut().filter(|part| part.node == *hello).for_each(|part| part.sent_in = epoch);
            }
        }
    }

    fn see_progress(&mut self, reported: RunId, rank: u32, note: fn(&mut PartAccount)) {
        let standing = &mut self.task(reported.task).at;
        if let Standing::Placed { run, parts, .. } = standing
            && *run == reported
            && let Some(part) = parts.get_mut(rank as usize)
            && !part.is_over
        {
            part.has_arrived = true;
            note(part);
            return;
        }
        let what = format!("invariant I3: {reported} is reported while its task is {standing:?}");
        self.record_violation(what);
    }

    fn see_end(&mut self, over: RunId, rank: u32, fate: Fate, records: &[Record]) {
        let task = self.task(over.task).clone();
        let Standing::Placed { run, parts, .. } = &task.at else {
            return self.record_violation(format!(
                "invariant I3: an end of {over} is accepted while its task is {:?}",
                task.at
            ));
        };
        self.expect(*run == over, || {
            format!("invariant I3: an end of {over} is accepted while {run} is the current run")
        });
        let Some(part) = parts.get(rank as usize).filter(|part| !part.is_over) else {
            return self.record_violation(format!(
                "invariant I3: an end of {over} is accepted twice, or from a rank that the run does not have"
            ));
        };
        let node = self.names.iter().position(|name| *name == part.node).expect("a part is placed on a known node");
        let process = self.processes.get(&(over, node));
        let is_alive = process.is_some_and(|process| process.is_alive);
        let exit = process.and_then(|process| process.exit);
        self.expect(!is_alive || fate == Fate::Lost, || {
            format!("invariant I6: {over} counts as ended, but its process still runs")
        });
        if let Fate::Ended(ending) = fate
            && ending.state == JobState::Completed
        {
            // If the program runs on the first node only, the other nodes wait for its end. They may receive the end
            // before they have begun.
            let waits = rank > 0 && self.jobs[&over.task.job].spec.first_node;
            let was_let_go = waits && parts[0].is_over && matches!(exit, Some(Why::Asked(_)) | None);
            let is_so = exit == Some(Why::Exited(0)) || was_let_go;
            self.expect(is_so, || {
                format!("invariant I3: {over} counts as completed, but its process ended with {exit:?}")
            });
        }
        self.settle_part(over, rank, fate, records);
    }

    /// Ends a part of a run. The last part ends the run.
    fn settle_part(&mut self, over: RunId, rank: u32, fate: Fate, records: &[Record]) {
        let epoch = self.epoch;
        let Standing::Placed { parts, broken, .. } = &mut self.task(over.task).at else {
            return self.record_violation(format!("invariant I3: {over} is settled while it is not placed"));
        };
        let has_begun = parts.len() == 1 || parts.iter().all(|part| part.is_ready);
        let part = &mut parts[rank as usize];
        // The head that sent the run got no confirmation from the agent, or the other nodes were never ready.
        let never_began = (!part.has_arrived && part.sent_in == epoch) || !has_begun;
        part.is_over = true;
        if !matches!(fate, Fate::Ended(ending) if ending.state == JobState::Completed) {
            broken.get_or_insert(Broken { fate, never_began });
        }
        let is_last = parts.iter().all(|part| part.is_over);
        let broken = *broken;
        if is_last {
            return self.settle_run(over, broken, records);
        }
        let is_of_run = |record: &Record| matches!(record, Record::Ended(row) if (row.job, row.index) == (over.task.job, over.task.index));
        self.expect(!records.iter().any(is_of_run), || format!("{over} ends while one of its parts still runs"));
    }

    /// Ends a run and checks that its task has a record, or waits again for a valid reason.
    fn settle_run(&mut self, run: RunId, broken: Option<Broken>, records: &[Record]) {
        let job = &self.jobs[&run.task.job];
        let task = job.tasks[&run.task.index].clone();
        let requeue = job.spec.requeue;
        let is_of_run = |row: &EndedTask| (row.job, row.index) == (run.task.job, run.task.index);
        let row = records.iter().find_map(|record| match record {
            Record::Ended(row) if is_of_run(row) => Some(row),
            _ => None,
        });
        if let Some(row) = row {
            self.expect(row.attempt == run.attempt, || {
                format!("invariant I3: the history row of {run} has attempt {}", row.attempt)
            });
            self.expect(!task.is_asked_again, || format!("{run} was requeued by its user, but its task ended"));
            let is_node_fail = row.ending.state == JobState::NodeFail;
            self.expect(!is_node_fail || !requeue, || format!("{run} was lost, but was not requeued"));
            let is_completed = row.ending.state == JobState::Completed;
            self.expect(is_completed == broken.is_none(), || format!("{run} ends as {row:?} after {broken:?}"));
            return;
        }
        let is_reasonable = match broken {
            None | Some(Broken { fate: Fate::Ended(_), .. }) => task.is_asked_again,
            Some(Broken { fate: Fate::Requeued, never_began }) => {
                !task.is_cancelled && (task.is_asked_again || never_began)
            }
            Some(Broken { fate: Fate::Lost, .. }) => !task.is_cancelled && (task.is_asked_again || requeue),
        };
        self.expect(is_reasonable, || format!("{run} ended {broken:?} and was requeued without a reason: {task:?}"));
        let account = self.task(run.task);
        account.at = Standing::Waiting;
        account.is_asked_again = false;
    }

    pub(super) fn see_node_given_up(&mut self, given_up: &NodeName, records: &[Record]) {
        let placed = self.jobs.values().flat_map(|job| job.tasks.values()).filter_map(|task| match &task.at {
            Standing::Placed { run, parts, .. } => {
                let mut ranked = (0..).zip(parts);
                ranked.find(|(_, part)| part.node == *given_up && !part.is_over).map(|(rank, _)| (*run, rank))
            }
            Standing::Waiting | Standing::Ended { .. } => None,
        });
        let parts: Vec<(RunId, u32)> = placed.collect();
        parts.into_iter().for_each(|(run, rank)| self.settle_part(run, rank, Fate::Lost, records));
    }

    fn see_fetched(&mut self, job: JobId, index: u32) {
        let task = self.task(TaskId { job, index });
        task.is_fetched = true;
        let has_result = matches!(task.at, Standing::Ended { result: Some(_), .. }) && !task.is_dropped;
        self.expect(has_result, || format!("the result of {job}_{index} counts as fetched, but does not exist"));
    }

    fn see_dropped(&mut self, job: JobId, index: u32) {
        let task = self.task(TaskId { job, index });
        let (was_fetched, was_dropped) = (task.is_fetched, std::mem::replace(&mut task.is_dropped, true));
        self.expect(was_fetched, || {
            format!("invariant I5: the result of {job}_{index} is dropped, but was never fetched")
        });
        self.expect(!was_dropped, || format!("the result of {job}_{index} is dropped twice"));
    }

    fn see_forgotten(&mut self, job: JobId, at: Timestamp) {
        let retention_ms = self.retention_ms;
        let account = self.account(job);
        let is_due = account.ended_at.is_some_and(|ended| at.ms_since(ended) > retention_ms);
        account.is_forgotten = true;
        let is_project = matches!(account.spec.work, hostler_model::Work::Project { .. });
        let awaits_fetch = |task: &TaskAccount| {
            matches!(task.at, Standing::Ended { result: Some(_), .. }) && !task.is_fetched && !task.is_dropped
        };
        let is_lost = is_project && account.tasks.values().any(awaits_fetch);
        self.expect(!is_lost, || format!("invariant I12: job {job} is forgotten before its results were fetched"));
        self.expect(is_due, || format!("job {job} is forgotten before its retention time is over"));
    }

    fn see_record(&mut self, record: &Record, disk: &Disk) {
        match record {
            Record::Ended(row) if row.attempt.0 == 0 => {
                // The task was cancelled before it ran, either individually or because of a broken dependency. With a
                // broken dependency, one row with the reason covers all tasks that the event cancelled.
                let job = self.fold.job(row.job).cloned();
                let has_ended = |index| job.as_ref().is_none_or(|job| job.ending_of(index).is_some());
                let is_gone = |index| index == row.index || row.message.is_some() && has_ended(index);
                let tasks = self.account(row.job).tasks.iter_mut();
                for (_, task) in tasks.filter(|(index, _)| is_gone(**index)) {
                    if task.at == Standing::Waiting {
                        task.at = Standing::Ended { state: JobState::Cancelled, result: None };
                    }
                }
            }
            Record::Ended(row) => {
                let task = TaskId { job: row.job, index: row.index };
                for result in row.results() {
                    let is_held = disk.holds_result(&result.manifest);
                    self.expect(is_held, || format!("invariant I5: task {task} ended without all its results"));
                }
                let account = self.task(task);
                let ended = Standing::Ended { state: row.ending.state, result: any_result(row) };
                let was = std::mem::replace(&mut account.at, ended);
                let was_placed = matches!(was, Standing::Placed { .. });
                self.expect(was_placed, || format!("invariant I3: task {task} ends while it is {was:?}"));
            }
            Record::Reopened(task) | Record::SetAside(task) => {
                let account = self.task(*task);
                let was = std::mem::replace(&mut account.at, Standing::Waiting);
                (account.is_fetched, account.is_dropped) = (false, false);
                let had_ended = matches!(was, Standing::Ended { .. });
                self.expect(had_ended, || format!("task {task} is reopened while it is {was:?}"));
            }
            Record::EarlierEnded(row) => {
                let (run, is_held) = (row.attempt, row.results().all(|result| disk.holds_result(&result.manifest)));
                self.expect(is_held, || format!("invariant I5: attempt {run} of job {} lacks results", row.job));
            }
            Record::EarlierFetched(..) => {}
            Record::JobEnded(job) => {
                let account = self.account(job.id);
                let has_ended = account.tasks.values().all(|task| matches!(task.at, Standing::Ended { .. }));
                self.expect(has_ended, || format!("job {} leaves the head's state, but has not ended", job.id));
            }
            Record::JobReopened(job) => {
                let lives = self.account(*job).tasks.values().any(|task| task.at == Standing::Waiting);
                self.expect(lives, || format!("job {job} is reopened, but none of its tasks waits"));
            }
            Record::Environment { .. } | Record::Forgotten(_) | Record::Message { .. } => {}
        }
    }
}

/// Checks of answers to users.
impl Books {
    /// Accounts for a submission whose acknowledgement a user has received.
    pub(super) fn acknowledge(&mut self, key: SubmissionKey, job: JobId, spec: &Arc<JobSpec>) {
        let earlier = self.acknowledged.insert(key, job).filter(|earlier| *earlier != job);
        self.expect(earlier.is_none(), || {
            format!("invariant I1: the same submission is acknowledged as {earlier:?} and as {job}")
        });
        let is_other = self.jobs.get(&job).is_some_and(|account| account.submitted != *spec);
        self.expect(!is_other, || format!("invariant I1: job {job} differs from the submission"));
    }

    /// Checks an answer that a job does not exist.
    pub(super) fn check_gone(&mut self, job: JobId) {
        let is_forgotten = self.jobs.get(&job).is_some_and(|account| account.is_forgotten);
        let is_acknowledged = self.acknowledged.values().any(|acknowledged| *acknowledged == job);
        let is_right = is_forgotten || !is_acknowledged;
        self.expect(is_right, || format!("invariant I1: job {job} was acknowledged, but no longer exists"));
    }
}

/// The first result of a task.
fn any_result(row: &EndedTask) -> Option<Digest> {
    row.results().next().map(|result| result.manifest)
}
