//! Actions on several jobs of a list at once: those that are checked, or all that match the list's filter.

use std::collections::BTreeMap;

use axum::response::{Html, IntoResponse, Response};
use futures_util::{StreamExt, stream};
use hostler_model::{JobId, plural};
use hostler_proto::api::{JobAction, JobDetail, JobSummary};

use super::jobs::may_change;
use crate::api::{Api, Refused};
use crate::form::Fields;
use crate::job_filter::Filter;
use crate::notice::Notice;
use crate::page::{Confirm, Frame, render};
use crate::url::Url;
use crate::words;

/// Maximum number of checked jobs in one action.
const MAX_CHECKED: usize = 500;

/// Maximum number of jobs in an action on all that match.
const MAX_MATCHING: usize = 10_000;

/// Up to this many jobs, each one is named in questions and outcomes.
const NAMED: usize = 30;

/// Requests at the same time. The head writes those together to its log.
const AT_ONCE: usize = 16;

/// `POST /jobs/act`: an action on all checked jobs, or with `all` on the jobs that match the filter in `back`.
pub(crate) async fn act(frame: Frame, fields: Fields) -> Result<Response, Refused> {
    let action = action_of(fields.get("action"))?;
    let back = fields.get("back").and_then(Url::local).unwrap_or_else(|| Url::of(["jobs"]));
    let all = fields.get("all").is_some();
    let (jobs, up_to) = match all {
        true => matching(&frame, &back, fields.read("up_to")?).await?,
        false => (checked(&fields)?, None),
    };
    let index: Option<u32> = fields.read("index")?;
    let keeps_files = action == JobAction::Requeue && fields.get("keep_files").is_some();
    if jobs.is_empty() {
        let why = if all { "no job matches" } else { "no job is checked" };
        return Ok(frame.redirect(&back, Notice::bad(vec![format!("Nothing was done: {why}.")])));
    }
    let destroys = !matches!(action, JobAction::Hold | JobAction::Release);
    if (destroys || all) && fields.get("confirmed") != Some("yes") {
        return Ok(ask(frame, action, &jobs, up_to, &fields, back).await.into_response());
    }
    let outcomes: Vec<(JobId, Result<JobSummary, Refused>)> = stream::iter(jobs)
        .map(|id| act_on(&frame.api, id, (index, keeps_files), action))
        .buffered(AT_ONCE)
        .collect()
        .await;
    Ok(frame.redirect(&back, outcome(action, &outcomes)))
}

/// Reads the name of an action.
fn action_of(name: Option<&str>) -> Result<JobAction, Refused> {
    let all = [JobAction::Cancel, JobAction::Hold, JobAction::Release, JobAction::Requeue];
    let found = all.into_iter().find(|action| name == Some(action.as_str()));
    found.ok_or_else(|| Refused::bad_request("the form names no action; choose cancel, hold, release or requeue"))
}

/// The checked jobs.
fn checked(fields: &Fields) -> Result<Vec<JobId>, Refused> {
    let jobs: Vec<JobId> = fields.all("job").filter_map(|id| id.parse().ok()).take(MAX_CHECKED + 1).collect();
    if jobs.len() > MAX_CHECKED {
        return Err(Refused::bad_request(format!("at most {MAX_CHECKED} jobs can be checked at once")));
    }
    Ok(jobs)
}

/// The jobs that match the filter in the address `list` and that the caller may change, and the newest of them. Jobs that were
/// submitted after the question, those above `up_to`, are left alone.
async fn matching(frame: &Frame, list: &Url, up_to: Option<JobId>) -> Result<(Vec<JobId>, Option<JobId>), Refused> {
    let query = list.split_once('?').map_or("", |(_, query)| query);
    let filter = Filter::read(&Fields::parse(query.as_bytes()), &frame.me.user)?;
    let (jobs, has_more) = filter.all(&frame.api, MAX_MATCHING).await?;
    if has_more {
        let why = format!("more than {MAX_MATCHING} jobs match; choose a state, a user or a text so that fewer do");
        return Err(Refused::bad_request(why));
    }
    let is_meant = |job: &&JobSummary| may_change(frame, job) && up_to.is_none_or(|last| job.id <= last);
    let jobs: Vec<JobId> = jobs.iter().filter(is_meant).map(|job| job.id).collect();
    let newest = jobs.iter().copied().max();
    Ok((jobs, newest))
}

async fn act_on(
    api: &Api,
    id: JobId,
    (index, keeps_files): (Option<u32>, bool),
    action: JobAction,
) -> (JobId, Result<JobSummary, Refused>) {
    let url = Url::job(id).then(action.as_str());
    let url = match index {
        Some(index) => url.with("index", index),
        None => url,
    };
    let url = if keeps_files { url.with("keep_files", true) } else { url };
    (id, api.post(&url, &()).await)
}

/// What became of each job; of many jobs, how many had which outcome.
fn outcome(action: JobAction, outcomes: &[(JobId, Result<JobSummary, Refused>)]) -> Notice {
    let done = done(action);
    let is_good = outcomes.iter().all(|(_, result)| result.is_ok());
    let lines = if outcomes.len() <= NAMED {
        let of_one = |(id, result): &(JobId, Result<JobSummary, Refused>)| match result {
            Ok(job) => format!("Job {id} ({}): {done}.", job.name),
            Err(refused) => format!("Job {id}: not {done}. {}.", sentence(refused)),
        };
        outcomes.iter().map(of_one).collect()
    } else {
        let good = outcomes.iter().filter(|(_, result)| result.is_ok()).count();
        let mut refusals: BTreeMap<&str, Vec<(JobId, &Refused)>> = BTreeMap::new();
        for (id, result) in outcomes {
            if let Err(refused) = result {
                refusals.entry(&refused.error.code).or_default().push((*id, refused));
            }
        }
        let of_reason = |all: Vec<(JobId, &Refused)>| {
            let (id, first) = all[0];
            let were = if all.len() == 1 { "was" } else { "were" };
            format!("{} {were} not {done}. Job {id}: {}.", plural(all.len(), "job"), sentence(first))
        };
        std::iter::once(format!("{}: {done}.", plural(good, "job")))
            .chain(refusals.into_values().map(of_reason))
            .collect()
    };
    Notice { is_good, ..Notice::bad(lines) }
}

/// The reason of a refusal with its hints.
fn sentence(refused: &Refused) -> String {
    let mut text = refused.error.message.clone();
    for hint in &refused.error.hints {
        text.push_str("; ");
        text.push_str(hint);
    }
    text
}

const fn done(action: JobAction) -> &'static str {
    match action {
        JobAction::Cancel => "cancelled",
        JobAction::Hold | JobAction::HoldForOwner => "held",
        JobAction::Release => "released",
        JobAction::Requeue | JobAction::RequeueAll | JobAction::RequeueHeld { .. } | JobAction::RequeueDependent => {
            "requeued"
        }
    }
}

/// Asks before jobs are ended, or before all are changed that match.
async fn ask(
    frame: Frame,
    action: JobAction,
    jobs: &[JobId],
    up_to: Option<JobId>,
    fields: &Fields,
    back: Url,
) -> Html<String> {
    let mut items = Vec::new();
    for id in jobs.iter().take(NAMED) {
        let job: Result<JobDetail, Refused> = frame.api.get(&Url::job(*id).with("tasks", 0)).await;
        items.push(match job {
            Ok(job) => {
                let job = job.summary;
                format!("Job {id} ({}, of {}): {}", job.name, job.user, words::state_of(&job).to_lowercase())
            }
            Err(refused) => format!("Job {id}: {}", refused.error.message),
        });
    }
    if jobs.len() > NAMED {
        items.push(format!("and {} more", plural(jobs.len() - NAMED, "job")));
    }
    let which = plural(jobs.len(), "job");
    let (title, button) = match action {
        JobAction::Requeue => (
            format!(
                "Run {which} again from the start? Running tasks are ended first. Completed tasks keep their results."
            ),
            format!("Requeue {which}"),
        ),
        JobAction::Hold => (format!("Hold {which}?"), format!("Hold {which}")),
        JobAction::Release => (format!("Release {which}?"), format!("Release {which}")),
        _ => (format!("Cancel {which}?"), format!("Cancel {which}")),
    };
    let repeated = fields.iter().filter(|(name, _)| !matches!(*name, "token" | "confirmed" | "up_to"));
    let mut fields: Vec<(String, String)> = repeated.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    fields.extend(up_to.map(|id| ("up_to".to_owned(), id.to_string())));
    render(&Confirm { frame, title, items, url: Url::of(["jobs", "act"]), fields, button, back })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_four_actions_exist() {
        assert_eq!(action_of(Some("hold")).expect("exists"), JobAction::Hold);
        assert!(action_of(Some("../cancel")).is_err());
        assert!(action_of(None).is_err());
    }

    #[test]
    fn outcomes_of_many_jobs_are_counted() {
        let refused = || Refused::bad_request("the job has ended");
        let outcomes: Vec<_> = (1..=40).map(|id| (JobId(id), Err(refused()))).collect();
        let Notice { is_good, lines } = outcome(JobAction::Cancel, &outcomes);
        assert!(!is_good);
        assert_eq!(lines, ["0 jobs: cancelled.", "40 jobs were not cancelled. Job 1: the job has ended."]);
        let Notice { lines, .. } = outcome(JobAction::Cancel, &outcomes[..1]);
        assert_eq!(lines, ["Job 1: not cancelled. the job has ended."]);
    }
}
