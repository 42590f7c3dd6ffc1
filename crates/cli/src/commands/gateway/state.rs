//! `hostler gateway status`, `start` and `remove`.

use std::io::{self, BufRead, IsTerminal};

use clap::Args;
use hostler_gateway::Gateway;
use serde_json::json;

use crate::context::Context;
use crate::exit;
use crate::failure::{During, Failure, Outcome};
use crate::output::{self, gateway as views};

/// Show how the gateway stands: what is amiss, who has which address, who came in by the VPN
#[derive(Debug, Args)]
pub(super) struct Status {}

/// Make what was confirmed so, as it is done after a boot
#[derive(Debug, Args)]
pub(super) struct Start {}

/// Take everything away: the machine is as it was found
#[derive(Debug, Args)]
pub(super) struct Remove {
    /// Do not ask
    #[arg(short, long)]
    yes: bool,

    /// Keep the keys and clients of the VPN for the next time: profiles that were handed out stay good
    #[arg(long)]
    keep_clients: bool,
}

impl Status {
    pub(super) fn run(self, context: &Context, gateway: &Gateway) -> Outcome {
        let status = gateway.status()?;
        match context.output.is_json() {
            true => context.output.json(&status),
            false => context.output.data(&views::status(&status, output::width())),
        }
        Ok(exit::OK)
    }
}

impl Start {
    pub(super) fn run(self, context: &Context, gateway: &Gateway) -> Outcome {
        let steps = gateway.start()?;
        if context.output.is_json() {
            context.output.json(&json!({ "steps": steps }));
        }
        steps.iter().for_each(|step| context.output.say(&format!("done: {step}")));
        Ok(exit::OK)
    }
}

impl Remove {
    pub(super) fn run(self, context: &Context, gateway: &Gateway) -> Outcome {
        if !self.yes {
            self.ask(context, gateway)?;
        }
        let steps = gateway.remove(self.keep_clients)?;
        if context.output.is_json() {
            context.output.json(&json!({ "steps": steps }));
        }
        steps.iter().for_each(|step| context.output.say(&format!("done: {step}")));
        let kept = if self.keep_clients { ", but the key and the clients of its VPN" } else { "" };
        context.output.say(&format!("nothing of the gateway is left on this machine{kept}"));
        Ok(exit::OK)
    }

    fn ask(&self, context: &Context, gateway: &Gateway) -> Result<(), Failure> {
        let clients = gateway.clients()?.len();
        let loss = match clients {
            0 => String::new(),
            _ if self.keep_clients => String::new(),
            1 => ", and make the profile of 1 client worthless".to_owned(),
            count => format!(", and make the profiles of {count} clients worthless"),
        };
        if !io::stdin().is_terminal() {
            return Err(Failure::usage("nobody is here to say whether the gateway should really be removed")
                .hint("`--yes` says so"));
        }
        context.output.say(&format!("cut the nodes off{loss}? [y/N]"));
        let mut answer = String::new();
        io::stdin().lock().read_line(&mut answer).during(|| "cannot read the answer".to_owned())?;
        match answer.trim().to_ascii_lowercase().as_str() {
            "y" | "yes" => Ok(()),
            _ => Err(Failure::new("nothing was removed")),
        }
    }
}
