//! What `sinfo` can print about nodes and partitions.

use hostler_model::PartitionState;
use hostler_slurm::hostlist::compress;
use hostler_slurm::time::short;

use super::super::clock::Clock;
use super::super::machines::{Cause, Machine, NULL, Part, addresses, node_list};
use super::super::rows::Accounts;
use super::super::{CLUSTER, VERSION};
use super::row::Row;

/// A value that `sinfo` can print.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Field {
    ActiveFeatures,
    AllocMem,
    AllocNodes,
    Available,
    Cluster,
    Comment,
    Cores,
    Cpus,
    CpuLoad,
    CpusState,
    DefaultTime,
    Disk,
    Features,
    FreeMem,
    Gres,
    GresUsed,
    Groups,
    MaxCpusPerNode,
    Memory,
    NodeAddr,
    NodeHost,
    NodeList,
    Nodes,
    NodesAi,
    NodesAiot,
    OverSubscribe,
    Partition,
    PartitionName,
    Port,
    PreemptMode,
    PriorityJobFactor,
    PriorityTier,
    Reason,
    Root,
    Size,
    SocketCoreThread,
    Sockets,
    StateCompact,
    StateComplete,
    StateLong,
    Threads,
    Time,
    TimeStamp,
    User,
    UserLong,
    Version,
    Weight,
}

/// How a field is called.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) field: Field,
    /// The letter in a short format; a blank if there is none.
    pub(super) letter: char,
    /// The name in a long format, in lower case.
    pub(super) name: &'static str,
    pub(super) header: &'static str,
}

const fn known(field: Field, letter: char, name: &'static str, header: &'static str) -> Known {
    Known { field, letter, name, header }
}

/// All fields, in the order in which `%all` prints them.
pub(super) const FIELDS: &[Known] = &[
    known(Field::Available, 'a', "available", "AVAIL"),
    known(Field::NodesAi, 'A', "nodeai", "NODES(A/I)"),
    known(Field::ActiveFeatures, 'b', "features_act", "ACTIVE_FEATURES"),
    known(Field::MaxCpusPerNode, 'B', "maxcpuspernode", "MAX_CPUS_PER_NODE"),
    known(Field::Cpus, 'c', "cpus", "CPUS"),
    known(Field::CpusState, 'C', "cpusstate", "CPUS(A/I/O/T)"),
    known(Field::Disk, 'd', "disk", "TMP_DISK"),
    known(Field::Nodes, 'D', "nodes", "NODES"),
    known(Field::FreeMem, 'e', "freemem", "FREE_MEM"),
    known(Field::Reason, 'E', "reason", "REASON"),
    known(Field::Features, 'f', "features", "AVAIL_FEATURES"),
    known(Field::NodesAiot, 'F', "nodeaiot", "NODES(A/I/O/T)"),
    known(Field::Groups, 'g', "groups", "GROUPS"),
    known(Field::Gres, 'G', "gres", "GRES"),
    known(Field::OverSubscribe, 'h', "oversubscribe", "OVERSUBSCRIBE"),
    known(Field::TimeStamp, 'H', "timestamp", "TIMESTAMP"),
    known(Field::PriorityJobFactor, 'I', "priorityjobfactor", "PRIO_JOB_FACTOR"),
    known(Field::Time, 'l', "time", "TIMELIMIT"),
    known(Field::DefaultTime, 'L', "defaulttime", "DEFAULTTIME"),
    known(Field::Memory, 'm', "memory", "MEMORY"),
    known(Field::PreemptMode, 'M', "preemptmode", "PREEMPT_MODE"),
    known(Field::NodeHost, 'n', "nodehost", "HOSTNAMES"),
    known(Field::NodeList, 'N', "nodelist", "NODELIST"),
    known(Field::NodeAddr, 'o', "nodeaddr", "NODE_ADDR"),
    known(Field::CpuLoad, 'O', "cpusload", "CPU_LOAD"),
    known(Field::PriorityTier, 'p', "prioritytier", "PRIO_TIER"),
    known(Field::Partition, 'P', "partition", "PARTITION"),
    known(Field::Root, 'r', "root", "ROOT"),
    known(Field::PartitionName, 'R', "partitionname", "PARTITION"),
    known(Field::Size, 's', "size", "JOB_SIZE"),
    known(Field::AllocNodes, 'S', "allocnodes", "ALLOCNODES"),
    known(Field::StateCompact, 't', "statecompact", "STATE"),
    known(Field::StateLong, 'T', "statelong", "STATE"),
    known(Field::User, 'u', "user", "USER"),
    known(Field::UserLong, 'U', "userlong", "USER"),
    known(Field::Version, 'v', "version", "VERSION"),
    known(Field::Cluster, 'V', "cluster", "CLUSTER"),
    known(Field::Weight, 'w', "weight", "WEIGHT"),
    known(Field::Sockets, 'X', "sockets", "SOCKETS"),
    known(Field::Cores, 'Y', "cores", "CORES"),
    known(Field::SocketCoreThread, 'z', "socketcorethread", "S:C:T"),
    known(Field::Threads, 'Z', "threads", "THREADS"),
    known(Field::AllocMem, ' ', "allocmem", "ALLOCMEM"),
    known(Field::Comment, ' ', "comment", "COMMENT"),
    known(Field::Comment, ' ', "extra", "EXTRA"),
    known(Field::GresUsed, ' ', "gresused", "GRES_USED"),
    known(Field::Port, ' ', "port", "PORT"),
    known(Field::PriorityTier, ' ', "priority", "PRIO_TIER"),
    known(Field::StateComplete, ' ', "statecomplete", "STATECOMPLETE"),
];

/// Finds the field with this letter or, in lower case, with this name.
pub(super) fn find(name: &str) -> Option<&'static Known> {
    let mut letters = name.chars();
    match (letters.next(), letters.next()) {
        (Some(letter), None) => FIELDS.iter().find(|known| known.letter == letter && letter != ' '),
        _ => FIELDS.iter().find(|known| known.name == name),
    }
}

impl Field {
    /// Whether the value belongs to the partition.
    const fn is_of_partition(self) -> bool {
        use Field as F;
        matches!(
            self,
            F::Available
                | F::Groups
                | F::Size
                | F::Time
                | F::DefaultTime
                | F::Partition
                | F::PartitionName
                | F::PriorityTier
        )
    }

    /// Whether rows show the partition.
    pub(super) const fn names_partition(self) -> bool {
        matches!(self, Self::Partition | Self::PartitionName)
    }

    /// Whether the value is a list of names.
    pub(super) const fn is_list(self) -> bool {
        matches!(self, Self::NodeAddr | Self::NodeHost | Self::NodeList)
    }

    /// Whether nodes with different values always have rows of their own.
    pub(super) const fn splits(self) -> bool {
        use Field as F;
        self.is_of_partition()
            || matches!(
                self,
                F::NodeHost
                    | F::NodeAddr
                    | F::Features
                    | F::ActiveFeatures
                    | F::Gres
                    | F::GresUsed
                    | F::Reason
                    | F::TimeStamp
                    | F::User
                    | F::UserLong
                    | F::StateCompact
                    | F::StateLong
                    | F::StateComplete
                    | F::AllocMem
            )
    }

    /// Whether nodes with different values have rows of their own if the user asks for exact rows.
    pub(super) const fn splits_exactly(self) -> bool {
        use Field as F;
        self.splits()
            || matches!(
                self,
                F::Cpus | F::Sockets | F::SocketCoreThread | F::Memory | F::Weight | F::CpuLoad | F::FreeMem
            )
    }
}

/// Writes values.
#[derive(Debug)]
pub(super) struct Writer {
    pub(super) clock: Clock,
    pub(super) accounts: Accounts,
}

impl Writer {
    /// The value of a field in a row.
    pub(super) fn value(&mut self, field: Field, row: &Row<'_>) -> String {
        if let Some(text) = of_partition(field, row.part) {
            return text;
        }
        if let Some(text) = of_all(field, row) {
            return text;
        }
        let first = row.machines.first().copied();
        match field {
            Field::Reason | Field::TimeStamp | Field::User | Field::UserLong => {
                self.of_cause(field, first.and_then(Machine::cause).as_ref())
            }
            _ => of_one(field, first),
        }
    }

    /// What is known about the drain of a node.
    fn of_cause(&mut self, field: Field, cause: Option<&Cause>) -> String {
        let unknown = || "Unknown".to_owned();
        let Some(cause) = cause else { return if field == Field::Reason { "none".to_owned() } else { unknown() } };
        match field {
            Field::Reason => cause.text.clone(),
            Field::User => cause.user.clone(),
            Field::UserLong => format!("{}({})", cause.user, self.accounts.uid(&cause.user)),
            _ => cause.at.map_or_else(unknown, |at| self.clock.write(at)),
        }
    }
}

/// A value of a partition, or one that all partitions have.
fn of_partition(field: Field, part: &Part) -> Option<String> {
    Some(match field {
        Field::AllocNodes => "all".to_owned(),
        Field::Available => match part.state {
            PartitionState::Open => "up".to_owned(),
            PartitionState::Paused => "down".to_owned(),
            PartitionState::Closed => "drain".to_owned(),
        },
        Field::Groups if part.allowed.is_empty() => "all".to_owned(),
        Field::Groups => part.allowed.join(","),
        Field::DefaultTime => part.default_time.map_or_else(|| "n/a".to_owned(), short),
        Field::Time => part.max_time.map_or_else(|| "infinite".to_owned(), short),
        Field::MaxCpusPerNode => "UNLIMITED".to_owned(),
        Field::OverSubscribe => "NO".to_owned(),
        Field::Partition => format!("{}{}", part.name, if part.is_default { "*" } else { "" }),
        Field::PartitionName => part.name.clone(),
        Field::PreemptMode => "OFF".to_owned(),
        Field::PriorityJobFactor => "1".to_owned(),
        Field::PriorityTier => part.priority.to_string(),
        Field::Root => "no".to_owned(),
        Field::Size => match part.max_nodes {
            None => "1-infinite".to_owned(),
            Some(1) => "1".to_owned(),
            Some(most) => format!("1-{most}"),
        },
        Field::Cluster => "N/A".to_owned(),
        _ => return None,
    })
}

/// A value of all nodes of a row together.
fn of_all(field: Field, row: &Row<'_>) -> Option<String> {
    let machines = &row.machines;
    let counts = || row.node_counts();
    Some(match field {
        Field::Nodes => machines.len().to_string(),
        Field::NodesAi => format!("{}/{}", counts().allocated, counts().idle),
        Field::NodesAiot => counts().to_string(),
        Field::CpusState => row.cpu_counts().to_string(),
        Field::NodeList | Field::NodeHost => node_list(machines),
        Field::NodeAddr => compress(&addresses(machines)),
        Field::Cpus | Field::Sockets => least(machines, |machine| u64::from(machine.view.cpus)),
        Field::Cores | Field::Threads if machines.is_empty() => "0".to_owned(),
        Field::Cores | Field::Threads => "1".to_owned(),
        Field::SocketCoreThread if machines.is_empty() => "0:0:0".to_owned(),
        Field::SocketCoreThread => format!("{}:1:1", least(machines, |machine| u64::from(machine.view.cpus))),
        Field::Disk | Field::Port => "0".to_owned(),
        Field::Memory => least(machines, Machine::memory),
        Field::Weight => least(machines, |machine| u64::from(machine.view.weight)),
        Field::FreeMem if machines.is_empty() => "0".to_owned(),
        Field::FreeMem => range(machines, |machine| machine.memory_free().map(|free| (free, free.to_string()))),
        Field::CpuLoad if machines.is_empty() => "0.00".to_owned(),
        Field::CpuLoad => range(machines, |machine| {
            let load = machine.load()?;
            Some(((load * 100.0) as u64, format!("{load:.2}")))
        }),
        _ => return None,
    })
}

/// A value that all nodes of a row share.
fn of_one(field: Field, machine: Option<&Machine>) -> String {
    let null = || NULL.to_owned();
    match (field, machine) {
        (Field::Version, Some(_)) => VERSION.trim_start_matches("slurm ").to_owned(),
        (Field::StateCompact | Field::StateLong | Field::StateComplete, None) => "n/a".to_owned(),
        (Field::StateCompact, Some(machine)) => machine.state().compact(),
        (Field::StateLong, Some(machine)) => machine.state().long(),
        (Field::StateComplete, Some(machine)) => machine.state().complete().to_ascii_lowercase(),
        (Field::AllocMem, machine) => machine.map_or(0, Machine::memory_used).to_string(),
        (Field::Features | Field::ActiveFeatures, Some(machine)) => machine.features().unwrap_or_else(null),
        (Field::Gres, Some(machine)) => machine.gres().unwrap_or_else(null),
        (Field::GresUsed, Some(machine)) => machine.gres_used().unwrap_or_else(null),
        (Field::Version, None) => "N/A".to_owned(),
        _ => null(),
    }
}

/// The least value, with a `+` if others are larger.
fn least(machines: &[&Machine], value: impl Fn(&Machine) -> u64) -> String {
    let values = || machines.iter().map(|machine| value(machine));
    let (least, most) = (values().min().unwrap_or(0), values().max().unwrap_or(0));
    format!("{least}{}", if least == most { "" } else { "+" })
}

/// The least and the largest value; absent ones are the largest.
fn range(machines: &[&Machine], value: impl Fn(&Machine) -> Option<(u64, String)>) -> String {
    let values = || machines.iter().map(|machine| value(machine).unwrap_or((u64::MAX, "N/A".to_owned())));
    match (values().min(), values().max()) {
        (Some((_, least)), Some((_, most))) if least != most => format!("{least}-{most}"),
        (Some((_, least)), _) => least,
        (None, _) => "0".to_owned(),
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
        assert_eq!(find("P").map(|known| known.field), Some(Field::Partition));
        assert_eq!(find("nodelist").map(|known| known.field), Some(Field::NodeList));
        assert!(find("q").is_none() && find(" ").is_none() && find("bogus").is_none());
    }
}
