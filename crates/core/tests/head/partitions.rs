//! Partitions, features and weights: which nodes a job may use, in which order, and the reasons shown.

use std::collections::BTreeSet;

use hostler_core::head::{Caller, Command, PartitionsCommand, Refusal, explain};
use hostler_model::{
    Advisory, Feature, JobId, JobSpec, JobState, Offer, PartitionName, PartitionState, Submission, Timestamp,
};
use hostler_proto::api::JobAction;
use hostler_proto::link::RunStatus;
use hostler_proto::partitions::PartitionChange;

use crate::harness::*;

pub(crate) fn on(nodes: &str) -> PartitionChange {
    PartitionChange { nodes: Some(nodes.parse().expect(nodes)), ..PartitionChange::default() }
}

pub(crate) fn add(head: &mut Head, partition: &str, about: PartitionChange) {
    let command = PartitionsCommand::Add(partition.parse().expect(partition), about);
    head.command(&Command::Partitions(command)).expect(partition);
}

pub(crate) fn change(head: &mut Head, partition: &str, about: PartitionChange) -> Result<(), Refusal> {
    head.command(&Command::Partitions(PartitionsCommand::Change(partition.parse().expect(partition), about)))
}

fn remove(head: &mut Head, partition: &str) -> Result<(), Refusal> {
    head.command(&Command::Partitions(PartitionsCommand::Remove(partition.parse().expect(partition))))
}

fn set(head: &mut Head, node: &str, weight: Option<u32>, features: Option<&[&str]>) -> Result<(), Refusal> {
    let features = features.map(|all| all.iter().map(|word| word.parse().expect(word)).collect::<BTreeSet<Feature>>());
    head.command(&Command::Partitions(PartitionsCommand::SetTraits { node: name(node), weight, features }))
}

fn within(partition: &str) -> JobSpec {
    JobSpec { partition: Some(partition.parse().expect(partition)), ..spec() }
}

fn needing(constraint: &str) -> JobSpec {
    JobSpec { constraint: Some(constraint.parse().expect(constraint)), ..spec() }
}

/// Nodes with two CPUs each; connections are numbered from 1.
fn cluster(nodes: &[&str]) -> Head {
    let mut head = Head::new();
    for (connection, node) in (1..).zip(nodes) {
        head.hello(node, connection, "boot", vec![]);
    }
    head
}

fn node_of(head: &Head, job: JobId) -> Option<String> {
    let active = head.job(job).active.values().next()?;
    Some(active.parts[0].node.to_string())
}

fn why(head: &Head, job: JobId) -> String {
    explain(&head.state, head.job(job)).expect("the job waits").to_string()
}

#[test]
fn partition_includes_nodes_that_join_later() {
    let mut head = cluster(&["n1", "gpu1"]);
    add(&mut head, "gpu", on("gpu*"));
    let jobs: Vec<JobId> = (0..3).map(|_| head.submit(within("gpu")).expect("the partition is open")).collect();
    assert_eq!(jobs.iter().filter(|job| node_of(&head, **job).as_deref() == Some("gpu1")).count(), 2);
    assert_eq!(why(&head, jobs[2]), "no node has enough free now; closest is gpu1, which lacks 1 CPU");
    head.hello("gpu2", 3, "boot", vec![]);
    assert_eq!(node_of(&head, jobs[2]).as_deref(), Some("gpu2"));
    let anywhere = head.submit(spec()).expect("accepted");
    assert!(node_of(&head, anywhere).is_some());
    head.restart();
    assert_eq!(head.state.partitions.iter().count(), 1);
}

#[test]
fn constraints_match_features_and_node_names() {
    let mut head = cluster(&["n1", "n2", "n3"]);
    set(&mut head, "n2", None, Some(&["ssd", "rack-2"])).expect("there is a node n2");
    set(&mut head, "n3", None, Some(&["ssd", "old"])).expect("there is a node n3");
    let run_on = |head: &mut Head, constraint: &str| {
        let job = head.submit(needing(constraint)).expect(constraint);
        node_of(head, job).expect("the job is placed")
    };
    assert_eq!(run_on(&mut head, "ssd&!old"), "n2");
    assert_eq!(run_on(&mut head, "old|rack-9"), "n3");
    assert_eq!(run_on(&mut head, "!ssd"), "n1");
    assert_eq!(run_on(&mut head, "n3"), "n3");
    let refusal = head.submit(needing("ssd&rack-9")).expect_err("no node has both features");
    assert_eq!(refusal.to_string(), "no node can ever run this job: no node that has ssd&rack-9 is in the cluster");
    assert_eq!(refusal.code(), "never_fits");
    // Waiting jobs are checked again when features change.
    let waiting = head.submit(needing("n2&rack-2")).expect("n2 has the feature rack-2");
    let full = head.submit(needing("rack-2")).expect("n2 has the feature rack-2");
    assert_eq!((node_of(&head, waiting).as_deref(), node_of(&head, full)), (Some("n2"), None));
    set(&mut head, "n2", None, Some(&[])).expect("there is a node n2");
    assert_eq!(why(&head, full), "no node that has rack-2 is in the cluster");
    set(&mut head, "n1", None, Some(&["rack-2"])).expect("there is a node n1");
    assert_eq!(node_of(&head, full).as_deref(), Some("n1"));
    assert!(matches!(set(&mut head, "n9", Some(1), None), Err(Refusal::NoSuchNode(_))));
}

#[test]
fn nodes_with_lower_weight_are_used_first() {
    let mut head = cluster(&["n1", "n2"]);
    set(&mut head, "n1", Some(10), None).expect("there is a node n1");
    let first = head.submit(spec()).expect("accepted");
    assert_eq!(node_of(&head, first).as_deref(), Some("n2"));
    head.restart();
    head.hello("n1", 3, "boot", vec![]);
    head.hello("n2", 4, "boot", vec![]);
    let second = head.submit(spec()).expect("accepted");
    let third = head.submit(spec()).expect("accepted");
    let mut places = [node_of(&head, second), node_of(&head, third)];
    places.sort();
    assert_eq!(places, [Some("n1".to_owned()), Some("n2".to_owned())], "the heavier node once the lighter one is full");
    // Removing a node removes its traits.
    head.command(&Command::RemoveNode { node: name("n1"), by: "root".into() }).expect("there is a node n1");
    assert_eq!(head.state.partitions.traits(&name("n1")), None);
}

#[test]
fn partition_limits_refuse_jobs_or_fill_in_defaults() {
    let mut head = cluster(&["n1", "n2"]);
    let hour = 3_600_000;
    let about = PartitionChange {
        max_time_ms: Some(2 * hour),
        max_nodes: Some(1),
        users: Some(BTreeSet::from(["ada".parse().expect("a name")])),
        ..on("*")
    };
    add(&mut head, "short", about);
    let refusal = |head: &mut Head, spec: JobSpec| {
        head.submit(spec).expect_err("the partition's limits refuse the job").to_string()
    };
    let long = JobSpec { time_limit_ms: Some(3 * hour), ..within("short") };
    assert_eq!(
        refusal(&mut head, long),
        "partition short allows a run time of at most 2h00m, and this job asks for 3h00m"
    );
    let endless = "partition short allows a run time of at most 2h00m, and this job has no time limit";
    assert_eq!(refusal(&mut head, within("short")), endless);
    let wide = JobSpec { nodes: 2, time_limit_ms: Some(hour), ..within("short") };
    assert_eq!(refusal(&mut head, wide), "partition short allows at most 1 node per job, and this job asks for 2");
    let nowhere = head.submit(within("long")).expect_err("there is no partition long");
    let there = vec!["short".parse().expect("a name")];
    assert_eq!(nowhere, Refusal::NoSuchPartition { partition: "long".parse().expect("a name"), there });

    // A submission without a time limit gets the partition's.
    let complete = |head: &Head, time_limit_ms| {
        head.state.complete(Submission { time_limit_ms, ..within("short").into() }, head.now.wall).time_limit_ms
    };
    assert_eq!(complete(&head, None), Some(2 * hour));
    assert_eq!(complete(&head, Some(0)), None, "the submission has set no limit");
    change(&mut head, "short", PartitionChange { default_time_ms: Some(hour), ..Default::default() })
        .expect("accepted");
    assert_eq!(complete(&head, None), Some(hour));
    let wrong = PartitionChange { default_time_ms: Some(9 * hour), ..Default::default() };
    assert!(matches!(change(&mut head, "short", wrong), Err(Refusal::BadPartition(_))));

    let others =
        PartitionChange { users: Some(BTreeSet::from(["eve".parse().expect("a name")])), ..Default::default() };
    change(&mut head, "short", others).expect("accepted");
    let mine = JobSpec { time_limit_ms: Some(hour), ..within("short") };
    assert_eq!(refusal(&mut head, mine), "partition short is not open to ada");
}

#[test]
fn default_partition_takes_jobs_that_name_none() {
    let mut head = cluster(&["n1", "n2"]);
    add(&mut head, "small", PartitionChange { is_default: Some(true), ..on("n1") });
    let spec = head.state.complete(spec().into(), head.now.wall);
    assert_eq!(spec.partition.as_ref().map(PartitionName::as_str), Some("small"));
    add(&mut head, "large", PartitionChange { is_default: Some(true), ..on("n2") });
    assert_eq!(
        head.state.partitions.default().map(PartitionName::as_str),
        Some("large"),
        "only one partition is the default"
    );
    change(&mut head, "large", PartitionChange { is_default: Some(false), ..Default::default() }).expect("accepted");
    assert_eq!(head.state.partitions.default(), None);
}

#[test]
fn paused_closed_and_removed_partitions() {
    let mut head = cluster(&["n1"]);
    add(&mut head, "main", on("*"));
    let state = |state| PartitionChange { state: Some(state), ..PartitionChange::default() };
    change(&mut head, "main", state(PartitionState::Paused)).expect("accepted");
    let job = head.submit(within("main")).expect("paused partitions take jobs");
    assert_eq!((head.state_of(job), why(&head, job).as_str()), (JobState::Pending, "partition main is paused"));
    let elsewhere = head.submit(spec()).expect("jobs without a partition are accepted");
    assert_eq!(head.state_of(elsewhere), JobState::Starting, "a paused partition does not delay other jobs");
    assert_eq!(
        remove(&mut head, "main").expect_err("a job waits").to_string(),
        "cannot remove partition main: 1 job waits in it"
    );
    let cancelled = head.submit(within("main")).expect("accepted");
    head.act(cancelled, JobAction::Cancel).expect("accepted");
    change(&mut head, "main", state(PartitionState::Closed)).expect("accepted");
    let refusal =
        head.act(cancelled, JobAction::Requeue).expect_err("a job that has ended would enter again").to_string();
    assert_eq!(refusal, "partition main is closed and accepts no new jobs");
    assert_eq!(head.state_of(job), JobState::Starting, "the waiting job starts");
    let refusal = head.submit(within("main")).expect_err("the partition is closed").to_string();
    assert_eq!(refusal, "partition main is closed and accepts no new jobs");
    remove(&mut head, "main").expect("no job waits in the partition");
    head.report(1, head.run_of(job), RunStatus::Running).expect("accepted");
    // The requeued job waits until a partition of that name exists again.
    head.act(job, JobAction::Requeue).expect("accepted");
    head.report(1, head.run_of(job), fate(hostler_proto::link::Fate::Requeued)).expect("accepted");
    assert_eq!(why(&head, job), "partition main no longer exists");
    add(&mut head, "main", on("*"));
    assert_eq!(head.state_of(job), JobState::Starting);
}

#[test]
fn partitions_are_ordered_by_priority_and_independent() {
    let mut head = cluster(&["n1", "n2"]);
    add(&mut head, "batch", on("n1"));
    add(&mut head, "urgent", PartitionChange { priority: Some(5), ..on("n1") });
    add(&mut head, "other", on("n2"));
    let two = |partition| {
        let mut spec = within(partition);
        spec.request.cpus = 2;
        spec
    };
    let running = head.submit(two("batch")).expect("accepted");
    head.state.settings.user_priority = 100;
    let batch = head.submit(JobSpec { priority: 100, ..two("batch") }).expect("accepted");
    let urgent = head.submit(two("urgent")).expect("accepted");
    let order: Vec<JobId> = head.state.queue().map(|job| job.id).collect();
    assert_eq!(order, [urgent, batch]);
    assert_eq!(head.state.ahead_of(head.job(batch)).all(), 0, "jobs of other partitions are not ahead");
    let other = head.submit(two("other")).expect("accepted");
    assert_eq!(node_of(&head, other).as_deref(), Some("n2"), "the other partitions do not use n2");
    let next = head.submit(two("other")).expect("accepted");
    assert_eq!(why(&head, next), "no node has enough free now; closest is n2, which lacks 2 CPUs");
    // A new priority applies to waiting jobs.
    change(&mut head, "batch", PartitionChange { priority: Some(6), ..Default::default() }).expect("accepted");
    let order: Vec<JobId> = head.state.queue().map(|job| job.id).collect();
    assert_eq!(order, [batch, urgent, next]);
    head.report(1, head.run_of(running), ended(0)).expect("accepted");
    assert_eq!((head.state_of(batch), head.state_of(urgent)), (JobState::Starting, JobState::Pending));
    assert!(head.state.expected_start(urgent).is_none_or(|at| at > Timestamp(0)));
}

#[test]
fn partitions_survive_a_restart_and_invalid_ones_are_refused() {
    let mut head = cluster(&["n1"]);
    add(&mut head, "a", PartitionChange { priority: Some(-3), is_default: Some(true), ..on("n[1-4]") });
    let again = PartitionsCommand::Add("a".parse().expect("a name"), on("*"));
    assert!(matches!(head.command(&Command::Partitions(again)), Err(Refusal::PartitionExists(_))));
    let empty = PartitionsCommand::Add("b".parse().expect("a name"), PartitionChange::default());
    assert!(matches!(head.command(&Command::Partitions(empty)), Err(Refusal::BadPartition(_))));
    assert!(matches!(change(&mut head, "b", on("*")), Err(Refusal::NoSuchPartition { .. })));
    head.restart();
    let restored = head.state.partitions.get(&"a".parse().expect("a name")).expect("the partition exists");
    assert_eq!((restored.priority, restored.nodes.to_string().as_str()), (-3, "n[1-4]"));
    assert_eq!(head.state.partitions_of(&name("n3")).count(), 1);
}

/// Three nodes: the first and the third refuse jobs of root; the second runs all jobs as one user.
fn cluster_with_root() -> Head {
    let mut head = Head::new();
    let advisory = [
        Advisory { refuses_root: true, ..Advisory::default() },
        Advisory { users: Some("jobs run as ada".to_owned()), ..Advisory::default() },
        Advisory { refuses_root: true, ..Advisory::default() },
    ];
    for ((connection, node), advisory) in (1..).zip(["n1", "n2", "n3"]).zip(advisory) {
        head.advisory = advisory;
        head.hello(node, connection, "boot", vec![]);
    }
    head
}

#[test]
fn jobs_of_root_run_only_on_nodes_that_accept_them() {
    for name in ["root", "toor", "root@n3"] {
        let caller = Caller { uid: Some(0), ..user(name) };
        let mut head = cluster_with_root();
        let jobs = [(); 3].map(|()| head.submit_as(caller.clone(), spec()).expect("accepted"));
        let at: Vec<_> = jobs.iter().map(|job| node_of(&head, *job)).collect();
        assert_eq!(at, [Some("n2".to_owned()), Some("n2".to_owned()), None], "{name}");
        assert_eq!(why(&head, jobs[2]), "no node has enough free now; closest is n2, which lacks 1 CPU", "{name}");
        let of_ada = head.submit(spec()).expect("accepted");
        assert!(node_of(&head, of_ada).is_some_and(|node| node != "n2"), "{name}");
        // One job requests two such nodes, the other a node that refuses root.
        let two = head.submit_as(caller.clone(), JobSpec { nodes: 2, ..spec() });
        assert!(matches!(two, Err(Refusal::NeverFits(_))), "{name}: {two:?}");
        let elsewhere = head.submit_as(caller, needing("n1"));
        assert!(matches!(elsewhere, Err(Refusal::NotForRoot | Refusal::NotForRootOfNode)), "{name}: {elsewhere:?}");
        // The second node reconnects and now refuses root as well.
        head.restart();
        head.advisory = Advisory { refuses_root: true, ..Advisory::default() };
        for (connection, node) in (11..).zip(["n1", "n2", "n3"]) {
            head.hello(node, connection, "boot", vec![]);
        }
        assert_eq!(node_of(&head, jobs[2]), None, "{name}");
        assert_eq!(why(&head, jobs[2]), "no node runs jobs of root", "{name}");
    }
}

#[test]
fn job_of_root_waits_for_the_first_node_of_its_cluster() {
    let mut head = Head::new();
    let job = head.submit_as(user("root"), spec()).expect("a node may be added later");
    assert_eq!(why(&head, job), "no node is in the cluster");
    head.advisory.refuses_root = true;
    head.hello("n1", 1, "boot", vec![]);
    assert_eq!(why(&head, job), "no node runs jobs of root");
    head.advisory.refuses_root = false;
    head.hello("n2", 2, "boot", vec![]);
    assert_eq!(node_of(&head, job).as_deref(), Some("n2"));
}

#[test]
fn node_offers_only_what_an_operator_sets() {
    let mut head = cluster(&["n1"]);
    let offer = |head: &mut Head, offer: Offer| {
        head.command(&Command::Partitions(PartitionsCommand::SetOffer(name("n1"), offer)))
    };
    let cpus = |cpus| Offer { cpus: Some(cpus), ..Offer::default() };
    let counts = |head: &Head| {
        let node = head.state.node(&name("n1")).expect("known");
        (node.total().cpus, node.free().cpus)
    };
    let jobs: Vec<JobId> = (0..4).map(|_| head.submit(spec()).expect("accepted")).collect();
    assert_eq!(counts(&head), (2, 0));
    offer(&mut head, cpus(1)).expect("the node has it");
    assert_eq!(counts(&head), (1, 0), "running jobs keep theirs");
    head.restart();
    assert_eq!(counts(&head), (1, 0));
    head.hello("n1", 9, "boot", vec![]);
    let placed = jobs.iter().filter(|job| node_of(&head, **job).is_some()).count();
    assert!(placed <= 2, "{placed} jobs");

    let refused = |refused: Result<(), Refusal>| refused.expect_err("more than it has").to_string();
    assert_eq!(refused(offer(&mut head, cpus(3))), "node n1 cannot offer 3 CPUs, and the node has 2");
    assert!(refused(offer(&mut head, cpus(0))).contains("`hostler node drain n1`"));
    let license = Offer { counted: [("license".to_owned(), 1)].into(), ..Offer::default() };
    assert_eq!(refused(offer(&mut head, license)), "node n1 cannot offer license, which it does not have");
    let memory = Offer { memory_bytes: Some(1 << 60), ..Offer::default() };
    assert!(refused(offer(&mut head, memory)).starts_with("node n1 cannot offer 1024P of memory, and the node has "));
    let missing = PartitionsCommand::SetOffer(name("n7"), cpus(1));
    assert!(matches!(head.command(&Command::Partitions(missing)), Err(Refusal::NoSuchNode(_))));
    offer(&mut head, Offer::default()).expect("all that it has");
    assert_eq!(counts(&head).0, 2);
}
