//! The settings of Hostler that a configuration of Slurm stands for.

use std::collections::{BTreeMap, BTreeSet};

use hostler_model::{Feature, NodeName, Quota, Role, UserName};
use hostler_proto::partitions::NewPartition;
use hostler_slurm::accounts::Accounts;
use hostler_slurm::conf::{Kind, Nodes, Problem, Record, Value};

use super::keys::{Fixed, Table};
use super::power::Power;
use super::verdict::{Judgement, Row, Rows};
use super::{accounts, beside, nodes, partitions, settings};

/// What was read.
#[derive(Debug, Default)]
pub(super) struct Sources {
    /// The records of `slurm.conf`.
    pub(super) records: Vec<Record>,
    /// The lines of `gres.conf`.
    pub(super) gres: Vec<Vec<Value>>,
    /// The lines of `cgroup.conf`.
    pub(super) cgroup: Vec<Vec<Value>>,
    /// The output of `sacctmgr dump`.
    pub(super) accounts: Option<Accounts>,
}

/// The settings that the cluster should have, and the report.
#[derive(Debug, Default)]
pub(super) struct Wanted {
    /// Values of settings by their names.
    pub(super) settings: BTreeMap<&'static str, String>,
    /// In the order of the file.
    pub(super) partitions: Vec<NewPartition>,
    pub(super) nodes: BTreeMap<NodeName, WantedNode>,
    /// `None` if no accounts are imported.
    pub(super) people: Option<People>,
    /// The text of a `power.toml`.
    pub(super) power: Option<String>,
    pub(super) rows: Vec<Row>,
    /// What is not about a single line.
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
    let mut problems = Vec::new();
    let mut rows = judge_all(sources, &mut problems);
    if !problems.is_empty() {
        return Err(problems);
    }
    let nodes = Nodes::of(&sources.records)?;
    let mut wanted = Wanted { settings: settings::wanted(&sources.records), ..Wanted::default() };
    partitions::add(&mut wanted, &mut rows, sources, &nodes, &mut problems);
    nodes::add(&mut wanted, sources, &nodes, &mut problems);
    match sources.accounts.as_ref().map(|accounts| accounts::people(accounts, &mut rows)) {
        Some(Ok(people)) => wanted.people = Some(people),
        Some(Err(wrong)) => problems.extend(wrong),
        None => {}
    }
    wanted.power = Power::of(&sources.records).map(|power| power.text(&nodes));
    wanted.rows = rows.into_sorted();
    if problems.is_empty() { Ok(wanted) } else { Err(problems) }
}

/// Judges each pair of all files but the accounts.
fn judge_all(sources: &Sources, problems: &mut Vec<Problem>) -> Rows {
    let mut rows = Rows::default();
    let mut add = |table: Table,
                   values: &[Value],
                   problems: &mut Vec<Problem>,
                   by_code: &dyn Fn(&Value) -> Result<Judgement, String>| {
        for value in values {
            let judgement = match table.judge(&value.key, &value.text) {
                Some(Fixed::Judgement(judgement)) => Ok(judgement),
                Some(Fixed::Code) => by_code(value),
                None => Err(unknown(table, &value.key)),
            };
            match judgement {
                Ok(judgement) => rows.add(value, judgement),
                Err(text) => problems.push(Problem { place: value.place.clone(), text }),
            }
        }
    };
    for (at, record) in sources.records.iter().enumerate() {
        let later = &sources.records[at + 1..];
        if let (Kind::Cluster, Some(second)) = (record.kind, record.values.get(1)) {
            let text = format!("{second} follows another setting; write it in a line of its own");
            problems.push(Problem::new(&second.place, text));
            continue;
        }
        add(Table::Slurm(record.kind), &record.values, problems, &|value| match record.kind {
            Kind::Cluster => settings::judge(value, later),
            Kind::Nodes | Kind::DownNodes => nodes::judge(value, record),
            Kind::Partition => partitions::judge(value, record, sources.accounts.is_some()),
            Kind::NodeSet => Ok(nodes::judge_set(value)),
            Kind::Frontend => unreachable!("the table judges all keys"),
        });
    }
    sources.gres.iter().for_each(|line| add(Table::Gres, line, problems, &|value| Ok(beside::judge_gres(value, line))));
    sources.cgroup.iter().for_each(|line| add(Table::Cgroup, line, problems, &|value| Ok(beside::judge_cgroup(value))));
    rows
}

fn unknown(table: Table, key: &str) -> String {
    // A line with a wrong first key could be meant as any record.
    let names = ["NodeName", "PartitionName", "NodeSet", "DownNodes"];
    let names = names.into_iter().filter(|_| table == Table::Slurm(Kind::Cluster));
    let keys: Vec<&str> = table.keys().chain(names).collect();
    let lower = key.to_ascii_lowercase();
    let lowers: Vec<String> = keys.iter().map(|key| key.to_ascii_lowercase()).collect();
    let lowers: Vec<&str> = lowers.iter().map(String::as_str).collect();
    let near = crate::toml_file::closest(&lower, &lowers).and_then(|near| lowers.iter().position(|key| *key == near));
    match near {
        Some(at) => format!("unknown key {key}; did you mean {}?", keys[at]),
        None => format!("unknown key {key}"),
    }
}
