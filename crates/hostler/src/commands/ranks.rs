//! `hostler ranks`, for agents: starts the processes of a task on one node.

use std::ffi::OsString;

use clap::Args;
use hostler_agent::Ranks as Processes;
use hostler_cli::exit;
use hostler_cli::failure::{During, Outcome};

/// Start the processes of a run on this node, each with its rank
#[derive(Debug, Args)]
#[command(hide = true)]
pub(crate) struct Ranks {
    /// Number of processes on this node
    #[arg(long)]
    count: u32,

    /// Rank of this node
    #[arg(long)]
    node_rank: u32,

    /// Number of processes on all nodes
    #[arg(long)]
    world_size: u64,

    /// Label each line of output with the rank of its process
    #[arg(long)]
    label: bool,

    /// Program and arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    argv: Vec<OsString>,
}

impl Ranks {
    pub(crate) fn run(self) -> Outcome {
        let Self { count, node_rank, world_size, label, argv } = self;
        let program = argv[0].display().to_string();
        let processes = Processes { count, node_rank, world_size, label, argv };
        let code = processes.run().during(|| format!("cannot start {program}"))?;
        Ok(u8::try_from(code).unwrap_or(exit::FAILED))
    }
}
