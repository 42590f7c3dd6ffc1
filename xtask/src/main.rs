//! Development tasks: `cargo xtask test`, `gen`, `package`, `docs`, `bench`, `flaky`, `sim`, `swarm`, `soak`,
//! `classroom`, `fuzz`, `pictures`, `docker`, `images`, `vm` and `slurm-differences`.
//!
//! Only tasks that need logic are here; single commands are listed in CONTRIBUTING.md. Nothing here is part of the product, and the
//! product does not depend on it.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "people run the tasks and read their output")]

mod bench;
mod classroom;
mod differences;
mod docs;
mod flaky;
mod fuzz;
mod generate;
mod images;
mod junit;
mod package;
mod pictures;
mod sim;
mod soak;
mod swarm;
mod systems;
mod test;
mod workspace;

use std::process::ExitCode;

use clap::Parser;

/// Development tasks of this project
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
enum Chore {
    /// Check everything that continuous integration checks, and stop at the first failure
    Test(test::Options),
    /// Write the committed files that are generated from code: API description, command reference
    Gen(generate::Options),
    /// Build a package: programs, units, completions and man pages, as a directory and an archive
    Package(package::Options),
    /// Render docs/ as a book; needs mdbook
    Docs(docs::Options),
    /// Measure Hostler next to lower bounds and comparable programs
    Bench(bench::Options),
    /// Repeat tests beside a load, and count how often each fails
    Flaky(flaky::Options),
    /// Run simulated clusters with new seeds for hours
    Sim(sim::Options),
    /// Run a real head with a thousand simulated agents, and measure joining, idling and a restart
    Swarm(swarm::Options),
    /// Test a cluster with twenty users, killed daemons, full disks and hostile clients; needs root
    Soak(soak::Options),
    /// Run two hundred students on twelve nodes, and check their shares and sandboxes; needs root
    Classroom(classroom::Options),
    /// Fuzz the parsers of untrusted input
    Fuzz(fuzz::Options),
    /// Take the pictures of the dashboard for README and guides; needs root and Chromium
    Pictures(pictures::Options),
    /// Test a cluster in containers, with a real Docker engine; needs root
    Docker(systems::Options),
    /// Compare jobs in images with those of real engines, Docker and Podman; needs root
    Images(images::Options),
    /// Test the systemd units in a virtual machine; needs root
    Vm(systems::Options),
    /// Compare Slurm's commands with those of a real Slurm; needs root
    SlurmDifferences(differences::Options),
}

fn main() -> ExitCode {
    let outcome = match Chore::parse() {
        Chore::Test(options) => test::run(&options),
        Chore::Gen(options) => generate::run(&options),
        Chore::Package(options) => package::run(&options),
        Chore::Docs(options) => docs::run(&options),
        Chore::Bench(options) => bench::run(&options),
        Chore::Flaky(options) => flaky::run(&options),
        Chore::Sim(options) => sim::run(&options),
        Chore::Swarm(options) => swarm::run(&options),
        Chore::Soak(options) => soak::run(&options),
        Chore::Classroom(options) => classroom::run(&options),
        Chore::Fuzz(options) => fuzz::run(&options),
        Chore::Pictures(options) => pictures::run(&options),
        Chore::Docker(options) => systems::docker(&options),
        Chore::Images(options) => images::run(&options),
        Chore::Vm(options) => systems::vm(&options),
        Chore::SlurmDifferences(options) => differences::run(&options),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("\nerror: {error:#}");
            ExitCode::FAILURE
        }
    }
}
