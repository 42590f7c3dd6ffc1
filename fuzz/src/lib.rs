//! What is fuzzed: every reader of bytes that somebody else wrote, as functions that must neither panic, nor hang, nor grow.
//!
//! A [`Target`] takes any bytes and asserts what must hold of them: that what was read can be written and read again, that a path
//! that was accepted stays inside, that a limit was kept. Its seeds are made here from real values, so they never go stale and no
//! binary corpus is kept in the repository; `cargo xtask fuzz` lays them down before it starts.
//!
//! What a fuzzer has found is kept as a test beside the code that was wrong.

mod targets;

/// One reader, or several that belong together.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Its name on the command line.
    pub name: &'static str,
    /// Whose bytes these are and who reads them.
    pub about: &'static str,
    /// Reads them. A panic is a finding.
    pub run: fn(&[u8]),
    /// Honest bytes to begin with.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// All of them, those that face the network first.
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

/// The target of this name.
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}
