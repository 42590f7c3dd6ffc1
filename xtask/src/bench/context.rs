//! What all groups of the bench need: the program to measure, its peers, and the sizes.

use std::path::PathBuf;

use anyhow::Result;

use super::cluster::Cluster;
use super::peers::Peer;

/// Context of all groups.
pub(super) struct Bench {
    /// Number of rounds for contenders that take milliseconds.
    pub(super) runs: usize,
    /// Divisor for numbers of jobs and files.
    pub(super) divide: usize,
    /// The program to measure; `None` measures only floors.
    pub(super) hostler: Option<PathBuf>,
    /// The available batch systems.
    pub(super) peers: Vec<Peer>,
    /// A C program to build.
    pub(super) source: Option<PathBuf>,
}

impl Bench {
    /// Number of rounds for contenders that take seconds.
    pub(super) fn long_runs(&self) -> usize {
        self.runs.min(3)
    }

    /// `count`, divided for a trial of the bench.
    pub(super) fn scaled(&self, count: usize) -> usize {
        (count / self.divide).max(2)
    }

    /// Starts a new cluster, unless only floors are measured.
    pub(super) fn cluster(&self) -> Result<Option<Cluster>> {
        self.hostler.as_deref().map(Cluster::up).transpose()
    }
}
