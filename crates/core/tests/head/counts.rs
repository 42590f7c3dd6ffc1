//! What the head counts for its metrics: tasks by partition, submitted, placed, ended and waiting.

use hostler_core::head::{Command, PartitionsCommand, TaskChange, TaskCount};
use hostler_model::{ArraySpec, JobSpec, JobState, PartitionName};
use hostler_proto::api::JobAction;
use hostler_proto::partitions::PartitionChange;

use crate::harness::*;

fn gpu() -> PartitionName {
    "gpu".parse().expect("a name")
}

fn array(count: u32) -> JobSpec {
    let array: ArraySpec = format!("0-{}", count - 1).parse().expect("an array");
    JobSpec { array: Some(array), partition: Some(gpu()), ..spec() }
}

fn waiting(head: &Head, partition: Option<&PartitionName>) -> u64 {
    head.state.live_counts_by_partition().get(&partition).map_or(0, |counts| counts.pending)
}

#[test]
fn tasks_are_counted_by_partition_from_submission_to_end() {
    let mut head = Head::new();
    head.hello("n1", 1, "boot", vec![]);
    let nodes = PartitionChange { nodes: Some("n1".parse().expect("a pattern")), ..PartitionChange::default() };
    head.command(&Command::Partitions(PartitionsCommand::Add(gpu(), nodes))).expect("valid");
    head.counts.clear();

    let job = head.submit(array(5)).expect("accepted");
    let other = head.submit(JobSpec { hold: true, ..spec() }).expect("accepted");
    let placed = head.job(job).active.len() as u64;
    assert!(placed > 0, "the node has room for a task");
    assert_eq!((waiting(&head, Some(&gpu())), waiting(&head, None)), (5 - placed, 1));
    let all = head.state.live_counts();
    assert_eq!((all.pending, all.starting), (6 - placed, placed));

    let count = |partition: Option<PartitionName>, what| TaskCount { partition, what };
    let mut expected = vec![count(Some(gpu()), TaskChange::Submitted { tasks: 5 })];
    expected.extend((0..placed).map(|_| count(Some(gpu()), TaskChange::Placed { waited_ms: 0 })));
    expected.push(count(None, TaskChange::Submitted { tasks: 1 }));
    assert_eq!(head.counts, expected);

    head.counts.clear();
    head.act(other, JobAction::Cancel).expect("permitted");
    head.act(job, JobAction::Cancel).expect("permitted");
    let cancelled = |tasks| TaskChange::Ended { state: JobState::Cancelled, tasks };
    assert_eq!(head.counts, [count(None, cancelled(1)), count(Some(gpu()), cancelled(5 - placed))]);
    assert_eq!((waiting(&head, Some(&gpu())), waiting(&head, None)), (0, 0));

    head.counts.clear();
    let runs: Vec<_> = head.job(job).active.values().map(|active| active.run).collect();
    for run in runs {
        head.report(1, run, ended(0)).expect("the run is known");
    }
    let over: u64 = head
        .counts
        .iter()
        .map(|count| match count.what {
            TaskChange::Ended { tasks, .. } => tasks,
            TaskChange::Submitted { .. } | TaskChange::Placed { .. } => 0,
        })
        .sum();
    assert_eq!(over, placed);
}
