//! The changes that make a cluster have the settings that it should have.

use std::collections::{BTreeMap, BTreeSet};

use hostler_model::{Feature, NodeName, Quota, Role, UserName, parse_bytes, parse_duration};
use hostler_proto::api::NodeView;
use hostler_proto::partitions::{NewPartition, PartitionChange, PartitionView, TraitsChange};
use hostler_proto::settings::SettingView;
use hostler_proto::users::{AddUser, GroupView, UserView};

use super::wanted::{People, Wanted};

/// What the cluster has now.
#[derive(Debug, Default)]
pub(super) struct Present {
    pub(super) settings: Vec<SettingView>,
    pub(super) partitions: Vec<PartitionView>,
    pub(super) nodes: Vec<NodeView>,
    /// Features that operators have set, of nodes that lack a feature.
    pub(super) assigned: BTreeMap<NodeName, BTreeSet<Feature>>,
    pub(super) groups: Vec<GroupView>,
    /// Loaded only if users are imported.
    pub(super) users: Vec<UserView>,
}

/// A change through the API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Change {
    /// Adds or changes users, all or none. The role and the groups are complete.
    Users(Vec<AddUser>),
    /// Sets a quota. `changed` has only the limits that differ.
    UserQuota {
        user: UserName,
        quota: Quota,
        changed: Quota,
    },
    GroupQuota {
        group: UserName,
        quota: Quota,
        changed: Quota,
    },
    Setting {
        name: &'static str,
        value: String,
    },
    AddPartition(NewPartition),
    SetPartition(NewPartition),
    Traits {
        node: NodeName,
        change: TraitsChange,
    },
    Drain {
        node: NodeName,
        reason: String,
    },
}

impl Change {
    /// The least role that may make the change.
    pub(super) const fn role(&self) -> Role {
        match self {
            Self::Users(_) | Self::UserQuota { .. } | Self::GroupQuota { .. } => Role::Admin,
            _ => Role::Operator,
        }
    }
}

impl Wanted {
    /// Returns the nodes that lack a feature.
    pub(super) fn lacking<'a>(&'a self, nodes: &'a [NodeView]) -> impl Iterator<Item = &'a NodeName> {
        let lacks = |node: &&NodeView| {
            self.nodes.get(&node.name).is_some_and(|wanted| !wanted.features.is_subset(&node.features))
        };
        nodes.iter().filter(lacks).map(|node| &node.name)
    }

    /// Returns the nodes of the configuration that are not in the cluster.
    pub(super) fn absent<'a>(&'a self, nodes: &'a [NodeView]) -> Vec<&'a NodeName> {
        let there: BTreeSet<&NodeName> = nodes.iter().map(|node| &node.name).collect();
        self.nodes.keys().filter(|name| !there.contains(name)).collect()
    }

    /// Returns the changes, in the order in which they are made.
    pub(super) fn changes(&self, present: &Present) -> Vec<Change> {
        let people = self.people.iter().flat_map(|people| people.changes(present));
        let settings = self.settings.iter().filter(|(name, value)| !has_setting(&present.settings, name, value));
        let settings = settings.map(|(name, value)| Change::Setting { name, value: value.clone() });
        let partitions = self.partitions.iter().filter_map(|wanted| partition(wanted, &present.partitions));
        people.chain(settings).chain(partitions).chain(self.node_changes(present)).collect()
    }

    fn node_changes(&self, present: &Present) -> Vec<Change> {
        let mut changes = Vec::new();
        for node in &present.nodes {
            let Some(wanted) = self.nodes.get(&node.name) else { continue };
            let assigned = present.assigned.get(&node.name);
            // Features that the agent reports need not be set.
            let missing = wanted.features.difference(&node.features);
            let mut features: BTreeSet<Feature> = missing.cloned().collect();
            if !features.is_empty() {
                features.extend(assigned.into_iter().flatten().cloned());
            }
            let change = TraitsChange {
                weight: wanted.weight.filter(|weight| *weight != node.weight),
                features: Some(features).filter(|features| !features.is_empty()),
            };
            if change != TraitsChange::default() {
                changes.push(Change::Traits { node: node.name.clone(), change });
            }
            if let (Some(reason), None) = (&wanted.drain, &node.reason) {
                changes.push(Change::Drain { node: node.name.clone(), reason: reason.clone() });
            }
        }
        changes
    }
}

/// Whether a setting has a value, perhaps written in another way.
fn has_setting(present: &[SettingView], name: &str, value: &str) -> bool {
    present.iter().filter(|setting| setting.name == name).any(|setting| match setting.unit.as_str() {
        "time" => parse_duration(&setting.value).is_ok_and(|now| parse_duration(value) == Ok(now)),
        "size" => parse_bytes(&setting.value).is_ok_and(|now| parse_bytes(value) == Ok(now)),
        _ => setting.value == value,
    })
}

/// The change that makes a partition equal to the wanted one.
fn partition(wanted: &NewPartition, present: &[PartitionView]) -> Option<Change> {
    let Some(now) = present.iter().find(|partition| partition.name == wanted.name) else {
        return Some(Change::AddPartition(wanted.clone()));
    };
    let NewPartition { name, about } = wanted;
    let change = PartitionChange {
        nodes: differs(about.nodes.as_ref(), &now.nodes),
        is_default: differs(about.is_default.as_ref(), &now.is_default),
        state: differs(about.state.as_ref(), &now.state),
        priority: differs(about.priority.as_ref(), &now.priority),
        default_time_ms: differs(about.default_time_ms.as_ref(), &now.default_time_ms.unwrap_or(0)),
        max_time_ms: differs(about.max_time_ms.as_ref(), &now.max_time_ms.unwrap_or(0)),
        max_nodes: differs(about.max_nodes.as_ref(), &now.max_nodes.unwrap_or(0)),
        users: differs(about.users.as_ref(), &now.users),
        groups: differs(about.groups.as_ref(), &now.groups),
        sandbox: differs(about.sandbox.as_ref(), &now.sandbox),
        sandbox_network: differs(about.sandbox_network.as_ref(), &now.sandbox_network),
        exclusive: differs(about.exclusive.as_ref(), &now.exclusive),
        ends_join_code: false,
    };
    let is_news = change != PartitionChange::default();
    is_news.then(|| Change::SetPartition(NewPartition { name: name.clone(), about: change }))
}

fn differs<T: Clone + PartialEq>(wanted: Option<&T>, now: &T) -> Option<T> {
    wanted.filter(|wanted| *wanted != now).cloned()
}

impl People {
    fn changes(&self, present: &Present) -> Vec<Change> {
        let users: BTreeMap<&UserName, &UserView> = present.users.iter().map(|user| (&user.name, user)).collect();
        let mut added = Vec::new();
        let mut quotas = Vec::new();
        for (name, wanted) in &self.users {
            let now = users.get(name).copied();
            let known = now.filter(|user| user.added);
            // Roles and groups that the user has already stay.
            let mut groups = wanted.groups.clone();
            groups.extend(known.into_iter().flat_map(|user| user.groups.iter().cloned()));
            let role = known.map_or(wanted.role, |user| user.role.max(wanted.role));
            if known.is_none_or(|user| user.role != role || user.groups != groups) {
                added.push(AddUser { name: name.clone(), uid: None, role, groups, keys: Vec::new() });
            }
            let now = now.map(|user| user.quota).unwrap_or_default();
            let (quota, changed) = quota(wanted.quota, now);
            if !changed.is_unlimited() {
                quotas.push(Change::UserQuota { user: name.clone(), quota, changed });
            }
        }
        for (group, wanted) in &self.groups {
            let now = present.groups.iter().find(|known| known.name == *group);
            let (quota, changed) = quota(*wanted, now.map(|group| group.quota).unwrap_or_default());
            if !changed.is_unlimited() {
                quotas.push(Change::GroupQuota { group: group.clone(), quota, changed });
            }
        }
        let added = Some(added).filter(|added| !added.is_empty()).map(Change::Users);
        added.into_iter().chain(quotas).collect()
    }
}

/// Returns the quota with the wanted limits, and the limits of it that are new.
fn quota(wanted: Quota, now: Quota) -> (Quota, Quota) {
    let new = |wanted: Option<u64>, now: Option<u64>| wanted.filter(|wanted| Some(*wanted) != now);
    let changed = Quota {
        cpus: new(wanted.cpus, now.cpus),
        memory_bytes: new(wanted.memory_bytes, now.memory_bytes),
        jobs: new(wanted.jobs, now.jobs),
        queued: new(wanted.queued, now.queued),
    };
    let quota = Quota {
        cpus: changed.cpus.or(now.cpus),
        memory_bytes: changed.memory_bytes.or(now.memory_bytes),
        jobs: changed.jobs.or(now.jobs),
        queued: changed.queued.or(now.queued),
    };
    (quota, changed)
}
