//! Lists of job ids, as `squeue` and `sacct` take them: `12`, `12_3`, `12_[1-3]`, the numbers of array tasks, and steps.

use hostler_model::{ArraySpec, IndexSet, JobId};
use hostler_proto::api::JobRecord;
use hostler_slurm::ids::split_far_number;

use super::super::rows::{Row, rows, task_with_number};

/// A job, or tasks of an array, that the user names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::slurm) struct Named {
    pub(in crate::slurm) job: JobId,
    /// Indices of the tasks; `None` stands for the whole job.
    pub(in crate::slurm) tasks: Option<IndexSet>,
    /// The step, such as `batch` or `0`.
    pub(in crate::slurm) step: Option<String>,
}

impl Named {
    /// Whether this names a job or some of its tasks.
    pub(in crate::slurm) fn is_of(&self, job: &JobRecord) -> bool {
        self.job == job.id || self.number_of(job).is_some()
    }

    /// Whether this names the whole job.
    fn is_whole(&self, job: &JobRecord) -> bool {
        self.job == job.id && self.tasks.is_none()
    }

    /// Whether this names a task of the job, perhaps among others.
    fn has_task(&self, job: &JobRecord, index: u32) -> bool {
        let is_listed = || self.tasks.as_ref().is_none_or(|tasks| tasks.contains(index));
        self.number_of(job) == Some(index) || self.job == job.id && is_listed()
    }

    /// The index of the task whose number this is.
    fn number_of(&self, job: &JobRecord) -> Option<u32> {
        task_with_number(job, self.job).filter(|_| self.tasks.is_none())
    }
}

/// Parses a list of ids.
///
/// # Errors
/// Returns the first word that is not an id.
pub(in crate::slurm) fn parse_list(list: &str) -> Result<Vec<Named>, String> {
    split(list).into_iter().map(|word| parse(word).ok_or_else(|| word.to_owned())).collect()
}

/// Splits a list at the commas outside of brackets.
fn split(list: &str) -> Vec<&str> {
    let mut depth = 0_i32;
    let words = list.split(|c| {
        depth += i32::from(c == '[') - i32::from(c == ']');
        c == ',' && depth == 0
    });
    words.map(str::trim).filter(|word| !word.is_empty()).collect()
}

fn parse(word: &str) -> Option<Named> {
    let (id, step) = word.split_once('.').map_or((word, None), |(id, step)| (id, Some(step.to_owned())));
    // The part of a heterogeneous job; this cluster's jobs have only one.
    let id = id.strip_suffix("+0").unwrap_or(id);
    let (job, tasks) = id.split_once('_').map_or((id, None), |(job, tasks)| (job, Some(tasks)));
    let raw: u64 = job.parse().ok().filter(|raw| *raw > 0)?;
    let (job, index) = split_far_number(raw);
    let tasks = match (tasks, index) {
        (None, index) => index.map(IndexSet::one),
        (Some("*"), _) => None,
        (Some(tasks), _) => Some(parse_tasks(tasks)?),
    };
    Some(Named { job: JobId(job), tasks, step })
}

fn parse_tasks(text: &str) -> Option<IndexSet> {
    let inner = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    inner.parse::<ArraySpec>().ok().map(|array| array.indices)
}

/// The rows of a job that a list of ids names; all rows if the list is absent. With `split`, each task of an array that
/// waits has a row of its own, as it has if the list names it.
pub(in crate::slurm) fn named_rows<'a>(job: &'a JobRecord, named: Option<&[Named]>, split: bool) -> Vec<Row<'a>> {
    let Some(named) = named else { return rows(job, split) };
    if named.iter().any(|it| it.is_whole(job)) {
        return rows(job, split);
    }
    let is_named = |index| named.iter().any(|it| it.has_task(job, index));
    rows(job, true).into_iter().filter(|row| row.index().is_some_and(is_named)).collect()
}

/// Whether a list of ids names a step of a row, or the row itself if `step` is `None`. An id without a step names all of
/// these, and so does an absent list.
pub(in crate::slurm) fn names_step(named: Option<&[Named]>, row: &Row<'_>, step: Option<&str>) -> bool {
    let Some(named) = named else { return true };
    let is_of_row = |it: &Named| it.is_whole(row.job) || row.index().is_some_and(|index| it.has_task(row.job, index));
    let mut of_row = named.iter().filter(|it| is_of_row(it));
    of_row.any(|it| it.step.is_none() || it.step.as_deref() == step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_have_slurms_forms() {
        let all = |list: &str| -> Vec<_> {
            let named = parse_list(list).expect(list).into_iter();
            named.map(|it| (it.job.0, it.tasks.map(|tasks| tasks.iter().collect::<Vec<_>>()), it.step)).collect()
        };
        assert_eq!(all("12,13_4"), [(12, None, None), (13, Some(vec![4]), None)]);
        assert_eq!(all("12_[1-3,7%2],5"), [(12, Some(vec![1, 2, 3, 7]), None), (5, None, None)]);
        assert_eq!(
            all("12.batch,12_3.0"),
            [(12, None, Some("batch".to_owned())), (12, Some(vec![3]), Some("0".to_owned()))]
        );
        assert_eq!(all("4000000012, 12+0,"), [(12, Some(vec![3]), None), (12, None, None)]);
        for (list, bad) in [("abc", "abc"), ("1,0", "0"), ("1_x,2", "1_x"), ("-1", "-1"), ("12_", "12_")] {
            assert_eq!(parse_list(list), Err(bad.to_owned()));
        }
    }
}
