//! `cargo xtask docker` and `cargo xtask vm`: test the product with a real Docker engine, and in a virtual machine with
//! a real systemd.
//!
//! Both need root, large downloads and minutes, so they are not part of `cargo xtask test`. Results are in
//! docs/internals/real-systems.md. Scripts do the work; they can be run without cargo.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::workspace::{cargo, find_program, root, run as run_command, target_directory};

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Program to test, built for Debian 12 or older [default: a release build of this checkout]
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
}

/// Tests the image and the compose file of packaging/docker.
pub(crate) fn docker(options: &Options) -> Result<()> {
    run(options, "docker", &["test.sh"], &["dockerd", "docker", "docker-compose", "debootstrap", "ssh-keygen"])
}

/// Tests the units of packaging/systemd, and a cluster that shares /home by NFS.
pub(crate) fn vm(options: &Options) -> Result<()> {
    run(
        options,
        "systemd",
        &["test.sh", "nfs.sh"],
        &["qemu-system-x86_64", "debootstrap", "mkfs.ext4", "ssh", "ssh-keygen"],
    )
}

fn run(options: &Options, packaging: &str, scripts: &[&str], needed: &[&str]) -> Result<()> {
    need(needed, "docker.io docker-compose qemu-system-x86 debootstrap e2fsprogs openssh-client")?;
    let program = program(options.program.as_deref())?;
    let (folder, scratch) =
        (root().join("packaging").join(packaging), target_directory()?.join("systems").join(packaging));
    for script in scripts {
        run_command(Command::new("bash").arg(folder.join(script)).arg(&program).arg(&scratch))?;
    }
    Ok(())
}

/// Fails if a program is not installed. `packages`: those of Debian that contain the programs.
pub(crate) fn need(programs: &[&str], packages: &str) -> Result<()> {
    let missing: Vec<&str> = programs.iter().copied().filter(|program| find_program(program).is_none()).collect();
    ensure!(missing.is_empty(), "not installed: {}; on Debian: apt install {packages}", missing.join(", "));
    Ok(())
}

/// The given program, or else a release build of this checkout.
pub(crate) fn program(given: Option<&Path>) -> Result<PathBuf> {
    if let Some(given) = given {
        return given.canonicalize().with_context(|| format!("cannot find {}", given.display()));
    }
    run_command(cargo().args(["build", "--release", "--package", "hostler"]))?;
    Ok(target_directory()?.join("release/hostler"))
}
