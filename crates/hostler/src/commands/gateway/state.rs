//! `hostler gateway status`, `start` and `remove`: show, start and remove the gateway.

use clap::Args;
use hostler_cli::context::Context;
use hostler_cli::exit;
use hostler_cli::failure::{Failure, Outcome};
use hostler_cli::output;
use hostler_gateway::Gateway;
use serde_json::json;

use super::apply::tell;
use super::failure;
use super::output as views;

/// Show problems, DHCP leases and connected VPN clients of the gateway
#[derive(Debug, Args)]
pub(super) struct Status {}

/// Load the last confirmed configuration, as the system does at boot
#[derive(Debug, Args)]
pub(super) struct Start {}

/// Remove the gateway and undo its changes
#[derive(Debug, Args)]
pub(super) struct Remove {
    /// Do not ask for confirmation
    #[arg(short, long)]
    yes: bool,

    /// Keep the VPN key and the clients, so that the clients' profiles stay valid
    #[arg(long)]
    keep_clients: bool,
}

impl Status {
    pub(super) fn run(self, context: &Context, gateway: &Gateway) -> Outcome {
        let status = gateway.status().map_err(failure)?;
        match context.output.is_json() {
            true => context.output.json(&status),
            false => context.output.data(&views::status(&status, output::width())),
        }
        Ok(exit::OK)
    }
}

impl Start {
    pub(super) fn run(self, context: &Context, gateway: &Gateway) -> Outcome {
        report(context, &gateway.start().map_err(failure)?);
        Ok(exit::OK)
    }
}

fn report(context: &Context, commands: &[String]) {
    if context.output.is_json() {
        context.output.json(&json!({ "commands": commands }));
    }
    tell(context, commands);
}

impl Remove {
    pub(super) fn run(self, context: &Context, gateway: &Gateway) -> Outcome {
        if !self.yes {
            self.ask(context, gateway)?;
        }
        report(context, &gateway.remove(self.keep_clients).map_err(failure)?);
        let kept = if self.keep_clients { ", except the key and the clients of the VPN" } else { "" };
        context.output.say(&format!("the gateway is removed from this machine{kept}"));
        Ok(exit::OK)
    }

    fn ask(&self, context: &Context, gateway: &Gateway) -> Result<(), Failure> {
        let clients = gateway.clients().map_err(failure)?.len();
        let loss = match clients {
            0 => String::new(),
            _ if self.keep_clients => String::new(),
            1 => " and invalidate the VPN profile of 1 client".to_owned(),
            count => format!(" and invalidate the VPN profiles of {count} clients"),
        };
        let question = format!("remove the gateway, disconnect its nodes{loss}?");
        match context.output.confirms("the removal of the gateway", &question)? {
            true => Ok(()),
            false => Err(Failure::declined("nothing was removed")),
        }
    }
}
