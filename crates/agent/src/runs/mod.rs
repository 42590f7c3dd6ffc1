//! What the agent does for each run after its preparation.
//!
//! - [`supervise`]: shepherds and their reports; [`shepherds`]: connections to them; [`ending`]: runs whose program does not start.
//! - [`control`]: orders for a run, and turns for what waits for its user; [`steps`]: processes on its other nodes.
//! - [`surroundings`]: what is begun before a run and ended after it, always by the same function.
//! - [`outcome`] and [`exit`]: how a run ended, and the report of that for the head; [`collect`]: results.
//! - [`directory`]: files of a run that outlive the agent; [`temporary`]: files that need not.
//! - [`recover`]: recovery of runs after an agent restart; [`last_job`]: the latest job, for a restored head.
//! - [`leaves`] and [`process_limits`]: cgroups of runs, and how many processes they may have.
//! - [`output`] and [`terminal`]: live output, and terminals.

pub(crate) mod collect;
pub(crate) mod control;
pub(crate) mod directory;
pub(crate) mod ending;
pub(crate) mod exit;
pub(crate) mod last_job;
pub(crate) mod leaves;
pub(crate) mod outcome;
pub(crate) mod output;
pub(crate) mod process_limits;
pub(crate) mod recover;
pub(crate) mod shepherds;
pub(crate) mod steps;
pub(crate) mod supervise;
pub(crate) mod surroundings;
pub(crate) mod temporary;
pub(crate) mod terminal;

use std::sync::Arc;

use self::surroundings::{Surrounding, Surroundings};
use crate::containers::Containers;
use crate::job_network::Networks;
use crate::measure::certificate::Measurements;
use crate::measure::quiet::QuietRuns;
use crate::measure::usage::UsageMeter;
use crate::provision::environment::Environments;
use crate::provision::stage::EnvironmentPins;
use crate::runs::directory::Runs;
use crate::runs::last_job::LastJob;

/// The services behind the surroundings.
pub(crate) struct Services {
    pub(crate) runs: Arc<Runs>,
    pub(crate) last_job: Arc<LastJob>,
    pub(crate) environments: Arc<Environments>,
    pub(crate) usage: Arc<UsageMeter>,
    pub(crate) quiet: QuietRuns,
    /// Absent if the node connects no sandboxes.
    pub(crate) networks: Option<Arc<Networks>>,
    pub(crate) containers: Arc<Containers>,
    pub(crate) measurements: Arc<Measurements>,
}

impl Services {
    /// The surroundings of each run, in the order in which they begin. To add one, add it here.
    pub(crate) fn surroundings(self) -> Surroundings {
        let mut all: Vec<Arc<dyn Surrounding>> = vec![
            // The run's directory contains its temporary directory and the file that pins its image, so both go with it.
            self.runs,
            self.last_job,
            Arc::new(EnvironmentPins(self.environments)),
            self.usage,
            Arc::new(self.quiet),
        ];
        all.extend(self.networks.map(|networks| networks as Arc<dyn Surrounding>));
        all.push(self.containers);
        // The last one, so that it measures nothing of the others.
        all.push(self.measurements);
        Surroundings::new(all)
    }
}
