//! Unread responses: the head's memory stays bounded, other clients are served, and the connections are closed.

use std::time::{Duration, Instant};

use hostler_client::{Client, Endpoint, Follow, LogEvent, RecordFilter, Stream};
use hostler_model::{Digest, JobId, TaskId, Work};
use hostler_proto::api::{Fetched, JobAction, JobPage, RecordPage, SubmitRequest};
use hostler_proto::link::{Output, RunStatus};
use hostler_proto::users::RELAY_HEADER;
use hostler_snapshot::chunk::digest_of;
use hostler_snapshot::{pack, wire};
use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;

use crate::agent::{FakeAgent, Identity, completed, result};
use crate::harness::{PATIENCE, TestHead, request, soon};

/// Memory limit while two users request large responses and do not read them. Each user has 80 MiB for responses, and
/// connections have buffers.
const ROOM_BYTES: u64 = 192 << 20;

/// Time by which the head must close a connection whose client reads nothing for 30 seconds.
const CLOSED_BY: Duration = Duration::from_secs(60);

pub(crate) const EVE: &str = "4711:eve";
pub(crate) const BOB: &str = "4712:bob";

const ALL_JOBS: &str = "/jobs?limit=1000&commands=true";

/// A request as text. If `user` is given, it comes from this user on a node.
fn asking(user: Option<&str>, what: &str, then: &str) -> String {
    let user = user.map(|user| format!("{RELAY_HEADER}: {user}\r\n")).unwrap_or_default();
    format!("GET /api/v1{what} HTTP/1.1\r\nHost: x\r\nConnection: {then}\r\n{user}\r\n")
}

/// Sends a request and does not read the response.
async fn ask(stream: &mut (impl AsyncWrite + Unpin), user: Option<&str>, what: &str) {
    let asked = soon("the head to read a request", stream.write_all(asking(user, what, "keep-alive").as_bytes())).await;
    asked.expect("the head listens");
}

/// Sends a request and reads the whole response within the usual deadline.
pub(crate) async fn ask_and_read(node: &Endpoint, user: &str, what: &str) -> String {
    let mut stream = node.connect().await.expect("the head listens");
    stream.write_all(asking(Some(user), what, "close").as_bytes()).await.expect("the head listens");
    let mut heard = Vec::new();
    soon(what, stream.read_to_end(&mut heard)).await.expect("an answer");
    let heard = String::from_utf8_lossy(&heard).into_owned();
    assert!(heard.starts_with("HTTP/1.1 200"), "{}", heard.chars().take(500).collect::<String>());
    heard
}

/// Submits a job with almost a megabyte of arguments.
async fn submit_long_job(node: &Endpoint, user: &str, key: &str) {
    let mut job = request(key);
    job.spec.work = Work::command(["echo", &"x".repeat(900 << 10)], "/");
    submit_as(node, user, &job).await;
}

/// Submits a job of this user.
pub(crate) async fn submit_as(node: &Endpoint, user: &str, job: &SubmitRequest) {
    let body = serde_json::to_string(job).expect("plain data");
    let mut stream = node.connect().await.expect("the head listens");
    let text = format!(
        "POST /api/v1/jobs HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{RELAY_HEADER}: {user}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    soon("the head to read a submission", stream.write_all(text.as_bytes())).await.expect("the head listens");
    let mut heard = Vec::new();
    soon("a submission", stream.read_to_end(&mut heard)).await.expect("an answer");
    let heard = String::from_utf8_lossy(&heard);
    assert!(heard.starts_with("HTTP/1.1 200"), "{heard}");
}

/// Uploads a blob of the size of a large folder's manifest.
async fn upload_long_blob(head: &TestHead) -> Digest {
    let blob: Vec<u8> = (0..4_000_000_u32).flat_map(u32::to_le_bytes).collect();
    let digest = digest_of(&blob);
    let pack = pack::frame(&digest, &wire::encode(&blob)).expect("the chunk fits into a pack");
    head.client().send_pack(pack.into()).await.expect("taken");
    digest
}

/// Waits until the head's memory stops growing, or exceeds its limit by far.
async fn settled_peak(head: &TestHead, before: u64) -> u64 {
    let began = Instant::now();
    let (mut peak, mut since) = (head.peak_bytes(), Instant::now());
    while since.elapsed() < Duration::from_secs(2) && peak - before < 2 * ROOM_BYTES {
        assert!(began.elapsed() < PATIENCE, "memory does not stop growing");
        tokio::time::sleep(Duration::from_millis(20)).await;
        let now = head.peak_bytes();
        if now > peak + (1 << 20) {
            (peak, since) = (now, Instant::now());
        }
    }
    head.peak_bytes()
}

#[tokio::test]
async fn unread_answers_of_one_user_take_bounded_memory_and_others_are_served() {
    let head = TestHead::start().await;
    let node = Identity::join(&head, "n1").await.endpoint(&head);
    let blob = upload_long_blob(&head).await;
    for number in 0..20 {
        submit_long_job(&node, EVE, &format!("long {number}")).await;
    }
    let before = head.peak_bytes();
    let mut deaf: Vec<Stream> = Vec::new();
    for _ in 0..64 {
        let mut stream = node.connect().await.expect("the head listens");
        ask(&mut stream, Some(EVE), ALL_JOBS).await;
        deaf.push(stream);
    }
    let mut deaf_admins = Vec::new();
    for _ in 0..64 {
        let mut stream = UnixStream::connect(head.socket()).await.expect("the head listens");
        ask(&mut stream, None, &format!("/blobs/{blob}")).await;
        deaf_admins.push(stream);
    }
    let grown = settled_peak(&head, before).await - before;
    assert!(grown < ROOM_BYTES, "the head has grown by {} MiB", grown >> 20);
    // Large responses wait for memory, small ones do not.
    let began = Instant::now();
    ask_and_read(&node, BOB, ALL_JOBS).await;
    ask_and_read(&node, EVE, "/info").await;
    soon("a small request of the admin", head.client().info()).await.expect("a response");
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    // Clients that disconnect release their memory.
    drop((deaf, deaf_admins));
    ask_and_read(&node, EVE, ALL_JOBS).await;
}

#[tokio::test]
async fn jobs_with_long_command_lines_are_listed_in_pages_of_bounded_size() {
    let head = TestHead::start().await;
    let node = Identity::join(&head, "n1").await.endpoint(&head);
    for number in 0..16 {
        submit_long_job(&node, EVE, &format!("long {number}")).await;
    }
    // A mix of waiting jobs and ended ones, which are read from the store.
    for id in [1, 2, 3, 4, 6, 7, 8, 9, 11, 12, 13] {
        head.client().act(JobId(id), None, JobAction::Cancel).await.expect("cancelled");
    }
    for query in ["/jobs?limit=1000", ALL_JOBS] {
        let (mut seen, mut pages, mut before) = (Vec::new(), 0, String::new());
        loop {
            let page = ask_and_read(&node, EVE, &format!("{query}{before}")).await;
            let (_, body) = page.split_once("\r\n\r\n").expect("an answer");
            assert!(body.len() < 6 << 20, "a page has {} bytes", body.len());
            let page: JobPage = serde_json::from_str(body).expect("a page");
            assert!(pages > 0 || page.total == 16);
            seen.extend(page.jobs.iter().map(|job| job.id.0));
            pages += 1;
            match page.next {
                Some(next) => before = format!("&before={next}"),
                None => break,
            }
        }
        assert_eq!(seen, (1..=16).rev().collect::<Vec<u64>>(), "{query}");
        assert!(pages > 1, "{query}");
    }
    let ids: Vec<String> = (1..=16).map(|id: u64| id.to_string()).collect();
    let named = pages_of_records(&node, &format!("jobs={}", ids.join(","))).await;
    assert_eq!(named.concat(), (1..=16).collect::<Vec<u64>>());
    let all = pages_of_records(&node, "live=false").await;
    assert_eq!(all.concat(), (1..=16).rev().collect::<Vec<u64>>());
    assert!(named.len() > 1 && all.len() > 1, "{named:?} {all:?}");
}

/// Reads all pages of a list of records. Returns the ids of the jobs in each page.
async fn pages_of_records(node: &Endpoint, query: &str) -> Vec<Vec<u64>> {
    let (mut pages, mut before) = (Vec::new(), String::new());
    loop {
        let page = ask_and_read(node, EVE, &format!("/records?{query}{before}")).await;
        let (_, body) = page.split_once("\r\n\r\n").expect("an answer");
        assert!(body.len() < 10 << 20, "a page has {} bytes", body.len());
        let page: RecordPage = serde_json::from_str(body).expect("a page");
        pages.push(page.records.iter().map(|job| job.id.0).collect());
        match page.next {
            Some(next) => before = format!("&before={next}"),
            None => return pages,
        }
    }
}

#[tokio::test]
async fn records_of_large_arrays_are_listed_in_pages_of_bounded_length() {
    const TASKS: usize = 6_000;
    let head = TestHead::start().await;
    let node = Identity::join(&head, "n1").await.endpoint(&head);
    let client = head.client();
    for number in 0..3 {
        let mut array = request(&format!("array {number}"));
        array.spec.name = format!("Array-{number}").into();
        array.spec.array = Some(format!("1-{TASKS}").parse().expect("an array"));
        let id = client.submit(&array).await.expect("accepted").id;
        client.act(id, None, JobAction::Cancel).await.expect("cancelled");
    }
    // Each page ends with the job that has the page's ten thousandth task.
    assert_eq!(pages_of_records(&node, "jobs=3,1,2,1,99").await.concat(), [1, 2, 3]);
    assert_eq!(pages_of_records(&node, "jobs=3,1,2").await, [vec![1, 2], vec![3]]);
    assert_eq!(pages_of_records(&node, "jobs=1,2").await, [vec![1, 2]]);
    assert_eq!(pages_of_records(&node, "live=false").await, [vec![3, 2], vec![1]]);
    assert_eq!(pages_of_records(&node, "ended_since=0").await, [vec![3, 2], vec![1]]);
    assert_eq!(pages_of_records(&node, "jobs=1,2,3&live=true").await, [vec![1, 2, 3]]);
    assert_eq!(pages_of_records(&node, "ended_since=0&name=Array-1").await, [vec![2]]);
    assert_eq!(pages_of_records(&node, "name=Array-1").await, [vec![2]]);
    assert_eq!(pages_of_records(&node, "jobs=1,2,3&name=Array-1").await, [vec![2]]);
    assert_eq!(pages_of_records(&node, "ended_since=0&name=Array").await, [vec![0_u64; 0]], "a part of a name");
    // The client follows the pages.
    let filter = RecordFilter { jobs: [1, 2, 3].map(JobId).to_vec(), ..RecordFilter::default() };
    let records = client.records(&filter).await.expect("a list");
    let lengths: Vec<(u64, usize)> = records.iter().map(|job| (job.id.0, job.tasks.len())).collect();
    assert_eq!(lengths, [(1, TASKS), (2, TASKS), (3, TASKS)]);
}

#[tokio::test]
async fn all_results_of_a_long_array_are_listed_in_order() {
    const TASKS: u32 = 800;
    let head = TestHead::start().await;
    let mut agent = FakeAgent::start(&head, "n1").await;
    let client = head.client();
    let mut array = request("array");
    array.spec.array = Some(format!("0-{}", TASKS - 1).parse().expect("an array"));
    let id = client.submit(&array).await.expect("accepted").id;
    let single = client.submit(&request("single")).await.expect("accepted").id;
    let mut left = TASKS + 1;
    while left > 0 {
        for launched in agent.next_launch().await.runs {
            agent.report(launched.run, completed(launched.run, b"hello\n")).await;
            left -= 1;
        }
    }
    soon("the end of the jobs", async {
        for id in [id, single] {
            while !client.job(id, 0).await.expect("the job exists").summary.state.is_ended() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    })
    .await;
    let all = [(id, TASKS), (single, 1)];
    let wanted: Vec<(JobId, u32)> = all.iter().flat_map(|(id, tasks)| (0..*tasks).map(|index| (*id, index))).collect();
    let listed = async |unfetched, jobs: &[JobId]| -> Vec<(JobId, u32)> {
        let page = client.results(unfetched, jobs).await.expect("a list");
        page.results.iter().map(|result| (result.job, result.index.unwrap_or(0))).collect()
    };
    assert_eq!(listed(false, &[]).await, wanted);
    assert_eq!(listed(false, &[single, id]).await, wanted);
    let fetched = Fetched { indices: format!("0-{}", TASKS - 3).parse().expect("indices"), attempt: None };
    client.fetched(id, &fetched).await.expect("noted");
    assert_eq!(listed(true, &[]).await, [(id, TASKS - 2), (id, TASKS - 1), (single, 0)]);
    assert_eq!(listed(true, &[id]).await, [(id, TASKS - 2), (id, TASKS - 1)]);
    client.fetched(single, &Fetched { indices: "0".parse().expect("an index"), attempt: None }).await.expect("noted");
    assert_eq!(listed(true, &[single]).await, []);
}

/// Waits until the head closes a connection that is never read.
async fn closed(what: &str, mut stream: impl AsyncRead + AsyncWrite + Unpin) -> Duration {
    let began = Instant::now();
    // Empty lines between requests are ignored. Sending one fails after the peer has closed.
    while stream.write_all(b"\r\n").await.is_ok() && stream.flush().await.is_ok() {
        assert!(began.elapsed() < CLOSED_BY, "{what}: the head has not closed the connection");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    began.elapsed()
}

/// Waits until the head closes an HTTP/2 connection whose client answers pings but reads no response. Returns the time.
async fn closed_in_http2(endpoint: Endpoint) -> Duration {
    let Endpoint::Tls { address, server_name, config } = endpoint else { panic!("the endpoint has no TLS") };
    let mut config = rustls::ClientConfig::clone(&config);
    config.alpn_protocols = vec![b"h2".to_vec()];
    let stream = TcpStream::connect(address.get()).await.expect("the head listens");
    let stream = TlsConnector::from(std::sync::Arc::new(config)).connect(server_name, stream).await.expect("TLS");
    let mut http = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
    // The default window has room for the whole response.
    let http = http.initial_stream_window_size(1 << 10).handshake(TokioIo::new(stream));
    let (mut sender, connection) = http.await.expect("HTTP/2");
    let connection = tokio::spawn(connection);
    let uri = "https://x/api/v1/openapi.json";
    let request = hyper::Request::get(uri).body(Empty::<Bytes>::new()).expect("a request");
    let response = soon("the head of an answer", sender.send_request(request)).await.expect("an answer");
    let began = Instant::now();
    let outcome = tokio::time::timeout(CLOSED_BY, connection).await;
    assert!(outcome.is_ok(), "HTTP/2: the head has not closed the connection");
    assert!(response.into_body().collect().await.is_err(), "incomplete response");
    began.elapsed()
}

/// Runs a task that ends with this output.
async fn ended_with(head: &TestHead, identity: &Identity, stdout: &[u8]) -> TaskId {
    let mut agent = FakeAgent::link(head, identity, Vec::new()).await;
    head.client().submit(&request("prints")).await.expect("accepted");
    let run = agent.next_launch().await.runs[0].run;
    let (manifest, blobs) = result(run, stdout);
    for blob in &blobs {
        let pack = pack::frame(&digest_of(blob), &wire::encode(blob)).expect("the chunk fits into a pack");
        agent.client.send_pack(pack.into()).await.expect("taken");
    }
    agent.client.commit_snapshot(&manifest).await.expect("complete");
    let RunStatus::Ended(mut end) = completed(run, stdout) else { panic!("an ending") };
    end.result.as_mut().expect("the end has a result").inline.clear();
    agent.report(run, RunStatus::Ended(end)).await;
    let ended = head.client().job_when_ended(run.task.job, 1, PATIENCE).await.expect("a response");
    assert!(ended.summary.state.is_ended());
    run.task
}

#[tokio::test]
async fn connection_of_a_client_that_never_reads_is_closed_and_an_idle_stream_is_not() {
    let head = TestHead::start().await;
    let identity = Identity::join(&head, "n1").await;
    let node = identity.endpoint(&head);
    let blob = upload_long_blob(&head).await;
    // A user reads long output in a pager and stops after the first page.
    let output: Vec<u8> = (0..2_000_000_u32).flat_map(u32::to_le_bytes).collect();
    let task = ended_with(&head, &identity, &output).await;
    let client = Client::new(Endpoint::Unix(head.socket()));
    let mut pager = Follow::up_to_now(&client, task, Output::Stdout);
    let Ok(Some(LogEvent::Bytes(first))) = soon("a page", pager.next()).await else { panic!("output") };
    let mut events = UnixStream::connect(head.socket()).await.expect("the head listens");
    ask(&mut events, None, "/events").await;
    let mut local = UnixStream::connect(head.socket()).await.expect("the head listens");
    ask(&mut local, None, &format!("/blobs/{blob}")).await;
    let mut remote = node.connect().await.expect("the head listens");
    // The agent may read any blob.
    ask(&mut remote, None, &format!("/blobs/{blob}")).await;
    let times = tokio::join!(closed("the socket", local), closed("TLS", remote), closed_in_http2(node));
    let least = Duration::from_secs(20);
    assert!([times.0, times.1, times.2].iter().all(|time| *time > least), "closed before the timeout: {times:?}");
    // The pager's connection is closed too. The client opens another one for the rest.
    let mut seen = first.to_vec();
    while let Some(event) =
        soon("the rest of the output", pager.next()).await.expect("the stream continues on a new connection")
    {
        let LogEvent::Bytes(bytes) = event else { panic!("the job has only one attempt") };
        seen.extend_from_slice(&bytes);
    }
    assert!(seen == output, "{} bytes of {}", seen.len(), output.len());
    // The event stream was not read either, but it had little data to send.
    head.client().submit(&request("news")).await.expect("accepted");
    let mut heard = String::new();
    while !heard.contains("\"event\":\"job\"") {
        let mut piece = [0; 4096];
        let length = soon("the event", events.read(&mut piece)).await.expect("the event stream is open");
        assert!(length > 0, "the stream was closed: {heard}");
        heard.push_str(&String::from_utf8_lossy(&piece[..length]));
    }
}
