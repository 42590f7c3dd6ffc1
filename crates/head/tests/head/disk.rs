//! A full disk: new work is rejected with a clear error, accepted work stays, and the head continues when space is free
//! again.
//!
//! Needs root to mount a small file system. The mount is in a mount namespace of the test's thread and its head, so it
//! disappears with them.

use std::time::Duration;

use hostler_client::JobFilter;
use hostler_model::JobState;
use hostler_proto::link::{RunReport, RunStatus};
use hostler_testkit::{fill_disk, mount_for_this_thread};

use crate::agent::{FakeAgent, Identity, completed};
use crate::harness::{TestHead, request, soon};
use crate::jobs::code;

#[tokio::test]
async fn full_disk_is_a_clear_error_and_loses_nothing() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    mount_for_this_thread(directory.path(), 8 << 20);
    let head = TestHead::start_in(directory).await;
    let client = head.client();
    let identity = Identity::join(&head, "n1").await;
    let mut agent = FakeAgent::link(&head, &identity, Vec::new()).await;
    let running = client.submit(&request("running")).await.expect("accepted").id;
    let run = agent.next_launch().await.runs[0].run;
    for i in 0..10 {
        let mut waiting = request(&format!("waiting {i}"));
        waiting.spec.hold = true;
        client.submit(&waiting).await.expect("accepted");
    }

    // Below the watermark: rejected before any write.
    let ballast = head.path("ballast");
    fill_disk(&ballast, 100_000);
    assert_eq!(code(client.submit(&request("refused")).await), "disk_full");
    assert_eq!(code(client.send_pack(bytes::Bytes::new()).await), "disk_full");
    let refusing = client.info().await.expect("a response").head.refusing.expect("the head reports the reason");
    assert!(refusing.contains("nearly full"), "{refusing}");
    let again = client.submit(&request("running")).await.expect("a retry succeeds");
    assert_eq!((again.id, again.duplicate), (running, true));

    // Above the watermark, but with too little space for a large job.
    fill_disk(&ballast, 500_000);
    let mut large = request("large");
    large.spec.environment.insert("LARGE".to_owned(), "x".repeat(900_000));
    assert_eq!(code(client.submit(&large).await), "not_stored");
    // The head reverts to its stored state, and its agents reconnect.
    soon("the link to be closed", async { while agent.next().await.is_some() {} }).await;
    let report = RunReport { run, status: RunStatus::Running };
    let mut agent = FakeAgent::link(&head, &identity, vec![report]).await;

    // No space at all: messages of agents cannot be stored either. The ballast exceeds the space reserved for the log.
    fill_disk(&ballast, 0);
    agent.report(run, completed(run, &vec![b'x'; 2_000_000])).await;
    soon("the link to be closed", async { while agent.next().await.is_some() {} }).await;
    let info = client.info().await.expect("a response");
    assert!(info.head.refusing.is_some(), "{info:?}");

    // With free space, no restart is needed.
    std::fs::remove_file(&ballast).expect("freed");
    soon("the head to recover", async {
        while client.info().await.expect("a response").head.refusing.is_some() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    client.submit(&request("after")).await.expect("accepted");
    let report = RunReport { run, status: completed(run, b"done") };
    let _agent = FakeAgent::link(&head, &identity, vec![report]).await;
    let ended = client.job_when_ended(running, 1, Duration::from_secs(20)).await.expect("a response");
    assert_eq!((ended.summary.state, ended.summary.attempt.0), (JobState::Completed, 1));
    let page = client.jobs(&JobFilter::default()).await.expect("a response");
    assert_eq!(page.total, 12, "{:?}", page.jobs.iter().map(|job| &job.name).collect::<Vec<_>>());
}

#[tokio::test]
async fn job_whose_results_may_wait_for_space_names_the_full_disk() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    mount_for_this_thread(directory.path(), 8 << 20);
    let head = TestHead::start_in(directory).await;
    let client = head.client();
    let identity = Identity::join(&head, "n1").await;
    let mut agent = FakeAgent::link(&head, &identity, Vec::new()).await;
    let id = client.submit(&request("a")).await.expect("accepted").id;
    let run = agent.next_launch().await.runs[0].run;
    agent.report(run, RunStatus::Running).await;
    agent.report(run, RunStatus::Completing).await;
    let summary = async || client.job(id, 1).await.expect("a response").summary;
    soon("the job to be completing", async {
        while summary().await.state != JobState::Completing {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    assert_eq!(summary().await.message.as_deref(), Some("node n1 collects the results"));
    fill_disk(&head.path("ballast"), 100_000);
    let message = summary().await.message.expect("a message");
    assert!(message.starts_with("node n1 collects the results; the head's disk is nearly full: "), "{message}");
    let page = client.jobs(&JobFilter::default()).await.expect("a response");
    assert_eq!(page.jobs[0].message.as_ref(), Some(&message));
    let why = client.why(id).await.expect("a response").lines.join("\n");
    assert!(why.contains("It may wait for space: the head's disk is nearly full: "), "{why}");
}
