//! The queue: startable jobs in scheduling order.
//!
//! Each partition has its own line. Jobs of equal priority are ordered by user: the users take turns, one job at a time, in the order of
//! [`Turn`]. The jobs of one user are in order of submission.
//!
//! This is the order for people and for rules that need one before a pass. A pass is more exact: see [`super::turns`].
//!
//! The queue counts the jobs of each user in blocks of neighbouring ids, and so finds a job's position without visiting every job ahead
//! of it. A list of thousands of waiting jobs can therefore show each job's position.

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::collections::btree_map::{self, BTreeMap};
use std::collections::btree_set::{self, BTreeSet};
use std::iter::Peekable;

use hostler_model::{JobId, PartitionName, Request, Timestamp};
use hostler_sched::{Holding, Share};

use super::job::Job;

/// How many ids a block spans. At 100 000 jobs, counting within a block then costs about as much as counting blocks.
const BLOCK: u64 = 256;

/// Time in milliseconds after which a user comes first, whatever others hold, if jobs wait and none has started. Without it, a user with
/// one long task could wait for ever: others hold nothing each time their short task has just ended, and would always come first.
const PATIENCE_MS: u64 = 60 * 60 * 1000;

/// Jobs ordered by priority of the partition, priority of the job, and turn of the user.
#[derive(Debug, Clone, Default)]
pub(in crate::head) struct Queue {
    users: Users,
    lines: BTreeMap<Option<PartitionName>, Line>,
}

/// How many jobs are ahead of a job in its partition.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ahead {
    /// Jobs with a higher priority.
    pub higher: u64,
    /// Earlier jobs of the same user, with the same priority.
    pub own: u64,
    /// Jobs of other users, with the same priority, whose turn comes first.
    pub others: u64,
    /// Users of equal priority who hold a smaller share of the cluster than the job's user.
    pub smaller: u64,
}

impl Ahead {
    /// The number of all jobs ahead.
    #[must_use]
    pub fn all(&self) -> u64 {
        self.higher + self.own + self.others
    }
}

/// The users who have or had a job in the queue or on a node, and what each holds. Users are few, so none is forgotten before the
/// head ends.
#[derive(Debug, Clone, Default)]
struct Users {
    numbers: BTreeMap<String, UserIx>,
    users: Vec<Holder>,
    /// The resources of all nodes.
    all: Holding,
    /// The number of starts since the head started. It is not stored: after a restart, users without a running task are equal.
    starts: u64,
}

/// A user's index in [`Users`]. No order that anybody sees depends on it, since it differs after a restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::head) struct UserIx(usize);

#[derive(Debug, Clone, Copy, Default)]
struct Holder {
    held: Holding,
    share: Share,
    /// The number of the user's last start; zero before the first.
    last_start: u64,
}

/// Whose turn it is: the user with the least. Fields are compared in order of declaration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::head) struct Turn {
    /// The user's share of the cluster; `None`, which sorts before all shares, if the jobs have waited for [`PATIENCE_MS`].
    pub(in crate::head) share: Option<Share>,
    /// The number of the user's last start. Of users with equal shares, such as those who hold nothing, the one whose last task started
    /// longest ago comes first: otherwise the tasks of an old array would always come before younger jobs.
    pub(in crate::head) last_start: u64,
    /// The user's next job.
    pub(in crate::head) job: JobId,
}

impl Users {
    /// Returns a user's number; creates it if needed.
    fn number(&mut self, user: &str) -> UserIx {
        // A lookup avoids copying the name.
        if let Some(number) = self.numbers.get(user) {
            return *number;
        }
        let number = UserIx(self.users.len());
        self.users.push(Holder::default());
        self.numbers.insert(user.to_owned(), number);
        number
    }

    /// Returns the turn of a user whose next job is the first of this lane, or this one.
    fn turn(&self, user: UserIx, job: JobId, lane: &Lane, now: Timestamp) -> Turn {
        let Holder { share, last_start, .. } = self.users[user.0];
        Turn { share: (!lane.is_overdue(now)).then_some(share), last_start, job }
    }
}

/// The queued jobs of one partition, or of all jobs without a partition. Kept even when it is empty.
#[derive(Debug, Clone, Default)]
struct Line {
    tier: i32,
    levels: BTreeMap<Reverse<i32>, Level>,
}

/// The jobs of one priority in a line, by user.
#[derive(Debug, Clone, Default)]
struct Level {
    lanes: BTreeMap<UserIx, Lane>,
    len: u64,
}

/// The jobs of one user in a level; at least one.
#[derive(Debug, Clone, Default)]
struct Lane {
    jobs: BTreeSet<JobId>,
    /// How many jobs there are, by block of ids.
    blocks: BTreeMap<u64, u64>,
    /// When a task of these jobs last started; before that, when the lane was created. Not stored.
    since: Timestamp,
}

impl Lane {
    fn is_overdue(&self, now: Timestamp) -> bool {
        now.ms_since(self.since) >= PATIENCE_MS
    }

    fn first(&self) -> JobId {
        *self.jobs.first().expect("a lane has at least one job")
    }

    /// Returns the number of jobs before this one.
    fn before(&self, job: JobId) -> u64 {
        let block = job.0 / BLOCK;
        let in_blocks: u64 = self.blocks.range(..block).map(|(_, count)| count).sum();
        in_blocks + self.jobs.range(JobId(block * BLOCK)..job).count() as u64
    }
}

impl Queue {
    pub(in crate::head) fn is_empty(&self) -> bool {
        self.lines.values().all(|line| line.levels.is_empty())
    }

    /// Iterates over the jobs of the `wanted` partitions, in the order of their positions.
    pub(in crate::head) fn iter(
        &self,
        wanted: impl Fn(Option<&PartitionName>) -> bool,
        now: Timestamp,
    ) -> impl Iterator<Item = JobId> {
        self.levels(wanted, now).flat_map(|level| Rotation(level.users.into_iter().map(|(_, jobs)| jobs).collect()))
    }

    /// Iterates over the levels of the `wanted` partitions, the highest priority first.
    pub(in crate::head) fn levels(
        &self,
        wanted: impl Fn(Option<&PartitionName>) -> bool,
        now: Timestamp,
    ) -> Levels<'_> {
        let lines = self.lines.iter().filter(|(partition, line)| !line.levels.is_empty() && wanted(partition.as_ref()));
        let lines = lines.map(|(_, line)| (Reverse(line.tier), line.levels.iter().peekable())).collect();
        Levels { users: &self.users, lines, now }
    }

    /// Inserts a job, and sets the priority of its partition; returns whether the job is new.
    pub(in crate::head) fn insert(&mut self, job: &Job, tier: i32, now: Timestamp) -> bool {
        let user = self.users.number(&job.user);
        // A lookup avoids copying the partition's name, except for the first job of a line.
        let line = match self.lines.get_mut(&job.spec.partition) {
            Some(line) => line,
            None => self.lines.entry(job.spec.partition.clone()).or_default(),
        };
        line.tier = tier;
        let level = line.levels.entry(Reverse(job.spec.priority)).or_default();
        let lane = level.lanes.entry(user).or_insert_with(|| Lane { since: now, ..Lane::default() });
        let is_new = lane.jobs.insert(job.id);
        if is_new {
            *lane.blocks.entry(job.id.0 / BLOCK).or_default() += 1;
            level.len += 1;
        }
        is_new
    }

    /// Removes a job, if it is in the queue.
    pub(in crate::head) fn remove(&mut self, job: &Job) {
        let Some(user) = self.users.numbers.get(&job.user) else { return };
        let Some(line) = self.lines.get_mut(&job.spec.partition) else { return };
        let Some(level) = line.levels.get_mut(&Reverse(job.spec.priority)) else { return };
        let Some(lane) = level.lanes.get_mut(user) else { return };
        if !lane.jobs.remove(&job.id) {
            return;
        }
        let count = lane.blocks.get_mut(&(job.id.0 / BLOCK)).expect("every queued job is counted in its block");
        *count -= 1;
        if *count == 0 {
            lane.blocks.remove(&(job.id.0 / BLOCK));
        }
        level.len -= 1;
        if lane.jobs.is_empty() {
            level.lanes.remove(user);
        }
        if level.lanes.is_empty() {
            line.levels.remove(&Reverse(job.spec.priority));
        }
    }

    /// Sets the priority of a partition.
    pub(in crate::head) fn set_tier(&mut self, partition: &PartitionName, tier: i32) {
        if let Some(line) = self.lines.get_mut(&Some(partition.clone())) {
            line.tier = tier;
        }
    }

    /// Returns the number of queued jobs in a partition.
    pub(in crate::head) fn len_of(&self, partition: &PartitionName) -> u64 {
        let line = self.lines.get(&Some(partition.clone()));
        line.map_or(0, |line| line.levels.values().map(|level| level.len).sum())
    }

    /// Returns how many jobs are ahead of `job` in its partition. The job need not be in the queue.
    ///
    /// The cost grows with the users in the partition, not with their jobs.
    pub(in crate::head) fn ahead_of(&self, job: &Job, now: Timestamp) -> Ahead {
        let Some(line) = self.lines.get(&job.spec.partition) else { return Ahead::default() };
        let priority = Reverse(job.spec.priority);
        let mut ahead =
            Ahead { higher: line.levels.range(..priority).map(|(_, level)| level.len).sum(), ..Ahead::default() };
        let Some(level) = line.levels.get(&priority) else { return ahead };
        let user = self.users.numbers.get(&job.user);
        let lane = user.and_then(|user| level.lanes.get(user));
        ahead.own = lane.map_or(0, |lane| lane.before(job.id));
        let first = lane.map_or(job.id, Lane::first).min(job.id);
        let Holder { share, last_start, .. } = user.map_or(Holder::default(), |user| self.users.users[user.0]);
        let is_overdue = lane.is_some_and(|lane| lane.is_overdue(now));
        let turn = Turn { share: (!is_overdue).then_some(share), last_start, job: first };
        for (other, lane) in level.lanes.iter().filter(|(other, _)| Some(*other) != user) {
            let theirs = self.users.turn(*other, lane.first(), lane, now);
            // They have had a turn for each of the user's own jobs ahead, and have another one if they come before the user.
            let turns = ahead.own + u64::from(theirs < turn);
            ahead.others += turns.min(lane.jobs.len() as u64);
            ahead.smaller += u64::from(self.users.users[other.0].share < share);
        }
        ahead
    }

    /// Sets the resources of all nodes, of which users hold shares.
    pub(in crate::head) fn set_all(&mut self, all: Holding) {
        if self.users.all != all {
            self.users.all = all;
            self.users.users.iter_mut().for_each(|user| user.share = user.held.share_of(&all));
        }
    }

    /// Records a start of a job on a node: its user holds this in addition.
    pub(in crate::head) fn hold(&mut self, job: &Job, held: &Request, now: Timestamp) {
        self.users.starts += 1;
        let last_start = self.users.starts;
        self.change_held(&job.user, |it| {
            it.held.add(held, 1);
            it.last_start = last_start;
        });
        let user = self.users.number(&job.user);
        let line = self.lines.get_mut(&job.spec.partition);
        let level = line.and_then(|line| line.levels.get_mut(&Reverse(job.spec.priority)));
        if let Some(lane) = level.and_then(|level| level.lanes.get_mut(&user)) {
            lane.since = now;
        }
    }

    /// Records that a user no longer holds this.
    pub(in crate::head) fn release(&mut self, user: &str, held: &Request) {
        self.change_held(user, |it| it.held.remove(held));
    }

    fn change_held(&mut self, user: &str, change: impl FnOnce(&mut Holder)) {
        let UserIx(at) = self.users.number(user);
        let (user, all) = (&mut self.users.users[at], &self.users.all);
        change(user);
        user.share = user.held.share_of(all);
    }

    /// Returns a user's number, if the user has or had a job here.
    pub(in crate::head) fn number_of(&self, user: &str) -> Option<UserIx> {
        self.users.numbers.get(user).copied()
    }

    /// Returns what a user holds.
    pub(in crate::head) fn held_by(&self, user: &str) -> Holding {
        self.number_of(user).map_or(Holding::default(), |UserIx(user)| self.users.users[user].held)
    }

    /// Returns the turn of a user whose next job is `job`. `more`: what the pass has already started for the user.
    pub(in crate::head) fn turn_with(&self, user: UserIx, job: &Job, more: Option<&Started>, now: Timestamp) -> Turn {
        let priority = Reverse(job.spec.priority);
        let line = self.lines.get(&job.spec.partition).expect("the queue has the job");
        let turn = self.users.turn(user, job.id, &line.levels[&priority].lanes[&user], now);
        let Some(Started { held, number, rank }) = more else { return turn };
        let is_overdue = turn.share.is_none() && *rank != Some((Reverse(line.tier), priority));
        let share = self.users.users[user.0].held.with(held).share_of(&self.users.all);
        Turn { share: (!is_overdue).then_some(share), last_start: self.users.starts + number, job: job.id }
    }

    /// Returns the share that these resources are of all nodes.
    pub(in crate::head) fn share_of(&self, held: &Holding) -> Share {
        held.share_of(&self.users.all)
    }
}

/// What a pass has started of a user.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::head) struct Started {
    pub(in crate::head) held: Holding,
    /// The number of the last start in the pass.
    pub(in crate::head) number: u64,
    /// The priority of the last start.
    pub(in crate::head) rank: Option<Rank>,
}

type LevelsOfLine<'a> = Peekable<btree_map::Iter<'a, Reverse<i32>, Level>>;

/// An iterator over the levels of several lines. Each step compares the first level of every line, since lines are few.
pub(in crate::head) struct Levels<'a> {
    users: &'a Users,
    /// The priority and the remaining levels of each line.
    lines: Vec<(Reverse<i32>, LevelsOfLine<'a>)>,
    now: Timestamp,
}

/// The priority of a level: that of the partition, then that of the job.
pub(in crate::head) type Rank = (Reverse<i32>, Reverse<i32>);

/// The waiting jobs of equal priority, of all partitions.
pub(in crate::head) struct Equals<'a> {
    pub(in crate::head) rank: Rank,
    /// The users in the order of their turns, each with at least one job.
    pub(in crate::head) users: Vec<(UserIx, Jobs<'a>)>,
}

impl<'a> Iterator for Levels<'a> {
    type Item = Equals<'a>;

    fn next(&mut self) -> Option<Equals<'a>> {
        let first = |(tier, line): &mut (_, Peekable<btree_map::Iter<'_, _, _>>)| line.peek().map(|it| (*tier, *it.0));
        let rank: Rank = self.lines.iter_mut().filter_map(first).min()?;
        let mut users: BTreeMap<UserIx, (Turn, Jobs<'a>)> = BTreeMap::new();
        for (tier, line) in &mut self.lines {
            if line.peek().is_some_and(|(priority, _)| (*tier, **priority) == rank) {
                let (_, level) = line.next().expect("just looked at");
                for (user, lane) in &level.lanes {
                    let turn = self.users.turn(*user, lane.first(), lane, self.now);
                    let (first, jobs) = users.entry(*user).or_insert((turn, Jobs(Vec::new())));
                    if turn.job < first.job {
                        *first = turn;
                    }
                    jobs.0.push(lane.jobs.iter().peekable());
                }
            }
        }
        let mut users: Vec<_> = users.into_iter().collect();
        users.sort_unstable_by_key(|(_, (turn, _))| *turn);
        Some(Equals { rank, users: users.into_iter().map(|(user, (_, jobs))| (user, jobs)).collect() })
    }
}

/// The jobs of one user in a level, by id: those of each partition, merged.
pub(in crate::head) struct Jobs<'a>(Vec<Peekable<btree_set::Iter<'a, JobId>>>);

impl Jobs<'_> {
    fn peek(&mut self) -> Option<JobId> {
        self.0.iter_mut().filter_map(|jobs| jobs.peek().map(|job| **job)).min()
    }
}

impl Iterator for Jobs<'_> {
    type Item = JobId;

    fn next(&mut self) -> Option<JobId> {
        if let [only] = self.0.as_mut_slice() {
            return only.next().copied();
        }
        let first = self.peek()?;
        self.0.iter_mut().find_map(|jobs| jobs.next_if(|job| **job == first)).copied()
    }
}

/// An iterator in which users take turns, one job at a time.
struct Rotation<'a>(VecDeque<Jobs<'a>>);

impl Iterator for Rotation<'_> {
    type Item = JobId;

    fn next(&mut self) -> Option<JobId> {
        let mut jobs = self.0.pop_front()?;
        let job = jobs.next()?;
        if jobs.peek().is_some() {
            self.0.push_back(jobs);
        }
        Some(job)
    }
}
