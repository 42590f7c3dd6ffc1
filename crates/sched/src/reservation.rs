//! The reservation of a job that waits first: where it will start, by when, and what may run beside it.
//!
//! The job starts where it can start first, counting on what runs there to end by its time limit. A job on several nodes starts when
//! the last of those nodes is free for it. Tasks may use the rest of the cluster freely: only on reserved nodes can they be in the
//! way. There they may start if they end by their own time limit before the reservation, or fit into what the reserved job will
//! leave over.
//!
//! When a node's running tasks are not known to end early enough, because some have no time limit, the nodes that come closest to
//! having enough free are kept for the job and take no other work until the job has started. That may leave some of them idle,
//! but anything else could make the job wait for ever. The shortest distances can only shrink from pass to pass, so the job does
//! get there, even when the closest nodes change.

use std::collections::{BTreeMap, BTreeSet};

use hostler_model::{JobId, Request, Timestamp};

use crate::amount::{NOTHING, at_most, distance, sum, times, without};
use crate::fit::{Class, Fit};
use crate::{NodeIx, Pool, Waiting};

/// Where the first waiting job will start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reservation {
    /// The job.
    pub job: JobId,
    /// The nodes kept for it, as many as it asks for.
    pub nodes: Vec<NodeIx>,
    /// When it starts at the latest if every running task keeps its time limit and the nodes stay up; [`Timestamp::NEVER`] when
    /// that cannot be known because of tasks without a time limit.
    pub at: Timestamp,
}

/// Something that holds resources on a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Running {
    /// The node.
    pub node: NodeIx,
    /// What it holds there.
    pub request: Request,
    /// When it will have ended at the latest, [`Timestamp::NEVER`] without a time limit. One that should have ended already is
    /// expected to end at any moment.
    pub ends_at: Timestamp,
}

/// A reservation in the making: the nodes, the time, and what other tasks may still take there.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) at: Timestamp,
    shares: BTreeMap<NodeIx, Share>,
    /// Nodes on which something may still start.
    open: BTreeSet<NodeIx>,
}

/// One reserved node.
#[derive(Debug, Clone)]
pub(crate) struct Share {
    pub(crate) node: NodeIx,
    /// What will be left over there when the reserved task has started.
    spare: Request,
}

impl Slot {
    /// The best slot for one task of the job, or `None` if too few usable nodes could ever run it. `free_on` says what is free on a node now, and `running` what holds the rest.
    pub(crate) fn find<'a>(
        pool: &Pool,
        free_on: impl Fn(NodeIx) -> Request,
        job: &Waiting,
        running: impl Iterator<Item = &'a Running>,
        now: Timestamp,
    ) -> Option<Self> {
        let Waiting { request, nodes, .. } = job;
        let is_candidate =
            |ix| job.may_use(ix) && pool.node(ix).is_some_and(|node| node.is_usable && node.total.covers(request));
        let ends = EndsByNode::new(pool.slots(), running.filter(|task| is_candidate(task.node)));
        let candidates = pool.nodes().map(|(ix, _)| ix).filter(|ix| is_candidate(*ix));
        let ranked = candidates.map(|ix| {
            let total = &pool.expect(ix).total;
            rank(ix, pool.class(ix), total, &free_on(ix), request, ends.of(ix), now)
        });
        let chosen = least(ranked, *nodes as usize)?;
        let at = chosen.iter().map(|(rank, _)| rank.at).max()?;
        let share = |(rank, spare): (Rank, Request)| {
            let node = rank.fit.node;
            // On nodes that are free for it earlier, more will have ended by then.
            let spare = if rank.at < at && at != Timestamp::NEVER {
                without(&free_at(&pool.expect(node).total, &free_on(node), ends.of(node), at), request)
            } else {
                spare
            };
            (node, Share { node, spare })
        };
        let shares: BTreeMap<NodeIx, Share> = chosen.into_iter().map(share).collect();
        Some(Self { at, open: shares.keys().copied().collect(), shares })
    }

    /// The reserved nodes.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = NodeIx> {
        self.shares.keys().copied()
    }

    /// The reserved nodes on which something may still start.
    pub(crate) fn open_nodes(&self) -> impl Iterator<Item = &Share> {
        self.open.iter().map(|node| &self.shares[node])
    }

    /// How many tasks that end at `ends_at` may start on a reserved node at this moment, with `free` free there now.
    pub(crate) fn room(&self, share: &Share, free: &Request, request: &Request, ends_at: Timestamp) -> u32 {
        if self.is_clear_of(ends_at) { times(free, request) } else { times(&at_most(free, &share.spare), request) }
    }

    /// Looks no more at nodes on which nothing can start any more, with what is free there now.
    pub(crate) fn close(&mut self, free_on: impl Fn(NodeIx) -> Request) {
        let (is_unknown, shares) = (self.at == Timestamp::NEVER, &self.shares);
        self.open.retain(|node| free_on(*node).cpus > 0 && !(is_unknown && shares[node].spare.cpus == 0));
    }

    /// Whether nothing can start on any reserved node any more, as [`Self::close`] last saw it.
    pub(crate) fn is_closed(&self) -> bool {
        self.open.is_empty()
    }

    /// Notes that tasks that end at `ends_at` have been started on these nodes, reserved or not, and hold `held` on each.
    pub(crate) fn use_room(&mut self, nodes: &[NodeIx], held: &Request, ends_at: Timestamp) {
        if !self.is_clear_of(ends_at) {
            for node in nodes {
                if let Some(share) = self.shares.get_mut(node) {
                    share.spare = without(&share.spare, held);
                }
            }
        }
    }

    /// Whether a task that ends then is gone when the reserved job starts.
    fn is_clear_of(&self, ends_at: Timestamp) -> bool {
        self.at != Timestamp::NEVER && ends_at <= self.at
    }
}

/// The `count` least of the ranked nodes, or `None` when there are fewer.
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

/// How good a node is for the reserved job. Fields are compared in the order in which they stand here; the least is the best.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    /// When the job can start there.
    at: Timestamp,
    /// If that is not known: how far the node is from having enough free now.
    distance: u32,
    /// Best fit, by what is free there at that time.
    fit: Fit,
}

/// Ranks a node that is large enough, and says what the request will leave over there.
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
        // A node may have come back smaller than what it still runs.
        free = at_most(&sum(&free, &task.request), total);
    }
    if free.covers(request) {
        return (Rank { at, distance: 0, fit: Fit::new(node, class, &free) }, without(&free, request));
    }
    let distance = distance(free_now, request);
    (Rank { at: Timestamp::NEVER, distance, fit: Fit::new(node, class, free_now) }, NOTHING)
}

/// What will be free on a node at that time.
fn free_at(total: &Request, free_now: &Request, ends: &[&Running], at: Timestamp) -> Request {
    let over = ends.iter().take_while(|task| task.ends_at <= at);
    over.fold(free_now.clone(), |free, task| at_most(&sum(&free, &task.request), total))
}

/// What runs and is known to end, node by node in the order of time.
struct EndsByNode<'a> {
    ends: Vec<&'a Running>,
    /// Where the ends of each node begin in `ends`, and at last where those of the last node end.
    begins: Vec<usize>,
}

impl<'a> EndsByNode<'a> {
    /// Distributes what runs over `slots` nodes. Each node's share is small, so this is quicker than to sort everything.
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
