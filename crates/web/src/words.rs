//! States, endings and amounts as people say them.

use hostler_model::{JobState, WallTime, format_bytes, format_ms, plural};
use hostler_proto::api::{JobSummary, TaskCounts};

/// How a job ended, or what it does now, as the start of a sentence.
pub(crate) fn state_of(job: &JobSummary) -> String {
    if job.array.is_some() {
        return tasks(&job.tasks);
    }
    match job.state {
        JobState::Pending => "Waits".to_owned(),
        JobState::Starting => "Starts".to_owned(),
        JobState::Running => "Runs".to_owned(),
        JobState::Completing => "Has ended".to_owned(),
        JobState::OutOfMemory => {
            format!("Killed: it used more memory than its limit of {}", format_bytes(job.memory_bytes))
        }
        state => ending(state, job.exit_code),
    }
}

/// What to say beside the label of a job's state; empty if the label says it all.
pub(crate) fn beside(job: &JobSummary) -> String {
    if job.array.is_some() || adds(job.state) { state_of(job) } else { String::new() }
}

/// What to say beside the label of a task's state.
pub(crate) fn beside_task(state: JobState, exit_code: Option<i32>) -> String {
    if adds(state) { ending(state, exit_code) } else { String::new() }
}

/// Whether words say more than the label of the state.
const fn adds(state: JobState) -> bool {
    state.is_failure() || matches!(state, JobState::Completing | JobState::Preempted)
}

/// How a task ended.
pub(crate) fn ending(state: JobState, exit_code: Option<i32>) -> String {
    match (state, exit_code) {
        (JobState::Completed, _) => "Completed".to_owned(),
        (JobState::Failed, Some(code)) if code > 128 => format!("Failed: killed by {}", signal(code - 128)),
        (JobState::Failed, Some(code)) => format!("Failed with exit code {code}"),
        (JobState::Failed, None) => "Failed: it did not start".to_owned(),
        (JobState::Cancelled, _) => "Cancelled".to_owned(),
        (JobState::Timeout, _) => "Ended: it reached its time limit".to_owned(),
        (JobState::OutOfMemory, _) => "Killed: it used more memory than its limit".to_owned(),
        (JobState::NodeFail, _) => "Ended: its node was lost".to_owned(),
        (JobState::Preempted, _) => "Ended to make room for another job".to_owned(),
        (JobState::Pending | JobState::Starting | JobState::Running | JobState::Completing, _) => {
            format!("Is {}", state.as_str())
        }
    }
}

fn signal(number: i32) -> String {
    let name = match number {
        1 => "HUP",
        2 => "INT",
        3 => "QUIT",
        4 => "ILL (illegal instruction)",
        6 => "ABRT (the program aborted)",
        7 => "BUS (bad memory access)",
        8 => "FPE (arithmetic error)",
        9 => "KILL",
        11 => "SEGV (bad memory access)",
        13 => "PIPE",
        15 => "TERM",
        _ => return format!("signal {number}"),
    };
    format!("signal {name}")
}

/// The tasks of an array by state, such as `3 running, 5 pending, 2 failed of 10 tasks`.
pub(crate) fn tasks(counts: &TaskCounts) -> String {
    let ended = JobState::ENDED.into_iter().filter(|state| *state != JobState::Completed);
    let live = [JobState::Starting, JobState::Running, JobState::Completing, JobState::Pending];
    let states = live.into_iter().chain(ended).chain([JobState::Completed]);
    format!("{} of {}", counts.in_words(states), plural(counts.total, "task"))
}

/// The states as a parameter of the API, such as `failed,timeout`.
pub(crate) fn states(states: &[JobState]) -> String {
    states.iter().map(|state| state.as_str()).collect::<Vec<_>>().join(",")
}

/// What each task requests, such as `2 CPUs, 4G, 1 GPU`.
pub(crate) fn request(job: &JobSummary) -> String {
    let mut parts = vec![plural(job.cpus, "CPU"), format_bytes(job.memory_bytes)];
    if job.gpus > 0 {
        parts.push(plural(job.gpus, "GPU"));
    }
    parts.extend(job.counted.iter().map(|(name, amount)| format!("{amount} {name}")));
    let each = parts.join(", ");
    if job.node_count > 1 { format!("{} × {each}", plural(job.node_count, "node")) } else { each }
}

/// How long a job has run, of how long it may; before, when it starts or its limit.
pub(crate) fn time_of(job: &JobSummary, now: WallTime) -> String {
    let seconds = |from: WallTime, to: WallTime| format_ms(u64::try_from(to.0 - from.0).unwrap_or(0) / 1000 * 1000);
    let limit = job.time_limit_ms.map(format_ms);
    match (job.started_at, job.ended_at, job.expected_start_at, limit) {
        (Some(start), Some(end), ..) => seconds(start, end),
        (Some(start), None, _, Some(limit)) => format!("{} of {limit}", seconds(start, now)),
        (Some(start), None, _, None) => seconds(start, now),
        (None, Some(_), ..) => String::new(),
        (None, None, Some(start), _) if start.0 > now.0 => format!("starts within {}", seconds(now, start)),
        (None, None, _, limit) => limit.map(|limit| format!("limit {limit}")).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endings_are_said_in_words() {
        assert_eq!(ending(JobState::Failed, Some(3)), "Failed with exit code 3");
        assert_eq!(ending(JobState::Failed, Some(139)), "Failed: killed by signal SEGV (bad memory access)");
        assert_eq!(ending(JobState::Failed, None), "Failed: it did not start");
        let states =
            [(JobState::Pending, 5), (JobState::Running, 3), (JobState::Failed, 1), (JobState::OutOfMemory, 1)];
        assert_eq!(tasks(&TaskCounts::new(states)), "3 running, 5 pending, 1 failed, 1 out_of_memory of 10 tasks");
    }
}
