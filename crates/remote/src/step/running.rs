//! What runs at a step host, in a file for the node's agent.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use hostler_proto::link::StepRecord;
use serde::{Deserialize, Serialize};

use super::VARIABLE;

/// Name of the file with the running steps, in the directory of the node list.
pub const RUNNING: &str = "running";

/// The content of the file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunningSteps {
    /// The steps that hold their claim, by number. Only the first node has them.
    pub steps: BTreeMap<u32, StepRecord>,
    /// The step of each process group that the host has started, by the group's number.
    pub groups: BTreeMap<u32, u32>,
}

/// Keeps the file up to date.
pub(super) struct Register {
    path: Option<PathBuf>,
    running: Mutex<RunningSteps>,
}

/// An entry of the register, removed when this is dropped.
pub(super) struct Entry<'a> {
    register: &'a Register,
    of: Of,
}

enum Of {
    Step(u32),
    Group(u32),
}

impl Register {
    /// Creates the register of running steps. Its file is in the directory of the node list.
    pub(super) fn new() -> Self {
        let path = std::env::var_os(VARIABLE).map(|nodes| Path::new(&nodes).with_file_name(RUNNING));
        Self { path, running: Mutex::default() }
    }

    /// Notes a step that begins.
    pub(super) fn begin(&self, step: StepRecord) -> Entry<'_> {
        let number = step.step;
        self.change(|running| {
            running.steps.insert(number, step);
        });
        Entry { register: self, of: Of::Step(number) }
    }

    /// Notes a process group that belongs to a step.
    pub(super) fn started(&self, group: u32, step: u32) -> Entry<'_> {
        self.change(|running| {
            running.groups.insert(group, step);
        });
        Entry { register: self, of: Of::Group(group) }
    }

    /// Whether a step holds its claim, or has a process on this node.
    pub(super) fn has(&self, step: u32) -> bool {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.steps.contains_key(&step) || running.groups.values().any(|of| *of == step)
    }

    fn change(&self, change: impl FnOnce(&mut RunningSteps)) {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut running);
        let Some(path) = &self.path else { return };
        // The file is for people; a full disk must not end the job.
        let new = path.with_extension("new");
        let text = serde_json::to_vec(&*running).unwrap_or_default();
        let _ = fs::write(&new, text).and_then(|()| fs::rename(&new, path));
    }
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        self.register.change(|running| match self.of {
            Of::Step(step) => {
                running.steps.remove(&step);
            }
            Of::Group(group) => {
                running.groups.remove(&group);
            }
        });
    }
}
