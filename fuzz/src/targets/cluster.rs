//! The head's state machine against malicious agents and arbitrary user requests, in any order.
//!
//! The bytes are a script with two or more bytes per step. Agents report runs that they never had, in invalid stages
//! and on closed connections. The head may refuse, but every invariant that `core` asserts must hold, and its state
//! must survive a round trip.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::Arc;

use hostler_core::head::{
    Caller, Changes, Command, ConnectionId, Ended, EndedJobs, Event, Job, KEY_LIFE_MS, Now, PendingMoves, Replaces,
    Stamped, State, SubmissionKey, decide, explain, schedule, update,
};
use hostler_model::{
    ArraySpec, Attempt, CpuSet, Digest, Ending, Epoch, GpuId, IndexSet, JobId, JobState, NodeName, Resources, RunId,
    TaskId, Timestamp, WallTime,
};
use hostler_proto::api::JobAction;
use hostler_proto::link::{AgentMessage, Fate, RunEnd, RunReport, RunResult, RunStatus, Usage};

use super::values;
use crate::Target;

pub(crate) const TARGET: Target = Target {
    name: "cluster",
    about: "the head's state machine, with arbitrary messages from agents and users",
    run,
    seeds,
};

const NODES: [&str; 3] = ["n1", "n2", "n3"];

/// The maximum number of steps; longer scripts show nothing new.
const STEPS: usize = 200;

fn run(bytes: &[u8]) {
    let mut head = Head::new();
    let mut script = Script(bytes);
    for _ in 0..STEPS {
        let Some(step) = script.next() else { break };
        head.step(step, &mut script);
    }
    let stored = hostler_proto::encode(&head.state);
    let read: State = hostler_proto::decode(&stored).expect("a state can be read again");
    assert_eq!(hostler_proto::encode(&read), stored);
    let _ = read.restored();
}

/// The remaining bytes of the script; reads past the end return zero.
struct Script<'a>(&'a [u8]);

impl Script<'_> {
    fn next(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    fn byte(&mut self) -> u8 {
        self.next().unwrap_or_default()
    }
}

struct Head {
    state: State,
    now: Now,
    /// Ended jobs.
    moves: PendingMoves,
}

/// An empty store: all ended jobs are still in `moves`.
struct Nowhere;

impl EndedJobs for Nowhere {
    type Error = Infallible;

    fn job(&self, _: JobId) -> Result<Option<Arc<Job>>, Infallible> {
        Ok(None)
    }

    fn job_of_key(&self, _: SubmissionKey) -> Result<Option<JobId>, Infallible> {
        Ok(None)
    }

    fn first_ended(&self, _: bool, _: usize) -> Result<Vec<(JobId, Timestamp)>, Infallible> {
        Ok(Vec::new())
    }
}

impl Head {
    fn new() -> Self {
        let now = Now { at: Timestamp(0), wall: WallTime(1_000_000) };
        let mut head = Self { state: State::default(), now, moves: PendingMoves::default() };
        let epoch = head.state.next_epoch();
        head.apply(Event::EpochStarted { epoch, owner: None });
        head
    }

    fn apply(&mut self, event: Event) {
        let mut changes = Changes::default();
        update(&mut self.state, &Stamped { now: self.now, event }, &mut changes);
        changes.records.iter().for_each(|record| self.moves.note(record, 0));
    }

    fn command(&mut self, command: &Command) {
        let Ok(ended) = Ended::look_up(&self.state, &self.moves, &Nowhere, command);
        let Ok(events) = decide(&self.state, command, &ended, self.now) else { return };
        events.into_iter().for_each(|event| self.apply(event));
        while self.state.needs_pass() {
            let Some(event) = schedule(&mut self.state, self.now) else { break };
            self.apply(event);
        }
        for job in self.state.jobs() {
            let _ = explain(&self.state, job);
        }
        let _ = (self.state.next_deadline(self.now), self.state.capacity(), self.state.live_counts());
    }

    fn step(&mut self, step: u8, script: &mut Script<'_>) {
        let what = script.byte();
        let node: NodeName = NODES[usize::from(what) % NODES.len()].parse().expect("a valid name");
        let key = Digest([what % NODES.len() as u8 + what / 128; 32]);
        let connection = ConnectionId(u64::from(what % 5));
        let by = "ada".to_owned();
        match step % 16 {
            0 => {
                let replaces = [Replaces::Nothing, Replaces::Away, Replaces::Any][usize::from(what / 8) % 3];
                self.command(&Command::Join { node, key, life_ms: KEY_LIFE_MS, replaces });
            }
            1 | 2 => self.hello(node, key, connection, script),
            3..=6 => {
                let run = self.run(script);
                let status = status(script);
                let message = AgentMessage::Report(RunReport { run, status });
                let result_is_complete = what < 200;
                self.command(&Command::Message { connection, message, result_is_complete });
            }
            7 => self.command(&Command::Message {
                connection,
                message: AgentMessage::Heartbeat,
                result_is_complete: true,
            }),
            8 | 9 => self.submit(what, script),
            10 => self.act(what, script),
            11 => self.command(&Command::ConnectionEnded { connection }),
            12 => {
                self.now.at = self.now.at.plus_ms(1 << (what % 32));
                self.command(&Command::Tick);
            }
            13 => self.command(&match what / 32 {
                0 => Command::DrainNode { node, by, reason: None },
                1 => Command::ResumeNode { node },
                2 => Command::RemoveNode { node, by },
                3 => Command::ForgetNode { node },
                _ => Command::Renew { node, with: key, key: Digest([script.byte() % 5; 32]), life_ms: 1000 },
            }),
            14 => {
                let job = JobId(u64::from(what % 8));
                let indices = IndexSet::one(u32::from(script.byte() % 4));
                let attempt = Some(Attempt(u32::from(what >> 6))).filter(|attempt| attempt.0 > 0);
                self.command(&Command::Fetched { caller: caller(what), job, indices, attempt });
            }
            _ => {
                let job = JobId(u64::from(what % 8));
                self.command(&Command::DropResults { job, indices: IndexSet::one(u32::from(script.byte() % 4)) });
            }
        }
    }

    fn hello(&mut self, node: NodeName, key: Digest, connection: ConnectionId, script: &mut Script<'_>) {
        let about = script.byte();
        let resources = match about % 8 {
            0 => Resources::default(),
            1 => Resources::new(CpuSet::first(1), u64::MAX),
            2 => Resources::new("7,9".parse().expect("CPUs"), 1),
            more => Resources {
                // The hardware lists only the first GPU.
                gpus: (0..about / 64).map(|gpu| GpuId::from_name(&format!("GPU-{gpu}"))).collect(),
                ..Resources::new(CpuSet::first(u32::from(more)), 1 << 32)
            },
        };
        let runs: Vec<RunReport> =
            (0..about / 64).map(|_| RunReport { run: self.run(script), status: status(script) }).collect();
        let complete: BTreeSet<RunId> = runs.iter().filter(|_| about & 32 == 0).map(|report| report.run).collect();
        let mut hello = hostler_proto::link::AgentHello { node, runs, ..values::hello() };
        hello.facts.resources = resources;
        self.command(&Command::Hello { connection, key, hello: Box::new(hello), complete });
    }

    /// The id of an active run, or of one that never existed.
    fn run(&self, script: &mut Script<'_>) -> RunId {
        let which = script.byte();
        let active: Vec<RunId> = self.state.jobs().flat_map(|job| job.active.values().map(|it| it.run)).collect();
        if which < 200
            && let Some(run) = active.get(usize::from(which) % active.len().max(1))
        {
            return *run;
        }
        RunId {
            task: TaskId { job: JobId(u64::from(which % 8)), index: u32::from(which / 32) },
            attempt: Attempt(u32::from(script.byte() % 3)),
            epoch: Epoch(u64::from(script.byte() % 3)),
        }
    }

    fn submit(&mut self, what: u8, script: &mut Script<'_>) {
        let mut spec = values::command();
        let (size, more) = (script.byte(), script.byte());
        spec.request.cpus = u32::from(size % 5);
        spec.request.gpus = u32::from(more % 16 == 5);
        spec.request.memory_bytes = 1 << (size % 64);
        spec.nodes = u32::from(more % 4);
        spec.tasks_per_node = u32::from(more / 4 % 3);
        spec.requeue = more & 64 != 0;
        spec.hold = more & 128 != 0;
        spec.priority = if what > 250 { i32::MAX } else { i32::from(what % 3) - 1 };
        if what.is_multiple_of(4) {
            spec.array = Some(ArraySpec { indices: (0..u32::from(what / 16)).collect(), limit: Some(2) });
        }
        if what % 8 == 1 {
            let condition = ["afternotok", "aftercorr", "?aftercorr", "after"][usize::from(more % 4)];
            spec.after = [format!("{condition}:{}", size % 8).parse().expect("a dependency")].into();
        }
        if what % 8 == 2 {
            spec.time_limit_ms = Some(if size > 200 { u64::MAX } else { u64::from(size) * 100 });
            spec.grace_ms = Some(u32::from(more) << (size % 25));
        }
        let key = SubmissionKey(u128::from(script.byte()));
        let spec = Arc::new(spec);
        self.command(&Command::Submit {
            caller: caller(what),
            key,
            spec,
            environment: None,
            snapshot_is_complete: true,
        });
    }

    fn act(&mut self, what: u8, script: &mut Script<'_>) {
        let action = match what % 4 {
            0 => JobAction::Cancel,
            1 => JobAction::Hold,
            2 => JobAction::Release,
            _ if what >= 128 => JobAction::RequeueAll,
            _ => JobAction::Requeue,
        };
        let index = Some(u32::from(script.byte())).filter(|index| *index < 8);
        self.command(&Command::Act { caller: caller(what), job: JobId(u64::from(what / 4 % 8)), index, action });
    }
}

fn caller(what: u8) -> Caller {
    Caller { user: if what < 230 { "ada" } else { "eve" }.into(), uid: None, operator: what.is_multiple_of(2) }
}

/// An arbitrary status, valid or not.
fn status(script: &mut Script<'_>) -> RunStatus {
    let what = script.byte();
    match what % 8 {
        0 => RunStatus::Accepted,
        1 => RunStatus::Ready { port: u16::from(what), endpoint: None },
        2 => RunStatus::Running,
        3 => RunStatus::Completing,
        _ => {
            const STATES: [JobState; 8] = [
                JobState::Completed,
                JobState::Failed,
                JobState::Timeout,
                JobState::OutOfMemory,
                JobState::Cancelled,
                JobState::NodeFail,
                JobState::Pending,
                JobState::Running,
            ];
            let state = STATES[usize::from(what / 32)];
            let exit_code = Some(i32::from(what % 3) - 1).filter(|code| *code >= 0);
            let fate = match script.byte() % 8 {
                0 => Fate::Lost,
                1 => Fate::Requeued,
                _ => Fate::Ended(Ending { state, exit_code }),
            };
            let result = (what & 16 != 0).then(|| RunResult { manifest: Digest([what; 32]), inline: Vec::new() });
            let usage = Usage {
                wall_ms: u64::MAX,
                user_ms: u64::MAX,
                system_ms: 1,
                max_rss_bytes: u64::MAX,
                ..Usage::default()
            };
            RunStatus::Ended(RunEnd { fate, message: None, result, usage, steps: Vec::new(), certificate: None })
        }
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let join = [0, 0, 0, 1, 0, 2];
    let hellos = [1, 0, 3, 1, 1, 3, 1, 2, 3];
    let submissions = [8, 1, 1, 5, 0, 9, 3, 2, 6, 1, 8, 48, 1, 69, 2];
    let reports = [3, 0, 0, 0, 3, 0, 0, 2, 3, 0, 0, 4, 5, 3, 1, 1, 2, 3, 1, 1, 4, 1];
    let rest = [12, 13, 10, 4, 0, 12, 20, 13, 0, 14, 1, 0, 11, 0, 12, 31];
    vec![[&join[..], &hellos, &submissions, &reports, &rest].concat(), [&join[..], &hellos].concat()]
}
