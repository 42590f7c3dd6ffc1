//! What `sinfo` can print about nodes and partitions.

use hostler_model::PartitionState;
use hostler_slurm::hostlist::compress;
use hostler_slurm::time::short;

use super::super::clock::Clock;
use super::super::machines::{Cause, Details, Machine, NULL, Part, addresses, node_list};
use super::super::rows::Accounts;
use super::super::{CLUSTER, VERSION};
use super::row::Row;

/// A value that `sinfo` can print.
pub(super) struct Field {
    /// The letter in a short format; a blank if there is none.
    pub(super) letter: char,
    /// The name in a long format, in lower case.
    pub(super) name: &'static str,
    pub(super) header: &'static str,
    value: Value,
}

/// Where a value comes from. Nodes with different values of a partition, a node or a cause have rows of their own.
enum Value {
    Partition(fn(&Part) -> String),
    /// Of each node of a row.
    Node(fn(&Machine) -> Option<String>),
    /// Of why a node is drained.
    Cause(fn(&mut Writer, &Cause) -> Option<String>),
    /// Of all nodes of a row together.
    Nodes(Splits, fn(&Row<'_>) -> String),
}

/// Whether nodes with different values have rows of their own.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Splits {
    Never,
    /// If the user asks for exact rows.
    Exactly,
    Always,
}

const fn partition(letter: char, name: &'static str, header: &'static str, value: fn(&Part) -> String) -> Field {
    Field { letter, name, header, value: Value::Partition(value) }
}

const fn node(letter: char, name: &'static str, header: &'static str, value: fn(&Machine) -> Option<String>) -> Field {
    Field { letter, name, header, value: Value::Node(value) }
}

const fn cause(
    letter: char,
    name: &'static str,
    header: &'static str,
    value: fn(&mut Writer, &Cause) -> Option<String>,
) -> Field {
    Field { letter, name, header, value: Value::Cause(value) }
}

const fn nodes(
    letter: char,
    name: &'static str,
    header: &'static str,
    splits: Splits,
    value: fn(&Row<'_>) -> String,
) -> Field {
    Field { letter, name, header, value: Value::Nodes(splits, value) }
}

use Splits::{Always, Exactly, Never};

/// All fields, in the order in which `%all` prints them.
pub(super) const FIELDS: &[Field] = &[
    partition('a', "available", "AVAIL", |part| match part.state {
        PartitionState::Open => "up".to_owned(),
        PartitionState::Paused => "down".to_owned(),
        PartitionState::Closed => "drain".to_owned(),
    }),
    nodes('A', "nodeai", "NODES(A/I)", Never, |row| {
        let counts = row.node_counts();
        format!("{}/{}", counts.allocated, counts.idle)
    }),
    node('b', "features_act", "ACTIVE_FEATURES", Machine::features),
    partition('B', "maxcpuspernode", "MAX_CPUS_PER_NODE", |_| "UNLIMITED".to_owned()),
    nodes('c', "cpus", "CPUS", Exactly, cpus),
    nodes('C', "cpusstate", "CPUS(A/I/O/T)", Never, |row| row.cpu_counts().to_string()),
    nodes('d', "disk", "TMP_DISK", Never, |_| "0".to_owned()),
    nodes('D', "nodes", "NODES", Never, |row| row.machines.len().to_string()),
    nodes('e', "freemem", "FREE_MEM", Exactly, |row| {
        range("0", row, |machine| machine.memory_free().map(|free| (free, free.to_string())))
    }),
    cause('E', "reason", "REASON", |_, cause| Some(cause.text.clone())),
    node('f', "features", "AVAIL_FEATURES", Machine::features),
    nodes('F', "nodeaiot", "NODES(A/I/O/T)", Never, |row| row.node_counts().to_string()),
    partition('g', "groups", "GROUPS", |part| match part.allowed.is_empty() {
        true => "all".to_owned(),
        false => part.allowed.join(","),
    }),
    node('G', "gres", "GRES", Machine::gres),
    partition('h', "oversubscribe", "OVERSUBSCRIBE", |_| "NO".to_owned()),
    cause('H', "timestamp", "TIMESTAMP", |writer, cause| cause.at.map(|at| writer.clock.write(at))),
    partition('I', "priorityjobfactor", "PRIO_JOB_FACTOR", |_| "1".to_owned()),
    partition('l', "time", "TIMELIMIT", |part| part.max_time.map_or_else(|| "infinite".to_owned(), short)),
    partition('L', "defaulttime", "DEFAULTTIME", |part| part.default_time.map_or_else(|| "n/a".to_owned(), short)),
    nodes('m', "memory", "MEMORY", Exactly, |row| least(row, Machine::memory)),
    partition('M', "preemptmode", "PREEMPT_MODE", |_| "OFF".to_owned()),
    nodes('n', "nodehost", "HOSTNAMES", Always, |row| node_list(&row.machines)),
    nodes('N', "nodelist", "NODELIST", Never, |row| node_list(&row.machines)),
    nodes('o', "nodeaddr", "NODE_ADDR", Always, |row| compress(&addresses(&row.machines))),
    nodes('O', "cpusload", "CPU_LOAD", Exactly, |row| {
        range("0.00", row, |machine| {
            let load = machine.load()?;
            Some(((load * 100.0) as u64, format!("{load:.2}")))
        })
    }),
    partition('p', "prioritytier", "PRIO_TIER", |part| part.priority.to_string()),
    partition('P', "partition", "PARTITION", |part| format!("{}{}", part.name, if part.is_default { "*" } else { "" })),
    partition('r', "root", "ROOT", |_| "no".to_owned()),
    partition('R', "partitionname", "PARTITION", |part| part.name.clone()),
    partition('s', "size", "JOB_SIZE", |part| match part.max_nodes {
        None => "1-infinite".to_owned(),
        Some(1) => "1".to_owned(),
        Some(most) => format!("1-{most}"),
    }),
    partition('S', "allocnodes", "ALLOCNODES", |_| "all".to_owned()),
    nodes('t', "statecompact", "STATE", Always, |row| state(row, |machine| machine.state().compact())),
    nodes('T', "statelong", "STATE", Always, |row| state(row, |machine| machine.state().long())),
    cause('u', "user", "USER", |_, cause| Some(cause.user.clone())),
    cause('U', "userlong", "USER", |writer, cause| {
        Some(format!("{}({})", cause.user, writer.accounts.uid(&cause.user)))
    }),
    nodes('v', "version", "VERSION", Never, |row| match row.machines.is_empty() {
        true => "N/A".to_owned(),
        false => VERSION.trim_start_matches("slurm ").to_owned(),
    }),
    partition('V', "cluster", "CLUSTER", |_| "N/A".to_owned()),
    nodes('w', "weight", "WEIGHT", Exactly, |row| least(row, |machine| machine.view.weight.into())),
    nodes('X', "sockets", "SOCKETS", Exactly, cpus),
    nodes('Y', "cores", "CORES", Never, one),
    nodes('z', "socketcorethread", "S:C:T", Exactly, |row| format!("{}:{}:{}", cpus(row), one(row), one(row))),
    nodes('Z', "threads", "THREADS", Never, one),
    nodes(' ', "allocmem", "ALLOCMEM", Always, |row| row.machines.first().map_or(0, |it| it.memory_used()).to_string()),
    node(' ', "comment", "COMMENT", |_| None),
    node(' ', "extra", "EXTRA", |_| None),
    node(' ', "gresused", "GRES_USED", Machine::gres_used),
    nodes(' ', "port", "PORT", Never, |_| "0".to_owned()),
    partition(' ', "priority", "PRIO_TIER", |part| part.priority.to_string()),
    nodes(' ', "statecomplete", "STATECOMPLETE", Always, |row| {
        state(row, |machine| machine.state().complete().to_ascii_lowercase())
    }),
];

/// Finds the field with this letter or, in lower case, with this name.
pub(super) fn find(name: &str) -> Option<&'static Field> {
    let mut letters = name.chars();
    match (letters.next(), letters.next()) {
        (Some(letter), None) => FIELDS.iter().find(|field| field.letter == letter && letter != ' '),
        _ => FIELDS.iter().find(|field| field.name == name),
    }
}

impl Field {
    /// Whether rows show the partition.
    pub(super) const fn names_partition(&self) -> bool {
        matches!(self.letter, 'P' | 'R')
    }

    /// Whether the value is a list of names.
    pub(super) const fn is_list(&self) -> bool {
        matches!(self.letter, 'n' | 'N' | 'o')
    }

    /// Which nodes to ask for details.
    pub(super) const fn details(&self) -> Details {
        match (self.letter, &self.value) {
            ('e' | 'O', _) => Details::All,
            (_, Value::Cause(_)) => Details::Reasons,
            _ => Details::None,
        }
    }

    /// Whether nodes with different values have rows of their own.
    pub(super) fn splits(&self, is_exact: bool) -> bool {
        match self.value {
            Value::Nodes(splits, _) => splits == Splits::Always || (is_exact && splits == Splits::Exactly),
            _ => true,
        }
    }

    /// The value in a row.
    pub(super) fn value(&self, writer: &mut Writer, row: &Row<'_>) -> String {
        let first = row.machines.first().copied();
        match self.value {
            Value::Partition(value) => value(row.part),
            Value::Nodes(_, value) => value(row),
            Value::Node(value) => first.and_then(value).unwrap_or_else(|| NULL.to_owned()),
            Value::Cause(value) => {
                let known = first.and_then(Machine::cause).and_then(|cause| value(writer, &cause));
                known.unwrap_or_else(|| if self.letter == 'E' { "none" } else { "Unknown" }.to_owned())
            }
        }
    }
}

/// What values need besides their row.
#[derive(Debug)]
pub(super) struct Writer {
    pub(super) clock: Clock,
    pub(super) accounts: Accounts,
}

fn cpus(row: &Row<'_>) -> String {
    least(row, |machine| machine.view.cpus.into())
}

fn one(row: &Row<'_>) -> String {
    if row.machines.is_empty() { "0" } else { "1" }.to_owned()
}

fn state(row: &Row<'_>, text: impl FnOnce(&Machine) -> String) -> String {
    row.machines.first().map_or_else(|| "n/a".to_owned(), |machine| text(machine))
}

/// The least value, with a `+` if others are larger.
fn least(row: &Row<'_>, value: impl Fn(&Machine) -> u64) -> String {
    let values = || row.machines.iter().map(|machine| value(machine));
    let (least, most) = (values().min().unwrap_or(0), values().max().unwrap_or(0));
    format!("{least}{}", if least == most { "" } else { "+" })
}

/// The least and the largest value; absent ones are the largest. `none` is the text of a row without nodes.
fn range(none: &str, row: &Row<'_>, value: impl Fn(&Machine) -> Option<(u64, String)>) -> String {
    let values = || row.machines.iter().map(|machine| value(machine).unwrap_or((u64::MAX, "N/A".to_owned())));
    match (values().min(), values().max()) {
        (Some((_, least)), Some((_, most))) if least != most => format!("{least}-{most}"),
        (Some((_, least)), _) => least,
        (None, _) => none.to_owned(),
    }
}

/// The line before the table if the user names clusters.
pub(super) fn cluster_line() -> String {
    format!("CLUSTER: {CLUSTER}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_have_unique_names() {
        for (at, one) in FIELDS.iter().enumerate() {
            for other in &FIELDS[at + 1..] {
                assert_ne!(one.name, other.name);
                assert!(one.letter == ' ' || one.letter != other.letter, "{}", one.letter);
            }
        }
        assert_eq!(find("P").map(|field| field.name), Some("partition"));
        assert_eq!(find("nodelist").map(|field| field.letter), Some('N'));
        assert!(find("q").is_none() && find(" ").is_none() && find("bogus").is_none());
    }
}
