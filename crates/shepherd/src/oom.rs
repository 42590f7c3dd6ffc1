//! OOM scores: the kernel should kill a job rather than its shepherd.

use std::ffi::{CStr, CString};
use std::fs;
use std::sync::OnceLock;

/// Value of `oom_score_adj` for programs of jobs, if it differs from the inherited one.
static JOB_SCORE: OnceLock<CString> = OnceLock::new();

/// Makes the OOM killer prefer the job to its shepherd. With version 1 cgroups, the shepherd is in the job's memory
/// group. It may use more memory than a job that fills a tmpfs file. As root, this process and its forks are
/// protected. Without that permission, jobs get a higher score.
pub(crate) fn prefer_jobs_for_oom_kill() {
    const SCORE: &str = "/proc/self/oom_score_adj";
    // As much as the job's whole memory limit. With a lower score, a shepherd outweighs small programs at limits of a
    // few MiB.
    const READILY: i32 = 1000;
    let Ok(usual) = fs::read_to_string(SCORE) else { return };
    let usual: i32 = usual.trim().parse().unwrap_or_default();
    let is_protected = fs::write(SCORE, "-1000").is_ok();
    // Never below 0, the score of a login: the agent's service may be protected, and its jobs must not be.
    let score = if is_protected { usual.max(0) } else { usual.max(READILY) };
    let _ = JOB_SCORE.set(CString::new(score.to_string()).expect("a number has no NUL"));
}

/// Value of `oom_score_adj` that a job's process must set.
pub(crate) fn job_score() -> Option<&'static CStr> {
    JOB_SCORE.get().map(CString::as_c_str)
}
