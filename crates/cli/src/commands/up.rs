//! `hostler up`.

use std::path::{Path, PathBuf};

use clap::Args;
use hostler_model::{Advisory, Counted};
use hostler_proto::api::NodeView;
use serde_json::json;

use crate::cluster::start::bring_up;
use crate::cluster::{Lock, Machine, Places, Sizes};
use crate::context::{Context, block_on};
use crate::exit;
use crate::failure::{During, Outcome};
use crate::flags::{GpuCap, Memory, counted};
use crate::output::{self, node_views};

/// Start a cluster on this machine: a head and virtual nodes that share its resources
///
/// It goes on when the terminal is closed, and needs no root; its jobs run as whoever calls this, root included. Its state, jobs and
/// results are in $XDG_STATE_HOME/hostler (~/.local/state/hostler). Called again, it starts whatever has died and leaves the rest
/// alone; with other sizes than those it runs with, it changes nothing and says so. `hostler down` ends it.
#[derive(Debug, Args)]
pub(crate) struct Up {
    /// How many nodes; four by default. Without any of the sizes, a cluster gets those that were named for it last
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    nodes: Option<u32>,

    /// CPUs for each node; by default the machine's are divided, and shared if there are more nodes. More than the machine has is for
    /// trying things: CPU ids beyond those that there are stand for none, and a task that gets only such ids is not bound to any
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    cpus: Option<u32>,

    /// Memory for each node; by default four fifths of what is free, at least half of all, are divided
    #[arg(long, value_name = "SIZE")]
    memory: Option<Memory>,

    /// The GPUs of all nodes together: `all`, `none`, or a list of indices and unique ids; by default all. Each is given to one node
    #[arg(long, value_name = "GPUS")]
    gpus: Option<GpuCap>,

    /// Something for each node to count, such as license=2, for jobs to hold with `--resource`; may be repeated
    #[arg(long, value_name = "NAME=COUNT")]
    resource: Vec<Counted>,

    /// For tests: take GPUs and topology from the machine that `hostler node discover --capture` has captured in this file
    #[arg(long, value_name = "FILE", hide = true)]
    machine_from: Option<PathBuf>,

    /// Switch the nodes off while nothing is to be done and on when the queue needs them, as the head does with real machines: watch it with
    /// `hostler nodes` while you submit something
    #[arg(long)]
    elastic: bool,

    /// What results may take on the head's disk before fetched ones are dropped; half of the disk by default. Remembered; holds from
    /// the next start of the head on
    #[arg(long, value_name = "SIZE")]
    results_cap: Option<Memory>,
}

impl Up {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let output = &context.output;
        let places = Places::from_environment()?;
        hostler_head::release_if_full(&places.head());
        places.create()?;
        let _lock =
            Lock::take(&places.lock(), || output.say("another `hostler up` or `down` is at work; waiting for it"))?;
        let sizes = Sizes {
            nodes: self.nodes,
            cpus: self.cpus,
            memory_bytes: self.memory.map(|memory| memory.0),
            gpus: self.gpus,
            counted: counted(&self.resource)?,
            // Agents start elsewhere.
            machine_from: self
                .machine_from
                .map(std::path::absolute)
                .transpose()
                .during(|| "cannot tell where this is".to_owned())?,
        };
        let results_cap_bytes = self.results_cap.map(|size| size.0);
        let started = block_on(bring_up(&places, sizes, self.elastic, results_cap_bytes, |text| output.aside(text)))?;
        if output.is_json() {
            output.json(&json!({ "started": started.started, "info": started.info, "nodes": started.nodes }));
        } else if !output.is_quiet() {
            output.say(match started.started {
                0 => "the cluster is already running",
                _ => "the cluster is up",
            });
            output.data(&node_views::node_list(&started.nodes, output::width()));
        }
        let available = Machine::detect()?.cpus.len() as u32;
        if let Some(cpus) = self.cpus.filter(|cpus| *cpus > available) {
            output.say(&format!(
                "note: this machine has {available} CPUs and each node says it has {cpus}; they share what there is, and tasks are not \
                 bound to CPUs of their own"
            ));
        }
        if self.elastic {
            output.say(
                "the nodes go off when they have done nothing for 10 seconds, and come back when a job needs them",
            );
        }
        if let Some(text) = shortcomings(&started.nodes) {
            output.say(&format!("note: {text}"));
        }
        Ok(exit::OK)
    }
}

/// Which limits are mere advice on this machine, why, and what would change that.
fn shortcomings(nodes: &[NodeView]) -> Option<String> {
    let (what, why, advisory) = nodes.iter().find_map(|node| {
        let advisory = &node.advisory;
        missing(advisory).map(|(what, why)| (what, why, advisory))
    })?;
    let mut text = format!("the kernel does not hold jobs to {what} here: {why}");
    if !nix::unistd::geteuid().is_root() && Path::new("/run/systemd/system").exists() {
        text.push_str(match advisory.memory {
            Some(_) => "; it does after `hostler down` and `systemd-run --user --scope -p Delegate=yes hostler up`",
            // That has been done, and systemd lets users have no more than memory and processes unless it is told to.
            None => "; it does where the unit `user@.service` has `Delegate=cpu cpuset io memory pids`, which is for root to say",
        });
    }
    Some(text)
}

/// What of a node is mere advice, and why.
fn missing(Advisory { cpus, memory, gpus, .. }: &Advisory) -> Option<(&'static str, &String)> {
    match (cpus, memory, gpus) {
        (Some(_), Some(why), Some(_)) => Some(("their CPUs, memory and GPUs", why)),
        (Some(_), Some(why), None) => Some(("their CPUs and memory", why)),
        (None, Some(why), _) => Some(("their memory", why)),
        (Some(why), None, _) => Some(("their CPUs", why)),
        (None, None, Some(why)) => Some(("their GPUs", why)),
        (None, None, None) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(cpus: Option<&str>, memory: Option<&str>) -> NodeView {
        let text = |text: Option<&str>| text.map(str::to_owned);
        let view = json!({
            "name": "n1", "state": "up", "power": "on", "cpus": 1, "cpus_free": 1, "memory_bytes": 1, "memory_free_bytes": 1,
            "tasks": 0, "agent_pid": 1, "version": "0.1.0",
        });
        let mut node: NodeView = serde_json::from_value(view).expect("an older head says nothing of advice");
        node.advisory =
            Advisory { cpus: text(cpus), memory: text(memory), users: Some("any".to_owned()), ..Advisory::default() };
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
