//! `cargo xtask bench`: compares each figure with its floor or its peer, as a ratio, measured in the same run.
//!
//! Absolute times differ between machines and over time; ratios of interleaved runs differ much less. So all contenders
//! of a comparison run once per round, and medians are compared. A goal is a bound on a ratio, if there is something to
//! compare with. The *floor* is the physical limit of a figure, such as the start of a process or an fsync. A *peer* is
//! another program that does the same job. Peers are not installed or started: a program that is not on `PATH`, or
//! whose servers are not running, is reported as absent.
//!
//! Hostler runs in a temporary home, and is used through its command line only.

mod cluster;
mod context;
mod floors;
mod groups;
mod measure;
mod peers;
mod report;
mod ssh;

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use clap::Args;

use self::context::Bench;
use self::report::Report;
use crate::workspace::{cargo, run as run_command, target_directory};

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Groups to measure; all by default
    #[arg(value_name = "GROUP", value_parser = clap::builder::PossibleValuesParser::new(groups::names()))]
    groups: Vec<String>,

    /// Rounds of each comparison, after a warm-up round; slow comparisons run at most three
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,

    /// Divide the numbers of jobs and files by this, to test the benchmark itself
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    divide: u32,

    /// Measure only lower bounds (floors) and comparable programs (peers)
    #[arg(long)]
    floors: bool,

    /// The program to measure, instead of a release build of this checkout
    #[arg(long, value_name = "FILE", conflicts_with = "floors")]
    hostler: Option<PathBuf>,

    /// Source of a configured C program for the group `build`; `make clean` must restore it
    #[arg(long, value_name = "DIR")]
    source: Option<PathBuf>,

    /// Write the results as JSON to this file [default: target/bench.json]
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Runs the groups. Prints each group when it is done, and writes a JSON report at the end.
pub(crate) fn run(options: &Options) -> Result<()> {
    let target = target_directory()?;
    let mut report = Report::new(options.divide as usize);
    let bench = Bench {
        runs: options.runs as usize,
        divide: options.divide as usize,
        hostler: program(options, &target.join("release/hostler"))?,
        peers: peers::present(),
        source: options.source.as_ref().map(std::path::absolute).transpose()?,
    };
    for group in groups::GROUPS {
        if options.groups.is_empty() || options.groups.iter().any(|name| name == group.name) {
            println!("\n{}: {}", group.name, group.about);
            let rows = (group.measure)(&bench).with_context(|| format!("cannot measure {}", group.name))?;
            report.add(group.name, rows);
        }
    }
    let path = options.json.clone().unwrap_or_else(|| target.join("bench.json"));
    report.write(&path)?;
    println!("\nwritten to {}", path.display());
    Ok(())
}

/// The program to measure: the one given with `--hostler`, or a release build.
fn program(options: &Options, built: &std::path::Path) -> Result<Option<PathBuf>> {
    if options.floors {
        return Ok(None);
    }
    let program = match &options.hostler {
        Some(named) => std::path::absolute(named)?,
        None => {
            run_command(cargo().args(["build", "--release", "--package", "hostler"]))?;
            built.to_owned()
        }
    };
    let works = Command::new(&program).arg("--version").output();
    ensure!(works.is_ok_and(|output| output.status.success()), "{} --version does not work", program.display());
    Ok(Some(program))
}
