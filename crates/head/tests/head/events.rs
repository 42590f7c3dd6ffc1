//! Event streams of slow clients, and the effect of a stop on clients.

use std::time::{Duration, Instant};

use hostler_client::OutputPart;
use hostler_client::{Endpoint, RetryLimits};
use hostler_model::TaskId;
use hostler_proto::link::{HeadMessage, Output, RunStatus};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use crate::agent::FakeAgent;
use crate::harness::{TestHead, request, soon};

/// Number of notices: enough to fill the sockets, the buffers and the head's queue for one client.
const MANY: usize = 12_800;
const AT_ONCE: usize = 64;

#[tokio::test]
async fn slow_client_is_told_about_missed_events() {
    let head = TestHead::start().await;
    let mut slow = UnixStream::connect(head.socket()).await.expect("the head listens");
    slow.write_all(b"GET /api/v1/events HTTP/1.1\r\nHost: x\r\n\r\n").await.expect("the head reads");
    let mut start = [0; 12];
    slow.read_exact(&mut start).await.expect("a response");
    assert_eq!(&start, b"HTTP/1.1 200");

    let tasks = (0..AT_ONCE).map(|lane| {
        let client = head.client().with_retry_limits(RetryLimits::COMMAND);
        tokio::spawn(async move {
            for i in 0..MANY / AT_ONCE {
                let mut held = request(&format!("{lane} {i}"));
                held.spec.hold = true;
                client.submit(&held).await.expect("accepted");
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.expect("the task does not panic");
    }

    let mut read = Vec::new();
    let missed = async {
        let mut piece = vec![0; 1 << 16];
        while !String::from_utf8_lossy(&read).contains(r#"data: {"event":"missed"}"#) {
            let count = slow.read(&mut piece).await.expect("the stream is open");
            assert!(count > 0, "the stream continues");
            read.extend_from_slice(&piece[..count]);
        }
    };
    soon("the notice of missed events", missed).await;
    // The stream continues after this notice.
    head.client().submit(&request("after")).await.expect("accepted");
    assert!(soon("more", slow.read(&mut start)).await.expect("the stream is open") > 0);
}

#[tokio::test]
async fn stop_breaks_followed_output_without_a_regular_end() {
    let mut head = TestHead::start().await;
    let mut agent = FakeAgent::start(&head, "n1").await;
    let id = head.client().submit(&request("a")).await.expect("accepted").id;
    let run = agent.next_launch().await.runs[0].run;
    agent.report(run, RunStatus::Running).await;
    let client = head.client();
    let task = TaskId { job: id, index: 0 };
    let follow = async {
        client
            .output(task, Output::Stdout, &OutputPart { follow: true, ..OutputPart::default() })
            .await
            .expect("a response")
    };
    let serve = async {
        let stream = loop {
            if let Some(HeadMessage::Stream(request)) = agent.next().await {
                break request.stream;
            }
        };
        let mut uplink = agent.client.send_stream(&stream, 0, 0);
        uplink.send(bytes::Bytes::from_static(b"first")).await.expect("a reader exists");
        uplink
    };
    let (mut follower, _uplink) = soon("both ends", async { tokio::join!(follow, serve) }).await;
    soon("the first bytes", follower.next()).await.expect("ok");
    let mut events = head.client().events().await.expect("a response");

    let began = Instant::now();
    assert!(head.terminate().await);
    assert!(began.elapsed() < Duration::from_millis(2500), "the clients noticed the stop after {:?}", began.elapsed());
    soon("the follower", follower.next()).await.expect_err("an error, not an end");
    while soon("the watcher", events.next()).await.expect("closed properly").is_some() {}
}

#[tokio::test]
async fn silent_client_on_the_socket_is_disconnected() {
    let head = TestHead::start().await;
    let mut silent = UnixStream::connect(head.socket()).await.expect("the head listens");
    let mut answer = Vec::new();
    let read = silent.read_to_end(&mut answer);
    let read = tokio::time::timeout(Duration::from_secs(20), read).await.expect("closed after ten seconds");
    assert!(read.is_err() || answer.is_empty() || answer.starts_with(b"HTTP/1.1 408"), "{answer:?}");
}

#[tokio::test]
async fn port_stays_the_same_after_a_restart() {
    let mut head = TestHead::start().await;
    let (address, socket) = (head.address(), head.socket());
    head.kill();
    head.start_again().await;
    assert_eq!(head.address(), address);
    assert!(head.terminate().await);
    // If another program uses the port, the head takes any other.
    let taken = std::net::TcpListener::bind(address).expect("the port is free");
    head.start_again().await;
    assert_ne!(head.address(), address);
    drop(taken);
    assert!(Endpoint::Unix(socket).connect().await.is_ok());
}
