//! Submission and lists of jobs, and their survival of crashes.

use std::collections::BTreeSet;
use std::time::Duration;

use hostler_client::{Client, ClientError, JobFilter, LiveJobs};
use hostler_model::{JobId, JobState, Work};
use hostler_proto::api::{JobAction, JobOrder, JobPage, JobSummary, KeyedSubmission, Notice, SubmitRequest, Submitted};

use crate::agent::Identity;
use crate::answers::{BOB, EVE, ask_and_read, submit_as};
use crate::harness::{TestHead, request, soon, spec};

/// The error code of a rejected request.
#[track_caller]
pub(crate) fn code<T: std::fmt::Debug>(outcome: Result<T, ClientError>) -> String {
    match outcome {
        Err(ClientError::Refused { body, .. }) => {
            assert!(!body.message.is_empty());
            body.code
        }
        other => panic!("expected a refusal, found {other:?}"),
    }
}

#[tokio::test]
async fn same_key_is_the_same_job_even_after_a_crash() {
    let mut head = TestHead::start().await;
    let first = head.client().submit(&request("a")).await.expect("accepted");
    assert_eq!((first.id, first.duplicate), (JobId(1), false));
    let again = head.client().submit(&request("a")).await.expect("accepted");
    assert_eq!((again.id, again.duplicate), (JobId(1), true));
    head.kill();
    head.start_again().await;
    let again = head.client().submit(&request("a")).await.expect("accepted");
    assert_eq!((again.id, again.duplicate), (JobId(1), true));
    let other = head.client().submit(&request("b")).await.expect("accepted");
    assert_eq!((other.id, other.duplicate), (JobId(2), false));
    assert_eq!(head.client().info().await.expect("a response").head.epoch, 2);
}

#[tokio::test]
async fn several_submissions_are_answered_one_by_one_in_order_and_survive_a_kill() {
    let mut head = TestHead::start().await;
    let one = |key: &str| KeyedSubmission { key: key.to_owned(), spec: request("").spec };
    let mut elsewhere = one("elsewhere");
    elsewhere.spec.partition = Some("none".parse().expect("a name"));
    let mut batch = vec![one("a"), one(""), one("b"), elsewhere, one("a")];
    batch.extend((0..500).map(|number| one(&format!("key {number}"))));
    let ids = |answers: Vec<Result<Submitted, ClientError>>| {
        answers
            .into_iter()
            .map(|answer| answer.map(|job| job.id.0).map_err(|error| code(Err::<(), _>(error))))
            .collect::<Vec<_>>()
    };
    let several = async |head: &TestHead, batch: Vec<KeyedSubmission>| head.client().submit_several(batch).await;
    let first = ids(several(&head, batch.clone()).await.expect("answered"));
    let refused = |code: &str| Err(code.to_owned());
    assert_eq!(first[..5], [Ok(1), refused("bad_request"), Ok(2), refused("no_such_partition"), Ok(1)]);
    assert_eq!(first[5..], (3..503).map(Ok).collect::<Vec<_>>());
    head.kill();
    head.start_again().await;
    assert_eq!(ids(several(&head, batch).await.expect("answered")), first, "the same keys are the same jobs");
    assert_eq!(code(several(&head, vec![one("c"); 1001]).await), "bad_request");
}

#[tokio::test]
async fn hundred_concurrent_submissions_all_survive_a_kill() {
    let mut head = TestHead::start().await;
    let submissions = (0..100).map(|i| {
        let client = head.client();
        tokio::spawn(async move { client.submit(&request(&format!("key {i}"))).await.expect("accepted").id })
    });
    let mut ids = BTreeSet::new();
    for submission in submissions.collect::<Vec<_>>() {
        ids.insert(submission.await.expect("the task does not panic"));
    }
    assert_eq!(ids.len(), 100);
    head.kill();
    head.start_again().await;
    let page = head.client().jobs(&JobFilter { limit: Some(1000), ..JobFilter::default() }).await.expect("a response");
    assert_eq!(page.jobs.iter().map(|job| job.id).collect::<BTreeSet<_>>(), ids);
    assert_eq!(page.total, 100);
}

#[tokio::test]
async fn lists_are_paged_newest_first_and_filtered() {
    let head = TestHead::start().await;
    let client = head.client();
    for i in 0..25 {
        let hold = i % 5 == 0;
        let submission = SubmitRequest::new(format!("{i}"), hostler_model::JobSpec { hold, ..spec("x") });
        client.submit(&submission).await.expect("accepted");
    }
    let mut seen = Vec::new();
    let mut before = None;
    loop {
        let filter = JobFilter { limit: Some(10), before, ..JobFilter::default() };
        let page = client.jobs(&filter).await.expect("a response");
        assert_eq!(page.total, 25);
        seen.extend(page.jobs.iter().map(|job| job.id.0));
        before = page.next;
        if before.is_none() {
            break;
        }
    }
    assert_eq!(seen, (1..=25).rev().collect::<Vec<_>>());
    let queue = JobFilter { order: JobOrder::Queue, ..JobFilter::default() };
    let queue: Vec<u64> = client.jobs(&queue).await.expect("a response").jobs.iter().map(|job| job.id.0).collect();
    assert_eq!(queue[20..], [1, 6, 11, 16, 21], "held jobs are last: {queue:?}");
    let ended = JobFilter { states: vec![JobState::Completed], ..JobFilter::default() };
    assert_eq!(client.jobs(&ended).await.expect("a response").total, 0);
    let others = JobFilter { user: Some("nobody else".to_owned()), ..JobFilter::default() };
    assert_eq!(client.jobs(&others).await.expect("a response").total, 0);
    let held = client.job(JobId(1), 0).await.expect("the job exists");
    assert_eq!(held.summary.reason.as_deref(), Some("held until released"));
}

#[tokio::test]
async fn sorted_pages_show_each_job_once_while_jobs_arrive_and_end() {
    let head = TestHead::start().await;
    let client = head.client();
    let submit = async |i: u64| {
        let mut job = spec(["b", "a", "c"][i as usize % 3]);
        job.priority = i as i32 % 4;
        job.time_limit_ms = (!i.is_multiple_of(3)).then_some(60_000 * (i % 3));
        job.request.cpus = 1 + i as u32 % 5;
        client.submit(&SubmitRequest::new(format!("{i}"), job)).await.expect("accepted").id
    };
    let limit_key = |job: &JobSummary| job.time_limit_ms.unwrap_or(u64::MAX);
    let mut next_key = 0;
    let live = vec![JobState::Pending];
    for order in JobOrder::ALL {
        let mut early = BTreeSet::new();
        for _ in 0..25 {
            early.insert(submit(next_key).await);
            next_key += 1;
        }
        let mut filter = JobFilter { states: live.clone(), order, limit: Some(4), ..JobFilter::default() };
        let mut seen: Vec<JobSummary> = Vec::new();
        loop {
            let page = client.jobs(&filter).await.expect("a response");
            seen.extend(page.jobs);
            submit(next_key).await;
            next_key += 1;
            filter.before = page.next;
            let Some(last) = page.next else { break };
            // The next page follows this job, although it has ended.
            client.act(last, None, JobAction::Cancel).await.expect("the job waits");
        }
        let ids: Vec<JobId> = seen.iter().map(|job| job.id).collect();
        let once: BTreeSet<JobId> = ids.iter().copied().collect();
        assert_eq!(once.len(), ids.len(), "{order:?} shows a job twice: {ids:?}");
        assert!(once.is_superset(&early), "{order:?} misses a job: {ids:?}");
        let is_sorted = seen.is_sorted_by(|one, next| match order {
            JobOrder::Newest => one.id > next.id,
            JobOrder::Oldest => one.id < next.id,
            JobOrder::Name => (&one.name, one.id) < (&next.name, next.id),
            JobOrder::User => (&one.user, one.id) < (&next.user, next.id),
            JobOrder::Size => (std::cmp::Reverse(one.cpus), one.id) < (std::cmp::Reverse(next.cpus), next.id),
            // Each fourth job has the same priority; ids count from 1 in the order of submission.
            JobOrder::Queue | JobOrder::Priority => {
                (3 - (one.id.0 - 1) % 4, one.id) < (3 - (next.id.0 - 1) % 4, next.id)
            }
            // None has started.
            JobOrder::Started => one.id < next.id,
            JobOrder::Limit => (limit_key(one), one.id) < (limit_key(next), next.id),
            JobOrder::Partition => (&one.partition, one.id) < (&next.partition, next.id),
        });
        assert!(is_sorted, "{order:?}: {ids:?}");
    }
    // Without states, the list has only jobs that have not ended.
    let by_name = JobFilter { order: JobOrder::Name, ..JobFilter::default() };
    let live = client.jobs(&by_name).await.expect("listed").jobs;
    assert!(!live.is_empty() && live.iter().all(|job| !job.state.is_ended()), "{live:?}");
    let ended = JobFilter { states: vec![JobState::Completed], ..by_name };
    assert_eq!(code(client.jobs(&ended).await), "bad_order");
}

#[tokio::test]
async fn text_search_examines_names_ids_and_the_start_of_visible_command_lines() {
    let head = TestHead::start().await;
    let node = Identity::join(&head, "n1").await.endpoint(&head);
    for (key, before) in [("waits", 10_000), ("long", 20_000), ("ended", 10_000)] {
        let mut job = request(key);
        job.spec.work = Work::command(["echo", &"x".repeat(before), "A-Needle"], "/");
        submit_as(&node, EVE, &job).await;
    }
    head.client().act(JobId(3), None, JobAction::Cancel).await.expect("cancelled");
    let found = async |user: &str, query: &str| -> Vec<u64> {
        let answer = ask_and_read(&node, user, &format!("/jobs?{query}")).await;
        let (_, body) = answer.split_once("\r\n\r\n").expect("an answer");
        let page: JobPage = serde_json::from_str(body).expect("a page");
        let ids: Vec<u64> = page.jobs.iter().map(|job| job.id.0).collect();
        assert_eq!(page.total, ids.len() as u64, "{query}");
        ids
    };
    assert_eq!(found(EVE, "text=needle").await, [3, 1]);
    assert_eq!(found(EVE, "text=NEEDLE&order=oldest").await, [1]);
    assert_eq!(found(EVE, "text=needle&state=cancelled").await, [3]);
    assert!(found(BOB, "text=needle").await.is_empty(), "the command lines are not visible");
    assert_eq!(found(BOB, "text=2").await, [2]);
    assert_eq!(found(BOB, "text=TES").await, [3, 2, 1]);
    assert_eq!(found(BOB, "text=tes&order=oldest").await, [1, 2]);
}

#[tokio::test]
async fn without_nodes_any_size_is_accepted_and_waiting_has_a_reason() {
    let head = TestHead::start().await;
    let mut large = request("large");
    large.spec.request.cpus = Some(60_000);
    let id = head.client().submit(&large).await.expect("accepted without nodes").id;
    let why = head.client().why(id).await.expect("the job exists");
    assert_eq!(why.state, JobState::Pending);
    assert!(why.reason.is_some() && !why.lines.is_empty(), "{why:?}");
}

#[tokio::test]
async fn invalid_requests_get_clear_errors() {
    let head = TestHead::start().await;
    let client = head.client();
    let mut bad = request("a");
    bad.spec.request.cpus = Some(0);
    assert_eq!(code(client.submit(&bad).await), "bad_spec");
    let mut after_nothing = request("b");
    after_nothing.spec.after = ["afterok:99".parse().expect("a dependency")].into();
    assert_eq!(code(client.submit(&after_nothing).await), "no_such_dependency");
    assert_eq!(code(client.submit(&request("")).await), "bad_request");
    assert_eq!(code(client.job(JobId(7), 0).await), "no_such_job");
    assert_eq!(code(client.why(JobId(7)).await), "no_such_job");
    assert_eq!(code(client.act(JobId(7), None, JobAction::Cancel).await), "no_such_job");
    let project = hostler_model::Work::Project {
        snapshot: hostler_model::Digest([7; 32]),
        entrypoint: "main.py".to_owned(),
        args: Vec::new(),
    };
    let missing = SubmitRequest::new("c".to_owned(), hostler_model::JobSpec { work: project, ..spec("x") });
    assert_eq!(code(client.submit(&missing).await), "snapshot_missing");
    assert_eq!(code(client.commit_snapshot(&hostler_model::Digest([7; 32])).await), "chunks_missing");
}

#[tokio::test]
async fn hold_release_and_cancel_work_and_notify_waiting_clients() {
    let head = TestHead::start().await;
    let client = head.client();
    let mut events = client.events().await.expect("a response");
    let id = client.submit(&request("a")).await.expect("accepted").id;
    let notice = soon("a notice", events.next()).await.expect("the stream is open");
    assert_eq!(notice, Some(Notice::Job { id, state: JobState::Pending }));
    client.act(id, None, JobAction::Hold).await.expect("the job waits");
    assert_eq!(client.why(id).await.expect("the job exists").reason, Some(hostler_model::Reason::Held));
    client.act(id, None, JobAction::Release).await.expect("the job is held");
    assert_eq!(code(client.act(id, None, JobAction::Release).await), "wrong_state");
    let waiting = head.client();
    let waiter = tokio::spawn(async move { waiting.job_when_ended(id, 0, Duration::from_secs(20)).await });
    // A pending wait occupies the first client's connection, so use another one.
    let cancelled = client.act(id, None, JobAction::Cancel).await.expect("the job waits");
    assert_eq!(cancelled.state, JobState::Cancelled);
    let ended = soon("the waiter", waiter).await.expect("the task does not panic").expect("a response");
    assert_eq!(ended.summary.state, JobState::Cancelled);
    let short = client.submit(&request("b")).await.expect("accepted").id;
    let unended = client.job_when_ended(short, 0, Duration::from_millis(50)).await.expect("a response");
    assert_eq!(unended.summary.state, JobState::Pending);
}

#[tokio::test]
async fn shutdown_respects_live_jobs() {
    let mut head = TestHead::start().await;
    let client: Client = head.client();
    client.submit(&request("a")).await.expect("accepted");
    assert_eq!(code(client.shutdown(LiveJobs::Refuse).await), "jobs_live");
    client.submit(&request("b")).await.expect("the head still accepts jobs");
    client.shutdown(LiveJobs::Keep).await.expect("kept");
    assert!(head.wait_until_ended().await);
    assert!(!head.socket().exists() && !head.path("head.json").exists());
    head.start_again().await;
    assert_eq!(head.client().info().await.expect("a response").tasks.pending, 2);
    head.client().shutdown(LiveJobs::Cancel).await.expect("cancelled");
    assert!(head.wait_until_ended().await);
    head.start_again().await;
    let page = head.client().jobs(&JobFilter::default()).await.expect("a response");
    assert!(page.jobs.iter().all(|job| job.state == JobState::Cancelled), "{page:?}");
    assert!(head.terminate().await, "SIGTERM stops it properly");
}

#[tokio::test]
async fn second_head_in_the_same_directory_is_refused() {
    let head = TestHead::start().await;
    let why = head.start_rival().await;
    assert!(why.contains("in use by process"), "{why}");
    head.client().submit(&request("a")).await.expect("the first one continues");
}

#[tokio::test]
async fn the_description_is_served() {
    let head = TestHead::start().await;
    let served = head.client().openapi().await.expect("a response");
    assert_eq!(served, hostler_head::openapi().as_bytes());
}
