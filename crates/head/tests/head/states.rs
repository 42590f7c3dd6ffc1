//! What lists and details say about jobs in each of their states, and which states find a job.

use hostler_client::{Client, JobFilter};
use hostler_model::{Ending, JobId, JobSpec, JobState, RunId};
use hostler_proto::api::{JobDetail, JobSummary, SubmitRequest};
use hostler_proto::link::{Fate, RunEnd, RunStatus};

use crate::agent::{FakeAgent, completed};
use crate::harness::{TestHead, request, soon, spec};

/// Submits an array of which each task has one of the node's four CPUs.
async fn submit_array(client: &Client, indices: &str) -> JobId {
    let array = Some(indices.parse().expect("indices"));
    let submission = SubmitRequest::new("array".to_owned(), JobSpec { array, ..spec("array") });
    client.submit(&submission).await.expect("accepted").id
}

/// The runs of the next launches, until there are `count`.
async fn next_runs(agent: &mut FakeAgent, count: usize) -> Vec<RunId> {
    let mut runs = Vec::new();
    while runs.len() < count {
        runs.extend(agent.next_launch().await.runs.iter().map(|run| run.run));
    }
    runs
}

/// The end of a run in this state.
fn ended(state: JobState, exit_code: Option<i32>, message: Option<&str>) -> RunStatus {
    let fate = Fate::Ended(Ending { state, exit_code });
    RunStatus::Ended(RunEnd::without_result(fate, message.map(str::to_owned)))
}

/// Asks for a job until it is as expected.
async fn until(client: &Client, id: JobId, is_so: impl Fn(&JobDetail) -> bool) -> JobDetail {
    let found = async {
        loop {
            let job = client.job(id, 9).await.expect("the job exists");
            if is_so(&job) {
                return job;
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    soon("the job's state", found).await
}

/// The job in a list, if the list has it.
async fn listed(client: &Client, states: &[JobState], any_task: bool) -> Option<JobSummary> {
    let filter = JobFilter { states: states.to_vec(), any_task, ..JobFilter::default() };
    let page = client.jobs(&filter).await.expect("a response");
    assert_eq!(page.total, page.jobs.len() as u64, "{filter:?}");
    page.jobs.into_iter().next()
}

#[tokio::test]
async fn state_filter_finds_arrays_with_tasks_in_that_state() {
    use JobState::{Cancelled, Completed, Failed, OutOfMemory, Pending, Running, Starting, Timeout};
    let head = TestHead::start().await;
    let mut agent = FakeAgent::start(&head, "n1").await;
    let client = head.client();
    let id = submit_array(&client, "0-4").await;
    let runs = next_runs(&mut agent, 4).await;
    agent.report(runs[0], RunStatus::Running).await;
    agent.report(runs[1], ended(Failed, Some(3), None)).await;
    agent.report(runs[2], ended(OutOfMemory, Some(137), None)).await;
    until(&client, id, |job| job.summary.tasks.not_completed() == 2 && job.summary.tasks.running == 1).await;
    for state in [Running, Failed, OutOfMemory, Starting] {
        assert!(listed(&client, &[state], true).await.is_some(), "{state} while the job runs");
        assert_eq!(listed(&client, &[state], false).await.is_some(), state == Running, "only the job's state: {state}");
    }
    assert_eq!(listed(&client, &[Completed, Timeout, Cancelled], true).await, None);

    let last = next_runs(&mut agent, 1).await[0];
    for run in [runs[0], runs[3], last] {
        agent.report(run, completed(run, b"")).await;
    }
    let job = until(&client, id, |job| job.summary.state.is_ended()).await;
    assert_eq!(job.summary.state, OutOfMemory);
    for state in [Completed, Failed, OutOfMemory] {
        assert!(listed(&client, &[state], true).await.is_some(), "{state} after the end");
        assert_eq!(listed(&client, &[state], false).await.is_some(), state == OutOfMemory);
    }
    assert!(listed(&client, &[Failed, OutOfMemory, Completed], true).await.is_some());
    assert_eq!(listed(&client, &[Pending, Running, Timeout, Cancelled], true).await, None);
}

#[tokio::test]
async fn placed_job_says_what_its_node_does_until_it_ends() {
    let head = TestHead::start().await;
    let mut agent = FakeAgent::start(&head, "n1").await;
    let client = head.client();
    let id = client.submit(&request("a")).await.expect("accepted").id;
    let run = agent.next_launch().await.runs[0].run;
    let phases = [
        (None, Some("node n1 has not confirmed the start yet")),
        (Some(RunStatus::Accepted), Some("node n1 prepares the start")),
        (Some(RunStatus::Staged), Some("node n1 prepares the environment")),
        (Some(RunStatus::Running), None),
        (Some(RunStatus::Completing), Some("node n1 collects the results")),
    ];
    for (status, message) in phases {
        if let Some(status) = status {
            agent.report(run, status).await;
        }
        let job = until(&client, id, |job| job.summary.message.as_deref() == message).await;
        assert_eq!(job.tasks_shown[0].message.as_deref(), message);
        assert_eq!(listed(&client, &[], false).await.expect("listed").message.as_deref(), message);
        let why = client.why(id).await.expect("an explanation").lines.join("\n");
        assert!(message.is_none_or(|message| why.contains(message)), "{why}");
    }
    agent.report(run, ended(JobState::Failed, None, Some("pip exited with 1"))).await;
    let job = until(&client, id, |job| job.summary.state.is_ended()).await;
    assert_eq!(job.summary.message.as_deref(), Some("pip exited with 1"));
    assert_eq!(listed(&client, &[], false).await.expect("listed").message.as_deref(), Some("pip exited with 1"));
}

#[tokio::test]
async fn array_says_what_its_placed_tasks_do_and_why_a_task_failed() {
    let head = TestHead::start().await;
    let mut agent = FakeAgent::start(&head, "n1").await;
    let client = head.client();
    let id = submit_array(&client, "0-4").await;
    let runs = next_runs(&mut agent, 4).await;
    for run in &runs {
        agent.report(*run, RunStatus::Staged).await;
    }
    let message = "task 0: node n1 prepares the environment (and 3 more starting)";
    // The head reads the four reports one by one.
    let are_staged = |job: &JobDetail| {
        job.tasks_shown.iter().all(|task| task.message.as_deref() == Some("node n1 prepares the environment"))
    };
    let job = until(&client, id, are_staged).await;
    assert_eq!(job.summary.message.as_deref(), Some(message));
    assert!(job.summary.reason.is_some_and(|reason| reason.starts_with("no node has enough free now")));
    let why = client.why(id).await.expect("an explanation").lines;
    assert_eq!(why[1], format!("The job is starting: {message}."));

    agent.report(runs[2], ended(JobState::Failed, None, Some("pip exited with 1"))).await;
    agent.report(runs[1], ended(JobState::Failed, Some(3), None)).await;
    agent.report(runs[0], RunStatus::Running).await;
    let told = |message: &'static str| move |job: &JobDetail| job.summary.message.as_deref() == Some(message);
    until(&client, id, told("task 2: pip exited with 1")).await;
    assert_eq!(
        listed(&client, &[], false).await.expect("listed").message.as_deref(),
        Some("task 2: pip exited with 1")
    );
    for run in [runs[0], runs[3], next_runs(&mut agent, 1).await[0]] {
        agent.report(run, ended(JobState::OutOfMemory, Some(137), Some("the job exceeded its memory limit"))).await;
    }
    until(&client, id, |job| job.summary.state.is_ended()).await;
    let listed = listed(&client, &[], false).await.expect("listed");
    assert_eq!(listed.message.as_deref(), Some("task 0: the job exceeded its memory limit"));
    assert_eq!((listed.tasks.failed, listed.tasks.out_of_memory), (2, 3));
}
