//! `scontrol show node`.

use hostler_model::WallTime;
use hostler_slurm::hostlist;
use serde_json::{Value, json};

use super::super::clock::Clock;
use super::super::json::{document, number, seconds};
use super::super::machines::{Cluster, Details, Machine, NULL};
use super::super::{CLUSTER, Ended, Outcome, VERSION};
use super::Session;
use super::record::Record;

impl Session<'_> {
    pub(super) fn show_nodes(&self, list: Option<&str>) -> Outcome {
        let clock = self.clock("slurm_load_node")?;
        let cluster = self.ask("slurm_load_node", async |client| Cluster::load(client, Details::All).await)?;
        let names = list.map(hostlist::expand).transpose().map_err(Ended::error)?;
        let find = |name: &str| cluster.machines.iter().find(|machine| machine.name() == name);
        let found: Vec<Result<&Machine, &str>> = match &names {
            None => cluster.machines.iter().map(Ok).collect(),
            Some(names) => names.iter().map(|name| find(name).ok_or(name.as_str())).collect(),
        };
        if self.json {
            return self.print(&document("nodes", &["last_update"], clock.now, found.into_iter().flatten().map(node)));
        }
        if found.is_empty() {
            return self.print("No nodes in the system\n");
        }
        let mut code = 0;
        for one in found {
            match one {
                Ok(machine) => self.print(&describe(machine, &clock).write(self.one_line))?,
                Err(name) => {
                    code = self.not_found(&format!("Node {name} not found"))?;
                    code
                }
            };
        }
        Ok(code)
    }
}

/// The release that nodes report.
fn release() -> &'static str {
    VERSION.trim_start_matches("slurm ")
}

/// Time at which the agent connected; `None` if it is not connected.
fn started(machine: &Machine) -> Option<WallTime> {
    machine.view.since.filter(|_| machine.view.state == hostler_model::NodeState::Up)
}

/// The record of a node.
fn describe(machine: &Machine, clock: &Clock) -> Record {
    let mut record = Record::default();
    let (view, null) = (&machine.view, || NULL.to_owned());
    let name = machine.name();
    record.line(&[("NodeName", &name), ("Arch", &machine.architecture().unwrap_or(NULL)), ("CoresPerSocket", &1)]);
    let load = machine.load().map_or_else(|| "N/A".to_owned(), |load| format!("{load:.2}"));
    record.line(&[
        ("CPUAlloc", &machine.cpus_used()),
        ("CPUEfctv", &view.cpus),
        ("CPUTot", &view.cpus),
        ("CPULoad", &load),
    ]);
    let features = machine.features().unwrap_or_else(null);
    record.line(&[("AvailableFeatures", &features)]);
    record.line(&[("ActiveFeatures", &features)]);
    record.line(&[("Gres", &machine.gres().unwrap_or_else(null))]);
    record.line(&[("NodeAddr", &machine.address()), ("NodeHostName", &name), ("Version", &release())]);
    record.line(&[("OS", &"Linux")]);
    let free = machine.memory_free().map_or_else(|| "N/A".to_owned(), |free| free.to_string());
    record.line(&[
        ("RealMemory", &machine.memory()),
        ("AllocMem", &machine.memory_used()),
        ("FreeMem", &free),
        ("Sockets", &view.cpus),
        ("Boards", &1),
    ]);
    record.line(&[
        ("State", &machine.state().complete()),
        ("ThreadsPerCore", &1),
        ("TmpDisk", &0),
        ("Weight", &view.weight),
        ("Owner", &"N/A"),
        ("MCS_label", &"N/A"),
    ]);
    record.line(&[("Partitions", &machine.partitions().join(","))]);
    let started = started(machine).map_or_else(|| "None".to_owned(), |at| clock.write(at));
    record.line(&[("BootTime", &"None"), ("SlurmdStartTime", &started)]);
    let busy = if view.tasks > 0 { clock.write(clock.now) } else { "Unknown".to_owned() };
    record.line(&[("LastBusyTime", &busy), ("ResumeAfterTime", &"None")]);
    record.line(&[("CfgTRES", &machine.tres())]);
    record.line(&[("AllocTRES", &machine.tres_used().unwrap_or_else(null))]);
    if let Some(cause) = machine.cause() {
        let at = cause.at.map_or_else(|| "Unknown".to_owned(), |at| clock.write(at));
        record.line(&[("Reason", &format_args!("{} [{}@{at}]", cause.text, cause.user))]);
    }
    record
}

/// A node as JSON.
fn node(machine: &Machine) -> Value {
    let view = &machine.view;
    let cause = machine.cause();
    let used = u64::from(machine.cpus_used());
    let features: Vec<&str> = view.features.iter().map(hostler_model::Feature::as_str).collect();
    json!({
        "name": machine.name(),
        "hostname": machine.name(),
        "address": machine.address(),
        "cluster_name": CLUSTER,
        "architecture": machine.architecture().unwrap_or_default(),
        "operating_system": "Linux",
        "version": release(),
        "state": machine.state().words(),
        "partitions": machine.partitions(),
        "features": features,
        "active_features": features,
        "gres": machine.gres().unwrap_or_default(),
        "gres_used": machine.gres_used().unwrap_or_default(),
        "boards": 1,
        "sockets": view.cpus,
        "cores": 1,
        "threads": 1,
        "cpus": view.cpus,
        "effective_cpus": view.cpus,
        "alloc_cpus": used,
        "alloc_idle_cpus": u64::from(view.cpus).saturating_sub(used),
        "cpu_load": machine.load().map_or(0, |load| (load * 100.0) as u64),
        "real_memory": machine.memory(),
        "alloc_memory": machine.memory_used(),
        "free_mem": number(machine.memory_free()),
        "temporary_disk": 0,
        "weight": view.weight,
        "tres": machine.tres(),
        "tres_used": machine.tres_used(),
        "boot_time": seconds(None),
        "slurmd_start_time": seconds(started(machine)),
        "reason": cause.as_ref().map(|cause| cause.text.clone()).unwrap_or_default(),
        "reason_set_by_user": cause.as_ref().map(|cause| cause.user.clone()).unwrap_or_default(),
        "reason_changed_at": seconds(cause.and_then(|cause| cause.at)),
        "comment": "",
        "extra": "",
        "owner": "",
        "mcs_label": "",
    })
}

#[cfg(test)]
mod tests {
    use hostler_model::NodeState;

    use super::super::super::machines::tests::machine;
    use super::*;

    #[test]
    fn every_token_has_a_name_and_a_value() {
        let mut node = machine("n1", NodeState::Up, 4, 3);
        node.view.features.clear();
        let text = describe(&node, &Clock::of_process()).write(true);
        for token in text.split_whitespace() {
            let (name, value) = token.split_once('=').unwrap_or_else(|| panic!("{token}"));
            assert!(!name.is_empty() && !value.is_empty(), "{token}");
        }
        assert!(text.contains(" ActiveFeatures=(null) ") && text.contains(" State=MIXED "), "{text}");
        assert!(text.contains(" Partitions=all ") && text.contains(" AllocTRES=cpu=1,mem=1G"), "{text}");
    }
}
