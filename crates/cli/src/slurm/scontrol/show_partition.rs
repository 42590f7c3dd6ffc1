//! `scontrol show partition`.

use hostler_slurm::time::long;
use serde_json::{Value, json};

use super::super::Outcome;
use super::super::json::{document, number, unlimited};
use super::super::machines::{Cluster, Details, Machine, NULL, Part, node_list, tres_of};
use super::Session;
use super::record::Record;

impl Session<'_> {
    pub(super) fn show_partitions(&self, name: Option<&str>) -> Outcome {
        let cluster = self.ask("slurm_load_partitions", async |client| Cluster::load(client, Details::None).await)?;
        let parts: Vec<&Part> = cluster.parts.iter().filter(|part| name.is_none_or(|name| part.name == name)).collect();
        if self.json {
            let all = parts.iter().map(|part| partition(part, &cluster.machines_of(part)));
            let now = self.clock("slurm_load_partitions")?.now;
            return self.print(&document("partitions", &["last_update"], now, all));
        }
        if let (Some(name), []) = (name, parts.as_slice()) {
            return self.not_found(&format!("Partition {name} not found"));
        }
        let write = |part: &&Part| describe(part, &cluster.machines_of(part)).write(self.one_line);
        self.print(&parts.iter().map(write).collect::<String>())
    }
}

/// The record of a partition.
fn describe(part: &Part, machines: &[&Machine]) -> Record {
    let mut record = Record::default();
    let time = |seconds: Option<u64>, otherwise: &str| seconds.map_or_else(|| otherwise.to_owned(), long);
    let cpus: u64 = machines.iter().map(|machine| u64::from(machine.view.cpus)).sum();
    record.line(&[("PartitionName", &part.name)]);
    let groups = if part.allowed.is_empty() { "ALL".to_owned() } else { part.allowed.join(",") };
    record.line(&[("AllowGroups", &groups), ("AllowAccounts", &"ALL"), ("AllowQos", &"ALL")]);
    let default = if part.is_default { "YES" } else { "NO" };
    record.line(&[("AllocNodes", &"ALL"), ("Default", &default), ("QoS", &"N/A")]);
    record.line(&[
        ("DefaultTime", &time(part.default_time, "NONE")),
        ("DisableRootJobs", &"NO"),
        ("ExclusiveUser", &"NO"),
        ("GraceTime", &0),
        ("Hidden", &"NO"),
    ]);
    record.line(&[
        ("MaxNodes", &part.max_nodes.map_or_else(|| "UNLIMITED".to_owned(), |most| most.to_string())),
        ("MaxTime", &time(part.max_time, "UNLIMITED")),
        ("MinNodes", &0),
        ("LLN", &"NO"),
        ("MaxCPUsPerNode", &"UNLIMITED"),
        ("MaxCPUsPerSocket", &"UNLIMITED"),
    ]);
    record.line(&[("Nodes", &node_list(machines))]);
    record.line(&[
        ("PriorityJobFactor", &1),
        ("PriorityTier", &part.priority),
        ("RootOnly", &"NO"),
        ("ReqResv", &"NO"),
        ("OverSubscribe", &"NO"),
    ]);
    record.line(&[("OverTimeLimit", &"NONE"), ("PreemptMode", &"OFF")]);
    record.line(&[
        ("State", &part.state_name()),
        ("TotalCPUs", &cpus),
        ("TotalNodes", &machines.len()),
        ("SelectTypeParameters", &"NONE"),
    ]);
    record.line(&[("JobDefaults", &NULL)]);
    record.line(&[("DefMemPerNode", &"UNLIMITED"), ("MaxMemPerNode", &"UNLIMITED")]);
    record.line(&[("TRES", &if machines.is_empty() { NULL.to_owned() } else { tres_of(machines) })]);
    record
}

/// A partition as JSON.
fn partition(part: &Part, machines: &[&Machine]) -> Value {
    let cpus: u64 = machines.iter().map(|machine| u64::from(machine.view.cpus)).sum();
    let minutes = |seconds: Option<u64>| seconds.map(|seconds| seconds.div_ceil(60));
    json!({
        "name": part.name,
        "cluster": "",
        "nodes": { "allowed_allocation": "", "configured": node_list(machines), "total": machines.len() },
        "cpus": { "task_binding": 0, "total": cpus },
        "accounts": { "allowed": "", "deny": "" },
        "groups": { "allowed": part.allowed.join(",") },
        "qos": { "allowed": "", "deny": "", "assigned": "" },
        "defaults": { "time": number(minutes(part.default_time)), "job": "" },
        "maximums": {
            "nodes": unlimited(part.max_nodes.map(u64::from)),
            "time": unlimited(minutes(part.max_time)),
            "cpus_per_node": unlimited(None),
        },
        "minimums": { "nodes": 0 },
        "priority": { "job_factor": 1, "tier": part.priority },
        "partition": { "state": [part.state_name()] },
        "tres": { "billing_weights": "", "configured": tres_of(machines) },
    })
}

#[cfg(test)]
mod tests {
    use hostler_model::NodeState;

    use super::super::super::machines::tests::machine;
    use super::*;

    #[test]
    fn partition_of_all_nodes_is_described() {
        let machines = vec![machine("n1", NodeState::Up, 2, 2), machine("n2", NodeState::Up, 2, 2)];
        let cluster = Cluster::new(machines, &[]);
        let [part] = cluster.parts.as_slice() else { panic!("one partition") };
        let text = describe(part, &cluster.machines_of(part)).write(false);
        let expected = "PartitionName=all
   AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL
   AllocNodes=ALL Default=YES QoS=N/A
   DefaultTime=NONE DisableRootJobs=NO ExclusiveUser=NO GraceTime=0 Hidden=NO
   MaxNodes=UNLIMITED MaxTime=UNLIMITED MinNodes=0 LLN=NO MaxCPUsPerNode=UNLIMITED MaxCPUsPerSocket=UNLIMITED
   Nodes=n[1-2]
   PriorityJobFactor=1 PriorityTier=1 RootOnly=NO ReqResv=NO OverSubscribe=NO
   OverTimeLimit=NONE PreemptMode=OFF
   State=UP TotalCPUs=4 TotalNodes=2 SelectTypeParameters=NONE
   JobDefaults=(null)
   DefMemPerNode=UNLIMITED MaxMemPerNode=UNLIMITED
   TRES=cpu=4,mem=4G,node=2,billing=4

";
        assert_eq!(text, expected);
        assert!(describe(part, &[]).write(true).split_whitespace().all(|token| !token.ends_with('=')));
    }
}
