//! Exclusive jobs: each task has its nodes to itself.

use hostler_core::head::{Command, explain};
use hostler_model::{CpuSet, ExclusiveRule, JobId, JobSpec, JobState, Reason, Request, Resources};
use hostler_proto::api::JobChange;
use hostler_proto::link::{RunReport, RunStatus};
use hostler_proto::partitions::PartitionChange;

use crate::harness::*;
use crate::partitions::{add as add_partition, change as change_partition, on};

fn alone(nodes: u32) -> JobSpec {
    around(JobSpec { nodes, ..spec() }, |it| it.exclusive = true)
}

/// A head with two nodes of two CPUs and 4 GiB, on the connections 1 and 2.
fn cluster() -> Head {
    let mut head = Head::new();
    for n in 1..=2 {
        head.hello(&format!("n{n}"), n, "boot", vec![]);
    }
    head
}

/// The nodes of a placed job, with what it holds there.
fn places(head: &Head, job: JobId) -> Vec<(String, Resources)> {
    let parts = head.job(job).active.values().flat_map(|active| &active.parts);
    parts.map(|part| (part.node.to_string(), part.resources.clone())).collect()
}

/// Ends the job's first placed task on the node with this connection.
fn end(head: &mut Head, job: JobId, connection: u64) {
    head.report(connection, head.run_of(job), ended(0)).expect("accepted");
}

#[test]
fn exclusive_job_holds_all_of_an_idle_node_and_nothing_joins_it() {
    let mut head = cluster();
    let small = head.submit(spec()).expect("accepted");
    assert_eq!(places(&head, small)[0].0, "n1");
    let job = head.submit(alone(1)).expect("accepted");
    assert_eq!(
        places(&head, job),
        [("n2".to_owned(), head.state.node(&name("n2")).expect("known").facts.resources.clone())]
    );
    assert_eq!(head.job(job).on_each_node(), Request::new(2, 4 << 30));

    // Best fit would prefer the fuller node; only n1 is left for other jobs.
    let others = [(); 2].map(|()| head.submit(spec()).expect("accepted"));
    assert_eq!(places(&head, others[0])[0].0, "n1");
    assert!(places(&head, others[1]).is_empty(), "the CPUs that the exclusive job did not ask for are not free");
    end(&mut head, job, 2);
    assert_eq!(places(&head, others[1])[0].0, "n2");
}

#[test]
fn exclusive_job_waits_for_an_idle_node_which_is_kept_for_it() {
    let mut head = cluster();
    let running = [(); 3].map(|()| head.submit(spec()).expect("accepted"));
    assert_eq!(running.map(|job| places(&head, job)[0].0.clone()), ["n1", "n1", "n2"]);
    let job = head.submit(alone(1)).expect("accepted");
    let reason = explain(&head.state, head.job(job)).expect("the job waits");
    assert_eq!(reason, Reason::NotIdle { wanted: 1, closest: vec![name("n2"), name("n1")] });
    assert_eq!(reason.to_string(), "the job needs an idle node, and none that it may use is idle; next is n2");
    assert!(head.state.is_reserved_for(job, &name("n2")) && !head.state.is_reserved_for(job, &name("n1")));

    // The node with the free CPU is being emptied, so the next job waits.
    let late = head.submit(spec()).expect("accepted");
    assert!(places(&head, late).is_empty());
    end(&mut head, running[2], 2);
    assert_eq!(places(&head, job)[0].0, "n2");
    assert!(places(&head, late).is_empty());
    end(&mut head, running[0], 1);
    assert_eq!(places(&head, late)[0].0, "n1");
}

#[test]
fn array_and_several_nodes_are_exclusive_too() {
    let mut head = cluster();
    let array = JobSpec { array: Some("0-2".parse().expect("indices")), ..alone(1) };
    let array = head.submit(array).expect("accepted");
    let nodes: Vec<String> = places(&head, array).into_iter().map(|(node, _)| node).collect();
    assert_eq!(nodes, ["n1", "n2"], "one task a node");
    let wide = head.submit(alone(2)).expect("accepted");
    end(&mut head, array, 1);
    assert_eq!(head.state_of(array), JobState::Starting);
    for connection in [2, 1] {
        assert!(places(&head, wide).is_empty());
        end(&mut head, array, connection);
    }
    assert_eq!(places(&head, wide).len(), 2);
    head.restart();
    assert_eq!(places(&head, wide).iter().map(|(_, held)| held.cpus.len()).sum::<u32>(), 4);
}

#[test]
fn exclusive_job_that_no_node_is_large_enough_for_is_refused() {
    let mut head = cluster();
    let large = JobSpec { request: Request::new(3, 1 << 30), ..alone(1) };
    assert_eq!(head.submit(large).expect_err("nodes have two CPUs").code(), "never_fits");
}

#[test]
fn node_that_comes_back_larger_still_belongs_to_its_exclusive_job() {
    let mut head = Head::new();
    head.hello("n1", 1, "boot", vec![]);
    let job = head.submit(alone(1)).expect("accepted");
    let run = head.run_of(job);
    head.report(1, run, RunStatus::Running).expect("accepted");
    let (larger, running) = (Resources::new(CpuSet::first(8), 16 << 30), RunReport { run, status: RunStatus::Running });
    head.hello_with("n1", 2, "boot", vec![running], larger);
    let other = head.submit(spec()).expect("accepted");
    assert!(places(&head, other).is_empty());
    end(&mut head, job, 2);
    assert_eq!(places(&head, other).len(), 1);
}

#[test]
fn partition_gives_its_jobs_a_node_to_themselves() {
    let mut head = cluster();
    add_partition(&mut head, "measure", PartitionChange { exclusive: Some(ExclusiveRule::Always), ..on("*") });
    add_partition(&mut head, "lab", on("*"));
    let submit = |head: &mut Head, partition: &str| {
        let spec = JobSpec { partition: Some(partition.parse().expect("a name")), ..spec() };
        let spec = head.state.complete(spec.into(), head.now.wall);
        head.submit(spec).expect("accepted")
    };
    let job = submit(&mut head, "measure");
    assert!(head.job(job).spec.surroundings.exclusive);
    assert_eq!(head.job(job).on_each_node(), Request::new(2, 4 << 30));
    let beside = [(); 3].map(|()| submit(&mut head, "lab"));
    assert_eq!(beside.map(|job| places(&head, job).len()), [1, 1, 0], "the other node has two CPUs");

    // A job that is moved there waits for an idle node, and keeps that when it leaves or the rule ends.
    let moved = |head: &mut Head, to: &str| {
        let change = JobChange { partition: Some(to.parse().expect("a name")), ..JobChange::default() };
        head.command(&Command::Change { caller: user("ada"), job: beside[2], change: Box::new(change) })
            .expect("accepted");
    };
    moved(&mut head, "measure");
    assert!(head.job(beside[2]).spec.surroundings.exclusive);
    change_partition(
        &mut head,
        "measure",
        PartitionChange { exclusive: Some(ExclusiveRule::Optional), ..PartitionChange::default() },
    )
    .expect("accepted");
    moved(&mut head, "lab");
    assert!(head.job(beside[2]).spec.surroundings.exclusive);
    let shared = submit(&mut head, "measure");
    assert!(!head.job(shared).spec.surroundings.exclusive);
}

#[test]
fn partition_can_refuse_jobs_that_want_a_node_to_themselves() {
    let mut head = cluster();
    let never = || PartitionChange { exclusive: Some(ExclusiveRule::Never), ..PartitionChange::default() };
    add_partition(&mut head, "lab", PartitionChange { nodes: on("n1").nodes, ..never() });
    add_partition(&mut head, "other", on("*"));
    let within = |partition: &str, spec| JobSpec { partition: Some(partition.parse().expect("a name")), ..spec };
    let refused = |refusal: hostler_core::head::Refusal| {
        assert_eq!(refusal.code(), "partition_refuses");
        refusal.to_string()
    };
    let why = refused(head.submit(within("lab", alone(1))).expect_err("the partition allows none"));
    let text = "partition lab does not allow exclusive jobs; submit the job without `--exclusive`, and ask for the CPUs and the memory that it needs";
    assert_eq!(why, text);
    head.submit(within("lab", spec())).expect("accepted");
    let waiting = head.submit(within("other", alone(2))).expect("another partition of the same nodes allows it");
    let change = JobChange { partition: Some("lab".parse().expect("a name")), ..JobChange::default() };
    let change = Command::Change { caller: user("ada"), job: waiting, change: Box::new(change) };
    assert_eq!(refused(head.command(&change).expect_err("a job cannot move there either")), text);
    head.act(waiting, hostler_proto::api::JobAction::Cancel).expect("accepted");

    // Jobs that name no partition do not use its nodes.
    let free = head.submit(alone(1)).expect("accepted");
    assert_eq!(places(&head, free)[0].0, "n2");
    change_partition(&mut head, "other", never()).expect("accepted");
    let why = refused(head.submit(alone(1)).expect_err("no node is left"));
    assert!(why.contains("no other partition has nodes for this job"), "{why}");
    // The rule survives a restart.
    head.restart();
    head.submit(within("lab", alone(1))).expect_err("still refused");
}
