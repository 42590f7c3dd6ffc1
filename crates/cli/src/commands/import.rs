//! `hostler import`: takes over the configuration of another cluster manager.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::import_cm::Cm;
use crate::context::Context;
use crate::failure::Outcome;
use crate::slurm::import;

/// Import the configuration of another cluster manager
#[derive(Debug, Args)]
pub struct Import {
    #[command(subcommand)]
    command: ImportCommand,
}

#[derive(Debug, Subcommand)]
enum ImportCommand {
    Slurm(Slurm),
    Cm(Cm),
}

/// Import partitions, nodes, limits and users from a slurm.conf
///
/// Prints the changes as commands, makes them, and lists the keys that it does not take over. The command checks all files
/// before the first change. A second import only restores what has changed since. Features and weights of nodes need the
/// nodes in the cluster: import again when nodes have joined.
///
/// Reads included files. Operators can import a slurm.conf, admins also users.
#[derive(Debug, Args)]
struct Slurm {
    /// The slurm.conf, e.g. /etc/slurm/slurm.conf
    #[arg(value_name = "FILE")]
    slurm_conf: PathBuf,

    /// Change nothing; print the changes
    #[arg(long)]
    dry_run: bool,

    /// Import users, groups and quotas from the output of `sacctmgr dump`
    ///
    /// Each account becomes a group. A user belongs to the groups of all accounts above.
    #[arg(long, value_name = "FILE")]
    accounts: Option<PathBuf>,
}

impl Import {
    pub fn run(self, context: &Context) -> Outcome {
        match self.command {
            ImportCommand::Slurm(command) => command.run(context),
            ImportCommand::Cm(command) => command.run(context),
        }
    }
}

impl Slurm {
    fn run(self, context: &Context) -> Outcome {
        let Self { slurm_conf, dry_run, accounts } = self;
        let request = import::Request { slurm_conf: &slurm_conf, accounts: accounts.as_deref(), dry_run };
        import::run(context, &request)
    }
}
