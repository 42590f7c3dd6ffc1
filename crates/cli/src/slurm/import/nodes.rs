//! Features, weights and drains of nodes.

use std::collections::BTreeSet;

use hostler_model::{Feature, NodeName};
use hostler_slurm::conf::{Kind, Nodes, Problem, Record, Value};
use hostler_slurm::hostlist::expand;

use super::beside::of_resource;
use super::verdict::{Judgement, Verdict};
use super::wanted::{Sources, Wanted, WantedNode};

const FEATURES: [&str; 2] = ["Feature", "Features"];

/// The longest reason that the head accepts, in characters.
const MAX_REASON: usize = 500;

const DRAINED: &str = "drained: no jobs start there, until `hostler node resume`";

const UP: &str = "nodes are up while their agent is connected";

/// Judges a pair of a `NodeName` or `DownNodes` record.
pub(super) fn judge(value: &Value, record: &Record) -> Result<Judgement, String> {
    Ok(match value.key.to_ascii_lowercase().as_str() {
        "nodename" if record.is_default() => Judgement::taken("defaults of the NodeName lines that follow"),
        "nodename" => Judgement::taken("each node joins by itself; see `hostler node invite` and `hostler agent join`"),
        "downnodes" if drain(record, "DOWN").is_none() => Judgement::unneeded(UP),
        "downnodes" => Judgement::taken(DRAINED),
        "nodehostname" => Judgement::differs(
            "the node's name is that of the machine; for another one, use `hostler node invite NAME`",
        ),
        "feature" | "features" => of_features(value),
        "weight" => Judgement::taken(format!("weight {}", weight(value)?)),
        "state" => match is_out_of_service(value)? {
            true => Judgement::taken(DRAINED),
            false => Judgement::unneeded(UP),
        },
        "reason" => Judgement::taken("the reason of the drain"),
        "gres" => of_gres(&value.text),
        other => unreachable!("the table judges {other}"),
    })
}

/// Judges a pair of a `NodeSet` record.
pub(super) fn judge_set(value: &Value) -> Judgement {
    match value.key.to_ascii_lowercase().as_str() {
        "feature" | "features" => {
            Judgement::differs("the nodes in slurm.conf that have the feature; nodes that get it later are not added")
        }
        _ => Judgement::taken("the nodes replace the name in partitions"),
    }
}

fn words(value: &Value) -> impl Iterator<Item = &str> {
    value.text.split(',').map(str::trim).filter(|word| !word.is_empty())
}

fn features(value: &Value) -> BTreeSet<Feature> {
    words(value).filter_map(|word| word.parse().ok()).collect()
}

fn of_features(value: &Value) -> Judgement {
    let good: Vec<String> = features(value).iter().map(ToString::to_string).collect();
    let bad: Vec<&str> = words(value).filter(|word| word.parse::<Feature>().is_err()).collect();
    let names = good.join(",");
    let limits = "a feature has up to 63 letters, digits, `-`, `_`, `.`, `:` and `+`";
    match (good.is_empty(), bad.is_empty()) {
        (true, true) => Judgement::unneeded("no features"),
        (false, true) => Judgement::taken(format!("features {names}")),
        (false, false) => Judgement::differs(format!("features {names}; not {}: {limits}", bad.join(","))),
        (true, false) => Judgement::missing(limits),
    }
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

/// Judges resources such as `gpu:a100:4,licence:2`.
fn of_gres(text: &str) -> Judgement {
    let resources = text.split(',').map(str::trim).filter(|resource| !resource.is_empty());
    let judged = resources.map(|resource| {
        let parts: Vec<&str> = resource.split(['(', '=']).next().unwrap_or_default().split(':').collect();
        let is_count = |part: &str| part.starts_with(|c: char| c.is_ascii_digit());
        match parts.as_slice() {
            ["gpu", model, ..] if !is_count(model) => Judgement::differs(format!(
                "agents find GPUs, but jobs cannot ask for a model. Use a feature such as {model}, and --constraint"
            )),
            [name, ..] => of_resource(name),
            [] => of_resource(resource),
        }
    });
    let judged: Vec<Judgement> = judged.collect();
    let worst =
        [Verdict::Missing, Verdict::Differs].into_iter().find(|worst| judged.iter().any(|it| it.verdict == *worst));
    let verdict = worst.unwrap_or(Verdict::Unneeded);
    let mut notes: Vec<String> = judged.into_iter().filter(|it| it.verdict == verdict).map(|it| it.note).collect();
    notes.dedup();
    Judgement { verdict, note: if notes.is_empty() { "no resources".to_owned() } else { notes.join("; ") } }
}

/// Adds the features, weights and drains of nodes. All pairs must have been judged.
pub(super) fn add(wanted: &mut Wanted, sources: &Sources, nodes: &Nodes, problems: &mut Vec<Problem>) {
    let records = || sources.records.iter().filter(|record| record.kind == Kind::Nodes && !record.is_default());
    // Nodes without a weight have 1 in Slurm and 0 in Hostler, which are equal if all are.
    let has_weights = records().any(|record| record.get(&["Weight"]).is_some());
    for record in records() {
        let weight = record.get(&["Weight"]).and_then(|value| weight(value).ok()).unwrap_or(1);
        let node = WantedNode {
            features: record.get(&FEATURES).map(features).unwrap_or_default(),
            weight: has_weights.then_some(weight),
            drain: drain(record, "UNKNOWN"),
        };
        for name in expand(record.name()).unwrap_or_default() {
            match name.parse::<NodeName>() {
                Ok(name) => drop(wanted.nodes.insert(name, node.clone())),
                Err(error) => problems.push(Problem::new(record.place(), error.to_string())),
            }
        }
    }
    for record in sources.records.iter().filter(|record| record.kind == Kind::DownNodes) {
        let Some(reason) = drain(record, "DOWN") else { continue };
        match nodes.members(record.place(), record.name()) {
            Ok(members) => nodes.names(members).iter().for_each(|name| {
                let name = name.parse::<NodeName>().ok();
                let node = name.and_then(|name| wanted.nodes.get_mut(&name));
                node.into_iter().for_each(|node| node.drain = Some(reason.clone()));
            }),
            Err(problem) => problems.push(problem),
        }
    }
}

/// The reason why the nodes of a record get no work; `None` if they get work.
fn drain(record: &Record, usual: &str) -> Option<String> {
    let state = record.get(&["State"]).map_or(usual, |value| &value.text).to_ascii_uppercase();
    let is_out = ["DOWN", "DRAIN", "FAIL", "FAILING"].contains(&state.as_str());
    let reason = record.get(&["Reason"]).map(|value| value.text.chars().take(MAX_REASON).collect());
    is_out.then(|| reason.unwrap_or_else(|| format!("{state} in slurm.conf")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generic_resources_are_judged() {
        for (text, verdict, part) in [
            ("gpu:2", Verdict::Unneeded, "agents find"),
            ("gpu", Verdict::Unneeded, "agents find"),
            ("gpu:a100:2(S:0-1)", Verdict::Differs, "feature such as a100"),
            ("gpu:2,shard:8", Verdict::Missing, "MIG"),
            ("gpu:a100:2,matlab:5", Verdict::Missing, "`matlab = N`"),
        ] {
            let judgement = of_gres(text);
            assert_eq!(judgement.verdict, verdict, "{text}");
            assert!(judgement.note.contains(part), "{text}: {}", judgement.note);
        }
    }
}
