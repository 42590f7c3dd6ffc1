//! The commands that are clients of the head, `dsh`, and Slurm's commands. Nothing here starts a daemon, so that `hostler-tools`, a
//! program with only the tools that are started often, is small and starts fast.

pub mod browser;
pub mod cluster;
pub mod cm;
pub mod codes;
pub mod command_words;
pub mod commands;
pub mod config;
pub mod context;
pub mod daemons;
pub mod exit;
pub mod failure;
pub mod fetching;
pub mod flags;
pub mod global_options;
pub mod here;
pub mod interrupts;
mod keyed;
pub mod logins;
pub mod output;
pub mod passed_on;
pub mod signing;
pub mod slurm;
pub mod steps;
pub mod submission;
mod told;
pub mod toml_file;
pub mod tools;
pub mod user_unit;
pub mod xdg;
