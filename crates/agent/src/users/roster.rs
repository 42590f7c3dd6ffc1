//! Account creation: if configured, the agent creates missing accounts of the cluster's users, with the same uid as
//! everywhere.
//!
//! It only adds accounts, using `useradd` with fixed arguments. Existing accounts stay unchanged: name and uid
//! conflicts, and system accounts, are only logged. Accounts are never removed, because their files would lose their
//! owner.

use std::collections::HashMap;
use std::path::Path;
use std::process::{Command, Stdio};

use hostler_model::FIRST_PERSON_UID;
use hostler_proto::link::Account;
use nix::unistd::{Gid, Group, Uid, User};

/// Paths of `useradd`. A search path could contain directories of other users.
const USERADD: [&str; 2] = ["/usr/sbin/useradd", "/sbin/useradd"];

/// Whether and how accounts are created.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum NewAccounts {
    /// Create none: an administrator manages the accounts of this machine.
    #[default]
    Leave,
    /// Create missing accounts without home directories, which are shared or not needed.
    Create,
    /// Create missing accounts with home directories.
    CreateWithHomes,
}

/// Whether an account of the cluster exists on this machine, or why it cannot.
#[derive(Debug, PartialEq, Eq)]
enum Standing {
    Good,
    Missing,
    Wrong(String),
}

/// Creates missing accounts. Returns why accounts were not created, by name. Blocks while `useradd` runs.
pub(crate) fn ensure(accounts: &[Account], how: NewAccounts) -> HashMap<String, String> {
    let mut not_made = HashMap::new();
    if how == NewAccounts::Leave {
        return not_made;
    }
    if !Uid::effective().is_root() {
        tracing::warn!("cannot create accounts, because this agent does not run as root");
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
            Ok(()) => tracing::info!(user = %account.name, uid = account.uid, "account created"),
            Err(why) => {
                tracing::warn!(user = %account.name, uid = account.uid, "cannot create the account: {why}");
                not_made.insert(account.name.to_string(), why);
            }
        }
    }
    not_made
}

/// Local uid of a user name.
fn by_name(name: &str) -> Option<u32> {
    User::from_name(name).ok().flatten().map(|user| user.uid.as_raw())
}

/// Local user name of a uid.
fn by_uid(uid: u32) -> Option<String> {
    User::from_uid(Uid::from_raw(uid)).ok().flatten().map(|user| user.name)
}

/// Local group name of a gid.
fn by_gid(gid: u32) -> Option<String> {
    Group::from_gid(Gid::from_raw(gid)).ok().flatten().map(|group| group.name)
}

/// Compares an account with this machine. `here` holds the local uid of the account's name, the local user with the
/// account's uid, and the local group whose gid equals that uid.
fn standing(account: &Account, here: (Option<u32>, Option<String>, Option<String>)) -> Standing {
    match here {
        (Some(uid), ..) if uid == account.uid => Standing::Good,
        (Some(uid), ..) => Standing::Wrong(format!(
            "{} has uid {uid} on this machine; change it to the uid in the cluster",
            account.name
        )),
        (None, ..) if account.uid < FIRST_PERSON_UID => {
            Standing::Wrong("uids below 1000 belong to the system".to_owned())
        }
        (None, Some(owner), _) => Standing::Wrong(format!("uid {} belongs to {owner} on this machine", account.uid)),
        (None, None, Some(group)) if group != account.name.as_str() => Standing::Wrong(format!(
            "gid {} belongs to group {group} on this machine, so the account would get another gid",
            account.uid
        )),
        (None, None, _) => Standing::Missing,
    }
}

fn add(account: &Account, how: NewAccounts) -> Result<(), String> {
    let useradd = USERADD.into_iter().find(|path| Path::new(path).is_file()).ok_or("useradd is not installed")?;
    let home = if how == NewAccounts::CreateWithHomes { "--create-home" } else { "--no-create-home" };
    let output = Command::new(useradd)
        .args(["--uid", &account.uid.to_string(), "--user-group", home, "--shell", "/bin/sh"])
        // Other users cannot read what a user has fetched to a new home.
        .args(["--key", "UMASK=077", "--comment", "user of the cluster", "--", account.name.as_str()])
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("cannot run {useradd}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{useradd} failed: {}", String::from_utf8_lossy(&output.stderr).trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conflicting_accounts_are_not_created() {
        let account = |uid| Account { name: "ada".parse().expect("a valid name"), uid };
        let name = |name: &str| Some(name.to_owned());
        assert_eq!(standing(&account(2000), (None, None, None)), Standing::Missing);
        assert_eq!(standing(&account(2000), (Some(2000), name("ada"), name("ada"))), Standing::Good);
        // Two names may share a uid, and the lookup by uid may return the other name.
        assert_eq!(standing(&account(2000), (Some(2000), name("ben"), None)), Standing::Good);
        assert_eq!(
            standing(&account(5), (Some(5), name("ada"), None)),
            Standing::Good,
            "an existing account stays good"
        );
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
