//! Submissions of jobs, and copies of jobs.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};
use hostler_core::head::{Command, Job, SubmissionKey};
use hostler_model::{JobId, MAX_ENVIRONMENT_BYTES, MAX_SCRIPT_BYTES, Submission, Work, format_bytes, plural};
use hostler_proto::api::{
    AwaitedJob, DuplicateRequest, SubmissionAnswer, SubmitRequest, SubmitSeveral, Submitted, SubmittedSeveral,
};
use hostler_sys::{MARKED, is_marked};
use tokio::time::Instant;

use super::error::ApiError;
use super::extract::{Json as Body, Path};
use super::output::short_output;
use super::results::readable;
use super::settled::{DETAIL_BYTES, TASK_BYTES, settled_history};
use super::until::{LONGEST_WAIT, until};
use super::who::User;
use crate::answers::Answer;
use crate::audit::About;
use crate::blobs::{LibraryError, name_of};
use crate::engine::Queued;
use crate::head::Head;
use crate::views::{self, Shown};

/// The most bytes of a job besides its script and its variables.
const MAX_REST_BYTES: usize = 1 << 20;

/// Maximum length of a submission key, in characters.
const MAX_KEY_LEN: usize = 256;

/// Maximum number of submissions in one request.
const MAX_SUBMISSIONS: usize = 1000;

/// `POST /jobs`.
pub(crate) async fn submit(
    user: User,
    Extension(answer): Extension<Arc<Answer>>,
    State(head): State<Arc<Head>>,
    Body(request): Body<SubmitRequest>,
) -> Result<(Extension<About>, Json<Submitted>), ApiError> {
    let SubmitRequest { key, spec, wait_ms } = request;
    let mut submitted = stored(queue(&user, &head, &key, spec).await?).await?;
    if let Some(wait_ms) = wait_ms {
        let deadline = Instant::now() + Duration::from_millis(wait_ms).min(LONGEST_WAIT);
        // If the description fails, the answer must still say that the job was accepted.
        submitted.awaited = awaited(&user, &head, &answer, submitted.id, deadline).await.ok().map(Box::new);
    }
    Ok((Extension(About(format!("job {}", submitted.id))), Json(submitted)))
}

/// `POST /submissions`. The engine has all submissions before the first is stored, so they share writes to disk.
pub(crate) async fn submit_several(
    user: User,
    State(head): State<Arc<Head>>,
    Body(SubmitSeveral { submissions }): Body<SubmitSeveral>,
) -> Result<(Extension<About>, Json<SubmittedSeveral>), ApiError> {
    if submissions.len() > MAX_SUBMISSIONS {
        return Err(ApiError::bad_request(format!("at most {MAX_SUBMISSIONS} submissions in one request")));
    }
    let mut queued = Vec::with_capacity(submissions.len());
    for submission in submissions {
        queued.push(queue(&user, &head, &submission.key, submission.spec).await);
    }
    let mut answers = Vec::with_capacity(queued.len());
    for one in queued {
        let answer = async { stored(one?).await }.await;
        answers.push(match answer {
            Ok(submitted) => SubmissionAnswer::Submitted(submitted),
            // Some jobs of the request may be stored. The client sends it again, and the same keys give the same jobs.
            Err(error) if error.is_stopping() => return Err(error),
            Err(error) => SubmissionAnswer::Refused(error.into_body()),
        });
    }
    let mut ids = answers.iter().filter_map(|answer| match answer {
        SubmissionAnswer::Submitted(submitted) => Some(submitted.id),
        SubmissionAnswer::Refused(_) => None,
    });
    let mut about = match (ids.next(), ids.next_back()) {
        (None, _) => "no job".to_owned(),
        (Some(only), None) => format!("job {only}"),
        (Some(first), Some(last)) => format!("{}, {first} to {last}", plural(ids.count() + 2, "job")),
    };
    let refused = answers.iter().filter(|answer| matches!(answer, SubmissionAnswer::Refused(_))).count();
    if refused > 0 {
        about.push_str(&format!("; {} refused", plural(refused, "submission")));
    }
    Ok((Extension(About(about)), Json(SubmittedSeveral { answers })))
}

/// Describes a job at its end or at the deadline.
async fn awaited(
    user: &User,
    head: &Arc<Head>,
    answer: &Arc<Answer>,
    id: JobId,
    deadline: Instant,
) -> Result<AwaitedJob, ApiError> {
    until(head, id, deadline, |job| job.is_none_or(Job::is_ended)).await;
    answer.reserve(&head.client_limits, DETAIL_BYTES + TASK_BYTES).await;
    let (job, history) = settled_history(head, user, id, 0..=u32::MAX, &[], 1).await?;
    let output = short_output(head, answer, &job, &history).await?;
    let detail = views::detail(&head.engine.state(), &job, user.sees(&job), Shown::All, &history, head.engine.now());
    Ok(AwaitedJob { job: detail, output })
}

/// Checks and completes a submission, and gives it to the engine.
async fn queue(user: &User, head: &Arc<Head>, key: &str, spec: Submission) -> Result<Queued, ApiError> {
    if key.is_empty() || key.chars().count() > MAX_KEY_LEN {
        return Err(ApiError::bad_request("a submission key has 1 to 256 characters"));
    }
    let key = submission_key(&user.0.user, key);
    // Retries of an accepted submission always succeed.
    let is_new = head.engine.state().job_of_key(key).is_none();
    if is_new
        && let Err(refusal) = may_submit(head)
        && head.engine.ended_job_of_key(key).await?.is_none()
    {
        return Err(refusal);
    }
    if is_new {
        head.notifier.admit(spec.subscriptions()).map_err(bad_notification)?;
    }
    let mut spec = head.engine.state().complete(spec, head.engine.now().wall);
    let snapshot_is_complete = match &spec.work {
        Work::Project { snapshot, .. } if is_new => is_complete(head, *snapshot).await?,
        Work::Project { .. } | Work::Command { .. } => true,
    };
    shrink(&mut spec.work);
    check_parts(&mut spec).map_err(ApiError::bad_request)?;
    let packed = head.environments.pack(&mut spec);
    let environment = packed.as_ref().map(|(digest, _)| *digest);
    let command =
        Command::Submit { caller: user.0.clone(), key, spec: Arc::new(spec), environment, snapshot_is_complete };
    Ok(head.engine.submit(command, packed).await?)
}

/// Waits until a submission is stored on disk.
async fn stored(queued: Queued) -> Result<Submitted, ApiError> {
    let (id, duplicate) = queued
        .done()
        .await?
        .submitted
        .ok_or_else(|| ApiError::internal("the engine returned no job id for a submission"))?;
    Ok(Submitted { id, duplicate, awaited: None })
}

/// `GET /keys/{key}`.
pub(crate) async fn of_key(
    user: User,
    State(head): State<Arc<Head>>,
    Path(key): Path<String>,
) -> Result<Json<Submitted>, ApiError> {
    let hashed = submission_key(&user.0.user, &key);
    let live = head.engine.state().job_of_key(hashed);
    let found = match live {
        Some(id) => Some(id),
        None => head.engine.ended_job_of_key(hashed).await?,
    };
    let id = found.ok_or_else(|| {
        let why = format!("{} has no job with the key {key:?}", user.0.user);
        ApiError::new(StatusCode::NOT_FOUND, "no_such_key", why)
    })?;
    Ok(Json(Submitted { id, duplicate: true, awaited: None }))
}

/// `POST /jobs/{id}/duplicate`.
pub(crate) async fn duplicate(
    user: User,
    State(head): State<Arc<Head>>,
    Path(id): Path<JobId>,
    Body(change): Body<DuplicateRequest>,
) -> Result<(Extension<About>, Json<Submitted>), ApiError> {
    let job = readable(&head, &user, id).await?;
    if job.lost_environment && !change.without_environment {
        let why = format!("job {id} has completed, so the head has deleted its environment variables");
        return Err(no_environment(why, "submit the job again with `hostler run`"));
    }
    let mut spec = hostler_model::JobSpec::clone(&job.spec);
    if let Some(digest) = job.environment {
        head.environments.restore(digest, &mut spec).await.map_err(ApiError::internal)?;
    }
    // An operator sees a job's command line and output, but the copy belongs to the operator and could print secrets.
    if !user.0.owns(&job) && !std::mem::take(&mut spec.environment).is_empty() && !change.without_environment {
        let why = format!("only {} may use the environment variables of job {id}", job.user);
        return Err(no_environment(why, &format!("let {} submit the copy", job.user)));
    }
    let key = change.key.clone();
    changed(&mut spec, change)?;
    let submitted = stored(queue(&user, &head, &key, spec.into()).await?).await?;
    Ok((Extension(About(format!("job {}", submitted.id))), Json(submitted)))
}

/// The error for a copy that would lack the job's environment variables.
fn no_environment(why: String, instead: &str) -> ApiError {
    ApiError::new(StatusCode::CONFLICT, "no_environment", why)
        .hint(format!("{instead}, or set `without_environment` to do without the variables"))
}

/// Applies the changes of a [`DuplicateRequest`].
fn changed(spec: &mut hostler_model::JobSpec, change: DuplicateRequest) -> Result<(), ApiError> {
    let DuplicateRequest { name, argv, cpus, memory_bytes, gpus, time_limit_ms, partition, priority, .. } = change;
    spec.after = Box::default();
    spec.singleton = false;
    spec.hold = false;
    if let Some(name) = name {
        spec.name = name.into();
    }
    if let Some(argv) = argv {
        if argv.is_empty() {
            return Err(ApiError::bad_request("the command line is empty"));
        }
        match &mut spec.work {
            Work::Command { argv: words, .. } => *words = argv,
            Work::Project { entrypoint, args, .. } => {
                let mut words = argv.into_iter();
                *entrypoint = words.next().expect("the command line is not empty");
                *args = words.collect();
            }
        }
    }
    spec.request.cpus = cpus.unwrap_or(spec.request.cpus);
    spec.request.memory_bytes = memory_bytes.unwrap_or(spec.request.memory_bytes);
    spec.request.gpus = gpus.unwrap_or(spec.request.gpus);
    spec.time_limit_ms = time_limit_ms.or(spec.time_limit_ms).filter(|ms| *ms > 0);
    spec.partition = partition.or(spec.partition.take());
    spec.priority = priority.unwrap_or(spec.priority);
    Ok(())
}

/// Checks that the script, the variables and the rest of a job are not too large, and that nodes can run the script.
/// The error is a message for the user.
pub(super) fn check_parts(spec: &mut hostler_model::JobSpec) -> Result<(), String> {
    let check = |size: usize, limit: usize, what: &str| match size <= limit {
        true => Ok(()),
        false => {
            let [size, most] = [size, limit].map(|bytes| format_bytes(bytes as u64));
            Err(format!("{what} at most {most}; this job has {size}"))
        }
    };
    let variables = spec.environment.iter().map(|(name, value)| name.len() + value.len() + "=\0".len()).sum();
    let script = spec.work.script_mut().map_or(0, |script| script.len());
    let rest = hostler_proto::encode(spec).len().saturating_sub(variables + script);
    check(script, MAX_SCRIPT_BYTES, "a script has")?;
    check(variables, MAX_ENVIRONMENT_BYTES, "the environment variables of a job have")?;
    check(rest, MAX_REST_BYTES, "the command line and the options of a job have")?;
    spec.work.script_mut().map_or(Ok(()), |script| check_script(script))
}

/// Checks that a node can run the script. The error is a message for the user.
fn check_script(script: &str) -> Result<(), String> {
    if script.contains('\0') {
        return Err("the script contains a NUL byte".to_owned());
    }
    if script.contains("\r\n") {
        return Err("the script has DOS line ends; `dos2unix` converts them".to_owned());
    }
    if is_marked(script.as_bytes()) {
        return Err(format!("the script cannot run: {MARKED}"));
    }
    if !script.strip_prefix("#!").is_some_and(|rest| rest.trim_start_matches([' ', '\t']).starts_with('/')) {
        return Err("the script must begin with #! and the path of an interpreter, such as #!/bin/sh".to_owned());
    }
    Ok(())
}

/// Frees unused capacity of the argument list. With a hundred thousand waiting jobs, this saves megabytes.
fn shrink(work: &mut Work) {
    match work {
        Work::Project { args: words, .. } | Work::Command { argv: words, .. } => words.shrink_to_fit(),
    }
}

/// Returns the hash of the user's name and the user's key, because two users may choose the same key.
fn submission_key(user: &str, key: &str) -> SubmissionKey {
    let digest = name_of(&[user.as_bytes(), b"\0", key.as_bytes()].concat());
    let half = digest.0.first_chunk::<16>().expect("a digest has 32 bytes");
    SubmissionKey(u128::from_be_bytes(*half))
}

pub(super) fn bad_notification(why: String) -> ApiError {
    ApiError::new(StatusCode::CONFLICT, "bad_notification", why)
        .hint("`hostler configure notify list` shows the destinations")
}

pub(super) fn may_submit(head: &Head) -> Result<(), ApiError> {
    match head.library.too_full() {
        Some(why) => Err(ApiError::disk_full(why)),
        None => head.refusing().map_or(Ok(()), |why| Err(ApiError::refusing(why))),
    }
}

async fn is_complete(head: &Head, snapshot: hostler_model::Digest) -> Result<bool, ApiError> {
    let library = Arc::clone(&head.library);
    let outcome = tokio::task::spawn_blocking(move || library.is_complete(&snapshot)).await;
    outcome.map_err(ApiError::internal)?.map_err(|error: LibraryError| error.into())
}
