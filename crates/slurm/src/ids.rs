//! Numbers of array tasks. Slurm gives each task a number of its own besides the array's, and programs compute with it. An
//! array takes as many consecutive numbers as it has tasks: its last task has that of the array, as in Slurm.
//! Arrays of other commands than `sbatch`, and those of older heads, take one number; the others of their tasks are far above.

/// Distance between the numbers of tasks of an array that takes one number: more than the number of jobs that a cluster ever has.
const STRIDE: u64 = 1_000_000_000;

/// Returns the number of the task at a position among the `tasks` of an array that takes as many numbers.
#[must_use]
pub const fn number(job: u64, position: u64, tasks: u64) -> u64 {
    if position + 1 == tasks { job } else { job + 1 + position }
}

/// Returns the position of the task with this number among the `tasks` of an array that takes as many numbers.
#[must_use]
pub const fn position(job: u64, number: u64, tasks: u64) -> Option<u64> {
    if number == job {
        Some(tasks - 1)
    } else if number > job && number - job < tasks {
        Some(number - job - 1)
    } else {
        None
    }
}

/// Returns the number of a task of an array that takes one number.
#[must_use]
pub const fn far_number(job: u64, index: u32, last_index: u32) -> u64 {
    if index == last_index { job } else { job + (index as u64 + 1) * STRIDE }
}

/// Returns the job and the index of a task's number, if the array takes one number. Without an index, the number may be the
/// one of a job, or of a task of an array that takes several numbers.
#[must_use]
pub const fn split_far_number(number: u64) -> (u64, Option<u32>) {
    match number / STRIDE {
        0 => (number, None),
        count if count <= u32::MAX as u64 => (number % STRIDE, Some((count - 1) as u32)),
        _ => (number, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn array_tasks_have_consecutive_numbers() {
        // What Slurm 22.05.8 gives the tasks 0 to 3 of the first array.
        assert_eq!([0, 1, 2, 3].map(|position| number(1, position, 4)), [2, 3, 4, 1]);
        assert_eq!([1, 2, 3, 4].map(|number| position(1, number, 4)), [Some(3), Some(0), Some(1), Some(2)]);
        assert_eq!((position(5, 4, 4), position(5, 9, 4)), (None, None));
        assert_eq!((number(7, 0, 1), position(7, 7, 1), position(7, 8, 1)), (7, Some(0), None));
    }

    #[test]
    fn far_numbers_lead_back_to_the_task() {
        assert_eq!((far_number(12, 0, 0), far_number(12, 9, 9)), (12, 12));
        assert_eq!(far_number(12, 3, 9), 4_000_000_012);
        for (job, index) in [(1, 0), (12, 3), (999_999_999, 4_000_000)] {
            assert_eq!(split_far_number(far_number(job, index, u32::MAX)), (job, Some(index)));
        }
        assert_eq!((split_far_number(12), split_far_number(u64::MAX)), ((12, None), (u64::MAX, None)));
    }
}
