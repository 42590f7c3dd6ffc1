//! Tests of the drivers against emulators, a simulated hostile controller, real commands, a real network and a real
//! Slurm. A test without its emulator fails with instructions for the installation, as `.ci/run` does.

mod commands;
mod common;
mod controller;
mod emulator;
mod guide;
mod hostile;
mod ipmi;
mod sessions;
mod slurm;
mod trust;
mod wake_on_lan;
