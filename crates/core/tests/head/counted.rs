//! Counted resources from node configurations: jobs request and hold them like CPUs.

use hostler_core::head::{Refusal, explain};
use hostler_model::{Counted, CpuSet, Hardware, JobId, JobSpec, JobState, Reason, Request, Resources};
use hostler_proto::link::{HeadMessage, RunReport, RunStatus};

use super::harness::{Head, ended, spec};

/// A machine with eight CPUs and these counted resources.
fn machine(counted: &str) -> (Resources, Hardware) {
    let counted = counted.parse().expect("names and counts");
    (Resources { counted, ..Resources::new(CpuSet::first(8), 8 << 30) }, Hardware::default())
}

fn asks(counted: &str) -> JobSpec {
    let counted = counted.parse().expect("names and counts");
    JobSpec { request: Request { counted, ..spec().request }, requeue: true, ..spec() }
}

fn free(head: &Head) -> String {
    let free: Counted = head
        .state
        .capacity()
        .counted_free
        .into_iter()
        .filter(|(_, count)| *count > 0)
        .map(|(name, count)| format!("{name}={count}"))
        .collect::<Vec<_>>()
        .join(",")
        .parse()
        .expect("counts");
    free.to_string()
}

fn submit(head: &mut Head, counted: &str) -> JobId {
    head.submit(asks(counted)).expect("the request fits on the idle node")
}

#[test]
fn counted_resources_are_not_overcommitted() {
    let mut head = Head::new();
    head.hello_of("n1", 1, "boot", Vec::new(), machine("license=3,camera"));
    let (one, none) = (submit(&mut head, "license=2"), submit(&mut head, ""));
    let two = submit(&mut head, "license=2,camera");
    assert_eq!(
        [one, none, two].map(|job| head.state_of(job)),
        [JobState::Starting, JobState::Starting, JobState::Pending]
    );
    let Some(Reason::Resources { closest }) = explain(&head.state, head.job(two)) else {
        panic!("the job does not wait for resources")
    };
    assert_eq!(closest[0].to_string(), "n1, which lacks license=1");
    assert_eq!(free(&head), "camera=1,license=1");
    let told = head.sent().into_iter().find_map(|message| match message {
        HeadMessage::Launch(launch) => Some(launch.runs[0].resources.counted.to_string()),
        _ => None,
    });
    assert_eq!(told.as_deref(), Some("license=2"), "the launch names the counted resources");

    let run = head.run_of(one);
    head.report(1, run, ended(0)).expect("accepted");
    assert_eq!((head.state_of(two), free(&head).as_str()), (JobState::Starting, "license=1"));
}

#[test]
fn nodes_with_counted_resources_are_used_last_by_other_jobs() {
    let mut head = Head::new();
    head.hello_of("lab", 1, "boot", Vec::new(), machine("camera"));
    head.hello_of("plain", 2, "boot", Vec::new(), machine(""));
    let (plain, camera) = (submit(&mut head, ""), submit(&mut head, "camera"));
    let node = |job| head.job(job).active[&0].parts[0].node.to_string();
    assert_eq!((node(plain), node(camera)), ("plain".to_owned(), "lab".to_owned()));
}

#[test]
fn request_that_no_node_can_satisfy_is_refused_with_a_reason() {
    let mut head = Head::new();
    head.hello_of("n1", 1, "boot", Vec::new(), machine("license=3"));
    for (asked, part) in [
        ("license=4", "asks for license=4; no node has more than n1, which has license=3"),
        ("robot", "asks for robot=1; no node has any"),
    ] {
        let Err(Refusal::NeverFits(why)) = head.submit(asks(asked)) else { panic!("{asked}: no node has that many") };
        assert!(why.to_string().contains(part), "{why}");
    }
}

#[test]
fn a_configuration_may_change_while_jobs_run() {
    let mut head = Head::new();
    head.hello_of("n1", 1, "boot", Vec::new(), machine("license=3"));
    let (one, two) = (submit(&mut head, "license=2"), submit(&mut head, "license=2"));
    let runs = vec![RunReport { run: head.run_of(one), status: RunStatus::Running }];
    head.restart();
    // The node now offers fewer than running jobs hold. These jobs continue, and no other job gets any.
    head.hello_of("n1", 2, "boot", runs.clone(), machine("license=1"));
    assert_eq!((head.state_of(one), free(&head).as_str()), (JobState::Running, ""));
    let reason = explain(&head.state, head.job(two)).expect("the job waits").to_string();
    assert_eq!(
        reason, "no node has enough free now; closest is n1, which lacks license=1",
        "measured against the node's total"
    );
    head.hello_of("n1", 3, "boot", runs, machine("license=4"));
    assert_eq!((head.state_of(two), free(&head).as_str()), (JobState::Starting, ""));
}

#[test]
fn totals_may_exceed_the_limits_of_one_node() {
    let mut head = Head::new();
    let of_node = |node: usize| (0..40).map(|i| format!("r{}=900000000", node * 40 + i)).collect::<Vec<_>>().join(",");
    head.hello_of("n1", 1, "boot", Vec::new(), machine(&of_node(0)));
    head.hello_of("n2", 2, "boot", Vec::new(), machine(&of_node(1)));
    head.hello_of("n3", 3, "boot", Vec::new(), machine(&of_node(1)));
    let all = head.state.capacity().counted;
    assert_eq!((all.len(), all["r0"], all["r79"]), (80, 900_000_000, 1_800_000_000));
}

#[test]
fn messages_of_older_releases_without_counts_are_decoded() {
    let old = hostler_proto::encode(&serde_json::json!({ "cpus": "0-7", "memory_bytes": 8_u64 << 30 }));
    assert_eq!(hostler_proto::decode::<Resources>(&old).expect("the field may be absent"), machine("").0);
    let old = hostler_proto::encode(&serde_json::json!({ "cpus": 1, "memory_bytes": 7 }));
    assert_eq!(hostler_proto::decode::<Request>(&old).expect("the field may be absent"), Request::new(1, 7));
}
