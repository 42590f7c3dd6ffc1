//! `hostler gateway client`: who may come in by the VPN.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use hostler_gateway::{Gateway, qr_code};
use serde_json::json;

use crate::context::Context;
use crate::exit;
use crate::failure::{During, Failure, Outcome};
use crate::output::{self, gateway as views};

#[derive(Debug, Args)]
pub(super) struct Clients {
    #[command(subcommand)]
    command: ClientCommand,
}

#[derive(Debug, Subcommand)]
enum ClientCommand {
    Add(Add),
    /// List who may come in, and when and from where they did
    List,
    Revoke(Revoke),
}

/// Let a machine in, and print its profile for WireGuard
///
/// The profile holds the machine's private key, which is kept nowhere else: it cannot be shown again. On a terminal it is shown as a QR
/// code as well, for the app on a phone.
#[derive(Debug, Args)]
struct Add {
    /// What to call the machine
    name: String,

    /// Write the profile to this new file, which only its owner can read, instead
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Show the QR code even if nobody watches
    #[arg(long)]
    qr: bool,
}

/// Let a machine in no more, from this moment on
#[derive(Debug, Args)]
struct Revoke {
    /// What it is called
    name: String,
}

impl Clients {
    pub(super) fn run(self, context: &Context, gateway: &Gateway) -> Outcome {
        match self.command {
            ClientCommand::Add(command) => command.run(context, gateway),
            ClientCommand::List => list(context, gateway),
            ClientCommand::Revoke(command) => command.run(context, gateway),
        }
    }
}

impl Add {
    fn run(self, context: &Context, gateway: &Gateway) -> Outcome {
        let output = &context.output;
        // Before anything is changed: a key that cannot be written down is lost.
        let file = self.output.as_ref().map(|path| {
            let failed = || format!("cannot make {}", path.display());
            OpenOptions::new().create_new(true).write(true).mode(0o600).open(path).during(failed)
        });
        let file = file.transpose()?;
        let added = gateway.add_client(&self.name);
        if let (Err(_), Some(path)) = (&added, &self.output) {
            // Nothing is in it.
            let _ = std::fs::remove_file(path);
        }
        let (client, profile) = added?;
        if let (Some(mut file), Some(path)) = (file, &self.output) {
            let written = file.write_all(profile.as_bytes()).and_then(|()| file.sync_all());
            written.during(|| format!("cannot write {}", path.display())).map_err(|failure: Failure| {
                failure.hint(format!("`hostler gateway client revoke {}` and add it again", self.name))
            })?;
        }
        let path = self.output.map(|path| path.display().to_string());
        match (output.is_json(), &path) {
            (true, Some(path)) => output.json(&json!({ "name": client.name, "address": client.address, "file": path })),
            (true, None) => output.json(&json!({ "name": client.name, "address": client.address, "profile": profile })),
            (false, Some(path)) => output.say(&format!("the profile is in {path}")),
            (false, None) => output.data(&profile),
        }
        if let Some(code) = qr_code(&profile).filter(|_| self.qr || output.is_watched()) {
            output.say(&code);
        }
        output.say(&format!("{} may come in as {}", client.name, client.address));
        Ok(exit::OK)
    }
}

fn list(context: &Context, gateway: &Gateway) -> Outcome {
    let clients = gateway.clients()?;
    let output = &context.output;
    if output.is_json() {
        output.json(&clients);
    } else if output.is_quiet() {
        clients.iter().for_each(|client| output.data(&client.name));
    } else if clients.is_empty() {
        output.say("nobody may come in: `hostler gateway client add NAME` lets a machine in");
    } else {
        output.data(&views::clients(&clients, views::now_secs(), output::width()));
    }
    Ok(exit::OK)
}

impl Revoke {
    fn run(self, context: &Context, gateway: &Gateway) -> Outcome {
        let client = gateway.revoke_client(&self.name)?;
        if context.output.is_json() {
            context.output.json(&json!({ "name": client.name, "address": client.address }));
        }
        context.output.say(&format!("{} may come in no more", client.name));
        Ok(exit::OK)
    }
}
