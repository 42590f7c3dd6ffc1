//! Quotas: how much of what runs and waits may be one user's, or that of all users of a group together.
//!
//! What is left of a quota goes to its users' jobs in the order of the queue, whether or not they fit on a node at the moment: within a
//! pass a task counts as running as soon as it may run. So a quota is never exceeded however many jobs a pass starts, and a large job is
//! not starved by small ones of the same user. A job for which nothing is left is passed over and holds up nobody else.
//!
//! Lowering a quota ends nothing. Without any quota nothing here costs anything.

use std::collections::BTreeMap;

use hostler_model::{JobSpec, Quota, QuotaKind, Reason, UserName, format_bytes};

use super::job::Job;
use super::state::State;
use super::users::Users;
use super::waiting::memory_of;

/// Jobs that are looked at to say what is left behind them.
const LOOKED_AT: usize = 10_000;

/// Whose quota it is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Party<'a> {
    User(&'a UserName),
    Group(&'a UserName),
}

impl Party<'_> {
    /// For people.
    fn describe(&self) -> String {
        match self {
            Self::User(name) => name.to_string(),
            Self::Group(name) => format!("group {name}"),
        }
    }
}

/// The parties whose quotas a user's jobs count against.
fn parties<'a>(users: &'a Users, user: &str) -> impl Iterator<Item = (Party<'a>, &'a Quota)> {
    let known = users.limits_of(user);
    let own = known.map(|(name, _, quota)| (Party::User(name), quota));
    let groups = known.into_iter().flat_map(|(_, groups, _)| groups);
    let groups = groups.filter_map(|name| users.group_quota(name).map(|(name, quota)| (Party::Group(name), quota)));
    own.into_iter().chain(groups).filter(|(_, quota)| !quota.is_unlimited())
}

/// What is used of something that a quota limits.
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

    /// Which limits of a quota leave room for how many more tasks.
    fn room(&self, quota: &Quota, spec: &JobSpec) -> [Option<Room>; 3] {
        let on_all_nodes = |each: u64| each.saturating_mul(spec.nodes.into());
        let room = |kind, limit: Option<u64>, used: u64, each: u64| {
            limit.map(|limit| Room { kind, limit, used, tasks: limit.saturating_sub(used) / each.max(1) })
        };
        [
            room(QuotaKind::Cpus, quota.cpus, self.cpus, on_all_nodes(spec.request.cpus.into())),
            room(QuotaKind::Memory, quota.memory_bytes, self.memory_bytes, on_all_nodes(spec.request.memory_bytes)),
            room(QuotaKind::Jobs, quota.jobs, self.jobs, 1),
        ]
    }
}

/// What one limit leaves.
struct Room {
    kind: QuotaKind,
    limit: u64,
    used: u64,
    tasks: u64,
}

/// What is left for the jobs of a queue, one after another.
pub(super) struct Budget<'a> {
    users: &'a Users,
    used: BTreeMap<Party<'a>, Used>,
}

impl<'a> Budget<'a> {
    /// What is left beside what runs; `None` when nobody has a quota or is kept out.
    pub(super) fn of(state: &'a State) -> Option<Self> {
        if !state.users.has_limits() {
            return None;
        }
        let mut budget = Self { users: &state.users, used: BTreeMap::new() };
        for (job, active, node) in state.placed() {
            // A task on several nodes is met on each of them, and is one task all the same.
            let tasks = u64::from(active.first_live_part().is_some_and(|part| part.node == node.name));
            let held = &node.runs[&active.run];
            budget.charge(&job.user, held.cpus.len().into(), held.memory_bytes, tasks);
        }
        Some(budget)
    }

    /// How many of `wanted` tasks of a job may run as well. They count from now on.
    pub(super) fn grant(&mut self, job: &Job, wanted: u64) -> u64 {
        if self.users.block_of(&job.user, job.uid).is_some() {
            return 0;
        }
        let granted = match self.tightest(job) {
            Some((_, room)) => room.tasks.min(wanted),
            None => return wanted,
        };
        let request = &job.spec.request;
        let parts = granted.saturating_mul(job.spec.nodes.into());
        let cpus = u64::from(request.cpus).saturating_mul(parts);
        self.charge(&job.user, cpus, request.memory_bytes.saturating_mul(parts), granted);
        granted
    }

    /// The limit that leaves least room for more of a job.
    fn tightest(&self, job: &Job) -> Option<(Party<'a>, Room)> {
        let rooms = parties(self.users, &job.user).flat_map(|(party, quota)| {
            let used = self.used.get(&party).copied().unwrap_or_default();
            used.room(quota, &job.spec).into_iter().flatten().map(move |room| (party.clone(), room))
        });
        rooms.min_by_key(|(_, room)| room.tasks)
    }

    fn charge(&mut self, user: &str, cpus: u64, memory_bytes: u64, jobs: u64) {
        for (party, _) in parties(self.users, user) {
            self.used.entry(party).or_default().add(cpus, memory_bytes, jobs);
        }
    }
}

/// Whether a job waits because its user is kept out.
pub(super) fn waits_for_admin(state: &State, job: &Job) -> Option<Reason> {
    let (name, block) = state.users.block_of(&job.user, job.uid)?;
    Some(Reason::Blocked { user: name.to_string(), why: block.reason.clone() })
}

/// Which quota keeps a job that could start otherwise from starting, counting what is ahead of it in the queue as running.
pub(super) fn waits_for_quota(state: &State, job: &Job) -> Option<Reason> {
    parties(&state.users, &job.user).next()?;
    let mut budget = Budget::of(state)?;
    for ahead in state.queue().take(LOOKED_AT).take_while(|ahead| ahead.id != job.id) {
        budget.grant(ahead, ahead.startable());
    }
    let (party, room) = budget.tightest(job).filter(|(_, room)| room.tasks == 0)?;
    Some(Reason::Quota { whose: party.describe(), kind: room.kind, used: room.used, limit: room.limit })
}

/// Why a user may not submit one more waiting job, as a sentence. Waiting jobs use the head's memory, so this bound applies in addition to
/// quotas. It counts jobs, not tasks, because an array uses as much memory as one job.
pub(super) fn refuses_more_waiting(state: &State, user: &str, spec: &JobSpec) -> Option<String> {
    let (waiting, settings) = (state.waiting_jobs_of(user), &state.settings);
    let most = settings.waiting_jobs;
    if waiting.jobs >= u64::from(most) {
        return Some(format!("{user} may have at most {most} jobs waiting, an array counting as one"));
    }
    let bytes = waiting.bytes.saturating_add(memory_of(spec));
    (bytes > settings.waiting_bytes).then(|| {
        let (most, bytes) = (format_bytes(settings.waiting_bytes), format_bytes(bytes));
        format!(
            "the waiting jobs of {user} may take at most {most} of the head's memory, with their command lines and dependencies, \
             and with this one they would take {bytes}"
        )
    })
}

/// Why a submission is too much for its user, as a sentence.
pub(super) fn refuses_submission(state: &State, user: &str, spec: &JobSpec) -> Option<String> {
    refuses_tasks(state, user, spec, spec.array.as_ref().map_or(1, |array| array.indices.len()))
}

/// Why so many more tasks of such a job are too much for its user, as a sentence.
pub(super) fn refuses_tasks(state: &State, user: &str, spec: &JobSpec, tasks: u64) -> Option<String> {
    for (party, quota) in parties(&state.users, user) {
        let never = Used::default().room(quota, spec).into_iter().flatten().find(|room| room.tasks == 0);
        if let Some(room) = never {
            let (whose, what) = (party.describe(), room.kind.amount(room.limit));
            return Some(format!("it could never run: {whose} may have at most {what} running"));
        }
        let Some(most) = quota.queued else { continue };
        let counts = |other: &str| parties(&state.users, other).any(|(theirs, _)| theirs == party);
        let waiting: u64 = state.live_jobs().filter(|job| counts(&job.user)).map(|job| job.pending.len()).sum();
        if waiting + tasks > most {
            let whose = party.describe();
            return Some(format!("{whose} may have at most {most} tasks waiting, and {waiting} wait already"));
        }
    }
    None
}
