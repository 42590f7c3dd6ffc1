//! Jobs that ask for a quiet machine: on which nodes they run.

use hostler_core::head::{Refusal, explain};
use hostler_model::{Advisory, JobId, JobSpec, Reason};

use crate::harness::*;

fn quiet() -> JobSpec {
    around(spec(), |it| (it.exclusive, it.quiet_machine) = (true, true))
}

fn node_of(head: &Head, job: JobId) -> Option<String> {
    let active = head.job(job).active.values().next()?;
    Some(active.parts[0].node.to_string())
}

/// Adds a node that does not make its machine quiet for this reason; `None`: it does.
fn add(head: &mut Head, node: &str, connection: u64, why_not: Option<&str>) {
    head.quiets_machine = why_not.is_none();
    head.advisory = Advisory { quiet_machine: why_not.map(str::to_owned), ..Advisory::default() };
    head.hello(node, connection, "boot", vec![]);
}

#[test]
fn jobs_with_a_quiet_machine_run_only_on_nodes_that_offer_it() {
    let mut head = Head::new();
    let contradiction = head.submit(around(quiet(), |it| it.exclusive = false)).expect_err("others would notice");
    assert!(matches!(contradiction, Refusal::Contradiction(_)), "{contradiction}");
    add(&mut head, "n1", 1, Some("it lists no knobs"));
    let refused = head.submit(quiet()).expect_err("its only node does not");
    assert_eq!(refused.code(), "no_quiet_machine");
    assert_eq!(
        refused.to_string(),
        "no node that this job may use makes its machine quiet; node n1: it lists no knobs"
    );
    add(&mut head, "n2", 2, None);
    let jobs = [(); 2].map(|()| head.submit(quiet()).expect("one node can"));
    assert_eq!(jobs.map(|job| node_of(&head, job)), [Some("n2".to_owned()), None], "n1 is idle");

    // The second node returns with other settings. The launch that its agent has not confirmed is taken back.
    add(&mut head, "n2", 3, Some("its agent does not run as root; start it as root"));
    assert_eq!(jobs.map(|job| node_of(&head, job)), [None, None]);
    let reason = explain(&head.state, head.job(jobs[0])).expect("the job waits");
    assert_eq!(reason.to_string(), "no node makes its machine quiet");
    let Reason::NoNodes { abilities, .. } = &reason else { panic!("{reason:?}") };
    let why: Vec<_> = head.state.nodes_without(&head.job(jobs[0]).spec, abilities).map(|(_, why)| why).collect();
    assert_eq!(why, ["it lists no knobs", "its agent does not run as root; start it as root"]);
}

#[test]
fn job_with_a_sandbox_and_a_quiet_machine_needs_a_node_with_both() {
    let mut head = Head::new();
    head.runs_sandboxes = true;
    add(&mut head, "n1", 1, Some("it lists no knobs"));
    head.runs_sandboxes = false;
    add(&mut head, "n2", 2, None);
    let both = || around(quiet(), |it| it.sandbox = true);
    let refused = head.submit(both()).expect_err("no node has both").to_string();
    assert_eq!(refused, "no node that this job may use makes its machine quiet; node n1: it lists no knobs");

    head.runs_sandboxes = true;
    add(&mut head, "n2", 3, None);
    let jobs = [(); 2].map(|()| head.submit(both()).expect("n2 has both"));
    assert_eq!(jobs.map(|job| node_of(&head, job)), [Some("n2".to_owned()), None]);
    head.runs_sandboxes = false;
    add(&mut head, "n2", 4, None);
    let reason = explain(&head.state, head.job(jobs[1])).expect("the job waits");
    assert_eq!(reason.to_string(), "no node that runs sandboxed jobs makes its machine quiet");
}
