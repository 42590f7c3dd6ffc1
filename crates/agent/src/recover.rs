//! Recovery after a restart of the agent: runs of the earlier agent continue, have ended, or are lost.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use hostler_core::agent::{Event, Found, RunLaunch};
use hostler_model::{BootId, RunId};
use hostler_shepherd::journal::JournalContent;

use crate::directory::{FoundRun, RunDirectory};
use crate::exec;
use crate::handle::Handle;
use crate::node::Node;
use crate::shepherds::Watched;
use crate::supervise::{self, Control, RunState, control};

/// Recovers all runs found on the disk. Returns the controls of the runs that continue.
pub(crate) async fn recover(node: &Arc<Node>, handle: &Handle) -> anyhow::Result<HashMap<RunId, Control>> {
    let mut controls = HashMap::new();
    let mut going_on = HashSet::new();
    let mut leaves = exec::live_leaves(node);
    let runs = node.runs.found()?;
    // All at once: a shepherd that waits for a file system delays its own answer by seconds.
    let looks = runs.iter().map(|FoundRun { launch, boot, directory }| look(node, launch, boot, directory));
    let looks = futures_util::future::join_all(looks).await;
    for (FoundRun { launch, directory, .. }, (found, shepherd)) in runs.into_iter().zip(looks) {
        let run = launch.run();
        tracing::info!(%run, ?found, "found a run");
        handle.happened(Event::Recovered { launch: Arc::clone(&launch), found });
        if let Some(shepherd) = shepherd {
            going_on.insert(run);
            leaves.extend(leaf_of(&directory));
            let (control, controlled) = control();
            controls.insert(run, control);
            // The leaf of this shepherd is unknown, so it is not kept for later runs.
            let watch = supervise::watch(Arc::clone(node), handle.clone(), launch, shepherd, None, controlled.orders);
            tokio::spawn(watch);
        }
    }
    clean_up(node, &going_on, &leaves);
    Ok(controls)
}

/// Removes leftovers of ended runs: their remaining processes, and their pins on environments.
fn clean_up(node: &Node, going_on: &HashSet<RunId>, leaves: &HashSet<String>) {
    if let Ok(tree) = &node.cgroups {
        match tree.sweep(&node.leaf_prefix, leaves) {
            Ok(sweep) => tracing::debug!(?sweep, "removed leftovers of earlier runs"),
            Err(error) => tracing::warn!(%error, "cannot look for leftover processes of earlier runs"),
        }
    }
    let pins = going_on.iter().map(ToString::to_string).collect();
    if let Err(error) = node.environments.retain_pins(&pins) {
        tracing::warn!(%error, "cannot release the environments of ended runs");
    }
}

/// Determines the state of a run after a restart of the agent. Also returns the run's shepherd if the run continues.
async fn look(node: &Node, launch: &RunLaunch, boot: &BootId, directory: &RunDirectory) -> (Found, Option<Watched>) {
    if let Some(end) = directory.end() {
        return (Found::Over(end), None);
    }
    match supervise::determine_state(node, launch).await {
        Some(RunState::Running(shepherd)) => (Found::Shepherd, Some(shepherd)),
        Some(RunState::Ended(exit)) => (Found::Exit(exit), None),
        None => (Found::Launch { is_of_this_boot: *boot == node.facts.boot }, None),
    }
}

/// Returns the name of the leaf with a run's processes. A reused shepherd keeps the leaf of an earlier run.
fn leaf_of(directory: &RunDirectory) -> Option<String> {
    let record = JournalContent::read(directory.path()).ok()?.taken?;
    Some(record.leaf?.file_name()?.to_string_lossy().into_owned())
}
