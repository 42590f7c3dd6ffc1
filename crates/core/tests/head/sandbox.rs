//! Sandboxed jobs: on which nodes they run.

use hostler_core::head::{Caller, Refusal, explain};
use hostler_model::{Advisory, JobId, JobSpec, Reason};

use hostler_proto::link::HeadMessage;

use crate::harness::*;

fn sandboxed() -> JobSpec {
    JobSpec { sandbox: true, ..spec() }
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
    assert!(matches!(reason, Reason::NoNodes { for_sandbox: true, .. }), "{reason:?}");
    assert_eq!(reason.to_string(), "no node runs sandboxed jobs");
    let why: Vec<_> = head.state.nodes_without_sandboxes(&head.job(jobs[2]).spec).map(|(_, why)| why).collect();
    assert_eq!(why, ["cannot create /proc: Operation not permitted", "its agent does not run as root"]);
}

#[test]
fn node_with_an_older_agent_runs_no_sandboxed_jobs() {
    let mut head = Head::new();
    let waiting = head.submit(sandboxed()).expect("a node may be added later");
    head.hello("n1", 1, "boot", vec![]);
    assert_eq!(node_of(&head, waiting), None);
    let refused = head.submit(sandboxed()).expect_err("the only node cannot").to_string();
    assert!(refused.ends_with("node n1: its agent is older than sandboxes; update it"), "{refused}");
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
fn sandboxed_job_of_root_or_of_several_processes_is_refused() {
    let mut head = Head::new();
    add(&mut head, "n1", 1, None);
    let of_root = head.submit_as(Caller { uid: Some(0), ..user("root") }, sandboxed());
    assert!(matches!(of_root, Err(Refusal::Contradiction(_))), "{of_root:?}");
    for spec in [
        JobSpec { nodes: 2, ..sandboxed() },
        JobSpec { tasks_per_node: 2, ..sandboxed() },
        JobSpec { first_node: true, ..sandboxed() },
        JobSpec { label: true, ..sandboxed() },
    ] {
        let refused = head.submit(spec);
        assert!(matches!(refused, Err(Refusal::Contradiction(_))), "{refused:?}");
    }
}
