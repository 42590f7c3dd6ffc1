//! `cargo xtask classroom`: runs the class in `crates/testkit/examples`, with two hundred students on twelve nodes.

use std::process::Command;

use anyhow::Result;
use clap::Args;

use crate::workspace::{cargo, run as run_command, target_directory};

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Minutes to run
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    minutes: u32,

    /// Number of students
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=999))]
    students: u32,

    /// Number of nodes
    #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u32).range(1..=100))]
    nodes: u32,
}

/// Builds the program and the class with optimisation, and runs them.
pub(crate) fn run(options: &Options) -> Result<()> {
    let build = ["build", "--release", "--package", "hostler", "--package", "hostler-testkit"];
    run_command(cargo().args(build).args(["--bin", "hostler", "--example", "classroom"]))?;
    let release = target_directory()?.join("release");
    let numbers = [options.minutes * 60, options.students, options.nodes].map(|number| number.to_string());
    run_command(Command::new(release.join("examples/classroom")).arg(release.join("hostler")).args(numbers))
}
