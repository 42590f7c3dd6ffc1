//! Users and accounts. An account becomes a group, and a user belongs to the groups of all accounts above.

use std::collections::BTreeMap;

use hostler_model::{Quota, Role, UserName};
use hostler_proto::users::{MAX_GROUPS, MAX_USERS};
use hostler_slurm::accounts::{Accounts, Entry};
use hostler_slurm::conf::{Place, Problem, Value};
use hostler_slurm::size;

use super::wanted::{People, WantedUser, is_off};

/// The keys that are taken over.
pub(super) const TAKEN: &str = "AdminLevel GrpCPUs GrpJobs GrpMem GrpMemory GrpSubmit GrpSubmitJobs GrpTRES MaxJobs MaxSubmit \
                                MaxSubmitJobs";

/// The limits that a line sets.
#[derive(Debug, Default, Clone)]
struct Limits {
    /// For all jobs of the account or user together.
    all: Quota,
    /// For each user of the account.
    each: Quota,
}

/// Translates the accounts.
pub(super) fn people(accounts: &Accounts) -> Result<People, Vec<Problem>> {
    let mut problems = Vec::new();
    let mut read = |values: &[Value]| {
        limits(values).unwrap_or_else(|problem| {
            problems.push(problem);
            Limits::default()
        })
    };
    let cluster = read(&accounts.cluster);
    let limits: BTreeMap<&str, Limits> =
        accounts.accounts.iter().map(|account| (account.name.as_str(), read(&account.values))).collect();
    let mut users: BTreeMap<&str, Vec<(&Entry, Limits)>> = BTreeMap::new();
    for user in accounts.users.iter().filter(|user| user.name != "root") {
        users.entry(&user.name).or_default().push((user, read(&user.values)));
    }
    if let Some(many) = accounts.users.get(MAX_USERS).filter(|_| users.len() > MAX_USERS) {
        return Err(vec![Problem::new(&many.place, format!("a cluster has at most {MAX_USERS} users"))]);
    }
    let mut people = People::default();
    for account in &accounts.accounts {
        let quota = limits[account.name.as_str()].all;
        match name(account) {
            Ok(name) if !quota.is_unlimited() => drop(people.groups.insert(name, quota)),
            Ok(_) => {}
            Err(problem) => problems.push(problem),
        }
    }
    let reader = Reader { accounts, cluster, limits };
    for entries in users.values() {
        match reader.user(entries) {
            Ok((name, user)) => drop(people.users.insert(name, user)),
            Err(problem) => problems.push(problem),
        }
    }
    if problems.is_empty() { Ok(people) } else { Err(problems) }
}

fn name(entry: &Entry) -> Result<UserName, Problem> {
    entry.name.parse().map_err(|error| Problem::new(&entry.place, format!("{error}")))
}

struct Reader<'a> {
    accounts: &'a Accounts,
    cluster: Limits,
    /// The limits of the accounts by name.
    limits: BTreeMap<&'a str, Limits>,
}

impl Reader<'_> {
    /// A user with the entries in all accounts.
    fn user(&self, entries: &[(&Entry, Limits)]) -> Result<(UserName, WantedUser), Problem> {
        let place: &Place = &entries[0].0.place;
        let name = name(entries[0].0)?;
        let mut user = WantedUser { quota: self.quota(entries), ..WantedUser::default() };
        for (entry, _) in entries {
            user.groups
                .extend(self.accounts.with_parents(&entry.parent).filter_map(|it| it.name.parse::<UserName>().ok()));
            if let Some(level) = entry.get(&["AdminLevel"]) {
                user.role = user.role.max(role(level).map_err(|text| Problem::new(&level.place, text))?);
            }
        }
        if user.groups.len() > MAX_GROUPS {
            return Err(Problem::new(place, format!("{name} is in more than {MAX_GROUPS} accounts")));
        }
        Ok((name, user))
    }

    /// The quota of a user. Slurm limits a user in each account: the user may use the sum, unless one account has no limit.
    /// Limits for a single partition do not count.
    fn quota(&self, entries: &[(&Entry, Limits)]) -> Quota {
        let is_general = |entry: &Entry| entry.get(&["Partition"]).is_none_or(|it| it.text.is_empty());
        let general: Vec<(Quota, Quota)> = entries
            .iter()
            .filter(|(entry, _)| is_general(entry))
            .map(|(entry, limits)| (limits.all, self.each(entry, limits)))
            .collect();
        let sum = |limit: &dyn Fn(&(Quota, Quota)) -> Option<u64>| {
            let all = general.iter().map(limit).collect::<Option<Vec<_>>>().filter(|all| !all.is_empty())?;
            Some(all.into_iter().fold(0, u64::saturating_add))
        };
        let least = |one: Option<u64>, other: Option<u64>| one.into_iter().chain(other).min();
        Quota {
            cpus: sum(&|(all, _)| all.cpus),
            memory_bytes: sum(&|(all, _)| all.memory_bytes),
            jobs: least(sum(&|(all, _)| all.jobs), sum(&|(_, each)| each.jobs)),
            queued: least(sum(&|(all, _)| all.queued), sum(&|(_, each)| each.queued)),
        }
    }

    /// The limits of a user in an account: the user's own, or those of the nearest account above that has them.
    fn each(&self, user: &Entry, own: &Limits) -> Quota {
        let above =
            self.accounts.with_parents(&user.parent).filter_map(|account| self.limits.get(account.name.as_str()));
        let nearest: Vec<&Limits> = std::iter::once(own).chain(above).chain([&self.cluster]).collect();
        Quota {
            jobs: nearest.iter().find_map(|limits| limits.each.jobs),
            queued: nearest.iter().find_map(|limits| limits.each.queued),
            ..Quota::default()
        }
    }
}

fn limits(values: &[Value]) -> Result<Limits, Problem> {
    let mut limits = Limits::default();
    for value in values.iter().filter(|value| !is_off(&value.text) || value.text == "0") {
        limits.put(value).map_err(|text| Problem::new(&value.place, text))?;
    }
    Ok(limits)
}

impl Limits {
    /// Adds the limit that a value sets, if it sets one that quotas have.
    fn put(&mut self, value: &Value) -> Result<(), String> {
        let number = || value.text.parse().map(Some).map_err(|_| format!("{value} is not a number"));
        match value.key.to_ascii_lowercase().as_str() {
            "grpcpus" => self.all.cpus = number()?,
            "grpjobs" => self.all.jobs = number()?,
            "grpmem" | "grpmemory" => self.all.memory_bytes = Some(memory(value, &value.text)?),
            "grpsubmit" | "grpsubmitjobs" => self.all.queued = number()?,
            "grptres" => value.text.split(',').try_for_each(|part| self.put_resource(value, part))?,
            "maxjobs" => self.each.jobs = number()?,
            "maxsubmit" | "maxsubmitjobs" => self.each.queued = number()?,
            _ => {}
        }
        Ok(())
    }

    /// Adds a part of `cpu=64,mem=100G,gres/gpu=4`. Quotas have only CPUs and memory.
    fn put_resource(&mut self, value: &Value, part: &str) -> Result<(), String> {
        let (name, amount) =
            part.split_once('=').ok_or_else(|| format!("{value}: `{part}` is not of the form name=amount"))?;
        match name.trim().to_ascii_lowercase().as_str() {
            "cpu" => {
                let number = amount.parse().map_err(|_| format!("{value}: `{amount}` is not a number"))?;
                self.all.cpus = Some(number);
            }
            "mem" => self.all.memory_bytes = Some(memory(value, amount)?),
            _ => {}
        }
        Ok(())
    }
}

fn memory(value: &Value, amount: &str) -> Result<u64, String> {
    let bytes = size::parse(amount).and_then(|mebibytes| mebibytes.checked_mul(1 << 20));
    bytes.ok_or_else(|| format!("{value}: `{amount}` is not a size"))
}

fn role(value: &Value) -> Result<Role, String> {
    match value.text.to_ascii_lowercase().as_str() {
        "administrator" | "admin" => Ok(Role::Admin),
        "operator" => Ok(Role::Operator),
        "none" | "" => Ok(Role::User),
        _ => Err(format!("{value} is not Administrator, Operator or None")),
    }
}
