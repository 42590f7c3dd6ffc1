//! `hostler gateway`: the head's machine as router, DHCP and DNS server and VPN endpoint of its nodes.

mod apply;
mod client;
mod plan;
mod state;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use hostler_gateway::{DEFAULT_DIRECTORY, Description, GatewayError, Mistake, Setup};

use crate::context::Context;
use crate::failure::{During, Failure, Outcome};

/// Where the description usually is.
const DEFAULT_FILE: &str = "/etc/hostler/gateway.toml";

/// Make this machine the gateway of its nodes: router, DHCP and DNS server, and VPN endpoint
///
/// One small file describes it; `hostler gateway plan --example` prints one to begin with. `plan` shows what would be different, `apply`
/// makes it so and takes it back unless it is confirmed in time, `remove` leaves the machine as it was found. Packet rules, DHCP servers and
/// VPNs of others are not touched.
#[derive(Debug, Args)]
pub(crate) struct Gateway {
    /// Where the gateway keeps its state
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
    /// Let machines in by the VPN, and out
    Client(client::Clients),
    #[command(hide = true)]
    Guard(apply::Guard),
}

/// Which description.
#[derive(Debug, Args)]
struct File {
    /// The description of the gateway
    #[arg(short, long, value_name = "FILE", default_value = DEFAULT_FILE)]
    file: PathBuf,
}

impl Gateway {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let directory = std::path::absolute(&self.directory)
            .during(|| format!("`{}` is no directory", self.directory.display()))?;
        let program = std::env::current_exe().during(|| "cannot find this program's own file".to_owned())?;
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
    /// The description and what makes it true on this machine.
    fn read(&self, gateway: &hostler_gateway::Gateway) -> Result<(Description, Setup), Failure> {
        let path = &self.file;
        let text = std::fs::read_to_string(path).map_err(|error| {
            let failure = Failure::new(format!("cannot read the description {}", path.display())).because(&error);
            failure.hint(format!("`hostler gateway plan --example > {}` makes one to begin with", path.display()))
        })?;
        let description = match gateway.interfaces() {
            Ok(present) => Description::parse_for(&text, &present),
            // What is wrong with the file can be said all the same.
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

/// All that is wrong with a description. The exit code is 1: 2 is what `plan` says when there is something to do.
fn wrong(path: &Path, mistakes: &[Mistake]) -> Failure {
    let there_is = match mistakes.len() {
        1 => "there is a mistake".to_owned(),
        count => format!("there are {count} mistakes"),
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
