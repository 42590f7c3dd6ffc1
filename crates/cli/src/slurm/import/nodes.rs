//! Features, weights and drains of nodes.

use std::collections::BTreeSet;

use hostler_model::{Feature, NodeName};
use hostler_slurm::conf::{Kind, Nodes, Problem, Record, Value};
use hostler_slurm::hostlist::expand;

use super::wanted::{Sources, Wanted, WantedNode, parsed};

/// The longest reason that the head accepts, in characters.
const MAX_REASON: usize = 500;

/// Adds the features, weights and drains of nodes.
pub(super) fn add(wanted: &mut Wanted, sources: &Sources, nodes: &Nodes, problems: &mut Vec<Problem>) {
    let records = || sources.records.iter().filter(|record| record.kind == Kind::Nodes && !record.is_default());
    // Nodes without a weight have 1 in Slurm and 0 in Hostler, which are equal if all are.
    let has_weights = records().any(|record| record.get(&["Weight"]).is_some());
    for record in records() {
        match node(record, has_weights, &mut wanted.notes) {
            Ok(node) => wanted.nodes.extend(names(record, problems).into_iter().map(|name| (name, node.clone()))),
            Err(problem) => problems.push(problem),
        }
    }
    for record in sources.records.iter().filter(|record| record.kind == Kind::DownNodes) {
        let found = drain(record, true).and_then(|reason| Ok((reason, nodes.members(record.place(), record.name())?)));
        match found {
            Ok((reason, members)) => nodes.names(members).iter().for_each(|name| {
                let name = name.parse::<NodeName>().ok();
                let node = name.and_then(|name| wanted.nodes.get_mut(&name));
                node.into_iter().for_each(|node| node.drain = reason.clone().or(node.drain.take()));
            }),
            Err(problem) => problems.push(problem),
        }
    }
}

/// The names of a record's nodes.
fn names(record: &Record, problems: &mut Vec<Problem>) -> Vec<NodeName> {
    let (mut names, mut wrong) = (Vec::new(), None);
    for name in expand(record.name()).unwrap_or_default() {
        match name.parse() {
            Ok(name) => names.push(name),
            Err(error) => wrong = Some(Problem::new(record.place(), format!("{error}"))),
        }
    }
    problems.extend(wrong);
    names
}

fn node(record: &Record, has_weights: bool, notes: &mut Vec<String>) -> Result<WantedNode, Problem> {
    let weight = parsed(record, &["Weight"], weight)?.unwrap_or(1);
    Ok(WantedNode {
        features: record.get(&["Feature", "Features"]).map(|value| features(value, notes)).unwrap_or_default(),
        weight: has_weights.then_some(weight),
        drain: drain(record, false)?,
    })
}

fn features(value: &Value, notes: &mut Vec<String>) -> BTreeSet<Feature> {
    let words = || value.text.split(',').map(str::trim).filter(|word| !word.is_empty());
    let bad: Vec<&str> = words().filter(|word| word.parse::<Feature>().is_err()).collect();
    if !bad.is_empty() {
        let limits = "a feature has up to 63 letters, digits, `-`, `_`, `.`, `:` and `+`";
        notes.push(format!("{}: not imported: {}; {limits}", value.place, bad.join(",")));
    }
    words().filter_map(|word| word.parse().ok()).collect()
}

fn weight(value: &Value) -> Result<u32, String> {
    value.text.parse().map_err(|_| format!("{value} is not a number from 0 to {}", u32::MAX))
}

/// Whether a state keeps jobs away from nodes.
fn is_out_of_service(value: &Value) -> Result<bool, String> {
    match value.text.to_ascii_uppercase().as_str() {
        "DOWN" | "DRAIN" | "FAIL" | "FAILING" => Ok(true),
        "UNKNOWN" | "IDLE" | "UP" | "RESUME" | "UNDRAIN" | "FUTURE" | "CLOUD" | "EXTERNAL" => Ok(false),
        _ => Err(format!("{value} is not a state that slurm.conf may give to a node")),
    }
}

/// The reason why the nodes of a record get no work; `None` if they get work. `is_down` is what holds without a state.
fn drain(record: &Record, is_down: bool) -> Result<Option<String>, Problem> {
    let is_out = parsed(record, &["State"], is_out_of_service)?.unwrap_or(is_down);
    let reason = record.get(&["Reason"]).map(|value| value.text.chars().take(MAX_REASON).collect());
    let state = || record.get(&["State"]).map_or("DOWN", |value| &value.text).to_ascii_uppercase();
    Ok(is_out.then(|| reason.unwrap_or_else(|| format!("{} in slurm.conf", state()))))
}
