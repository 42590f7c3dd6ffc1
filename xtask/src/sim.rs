//! `cargo xtask sim`: simulated clusters of seeds that nobody has tried, for hours.

use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::workspace::{cargo, run as run_command, target_directory};

/// Worlds between two looks at the clock: under a minute on a small machine.
const CHUNK: u64 = 5_000;

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// How long to try, e.g. 0.5
    #[arg(long, value_name = "H", default_value_t = 1.0)]
    hours: f64,
    /// The first seed [default: a number that depends on the time]
    #[arg(long, value_name = "N")]
    from: Option<u64>,
}

/// Tries seeds until the time is over. Prints every seed that fails.
pub(crate) fn run(options: &Options) -> Result<()> {
    let duration = Duration::try_from_secs_f64(options.hours * 3600.0).context("--hours is no time")?;
    run_command(cargo().args(["build", "--release", "--locked", "--package", "hostler", "--bin", "hostler"]))?;
    let program = target_directory()?.join("release/hostler");
    let first = options.from.unwrap_or_else(|| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        now.as_secs() * 100_000
    });
    let began = Instant::now();
    let (mut next, mut failures) = (first, 0);
    while began.elapsed() < duration {
        let output = Command::new(&program)
            .args(["--json", "sim", "--seeds", &format!("{next}..{}", next + CHUNK)])
            .output()
            .context("cannot start the simulator")?;
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).with_context(|| {
            format!("the simulator ended without a report:\n{}", String::from_utf8_lossy(&output.stderr))
        })?;
        for failure in report["failures"].as_array().into_iter().flatten() {
            failures += 1;
            println!("seed {} fails: {}", failure["seed"], failure["what"].as_str().unwrap_or_default());
        }
        next += CHUNK;
    }
    let (worlds, seconds) = (next - first, began.elapsed().as_secs_f64());
    println!("{worlds} worlds from seed {first} on in {seconds:.0} s, {:.0} a second", worlds as f64 / seconds);
    ensure!(failures == 0, "{failures} worlds failed; `hostler sim --seed N --trace` shows what happens in one");
    Ok(())
}
