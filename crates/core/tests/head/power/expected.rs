//! Machines that have not joined yet, whose size `power.toml` says.

use hostler_core::head::{Command, KEY_LIFE_MS, Refusal, Replaces, Stage};
use hostler_model::{Digest, Expected, JobSpec, JobState, PowerPlan, Request};

use super::{Head, MINUTE, name, on, plan, spec, two_cpus};

/// A plan for a machine of so many CPUs that has not joined.
fn new_machine(cpus: u32) -> PowerPlan {
    let mut plan = plan(&[("cloud1", 100)]);
    let expected = Some(Expected { cpus, memory_bytes: 8 << 30 });
    plan.nodes.values_mut().for_each(|traits| traits.expected = expected);
    plan
}

/// The CPUs of the machine, if it is known.
fn cpus(head: &Head) -> Option<u32> {
    head.state.node(&name("cloud1")).map(|node| node.facts.resources.counts().cpus)
}

#[test]
fn machine_that_has_not_joined_is_switched_on_for_jobs_of_its_expected_size() {
    let mut head = Head::new();
    head.plan(new_machine(4));
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
    // What a plan expects does not matter for a node that has connected.
    head.plan(new_machine(8));
    assert_eq!(cpus(&head), Some(2));
    head.plan(PowerPlan::default());
    assert_eq!(cpus(&head), Some(2));
}

#[test]
fn expectation_can_be_corrected_and_withdrawn_until_the_machine_has_connected() {
    let mut head = Head::new();
    head.plan(new_machine(80));
    head.plan(new_machine(4));
    assert_eq!(cpus(&head), Some(4));
    head.plan(PowerPlan::default());
    assert_eq!(cpus(&head), None);
}

#[test]
fn expected_node_accepts_no_certificate_of_a_removed_machine() {
    let mut head = Head::new();
    head.hello("cloud1", 1, "first", vec![]);
    let key = head.state.member(&name("cloud1")).expect("it has joined").key.key;
    head.command(&Command::RemoveNode { node: name("cloud1"), by: "root".to_owned() }).expect("accepted");
    head.plan(new_machine(4));
    assert_eq!(cpus(&head), Some(4));
    assert!(head.state.check_key(&name("cloud1"), key, head.now.at).is_err());
}

#[test]
fn partitions_code_replaces_only_a_node_that_is_away_and_has_no_tasks() {
    let mut head = Head::new();
    let join = |head: &mut Head, seed: u8, replaces| {
        let key = Digest([seed; 32]);
        head.command(&Command::Join { node: name("cloud1"), key, life_ms: KEY_LIFE_MS, replaces })
    };
    head.hello("cloud1", 1, "first", vec![]);
    let refused = Err(Refusal::NodePresent(name("cloud1")));
    assert_eq!(join(&mut head, 7, Replaces::Away), refused, "it is up");
    let job = head.submit(spec()).expect("accepted");
    assert_eq!(head.state_of(job), JobState::Starting);
    head.disconnect(1);
    assert_eq!(join(&mut head, 7, Replaces::Away), refused, "it may come back at once");
    head.pass_ms(10 * 1000);
    assert_eq!(join(&mut head, 7, Replaces::Away), refused, "it is down, but its task may still run");
    head.pass_ms(2 * MINUTE);
    assert_eq!(join(&mut head, 7, Replaces::Away), Ok(()), "its task is given up");
    assert_eq!(join(&mut head, 7, Replaces::Away), Ok(()), "the answer was lost");
    assert_eq!(join(&mut head, 8, Replaces::Nothing), Err(Refusal::NameTaken(name("cloud1"))));
    assert_eq!(join(&mut head, 8, Replaces::Any), Ok(()));
}
