//! The reservation of the first waiting job: its nodes, its latest start, and what may run there before.
//!
//! The job gets the nodes where it can start first, assuming that running tasks end by their time limits. A job on several nodes starts
//! when the last of them is free for it. Other tasks may use the rest of the cluster freely. On a reserved node, a task may start if it
//! ends by its own time limit before the reservation, or fits into what the reserved job leaves free.
//!
//! The end of running tasks may be unknown, because some have no time limit. Then the nodes that are closest to having enough free, once
//! all tasks with a time limit have ended, are kept for the job: they get only tasks with a time limit until it has started. Otherwise the
//! job could wait forever. The shortest distances only shrink from pass to pass, so the job eventually starts, even if the closest nodes
//! change: at the latest when those tasks have ended that had started before the last endless task in its way ended.

use std::collections::{BTreeMap, BTreeSet};

use hostler_model::{JobId, Request, Timestamp};

use crate::amount::{NOTHING, at_most, distance, sum, times, without};
use crate::fit::{Class, Fit};
use crate::{NodeIx, Pool, Waiting};

/// Nodes that are reserved for a waiting job from a time on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reservation {
    /// The job's id.
    pub job: JobId,
    /// The reserved nodes, as many as the job requests.
    pub nodes: Vec<NodeIx>,
    /// The latest time at which the job starts, if running tasks keep their time limits and the nodes stay up.
    /// [`Timestamp::NEVER`] if it depends on tasks without a time limit.
    pub at: Timestamp,
}

/// An allocation of resources on a node, with its latest end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Running {
    /// The node's number.
    pub node: NodeIx,
    /// The allocated resources.
    pub request: Request,
    /// The latest end of the allocation; [`Timestamp::NEVER`] without a time limit. If it is in the past, the task
    /// should end at any moment.
    pub ends_at: Timestamp,
}

/// A reservation during a pass: the time, the nodes, and what other tasks may still use on these nodes.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) at: Timestamp,
    shares: BTreeMap<NodeIx, Share>,
    /// Reserved nodes on which a task may still start now.
    open: BTreeSet<NodeIx>,
}

/// A node of a reservation.
#[derive(Debug, Clone)]
pub(crate) struct Share {
    pub(crate) node: NodeIx,
    /// The resources on the node that remain free when the reserved task has started.
    spare: Request,
}

impl Slot {
    /// Finds the nodes and the time at which one task of the job can start first. `None` if too few usable nodes could
    /// ever run the task. `free_on` returns the free resources of a node; `running` has all allocations.
    pub(crate) fn find<'a>(
        pool: &Pool,
        free_on: impl Fn(NodeIx) -> Request,
        job: &Waiting,
        running: impl Iterator<Item = &'a Running>,
        now: Timestamp,
    ) -> Option<Self> {
        let Waiting { request, nodes, .. } = job;
        let need = |ix| pool.need_of(job, ix);
        let is_candidate =
            |ix| job.may_use(ix) && pool.node(ix).is_some_and(|node| node.is_usable && node.total.covers(request));
        let ends = EndsByNode::new(pool.slots(), running.filter(|task| is_candidate(task.node)));
        let candidates = pool.nodes().map(|(ix, _)| ix).filter(|ix| is_candidate(*ix));
        let ranked = candidates.map(|ix| {
            let total = &pool.expect(ix).total;
            rank(ix, pool.class(ix), total, &free_on(ix), need(ix), ends.of(ix), now)
        });
        let chosen = least(ranked, *nodes as usize)?;
        let at = chosen.iter().map(|(rank, _)| rank.at).max()?;
        let share = |(rank, spare): (Rank, Request)| {
            let node = rank.fit.node;
            // Nodes that are free earlier have even more free at the common start.
            let spare = if rank.at < at && at != Timestamp::NEVER {
                without(&free_at(&pool.expect(node).total, &free_on(node), ends.of(node), at), need(node))
            } else {
                spare
            };
            (node, Share { node, spare })
        };
        let shares: BTreeMap<NodeIx, Share> = chosen.into_iter().map(share).collect();
        Some(Self { at, open: shares.keys().copied().collect(), shares })
    }

    pub(crate) fn nodes(&self) -> impl Iterator<Item = NodeIx> {
        self.shares.keys().copied()
    }

    /// Iterates over the reserved nodes on which a task may still start now.
    pub(crate) fn open_nodes(&self) -> impl Iterator<Item = &Share> {
        self.open.iter().map(|node| &self.shares[node])
    }

    /// Returns how many tasks that end at `ends_at` may start on a reserved node now. The node has `free` resources
    /// free.
    pub(crate) fn room(&self, share: &Share, free: &Request, request: &Request, ends_at: Timestamp) -> u32 {
        if self.has_ended_before_start(ends_at) {
            times(free, request)
        } else {
            times(&at_most(free, &share.spare), request)
        }
    }

    /// Removes nodes from `open` on which no task can start.
    pub(crate) fn close(&mut self, free_on: impl Fn(NodeIx) -> Request) {
        self.open.retain(|node| free_on(*node).cpus > 0);
    }

    /// Returns whether no task can start on a reserved node, according to the last call of [`Self::close`].
    pub(crate) fn is_closed(&self) -> bool {
        self.open.is_empty()
    }

    /// Records that tasks have started on this node, reserved or not. The tasks hold `held` and end at `ends_at`.
    pub(crate) fn use_room(&mut self, node: NodeIx, held: &Request, ends_at: Timestamp) {
        if !self.has_ended_before_start(ends_at)
            && let Some(share) = self.shares.get_mut(&node)
        {
            share.spare = without(&share.spare, held);
        }
    }

    /// Returns whether a task with this end has ended before the reserved job starts. An unknown start is later than any known end.
    fn has_ended_before_start(&self, ends_at: Timestamp) -> bool {
        ends_at != Timestamp::NEVER && ends_at <= self.at
    }
}

/// Returns the `count` nodes with the lowest rank; `None` if there are fewer nodes.
fn least(ranked: impl Iterator<Item = (Rank, Request)>, count: usize) -> Option<Vec<(Rank, Request)>> {
    if count == 1 {
        return ranked.min_by_key(|(rank, _)| *rank).map(|least| vec![least]);
    }
    let mut all: Vec<(Rank, Request)> = ranked.collect();
    if all.len() < count {
        return None;
    }
    if all.len() > count {
        all.select_nth_unstable_by_key(count, |(rank, _)| *rank);
        all.truncate(count);
    }
    Some(all)
}

/// The rank of a node for a reservation; the lowest is the best. Fields are compared in order of declaration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    /// When the job can start on the node.
    at: Timestamp,
    /// How much the node lacks of the request when all tasks with a known end have ended. Zero if the start time is known.
    distance: u32,
    /// The node's position in best-fit order, by the resources that are free at the start.
    fit: Fit,
}

/// Ranks a node that is large enough. Also returns the resources that remain free beside the request.
fn rank(
    node: NodeIx,
    class: Class,
    total: &Request,
    free_now: &Request,
    request: &Request,
    ends: &[&Running],
    now: Timestamp,
) -> (Rank, Request) {
    let mut free = free_now.clone();
    let mut at = now;
    for task in ends {
        if free.covers(request) && task.ends_at > at {
            break;
        }
        at = at.max(task.ends_at);
        // A returning node may be smaller than its allocations.
        free = at_most(&sum(&free, &task.request), total);
    }
    if free.covers(request) {
        return (Rank { at, distance: 0, fit: Fit::new(node, class, &free) }, without(&free, request));
    }
    let distance = distance(&free, request);
    (Rank { at: Timestamp::NEVER, distance, fit: Fit::new(node, class, &free) }, NOTHING)
}

/// Returns the resources of a node that are free at a time.
fn free_at(total: &Request, free_now: &Request, ends: &[&Running], at: Timestamp) -> Request {
    let over = ends.iter().take_while(|task| task.ends_at <= at);
    over.fold(free_now.clone(), |free, task| at_most(&sum(&free, &task.request), total))
}

/// Allocations with a known end, grouped by node and sorted by end.
struct EndsByNode<'a> {
    ends: Vec<&'a Running>,
    /// Where the allocations of each node begin in `ends`. The last entry is the length of `ends`.
    begins: Vec<usize>,
}

impl<'a> EndsByNode<'a> {
    /// Groups allocations by node, then sorts each group. Groups are small, so this is faster than sorting everything.
    fn new(slots: usize, running: impl Iterator<Item = &'a Running>) -> Self {
        let known: Vec<&Running> = running.filter(|task| task.ends_at != Timestamp::NEVER).collect();
        let mut begins = vec![0; slots + 1];
        for task in &known {
            begins[task.node.0 as usize + 1] += 1;
        }
        for slot in 0..slots {
            begins[slot + 1] += begins[slot];
        }
        let mut next = begins.clone();
        let mut ends = known.clone();
        for task in known {
            let next = &mut next[task.node.0 as usize];
            ends[*next] = task;
            *next += 1;
        }
        for slot in 0..slots {
            ends[begins[slot]..begins[slot + 1]].sort_unstable_by_key(|task| task.ends_at);
        }
        Self { ends, begins }
    }

    fn of(&self, node: NodeIx) -> &[&'a Running] {
        let slot = node.0 as usize;
        &self.ends[self.begins[slot]..self.begins[slot + 1]]
    }
}
