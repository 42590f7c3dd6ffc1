//! `hostler node discover`.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use hostler_discovery::{Fixture, Machine, Source};

use crate::context::Context;
use crate::exit;
use crate::failure::{During, Failure, Outcome};
use crate::output::{self, machine};

/// Show what this machine would offer: CPUs, memory, GPUs, and what it keeps back and why
///
/// Asks the kernel and the drivers of this machine, not a cluster: none needs to be running. What is shown is what is left by the
/// CPU affinity and the control groups of this command; that of a service may differ.
#[derive(Debug, Args)]
pub(crate) struct Discover {
    /// Print the files that were read instead, as a bug report needs them; names of users and services may be among them
    #[arg(long, conflicts_with_all = ["json", "from"])]
    capture: bool,

    /// Show what the machine that was captured in this file would offer
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

/// What the machine that was captured in a file would offer.
pub(crate) fn captured_machine(path: &Path) -> Result<Machine, Failure> {
    let shown = path.display();
    let text = fs::read_to_string(path).during(|| format!("cannot read {shown}"))?;
    let fixture = Fixture::parse(&text).map_err(|error| {
        Failure::new(format!("{shown} is no captured machine"))
            .because(&error)
            .hint("`hostler node discover --capture` prints one")
    })?;
    Ok(Machine::of(&Source::fixture(fixture)))
}
