//! What the agent does for each run, apart from its preparation.
//!
//! - [`control`]: orders for a run, and turns for what waits for its user.
//! - [`surroundings`]: what is begun before a run and ended after it, always by the same function.
//! - [`outcome`] and [`exit`]: how a run ended, and the report of that for the head.

pub(crate) mod control;
pub(crate) mod exit;
pub(crate) mod outcome;
pub(crate) mod surroundings;

use std::sync::Arc;

use self::surroundings::{Surrounding, Surroundings};
use crate::certificate::Measurements;
use crate::directory::Runs;
use crate::engines::Containers;
use crate::environment::Environments;
use crate::job_network::Networks;
use crate::quiet::QuietRuns;
use crate::stage::EnvironmentPins;
use crate::usage::UsageMeter;

/// The services behind the surroundings.
pub(crate) struct Services {
    pub(crate) runs: Arc<Runs>,
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
            // Also ends the temporary directory, and the pin of the image, which counts as long as the directory is there.
            self.runs,
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
