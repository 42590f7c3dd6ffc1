//! Output and terminals through the head, from the agent or from the result.

use bytes::Bytes;
use hostler_client::OutputPart;
use hostler_client::{Follow, LogEvent, Terminal, TerminalMessage};
use hostler_model::{RunId, TaskId, WindowSize};
use hostler_proto::link::{HeadMessage, Output, RunStatus, StreamKind, StreamRequest};

use crate::agent::{FakeAgent, completed};
use crate::harness::{TestHead, request, soon, spec};
use crate::jobs::code;

pub(crate) async fn next_stream(agent: &mut FakeAgent) -> StreamRequest {
    loop {
        match agent.next().await.expect("the link is open") {
            HeadMessage::Stream(request) => return request,
            other => drop(other),
        }
    }
}

pub(crate) async fn running(
    head: &TestHead,
    agent: &mut FakeAgent,
    submission: &hostler_proto::api::SubmitRequest,
) -> RunId {
    head.client().submit(submission).await.expect("accepted");
    let run = agent.next_launch().await.runs[0].run;
    agent.report(run, RunStatus::Running).await;
    let client = head.client();
    soon("the job to run", async {
        while client.info().await.expect("a response").tasks.running == 0 {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    })
    .await;
    run
}

#[tokio::test]
async fn output_is_followed_live_and_read_from_the_result_afterwards() {
    let head = TestHead::start().await;
    let mut agent = FakeAgent::start(&head, "n1").await;
    let run = running(&head, &mut agent, &request("a")).await;
    let client = head.client();
    let mut follow = Follow::new(&client, run.task, Output::Stdout);
    let next = async {
        let event = follow.next().await.expect("a response");
        (follow, event)
    };
    let answer = async {
        let request = next_stream(&mut agent).await;
        let all = StreamKind::Output { output: Output::Stdout, from: 0, follow: true, tail: None, limit: None };
        assert_eq!(request.what, all);
        let mut uplink = agent.client.send_stream(&request.stream, 0, 0);
        uplink.send(Bytes::from_static(b"hel")).await.expect("a reader exists");
        uplink
    };
    let ((mut follow, first), mut uplink) = soon("the first bytes", async { tokio::join!(next, answer) }).await;
    assert_eq!(first, Some(LogEvent::Bytes(Bytes::from_static(b"hel"))));
    uplink.send(Bytes::from_static(b"lo\n")).await.expect("a reader exists");
    assert_eq!(soon("more", follow.next()).await.expect("ok"), Some(LogEvent::Bytes(Bytes::from_static(b"lo\n"))));
    agent.report(run, completed(run, b"hello\n")).await;
    uplink.finish().await.expect("the client read all bytes");
    assert_eq!(soon("the end", follow.next()).await.expect("ok"), None);

    // From now on from the result, from any offset.
    let mut stream = client
        .output(run.task, Output::Stdout, &OutputPart { from: 2, ..OutputPart::default() })
        .await
        .expect("the output exists");
    assert_eq!(stream.next().await.expect("ok"), Some(Bytes::from_static(b"llo\n")));
    assert_eq!(stream.next().await.expect("ok"), None);
    let mut empty = client
        .output(run.task, Output::Stderr, &OutputPart { follow: true, ..OutputPart::default() })
        .await
        .expect("the output exists");
    assert_eq!(empty.next().await.expect("ok"), None);
    let other = TaskId { index: 5, ..run.task };
    assert_eq!(code(client.output(other, Output::Stdout, &OutputPart::default()).await), "no_such_task");
}

#[tokio::test]
async fn end_between_request_and_response_falls_back_to_the_result() {
    let head = TestHead::start().await;
    let mut agent = FakeAgent::start(&head, "n1").await;
    let run = running(&head, &mut agent, &request("a")).await;
    let client = head.client();
    let read = async {
        let mut stream = client.output(run.task, Output::Stdout, &OutputPart::default()).await.expect("a response");
        stream.next().await.expect("ok")
    };
    let end = async {
        next_stream(&mut agent).await;
        agent.report(run, completed(run, b"all of it")).await;
    };
    let (bytes, ()) = soon("the result", async { tokio::join!(read, end) }).await;
    assert_eq!(bytes, Some(Bytes::from_static(b"all of it")));
}

#[tokio::test]
async fn following_a_waiting_job_waits_for_its_start() {
    let head = TestHead::start().await;
    let client = head.client();
    let id = client.submit(&request("a")).await.expect("accepted").id;
    let task = TaskId { job: id, index: 0 };
    let mut nothing = client.output(task, Output::Stdout, &OutputPart::default()).await.expect("a response");
    assert_eq!(nothing.next().await.expect("ok"), None);
    let follower = head.client();
    let follow = tokio::spawn(async move {
        let mut stream = follower
            .output(task, Output::Stdout, &OutputPart { follow: true, ..OutputPart::default() })
            .await
            .expect("a response");
        (stream.attempt, stream.next().await.expect("ok"))
    });
    let mut agent = FakeAgent::start(&head, "n1").await;
    let run = agent.next_launch().await.runs[0].run;
    let request = next_stream(&mut agent).await;
    let mut uplink = agent.client.send_stream(&request.stream, 0, 0);
    uplink.send(Bytes::from_static(b"x")).await.expect("a reader exists");
    let (attempt, bytes) = soon("the follower", follow).await.expect("the task does not panic");
    assert_eq!((attempt, bytes), (run.attempt, Some(Bytes::from_static(b"x"))));
    // The reader has left: the agent's upload ends, so that it does not fill a pipe.
    soon("the agent's upload to end", uplink.closed()).await;
}

#[tokio::test]
async fn terminal_works_in_both_directions() {
    let head = TestHead::start().await;
    let mut agent = FakeAgent::start(&head, "n1").await;
    let plain = running(&head, &mut agent, &request("plain")).await;
    let size = WindowSize { rows: 30, columns: 100 };
    assert_eq!(code(head.client().attach(plain.task, size).await), "no_terminal");

    let mut submission = request("pty");
    submission.spec = hostler_model::JobSpec { pty: Some(size), ..spec("pty") }.into();
    head.client().submit(&submission).await.expect("accepted");
    let run = agent.next_launch().await.runs[0].run;
    assert_eq!(code(head.client().attach(run.task, size).await), "not_running");
    agent.report(run, RunStatus::Running).await;
    soon("the job to run", async {
        while head.client().info().await.expect("a response").tasks.running < 2 {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    })
    .await;
    let client = head.client();
    let attach = async { client.attach(run.task, size).await.expect("the job has a terminal") };
    let answer = async {
        let request = next_stream(&mut agent).await;
        assert_eq!(request.what, StreamKind::Terminal { rows: 30, columns: 100 });
        agent.client.stream_terminal(&request.stream).await.expect("a reader waits")
    };
    let (mut user, mut job): (Terminal, Terminal) = soon("both ends", async { tokio::join!(attach, answer) }).await;
    user.send(Bytes::from_static(b"ls\n")).await.expect("open");
    assert_eq!(soon("keys", job.next()).await.expect("ok"), Some(TerminalMessage::Output(Bytes::from_static(b"ls\n"))));
    user.resize(WindowSize { rows: 1, columns: 2 }).await.expect("open");
    let resized = soon("a size", job.next()).await.expect("ok");
    assert_eq!(resized, Some(TerminalMessage::Resize(WindowSize { rows: 1, columns: 2 })));
    job.send(Bytes::from_static(b"file\n")).await.expect("open");
    assert_eq!(
        soon("text", user.next()).await.expect("ok"),
        Some(TerminalMessage::Output(Bytes::from_static(b"file\n")))
    );
    job.leave().await;
    assert_eq!(soon("the end", user.next()).await.expect("ok"), None);
}

#[tokio::test]
async fn streams_of_one_run_are_limited_and_others_are_not_affected() {
    let head = TestHead::start().await;
    let mut agent = FakeAgent::start(&head, "n1").await;
    let size = WindowSize { rows: 30, columns: 100 };
    let pty = |key: &str| {
        let mut submission = request(key);
        submission.spec = hostler_model::JobSpec { pty: Some(size), ..spec(key) }.into();
        submission
    };
    let run = running(&head, &mut agent, &pty("crowded")).await;
    let client = head.client();
    // The head keeps a place for each client until the agent answers or the client leaves.
    let mut crowd = tokio::task::JoinSet::new();
    for _ in 0..32 {
        let client = head.client();
        crowd.spawn(async move { client.attach(run.task, size).await.map(drop) });
        next_stream(&mut agent).await;
    }
    assert_eq!(code(client.attach(run.task, size).await), "too_many_watchers");
    for _ in 0..64 {
        let client = head.client();
        crowd.spawn(async move { client.output(run.task, Output::Stdout, &OutputPart::default()).await.map(drop) });
        next_stream(&mut agent).await;
    }
    let refused = client.output(run.task, Output::Stdout, &OutputPart::default()).await;
    assert_eq!(code(refused), "too_many_watchers");
    crowd.shutdown().await;
    soon("a free place", async {
        let again = async {
            while client.attach(run.task, size).await.is_err() {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        };
        let answer = async {
            let stream = next_stream(&mut agent).await.stream;
            agent.client.stream_terminal(&stream).await.map(drop)
        };
        tokio::join!(again, answer).1.expect("a reader waits");
    })
    .await;
}
