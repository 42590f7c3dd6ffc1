//! Programs that use Slurm through its commands, unmodified, on a cluster of Hostler.

mod mpi;

use std::path::Path;

use hostler_testkit::{Outcome, Size, SlurmNames};

const HOSTLER: &str = env!("CARGO_BIN_EXE_hostler");

/// The variable with the directory that contains the programs' Python packages.
const PACKAGES: &str = "HOSTLER_SLURM_CLIENTS";

/// The directory with the programs' packages.
fn packages() -> String {
    std::env::var(PACKAGES).unwrap_or_else(|_| {
        panic!(
            "{PACKAGES} is not set: `pip install --target DIR submitit clusterfutures simple_slurm qtoolkit`, and set it to DIR; \
             .ci/run does this"
        )
    })
}

/// Runs a Python program of this directory with Slurm's commands on its `PATH`.
fn use_by(program: &str) {
    let packages = packages();
    let site = SlurmNames::up(HOSTLER, Size { nodes: 2, cpus: 2, memory: "2G" });
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/slurm_clients").join(program);
    let work = site.cluster.path("work");
    std::fs::create_dir(&work).expect("a new directory");
    let arguments = [&script, &work].map(|path| path.to_str().expect("text"));
    let mut command = site.command("python3", &arguments);
    command.env("PYTHONPATH", packages).env("PYTHONDONTWRITEBYTECODE", "1").current_dir(&work);
    let outcome = Outcome::of(&command.output().expect("Python starts"));
    assert_eq!(
        (outcome.code, outcome.stdout.lines().last()),
        (0, Some("done")),
        "{}{}",
        outcome.stderr,
        site.cluster.logs()
    );
}

#[test]
fn submitit_runs_functions_arrays_tasks_and_checkpoints() {
    use_by("by_submitit.py");
}

#[test]
fn simple_slurm_submits_signals_and_cancels() {
    use_by("by_simple_slurm.py");
}

#[test]
fn qtoolkit_submits_follows_and_cancels() {
    use_by("by_qtoolkit.py");
}

#[test]
fn clusterfutures_runs_functions() {
    use_by("by_cfut.py");
}
