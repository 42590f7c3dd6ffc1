//! One node, as text for people.

use std::time::Duration;

use hostler_model::{format_bytes, format_duration};
use hostler_proto::api::{CertificateView, GpuView, NodeDetail};

use super::views::{Lines, Moment, held_gpus, words};

/// All about one node.
pub(crate) fn node(detail: &NodeDetail, moment: &Moment) -> String {
    let node = &detail.node;
    let mut lines = Lines::default();
    lines.add("node", node.name.as_str());
    lines.add("state", state(detail));
    if let Some(drain) = &detail.drain {
        let reason = drain.reason.as_ref().map_or_else(String::new, |reason| format!(": {reason}"));
        lines.add("drained", format!("by {} at {}{reason}", drain.by, moment.date(drain.at)));
    }
    lines.add("cpus", format!("{} of {} free ({})", node.cpus_free, node.cpus, detail.cpu_ids));
    let (free, all) = (format_bytes(node.memory_free_bytes), format_bytes(node.memory_bytes));
    lines.add("memory", format!("{free} of {all} free"));
    lines.add_some("gpus", (node.gpus > 0).then(|| format!("{} of {} free", node.gpus_free, node.gpus)));
    detail.gpu_list.iter().for_each(|gpu| lines.add("gpu", self::gpu(gpu)));
    lines.add_some("partitions", (!node.partitions.is_empty()).then(|| words(&node.partitions)));
    lines.add_some("features", (!node.features.is_empty()).then(|| words(&node.features)));
    lines.add_some("weight", (node.weight != 0).then(|| node.weight.to_string()));
    let advisory = &node.advisory;
    lines.add_some("advisory", advisory.cpus.as_ref().map(|why| format!("CPUs: {why}")));
    lines.add_some("advisory", advisory.memory.as_ref().map(|why| format!("memory: {why}")));
    lines.add_some("advisory", advisory.gpus.as_ref().map(|why| format!("GPUs: {why}")));
    lines.add_some("advisory", advisory.users.as_ref().map(|why| format!("users: {why}")));
    if !node.version.is_empty() {
        lines.add("agent", format!("version {}, pid {}", node.version, node.agent_pid));
    }
    lines.add_some("key", detail.certificate.as_ref().map(certificate));
    for run in &detail.runs {
        let memory = format_bytes(run.memory_bytes);
        let gpus = held_gpus(&run.gpu_ids).map_or_else(String::new, |ids| format!(" and {ids}"));
        lines.add("task", format!("{}_{} on CPUs {} with {memory} of memory{gpus}", run.job, run.index, run.cpu_ids));
    }
    lines.into_text()
}

/// `GPU-5d8f…, NVIDIA A100, 40G, NUMA node 1, held by 7_0`.
fn gpu(gpu: &GpuView) -> String {
    let mut words = vec![gpu.id.to_string()];
    words.extend((!gpu.name.is_empty()).then(|| gpu.name.clone()));
    words.extend(gpu.memory_bytes.map(format_bytes));
    words.extend(gpu.numa.map(|numa| format!("NUMA node {numa}")));
    words.push(gpu.held_by.map_or_else(|| "free".to_owned(), |task| format!("held by {task}")));
    words.join(", ")
}

fn state(detail: &NodeDetail) -> String {
    let state = detail.node.state.as_str();
    match detail.silent_ms {
        0 => state.to_owned(),
        silent => format!("{state}, not heard of for {}", format_duration(Duration::from_millis(silent))),
    }
}

fn certificate(certificate: &CertificateView) -> String {
    let [age, life] =
        [certificate.age_ms, certificate.life_ms].map(|time| format_duration(Duration::from_millis(time)));
    let renewal = if certificate.is_being_renewed { ", a newer one was issued" } else { "" };
    format!("certificate issued {age} ago, good for {life}{renewal}")
}
