//! Jobs in containers of engines: on which nodes they run, and with what they cannot be combined.

use hostler_core::head::{Command, PartitionsCommand, Refusal};
use hostler_model::{Constraint, Container, Engine, JobSpec, SandboxNetwork, SandboxRule, Submission};
use hostler_proto::jobs::JobChange;
use hostler_proto::partitions::PartitionChange;

use crate::harness::*;
use crate::partitions::{add as add_partition, on};

fn contained() -> JobSpec {
    let image = "debian:12".parse().expect("an image");
    around(spec(), |it| it.container = Some(Box::new(Container { engine: Engine::Podman, image })))
}

/// Submits a job as the API does.
fn submit(head: &mut Head, spec: JobSpec) -> Result<hostler_model::JobId, Refusal> {
    let spec = head.state.complete(Submission::from(spec), head.now.wall);
    head.submit(spec)
}

#[test]
fn job_in_a_container_runs_only_on_nodes_with_its_engine() {
    let mut head = Head::new();
    head.hello("n1", 1, "boot", vec![]);
    let refused = submit(&mut head, contained()).expect_err("no node has the engine");
    assert!(refused.to_string().contains("engine-podman"), "{refused}");
    let features = Some([Engine::Podman.feature()].into());
    let traits = PartitionsCommand::SetTraits { node: name("n1"), weight: None, features };
    head.command(&Command::Partitions(traits)).expect("allowed");
    let job = submit(&mut head, JobSpec { hold: true, constraint: "n1|n2".parse().ok(), ..contained() });
    let job = job.expect("a node has the engine");
    let constraint = |head: &Head| head.job(job).spec.constraint.as_ref().map(ToString::to_string);
    assert_eq!(constraint(&head).as_deref(), Some("(n1|n2)&engine-podman"));
    // The user cannot take the demand away.
    let change = JobChange { constraint: Some(None), ..JobChange::default() };
    head.command(&Command::Change { caller: user("ada"), job, change: Box::new(change) }).expect("it waits");
    assert_eq!(constraint(&head).as_deref(), Some("engine-podman"));
}

#[test]
fn constraint_too_large_with_the_engine_is_refused_on_submission_and_update() {
    let mut head = Head::new();
    head.hello("n1", 1, "boot", vec![]);
    let features = Some([Engine::Podman.feature()].into());
    let traits = PartitionsCommand::SetTraits { node: name("n1"), weight: None, features };
    head.command(&Command::Partitions(traits)).expect("allowed");
    let job = submit(&mut head, JobSpec { hold: true, ..contained() }).expect("a node has the engine");
    let added = "()&engine-podman".len();
    let long = |bytes: usize| "n1|".repeat((bytes - 1) / 3) + &"a".repeat((bytes - 1) % 3 + 1);
    let deep = |levels: usize| (0..levels).fold("n1|a".to_owned(), |inner, _| format!("({inner})&n1|n1"));
    for (fits, too_large) in [(long(1000 - added), long(1001 - added)), (deep(31), deep(32))] {
        for (text, is_fine) in [(fits, true), (too_large, false)] {
            let constraint: Constraint = text.parse().expect("within the limits of users");
            let new = JobSpec { hold: true, constraint: Some(constraint.clone()), ..contained() };
            let submitted = submit(&mut head, new).map(drop);
            let change = JobChange { constraint: Some(Some(constraint)), ..JobChange::default() };
            let changed =
                head.command(&Command::Change { caller: user("ada"), job, change: Box::new(change) }).map(drop);
            for answer in [submitted, changed] {
                match answer {
                    Ok(()) => assert!(is_fine, "{text}"),
                    Err(refused) => {
                        assert!(!is_fine && refused.to_string().contains("`--constraint`"), "{refused}: {text}");
                    }
                }
            }
        }
    }
}

#[test]
fn engine_is_neither_a_sandbox_nor_a_way_around_one() {
    let mut head = Head::new();
    head.hello("n1", 1, "boot", vec![]);
    let wrong: [fn(&mut JobSpec); 5] = [
        |spec| spec.surroundings.sandbox = true,
        |spec| spec.surroundings.network = SandboxNetwork::Host,
        |spec| spec.tasks_per_node = 2,
        |spec| spec.first_node = true,
        |spec| spec.surroundings.image = "dir:/data".parse().ok().map(Box::new),
    ];
    for change in wrong {
        let mut spec = contained();
        change(&mut spec);
        let refused = submit(&mut head, spec).expect_err("a contradiction");
        assert!(refused.to_string().contains("a container of an engine has no sandbox"), "{refused}");
    }
    add_partition(&mut head, "lab", PartitionChange { sandbox: Some(SandboxRule::Always), ..on("n*") });
    let in_lab = JobSpec { partition: "lab".parse().ok(), ..contained() };
    let refused = submit(&mut head, in_lab).expect_err("the partition demands a sandbox");
    assert!(refused.to_string().contains("no container engine (`--runtime`)"), "{refused}");
}
