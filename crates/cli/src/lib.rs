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

use hostler_agent::{PRELOADED, PRELOADED_LATER};

/// Runs the tool by whose name the executable was called.
#[must_use]
pub fn main() -> std::process::ExitCode {
    restore_preloaded();
    multicall::main(std::env::args_os().collect())
}

/// Restores the variable that was set aside for the start of this program in the image of a job: it names libraries of the
/// image, which do not fit this program, for the programs that this one starts.
#[expect(
    clippy::disallowed_methods,
    reason = "the program has one thread, and all that it starts inherits the variable"
)]
fn restore_preloaded() {
    if let Some(libraries) = std::env::var_os(PRELOADED_LATER) {
        // SAFETY: the program has just started, and has one thread.
        unsafe {
            std::env::set_var(PRELOADED, libraries);
            std::env::remove_var(PRELOADED_LATER);
        }
    }
}

/// Runs the tool by whose name the executable was called, without those that need the head or the agent.
#[must_use]
pub fn light_main() -> std::process::ExitCode {
    multicall::light_main(std::env::args_os().collect())
}
