//! `cargo xtask swarm`: measures a head with many agents, with the swarm in `crates/testkit/examples`.

use std::ffi::OsStr;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::workspace::{cargo, run as run_command, target_directory};

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Number of agents
    #[arg(value_name = "AGENTS", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..))]
    agents: u32,

    /// Number of runs, each with a new head
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
}

/// Builds the swarm with optimisation and runs it with these arguments. Returns its output.
pub(crate) fn watch(arguments: &[&OsStr]) -> Result<String> {
    run_command(cargo().args(["build", "--release", "--package", "hostler-testkit", "--example", "swarm"]))?;
    let mut swarm = Command::new(target_directory()?.join("release/examples/swarm"));
    let output = swarm.args(arguments).output().context("cannot start the swarm")?;
    ensure!(output.status.success(), "the swarm failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(String::from_utf8(output.stdout)?)
}

/// Builds the program and the swarm with optimisation, and runs them.
pub(crate) fn run(options: &Options) -> Result<()> {
    let build = ["build", "--release", "--package", "hostler", "--package", "hostler-testkit"];
    run_command(cargo().args(build).args(["--bin", "hostler", "--example", "swarm"]))?;
    let release = target_directory()?.join("release");
    let mut swarm = Command::new(release.join("examples/swarm"));
    swarm.arg(release.join("hostler")).args([options.agents.to_string(), options.runs.to_string()]);
    run_command(&mut swarm)
}
