//! MPI programs that `srun` starts: MPICH, and Slurm's own library for version 2 of PMI.

use std::path::Path;
use std::process::Command;

use hostler_testkit::{Outcome, Size, SlurmNames};

use super::{HOSTLER, packages};

/// What the processes of a program under MPICH do, by their first argument.
const PROGRAM: &str = "\
import os, sys
what = sys.argv[1]
if what == 'early' and os.environ['PMI_RANK'] == '1':
    sys.exit(7)
from mpi4py import MPI
world = MPI.COMM_WORLD
if what == 'sum':
    total = world.allreduce(world.rank + 1)
    os.write(1, f'{world.rank} of {world.size}: {total}\\n'.encode())
elif world.rank == 1:
    MPI.COMM_WORLD.Abort(3) if what == 'abort' else os._exit(7)
else:
    world.barrier()
";

fn site() -> SlurmNames {
    SlurmNames::up(HOSTLER, Size { nodes: 2, cpus: 2, memory: "2G" })
}

/// Runs the program under MPICH with `srun`.
fn mpich(site: &SlurmNames, options: &[&str], what: &str) -> Outcome {
    let script = site.cluster.path("program.py");
    std::fs::write(&script, PROGRAM).expect("a new file");
    let python = Path::new(&packages()).join("mpich/bin/python3");
    let tail = [python.as_path(), &script, what.as_ref()].map(|word| word.to_str().expect("text"));
    let command = site.command("srun", &[options, &tail].concat()).output();
    Outcome::of(&command.expect("srun starts"))
}

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

#[test]
fn srun_starts_processes_of_mpich_on_several_nodes() {
    let site = site();
    let summed = ["0 of 4: 10", "1 of 4: 10", "2 of 4: 10", "3 of 4: 10"];
    for distribution in ["block", "cyclic"] {
        let options = ["--mpi=pmi2", "-N", "2", "-n", "4", "-m", distribution];
        let outcome = mpich(&site, &options, "sum");
        assert_eq!((outcome.code, sorted(&outcome.stdout)), (0, summed.to_vec()), "{}", outcome.stderr);
    }
    // Without a manager, each process is a program of its own.
    let outcome = mpich(&site, &["--mpi=none", "-n", "2"], "sum");
    assert_eq!((outcome.code, sorted(&outcome.stdout)), (0, vec!["0 of 1: 1"; 2]), "{}", outcome.stderr);
    // A step within a step does not use the manager of the outer one.
    let inner = ["srun", "--overlap", "-n", "1", "sh", "-c", "env | grep -c ^PMI_; echo end"];
    let outer = [&["--mpi=pmi2", "-n", "1"][..], &inner].concat();
    let outcome = Outcome::of(&site.command("srun", &outer).output().expect("srun starts"));
    assert_eq!((outcome.code, outcome.stdout.as_str()), (0, "0\nend\n"), "{}", outcome.stderr);
}

#[test]
fn mpi_program_that_cannot_go_on_ends() {
    let site = site();
    let missed = "task 1 ended without MPI_Finalize, and others would wait for it";
    for (what, messages) in [
        ("abort", ["task 1 aborted the program", "task 1 aborted the program"]),
        ("exit", [missed, missed]),
        // The message depends on whether another task waits already when this one ends.
        ("early", [missed, "waits for task 1, which has ended"]),
    ] {
        let outcome = mpich(&site, &["--mpi=pmi2", "-N", "2", "-n", "4"], what);
        assert_ne!(outcome.code, 0, "{}", outcome.stderr);
        let said = |line: &&str| messages.iter().any(|message| line.contains(message));
        assert_eq!(outcome.stderr.lines().filter(said).count(), 1, "{}", outcome.stderr);
    }
}

#[test]
fn srun_is_the_manager_of_slurms_library() {
    let site = site();
    let program = site.cluster.path("pmi2");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/slurm_clients/pmi2.c");
    let built = Command::new("cc").args(["-o"]).arg(&program).arg(source).arg("-lpmi2").output().expect("cc starts");
    assert!(built.status.success(), "libpmi2-0-dev is needed: {}", String::from_utf8_lossy(&built.stderr));
    let mut command = site.command("srun", &["-N", "2", "-n", "4", program.to_str().expect("text")]);
    let outcome = Outcome::of(&command.env("SLURM_MPI_TYPE", "pmi2").output().expect("srun starts"));
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    let lines = sorted(&outcome.stdout);
    for (rank, line) in lines.iter().enumerate() {
        let (begin, rest) = line.split_once(" in ").expect("a line of a process");
        assert_eq!(begin, format!("{rank} of 4"));
        let (_job, values) = rest.split_once(": ").expect("a line of a process");
        let (next, first) = ((rank + 1) % 4, rank / 2 * 2);
        assert_eq!(values, format!("(vector,(0,2,2)) a;b={next}; of {first}"));
    }
    assert_eq!(lines.len(), 4);
}
