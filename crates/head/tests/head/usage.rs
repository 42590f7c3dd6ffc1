//! Figures over time: what agents may report, and what users may read.

use std::collections::BTreeMap;

use bytes::Bytes;
use hostler_client::{Client, ClientError};
use hostler_model::{Attempt, Bucket, Figures, Metric, RunId, TaskId};
use hostler_proto::link::HeadMessage;
use hostler_proto::usage::{MAX_SPANS, Reading, UsageReport, UsageSpan, UsageView};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;

use crate::agent::{FakeAgent, completed};
use crate::harness::{TestHead, request, soon};
use crate::jobs::code;
use crate::output::running;

fn span(run: Option<RunId>, cpu: f32) -> UsageSpan {
    UsageSpan { run, age_ms: 30_000, figures: Figures::from([(Metric::Cpu, Bucket::of(cpu, 60))]) }
}

async fn report(agent: &Client, spans: Vec<UsageSpan>) -> Result<(), ClientError> {
    agent.report_usage(&UsageReport { spans }).await
}

/// The means of a metric, without gaps.
fn means(view: &UsageView, metric: Metric) -> Vec<f32> {
    let series = view.series.iter().find(|series| series.name == metric);
    series.map(|series| series.mean.iter().flatten().copied().collect()).unwrap_or_default()
}

/// Waits until the head has stored figures of a task.
async fn stored(client: &Client, task: TaskId) -> UsageView {
    let stored = async {
        loop {
            let view = client.task_usage(task, "").await.expect("the caller may read it");
            if !view.series.is_empty() {
                return view;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    soon("figures to be stored", stored).await
}

#[tokio::test]
async fn node_reports_only_itself_and_its_own_runs() {
    let mut head = TestHead::start().await;
    let mut owner = FakeAgent::start(&head, "n1").await;
    let run = running(&head, &mut owner, &request("a")).await;
    let stranger = FakeAgent::start(&head, "n2").await;
    let other = RunId { attempt: Attempt(7), ..run };
    report(&stranger.client, vec![span(None, 2.0), span(Some(run), 666.0)]).await.expect("it is not an error");
    report(&owner.client, vec![span(None, 1.0), span(Some(other), 666.0), span(Some(run), 0.5)]).await.expect("ok");
    let client = head.client();
    let view = stored(&client, run.task).await;
    assert_eq!(means(&view, Metric::Cpu), [0.5], "the other node and the other attempt are ignored");
    assert_eq!(view.series[0].limit, Some(1.0));
    for (node, cpu) in [("n1", 1.0), ("n2", 2.0)] {
        let view = client.node_usage(&node.parse().expect("a name"), "").await.expect("ok");
        assert_eq!((means(&view, Metric::Cpu), view.series[0].limit), (vec![cpu], Some(4.0)), "{node}");
        let node = client.node(&node.parse().expect("a name")).await.expect("ok").node;
        assert_eq!(node.measured.map(|last| last.values), Some([(Metric::Cpu, cpu)].into()), "the newest figures");
    }
    assert!(client.nodes().await.expect("ok").iter().all(|node| node.measured.is_none()), "only on request");

    // Also after the end of the run and a crash of the head.
    owner.report(run, completed(run, b"")).await;
    soon("the end", client.job_when_ended(run.task.job, 1, std::time::Duration::from_secs(20))).await.expect("ok");
    report(&owner.client, vec![span(Some(run), 0.75)]).await.expect("ok");
    soon("the late figures", async {
        while means(&client.task_usage(run.task, "").await.expect("ok"), Metric::Cpu) == [0.5] {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    })
    .await;
    head.kill();
    head.start_again().await;
    let view = head.client().task_usage(run.task, "").await.expect("ok");
    assert!(!means(&view, Metric::Cpu).is_empty(), "{view:?}");
}

#[tokio::test]
async fn impossible_and_large_reports_are_refused_or_ignored() {
    let head = TestHead::start().await;
    let mut agent = FakeAgent::start(&head, "n1").await;
    let run = running(&head, &mut agent, &request("a")).await;
    let spans = vec![span(None, 1.0); MAX_SPANS + 1];
    assert_eq!(code(report(&agent.client, spans).await), "bad_request");
    let huge: BTreeMap<String, String> = (0..60_000).map(|n| (format!("x{n}"), "y".repeat(20))).collect();
    let huge = serde_json::to_vec(&huge).expect("a map is valid JSON");
    assert!(huge.len() > 1 << 20);
    assert_eq!(post(&agent, huge).await, 413);
    let metric = |metric, bucket| UsageSpan { figures: Figures::from([(metric, bucket)]), ..span(Some(run), 1.0) };
    let zero = Bucket { seconds: 0, ..Bucket::of(1.0, 1) };
    assert_eq!(code(report(&agent.client, vec![metric(Metric::Cpu, zero)]).await), "bad_request");
    let ignored = vec![
        metric(Metric::Load, Bucket::of(1.0, 1)),
        metric(Metric::Memory, Bucket { min: 5.0, ..Bucket::of(1.0, 1) }),
        metric(Metric::DiskRead, Bucket::of(-1.0, 1)),
        UsageSpan { age_ms: u64::MAX, ..metric(Metric::DiskWrite, Bucket::of(1.0, 1)) },
        span(Some(run), 0.5),
    ];
    report(&agent.client, ignored).await.expect("ok");
    let view = stored(&head.client(), run.task).await;
    assert_eq!(view.series.iter().map(|series| series.name).collect::<Vec<_>>(), [Metric::Cpu]);
}

/// The status of a report with this body.
async fn post(agent: &FakeAgent, body: Vec<u8>) -> u16 {
    let mut stream = agent.client.endpoint().connect().await.expect("the head listens");
    let path = "/api/v1/agent/samples";
    let header = format!(
        "POST {path} HTTP/1.1\r\nhost: hostler\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(header.as_bytes()).await.expect("the head reads");
    // The head may answer before it has read everything.
    let _ = stream.write_all(&body).await;
    let mut line = String::new();
    soon("an answer", BufReader::new(stream).read_line(&mut line)).await.expect("the head answers");
    line.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status line")
}

#[tokio::test]
async fn only_agents_report_and_bad_questions_are_refused() {
    let head = TestHead::start().await;
    let mut agent = FakeAgent::start(&head, "n1").await;
    let run = running(&head, &mut agent, &request("a")).await;
    let client = head.client();
    assert!(report(&client, vec![span(None, 1.0)]).await.is_err(), "users cannot report");
    assert_eq!(code(client.node_usage(&"n9".parse().expect("a name"), "").await), "no_such_node");
    let other = TaskId { index: 5, ..run.task };
    assert_eq!(code(client.task_usage(other, "").await), "no_such_task");
    assert_eq!(code(client.task_usage(run.task, "?node_rank=1").await), "no_such_node");
    assert_eq!(code(client.task_usage(run.task, "?points=x").await), "bad_request");
    for query in ["?from=0&to=0", "?from=9223372036854775807", "?to=-9223372036854775808", "?points=0"] {
        let view = client.task_usage(run.task, query).await.expect("an empty answer");
        assert_eq!((view.len, view.series), (0, Vec::new()), "{query}");
    }
}

#[tokio::test]
async fn all_who_watch_share_one_stream_of_the_agent() {
    let head = TestHead::start().await;
    let mut agent = FakeAgent::start(&head, "n1").await;
    let mut watchers = vec![watch(&head).await, watch(&head).await];
    let (stream, run) = loop {
        if let HeadMessage::Watch { stream, run } = agent.next().await.expect("the link is open") {
            break (stream, run);
        }
    };
    assert_eq!(run, None);
    let mut uplink = agent.client.send_stream(&stream, 0, 0);
    uplink.send(Bytes::from_static(b"{\"cpu\":1.5}\n")).await.expect("somebody watches");
    for watcher in &mut watchers {
        let reading = soon("a reading", next_reading(watcher)).await;
        assert_eq!(reading.values, BTreeMap::from([(Metric::Cpu, 1.5)]));
    }
    watchers.clear();
    soon("the stream to end", uplink.closed()).await;
}

/// Opens the live stream of node `n1`.
async fn watch(head: &TestHead) -> BufReader<UnixStream> {
    let mut stream = UnixStream::connect(head.socket()).await.expect("the head listens");
    let request = "GET /api/v1/nodes/n1/usage/live HTTP/1.1\r\nhost: hostler\r\n\r\n";
    stream.write_all(request.as_bytes()).await.expect("the head reads");
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).await.expect("the head answers");
    assert!(line.contains("200"), "{line}");
    reader
}

async fn next_reading(reader: &mut BufReader<UnixStream>) -> Reading {
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).await.expect("the stream is open");
        if let Some(data) = line.strip_prefix("data: ") {
            return serde_json::from_str(data).expect("a reading");
        }
    }
}
