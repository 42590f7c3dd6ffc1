//! The program `hostler`: its command line, and the commands that start the head, the agent or a whole cluster.
//!
//! It acts as another tool when it is called by that tool's name.

mod args;
mod cmdaemon;
mod command_groups;
mod commands;
mod dsh;
mod embedded;
mod mistakes;
mod multicall;
mod settings;

use std::path::Path;
use std::process::ExitCode;

use hostler_agent::{LIBRARIES_IN_IMAGE, OF_THE_LOADER, set_aside};

fn main() -> ExitCode {
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
