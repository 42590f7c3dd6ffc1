//! `cargo xtask swarm`: how a head copes with many agents, by the swarm in `crates/testkit/examples`.

use anyhow::Result;
use clap::Args;

use crate::workspace::{cargo, run as run_command, target_directory};

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Agents
    #[arg(value_name = "AGENTS", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..))]
    agents: u32,

    /// Runs, each with a head of its own
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
}

/// Builds the program and the swarm with optimisation, and runs them.
pub(crate) fn run(options: &Options) -> Result<()> {
    let build = ["build", "--release", "--package", "hostler", "--package", "hostler-testkit"];
    run_command(cargo().args(build).args(["--bin", "hostler", "--example", "swarm"]))?;
    let release = target_directory()?.join("release");
    let mut swarm = std::process::Command::new(release.join("examples/swarm"));
    swarm.arg(release.join("hostler")).args([options.agents.to_string(), options.runs.to_string()]);
    run_command(&mut swarm)
}
