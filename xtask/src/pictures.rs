//! `cargo xtask pictures`: takes the pictures of the dashboard for the README and the guides.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::workspace::{root, run as run_command, target_directory};

/// The pictures in `docs/pictures`.
const PICTURES: [&str; 6] = ["overview", "job", "array", "jobs", "timeline", "submit"];

/// Maximum size of a picture.
const MAX_BYTES: usize = 150 << 10;

#[derive(Debug, Args)]
pub(crate) struct Options {}

/// Runs the test that takes the pictures, on a machine that is called `lab`, and copies them.
pub(crate) fn run(_: &Options) -> Result<()> {
    let test = ["nextest", "run", "--package", "hostler", "--test", "browser", "pictures_of_the_guides"];
    let named = ["--uts", "sh", "-c", "hostname lab && exec cargo \"$@\"", "sh"];
    run_command(Command::new("unshare").args(named).args(test).current_dir(root()))?;
    let taken = target_directory()?.join("tmp/dashboard");
    let pictures = root().join("docs/pictures");
    fs::create_dir_all(&pictures)?;
    for name in PICTURES {
        let from = taken.join(format!("guide-{name}-desktop-light.png"));
        let picture = fs::read(&from).with_context(|| format!("{} is missing", from.display()))?;
        ensure!(
            picture.len() <= MAX_BYTES,
            "{} has {} bytes, at most {MAX_BYTES} are allowed",
            from.display(),
            picture.len()
        );
        fs::write(pictures.join(name).with_extension("png"), picture)?;
    }
    println!("the pictures are in {}", pictures.display());
    Ok(())
}
