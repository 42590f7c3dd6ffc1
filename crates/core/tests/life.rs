//! Scripted tests of node membership: joining, key renewal, drain, resume and removal.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hostler_core::head::{
    Caller, Changes, Command, ConnectionId, Effect, Ended, Event, Job, KEY_LIFE_MS, KeyRefusal, NewUser, Now, Record,
    Refusal, Replaces, Stamped, State, SubmissionKey, UsersCommand, decide, explain, schedule, update,
};
use hostler_model::{
    CpuSet, Digest, Ending, JobId, JobSpec, JobState, NodeFacts, NodeName, NodeState, Request, Resources, Role, RunId,
    Timestamp, UserName, WallTime, Work,
};
use hostler_proto::api::Notice;
use hostler_proto::link::{AgentHello, AgentMessage, Fate, HeadMessage, RunEnd, RunReport, RunStatus, Usage};

const LIFE_MS: u64 = 90_000;

const FIRST: Digest = Digest([1; 32]);
const SECOND: Digest = Digest([2; 32]);
const THIRD: Digest = Digest([3; 32]);

#[derive(Default)]
struct Head {
    state: State,
    at: u64,
    log: Vec<Stamped>,
    closed: Vec<(ConnectionId, String)>,
    launched: Vec<RunId>,
    notices: Vec<(NodeName, NodeState)>,
    records: Vec<Record>,
    ended: BTreeMap<JobId, Arc<Job>>,
    jobs: u128,
}

impl Head {
    fn new() -> Self {
        let mut head = Self::default();
        head.apply(Event::EpochStarted { epoch: head.state.next_epoch(), owner: None });
        head
    }

    fn now(&self) -> Now {
        Now { at: Timestamp(self.at), wall: WallTime(77) }
    }

    fn apply(&mut self, event: Event) {
        let stamped = Stamped { now: self.now(), event };
        let mut changes = Changes::default();
        update(&mut self.state, &stamped, &mut changes);
        for effect in changes.effects {
            match effect {
                Effect::Close { connection, reason } => self.closed.push((connection, reason)),
                Effect::Send { message: HeadMessage::Launch(launch), .. } => {
                    self.launched.extend(launch.runs.iter().map(|placement| placement.run));
                }
                Effect::Notify(Notice::Node { name, state }) => self.notices.push((name, state)),
                Effect::Send { .. }
                | Effect::Power { .. }
                | Effect::Notify(_)
                | Effect::Count(_)
                | Effect::Deliver
                | Effect::ReportNode { .. } => {}
            }
        }
        self.ended.extend(changes.records.iter().filter_map(|record| match record {
            Record::JobEnded(job) => Some((job.id, Arc::clone(job))),
            _ => None,
        }));
        self.records.extend(changes.records);
        if stamped.event.is_durable() {
            self.log.push(stamped);
        }
    }

    fn command(&mut self, command: &Command) -> Result<(), Refusal> {
        for event in decide(&self.state, command, &Ended::default(), self.now())? {
            self.apply(event);
        }
        while self.state.needs_pass() {
            let now = self.now();
            let Some(event) = schedule(&mut self.state, now) else { break };
            self.apply(event);
        }
        Ok(())
    }

    /// Restarts the head from a snapshot of the state, and checks the log against it.
    fn restart(&mut self) {
        let mut from_log = State::default();
        self.log.iter().for_each(|event| update(&mut from_log, event, &mut Changes::default()));
        let bytes = hostler_proto::encode(&self.state);
        self.state = hostler_proto::decode::<State>(&bytes).expect("a snapshot can be read").restored();
        assert_eq!(self.state.member(&n1()), from_log.member(&n1()), "log and snapshot agree");
        self.apply(Event::EpochStarted { epoch: self.state.next_epoch(), owner: None });
    }

    fn join(&mut self, key: Digest, replaces: Replaces) -> Result<(), Refusal> {
        self.command(&Command::Join { node: n1(), key, life_ms: LIFE_MS, replaces })
    }

    fn renew(&mut self, with: Digest, key: Digest) -> Result<(), Refusal> {
        self.command(&Command::Renew { node: n1(), with, key, life_ms: LIFE_MS })
    }

    /// Sends the hello of node n1 with two CPUs, with this key and no runs.
    fn hello(&mut self, key: Digest, connection: u64) -> Result<(), Refusal> {
        let facts = NodeFacts::new("boot", Resources::new(CpuSet::first(2), 4 << 30));
        let hello = AgentHello::new(n1(), 1, facts, Vec::new());
        self.command(&Command::Hello {
            connection: ConnectionId(connection),
            key,
            hello: Box::new(hello),
            complete: BTreeSet::new(),
        })
    }

    fn submit(&mut self, requeue: bool) -> JobId {
        self.jobs += 1;
        let key = SubmissionKey(self.jobs);
        let request = Request::new(1, 8 << 20);
        let spec = JobSpec { requeue, ..JobSpec::new("test", Work::command(["true"], "/"), request) };
        let caller = Caller { user: "ada".into(), uid: None, operator: false };
        let command =
            Command::Submit { caller, key, spec: Arc::new(spec), environment: None, snapshot_is_complete: true };
        self.command(&command).expect("accepted");
        self.state.job_of_key(key).expect("accepted")
    }

    fn report(&mut self, connection: u64, run: RunId, status: RunStatus) {
        let message = AgentMessage::Report(RunReport { run, status });
        let connection = ConnectionId(connection);
        self.command(&Command::Message { connection, message, result_is_complete: true }).expect("accepted");
    }

    fn run_of(&self, job: JobId) -> RunId {
        self.state.job(job).expect("the job exists").active[&0].run
    }

    fn state_of(&self, job: JobId) -> JobState {
        self.state.job(job).or_else(|| self.ended.get(&job)).expect("the job exists").state()
    }

    fn why(&self, job: JobId) -> String {
        explain(&self.state, self.state.job(job).expect("the job exists")).expect("the job waits").to_string()
    }

    fn node_state(&self) -> NodeState {
        self.state.node(&n1()).expect("known").state()
    }

    fn drain(&mut self, reason: &str) -> Result<(), Refusal> {
        self.command(&Command::DrainNode { node: n1(), by: "root".into(), reason: Some(reason.into()) })
    }

    fn remove(&mut self) -> Result<(), Refusal> {
        self.command(&Command::RemoveNode { node: n1(), by: "root".into() })
    }

    fn check_key(&self, key: Digest) -> Result<(), KeyRefusal> {
        self.state.check_key(&n1(), key, Timestamp(self.at))
    }
}

fn n1() -> NodeName {
    "n1".parse().expect("a name")
}

fn ended() -> RunStatus {
    let ending = Ending { state: JobState::Completed, exit_code: Some(0) };
    RunStatus::Ended(RunEnd {
        fate: Fate::Ended(ending),
        message: None,
        result: None,
        usage: Usage::default(),
        steps: Vec::new(),
        certificate: None,
    })
}

fn unwelcome(result: Result<(), Refusal>) -> KeyRefusal {
    match result {
        Err(Refusal::KeyRefusal(why)) => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn only_members_may_connect() {
    let mut head = Head::new();
    assert_eq!(unwelcome(head.hello(FIRST, 1)), KeyRefusal::NotAMember(n1()));
    head.join(FIRST, Replaces::Nothing).expect("the name is free");
    head.join(FIRST, Replaces::Nothing).expect("a repeated join is accepted");
    assert_eq!(head.join(SECOND, Replaces::Nothing), Err(Refusal::NameTaken(n1())));
    assert_eq!(unwelcome(head.hello(SECOND, 1)), KeyRefusal::Replaced(n1()));
    head.hello(FIRST, 1).expect("accepted");
    assert_eq!(head.node_state(), NodeState::Up);
    head.restart();
    assert_eq!(unwelcome(head.hello(SECOND, 2)), KeyRefusal::Replaced(n1()));
    head.hello(FIRST, 2).expect("a member after a restart");
}

#[test]
fn node_whose_name_would_take_over_a_user_is_refused() {
    for (user, is_refused) in [
        ("ada@n1", true),
        ("ada@lab@n1", true),
        ("n1", false),
        ("ada@n10", false),
        ("ada@lab.example", false),
        ("n1@lab.example", false),
    ] {
        for replaces in [Replaces::Nothing, Replaces::Away, Replaces::Any] {
            let mut head = Head::new();
            let name: UserName = user.parse().expect("a name");
            let ada = NewUser {
                name: name.clone(),
                uid: Some(1000),
                role: Role::User,
                groups: BTreeSet::new(),
                keys: Vec::new(),
            };
            head.command(&Command::Users(UsersCommand::Add(ada))).expect("accepted");
            let refusal = Refusal::NameOfUser { node: n1(), user: name };
            assert_eq!(head.join(FIRST, replaces), if is_refused { Err(refusal) } else { Ok(()) }, "{user}");
        }
    }
}

#[test]
fn machine_invited_by_name_replaces_the_old_one() {
    let mut head = Head::new();
    head.join(FIRST, Replaces::Any).expect("invited");
    head.hello(FIRST, 1).expect("accepted");
    head.join(SECOND, Replaces::Any).expect("invited by name");
    let [(ConnectionId(1), reason)] = head.closed.as_slice() else { panic!("{:?}", head.closed) };
    assert!(reason.contains("joined as node n1"), "{reason}");
    let why = unwelcome(head.hello(FIRST, 2)).to_string();
    assert!(why.contains("replaced by a newer one") && why.contains("hostler node invite n1"), "{why}");
    head.hello(SECOND, 3).expect("the new one");
}

#[test]
fn both_keys_are_valid_until_the_new_one_is_used() {
    let mut head = Head::new();
    head.join(FIRST, Replaces::Any).expect("invited");
    head.hello(FIRST, 1).expect("accepted");
    assert_eq!(head.state.renew_in_ms(&n1(), FIRST, Timestamp(0)), Some(60_000));
    head.at = 60_000;
    assert_eq!(head.state.renew_in_ms(&n1(), FIRST, Timestamp(head.at)), Some(0));
    // The answer to the first request is lost, so the agent asks again with another key.
    head.renew(FIRST, SECOND).expect("accepted");
    head.renew(FIRST, THIRD).expect("accepted");
    assert_eq!(head.check_key(SECOND), Err(KeyRefusal::Replaced(n1())));
    head.restart();
    assert_eq!((head.check_key(FIRST), head.check_key(THIRD)), (Ok(()), Ok(())));
    // After a crash, the node uses the new key only if it was already on disk.
    head.hello(FIRST, 2).expect("the old key");
    head.hello(THIRD, 3).expect("the new key");
    assert_eq!(unwelcome(head.hello(FIRST, 4)), KeyRefusal::Replaced(n1()));
    assert_eq!(head.state.renew_in_ms(&n1(), THIRD, Timestamp(head.at)), Some(60_000));
    // A renewal with the new key also counts as its first use.
    head.renew(THIRD, FIRST).expect("accepted");
    head.renew(FIRST, SECOND).expect("accepted");
    assert_eq!(head.check_key(THIRD), Err(KeyRefusal::Replaced(n1())));
    assert_eq!((head.check_key(FIRST), head.check_key(SECOND)), (Ok(()), Ok(())));
}

#[test]
fn key_expires_on_the_clusters_clock() {
    let mut head = Head::new();
    head.join(FIRST, Replaces::Any).expect("invited");
    head.at = LIFE_MS;
    head.hello(FIRST, 1).expect("accepted");
    head.at += 1;
    let why = unwelcome(head.hello(FIRST, 2));
    assert!(why.to_string().contains("has expired"), "{why}");
    assert_eq!(unwelcome(head.renew(FIRST, SECOND)), why);
    head.join(SECOND, Replaces::Any).expect("invited again");
    head.hello(SECOND, 3).expect("a member again");
}

#[test]
fn node_that_joined_before_keys_were_stored_is_accepted() {
    let mut head = Head::new();
    head.join(FIRST, Replaces::Any).expect("invited");
    head.hello(FIRST, 1).expect("accepted");
    // The state of an older head.
    let mut old: serde_json::Value = serde_json::to_value(&head.state).expect("a state can be serialized");
    old.as_object_mut().expect("an object").remove("members").expect("the field exists");
    old["nodes"]["n1"].as_object_mut().expect("an object").remove("drain").expect("the field exists");
    head.state = serde_json::from_value::<State>(old).expect("new fields may be absent").restored();
    head.apply(Event::EpochStarted { epoch: head.state.next_epoch(), owner: None });
    head.hello(SECOND, 2).expect("its certificate is the cluster's");
    assert_eq!(
        head.state.member(&n1()).map(|member| (member.key.key, member.key.life_ms)),
        Some((SECOND, KEY_LIFE_MS))
    );
    assert_eq!(unwelcome(head.hello(FIRST, 3)), KeyRefusal::Replaced(n1()));
}

#[test]
fn drained_node_finishes_its_runs_and_gets_no_new_ones() {
    let mut head = Head::new();
    head.join(FIRST, Replaces::Any).expect("invited");
    head.hello(FIRST, 1).expect("accepted");
    let job = head.submit(false);
    let run = head.run_of(job);
    head.report(1, run, RunStatus::Running);
    head.drain("swap a disk").expect("known");
    head.drain("swap a disk").expect("a repeated drain is accepted");
    assert_eq!(head.node_state(), NodeState::Draining);
    let waiting = head.submit(false);
    assert_eq!(head.state_of(waiting), JobState::Pending);
    assert_eq!(head.why(waiting), "every node that could run the job is drained: n1");
    head.report(1, run, ended());
    assert_eq!((head.state_of(job), head.node_state()), (JobState::Completed, NodeState::Drained));
    let told = [NodeState::Up, NodeState::Draining, NodeState::Drained].map(|state| (n1(), state));
    assert_eq!(head.notices, told);
    head.restart();
    head.hello(FIRST, 2).expect("accepted");
    assert_eq!((head.node_state(), head.launched.len()), (NodeState::Drained, 1), "a drain survives a restart");
    let drain = head.state.node(&n1()).and_then(|node| node.drain.clone()).expect("the node is drained");
    assert_eq!((drain.by.as_str(), drain.reason.as_deref(), drain.at), ("root", Some("swap a disk"), WallTime(77)));
    head.command(&Command::ResumeNode { node: n1() }).expect("accepted");
    assert_eq!((head.node_state(), head.state_of(waiting)), (NodeState::Up, JobState::Starting));
    assert!(matches!(head.drain("two\nlines"), Err(Refusal::BadSpec(_))));
}

#[test]
fn removed_node_loses_keys_connection_and_runs() {
    let mut head = Head::new();
    head.join(FIRST, Replaces::Any).expect("invited");
    head.hello(FIRST, 1).expect("accepted");
    let (lost, again) = (head.submit(false), head.submit(true));
    for job in [lost, again] {
        head.report(1, head.run_of(job), RunStatus::Running);
    }
    head.remove().expect("accepted");
    let [(ConnectionId(1), reason)] = head.closed.as_slice() else { panic!("{:?}", head.closed) };
    assert_eq!(reason, "root has removed node n1 from the cluster");
    assert_eq!((head.state_of(lost), head.state_of(again)), (JobState::NodeFail, JobState::Pending));
    let row = head.records.iter().find_map(|record| match record {
        Record::Ended(row) if row.job == lost => row.message.clone(),
        Record::Ended(_)
        | Record::Reopened(_)
        | Record::SetAside(_)
        | Record::EarlierEnded(_)
        | Record::EarlierFetched(..)
        | Record::JobEnded(_)
        | Record::JobReopened(_)
        | Record::Environment { .. }
        | Record::Forgotten(_)
        | Record::Message { .. } => None,
    });
    assert_eq!(row.as_deref(), Some("node n1 was removed by root"));
    assert_eq!(head.notices.last(), Some(&(n1(), NodeState::Removed)));
    assert_eq!(unwelcome(head.hello(FIRST, 2)), KeyRefusal::NotAMember(n1()));
    assert_eq!(unwelcome(head.renew(FIRST, SECOND)), KeyRefusal::NotAMember(n1()));
    assert_eq!(head.remove(), Err(Refusal::NoSuchNode(n1())));
    head.restart();
    assert_eq!(unwelcome(head.hello(FIRST, 2)), KeyRefusal::NotAMember(n1()), "still removed after a restart");
    // Invited again, it is a new node, and the requeued job runs.
    head.join(SECOND, Replaces::Nothing).expect("the name is free again");
    head.hello(SECOND, 3).expect("accepted");
    assert_eq!(head.state_of(again), JobState::Starting);
}

#[test]
fn node_that_never_connected_can_be_removed() {
    let mut head = Head::new();
    head.join(FIRST, Replaces::Any).expect("invited");
    head.remove().expect("the node has joined");
    assert_eq!(unwelcome(head.hello(FIRST, 1)), KeyRefusal::NotAMember(n1()));
}
