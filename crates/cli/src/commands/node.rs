//! `hostler node`.

use clap::{Args, Subcommand};
use hostler_model::NodeName;

use super::discover::Discover;
use super::nodes::Nodes;
use crate::context::{Context, block_on};
use crate::exit;
use crate::failure::Outcome;

/// Manage one node, or see what this machine would offer as one
#[derive(Debug, Args)]
pub(crate) struct Node {
    #[command(subcommand)]
    command: NodeCommand,
}

#[derive(Debug, Subcommand)]
enum NodeCommand {
    List(Nodes),
    Discover(Discover),
    Forget(Forget),
}

/// Take nodes that are gone for good off the list
///
/// A node that is connected, or on which a task is still placed, stays. One whose agent connects again is back on the list.
#[derive(Debug, Args)]
struct Forget {
    /// Nodes such as n4
    #[arg(value_name = "NAME", required = true)]
    names: Vec<NodeName>,
}

impl Node {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        match self.command {
            NodeCommand::List(list) => list.run(context),
            NodeCommand::Discover(discover) => discover.run(context),
            NodeCommand::Forget(forget) => forget.run(context),
        }
    }
}

impl Forget {
    fn run(self, context: &Context) -> Outcome {
        let Self { names } = self;
        let client = context.client()?;
        block_on(async {
            for name in &names {
                client.forget_node(name).await?;
                context.output.say(&format!("node {name} is forgotten"));
            }
            if context.output.is_json() {
                context.output.json(&names);
            }
            Ok(exit::OK)
        })
    }
}
