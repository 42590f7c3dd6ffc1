//! `hostler configure user`: manages users and their keys, roles and quotas.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use hostler_client::Client;
use hostler_model::{Role, UserName};
use hostler_proto::users::{AddUser, BlockUser, ChangeKeys, UserView};
use serde_json::json;

use super::quota::QuotaFlags;
use super::{note_empty_groups, roster};
use crate::context::{Context, block_on};
use crate::exit;
use crate::failure::{During, Failure, Outcome};
use crate::output::{self, people};

/// Manage users: accounts, roles, keys, logins and quotas
#[derive(Debug, Args)]
pub(crate) struct User {
    #[command(subcommand)]
    command: UserCommand,
}

#[derive(Debug, Subcommand)]
enum UserCommand {
    /// Add a user; agents with --accounts create the account on every node
    Add(Add),
    /// List users
    List,
    /// Show the details of a user
    Show(Named),
    /// Remove users and revoke their logins; their accounts may still submit jobs
    ///
    /// The head deletes the users' keys, roles and logins. Jobs, quotas and accounts stay. On the cluster's machines,
    /// the account of a removed user can still submit jobs as an ordinary user. To deny the account access, use
    /// `block`.
    Remove(Several),
    /// Deny an account access to the cluster
    ///
    /// The head refuses all requests of the account: on the head's machine, on nodes and after a login. The account's
    /// waiting jobs do not start until `unblock`. The account's running jobs continue; `hostler cancel` ends them. The
    /// account need not belong to a user added with `add`.
    Block(Block),
    /// Allow blocked accounts to use the cluster again
    Unblock(Several),
    /// Change a user's role, effective from the next request
    Role(SetRole),
    /// Add and remove SSH keys of users
    Key(Key),
    /// Add or change users from a CSV file
    ///
    /// The columns are name, uid, role, groups and SSH key. Only the name is required. Separate groups by `;`. The
    /// first line may be a header. The command checks the whole file first, and changes no user if a line is invalid.
    Import(Import),
    /// Print a login code for a user, valid for one day and one login
    Invite(Named),
    /// Set the quota of a user: limits on the user's running and waiting tasks
    ///
    /// These limits go before those that `group quota --each` sets for the user's groups. Options that are not given
    /// keep their values.
    Quota(SetQuota),
}

#[derive(Debug, Args)]
struct Add {
    /// Name of the user's account, e.g. ada, carla.diaz, LAB\bob or ada@lab.example
    name: UserName,

    /// Uid of the user on all machines
    ///
    /// [default: the uid of the account with this name on the head's machine, else a free uid]
    #[arg(long, value_name = "N", value_parser = crate::flags::number::<1000, { u32::MAX }>)]
    uid: Option<u32>,

    /// Role: user, operator or admin
    #[arg(long, value_name = "ROLE", default_value = "user")]
    role: Role,

    /// Group whose quota applies to the user; repeatable
    #[arg(long = "group", value_name = "NAME")]
    groups: Vec<UserName>,

    /// File with SSH public keys of the user, one per line; repeatable
    #[arg(long = "key", value_name = "FILE")]
    keys: Vec<PathBuf>,
}

#[derive(Debug, Args)]
struct Named {
    /// Name of the user
    name: UserName,
}

#[derive(Debug, Args)]
struct Several {
    /// Names of the users
    #[arg(value_name = "NAME", required = true)]
    names: Vec<UserName>,
}

#[derive(Debug, Args)]
struct Block {
    /// Name of the account
    name: UserName,

    /// Reason to show to the user
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,

    /// Uid of the account, if the account exists only on nodes
    #[arg(long, value_name = "N", value_parser = crate::flags::at_least_one)]
    uid: Option<u32>,
}

#[derive(Debug, Args)]
struct SetRole {
    /// Name of the user
    name: UserName,

    /// Role: user, operator or admin
    role: Role,
}

#[derive(Debug, Args)]
struct Key {
    #[command(subcommand)]
    command: KeyCommand,
}

#[derive(Debug, Subcommand)]
enum KeyCommand {
    /// Add SSH public keys to a user
    Add(Keys),
    /// Remove SSH public keys from a user
    Remove(Keys),
}

#[derive(Debug, Args)]
struct Keys {
    /// Name of the user
    name: UserName,

    /// Files with SSH public keys, one per line
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
}

#[derive(Debug, Args)]
struct Import {
    /// CSV file with users, or - for standard input; its first line names the columns: name, uid, role, groups, ssh key
    #[arg(value_name = "FILE")]
    roster: PathBuf,

    /// The file has no line with column names; its columns have the order above
    #[arg(long)]
    no_header: bool,
}

#[derive(Debug, Args)]
struct SetQuota {
    /// Name of the user
    name: UserName,

    #[command(flatten)]
    quota: QuotaFlags,
}

impl User {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let client = context.client()?;
        match self.command {
            UserCommand::Add(command) => command.run(context, &client),
            UserCommand::List => list(context, &client),
            UserCommand::Show(Named { name }) => {
                let user = block_on(async { Ok(client.user(&name).await?) })?;
                show(context, &user);
                Ok(exit::OK)
            }
            UserCommand::Remove(command) => command.remove(context, &client),
            UserCommand::Block(command) => command.run(context, &client),
            UserCommand::Unblock(command) => command.unblock(context, &client),
            UserCommand::Role(SetRole { name, role }) => {
                let user = block_on(async { Ok(client.set_role(&name, role).await?) })?;
                print_result(context, &user, &format!("{name} has the role of {}", role.with_article()));
                Ok(exit::OK)
            }
            UserCommand::Key(Key { command: KeyCommand::Add(keys) }) => {
                let change = ChangeKeys { add: read_keys(&keys.files)?, remove: Vec::new() };
                change_keys(context, &client, &keys.name, &change)
            }
            UserCommand::Key(Key { command: KeyCommand::Remove(keys) }) => {
                let change = ChangeKeys { add: Vec::new(), remove: read_keys(&keys.files)? };
                change_keys(context, &client, &keys.name, &change)
            }
            UserCommand::Import(command) => command.run(context, &client),
            UserCommand::Invite(Named { name }) => invite(context, &client, &name),
            UserCommand::Quota(command) => command.run(context, &client),
        }
    }
}

impl Add {
    fn run(self, context: &Context, client: &Client) -> Outcome {
        let Self { name, uid, role, groups, keys } = self;
        let keys = read_keys(&keys)?;
        let user = AddUser { name, uid, role, groups: groups.into_iter().collect(), keys };
        let asked = user.groups.clone();
        let user = block_on(async { Ok(client.add_user(&user).await?) })?;
        print_result(context, &user, &format!("added {} with uid {}", user.name, user.uid));
        note_empty_groups(context, client, &asked, Some(&user.name));
        Ok(exit::OK)
    }
}

fn list(context: &Context, client: &Client) -> Outcome {
    let users = block_on(async { Ok(client.users().await?) })?;
    let output = &context.output;
    if output.is_json() {
        output.json(&users);
    } else if output.is_quiet() {
        users.iter().for_each(|user| output.data(user.name.as_str()));
    } else {
        output.data(&people::users(&users, output::width()));
    }
    Ok(exit::OK)
}

impl Several {
    fn remove(self, context: &Context, client: &Client) -> Outcome {
        block_on(async {
            for name in &self.names {
                client.remove_user(name).await?;
                context.output.say(&format!(
                    "removed user {name} with keys, role and logins. The account of this name may still submit jobs on the \
                     cluster's machines under its old quota, and its jobs continue"
                ));
                context.output.say(&format!("`hostler configure user block {name}` denies the account access"));
            }
            if context.output.is_json() {
                context.output.json(&self.names);
            }
            Ok(exit::OK)
        })
    }
}

impl Block {
    fn run(self, context: &Context, client: &Client) -> Outcome {
        let Self { name, reason, uid } = self;
        let user = block_on(async { Ok(client.block_user(&name, &BlockUser { uid, reason }).await?) })?;
        let sentence = format!(
            "{name} (uid {}) is blocked. Waiting jobs do not start; running jobs continue: `hostler jobs --user {name}` lists \
             them, `hostler cancel` ends them",
            user.uid
        );
        print_result(context, &user, &sentence);
        Ok(exit::OK)
    }
}

impl Several {
    fn unblock(self, context: &Context, client: &Client) -> Outcome {
        block_on(async {
            for name in &self.names {
                client.unblock_user(name).await?;
                context.output.say(&format!("{name} is no longer blocked; waiting jobs may start"));
            }
            if context.output.is_json() {
                context.output.json(&self.names);
            }
            Ok(exit::OK)
        })
    }
}

fn change_keys(context: &Context, client: &Client, name: &UserName, change: &ChangeKeys) -> Outcome {
    let user = block_on(async { Ok(client.change_keys(name, change).await?) })?;
    let what = if user.keys.len() == 1 { "key".to_owned() } else { "keys".to_owned() };
    print_result(context, &user, &format!("{name} has {} {what}", user.keys.len()));
    Ok(exit::OK)
}

impl Import {
    fn run(self, context: &Context, client: &Client) -> Outcome {
        let path = &self.roster;
        let bytes = match path.as_os_str() == "-" {
            true => {
                let mut bytes = Vec::new();
                std::io::stdin().read_to_end(&mut bytes).map(|_| bytes)
            }
            false => std::fs::read(path),
        };
        let bytes = bytes.during(|| format!("cannot read {}", path.display()))?;
        let text = String::from_utf8(bytes).map_err(|_| {
            Failure::usage(format!("{} is not UTF-8 text; nothing was changed", path.display()))
                .hint("in the spreadsheet, save it as `CSV UTF-8`")
        })?;
        let (rows, mut problems) = roster::read(&text, self.no_header);
        let before = block_on(async { Ok(client.users().await?) })?;
        problems.extend(taken_uids(&before, &rows));
        if !problems.is_empty() {
            let what = format!("{} cannot be imported; nothing was changed", path.display());
            return Err(problems.into_iter().take(MAX_PROBLEMS).fold(Failure::usage(what), Failure::hint));
        }
        let count = rows.len();
        let lines: Vec<(String, usize)> = rows.iter().map(|(line, user)| (user.name.to_string(), *line)).collect();
        let users: Vec<AddUser> = rows.into_iter().map(|(_, user)| user).collect();
        let changed = changed_uids(&before, &users);
        block_on(async { Ok(client.import_users(users).await) })?.map_err(|error| {
            let words: Vec<String> = error.to_string().split_whitespace().map(str::to_owned).collect();
            let named = lines.iter().filter(|(name, _)| words.contains(name)).take(MAX_PROBLEMS);
            let named: Vec<String> = named.map(|(_, line)| format!("see line {line}")).collect();
            let failure = Failure::from(error).with_hints(|hint| hint.replace("with --uid", "in the column uid"));
            named.into_iter().fold(failure, Failure::hint)
        })?;
        if context.output.is_json() {
            context.output.json(&json!({ "imported": count }));
        }
        let users = if count == 1 { "user" } else { "users" };
        context.output.say(&format!("imported {count} {users}"));
        changed.iter().for_each(|note| context.output.say(note));
        Ok(exit::OK)
    }
}

/// Maximum number of problems to report.
const MAX_PROBLEMS: usize = 20;

/// A problem for each uid that another user has, who keeps it, or that an earlier line gives to another user.
fn taken_uids(before: &[UserView], new: &[(usize, AddUser)]) -> Vec<String> {
    let freed: BTreeSet<&UserName> =
        new.iter().filter(|(_, user)| user.uid.is_some()).map(|(_, user)| &user.name).collect();
    let kept = before.iter().filter(|user| user.added && !freed.contains(&user.name));
    let mut owners: BTreeMap<u32, &UserName> = kept.map(|user| (user.uid, &user.name)).collect();
    let mut problems = Vec::new();
    for (line, AddUser { name, uid, .. }) in new {
        let Some(uid) = uid else { continue };
        let owner = *owners.entry(*uid).or_insert(name);
        if owner != name {
            problems.push(format!("line {line}: uid {uid} belongs to {owner}, so {name} cannot have it"));
        }
    }
    problems
}

/// Notes about users whose uid an import changes.
fn changed_uids(before: &[UserView], new: &[AddUser]) -> Vec<String> {
    let changed = new.iter().filter_map(|new| {
        let before = before.iter().find(|user| user.name == new.name)?;
        let uid = new.uid.filter(|uid| *uid != before.uid)?;
        Some((&new.name, before.uid, uid))
    });
    let note = |(name, before, after)| {
        format!("note: the uid of {name} was {before} and is {after}; jobs and files on nodes still belong to {before}")
    };
    changed.map(note).collect()
}

fn invite(context: &Context, client: &Client, name: &UserName) -> Outcome {
    let invitation = block_on(async { Ok(client.invite_user(name).await?) })?;
    match context.output.is_json() {
        true => context.output.json(&invitation),
        false => context.output.data(&invitation.code),
    }
    context.output.say(&format!("{name} can log in once within a day: run `hostler login -` and paste this code"));
    Ok(exit::OK)
}

impl SetQuota {
    fn run(self, context: &Context, client: &Client) -> Outcome {
        let name = &self.name;
        let user = block_on(async {
            let now = client.user(name).await?.quota;
            Ok(client.set_user_quota(name, &self.quota.applied_to(now)).await?)
        })?;
        print_result(context, &user, &format!("{name}: {}", people::quota(&user.limits())));
        Ok(exit::OK)
    }
}

fn show(context: &Context, user: &UserView) {
    match context.output.is_json() {
        true => context.output.json(user),
        false => context.output.data(&people::user(user)),
    }
}

/// Prints `sentence`, or the user as JSON.
fn print_result(context: &Context, user: &UserView, sentence: &str) {
    if context.output.is_json() {
        context.output.json(user);
    }
    context.output.say(sentence);
}

/// Reads SSH public keys from the files, one per line.
fn read_keys(files: &[PathBuf]) -> Result<Vec<String>, Failure> {
    let mut keys = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(file).during(|| format!("cannot read {}", file.display()))?;
        if text.contains("PRIVATE KEY") {
            return Err(Failure::usage(format!("{} contains a private key", file.display()))
                .hint(format!("use the public key, usually in {}.pub", file.display())));
        }
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        let before = keys.len();
        keys.extend(lines.map(str::to_owned));
        if keys.len() == before {
            return Err(Failure::usage(format!("{} contains no key", file.display())));
        }
    }
    Ok(keys)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taken_uids_are_named_and_users_may_swap() {
        let view = |name: &str, uid: u32| -> UserView {
            let value = json!({ "name": name, "uid": uid, "role": "user", "groups": [], "keys": [], "quota": {} });
            serde_json::from_value(value).expect("a user")
        };
        let before = [view("ada", 2000), view("ben", 2001)];
        let taken = |text: &str| taken_uids(&before, &roster::read(text, true).0);
        assert_eq!(
            taken("cy,2001\ndan,3000\neve,3000\n"),
            [
                "line 1: uid 2001 belongs to ben, so cy cannot have it",
                "line 3: uid 3000 belongs to dan, so eve cannot have it"
            ]
        );
        assert_eq!(taken("ada,2001\nben,2000\ncy\n"), Vec::<String>::new());
    }
}
