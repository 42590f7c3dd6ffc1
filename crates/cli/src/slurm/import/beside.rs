//! `gres.conf` and `cgroup.conf`.

use hostler_slurm::conf::Value;

use super::verdict::{Judgement, is_yes};

/// Judges the kind of a resource and its count.
pub(super) fn judge_gres(value: &Value, line: &[Value]) -> Judgement {
    match line.iter().find(|value| value.is("Name")) {
        Some(name) => of_resource(&name.text),
        None => of_resource(if value.is("Count") { "gpu" } else { &value.text }),
    }
}

/// Judges a generic resource by its name.
pub(super) fn of_resource(name: &str) -> Judgement {
    match name.to_ascii_lowercase().as_str() {
        "gpu" => Judgement::unneeded("agents find the CPUs, memory and GPUs of their machine"),
        "mps" | "shard" => Judgement::missing("no parts of GPUs, except with MIG"),
        other => Judgement::missing(format!(
            "not imported: write `{other} = N` below `[resources]` in the node's agent.toml"
        )),
    }
}

/// Judges whether a kind of resources is limited.
pub(super) fn judge_cgroup(value: &Value) -> Judgement {
    match is_yes(&value.text) {
        Some(false) => Judgement::missing("agents always limit a job to the CPUs, memory and GPUs that it asks for"),
        _ => Judgement::taken("agents always limit a job to the CPUs, memory and GPUs that it asks for"),
    }
}
