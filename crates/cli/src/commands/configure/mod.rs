//! `hostler configure`, also called as `cmconfigure`: who uses the cluster, how much they may have, who did what, and what operators change
//! about a cluster that runs.

mod audit;
mod partition;
mod quota;
mod roster;
mod setting;
mod user;

use clap::{Args, Subcommand};

use super::node::Node;
use crate::context::Context;
use crate::failure::Outcome;

/// Set the cluster up: users, quotas, nodes, partitions and settings, and a look at who did what
///
/// For admins: root and the user that runs the head, on the head's machine, and users whom they have given that role. Nodes, partitions
/// and settings are for operators as well.
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
        }
    }
}
