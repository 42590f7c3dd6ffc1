//! Replays a recorded workload through the production scheduler, on a virtual clock.
//!
//! Time jumps from one event to the next. At each instant tasks end first, then jobs are submitted, then one
//! scheduling pass runs. Starts and ends take no time. A job runs exactly as long as the trace says. The scheduler
//! knows only its time limit: the requested time, or else the run time. A job may run beyond its limit.
//!
//! Only [`hostler_sched`] takes part. The other half of this crate simulates the whole cluster with its failures.

use std::collections::{BTreeMap, BTreeSet};

use hostler_model::{JobId, NodeName, Request, Timestamp};
use hostler_sched::{MAX_CPUS, NeverFits, NodeIx, Plan, Policy, Pool, Running, Waiting, plan};

use crate::{Metrics, Trace, TraceJob};

/// Options of a replay.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReplayOptions {
    pub policy: Policy,
    /// The resources of each node. If empty: one node with the header's number of processors and unlimited memory.
    pub nodes: Vec<Request>,
}

/// Why a replay is not possible.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    /// No nodes were given, and the header has no number of processors.
    #[error("the header of the trace contains neither MaxProcs nor MaxNodes, and no nodes were given")]
    NoNodes,
    /// A node has more CPUs than the scheduler can count.
    #[error("a node has {cpus} CPUs, but a replay supports at most {MAX_CPUS} CPUs per node")]
    NodeTooLarge {
        /// The CPUs of the node.
        cpus: u32,
    },
    /// A job fits on no node.
    #[error("job {number} can never run")]
    NeverFits {
        /// The job's number in the trace.
        number: u64,
        /// The job's request and the available resources.
        source: Box<NeverFits>,
    },
}

/// The outcome of a replay.
#[derive(Debug, Clone, PartialEq)]
pub struct Replay {
    /// Where and when each job started, in the order of [`Trace::jobs`].
    pub placements: Vec<Placement>,
    pub metrics: Metrics,
}

/// Where and when a job started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placement {
    /// The index of the node in [`ReplayOptions::nodes`].
    pub node: usize,
    /// When the job started, in seconds since the trace began.
    pub start_secs: u64,
}

/// Runs every job of the trace to its end.
///
/// # Errors
/// Fails when there are no nodes, or a job fits on none of them.
pub fn replay(trace: &Trace, options: &ReplayOptions) -> Result<Replay, ReplayError> {
    let nodes = nodes(trace, options)?;
    let mut world = World::new(trace, &nodes, options.policy)?;
    while let Some(now_secs) = world.next_instant() {
        world.end_tasks(now_secs);
        world.submit_jobs(now_secs);
        world.schedule(now_secs);
    }
    let placements: Vec<Placement> = world.placements.into_values().collect();
    assert_eq!(placements.len(), trace.jobs.len(), "every job that fits on a node has started");
    let cpus = nodes.iter().map(|node| u64::from(node.cpus)).sum();
    let metrics = Metrics::new(&trace.jobs, placements.iter().map(|placement| placement.start_secs), cpus);
    Ok(Replay { placements, metrics })
}

fn nodes(trace: &Trace, options: &ReplayOptions) -> Result<Vec<Request>, ReplayError> {
    let nodes = if options.nodes.is_empty() {
        let cpus = trace.processors.ok_or(ReplayError::NoNodes)?;
        vec![Request::new(cpus, u64::MAX)]
    } else {
        options.nodes.clone()
    };
    match nodes.iter().find(|node| node.cpus > MAX_CPUS) {
        Some(node) => Err(ReplayError::NodeTooLarge { cpus: node.cpus }),
        None => Ok(nodes),
    }
}

/// The replay at one instant. Jobs are identified by their index in the trace.
struct World<'a> {
    jobs: &'a [TraceJob],
    policy: Policy,
    pool: Pool,
    /// The number of submitted jobs.
    submitted: usize,
    /// Submitted jobs that have not started, in the order of submission.
    queue: BTreeMap<usize, Waiting>,
    running: BTreeMap<usize, Running>,
    /// When each running job ends, soonest first, in seconds.
    ends: BTreeSet<(u64, usize)>,
    placements: BTreeMap<usize, Placement>,
}

impl<'a> World<'a> {
    fn new(trace: &'a Trace, nodes: &[Request], policy: Policy) -> Result<Self, ReplayError> {
        let mut pool = Pool::default();
        for (ix, node) in (0..).map(NodeIx).zip(nodes) {
            let name: NodeName = format!("n{}", ix.0 + 1).parse().expect("a letter and digits form a node name");
            pool.set(ix, &name, node, node, true);
        }
        for job in &trace.jobs {
            let never = |source| ReplayError::NeverFits { number: job.number, source };
            pool.admit(&waiting(0, job)).map_err(never)?;
        }
        Ok(Self {
            jobs: &trace.jobs,
            policy,
            pool,
            submitted: 0,
            queue: BTreeMap::new(),
            running: BTreeMap::new(),
            ends: BTreeSet::new(),
            placements: BTreeMap::new(),
        })
    }

    /// The time of the next event, in seconds; `None` after the last.
    fn next_instant(&self) -> Option<u64> {
        let end = self.ends.first().map(|(secs, _)| *secs);
        let submission = self.jobs.get(self.submitted).map(|job| job.submit_secs);
        end.into_iter().chain(submission).min()
    }

    fn end_tasks(&mut self, now_secs: u64) {
        while let Some((_, index)) = self.ends.first().copied().filter(|(secs, _)| *secs <= now_secs) {
            self.ends.pop_first();
            let ended = self.running.remove(&index).expect("a job that ends was running");
            self.pool.release(ended.node, &ended.request);
        }
    }

    fn submit_jobs(&mut self, now_secs: u64) {
        while let Some(job) = self.jobs.get(self.submitted).filter(|job| job.submit_secs <= now_secs) {
            self.queue.insert(self.submitted, waiting(self.submitted, job));
            self.submitted += 1;
        }
    }

    fn schedule(&mut self, now_secs: u64) {
        let now = Timestamp(milliseconds(now_secs));
        let running = || self.running.values().cloned();
        let plan = plan(&self.pool, self.queue.values().cloned(), running, self.policy, now);
        self.carry_out(&plan, now_secs);
    }

    fn carry_out(&mut self, plan: &Plan, now_secs: u64) {
        for start in &plan.starts {
            let index = start.job.0 as usize;
            let waiting = self.queue.remove(&index).expect("the plan starts waiting jobs");
            let limit_ms = waiting.time_limit_ms.expect("every replayed job has a time limit");
            let ends_at = Timestamp(milliseconds(now_secs)).plus_ms(limit_ms);
            let node = start.nodes[0];
            self.pool.allocate(node, &waiting.request);
            self.running.insert(index, Running { node, request: waiting.request, ends_at });
            self.ends.insert((now_secs + self.jobs[index].run_secs, index));
            self.placements.insert(index, Placement { node: node.0 as usize, start_secs: now_secs });
        }
    }
}

/// A waiting job of the trace.
fn waiting(index: usize, job: &TraceJob) -> Waiting {
    let limit_secs = job.limit_secs.unwrap_or(job.run_secs);
    Waiting {
        job: JobId(index as u64),
        request: job.request.clone(),
        nodes: 1,
        exclusive: false,
        among: None,
        tasks: 1,
        time_limit_ms: Some(milliseconds(limit_secs)),
    }
}

fn milliseconds(secs: u64) -> u64 {
    secs.saturating_mul(1000)
}
