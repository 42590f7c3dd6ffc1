//! Records of nodes and partitions, and what they inherit from `DEFAULT`.

use super::lines::{Place, Value};

/// The most defaults of a record. Slurm has about fifty keys for each kind.
const MOST_DEFAULTS: usize = 100;

/// What a record is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A setting of the whole cluster. A line has only one.
    Cluster,
    /// Nodes: `NodeName=`.
    Nodes,
    /// A partition: `PartitionName=`.
    Partition,
    /// A name for nodes: `NodeSet=`.
    NodeSet,
    /// Nodes that are down: `DownNodes=`.
    DownNodes,
    /// Hosts that act for nodes: `FrontendName=`.
    Frontend,
}

impl Kind {
    /// The kinds that begin with a key of their own.
    const NAMED: [(Self, &str); 5] = [
        (Self::Nodes, "NodeName"),
        (Self::Partition, "PartitionName"),
        (Self::NodeSet, "NodeSet"),
        (Self::DownNodes, "DownNodes"),
        (Self::Frontend, "FrontendName"),
    ];

    /// The kind of a record by its first pair.
    fn of(first: &Value) -> Self {
        Self::NAMED.iter().find(|(_, key)| first.is(key)).map_or(Self::Cluster, |(kind, _)| *kind)
    }
}

/// A line with what it inherits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// What the record is about.
    pub kind: Kind,
    /// All pairs of the record in their order.
    pub values: Vec<Value>,
    /// What the record inherits from `DEFAULT` records before it, each key once.
    pub defaults: Vec<Value>,
}

impl Record {
    /// Where the record begins.
    ///
    /// # Panics
    /// Never: a record has at least one pair.
    #[must_use]
    pub fn place(&self) -> &Place {
        &self.values.first().expect("a record has at least one pair").place
    }

    /// The value of the first pair, such as the names of nodes; empty for settings of the cluster.
    #[must_use]
    pub fn name(&self) -> &str {
        self.values.first().filter(|_| self.kind != Kind::Cluster).map_or("", |value| value.text.as_str())
    }

    /// Returns whether the record only sets defaults for later ones.
    #[must_use]
    pub fn is_default(&self) -> bool {
        matches!(self.kind, Kind::Nodes | Kind::Partition) && self.name().eq_ignore_ascii_case("DEFAULT")
    }

    /// Returns the value that counts: the last one of the record itself, else the last one that it inherits. Tries the keys in
    /// order.
    #[must_use]
    pub fn get<'a>(&'a self, keys: &[&str]) -> Option<&'a Value> {
        let last = |values: &'a [Value], key: &str| values.iter().rfind(|value| value.is(key));
        let own = keys.iter().find_map(|key| last(&self.values, key));
        own.or_else(|| keys.iter().find_map(|key| last(&self.defaults, key)))
    }
}

/// Turns lines into records.
#[must_use]
pub fn records(lines: Vec<Vec<Value>>) -> Vec<Record> {
    let mut records = Vec::new();
    let (mut of_nodes, mut of_partitions): (Vec<Value>, Vec<Value>) = (Vec::new(), Vec::new());
    for values in lines {
        let Some(kind) = values.first().map(Kind::of) else { continue };
        let defaults = match kind {
            Kind::Nodes => &mut of_nodes,
            Kind::Partition => &mut of_partitions,
            _ => &mut Vec::new(),
        };
        let record = Record { kind, values, defaults: defaults.clone() };
        if record.is_default() {
            for value in &record.values[1..] {
                defaults.retain(|earlier| !earlier.is(&value.key));
                defaults.push(value.clone());
            }
            // Keeps the last ones. Slurm knows fewer keys, so there are wrong ones among them.
            defaults.drain(..defaults.len().saturating_sub(MOST_DEFAULTS));
        }
        records.push(record);
    }
    records
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::lines::{Line, parse};
    use super::*;

    fn all(text: &str) -> Vec<Record> {
        let (lines, problems) = parse(&Arc::from("s"), text);
        assert_eq!(problems, []);
        let values = |line| match line {
            Line::Values(values) => values,
            Line::Include(..) => panic!("no file is included"),
        };
        records(lines.into_iter().map(values).collect())
    }

    fn get<'a>(record: &'a Record, keys: &[&str]) -> Option<&'a str> {
        record.get(keys).map(|value| value.text.as_str())
    }

    #[test]
    fn records_inherit_the_defaults_before_them() {
        let all = all("nodename=a Weight=1\nNodeName=DEFAULT CPUs=2 Weight=5\nNodeName=b\nNodeName=default weight=7\n\
                       NODENAME=c cpus=4\nPartitionName=p Nodes=ALL");
        let weights: Vec<_> = all.iter().map(|record| get(record, &["Weight"])).collect();
        assert_eq!(weights, [Some("1"), Some("5"), Some("5"), Some("7"), Some("7"), None]);
        assert_eq!((get(&all[2], &["CPUs"]), get(&all[4], &["CPUs"])), (Some("2"), Some("4")));
        let defaults: Vec<bool> = all.iter().map(Record::is_default).collect();
        assert_eq!(defaults, [false, true, false, true, false, false]);
    }

    #[test]
    fn kind_depends_on_the_first_key() {
        let all = all("KillWait=5\nnodename=a State=UP\nNodeSet=s Feature=f\nDownNodes=a");
        let kinds: Vec<_> = all.iter().map(|record| (record.kind, record.name(), record.values.len())).collect();
        let expected =
            [(Kind::Cluster, "", 1), (Kind::Nodes, "a", 2), (Kind::NodeSet, "s", 2), (Kind::DownNodes, "a", 1)];
        assert_eq!(kinds, expected);
    }

    #[test]
    fn last_value_and_first_key_count() {
        let all = all("PartitionName=DEFAULT PriorityTier=9\nPartitionName=p Priority=1 Priority=2\n\
                       PartitionName=q Priority=1 PriorityTier=3");
        assert_eq!(get(&all[1], &["PriorityTier", "Priority"]), Some("2"));
        assert_eq!(get(&all[2], &["PriorityTier", "Priority"]), Some("3"));
    }
}
