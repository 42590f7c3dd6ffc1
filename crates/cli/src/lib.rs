//! The command line of Hostler.
//!
//! The executable acts as another tool when it is called by that tool's name. Builds and scripts start `dsh`, `sbatch`
//! and others thousands of times, so a smaller program contains only these (`hostler-tools`), and starts faster.

mod args;
mod browser;
mod cluster;
mod cm;
mod command_groups;
mod command_words;
mod commands;
mod config;
mod context;
mod daemons;
mod dsh;
mod exit;
mod failure;
mod fetching;
mod flags;
mod interrupts;
mod logins;
mod mistakes;
mod multicall;
mod output;
mod passed_on;
mod signing;
mod slurm;
mod steps;
mod submission;
mod toml_file;
mod xdg;

/// Runs the tool by whose name the executable was called.
#[must_use]
pub fn main() -> std::process::ExitCode {
    multicall::main(std::env::args_os().collect())
}

/// Runs the tool by whose name the executable was called, without those that need the head or the agent.
#[must_use]
pub fn light_main() -> std::process::ExitCode {
    multicall::light_main(std::env::args_os().collect())
}
