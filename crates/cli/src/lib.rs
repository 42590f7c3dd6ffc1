//! The command line of Hostler.
//!
//! The executable acts as another tool when it is called by that tool's name. Builds and scripts start `dsh`, `sbatch`
//! and others thousands of times, so a smaller program contains only these (`hostler-tools`), and starts faster.

mod args;
mod browser;
mod cluster;
mod cm;
mod codes;
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
mod user_unit;
mod xdg;

use std::path::Path;

use hostler_agent::{LIBRARIES_IN_IMAGE, OF_THE_LOADER, set_aside};

/// Runs the tool by whose name the executable was called.
#[must_use]
pub fn main() -> std::process::ExitCode {
    restore_variables_of_the_loader();
    multicall::main(std::env::args_os().collect())
}

/// Restores the variables that were set aside for the start of this program in the image of a job: they are for the programs that
/// this one starts. Elsewhere, nothing has set them aside, and `sudo` may pass on what a user has put there.
#[expect(
    clippy::disallowed_methods,
    reason = "the program has one thread, and all that it starts inherits the variable"
)]
fn restore_variables_of_the_loader() {
    if !std::env::args_os().next().is_some_and(|called| Path::new(&called).starts_with(LIBRARIES_IN_IMAGE)) {
        return;
    }
    for name in OF_THE_LOADER {
        let later = set_aside(name);
        if let Some(value) = std::env::var_os(&later) {
            // SAFETY: the program has just started, and has one thread.
            unsafe {
                std::env::set_var(name, value);
                std::env::remove_var(later);
            }
        }
    }
}

/// Runs the tool by whose name the executable was called, without those that need the head or the agent.
#[must_use]
pub fn light_main() -> std::process::ExitCode {
    multicall::light_main(std::env::args_os().collect())
}
