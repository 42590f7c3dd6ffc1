//! Partitions.

use std::collections::BTreeSet;
use std::time::Duration;

use hostler_model::{NodePatterns, PartitionName, PartitionState, UserName};
use hostler_proto::partitions::{MAX_PARTITIONS, NewPartition, PartitionChange};
use hostler_slurm::conf::{Kind, Members, Nodes, Problem, Record, Value};
use hostler_slurm::hostlist::compress;
use hostler_slurm::time::{Limit, parse_limit};

use super::wanted::{Sources, Wanted, is_off, parsed};

/// The keys of the priority, the one that counts first.
const PRIORITY: [&str; 2] = ["PriorityTier", "Priority"];

/// Adds the partitions.
pub(super) fn add(wanted: &mut Wanted, sources: &Sources, nodes: &Nodes, problems: &mut Vec<Problem>) {
    let records: Vec<&Record> =
        sources.records.iter().filter(|record| record.kind == Kind::Partition && !record.is_default()).collect();
    if let Some(record) = records.get(MAX_PARTITIONS) {
        problems.push(Problem::new(record.place(), format!("a cluster has at most {MAX_PARTITIONS} partitions")));
        return;
    }
    // Slurm uses the last one that is marked.
    let is_marked = |record: &&&Record| record.get(&["Default"]).is_some_and(|value| yes(value) == Ok(true));
    let default = records.iter().rfind(is_marked).map(|record| record.name());
    // Partitions without a priority have 1 in Slurm and 0 in Hostler, which are equal if all are.
    let has_priorities = records.iter().any(|record| record.get(&PRIORITY).is_some());
    for (at, record) in records.iter().enumerate() {
        if let Some(earlier) = records[..at].iter().find(|earlier| earlier.name() == record.name()) {
            let text = format!("partition {} is already in {}", record.name(), earlier.place());
            problems.push(Problem::new(record.place(), text));
            continue;
        }
        let is_default = default == Some(record.name());
        let partition = Translation { record, nodes, notes: &mut wanted.notes, is_default, has_priorities };
        match partition.translate() {
            Ok(partition) => wanted.partitions.extend(partition),
            Err(problem) => problems.push(problem),
        }
    }
    if default.is_none() && !wanted.partitions.is_empty() {
        wanted.notes.push(
            "no partition is the default. Slurm refuses jobs that name none; in Hostler they may use every node"
                .to_owned(),
        );
    }
}

struct Translation<'a> {
    record: &'a Record,
    nodes: &'a Nodes,
    notes: &'a mut Vec<String>,
    is_default: bool,
    has_priorities: bool,
}

impl Translation<'_> {
    /// The partition; `None` if it has no nodes.
    fn translate(mut self) -> Result<Option<NewPartition>, Problem> {
        let record = self.record;
        let name = name(record).map_err(|text| Problem::new(record.place(), text))?;
        let max_time = parsed(record, &["MaxTime"], time)?.flatten();
        let default_time = parsed(record, &["DefaultTime"], time)?.flatten();
        let max_nodes = parsed(record, &["MaxNodes"], max_nodes)?.flatten();
        let priority = parsed(record, &PRIORITY, priority)?.unwrap_or(1);
        let state = parsed(record, &["State"], state)?.unwrap_or(PartitionState::Open);
        parsed(record, &["Default"], yes)?;
        let (users, groups) = self.who()?;
        let Some(nodes) = self.patterns()? else {
            self.note("has no nodes and is not imported");
            return Ok(None);
        };
        if max_time.is_some_and(|most| default_time.is_some_and(|usual| usual > most)) {
            self.note("has a DefaultTime above MaxTime: jobs that set no time limit get MaxTime");
        }
        if record.get(&["DenyAccounts"]).is_some_and(|value| !is_off(&value.text)) {
            self.note("has DenyAccounts, which is not imported: users of these accounts may use it");
        }
        let ms = |time: Option<Duration>| time.map_or(0, |time| time.as_secs() * 1000);
        let about = PartitionChange {
            nodes: Some(nodes),
            is_default: Some(self.is_default),
            state: Some(state),
            priority: Some(if self.has_priorities { priority } else { 0 }),
            default_time_ms: Some(ms(default_time.min(max_time.or(default_time)))),
            max_time_ms: Some(ms(max_time)),
            max_nodes: Some(max_nodes.unwrap_or(0)),
            users: Some(users),
            groups: Some(groups),
            // Slurm has none. A sandbox that an operator demands here stays.
            sandbox: None,
            sandbox_network: None,
            exclusive: None,
            ends_join_code: false,
        };
        Ok(Some(NewPartition { name, about }))
    }

    /// The users and groups who may use the partition.
    fn who(&mut self) -> Result<(BTreeSet<UserName>, BTreeSet<UserName>), Problem> {
        let list = |key: &str| Ok(parsed(self.record, &[key], names)?.unwrap_or_default());
        let (groups, accounts): (BTreeSet<UserName>, BTreeSet<UserName>) =
            (list("AllowGroups")?, list("AllowAccounts")?);
        if parsed(self.record, &["RootOnly"], yes)? == Some(true) {
            return Ok((BTreeSet::from(["root".parse().expect("root is a user name")]), BTreeSet::new()));
        }
        if !groups.is_empty() && !accounts.is_empty() {
            self.note("has AllowGroups and AllowAccounts. Only the accounts count; Slurm wants one of each of a user");
        }
        Ok((BTreeSet::new(), if accounts.is_empty() { groups } else { accounts }))
    }

    fn patterns(&self) -> Result<Option<NodePatterns>, Problem> {
        let Some(list) = self.record.get(&["Nodes"]) else { return Ok(None) };
        match self.nodes.members(&list.place, &list.text)? {
            Members::All => Ok(Some("*".parse().expect("a star matches all nodes"))),
            Members::Names(names) if names.is_empty() => Ok(None),
            Members::Names(names) => compress(&names).parse().map(Some).map_err(|_| {
                let text = "the list of nodes is too long for Hostler: it has at most 4096 characters. Name the nodes in ranges";
                Problem::new(&list.place, text)
            }),
        }
    }

    fn note(&mut self, what: &str) {
        self.notes.push(format!("{}: partition {} {what}", self.record.place(), self.record.name()));
    }
}

fn yes(value: &Value) -> Result<bool, String> {
    match value.text.to_ascii_lowercase().as_str() {
        "yes" | "up" | "true" | "1" => Ok(true),
        "no" | "down" | "false" | "0" => Ok(false),
        _ => Err(format!("{value} is neither YES nor NO")),
    }
}

/// Parses a time limit; `None` if there is none.
fn time(value: &Value) -> Result<Option<Duration>, String> {
    if value.text.eq_ignore_ascii_case("NONE") {
        return Ok(None);
    }
    match parse_limit(&value.text) {
        Some(Limit::Unlimited) => Ok(None),
        Some(Limit::Seconds(seconds)) if seconds <= u64::from(u32::MAX) * 60 => Ok(Some(Duration::from_secs(seconds))),
        _ => Err(format!("{value} is not a time; Slurm takes minutes, or forms such as 12:00:00 and 7-00:00:00")),
    }
}

fn max_nodes(value: &Value) -> Result<Option<u32>, String> {
    if ["unlimited", "infinite", "-1"].contains(&value.text.to_ascii_lowercase().as_str()) {
        return Ok(None);
    }
    let number = value.text.parse().ok().filter(|number| *number > 0);
    number.map(Some).ok_or_else(|| format!("{value} is not a number of nodes"))
}

fn priority(value: &Value) -> Result<i32, String> {
    let number: Option<u16> = value.text.parse().ok();
    number.map(i32::from).ok_or_else(|| format!("{value} is not a number from 0 to 65535"))
}

fn state(value: &Value) -> Result<PartitionState, String> {
    match value.text.to_ascii_uppercase().as_str() {
        "UP" => Ok(PartitionState::Open),
        "DOWN" => Ok(PartitionState::Paused),
        // Slurm starts no jobs of an inactive partition, not even those that wait already.
        "DRAIN" | "INACTIVE" => Ok(PartitionState::Closed),
        _ => Err(format!("{value} is not UP, DOWN, DRAIN or INACTIVE")),
    }
}

/// Whether a list of groups or accounts means all users. Accounts may have any other name, such as `none` and `default`.
fn is_everybody(value: &Value) -> bool {
    value.text.is_empty() || value.text.eq_ignore_ascii_case("ALL")
}

/// Parses a list of groups or accounts; empty if all users are meant.
fn names(value: &Value) -> Result<BTreeSet<UserName>, String> {
    if is_everybody(value) {
        return Ok(BTreeSet::new());
    }
    let lower = value.is("AllowAccounts").then(|| value.text.to_ascii_lowercase());
    let words = lower.as_deref().unwrap_or(&value.text).split(',').map(str::trim).filter(|word| !word.is_empty());
    words.map(|word| word.parse::<UserName>().map_err(|error| error.to_string())).collect()
}

fn name(record: &Record) -> Result<PartitionName, String> {
    record.name().parse().map_err(|_| {
        format!(
            "Hostler has no partition `{}`: a name has up to 63 letters, digits, `-`, `_`, `.` and `+`",
            record.name()
        )
    })
}

#[cfg(test)]
mod tests {
    use hostler_model::NodeName;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn patterns_match_exactly_the_nodes_of_a_list(names in prop::collection::btree_set("[a-c]{1,2}(0{0,2}[0-9]{1,3})?(x[0-9])?", 1..30), listed in prop::collection::vec(any::<bool>(), 30)) {
            let (names, others): (Vec<_>, Vec<_>) = names.into_iter().zip(listed).partition(|(_, listed)| *listed);
            let names: Vec<String> = names.into_iter().map(|(name, _)| name).collect();
            prop_assume!(!names.is_empty());
            let patterns: NodePatterns = compress(&names).parse().expect("short");
            let matches = |name: &str| patterns.matches(&name.parse::<NodeName>().expect("a name"));
            for name in &names {
                prop_assert!(matches(name), "{} does not match {}", patterns, name);
            }
            for (name, _) in &others {
                prop_assert!(!matches(name), "{} matches {}", patterns, name);
            }
        }
    }
}
