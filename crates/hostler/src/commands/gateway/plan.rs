//! `hostler gateway plan`: shows what `apply` would change.

use clap::Args;
use hostler_cli::context::Context;
use hostler_cli::exit;
use hostler_cli::failure::Outcome;
use hostler_gateway::{Description, EXAMPLE, Gateway, Obstacle, Planned};
use serde_json::json;

use super::failure;
use super::file::File;
use super::output as views;

/// Show what `apply` would change and what could prevent the change
///
/// `plan` compares the files that `apply` would write with the files in use, and prints the commands that load them.
/// `plan` itself changes nothing. Exit codes: 0 if `apply` would change nothing; 2 if `apply` would change something.
#[derive(Debug, Args)]
pub(super) struct Plan {
    #[command(flatten)]
    file: File,

    /// Print an example configuration file with comments
    #[arg(long, conflicts_with = "file")]
    example: bool,

    /// Draw the network that the file describes, as text, and change and compare nothing
    #[arg(long, conflicts_with = "example")]
    diagram: bool,
}

impl Plan {
    pub(super) fn run(self, context: &Context, gateway: &Gateway) -> Outcome {
        if self.example {
            context.output.data(EXAMPLE);
            return Ok(exit::OK);
        }
        let setup = self.file.read(gateway)?;
        if self.diagram {
            return diagram(context, gateway, &setup.description);
        }
        let planned = gateway.plan(&setup).map_err(failure)?;
        let warnings = warnings(&setup.description, &planned.obstacles);
        let is_change = !planned.difference.is_empty();
        if context.output.is_json() {
            context.output.json(&json!({
                "is_change": is_change,
                "difference": planned.difference,
                "commands": planned.commands,
                "missing": planned.missing,
                "warnings": warnings,
            }));
        } else {
            show(context, &planned, &warnings);
        }
        Ok(if is_change { exit::GATEWAY_CHANGE } else { exit::OK })
    }
}

fn diagram(context: &Context, gateway: &Gateway, description: &Description) -> Outcome {
    // Only root may read the clients.
    let clients = match (&description.vpn, gateway.clients()) {
        (None, _) => Vec::new(),
        (Some(_), Ok(clients)) => clients,
        (Some(_), Err(error)) => {
            context.output.say(&format!("note: VPN clients are not shown: {error}"));
            Vec::new()
        }
    };
    let text = views::diagram(description, &clients);
    match context.output.is_json() {
        true => context.output.json(&json!({ "diagram": text })),
        false => context.output.data(&text),
    }
    Ok(exit::OK)
}

fn show(context: &Context, planned: &Planned, warnings: &[String]) {
    let output = &context.output;
    if !output.is_quiet() {
        output.data(&planned.difference);
        output.data(&planned.commands.iter().map(|command| format!("run: {command}\n")).collect::<String>());
    }
    for lack in &planned.missing {
        output.say(&format!("warning: `apply` would fail: {lack}"));
    }
    for warning in warnings {
        output.say(&format!("warning: {warning}"));
    }
    if planned.difference.is_empty() {
        output.say("nothing to change");
    }
}

/// Warnings about problems that `apply` cannot solve.
pub(super) fn warnings(description: &Description, obstacles: &[Obstacle]) -> Vec<String> {
    let mut warnings = Vec::new();
    if description.shares_segment() {
        warnings
            .push("nodes and management controllers share one interface: packet rules cannot separate them".to_owned());
    }
    for obstacle in obstacles {
        let what = if obstacle.forward { "nodes to the outside" } else { "nodes and clients to this machine" };
        let remedy = obstacle.remedy(&description.nodes.interface, description.vpn.as_ref().map(|vpn| vpn.port));
        warnings.push(format!(
            "the chain `{}` does not belong to Hostler and may drop traffic from {what}. To accept this traffic: {}",
            obstacle.chain,
            remedy.join("; ")
        ));
    }
    warnings
}
