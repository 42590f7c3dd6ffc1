//! `hostler gateway`: makes the head's machine the router, DHCP and DNS server and VPN endpoint of its nodes.

mod apply;
mod client;
mod plan;
mod state;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use hostler_gateway::{DEFAULT_DIRECTORY, Description, GatewayError, Mistake, Setup};

use crate::context::Context;
use crate::failure::{During, Failure, Outcome};

/// Default path of the gateway's configuration.
const DEFAULT_FILE: &str = "/etc/hostler/gateway.toml";

/// Make this machine a router, DHCP/DNS server and VPN gateway
///
/// One configuration file describes the gateway; `hostler gateway plan --example` prints an example file. `plan` shows
/// what `apply` would change. `apply` changes the machine, and rolls back unless you confirm the change in time.
/// `remove` restores the machine's previous configuration. Packet rules, DHCP servers and VPNs that do not belong to
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

/// The option that selects the configuration file.
#[derive(Debug, Args)]
struct File {
    /// Configuration file of the gateway
    #[arg(short, long, value_name = "FILE", default_value = DEFAULT_FILE)]
    file: PathBuf,
}

impl Gateway {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let directory = std::path::absolute(&self.directory)
            .during(|| format!("cannot resolve the directory `{}`", self.directory.display()))?;
        let program = std::env::current_exe().during(|| "cannot determine the path of this program".to_owned())?;
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

impl File {
    /// Reads the file, and derives the configuration of this machine from it.
    fn read(&self, gateway: &hostler_gateway::Gateway) -> Result<(Description, Setup), Failure> {
        let path = &self.file;
        let text = std::fs::read_to_string(path).map_err(|error| {
            let failure = Failure::new(format!("cannot read {}", path.display())).because(&error);
            failure.hint(format!("`hostler gateway plan --example > {}` writes an example", path.display()))
        })?;
        let description = match gateway.interfaces() {
            Ok(present) => Description::parse_for(&text, &present),
            // Mistakes in the file can be reported even without the list of interfaces.
            Err(error) => match Description::parse(&text) {
                Ok(_) => return Err(error.into()),
                mistakes => mistakes,
            },
        };
        let description = description.map_err(|mistakes| wrong(path, &mistakes))?;
        let setup = Setup::of(&description);
        Ok((description, setup))
    }
}

/// Lists all mistakes in the file. The exit code is 1, because 2 means that `plan` found changes.
fn wrong(path: &Path, mistakes: &[Mistake]) -> Failure {
    let there_is = match mistakes.len() {
        1 => "1 mistake".to_owned(),
        count => format!("{count} mistakes"),
    };
    let lines: String = mistakes.iter().map(|mistake| format!("\n  {mistake}")).collect();
    Failure::new(format!("{there_is} in {}:{lines}", path.display()))
}

impl From<GatewayError> for Failure {
    fn from(error: GatewayError) -> Self {
        let failure = Self::new(error.to_string()).because(&error);
        error.hints().into_iter().fold(failure, Self::hint)
    }
}
