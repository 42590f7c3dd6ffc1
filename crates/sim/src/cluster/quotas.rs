//! Quotas in the simulation: in half of the worlds an admin sets a quota for the users' group at some time, either shared or
//! for each user. The check: no later placement exceeds the quota.

use hostler_core::head::{Command, NewUser, UsersCommand, UsersEvent};
use hostler_model::{Quota, Resources, Role, UserName};

use super::rng::Rng;

/// Returns the commands with which an admin sets a quota for the user's jobs. The quota is large enough for each job
/// alone. The commands may be repeated, in any order.
pub(super) fn commands(user: &str, largest: &Resources, rng: &mut Rng) -> [Command; 2] {
    let limit = |rng: &mut Rng, least: u64| rng.chance(500).then(|| least + rng.below(least + 1));
    let quota = Quota {
        cpus: limit(rng, largest.cpus.len().into()),
        memory_bytes: limit(rng, largest.memory_bytes),
        jobs: limit(rng, 1),
        queued: None,
    };
    let user =
        NewUser { name: name(user), uid: None, role: Role::User, groups: [name("lab")].into(), keys: Vec::new() };
    // The group has one user, so both kinds of quota mean the same.
    let set = if rng.chance(500) { UsersCommand::SetGroupQuota } else { UsersCommand::SetMemberQuota };
    [UsersCommand::Import(vec![user]), set(name("lab"), quota)].map(Command::Users)
}

fn name(name: &str) -> UserName {
    name.parse().expect("a valid name")
}

/// The quota of the only user, according to durable events.
#[derive(Default)]
pub(super) struct Allowance {
    is_member: bool,
    quota: Quota,
}

impl Allowance {
    pub(super) fn see(&mut self, event: &UsersEvent) {
        match event {
            UsersEvent::Put(users) => self.is_member |= users.iter().any(|user| user.groups.contains(&name("lab"))),
            UsersEvent::GroupQuota { quota, .. } | UsersEvent::MemberQuota { quota, .. } => self.quota = *quota,
            // Removal leaves the quota unchanged.
            UsersEvent::Removed(_) | UsersEvent::FormerQuota { .. } => {}
            UsersEvent::Blocked { .. } | UsersEvent::Unblocked(_) => {}
            UsersEvent::TokenIssued { .. } | UsersEvent::TokenRevoked { .. } => {}
        }
    }

    /// Whether the quota permits this use.
    pub(super) fn allows(&self, cpus: u64, memory_bytes: u64, tasks: u64) -> bool {
        let within = |limit: Option<u64>, value| limit.is_none_or(|limit| value <= limit);
        !self.is_member
            || (within(self.quota.cpus, cpus)
                && within(self.quota.memory_bytes, memory_bytes)
                && within(self.quota.jobs, tasks))
    }
}
