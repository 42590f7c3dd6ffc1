//! Commands of `scontrol` that act on jobs.

use hostler_client::{Client, ClientError, RecordFilter};
use hostler_model::{ArraySpec, IndexSet, JobId, JobState};
use hostler_proto::api::{JobAction, JobRecord};
use hostler_slurm::ids::split_raw_id;

use super::super::{Ended, Outcome, Refused, own_name};
use super::{DISABLED, NAME, Session};
use crate::commands::act::outlive_own_job;
use crate::context::block_on;

const INVALID: &str = "Invalid job id specified";
const PENDING: &str = "Job is pending execution";
const NOT_PENDING: &str = "Job is no longer pending execution";
const FINISHED: &str = "Job has already finished";

/// A job, or tasks of an array, as the user names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) text: String,
    pub(super) job: JobId,
    tasks: Option<IndexSet>,
}

/// Why an action failed: Slurm's text, and the head's words.
struct Problem {
    text: &'static str,
    lines: Vec<String>,
}

impl Problem {
    const fn new(text: &'static str) -> Self {
        Self { text, lines: Vec::new() }
    }

    fn with(text: &'static str, refused: &Refused) -> Self {
        Self { text, lines: refused.lines().collect() }
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
                let (job, index) = split_raw_id(number(text)?);
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
    let Some(target) = Target::parse(word) else {
        return Err((format!("{INVALID} for job {word}"), Problem::new(INVALID)));
    };
    let done = match record(client, target.job).await {
        Ok(Some(record)) => act(client, &target, &record).await,
        Ok(None) => Err(Problem::new(INVALID)),
        Err(error) => Err(error.into()),
    };
    done.map_err(|problem| (target.error(problem.text), problem))
}

impl Session<'_> {
    /// Does something with each job that the words name. `after` follows each error.
    fn each(
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
                self.complain(&error);
                if let Some(after) = after {
                    self.complain(&format!("{after} error: {}", problem.text));
                }
                problem.lines.iter().for_each(|line| self.complain(&format!("{NAME}: {line}")));
            }
            Ok(code)
        })?;
        Ok(code)
    }

    pub(super) fn requeue(&self, words: &[String]) -> Outcome {
        self.each(words, None, &async |client, target, record| {
            if !record.requeue {
                return Err(Problem::new(DISABLED));
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
            for index in indices {
                // Slurm also requeues a completed task that is named.
                let action = if index.is_some() { JobAction::RequeueAll } else { JobAction::Requeue };
                client.act(target.job, index, action).await.map_err(|error| {
                    let refused = Refused::from(error);
                    let waits = refused.code.as_deref() == Some("wrong_state") && record.state == JobState::Pending;
                    if waits { Problem::new(PENDING) } else { Problem::with(refused.text, &refused) }
                })?;
            }
            Ok(())
        })
    }

    pub(super) fn hold(&self, words: &[String]) -> Outcome {
        let words = self.named(words)?;
        self.each(&words, Some("slurm_suspend"), &async |client, target, record| {
            match (&target.tasks, &record.waiting) {
                (Some(tasks), Some(waiting)) if waiting.indices.is_subset(tasks) => {}
                (Some(_), _) => {
                    let hint = "hint: single tasks of an array cannot be held; hold the whole array".to_owned();
                    return Err(Problem { text: DISABLED, lines: vec![hint] });
                }
                (None, _) => {}
            }
            act_on_waiting(client, target.job, record, JobAction::Hold).await
        })
    }

    pub(super) fn release(&self, words: &[String]) -> Outcome {
        let words = self.named(words)?;
        self.each(&words, Some("slurm_suspend"), &async |client, target, record| {
            act_on_waiting(client, target.job, record, JobAction::Release).await
        })
    }

    /// Refuses what jobs cannot do.
    pub(super) fn refuse(&self, words: &[String], hint: &str) -> Outcome {
        self.each(words, None, &async |_, _, _| Err(Problem { text: DISABLED, lines: vec![format!("hint: {hint}")] }))
    }

    /// The script of a job leaves the head only to the job's nodes.
    pub(super) fn write_script(&self, words: &[String]) -> Outcome {
        let [what, rest @ ..] = words else { return Err(Ended::plain("too few arguments for keyword:write")) };
        if !"batch_script".starts_with(&what.to_ascii_lowercase()) {
            return Err(Ended::plain(format!("invalid write argument:{what}")));
        }
        let Some(id) = rest.first() else { return Err(Ended::plain("too few arguments for keyword:write")) };
        let target = Target::parse(id);
        let found = match &target {
            Some(target) => {
                let job = target.job;
                self.ask("job script retrieval", async |client| record(client, job).await)?
            }
            None => None,
        };
        match found {
            None => Err(Ended::plain(format!("job script retrieval failed: {INVALID}"))),
            Some(_) => Err(Ended::plain(format!("job script retrieval failed: {DISABLED}"))
                .and("hint: the head shows a job's script to nobody; `scontrol show job` shows the path of its file")),
        }
    }

    /// Replaces names of jobs, as in `jobname=first`, by the ids of the user's jobs with that name.
    fn named(&self, words: &[String]) -> Result<Vec<String>, Ended> {
        let mut all = Vec::new();
        for word in words {
            let name = word.split_once('=').filter(|(key, _)| ["jobname", "name"].contains(key)).map(|(_, name)| name);
            let Some(name) = name else {
                all.push(word.clone());
                continue;
            };
            let live = JobState::ALL.into_iter().filter(|state| !state.is_ended()).collect();
            let filter = RecordFilter { states: live, user: Some(own_name()?), live: true, ..RecordFilter::default() };
            let records = self.ask("slurm_load_jobs", async |client| client.records(&filter).await)?;
            let ids: Vec<String> =
                records.iter().filter(|record| record.name == name).map(|record| record.id.to_string()).collect();
            if ids.is_empty() {
                return Err(Ended::plain(format!("{INVALID} for job {name}")));
            }
            all.extend(ids);
        }
        Ok(all)
    }
}

/// Holds or releases a job. A job that is held, or not, is what the user wants.
async fn act_on_waiting(client: &Client, job: JobId, record: &JobRecord, action: JobAction) -> Result<(), Problem> {
    match client.act(job, None, action).await {
        Ok(_) => Ok(()),
        Err(error) if error.code() == Some("wrong_state") => {
            let waits = record.state == JobState::Pending || record.waiting.is_some();
            match (record.state.is_ended(), waits) {
                (true, _) => Err(Problem::new(FINISHED)),
                (false, true) => Ok(()),
                (false, false) => Err(Problem::new(NOT_PENDING)),
            }
        }
        Err(error) => Err(error.into()),
    }
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
    fn errors_name_the_job() {
        let error = |text: &str| Target::parse(text).expect(text).error(INVALID);
        assert_eq!(error("99"), "Invalid job id specified for job 99");
        assert_eq!(error("2_9"), "2_9: Invalid job id specified");
    }
}
