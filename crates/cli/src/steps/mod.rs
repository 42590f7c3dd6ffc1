//! Steps with any number of tasks, for `hostler step` and `srun`: which task runs where, and running all of them.

mod ends;
pub(crate) mod holding;
pub(crate) mod outside;
mod runner;
mod signals;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use hostler_model::JobId;
use hostler_remote::step::{Allocation, VARIABLE};

use crate::exit;
use crate::failure::{During, Failure};

pub(crate) use ends::{failure, outcome};
pub(crate) use runner::{Face, Links, Plan, Task, Then, connect, run};
pub(crate) use signals::{signals, with_window_changes};

/// The allocation of the job that contains this process.
pub(crate) fn allocation() -> Result<Allocation, Failure> {
    let path = std::env::var_os(VARIABLE).ok_or_else(|| {
        Failure::new(format!("not inside a job that takes steps: {VARIABLE} is not set"))
            .hint("`hostler run --first-node -N 4 SCRIPT` starts SCRIPT on the first of four nodes; call this from SCRIPT")
            .hint("`hostler alloc -N 4` starts a shell on this machine; call this from the shell")
            .exiting(exit::RUN_FAILED)
    })?;
    let path = Path::new(&path);
    Allocation::read(path)
        .during(|| format!("cannot read {}, which lists the nodes of this job", path.display()))
        .map_err(|failure| failure.exiting(exit::RUN_FAILED))
}

/// The allocation of this job, which contains this process or which a process of this machine holds. A task of an array has a
/// number of its own in `SLURM_JOB_ID`.
pub(crate) fn allocation_of(job: JobId, number: u64) -> Result<Allocation, Failure> {
    let held = || holding::directory_of(job).map(|directory| directory.join(holding::ALLOCATION));
    let path = named_by_ancestors(job, number).or_else(|| held().filter(|path| path.exists()));
    let path = path.ok_or_else(|| {
        Failure::new(format!("job {job} takes no steps from here"))
            .hint("call this from the job itself, or on the machine and as the user of the `salloc` that holds the job")
            .exiting(exit::RUN_FAILED)
    })?;
    Allocation::read(&path)
        .during(|| format!("cannot read {}, which lists the nodes of job {job}", path.display()))
        .map_err(|failure| failure.exiting(exit::RUN_FAILED))
}

/// The file that this process's environment names, or else the one of an ancestor: a program may have started this process
/// without the variables of the job.
fn named_by_ancestors(job: JobId, number: u64) -> Option<PathBuf> {
    let is = |value: Option<&str>, number: u64| value.is_some_and(|value| value == number.to_string());
    let mut pid = std::process::id();
    // A process without a job has few ancestors; the limit is for loops of a broken /proc.
    for _ in 0..256 {
        let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
        if let (Some(path), Some(id)) = (value_in(&environment, VARIABLE), text_in(&environment, "HOSTLER_JOB_ID")) {
            let is_of_job = is(Some(id), job.0) || is(text_in(&environment, "SLURM_JOB_ID"), number);
            return is_of_job.then(|| Path::new(path).to_owned());
        }
        pid = parent_of(pid)?;
    }
    None
}

/// The value of a variable in the content of `/proc/PID/environ`.
fn value_in<'a>(environment: &'a [u8], name: &str) -> Option<&'a OsStr> {
    let start = format!("{name}=").into_bytes();
    environment.split(|byte| *byte == 0).find_map(|line| line.strip_prefix(start.as_slice())).map(OsStr::from_bytes)
}

fn text_in<'a>(environment: &'a [u8], name: &str) -> Option<&'a str> {
    value_in(environment, name)?.to_str()
}

fn parent_of(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok().filter(|parent| *parent > 0)
}

/// Returns the rank of a node of the allocation, given its name, address or rank.
pub(crate) fn rank_of(allocation: &Allocation, node: &str) -> Result<u32, Failure> {
    allocation.rank_of(node).ok_or_else(|| {
        Failure::usage(format!("{node} is not a node of this job"))
            .hint(format!("the nodes of the job are {}; ranks start at 0", allocation.names()))
    })
}

/// Runs a future on a new runtime. Does not wait for a pending read of standard input.
pub(crate) fn finish<T>(future: impl Future<Output = T>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.during(|| "cannot start a runtime".to_owned())?;
    let value = runtime.block_on(future);
    runtime.shutdown_background();
    Ok(value)
}
