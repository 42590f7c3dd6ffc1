//! `hostler configure`, also called `cmconfigure`: users, quotas, partitions, settings, notifications and the audit log of a
//! running cluster.

mod audit;
mod notify;
mod partition;
mod quota;
mod roster;
mod setting;
mod user;

use std::collections::BTreeSet;

use clap::{Args, Subcommand};
use hostler_client::Client;
use hostler_model::UserName;

use super::node::Node;
use crate::context::{Context, block_on};
use crate::failure::Outcome;

/// Configure users, quotas, partitions and settings
///
/// The command also shows the audit log. Admins can use all subcommands. Admins are users with the role admin and, on
/// the head's machine, root and the user that runs the head. Operators can change nodes, partitions and settings.
#[derive(Debug, Args)]
pub struct Configure {
    #[command(subcommand)]
    command: ConfigureCommand,
}

#[derive(Debug, Subcommand)]
enum ConfigureCommand {
    User(user::User),
    Group(quota::Group),
    Audit(audit::Audit),
    Node(Node),
    Partition(partition::Partition),
    Setting(setting::Setting),
    Notify(notify::Notify),
}

impl Configure {
    pub fn run(self, context: &Context) -> Outcome {
        match self.command {
            ConfigureCommand::User(command) => command.run(context),
            ConfigureCommand::Group(command) => command.run(context),
            ConfigureCommand::Audit(command) => command.run(context),
            ConfigureCommand::Node(node) => node.run(context),
            ConfigureCommand::Partition(partition) => partition.run(context),
            ConfigureCommand::Setting(setting) => setting.run(context),
            ConfigureCommand::Notify(notify) => notify.run(context),
        }
    }
}

/// Says which of `groups` no user is in: their names may be wrong. `except` is a user who has just been added to them. Says
/// nothing to a caller who may not see the users.
fn note_empty_groups<'a>(
    context: &Context,
    client: &Client,
    groups: impl IntoIterator<Item = &'a UserName>,
    except: Option<&UserName>,
) {
    let mut groups = groups.into_iter().peekable();
    if groups.peek().is_none() {
        return;
    }
    let Ok(users) = block_on(async { Ok(client.users().await?) }) else { return };
    let others = users.iter().filter(|user| Some(&user.name) != except);
    let known: BTreeSet<&UserName> = others.flat_map(|user| &user.groups).collect();
    for group in groups.filter(|group| !known.contains(group)) {
        let other = if except.is_some() { "other " } else { "" };
        context.output.say(&format!("note: no {other}user is in group {group}"));
    }
}
