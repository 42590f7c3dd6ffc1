//! The command line. The one executable acts under another name as the tool of that name; `dsh`, which builds start thousands of times, is also a
//! program of its own (`hostler-dsh`), with nothing in it that it does not use.

mod args;
mod cluster;
mod cm;
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
mod seen_folder;
mod signing;
mod submission;
mod toml_file;
mod xdg;

/// Acts as the tool by whose name this was called.
#[must_use]
pub fn main() -> std::process::ExitCode {
    multicall::main(std::env::args_os().collect())
}

/// Acts as `dsh`.
#[must_use]
pub fn dsh() -> std::process::ExitCode {
    cm::main::<commands::exec::Dsh>(std::env::args_os().collect())
}
