//! `hostler info`: shows a summary of the cluster.

use clap::Args;
use hostler_client::Client;

use crate::context::{Context, block_on};
use crate::exit;
use crate::failure::Outcome;
use crate::output::{self, node_views, partitions, views};

/// Show a summary of the cluster
#[derive(Debug, Args)]
pub struct Info {
    /// Show the power use and saved energy of nodes that the head switches on and off
    #[arg(long)]
    energy: bool,
}

impl Info {
    pub fn run(self, context: &Context) -> Outcome {
        let client = context.client()?;
        if self.energy {
            return show_energy(&client, context);
        }
        let (info, parts) = block_on(async { Ok((client.info().await?, client.partitions().await?)) })?;
        let output = &context.output;
        if output.is_json() {
            output.json(&info);
            return Ok(exit::OK);
        }
        output.data(&views::info(&info));
        if !parts.is_empty() {
            output.data(&format!("\n{}", partitions::list(&parts, output::width())));
        }
        Ok(exit::OK)
    }
}

fn show_energy(client: &Client, context: &Context) -> Outcome {
    let energy = block_on(async { Ok(client.energy().await?) })?;
    let output = &context.output;
    if output.is_json() {
        output.json(&energy);
        return Ok(exit::OK);
    }
    if energy.nodes.is_empty() {
        output.say("the head cannot switch any node on or off: the head's power.toml lists no node");
    } else {
        output.data(&node_views::energy(&energy, output::width()));
    }
    if let Some(trouble) = &energy.trouble {
        output.say(&format!("warning: {trouble}"));
    }
    Ok(exit::OK)
}
