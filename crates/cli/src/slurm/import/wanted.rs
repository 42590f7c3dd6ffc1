//! The settings of Hostler that a configuration of Slurm stands for.

use std::collections::{BTreeMap, BTreeSet};

use hostler_model::{Feature, NodeName, Quota, Role, UserName};
use hostler_proto::partitions::NewPartition;
use hostler_slurm::accounts::Accounts;
use hostler_slurm::conf::{Kind, Nodes, Problem, Record, Value};

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

/// What was read.
#[derive(Debug, Default)]
pub(super) struct Sources {
    /// The records of `slurm.conf`.
    pub(super) records: Vec<Record>,
    /// The output of `sacctmgr dump`.
    pub(super) accounts: Option<Accounts>,
}

/// The settings that the cluster should have.
#[derive(Debug, Default)]
pub(super) struct Wanted {
    /// Values of settings by their names.
    pub(super) settings: BTreeMap<&'static str, String>,
    /// In the order of the file.
    pub(super) partitions: Vec<NewPartition>,
    pub(super) nodes: BTreeMap<NodeName, WantedNode>,
    /// `None` if no accounts are imported.
    pub(super) people: Option<People>,
    /// The keys that are not taken over, each once, in the order of the files.
    pub(super) not_taken: Vec<String>,
    /// What the admin should know.
    pub(super) notes: Vec<String>,
}

#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct WantedNode {
    pub(super) features: BTreeSet<Feature>,
    /// `None` leaves the weight as it is.
    pub(super) weight: Option<u32>,
    /// The reason why the node should get no work.
    pub(super) drain: Option<String>,
}

/// Users and groups. Limits that are absent stay as they are.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct People {
    pub(super) users: BTreeMap<UserName, WantedUser>,
    pub(super) groups: BTreeMap<UserName, Quota>,
}

#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct WantedUser {
    pub(super) role: Role,
    pub(super) groups: BTreeSet<UserName>,
    pub(super) quota: Quota,
}

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

/// Whether a value switches off what it sets, such as `none`, `NO` or `preempt/none`.
pub(super) fn is_off(value: &str) -> bool {
    let value = value.to_ascii_lowercase();
    let last = value.rsplit('/').next().unwrap_or_default();
    ["", "0", "no", "none", "off", "false", "all", "unlimited", "infinite", "-1", "n/a", "(null)"].contains(&last)
}

/// Parses the value of the first of several keys that has one.
pub(super) fn parsed<T>(
    record: &Record,
    keys: &[&str],
    parse: impl Fn(&Value) -> Result<T, String>,
) -> Result<Option<T>, Problem> {
    let value = record.get(keys);
    value.map(|value| parse(value).map_err(|text| Problem::new(&value.place, text))).transpose()
}
