//! `cargo xtask soak`: runs the soak test in `crates/testkit/examples`, with twenty users and all kinds of faults.

use std::process::Command;

use anyhow::Result;
use clap::Args;

use crate::workspace::{cargo, run as run_command, target_directory};

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Minutes to run
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..))]
    minutes: u32,

    /// Seed for the actions of users and the faults
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Builds the program and the soak with optimisation, and runs them.
pub(crate) fn run(options: &Options) -> Result<()> {
    let build = ["build", "--release", "--package", "hostler", "--package", "hostler-testkit"];
    run_command(cargo().args(build).args(["--bin", "hostler", "--example", "soak"]))?;
    let release = target_directory()?.join("release");
    let seconds = u64::from(options.minutes) * 60;
    let mut soak = Command::new(release.join("examples/soak"));
    soak.arg(release.join("hostler")).args([seconds.to_string(), options.seed.to_string()]);
    run_command(&mut soak)
}
