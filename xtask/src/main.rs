//! Development tasks: `cargo xtask test`, `gen`, `package`, `docs`, `bench`, `sim`, `swarm`, `soak`, `fuzz`, `docker` and `vm`.
//!
//! Only tasks that need logic are here; single commands are listed in CONTRIBUTING.md. Nothing here is part of the product, and the
//! product does not depend on it.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "chores are run by people and talk to them")]

mod bench;
mod docs;
mod fuzz;
mod generate;
mod package;
mod sim;
mod soak;
mod swarm;
mod systems;
mod test;
mod workspace;

use std::process::ExitCode;

use clap::Parser;

/// Project chores.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
enum Chore {
    /// Check everything that continuous integration checks, and stop at the first failure
    Test(test::Options),
    /// Write the committed files that come from the code: API description, command reference
    Gen(generate::Options),
    /// Build a package: programs, units, completions and man pages, as a directory and an archive
    Package(package::Options),
    /// Render docs/ as a book; needs mdbook
    Docs(docs::Options),
    /// Measure, each figure beside its floor or peer
    Bench(bench::Options),
    /// Run simulated clusters with new seeds for hours
    Sim(sim::Options),
    /// A thousand agents from one process and a real head: time to join, memory and CPU while idle, a restart of the head
    Swarm(swarm::Options),
    /// Twenty users, killed daemons, full disks and hostile clients at once: nothing lost, doubled or leaked; needs root
    Soak(soak::Options),
    /// Look for bytes that bring a reader of other people's bytes down
    Fuzz(fuzz::Options),
    /// A cluster in containers, on a real Docker engine; needs root
    Docker(systems::Options),
    /// The systemd units, in a virtual machine; needs root
    Vm(systems::Options),
}

fn main() -> ExitCode {
    let outcome = match Chore::parse() {
        Chore::Test(options) => test::run(&options),
        Chore::Gen(options) => generate::run(&options),
        Chore::Package(options) => package::run(&options),
        Chore::Docs(options) => docs::run(&options),
        Chore::Bench(options) => bench::run(&options),
        Chore::Sim(options) => sim::run(&options),
        Chore::Swarm(options) => swarm::run(&options),
        Chore::Soak(options) => soak::run(&options),
        Chore::Fuzz(options) => fuzz::run(&options),
        Chore::Docker(options) => systems::docker(&options),
        Chore::Vm(options) => systems::vm(&options),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("\nerror: {error:#}");
            ExitCode::FAILURE
        }
    }
}
