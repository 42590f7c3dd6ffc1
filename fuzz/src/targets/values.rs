//! Valid values shared by several targets.

use hostler_model::{
    ArraySpec, Attempt, CoreKind, Cpu, CpuSet, Digest, Ending, Epoch, Gpu, GpuId, Hardware, JobId, JobSpec, JobState,
    NodeFacts, NodeName, Request, Resources, RunId, TaskId, Topology, Vendor, WindowSize, Work,
};
use hostler_proto::link::{AgentHello, Fate, RunEnd, RunReport, RunResult, RunStatus, Usage};
use hostler_proto::manifest::{Chunk, Content, Entry, EntryKind, Manifest, ResultManifest, VERSION};

pub(crate) fn node() -> NodeName {
    "n1".parse().expect("a valid name")
}

pub(crate) fn run(job: u64) -> RunId {
    RunId { task: TaskId { job: JobId(job), index: 0 }, attempt: Attempt(1), epoch: Epoch(1) }
}

/// A job that sets every option.
pub(crate) fn spec() -> JobSpec {
    let work = Work::Project { snapshot: Digest([7; 32]), entrypoint: "main.py".into(), args: vec!["--fast".into()] };
    let mut spec = JobSpec::new("train", work, Request::new(1, 1 << 30));
    spec.array = "0-9:2%3".parse::<ArraySpec>().ok();
    spec.after = ["afterok:1".parse().expect("a dependency")].into();
    spec.environment.insert("SEED".into(), "1".into());
    spec.pty = Some(WindowSize { rows: 24, columns: 80 });
    spec.time_limit_ms = Some(60_000);
    spec
}

/// A job that uses one CPU of one node.
pub(crate) fn command() -> JobSpec {
    JobSpec::new("run", Work::command(["true"], "/"), Request::new(1, 1 << 20))
}

/// Two cores with two threads each, on two NUMA nodes.
fn topology() -> Topology {
    let cpu = |id| Cpu { id, core: id % 2, package: 0, numa: id % 2, kind: CoreKind::Performance };
    Topology::new(&(0..4).map(cpu).collect::<Vec<_>>())
}

pub(crate) fn hello() -> AgentHello {
    let facts = NodeFacts {
        resources: Resources { gpus: [GpuId::from_name("GPU-0")].into(), ..Resources::new(CpuSet::first(4), 8 << 30) },
        hardware: Hardware {
            topology: topology(),
            gpus: vec![Gpu {
                id: GpuId::from_name("GPU-0"),
                vendor: Vendor::Nvidia,
                name: "card".into(),
                memory_bytes: Some(16 << 30),
                numa: Some(0),
            }],
        },
        address: Some([127, 0, 0, 1].into()),
        gossip_at: Some(([192, 0, 2, 7], 7761).into()),
        ..NodeFacts::new("boot", Resources::default())
    };
    let runs = [
        RunStatus::Accepted,
        RunStatus::Ready { port: 9, endpoint: None },
        RunStatus::Running,
        RunStatus::Completing,
        ended(),
    ]
    .into_iter()
    .enumerate()
    .map(|(job, status)| RunReport { run: run(job as u64), status })
    .collect();
    AgentHello::new(node(), 7, facts, runs)
}

pub(crate) fn ended() -> RunStatus {
    let (manifest, chunk) = result();
    let manifest_bytes = hostler_proto::encode(&manifest);
    RunStatus::Ended(RunEnd {
        fate: Fate::Ended(Ending { state: JobState::Failed, exit_code: Some(1) }),
        message: Some("it failed".into()),
        result: Some(RunResult {
            manifest: hostler_snapshot::chunk::digest_of(&manifest_bytes),
            inline: vec![serde_bytes::ByteBuf::from(manifest_bytes), serde_bytes::ByteBuf::from(chunk)],
        }),
        usage: Usage { wall_ms: 5, ..Usage::default() },
        steps: Vec::new(),
        certificate: None,
    })
}

pub(crate) const CONTENT: &[u8] = b"a result\n";

fn content() -> Content {
    let digest = hostler_snapshot::chunk::digest_of(CONTENT);
    Content { size: CONTENT.len() as u64, chunks: vec![Chunk { digest, len: CONTENT.len() as u32 }] }
}

pub(crate) fn folder() -> Manifest {
    let entry = |path: &str, mode, kind| Entry { path: path.as_bytes().to_vec(), mode, modified_ns: 1, kind };
    let entries = vec![
        entry("empty", 0o644, EntryKind::File(Content::default())),
        entry("src", 0o755, EntryKind::Directory),
        entry("src/back", 0o777, EntryKind::Symlink { target: b"../src/main.py".to_vec() }),
        entry("src/main.py", 0o644, EntryKind::File(content())),
    ];
    Manifest { version: VERSION, entries }
}

/// A result and its only chunk.
pub(crate) fn result() -> (ResultManifest, Vec<u8>) {
    let manifest = ResultManifest {
        version: VERSION,
        run: run(1),
        tree: folder(),
        removed: vec![serde_bytes::ByteBuf::from(b"gone".to_vec())],
        stdout: content(),
        stderr: Content::default(),
        setup: Content::default(),
        certificate: None,
        problems: vec!["one".into()],
    };
    (manifest, CONTENT.to_vec())
}
