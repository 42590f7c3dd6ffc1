//! Stored and sent formats: this build must read the bytes of earlier builds with the same meaning.
//!
//! Each line of a file in `tests/formats` is a kind and its bytes in hexadecimal. The last file contains the bytes that
//! this build writes. When a type gets another optional field, the test prints the content of a new file: append it to
//! [`FILES`]. A change that cannot read old bytes needs a new version of the store or of the link.
//!
//! Files that a release contains never change. Until the first release, files may be changed and replaced; see
//! `docs/internals/compatibility.md`.

use std::fmt::Write;
use std::sync::Arc;

use hostler_core::agent::RunLaunch;
use hostler_core::head::{
    Caller, Changes, Command, ConnectionId, Job, NewUser, PartitionsCommand, PowerCommand, Replaces, Setting, Stamped,
    State, SubmissionKey, UsersCommand, update,
};
use hostler_core::link::Outbox;
use hostler_model::{
    BootId, CoreKind, Counted, Cpu, CpuSet, Dependency, Digest, Ending, Epoch, Gpu, GpuId, Hardware, IndexSet, JobId,
    JobSpec, JobState, NodeFacts, PowerPlan, Quota, Request, Resources, Role, SignalNumber, SignalTarget, Topology,
    Vendor, WallTime, WindowSize, Work,
};
use hostler_proto::api::{JobAction, JobChange};
use hostler_proto::certificate::{Certificate, MeasuredRun, Verdict};
use hostler_proto::link::{
    Account, AgentHello, AgentMessage, EndCause, Fate, Frame, HeadHello, HeadMessage, IoSource, IoUsage, Output,
    RunEnd, RunReport, RunResult, RunStatus, StepEndpoint, StepRecord, StreamKind, StreamRequest, SystemAccounts,
    Usage,
};
use hostler_proto::partitions::PartitionChange;
use hostler_proto::{decode, encode};
use serde::de::DeserializeOwned;

use crate::harness::{Head, ended as ended_with, name, spec, user};

/// The files, oldest first.
const FILES: [(&str, &str); 1] = [("store8-link9.txt", include_str!("../formats/store8-link9.txt"))];

/// The lines that this build writes: kinds and bytes.
type Lines = Vec<(&'static str, Vec<u8>)>;

#[test]
fn bytes_of_earlier_builds_are_readable() {
    for (file, text) in FILES {
        let mut log = State::default();
        let mut snapshot = None;
        for (number, line) in (1..).zip(text.lines()) {
            let (kind, bytes) = line.split_once(' ').expect("a line has a kind and bytes");
            let bytes = from_hex(bytes);
            let what = format!("{file}, line {number}: {kind}");
            match kind {
                "event" => update(&mut log, &read::<Stamped>(&bytes, &what), &mut Changes::default()),
                "snapshot" => snapshot = Some(read::<State>(&bytes, &what)),
                "job" => drop(read::<Job>(&bytes, &what)),
                "run-end" => drop(read::<RunEnd>(&bytes, &what)),
                "run-launch" => drop(serde_json::from_slice::<RunLaunch>(&bytes).expect(&what)),
                "agent-hello" => drop(read::<AgentHello>(&bytes, &what)),
                "head-hello" => drop(read::<HeadHello>(&bytes, &what)),
                "from-agent" => drop(read::<Frame<AgentMessage>>(&bytes, &what)),
                "from-head" => drop(read::<Frame<HeadMessage>>(&bytes, &what)),
                other => panic!("{file}, line {number}: unknown kind {other}"),
            }
        }
        let snapshot = snapshot.expect("each file has a snapshot");
        assert_eq!(encode(&log), encode(&snapshot), "{file}: the snapshot equals the state after the events");
        assert_eq!(log.node(&name("n1")).expect("the node has joined").facts, facts(), "{file}");
        assert!(log.users.get("ada").is_some() && log.jobs().next().is_some(), "{file}");
    }
}

#[test]
fn last_file_contains_what_this_build_writes() {
    let mut now = String::new();
    for (kind, bytes) in written() {
        writeln!(now, "{kind} {}", to_hex(&bytes)).expect("writing to a string succeeds");
    }
    let (file, text) = FILES[FILES.len() - 1];
    assert!(
        text == now,
        "this build writes other bytes than {file}; if the file is still readable, add a file with these lines:\n{now}"
    );
}

fn written() -> Lines {
    let (log, state, job, sent) = story();
    let mut lines: Lines = log.iter().map(|stamped| ("event", encode(stamped))).collect();
    lines.push(("snapshot", encode(&state)));
    lines.push(("job", encode(&*job)));
    lines.push(("run-end", encode(&end())));
    let launches = sent.iter().filter_map(|message| match message {
        HeadMessage::Launch(launch) => Some(launch),
        _ => None,
    });
    lines.extend(launches.map(|launch| {
        let launch = RunLaunch { job: Arc::new(launch.job.clone()), placement: launch.runs[0].clone() };
        ("run-launch", serde_json::to_vec(&launch).expect("a launch can be serialized"))
    }));
    let run = state.jobs().find_map(|job| job.active.values().next()).expect("a job runs").run;
    let statuses = [
        RunStatus::Accepted,
        RunStatus::Staged,
        RunStatus::Ready { port: 7, endpoint: Some(endpoint()) },
        RunStatus::Running,
        RunStatus::Completing,
        RunStatus::Ended(end()),
    ];
    let reports: Vec<RunReport> = statuses.into_iter().map(|status| RunReport { run, status }).collect();
    let hello = AgentHello::new(name("n1"), 7, facts(), reports.clone());
    lines.push(("agent-hello", encode(&AgentHello { version: "test".to_owned(), ..hello })));
    lines.push(("head-hello", encode(&HeadHello::Refused { message: "no".to_owned() })));
    let welcome = HeadHello::Welcome {
        protocol: 5,
        epoch: Epoch(3),
        version: "test".to_owned(),
        heartbeat_ms: 4_000,
        renew_in_ms: Some(5),
        return_within_ms: 6,
    };
    lines.push(("head-hello", encode(&welcome)));
    let mut from_agent: Vec<AgentMessage> = reports.into_iter().map(AgentMessage::Report).collect();
    from_agent.push(AgentMessage::Heartbeat);
    from_agent.push(AgentMessage::Resting { ask: 1, busy: Some("busy".to_owned()), is_leaving: true });
    from_agent.push(AgentMessage::Drawing { milliwatts: Some(9) });
    lines.push(("from-agent", encode(&Outbox::default().frame(from_agent))));
    let account = Account { name: "ada".parse().expect("a valid name"), uid: 2000 };
    let signal = |step| {
        let signal = SignalNumber::try_from(10).expect("a signal");
        HeadMessage::Signal { run, signal, to: SignalTarget::Steps, step }
    };
    let stream = |what| HeadMessage::Stream(StreamRequest { stream: "s".to_owned(), run, what });
    let mut from_head = sent;
    from_head.extend([
        HeadMessage::Begin { run, port: 8, endpoints: vec![endpoint()] },
        HeadMessage::End { run, cause: EndCause::Requeued, grace_ms: 10 },
        HeadMessage::TimeLimit { run, time_limit_ms: Some(11) },
        HeadMessage::Forget { run },
        HeadMessage::Resend { run },
        stream(StreamKind::Output { output: Output::Stdout, from: 3, follow: true, tail: Some(5), limit: Some(7) }),
        stream(StreamKind::Terminal { rows: 24, columns: 80 }),
        stream(StreamKind::Steps),
        stream(StreamKind::Forward { port: 8888, socket: None }),
        stream(StreamKind::Forward { port: 0, socket: Some("x.sock".to_owned()) }),
        stream(StreamKind::Listen { port: 8081, socket: None }),
        stream(StreamKind::Listen { port: 0, socket: Some("x.sock".to_owned()) }),
        stream(StreamKind::Accepted { number: 1 }),
        HeadMessage::Accounts {
            accounts: vec![account.clone()],
            blocked: vec![account],
            guarded: vec![1],
            system: SystemAccounts::Only(vec![2]),
        },
        HeadMessage::Watch { stream: "s".to_owned(), run: Some(run) },
        signal(None),
        signal(Some(3)),
        HeadMessage::PeersChanged,
        HeadMessage::Rest { ask: 2 },
        HeadMessage::Rise,
        HeadMessage::PowerOff,
        HeadMessage::WakeUp { mac: [1, 2, 3, 4, 5, 6], broadcast: Some([192, 0, 2, 255].into()), port: 9 },
        HeadMessage::Shutdown,
    ]);
    lines.push(("from-head", encode(&Outbox::default().frame(from_head))));
    lines
}

/// Applies many commands to a head. Returns the head's log, final state, an ended job and the launches.
fn story() -> (Vec<Stamped>, State, Arc<Job>, Vec<HeadMessage>) {
    let mut head = Head::new();
    let command = |head: &mut Head, command: Command| head.command(&command).expect("the command is accepted");
    let ada = NewUser {
        name: "ada".parse().expect("a valid name"),
        uid: Some(2000),
        role: Role::User,
        groups: ["lab".parse().expect("a valid name")].into(),
        keys: Vec::new(),
    };
    let ada_name = ada.name.clone();
    command(&mut head, Command::Users(UsersCommand::Add(ada)));
    command(&mut head, Command::Users(UsersCommand::SetQuota(ada_name.clone(), Quota::default())));
    let token = UsersCommand::IssueToken { token: Digest([6; 32]), user: ada_name, until: None };
    command(&mut head, Command::Users(token));
    command(
        &mut head,
        Command::Users(UsersCommand::Block {
            name: "eve".parse().expect("a valid name"),
            uid: Some(3000),
            by: "root".to_owned(),
            reason: Some("away".to_owned()),
        }),
    );
    let (by, value) = ("root".to_owned(), Some("64M".to_owned()));
    command(&mut head, Command::Set { by: by.clone(), setting: Setting::DefaultMemory, value });
    let change =
        PartitionChange { nodes: Some("n[1-9]".parse().expect("valid patterns")), ..PartitionChange::default() };
    let partition = PartitionsCommand::Add("short".parse().expect("a valid name"), change);
    command(&mut head, Command::Partitions(partition));
    let features = Some(["ssd".parse().expect("a valid feature")].into());
    let traits = PartitionsCommand::SetTraits { node: name("n1"), weight: Some(3), features };
    for (connection, node) in [(1, "n1"), (2, "n2")] {
        let key = Digest([1; 32]);
        let join = Command::Join { node: name(node), key, life_ms: 1 << 40, replaces: Replaces::Any };
        command(&mut head, join);
        let hello = Box::new(AgentHello::new(name(node), 1, facts(), Vec::new()));
        let hello = Command::Hello { connection: ConnectionId(connection), key, hello, complete: Default::default() };
        command(&mut head, hello);
    }
    command(&mut head, Command::Partitions(traits));
    command(
        &mut head,
        Command::Renew { node: name("n1"), with: Digest([1; 32]), key: Digest([2; 32]), life_ms: 1 << 40 },
    );
    command(&mut head, Command::Power(PowerCommand::Plan(Box::<PowerPlan>::default())));

    let submit = |head: &mut Head, spec: JobSpec| {
        head.keys += 1;
        let (caller, key) = (Caller { uid: Some(2000), operator: true, ..user("ada") }, SubmissionKey(head.keys));
        let (spec, environment) = (Arc::new(spec), Some(Digest([8; 32])));
        let submit = Command::Submit { caller, key, spec, environment, snapshot_is_complete: true };
        head.command(&submit).expect("the job is accepted");
        JobId(head.keys as u64)
    };
    let first = submit(&mut head, everything());
    let gang = submit(&mut head, JobSpec { nodes: 2, tasks_per_node: 2, first_node: true, ..spec() });
    let waits = submit(&mut head, JobSpec { after: "afterok:2".parse().into_iter().collect(), ..spec() });
    let launches: Vec<HeadMessage> =
        head.sent().into_iter().filter(|message| matches!(message, HeadMessage::Launch(_))).collect();
    for action in [JobAction::Hold, JobAction::Release] {
        head.act(waits, action).expect("the job waits");
    }
    let caller = Caller { uid: Some(2000), operator: true, ..user("ada") };
    let hold = Command::Act { caller: caller.clone(), job: first, index: Some(3), action: JobAction::Hold };
    command(&mut head, hold);
    let change = JobChange { time_limit_ms: Some(50_000), array_limit: Some(2), ..JobChange::default() };
    command(&mut head, Command::Change { caller, job: first, change: Box::new(change) });
    let run = head.run_of(first);
    let node = head.job(first).active.values().next().expect("the job is placed").parts[0].node.clone();
    let connection = if node == name("n1") { 1 } else { 2 };
    let stages = [RunStatus::Accepted, RunStatus::Staged, RunStatus::Running, RunStatus::Completing];
    for status in stages.into_iter().chain([RunStatus::Ended(end())]) {
        head.report(connection, run, status).expect("the run is on this node");
    }
    let caller = Caller { operator: true, ..user("ada") };
    let indices = IndexSet::one(run.task.index);
    command(&mut head, Command::Fetched { caller, job: first, indices: indices.clone(), attempt: None });
    command(&mut head, Command::DropResults { job: first, indices });
    head.act(first, JobAction::Cancel).expect("other tasks wait");
    let run = head.run_of(gang);
    for connection in [1, 2] {
        head.report(connection, run, RunStatus::Accepted).expect("the run is on this node");
        head.report(connection, run, RunStatus::Ready { port: 7, endpoint: Some(endpoint()) })
            .expect("the run is on this node");
    }
    head.report(2, run, RunStatus::Ended(end())).expect("the run is on this node");
    let ended = submit(&mut head, spec());
    head.act(ended, JobAction::Cancel).expect("the user owns the job");
    let active: Vec<_> =
        head.state.job(ended).into_iter().flat_map(|job| job.active.values()).map(|it| it.run).collect();
    for run in active {
        let on = head.state.job(ended).expect("the job is active").active[&0].parts[0].node.clone();
        let connection = if on == name("n1") { 1 } else { 2 };
        head.report(connection, run, RunStatus::Ended(end())).expect("the run is on this node");
    }
    // A delay runs, one task of `others` completes, and the held job could start its counterpart.
    let after = |list: String| Dependency::parse_list(&list).expect("valid").into();
    submit(&mut head, JobSpec { after: after(format!("aftercorr:{first},afterany:{first}_0")), ..spec() });
    submit(&mut head, JobSpec { after: after(format!("afterok:{gang}?afterok:{waits}")), ..spec() });
    submit(&mut head, JobSpec { after: after(format!("after:{ended}+600")), ..spec() });
    let others = submit(&mut head, JobSpec { array: Some("0-1".parse().expect("indices")), ..spec() });
    let (array, hold) = (Some("0-2".parse().expect("indices")), true);
    submit(&mut head, JobSpec { array, hold, after: after(format!("aftercorr:{others}")), ..spec() });
    let active = head.job(others).active.values().next().expect("a task is placed");
    let (run, connection) = (active.run, if active.parts[0].node == name("n1") { 1 } else { 2 });
    head.report(connection, run, ended_with(0)).expect("the run is on this node");
    let (node, reason) = (name("n1"), Some("fans".to_owned()));
    command(&mut head, Command::DrainNode { node: node.clone(), by: by.clone(), reason });
    command(&mut head, Command::ResumeNode { node });
    let job = head.stored.0.values().next().expect("a job has ended").clone();
    (head.log().to_vec(), head.state, job, launches)
}

/// A job that sets all options.
fn everything() -> JobSpec {
    let work =
        Work::Project { snapshot: Digest([7; 32]), entrypoint: "main.py".to_owned(), args: vec!["x".to_owned()] };
    let counted: Counted = "license=1".parse().expect("a valid count");
    JobSpec {
        partition: Some("short".parse().expect("a valid name")),
        constraint: Some("ssd".parse().expect("a valid constraint")),
        array: Some("0-3%1".parse().expect("valid indices")),
        time_limit_ms: Some(60_000),
        priority: 5,
        requeue: true,
        pty: Some(WindowSize { rows: 24, columns: 80 }),
        limit_signal: Some(Box::new("USR1@1m:steps".parse().expect("a signal"))),
        singleton: true,
        grace_ms: Some(9),
        umask: Some(0o22),
        notify: Some(Box::new(vec!["mail:ada@example.org=start,end,failure,wait:1h".parse().expect("a subscription")])),
        ..JobSpec::new("train", work, Request { gpus: 1, counted, ..Request::new(1, 1 << 30) })
    }
}

fn facts() -> NodeFacts {
    let cpu = |id| Cpu { id, core: id % 4, package: 0, numa: id % 2, kind: CoreKind::Performance };
    let gpu = GpuId::from_name("GPU-0");
    NodeFacts {
        boot: BootId("boot".to_owned()),
        resources: Resources {
            gpus: [gpu.clone()].into(),
            counted: "license=2".parse().expect("a valid count"),
            ..Resources::new(CpuSet::first(8), 8 << 30)
        },
        hardware: Hardware {
            topology: Topology::new(&(0..8).map(cpu).collect::<Vec<_>>()),
            gpus: vec![Gpu {
                id: gpu,
                vendor: Vendor::Nvidia,
                name: "card".to_owned(),
                memory_bytes: Some(1 << 34),
                numa: Some(0),
            }],
        },
        features: ["x86_64".parse().expect("a valid feature"), "ssd".parse().expect("a valid feature")].into(),
        address: Some([192, 0, 2, 7].into()),
        gossip_at: Some(([0, 0, 0, 0], 7761).into()),
        call_key: Some(Digest([3; 32])),
        ..NodeFacts::default()
    }
}

fn endpoint() -> StepEndpoint {
    StepEndpoint { port: 70, certificate: Digest([4; 32]) }
}

fn end() -> RunEnd {
    RunEnd {
        fate: Fate::Ended(Ending { state: JobState::Failed, exit_code: Some(3) }),
        message: Some("it failed".to_owned()),
        result: Some(RunResult { manifest: Digest([5; 32]), inline: vec![b"bytes".to_vec().into()] }),
        usage: Usage {
            wall_ms: 1,
            memory_peak_bytes: Some(2),
            io: Some(IoUsage { read_bytes: 3, write_bytes: 4, source: IoSource::Cgroup }),
            ..Usage::default()
        },
        steps: vec![StepRecord {
            step: 1,
            name: "step".to_owned(),
            nodes: vec![name("n1")],
            tasks: 2,
            cpus: 3,
            started_at: WallTime(4),
            ended_at: Some(WallTime(5)),
            exit_code: Some(6),
            cpu_ms: 7,
            system_ms: 2,
            peak_memory_bytes: Some(8),
        }],
        certificate: Some(Box::new(Certificate {
            verdict: Verdict::Noisy,
            reasons: vec!["other processes used 1.8 CPUs".to_owned()],
            unknown: vec!["temperature".to_owned()],
            run: MeasuredRun { cpus: "0-1".parse().expect("a list"), wall_us: 9, cpu_us: 8, ..MeasuredRun::default() },
            ..Certificate::default()
        })),
    }
}

fn read<T: DeserializeOwned>(bytes: &[u8], what: &str) -> T {
    decode(bytes).unwrap_or_else(|error| panic!("{what}: {error}"))
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("writing to a string succeeds");
        text
    })
}

fn from_hex(text: &str) -> Vec<u8> {
    let digits = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).expect("hexadecimal digits");
    (0..text.len()).step_by(2).map(digits).collect()
}
