//! Floods, slow clients and oversized messages: the head still serves honest clients, and its memory stays bounded.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use hostler_client::{Terminal, TerminalMessage, tls};
use hostler_model::{Attempt, Epoch, JobId, RunId, TaskId, WindowSize};
use hostler_proto::api::JobAction;
use hostler_proto::join::JoinCode;
use hostler_proto::manifest::{Content, Manifest, ResultManifest, VERSION};
use hostler_proto::users::RELAY_HEADER;
use hostler_snapshot::chunk::digest_of;
use hostler_snapshot::{pack, wire};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream, UnixStream};
use tokio_rustls::TlsConnector;

use crate::agent::{FakeAgent, Identity};
use crate::harness::{PATIENCE, TestHead, request, soon};
use crate::jobs::code;
use crate::output::{next_stream, running};

/// Memory limit for the head during a flood.
const ROOM_BYTES: u64 = 96 << 20;

/// Deadline for responses to honest clients.
const PROMPT: Duration = Duration::from_secs(1);

/// Observes a head during an attack.
struct Watch<'a> {
    head: &'a TestHead,
    before: u64,
}

impl<'a> Watch<'a> {
    async fn over(head: &'a TestHead) -> Self {
        head.client().submit(&request("before")).await.expect("the head works");
        Self { head, before: head.resident_bytes() }
    }

    /// Asserts that honest clients are served in time and that memory is bounded. Retries once, because the machine may
    /// be busy.
    async fn all_is_well(&self, what: &str) {
        let began = Instant::now();
        loop {
            let asked = Instant::now();
            soon(what, self.head.client().info()).await.unwrap_or_else(|error| panic!("{what}: {error}"));
            if asked.elapsed() < PROMPT {
                break;
            }
            assert!(began.elapsed() < PATIENCE, "{what}: honest clients are not served in time");
        }
        let grown = self.head.resident_bytes().saturating_sub(self.before);
        assert!(grown < ROOM_BYTES, "{what}: the head has grown by {} MiB", grown >> 20);
    }
}

async fn socket(head: &TestHead) -> UnixStream {
    UnixStream::connect(head.socket()).await.expect("the head listens")
}

/// Writes until all is written, the peer closes, or the peer stops reading.
async fn pour(stream: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) {
    let _ = tokio::time::timeout(Duration::from_secs(5), stream.write_all(bytes)).await;
}

/// Reads until the peer closes or stops sending.
async fn hear(stream: &mut (impl AsyncRead + Unpin)) -> Vec<u8> {
    let mut heard = Vec::new();
    let mut piece = [0; 4096];
    while let Ok(Ok(length @ 1..)) = tokio::time::timeout(Duration::from_secs(3), stream.read(&mut piece)).await {
        heard.extend_from_slice(&piece[..length]);
    }
    heard
}

#[tokio::test]
async fn oversized_headers_and_bodies_are_rejected() {
    let head = TestHead::start().await;
    let watch = Watch::over(&head).await;
    let long_header = format!("GET /api/v1/info HTTP/1.1\r\nHost: x\r\nX: {}\r\n\r\n", "x".repeat(8 << 20));
    let many_headers = format!("GET /api/v1/info HTTP/1.1\r\nHost: x\r\n{}\r\n", "X: y\r\n".repeat(100_000));
    let huge_body = "POST /api/v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n\
                     Content-Length: 99999999999\r\n\r\n{";
    let chunk = format!("10000\r\n{}\r\n", " ".repeat(0x10000));
    let endless_body = format!(
        "POST /api/v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n{}",
        chunk.repeat(200)
    );
    let cases = [(long_header, "431"), (many_headers, "431"), (huge_body.to_owned(), "413"), (endless_body, "413")];
    for (text, status) in cases {
        let mut stream = socket(&head).await;
        let (mut read, mut write) = stream.split();
        let (heard, ()) = tokio::join!(hear(&mut read), pour(&mut write, text.as_bytes()));
        let heard = String::from_utf8_lossy(&heard).into_owned();
        assert!(heard.is_empty() || heard.starts_with(&format!("HTTP/1.1 {status}")), "{}: {heard}", &text[..40]);
        watch.all_is_well(&text[..40]).await;
    }
    // Truncated requests.
    for cut in [1, 20, 45, 90, huge_body.len()] {
        let mut stream = socket(&head).await;
        pour(&mut stream, &huge_body.as_bytes()[..cut.min(huge_body.len())]).await;
    }
    watch.all_is_well("truncated requests").await;
}

#[tokio::test]
async fn short_body_cannot_request_unbounded_memory() {
    let head = TestHead::start().await;
    let watch = Watch::over(&head).await;
    let mut body = serde_json::to_value(request("bomb")).expect("plain data");
    body["spec"]["array"] = "0-1000000:2,".repeat(80_000).into();
    let body = body.to_string();
    let text = format!(
        "POST /api/v1/jobs HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut stream = socket(&head).await;
    pour(&mut stream, text.as_bytes()).await;
    let heard = String::from_utf8_lossy(&hear(&mut stream).await).into_owned();
    assert!(heard.starts_with("HTTP/1.1 4"), "{heard}");
    assert!(heard.len() < 4096, "the response must not repeat the array");
    watch.all_is_well("an array of forty billion").await;
}

#[tokio::test]
async fn thousands_of_half_open_connections_are_harmless() {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).expect("every process has a limit");
    setrlimit(Resource::RLIMIT_NOFILE, most.min(8192), most).expect("up to the hard limit");
    let head = TestHead::start().await;
    let identity = Identity::join(&head, "n1").await;
    let agent = FakeAgent::link(&head, &identity, Vec::new()).await;
    let watch = Watch::over(&head).await;
    let mut crowd = Vec::new();
    for number in 0..2000 {
        let mut stream = socket(&head).await;
        pour(&mut stream, &b"POST /api/v1/jobs HTTP/1.1\r\nHost: x\r\n"[..number % 37]).await;
        crowd.push(stream);
    }
    let mut strangers = Vec::new();
    for _ in 0..1000 {
        // All connections come from one address without nodes.
        let outside = TcpSocket::new_v4().expect("a socket");
        outside.bind(([127, 0, 0, 2], 0).into()).expect("a loopback address");
        let mut stream = outside.connect(head.address()).await.expect("the head listens");
        pour(&mut stream, &[0x16, 3, 1, 2, 0, 1]).await;
        strangers.push(stream);
    }
    watch.all_is_well("half-open connections").await;
    agent.client.missing_blobs(Vec::new()).await.expect("nodes are served too");
}

#[tokio::test]
async fn clients_that_never_read_use_little_memory() {
    let head = TestHead::start().await;
    let watch = Watch::over(&head).await;
    let mut deaf = Vec::new();
    for _ in 0..50 {
        let mut stream = socket(&head).await;
        let many = "GET /api/v1/openapi.json HTTP/1.1\r\nHost: x\r\n\r\n".repeat(500);
        let _ = tokio::time::timeout(Duration::from_millis(50), stream.write_all(many.as_bytes())).await;
        deaf.push(stream);
    }
    watch.all_is_well("unread responses").await;
    for _ in 0..50 {
        let mut stream = socket(&head).await;
        pour(&mut stream, b"GET /api/v1/events HTTP/1.1\r\nHost: x\r\n\r\n").await;
        deaf.push(stream);
    }
    for number in 0..500 {
        head.client().submit(&request(&format!("noise {number}"))).await.expect("the head continues");
    }
    watch.all_is_well("unread events").await;
}

#[tokio::test]
async fn uploads_that_are_too_slow_lose_their_slot() {
    let head = TestHead::start().await;
    let watch = Watch::over(&head).await;
    let mut drippers = tokio::task::JoinSet::new();
    for _ in 0..16 {
        let mut stream = socket(&head).await;
        drippers.spawn(async move {
            let head = b"POST /api/v1/blobs HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n";
            if stream.write_all(head).await.is_err() {
                return;
            }
            let (mut read, mut write) = stream.split();
            let drip = async {
                while write.write_all(b"x").await.is_ok() {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
            };
            tokio::select! { _ = hear_first(&mut read) => {}, () = drip => {} }
        });
    }
    watch.all_is_well("dripping uploads").await;
    // Slow uploads time out one after the other, so an honest upload waits for a limited time.
    let began = Instant::now();
    let client = head.client();
    let honest = client.send_pack(bytes::Bytes::new());
    tokio::time::timeout(Duration::from_secs(50), honest).await.expect("a free slot").expect("an empty pack");
    assert!(began.elapsed() < Duration::from_secs(50));
    drippers.shutdown().await;
}

#[tokio::test]
async fn slow_uploads_of_one_user_do_not_delay_others() {
    let head = TestHead::start().await;
    let node = Identity::join(&head, "n1").await.endpoint(&head);
    let mut drippers = Vec::new();
    for _ in 0..32 {
        let mut stream = node.connect().await.expect("the head listens");
        let start = format!(
            "POST /api/v1/blobs HTTP/1.1\r\nHost: x\r\n{RELAY_HEADER}: 4711:eve\r\nContent-Length: 1000000\r\n\r\nx"
        );
        pour(&mut stream, start.as_bytes()).await;
        drippers.push(stream);
    }
    let began = Instant::now();
    let client = head.client();
    soon("an upload of another user", client.send_pack(bytes::Bytes::new())).await.expect("an empty pack");
    soon("a submission of another user", client.submit(&request("honest"))).await.expect("accepted");
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    drop(drippers);
}

#[tokio::test]
async fn invented_user_names_of_one_node_do_not_delay_other_nodes() {
    let head = TestHead::start().await;
    let nodes = [Identity::join(&head, "n1").await.endpoint(&head), Identity::join(&head, "n2").await.endpoint(&head)];
    let upload = async |node: usize, user: &str, start: &[u8]| {
        let mut stream = nodes[node].connect().await.expect("the head listens");
        let head = format!("POST /api/v1/blobs HTTP/1.1\r\nHost: x\r\n{RELAY_HEADER}: {user}\r\nContent-Length: ");
        pour(&mut stream, &[head.as_bytes(), start].concat()).await;
        stream
    };
    // More than the limit for all users, each with its own name.
    let mut drippers = Vec::new();
    for number in 0..80 {
        drippers.push(upload(0, &format!("{}:eve{number}", 5000 + number), b"1000000\r\n\r\nx").await);
    }
    let began = Instant::now();
    let mut honest = upload(1, "4712:bob", b"0\r\n\r\n").await;
    let mut answer = [0; 10];
    soon("an upload through another node", honest.read_exact(&mut answer)).await.expect("a response");
    assert_eq!(&answer, b"HTTP/1.1 2");
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    drop(drippers);
}

#[tokio::test]
async fn one_user_cannot_use_all_requests() {
    let head = TestHead::start().await;
    let nodes = [Identity::join(&head, "n1").await.endpoint(&head), Identity::join(&head, "n2").await.endpoint(&head)];
    let id = head.client().submit(&request("waits")).await.expect("accepted").id;
    let ask = async |number: usize, user: &str, wait_ms: u32| {
        let mut stream = nodes[number % 2].connect().await.expect("the head listens");
        let text =
            format!("GET /api/v1/jobs/{id}?wait_ms={wait_ms} HTTP/1.1\r\nHost: x\r\n{RELAY_HEADER}: {user}\r\n\r\n");
        pour(&mut stream, text.as_bytes()).await;
        stream
    };
    let mut waiting = Vec::new();
    for number in 0..1024 {
        waiting.push(ask(number, "4711:eve", 300_000).await);
    }
    // The head may read a later request before the last ones, so several may be needed until one is refused.
    let refused = async {
        loop {
            let mut stream = ask(0, "4711:eve", 300_000).await;
            match tokio::time::timeout(Duration::from_millis(500), first_of(&mut stream)).await {
                Ok(answer) => return answer,
                Err(_) => waiting.push(stream),
            }
        }
    };
    let refused = soon("a refusal", refused).await;
    assert!(refused.starts_with("HTTP/1.1 429"), "{refused}");
    assert!(refused.contains("too_many_requests") && refused.contains("eve has 1024 unfinished requests"), "{refused}");
    let answer = first_of(&mut ask(1, "4712:bob", 1).await).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[tokio::test]
async fn reads_of_ended_jobs_by_one_user_are_not_served_before_those_of_others() {
    /// Three times as many as the head has threads for blocking work.
    const READS: usize = 48;
    let head = TestHead::start().await;
    let node = Identity::join(&head, "n1").await.endpoint(&head);
    let client = head.client();
    // Each task is a range of its own, so decoding the stored job takes long.
    let mut array = request("array");
    array.spec.array = Some("0-19998:2".parse().expect("an array"));
    let large = client.submit(&array).await.expect("accepted").id;
    let small = client.submit(&request("small")).await.expect("accepted").id;
    for id in [large, small] {
        client.act(id, None, JobAction::Cancel).await.expect("cancelled");
    }
    let mut streams = Vec::new();
    for _ in 0..=READS {
        streams.push(node.connect().await.expect("the head listens"));
    }
    let mut honest = streams.pop().expect("the last of several connections");
    let answered = Arc::new(AtomicUsize::new(0));
    let mut reads = Vec::new();
    for mut stream in streams {
        let text = format!("GET /api/v1/jobs/{large}/why HTTP/1.1\r\nHost: x\r\n{RELAY_HEADER}: 4711:eve\r\n\r\n");
        pour(&mut stream, text.as_bytes()).await;
        let answered = Arc::clone(&answered);
        reads.push(tokio::spawn(async move {
            let answer = first_of(&mut stream).await;
            answered.fetch_add(1, Ordering::Relaxed);
            answer
        }));
    }
    let before = answered.load(Ordering::Relaxed);
    let text = format!("GET /api/v1/jobs/{small} HTTP/1.1\r\nHost: x\r\n{RELAY_HEADER}: 4712:bob\r\n\r\n");
    pour(&mut honest, text.as_bytes()).await;
    let answer = first_of(&mut honest).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let earlier = answered.load(Ordering::Relaxed) - before;
    assert!(earlier < READS / 2, "{earlier} of {READS} reads of another user were served first");
    for read in reads {
        let answer = read.await.expect("the task does not panic");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
}

/// The first bytes of an answer; a short answer is whole.
async fn first_of(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut bytes = vec![0; 4096];
    let length = soon("an answer", stream.read(&mut bytes)).await.expect("the connection is open");
    String::from_utf8_lossy(&bytes[..length]).into_owned()
}

#[tokio::test]
async fn manifest_that_expands_in_memory_is_rejected_before_it_is_decoded() {
    const LENGTH: u32 = 8_000_000;
    let head = TestHead::start().await;
    let watch = Watch::over(&head).await;
    let before = head.peak_bytes();
    let run = RunId { task: TaskId { job: JobId(1), index: 0 }, attempt: Attempt(1), epoch: Epoch(1) };
    let honest = ResultManifest {
        version: VERSION,
        run,
        tree: Manifest { version: VERSION, entries: Vec::new() },
        removed: Vec::new(),
        stdout: Content::default(),
        stderr: Content::default(),
        setup: Content::default(),
        certificate: None,
        problems: Vec::new(),
    };
    // Replaces the last, empty list by a list of eight million empty words, one byte each.
    let mut bytes = hostler_proto::encode(&honest);
    assert_eq!(bytes.pop(), Some(0x90), "an empty list");
    bytes.push(0xdd);
    bytes.extend(LENGTH.to_be_bytes());
    bytes.resize(bytes.len() + LENGTH as usize, 0xa0);
    let digest = digest_of(&bytes);
    let pack = pack::frame(&digest, &wire::encode(&bytes)).expect("the chunk fits into a pack");
    assert!(pack.len() < 1 << 20, "a small upload");
    let client = head.client();
    client.send_pack(pack.into()).await.expect("the digest is correct");
    let commits = (0..2).map(|_| client.commit_snapshot(&digest));
    for outcome in soon("two commits", futures_util::future::join_all(commits)).await {
        assert_eq!(code(outcome), "bad_manifest");
    }
    // The head may hold the encoded bytes of both commits. Decoded, both would take 400 MB.
    let grown = head.peak_bytes().saturating_sub(before);
    assert!(grown < 2 * ROOM_BYTES, "the head has grown by {} MiB", grown >> 20);
    watch.all_is_well("a manifest of eight million words").await;
}

async fn hear_first(stream: &mut (impl AsyncRead + Unpin)) -> bool {
    let mut byte = [0];
    matches!(stream.read(&mut byte).await, Ok(1))
}

fn frame(kind: u8, flags: u8, stream: u32, body: &[u8]) -> Vec<u8> {
    let length = (body.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), body].concat()
}

/// `GET https://x/`, in compressed headers that every peer knows.
const GET: [u8; 6] = [0x82, 0x87, 0x84, 0x41, 0x01, b'x'];

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const WINDOW: u8 = 8;
const CONTINUATION: u8 = 9;

#[tokio::test]
async fn floods_of_http2_frames_are_harmless() {
    let head = TestHead::start().await;
    let code = head.client().invite(&"n1".parse().expect("a valid name")).await.expect("invited").code;
    let code: JoinCode = code.parse().expect("a join code");
    let mut config: ClientConfig = ClientConfig::clone(&tls::pinned(code.authority));
    config.alpn_protocols = vec![b"h2".to_vec()];
    let connector = TlsConnector::from(Arc::new(config));
    let watch = Watch::over(&head).await;

    let streams = |each: &dyn Fn(u32) -> Vec<u8>| (0..20_000).flat_map(|n| each(2 * n + 1)).collect::<Vec<u8>>();
    let no_window = frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]);
    let floods: [(&str, Vec<u8>); 7] = [
        ("rapid reset", streams(&|id| [frame(HEADERS, 5, id, &GET), frame(RESET, 0, id, &[0, 0, 0, 8])].concat())),
        ("streams without end", streams(&|id| frame(HEADERS, 4, id, &GET))),
        ("no window", [no_window, streams(&|id| frame(HEADERS, 5, id, &GET))].concat()),
        (
            "headers that never end",
            [frame(HEADERS, 0, 1, &GET), streams(&|_| frame(CONTINUATION, 0, 1, &[0x40, 1, b'y', 1, b'z']))].concat(),
        ),
        ("pings", streams(&|_| frame(PING, 0, 0, &[0; 8]))),
        ("settings", streams(&|_| frame(SETTINGS, 0, 0, &[]))),
        (
            "empty frames and windows that overflow",
            [
                frame(HEADERS, 4, 1, &GET),
                streams(&|_| frame(DATA, 0, 1, &[])),
                frame(WINDOW, 0, 0, &[0x7f, 0xff, 0xff, 0xff]),
                frame(WINDOW, 0, 0, &[0x7f, 0xff, 0xff, 0xff]),
                vec![0xff; 100],
            ]
            .concat(),
        ),
    ];
    for (what, flood) in floods {
        let stream = TcpStream::connect(head.address()).await.expect("the head listens");
        let name = ServerName::try_from("127.0.0.1").expect("an address");
        let mut stream = connector.connect(name, stream).await.expect("the head speaks TLS");
        let preface = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".as_slice(), &frame(SETTINGS, 0, 0, &[])].concat();
        pour(&mut stream, &preface).await;
        pour(&mut stream, &flood).await;
        watch.all_is_well(what).await;
    }
}

#[tokio::test]
async fn websocket_with_wrong_lengths_is_closed() {
    let head = TestHead::start().await;
    let identity = Identity::join(&head, "n1").await;
    let watch = Watch::over(&head).await;
    let nested = [vec![0x91; 1 << 20], vec![0xc0]].concat();
    let hidden = [vec![0x81, 0xa1, b'x'], vec![0x91; 1 << 20], vec![0xc0]].concat();
    let lies = [
        ("a frame of four exabytes", masked(2, 1 << 62, b"x")),
        ("a frame of a negative length", masked(2, u64::MAX, b"x")),
        ("a frame just too long", masked(2, (4 << 20) + 1, &[0; 1 << 16])),
        ("a control frame with a length", masked(9, 1 << 20, &[0; 1 << 16])),
        ("an unknown kind", masked(3, 1, b"x")),
        ("a million lists in one another", masked(2, nested.len() as u64, &nested)),
        ("nested lists in an ignored field", masked(2, hidden.len() as u64, &hidden)),
        ("fragments that never end", masked(0, 1, b"x")),
    ];
    for (what, lie) in lies {
        let mut stream = identity.endpoint(&head).connect().await.expect("the head listens");
        let upgrade = b"GET /api/v1/agent/link HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                        Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
        pour(&mut stream, upgrade).await;
        let mut answer = [0; 12];
        soon("the upgrade", stream.read_exact(&mut answer)).await.expect("an answer");
        assert_eq!(&answer, b"HTTP/1.1 101");
        pour(&mut stream, &lie).await;
        let mut rest = Vec::new();
        let _ = soon(what, stream.read_to_end(&mut rest)).await;
        watch.all_is_well(what).await;
    }
}

/// A client's WebSocket frame, masked with zeroes.
fn masked(opcode: u8, length: u64, body: &[u8]) -> Vec<u8> {
    [&[0x80 | opcode, 0xff], length.to_be_bytes().as_slice(), &[0; 4], body].concat()
}

/// A job with a terminal, on an agent that may be silent for a long time.
async fn with_terminal(head: &TestHead) -> (FakeAgent, TaskId) {
    for (setting, value) in [("lost-after", "30d"), ("down-after", "1d"), ("suspect-after", "20h")] {
        head.client().change_setting(setting, Some(value)).await.expect("a valid value");
    }
    let mut agent = FakeAgent::start(head, "n1").await;
    let mut submission = request("pty");
    submission.spec.pty = Some(WindowSize { rows: 24, columns: 80 });
    let task = running(head, &mut agent, &submission).await.task;
    (agent, task)
}

/// A raw client connection that is attached to a job's terminal, and the agent's end of it.
async fn attached(head: &TestHead, agent: &mut FakeAgent, task: TaskId) -> (UnixStream, Terminal) {
    let mut stream = socket(head).await;
    let upgrade = format!(
        "GET /api/v1/jobs/{}/tasks/{}/attach?rows=24&columns=80 HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\n\
         Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        task.job, task.index
    );
    pour(&mut stream, upgrade.as_bytes()).await;
    let request = soon("the head to ask the agent", next_stream(agent)).await;
    let terminal = agent.client.stream_terminal(&request.stream).await.expect("a reader waits");
    let mut answer = [0; 12];
    soon("the upgrade", stream.read_exact(&mut answer)).await.expect("an answer");
    assert_eq!(&answer, b"HTTP/1.1 101");
    (stream, terminal)
}

#[tokio::test]
async fn terminals_survive_invalid_messages() {
    let head = TestHead::start().await;
    let (mut agent, task) = with_terminal(&head).await;
    let watch = Watch::over(&head).await;

    let lies = [
        ("keys of four exabytes", masked(2, 1 << 62, b"x")),
        ("keys just too long", masked(2, (1 << 20) + 1, &[0; 1 << 16])),
        ("an unknown kind", masked(3, 1, b"x")),
        ("fragments that never end", masked(0, 1, b"x")),
        ("invalid UTF-8 text", masked(1, 2, &[0xff, 0xfe])),
        ("a control frame with a length", masked(9, 200, &[0; 200])),
        ("no WebSocket at all", b"GET / HTTP/1.1\r\n\r\n".repeat(1000)),
    ];
    for (what, lie) in lies {
        let (mut stream, mut terminal) = attached(&head, &mut agent, task).await;
        pour(&mut stream, &lie).await;
        // Both ends are closed; nothing is relayed.
        let _ = soon(what, stream.read_to_end(&mut Vec::new())).await;
        while let Ok(Some(message)) = soon(what, terminal.next()).await {
            assert!(
                matches!(&message, TerminalMessage::Output(bytes) if bytes.len() <= 1 << 20),
                "{what}: {message:?}"
            );
        }
        watch.all_is_well(what).await;
    }

    // Invalid sizes are relayed unchanged or dropped, and the terminal continues.
    let (mut stream, mut terminal) = attached(&head, &mut agent, task).await;
    for text in [r#"{"rows":99999999,"columns":-1}"#, "{", "[[[[", r#"{"rows":7,"columns":8}"#] {
        pour(&mut stream, &masked(1, text.len() as u64, text.as_bytes())).await;
    }
    let size = soon("the only good size", terminal.next()).await.expect("open");
    assert_eq!(size, Some(TerminalMessage::Resize(WindowSize { rows: 7, columns: 8 })));
    // One byte at a time.
    for byte in masked(2, 3, b"ls\n") {
        pour(&mut stream, &[byte]).await;
    }
    let keys = soon("the keys", terminal.next()).await.expect("open");
    assert_eq!(keys, Some(TerminalMessage::Output(bytes::Bytes::from_static(b"ls\n"))));
    // Closing one direction in the middle of a frame ends the terminal, for the agent too.
    pour(&mut stream, &masked(2, 100, b"half")).await;
    stream.shutdown().await.expect("a socket");
    assert!(!matches!(soon("the end", terminal.next()).await, Ok(Some(_))), "an incomplete message must not arrive");
    watch.all_is_well("half of a message").await;
}

#[tokio::test]
async fn unread_terminals_use_no_memory() {
    let head = TestHead::start().await;
    let (mut agent, task) = with_terminal(&head).await;
    let watch = Watch::over(&head).await;
    let mut deaf = Vec::new();
    for _ in 0..8 {
        let (mut stream, mut terminal) = attached(&head, &mut agent, task).await;
        // Resize messages whose replies are not read, and a job that prints endlessly.
        pour(&mut stream, &masked(9, 4, b"ping").repeat(20_000)).await;
        let piece = bytes::Bytes::from(vec![b'x'; 64 << 10]);
        let print = async { while terminal.send(piece.clone()).await.is_ok() {} };
        let _ = tokio::time::timeout(Duration::from_millis(500), print).await;
        deaf.push((stream, terminal));
    }
    watch.all_is_well("unread terminals").await;
    // Many clients that attach, and an agent that does not respond.
    let upgrade = format!(
        "GET /api/v1/jobs/{}/tasks/0/attach HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        task.job
    );
    let mut crowd = Vec::new();
    for _ in 0..300 {
        let mut stream = socket(&head).await;
        pour(&mut stream, upgrade.as_bytes()).await;
        crowd.push(stream);
    }
    watch.all_is_well("300 attach requests").await;
    drop((crowd, deaf));
    watch.all_is_well("all clients disconnected").await;
}
