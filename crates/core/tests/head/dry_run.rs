//! Dry runs: what would happen to a job.

use std::sync::Arc;

use hostler_core::head::{Command, DryRun, Ended, Now, Refusal, SubmissionKey};
use hostler_model::{JobSpec, Reason};

use crate::harness::*;

fn now(head: &Head) -> Now {
    Now { at: head.state.last_event_at, wall: head.state.last_event_wall }
}

/// A dry run on the head's state, which must not change.
fn dry_run(head: &Head, spec: JobSpec) -> Result<DryRun, Refusal> {
    let submission = Command::Submit {
        caller: user("ada"),
        key: SubmissionKey(0),
        spec: Arc::new(spec),
        environment: None,
        snapshot_is_complete: true,
    };
    let found = head.state.clone().dry_run(&submission, &Ended::default(), now(head))?;
    assert_eq!(found.job, head.state.next_job());
    Ok(found)
}

#[test]
fn dry_run_says_where_the_job_would_start() {
    let mut head = Head::new();
    head.hello("n1", 1, "boot", vec![]);
    head.hello("n2", 2, "boot", vec![]);
    let found = dry_run(&head, JobSpec { nodes: 2, ..spec() }).expect("accepted");
    assert_eq!(found.nodes, [name("n1"), name("n2")]);
    assert_eq!((found.starts_at, found.reason), (Some(now(&head).at), None));
    let array = JobSpec { array: Some("0-9".parse().expect("indices")), ..spec() };
    assert_eq!(dry_run(&head, array).expect("accepted").nodes, [name("n1")], "the nodes of the first task");

    let job = head.submit(JobSpec { nodes: 2, ..spec() }).expect("accepted");
    assert_eq!(job, found.job, "the dry run changed nothing");
}

#[test]
fn dry_run_says_why_and_until_when_the_job_would_wait() {
    let mut head = Head::new();
    head.hello("n1", 1, "boot", vec![]);
    let limited = || JobSpec { time_limit_ms: Some(60_000), ..spec() };
    head.submit(limited()).expect("accepted");
    head.submit(limited()).expect("accepted");
    let found = dry_run(&head, spec()).expect("accepted");
    assert_eq!(found.nodes, [name("n1")]);
    assert!(
        found.starts_at > Some(now(&head).at) && matches!(found.reason, Some(Reason::Resources { .. })),
        "{found:?}"
    );
    // Behind another waiting job, the time is not known.
    head.submit(limited()).expect("accepted");
    let found = dry_run(&head, spec()).expect("accepted");
    assert!(found.starts_at.is_none() && found.nodes.is_empty() && found.reason.is_some(), "{found:?}");
    let held = dry_run(&head, JobSpec { hold: true, ..spec() }).expect("accepted");
    assert_eq!(held.reason, Some(Reason::Held));
}

#[test]
fn dry_run_says_that_a_job_would_be_cancelled() {
    let mut head = Head::new();
    head.hello("n1", 1, "boot", vec![]);
    let failed = head.submit(spec()).expect("accepted");
    head.report(1, head.run_of(failed), ended(1)).expect("accepted");
    let after = vec![format!("afterok:{failed}").parse().expect("a dependency")];
    let refused = dry_run(&head, JobSpec { after: after.into(), ..spec() }).expect_err("it never starts");
    assert!(refused.to_string().contains("can never be satisfied"), "{refused}");
}

#[test]
fn dry_run_refuses_what_a_submission_refuses() {
    let mut head = Head::new();
    head.hello("n1", 1, "boot", vec![]);
    let too_large = JobSpec { nodes: 3, ..spec() };
    let refused = dry_run(&head, too_large.clone()).expect_err("one node is not three").to_string();
    assert_eq!(refused, head.submit(too_large).expect_err("one node is not three").to_string());
}
