//! The plan: which tasks start now, and where.
//!
//! Jobs are taken in the order of the queue, and each of their tasks goes to the node that fits best. The first job that does
//! not fit gets a reservation. Behind it, nothing starts under [`Policy::Fcfs`]; under [`Policy::Easy`] a task starts if that
//! cannot delay the reservation (see [`crate::Reservation`]).
//!
//! Jobs that may use none of the nodes that a blocked job may use, as those of another partition, are not behind it: the first of them that
//! does not fit gets a reservation of its own, so that small jobs cannot keep it waiting for ever.
//!
//! A job that no usable node could run even if it were empty waits for a node to come back, not for resources. It is passed
//! over under either policy: to stop the queue for it would help nobody.
//!
//! A pass costs little for a job that cannot start, and ends as soon as nothing is free. It never depends on the number of
//! nodes times the number of jobs.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hostler_model::{JobId, Request, Timestamp};

use crate::amount::{scaled, times, without};
use crate::fit::{Fit, FitIndex};
use crate::reservation::Slot;
use crate::{NodeIx, NodeSet, Policy, Pool, Reservation, Running};

/// How many jobs may have a reservation at once.
const MAX_RESERVATIONS: usize = 64;

/// A job in the queue. It can start as far as it is itself concerned: it is not held and its dependencies are met.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    /// The job.
    pub job: JobId,
    /// What each task needs on each of its nodes; at least one CPU.
    pub request: Request,
    /// On how many nodes each task runs, all at once; at least one.
    pub nodes: u32,
    /// Which nodes it may use; any when absent. Jobs that may use the same ones should share the set.
    pub among: Option<Arc<NodeSet>>,
    /// How many of its tasks may start now.
    pub tasks: u64,
    /// How long each may run, in milliseconds; unlimited when absent.
    pub time_limit_ms: Option<u64>,
}

impl Waiting {
    /// Which nodes it may use; any when absent.
    pub(crate) fn among(&self) -> Option<&NodeSet> {
        self.among.as_deref()
    }

    /// Whether it may use a node.
    pub(crate) fn may_use(&self, node: NodeIx) -> bool {
        self.among().is_none_or(|among| among.contains(node))
    }
}

/// What should start now, and who must wait.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// Tasks to start, in the order in which they were decided.
    pub starts: Vec<Start>,
    /// The first job that does not fit now, and the first ones of those that share no node with it and with each other; empty when
    /// every job that was examined starts, or waits for a node to come back.
    pub blocked: Vec<Reservation>,
    /// How many jobs were looked at before it was clear that no more can start.
    pub examined: usize,
}

/// Some tasks of a job that start on the same nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Start {
    /// The job.
    pub job: JobId,
    /// The nodes, as many as the job asks for and each once. Every task is on all of them.
    pub nodes: Vec<NodeIx>,
    /// How many of its tasks, at least one.
    pub count: u32,
}

/// Plans what starts now.
///
/// `queue` is in the order in which jobs should start. `running` is asked for everything that holds resources of the pool, but
/// only if a job must wait; what it leaves out counts as having no time limit.
pub fn plan<R: IntoIterator<Item = Running>>(
    pool: &Pool,
    queue: impl IntoIterator<Item = Waiting>,
    running: impl FnOnce() -> R,
    policy: Policy,
    now: Timestamp,
) -> Plan {
    let mut pass = Pass::new(pool, now);
    let mut queue = queue.into_iter();
    if let Some(first) = pass.start_in_order(&mut queue) {
        pass.running = running().into_iter().collect();
        pass.reserve(&first);
        pass.start_beside_reservations(queue, policy);
    }
    pass.plan
}

/// One pass over the queue.
struct Pass<'a> {
    pool: &'a Pool,
    now: Timestamp,
    free: Free<'a>,
    /// What runs, once a job must wait.
    running: Vec<Running>,
    /// What this pass has started, as it will run.
    placed: Vec<Running>,
    /// What is kept for the jobs that must wait. No two of them share a node.
    reserved: Vec<Reserved>,
    /// By set of nodes, of which none is null, what was asked for and did not fit: whatever asks for as much does not fit either, since
    /// what is free only becomes less. For CPUs and memory of any node the index answers as quickly. Nothing depends on the order of the
    /// addresses.
    refused: BTreeMap<*const NodeSet, Vec<Request>>,
    plan: Plan,
}

/// What is kept for a job that must wait.
struct Reserved {
    /// Which nodes the job may use.
    among: Option<Arc<NodeSet>>,
    slot: Slot,
}

impl<'a> Pass<'a> {
    fn new(pool: &'a Pool, now: Timestamp) -> Self {
        Self {
            pool,
            now,
            free: Free::new(pool),
            running: Vec::new(),
            placed: Vec::new(),
            reserved: Vec::new(),
            refused: BTreeMap::new(),
            plan: Plan::default(),
        }
    }

    /// Starts jobs until one does not fit: that job.
    fn start_in_order(&mut self, queue: &mut impl Iterator<Item = Waiting>) -> Option<Waiting> {
        queue.find(|job| {
            self.plan.examined += 1;
            let mut left = job.tasks;
            while left > 0 {
                let Some(nodes) = self.choose(job) else { break };
                left -= self.start(job, nodes, left, u32::MAX);
            }
            left > 0 && self.pool.could_run(job)
        })
    }

    /// Keeps nodes for a job that usable nodes could run and that does not fit now.
    fn reserve(&mut self, job: &Waiting) {
        let running = self.running.iter().chain(&self.placed);
        let free_on = |ix| self.free.on(ix);
        let slot =
            Slot::find(self.pool, free_on, job, running, self.now).expect("as many usable nodes are large enough");
        slot.nodes().for_each(|node| self.free.set_apart(node));
        self.plan.blocked.push(Reservation { job: job.job, nodes: slot.nodes().collect(), at: slot.at });
        self.reserved.push(Reserved { among: job.among.clone(), slot });
    }

    /// Starts what cannot delay a reservation, and reserves nodes for jobs that are behind none.
    fn start_beside_reservations(&mut self, queue: impl Iterator<Item = Waiting>, policy: Policy) {
        for job in queue {
            if policy == Policy::Fcfs && self.reserved.iter().any(|reserved| reserved.among.is_none()) {
                break;
            }
            let free = &self.free;
            self.reserved.iter_mut().for_each(|reserved| reserved.slot.close(|node| free.on(node)));
            if self.free.is_exhausted() && self.reserved.iter().all(|reserved| reserved.slot.is_closed()) {
                break;
            }
            if policy == Policy::Fcfs && self.is_behind(&job) {
                continue;
            }
            self.plan.examined += 1;
            let left = self.start_beside(&job);
            if left > 0 && self.reserved.len() < MAX_RESERVATIONS && !self.is_behind(&job) && self.pool.could_run(&job)
            {
                self.reserve(&job);
            }
        }
    }

    /// Whether a job may use a node that a blocked one may use as well.
    fn is_behind(&self, job: &Waiting) -> bool {
        self.reserved.iter().any(|reserved| share_nodes(&reserved.among, &job.among))
    }

    /// Starts as many of a job's tasks as cannot delay a reservation; says how many are left.
    fn start_beside(&mut self, job: &Waiting) -> u64 {
        let ends_at = self.ends_at(job);
        let mut left = job.tasks;
        while left > 0 {
            let Some((nodes, room)) = self.choose_beside(job, ends_at) else { break };
            let count = self.start(job, nodes.clone(), left, room);
            let held = scaled(&job.request, count as u32);
            self.reserved.iter_mut().for_each(|reserved| reserved.slot.use_room(&nodes, &held, ends_at));
            left -= count;
        }
        left
    }

    /// The nodes that fit a task best, as many as it asks for.
    fn choose(&mut self, job: &Waiting) -> Option<Vec<NodeIx>> {
        let fits = self.best_of(job);
        (fits.len() == job.nodes as usize).then(|| fits.into_iter().map(|fit| fit.node).collect())
    }

    /// The nodes that fit a task best, as many as it asks for or as there are.
    fn best_of(&mut self, job: &Waiting) -> Vec<Fit> {
        let Waiting { request, among, .. } = job;
        if among.is_none() && request.gpus == 0 && request.counted.is_empty() {
            return self.free.best_of(job);
        }
        let set = among.as_ref().map_or(std::ptr::null(), Arc::as_ptr);
        let refused = self.refused.entry(set).or_default();
        if refused.iter().any(|refused| request.covers(refused)) {
            return Vec::new();
        }
        let fits = self.free.best_of(job);
        if fits.is_empty() {
            refused.retain(|refused| !refused.covers(request));
            refused.push(request.clone());
        }
        fits
    }

    /// The nodes that fit a task best without delaying a reservation, and how many such tasks may start on them.
    fn choose_beside(&mut self, job: &Waiting, ends_at: Timestamp) -> Option<(Vec<NodeIx>, u32)> {
        let shares =
            self.reserved.iter().flat_map(|Reserved { slot, .. }| slot.open_nodes().map(move |share| (slot, share)));
        let beside = shares.filter(|(_, share)| job.may_use(share.node)).filter_map(|(slot, share)| {
            let free = self.free.on(share.node);
            let room = slot.room(share, &free, &job.request, ends_at);
            (room > 0).then(|| (Fit::new(share.node, self.pool.class(share.node), &free), room))
        });
        let mut fits: Vec<(Fit, u32)> = beside.collect();
        fits.extend(self.best_of(job).into_iter().map(|fit| (fit, u32::MAX)));
        let wanted = job.nodes as usize;
        if fits.len() < wanted {
            return None;
        }
        fits.sort_unstable();
        fits.truncate(wanted);
        let room = fits.iter().map(|(_, room)| *room).min()?;
        Some((fits.into_iter().map(|(fit, _)| fit.node).collect(), room))
    }

    /// Starts as many of the `left` tasks as fit on the nodes, at most `room`; says how many. At least one must fit.
    ///
    /// Nodes that fit best still do after they have taken a task: they have only become fuller.
    fn start(&mut self, job: &Waiting, nodes: Vec<NodeIx>, left: u64, room: u32) -> u64 {
        let fitting = nodes.iter().map(|node| times(&self.free.on(*node), &job.request)).min().unwrap_or(0).min(room);
        let count = fitting.min(u32::try_from(left).unwrap_or(u32::MAX));
        let held = scaled(&job.request, count);
        let ends_at = self.ends_at(job);
        for &node in &nodes {
            self.free.take(node, &held);
            self.placed.push(Running { node, request: held.clone(), ends_at });
        }
        self.plan.starts.push(Start { job: job.job, nodes, count });
        u64::from(count)
    }

    /// When a task of the job that starts now will have ended.
    fn ends_at(&self, job: &Waiting) -> Timestamp {
        job.time_limit_ms.map_or(Timestamp::NEVER, |limit| self.now.plus_ms(limit))
    }
}

/// Whether some node is in both sets, of which an absent one is all nodes.
fn share_nodes(one: &Option<Arc<NodeSet>>, other: &Option<Arc<NodeSet>>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => Arc::ptr_eq(one, other) || one.intersects(other),
        _ => true,
    }
}

/// What is free as the pass goes on: the pool's own index until something changes, then a copy.
///
/// The node that was used last is likely to be used next, so the index is told of a node only when another one is used. Until
/// then it shows the node with more than is free there, and [`Self::best`] sees to that. Thus a pass with a single start copies
/// nothing, and many small tasks cost one change of the index a node.
struct Free<'a> {
    pool: &'a Pool,
    index: Cow<'a, FitIndex>,
    /// What is free on the nodes that this pass has used, except for the one used last.
    changed: BTreeMap<NodeIx, Request>,
    /// The node that was used last.
    open: Option<Open>,
    /// The nodes that [`Self::best`] does not offer.
    apart: BTreeSet<NodeIx>,
}

/// A node that has changed while the index still shows it as it was.
struct Open {
    node: NodeIx,
    shown: Request,
    free: Request,
}

impl<'a> Free<'a> {
    fn new(pool: &'a Pool) -> Self {
        Self { pool, index: Cow::Borrowed(&pool.free), changed: BTreeMap::new(), open: None, apart: BTreeSet::new() }
    }

    /// The node that fits best.
    fn best(&mut self, job: &Waiting) -> Option<Fit> {
        let Waiting { request, .. } = job;
        let shown = self.index.best(request, job.among())?;
        match &self.open {
            Some(open) if open.free.covers(request) && job.may_use(open.node) => {
                Some(shown.min(Fit::new(open.node, self.pool.class(open.node), &open.free)))
            }
            Some(open) if open.node == shown.node => {
                self.close();
                self.index.best(request, job.among())
            }
            _ => Some(shown),
        }
    }

    /// The nodes that fit best, as many as the job asks for or as there are.
    fn best_of(&mut self, job: &Waiting) -> Vec<Fit> {
        if job.nodes == 1 {
            return self.best(job).into_iter().collect();
        }
        self.close();
        self.index.all(&job.request, job.among()).take(job.nodes as usize).collect()
    }

    /// What is free on a node.
    fn on(&self, node: NodeIx) -> Request {
        match &self.open {
            Some(open) if open.node == node => open.free.clone(),
            _ => self.changed.get(&node).unwrap_or_else(|| &self.pool.expect(node).free).clone(),
        }
    }

    /// Whether every node that [`Self::best`] offers is full. May notice it one question late.
    fn is_exhausted(&self) -> bool {
        self.index.most_cpus() == 0
    }

    /// Takes an amount that is free on the node.
    fn take(&mut self, node: NodeIx, held: &Request) {
        match &mut self.open {
            Some(open) if open.node == node => open.free = without(&open.free, held),
            _ if self.apart.contains(&node) => {
                let free = without(&self.on(node), held);
                self.changed.insert(node, free);
            }
            _ => {
                self.close();
                let shown = self.on(node);
                let free = without(&shown, held);
                self.open = Some(Open { node, shown, free });
            }
        }
    }

    /// Leaves a node out of what [`Self::best`] offers from now on.
    fn set_apart(&mut self, node: NodeIx) {
        self.close();
        let free = self.on(node);
        self.index.to_mut().replace(node, Some((self.pool.class(node), &free)), None);
        self.apart.insert(node);
    }

    /// Brings the index in line with the node that was used last.
    fn close(&mut self) {
        if let Some(Open { node, shown, free }) = self.open.take() {
            let class = self.pool.class(node);
            self.index.to_mut().replace(node, Some((class, &shown)), Some((class, &free)));
            self.changed.insert(node, free);
        }
    }
}
