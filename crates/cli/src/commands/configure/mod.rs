//! `hostler configure`, also called `cmconfigure`: users, quotas, partitions, settings, notifications and the audit log of a
//! running cluster.

mod audit;
mod notify;
mod partition;
mod quota;
mod roster;
mod setting;
mod user;

use clap::{Args, Subcommand};

use super::node::Node;
use crate::context::Context;
use crate::failure::Outcome;

/// Configure users, quotas, partitions and settings
///
/// The command also shows the audit log. Admins can use all subcommands. Admins are users with the role admin and, on
/// the head's machine, root and the user that runs the head. Operators can change nodes, partitions and settings.
#[derive(Debug, Args)]
pub(crate) struct Configure {
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
    pub(crate) fn run(self, context: &Context) -> Outcome {
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
