//! Translates a configuration of Slurm, and lists what it leaves out.

use hostler_slurm::conf::{Kind, Nodes, Problem, Value};

use super::wanted::{Sources, Wanted, is_off};
use super::{accounts, nodes, partitions, settings};

/// The keys of `slurm.conf` that are taken over, by kind of record.
const TAKEN: [(Kind, &str); 5] = [
    (Kind::Cluster, "SchedulerType KillWait DefMemPerCPU DefMemPerNode"),
    (Kind::Nodes, "NodeName Feature Features Weight State Reason"),
    (
        Kind::Partition,
        "PartitionName Nodes Default MaxTime DefaultTime MaxNodes PriorityTier Priority State AllowGroups AllowAccounts \
         RootOnly",
    ),
    (Kind::NodeSet, "NodeSet Nodes Feature Features"),
    (Kind::DownNodes, "DownNodes State Reason"),
];

/// Translates a configuration.
///
/// # Errors
/// Returns all mistakes in the files.
pub(super) fn translate(sources: &Sources) -> Result<Wanted, Vec<Problem>> {
    let nodes = Nodes::of(&sources.records)?;
    let mut wanted = Wanted { not_taken: not_taken(sources), ..Wanted::default() };
    let mut problems = Vec::new();
    settings::add(&mut wanted, &sources.records, &mut problems);
    partitions::add(&mut wanted, sources, &nodes, &mut problems);
    nodes::add(&mut wanted, sources, &nodes, &mut problems);
    match sources.accounts.as_ref().map(accounts::people) {
        Some(Ok(people)) => wanted.people = Some(people),
        Some(Err(wrong)) => problems.extend(wrong),
        None => {}
    }
    if problems.is_empty() { Ok(wanted) } else { Err(problems) }
}

/// The keys that are not taken over, except those whose value switches something off.
fn not_taken(sources: &Sources) -> Vec<String> {
    let taken = |kind| TAKEN.iter().find(|(known, _)| *known == kind).map_or("", |(_, keys)| keys);
    let of_slurm =
        sources.records.iter().flat_map(|record| record.values.iter().map(|value| (taken(record.kind), value)));
    let of_accounts = sources.accounts.iter().flat_map(|accounts| {
        let entries = accounts.accounts.iter().chain(&accounts.users);
        let values = accounts.cluster.iter().chain(entries.flat_map(|entry| &entry.values));
        values.map(|value| (accounts::TAKEN, value))
    });
    let is_taken = |keys: &str, value: &Value| keys.split_whitespace().any(|key| value.is(key));
    let mut keys: Vec<String> = Vec::new();
    for (taken, value) in of_slurm.chain(of_accounts) {
        let is_known = keys.iter().any(|key| value.is(key));
        let is_default = is_off(&value.text) && !ON_BY_DEFAULT.iter().any(|key| value.is(key));
        if !is_known && !is_taken(taken, value) && !is_default {
            keys.push(value.key.clone());
        }
    }
    keys
}

/// Keys of `slurm.conf` whose absence does not mean off.
const ON_BY_DEFAULT: [&str; 1] = ["JobRequeue"];
