//! The head's loop without I/O, for scripted tests: commands in, messages and stored changes out.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use hostler_core::head::{
    Caller, Changes, Command, Commit, ConnectionId, Durability, Effect, Ended, EndedJobs, Event, Input, Job,
    KEY_LIFE_MS, NotDone, Now, PendingMoves, Refusal, Replaces, Rounds, Stamped, State, SubmissionKey, TaskCount,
    begin_epoch, epoch_starts, read_ended_job, update,
};
use hostler_model::{
    Advisory, CpuSet, Digest, Ending, Hardware, JobId, JobSpec, JobState, NodeFacts, NodeName, NodeState, PowerVerb,
    Request, Resources, RunId, Surroundings, Timestamp, WallTime, Work,
};
use hostler_proto::api::JobAction;
use hostler_proto::link::{AgentHello, AgentMessage, Fate, HeadMessage, RunAge, RunEnd, RunReport, RunStatus};
use hostler_proto::stored::{Batch, Change};

/// A head without I/O. It records the events, changes and messages that a real head would store and send.
pub(crate) struct Head {
    pub(crate) state: State,
    pub(crate) now: Now,
    rounds: Rounds<()>,
    durability: Durability,
    moves: Mutex<PendingMoves>,
    log: Vec<Stamped>,
    sent: Vec<(ConnectionId, HeadMessage)>,
    /// Requests to power controllers, with their numbers.
    pub(crate) orders: Vec<(NodeName, PowerVerb, u64)>,
    /// What the head counted for its metrics.
    pub(crate) counts: Vec<TaskCount>,
    /// Stored changes other than events.
    pub(crate) changes: Vec<Change>,
    /// Ended jobs, as in the store.
    pub(crate) stored: Stored,
    pub(crate) keys: u128,
    /// Gossip address in later hellos.
    pub(crate) gossip_at: Option<std::net::SocketAddr>,
    /// Limits that agents cannot enforce, in later hellos.
    pub(crate) advisory: Advisory,
    /// Whether nodes that say hello run sandboxed jobs.
    pub(crate) runs_sandboxes: bool,
    /// Whether nodes that say hello run images.
    pub(crate) runs_images: bool,
    /// Whether nodes that say hello make their machine quiet for jobs.
    pub(crate) quiets_machine: bool,
    /// Ages of the runs in the next hello.
    pub(crate) ages: Vec<RunAge>,
    /// The latest job that a node says it had, in each hello.
    pub(crate) last_job: Option<JobId>,
}

impl Head {
    pub(crate) fn new() -> Self {
        let mut head = Self {
            state: State::default(),
            now: Now { at: Timestamp(0), wall: WallTime(1_000_000) },
            rounds: Rounds::new(1, 1),
            durability: Durability::default(),
            moves: Mutex::default(),
            log: Vec::new(),
            sent: Vec::new(),
            orders: Vec::new(),
            counts: Vec::new(),
            changes: Vec::new(),
            stored: Stored::default(),
            keys: 0,
            gossip_at: None,
            advisory: Advisory::default(),
            runs_sandboxes: false,
            runs_images: false,
            quiets_machine: false,
            ages: Vec::new(),
            last_job: None,
        };
        let epoch = head.state.next_epoch();
        head.apply(Event::EpochStarted { epoch, owner: None });
        head
    }

    /// Applies an event that no command produces, e.g. one of an older release.
    pub(crate) fn apply(&mut self, event: Event) {
        let stamped = Stamped { now: self.now, event };
        let batch = begin_epoch(&mut self.state, 1, &stamped);
        self.keep(batch);
    }

    fn keep(&mut self, batch: Batch) {
        let read = |event: &Vec<u8>| hostler_proto::decode::<Stamped>(event).expect("stored events are readable");
        self.log.extend(batch.events.iter().map(read));
        batch.changes.iter().for_each(|change| self.stored.keep(change));
        self.changes.extend(batch.changes);
    }

    pub(crate) fn command(&mut self, command: &Command) -> Result<(), Refusal> {
        let environment = match command {
            Command::Submit { environment, .. } => environment.map(|digest| (digest, digest.0.to_vec().into())),
            _ => None,
        };
        let Ok(ended) = Ended::look_up(&self.state, &PendingMoves::default(), &self.stored, command);
        let input = Input { environment, reply: Some(()), ..Input::of(command.clone()) };
        self.rounds.take(&mut self.state, &self.moves, &ended, input, self.now);
        self.finish()
    }

    /// Ends a round and stores its batch; returns the refusal of its command, if any.
    fn finish(&mut self) -> Result<(), Refusal> {
        self.rounds.follow_up(&mut self.state, &self.moves, self.now);
        let Some(Commit { batch, after }) = self.rounds.finish() else { return Ok(()) };
        self.keep(batch);
        let delivery = self.durability.stored(after, Ok(()), &self.moves);
        for effect in delivery.effects {
            match effect {
                // Every agent gets the accounts; `tests/users.rs` tests them.
                Effect::Send { message: HeadMessage::Accounts { .. }, .. } => {}
                Effect::Send { connection, message } => self.sent.push((connection, message)),
                Effect::Power { node, verb, ask } => self.orders.push((node, verb, ask)),
                Effect::Close { .. } | Effect::Notify(_) | Effect::Deliver | Effect::ReportNode { .. } => {}
                Effect::Count(count) => self.counts.push(count),
            }
        }
        match delivery.replies.into_iter().next() {
            Some(((), Err(NotDone::Refused(refusal)))) => Err(refusal),
            Some(((), Err(not_stored))) => panic!("{not_stored}"),
            Some(((), Ok(_))) | None => Ok(()),
        }
    }

    /// Processes due deadlines, as the head's loop does.
    pub(crate) fn look(&mut self) {
        self.command(&Command::Tick).expect("a tick is never refused");
        let Ok(forget) = self.rounds.forget(&self.state, &PendingMoves::default(), &self.stored, self.now);
        if let Some(command) = forget {
            self.command(&command).expect("a tick is never refused");
        }
    }

    /// Advances time. Handles every deadline, like the loop.
    pub(crate) fn pass_ms(&mut self, ms: u64) {
        let until = self.now.at.plus_ms(ms);
        while let Some(deadline) = self.deadline().filter(|deadline| *deadline <= until) {
            assert!(self.now.at <= deadline, "no deadline is in the past");
            self.advance_to(deadline);
            self.look();
        }
        self.advance_to(until);
    }

    /// Advances both clocks.
    fn advance_to(&mut self, at: Timestamp) {
        self.now = Now { at, wall: self.now.wall_at(at) };
    }

    /// The next deadline of the loop.
    pub(crate) fn deadline(&self) -> Option<Timestamp> {
        self.rounds.wake_at(&self.state, self.now)
    }

    /// Advances time while the head is suspended.
    pub(crate) fn stand_still_ms(&mut self, ms: u64) {
        self.now.at = self.now.at.plus_ms(ms);
        self.look();
    }

    pub(crate) fn node_state(&self, node: &str) -> NodeState {
        self.state.node(&name(node)).expect("known").state()
    }

    pub(crate) fn submit(&mut self, spec: JobSpec) -> Result<JobId, Refusal> {
        self.submit_as(user("ada"), spec)
    }

    pub(crate) fn submit_as(&mut self, caller: Caller, spec: JobSpec) -> Result<JobId, Refusal> {
        self.keys += 1;
        let key = SubmissionKey(self.keys);
        let spec = Arc::new(spec);
        self.command(&Command::Submit { caller, key, spec, environment: None, snapshot_is_complete: true })?;
        let Ok(stored) = self.stored.job_of_key(key);
        Ok(self.state.job_of_key(key).or(stored).expect("the submission was accepted"))
    }

    pub(crate) fn act(&mut self, job: JobId, action: JobAction) -> Result<(), Refusal> {
        self.command(&Command::Act { caller: user("ada"), job, index: None, action })
    }

    /// Sends the hello of an agent with two CPUs, 4 GiB and these runs.
    pub(crate) fn hello(&mut self, node: &str, connection: u64, boot: &str, runs: Vec<RunReport>) {
        let resources = Resources::new(CpuSet::first(2), 4 << 30);
        self.hello_with(node, connection, boot, runs, resources);
    }

    /// Like [`Self::hello`], with these resources.
    pub(crate) fn hello_with(
        &mut self,
        node: &str,
        connection: u64,
        boot: &str,
        runs: Vec<RunReport>,
        resources: Resources,
    ) {
        self.hello_of(node, connection, boot, runs, (resources, Hardware::default()));
    }

    /// Like [`Self::hello_with`], with more details.
    pub(crate) fn hello_of(
        &mut self,
        node: &str,
        connection: u64,
        boot: &str,
        runs: Vec<RunReport>,
        (resources, hardware): (Resources, Hardware),
    ) {
        let key = Digest([1; 32]);
        let join = Command::Join { node: name(node), key, life_ms: KEY_LIFE_MS, replaces: Replaces::Any };
        self.command(&join).expect("the invitation names the node");
        let facts = NodeFacts {
            hardware,
            advisory: self.advisory.clone(),
            runs_sandboxes: self.runs_sandboxes,
            runs_images: self.runs_images,
            quiets_machine: self.quiets_machine,
            address: self.gossip_at.map(|_| [192, 0, 2, 7].into()),
            gossip_at: self.gossip_at,
            ..NodeFacts::new(boot, resources)
        };
        let ages = std::mem::take(&mut self.ages);
        let hello = AgentHello { ages, last_job: self.last_job, ..AgentHello::new(name(node), 1, facts, runs) };
        let command = Command::Hello {
            connection: ConnectionId(connection),
            key,
            hello: Box::new(hello),
            complete: BTreeSet::new(),
        };
        self.command(&command).expect("a hello is never refused");
    }

    /// Sends the hello of a known node's agent without runs.
    pub(crate) fn late_hello(&mut self, node: &str, connection: u64, boot: &str) -> Result<(), Refusal> {
        let facts = NodeFacts::new(boot, Resources::new(CpuSet::first(2), 4 << 30));
        let hello = Box::new(AgentHello::new(name(node), 1, facts, Vec::new()));
        let connection = ConnectionId(connection);
        self.command(&Command::Hello { connection, key: Digest([1; 32]), hello, complete: BTreeSet::new() })
    }

    pub(crate) fn report(&mut self, connection: u64, run: RunId, status: RunStatus) -> Result<(), Refusal> {
        self.command(&Command::Message {
            connection: ConnectionId(connection),
            message: AgentMessage::Report(RunReport { run, status }),
            result_is_complete: true,
        })
    }

    pub(crate) fn run_of(&self, job: JobId) -> RunId {
        self.job(job).active.values().next().expect("the job has a placed task").run
    }

    pub(crate) fn job(&self, job: JobId) -> &hostler_core::head::Job {
        self.state.job(job).or_else(|| self.stored.0.get(&job)).expect("the job exists")
    }

    pub(crate) fn state_of(&self, job: JobId) -> JobState {
        self.job(job).state()
    }

    /// The events that a store would contain.
    pub(crate) fn log(&self) -> &[Stamped] {
        &self.log
    }

    /// The messages since the last call, with their connections.
    pub(crate) fn sent_to(&mut self) -> Vec<(u64, HeadMessage)> {
        self.sent.drain(..).map(|(connection, message)| (connection.0, message)).collect()
    }

    /// The messages since the last call.
    pub(crate) fn sent(&mut self) -> Vec<HeadMessage> {
        self.sent.drain(..).map(|(_, message)| message).collect()
    }

    /// Kills the head and restarts it on its log.
    pub(crate) fn restart(&mut self) {
        self.state = self.load();
        self.rounds = Rounds::new(1, 1);
        self.finish().expect("no command waits for a reply");
    }

    /// Loads the state again in a head that continues, as after a failed write.
    pub(crate) fn reload(&mut self) {
        let loaded = self.load();
        self.rounds.restart(&mut self.state, loaded, 1);
        self.finish().expect("no command waits for a reply");
    }

    /// Begins an epoch on the state from the log.
    fn load(&mut self) -> State {
        let mut state = State::default();
        for stamped in &self.log {
            update(&mut state, stamped, &mut Changes::default());
        }
        assert_eq!(
            hostler_proto::encode(&state),
            hostler_proto::encode(&self.state),
            "replaying the log gives the same state"
        );
        let bytes = hostler_proto::encode(&state);
        let mut state = hostler_proto::decode::<State>(&bytes).expect("a snapshot can be read").restored();
        let first = epoch_starts(&state, self.now, None);
        let batch = begin_epoch(&mut state, 1, &first);
        self.keep(batch);
        state
    }
}

#[derive(Default)]
pub(crate) struct Stored(pub(crate) BTreeMap<JobId, Arc<Job>>);

impl Stored {
    fn keep(&mut self, change: &Change) {
        match change {
            Change::JobEnded(job) => {
                self.0.insert(job.id, read_ended_job(&job.bytes).expect("stored jobs are readable"));
            }
            Change::JobReopened(id) | Change::Forgotten(id) => {
                self.0.remove(id);
            }
            _ => {}
        }
    }
}

impl EndedJobs for Stored {
    type Error = Infallible;

    fn job(&self, id: JobId) -> Result<Option<Arc<Job>>, Infallible> {
        Ok(self.0.get(&id).cloned())
    }

    fn job_of_key(&self, key: SubmissionKey) -> Result<Option<JobId>, Infallible> {
        Ok(self.0.values().find(|job| job.key == key).map(|job| job.id))
    }

    fn first_ended(&self, awaiting: bool, limit: usize) -> Result<Vec<(JobId, Timestamp)>, Infallible> {
        let wanted = self.0.values().filter(|job| job.awaits_fetch() == awaiting);
        let mut jobs: Vec<_> = wanted.filter_map(|job| Some((job.ended?, job.id))).collect();
        jobs.sort_unstable();
        Ok(jobs.into_iter().take(limit).map(|(ended, id)| (id, ended)).collect())
    }
}

pub(crate) fn user(name: &str) -> Caller {
    Caller { user: name.into(), uid: None, operator: false }
}

pub(crate) fn name(text: &str) -> NodeName {
    text.parse().expect("a valid name")
}

pub(crate) fn spec() -> JobSpec {
    JobSpec::new("test", Work::command(["true"], "/"), Request::new(1, 1 << 30))
}

/// A job like `spec` in other surroundings.
pub(crate) fn around(mut spec: JobSpec, change: impl FnOnce(&mut Surroundings)) -> JobSpec {
    change(&mut spec.surroundings);
    spec
}

pub(crate) fn ended(code: i32) -> RunStatus {
    let state = if code == 0 { JobState::Completed } else { JobState::Failed };
    let fate = Fate::Ended(Ending { state, exit_code: Some(code) });
    RunStatus::Ended(RunEnd::without_result(fate, None))
}

pub(crate) fn fate(fate: Fate) -> RunStatus {
    RunStatus::Ended(RunEnd::without_result(fate, None))
}
