//! The parts of jobs and events that say what a job waits for.

use std::collections::{BTreeMap, BTreeSet};

use hostler_model::{Dependency, Ending, IndexSet, Timestamp};
use serde::{Deserialize, Serialize};

/// A dependency whose job has begun, and whose delay runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delay {
    /// The dependency.
    pub dependency: Dependency,
    /// When the dependency is satisfied.
    pub until: Timestamp,
}

/// How far the dependencies of a job are satisfied.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartlyMet {
    /// Dependencies whose jobs have begun and whose delays run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub delays: Vec<Delay>,
    /// Waiting tasks that may start although others still wait for `unmet` or `delays`; empty if both lists are empty.
    #[serde(default, skip_serializing_if = "IndexSet::is_empty")]
    pub freed: IndexSet,
}

/// What a dependent job must know of a job that had ended before it was submitted, besides the final state: for dependencies on single
/// tasks, on counterparts, or with a delay.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PastJob {
    /// When the job began, or was cancelled before it began; for an array, when it ended.
    pub began: Timestamp,
    /// The ended tasks of an array, by final state and exit code; empty without an array.
    pub endings: BTreeMap<Ending, IndexSet>,
}

/// Leaves out repetitions: each costs time whenever the other job changes.
pub(in crate::head) fn distinct(dependencies: impl IntoIterator<Item = Dependency>) -> Box<[Dependency]> {
    let mut known = BTreeSet::new();
    dependencies.into_iter().filter(|dependency| known.insert(*dependency)).collect()
}
