//! Tests the API against its description: schemathesis sends valid and invalid requests and checks the responses.

use std::path::PathBuf;
use std::time::Duration;

use hostler_testkit::program;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, UnixStream};
use tokio::process::Command;
use tokio::time::timeout;

use super::harness::TestHead;

/// Hooks and configuration of schemathesis.
const HOOKS: &str = include_str!("schemathesis/hooks.py");
const CONFIGURATION: &str = include_str!("schemathesis/schemathesis.toml");

/// Excluded paths: they open WebSockets, never end, or stop the head.
const LEFT_OUT: &str = "/(attach|forward|link|listen|terminal|events|shutdown)$";

/// The test usually takes half a minute.
const PATIENCE: Duration = Duration::from_secs(240);

#[tokio::test]
async fn api_responses_match_description() {
    let schemathesis = program("schemathesis", "`pip install schemathesis` into a virtual environment");
    let head = TestHead::start().await;
    let api = format!("http://{}/api/v1", relay(head.path("head.sock")).await);
    let directory = tempfile::tempdir().expect("a temporary directory can be created");
    std::fs::write(directory.path().join("hooks.py"), HOOKS).expect("the directory is writable");
    std::fs::write(directory.path().join("schemathesis.toml"), CONFIGURATION).expect("the directory is writable");
    let description = format!("{api}/openapi.json");
    let run = Command::new(schemathesis)
        .args(["run", &description, "--url", &api, "--exclude-path-regex", LEFT_OUT, "--no-color"])
        .current_dir(directory.path())
        .kill_on_drop(true)
        .output();
    let run = timeout(PATIENCE, run).await.expect("schemathesis ends in time").expect("schemathesis can be started");
    let (said, errors) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    assert!(run.status.success(), "{said}{errors}");
    assert!(said.contains("Stateful"), "schemathesis follows links: {said}");
}

/// Forwards connections to a TCP port to a Unix socket.
#[expect(clippy::disallowed_methods, reason = "a server of the test")]
async fn relay(socket: PathBuf) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let address = listener.local_addr().expect("the listener is bound");
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let socket = socket.clone();
            tokio::spawn(async move {
                let mut head = UnixStream::connect(socket).await.expect("the head listens");
                // Either side may close a connection at any time.
                let _ = copy_bidirectional(&mut client, &mut head).await;
            });
        }
    });
    address
}
