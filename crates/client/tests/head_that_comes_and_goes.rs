//! The client with a head that closes connections, dies, restarts or is not a head: real sockets, scripted answers.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hostler_client::{Client, ClientError, ConnectFailure, Endpoint, Follow, LogEvent, RetryLimits, download};
use hostler_model::{Attempt, Digest, JobId, TaskId};
use hostler_proto::api::{JobAction, Notice, SubmitRequest};
use hostler_proto::link::Output;
use hostler_proto::manifest::{Manifest, ResultManifest};
use hostler_snapshot::{chunk, pack, wire};
use tempfile::TempDir;

/// The scripted answer to one request.
enum Answer {
    /// Sends the answer and keeps the connection open.
    Json(u16, &'static str),
    /// Sends these bytes and closes the connection.
    Raw(Vec<u8>),
}

/// Channel capacity: more requests than any test makes.
const REQUESTS: usize = 100;

/// The remaining answers of a head.
type Script = Mutex<std::vec::IntoIter<Answer>>;

/// A head that follows a script: one answer per request, on any number of connections.
struct Head {
    directory: TempDir,
    requests: Receiver<String>,
    connections: Arc<AtomicUsize>,
}

impl Head {
    fn with(script: Vec<Answer>) -> Self {
        let directory = tempfile::tempdir().expect("temporary directory");
        let (tell, requests) = sync_channel(REQUESTS);
        let listener = UnixListener::bind(socket(directory.path())).expect("a fresh directory");
        let connections = Arc::new(AtomicUsize::new(0));
        let (counter, script) = (Arc::clone(&connections), Arc::new(Mutex::new(script.into_iter())));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                counter.fetch_add(1, Ordering::SeqCst);
                let (script, tell) = (Arc::clone(&script), tell.clone());
                std::thread::spawn(move || serve(stream.expect("listening"), &script, &tell));
            }
        });
        Self { directory, requests, connections }
    }

    fn client(&self) -> Client {
        Client::new(Endpoint::Unix(socket(self.directory.path()))).with_retry_limits(RetryLimits::COMMAND)
    }

    /// The next request, complete.
    fn request(&self) -> String {
        self.requests.recv_timeout(Duration::from_secs(10)).expect("a request comes")
    }
}

fn socket(directory: &Path) -> PathBuf {
    directory.join("head.sock")
}

/// Serves one connection until the script closes it or ends, or the client disconnects.
fn serve(mut stream: UnixStream, script: &Script, tell: &SyncSender<String>) {
    while let Some(request) = read_request(&mut stream) {
        tell.send(request).expect("the test receives requests");
        let mut script = script.lock().expect("the lock is not poisoned");
        match script.next() {
            Some(Answer::Json(status, body)) => {
                let length = body.len();
                write!(stream, "HTTP/1.1 {status} X\r\ncontent-length: {length}\r\n\r\n{body}")
                    .expect("the client reads");
            }
            Some(Answer::Raw(bytes)) => return stream.write_all(&bytes).expect("the client reads"),
            None => return,
        }
        if script.len() == 0 {
            return;
        }
    }
}

/// Headers and body of a request; `None` if the client has closed the connection.
fn read_request(stream: &mut UnixStream) -> Option<String> {
    let mut bytes = Vec::new();
    let mut byte = [0];
    while !bytes.ends_with(b"\r\n\r\n") {
        if stream.read(&mut byte).ok()? == 0 {
            return None;
        }
        bytes.push(byte[0]);
    }
    let head = String::from_utf8(bytes).expect("ASCII");
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    stream.read_exact(&mut body).expect("the body follows");
    Some(head + &String::from_utf8(body).expect("JSON"))
}

/// An answer that ends with the connection. It is complete if `promised` is the length of `body`, else cut off.
fn raw(headers: &str, promised: usize, body: &[u8]) -> Answer {
    let mut bytes = format!("HTTP/1.1 200 OK\r\n{headers}content-length: {promised}\r\n\r\n").into_bytes();
    bytes.extend_from_slice(body);
    Answer::Raw(bytes)
}

fn submission() -> SubmitRequest {
    let spec = serde_json::json!({
        "name": "x",
        "work": { "kind": "command", "argv": ["true"], "directory": "/" },
        "request": { "cpus": 1, "memory_bytes": 1 }
    });
    SubmitRequest { key: "unique".to_owned(), spec: serde_json::from_value(spec).expect("a valid job"), wait_ms: None }
}

const SUBMITTED: &str = r#"{"id":7,"duplicate":false}"#;
const TASK: TaskId = TaskId { job: JobId(7), index: 0 };

#[tokio::test]
async fn submission_is_retried_with_the_same_key_after_a_disconnect() {
    let head = Head::with(vec![Answer::Raw(Vec::new()), raw("", 90, b"{\"id\""), Answer::Json(200, SUBMITTED)]);
    assert_eq!(head.client().submit(&submission()).await.expect("the third attempt succeeds").id, JobId(7));
    for _ in 0..3 {
        let request = head.request();
        assert!(
            request.starts_with("POST /api/v1/jobs HTTP/1.1\r\n") && request.contains("hostler-api: 1\r\n"),
            "{request}"
        );
        assert!(request.contains(r#""key":"unique""#), "{request}");
    }
}

#[tokio::test]
async fn requeue_that_may_have_arrived_is_not_retried() {
    for (index, action, query) in [
        (Some(3), JobAction::Requeue, "?index=3"),
        (Some(3), JobAction::RequeueAll, "?index=3&completed=true"),
        (None, JobAction::RequeueAll, "?completed=true"),
        (None, JobAction::RequeueDependent, "?dependent=true"),
        (None, JobAction::Requeue, ""),
    ] {
        let head = Head::with(vec![Answer::Raw(Vec::new())]);
        let error = head.client().act(JobId(7), index, action).await.expect_err("unknown whether it happened");
        assert!(matches!(error, ClientError::Interrupted { .. }), "{error}");
        assert!(head.request().starts_with(&format!("POST /api/v1/jobs/7/requeue{query} ")), "{query}");
    }
}

#[tokio::test]
async fn calls_share_one_connection() {
    let head = Head::with((0..3).map(|_| Answer::Json(200, "[]")).collect());
    let client = head.client();
    for _ in 0..3 {
        assert!(client.nodes().await.expect("an empty list").is_empty());
    }
    assert_eq!(head.connections.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn calls_wait_for_a_restarted_head() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let path = socket(directory.path());
    let (tell, _requests) = sync_channel(REQUESTS);
    let first = UnixListener::bind(&path).expect("a fresh directory");
    let client = Client::new(Endpoint::Unix(path.clone()));
    let life = std::thread::spawn(move || {
        let script = Mutex::new(vec![Answer::Json(200, "[]"), Answer::Raw(Vec::new())].into_iter());
        serve(first.accept().expect("listening").0, &script, &tell);
        drop(first);
        // The dead head's socket refuses connections until a new head replaces it.
        std::thread::sleep(Duration::from_millis(300));
        std::fs::remove_file(&path).expect("the stale socket exists");
        let second = UnixListener::bind(&path).expect("removed");
        let script = Mutex::new(vec![Answer::Json(200, "[]")].into_iter());
        serve(second.accept().expect("listening").0, &script, &tell);
    });
    client.nodes().await.expect("the first head");
    client.nodes().await.expect("the second head");
    life.join().expect("the task does not panic");
}

#[tokio::test]
async fn first_connection_is_retried_if_the_link_is_down() {
    let free = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = free.local_addr().expect("the socket is bound");
    drop(free);
    let (tell, begins) = sync_channel(REQUESTS);
    let client = Client::new(Endpoint::remote_head(&address.to_string(), Digest([7; 32]), None))
        .with_retry_limits(RetryLimits::COMMAND)
        .watched_by(move |_| {
            let _ = tell.try_send(());
        });
    let link = tokio::task::spawn_blocking(move || {
        begins.recv_timeout(Duration::from_secs(10)).expect("the outage is reported while the client retries");
        let listener = TcpListener::bind(address).expect("the port is still free");
        listener.accept().expect("a retry arrives");
    });
    tokio::select! {
        outcome = link => outcome.expect("the task does not panic"),
        outcome = client.info() => panic!("the client gave up: {outcome:?}"),
    }
}

#[tokio::test]
async fn missing_and_stale_sockets_give_different_errors() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let path = socket(directory.path());
    let failure = async || {
        let client = Client::new(Endpoint::Unix(path.clone())).with_retry_limits(RetryLimits::NONE);
        match client.info().await.expect_err("the socket does not exist") {
            ClientError::Connect { failure, .. } => failure,
            other => panic!("{other}"),
        }
    };
    assert_eq!(failure().await, ConnectFailure::NoSocket);
    drop(UnixListener::bind(&path).expect("a fresh directory"));
    assert_eq!(failure().await, ConnectFailure::StaleSocket);
}

#[tokio::test]
async fn other_servers_give_the_error_not_a_head() {
    for bytes in ["SSH-2.0-OpenSSH_9.2\r\n", "HTTP/1.1 404 Not Found\r\ncontent-length: 4\r\n\r\noops"] {
        let head = Head::with(vec![Answer::Raw(bytes.into())]);
        let error = head.client().info().await.expect_err("not a head");
        assert!(matches!(error, ClientError::NotAHead { .. }), "{bytes}: {error}");
    }
    let head = Head::with(vec![Answer::Json(200, r#"{"something":"else"}"#)]);
    assert!(matches!(head.client().info().await, Err(ClientError::NotAHead { .. })));
}

#[tokio::test]
async fn refusal_keeps_its_code_and_hints() {
    let body = r#"{"code":"no_such_job","message":"there is no job 7","hints":["see hostler jobs --all"]}"#;
    let head = Head::with(vec![Answer::Json(404, body)]);
    let error = head.client().why(JobId(7)).await.expect_err("no such job");
    assert_eq!(error.code(), Some("no_such_job"));
    assert_eq!(
        (error.to_string().as_str(), error.hints()),
        ("there is no job 7", vec!["see hostler jobs --all".to_owned()])
    );
}

/// A running or ended job, with the fields that `Follow` needs.
fn job(state: &str) -> &'static str {
    let text = serde_json::json!({
        "id": 7, "name": "x", "user": "ada", "state": state, "reason": null, "attempt": 1, "nodes": [], "exit_code": null,
        "cpus": 1, "memory_bytes": 1, "array": null,
        "tasks": { "total": 1, "pending": 0, "live": 0, "completed": 0, "failed": 0 },
        "submitted_at": 0, "started_at": null, "ended_at": null, "priority": 0, "requeue": false, "after": [], "command": "x",
        "snapshot": null, "limits": [], "unfetched": 0,
        "tasks_shown": [{ "index": 0, "state": state, "attempt": 1, "node": null, "exit_code": null, "message": null,
            "started_at": null, "ended_at": null, "result": null, "fetched": false, "usage": null }]
    });
    String::leak(text.to_string())
}

#[tokio::test]
async fn follow_resumes_after_a_disconnect_and_restarts_for_a_new_attempt() {
    let head = Head::with(vec![
        raw("hostler-attempt: 1\r\n", 100, b"one"),
        raw("hostler-attempt: 1\r\n", 4, b" two"),
        Answer::Json(200, job("running")),
        raw("hostler-attempt: 2\r\n", 0, b""),
        raw("hostler-attempt: 2\r\n", 5, b"again"),
        Answer::Json(200, job("completed")),
    ]);
    let client = head.client();
    let mut follow = Follow::new(&client, TASK, Output::Stdout);
    let mut events = Vec::new();
    while let Some(event) = follow.next().await.expect("the head comes back") {
        events.push(event);
    }
    let bytes = |text: &'static str| LogEvent::Bytes(text.into());
    assert_eq!(events, [bytes("one"), bytes(" two"), LogEvent::Attempt(Attempt(2)), bytes("again")]);
    let asked: Vec<String> = (0..6).map(|_| head.request().lines().next().expect("a line").to_owned()).collect();
    let from: Vec<&str> = asked.iter().filter_map(|line| line.split_once("from=")?.1.split('&').next()).collect();
    assert_eq!(from, ["0", "3", "7", "0"]);
}

/// If a run ends before the node has opened its output file, the stream is empty.
#[tokio::test]
async fn output_missing_in_the_stream_is_read_from_the_result() {
    let head = Head::with(vec![
        raw("hostler-attempt: 1\r\n", 0, b""),
        Answer::Json(200, job("completed")),
        raw("hostler-attempt: 1\r\n", 9, b"all of it"),
    ]);
    let client = head.client();
    let mut follow = Follow::new(&client, TASK, Output::Stdout);
    let first = follow.next().await.expect("the head answers");
    assert_eq!(first, Some(LogEvent::Bytes("all of it".into())));
    assert_eq!(follow.next().await.expect("the head answers"), None);
    let asked: Vec<String> = (0..3).map(|_| head.request().lines().next().expect("a line").to_owned()).collect();
    assert!(asked[0].contains("follow=true") && !asked[2].contains("follow=true"), "{asked:?}");
}

#[tokio::test]
async fn resumed_download_requests_only_missing_chunks() {
    let manifest = |index: u32| ResultManifest {
        version: 1,
        run: format!("7_{index}.1.1").parse().expect("valid"),
        tree: Manifest::default(),
        removed: Vec::new(),
        stdout: Default::default(),
        stderr: Default::default(),
        setup: Default::default(),
        certificate: None,
        problems: Vec::new(),
    };
    let encoded: Vec<Vec<u8>> = (0..2).map(|index| hostler_proto::encode(&manifest(index))).collect();
    let digests: Vec<Digest> = encoded.iter().map(|bytes| chunk::digest_of(bytes)).collect();
    let frames: Vec<Vec<u8>> = encoded
        .iter()
        .zip(&digests)
        .map(|(it, digest)| pack::frame(digest, &wire::encode(it)).expect("short"))
        .collect();
    let cut = [frames[0].as_slice(), &frames[1][..20]].concat();
    let head = Head::with(vec![raw("", 10_000, &cut), raw("", frames[1].len(), &frames[1])]);

    let found = download::manifests(&head.client(), &[], &digests).await.expect("the second attempt succeeds");
    assert_eq!(found, [manifest(0), manifest(1)]);
    assert!(head.request().contains(&digests[0].to_string()));
    let second = head.request();
    assert!(!second.contains(&digests[0].to_string()) && second.contains(&digests[1].to_string()), "{second}");
}

#[tokio::test]
async fn overlong_event_line_is_an_error() {
    let event = "data: {\"event\":\"job\",\"id\":7,\"state\":\"running\"}\n\n";
    let endless = format!("HTTP/1.1 200 OK\r\n\r\n{event}data: {}", "x".repeat(1 << 20));
    let head = Head::with(vec![Answer::Raw(endless.into_bytes())]);
    let mut events = head.client().events().await.expect("the head answers");
    assert!(matches!(events.next().await, Ok(Some(Notice::Job { id: JobId(7), .. }))), "earlier events are delivered");
    let error = events.next().await.expect_err("the line exceeds the limit");
    assert!(matches!(error, ClientError::NotAHead { .. }), "{error}");
    assert!(error.to_string().contains("an event is longer than 65536 bytes"), "{error}");
}
