//! Numbers of array tasks. Slurm gives each task a number of its own besides the array's; here the number follows from the
//! job and the index.

/// Distance between the numbers of an array's tasks: more than the number of jobs that a cluster ever has.
const STRIDE: u64 = 1_000_000_000;

/// Returns the number of a task. Jobs without an array and the last task of an array have the number of the job, as the last
/// task to start has in Slurm.
#[must_use]
pub const fn raw_id(job: u64, index: u32, last_index: u32) -> u64 {
    if index == last_index { job } else { job + (index as u64 + 1) * STRIDE }
}

/// Returns the job and the index of a task's number. Without an index, the number is the one of the job.
#[must_use]
pub const fn split_raw_id(raw_id: u64) -> (u64, Option<u32>) {
    match raw_id / STRIDE {
        0 => (raw_id, None),
        number if number <= u32::MAX as u64 => (raw_id % STRIDE, Some((number - 1) as u32)),
        _ => (raw_id, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_lead_back_to_the_task() {
        assert_eq!((raw_id(12, 0, 0), raw_id(12, 9, 9)), (12, 12));
        assert_eq!(raw_id(12, 3, 9), 4_000_000_012);
        for (job, index) in [(1, 0), (12, 3), (999_999_999, 4_000_000)] {
            assert_eq!(split_raw_id(raw_id(job, index, u32::MAX)), (job, Some(index)));
        }
        assert_eq!((split_raw_id(12), split_raw_id(u64::MAX)), ((12, None), (u64::MAX, None)));
    }
}
