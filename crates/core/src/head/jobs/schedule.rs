//! Computes the next placements.

use std::collections::BTreeMap;

use hostler_model::{JobId, JobSpec, NodeName, Request, Resources, RunId, Timestamp};
use hostler_sched::plan;

use super::job::Job;
use super::requests::running;
use super::turns::Turns;
use crate::head::event::{Event, Start};
use crate::head::ids::Now;
use crate::head::nodes::node::Node;
use crate::head::state::State;

/// Runs a scheduling pass: returns the event that places tasks, or `None` if none can start. Keeps the reservations of waiting jobs
/// for [`super::explain`].
pub fn schedule(state: &mut State, now: Now) -> Option<Event> {
    state.needs_pass = false;
    state.renew_sets();
    let plan = plan(&state.pool, Turns::of(state, now.at), || running(state), state.settings.policy, now.at);
    state.reservations = plan.blocked;
    let mut assignment = Assignment::default();
    let mut starts = Vec::new();
    for start in &plan.starts {
        let job = &state.jobs_by_id(start.job);
        // Ranks follow the names, n2 before n10, as people expect.
        let mut nodes: Vec<&Node> = start.nodes.iter().map(|ix| &state.nodes[&state.names[ix]]).collect();
        nodes.sort_by_key(|node| (node.name.as_str().len(), &node.name));
        for _ in 0..start.count {
            let index = assignment.next_index(job);
            let run = RunId { task: job.task(index), attempt: job.next_attempt(index), epoch: state.epoch };
            for node in &nodes {
                let resources = assignment.take(node, &job.spec);
                starts.push(Start { run, node: node.name.clone(), resources });
            }
        }
    }
    (!starts.is_empty()).then_some(Event::Placed { starts })
}

impl State {
    /// Returns the latest expected start of a job with a reservation, if known. A held job has none, although the last
    /// schedule may have reserved nodes for it.
    #[must_use]
    pub fn expected_start(&self, job: JobId) -> Option<Timestamp> {
        self.reservations
            .iter()
            .find(|reservation| reservation.job == job && self.job(job).is_some_and(|job| !job.held))
            .map(|reservation| reservation.at)
            .filter(|at| *at != Timestamp::NEVER)
    }

    /// Returns whether no other job may start on the node, because this waiting job needs it.
    #[must_use]
    pub fn is_reserved_for(&self, job: JobId, node: &NodeName) -> bool {
        let of_job = self.reservations.iter().filter(|reservation| reservation.job == job);
        of_job.flat_map(|reservation| &reservation.nodes).any(|ix| self.names.get(ix) == Some(node))
    }

    /// Returns a job that the plan names.
    fn jobs_by_id(&self, id: JobId) -> std::sync::Arc<Job> {
        std::sync::Arc::clone(self.job(id).expect("the plan names jobs of the queue"))
    }
}

/// Assigns task indices, CPU ids and GPUs to the starts of one scheduling pass.
#[derive(Default)]
struct Assignment {
    /// The last assigned index of each job.
    given: BTreeMap<JobId, u32>,
    /// The remaining free resources of each node.
    free: BTreeMap<NodeName, Resources>,
}

impl Assignment {
    /// Returns the job's lowest startable index that this pass has not assigned yet.
    fn next_index(&mut self, job: &Job) -> u32 {
        let from = self.given.get(&job.id).map_or(0, |last| last + 1);
        let index = job.next_free(from).expect("the plan starts no more tasks than may start");
        self.given.insert(job.id, index);
        index
    }

    /// Chooses CPUs and GPUs of the node for a task. An exclusive task gets all that the node offers, and the plan places it on idle
    /// nodes only.
    fn take(&mut self, node: &Node, spec: &JobSpec) -> Resources {
        let free = self.free.entry(node.name.clone()).or_insert_with(|| node.free_resources());
        let choose = |request: &Request| node.facts.hardware.choose(free, request);
        let taken = match spec.surroundings.exclusive {
            true if node.offer.is_all() => free.clone(),
            true => choose(&node.total()).expect("an idle node has what it offers"),
            false => choose(&spec.request).expect("the plan places no more than is free"),
        };
        free.remove(&taken);
        taken
    }
}
