//! Partitions.

use std::collections::BTreeSet;
use std::time::Duration;

use hostler_model::{NodePatterns, PartitionName, PartitionState, UserName, plural};
use hostler_proto::partitions::{NewPartition, PartitionChange};
use hostler_slurm::conf::{Kind, Members, Nodes, Problem, Record, Value};
use hostler_slurm::hostlist::compress;
use hostler_slurm::time::{Limit, parse_limit};

use super::keys::NOT_USED;
use super::span;
use super::verdict::{Judgement, Rows, is_yes};
use super::wanted::{Sources, Wanted};

/// The most partitions of a cluster of Hostler.
const MAX_PARTITIONS: usize = 1_000;

/// The keys of the priority, the one that counts first.
const PRIORITY: [&str; 2] = ["PriorityTier", "Priority"];

const ONLY_ACCOUNTS: &str = "only AllowAccounts counts; Slurm wants an allowed account and an allowed group of a user";

/// Judges a pair of a partition.
pub(super) fn judge(value: &Value, record: &Record, has_accounts: bool) -> Result<Judgement, String> {
    let names = || names(value).map(|names| names.iter().map(UserName::as_str).collect::<Vec<_>>().join(","));
    Ok(match value.key.to_ascii_lowercase().as_str() {
        "partitionname" if record.is_default() => Judgement::taken("defaults of the PartitionName lines that follow"),
        "partitionname" => Judgement::taken(format!("partition {}", name(record)?)),
        "nodes" => Judgement::taken("nodes of the partition"),
        "default" => match yes(value)? {
            true => Judgement::taken("jobs that name no partition use it"),
            false => Judgement::taken("jobs use it only if they name it"),
        },
        "maxtime" => Judgement::taken(match time(value)? {
            Some(time) => format!("longest time limit {}", span(time)),
            None => "no limit on run times".to_owned(),
        }),
        "defaulttime" => Judgement::taken(match time(value)? {
            Some(time) => format!("time limit {} for jobs that set none", span(time)),
            None => "jobs that set no time limit get the longest one".to_owned(),
        }),
        "maxnodes" => Judgement::taken(match max_nodes(value)? {
            Some(nodes) => format!("at most {} per job", plural(nodes, "node")),
            None => "no limit on nodes".to_owned(),
        }),
        "minnodes" => match value.text.as_str() {
            "0" | "1" => Judgement::unneeded("each job has at least one node"),
            _ => Judgement::missing("no lower limit. Ask users to submit small jobs to another partition"),
        },
        "prioritytier" | "priority" => Judgement::taken(format!("priority {} of the partition", priority(value)?)),
        "state" => match state(value)? {
            (PartitionState::Closed, false) => {
                Judgement::differs("state closed: no new jobs, but jobs that wait already start")
            }
            (state, _) => Judgement::taken(format!("state {state}")),
        },
        "allowgroups" if is_everybody(value) => Judgement::taken("all users may use it"),
        "allowgroups" if record.get(&["AllowAccounts"]).is_some_and(|value| !is_everybody(value)) => {
            names()?;
            Judgement::missing(ONLY_ACCOUNTS)
        }
        "allowgroups" => Judgement::differs(format!(
            "only users of {} may use it: groups of Hostler, not of Unix; see `hostler configure user add --group`",
            names()?
        )),
        "allowaccounts" if is_everybody(value) => Judgement::taken("all users may use it"),
        "allowaccounts" => {
            let judgement = if has_accounts { Judgement::taken } else { Judgement::differs };
            let how = if has_accounts { "" } else { "; import the groups with `--accounts FILE`" };
            judgement(format!("only users of the groups {} may use it{how}", names()?))
        }
        "denyaccounts" if value.text.is_empty() => Judgement::unneeded(NOT_USED),
        "denyaccounts" => Judgement::missing(
            "no way to exclude users, so these may use the partition. Use `hostler configure partition set --groups`",
        ),
        "rootonly" => match yes(value)? {
            true => Judgement::differs("only root may use it, on nodes with `root_jobs` in agent.toml"),
            false => Judgement::taken("all users may use it"),
        },
        other => unreachable!("the table judges {other}"),
    })
}

fn yes(value: &Value) -> Result<bool, String> {
    is_yes(&value.text).ok_or_else(|| format!("{value} is neither YES nor NO"))
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

/// Parses a state; also returns whether it means exactly the same.
fn state(value: &Value) -> Result<(PartitionState, bool), String> {
    match value.text.to_ascii_uppercase().as_str() {
        "UP" => Ok((PartitionState::Open, true)),
        "DOWN" => Ok((PartitionState::Paused, true)),
        "DRAIN" => Ok((PartitionState::Closed, true)),
        "INACTIVE" => Ok((PartitionState::Closed, false)),
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
        format!("Hostler has no partition `{}`: a name has up to 63 letters, digits, `-` and `_`", record.name())
    })
}

/// Adds the partitions. All pairs must have been judged.
pub(super) fn add(wanted: &mut Wanted, rows: &mut Rows, sources: &Sources, nodes: &Nodes, problems: &mut Vec<Problem>) {
    let records: Vec<&Record> =
        sources.records.iter().filter(|record| record.kind == Kind::Partition && !record.is_default()).collect();
    if let Some(record) = records.get(MAX_PARTITIONS) {
        problems.push(Problem::new(record.place(), format!("a cluster has at most {MAX_PARTITIONS} partitions")));
        return;
    }
    // Slurm uses the last one that is marked.
    let is_marked = |record: &&&Record| record.get(&["Default"]).is_some_and(|value| is_yes(&value.text) == Some(true));
    let default = records.iter().rfind(is_marked).map(|record| record.name());
    // Partitions without a priority have 1 in Slurm and 0 in Hostler, which are equal if all are.
    let has_priorities = records.iter().any(|record| record.get(&PRIORITY).is_some());
    for (at, record) in records.iter().enumerate() {
        if let Some(earlier) = records[..at].iter().find(|earlier| earlier.name() == record.name()) {
            let text = format!("partition {} is already in {}", record.name(), earlier.place());
            problems.push(Problem::new(record.place(), text));
            continue;
        }
        let partition = Translation { record, nodes, rows, is_default: default == Some(record.name()), has_priorities };
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
    rows: &'a mut Rows,
    is_default: bool,
    has_priorities: bool,
}

impl Translation<'_> {
    /// The partition; `None` if it has no nodes.
    fn translate(mut self) -> Result<Option<NewPartition>, Problem> {
        let wrong = |text| Problem::new(self.record.place(), text);
        let name = name(self.record).map_err(wrong)?;
        let get = |key: &str| self.record.get(&[key]);
        let max_time = get("MaxTime").map_or(Ok(None), time).map_err(wrong)?;
        let default_time = get("DefaultTime").map_or(Ok(None), time).map_err(wrong)?;
        let max_nodes = get("MaxNodes").map_or(Ok(None), max_nodes).map_err(wrong)?;
        let priority = self.record.get(&PRIORITY).map_or(Ok(1), priority).map_err(wrong)?;
        let state =
            get("State").map_or(Ok(PartitionState::Open), |value| state(value).map(|it| it.0)).map_err(wrong)?;
        let (users, groups) = self.who().map_err(wrong)?;
        let Some(nodes) = self.patterns()? else {
            self.say(Judgement::missing("not imported: a partition needs nodes"));
            return Ok(None);
        };
        if max_time.is_some_and(|most| default_time.is_some_and(|usual| usual > most)) {
            self.say(Judgement::differs("DefaultTime exceeds MaxTime: jobs that set no time limit get MaxTime"));
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
        };
        Ok(Some(NewPartition { name, about }))
    }

    /// The users and groups who may use the partition.
    fn who(&mut self) -> Result<(BTreeSet<UserName>, BTreeSet<UserName>), String> {
        let list = |key: &str| self.record.get(&[key]).map_or(Ok(BTreeSet::new()), names);
        let (groups, accounts) = (list("AllowGroups")?, list("AllowAccounts")?);
        if self.record.get(&["RootOnly"]).is_some_and(|value| is_yes(&value.text) == Some(true)) {
            let root = "root".parse().map_err(|error| format!("{error}"))?;
            return Ok((BTreeSet::from([root]), BTreeSet::new()));
        }
        if groups.is_empty() || accounts.is_empty() {
            return Ok((BTreeSet::new(), if groups.is_empty() { accounts } else { groups }));
        }
        let is_inherited = |key: &str| self.record.values.iter().all(|value| !value.is(key));
        if is_inherited("AllowGroups") || is_inherited("AllowAccounts") {
            self.say(Judgement::missing(ONLY_ACCOUNTS));
        }
        Ok((BTreeSet::new(), accounts))
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

    fn say(&mut self, judgement: Judgement) {
        let setting = format!("PartitionName={}", self.record.name());
        self.rows.add_text(self.record.place(), setting, judgement);
    }
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
