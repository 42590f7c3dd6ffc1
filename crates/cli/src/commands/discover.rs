//! `hostler node discover`.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use hostler_discovery::{Fixture, Machine, Source};

use crate::context::Context;
use crate::exit;
use crate::failure::{During, Failure, Outcome};
use crate::output::{self, machine};

/// Show what this machine would offer as a node: CPUs, memory and GPUs
///
/// Also shows what is kept back and why. The command asks the kernel and the drivers and needs no cluster. The CPU
/// affinity and the control groups of this command limit what it shows; those of a service may differ.
#[derive(Debug, Args)]
pub(crate) struct Discover {
    /// Print the files that were read, for a bug report
    ///
    /// The output may contain names of users and services.
    #[arg(long, conflicts_with_all = ["json", "from"])]
    capture: bool,

    /// Use the machine that `--capture` wrote to this file
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
}

impl Discover {
    pub(crate) fn run(&self, context: &Context) -> Outcome {
        if self.capture {
            context.output.data(&hostler_discovery::capture().1.to_toml());
            return Ok(exit::OK);
        }
        let found = match &self.from {
            Some(path) => captured_machine(path)?,
            None => hostler_discovery::machine(),
        };
        match context.output.is_json() {
            true => context.output.json(&found),
            false => context.output.data(&machine::offer(&found, output::width())),
        }
        Ok(exit::OK)
    }
}

/// The machine that was captured in a file.
pub(crate) fn captured_machine(path: &Path) -> Result<Machine, Failure> {
    let shown = path.display();
    let text = fs::read_to_string(path).during(|| format!("cannot read {shown}"))?;
    let fixture = Fixture::parse(&text).map_err(|error| {
        Failure::new(format!("{shown} is not a captured machine"))
            .because(&error)
            .hint("`hostler node discover --capture` prints one")
    })?;
    Ok(Machine::of(&Source::fixture(fixture)))
}
