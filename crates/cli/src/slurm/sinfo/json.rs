//! The JSON document of `sinfo`.

use hostler_model::WallTime;
use serde_json::{Value, json};

use super::super::json::{document as wrapped, number, unlimited};
use super::super::machines::{Machine, NULL, Part, addresses, node_list};
use super::row::Row;

/// All rows as one document.
pub(super) fn document(rows: &[Row<'_>], now: WallTime) -> String {
    wrapped("sinfo", &[], now, rows.iter().map(row))
}

fn row(row: &Row<'_>) -> Value {
    let machines = &row.machines;
    let (nodes, cpus) = (row.node_counts(), row.cpu_counts());
    let names: Vec<&str> = machines.iter().map(|machine| machine.name()).collect();
    let first = machines.first();
    let state = first.map_or_else(Vec::new, |machine| machine.state().words());
    let bounds = |value: fn(&Machine) -> u64| {
        let values = || machines.iter().map(|machine| value(machine));
        json!({ "minimum": values().min().unwrap_or(0), "maximum": values().max().unwrap_or(0) })
    };
    let free =
        |pick: fn(u64, u64) -> u64| number(machines.iter().filter_map(|machine| machine.memory_free()).reduce(pick));
    let mut cpu_values = bounds(|machine| machine.view.cpus.into());
    cpu_values["allocated"] = cpus.allocated.into();
    cpu_values["idle"] = cpus.idle.into();
    cpu_values["other"] = cpus.other.into();
    cpu_values["total"] = cpus.total().into();
    let mut memory = bounds(Machine::memory);
    memory["allocated"] = machines.iter().map(|machine| machine.memory_used()).sum::<u64>().into();
    memory["free"] = json!({ "minimum": free(u64::min), "maximum": free(u64::max) });
    let text = |value: Option<String>| value.unwrap_or_default();
    let features = text(first.and_then(|machine| machine.features()));
    json!({
        "node": { "state": state },
        "nodes": {
            "allocated": nodes.allocated, "idle": nodes.idle, "other": nodes.other, "total": nodes.total(),
            "hostnames": names, "addresses": addresses(machines), "nodes": names,
        },
        "cpus": cpu_values,
        "sockets": bounds(|machine| machine.view.cpus.into()),
        "cores": { "minimum": 1, "maximum": 1 },
        "threads": { "minimum": 1, "maximum": 1 },
        "disk": { "minimum": 0, "maximum": 0 },
        "memory": memory,
        "weight": bounds(|machine| machine.view.weight.into()),
        "features": { "total": features, "active": features },
        "gres": {
            "total": text(first.and_then(|machine| machine.gres())),
            "used": text(first.and_then(|machine| machine.gres_used())),
        },
        "cluster": super::super::CLUSTER,
        "comment": "",
        "extra": "",
        "reason": {
            "description": text(first.and_then(|machine| machine.cause()).map(|cause| cause.text)),
        },
        "partition": partition(row.part, machines),
    })
}

fn partition(part: &Part, machines: &[&Machine]) -> Value {
    json!({
        "name": part.name,
        "cluster": "",
        "nodes": { "configured": node_list(machines), "total": machines.len() },
        "groups": { "allowed": part.allowed.join(",") },
        "maximums": {
            "nodes": unlimited(part.max_nodes.map(u64::from)),
            "time": unlimited(part.max_time.map(|seconds| seconds.div_ceil(60))),
        },
        "defaults": { "time": number(part.default_time.map(|seconds| seconds.div_ceil(60))), "job": NULL },
        "priority": { "tier": part.priority, "job_factor": 1 },
        "partition": { "state": [part.state_name()] },
    })
}
