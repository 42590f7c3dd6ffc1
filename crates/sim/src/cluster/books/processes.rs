//! Checks of processes: each starts once, after its placement, and shares no CPU with another.

use hostler_core::agent::Why;
use hostler_model::{Resources, RunId};

use super::account::{PartAccount, Standing};
use super::{Books, Process};

impl Books {
    /// Accounts for a process that starts on a node.
    pub(in crate::cluster) fn process_starts(&mut self, node: usize, run: RunId, resources: &Resources) {
        self.expect(self.placed.contains(&run), || format!("{run} starts before its placement is durable"));
        let is_new = !self.processes.contains_key(&(run, node));
        self.expect(is_new, || format!("invariant I3: {run} is started a second time"));
        self.expect(self.may_begin(run), || format!("{run} starts before all of its nodes are ready"));
        let name = self.names[node].clone();
        let others = self.processes.iter().filter(|((_, at), other)| *at == node && other.is_alive);
        let overlapping: Vec<RunId> = others
            .filter(|(_, other)| {
                let shares_cpus = resources.cpus.iter().any(|cpu| other.resources.cpus.contains(cpu));
                shares_cpus || !resources.gpus.is_disjoint(&other.resources.gpus)
            })
            .map(|((other, _), _)| *other)
            .collect();
        for other in overlapping {
            let is_given_up = !self.is_placed(other, node) || !self.is_placed(run, node);
            self.expect(is_given_up, || {
                format!("invariant I4: {run} and {other} run on the same CPUs or GPUs of {name}")
            });
        }
        let process = Process { resources: resources.clone(), is_alive: true, exit: None };
        self.processes.insert((run, node), process);
    }

    /// Accounts for a process that ended, with or without an exit record.
    pub(in crate::cluster) fn process_ends(&mut self, node: usize, run: RunId, exit: Option<Why>) {
        let process = self.processes.get_mut(&(run, node)).expect("the process has started");
        process.is_alive = false;
        process.exit = exit;
    }

    pub(super) fn is_placed(&self, run: RunId, node: usize) -> bool {
        let name = &self.names[node];
        let parts = self.parts_of(run);
        parts.is_some_and(|parts| parts.iter().any(|part| part.node == *name && !part.is_over))
    }

    /// Whether a run may begin: all of its parts have been ready, or the head has given it up.
    pub(super) fn may_begin(&self, run: RunId) -> bool {
        let parts = self.parts_of(run);
        parts.is_none_or(|parts| parts.len() == 1 || parts.iter().all(|part| part.is_ready))
    }

    /// The parts of a run, if it is the current run of its task.
    pub(super) fn parts_of(&self, run: RunId) -> Option<&[PartAccount]> {
        let task = self.jobs.get(&run.task.job)?.tasks.get(&run.task.index)?;
        match &task.at {
            Standing::Placed { run: present, parts, .. } if *present == run => Some(parts),
            Standing::Placed { .. } | Standing::Waiting | Standing::Ended { .. } => None,
        }
    }
}
