//! The one executable. Under another name it acts as the tool of that name.

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
mod seen_folder;
mod signing;
mod submission;
mod toml_file;
mod xdg;

fn main() -> std::process::ExitCode {
    multicall::main(std::env::args_os().collect())
}
