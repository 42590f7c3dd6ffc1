//! Metrics that compare schedules of the same workload.

use std::fmt;

use crate::TraceJob;

/// Minimum run time in the slowdown, in seconds, so that tiny jobs do not dominate.
const SLOWDOWN_BOUND_SECS: u64 = 10;

/// The quality of a schedule. All zero for a workload without jobs.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Metrics {
    /// The number of jobs.
    pub jobs: usize,
    /// The number of jobs that started later than the second of their submission.
    pub jobs_that_waited: usize,
    /// The sum of the times from submission to start of all jobs.
    pub sum_of_waits_secs: u64,
    /// The longest time from submission to start.
    pub max_wait_secs: u64,
    /// The mean time from submission to start.
    pub mean_wait_secs: f64,
    /// The mean of (wait + run) / max(run, 10 s), each at least 1.
    pub mean_bounded_slowdown: f64,
    /// The time from the first submission to the end of the last job.
    pub makespan_secs: u64,
    /// The share of all CPU time in the makespan that jobs used, from 0 to 1.
    pub utilisation: f64,
}

impl Metrics {
    /// Computes the metrics for jobs with these start times, in the same order, on nodes with a total of `cpus` CPUs.
    #[must_use]
    pub fn new(jobs: &[TraceJob], starts_secs: impl Iterator<Item = u64>, cpus: u64) -> Self {
        let mut metrics = Self { jobs: jobs.len(), ..Self::default() };
        let mut slowdowns = 0.0;
        let mut cpu_secs = 0_u128;
        let mut last_end = 0;
        for (job, start) in jobs.iter().zip(starts_secs) {
            let wait = start.saturating_sub(job.submit_secs);
            metrics.jobs_that_waited += usize::from(wait > 0);
            metrics.sum_of_waits_secs += wait;
            metrics.max_wait_secs = metrics.max_wait_secs.max(wait);
            slowdowns += bounded_slowdown(wait, job.run_secs);
            cpu_secs += u128::from(job.request.cpus) * u128::from(job.run_secs);
            last_end = last_end.max(start + job.run_secs);
        }
        let first_submission = jobs.iter().map(|job| job.submit_secs).min().unwrap_or(0);
        metrics.makespan_secs = last_end.saturating_sub(first_submission);
        metrics.mean_wait_secs = ratio(metrics.sum_of_waits_secs as f64, jobs.len() as f64);
        metrics.mean_bounded_slowdown = ratio(slowdowns, jobs.len() as f64);
        metrics.utilisation = ratio(cpu_secs as f64, cpus as f64 * metrics.makespan_secs as f64);
        metrics
    }
}

fn bounded_slowdown(wait_secs: u64, run_secs: u64) -> f64 {
    ((wait_secs + run_secs) as f64 / run_secs.max(SLOWDOWN_BOUND_SECS) as f64).max(1.0)
}

/// Divides; returns zero if the quotient is not a number.
fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

impl fmt::Display for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "jobs                   {}", self.jobs)?;
        writeln!(f, "jobs that waited       {}", self.jobs_that_waited)?;
        writeln!(f, "mean wait              {:.4} s", self.mean_wait_secs)?;
        writeln!(f, "sum of waits           {} s", self.sum_of_waits_secs)?;
        writeln!(f, "longest wait           {} s", self.max_wait_secs)?;
        writeln!(f, "mean bounded slowdown  {:.4}", self.mean_bounded_slowdown)?;
        writeln!(f, "makespan               {} s", self.makespan_secs)?;
        write!(f, "utilisation            {:.5}", self.utilisation)
    }
}
