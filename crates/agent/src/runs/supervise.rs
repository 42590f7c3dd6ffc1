//! Supervision: starts a shepherd for each run, and follows the run to its end.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use hostler_core::agent::{Exit, RunLaunch};
use hostler_model::BootId;
use hostler_shepherd::cgroup::LeafSpec;
use hostler_shepherd::journal::JournalContent;
use hostler_shepherd::{Adopted, Event, ExitRecord, Launch, LaunchError, Launcher, Lost, LostReason, adopt};

use crate::measure::usage::run::RunPlace;
use crate::runs::control::{Controlled, Order};
use crate::runs::directory::Runs;
use crate::runs::ending::{Ending, or_end};
use crate::runs::exit::RunEnds;
use crate::runs::leaves::Leaves;
use crate::runs::outcome::RunOutcome;
use crate::runs::shepherds::{self, IdleShepherds, Watched};

/// Delay between attempts to determine the state of a run.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Starts shepherds, and follows runs to their ends.
pub(crate) struct Supervisor {
    pub(crate) boot: BootId,
    pub(crate) launcher: Arc<Launcher>,
    pub(crate) leaves: Arc<Leaves>,
    pub(crate) runs: Arc<Runs>,
    pub(crate) idle: IdleShepherds,
    pub(crate) ends: RunEnds,
}

/// State of a run that has begun.
pub(crate) enum RunState {
    /// It runs under this shepherd.
    Running(Watched),
    /// It has ended, or its state is unknown: it must not begin again.
    Ended(RunOutcome),
}

impl From<Option<Self>> for RunState {
    /// Without a state, the run never began.
    fn from(state: Option<Self>) -> Self {
        state.unwrap_or(Self::Ended(RunOutcome::Lost(LostReason::NeverStarted)))
    }
}

impl Supervisor {
    /// Starts a run with an idle shepherd or a new one. Ends the run if it should end before its program has started.
    ///
    /// # Errors
    /// If no shepherd took the run; nothing is running then, and nothing will start later.
    pub(crate) async fn launch(
        &self,
        launch: &RunLaunch,
        orders: &mut Launch,
        ending: &Ending,
    ) -> anyhow::Result<RunState> {
        let spent = orders.options.time_spent;
        ending.begin(spent, orders.options.time_limit.map(|limit| limit.saturating_add(spent)));
        match self.or_end(launch, ending, self.begin(launch, orders)).await {
            Some(state) => state,
            None => self.determine_state(launch).await.context("the run was ended before its start"),
        }
    }

    async fn begin(&self, launch: &RunLaunch, orders: &mut Launch) -> anyhow::Result<RunState> {
        // A measured run has a new cgroup to itself, whose counters begin at zero.
        if orders.options.linger.is_some()
            && !launch.spec().surroundings.exclusive
            && let Some((mut shepherd, leaf)) = self.idle.take(&launch.placement.resources.cpus, owner_of(orders))
        {
            let own_leaf = std::mem::replace(&mut orders.options.leaf, leaf);
            if shepherd.take(orders).await {
                return Ok(RunState::Running(shepherd));
            }
            // The shepherd has probably exited. The run must neither begin late nor twice.
            if let Some(state) = self.determine_state(launch).await {
                return Ok(state);
            }
            orders.options.identity = self.runs.of(launch.run()).begin(launch, &self.boot)?;
            orders.options.leaf = own_leaf;
        }
        match shepherds::start(&self.launcher, orders, &[]).await {
            Ok(shepherd) => Ok(RunState::Running(shepherd)),
            Err(LaunchError::NoAnswer(error)) => match self.determine_state(launch).await {
                Some(state) => Ok(state),
                None => Err(error).context("no answer from its shepherd"),
            },
            Err(error) => Err(error.into()),
        }
    }

    /// Waits for `done`; `None` if the run was ended meanwhile, because its program does not start.
    async fn or_end<T>(&self, launch: &RunLaunch, ending: &Ending, done: impl Future<Output = T>) -> Option<T> {
        or_end(&self.leaves, &self.runs.of(launch.run()), ending, done).await
    }

    /// Watches a run until all its processes are gone, and returns the report of its end. `place` is the shepherd's leaf and
    /// the user of the run; unknown for adopted shepherds.
    pub(crate) async fn watch(
        &self,
        launch: &RunLaunch,
        mut shepherd: Watched,
        place: Option<(Option<LeafSpec>, Option<u32>)>,
        mut controlled: Controlled,
    ) -> Exit {
        self.ends.surroundings.attach(launch, &self.place_of(launch, &shepherd, place.as_ref()));
        let mut new_limit = None;
        let (outcome, reusable) = loop {
            let (has_started, ending) = (shepherd.has_started(), Arc::clone(&controlled.ending));
            let followed = follow(&mut shepherd, &mut controlled, &mut new_limit);
            let record =
                if has_started { followed.await } else { self.or_end(launch, &ending, followed).await.flatten() };
            if let Some(record) = record {
                break (RunOutcome::Recorded(record), Some((shepherd, Instant::now())));
            }
            // The connection closed without a report: check the disk and the kernel.
            match self.determine_state(launch).await.into() {
                RunState::Running(again) => {
                    // A shepherd of an older build closes the connection when it gets a new limit.
                    if !again.is_connected() || new_limit.is_some() {
                        tokio::time::sleep(POLL_INTERVAL).await;
                    }
                    shepherd = again;
                }
                RunState::Ended(outcome) => break (outcome, None),
            }
        };
        let exit = self.ends.conclude(launch, &outcome).await;
        // Only now may another run use the leaf: its counters are part of the certificate.
        if let (Some((shepherd, since)), Some((leaf, owner))) = (reusable, place)
            && launch.spec().pty.is_none()
            && leaf.is_some() == self.leaves.tree().is_ok()
        {
            self.idle.put(shepherd, leaf, launch.placement.resources.cpus.clone(), owner, since);
        }
        exit
    }

    /// Watches a run that an earlier agent started. Without `shepherd`, first determines its state, however long that takes:
    /// the shepherd lives, so the run must not be given up. Orders wait meanwhile, except that the run ends if its program
    /// has not started.
    pub(crate) async fn watch_recovered(
        &self,
        launch: &RunLaunch,
        shepherd: Option<Watched>,
        controlled: Controlled,
    ) -> Exit {
        let limit = launch.spec().time_limit_ms.map(Duration::from_millis);
        controlled.ending.begin(self.time_since_claim(launch), limit);
        let state = match shepherd {
            Some(shepherd) => RunState::Running(shepherd),
            None => match self.or_end(launch, &controlled.ending, self.determine_state(launch)).await {
                Some(state) => state.into(),
                None => self.determine_state(launch).await.into(),
            },
        };
        match state {
            // The leaf of this shepherd is unknown, so it is not kept for later runs.
            RunState::Running(shepherd) => self.watch(launch, shepherd, None, controlled).await,
            RunState::Ended(outcome) => self.ends.conclude(launch, &outcome).await,
        }
    }

    /// Time since a shepherd claimed the run; zero if that is not known.
    fn time_since_claim(&self, launch: &RunLaunch) -> Duration {
        let content = JournalContent::read(self.runs.of(launch.run()).path()).unwrap_or_default();
        content.taken.map_or(Duration::ZERO, |record| record.taken.elapsed())
    }

    /// Where the processes of a run are.
    fn place_of(
        &self,
        launch: &RunLaunch,
        shepherd: &Watched,
        place: Option<&(Option<LeafSpec>, Option<u32>)>,
    ) -> RunPlace {
        let adopted = || {
            let path = JournalContent::read(self.runs.of(launch.run()).path()).ok()?.taken?.leaf?;
            self.leaves.leaf_at(&path)
        };
        RunPlace {
            leaf: place.map_or_else(adopted, |(leaf, _)| leaf.clone()),
            shepherd: shepherd.shepherd().pid(),
            gpus: launch.placement.resources.gpus.clone(),
        }
    }

    /// Determines the state of a run whose shepherd does not respond; `None` if the run never began, and cannot begin
    /// without a new journal. Retries as long as the system lacks the resources to find out.
    pub(crate) async fn determine_state(&self, launch: &RunLaunch) -> Option<RunState> {
        let directory = self.runs.of(launch.run());
        loop {
            let path = directory.path().to_owned();
            // Waits for an answer of the shepherd, which the file system of its program may delay.
            let adopted = tokio::task::spawn_blocking(move || adopt(&path)).await;
            match adopted.map_err(anyhow::Error::from).and_then(|adopted| Ok(adopted?)) {
                Ok(Adopted::Running(shepherd)) => return Some(RunState::Running(Watched::new(shepherd))),
                Ok(Adopted::Ended(record)) => return Some(RunState::Ended(RunOutcome::Recorded(record))),
                Ok(Adopted::Lost(Lost { reason: LostReason::NeverStarted, .. })) => return None,
                Ok(Adopted::Lost(found)) => {
                    self.leaves.end_processes(found.record.as_ref());
                    return Some(RunState::Ended(RunOutcome::Lost(found.reason)));
                }
                Err(error) => {
                    tracing::warn!(run = %launch.run(), %error, "cannot determine the state of a run; retrying");
                    tokio::time::sleep(POLL_INTERVAL).await;
                }
            }
        }
    }
}

/// Uid of the user who runs `orders`; `None` for the agent's own user.
pub(crate) fn owner_of(orders: &Launch) -> Option<u32> {
    orders.options.credentials.as_ref().map(|user| user.uid)
}

/// Executes orders until the shepherd reports the end; `None` if its connection breaks first. `new_limit` is the last time limit
/// that was ordered: the shepherd gets it again on each new connection.
async fn follow(
    shepherd: &mut Watched,
    controlled: &mut Controlled,
    new_limit: &mut Option<Option<Duration>>,
) -> Option<Box<ExitRecord>> {
    let change_limit = |shepherd: &Watched, limit| {
        if let Err(error) = shepherd.shepherd().change_limit(limit) {
            tracing::warn!(%error, "a new time limit did not reach a run");
        }
    };
    if let Some(limit) = *new_limit {
        change_limit(shepherd, limit);
    }
    loop {
        tokio::select! {
            event = shepherd.next_event() => match event {
                Some(Event::Finished(record)) => return Some(record),
                Some(_) => {}
                None => return None,
            },
            Some(order) = controlled.orders.recv() => match order {
                // If the run has just ended, its report is on the way.
                Order::End { cause, grace } => drop(shepherd.shepherd().terminate(cause, grace)),
                Order::Signal(signal) => {
                    if let Err(error) = shepherd.shepherd().signal_run(&signal) {
                        tracing::warn!(%error, "a signal did not reach a run");
                    }
                }
                Order::ChangeLimit(limit) => {
                    *new_limit = Some(limit);
                    controlled.ending.change_limit(limit);
                    change_limit(shepherd, limit);
                }
                // The run has already begun.
                Order::Begin { .. } => {}
            },
        }
    }
}
