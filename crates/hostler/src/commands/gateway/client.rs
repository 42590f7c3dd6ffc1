//! `hostler gateway client`: clients of the VPN.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use hostler_cli::context::Context;
use hostler_cli::exit;
use hostler_cli::failure::{During, Failure, Outcome};
use hostler_cli::output;
use hostler_gateway::{Gateway, qr_code};
use serde_json::json;

use super::failure;
use super::output as views;

#[derive(Debug, Args)]
pub(super) struct Clients {
    #[command(subcommand)]
    command: ClientCommand,
}

#[derive(Debug, Subcommand)]
enum ClientCommand {
    Add(Add),
    /// List the VPN clients with the time and address of their last connection
    List,
    Revoke(Revoke),
}

/// Add a VPN client and print the client's WireGuard profile
///
/// The profile contains the client's private key. The gateway does not store the key, so the profile cannot be printed
/// again. On a terminal, the command also shows the profile as a QR code for the WireGuard app on a phone.
#[derive(Debug, Args)]
struct Add {
    /// Name of the VPN client
    name: String,

    /// Write the profile to a new file that only the file's owner can read
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Show the QR code even if stdout is not a terminal
    #[arg(long)]
    qr: bool,
}

/// Revoke the VPN access of a client immediately
#[derive(Debug, Args)]
struct Revoke {
    /// Name of the VPN client
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
        // Open the file before anything changes, because the private key cannot be recovered.
        let file = self.output.as_ref().map(|path| {
            let failed = || format!("cannot make {}", path.display());
            OpenOptions::new().create_new(true).write(true).mode(0o600).open(path).during(failed)
        });
        let file = file.transpose()?;
        let added = gateway.add_client(&self.name);
        if let (Err(_), Some(path)) = (&added, &self.output) {
            // Delete the new file, which is still empty.
            let _ = std::fs::remove_file(path);
        }
        let (client, profile) = added.map_err(failure)?;
        if let (Some(mut file), Some(path)) = (file, &self.output) {
            let written = file.write_all(profile.as_bytes()).and_then(|()| file.sync_all());
            written.during(|| format!("cannot write {}", path.display())).map_err(|failure: Failure| {
                failure.hint(format!("run `hostler gateway client revoke {}` and add the client again", self.name))
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
        output.say(&format!("client {} has the address {}", client.name, client.address));
        Ok(exit::OK)
    }
}

fn list(context: &Context, gateway: &Gateway) -> Outcome {
    let clients = gateway.clients().map_err(failure)?;
    let output = &context.output;
    if output.is_json() {
        output.json(&clients);
    } else if output.is_quiet() {
        clients.iter().for_each(|client| output.data(&client.name));
    } else if clients.is_empty() {
        output.say("no clients; `hostler gateway client add NAME` adds one");
    } else {
        output.data(&views::clients(&clients, views::now_secs(), output::width()));
    }
    Ok(exit::OK)
}

impl Revoke {
    fn run(self, context: &Context, gateway: &Gateway) -> Outcome {
        let client = gateway.revoke_client(&self.name).map_err(failure)?;
        if context.output.is_json() {
            context.output.json(&json!({ "name": client.name, "address": client.address }));
        }
        context.output.say(&format!("the VPN access of client {} is revoked", client.name));
        Ok(exit::OK)
    }
}
