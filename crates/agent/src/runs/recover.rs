//! Recovery after a restart of the agent: runs of the earlier agent continue, have ended, or are lost.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use hostler_core::agent::{Event, Found, RunLaunch};
use hostler_model::{BootId, RunId};
use hostler_shepherd::journal::JournalContent;

use crate::exec;
use crate::handle::Handle;
use crate::runs::control::{Control, control};
use crate::runs::directory::{FoundRun, RunDirectory};
use crate::runs::leaves::Leaves;
use crate::runs::shepherds::Watched;
use crate::runs::supervise::{RunState, Supervisor};

/// Time to determine the states of all runs together, and to end what surrounds those that have ended. A run for which that
/// takes longer continues as far as the head knows: the agent goes on without it. A little longer than a damaged journal takes.
const STATE_BOUND: Duration = Duration::from_secs(3);

/// What is known about a run that earlier agents started.
enum Look {
    Known(Found),
    /// It continues under this shepherd.
    Shepherd(Watched),
    /// Its shepherd has not answered yet, or what surrounds it has not ended yet.
    Unknown,
}

/// Recovers all runs found on the disk. Returns the controls of the runs that continue.
pub(crate) async fn recover(supervisor: &Arc<Supervisor>, handle: &Handle) -> anyhow::Result<HashMap<RunId, Control>> {
    let mut going_on = Vec::new();
    let mut leaves = exec::live_leaves(&supervisor.leaves);
    let runs = supervisor.runs.found()?;
    // All at once: a shepherd that waits for a file system, or is stopped, delays only its own answer.
    let looks = runs.iter().map(|FoundRun { launch, boot, directory }| look(supervisor, launch, boot, directory));
    let looks = futures_util::future::join_all(looks).await;
    for (FoundRun { launch, directory, .. }, look) in runs.into_iter().zip(looks) {
        let run = launch.run();
        let shepherd = match look {
            Look::Known(found) => {
                tracing::info!(%run, ?found, "found a run");
                handle.happened(Event::Recovered { launch, found });
                continue;
            }
            Look::Shepherd(shepherd) => {
                tracing::info!(%run, "found a run that continues");
                Some(shepherd)
            }
            Look::Unknown => {
                tracing::warn!(%run, "the state of a run is not known yet; the agent goes on without it, and retries");
                None
            }
        };
        handle.happened(Event::Recovered { launch: Arc::clone(&launch), found: Found::Shepherd });
        leaves.extend(leaf_of(&directory));
        going_on.push((launch, shepherd));
    }
    let launches: Vec<Arc<RunLaunch>> = going_on.iter().map(|(launch, _)| Arc::clone(launch)).collect();
    supervisor.ends.surroundings.recover(&launches).await;
    let mut controls = HashMap::new();
    for (launch, shepherd) in going_on {
        let (control, controlled) = control();
        controls.insert(launch.run(), control);
        let (supervisor, handle) = (Arc::clone(supervisor), handle.clone());
        tokio::spawn(async move {
            let exit = supervisor.watch_recovered(&launch, shepherd, controlled).await;
            handle.happened(Event::Exited { run: launch.run(), exit });
        });
    }
    end_processes(&supervisor.leaves, &leaves);
    Ok(controls)
}

/// Ends processes that are left of ended runs. `live`: the leaves of running runs.
fn end_processes(leaves: &Leaves, live: &HashSet<String>) {
    if let Ok(tree) = leaves.tree() {
        match tree.sweep(leaves.prefix(), live) {
            Ok(sweep) => tracing::debug!(?sweep, "removed leftovers of earlier runs"),
            Err(error) => tracing::warn!(%error, "cannot look for leftover processes of earlier runs"),
        }
    }
}

/// Determines the state of a run after a restart of the agent, and ends what surrounds it if it has ended, for at most
/// [`STATE_BOUND`].
async fn look(supervisor: &Supervisor, launch: &RunLaunch, boot: &BootId, directory: &RunDirectory) -> Look {
    if let Some(end) = directory.end() {
        return Look::Known(Found::Over(end));
    }
    let known = async {
        match supervisor.determine_state(launch).await {
            Some(RunState::Running(shepherd)) => Look::Shepherd(shepherd),
            Some(RunState::Ended(outcome)) => {
                Look::Known(Found::Exit(supervisor.ends.conclude(launch, &outcome).await))
            }
            None => Look::Known(Found::Launch { is_of_this_boot: *boot == supervisor.boot }),
        }
    };
    tokio::time::timeout(STATE_BOUND, known).await.unwrap_or(Look::Unknown)
}

/// Returns the name of the leaf with a run's processes. A reused shepherd keeps the leaf of an earlier run.
fn leaf_of(directory: &RunDirectory) -> Option<String> {
    let record = JournalContent::read(directory.path()).ok()?.taken?;
    Some(record.leaf?.file_name()?.to_string_lossy().into_owned())
}
