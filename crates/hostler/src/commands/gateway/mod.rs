//! `hostler gateway`: makes the head's machine the router, DHCP and DNS server and VPN endpoint of its nodes.

mod apply;
mod client;
mod file;
pub(crate) mod output;
mod plan;
mod state;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use hostler_cli::context::Context;
use hostler_cli::failure::{During, Failure, Outcome};
use hostler_gateway::{DEFAULT_DIRECTORY, GatewayError};

/// Make this machine a router, DHCP/DNS server and VPN gateway
///
/// One configuration file describes the gateway; `hostler gateway plan --example` prints an example file. `plan` shows
/// the files that `apply` would write and the commands that load them. `apply` does so, and restores the previous files
/// unless you confirm the change in time. `remove` undoes all changes. Packet rules, DHCP servers and VPNs that do not belong to
/// Hostler stay as they are.
#[derive(Debug, Args)]
pub(crate) struct Gateway {
    /// Directory for the gateway's state
    #[arg(long, global = true, value_name = "DIR", default_value = DEFAULT_DIRECTORY)]
    directory: PathBuf,

    #[command(subcommand)]
    command: GatewayCommand,
}

#[derive(Debug, Subcommand)]
enum GatewayCommand {
    Plan(plan::Plan),
    Apply(apply::Apply),
    Confirm(apply::Confirm),
    Status(state::Status),
    Start(state::Start),
    Remove(state::Remove),
    /// Manage VPN clients: add, list, revoke
    Client(client::Clients),
    #[command(hide = true)]
    Guard(apply::Guard),
}

impl Gateway {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let directory = std::path::absolute(&self.directory)
            .during(|| format!("cannot resolve the directory `{}`", self.directory.display()))?;
        let program = std::env::current_exe().during(|| "cannot determine the path of this program".to_owned())?;
        hostler_cli::cluster::ensure_controlled(&directory)?;
        let gateway = hostler_gateway::Gateway::new(&directory, program);
        match self.command {
            GatewayCommand::Plan(command) => command.run(context, &gateway),
            GatewayCommand::Apply(command) => command.run(context, &gateway),
            GatewayCommand::Confirm(command) => command.run(context, &gateway),
            GatewayCommand::Status(command) => command.run(context, &gateway),
            GatewayCommand::Start(command) => command.run(context, &gateway),
            GatewayCommand::Remove(command) => command.run(context, &gateway),
            GatewayCommand::Client(command) => command.run(context, &gateway),
            GatewayCommand::Guard(command) => command.run(&gateway),
        }
    }
}

#[expect(clippy::needless_pass_by_value, reason = "the signature that `map_err` needs")]
fn failure(error: GatewayError) -> Failure {
    let failure = Failure::new(error.to_string()).because(&error);
    error.hints().into_iter().fold(failure, Failure::hint)
}
