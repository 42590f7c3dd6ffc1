//! What a job of Slurm's commands says about its end in its standard error. People and programs read these lines.

use std::fs;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::libc;

/// The exit code of a step that ran out of memory, in its record. Slurm shows it as `0:125`.
pub const OUT_OF_MEMORY: i32 = 128 + 125;

/// Processes of the job that the kernel has killed for memory.
#[derive(Debug)]
pub(super) struct MemoryKills {
    before: u64,
    /// How many of them were in steps.
    of_steps: AtomicU64,
}

impl MemoryKills {
    pub(super) fn new() -> Self {
        Self { before: count().unwrap_or_default(), of_steps: AtomicU64::new(0) }
    }

    /// The kills so far, to compare with later ones.
    pub(super) fn so_far() -> u64 {
        count().unwrap_or_default()
    }

    /// Whether a process of a step was killed, for a step that began after `before` kills and ended with this exit code.
    pub(super) fn hit_step(&self, before: u64, code: i32) -> bool {
        if code != 128 + libc::SIGKILL {
            return false;
        }
        let kills = Self::so_far().saturating_sub(before);
        self.of_steps.fetch_add(kills, Ordering::Relaxed);
        kills > 0
    }

    /// Says that the kernel killed processes of the script, if it did.
    pub(super) fn say(&self) {
        let all = Self::so_far().saturating_sub(self.before);
        let own = all.saturating_sub(self.of_steps.load(Ordering::Relaxed));
        if own > 0
            && let Some(job) = slurm_job()
        {
            say(&detected(own, &format!("{job}.batch")));
        }
    }
}

/// The line about processes of a step that the kernel killed for memory.
#[must_use]
pub fn detected(kills: u64, step: &str) -> String {
    let events = if kills == 1 { "event" } else { "events" };
    format!("error: Detected {kills} oom_kill {events} in StepId={step}. Some of the step tasks have been OOM Killed.")
}

/// Says that the job is ended from outside. `why`: a text such as ` DUE TO TIME LIMIT`.
pub(super) fn say_end(why: &str, node: &str) {
    if let Some(job) = slurm_job() {
        say(&format!("error: *** JOB {job} ON {node} CANCELLED AT {}{why} ***", local_time()));
    }
}

#[expect(clippy::print_stderr, reason = "the job's standard error is where users look")]
fn say(line: &str) {
    eprintln!("slurmstepd: {line}");
}

/// The number of the job; `None` if no command of Slurm's submitted it.
fn slurm_job() -> Option<String> {
    std::env::var("SLURM_JOB_ID").ok()
}

/// The number of processes of this process's memory group that the kernel has killed.
fn count() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let number =
        |text: String| text.lines().find_map(|line| line.strip_prefix("oom_kill "))?.trim().parse::<u64>().ok();
    let read = |line: &str| {
        let mut parts = line.splitn(3, ':');
        let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        let file = match controllers {
            "" => format!("/sys/fs/cgroup{path}/memory.events"),
            list if list.split(',').any(|name| name == "memory") => {
                format!("/sys/fs/cgroup/memory{path}/memory.oom_control")
            }
            _ => return None,
        };
        number(fs::read_to_string(file).ok()?)
    };
    groups.lines().find_map(read)
}

/// The time of this machine, as Slurm writes it.
fn local_time() -> String {
    let mut parts = MaybeUninit::<libc::tm>::zeroed();
    // SAFETY: both pointers are to locals of the right types; all zeroes is a valid tm.
    let parts = unsafe {
        let now = libc::time(std::ptr::null_mut());
        libc::localtime_r(&raw const now, parts.as_mut_ptr());
        parts.assume_init()
    };
    format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}",
        parts.tm_year + 1900,
        parts.tm_mon + 1,
        parts.tm_mday,
        parts.tm_hour,
        parts.tm_min,
        parts.tm_sec
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_slurms_words() {
        let line = "error: Detected 2 oom_kill events in StepId=12.batch. Some of the step tasks have been OOM Killed.";
        assert_eq!(detected(2, "12.batch"), line);
        assert_eq!(local_time().len(), "2026-01-02T03:04:05".len());
    }
}
