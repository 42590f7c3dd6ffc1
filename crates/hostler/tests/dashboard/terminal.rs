//! Who may open the WebSocket of a terminal.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use hostler_testkit::{SharedCluster, wait_until};

use crate::HOSTLER;
use crate::http::{Ask, read};
use crate::relay::{Relay, cluster};

/// Two accounts without processes of their own.
const ADA: &str = "games";
const BOB: &str = "news";

const HANDSHAKE: [(&str, &str); 4] = [
    ("connection", "Upgrade"),
    ("upgrade", "websocket"),
    ("sec-websocket-version", "13"),
    ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
];

/// A handshake. Its answer may leave the connection open.
fn handshake<'a>(path: &'a str, host: &'a str, cookie: &'a str, origin: Option<&'a str>) -> Ask<'a> {
    let ask = Ask {
        headers: [("host", host), ("cookie", cookie)].into_iter().chain(HANDSHAKE).collect(),
        ..Ask::get(path, host)
    };
    match origin {
        Some(origin) => ask.with("origin", origin),
        None => ask,
    }
}

/// The status of the answer to a handshake, and the connection.
fn open(ask: &Ask<'_>, port: u16) -> (u16, TcpStream) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("the port is open");
    stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a valid timeout");
    let text = ask.text().replace("content-length: 0\r\n", "");
    stream.write_all(text.as_bytes()).expect("the request is sent");
    let (mut bytes, mut byte) = (Vec::new(), [0]);
    while !bytes.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|count| count == 1) {
        bytes.push(byte[0]);
    }
    (read(&bytes).status, stream)
}

#[test]
fn terminal_opens_only_for_pages_of_the_dashboard() {
    let cluster = cluster();
    let job = cluster.ok(&["run", "--detach", "--pty", "-m", "32M", "--", "cat"]);
    cluster.wait_for_state(&job, "running");
    let relay = Relay::start(&cluster, &["--no-open"], &[]);
    let cookie = relay.enter();
    let (host, port) = (relay.host(), relay.port());
    let own = format!("http://{host}");
    let path = format!("/jobs/{job}/tasks/0/terminal/socket?rows=24&columns=80");
    let neighbour = format!("http://127.0.0.1:{port}");
    for origin in
        [None, Some("null"), Some("http://evil.example"), Some("http://127.0.0.1:1"), Some(neighbour.as_str())]
    {
        assert_eq!(open(&handshake(&path, host, &cookie, origin), port).0, 403, "{origin:?}");
    }
    assert_eq!(open(&handshake(&path, host, "", Some(&own)), port).0, 401, "without the session");
    let no_terminal = cluster.ok(&["run", "--detach", "--hold", "-m", "32M", "--", "true"]);
    let other = format!("/jobs/{no_terminal}/tasks/0/terminal/socket?rows=24&columns=80");
    assert_eq!(open(&handshake(&other, host, &cookie, Some(&own)), port).0, 409);

    let (status, mut stream) = open(&handshake(&path, host, &cookie, Some(&own)), port);
    assert_eq!(status, 101);
    // A masked binary message with the mask 0: `hello` and a new line. The terminal echoes it.
    stream.write_all(b"\x82\x86\0\0\0\0hello\n").expect("the connection is open");
    let mut said = Vec::new();
    let mut piece = [0; 256];
    while !String::from_utf8_lossy(&said).contains("hello") {
        let count = stream.read(&mut piece).expect("the terminal answers");
        assert!(count > 0, "the connection closed: {said:?}");
        said.extend_from_slice(&piece[..count]);
    }
}

#[test]
fn terminal_of_another_user_is_refused() {
    let uid = |user: &str| nix::unistd::User::from_name(user).expect("readable").expect("on every Debian").uid.as_raw();
    let cluster = SharedCluster::up(HOSTLER, &[]);
    let job = cluster.ok(ADA, &["run", "--detach", "--pty", "-c", "1", "-m", "32M", "--", "cat"]);
    wait_until("the job to run", 60, || (cluster.job(&job)["state"] == "running").then_some(()));
    let socket = cluster.path("head.sock");
    let status = |user: &str, path: &str| {
        let mut command = Command::new("curl");
        command.args(["-sS", "--http1.1", "--max-time", "3", "-o", "/dev/null", "-w", "%{http_code}", "--unix-socket"]);
        command.arg(&socket).args(["-H", "Origin: http://localhost"]);
        for (name, value) in HANDSHAKE {
            command.arg("-H").arg(format!("{name}: {value}"));
        }
        command.arg(format!("http://localhost/jobs/{job}/tasks/0/terminal{path}"));
        let output = command.uid(uid(user)).gid(uid(user)).current_dir("/").output().expect("curl is installed");
        String::from_utf8(output.stdout).expect("text")
    };
    let join = "/socket?rows=24&columns=80";
    assert_eq!(status(BOB, join), "403");
    assert_eq!(status(ADA, join), "101");
}
