//! Text views of partitions.

use std::collections::BTreeSet;

use hostler_model::{ExclusiveRule, SandboxNetwork, UserName, format_ms};
use hostler_proto::partitions::PartitionView;

use super::table::{Align, Table};
use super::text::{Lines, Moment};
use super::views::pace;

/// The table of partitions; a star marks the default partition.
pub(crate) fn list(partitions: &[PartitionView], width: Option<usize>) -> String {
    let mut table = Table::new(&[
        ("PARTITION", Align::Left),
        ("STATE", Align::Left),
        ("NODES", Align::Right),
        ("UP", Align::Right),
        ("CPUS FREE", Align::Right),
        ("WAITING", Align::Right),
        ("MAX TIME", Align::Right),
        ("NAMES", Align::Left),
    ]);
    for partition in partitions {
        let star = if partition.is_default { "*" } else { "" };
        table.row([
            format!("{}{star}", partition.name),
            partition.state.to_string(),
            partition.node_count.to_string(),
            partition.nodes_up.to_string(),
            format!("{}/{}", partition.cpus_free, partition.cpus),
            partition.waiting.to_string(),
            partition.max_time_ms.map_or_else(|| "-".to_owned(), format_ms),
            partition.nodes.to_string(),
        ]);
    }
    table.render(width)
}

pub(crate) fn one(partition: &PartitionView) -> String {
    let mut lines = Lines::default();
    lines.add("partition", partition.name.as_str());
    let default = if partition.is_default { ", default partition" } else { "" };
    lines.add("state", format!("{}{default}", partition.state));
    lines.add("nodes", format!("{} ({})", nodes(partition), partition.nodes));
    lines.add("cpus", format!("{} of {} free", partition.cpus_free, partition.cpus));
    lines.add("waiting", partition.waiting.to_string());
    lines.add_some("pace", partition.pace.map(|it| pace(it, partition.waiting)));
    lines.add("priority", partition.priority.to_string());
    lines.add_some("max time", partition.max_time_ms.map(format_ms));
    lines.add_some("default", partition.default_time_ms.map(|ms| format!("time limit {}", format_ms(ms))));
    lines.add_some("max nodes", partition.max_nodes.map(|most| most.to_string()));
    let is_for_all = partition.users.is_empty() && partition.groups.is_empty();
    lines.add_some("users", is_for_all.then(|| "all".to_owned()));
    lines.add_some("users", some(&partition.users));
    lines.add_some("groups", some(&partition.groups));
    let network = match partition.sandbox_network {
        SandboxNetwork::None => "",
        SandboxNetwork::Job => "; jobs may ask for --network job",
        SandboxNetwork::Host => "; jobs may ask for --network job or host",
    };
    lines.add_some("sandbox", (!partition.sandbox.is_optional()).then(|| format!("{}{network}", partition.sandbox)));
    let exclusive = match partition.exclusive {
        ExclusiveRule::Optional => None,
        ExclusiveRule::Always => Some("always: each job has its nodes to itself"),
        ExclusiveRule::Never => Some("never: no job has a node to itself"),
    };
    lines.add_some("exclusive", exclusive.map(str::to_owned));
    lines.add_some(
        "join code",
        partition.join_code_until.map(|until| format!("valid until {}", Moment::now().date(until))),
    );
    lines.into_text()
}

/// Formats the number of nodes, e.g. `4 nodes, 3 up`.
pub(crate) fn nodes(partition: &PartitionView) -> String {
    let nodes = if partition.node_count == 1 { "node" } else { "nodes" };
    format!("{} {nodes}, {} up", partition.node_count, partition.nodes_up)
}

fn some(names: &BTreeSet<UserName>) -> Option<String> {
    let names: Vec<&str> = names.iter().map(UserName::as_str).collect();
    (!names.is_empty()).then(|| names.join(", "))
}

#[cfg(test)]
mod tests {
    use hostler_model::{PartitionState, SandboxRule};

    use super::*;

    fn partition() -> PartitionView {
        PartitionView {
            name: "gpu".parse().expect("a name"),
            nodes: "gpu*,n4".parse().expect("patterns"),
            is_default: true,
            state: PartitionState::Open,
            priority: 5,
            default_time_ms: None,
            max_time_ms: Some(90 * 60_000),
            max_nodes: Some(2),
            users: BTreeSet::new(),
            groups: BTreeSet::from(["vision".parse().expect("a name")]),
            sandbox: SandboxRule::Always,
            sandbox_network: SandboxNetwork::Host,
            exclusive: ExclusiveRule::Always,
            join_code_until: None,
            pace: None,
            node_count: 4,
            nodes_up: 3,
            cpus: 24,
            cpus_free: 8,
            waiting: 17,
        }
    }

    #[test]
    fn partitions_are_shown_as_list_and_in_detail() {
        let expected = "\
PARTITION  STATE  NODES  UP  CPUS FREE  WAITING  MAX TIME  NAMES
gpu*       open       4   3       8/24       17     1h30m  gpu*,n4
";
        assert_eq!(list(&[partition()], None), expected);
        let expected = "\
partition  gpu
state      open, default partition
nodes      4 nodes, 3 up (gpu*,n4)
cpus       8 of 24 free
waiting    17
priority   5
max time   1h30m
max nodes  2
groups     vision
sandbox    always; jobs may ask for --network job or host
exclusive  always: each job has its nodes to itself
";
        assert_eq!(one(&partition()), expected);
    }
}
