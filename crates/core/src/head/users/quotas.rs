//! Quotas: limits on what the jobs of a user, or of all users of a group, may use at once and have waiting.
//!
//! A group can also give a quota to each of its users. It counts where the user's own quota sets no limit.
//!
//! A pass hands the remaining quota to jobs in queue order, whether or not they fit on a node now: a task counts as running as soon as
//! it may run. So no number of started jobs exceeds a quota, and small jobs do not starve a large job of the same user. A job without
//! remaining quota is skipped and delays no other user.
//!
//! An exclusive task counts as the largest node that it may use, since its node is not known before.
//!
//! Lowering a quota ends no job. Without quotas this code costs nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use hostler_model::{JobSpec, Quota, QuotaKind, Reason, Request, UserName, format_bytes, plural};
use hostler_sched::NodeSet;

use super::user::Users;
use crate::head::command::Refusal;
use crate::head::jobs::job::Job;
use crate::head::jobs::waiting::memory_of;
use crate::head::nodes::node::Node;
use crate::head::nodes::partition::Owner;
use crate::head::state::State;

/// How many jobs are examined at most to explain why a job waits for a quota.
const MAX_EXAMINED_JOBS: usize = 10_000;

/// The user or group that a quota applies to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::head) enum Party<'a> {
    User(&'a UserName),
    Group(&'a UserName),
}

impl Party<'_> {
    fn describe(&self) -> String {
        match self {
            Self::User(name) => name.to_string(),
            Self::Group(name) => format!("group {name}"),
        }
    }

    fn group(&self) -> Option<&UserName> {
        match self {
            Self::User(_) => None,
            Self::Group(name) => Some(name),
        }
    }
}

/// Returns the user and the groups whose quotas apply to a user's jobs.
fn parties<'a>(users: &'a Users, user: &str) -> impl Iterator<Item = (Party<'a>, Quota)> {
    let known = users.limits_of(user);
    let own = known.map(|(name, groups, quota)| (Party::User(name), users.effective_quota(groups, *quota)));
    let groups = known.into_iter().flat_map(|(_, groups, _)| groups);
    let groups = groups.filter_map(|name| users.group_quota(name).map(|(name, quota)| (Party::Group(name), *quota)));
    own.into_iter().chain(groups).filter(|(_, quota)| !quota.is_unlimited())
}

/// What the running jobs of a user or a group use.
#[derive(Debug, Clone, Copy, Default)]
struct Used {
    cpus: u64,
    memory_bytes: u64,
    jobs: u64,
}

impl Used {
    fn add(&mut self, cpus: u64, memory_bytes: u64, jobs: u64) {
        self.cpus += cpus;
        self.memory_bytes += memory_bytes;
        self.jobs += jobs;
    }

    /// Returns how many more tasks, which use `each`, each limit of a quota allows, with the limit.
    fn room(&self, quota: &Quota, each: &Self) -> [Option<Room>; 3] {
        let room = |kind, limit: Option<u64>, used: u64, each: u64| {
            limit.map(|limit| Room { kind, limit, used, tasks: limit.saturating_sub(used) / each.max(1) })
        };
        [
            room(QuotaKind::Cpus, quota.cpus, self.cpus, each.cpus),
            room(QuotaKind::Memory, quota.memory_bytes, self.memory_bytes, each.memory_bytes),
            room(QuotaKind::Jobs, quota.jobs, self.jobs, each.jobs),
        ]
    }

    /// Returns the most that one task of a job uses on all its nodes.
    fn of_task(state: &State, owner: Owner, spec: &JobSpec, sizes: &mut Sizes) -> Self {
        let Request { mut cpus, mut memory_bytes, .. } = spec.request;
        if spec.surroundings.exclusive {
            let largest = sizes.largest(state, state.allowed_nodes(owner, spec));
            (cpus, memory_bytes) = (cpus.max(largest.0), memory_bytes.max(largest.1));
        }
        let nodes = u64::from(spec.nodes);
        Self { cpus: nodes.saturating_mul(cpus.into()), memory_bytes: nodes.saturating_mul(memory_bytes), jobs: 1 }
    }
}

/// The sizes of the largest nodes, for the sets of nodes that were asked for; `None` stands for all nodes.
#[derive(Default)]
struct Sizes(Vec<(Option<Arc<NodeSet>>, Largest)>);

/// The most CPUs and the most bytes of memory of a node, not necessarily the same one.
type Largest = (u32, u64);

impl Sizes {
    fn largest(&mut self, state: &State, among: Option<Arc<NodeSet>>) -> Largest {
        let is_same = |known: &Option<Arc<NodeSet>>| match (known, &among) {
            (None, None) => true,
            (Some(known), Some(among)) => Arc::ptr_eq(known, among),
            _ => false,
        };
        if let Some((_, largest)) = self.0.iter().find(|(known, _)| is_same(known)) {
            return *largest;
        }
        let nodes = state.nodes().filter(|node| among.as_ref().is_none_or(|among| among.contains(node.ix)));
        let largest = nodes
            .map(Node::total)
            .fold((0, 0), |(cpus, memory_bytes), total| (total.cpus.max(cpus), total.memory_bytes.max(memory_bytes)));
        self.0.push((among, largest));
        largest
    }
}

/// One limit of a quota, and how many more tasks it allows.
struct Room {
    kind: QuotaKind,
    limit: u64,
    used: u64,
    tasks: u64,
}

/// What quotas still allow during a pass over the queue.
pub(in crate::head) struct Budget<'a> {
    state: &'a State,
    users: &'a Users,
    used: BTreeMap<Party<'a>, Used>,
    sizes: Sizes,
}

impl<'a> Budget<'a> {
    /// Computes what quotas allow beyond the running jobs; `None` if there is no quota and no block.
    pub(in crate::head) fn of(state: &'a State) -> Option<Self> {
        if !state.users.has_limits() {
            return None;
        }
        let mut budget = Self { state, users: &state.users, used: BTreeMap::new(), sizes: Sizes::default() };
        for (job, active, node) in state.placed() {
            // A task on several nodes appears once per node but counts once.
            let tasks = u64::from(active.first_live_part().is_some_and(|part| part.node == node.name));
            let held = &node.runs[&active.run];
            budget.charge(&job.user, held.cpus.len().into(), held.memory_bytes, tasks);
        }
        Some(budget)
    }

    /// Returns how many of the `wanted` tasks the job's quotas allow, and counts them as running.
    pub(in crate::head) fn grant(&mut self, job: &Job, wanted: u64) -> u64 {
        if self.users.block_of(&job.user, job.uid).is_some() {
            return 0;
        }
        if parties(self.users, &job.user).next().is_none() {
            return wanted;
        }
        let each = Used::of_task(self.state, self.state.owner_of(job), &job.spec, &mut self.sizes);
        let granted = self.tightest(job, &each).map_or(wanted, |(_, room)| room.tasks.min(wanted));
        let times = |each: u64| each.saturating_mul(granted);
        self.charge(&job.user, times(each.cpus), times(each.memory_bytes), granted);
        granted
    }

    /// Keeps what is left of the user's own quota, up to `wanted` tasks, for a job whose tasks may run but do not fit now. What their
    /// groups have left stays for others.
    pub(in crate::head) fn keep(&mut self, job: &Job, wanted: u64) {
        let Some((party, quota)) = parties(self.users, &job.user).find(|(party, _)| party.group().is_none()) else {
            return;
        };
        let each = Used::of_task(self.state, self.state.owner_of(job), &job.spec, &mut self.sizes);
        let used = self.used.entry(party).or_default();
        let room = used.room(&quota, &each).into_iter().flatten().map(|room| room.tasks).min();
        let kept = room.map_or(wanted, |room| room.min(wanted));
        used.add(each.cpus.saturating_mul(kept), each.memory_bytes.saturating_mul(kept), kept);
    }

    /// Returns the limit that allows the fewest further tasks of a job, and the user or group that the limit applies
    /// to.
    fn tightest(&self, job: &Job, each: &Used) -> Option<(Party<'a>, Room)> {
        let rooms = parties(self.users, &job.user).flat_map(|(party, quota)| {
            let used = self.used.get(&party).copied().unwrap_or_default();
            used.room(&quota, each).into_iter().flatten().map(move |room| (party.clone(), room))
        });
        rooms.min_by_key(|(_, room)| room.tasks)
    }

    fn charge(&mut self, user: &str, cpus: u64, memory_bytes: u64, jobs: u64) {
        for (party, _) in parties(self.users, user) {
            self.used.entry(party).or_default().add(cpus, memory_bytes, jobs);
        }
    }
}

/// Returns the reason for waiting if the job's user is blocked; otherwise `None`.
pub(in crate::head) fn waits_for_admin(state: &State, job: &Job) -> Option<Reason> {
    let (name, block) = state.users.block_of(&job.user, job.uid)?;
    Some(Reason::Blocked { user: name.to_string(), why: block.reason.clone() })
}

/// Returns the quota for which a startable job waits, as a reason. Earlier jobs of the same user count as running.
pub(in crate::head) fn waits_for_quota(state: &State, job: &Job) -> Option<Reason> {
    parties(&state.users, &job.user).next()?;
    let mut budget = Budget::of(state)?;
    let until_job = state.queue().take(MAX_EXAMINED_JOBS).take_while(|ahead| ahead.id != job.id);
    for ahead in until_job.filter(|ahead| ahead.user == job.user) {
        budget.grant(ahead, ahead.startable());
    }
    let each = Used::of_task(state, state.owner_of(job), &job.spec, &mut budget.sizes);
    let (party, room) = budget.tightest(job, &each).filter(|(_, room)| room.tasks == 0)?;
    Some(Reason::Quota { whose: party.describe(), kind: room.kind, used: room.used, limit: room.limit })
}

/// Returns why a user may not submit another job, or replace the specification `before` of a waiting one, as a sentence. The limit bounds the head's memory for waiting jobs,
/// in addition to quotas. The limit counts jobs, because an array uses as much memory as one job.
pub(in crate::head) fn refuses_more_waiting(
    state: &State,
    user: &str,
    spec: &JobSpec,
    before: Option<&JobSpec>,
) -> Option<String> {
    let (waiting, settings) = (state.waiting_jobs_of(user), &state.settings);
    let most = settings.waiting_jobs;
    if before.is_none() && waiting.jobs >= u64::from(most) {
        return Some(format!("{user} may have at most {} waiting; an array counts as one", plural(most, "job")));
    }
    let freed = before.map_or(0, memory_of);
    let bytes = waiting.bytes.saturating_add(memory_of(spec)).saturating_sub(freed);
    let grows = memory_of(spec) > freed;
    (grows && bytes > settings.waiting_bytes).then(|| {
        let (most, bytes) = (format_bytes(settings.waiting_bytes), format_bytes(bytes));
        format!(
            "the waiting jobs of {user} may take at most {most} of the head's memory, including command lines and dependencies; \
            with this job they would take {bytes}"
        )
    })
}

/// Refuses a submission that exceeds a quota of its user or groups.
pub(in crate::head) fn refuses_submission(state: &State, user: &str, spec: &JobSpec) -> Option<Refusal> {
    refuses_tasks(state, user, spec, spec.array.as_ref().map_or(1, |array| array.indices.len()))
}

/// Refuses `tasks` more tasks with this specification if they exceed a quota.
pub(in crate::head) fn refuses_tasks(state: &State, user: &str, spec: &JobSpec, tasks: u64) -> Option<Refusal> {
    let each = Used::of_task(state, state.owner(user, None), spec, &mut Sizes::default());
    for (party, quota) in parties(&state.users, user) {
        let refusal = |why| Some(Refusal::OverQuota { why, group: party.group().cloned() });
        let never = Used::default().room(&quota, &each).into_iter().flatten().find(|room| room.tasks == 0);
        if let Some(room) = never {
            let (whose, what) = (party.describe(), room.kind.amount(room.limit));
            let counts = match spec.surroundings.exclusive {
                true => {
                    "; an exclusive job counts as the largest node that it may use, so choose smaller nodes with --constraint"
                }
                false => "",
            };
            return refusal(format!("the job could never run: {whose} may have at most {what} running{counts}"));
        }
        let Some(most) = quota.queued.filter(|_| tasks > 0) else { continue };
        let counts = |other: &str| parties(&state.users, other).any(|(theirs, _)| theirs == party);
        let waiting: u64 = state.jobs().filter(|job| counts(&job.user)).map(|job| job.pending.len()).sum();
        if waiting + tasks > most {
            let whose = party.describe();
            return refusal(format!(
                "{whose} may have at most {} waiting, and has {waiting} now",
                plural(most, "task")
            ));
        }
    }
    None
}
