//! `hostler up`.

use std::path::Path;

use clap::Args;
use hostler_proto::api::NodeView;
use serde_json::json;

use crate::cluster::start::bring_up;
use crate::cluster::{Lock, Machine, Places, Sizes};
use crate::context::{Context, block_on};
use crate::exit;
use crate::failure::Outcome;
use crate::flags::Memory;
use crate::output::{self, views};

/// Start a cluster on this machine: a head and virtual nodes that share its resources
///
/// It goes on when the terminal is closed, and needs no root; its jobs run as whoever calls this, root included. Its state, jobs and
/// results are in $XDG_STATE_HOME/hostler (~/.local/state/hostler). Called again, it starts whatever has died and leaves the rest
/// alone. `hostler down` ends it.
#[derive(Debug, Args)]
pub(crate) struct Up {
    /// How many nodes; four by default
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    nodes: Option<u32>,

    /// CPUs for each node; by default the machine's are divided, and shared if there are more nodes. More than the machine has is for
    /// trying things: CPU ids beyond those that there are stand for none, and a task that gets only such ids is not bound to any
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    cpus: Option<u32>,

    /// Memory for each node; by default four fifths of what is free, at least half of all, are divided
    #[arg(long, value_name = "SIZE")]
    memory: Option<Memory>,

    /// What results may take on the head's disk before fetched ones are dropped; half of the disk by default. Remembered; holds from
    /// the next start of the head on
    #[arg(long, value_name = "SIZE")]
    results_cap: Option<Memory>,
}

impl Up {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let output = &context.output;
        let places = Places::from_environment()?;
        places.create()?;
        let _lock =
            Lock::take(&places.lock(), || output.say("another `hostler up` or `down` is at work; waiting for it"))?;
        let sizes = Sizes { nodes: self.nodes, cpus: self.cpus, memory_bytes: self.memory.map(|memory| memory.0) };
        let results_cap_bytes = self.results_cap.map(|size| size.0);
        let started = block_on(bring_up(&places, sizes, results_cap_bytes, |text| output.aside(text)))?;
        if output.is_json() {
            output.json(&json!({ "started": started.started, "info": started.info, "nodes": started.nodes }));
        } else if !output.is_quiet() {
            output.say(match started.started {
                0 => "the cluster is already running",
                _ => "the cluster is up",
            });
            output.data(&views::node_list(&started.nodes, output::width()));
        }
        let available = Machine::detect()?.cpus.len() as u32;
        if let Some(cpus) = self.cpus.filter(|cpus| *cpus > available && started.other_sizes.is_none()) {
            output.say(&format!(
                "note: this machine has {available} CPUs and each node says it has {cpus}; they share what there is, and tasks are not \
                 bound to CPUs of their own"
            ));
        }
        if let Some(text) = shortcomings(&started.nodes) {
            output.say(&format!("note: {text}"));
        }
        if let Some(text) = started.other_sizes {
            output.say(&format!("note: {text}"));
        }
        Ok(exit::OK)
    }
}

/// Which limits are mere advice on this machine, why, and what would change that.
fn shortcomings(nodes: &[NodeView]) -> Option<String> {
    let advisory = nodes.iter().map(|node| &node.advisory).find(|it| it.cpus.is_some() || it.memory.is_some())?;
    let (what, why) = match (&advisory.cpus, &advisory.memory) {
        (Some(_), Some(why)) => ("their CPUs and memory", why),
        (None, Some(why)) => ("their memory", why),
        (Some(why), None) => ("their CPUs", why),
        (None, None) => return None,
    };
    let mut text = format!("the kernel does not hold jobs to {what} here: {why}");
    if !nix::unistd::geteuid().is_root() && Path::new("/run/systemd/system").exists() {
        text.push_str("; it does after `hostler down` and `systemd-run --user --scope -p Delegate=yes hostler up`");
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use hostler_model::Advisory;

    use super::*;

    fn node(cpus: Option<&str>, memory: Option<&str>) -> NodeView {
        let text = |text: Option<&str>| text.map(str::to_owned);
        let view = json!({
            "name": "n1", "state": "up", "power": "on", "cpus": 1, "cpus_free": 1, "memory_bytes": 1, "memory_free_bytes": 1,
            "tasks": 0, "agent_pid": 1, "version": "0.1.0",
        });
        let mut node: NodeView = serde_json::from_value(view).expect("an older head says nothing of advice");
        node.advisory = Advisory { cpus: text(cpus), memory: text(memory), users: Some("any".to_owned()) };
        node
    }

    #[test]
    fn what_is_not_enforced_is_said_once() {
        assert_eq!(shortcomings(&[node(None, None)]), None);
        let said = shortcomings(&[node(None, None), node(Some("no cgroups"), Some("no cgroups"))]).expect("something");
        assert!(said.starts_with("the kernel does not hold jobs to their CPUs and memory here: no cgroups"), "{said}");
        let said = shortcomings(&[node(Some("no cpuset"), None)]).expect("something");
        assert!(said.contains("their CPUs here: no cpuset"), "{said}");
    }
}
