//! `hostler nodes`.

use clap::Args;

use crate::context::{Context, block_on};
use crate::exit;
use crate::failure::Outcome;
use crate::output::{self, node_views, table};

/// List the nodes, what they have and what is free
#[derive(Debug, Args)]
pub(crate) struct Nodes {}

impl Nodes {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let client = context.client()?;
        let nodes = block_on(async { Ok(client.nodes().await?) })?;
        let output = &context.output;
        if output.is_json() {
            output.json(&nodes);
        } else if output.is_quiet() {
            nodes.iter().for_each(|node| output.data(node.name.as_str()));
        } else {
            output.data(&node_views::node_list(&nodes, output::width()));
            for node in &nodes {
                if let Some(reason) = &node.reason {
                    output.say(&format!("{} is {}", node.name, table::one_line(reason)));
                }
            }
        }
        Ok(exit::OK)
    }
}
