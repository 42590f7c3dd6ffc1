//! What the jobs that a job depends on do now.

use hostler_core::head::{Job, Now, State};
use hostler_model::{Condition, Dependency, format_ms};

/// Returns a line for each dependency that is not satisfied yet, and one line before them if one of several is enough.
pub(super) fn lines(state: &State, job: &Job, now: Now) -> Vec<String> {
    let several = job.open_dependencies().nth(1).is_some();
    let any = (several && job.spec.has_alternatives()).then(|| "One of these conditions is enough.".to_owned());
    let unmet = job.unmet.iter().map(|dependency| unmet_line(state, dependency));
    let delays = job.delays().iter().map(|delay| {
        let left = format_ms(delay.until.ms_since(now.at));
        format!("{}: job {} has begun; the condition holds in {left}.", delay.dependency.plain(), delay.dependency.job)
    });
    any.into_iter().chain(unmet).chain(delays).collect()
}

fn unmet_line(state: &State, dependency: &Dependency) -> String {
    let (id, dependency) = (dependency.job, dependency.plain());
    let Some(job) = state.job(id) else { return format!("{dependency}: job {id} no longer exists.") };
    match dependency.task {
        Some(index) => {
            let active = job.active.get(&index).map_or("pending", |active| active.phase().state().as_str());
            format!("{dependency}: task {id}_{index} is {active}.")
        }
        None if dependency.condition == Condition::AfterCorr => {
            format!("{dependency}: job {id} is {}; each task waits for the task with the same index.", job.state())
        }
        None => format!("{dependency}: job {id} is {}.", job.state()),
    }
}
