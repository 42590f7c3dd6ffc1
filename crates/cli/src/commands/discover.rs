//! `hostler node discover`: shows the resources of this machine.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use hostler_discovery::{Fixture, Machine, Source};

use crate::context::Context;
use crate::exit;
use crate::failure::{During, Failure, Outcome};
use crate::output::{self, machine};

/// Show the CPUs, memory and GPUs that this machine would offer as a node
///
/// The command also shows which resources the node would not offer, and why. The command needs no cluster: it asks the
/// kernel and the drivers. It shows only resources that its own CPU affinity and control groups allow. An agent that
/// runs as a service may have other limits.
#[derive(Debug, Args)]
pub(crate) struct Discover {
    /// Print the system files that the command reads, for a bug report
    ///
    /// The output may contain names of users and services.
    #[arg(long, conflicts_with_all = ["json", "from"])]
    capture: bool,

    /// Show the machine whose `--capture` output is in this file
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

/// Reads the machine that `hostler node discover --capture` wrote to a file.
pub fn captured_machine(path: &Path) -> Result<Machine, Failure> {
    let shown = path.display();
    let text = fs::read_to_string(path).during(|| format!("cannot read {shown}"))?;
    let fixture = Fixture::parse(&text).map_err(|error| {
        Failure::new(format!("{shown} is not a captured machine"))
            .because(&error)
            .hint("`hostler node discover --capture` prints one")
    })?;
    Ok(Machine::of(&Source::fixture(fixture)))
}
