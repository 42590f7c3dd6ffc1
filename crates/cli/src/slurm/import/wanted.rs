//! The settings of Hostler that a configuration of Slurm stands for.

use std::collections::{BTreeMap, BTreeSet};

use hostler_model::{Feature, NodeName, Quota, Role, UserName};
use hostler_proto::partitions::NewPartition;
use hostler_slurm::accounts::Accounts;
use hostler_slurm::conf::{Problem, Record, Value};

/// What was read.
#[derive(Debug, Default)]
pub(super) struct Sources {
    /// The records of `slurm.conf`.
    pub(super) records: Vec<Record>,
    /// The output of `sacctmgr dump`.
    pub(super) accounts: Option<Accounts>,
}

/// The settings that the cluster should have.
#[derive(Debug, Default)]
pub(super) struct Wanted {
    /// Values of settings by their names.
    pub(super) settings: BTreeMap<&'static str, String>,
    /// In the order of the file.
    pub(super) partitions: Vec<NewPartition>,
    pub(super) nodes: BTreeMap<NodeName, WantedNode>,
    /// `None` if no accounts are imported.
    pub(super) people: Option<People>,
    /// The keys that are not taken over, each once, in the order of the files.
    pub(super) not_taken: Vec<String>,
    /// What the admin should know.
    pub(super) notes: Vec<String>,
}

#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct WantedNode {
    pub(super) features: BTreeSet<Feature>,
    /// `None` leaves the weight as it is.
    pub(super) weight: Option<u32>,
    /// The reason why the node should get no work.
    pub(super) drain: Option<String>,
}

/// Users and groups. Limits that are absent stay as they are.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct People {
    pub(super) users: BTreeMap<UserName, WantedUser>,
    pub(super) groups: BTreeMap<UserName, Quota>,
}

#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct WantedUser {
    pub(super) role: Role,
    pub(super) groups: BTreeSet<UserName>,
    pub(super) quota: Quota,
}

/// Whether a value switches off what it sets, such as `none`, `NO` or `preempt/none`.
pub(super) fn is_off(value: &str) -> bool {
    let value = value.to_ascii_lowercase();
    let last = value.rsplit('/').next().unwrap_or_default();
    ["", "0", "no", "none", "off", "false", "all", "unlimited", "infinite", "-1", "n/a", "(null)"].contains(&last)
}

/// Parses the value of the first of several keys that has one.
pub(super) fn parsed<T>(
    record: &Record,
    keys: &[&str],
    parse: impl Fn(&Value) -> Result<T, String>,
) -> Result<Option<T>, Problem> {
    let value = record.get(keys);
    value.map(|value| parse(value).map_err(|text| Problem::new(&value.place, text))).transpose()
}
