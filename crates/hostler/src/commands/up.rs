//! `hostler up`: starts the embedded cluster.

use std::path::{Path, PathBuf};

use clap::Args;
use hostler_cli::cluster::{Machine, Places, Sizes};
use hostler_cli::config;
use hostler_cli::context::{Context, block_on};
use hostler_cli::exit;
use hostler_cli::failure::{During, Outcome};
use hostler_cli::flags::{GpuCap, Memory, counted};
use hostler_cli::output::{self, node_views};
use hostler_cli::user_unit;
use hostler_model::{Advisory, Counted, plural};
use hostler_proto::api::NodeView;
use serde_json::json;

use crate::embedded::Lock;
use crate::embedded::start::bring_up;

/// Start a cluster of virtual nodes on this machine
///
/// The command needs no root rights, and the cluster keeps running when the terminal closes. Where systemd ends it at a
/// logout, the command says how to prevent that. Jobs run as the calling user. State, jobs and results are stored in $XDG_STATE_HOME/hostler [default: ~/.local/state/hostler]. To restart
/// parts that have died, run `hostler up` again; the command fails if the running cluster has other sizes. `hostler
/// down` stops the cluster.
#[derive(Debug, Args)]
pub(crate) struct Up {
    /// Number of nodes [default: 4, at most one per CPU]
    ///
    /// Without options for nodes, CPUs, memory, GPUs and resources, the cluster gets the sizes of its previous start.
    #[arg(long, value_name = "N", value_parser = hostler_cli::flags::number::<1, 1000>)]
    nodes: Option<u32>,

    /// CPUs per node [default: an equal share of the machine's CPUs]
    ///
    /// With more nodes than CPUs, nodes share CPUs. For tests, a node may have more CPUs than the machine. The additional
    /// CPU ids do not exist; a task that gets only these ids is not bound to CPUs.
    #[arg(long, value_name = "N", value_parser = hostler_cli::flags::number::<1, 4096>)]
    cpus: Option<u32>,

    /// Memory per node, e.g. 4G
    ///
    /// [default: an equal share of 80 % of the free memory or of half of all memory, whichever is more]
    #[arg(long, value_name = "SIZE")]
    memory: Option<Memory>,

    /// GPUs of the cluster: `all`, `none`, or a list such as 0,2 [default: all]
    ///
    /// The list contains indices or unique ids of GPUs. Each GPU belongs to one node.
    #[arg(long, value_name = "GPUS")]
    gpus: Option<GpuCap>,

    /// Counted resource of each node, e.g. license=2; repeatable
    ///
    /// Jobs reserve the resource with `hostler submit --resource`.
    #[arg(long, value_name = "NAME=COUNT")]
    resource: Vec<Counted>,

    /// For tests: use GPUs and topology that `hostler node discover --capture` wrote to this file
    #[arg(long, value_name = "FILE", hide = true)]
    machine_from: Option<PathBuf>,

    /// Switch idle nodes off, and on again when jobs need them
    ///
    /// The head treats the virtual nodes like real machines. After a submission, `hostler nodes` shows the nodes that
    /// the head switches on and off.
    #[arg(long)]
    elastic: bool,

    /// Maximum size of stored results [default: half of the disk]
    ///
    /// Above this size, the head deletes results that were downloaded. The head stores the value and applies it from
    /// its next start.
    #[arg(long, value_name = "SIZE")]
    results_cap: Option<Memory>,

    /// Write a systemd user unit that starts the cluster at boot, and start nothing
    ///
    /// The unit is $XDG_CONFIG_HOME/systemd/user/hostler.service [default: ~/.config]. It starts the cluster with the sizes
    /// of its previous start.
    #[arg(long, conflicts_with_all = ["nodes", "cpus", "memory", "gpus", "resource", "machine_from", "elastic", "results_cap"])]
    unit: bool,
}

impl Up {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let output = &context.output;
        if self.unit {
            return user_unit::write(output);
        }
        let places = Places::from_environment()?;
        hostler_head::release_if_full(&places.head());
        places.create()?;
        let _lock = Lock::take(&places.lock(), || output.say("waiting for another `hostler up` or `hostler down`"))?;
        let sizes = Sizes {
            nodes: self.nodes,
            cpus: self.cpus,
            memory_bytes: self.memory.map(|memory| memory.0),
            gpus: self.gpus,
            counted: counted(&self.resource)?,
            // Agents start in another directory, so they need the absolute path.
            machine_from: self
                .machine_from
                .map(std::path::absolute)
                .transpose()
                .during(|| "cannot resolve the path".to_owned())?,
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
        let count = Machine::detect()?.cpus.len();
        let available = plural(count, "CPU");
        if let Some(cpus) = self.cpus.filter(|cpus| *cpus as usize > count) {
            output.say(&format!("note: each node has {cpus} CPUs, but this machine has {available}; tasks share them"));
        } else if let Some(note) = node_views::shared_cpus(&started.nodes) {
            output.say(&format!("note: this machine has {available}; {note}"));
        }
        for NodeView { name, why, .. } in started.nodes.iter().filter(|node| node.reason.is_some()) {
            let why = why.as_deref().unwrap_or("it is drained");
            output.say(&format!("note: {name} gets no jobs: {why}; `hostler node resume {name}` ends that"));
        }
        if self.elastic {
            output.say("nodes are switched off after 10 seconds without a task, and on again when a job needs them");
        }
        if let Some(text) = shortcomings(&started.nodes) {
            output.say(&format!("note: {text}"));
        }
        if started.started > 0 {
            output.say(
                "next: `hostler run -- hostname` runs a command, `hostler submit DIR main.py` a project folder, and `hostler \
                 dashboard` opens the web site",
            );
        }
        // The cluster has started: damaged settings of another cluster only cost this note.
        if started.started > 0
            && let Ok(Some(text)) = config::other_cluster_note(context.head.as_deref(), &places)
        {
            output.say(&format!("note: {text}"));
        }
        if let Some(text) = user_unit::logout_note(&places).filter(|_| started.started > 0) {
            output.say(&format!("note: {text}"));
        }
        Ok(exit::OK)
    }
}

/// Returns the limits that the kernel does not enforce on this machine, why it does not, and how to change that.
fn shortcomings(nodes: &[NodeView]) -> Option<String> {
    let (what, why, advisory) = nodes.iter().find_map(|node| {
        let advisory = &node.advisory;
        missing(advisory).map(|(what, why)| (what, why, advisory))
    })?;
    let mut text = format!("the kernel does not limit jobs to {what} here: {why}");
    if !nix::unistd::geteuid().is_root() && Path::new("/run/systemd/system").exists() {
        text.push_str(match advisory.memory {
            Some(_) => {
                "; to change that, run `hostler down` and `systemd-run --user --scope -p Delegate=yes hostler up`"
            }
            // systemd delegates the controllers for memory and processes by default, and other controllers only if
            // configured.
            None => "; to change that, root must set `Delegate=cpu cpuset io memory pids` in the unit `user@.service`",
        });
    }
    Some(text)
}

/// The limits that the kernel does not enforce on a node, and why.
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
        let mut node: NodeView = serde_json::from_value(view).expect("an older head sends no advisory limits");
        node.advisory =
            Advisory { cpus: text(cpus), memory: text(memory), users: Some("any".to_owned()), ..Advisory::default() };
        node
    }

    #[test]
    fn unenforced_limits_give_one_note() {
        assert_eq!(shortcomings(&[node(None, None)]), None);
        let said = shortcomings(&[node(None, None), node(Some("no cgroups"), Some("no cgroups"))]).expect("something");
        assert!(said.starts_with("the kernel does not limit jobs to their CPUs and memory here: no cgroups"), "{said}");
        let said = shortcomings(&[node(Some("no cpuset"), None)]).expect("something");
        assert!(said.contains("their CPUs here: no cpuset"), "{said}");
    }
}
