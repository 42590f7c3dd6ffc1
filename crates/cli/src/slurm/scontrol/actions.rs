//! Commands of `scontrol` that act on jobs.

use std::fs::{Permissions, symlink_metadata};
use std::io::{self, ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use hostler_client::{Client, ClientError, RecordFilter};
use hostler_model::{ArraySpec, IndexSet, JobId, JobState, os_string_of};
use hostler_proto::api::{JobAction, JobRecord};
use hostler_slurm::ids::split_far_number;

use super::super::rows::task_with_number;
use super::super::{Ended, Outcome, Refused, own_name, print, print_scripts};
use super::{DISABLED, NAME, Session};
use crate::commands::act::outlive_own_job;
use crate::context::block_on;

const DENIED: &str = "Access/permission denied";
const INVALID: &str = "Invalid job id specified";
const PENDING: &str = "Job is pending execution";
pub(super) const NOT_PENDING: &str = "Job is no longer pending execution";
pub(super) const FINISHED: &str = "Job has already finished";

/// A job, or tasks of an array, as the user names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) text: String,
    pub(super) job: JobId,
    tasks: Option<IndexSet>,
}

/// Why an action failed: Slurm's text, and the head's words. An empty text is not printed.
pub(super) struct Problem {
    pub(super) text: &'static str,
    pub(super) lines: Vec<String>,
}

impl Problem {
    pub(super) const fn new(text: &'static str) -> Self {
        Self { text, lines: Vec::new() }
    }

    pub(super) fn with(text: &'static str, refused: &Refused) -> Self {
        Self { text, lines: refused.lines().collect() }
    }

    /// Returns the first problem, followed by each other text once.
    fn join(problems: impl IntoIterator<Item = Self>) -> Result<(), Self> {
        let mut distinct: Vec<Self> = Vec::new();
        for problem in problems {
            if distinct.iter().all(|known| known.text != problem.text) {
                distinct.push(problem);
            }
        }
        let mut distinct = distinct.into_iter();
        let Some(mut first) = distinct.next() else { return Ok(()) };
        for other in distinct {
            first.lines.push(other.text.to_owned());
            first.lines.extend(other.lines);
        }
        Err(first)
    }
}

impl From<ClientError> for Problem {
    fn from(error: ClientError) -> Self {
        let refused = Refused::from(error);
        // The text for an unknown job says everything.
        let is_plain = matches!(refused.code.as_deref(), None | Some("no_such_job" | "no_such_task"));
        if is_plain { Self::new(refused.text) } else { Self::with(refused.text, &refused) }
    }
}

impl Target {
    /// Parses `12`, `12_3`, `12_[1-3,7]`, and the numbers of array tasks.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let number = |text: &str| text.parse::<u64>().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()));
        let (job, tasks) = match text.split_once('_') {
            None => {
                let (job, index) = split_far_number(number(text)?);
                (job, index.map(IndexSet::one))
            }
            Some((job, list)) => {
                let list = list.strip_prefix('[').and_then(|list| list.strip_suffix(']')).unwrap_or(list);
                let array: ArraySpec = list.split('%').next().unwrap_or(list).parse().ok()?;
                (number(job)?, Some(array.indices))
            }
        };
        (job > 0).then(|| Self { text: text.to_owned(), job: JobId(job), tasks })
    }

    /// Resolves the number of a task of this array.
    fn resolve(&mut self, record: &JobRecord) {
        if self.tasks.is_none()
            && let Some(index) = task_with_number(record, self.job)
        {
            (self.job, self.tasks) = (record.id, Some(IndexSet::one(index)));
        }
    }

    /// An error about the job in Slurm's form.
    fn error(&self, text: &str) -> String {
        match self.tasks {
            None => format!("{text} for job {}", self.text),
            Some(_) => format!("{}: {text}", self.text),
        }
    }

    fn indices(&self) -> Vec<Option<u32>> {
        self.tasks.as_ref().map_or_else(|| vec![None], |tasks| tasks.iter().map(Some).collect())
    }
}

/// Splits a list of ids at the commas outside of brackets.
pub(super) fn split_ids(list: &str) -> Vec<String> {
    let (mut words, mut word, mut depth) = (Vec::new(), String::new(), 0_i32);
    for c in list.chars() {
        match c {
            ',' if depth == 0 => words.push(std::mem::take(&mut word)),
            c => {
                depth += i32::from(c == '[') - i32::from(c == ']');
                word.push(c);
            }
        }
    }
    words.push(word);
    words.retain(|word| !word.is_empty());
    words
}

/// The record of a job, without its ended tasks; `None` if there is no such job.
async fn record(client: &Client, job: JobId) -> Result<Option<JobRecord>, ClientError> {
    let filter = RecordFilter { jobs: vec![job], live: true, ..RecordFilter::default() };
    Ok(client.records(&filter).await?.into_iter().next())
}

/// Does something with a job. The error begins with the text that names the job.
async fn act_on(
    client: &Client,
    word: &str,
    act: &impl AsyncFn(&Client, &Target, &JobRecord) -> Result<(), Problem>,
) -> Result<(), (String, Problem)> {
    let Some(mut target) = Target::parse(word) else {
        return Err((format!("{INVALID} for job {word}"), Problem::new(INVALID)));
    };
    let done = match record(client, target.job).await {
        Ok(Some(record)) => {
            target.resolve(&record);
            act(client, &target, &record).await
        }
        Ok(None) => Err(Problem::new(INVALID)),
        Err(error) => Err(error.into()),
    };
    done.map_err(|problem| (target.error(problem.text), problem))
}

impl Session<'_> {
    /// Does something with each job that the words name. `after` follows each error.
    pub(super) fn each(
        &self,
        words: &[String],
        after: Option<&str>,
        act: &impl AsyncFn(&Client, &Target, &JobRecord) -> Result<(), Problem>,
    ) -> Outcome {
        let client = self.context.client()?;
        let code = block_on(async {
            let mut code = 0;
            for word in words.iter().flat_map(|list| split_ids(list)) {
                let Err((error, problem)) = act_on(&client, &word, act).await else { continue };
                code = 1;
                if !problem.text.is_empty() {
                    self.complain(&error);
                }
                if let Some(after) = after {
                    self.complain(&format!("{after} error: {}", problem.text));
                }
                problem.lines.iter().for_each(|line| self.complain(&format!("{NAME}: {line}")));
            }
            Ok(code)
        })?;
        Ok(code)
    }

    /// Queues jobs again, and holds them if `held`.
    pub(super) fn requeue(&self, words: &[String], held: bool) -> Outcome {
        let words = self.named(words)?;
        self.each(&words, None, &async |client, target, record| {
            if !record.requeue {
                let what = &target.text;
                let hint = format!(
                    "hint: the job does not allow requeues (--no-requeue); `hostler requeue {what}` queues it again"
                );
                return Err(Problem { text: DISABLED, lines: vec![hint] });
            }
            let waits = |index: &Option<u32>| match (index, &record.waiting) {
                (None, _) => record.state == JobState::Pending && record.tasks.is_empty() && record.attempt.0 == 0,
                (Some(index), waiting) => waiting.as_ref().is_some_and(|waiting| waiting.indices.contains(*index)),
            };
            let indices = target.indices();
            if indices.iter().all(waits) {
                return Err(Problem::new(PENDING));
            }
            outlive_own_job(target.job);
            // Slurm also requeues a completed task that is named.
            let action = match (held, target.tasks.is_some()) {
                (true, completed) => JobAction::RequeueHeld { completed },
                (false, true) => JobAction::RequeueAll,
                (false, false) => JobAction::Requeue,
            };
            let explain = |error: ClientError, _: Option<u32>| {
                let refused = Refused::from(error);
                let waits = refused.code.as_deref() == Some("wrong_state") && record.state == JobState::Pending;
                Err(if waits { Problem::new(PENDING) } else { Problem::with(refused.text, &refused) })
            };
            Problem::join(act_on_each(client, target.job, &indices, action, explain).await)
        })
    }

    pub(super) fn hold(&self, words: &[String], action: JobAction) -> Outcome {
        let words = self.named(words)?;
        self.each(&words, Some("slurm_suspend"), &async |client, target, record| {
            act_on_waiting(client, target, record, action).await
        })
    }

    pub(super) fn release(&self, words: &[String]) -> Outcome {
        let words = self.named(words)?;
        self.each(&words, Some("slurm_suspend"), &async |client, target, record| {
            act_on_waiting(client, target, record, JobAction::Release).await
        })
    }

    /// Refuses what jobs cannot do.
    pub(super) fn refuse(&self, words: &[String], hint: &str) -> Outcome {
        self.each(words, None, &async |_, _, _| Err(Problem { text: DISABLED, lines: vec![format!("hint: {hint}")] }))
    }

    /// Writes the script of a job to a file, or to standard output for `-`.
    pub(super) fn write_script(&self, words: &[String]) -> Outcome {
        let [what, rest @ ..] = words else { return Err(Ended::plain("too few arguments for keyword:write")) };
        if !"batch_script".starts_with(&what.to_ascii_lowercase()) {
            return Err(Ended::plain(format!("invalid write argument:{what}")));
        }
        let Some(id) = rest.first() else { return Err(Ended::plain("too few arguments for keyword:write")) };
        let failed = |why: &str| Ended::plain(format!("job script retrieval failed: {why}"));
        let job = Target::parse(id).ok_or_else(|| failed(INVALID))?.job;
        let client = self.context.client()?;
        let asked = async { Ok(client.script(job).await.map_err(Refused::from)) };
        let script = block_on(asked)?.map_err(|refused| match refused.code.as_deref() {
            Some("no_script") => refused.lines().fold(failed("Job has no batch script"), Ended::and),
            Some("no_such_job") => failed(INVALID),
            _ => refused.lines().fold(failed(refused.text), Ended::and),
        })?;
        let file = rest.get(1).cloned().unwrap_or_else(|| format!("slurm-{id}.sh"));
        if file == "-" {
            return Ok(print_scripts(self.context, &script));
        }
        let cannot = |error| Ended::plain(format!("failed to write file `{file}`: {error}"));
        replace_file(Path::new(&file), &script).map_err(cannot)?;
        Ok(print(self.context, &format!("batch script for job {id} written to {file}\n")))
    }

    /// Replaces names of jobs, as in `jobname=first`, by the ids of the user's jobs with that name, and `jobid=12` by `12`.
    pub(super) fn named(&self, words: &[String]) -> Result<Vec<String>, Ended> {
        let mut all = Vec::new();
        for word in words {
            let (key, value) = word
                .split_once('=')
                .map_or((String::new(), word.as_str()), |(key, value)| (key.to_ascii_lowercase(), value));
            match key.as_str() {
                "jobname" | "name" => {
                    let live = JobState::ALL.into_iter().filter(|state| !state.is_ended()).collect();
                    let user = Some(own_name()?);
                    let filter = RecordFilter { states: live, user, live: true, ..RecordFilter::default() };
                    let records = self.ask("slurm_load_jobs", async |client| client.records(&filter).await)?;
                    // Like Slurm, accept a name that no job has.
                    let named = records.iter().filter(|record| record.name == value);
                    all.extend(named.map(|record| record.id.to_string()));
                }
                "jobid" | "job" => all.push(value.to_owned()),
                _ => all.push(word.clone()),
            }
        }
        Ok(all)
    }
}

/// Writes a file that only its owner can access. An existing file is replaced and never opened: other users can foresee
/// the name, and could read the text through a file that they own.
fn replace_file(path: &Path, text: &str) -> io::Result<()> {
    match symlink_metadata(path) {
        Ok(found) if !found.is_file() => {
            return Err(io::Error::other(
                "it exists and is not a regular file; choose another name, or `-` for stdout",
            ));
        }
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = tempfile::Builder::new().permissions(Permissions::from_mode(0o700)).tempfile_in(directory)?;
    file.write_all(os_string_of(text).as_bytes())?;
    file.persist(path)?;
    Ok(())
}

/// Acts on a job, or on each of these tasks, also after a refusal. Returns the first problem of each text.
async fn act_on_each(
    client: &Client,
    job: JobId,
    indices: &[Option<u32>],
    action: JobAction,
    explain: impl Fn(ClientError, Option<u32>) -> Result<(), Problem>,
) -> Vec<Problem> {
    let mut problems: Vec<Problem> = Vec::new();
    for index in indices {
        let Err(error) = client.act(job, *index, action).await else { continue };
        let is_away = error.code().is_none();
        if let Err(problem) = explain(error, *index)
            && problems.iter().all(|known| known.text != problem.text)
        {
            problems.push(problem);
        }
        if is_away {
            break;
        }
    }
    problems
}

/// Holds or releases a job, or tasks of an array.
pub(super) async fn act_on_waiting(
    client: &Client,
    target: &Target,
    record: &JobRecord,
    action: JobAction,
) -> Result<(), Problem> {
    let (indices, others) = match action {
        JobAction::Hold | JobAction::HoldForOwner => to_hold(target, record),
        _ => (target.indices(), Vec::new()),
    };
    let explain = |error, index| explain_refusal(error, index, record);
    let problems = act_on_each(client, target.job, &indices, action, explain).await;
    Problem::join(problems.into_iter().chain(others))
}

/// Returns the named tasks that wait, and the problems of the other ones.
fn to_hold(target: &Target, record: &JobRecord) -> (Vec<Option<u32>>, Vec<Problem>) {
    let (Some(tasks), Some(array)) = (&target.tasks, &record.array) else { return (target.indices(), Vec::new()) };
    let none = IndexSet::EMPTY;
    let waiting = record.waiting.as_ref().map_or(&none, |waiting| &waiting.indices);
    let others = tasks.difference(waiting);
    let live: IndexSet = record.tasks.iter().filter(|task| !task.state.is_ended()).map(|task| task.index).collect();
    let known = others.intersection(&array.indices);
    let problems = [
        (!others.is_subset(&array.indices), INVALID),
        (!known.is_disjoint(&live), NOT_PENDING),
        (!known.is_subset(&live), FINISHED),
    ];
    let problems = problems.into_iter().filter(|(is_one, _)| *is_one).map(|(_, text)| Problem::new(text)).collect();
    // One request holds a whole array, but then also ended tasks that are queued again. Some tasks need a request each.
    let is_whole = array.indices.is_subset(tasks) && !waiting.is_empty();
    let indices = if is_whole { vec![None] } else { tasks.intersection(waiting).iter().map(Some).collect() };
    (indices, problems)
}

/// Puts the refusal of a hold or a release in Slurm's words. Holding a held task, or releasing a free one, is not an error.
fn explain_refusal(error: ClientError, index: Option<u32>, record: &JobRecord) -> Result<(), Problem> {
    if error.code() != Some("wrong_state") {
        return Err(error.into());
    }
    let waits = match (&record.waiting, index) {
        (Some(waiting), Some(index)) => waiting.indices.contains(index),
        (waiting, _) => record.state == JobState::Pending || waiting.is_some(),
    };
    let has_ended = record.tasks.iter().any(|task| Some(task.index) == index && task.state.is_ended());
    let is_of_operator = |set: &IndexSet| index.is_none_or(|index| set.contains(index));
    let is_of_operator = record.held_by_operator || record.held_tasks_by_operator.as_ref().is_some_and(is_of_operator);
    match (record.state.is_ended() || has_ended, waits) {
        (true, _) => Err(Problem::new(FINISHED)),
        // The owner cannot release what an operator holds.
        (false, true) if is_of_operator => Err(Problem::with(DENIED, &Refused::from(error))),
        (false, true) => Ok(()),
        (false, false) => Err(Problem::new(NOT_PENDING)),
    }
}

/// Whether the target stands for all tasks of a job that have not ended.
pub(super) fn all_tasks(target: &Target, record: &JobRecord) -> bool {
    let Some(tasks) = target.tasks.as_ref().filter(|_| record.array.is_some()) else { return true };
    let live = record.tasks.iter().filter(|task| !task.state.is_ended()).map(|task| task.index);
    let waiting = record.waiting.iter().flat_map(|waiting| waiting.indices.iter());
    live.chain(waiting).all(|index| tasks.contains(index))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_have_slurms_forms() {
        let tasks = |text: &str| {
            let Target { job, tasks, .. } = Target::parse(text).expect(text);
            (job.0, tasks.map(|set| set.iter().collect::<Vec<_>>()))
        };
        assert_eq!(tasks("12"), (12, None));
        assert_eq!(tasks("12_3"), (12, Some(vec![3])));
        assert_eq!(tasks("12_[1-3,7%2]"), (12, Some(vec![1, 2, 3, 7])));
        assert_eq!(tasks("4000000012"), (12, Some(vec![3])));
        ["", "x", "0", "12_", "12_x", "12.0", "-1"].iter().for_each(|text| assert_eq!(Target::parse(text), None));
        assert_eq!(split_ids("1,2_[3,4],5,"), ["1", "2_[3,4]", "5"]);
    }

    #[test]
    fn only_waiting_tasks_are_held() {
        let task = |index: u32| {
            serde_json::json!({ "index": index, "state": "running", "attempt": 1, "node": null, "exit_code": null,
                "message": null, "started_at": null, "ended_at": null, "result": null, "fetched": false, "usage": null })
        };
        let value = serde_json::json!({
            "id": 12, "name": "x", "user": "ada", "state": "running", "nodes": 1, "tasks_per_node": 1, "cpus": 1,
            "memory_bytes": 1, "attempt": 1, "priority": 0, "requeue": false, "submitted_at": 0,
            "array": "1-6", "waiting": "4-6", "tasks": [task(3)],
        });
        let record: JobRecord = serde_json::from_value(value).expect("a record");
        let held = |text: &str| {
            let (indices, problems) = to_hold(&Target::parse(text).expect(text), &record);
            (indices, problems.iter().map(|problem| problem.text).collect::<Vec<_>>())
        };
        assert_eq!(held("12"), (vec![None], vec![]));
        assert_eq!(held("12_[4-5]"), (vec![Some(4), Some(5)], vec![]));
        assert_eq!(held("12_[3-4]"), (vec![Some(4)], vec![NOT_PENDING]));
        assert_eq!(held("12_[2-9]"), (vec![Some(4), Some(5), Some(6)], vec![INVALID, NOT_PENDING, FINISHED]));
        assert_eq!(held("12_[1-6]"), (vec![None], vec![NOT_PENDING, FINISHED]));
    }

    #[test]
    fn each_problem_is_reported_once() {
        assert!(Problem::join([]).is_ok());
        let all = [NOT_PENDING, FINISHED, NOT_PENDING, FINISHED].map(Problem::new);
        let first = Problem::join(all).expect_err("a problem");
        assert_eq!((first.text, first.lines), (NOT_PENDING, vec![FINISHED.to_owned()]));
    }

    #[test]
    fn errors_name_the_job() {
        let error = |text: &str| Target::parse(text).expect(text).error(INVALID);
        assert_eq!(error("99"), "Invalid job id specified for job 99");
        assert_eq!(error("2_9"), "2_9: Invalid job id specified");
    }
}
