//! Unexpected clients: garbage, other protocols, other API versions, and clients without a certificate.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hostler_client::{Client, Endpoint, tls};
use hostler_proto::api::ErrorBody;
use hostler_proto::join::JoinCode;
use rcgen::KeyPair;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream, UnixStream};

use crate::agent::{FakeAgent, Identity, csr, pinned};
use crate::harness::{TestHead, request, soon};
use crate::jobs::code;

/// Sends `bytes`, and reads until the peer closes.
async fn knock(mut stream: impl AsyncRead + AsyncWrite + Unpin, bytes: &[u8]) -> Vec<u8> {
    // The head may close before it has read everything.
    let _ = stream.write_all(bytes).await;
    let mut answer = Vec::new();
    let _ = soon("the head to close", stream.read_to_end(&mut answer)).await;
    answer
}

async fn port(head: &TestHead) -> TcpStream {
    TcpStream::connect(head.address()).await.expect("the head listens")
}

async fn socket(path: &Path) -> UnixStream {
    UnixStream::connect(path).await.expect("the head listens")
}

/// Sends one request over the Unix socket. Returns the headers and the body as text.
async fn http(head: &TestHead, text: &str) -> (String, String) {
    let answer = knock(socket(&head.socket()).await, text.as_bytes()).await;
    let answer = String::from_utf8(answer).expect("text");
    let (headers, body) = answer.split_once("\r\n\r\n").expect("headers, then a body");
    (headers.to_owned(), body.to_owned())
}

#[tokio::test]
async fn other_protocols_are_harmless() {
    let head = TestHead::start().await;
    let http = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    let answer = String::from_utf8(knock(port(&head).await, http).await).expect("text");
    assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("Hostler head"), "{answer}");
    assert!(knock(port(&head).await, b"\0\xff\0\xff garbage").await.is_empty());
    // A TLS handshake that turns into garbage gets at most an alert.
    assert!(knock(port(&head).await, &[0x16, 3, 1, 0, 5, 1, 0, 0, 1, 9, 9, 9]).await.len() < 64);
    // TLS on the Unix socket.
    let answer = knock(socket(&head.socket()).await, &[0x16, 3, 1, 0, 5, 1, 0, 0, 1, 3, b'\n', b'\n']).await;
    assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 400"), "{answer:?}");
    // The HTTP/2 preface followed by garbage. Without a timer, hyper would panic here.
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff\xff\xff\xff\xff\xff\xff";
    knock(socket(&head.socket()).await, preface).await;
    head.client().submit(&request("a")).await.expect("the head continues");
}

#[tokio::test]
async fn silent_stranger_is_disconnected() {
    let head = TestHead::start().await;
    let mut silent = port(&head).await;
    let mut answer = Vec::new();
    let read = silent.read_to_end(&mut answer);
    let read = tokio::time::timeout(Duration::from_secs(20), read).await.expect("closed after ten seconds");
    assert!(read.is_err() || answer.is_empty());
}

#[tokio::test]
async fn excess_strangers_are_disconnected_and_nodes_stay() {
    let head = TestHead::start().await;
    let identity = Identity::join(&head, "n1").await;
    let agent = FakeAgent::link(&head, &identity, Vec::new()).await;
    agent.client.missing_blobs(Vec::new()).await.expect("nodes are served");
    let mut crowd = Vec::new();
    for _ in 0..600 {
        crowd.push(port(&head).await);
    }
    // Connections above the limit replace the oldest ones, which are closed immediately.
    let mut byte = [0];
    let shed = tokio::time::timeout(Duration::from_secs(5), crowd[0].read(&mut byte)).await;
    assert!(matches!(shed, Ok(Ok(0) | Err(_))), "{shed:?}");
    agent.client.missing_blobs(Vec::new()).await.expect("connected nodes are not affected");
    head.client().submit(&request("a")).await.expect("users are not affected");
    drop(crowd);
    let back = async {
        while identity.endpoint(&head).connect().await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    soon("the node to connect again", back).await;
}

/// Silent connections from two addresses without nodes.
async fn silent_crowd(head: &TestHead) -> Vec<TcpStream> {
    let mut crowd = Vec::new();
    for number in 0..=511_u16 {
        let outside = TcpSocket::new_v4().expect("a socket");
        outside.bind(([127, 0, 0, 2 + (number % 2) as u8], 0).into()).expect("a loopback address");
        crowd.push(outside.connect(head.address()).await.expect("the head listens"));
    }
    crowd
}

#[tokio::test]
async fn silent_connections_do_not_block_agents_or_joining_machines() {
    let mut head = TestHead::start().await;
    let identity = Identity::join(&head, "n1").await;
    for restarted in [false, true] {
        if restarted {
            // The restart has cleared the known networks of nodes.
            head.kill();
            head.start_again().await;
        }
        let crowd = silent_crowd(&head).await;
        let agent = FakeAgent::link(&head, &identity, Vec::new()).await;
        agent.client.missing_blobs(Vec::new()).await.expect("nodes are served");
        Identity::join(&head, if restarted { "n3" } else { "n2" }).await;
        drop(crowd);
    }
}

#[tokio::test]
async fn client_with_another_api_version_gets_a_clear_error() {
    let head = TestHead::start().await;
    let (headers, body) =
        http(&head, "GET /api/v1/info HTTP/1.1\r\nHost: x\r\nhostler-api: 99\r\nConnection: close\r\n\r\n").await;
    assert!(headers.starts_with("HTTP/1.1 400") && headers.contains("hostler-api: 1"), "{headers}");
    let body: ErrorBody = serde_json::from_str(&body).expect("an error");
    assert_eq!(body.code, "api_version");
    assert!(body.message.contains("99") && body.message.contains("version 1"), "{body:?}");
    assert!(body.hints[0].contains("upgrade the head"), "{body:?}");
}

#[tokio::test]
async fn wrong_paths_methods_and_bodies_are_clear_errors() {
    let head = TestHead::start().await;
    let cases = [
        ("GET /api/v1/nothing", "404", "no_such_route"),
        ("GET /api/elsewhere", "404", "no_such_route"),
        ("DELETE /api/v1/jobs", "405", "wrong_method"),
        ("GET /api/v1/jobs/abc", "400", "bad_request"),
        ("GET /api/v1/jobs?limit=many", "400", "bad_request"),
        ("GET /api/v1/jobs?state=odd", "400", "bad_request"),
        ("POST /api/v1/jobs", "415", "bad_request"),
    ];
    for (line, status, code) in cases {
        let request = format!("{line} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        let (headers, body) = http(&head, &request).await;
        assert!(headers.starts_with(&format!("HTTP/1.1 {status}")), "{line}: {headers}");
        let body: ErrorBody = serde_json::from_str(&body).unwrap_or_else(|error| panic!("{line}: {error}: {body}"));
        assert_eq!(body.code, code, "{line}");
    }
}

#[tokio::test]
async fn client_without_a_certificate_can_only_join() {
    let head = TestHead::start().await;
    let node = "n1".parse().expect("a valid name");
    let code_text = head.client().invite(&node).await.expect("permitted").code;
    let invited: JoinCode = code_text.parse().expect("a join code");
    let stranger = pinned(&invited);
    assert_eq!(code(stranger.info().await), "unknown_caller");
    assert_eq!(code(stranger.missing_blobs(Vec::new()).await), "unknown_caller");
    let key = KeyPair::generate().expect("a key can be made");
    let (secret, node) = ("guess".to_owned(), Some(node));
    let mut request = hostler_proto::api::JoinRequest { secret, node, machine: None, csr: csr(&key), busy_as: None };
    assert_eq!(code(stranger.join(&request).await), "not_invited");
    request.secret.clone_from(&invited.secret);
    stranger.join(&request).await.expect("invited");
    stranger.join(&request).await.expect("a retry succeeds");
    request.csr = csr(&KeyPair::generate().expect("a key can be made"));
    assert_eq!(code(stranger.join(&request).await), "not_invited");
}

#[tokio::test]
async fn users_and_agents_are_limited_to_their_own_routes() {
    let head = TestHead::start().await;
    let agent = FakeAgent::start(&head, "n1").await;
    assert_eq!(code(agent.client.info().await), "users_only");
    assert_eq!(code(agent.client.submit(&request("a")).await), "users_only");
    agent.client.missing_blobs(Vec::new()).await.expect("agents may ask for blobs");
    let (headers, body) =
        http(&head, "PUT /api/v1/agent/streams/x HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await;
    assert!(headers.starts_with("HTTP/1.1 403") && body.contains("agents_only"), "{headers}\n{body}");
}

#[tokio::test]
async fn certificate_of_another_cluster_is_rejected() {
    let (mine, theirs) = (TestHead::start().await, TestHead::start().await);
    let identity = Identity::join(&theirs, "n1").await;
    let Endpoint::Tls { config, server_name, .. } = identity.endpoint(&theirs) else { panic!("TLS") };
    let endpoint = Endpoint::Tls { address: mine.address().to_string().into(), server_name, config };
    assert!(endpoint.connect().await.is_err(), "the agent does not trust a head of another cluster");
    // The head does not trust the agent either, even if the agent trusts any head.
    let node = "n1".parse().expect("a valid name");
    let invited: JoinCode = mine.client().invite(&node).await.expect("invited").code.parse().expect("a join code");
    let config = tls::pinned(invited.authority);
    let address = mine.address().to_string().into();
    let server_name = ServerName::try_from("127.0.0.1").expect("an address");
    let trusting = Client::new(Endpoint::Tls { address, server_name, config: Arc::clone(&config) });
    assert_eq!(code(trusting.info().await), "unknown_caller");
}
