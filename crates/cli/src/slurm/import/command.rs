//! Changes as the commands that an admin would type.

use std::collections::BTreeSet;
use std::time::Duration;

use hostler_model::{Quota, Role, UserName};
use hostler_proto::partitions::PartitionChange;
use hostler_proto::users::AddUser;

use super::changes::Change;

impl Change {
    /// The commands for a shell, without line breaks. Several ones only for several users.
    pub(super) fn commands(&self) -> Vec<String> {
        let words = |words: &[&str]| line(&owned(["configure"].iter().chain(words)));
        vec![match self {
            Self::Users(users) => return users.iter().map(user).collect(),
            Self::UserQuota { user, changed, .. } => of_quota(&["user", "quota", user.as_str()], changed),
            Self::GroupQuota { group, changed, .. } => of_quota(&["group", "quota", group.as_str()], changed),
            Self::Setting { name, value } => words(&["setting", name, value]),
            Self::AddPartition(new) => of_partition("add", new.name.as_str(), &without_defaults(&new.about)),
            Self::SetPartition(new) => of_partition("set", new.name.as_str(), &new.about),
            Self::Traits { node, change } => {
                let mut all = owned(&["node", "set", node.as_str()]);
                if let Some(features) = &change.features {
                    let features: Vec<&str> = features.iter().map(hostler_model::Feature::as_str).collect();
                    all.extend(["--features".to_owned(), features.join(",")]);
                }
                all.extend(change.weight.into_iter().flat_map(|weight| ["--weight".to_owned(), weight.to_string()]));
                line(&all)
            }
            Self::Drain { node, reason } => line(&owned(&["node", "drain", node.as_str(), "--reason", reason])),
        }]
    }
}

fn owned<'a>(words: impl IntoIterator<Item = &'a &'a str>) -> Vec<String> {
    words.into_iter().map(|word| (*word).to_owned()).collect()
}

/// Joins words to a command, quoted for a shell.
fn line(words: &[String]) -> String {
    let quoted: Vec<String> =
        std::iter::once("hostler".to_owned()).chain(words.iter().map(|word| quote(word))).collect();
    quoted.join(" ")
}

fn quote(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.,:/@%+=".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

/// A row of a roster, which adds a user or changes the role and the groups.
fn user(AddUser { name, role, groups, .. }: &AddUser) -> String {
    let groups: Vec<&str> = groups.iter().map(UserName::as_str).collect();
    let role = if *role == Role::User { "" } else { role.as_str() };
    let field = |text: &str| match text.contains(['"', ';', '#']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    };
    let row = format!("{},,{role},{}", field(name.as_str()), field(&groups.join(";")));
    format!("printf '%s\\n' {} | hostler configure user import --no-header /dev/stdin", quote(&row))
}

fn of_quota(words: &[&str], changed: &Quota) -> String {
    let mut all = owned(["configure"].iter().chain(words));
    let limits = [
        ("--cpus", changed.cpus.map(|number| number.to_string())),
        ("--memory", changed.memory_bytes.map(size)),
        ("--jobs", changed.jobs.map(|number| number.to_string())),
        ("--queued", changed.queued.map(|number| number.to_string())),
    ];
    for (option, limit) in limits {
        all.extend(limit.into_iter().flat_map(|limit| [option.to_owned(), limit]));
    }
    line(&all)
}

/// Writes a size in the largest unit that is exact.
fn size(bytes: u64) -> String {
    let units = [("T", 40), ("G", 30), ("M", 20), ("K", 10)];
    let unit = units.iter().find(|(_, shift)| bytes.is_multiple_of(1 << shift));
    unit.map_or_else(|| format!("{bytes}B"), |(unit, shift)| format!("{}{unit}", bytes >> shift))
}

fn of_partition(verb: &str, name: &str, about: &PartitionChange) -> String {
    let mut all = owned(&["configure", "partition", verb, name]);
    let mut add = |option: &str, value: Option<String>| {
        all.extend(value.into_iter().flat_map(|value| [option.to_owned(), value]));
    };
    let limit = |number: u64, text: String| if number == 0 { "none".to_owned() } else { text };
    let time = |ms: u64| limit(ms, span(Duration::from_millis(ms)));
    let names = |names: &BTreeSet<UserName>| match names.is_empty() {
        true => "all".to_owned(),
        false => names.iter().map(UserName::as_str).collect::<Vec<_>>().join(","),
    };
    add("--nodes", about.nodes.as_ref().map(ToString::to_string));
    let yes_no = |yes: bool| if yes { "yes" } else { "no" }.to_owned();
    add("--default", about.is_default.map(yes_no));
    add("--exclusive", about.exclusive.map(|rule| rule.to_string()));
    add("--max-time", about.max_time_ms.map(time));
    add("--default-time", about.default_time_ms.map(time));
    add("--max-nodes", about.max_nodes.map(|nodes| limit(nodes.into(), nodes.to_string())));
    add("--priority", about.priority.map(|priority| priority.to_string()));
    add("--users", about.users.as_ref().map(names));
    add("--groups", about.groups.as_ref().map(names));
    add("--state", about.state.map(|state| state.to_string()));
    add("--sandbox", about.sandbox.map(|rule| rule.to_string()));
    add("--sandbox-network", about.sandbox_network.map(|network| network.to_string()));
    line(&all)
}

/// A new partition without the values that it has anyway.
fn without_defaults(about: &PartitionChange) -> PartitionChange {
    PartitionChange {
        nodes: about.nodes.clone(),
        is_default: about.is_default.filter(|is_default| *is_default),
        state: about.state.filter(|state| *state != hostler_model::PartitionState::Open),
        priority: about.priority.filter(|priority| *priority != 0),
        default_time_ms: about.default_time_ms.filter(|ms| *ms > 0),
        max_time_ms: about.max_time_ms.filter(|ms| *ms > 0),
        max_nodes: about.max_nodes.filter(|nodes| *nodes > 0),
        users: about.users.clone().filter(|users| !users.is_empty()),
        groups: about.groups.clone().filter(|groups| !groups.is_empty()),
        sandbox: about.sandbox.filter(|rule| !rule.is_optional()),
        sandbox_network: about.sandbox_network.filter(|network| !network.is_none()),
        exclusive: about.exclusive.filter(|rule| !rule.is_optional()),
        ends_join_code: false,
    }
}

/// Writes a time in the largest unit that is exact, such as `2d`, `90m` or `45s`.
fn span(time: Duration) -> String {
    let units = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000)];
    let ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let unit = units.iter().find(|(_, size)| ms > 0 && ms.is_multiple_of(*size));
    unit.map_or_else(
        || if ms == 0 { "0s".to_owned() } else { format!("{ms}ms") },
        |(unit, size)| format!("{}{unit}", ms / size),
    )
}
