//! Users and accounts. An account becomes a group, and a user belongs to the groups of all accounts above.

use std::collections::BTreeMap;

use hostler_model::{Quota, Role, UserName};
use hostler_slurm::accounts::{Accounts, Entry};
use hostler_slurm::conf::{Problem, Value};
use hostler_slurm::size;

use super::keys::NOT_USED;
use super::verdict::{Judgement, Rows, is_off};
use super::wanted::{People, WantedUser};

/// The most groups of a user, and the most users of a cluster.
const MAX_GROUPS: usize = 64;
const MAX_USERS: usize = 20_000;

/// Keys for numbers of jobs, and of jobs with those that wait.
const MAX_JOBS: [&str; 1] = ["MaxJobs"];
const MAX_SUBMIT: [&str; 2] = ["MaxSubmitJobs", "MaxSubmit"];

/// Translates the accounts, and adds them to the report.
pub(super) fn people(accounts: &Accounts, rows: &mut Rows) -> Result<People, Vec<Problem>> {
    let mut reader = Reader { accounts, rows, people: People::default(), problems: Vec::new() };
    reader.cluster();
    accounts.accounts.iter().for_each(|account| reader.account(account));
    let mut users: BTreeMap<&str, Vec<&Entry>> = BTreeMap::new();
    for user in &accounts.users {
        reader.judge_user(user);
        users.entry(&user.name).or_default().push(user);
    }
    users.remove("root");
    if users.len() > MAX_USERS {
        let place = &accounts.users[MAX_USERS].place;
        reader.problems.push(Problem::new(place, format!("a cluster has at most {MAX_USERS} users")));
        return Err(reader.problems);
    }
    for (name, entries) in users {
        reader.user(name, &entries);
    }
    let Reader { people, problems, .. } = reader;
    if problems.is_empty() { Ok(people) } else { Err(problems) }
}

struct Reader<'a> {
    accounts: &'a Accounts,
    rows: &'a mut Rows,
    people: People,
    problems: Vec<Problem>,
}

impl Reader<'_> {
    fn cluster(&mut self) {
        for value in &self.accounts.cluster {
            let judgement = match limit(value) {
                Some(Ok(Part::Jobs(_))) => Judgement::taken("quota of each user whose accounts set no limit"),
                Some(Ok(Part::Queued(_))) => Judgement::differs(QUEUED),
                Some(Err(text)) => return self.problems.push(Problem::new(&value.place, text)),
                _ => other(value),
            };
            self.rows.add(value, judgement);
        }
    }

    fn account(&mut self, account: &Entry) {
        let Some(name) = self.name(account) else { return };
        self.say(account, "Account", Judgement::taken(format!("group {name}")));
        let mut quota = Quota::default();
        for value in &account.values {
            let judgement = match group_limit(value) {
                Some(Ok(parts)) => {
                    let judgement = of_parts(&parts, "quota of the group");
                    parts.iter().for_each(|part| part.put(&mut quota));
                    judgement
                }
                Some(Err(text)) => {
                    self.problems.push(Problem::new(&value.place, text));
                    continue;
                }
                None => match limit(value) {
                    Some(Ok(Part::Jobs(_))) => Judgement::taken("quota of each user of the account"),
                    Some(Ok(_)) => Judgement::differs(QUEUED),
                    Some(Err(text)) => {
                        self.problems.push(Problem::new(&value.place, text));
                        continue;
                    }
                    None => other(value),
                },
            };
            self.rows.add(value, judgement);
        }
        if !quota.is_unlimited() {
            self.people.groups.insert(name, quota);
        }
    }

    fn judge_user(&mut self, user: &Entry) {
        if user.name == "root" {
            return self.say(user, "User", Judgement::unneeded("root of the head's machine is an admin"));
        }
        self.say(user, "User", Judgement::taken(format!("user {}", user.name)));
        let is_general = user.get(&["Partition"]).is_none_or(|value| value.text.is_empty());
        for value in &user.values {
            let judgement = match group_limit(value).or_else(|| limit(value).map(|part| part.map(|part| vec![part]))) {
                Some(Err(text)) => {
                    self.problems.push(Problem::new(&value.place, text));
                    continue;
                }
                Some(Ok(_)) if !is_general => Judgement::missing("quotas do not depend on the partition"),
                Some(Ok(parts)) => of_parts(&parts, "quota of the user"),
                None => match role(value) {
                    Some(Ok(role)) => Judgement::taken(format!("role {role}")),
                    Some(Err(text)) => {
                        self.problems.push(Problem::new(&value.place, text));
                        continue;
                    }
                    None => other(value),
                },
            };
            self.rows.add(value, judgement);
        }
    }

    /// Adds a user with all accounts.
    fn user(&mut self, text: &str, entries: &[&Entry]) {
        let Some(name) = entries.first().and_then(|entry| self.name(entry)) else { return };
        let mut user = WantedUser::default();
        for entry in entries {
            for account in self.accounts.with_parents(&entry.parent) {
                user.groups.extend(account.name.parse::<UserName>().ok());
            }
            let role = entry.get(&["AdminLevel"]).and_then(|value| role(value)?.ok());
            user.role = user.role.max(role.unwrap_or_default());
        }
        if user.groups.len() > MAX_GROUPS {
            let place = &entries[0].place;
            self.problems.push(Problem::new(place, format!("{text} is in more than {MAX_GROUPS} accounts")));
        }
        let general: Vec<&Entry> = entries
            .iter()
            .copied()
            .filter(|entry| entry.get(&["Partition"]).is_none_or(|it| it.text.is_empty()))
            .collect();
        // Slurm limits a user in each account. A user may use the sum, unless one account has no limit.
        let sum = |find: &dyn Fn(&Entry) -> Option<u64>| {
            general
                .iter()
                .map(|entry| find(entry))
                .collect::<Option<Vec<_>>>()
                .filter(|all| !all.is_empty())
                .map(|all| all.into_iter().fold(0, u64::saturating_add))
        };
        let own = |pick: fn(&Quota) -> Option<u64>| {
            move |entry: &Entry| {
                let mut quota = Quota::default();
                let parts = entry.values.iter().filter_map(|value| group_limit(value)?.ok()).flatten();
                parts.for_each(|part| part.put(&mut quota));
                pick(&quota)
            }
        };
        let least = |one: Option<u64>, other: Option<u64>| one.into_iter().chain(other).min();
        user.quota = Quota {
            cpus: sum(&own(|quota| quota.cpus)),
            memory_bytes: sum(&own(|quota| quota.memory_bytes)),
            jobs: least(sum(&own(|quota| quota.jobs)), sum(&|entry| self.inherited(entry, &MAX_JOBS))),
            queued: least(sum(&own(|quota| quota.queued)), sum(&|entry| self.inherited(entry, &MAX_SUBMIT))),
        };
        self.people.users.insert(name, user);
    }

    /// The limit of a user in an account: the user's own, or that of the nearest account above.
    fn inherited(&self, user: &Entry, keys: &[&str]) -> Option<u64> {
        let number = |value: &Value| match limit(value) {
            Some(Ok(Part::Jobs(number) | Part::Queued(number))) => Some(number),
            _ => None,
        };
        let above = self.accounts.with_parents(&user.parent);
        let found = std::iter::once(user).chain(above).find_map(|entry| entry.get(keys).and_then(number));
        found.or_else(|| {
            keys.iter().find_map(|key| self.accounts.cluster.iter().rfind(|it| it.is(key)).and_then(number))
        })
    }

    /// The name of an entry. Reports a name that Hostler does not accept.
    fn name(&mut self, entry: &Entry) -> Option<UserName> {
        match entry.name.parse() {
            Ok(name) => Some(name),
            Err(error) => {
                self.problems.push(Problem::new(&entry.place, format!("{error}")));
                None
            }
        }
    }

    fn say(&mut self, entry: &Entry, kind: &str, judgement: Judgement) {
        self.rows.add_text(&entry.place, format!("{kind}={}", entry.name), judgement);
    }
}

const QUEUED: &str = "quota of waiting tasks; Slurm counts running ones, too";

/// A part of a quota.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Cpus(u64),
    Memory(u64),
    Jobs(u64),
    Queued(u64),
    /// A kind of resource that quotas do not have.
    Other,
}

impl Part {
    fn put(&self, quota: &mut Quota) {
        match self {
            Self::Cpus(number) => quota.cpus = Some(*number),
            Self::Memory(bytes) => quota.memory_bytes = Some(*bytes),
            Self::Jobs(number) => quota.jobs = Some(*number),
            Self::Queued(number) => quota.queued = Some(*number),
            Self::Other => {}
        }
    }
}

fn of_parts(parts: &[Part], whose: &str) -> Judgement {
    let others = parts.iter().filter(|part| **part == Part::Other).count();
    match () {
        () if others == parts.len() => Judgement::missing("quotas limit only CPUs, memory and tasks"),
        () if others > 0 => Judgement::differs(format!("{whose}, for CPUs and memory only")),
        () if parts.iter().any(|part| matches!(part, Part::Queued(_))) => Judgement::differs(QUEUED),
        () => Judgement::taken(whose),
    }
}

/// Parses a limit for all jobs of an account or user together. `None` for other settings, and for limits that are off.
fn group_limit(value: &Value) -> Option<Result<Vec<Part>, String>> {
    if is_off(&value.text) && value.text != "0" {
        return None;
    }
    let number = || value.text.parse().map_err(|_| format!("{value} is not a number"));
    match value.key.to_ascii_lowercase().as_str() {
        "grpjobs" => Some(number().map(|number| vec![Part::Jobs(number)])),
        "grpsubmitjobs" | "grpsubmit" => Some(number().map(|number| vec![Part::Queued(number)])),
        "grpcpus" => Some(number().map(|number| vec![Part::Cpus(number)])),
        "grpmem" | "grpmemory" => Some(memory(value, &value.text).map(|part| vec![part])),
        "grptres" => Some(value.text.split(',').map(|part| tres(value, part)).collect()),
        _ => None,
    }
}

/// Parses a limit for each user of an account. `None` for other settings, and for limits that are off.
fn limit(value: &Value) -> Option<Result<Part, String>> {
    if is_off(&value.text) && value.text != "0" {
        return None;
    }
    let number = || value.text.parse().map_err(|_| format!("{value} is not a number"));
    match value.key.to_ascii_lowercase().as_str() {
        "maxjobs" => Some(number().map(Part::Jobs)),
        "maxsubmitjobs" | "maxsubmit" => Some(number().map(Part::Queued)),
        _ => None,
    }
}

/// Parses a part of `cpu=64,mem=100G,gres/gpu=4`.
fn tres(value: &Value, part: &str) -> Result<Part, String> {
    let (name, amount) =
        part.split_once('=').ok_or_else(|| format!("{value}: `{part}` is not of the form name=amount"))?;
    match name.trim().to_ascii_lowercase().as_str() {
        "cpu" => amount.parse().map(Part::Cpus).map_err(|_| format!("{value}: `{amount}` is not a number")),
        "mem" => memory(value, amount),
        _ => Ok(Part::Other),
    }
}

fn memory(value: &Value, amount: &str) -> Result<Part, String> {
    let bytes = size::parse(amount).and_then(|mebibytes| mebibytes.checked_mul(1 << 20));
    bytes.map(Part::Memory).ok_or_else(|| format!("{value}: `{amount}` is not a size"))
}

fn role(value: &Value) -> Option<Result<Role, String>> {
    if !value.is("AdminLevel") {
        return None;
    }
    Some(match value.text.to_ascii_lowercase().as_str() {
        "administrator" | "admin" => Ok(Role::Admin),
        "operator" => Ok(Role::Operator),
        "none" | "" => Ok(Role::User),
        _ => Err(format!("{value} is not Administrator, Operator or None")),
    })
}

/// Judges a setting of an account or user that has nothing to do with quotas.
fn other(value: &Value) -> Judgement {
    let key = value.key.to_ascii_lowercase();
    match key.as_str() {
        "description" | "organization" => Judgement::unneeded("groups have no description"),
        "defaultaccount" | "defaultwckey" | "wckey" => Judgement::unneeded("the account of a job is a label"),
        "fairshare" | "shares" if ["1", "parent"].contains(&value.text.to_ascii_lowercase().as_str()) => {
            Judgement::unneeded("all users have equal shares")
        }
        "fairshare" | "shares" | "priority" => {
            Judgement::missing("users have equal shares. Use quotas of users and groups")
        }
        "qos" | "qoslevel" | "defaultqos" if value.text.eq_ignore_ascii_case("normal") => {
            Judgement::unneeded("the QOS of a job is a label")
        }
        "qos" | "qoslevel" | "defaultqos" => {
            Judgement::missing("the QOS of a job is a label without limits. Use limits of partitions, and quotas")
        }
        "coordinator" => Judgement::missing("only admins change quotas and groups"),
        "partition" => {
            Judgement::missing("accounts do not name partitions. Use `hostler configure partition set --users`")
        }
        _ if is_off(&value.text) => Judgement::unneeded(NOT_USED),
        _ if key.contains("mins") || key == "grpwall" => Judgement::missing("no budgets of CPU time. Use quotas"),
        _ if key.starts_with("max") => {
            Judgement::missing("no limits per job of a user. Use `--max-time` and `--max-nodes` of partitions")
        }
        _ => Judgement::missing("no such setting of users and groups"),
    }
}
