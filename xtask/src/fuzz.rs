//! `cargo xtask fuzz`: runs libFuzzer on the parsers of untrusted bytes, one target after another.
//!
//! Stable compiler flags enable the compiler's own coverage passes, so neither a nightly toolchain nor `cargo fuzz` is
//! needed. libFuzzer itself needs a C++ compiler. The corpus stays in `fuzz/corpus` below the target directory for the
//! next run, and inputs that cause failures in `fuzz/findings`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;

use crate::workspace::{cargo, root, run as run_command, target_directory};

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Targets to fuzz [default: all]
    targets: Vec<String>,
    /// Minutes per target
    #[arg(long, value_name = "N", default_value_t = 10)]
    minutes: u64,
    /// Only list the targets
    #[arg(long)]
    list: bool,
}

/// Coverage for the fuzzer: a counter for each edge, and both sides of each comparison.
const COVERAGE: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares";

/// With a target, compiler flags do not apply to build scripts, which cannot be linked with counters.
const TRIPLE: &str = "x86_64-unknown-linux-gnu";

/// Memory limit per input, in MiB: several times the size of the largest blob, 64 MiB.
const MEMORY_MIB: u32 = 1024;

/// Time limit per input, in seconds.
const TIME_SECS: u32 = 10;

/// Maximum length of an input, in bytes.
const LENGTH_BYTES: u32 = 4096;

/// Builds the fuzzer and runs it.
pub(crate) fn run(options: &Options) -> Result<()> {
    let place = target_directory()?.join("fuzz");
    let build = place.join("build");
    let seeds = place.join("seeds");
    build_with(&build, "seeds", &[])?;
    let known = Command::new(build.join("release/seeds"))
        .arg(&seeds)
        .output()
        .context("cannot start the program that writes the seeds")?;
    ensure!(known.status.success(), "cannot write the seeds:\n{}", String::from_utf8_lossy(&known.stderr));
    let known = String::from_utf8(known.stdout)?;
    if options.list {
        print!("{known}");
        return Ok(());
    }
    let known: Vec<&str> = known.lines().filter_map(|line| line.split('\t').next()).collect();
    let chosen: Vec<&str> =
        if options.targets.is_empty() { known.clone() } else { options.targets.iter().map(String::as_str).collect() };
    for target in &chosen {
        ensure!(known.contains(target), "there is no target `{target}`; there are {}", known.join(", "));
    }
    build_with(&build, "fuzz", &["--features", "libfuzzer", "--target", TRIPLE])?;
    let program = build.join(TRIPLE).join("release/fuzz");
    for target in chosen {
        fuzz(&program, target, &place, options.minutes * 60)?;
    }
    Ok(())
}

/// The manifest of the fuzz targets. Their workspace takes over the versions of the product's dependencies.
///
/// # Errors
/// The lock file cannot be copied.
pub(crate) fn manifest() -> Result<PathBuf> {
    let lock = "Cargo.lock";
    fs::copy(root().join(lock), root().join("fuzz").join(lock)).context("cannot copy Cargo.lock to fuzz/")?;
    Ok(root().join("fuzz/Cargo.toml"))
}

/// Builds one of the two programs. The fuzzer gets coverage counters.
fn build_with(build: &Path, program: &str, more: &[&str]) -> Result<()> {
    let mut command = cargo();
    command.args(["build", "--release", "--manifest-path"]).arg(manifest()?);
    command.args(["--bin", program]).args(more).env("CARGO_TARGET_DIR", build);
    if !more.is_empty() {
        command.env("RUSTFLAGS", COVERAGE);
    }
    run_command(&mut command)
}

/// Runs one target until its time is over or it finds a failure.
fn fuzz(program: &Path, target: &str, place: &Path, seconds: u64) -> Result<()> {
    println!("\n{target}: {} min", seconds / 60);
    let corpus = place.join("corpus").join(target);
    let findings = place.join("findings").join(target);
    for directory in [&corpus, &findings] {
        std::fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
    }
    let status = Command::new(program)
        .env("HOSTLER_FUZZ_TARGET", target)
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-rss_limit_mb={MEMORY_MIB}"))
        .arg(format!("-timeout={TIME_SECS}"))
        .arg(format!("-max_len={LENGTH_BYTES}"))
        .arg(format!("-artifact_prefix={}/", findings.display()))
        .args(["-print_final_stats=1", "-use_value_profile=1"])
        .arg(&corpus)
        .arg(place.join("seeds").join(target))
        .status()
        .context("cannot start the fuzzer")?;
    if !status.success() {
        bail!("the fuzzer found a failure of {target}; the input is in {}", findings.display());
    }
    Ok(())
}
