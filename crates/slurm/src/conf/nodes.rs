//! The nodes that records define, and lists of nodes in other records.

use std::collections::{BTreeMap, BTreeSet};

use super::lines::{Place, Problem};
use super::records::{Kind, Record};
use crate::hostlist::expand;

/// The most nodes of a configuration.
const MOST_NODES: usize = 65_536;

/// The most names in all node sets together.
const MOST_MEMBERS: usize = 1_000_000;

/// All nodes of a configuration.
#[derive(Debug, Default)]
pub struct Nodes {
    /// For each node: the place that defines it, and its features.
    all: BTreeMap<String, (Place, Vec<String>)>,
    sets: BTreeMap<String, Vec<String>>,
}

/// The nodes of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Members {
    /// Every node of the cluster.
    All,
    /// These nodes, each once, in the order of the list.
    Names(Vec<String>),
}

impl Nodes {
    /// Collects the nodes and the node sets of all records.
    ///
    /// # Errors
    /// Returns the records that name no nodes, unknown nodes, or nodes that an earlier record defines.
    pub fn of(records: &[Record]) -> Result<Self, Vec<Problem>> {
        let mut nodes = Self::default();
        let mut problems = Vec::new();
        for record in records.iter().filter(|record| record.kind == Kind::Nodes && !record.is_default()) {
            if let Err(problem) = nodes.define(record) {
                problems.push(problem);
            }
            if nodes.all.len() > MOST_NODES {
                problems.push(Problem::new(record.place(), format!("more than {MOST_NODES} nodes")));
                return Err(problems);
            }
        }
        let mut count = 0;
        for record in records.iter().filter(|record| record.kind == Kind::NodeSet) {
            let members = nodes.members_of_set(record);
            count += members.as_ref().map_or(0, Vec::len);
            if count > MOST_MEMBERS {
                problems.push(Problem::new(record.place(), format!("more than {MOST_MEMBERS} nodes in node sets")));
                return Err(problems);
            }
            match members {
                Ok(members) => drop(nodes.sets.insert(record.name().to_owned(), members)),
                Err(problem) => problems.push(problem),
            }
        }
        if problems.is_empty() { Ok(nodes) } else { Err(problems) }
    }

    fn define(&mut self, record: &Record) -> Result<(), Problem> {
        let wrong = |text: String| Problem::new(record.place(), text);
        let features = record.get(&["Feature", "Features"]).map_or("", |value| &value.text);
        let features: Vec<String> = words(features).map(str::to_owned).collect();
        let names = expand(record.name()).map_err(wrong)?;
        if names.is_empty() || names.iter().any(|name| name.eq_ignore_ascii_case("ALL")) {
            return Err(wrong(format!("`{}` is not a list of nodes", record.name())));
        }
        for name in names {
            if let Some((place, _)) = self.all.get(&name) {
                return Err(wrong(format!("node {name} is already in {place}")));
            }
            self.all.insert(name, (record.place().clone(), features.clone()));
        }
        Ok(())
    }

    fn members_of_set(&self, record: &Record) -> Result<Vec<String>, Problem> {
        let mut members = Vec::new();
        if let Some(list) = record.get(&["Nodes"]) {
            members = self.names(self.members(&list.place, &list.text)?);
        }
        if let Some(feature) = record.get(&["Feature", "Features"]) {
            let has = |features: &[String]| words(&feature.text).any(|word| features.iter().any(|own| own == word));
            members.extend(self.all.iter().filter(|(_, (_, features))| has(features)).map(|(name, _)| name.clone()));
        }
        Ok(unique(members))
    }

    /// All nodes in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.all.keys().map(String::as_str)
    }

    /// Returns the names of members.
    #[must_use]
    pub fn names(&self, members: Members) -> Vec<String> {
        match members {
            Members::All => self.all.keys().cloned().collect(),
            Members::Names(names) => names,
        }
    }

    /// Returns the nodes of a list such as `c[01-04],gpus`, in which names of node sets stand for their nodes.
    ///
    /// # Errors
    /// When the list is not well-formed, or names a node that no record defines.
    pub fn members(&self, place: &Place, list: &str) -> Result<Members, Problem> {
        let mut names = Vec::new();
        for name in expand(list).map_err(|why| Problem::new(place, why))? {
            match self.sets.get(&name) {
                _ if name.eq_ignore_ascii_case("ALL") => return Ok(Members::All),
                Some(set) => names.extend(set.iter().cloned()),
                None if self.all.contains_key(&name) => names.push(name),
                None => return Err(Problem::new(place, format!("no NodeName or NodeSet line defines {name}"))),
            }
        }
        Ok(Members::Names(unique(names)))
    }
}

/// The words of a list such as `a,b`, `a&b` or `a b`.
fn words(list: &str) -> impl Iterator<Item = &str> {
    list.split([',', '&', ' ', '\t']).filter(|word| !word.is_empty())
}

/// Drops repeated names.
fn unique(names: Vec<String>) -> Vec<String> {
    let mut seen = BTreeSet::new();
    names.into_iter().filter(|name| seen.insert(name.clone())).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::include::{Found, read};
    use super::super::records::records;
    use super::*;
    use crate::conf::NotFound;

    fn nodes(text: &str) -> Result<Nodes, String> {
        let first = Found { id: "s".to_owned(), name: Arc::from("s"), text: text.to_owned() };
        let lines = read(&first, &mut |_| Err(NotFound(String::new()))).expect("good lines");
        let problems = |all: Vec<Problem>| all.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
        Nodes::of(&records(lines)).map_err(problems)
    }

    fn list(nodes: &Nodes, list: &str) -> Result<String, String> {
        let members = nodes.members(&Place { file: "s".into(), line: 9 }, list);
        members.map(|members| nodes.names(members).join(" ")).map_err(|problem| problem.to_string())
    }

    #[test]
    fn lists_name_nodes_and_sets() {
        let text = "NodeName=DEFAULT Feature=any\nNodeName=c[01-03] Feature=ib,amd\nNodeName=g1\nNodeName=g2 Features=ib\n\
                    NodeSet=fast Feature=ib\nNodeSet=both Nodes=g[1-2],c01 Feature=amd\nNodeSet=all Nodes=ALL";
        let nodes = nodes(text).expect("good records");
        assert_eq!(nodes.iter().collect::<Vec<_>>(), ["c01", "c02", "c03", "g1", "g2"]);
        for (names, expected) in [
            ("c[02-03],g1,c02", "c02 c03 g1"),
            ("fast", "c01 c02 c03 g2"),
            ("both", "g1 g2 c01 c02 c03"),
            ("g1,fast", "g1 c01 c02 c03 g2"),
            ("ALL", "c01 c02 c03 g1 g2"),
            ("all", "c01 c02 c03 g1 g2"),
        ] {
            assert_eq!(list(&nodes, names).as_deref(), Ok(expected), "{names}");
        }
        assert_eq!(list(&nodes, "c[01-04]"), Err("s:9: no NodeName or NodeSet line defines c04".to_owned()));
        assert_eq!(list(&nodes, "c[01"), Err("s:9: `c[01` has no closing bracket".to_owned()));
    }

    #[test]
    fn wrong_records_are_reported() {
        for (text, expected) in [
            ("NodeName=a\nNodeName=b[1-2],a", "s:2: node a is already in s:1"),
            ("NodeName=b[2-1]", "s:1: Invalid range: `2-1'"),
            ("NodeName=ALL", "s:1: `ALL` is not a list of nodes"),
            ("NodeName=\",\"", "s:1: `,` is not a list of nodes"),
            ("NodeName=a[1-40000]\nNodeName=b[1-40000]", "s:2: more than 65536 nodes"),
            ("NodeName=a\nNodeSet=x Nodes=b", "s:2: no NodeName or NodeSet line defines b"),
        ] {
            assert_eq!(nodes(text).err().as_deref(), Some(expected), "{text}");
        }
    }
}
