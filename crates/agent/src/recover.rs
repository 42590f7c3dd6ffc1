//! What a new agent makes of the runs that an earlier one left: some go on, some have ended, some are lost.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use hostler_core::agent::{Event, Found, RunLaunch};
use hostler_model::{BootId, RunId};
use hostler_shepherd::{LostReason, RunningRecord};

use crate::calls;
use crate::directory::{FoundRun, RunDirectory};
use crate::engine::{Control, Handle, Node, control};
use crate::supervise::{self, Kept, RunState, Watched};

/// Takes up every run found on the disk; returns how those that go on are ended.
pub(crate) async fn recover(node: &Arc<Node>, handle: &Handle) -> anyhow::Result<HashMap<RunId, Control>> {
    let mut controls = HashMap::new();
    let mut going_on = HashSet::new();
    let mut leaves = calls::live_leaves(node);
    for FoundRun { launch, boot, directory } in node.runs.found()? {
        let run = launch.run;
        let (found, shepherd) = look(node, &launch, &boot, &directory).await;
        tracing::info!(%run, ?found, "found a run");
        handle.happened(Event::Recovered { launch: Arc::clone(&launch), found });
        if let Some(shepherd) = shepherd {
            going_on.insert(run);
            leaves.extend(leaf_of(&directory));
            let (control, controlled) = control();
            controls.insert(run, control);
            // Where it sits is known only to itself, so it will not be kept for another task.
            let kept = Kept { shepherd, place: None };
            tokio::spawn(supervise::watch(Arc::clone(node), handle.clone(), launch, kept, controlled.orders));
        }
    }
    clean_up(node, &going_on, &leaves);
    Ok(controls)
}

/// Removes what belongs to no run that goes on: stray processes and environments held by nobody.
fn clean_up(node: &Node, going_on: &HashSet<RunId>, leaves: &HashSet<String>) {
    if let Ok(tree) = &node.cgroups {
        match tree.sweep(&node.leaf_prefix, leaves) {
            Ok(sweep) => tracing::debug!(?sweep, "swept what earlier runs left"),
            Err(error) => tracing::warn!(%error, "cannot look for processes that earlier runs left"),
        }
    }
    let pins = going_on.iter().map(ToString::to_string).collect();
    if let Err(error) = node.environments.retain_pins(&pins) {
        tracing::warn!(%error, "cannot release the environments of runs that are gone");
    }
}

/// How far a run had come, with its shepherd if it goes on.
async fn look(node: &Node, launch: &RunLaunch, boot: &BootId, directory: &RunDirectory) -> (Found, Option<Watched>) {
    if let Some(end) = directory.end() {
        return (Found::Over(end), None);
    }
    match supervise::determine_state(node, launch).await {
        RunState::Running(shepherd) => (Found::Shepherd, Some(shepherd)),
        RunState::Ended(exit) => (Found::Exit(exit), None),
        // A power cut may have taken the shepherd's line with it: only in the same boot is its absence a proof of no start.
        RunState::NeverBegan if *boot != node.boot => (Found::Exit(supervise::lost(node, LostReason::Rebooted)), None),
        // So it may begin now, in a directory made anew.
        RunState::NeverBegan => (Found::Launch, None),
    }
}

/// The name of the leaf that a run's processes are in: that of the run, or of an earlier task of the same shepherd.
fn leaf_of(directory: &RunDirectory) -> Option<String> {
    let record = RunningRecord::read(directory.path()).ok()??;
    Some(record.leaf?.file_name()?.to_string_lossy().into_owned())
}
