//! The order in which a pass takes waiting jobs: users of equal priority take turns.
//!
//! The next task is of the user who holds the smallest share of the cluster, counting what the pass itself has started by then; or of
//! one who has waited very long without a start: see [`Turn`]. The jobs of one user are in order of submission. Nothing is stored: the
//! order follows from what waits and what runs.
//!
//! A job that does not fit has nodes reserved in the passes in which its turn comes first. That it has waited very long ends only with
//! a start, so it keeps its nodes from then on, and the others, who hold less because nodes are kept free, cannot take them.

use std::collections::{BTreeMap, BTreeSet};

use hostler_model::{JobId, Timestamp};
use hostler_sched::{Holding, Queue, Share, Start, Waiting};

use super::job::Job;
use super::queue::{Jobs, Levels, Rank, Started, Turn, UserIx};
use super::requests::{waiting, within_quota};
use crate::head::state::State;
use crate::head::users::quotas::Budget;

/// The waiting jobs during a pass.
pub(in crate::head) struct Turns<'a> {
    state: &'a State,
    now: Timestamp,
    budget: Option<Budget<'a>>,
    levels: Levels<'a>,
    /// What the pass has started, by user.
    started: BTreeMap<UserIx, Started>,
    starts: u64,
    /// The priority of this level.
    rank: Option<Rank>,
    /// The users of this level.
    users: BTreeMap<UserIx, Line<'a>>,
    /// The users with jobs, by their turn, without `current`.
    order: BTreeSet<(Turn, UserIx)>,
    /// The user whose turn it is.
    current: Option<UserIx>,
    offer: Option<Offer>,
}

/// The jobs of a user in this level.
struct Line<'a> {
    /// The user's next job and the turn that the user has with it, and how many tasks of it are left; `None` if no job is left.
    next: Option<Next<'a>>,
    rest: Jobs<'a>,
}

#[derive(Clone, Copy)]
struct Next<'a> {
    job: &'a Job,
    turn: Turn,
    left: u64,
}

/// The job that was returned last.
struct Offer {
    user: UserIx,
    job: JobId,
    /// How many of its tasks the scheduler has got, of how many.
    tasks: u64,
    left: u64,
}

impl<'a> Turns<'a> {
    pub(in crate::head) fn of(state: &'a State, now: Timestamp) -> Self {
        Self {
            state,
            now,
            budget: Budget::of(state),
            levels: state.queue_levels(now),
            started: BTreeMap::new(),
            starts: 0,
            rank: None,
            users: BTreeMap::new(),
            order: BTreeSet::new(),
            current: None,
            offer: None,
        }
    }

    /// Notes what has started of the job that was returned last.
    fn settle(&mut self, started: &[Start]) {
        let Some(offer) = self.offer.take() else { return };
        let job = self.job(offer.job);
        let tasks: u64 = started.iter().map(|start| u64::from(start.count)).sum();
        if tasks > 0 {
            self.starts += 1;
            let before = self.started.entry(offer.user).or_default();
            (before.number, before.rank) = (self.starts, self.rank);
            for start in started {
                for node in &start.nodes {
                    let of_node = || self.state.names.get(node).and_then(|name| self.state.node(name));
                    match of_node().filter(|_| job.spec.surroundings.exclusive) {
                        Some(node) => before.held.add(&node.total(), start.count.into()),
                        None => before.held.add(&job.spec.request, start.count.into()),
                    }
                }
            }
        }
        let is_refused = tasks < offer.tasks;
        if is_refused && let Some(budget) = &mut self.budget {
            // The quota is kept for tasks that may run but do not fit, so that the user's later jobs do not use it up.
            budget.keep(job, offer.left - offer.tasks);
        }
        let left = if is_refused { 0 } else { offer.left - tasks };
        self.go_on(offer.user, (left > 0).then_some((job, left)));
    }

    fn job(&self, id: JobId) -> &'a Job {
        self.state.job(id).expect("the queue has live jobs")
    }

    /// Goes on with what is left of the user's job, or with the user's next job.
    fn go_on(&mut self, user: UserIx, with: Option<(&'a Job, u64)>) {
        let state = self.state;
        let line = self.users.get_mut(&user).expect("the user is in this level");
        let mut rest = line.rest.by_ref().filter_map(|id| state.job(id)).map(|job| (&**job, job.startable()));
        let next = with.or_else(|| rest.find(|(_, left)| *left > 0));
        line.next = next.map(|(job, left)| Next {
            job,
            turn: state.turn_with(user, job, self.started.get(&user), self.now),
            left,
        });
    }

    /// Lets the users of the next level take turns; returns whether there is one.
    fn enter(&mut self) -> bool {
        let Some(level) = self.levels.next() else { return false };
        self.rank = Some(level.rank);
        self.users = level.users.into_iter().map(|(user, rest)| (user, Line { next: None, rest })).collect();
        let users: Vec<UserIx> = self.users.keys().copied().collect();
        users.into_iter().for_each(|user| self.go_on(user, None));
        let turn = |(user, line): (&UserIx, &Line<'_>)| line.next.map(|next| (next.turn, *user));
        self.order = self.users.iter().filter_map(turn).collect();
        true
    }

    /// Returns the user whose turn it is, with the next job; `None` if no job is left in this level.
    fn whose_turn(&mut self) -> Option<(UserIx, Next<'a>)> {
        if let Some(user) = self.current.take()
            && let Some(next) = self.users[&user].next
        {
            self.order.insert((next.turn, user));
        }
        let (_, user) = self.order.pop_first()?;
        self.current = Some(user);
        Some((user, self.users[&user].next.expect("a user without jobs is not in the order")))
    }

    /// Returns the next job of the user whose turn it is, with the tasks that may start before the turn passes to another. `None` if a
    /// quota allows none of them.
    fn offer(&mut self, user: UserIx, Next { job, turn, left }: Next<'a>) -> Option<Waiting> {
        let tasks = match self.order.first() {
            Some((other, _)) if left > 1 => {
                let until = |(own, other): (Share, _)| own.tasks_until(other, self.share_of_task(job));
                left.min(turn.share.zip(other.share).map_or(1, until))
            }
            _ => left,
        };
        let asked = Waiting { tasks, ..waiting(self.state, job) };
        let granted = within_quota(asked, job, self.budget.as_mut());
        let Some(granted) = granted else {
            self.go_on(user, None);
            return None;
        };
        // With fewer than it may start, the job has used up its quota.
        let left = if granted.tasks < tasks { granted.tasks } else { left };
        self.offer = Some(Offer { user, job: job.id, tasks: granted.tasks, left });
        Some(granted)
    }

    /// The share that one task has of the cluster. It is unknown for an exclusive task, which then counts as everything.
    fn share_of_task(&self, job: &Job) -> Share {
        if job.spec.surroundings.exclusive {
            return Share::MAX;
        }
        let mut each = Holding::default();
        each.add(&job.spec.request, job.spec.nodes.into());
        self.state.share_of(&each)
    }
}

impl Queue for Turns<'_> {
    fn next(&mut self, started: &[Start]) -> Option<Waiting> {
        self.settle(started);
        loop {
            match self.whose_turn() {
                Some((user, next)) => {
                    if let Some(waiting) = self.offer(user, next) {
                        return Some(waiting);
                    }
                }
                None if self.enter() => {}
                None => return None,
            }
        }
    }
}
