//! Machines that have not joined yet, whose size `power.toml` says.

use hostler_core::head::Stage;
use hostler_model::{Expected, JobSpec, JobState, PowerPlan, Request};

use super::{Head, MINUTE, name, on, plan, spec, two_cpus};

/// A plan for a machine of four CPUs that has not joined.
fn new_machine() -> PowerPlan {
    let mut plan = plan(&[("cloud1", 100)]);
    let expected = Some(Expected { cpus: 4, memory_bytes: 8 << 30 });
    plan.nodes.values_mut().for_each(|traits| traits.expected = expected);
    plan
}

#[test]
fn machine_that_has_not_joined_is_switched_on_for_jobs_of_its_expected_size() {
    let mut head = Head::new();
    head.plan(new_machine());
    assert_eq!(head.answer(&[]), []);
    assert_eq!(head.stage("cloud1"), Stage::Off, "{}", head.why("cloud1"));
    let large = JobSpec { request: Request::new(5, 1 << 30), ..spec() };
    assert!(head.submit(large).is_err(), "no node will have five CPUs");
    let job = head.submit(JobSpec { request: Request::new(4, 1 << 30), ..spec() }).expect("accepted");
    assert_eq!(head.answer(&[]), [on("cloud1")]);
    // The machine is smaller than expected: what its agent says counts.
    head.pass(MINUTE, &["cloud1"]);
    head.hello("cloud1", 1, "first", vec![]);
    assert_eq!(head.state_of(job), JobState::Pending);
    let small = head.submit(two_cpus()).expect("accepted");
    assert_eq!(head.state_of(small), JobState::Starting);
    // Another plan expects nothing of a node that is known.
    head.plan(new_machine());
    assert_eq!(head.state.node(&name("cloud1")).expect("known").facts.resources.counts().cpus, 2);
}
