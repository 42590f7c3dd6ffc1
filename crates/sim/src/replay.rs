//! Replays a recorded workload through the production scheduler, on a virtual clock.
//!
//! Time jumps from one instant at which something happens to the next. At each instant tasks end first, then jobs are submitted,
//! then one scheduling pass is made; starting and ending take no time. A job runs exactly as long as the trace says. The
//! scheduler knows only its time limit: the time it asked for, or else how long it runs. One that runs on beyond its limit is
//! left alone.
//!
//! Only [`hostler_sched`] takes part. The whole cluster, with what can go wrong in one, is the other half of this crate.

use std::collections::{BTreeMap, BTreeSet};

use hostler_model::{JobId, NodeName, Request, Timestamp};
use hostler_sched::{MAX_CPUS, NeverFits, NodeIx, Plan, Policy, Pool, Running, Waiting, plan};

use crate::{Metrics, Trace, TraceJob};

/// How to replay a workload.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReplayOptions {
    /// The scheduling policy.
    pub policy: Policy,
    /// What each node has. When empty, there is one node with the processors that the trace's header names and no end of memory.
    pub nodes: Vec<Request>,
}

/// Why a workload cannot be replayed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    /// No nodes were given and the header names no number of processors.
    #[error("the trace names neither MaxProcs nor MaxNodes: say what nodes there are")]
    NoNodes,
    /// A node has more CPUs than the scheduler can count.
    #[error("a node of {cpus} CPUs is more than can be replayed; the largest has {MAX_CPUS}")]
    NodeTooLarge {
        /// The CPUs it should have.
        cpus: u32,
    },
    /// A job fits on no node.
    #[error("job {number} can never run")]
    NeverFits {
        /// Its number in the trace.
        number: u64,
        /// What it asks for and what there is.
        source: Box<NeverFits>,
    },
}

/// What came of a replay.
#[derive(Debug, Clone, PartialEq)]
pub struct Replay {
    /// Where and when each job started, in the order of [`Trace::jobs`].
    pub placements: Vec<Placement>,
    /// The figures by which schedules are compared.
    pub metrics: Metrics,
}

/// Where and when a job started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placement {
    /// The node, counted from 0 as in [`ReplayOptions::nodes`].
    pub node: usize,
    /// When, in seconds since the trace began.
    pub start_secs: u64,
}

/// Runs every job of the trace to its end.
///
/// # Errors
/// When there are no nodes, or a job fits on none of them.
pub fn replay(trace: &Trace, options: &ReplayOptions) -> Result<Replay, ReplayError> {
    let nodes = nodes(trace, options)?;
    let mut world = World::new(trace, &nodes, options.policy)?;
    while let Some(now_secs) = world.next_instant() {
        world.end_tasks(now_secs);
        world.submit_jobs(now_secs);
        world.schedule(now_secs);
    }
    let placements: Vec<Placement> = world.placements.into_values().collect();
    assert_eq!(placements.len(), trace.jobs.len(), "a job that fits on a node starts in the end");
    let cpus = nodes.iter().map(|node| u64::from(node.cpus)).sum();
    let metrics = Metrics::new(&trace.jobs, placements.iter().map(|placement| placement.start_secs), cpus);
    Ok(Replay { placements, metrics })
}

/// The nodes to replay on.
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

/// The replay at one instant. Jobs go by their index in the trace.
struct World<'a> {
    jobs: &'a [TraceJob],
    policy: Policy,
    pool: Pool,
    /// How many jobs have been submitted.
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
            let name: NodeName = format!("n{}", ix.0 + 1).parse().expect("a letter and digits");
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

    /// When something happens next, in seconds; `None` when all is over.
    fn next_instant(&self) -> Option<u64> {
        let end = self.ends.first().map(|(secs, _)| *secs);
        let submission = self.jobs.get(self.submitted).map(|job| job.submit_secs);
        end.into_iter().chain(submission).min()
    }

    fn end_tasks(&mut self, now_secs: u64) {
        while let Some((_, index)) = self.ends.first().copied().filter(|(secs, _)| *secs <= now_secs) {
            self.ends.pop_first();
            let ended = self.running.remove(&index).expect("what ends has been running");
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
            let waiting = self.queue.remove(&index).expect("the plan starts what waits");
            let limit_ms = waiting.time_limit_ms.expect("every job has one here");
            let ends_at = Timestamp(milliseconds(now_secs)).plus_ms(limit_ms);
            let node = start.nodes[0];
            self.pool.allocate(node, &waiting.request);
            self.running.insert(index, Running { node, request: waiting.request, ends_at });
            self.ends.insert((now_secs + self.jobs[index].run_secs, index));
            self.placements.insert(index, Placement { node: node.0 as usize, start_secs: now_secs });
        }
    }
}

/// A job of the trace as it waits.
fn waiting(index: usize, job: &TraceJob) -> Waiting {
    let limit_secs = job.limit_secs.unwrap_or(job.run_secs);
    Waiting {
        job: JobId(index as u64),
        request: job.request.clone(),
        nodes: 1,
        among: None,
        tasks: 1,
        time_limit_ms: Some(milliseconds(limit_secs)),
    }
}

fn milliseconds(secs: u64) -> u64 {
    secs.saturating_mul(1000)
}
