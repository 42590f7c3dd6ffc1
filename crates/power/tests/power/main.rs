//! Drivers against what they are for: the emulators of others, a hostile controller of our own, real commands, a real network and a real
//! Slurm. A test that lacks its emulator fails and says what to install, as `.ci/run` does.

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
