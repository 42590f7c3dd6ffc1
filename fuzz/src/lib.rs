//! Fuzz targets: every reader of bytes from outside, as functions that must not panic, hang or exhaust memory.
//!
//! A [`Target`] takes any bytes and asserts properties: a decoded value survives another round trip, an accepted path
//! stays inside its directory, and limits hold. Seeds are built here from real values, so they never go stale, and the
//! repository contains no binary corpus. `cargo xtask fuzz` writes the seeds before it starts.
//!
//! Each bug that the fuzzer finds becomes a regression test next to the fixed code.

mod targets;

/// A reader of untrusted bytes, or several related readers.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// The target's name on the command line.
    pub name: &'static str,
    /// A description for people: the bytes, and where they come from.
    pub about: &'static str,
    /// Reads the bytes. A panic is a finding.
    pub run: fn(&[u8]),
    /// Valid inputs to start from.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// All targets, starting with those that face the network.
pub const TARGETS: &[Target] = &[
    targets::link::TARGET,
    targets::cluster::TARGET,
    targets::api::TARGET,
    targets::gossip::TARGET,
    targets::power::TARGET,
    targets::pack::TARGET,
    targets::manifest::TARGET,
    targets::layout::TARGET,
    targets::words::TARGET,
    targets::shepherd::TARGET,
    targets::remote::TARGET,
    targets::mirror::TARGET,
    targets::journal::TARGET,
    targets::certificate::TARGET,
    targets::people::TARGET,
    targets::project::TARGET,
    targets::traces::TARGET,
];

/// The target with this name.
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}
