//! Runs on several nodes: all parts are placed together, start together and end together.

use hostler_core::head::Refusal;
use hostler_model::{Digest, JobId, JobSpec, JobState, Reason, RunId};
use hostler_proto::api::JobAction;
use hostler_proto::link::{EndCause, Fate, HeadMessage, RunStatus, StepEndpoint};
use hostler_proto::stored::Change;

use crate::harness::*;

fn on_nodes(nodes: u32) -> JobSpec {
    JobSpec { nodes, ..spec() }
}

/// A head with three nodes of two CPUs, on the connections 1 to 3.
fn cluster() -> Head {
    let mut head = Head::new();
    for n in 1..=3 {
        head.hello(&format!("n{n}"), n, "boot", vec![]);
    }
    head
}

/// A running job on three nodes.
fn running() -> (Head, JobId, RunId) {
    let mut head = cluster();
    let job = head.submit(on_nodes(3)).expect("accepted");
    let run = head.run_of(job);
    for connection in 1..=3 {
        head.report(connection, run, RunStatus::Accepted).expect("accepted");
        head.report(connection, run, ready(connection)).expect("accepted");
    }
    for connection in 1..=3 {
        head.report(connection, run, RunStatus::Running).expect("accepted");
    }
    head.sent();
    (head, job, run)
}

fn ready(n: u64) -> RunStatus {
    RunStatus::Ready { port: 1000 + n as u16, endpoint: None }
}

#[test]
fn all_nodes_start_when_the_last_is_ready() {
    let mut head = cluster();
    let job = head.submit(on_nodes(3)).expect("accepted");
    let run = head.run_of(job);
    let ranks: Vec<u32> = head
        .sent()
        .into_iter()
        .map(|message| match message {
            HeadMessage::Launch(launch) => {
                let gang = launch.runs[0].gang.as_ref().expect("the launch lists the other nodes");
                assert_eq!((launch.runs[0].run, gang.nodes.len()), (run, 3));
                gang.rank
            }
            other => panic!("{other:?} instead of a launch"),
        })
        .collect();
    assert_eq!(ranks, [0, 1, 2]);
    head.report(1, run, ready(1)).expect("accepted");
    head.report(3, run, ready(3)).expect("accepted");
    assert_eq!(head.sent(), [], "the second node is not ready");
    assert_eq!(head.state_of(job), JobState::Starting);
    head.report(2, run, ready(2)).expect("accepted");
    let begin = HeadMessage::Begin { run, port: 1001, endpoints: Vec::new() };
    assert_eq!(head.sent_to(), [(1, begin.clone()), (2, begin.clone()), (3, begin.clone())]);
    for connection in [3, 1] {
        head.report(connection, run, RunStatus::Running).expect("accepted");
        assert_eq!(head.state_of(job), JobState::Starting, "not all nodes run the task");
    }
    // The second node's agent was restarted and missed the first `Begin`.
    head.report(2, run, RunStatus::Ready { port: 7, endpoint: None }).expect("accepted");
    assert_eq!(head.sent_to(), [(2, begin)], "the other nodes already know the first port");
    head.report(2, run, RunStatus::Running).expect("accepted");
    assert_eq!(head.state_of(job), JobState::Running);
}

#[test]
fn run_completes_when_all_parts_complete() {
    let (mut head, job, run) = running();
    head.report(2, run, ended(0)).expect("accepted");
    assert_eq!(head.sent_to(), [(2, HeadMessage::Forget { run })], "the second node is free again");
    assert_eq!(head.state_of(job), JobState::Running);
    head.restart();
    for n in [1, 3] {
        let held = hostler_proto::link::RunReport { run, status: RunStatus::Running };
        head.hello(&format!("n{n}"), n + 10, "boot", vec![held]);
    }
    head.hello("n2", 12, "boot", vec![]);
    head.report(11, run, ended(0)).expect("accepted");
    head.report(13, run, ended(0)).expect("accepted");
    assert_eq!(head.state_of(job), JobState::Completed);
    let [Change::Ended(row), Change::JobEnded(_)] = head.changes.as_slice() else {
        panic!("expected one row, found {:?}", head.changes)
    };
    assert_eq!(row.parts.len(), 3);
    assert_eq!((row.ending.exit_code, row.message.as_deref()), (Some(0), None));
}

#[test]
fn first_failure_ends_the_other_parts_and_decides_the_ending() {
    let (mut head, job, run) = running();
    head.report(3, run, ended(7)).expect("accepted");
    let end = HeadMessage::End { run, cause: EndCause::Broken, grace_ms: 10_000 };
    assert_eq!(head.sent_to(), [(3, HeadMessage::Forget { run }), (1, end.clone()), (2, end)]);
    assert_eq!(head.state_of(job), JobState::Running, "two parts still run");
    let asked = Fate::Ended(hostler_model::Ending { state: JobState::Cancelled, exit_code: Some(143) });
    head.report(1, run, fate(asked)).expect("accepted");
    head.report(2, run, ended(0)).expect("the part may have ended before the order arrived");
    assert_eq!((head.state_of(job), head.job(job).exit_code()), (JobState::Failed, Some(7)));
    let [Change::Ended(row), Change::JobEnded(_)] = head.changes.as_slice() else {
        panic!("expected one row, found {:?}", head.changes)
    };
    assert_eq!(row.message.as_deref(), Some("node n3 (rank 2) was the first to fail: exit code 7"));
    let states: Vec<Option<JobState>> =
        row.parts.iter().map(|part| part.end.ending().map(|ending| ending.state)).collect();
    assert_eq!(states, [JobState::Cancelled, JobState::Completed, JobState::Failed].map(Some));
}

#[test]
fn lost_node_ends_the_run_or_requeues_it() {
    for requeue in [false, true] {
        let mut head = cluster();
        let job = head.submit(JobSpec { requeue, ..on_nodes(2) }).expect("accepted");
        let run = head.run_of(job);
        for connection in 1..=2 {
            head.report(connection, run, ready(connection)).expect("accepted");
            head.report(connection, run, RunStatus::Running).expect("accepted");
        }
        head.sent();
        head.hello("n2", 9, "another boot", vec![]);
        let cause = if requeue { EndCause::Requeued } else { EndCause::Broken };
        let sent = head.sent_to();
        assert!(sent.contains(&(1, HeadMessage::End { run, cause, grace_ms: 10_000 })), "{sent:?}");
        assert_eq!(head.run_of(job), run, "the part on the first node still runs");
        let fate_of_first = if requeue {
            Fate::Requeued
        } else {
            Fate::Ended(hostler_model::Ending { state: JobState::Cancelled, exit_code: Some(143) })
        };
        head.report(1, run, fate(fate_of_first)).expect("accepted");
        if requeue {
            assert_eq!(head.run_of(job).attempt.0, 2, "the task is placed again");
        } else {
            assert_eq!(head.state_of(job), JobState::NodeFail);
        }
    }
}

#[test]
fn run_that_has_not_started_on_all_nodes_is_placed_again() {
    let mut head = cluster();
    let job = head.submit(on_nodes(2)).expect("accepted");
    let run = head.run_of(job);
    head.report(1, run, ready(1)).expect("accepted");
    head.report(2, run, RunStatus::Accepted).expect("accepted");
    // The second node reboots. No process of the job has started, so the task is placed again even without `requeue`.
    head.hello("n2", 9, "another boot", vec![]);
    let sent = head.sent_to();
    let again = HeadMessage::End { run, cause: EndCause::Requeued, grace_ms: 10_000 };
    assert!(sent.contains(&(1, again)), "{sent:?}");
    head.report(1, run, fate(Fate::Requeued)).expect("accepted");
    assert_eq!(head.run_of(job).attempt.0, 2);
    assert_eq!(head.changes.len(), 0);
}

#[test]
fn two_wide_jobs_do_not_deadlock() {
    let mut head = cluster();
    let wide = JobSpec { request: hostler_model::Request::new(2, 1 << 30), ..on_nodes(2) };
    let first = head.submit(wide.clone()).expect("accepted");
    let second = head.submit(wide).expect("accepted");
    assert_eq!(head.job(first).active[&0].parts.len(), 2);
    assert!(head.job(second).active.is_empty(), "the second job holds no node while it waits");
    let reason = hostler_core::head::explain(&head.state, head.job(second)).expect("the job waits");
    assert!(matches!(reason, Reason::TooFewNodes { wanted: 2, enough: 1, .. }), "{reason:?}");
    let run = head.run_of(first);
    head.report(1, run, ended(0)).expect("accepted");
    assert_eq!(
        head.job(second).active[&0].parts.len(),
        2,
        "two nodes are free, although the first job still runs on the other"
    );
}

#[test]
fn cancelling_ends_every_part() {
    let (mut head, job, run) = running();
    head.act(job, JobAction::Cancel).expect("accepted");
    let end = HeadMessage::End { run, cause: EndCause::Cancelled, grace_ms: 10_000 };
    assert_eq!(head.sent_to(), [(1, end.clone()), (2, end.clone()), (3, end)]);
    let asked = Fate::Ended(hostler_model::Ending { state: JobState::Cancelled, exit_code: Some(143) });
    (1..=3).for_each(|connection| head.report(connection, run, fate(asked)).expect("accepted"));
    assert_eq!(head.state_of(job), JobState::Cancelled);
}

#[test]
fn request_for_too_many_nodes_is_refused() {
    let mut head = cluster();
    let refusal = head.submit(on_nodes(4)).expect_err("there are only three nodes");
    assert!(matches!(refusal, Refusal::NeverFits(_)), "{refusal:?}");
    let nodes = head.submit(on_nodes(0)).expect_err("a job needs at least one node");
    assert!(matches!(nodes, Refusal::BadSpec(_)), "{nodes:?}");
}

#[test]
fn nodes_that_accept_steps_learn_each_others_addresses() {
    let mut head = cluster();
    let job = head.submit(JobSpec { first_node: true, ..on_nodes(2) }).expect("accepted");
    let run = head.run_of(job);
    head.sent();
    let endpoint = |n: u8| StepEndpoint { port: 2000 + u16::from(n), certificate: Digest([n; 32]) };
    for n in [2, 1] {
        let port = 1000 + u16::from(n);
        head.report(n.into(), run, RunStatus::Ready { port, endpoint: Some(endpoint(n)) }).expect("accepted");
    }
    let begin = HeadMessage::Begin { run, port: 1001, endpoints: vec![endpoint(1), endpoint(2)] };
    assert_eq!(head.sent_to(), [(1, begin.clone()), (2, begin)]);
}

#[test]
fn first_node_job_ends_with_its_program() {
    let started = |requeue| {
        let mut head = cluster();
        let job = head.submit(JobSpec { first_node: true, requeue, ..on_nodes(3) }).expect("accepted");
        let run = head.run_of(job);
        for connection in 1..=3 {
            head.report(connection, run, ready(connection)).expect("accepted");
            head.report(connection, run, RunStatus::Running).expect("accepted");
        }
        head.sent();
        (head, job, run)
    };
    // The program's success ends the other parts as completed.
    let (mut head, job, run) = started(false);
    head.report(1, run, ended(0)).expect("accepted");
    let end = HeadMessage::End { run, cause: EndCause::Finished, grace_ms: 10_000 };
    assert_eq!(head.sent_to(), [(1, HeadMessage::Forget { run }), (2, end.clone()), (3, end.clone())]);
    // A disconnected node gets the order when it reconnects.
    let held = hostler_proto::link::RunReport { run, status: RunStatus::Running };
    head.hello("n2", 12, "boot", vec![held]);
    assert_eq!(head.sent_to(), [(12, end)]);
    head.report(12, run, ended(0)).expect("accepted");
    assert_eq!(head.state_of(job), JobState::Running, "the part on the third node has not ended");
    head.report(3, run, ended(0)).expect("accepted");
    assert_eq!(head.state_of(job), JobState::Completed);

    // The program's failure fails the job.
    let (mut head, job, run) = started(false);
    head.report(1, run, ended(9)).expect("accepted");
    let end = HeadMessage::End { run, cause: EndCause::Broken, grace_ms: 10_000 };
    assert_eq!(head.sent_to(), [(1, HeadMessage::Forget { run }), (2, end.clone()), (3, end)]);
    for connection in [2, 3] {
        head.report(connection, run, ended(0)).expect("accepted");
    }
    assert_eq!((head.state_of(job), head.job(job).exit_code()), (JobState::Failed, Some(9)));

    // If another part ends before the first node's program, the job fails.
    let (mut head, job, run) = started(false);
    head.report(2, run, ended(137)).expect("accepted");
    for connection in [1, 3] {
        head.report(connection, run, ended(0)).expect("accepted");
    }
    assert_eq!((head.state_of(job), head.job(job).exit_code()), (JobState::Failed, Some(137)));

    // A requeue that arrives just before the end takes effect.
    let (mut head, job, run) = started(false);
    head.act(job, JobAction::Requeue).expect("the job runs");
    head.sent();
    head.report(1, run, ended(0)).expect("accepted");
    for connection in [2, 3] {
        head.report(connection, run, fate(Fate::Requeued)).expect("accepted");
    }
    assert_ne!(head.state_of(job), JobState::Completed);
}
