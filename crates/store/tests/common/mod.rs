//! Rows and batches for the tests.
#![allow(dead_code, reason = "each test program uses its own part")]

use bytes::Bytes;
use hostler_model::{Attempt, Digest, Ending, JobId, TaskId, TaskState, WallTime};
use hostler_proto::certificate::{Certificate, MeasuredRun, Verdict};
use hostler_proto::link::{Fate, IoSource, IoUsage, RunEnd, RunResult, StepRecord, Usage};
use hostler_proto::record::{EndedPart, EndedTask};
use hostler_proto::stages::Stages;
use hostler_store::{Batch, Change};

/// A task's row with every field set, different for each task.
pub(crate) fn ended(job: u64, index: u32) -> EndedTask {
    EndedTask {
        job: JobId(job),
        index,
        attempt: Attempt(1 + index % 3),
        ending: Ending { state: TaskState::Failed, exit_code: Some(-3) },
        message: Some(format!("task {index} was unlucky")),
        node: Some("node-1".parse().expect("a name")),
        started_at: Some(WallTime(-5)),
        ended_at: WallTime(1_790_000_000_000),
        stages: Stages {
            placed_at: Some(WallTime(-9)),
            staged_at: None,
            exited_at: Some(WallTime(7)),
            collected_at: Some(WallTime(8)),
        },
        result: Some(digest_of(&[job, u64::from(index)])),
        usage: Usage {
            wall_ms: 12,
            user_ms: 3,
            system_ms: u64::MAX,
            max_rss_bytes: 1 << 40,
            memory_peak_bytes: Some(1 << 41),
            io: Some(IoUsage { read_bytes: 7, write_bytes: u64::MAX, source: IoSource::Cgroup }),
        },
        steps: vec![StepRecord {
            step: 3,
            name: "step".to_owned(),
            nodes: vec!["node-1".parse().expect("a name")],
            tasks: 2,
            cpus: 4,
            started_at: WallTime(-5),
            ended_at: Some(WallTime(6)),
            exit_code: Some(9),
            cpu_ms: 70,
            system_ms: 20,
            peak_memory_bytes: Some(1 << 20),
        }],
        certificate: Some(Box::new(Certificate {
            verdict: Verdict::Noisy,
            reasons: vec!["other processes used 1.8 CPUs".to_owned()],
            unknown: vec!["temperature".to_owned()],
            run: MeasuredRun {
                cpus: "0-1".parse().expect("a list"),
                wall_us: 9,
                cpu_us: u64::MAX,
                ..MeasuredRun::default()
            },
            ..Certificate::default()
        })),
        parts: Vec::new(),
    }
}

/// The row of a task on two nodes; the second node was lost.
pub(crate) fn ended_on_two_nodes(job: u64, index: u32) -> EndedTask {
    let row = ended(job, index);
    let part = |node: &str, manifest: Option<Digest>| EndedPart {
        node: node.parse().expect("a name"),
        end: RunEnd {
            result: manifest.map(|manifest| RunResult { manifest, inline: Vec::new() }),
            ..RunEnd::without_result(Fate::Lost, None)
        },
    };
    EndedTask { parts: vec![part("node-1", row.result), part("node-2", Some(digest_of(&[job, 7])))], ..row }
}

/// A task's row without its optional fields.
pub(crate) fn ended_bare(job: u64, index: u32) -> EndedTask {
    EndedTask {
        attempt: Attempt(0),
        ending: Ending { state: TaskState::Cancelled, exit_code: None },
        message: None,
        node: None,
        started_at: None,
        stages: Stages::default(),
        result: None,
        usage: Usage::default(),
        certificate: None,
        ..ended(job, index)
    }
}

pub(crate) fn task(job: u64, index: u32) -> TaskId {
    TaskId { job: JobId(job), index }
}

pub(crate) fn digest_of(numbers: &[u64]) -> Digest {
    let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    Digest(*blake3::hash(&bytes).as_bytes())
}

/// The test event with this number.
pub(crate) fn event(sequence: u64) -> Vec<u8> {
    format!("event {sequence} {}", "x".repeat(usize::try_from(sequence % 300).expect("small"))).into_bytes()
}

pub(crate) fn events(first: u64, last: u64) -> Batch {
    Batch { first_sequence: first, events: (first..=last).map(event).collect(), changes: Vec::new() }
}

pub(crate) fn changes(changes: impl Into<Vec<Change>>) -> Batch {
    Batch::of_changes(changes.into())
}

pub(crate) fn put(number: u64) -> Change {
    Change::PutBlob(digest_of(&[number]), Bytes::from(event(number)))
}
