//! Advice for the next submission of a job that requested far more than it used.

use hostler_model::{JobState, Request, format_bytes};
use hostler_proto::accounting::JobUse;

/// A job that held its CPUs for less time says too little about its needs, in milliseconds per CPU.
const LEAST_MS: u64 = 10_000;

/// A request that a job could have spared less than this is fine, in bytes.
const LEAST_SPARE_BYTES: u64 = 512 << 20;

const MIB: u64 = 1 << 20;

/// Says what to request next time; `None` if the job used most of its request, or says too little.
pub(crate) fn suggestion(request: &Request, state: JobState, used: &JobUse) -> Option<String> {
    let held_ms = used.sums.cpu_held_ms / u64::from(request.cpus.max(1));
    if state != JobState::Completed || held_ms < LEAST_MS {
        return None;
    }
    let said: Vec<String> = [memory(request, used), cpus(request, used)].into_iter().flatten().collect();
    (!said.is_empty()).then(|| format!("{}.", said.join("; ")))
}

/// Advice on memory: a quarter more than the peak, rounded up.
fn memory(request: &Request, used: &JobUse) -> Option<String> {
    let (asked, peak) = (request.memory_bytes, used.peak_memory_bytes);
    let enough = round_up(peak.saturating_add(peak / 4).max(64 * MIB));
    if peak == 0 || enough > asked / 2 || asked - enough < LEAST_SPARE_BYTES {
        return None;
    }
    Some(format!(
        "requested {}, used {} at most: `-m {}` would do",
        format_bytes(asked),
        format_bytes(peak),
        format_bytes(enough)
    ))
}

/// Rounds up to 64 MiB, or to a GiB from 2 GiB on.
const fn round_up(bytes: u64) -> u64 {
    let step = if bytes > 2048 * MIB { 1024 * MIB } else { 64 * MIB };
    bytes.div_ceil(step).saturating_mul(step)
}

/// Advice on CPUs.
fn cpus(request: &Request, used: &JobUse) -> Option<String> {
    let average = used.sums.cpu_used_ms as f64 / used.sums.cpu_held_ms as f64 * f64::from(request.cpus);
    let enough = (average.ceil() as u32).max(1);
    if enough > request.cpus / 2 {
        return None;
    }
    Some(format!("requested {} CPUs, used {average:.1} on average: `-c {enough}` would do", request.cpus))
}

#[cfg(test)]
mod tests {
    use hostler_model::Counted;
    use hostler_proto::accounting::Consumption;

    use super::*;

    const GIB: u64 = 1 << 30;

    fn said(cpus: u32, memory_bytes: u64, peak_memory_bytes: u64, cpu_used_ms: u64) -> Option<String> {
        let request = Request { cpus, memory_bytes, gpus: 0, counted: Counted::NONE };
        let sums = Consumption { cpu_held_ms: u64::from(cpus) * 60_000, cpu_used_ms, ..Consumption::default() };
        suggestion(&request, JobState::Completed, &JobUse { sums, peak_memory_bytes })
    }

    #[test]
    fn too_large_requests_get_a_suggestion() {
        assert_eq!(
            said(1, 32 * GIB, 21 * GIB / 10, 60_000).as_deref(),
            Some("requested 32G, used 2.1G at most: `-m 3G` would do.")
        );
        assert_eq!(
            said(8, GIB, GIB, 72_000).as_deref(),
            Some("requested 8 CPUs, used 1.2 on average: `-c 2` would do.")
        );
    }

    #[test]
    fn fitting_requests_and_short_jobs_get_none() {
        assert_eq!(said(2, 4 * GIB, 3 * GIB, 110_000), None);
        assert_eq!(said(1, GIB, 600 * MIB, 0), None, "little could be spared");
        assert_eq!(said(1, 32 * GIB, 0, 0), None, "the peak is unknown");
        let request = Request { cpus: 8, memory_bytes: 32 * GIB, gpus: 0, counted: Counted::NONE };
        let short = JobUse { sums: Consumption { cpu_held_ms: 8_000, ..Consumption::default() }, peak_memory_bytes: 1 };
        assert_eq!(suggestion(&request, JobState::Completed, &short), None);
        let long = JobUse { sums: Consumption { cpu_held_ms: 8_000_000, ..short.sums }, ..short };
        assert_eq!(suggestion(&request, JobState::OutOfMemory, &long), None);
    }
}
