//! Recovery after a restart of the agent: runs of the earlier agent continue, have ended, or are lost.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use hostler_core::agent::{Event, Found, RunLaunch};
use hostler_model::{BootId, RunId};
use hostler_shepherd::journal::JournalContent;
use tokio::task::spawn_blocking;

use crate::directory::{FoundRun, RunDirectory};
use crate::handle::Handle;
use crate::node::Node;
use crate::shepherds::Watched;
use crate::supervise::{self, Control, RunState, control};
use crate::{engines, exec, quiet};

/// Time to determine the states of all runs together. A run whose shepherd lives but does not answer by then continues
/// as far as the head knows: the agent goes on without it. A little longer than a damaged journal takes.
const STATE_BOUND: Duration = Duration::from_secs(3);

/// What is known about a run that earlier agents started.
enum Look {
    Known(Found),
    /// It continues under this shepherd.
    Shepherd(Watched),
    /// Its shepherd has not answered yet.
    Unknown,
}

/// Recovers all runs found on the disk. Returns the controls of the runs that continue.
pub(crate) async fn recover(node: &Arc<Node>, handle: &Handle) -> anyhow::Result<HashMap<RunId, Control>> {
    let mut controls = HashMap::new();
    let mut going_on = HashSet::new();
    let mut leaves = exec::live_leaves(node);
    let runs = node.runs.found()?;
    // All at once: a shepherd that waits for a file system, or is stopped, delays only its own answer.
    let looks = runs.iter().map(|FoundRun { launch, boot, directory }| look(node, launch, boot, directory));
    let looks = futures_util::future::join_all(looks).await;
    for (FoundRun { launch, directory, .. }, look) in runs.into_iter().zip(looks) {
        let run = launch.run();
        let shepherd = match look {
            Look::Known(found) => {
                tracing::info!(%run, ?found, "found a run");
                if let Found::Exit(exit) = &found {
                    // In the background: how long it takes is up to the run's user.
                    let (node, launch, why) = (Arc::clone(node), Arc::clone(&launch), exit.why);
                    tokio::spawn(async move { engines::end(&node, &launch, why).await });
                }
                handle.happened(Event::Recovered { launch, found });
                continue;
            }
            Look::Shepherd(shepherd) => {
                tracing::info!(%run, "found a run that continues");
                Some(shepherd)
            }
            Look::Unknown => {
                tracing::warn!(%run, "the shepherd of a run does not respond; the agent goes on without it, and retries");
                None
            }
        };
        handle.happened(Event::Recovered { launch: Arc::clone(&launch), found: Found::Shepherd });
        going_on.insert(run);
        leaves.extend(leaf_of(&directory));
        let (control, controlled) = control();
        controls.insert(run, control);
        tokio::spawn(supervise::watch_recovered(Arc::clone(node), handle.clone(), launch, shepherd, controlled));
    }
    let (of_node, runs) = (Arc::clone(&node.quiet), going_on.clone());
    if spawn_blocking(move || of_node.recover(&runs)).await? {
        tokio::spawn(quiet::retry(Arc::clone(&node.quiet)));
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

/// Determines the state of a run after a restart of the agent, for at most [`STATE_BOUND`].
async fn look(node: &Node, launch: &RunLaunch, boot: &BootId, directory: &RunDirectory) -> Look {
    if let Some(end) = directory.end() {
        return Look::Known(Found::Over(end));
    }
    match tokio::time::timeout(STATE_BOUND, supervise::determine_state(node, launch)).await {
        Ok(Some(RunState::Running(shepherd))) => Look::Shepherd(shepherd),
        Ok(Some(RunState::Ended(exit))) => Look::Known(Found::Exit(exit)),
        Ok(None) => Look::Known(Found::Launch { is_of_this_boot: *boot == node.facts.boot }),
        Err(_) => Look::Unknown,
    }
}

/// Returns the name of the leaf with a run's processes. A reused shepherd keeps the leaf of an earlier run.
fn leaf_of(directory: &RunDirectory) -> Option<String> {
    let record = JournalContent::read(directory.path()).ok()?.taken?;
    Some(record.leaf?.file_name()?.to_string_lossy().into_owned())
}
