//! The delay of a job whose requirements are already installed.
//!
//! The peer is `uv`, which creates a new environment from a warm cache, as a careful user would do for each run. The
//! figure of Hostler is the difference between two jobs that do nothing, one with requirements and one without,
//! measured in pairs.

#![expect(clippy::disallowed_methods, reason = "the benchmark owns the directories, and they are shallow")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result};

use crate::bench::cluster::Cluster;
use crate::bench::context::Bench;
use crate::bench::measure::{Contender, interleave, milliseconds};
use crate::bench::report::{Goal, Row, compare};
use crate::workspace::find_program;

/// A typical data-science project.
const REQUIREMENTS: &str = "numpy\npandas\nscikit-learn\nlightgbm\n";
const SUBJECT: &str = "hostler, second start";

pub(super) fn measure(bench: &Bench) -> Result<Vec<Row>> {
    let cluster = bench.cluster()?;
    let scratch = tempfile::tempdir()?;
    let plain = project(scratch.path(), "plain", None)?;
    let heavy = project(scratch.path(), "heavy", Some(REQUIREMENTS))?;
    let uv = find_program("uv");
    let mut contenders = Vec::new();
    match &uv {
        Some(uv) => contenders.push(Contender::new("uv, warm", || build_with_uv(uv, scratch.path(), &heavy))),
        None => println!("  (uv is absent: it is not on PATH)"),
    }
    if let Some(cluster) = &cluster {
        contenders.push(Contender::new(SUBJECT, || {
            Ok(submit_and_wait(cluster, &heavy)? - submit_and_wait(cluster, &plain)?)
        }));
    }
    let samples = interleave(bench.runs, contenders)?;
    let mut rows = compare(&samples, "ms", SUBJECT, &[]);
    let ours = samples.iter().find(|sample| sample.name == SUBJECT);
    rows.extend(ours.map(|sample| Row::alone(sample, "ms").with_goal(Goal::AtMost(50.0))));
    Ok(rows)
}

/// Creates a project that runs `true`, so that start times of interpreters do not matter.
fn project(scratch: &Path, name: &str, requirements: Option<&str>) -> Result<PathBuf> {
    let directory = scratch.join(name);
    fs::create_dir(&directory)?;
    fs::write(directory.join("readme"), name)?;
    if let Some(requirements) = requirements {
        fs::write(directory.join("requirements.txt"), requirements)?;
    }
    Ok(directory)
}

/// Builds a new environment from uv's own cache. The first call fills the cache.
fn build_with_uv(uv: &Path, scratch: &Path, project: &Path) -> Result<f64> {
    let (environment, cache) = (scratch.join("uv-environment"), scratch.join("uv-cache"));
    if environment.exists() {
        fs::remove_dir_all(&environment)?;
    }
    let started = Instant::now();
    milliseconds(Command::new(uv).args(["venv", "-q"]).arg(&environment).env("UV_CACHE_DIR", &cache))?;
    let mut install = Command::new(uv);
    install.args(["pip", "install", "-q", "-r"]).arg(project.join("requirements.txt"));
    milliseconds(install.env("VIRTUAL_ENV", &environment).env("UV_CACHE_DIR", &cache))
        .context("uv cannot install the requirements")?;
    Ok(started.elapsed().as_secs_f64() * 1e3)
}

/// Milliseconds from the submission of `project` to the end of its job.
fn submit_and_wait(cluster: &Cluster, project: &Path) -> Result<f64> {
    let started = Instant::now();
    let id = cluster.output(cluster.command(&["submit"]).args(["-m", "500M"]).arg(project).arg("true"))?;
    cluster.wait(&[id])?;
    Ok(started.elapsed().as_secs_f64() * 1e3)
}
