//! `cargo xtask sim`: runs simulated clusters with new seeds for hours.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::workspace::{cargo, run as run_command, target_directory};

/// Worlds of the first batch. Each later batch takes about [`BATCH_TIME`].
const FIRST_BATCH: u64 = 50;

/// The time between two lines of progress. The last batch is shorter, so that the exploration ends on time.
const BATCH_TIME: Duration = Duration::from_secs(60);

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Hours to run, e.g. 0.5
    #[arg(long, value_name = "H", default_value_t = 1.0)]
    hours: f64,
    /// The first seed [default: a number that depends on the time]
    #[arg(long, value_name = "N")]
    from: Option<u64>,
    /// Run this `hostler` instead of building one
    #[arg(long, value_name = "PATH")]
    program: Option<PathBuf>,
}

/// Tries seeds until the time is over. Prints every seed that fails.
pub(crate) fn run(options: &Options) -> Result<()> {
    let duration = Duration::try_from_secs_f64(options.hours * 3600.0).context("--hours is no time")?;
    let program = match &options.program {
        Some(program) => program.clone(),
        None => {
            run_command(cargo().args(["build", "--release", "--locked", "--package", "hostler", "--bin", "hostler"]))?;
            target_directory()?.join("release/hostler")
        }
    };
    let first = options.from.unwrap_or_else(|| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        now.as_secs() * 100_000
    });
    println!("exploring from seed {first} on, for {:.0} s", duration.as_secs_f64());
    let began = Instant::now();
    let (mut worlds, mut failed, mut batch) = (0, 0, FIRST_BATCH);
    while began.elapsed() < duration {
        let from = first + worlds;
        let failures = explore(&program, from, from + batch)?;
        worlds += batch;
        failed += failures.len();
        for Failure { seed, what } in failures {
            println!("seed {seed} fails: {what}\n  to repeat it: hostler sim --seed {seed} --trace");
        }
        let rate = worlds as f64 / began.elapsed().as_secs_f64();
        println!("seeds {from}..{}: {worlds} worlds so far, {rate:.1} a second, {failed} failed", from + batch);
        let rest = duration.saturating_sub(began.elapsed()).min(BATCH_TIME);
        batch = ((rate * rest.as_secs_f64()) as u64).max(1);
    }
    ensure!(failed == 0, "{failed} of {worlds} worlds failed");
    Ok(())
}

struct Failure {
    seed: u64,
    what: String,
}

/// Simulates the worlds of these seeds. A panic ends the simulator, which then names the seed. The worlds before and
/// after it are simulated again.
fn explore(program: &Path, mut from: u64, to: u64) -> Result<Vec<Failure>> {
    let mut failures = Vec::new();
    while from < to {
        let output = Command::new(program)
            .args(["--json", "sim", "--seeds", &format!("{from}..{to}")])
            .output()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let Ok(report) = serde_json::from_slice::<serde_json::Value>(&output.stdout) else {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            let seed = panicked(&said).with_context(|| format!("the simulator ended without a report:\n{said}"))?;
            failures.extend(explore(program, from, seed)?);
            failures.push(Failure { seed, what: said.trim().to_owned() });
            from = seed + 1;
            continue;
        };
        for failure in report["failures"].as_array().into_iter().flatten() {
            let seed = failure["seed"].as_u64().context("the simulator names no seed")?;
            failures.push(Failure { seed, what: failure["what"].as_str().unwrap_or_default().to_owned() });
        }
        break;
    }
    Ok(failures)
}

/// The seed in the simulator's message about a panic.
fn panicked(said: &str) -> Option<u64> {
    said.lines()
        .find_map(|line| line.strip_prefix("seed ")?.split_once(": the production code panicked")?.0.parse().ok())
}
