//! Events of runs, from placement to end, part by part.
//!
//! A run on several nodes has a part on each. Its processes start when every part is ready. The run is running when all parts run, and
//! over when all parts are over. The first part that ends without completing ends the others and decides how the task ends. With
//! `first_node`, the program runs on the first node only, and its success ends the other parts as completed.

use std::collections::BTreeMap;
use std::sync::Arc;

use hostler_model::{
    Ending, Energy, IndexSet, JobId, JobOccasion, JobState, NodeName, NodeState, RunId, Timestamp, WallTime,
};
use hostler_proto::link::{
    EndCause, Fate, Gang, HeadMessage, JobLaunch, Launch, Peer, Placement, RunEnd, StepEndpoint, Usage,
};
use hostler_proto::record::{EndedPart, EndedTask};
use hostler_proto::stages::Stages;

use super::job::{Active, Job, Part, Phase};
use crate::head::event::{Record, Start, TaskChange};
use crate::head::ids::ConnectionId;
use crate::head::state::State;
use crate::head::step::Step;

impl Step<'_> {
    pub(in crate::head) fn place(&mut self, starts: &[Start]) {
        let mut jobs: BTreeMap<JobId, IndexSet> = BTreeMap::new();
        let mut placed: BTreeMap<(ConnectionId, JobId), Vec<(RunId, u32)>> = BTreeMap::new();
        for parts in starts.chunk_by(|one, next| one.run == next.run) {
            let run = parts[0].run;
            let id = run.task.job;
            let part = |start: &Start| Part {
                node: start.node.clone(),
                resources: start.resources.clone(),
                phase: Phase::Placed,
                port: None,
                endpoint: None,
                metered: self.state.power.reading(&start.node, self.now.at),
                over: None,
            };
            let active = Active {
                run,
                parts: parts.iter().map(part).collect(),
                since: self.now.at,
                started_at: None,
                stages: Stages { placed_at: Some(self.now.wall), ..Stages::default() },
                ending: None,
                has_new_limit: false,
                keeps_files: false,
                broken_by: None,
            };
            if run.attempt.0 == 1 {
                let waited_ms = self.now.wall.0.saturating_sub(self.job(id).submitted_at.0);
                self.count(id, TaskChange::Placed { waited_ms: u64::try_from(waited_ms).unwrap_or(0) });
            }
            self.state.change_job(id, |job| {
                assert!(job.pending.contains(run.task.index), "only a pending task is placed");
                job.no_longer_wait(&IndexSet::one(run.task.index));
                job.attempts.remove(&run.task.index);
                job.active.insert(run.task.index, active);
            });
            for (rank, start) in (0..).zip(parts) {
                self.hold(start);
                self.state.unconfirmed.insert((run, rank));
                if let Some(link) = &self.state.nodes[&start.node].link {
                    placed.entry((link.connection, id)).or_default().push((run, rank));
                }
            }
            jobs.entry(id).or_default().insert(run.task.index);
        }
        for ((connection, job), parts) in placed {
            self.launch(connection, job, &parts);
        }
        jobs.into_iter().for_each(|(job, tasks)| self.job_changed(job, &tasks));
    }

    /// Allocates the resources of a placement on the node of the placement.
    fn hold(&mut self, start: &Start) {
        let node = self.state.nodes.get_mut(&start.node).expect("a placement names a known node");
        assert!(
            node.free_resources().includes(&start.resources),
            "the placement of {} exceeds what node {} has free",
            start.run,
            start.node
        );
        let before = node.runs.insert(start.run, start.resources.clone());
        assert!(before.is_none(), "the run {} has two parts on node {}", start.run, start.node);
        let job = Arc::clone(self.job(start.run.task.job));
        self.state.hold_for(&job, &start.resources.counts());
        self.state.sync_pool(&start.node);
        self.state.meter(&start.node, self.now.at);
    }

    /// Sends an agent its parts of a job's runs.
    pub(in crate::head) fn launch(&mut self, connection: ConnectionId, id: JobId, parts: &[(RunId, u32)]) {
        let job = self.job(id);
        let runs = parts.iter().map(|(run, rank)| placement(self.state, &job.active[&run.task.index], *rank)).collect();
        let launch = JobLaunch {
            id,
            user: job.user.clone(),
            // The submitter's uid takes precedence: a user added later under this name may be another person.
            uid: job.uid.or_else(|| self.state.users.get(&job.user).map(|user| user.uid)),
            spec: Arc::clone(&job.spec),
            array_len: job.len(),
            output_cap_bytes: self.state.settings.output_cap_bytes,
        };
        let launch = Launch { job: launch, runs, environment: job.environment };
        self.send(connection, HeadMessage::Launch(launch));
    }

    /// Notes that a part has reached a phase, `ago_ms` before now.
    pub(in crate::head) fn advance(&mut self, run: RunId, rank: u32, phase: Phase, ago_ms: u64) {
        self.state.unconfirmed.remove(&(run, rank));
        let now = self.now;
        let id = run.task.job;
        let started_at = self.state.change_job(id, |job| {
            let active = job.active.get_mut(&run.task.index).expect("the run is the current run of its task");
            let part = part_of(active, rank);
            part.phase = part.phase.max(phase);
            let begins_to_run = phase == Phase::Running && active.phase() >= Phase::Running;
            let at = before(now.wall, ago_ms, active);
            if begins_to_run {
                active.since = Timestamp(now.at.0.saturating_sub(ago_ms));
                active.started_at = Some(at);
            }
            if active.phase() >= phase {
                match phase {
                    Phase::Staged => active.stages.staged_at = Some(at),
                    Phase::Completing => active.stages.exited_at = Some(at),
                    Phase::Placed | Phase::Accepted | Phase::Ready | Phase::Running => {}
                }
            }
            begins_to_run.then_some(at)
        });
        if started_at.is_some() {
            self.note_start(id, started_at);
            self.settle_dependents(id, &IndexSet::one(run.task.index));
        }
        self.notify(id);
    }

    /// Marks a part as ready. When all parts are ready, starts the processes of all parts.
    pub(in crate::head) fn get_ready(&mut self, run: RunId, rank: u32, port: u16, endpoint: Option<StepEndpoint>) {
        self.state.unconfirmed.remove(&(run, rank));
        let (had_begun, has_begun) = self.state.change_job(run.task.job, |job| {
            let active = job.active.get_mut(&run.task.index).expect("the run is the current run of its task");
            let had_begun = active.has_begun();
            let is_alone = active.parts.len() == 1;
            let part = part_of(active, rank);
            part.phase = part.phase.max(Phase::Ready);
            // Once other nodes know the port it stays, even if the agent restarts. A single node has no others.
            if !had_begun || is_alone {
                part.port = Some(port);
                part.endpoint = endpoint;
            }
            (had_begun, active.has_begun())
        });
        match (had_begun, has_begun) {
            (_, false) => {}
            (false, true) => (0..self.state.parts_of(run)).for_each(|rank| self.begin(run, rank)),
            (true, true) => self.begin(run, rank),
        }
        self.notify(run.task.job);
    }

    /// Tells the agent of a part to start its processes, unless the run must end.
    fn begin(&mut self, run: RunId, rank: u32) {
        let Some(active) = self.state.active(run).filter(|active| cause(self.state, active).is_none()) else { return };
        let (Some(part), Some(first)) = (active.part(rank), active.part(0)) else { return };
        let port = first.port.unwrap_or_default();
        // All or none, because ranks index the list.
        let endpoints: Option<Vec<StepEndpoint>> = active.parts.iter().map(|part| part.endpoint).collect();
        if let Some(connection) = connection_of(self.state, part) {
            self.send(connection, HeadMessage::Begin { run, port, endpoints: endpoints.unwrap_or_default() });
        }
    }

    pub(in crate::head) fn end_part(&mut self, run: RunId, rank: u32, over: RunEnd) {
        self.state.unconfirmed.remove(&(run, rank));
        let now = self.now;
        let energy = self.state.active(run).and_then(|active| self.state.energy(active.part(rank)?, self.now.at));
        let (node, breaks, is_last) = self.state.change_job(run.task.job, |job| {
            let active = job.active.get_mut(&run.task.index).expect("the run is the current run of its task");
            job.energy = both(job.energy.as_deref().copied(), energy).map(Box::new);
            let breaks = !over.is_completed() && active.broken_by.is_none();
            if breaks {
                active.broken_by = Some(rank);
            }
            // The node measured the time. The head cannot: it may have been away.
            let held_ms = Some(over.usage.wall_ms).filter(|ms| *ms > 0).unwrap_or(now.at.ms_since(active.since));
            let part = part_of(active, rank);
            let used = part.consumption(held_ms, &over.usage);
            let before = job.used.get_or_insert_default();
            before.sums = before.sums.plus(used.sums);
            before.peak_memory_bytes = before.peak_memory_bytes.max(used.peak_memory_bytes);
            part.over = Some(Box::new(over));
            (part.node.clone(), breaks, active.parts.iter().all(|part| part.over.is_some()))
        });
        self.release_run(run, &node);
        if is_last {
            self.end_run(run);
        } else {
            let is_finished = self.state.active(run).is_some_and(|active| is_finished(self.state, active));
            if breaks || is_finished {
                self.send_end(run);
            }
            self.notify(run.task.job);
        }
    }

    /// Ends a run whose parts have all ended: its task ends or waits again.
    fn end_run(&mut self, run: RunId) {
        let id = run.task.job;
        let index = run.task.index;
        let ending = verdict(self.state, self.state.active(run).expect("the run is the current run of its task"));
        let active =
            self.state.change_job(id, |job| job.active.remove(&index)).expect("the run is the current run of its task");
        match ending {
            Some(ending) => self.end_task(&active, ending),
            None => {
                // What a requeued attempt has left stays until it is fetched.
                let keeps = self.job(id).keeps_output() && ended_part_ends(&active).any(|over| over.result.is_some());
                let mut files = Vec::new();
                if keeps {
                    let ending = Ending { state: JobState::Cancelled, exit_code: None };
                    let row = self.record(&active, ending);
                    files = row.ranked_results();
                    self.changes.records.push(Record::EarlierEnded(Box::new(row)));
                }
                self.state.change_job(id, |job| {
                    if keeps {
                        job.keep_earlier(run.attempt, index);
                    }
                    if active.keeps_files && !files.is_empty() {
                        job.change_kept_files(|kept| drop(kept.insert(index, files)));
                    }
                    job.attempts.insert(index, run.attempt);
                    job.wait_again(&IndexSet::one(index));
                });
                self.wait_again_for_others(id, &IndexSet::one(index));
            }
        }
        self.job_changed(id, &IndexSet::one(index));
    }

    fn end_task(&mut self, active: &Active, ending: Ending) {
        let run = active.run;
        let has_result = ended_part_ends(active).any(|over| over.result.is_some());
        self.count(run.task.job, TaskChange::Ended { state: ending.state, tasks: 1 });
        let row = self.record(active, ending);
        let (started_at, ended_at) = (row.started_at, row.ended_at);
        self.changes.records.push(Record::Ended(Box::new(row)));
        self.state.change_job(run.task.job, |job| {
            job.ended_at = job.ended_at.max(Some(ended_at));
            job.endings.entry(ending).or_default().insert(run.task.index);
            if run.attempt.0 > 1 {
                job.attempts.insert(run.task.index, run.attempt);
            }
            if has_result {
                job.results.insert(run.task.index);
            }
        });
        self.note_start(run.task.job, started_at);
    }

    /// Returns the record of a run whose parts have ended.
    fn record(&self, active: &Active, ending: Ending) -> EndedTask {
        let run = active.run;
        let now = self.now;
        let usage = Usage::of_all(ended_part_ends(active).map(|over| over.usage));
        let ran = (ending.exit_code.is_some()).then(|| ran_from_to(active, usage.wall_ms, now.wall));
        let (started_at, exited_at) =
            ran.map_or((active.started_at, active.stages.exited_at), |(from, to)| (Some(from), Some(to)));
        let ended_at = ran.map_or(now.wall, |(_, to)| to);
        EndedTask {
            job: run.task.job,
            index: run.task.index,
            attempt: run.attempt,
            ending,
            message: message(active),
            node: Some(active.parts[0].node.clone()),
            started_at,
            ended_at,
            stages: Stages { exited_at, collected_at: ran.map(|_| now.wall), ..active.stages },
            result: ended_part_ends(active).next().and_then(RunEnd::manifest),
            usage,
            steps: ended_part_ends(active).next().map(|end| end.steps.clone()).unwrap_or_default(),
            // The parts of a task on several nodes have their own.
            certificate: ended_part_ends(active)
                .next()
                .filter(|_| active.parts.len() == 1)
                .and_then(|end| end.certificate.clone()),
            parts: if active.parts.len() > 1 { ended_parts(active) } else { Vec::new() },
        }
    }

    /// Sets the time of a job's first start. The end of a task may tell an earlier time than the report of its start.
    fn note_start(&mut self, id: JobId, started_at: Option<WallTime>) {
        let Some(at) = started_at else { return };
        let known = self.job(id).started_at;
        if known.is_none_or(|known| at < known) {
            self.state.change_job(id, |job| job.started_at = started_at);
        }
        if known.is_none() {
            self.state.set_wait_limit(id, None);
            self.tell_owner(id, JobOccasion::Start);
        }
    }

    /// Frees the resources of a run on a node and lets its agent remove the run.
    fn release_run(&mut self, run: RunId, node: &NodeName) {
        let node = self.state.nodes.get_mut(node).expect("a run is on a known node");
        let held = node.runs.remove(&run);
        let (name, connection) = (node.name.clone(), node.link.as_ref().map(|link| link.connection));
        let is_drained = node.state() == NodeState::Drained;
        if let Some(held) = held {
            let user = self.job(run.task.job).user.clone();
            self.state.release_of(&user, &held.counts());
        }
        self.state.sync_pool(&name);
        self.state.meter(&name, self.now.at);
        if is_drained {
            self.notify_node(&name);
        }
        if let Some(connection) = connection {
            self.send(connection, HeadMessage::Forget { run });
        }
    }

    /// Tells the connected agents of a run to end it, if the run must end.
    pub(in crate::head) fn send_end(&mut self, run: RunId) {
        (0..self.state.parts_of(run)).for_each(|rank| self.send_end_to(run, rank));
    }

    /// Tells the agent of one part to end the run, if the run must end.
    pub(in crate::head) fn send_end_to(&mut self, run: RunId, rank: u32) {
        let Some(active) = self.state.active(run) else { return };
        let (Some(cause), Some(part)) = (cause(self.state, active), active.part(rank)) else { return };
        if let Some(connection) = connection_of(self.state, part) {
            let grace_ms = self.job(run.task.job).spec.grace_ms.map_or(self.state.settings.grace_ms, u64::from);
            self.send(connection, HeadMessage::End { run, cause, grace_ms });
        }
    }
}

impl State {
    /// Returns the energy that a part has used since its placement: the energy of the node times the part's share of
    /// the node's CPUs. `None` if the node has no meter, or had none at the placement.
    fn energy(&self, part: &Part, now: Timestamp) -> Option<Energy> {
        let drawn = self.power.reading(&part.node, now)?.since(part.metered?);
        let all = self.nodes.get(&part.node)?.facts.resources.cpus.len();
        Some(drawn.share(part.resources.cpus.len(), all))
    }

    /// Returns the energy that a job has used, including requeued attempts; `None` if none of its nodes has a meter.
    #[must_use]
    pub fn energy_of(&self, job: &Job, now: Timestamp) -> Option<Energy> {
        let parts = job.active.values().flat_map(|active| &active.parts).filter(|part| part.over.is_none());
        parts.map(|part| self.energy(part, now)).fold(job.energy.as_deref().copied(), both)
    }

    /// Returns the number of a run's parts; zero if the task has another current run.
    fn parts_of(&self, run: RunId) -> u32 {
        self.active(run).map_or(0, |active| active.parts.len() as u32)
    }
}

/// The time `ago_ms` before `now`, but not before the run was placed.
fn before(now: WallTime, ago_ms: u64, active: &Active) -> WallTime {
    let at = WallTime(now.0.saturating_sub_unsigned(ago_ms));
    active.stages.placed_at.map_or(at, |placed| at.max(placed.min(now)))
}

/// From when to when a run's processes ran, for `ran_ms` as their nodes measured it. The reports of start and end may be late or missing.
fn ran_from_to(active: &Active, ran_ms: u64, now: WallTime) -> (WallTime, WallTime) {
    let latest = before(now, ran_ms, active);
    let from = active.started_at.map_or(latest, |at| at.min(latest));
    let to = if ran_ms > 0 {
        WallTime(from.0.saturating_add_unsigned(ran_ms))
    } else {
        active.stages.exited_at.unwrap_or(now)
    };
    (from, to.min(now))
}

/// Adds two energies; a missing one counts as zero. `None` if both are missing.
fn both(one: Option<Energy>, other: Option<Energy>) -> Option<Energy> {
    one.map(|one| one.plus(other.unwrap_or_default())).or(other)
}

fn part_of(active: &mut Active, rank: u32) -> &mut Part {
    active.parts.get_mut(rank as usize).expect("the event was decided for a part of the run")
}

/// Returns the connection of a part's agent; `None` if the part has ended or the agent is not connected.
pub(in crate::head) fn connection_of(state: &State, part: &Part) -> Option<ConnectionId> {
    let node = state.nodes.get(&part.node).filter(|_| part.over.is_none())?;
    node.link.as_ref().map(|link| link.connection)
}

/// Creates the placement that is sent to the node of one part.
fn placement(state: &State, active: &Active, rank: u32) -> Placement {
    // The node of an ended part may have been forgotten.
    let address = |node: &NodeName| state.nodes.get(node).and_then(|node| node.facts.address);
    let peer = |node: &NodeName| Peer { name: node.clone(), address: address(node) };
    let job = state.job(active.run.task.job);
    // A client that holds an allocation connects to its node's address.
    let needs_addresses = active.parts.len() > 1 || job.is_some_and(|job| job.spec.holder.is_some());
    Placement {
        run: active.run,
        resources: active.parts[rank as usize].resources.clone(),
        gang: needs_addresses.then(|| Gang { rank, nodes: active.nodes().map(peer).collect() }),
        files: job.and_then(|job| job.kept_files_of(active.run.task.index, rank)),
    }
}

/// Returns why the remaining parts of a run must end; `None` if they may go on.
fn cause(state: &State, active: &Active) -> Option<EndCause> {
    if active.broken_by.is_none() {
        return active.ending.or_else(|| is_finished(state, active).then_some(EndCause::Finished));
    }
    let runs_again = verdict(state, active).is_none();
    Some(active.ending.unwrap_or(if runs_again { EndCause::Requeued } else { EndCause::Broken }))
}

/// Returns whether the job runs on its first node only and has completed there.
fn is_finished(state: &State, active: &Active) -> bool {
    state.job(active.run.task.job).is_some_and(|job| job.spec.first_node)
        && active.part(0).and_then(|part| part.over.as_ref()).is_some_and(|over| over.is_completed())
}

/// Returns how a run's task ends once all parts have ended or one has failed; `None` if the task waits again.
fn verdict(state: &State, active: &Active) -> Option<Ending> {
    let completed = Ending { state: JobState::Completed, exit_code: Some(0) };
    let asked_again = active.ending == Some(EndCause::Requeued);
    let Some(over) = active.broken_by.and_then(|rank| active.part(rank)?.over.as_ref()) else {
        return Some(completed).filter(|_| !asked_again);
    };
    let is_cancelled = active.ending == Some(EndCause::Cancelled);
    let requeues = state.job(active.run.task.job).is_some_and(|job| job.spec.requeue);
    match over.fate {
        Fate::Ended(_) if asked_again => None,
        Fate::Ended(ending) => Some(ending),
        Fate::Requeued | Fate::Lost if is_cancelled => Some(Ending { state: JobState::Cancelled, exit_code: None }),
        Fate::Requeued => None,
        Fate::Lost if requeues || asked_again => None,
        Fate::Lost => Some(Ending { state: JobState::NodeFail, exit_code: None }),
    }
}

/// Iterates over the ends of the parts that have ended.
fn ended_part_ends(active: &Active) -> impl Iterator<Item = &RunEnd> {
    active.parts.iter().filter_map(|part| part.over.as_deref())
}

/// Returns the ends of a run's parts, for the record of the ended task.
fn ended_parts(active: &Active) -> Vec<EndedPart> {
    let nodes = active.nodes().cloned();
    nodes.zip(ended_part_ends(active)).map(|(node, end)| EndedPart { node, end: end.clone() }).collect()
}

/// Returns the message for people about the end of a run.
fn message(active: &Active) -> Option<String> {
    let of_part = |part: &Part| part.over.as_ref().and_then(|over| over.message.clone());
    let Some(rank) = active.broken_by.filter(|_| active.parts.len() > 1) else {
        let all: Vec<String> = active.parts.iter().filter_map(of_part).collect();
        return (!all.is_empty()).then(|| all.join("; "));
    };
    let part = &active.parts[rank as usize];
    let why = of_part(part).or_else(|| match part.over.as_ref()?.fate {
        Fate::Ended(Ending { state: JobState::Failed, exit_code: Some(code) }) => Some(format!("exit code {code}")),
        Fate::Ended(Ending { state, .. }) => Some(state.to_string()),
        Fate::Lost | Fate::Requeued => None,
    });
    let why = why.map(|why| format!(": {why}")).unwrap_or_default();
    Some(format!("node {} (rank {rank}) was the first to fail{why}", part.node))
}
