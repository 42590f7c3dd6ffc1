//! Accounts: an agent that may sees to it that every user of the cluster has one on this machine, under the same uid as everywhere.
//!
//! It only ever adds, by `useradd` with fixed arguments. What is there already is left alone: a name that has another uid here, a uid
//! that is another's, and all that belongs to the system are reported in the log and not touched. Nothing is removed: files would be left
//! that belong to nobody.

use std::collections::HashMap;
use std::path::Path;
use std::process::{Command, Stdio};

use hostler_proto::link::Account;
use nix::unistd::{Gid, Group, Uid, User};

/// Where `useradd` is; a search path could be anybody's.
const USERADD: [&str; 2] = ["/usr/sbin/useradd", "/sbin/useradd"];

/// Uids below this are the system's own.
const FIRST_PERSON: u32 = 1000;

/// Whether accounts are made, and how.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum NewAccounts {
    /// None is: whoever has set this machine up looks after them.
    #[default]
    Leave,
    /// Missing ones are, without home directories: those are shared, or not needed.
    Create,
    /// Missing ones are, with home directories.
    CreateWithHomes,
}

/// How an account stands.
#[derive(Debug, PartialEq, Eq)]
enum Standing {
    Good,
    Missing,
    Wrong(String),
}

/// Adds the accounts that are missing; which of them were not made, and why not. Blocks while `useradd` works.
pub(crate) fn ensure(accounts: &[Account], how: NewAccounts) -> HashMap<String, String> {
    let mut not_made = HashMap::new();
    if how == NewAccounts::Leave {
        return not_made;
    }
    if !Uid::effective().is_root() {
        tracing::warn!("accounts are to be created, but this agent is not run by root; none is");
        return not_made;
    }
    for account in accounts {
        let here = (by_name(account.name.as_str()), by_uid(account.uid), by_gid(account.uid));
        let outcome = match standing(account, here) {
            Standing::Good => continue,
            Standing::Wrong(why) => Err(why),
            Standing::Missing => add(account, how),
        };
        match outcome {
            Ok(()) => tracing::info!(user = %account.name, uid = account.uid, "account made"),
            Err(why) => {
                tracing::warn!(user = %account.name, uid = account.uid, "no account is made: {why}");
                not_made.insert(account.name.to_string(), why);
            }
        }
    }
    not_made
}

/// The uid that a name has here.
fn by_name(name: &str) -> Option<u32> {
    User::from_name(name).ok().flatten().map(|user| user.uid.as_raw())
}

/// The name that a uid has here.
fn by_uid(uid: u32) -> Option<String> {
    User::from_uid(Uid::from_raw(uid)).ok().flatten().map(|user| user.name)
}

/// The group that has this number here.
fn by_gid(gid: u32) -> Option<String> {
    Group::from_gid(Gid::from_raw(gid)).ok().flatten().map(|group| group.name)
}

/// How an account stands, by the uid that its name has here, and by the account and the group that have its uid here.
fn standing(account: &Account, here: (Option<u32>, Option<String>, Option<String>)) -> Standing {
    match here {
        (Some(uid), ..) if uid == account.uid => Standing::Good,
        (Some(uid), ..) => {
            Standing::Wrong(format!("{} has uid {uid} here; give it the one of the cluster", account.name))
        }
        (None, ..) if account.uid < FIRST_PERSON => Standing::Wrong("uids below 1000 are the system's own".to_owned()),
        (None, Some(owner), _) => Standing::Wrong(format!("uid {} is {owner}'s here", account.uid)),
        (None, None, Some(group)) if group != account.name.as_str() => Standing::Wrong(format!(
            "gid {} is group {group}'s here, and the account would get another one",
            account.uid
        )),
        (None, None, _) => Standing::Missing,
    }
}

fn add(account: &Account, how: NewAccounts) -> Result<(), String> {
    let useradd = USERADD.into_iter().find(|path| Path::new(path).is_file()).ok_or("there is no useradd here")?;
    let home = if how == NewAccounts::CreateWithHomes { "--create-home" } else { "--no-create-home" };
    let output = Command::new(useradd)
        .args(["--uid", &account.uid.to_string(), "--user-group", home, "--shell", "/bin/sh"])
        .args(["--comment", "user of the cluster", "--", account.name.as_str()])
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("{useradd} cannot be run: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{useradd} says: {}", String::from_utf8_lossy(&output.stderr).trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_nobodys_is_missing() {
        let account = |uid| Account { name: "ada".parse().expect("a valid name"), uid };
        let name = |name: &str| Some(name.to_owned());
        assert_eq!(standing(&account(2000), (None, None, None)), Standing::Missing);
        assert_eq!(standing(&account(2000), (Some(2000), name("ada"), name("ada"))), Standing::Good);
        // Two names may share a uid; the first one asked for by uid need not be ours.
        assert_eq!(standing(&account(2000), (Some(2000), name("ben"), None)), Standing::Good);
        assert_eq!(standing(&account(5), (Some(5), name("ada"), None)), Standing::Good, "it is there and stays so");
        for (uid, here) in [
            (2000, (Some(3000), None, None)),
            (2000, (None, name("ben"), name("ben"))),
            (2000, (None, None, name("crew"))),
            (999, (None, None, None)),
        ] {
            assert!(matches!(standing(&account(uid), here), Standing::Wrong(_)), "{uid}");
        }
    }
}
