//! GPUs: which GPUs a task gets, and that no other task gets them meanwhile.

use std::collections::BTreeSet;

use hostler_core::head::{Refusal, explain};
use hostler_model::{
    CoreKind, Cpu, CpuSet, Gpu, GpuId, Hardware, JobId, JobSpec, JobState, Reason, Request, Resources, Topology, Vendor,
};
use hostler_proto::link::{HeadMessage, RunReport, RunStatus};

use super::harness::{Head, ended, spec};

/// Two NUMA nodes, with four CPUs and two GPUs each.
fn machine() -> (Resources, Hardware) {
    let cpu = |id| Cpu { id, core: id, package: id / 4, numa: id / 4, kind: CoreKind::Performance };
    let gpu = |index: u32| Gpu {
        id: GpuId::from_name(&format!("GPU-{index}")),
        vendor: Vendor::Nvidia,
        name: "card".to_owned(),
        memory_bytes: Some(1 << 34),
        numa: Some(index / 2),
    };
    let hardware =
        Hardware { topology: Topology::new(&(0..8).map(cpu).collect::<Vec<_>>()), gpus: (0..4).map(gpu).collect() };
    let gpus = hardware.gpus.iter().map(|gpu| gpu.id.clone()).collect();
    (Resources { gpus, ..Resources::new(CpuSet::first(8), 8 << 30) }, hardware)
}

fn with_gpus(gpus: u32) -> JobSpec {
    JobSpec { request: Request { gpus, ..spec().request }, requeue: true, ..spec() }
}

/// The GPUs and CPUs of a job's only part.
fn held(head: &Head, job: JobId) -> String {
    let resources = &head.job(job).active[&0].parts[0].resources;
    let gpus: Vec<&str> = resources.gpus.iter().map(GpuId::as_str).collect();
    format!("{} {}", gpus.join("+"), resources.cpus)
}

fn free(head: &Head) -> u32 {
    head.state.nodes().next().expect("one node").free().gpus
}

#[test]
fn gpu_belongs_to_one_job_at_a_time() {
    let mut head = Head::new();
    head.hello_of("n1", 1, "boot", Vec::new(), machine());
    let [one, two, three] = [1, 2, 2].map(|gpus| head.submit(with_gpus(gpus)).expect("accepted"));
    assert_eq!(held(&head, one), "GPU-0 0");
    assert_eq!(held(&head, two), "GPU-2+GPU-3 4", "both GPUs and the CPU are on one NUMA node");
    assert_eq!(head.state_of(three), JobState::Pending);
    let Some(Reason::Resources { closest }) = explain(&head.state, head.job(three)) else {
        panic!("the job does not wait for a GPU")
    };
    assert_eq!(closest[0].to_string(), "n1, which lacks 1 GPU");
    assert_eq!((free(&head), head.state.capacity().gpus.total), (1, 4));

    let sent = head.sent();
    let ids: Vec<BTreeSet<GpuId>> = sent
        .iter()
        .filter_map(|message| match message {
            HeadMessage::Launch(launch) => Some(launch.runs[0].resources.gpus.clone()),
            _ => None,
        })
        .collect();
    assert_eq!(ids.iter().map(BTreeSet::len).collect::<Vec<_>>(), [1, 2], "the launch names the GPUs");

    let run = head.run_of(one);
    head.report(1, run, ended(0)).expect("accepted");
    assert_eq!(held(&head, three), "GPU-0+GPU-1 0");
    assert_eq!(free(&head), 0);
}

#[test]
fn request_for_too_many_gpus_is_refused_with_a_reason() {
    let mut head = Head::new();
    head.hello_of("n1", 1, "boot", Vec::new(), machine());
    let Err(Refusal::NeverFits(why)) = head.submit(with_gpus(5)) else {
        panic!("a request for five of four GPUs was accepted")
    };
    assert!(why.to_string().contains("4 GPUs"), "{why}");
}

#[test]
fn gpu_assignments_survive_restarts_of_head_and_agent() {
    let mut head = Head::new();
    head.hello_of("n1", 1, "boot", Vec::new(), machine());
    let (one, two) = (head.submit(with_gpus(2)).expect("accepted"), head.submit(with_gpus(1)).expect("accepted"));
    let before = [held(&head, one), held(&head, two)];
    let runs = [one, two].map(|job| RunReport { run: head.run_of(job), status: RunStatus::Running });
    head.restart();
    head.hello_of("n1", 2, "boot", runs.to_vec(), machine());
    assert_eq!([held(&head, one), held(&head, two)], before);
    assert_eq!(free(&head), 1);
    let third = head.submit(with_gpus(1)).expect("accepted");
    assert_eq!(held(&head, third), "GPU-3 5", "the last free GPU");

    // A GPU has disappeared: the job that holds it continues, and no other job gets more than there is.
    let (mut resources, mut hardware) = machine();
    resources.gpus.remove(&hardware.gpus.remove(0).id);
    head.hello_of("n1", 3, "boot", runs.to_vec(), (resources, hardware));
    assert_eq!(free(&head), 0);
}

#[test]
fn messages_of_older_releases_without_gpus_are_decoded() {
    let (resources, _) = machine();
    let old = rmp_encoded(&serde_json::json!({ "cpus": "0-7", "memory_bytes": 8_u64 << 30 }));
    let read: Resources = hostler_proto::decode(&old).expect("the field may be absent");
    assert_eq!(read, Resources { gpus: BTreeSet::new(), ..resources });
}

fn rmp_encoded(value: &serde_json::Value) -> Vec<u8> {
    hostler_proto::encode(value)
}
