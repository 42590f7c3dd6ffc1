//! Which states find a job.

use hostler_client::{Client, JobFilter};
use hostler_model::{Ending, JobId, JobSpec, JobState, RunId};
use hostler_proto::api::{JobDetail, JobSummary, SubmitRequest};
use hostler_proto::link::{Fate, RunEnd, RunStatus};

use crate::agent::{FakeAgent, completed};
use crate::harness::{TestHead, soon, spec};

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
