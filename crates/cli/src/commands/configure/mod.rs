//! `hostler configure`: who uses the cluster, how much they may have, and who did what. For admins.

mod audit;
mod quota;
mod roster;
mod user;

use clap::{Args, Subcommand};

use crate::context::Context;
use crate::failure::Outcome;

/// Set the cluster up: users, quotas, and a look at who did what
///
/// For admins: root and the user that runs the head, on the head's machine, and users whom they have given that role.
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
}

impl Configure {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        match self.command {
            ConfigureCommand::User(command) => command.run(context),
            ConfigureCommand::Group(command) => command.run(context),
            ConfigureCommand::Audit(command) => command.run(context),
        }
    }
}
