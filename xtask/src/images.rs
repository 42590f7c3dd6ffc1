//! `cargo xtask images`: runs the same commands in the same images by Hostler's own runtime, by Docker and by Podman, and
//! compares what they print.
//!
//! It needs root, real engines, a registry and a download, so it is not part of `cargo xtask test`. The script `images.py` does
//! the work.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;
use clap::Args;

use crate::systems::{need, program};
use crate::workspace::{root, run as run_command, target_directory};

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Program to test [default: a release build of this checkout]
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    need(
        &["dockerd", "docker", "docker-registry", "podman", "newuidmap", "debootstrap"],
        "docker.io docker-registry podman uidmap debootstrap",
    )?;
    let program = program(options.program.as_deref())?;
    let script = root().join("xtask/src/images.py");
    // The script mounts things that the machine need not see.
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "python3"]).arg(script);
    run_command(command.arg(program).arg(target_directory()?.join("systems/images")))
}
