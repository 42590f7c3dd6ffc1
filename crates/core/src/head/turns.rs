//! The order in which a pass takes waiting jobs: users of equal priority take turns.
//!
//! The next task is of the user who holds the smallest share of the cluster, counting what the pass itself has started by then: see
//! [`Turn`]. The jobs of one user are in order of submission. Nothing is stored: the order follows from what waits and what runs.
//!
//! A job that is larger than each task whose end it waits for has its nodes reserved when its turn comes, and stays first among its
//! equals until a task of it starts. Otherwise the users who hold less, because nodes are kept free for it, would take them, and it might
//! never start.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use hostler_model::JobId;
use hostler_sched::{Holding, Queue, Share, Start, Waiting};

use super::job::Job;
use super::queue::{Jobs, Levels, Rank, Started, Turn, UserIx};
use super::quotas::Budget;
use super::schedule::{waiting, within_quota};
use super::state::State;

/// The waiting jobs during a pass.
pub(super) struct Turns<'a> {
    state: &'a State,
    budget: Option<Budget<'a>>,
    levels: Levels<'a>,
    /// Jobs that come first in their level, with one task each.
    kept: BTreeMap<Rank, VecDeque<JobId>>,
    /// How many tasks of each kept job are left after it came first.
    left: BTreeMap<JobId, u64>,
    /// What the pass has started, by user.
    started: BTreeMap<UserIx, Started>,
    starts: u64,
    /// Kept jobs of this level that have not come yet.
    first: VecDeque<JobId>,
    /// The users of this level, until its kept jobs have come.
    entering: Vec<(UserIx, Jobs<'a>)>,
    users: BTreeMap<UserIx, Line<'a>>,
    /// The users with jobs, by their turn, without `current`.
    order: BTreeSet<(Turn, UserIx)>,
    /// The user whose turn it is.
    current: Option<UserIx>,
    offer: Option<Offer>,
}

/// The jobs of a user in this level.
struct Line<'a> {
    /// The turn of the user, with the next job, and how many tasks of it are left. Zero if no job is left.
    turn: Turn,
    left: u64,
    rest: Jobs<'a>,
}

/// The job that was returned last.
struct Offer {
    user: UserIx,
    job: JobId,
    /// How many of its tasks the scheduler has got, of how many.
    tasks: u64,
    left: u64,
    is_kept: bool,
}

impl<'a> Turns<'a> {
    pub(super) fn of(state: &'a State) -> Self {
        let mut kept: BTreeMap<Rank, VecDeque<JobId>> = BTreeMap::new();
        let jobs = state.reservations.iter().filter(|it| it.gathers).filter_map(|it| state.job(it.job));
        for job in jobs.filter(|job| job.startable() > 0 && state.starts_jobs(job.spec.partition.as_ref())) {
            let rank = (Reverse(state.partition_priority(job)), Reverse(job.spec.priority));
            kept.entry(rank).or_default().push_back(job.id);
        }
        Self {
            state,
            budget: Budget::of(state),
            levels: state.queue_levels(),
            kept,
            left: BTreeMap::new(),
            started: BTreeMap::new(),
            starts: 0,
            first: VecDeque::new(),
            entering: Vec::new(),
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
            before.number = self.starts;
            for start in started {
                for node in &start.nodes {
                    let of_node = || self.state.names.get(node).and_then(|name| self.state.node(name));
                    match of_node().filter(|_| job.spec.exclusive) {
                        Some(node) => before.held.add(&node.total(), start.count.into()),
                        None => before.held.add(&job.spec.request, start.count.into()),
                    }
                }
            }
            if let Some(line) = self.users.get_mut(&offer.user) {
                line.turn = self.state.turn_with(offer.user, Some(before), line.turn.job);
            }
        }
        let is_refused = tasks < offer.tasks;
        if is_refused && let Some(budget) = &mut self.budget {
            // The quota is kept for tasks that may run but do not fit, so that the user's later jobs do not use it up.
            budget.grant(job, offer.left - offer.tasks);
        }
        let left = if is_refused { 0 } else { offer.left - tasks };
        match offer.is_kept {
            true => drop(self.left.insert(offer.job, left)),
            false if left > 0 => self.line(offer.user).left = left,
            false => self.advance(offer.user),
        }
    }

    fn job(&self, id: JobId) -> &'a Job {
        self.state.job(id).expect("the queue has live jobs")
    }

    fn line(&mut self, user: UserIx) -> &mut Line<'a> {
        self.users.get_mut(&user).expect("the user is in this level")
    }

    /// Goes to the user's next job.
    fn advance(&mut self, user: UserIx) {
        let (state, left) = (self.state, &self.left);
        let line = self.users.get_mut(&user).expect("the user is in this level");
        let tasks = |id| left.get(&id).copied().unwrap_or_else(|| state.job(id).map_or(0, |job| job.startable()));
        let next = line.rest.by_ref().map(|id| (id, tasks(id))).find(|(_, left)| *left > 0);
        (line.turn.job, line.left) = next.unwrap_or((line.turn.job, 0));
    }

    /// Lets the users of a level take turns.
    fn enter(&mut self, users: Vec<(UserIx, Jobs<'a>)>) {
        self.users.clear();
        for (user, rest) in users {
            let turn = self.state.turn_with(user, self.started.get(&user), JobId(0));
            self.users.insert(user, Line { turn, left: 0, rest });
            self.advance(user);
        }
        self.order =
            self.users.iter().filter(|(_, line)| line.left > 0).map(|(user, line)| (line.turn, *user)).collect();
    }

    /// Returns the user whose turn it is; `None` if no job is left in this level.
    fn whose_turn(&mut self) -> Option<UserIx> {
        if let Some(user) = self.current.take() {
            let Line { turn, left, .. } = *self.line(user);
            if left > 0 && self.order.first().is_none_or(|next| (turn, user) < *next) {
                self.current = Some(user);
                return self.current;
            }
            if left > 0 {
                self.order.insert((turn, user));
            }
        }
        self.current = self.order.pop_first().map(|(_, user)| user);
        self.current
    }

    /// Returns the next job of the user whose turn it is, with the tasks that may start before the turn passes to another. `None` if a
    /// quota allows none of them.
    fn offer_of(&mut self, user: UserIx) -> Option<Waiting> {
        let Line { turn, left, .. } = *self.line(user);
        let job = self.job(turn.job);
        let tasks = match self.order.first() {
            Some((other, _)) if left > 1 => left.min(turn.share.tasks_until(other.share, self.share_of_task(job))),
            _ => left,
        };
        self.offer(user, job, tasks, left, false)
    }

    /// Returns a kept job, with one task.
    fn offer_kept(&mut self, id: JobId) -> Option<Waiting> {
        let job = self.job(id);
        let user = self.state.number_of(&job.user)?;
        self.offer(user, job, 1, job.startable(), true)
    }

    fn offer(&mut self, user: UserIx, job: &'a Job, tasks: u64, left: u64, is_kept: bool) -> Option<Waiting> {
        let asked = Waiting { tasks, ..waiting(self.state, job) };
        let granted = within_quota(asked, job, self.budget.as_mut());
        let Some(granted) = granted else {
            match is_kept {
                true => drop(self.left.insert(job.id, 0)),
                false => self.advance(user),
            }
            return None;
        };
        // With fewer than it may start, the job has used up its quota.
        let left = if granted.tasks < tasks { granted.tasks } else { left };
        self.offer = Some(Offer { user, job: job.id, tasks: granted.tasks, left, is_kept });
        Some(granted)
    }

    /// The share that one task has of the cluster. It is unknown for an exclusive task, which then counts as everything.
    fn share_of_task(&self, job: &Job) -> Share {
        if job.spec.exclusive {
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
            if let Some(job) = self.first.pop_front() {
                if let Some(waiting) = self.offer_kept(job) {
                    return Some(waiting);
                }
                continue;
            }
            if !self.entering.is_empty() {
                let users = std::mem::take(&mut self.entering);
                self.enter(users);
            }
            match self.whose_turn() {
                Some(user) => {
                    if let Some(waiting) = self.offer_of(user) {
                        return Some(waiting);
                    }
                }
                None => {
                    let level = self.levels.next()?;
                    self.first = self.kept.remove(&level.rank).unwrap_or_default();
                    self.entering = level.users;
                }
            }
        }
    }
}
