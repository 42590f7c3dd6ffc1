//! Sandboxed jobs: on which nodes they run.

use hostler_core::head::{Caller, Command, Refusal, explain};
use hostler_model::{
    Advisory, AllocationHolder, Digest, JobId, JobSpec, JobState, Reason, Request, SandboxNetwork, SandboxRule, Work,
};
use hostler_proto::api::{JobAction, JobChange};
use hostler_proto::link::HeadMessage;
use hostler_proto::partitions::PartitionChange;

use crate::harness::*;
use crate::partitions::{add as add_partition, change as change_partition, on};

fn sandboxed() -> JobSpec {
    around(spec(), |it| it.sandbox = true)
}

fn node_of(head: &Head, job: JobId) -> Option<String> {
    let active = head.job(job).active.values().next()?;
    Some(active.parts[0].node.to_string())
}

/// Adds a node on which the trial of a sandbox failed for this reason; `None`: it succeeded.
fn add(head: &mut Head, node: &str, connection: u64, why_not: Option<&str>) {
    head.runs_sandboxes = why_not.is_none();
    head.advisory = Advisory { sandbox: why_not.map(str::to_owned), ..Advisory::default() };
    head.hello(node, connection, "boot", vec![]);
}

#[test]
fn sandboxed_jobs_run_only_on_nodes_whose_trial_succeeded() {
    let mut head = Head::new();
    add(&mut head, "n1", 1, Some("cannot create /proc: Operation not permitted"));
    add(&mut head, "n2", 2, None);
    let jobs = [(); 3].map(|()| head.submit(sandboxed()).expect("one node can"));
    let at = jobs.map(|job| node_of(&head, job));
    assert_eq!(at, [Some("n2".to_owned()), Some("n2".to_owned()), None]);
    let usual = head.submit(spec()).expect("accepted");
    assert_eq!(node_of(&head, usual).as_deref(), Some("n1"), "other jobs use the other node");
    let elsewhere = JobSpec { constraint: Some("n1".parse().expect("a constraint")), ..sandboxed() };
    let refused = head.submit(elsewhere).expect_err("its only node cannot");
    assert_eq!(refused.code(), "no_sandbox");
    assert_eq!(
        refused.to_string(),
        "no node that this job may use runs sandboxed jobs; node n1: cannot create /proc: Operation not permitted"
    );

    // The second node returns with another kernel.
    head.restart();
    add(&mut head, "n1", 11, Some("cannot create /proc: Operation not permitted"));
    add(&mut head, "n2", 12, Some("its agent does not run as root"));
    let reason = explain(&head.state, head.job(jobs[2])).expect("the job waits");
    assert_eq!(reason.to_string(), "no node runs sandboxed jobs");
    let Reason::NoNodes { abilities, .. } = &reason else { panic!("{reason:?}") };
    let why: Vec<_> = head.state.nodes_without(&head.job(jobs[2]).spec, abilities).map(|(_, why)| why).collect();
    assert_eq!(why, ["cannot create /proc: Operation not permitted", "its agent does not run as root"]);
}

#[test]
fn node_with_an_older_agent_runs_no_sandboxed_jobs() {
    let mut head = Head::new();
    let waiting = head.submit(sandboxed()).expect("a node may be added later");
    head.hello("n1", 1, "boot", vec![]);
    assert_eq!(node_of(&head, waiting), None);
    let refused = head.submit(sandboxed()).expect_err("the only node cannot").to_string();
    assert!(refused.ends_with("node n1: its agent is too old; upgrade Hostler there"), "{refused}");
}

#[test]
fn launch_that_an_older_agent_would_not_understand_is_taken_back() {
    let mut head = Head::new();
    add(&mut head, "n1", 1, None);
    let job = head.submit(sandboxed()).expect("the node can");
    assert_eq!(node_of(&head, job).as_deref(), Some("n1"));
    // The agent has not confirmed the launch. It returns as an older release.
    head.sent();
    add(&mut head, "n1", 2, Some("its agent is older than sandboxes"));
    assert_eq!(node_of(&head, job), None);
    assert!(!head.sent().iter().any(|message| matches!(message, HeadMessage::Launch(_))));
    add(&mut head, "n1", 3, None);
    assert_eq!(node_of(&head, job).as_deref(), Some("n1"));
}

#[test]
fn sandboxed_job_of_root_or_of_several_nodes_without_their_network_is_refused() {
    let mut head = Head::new();
    add(&mut head, "n1", 1, None);
    let of_root = head.submit_as(Caller { uid: Some(0), ..user("root") }, sandboxed());
    assert!(matches!(of_root, Err(Refusal::Contradiction(_))), "{of_root:?}");
    for spec in [JobSpec { nodes: 2, ..sandboxed() }, around(with_network(), |it| it.sandbox = false)] {
        let refused = head.submit(spec);
        assert!(matches!(refused, Err(Refusal::Contradiction(_))), "{refused:?}");
    }
    head.submit(JobSpec { tasks_per_node: 2, first_node: true, label: true, ..sandboxed() }).expect("on one node");
    add(&mut head, "n2", 2, None);
    head.submit(JobSpec { nodes: 2, ..with_network() }).expect("the nodes reach each other");
    let outside = head.submit(allocation(JobSpec { nodes: 2, ..with_network() }));
    assert!(matches!(outside, Err(Refusal::Contradiction(_))), "{outside:?}");
}

#[test]
fn job_with_an_image_has_a_sandbox_and_may_have_ranks_and_steps() {
    let mut head = Head::new();
    head.runs_images = true;
    add(&mut head, "n1", 1, None);
    let image = with_image();
    head.submit(image.clone()).expect("one process in a sandbox");
    head.submit(JobSpec { tasks_per_node: 2, label: true, ..image.clone() }).expect("ranks");
    head.submit(JobSpec { first_node: true, ..image.clone() }).expect("steps");
    for spec in [around(image.clone(), |it| it.sandbox = false), allocation(image)] {
        let refused = head.submit(spec);
        assert!(matches!(refused, Err(Refusal::Contradiction(_))), "{refused:?}");
    }
}

#[test]
fn only_commands_with_an_image_run_its_entry_point() {
    let mut head = Head::new();
    head.runs_images = true;
    add(&mut head, "n1", 1, None);
    let entered = |argv: &[&str], script: Option<&str>| {
        let argv = argv.iter().map(ToString::to_string).collect();
        let work = Work::Command { argv, directory: "/".into(), script: script.map(Into::into) };
        around(JobSpec { work, ..with_image() }, |it| it.entrypoint = true)
    };
    for argv in [&[][..], &[""], &["a", "b"]] {
        head.submit(entered(argv, None)).expect("the image may name a program");
    }
    for spec in [
        around(entered(&["a"], None), |it| it.image = None),
        around(entered(&[], None), |it| it.entrypoint = false),
        entered(&["a"], Some("#!/bin/sh")),
    ] {
        head.submit(spec).expect_err("it has no program, or two");
    }
}

#[test]
fn jobs_with_an_image_run_only_on_nodes_whose_agent_runs_images() {
    let mut head = Head::new();
    add(&mut head, "n1", 1, Some("its kernel is too old"));
    // An agent that is older than images.
    add(&mut head, "n2", 2, None);
    let refused = head.submit(with_image()).expect_err("no node can");
    assert_eq!(refused.code(), "no_image");
    assert_eq!(
        refused.to_string(),
        "no node that this job may use runs images; node n2: its agent is too old; upgrade Hostler there"
    );
    head.runs_images = true;
    add(&mut head, "n3", 3, None);
    let jobs = [(); 3].map(|()| head.submit(with_image()).expect("one node can"));
    assert_eq!(jobs.map(|job| node_of(&head, job)), [Some("n3".to_owned()), Some("n3".to_owned()), None]);

    // The agent returns as an older release, without having confirmed the launches.
    head.runs_images = false;
    head.sent();
    add(&mut head, "n3", 4, None);
    assert!(!head.sent().iter().any(|message| matches!(message, HeadMessage::Launch(_))));
    assert_eq!(jobs.map(|job| node_of(&head, job)), [None, None, None]);
    assert_eq!(why(&head, jobs[0]).as_deref(), Some("no node that runs sandboxed jobs runs images"));
    let Some(Reason::NoNodes { abilities, .. }) = explain(&head.state, head.job(jobs[0])) else { panic!("it waits") };
    let refusing: Vec<_> = head.state.nodes_without(&head.job(jobs[0]).spec, &abilities).map(|(_, why)| why).collect();
    assert_eq!(refusing, ["its agent is too old; upgrade Hostler there"; 2]);
}

/// A sandboxed job with an image.
fn with_image() -> JobSpec {
    around(sandboxed(), |it| it.image = Some(Box::new("oci:a".parse().expect("valid"))))
}

/// A sandboxed job with the network of its node.
fn with_network() -> JobSpec {
    around(sandboxed(), |it| it.network = SandboxNetwork::Host)
}

const ALWAYS: PartitionChange = PartitionChange { sandbox: Some(SandboxRule::Always), ..NOTHING };
const OPTIONAL: PartitionChange = PartitionChange { sandbox: Some(SandboxRule::Optional), ..NOTHING };
const NOTHING: PartitionChange = PartitionChange {
    ends_join_code: false,
    nodes: None,
    is_default: None,
    state: None,
    priority: None,
    default_time_ms: None,
    max_time_ms: None,
    max_nodes: None,
    users: None,
    groups: None,
    sandbox: None,
    sandbox_network: None,
    exclusive: None,
};

/// A head with nodes that can run sandboxed jobs, and with a partition `lab` that demands a sandbox.
fn lab(nodes: &str, all: &[&str]) -> Head {
    let mut head = Head::new();
    for (node, connection) in all.iter().zip(1..) {
        add(&mut head, node, connection, None);
    }
    add_partition(&mut head, "lab", PartitionChange { nodes: on(nodes).nodes, ..ALWAYS });
    head
}

fn within(partition: &str) -> JobSpec {
    JobSpec { partition: Some(partition.parse().expect(partition)), ..whole() }
}

/// A job that takes all of a node.
fn whole() -> JobSpec {
    JobSpec { request: Request { cpus: 2, ..spec().request }, ..spec() }
}

/// A job whose steps are started from outside.
fn allocation(spec: JobSpec) -> JobSpec {
    let holder = AllocationHolder { certificate: Digest([7; 32]), stays: false };
    JobSpec { first_node: true, holder: Some(Box::new(holder)), ..spec }
}

/// Submits a job as the API does: values that it leaves out are those of its partition.
fn submit_as(head: &mut Head, caller: Caller, spec: JobSpec) -> Result<JobId, Refusal> {
    let spec = head.state.complete(spec.into(), head.now.wall);
    head.submit_as(caller, spec)
}

fn submit(head: &mut Head, spec: JobSpec) -> Result<JobId, Refusal> {
    submit_as(head, user("ada"), spec)
}

fn move_to(head: &mut Head, job: JobId, partition: &str) -> Result<(), Refusal> {
    let change = JobChange { partition: Some(partition.parse().expect(partition)), ..JobChange::default() };
    head.command(&Command::Change { caller: user("ada"), job, change: Box::new(change) })
}

fn why(head: &Head, job: JobId) -> Option<String> {
    explain(&head.state, head.job(job)).map(|reason| reason.to_string())
}

#[test]
fn jobs_of_a_partition_that_demands_a_sandbox_get_one_or_are_refused() {
    let mut head = lab("n1", &["n1", "n2"]);
    let job = submit(&mut head, within("lab")).expect("it gets a sandbox");
    assert!(head.job(job).spec.surroundings.sandbox);
    assert_eq!(node_of(&head, job).as_deref(), Some("n1"));
    for spec in [JobSpec { nodes: 2, ..within("lab") }, allocation(within("lab"))] {
        let refused = submit(&mut head, spec).expect_err("a sandbox cannot run it").to_string();
        assert!(refused.starts_with("partition lab runs its jobs in a sandbox, where a job has one node"), "{refused}");
    }
    let of_root = submit_as(&mut head, Caller { uid: Some(0), ..user("root") }, within("lab")).expect_err("root");
    assert_eq!(
        of_root.to_string(),
        "partition lab runs its jobs in a sandbox, and no job in a sandbox can belong to root"
    );
    // The partition may have changed between the two steps of a submission.
    let late = head.submit(within("lab")).expect_err("it has no sandbox");
    assert_eq!(late.to_string(), "partition lab runs its jobs in a sandbox, and this job has none; submit it again");

    let mut head = Head::new();
    add(&mut head, "n1", 1, Some("its agent does not run as root"));
    add_partition(&mut head, "lab", PartitionChange { nodes: on("n1").nodes, ..ALWAYS });
    let nowhere = submit(&mut head, within("lab")).expect_err("the node cannot");
    let expected = "partition lab runs its jobs in a sandbox, which none of the job's nodes can do; node n1: its agent does not run as root";
    assert_eq!(nowhere.to_string(), expected);
}

#[test]
fn no_change_of_a_waiting_job_avoids_the_sandbox_of_a_partition() {
    let mut head = lab("n1", &["n1", "n2"]);
    add_partition(&mut head, "open", on("n2"));
    add_partition(&mut head, "both", on("n[1-2]"));
    let held = |spec| JobSpec { hold: true, ..spec };
    let moved = submit(&mut head, held(within("open"))).expect("accepted");
    let wide = submit(&mut head, held(JobSpec { nodes: 2, ..within("both") })).expect("accepted");
    let without = submit(&mut head, held(spec())).expect("accepted");
    for job in [moved, without] {
        assert!(!head.job(job).spec.surroundings.sandbox);
        move_to(&mut head, job, "lab").expect("it gets a sandbox");
        assert!(head.job(job).spec.surroundings.sandbox);
    }
    let refused = move_to(&mut head, wide, "lab").expect_err("several nodes").to_string();
    assert!(refused.starts_with("partition lab runs its jobs in a sandbox, where"), "{refused}");
    // It keeps its sandbox, so it cannot become wider either.
    move_to(&mut head, moved, "open").expect("there is a partition open");
    assert!(head.job(moved).spec.surroundings.sandbox);
    move_to(&mut head, moved, "lab").expect("there is a partition lab");
    let change = JobChange { nodes: Some(2), ..JobChange::default() };
    let refused = head.command(&Command::Change { caller: user("ada"), job: moved, change: Box::new(change) });
    assert!(matches!(refused, Err(Refusal::Contradiction(_))), "{refused:?}");
    // While tasks run, a job cannot get a sandbox.
    let runs = submit(&mut head, within("open")).expect("accepted");
    assert_eq!(node_of(&head, runs).as_deref(), Some("n2"));
    assert!(matches!(move_to(&mut head, runs, "lab"), Err(Refusal::WrongState { .. })));
    assert!(!head.job(runs).spec.surroundings.sandbox);
}

#[test]
fn waiting_and_requeued_jobs_without_a_sandbox_do_not_start_once_their_partition_demands_one() {
    let mut head = lab("n1", &["n1"]);
    change_partition(&mut head, "lab", OPTIONAL).expect("there is a partition lab");
    let runs = submit(&mut head, JobSpec { requeue: true, ..within("lab") }).expect("accepted");
    assert_eq!(node_of(&head, runs).as_deref(), Some("n1"));
    let waits = submit(&mut head, within("lab")).expect("accepted");
    let wide = submit(&mut head, allocation(within("lab"))).expect("accepted");
    change_partition(&mut head, "lab", ALWAYS).expect("there is a partition lab");
    assert_eq!(head.state_of(runs), JobState::Starting, "running jobs are not affected");

    let operator = Caller { operator: true, ..user("boss") };
    let command = Command::Act { caller: operator, job: runs, index: None, action: JobAction::Requeue };
    head.command(&command).expect("the job runs");
    head.report(1, head.run_of(runs), ended(0)).expect("the run is known");
    let expected = "partition lab runs its jobs in a sandbox, and this job has none";
    for job in [runs, waits, wide] {
        assert_eq!((node_of(&head, job), why(&head, job).as_deref()), (None, Some(expected)));
    }
    // The cache of node sets is rebuilt.
    head.restart();
    add(&mut head, "n1", 2, None);
    assert_eq!([runs, waits, wide].map(|job| node_of(&head, job)), [None, None, None]);
    move_to(&mut head, waits, "lab").expect("it gets a sandbox");
    assert!(head.job(waits).spec.surroundings.sandbox);
    assert_eq!(node_of(&head, waits).as_deref(), Some("n1"));
    change_partition(&mut head, "lab", OPTIONAL).expect("there is a partition lab");
    assert_ne!(why(&head, wide).as_deref(), Some(expected));
}

#[test]
fn jobs_without_a_partition_and_a_sandbox_avoid_nodes_of_partitions_that_demand_one() {
    let mut head = lab("n1", &["n1", "n2"]);
    let [one, two] = [(); 2].map(|()| submit(&mut head, whole()).expect("n2 may run it"));
    assert_eq!([node_of(&head, one), node_of(&head, two)], [Some("n2".to_owned()), None]);
    let boxed = submit(&mut head, sandboxed()).expect("accepted");
    assert_eq!(node_of(&head, boxed).as_deref(), Some("n1"));
    // Named partitions decide themselves.
    add_partition(&mut head, "research", on("n1"));
    let named = submit(&mut head, within("research")).expect("accepted");
    assert!(!head.job(named).spec.surroundings.sandbox);
    // A constraint cannot lead there either.
    let there = JobSpec { constraint: Some("n1".parse().expect("a constraint")), ..spec() };
    let refused = submit(&mut head, there).expect_err("n1 runs only sandboxed jobs").to_string();
    let expected = "partition lab runs its jobs in a sandbox, and no other partition has nodes for a job that names none; \
                    submit it with `--sandbox`";
    assert_eq!(refused, expected);
    change_partition(&mut head, "lab", PartitionChange { nodes: on("*").nodes, ..NOTHING }).expect("there is lab");
    assert_eq!(submit(&mut head, spec()).expect_err("no node is left").to_string(), expected);
    assert_eq!(why(&head, two).as_deref(), Some("partition lab runs its jobs in a sandbox, and this job has none"));
}

#[test]
fn partition_that_demands_a_sandbox_decides_whether_it_has_a_network() {
    let mut head = lab("n1", &["n1", "n2"]);
    add_partition(&mut head, "open", on("n1"));
    let allow = |network| PartitionChange { sandbox_network: Some(network), ..NOTHING };
    let into = |partition: &str| JobSpec { partition: within(partition).partition, ..with_network() };
    let refusal = "partition lab runs its jobs in a sandbox without a network; submit the job without `--network host`";
    assert_eq!(submit(&mut head, into("lab")).expect_err("it has a network").to_string(), refusal);
    // Where jobs may do without a sandbox, they may have the network.
    let held = submit(&mut head, JobSpec { hold: true, ..into("open") }).expect("accepted");
    assert_eq!(move_to(&mut head, held, "lab").expect_err("it has a network").to_string(), refusal);
    // Without a partition, the job uses other nodes, and a constraint cannot lead there either.
    let elsewhere = submit(&mut head, JobSpec { request: whole().request, ..with_network() }).expect("accepted");
    assert_eq!(node_of(&head, elsewhere).as_deref(), Some("n2"));
    let there = JobSpec { constraint: Some("n1".parse().expect("a constraint")), ..with_network() };
    let refused = submit(&mut head, there.clone()).expect_err("n1 gives no network").to_string();
    assert!(refused.ends_with("for a job that names none; submit it without `--network host`"), "{refused}");

    // A network of only the job's nodes is less than that of its node.
    let small = |nodes| around(JobSpec { nodes, ..into("lab") }, |it| it.network = SandboxNetwork::Job);
    let refusal = refusal.replace("host", "job");
    assert_eq!(submit(&mut head, small(1)).expect_err("it has a network").to_string(), refusal);
    change_partition(&mut head, "lab", allow(SandboxNetwork::Job)).expect("there is a partition lab");
    let refused = submit(&mut head, into("lab")).expect_err("it has too much network").to_string();
    assert_eq!(
        refused,
        "partition lab runs its jobs in a sandbox without the network of its node; submit the job with `--network job`, or \
         without `--network`"
    );
    // Older agents do not know it, also on one node.
    for nodes in [1, 2] {
        let refused = submit(&mut head, small(nodes)).expect_err("no node can").to_string();
        assert!(refused.contains("connects the sandboxes of a job; node n1: its agent is too old"), "{refused}");
    }

    change_partition(&mut head, "lab", allow(SandboxNetwork::Host)).expect("there is a partition lab");
    move_to(&mut head, held, "lab").expect("it may have the network");
    let job = submit(&mut head, into("lab")).expect("accepted");
    assert_eq!(
        (node_of(&head, job).as_deref(), head.job(job).spec.surroundings.network),
        (Some("n1"), SandboxNetwork::Host)
    );
    submit(&mut head, there).expect("accepted");
    // Jobs do not get a network without asking, and none without a sandbox.
    let usual = submit(&mut head, within("lab")).expect("accepted");
    assert_eq!(head.job(usual).spec.surroundings.network, SandboxNetwork::None);

    change_partition(&mut head, "lab", allow(SandboxNetwork::None)).expect("there is a partition lab");
    let release = Command::Act { caller: user("ada"), job: held, index: None, action: JobAction::Release };
    head.command(&release).expect("it is held");
    let expected = "partition lab allows less network than the sandbox of this job has";
    assert_eq!((node_of(&head, held), why(&head, held).as_deref()), (None, Some(expected)));
    head.restart();
    assert_eq!(why(&head, held).as_deref(), Some(expected));
}
