//! Agents: joining, running jobs, disconnects and reconnects.

use std::time::Duration;

use hostler_client::LiveJobs;
use hostler_model::{JobState, NodeState, RunId};
use hostler_proto::api::{AwaitedJob, SubmitRequest};
use hostler_proto::link::{AgentMessage, Frame, HeadHello, HeadMessage, RunReport, RunStatus};

use crate::agent::{FakeAgent, Identity, completed, introduce, result};
use crate::harness::{PATIENCE, TestHead, request, soon};
use crate::jobs::code;

#[tokio::test]
async fn job_completes_with_an_inline_result() {
    let head = TestHead::start().await;
    let mut agent = FakeAgent::start(&head, "n1").await;
    let client = head.client();
    let nodes = client.nodes().await.expect("a response");
    assert_eq!((nodes[0].state, nodes[0].cpus, nodes[0].agent_pid), (NodeState::Up, 4, 4242));

    let id = client.submit(&request("a")).await.expect("accepted").id;
    let launch = agent.next_launch().await;
    assert_eq!((launch.job.id, launch.runs.len()), (id, 1));
    let run = launch.runs[0].run;
    agent.report(run, RunStatus::Accepted).await;
    agent.report(run, RunStatus::Running).await;
    agent.report(run, completed(run, b"hello\n")).await;
    assert_eq!(agent.next().await, Some(HeadMessage::Forget { run }));

    let ended = client.job_when_ended(id, 10, Duration::from_secs(20)).await.expect("a response");
    assert_eq!((ended.summary.state, ended.summary.exit_code), (JobState::Completed, Some(0)));
    assert_eq!(ended.summary.nodes, ["n1".parse().expect("a valid name")]);
    assert_eq!(ended.tasks_shown[0].usage.map(|usage| usage.wall_ms), Some(12));
    let results = client.results(true, &[]).await.expect("a response").results;
    assert_eq!(results.len(), 1);
    let manifest = results[0].manifest;
    assert_eq!(manifest, result(run, b"hello\n").0);
    assert!(client.missing_blobs(vec![manifest]).await.expect("a response").is_empty());
    assert!(!client.fetch_pack(vec![manifest]).await.expect("the job exists").is_empty());
    let fetched = hostler_proto::api::Fetched { indices: hostler_model::IndexSet::one(0), attempt: None };
    client.fetched(id, &fetched).await.expect("permitted");
    assert!(client.results(true, &[]).await.expect("a response").results.is_empty());
    assert_eq!(client.results(false, &[id]).await.expect("a response").results.len(), 1);
}

fn waiting_for(key: &str, wait: Duration) -> SubmitRequest {
    SubmitRequest { wait_ms: u64::try_from(wait.as_millis()).ok(), ..request(key) }
}

#[tokio::test]
async fn submission_waits_for_the_end_and_brings_output_that_is_short_text() {
    let head = TestHead::start().await;
    let mut agent = FakeAgent::start(&head, "n1").await;
    for (key, stdout, expected) in
        [("a", b"hello\n".as_slice(), Some("hello\n")), ("b", b"", Some("")), ("c", b"\xff", None)]
    {
        let client = head.client();
        let waiting = tokio::spawn(async move { client.submit(&waiting_for(key, PATIENCE)).await });
        let run = agent.next_launch().await.runs[0].run;
        agent.report(run, RunStatus::Running).await;
        agent.report(run, completed(run, stdout)).await;
        let submitted = soon("the end", waiting).await.expect("no panic").expect("accepted");
        let AwaitedJob { job, output } = *submitted.awaited.expect("the client waits");
        assert_eq!((job.summary.id, job.summary.state), (submitted.id, JobState::Completed), "{key}");
        assert_eq!(job.tasks_shown.len(), 1, "{key}");
        assert_eq!(output.as_ref().map(|it| it.stdout.as_str()), expected, "{key}");
        assert!(output.is_none_or(|it| it.stderr.is_empty()), "{key}");
    }
    let submitted = head.client().submit(&waiting_for("d", Duration::from_millis(20))).await.expect("accepted");
    let awaited = submitted.awaited.expect("the client waits");
    assert!(!awaited.job.summary.state.is_ended() && awaited.output.is_none());
    assert_eq!(head.client().submit(&request("d")).await.expect("known").awaited, None);
}

#[tokio::test]
async fn job_is_described_again_whenever_a_task_starts_or_ends() {
    let head = TestHead::start().await;
    let mut agent = FakeAgent::start(&head, "n1").await;
    let client = head.client();
    let mut array = request("a");
    (array.spec.array, array.spec.request.cpus) = (Some("0-1".parse().expect("an array")), Some(4));
    let id = client.submit(&array).await.expect("accepted").id;
    let first = agent.next_launch().await.runs[0].run;
    let began = soon("the start", client.job_after(id, 0)).await.expect("a response");
    assert_eq!(began.summary.tasks.progress(), 1);
    agent.report(first, RunStatus::Running).await;
    agent.report(first, completed(first, b"")).await;
    agent.next_launch().await;
    let ended = soon("the end", client.job_after(id, 1)).await.expect("a response");
    assert!(ended.summary.tasks.progress() > 1);
    assert!(ended.tasks_shown.iter().any(|task| task.index == first.task.index && task.state.is_ended()));
}

#[tokio::test]
async fn job_that_fits_no_known_node_is_rejected() {
    let head = TestHead::start().await;
    let _agent = FakeAgent::start(&head, "n1").await;
    let mut large = request("large");
    large.spec.request.cpus = Some(5);
    assert_eq!(code(head.client().submit(&large).await), "never_fits");
}

#[tokio::test]
async fn explanation_names_a_full_node_and_its_missing_resources() {
    let head = TestHead::start().await;
    let mut agent = FakeAgent::start(&head, "n1").await;
    let client = head.client();
    let mut large = request("a");
    large.spec.request.cpus = Some(3);
    large.spec.time_limit_ms = Some(600_000);
    client.submit(&large).await.expect("accepted");
    agent.next_launch().await;
    large.key = "b".to_owned();
    let waiting = client.submit(&large).await.expect("accepted").id;
    let why = client.why(waiting).await.expect("the job exists");
    let text = why.lines.join("\n");
    assert!(text.contains("Node n1 has 1 of 4 CPUs and ") && text.contains("lacks 2 CPUs"), "{text}");
    assert!(text.contains("It runs job 1 (test, of "), "{text}");
    assert!(why.expected_start_at.is_some() && text.contains("should start within"), "{why:?}");
}

#[tokio::test]
async fn explanation_names_an_endless_job_and_nodes_the_job_that_they_are_kept_for() {
    let head = TestHead::start().await;
    let mut agents = (FakeAgent::start(&head, "n1").await, FakeAgent::start(&head, "n2").await);
    let client = head.client();
    let submit = async |key: &str, cpus, nodes| {
        let mut job = request(key);
        (job.spec.request.cpus, job.spec.nodes) = (Some(cpus), Some(nodes));
        client.submit(&job).await.expect("accepted").id
    };
    let endless = submit("endless", 1, 1).await;
    tokio::select! { _ = agents.0.next_launch() => {}, _ = agents.1.next_launch() => {} }
    let (wide, small) = (submit("wide", 4, 2).await, submit("small", 1, 1).await);
    let why = async |id| client.why(id).await.expect("the job exists").lines.join("\n");
    let guilty = format!("is unknown because job {endless} (test, of ");
    let (of_wide, of_small) = (why(wide).await, why(small).await);
    assert!(of_wide.contains(&format!("The start time {guilty}")), "{of_wide}");
    assert!(of_small.contains(&format!("The start of job {wide} {guilty}")), "{of_small}");
    assert!(of_small.contains(&format!("has no time limit; `hostler update {endless} -t 2h` sets one.")), "{of_small}");
    assert!(of_small.contains(&format!("start before job {wide}: `hostler update {small} -t 1h`")), "{of_small}");
    for node in ["n1", "n2"] {
        let node = client.node(&node.parse().expect("a name")).await.expect("the node exists").node;
        assert_eq!(node.kept_for, Some(wide));
    }
}

#[tokio::test]
async fn stale_messages_change_nothing() {
    let head = TestHead::start().await;
    let mut agent = FakeAgent::start(&head, "n1").await;
    let client = head.client();
    let id = client.submit(&request("a")).await.expect("accepted").id;
    let run = agent.next_launch().await.runs[0].run;
    let stale = RunId { attempt: hostler_model::Attempt(run.attempt.0 + 1), ..run };
    let other_epoch = RunId { epoch: hostler_model::Epoch(run.epoch.0 + 1), ..run };
    agent.report(stale, completed(stale, b"wrong")).await;
    agent.report(other_epoch, completed(other_epoch, b"wrong")).await;
    agent.report(run, RunStatus::Running).await;
    agent.report(run, completed(run, b"right")).await;
    agent.report(run, completed(run, b"twice")).await;
    let ended = client.job_when_ended(id, 10, Duration::from_secs(20)).await.expect("a response");
    assert_eq!(ended.tasks_shown[0].result, Some(result(run, b"right").0));
}

#[tokio::test]
async fn incomplete_result_is_requested_again() {
    let head = TestHead::start().await;
    let mut agent = FakeAgent::start(&head, "n1").await;
    let client = head.client();
    let id = client.submit(&request("a")).await.expect("accepted").id;
    let run = agent.next_launch().await.runs[0].run;
    let RunStatus::Ended(mut end) = completed(run, b"hello") else { panic!("an ending") };
    let whole = end.clone();
    end.result.as_mut().expect("the end has a result").inline.pop();
    agent.report(run, RunStatus::Ended(end)).await;
    assert_eq!(agent.next().await, Some(HeadMessage::Resend { run }));
    let live = client.job(id, 10).await.expect("the job exists");
    assert!(!live.summary.state.is_ended(), "incomplete results are not visible");
    agent.report(run, RunStatus::Ended(whole)).await;
    let ended = client.job_when_ended(id, 10, Duration::from_secs(20)).await.expect("a response");
    assert_eq!(ended.summary.state, JobState::Completed);
}

#[tokio::test]
async fn head_killed_during_a_run_loses_nothing() {
    let mut head = TestHead::start().await;
    let identity = Identity::join(&head, "n1").await;
    let mut agent = FakeAgent::link(&head, &identity, Vec::new()).await;
    let id = head.client().submit(&request("a")).await.expect("accepted").id;
    let run = agent.next_launch().await.runs[0].run;
    agent.report(run, RunStatus::Running).await;
    soon("the report to be noted", async {
        while head.client().job(id, 0).await.expect("the job exists").summary.state != JobState::Running {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    head.kill();
    assert_eq!(agent.next().await, None);
    head.start_again().await;

    // The job continues: its run is not started again, and its end is accepted when the agent is back.
    let report = RunReport { run, status: completed(run, b"done") };
    let mut agent = FakeAgent::link(&head, &identity, vec![report]).await;
    assert_eq!(agent.next().await, Some(HeadMessage::Forget { run }));
    let ended = head.client().job_when_ended(id, 10, Duration::from_secs(20)).await.expect("a response");
    assert_eq!((ended.summary.state, ended.summary.attempt.0), (JobState::Completed, 1));
    assert_eq!(ended.tasks_shown[0].result, Some(result(run, b"done").0));
}

#[tokio::test]
async fn lost_launch_is_repeated_and_unknown_run_is_forgotten() {
    let mut head = TestHead::start().await;
    let identity = Identity::join(&head, "n1").await;
    let mut agent = FakeAgent::link(&head, &identity, Vec::new()).await;
    head.client().submit(&request("a")).await.expect("accepted");
    let run = agent.next_launch().await.runs[0].run;
    head.kill();
    head.start_again().await;
    let unknown = RunId { attempt: hostler_model::Attempt(9), ..run };
    let report = RunReport { run: unknown, status: RunStatus::Running };
    let mut agent = FakeAgent::link(&head, &identity, vec![report]).await;
    assert_eq!(agent.next().await, Some(HeadMessage::Forget { run: unknown }));
    assert_eq!(agent.next_launch().await.runs[0].run, run);
}

#[tokio::test]
async fn newer_connection_of_a_node_replaces_the_older() {
    let head = TestHead::start().await;
    let identity = Identity::join(&head, "n1").await;
    let mut older = FakeAgent::link(&head, &identity, Vec::new()).await;
    let _newer = FakeAgent::link(&head, &identity, Vec::new()).await;
    assert_eq!(older.next().await, None);
    assert_eq!(head.client().info().await.expect("a response").nodes.up, 1);
}

#[tokio::test]
async fn messages_on_a_replaced_connection_are_ignored() {
    let head = TestHead::start().await;
    let identity = Identity::join(&head, "n1").await;
    let mut older = FakeAgent::link(&head, &identity, Vec::new()).await;
    let client = head.client();
    let id = client.submit(&request("a")).await.expect("accepted").id;
    let run = older.next_launch().await.runs[0].run;
    let report = RunReport { run, status: RunStatus::Running };
    let mut newer = FakeAgent::link(&head, &identity, vec![report]).await;
    older.try_report(run, completed(run, b"from the past")).await;
    assert_eq!(older.next().await, None);
    let job = client.job(id, 1).await.expect("the job exists");
    assert_eq!(job.summary.state, JobState::Running);
    newer.report(run, completed(run, b"from now")).await;
    let ended = client.job_when_ended(id, 1, Duration::from_secs(20)).await.expect("a response");
    assert_eq!(ended.tasks_shown[0].result, Some(result(run, b"from now").0));
}

#[tokio::test]
async fn agents_that_violate_the_protocol_are_rejected_or_disconnected() {
    let head = TestHead::start().await;
    let identity = Identity::join(&head, "n1").await;
    let mut future = identity.hello(Vec::new());
    let (oldest, newest) = hostler_proto::link::PROTOCOL.into_inner();
    (future.protocol_min, future.protocol_max) = (newest + 1, newest + 2);
    let (_, answer) = introduce(&head, &identity, &future).await;
    let (theirs, ours) = (format!("{} to {}", newest + 1, newest + 2), format!("{oldest} to {newest}"));
    let names_both = |message: &str| message.contains(&theirs) && message.contains(&ours);
    assert!(matches!(&answer, HeadHello::Refused { message } if names_both(message)), "{answer:?}");
    let mut other = identity.hello(Vec::new());
    other.node = "n2".parse().expect("a valid name");
    let (_, answer) = introduce(&head, &identity, &other).await;
    assert!(matches!(&answer, HeadHello::Refused { message } if message.contains("certificate")), "{answer:?}");

    let mut gap = FakeAgent::link(&head, &identity, Vec::new()).await;
    let frame = Frame { sequence: 5, messages: vec![AgentMessage::Heartbeat] };
    gap.send_raw(hostler_proto::encode(&frame)).await;
    assert_eq!(gap.next().await, None);
    let mut garbage = FakeAgent::link(&head, &identity, Vec::new()).await;
    garbage.send_raw(vec![0xc1; 100]).await;
    assert_eq!(garbage.next().await, None);
}

#[tokio::test]
async fn shutdown_of_an_embedded_cluster_stops_its_agents() {
    let mut head = TestHead::start().await;
    let mut agent = FakeAgent::start(&head, "n1").await;
    head.client().shutdown(LiveJobs::Refuse).await.expect("no live jobs");
    assert_eq!(agent.next().await, Some(HeadMessage::Shutdown));
    assert_eq!(agent.next().await, None);
    assert!(head.wait_until_ended().await);
}

#[tokio::test]
async fn shutdown_with_cancel_waits_for_the_agents() {
    let mut head = TestHead::start().await;
    let mut agent = FakeAgent::start(&head, "n1").await;
    let client = head.client();
    client.submit(&request("a")).await.expect("accepted");
    let run = agent.next_launch().await.runs[0].run;
    agent.report(run, RunStatus::Running).await;
    let shutdown = tokio::spawn(async move { client.shutdown(LiveJobs::Cancel).await });
    assert!(matches!(agent.next().await, Some(HeadMessage::End { .. })));
    agent.report(run, completed(run, b"last words")).await;
    soon("the shutdown", shutdown).await.expect("the task does not panic").expect("the head stops");
    assert!(head.wait_until_ended().await);
}
