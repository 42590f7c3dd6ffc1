//! The plan: which tasks start now, and where.
//!
//! The pass takes jobs in queue order, and places each task on the node that fits best. The first job that does not fit gets a
//! reservation. Under [`Policy::Fcfs`], no job behind it starts. Under [`Policy::Easy`], a task starts if it cannot delay the reservation
//! (see [`crate::Reservation`]). Under [`Policy::Greedy`], nothing is reserved: each task that fits starts.
//!
//! A job is behind a blocked job only if both may use a common node. So another partition is independent: its first job that does not
//! fit gets its own reservation, and small jobs cannot delay it forever.
//!
//! A job that no usable node could run even if idle waits for a node to return. All policies skip it, since stopping the queue for it
//! would help no job.
//!
//! A job that cannot start costs little, and a pass ends as soon as nothing is free. The cost never grows with nodes times jobs.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hostler_model::{Request, Timestamp};

use crate::amount::{scaled, times, without};
use crate::fit::{Fit, FitIndex};
use crate::reservation::Slot;
use crate::{NodeIx, NodeSet, Policy, Pool, Queue, Reservation, Running, Start, Waiting};

/// The maximum number of reservations at the same time.
const MAX_RESERVATIONS: usize = 64;

/// The tasks that start now, and the jobs that must wait.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// Tasks to start, in the order of the decisions.
    pub starts: Vec<Start>,
    /// The reservations of jobs that do not fit now. The first job that does not fit gets a reservation, and so does
    /// each later job that shares no node with an earlier reservation. Empty if every examined job starts, or waits for
    /// a node to return.
    pub blocked: Vec<Reservation>,
    /// How many jobs the pass examined.
    pub examined: usize,
}

/// Plans which tasks start now, and which jobs get a reservation.
///
/// `queue` gives the jobs in scheduling order. `running` must return all allocations in the pool, and is called only if a job must
/// wait. An allocation that is missing in the result counts as having no time limit.
pub fn plan<R: IntoIterator<Item = Running>>(
    pool: &Pool,
    mut queue: impl Queue,
    running: impl FnOnce() -> R,
    policy: Policy,
    now: Timestamp,
) -> Plan {
    let mut pass = Pass::new(pool, now);
    if let Some(first) = pass.start_in_order(&mut queue, policy) {
        pass.running = running().into_iter().collect();
        pass.reserve(&first);
        pass.start_around_reservations(&mut queue, policy);
    }
    pass.plan
}

/// The state of one pass over the queue.
struct Pass<'a> {
    pool: &'a Pool,
    now: Timestamp,
    free: Free<'a>,
    /// Allocations that existed before the pass. Loaded only when a job must wait.
    running: Vec<Running>,
    /// Allocations of tasks that this pass starts.
    placed: Vec<Running>,
    /// Reservations for jobs that must wait. No two share a node.
    reserved: Vec<Reserved>,
    /// Requests that did not fit in this pass, by whether they are for idle nodes only, and the address of the node set
    /// of the job, or null. A request that covers one of them does not fit either, since free resources only shrink
    /// during a pass.
    ///
    /// Only requests with GPUs, counted resources or a node set, or for idle nodes, are cached; for others, the index is
    /// as fast. No result depends on the order of the addresses.
    refused: BTreeMap<(bool, *const NodeSet), Vec<Request>>,
    plan: Plan,
    /// How many starts of the plan the queue knows.
    told: usize,
}

struct Reserved {
    /// The nodes that the job may use.
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
            told: 0,
        }
    }

    /// Tells the queue what has started of the last job, and returns the next job.
    fn next(&mut self, queue: &mut impl Queue) -> Option<Waiting> {
        let started = &self.plan.starts[self.told..];
        self.told = self.plan.starts.len();
        queue.next(started)
    }

    /// Starts jobs until one does not fit, and returns that job. Under [`Policy::Greedy`], goes on until nothing is free.
    fn start_in_order(&mut self, queue: &mut impl Queue, policy: Policy) -> Option<Waiting> {
        while let Some(job) = self.next(queue) {
            self.plan.examined += 1;
            let mut left = job.tasks;
            while left > 0 {
                let Some(nodes) = self.choose(&job) else { break };
                left -= self.start(&job, nodes, left, u32::MAX);
            }
            match policy {
                Policy::Greedy if self.free.is_exhausted() => break,
                Policy::Fcfs | Policy::Easy if left > 0 && self.pool.could_run(&job) => return Some(job),
                _ => {}
            }
        }
        None
    }

    /// Reserves nodes for a job that does not fit now but that usable nodes could run once tasks end.
    fn reserve(&mut self, job: &Waiting) {
        let running = self.running.iter().chain(&self.placed);
        let free_on = |ix| self.free.on(ix);
        let slot = Slot::find(self.pool, free_on, job, running, self.now)
            .expect("enough usable nodes are large enough for the job");
        slot.nodes().for_each(|node| self.free.set_apart(node));
        self.plan.blocked.push(Reservation { job: job.job, nodes: slot.nodes().collect(), at: slot.at });
        self.reserved.push(Reserved { among: job.among.clone(), slot });
    }

    /// Starts tasks that cannot delay a reservation. Reserves nodes for jobs that share no node with an earlier
    /// reservation.
    fn start_around_reservations(&mut self, queue: &mut impl Queue, policy: Policy) {
        while let Some(job) = self.next(queue) {
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

    /// Returns whether a job with a reservation may use a node that this job may use.
    fn is_behind(&self, job: &Waiting) -> bool {
        self.reserved.iter().any(|reserved| share_nodes(&reserved.among, &job.among))
    }

    /// Starts as many of a job's tasks as possible without delaying a reservation; returns how many are left.
    fn start_beside(&mut self, job: &Waiting) -> u64 {
        let ends_at = self.ends_at(job);
        let mut left = job.tasks;
        while left > 0 {
            let Some((nodes, room)) = self.choose_beside(job, ends_at) else { break };
            let count = self.start(job, nodes.clone(), left, room);
            for node in nodes {
                let held = scaled(self.pool.need_of(job, node), count as u32);
                self.reserved.iter_mut().for_each(|reserved| reserved.slot.use_room(node, &held, ends_at));
            }
            left -= count;
        }
        left
    }

    /// Returns the best nodes for a task, as many as it requests; `None` if there are too few.
    fn choose(&mut self, job: &Waiting) -> Option<Vec<NodeIx>> {
        let fits = self.best_of(job);
        (fits.len() == job.nodes as usize).then(|| fits.into_iter().map(|fit| fit.node).collect())
    }

    /// Returns the best nodes for a task, at most as many as it requests.
    fn best_of(&mut self, job: &Waiting) -> Vec<Fit> {
        let Waiting { request, among, exclusive, .. } = job;
        if among.is_none() && request.rare_kinds() == 0 && !exclusive {
            return self.free.best_of(job);
        }
        let set = among.as_ref().map_or(std::ptr::null(), Arc::as_ptr);
        let refused = self.refused.entry((*exclusive, set)).or_default();
        if refused.iter().any(|refused| request.covers(refused)) {
            return Vec::new();
        }
        let fits = if *exclusive { self.free.idle_of(job) } else { self.free.best_of(job) };
        if fits.is_empty() {
            refused.retain(|refused| !refused.covers(request));
            refused.push(request.clone());
        }
        fits
    }

    /// Returns the best nodes on which a task cannot delay a reservation, and how many such tasks may start there.
    fn choose_beside(&mut self, job: &Waiting, ends_at: Timestamp) -> Option<(Vec<NodeIx>, u32)> {
        let shares =
            self.reserved.iter().flat_map(|Reserved { slot, .. }| slot.open_nodes().map(move |share| (slot, share)));
        let is_large = |node| !job.exclusive || self.pool.expect(node).total.covers(&job.request);
        let may_use = |node| job.may_use(node) && is_large(node);
        let beside = shares.filter(|(_, share)| may_use(share.node)).filter_map(|(slot, share)| {
            let free = self.free.on(share.node);
            let room = slot.room(share, &free, self.pool.need_of(job, share.node), ends_at);
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

    /// Starts as many of the `left` tasks as fit on the nodes, at most `room`, and returns how many. At least one must
    /// fit.
    ///
    /// After a task starts on the best nodes, they remain the best, because best fit prefers fuller nodes.
    fn start(&mut self, job: &Waiting, nodes: Vec<NodeIx>, left: u64, room: u32) -> u64 {
        let pool = self.pool;
        let fitting = nodes.iter().map(|node| times(&self.free.on(*node), pool.need_of(job, *node))).min();
        let count = fitting.unwrap_or(0).min(room).min(u32::try_from(left).unwrap_or(u32::MAX));
        let ends_at = self.ends_at(job);
        for &node in &nodes {
            let held = scaled(pool.need_of(job, node), count);
            self.free.take(node, &held);
            self.placed.push(Running { node, request: held, ends_at });
        }
        self.plan.starts.push(Start { job: job.job, nodes, count });
        u64::from(count)
    }

    /// Returns the latest end of a task that starts now: now plus the task's time limit, or never.
    fn ends_at(&self, job: &Waiting) -> Timestamp {
        job.time_limit_ms.map_or(Timestamp::NEVER, |limit| self.now.plus_ms(limit))
    }
}

/// Returns whether two node sets have a node in common. An absent set contains all nodes.
fn share_nodes(one: &Option<Arc<NodeSet>>, other: &Option<Arc<NodeSet>>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => Arc::ptr_eq(one, other) || one.intersects(other),
        _ => true,
    }
}

/// Free resources during the pass. Reads use the pool's own index until the first change, then a copy.
///
/// The next task probably uses the same node as the last one, so the index is updated only when another node is used.
/// Until then, the index shows too many free resources on the last node, and [`Self::best`] corrects for that. A pass
/// with one start therefore copies nothing, and many small tasks update the index once per node.
struct Free<'a> {
    pool: &'a Pool,
    index: Cow<'a, FitIndex>,
    /// The nodes that are still idle; `None` until a job needs one.
    idle: Option<FitIndex>,
    /// The free resources of the nodes that this pass used, except the last one.
    changed: BTreeMap<NodeIx, Request>,
    /// The node that was used last, with its current free resources.
    open: Option<Open>,
    /// Nodes that [`Self::best`] must not return.
    apart: BTreeSet<NodeIx>,
}

/// A node whose free resources have changed since the index was updated.
struct Open {
    node: NodeIx,
    shown: Request,
    free: Request,
}

impl<'a> Free<'a> {
    fn new(pool: &'a Pool) -> Self {
        let index = Cow::Borrowed(&pool.free);
        Self { pool, index, idle: None, changed: BTreeMap::new(), open: None, apart: BTreeSet::new() }
    }

    fn best(&mut self, job: &Waiting) -> Option<Fit> {
        let Waiting { request, .. } = job;
        let shown = self.index.best(request, job.allowed_nodes())?;
        match &self.open {
            Some(open) if open.free.covers(request) && job.may_use(open.node) => {
                Some(shown.min(Fit::new(open.node, self.pool.class(open.node), &open.free)))
            }
            Some(open) if open.node == shown.node => {
                self.close();
                self.index.best(request, job.allowed_nodes())
            }
            _ => Some(shown),
        }
    }

    /// Returns the best nodes for the job, at most as many as it requests.
    fn best_of(&mut self, job: &Waiting) -> Vec<Fit> {
        if job.nodes == 1 {
            return self.best(job).into_iter().collect();
        }
        self.close();
        self.index.all(&job.request, job.allowed_nodes()).take(job.nodes as usize).collect()
    }

    /// Returns the best idle nodes for a job that needs its nodes to itself, at most as many as it requests.
    fn idle_of(&mut self, job: &Waiting) -> Vec<Fit> {
        if self.idle.is_none() {
            self.idle = Some(self.pool.idle.clone());
            let open = self.open.as_ref().map(|open| open.node);
            let used: Vec<NodeIx> = self.changed.keys().chain(&self.apart).copied().chain(open).collect();
            used.into_iter().for_each(|node| self.forget_idle(node));
        }
        let idle = self.idle.as_ref().expect("just created");
        idle.all(&job.request, job.allowed_nodes()).take(job.nodes as usize).collect()
    }

    /// Removes a node from the idle nodes, if it is one of them.
    fn forget_idle(&mut self, node: NodeIx) {
        let known = self.pool.expect(node);
        if let Some(idle) = self.idle.as_mut().filter(|_| known.is_usable && known.is_idle()) {
            idle.discard(node, self.pool.class(node), &known.total);
        }
    }

    /// Returns the free resources of a node.
    fn on(&self, node: NodeIx) -> Request {
        match &self.open {
            Some(open) if open.node == node => open.free.clone(),
            _ => self.changed.get(&node).unwrap_or_else(|| &self.pool.expect(node).free).clone(),
        }
    }

    /// Returns whether no node that [`Self::best`] can return has free CPUs. The result does not consider the last
    /// change yet.
    fn is_exhausted(&self) -> bool {
        self.index.most_cpus() == 0
    }

    /// Subtracts resources from the free resources of a node.
    fn take(&mut self, node: NodeIx, held: &Request) {
        self.forget_idle(node);
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

    /// Makes [`Self::best`] skip a node.
    fn set_apart(&mut self, node: NodeIx) {
        self.close();
        self.forget_idle(node);
        let free = self.on(node);
        self.index.to_mut().replace(node, Some((self.pool.class(node), &free)), None);
        self.apart.insert(node);
    }

    /// Updates the index with the free resources of the node that was used last.
    fn close(&mut self) {
        if let Some(Open { node, shown, free }) = self.open.take() {
            let class = self.pool.class(node);
            self.index.to_mut().replace(node, Some((class, &shown)), Some((class, &free)));
            self.changed.insert(node, free);
        }
    }
}
