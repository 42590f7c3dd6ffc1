//! `hostler configure`, also called as `cmconfigure`: what operators change about a cluster that runs.

mod setting;

use clap::{Args, Subcommand};

use super::node::Node;
use crate::context::Context;
use crate::failure::Outcome;

/// Configure the cluster: nodes and settings
#[derive(Debug, Args)]
pub(crate) struct Configure {
    #[command(subcommand)]
    command: ConfigureCommand,
}

#[derive(Debug, Subcommand)]
enum ConfigureCommand {
    Node(Node),
    Setting(setting::Setting),
}

impl Configure {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        match self.command {
            ConfigureCommand::Node(node) => node.run(context),
            ConfigureCommand::Setting(setting) => setting.run(context),
        }
    }
}
