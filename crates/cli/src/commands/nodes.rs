//! `hostler nodes`: lists the nodes, or their loads.

use clap::Args;
use hostler_client::{Client, ClientError, Endpoint};

use crate::context::{Context, block_on};
use crate::failure::{Failure, Outcome};
use crate::output::{self, load_views, node_views, table};
use crate::{config, exit};

/// List the nodes with their state and free resources
#[derive(Debug, Args)]
pub struct Nodes {
    /// Show the load of the nodes as this machine's agent knows it; needs no head
    #[arg(long)]
    load: bool,
}

impl Nodes {
    pub fn run(self, context: &Context) -> Outcome {
        if self.load {
            return load(context);
        }
        let client = context.client()?;
        let nodes = block_on(async { Ok(client.nodes().await?) })?;
        let output = &context.output;
        if output.is_json() {
            output.json(&nodes);
        } else if output.is_quiet() {
            nodes.iter().for_each(|node| output.data(node.name.as_str()));
        } else {
            output.data(&node_views::node_list(&nodes, output::width()));
            if let Some(note) = node_views::shared_cpus(&nodes) {
                output.say(&format!("note: {note}"));
            }
            for node in &nodes {
                if let Some(reason) = &node.reason {
                    output.say(&format!("{} is {}", node.name, table::one_line(reason)));
                }
            }
        }
        Ok(exit::OK)
    }
}

/// Prints the loads that the agent of this machine has received by gossip.
fn load(context: &Context) -> Outcome {
    let table = block_on(async {
        let mut failure = None;
        for socket in config::agent_sockets()? {
            let client = Client::new(Endpoint::Unix(socket));
            match client.load().await {
                Ok(table) => return Ok(table),
                Err(error) if error.code() == Some("no_such_route") => failure = Some(too_old(&error)),
                // Keep the first error: an earlier answer of an agent is more useful than a failed connection.
                Err(error) => drop(failure.get_or_insert(Failure::from(error))),
            }
        }
        Err(failure.unwrap_or_else(no_agent))
    })?;
    let output = &context.output;
    if output.is_json() {
        output.json(&table);
    } else if output.is_quiet() {
        table.nodes.iter().for_each(|node| output.data(node.name.as_str()));
    } else {
        output.data(&load_views::loads(&table, output::width()));
        if table.nodes.is_empty() {
            output.say("this node has not received the list of nodes from the head yet");
        }
    }
    Ok(exit::OK)
}

fn too_old(error: &ClientError) -> Failure {
    Failure::new("the agent of this machine is too old to report loads").because(error)
}

fn no_agent() -> Failure {
    Failure::new("no agent runs on this machine, or its socket is not open to you")
        .hint("only nodes know the loads: run the command on a node")
        .exiting(exit::UNREACHABLE)
}
