//! Tests of the relay with a head that sends bytes when the test says so.

use std::path::Path;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::timeout;

use super::*;

/// Deadline, long enough for a loaded machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// A relay with its head's socket, and a session.
struct Scene {
    head: UnixListener,
    port: u16,
    host: String,
    cookie: String,
}

impl Scene {
    async fn new(directory: &Path) -> Self {
        let socket = directory.join("head.sock");
        let head = UnixListener::bind(&socket).expect("a short path");
        let listeners = listen(0).await.expect("a free port");
        let port = listeners.port();
        let session = Arc::new(Session::new(port));
        let host = session.address().trim_start_matches("http://").trim_end_matches('/').to_owned();
        let entry = session.link().split_once(&host).expect("the link has the host").1.to_owned();
        tokio::spawn(Relay::new(Endpoint::Unix(socket), session).serve(listeners));
        let mut scene = Self { head, port, host, cookie: String::new() };
        let answer =
            scene.ask(&format!("GET {entry} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", scene.host)).await;
        let (_, cookie) = answer.split_once("set-cookie: ").expect("a cookie");
        scene.cookie = cookie.split(';').next().expect("split has a first part").to_owned();
        scene
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).await.expect("the relay listens")
    }

    async fn ask(&self, request: &str) -> String {
        let mut stream = self.connect().await;
        stream.write_all(request.as_bytes()).await.expect("the relay reads");
        let mut text = String::new();
        timeout(PATIENCE, stream.read_to_string(&mut text)).await.expect("in time").expect("text");
        text
    }

    /// A request for `path` with the cookie and further header lines.
    fn request(&self, path: &str, more: &str) -> String {
        format!("GET {path} HTTP/1.1\r\nHost: {}\r\nCookie: {}\r\n{more}\r\n", self.host, self.cookie)
    }

    /// The head's side of the next connection, and the request on it.
    #[expect(clippy::disallowed_methods, reason = "a server of the test")]
    async fn accept(&self) -> (UnixStream, String) {
        let (mut stream, _) = timeout(PATIENCE, self.head.accept()).await.expect("in time").expect("a connection");
        let request = read_until(&mut stream, "\r\n\r\n").await;
        (stream, request)
    }
}

async fn read_until(stream: &mut (impl tokio::io::AsyncRead + Unpin), end: &str) -> String {
    let mut text = String::new();
    while !text.contains(end) {
        let byte = timeout(PATIENCE, stream.read_u8()).await.expect("in time").expect("more bytes");
        text.push(char::from(byte));
    }
    text
}

#[tokio::test]
async fn events_pass_at_once_and_connections_are_reused() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let scene = Scene::new(directory.path()).await;
    let mut browser = scene.connect().await;
    browser.write_all(scene.request("/events", "X-Forwarded-For: 1.2.3.4\r\n").as_bytes()).await.expect("open");
    let (mut head, request) = scene.accept().await;
    let lower = request.to_ascii_lowercase();
    assert!(!lower.contains("cookie") && !lower.contains("x-forwarded"), "{request}");
    let start = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
    head.write_all(start.as_bytes()).await.expect("open");
    for number in 0..3 {
        // The next event is sent only after the browser has this one.
        let event = format!("data: {number}\n\n");
        head.write_all(format!("{:x}\r\n{event}\r\n", event.len()).as_bytes()).await.expect("open");
        read_until(&mut browser, &event).await;
    }
    head.write_all(b"0\r\n\r\n").await.expect("open");
    read_until(&mut browser, "0\r\n\r\n").await;
    // The same connection carries the next request of another browser connection.
    let next = tokio::spawn({
        let request = scene.request("/", "Connection: close\r\n");
        let mut other = scene.connect().await;
        async move {
            other.write_all(request.as_bytes()).await.expect("open");
            let mut text = String::new();
            timeout(PATIENCE, other.read_to_string(&mut text)).await.expect("in time").expect("text");
            text
        }
    });
    let request = read_until(&mut head, "\r\n\r\n").await;
    assert!(request.starts_with("GET / "), "{request}");
    head.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nhere").await.expect("open");
    assert!(next.await.expect("no panic").ends_with("here"));
}

#[tokio::test]
async fn web_socket_becomes_one_connection() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let scene = Scene::new(directory.path()).await;
    let mut browser = scene.connect().await;
    let origin = format!("Origin: http://{}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n", scene.host);
    browser.write_all(scene.request("/jobs/1/terminal", &origin).as_bytes()).await.expect("open");
    let (mut head, request) = scene.accept().await;
    assert!(request.to_ascii_lowercase().contains("upgrade: websocket"), "{request}");
    let agreed = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    head.write_all(agreed).await.expect("open");
    read_until(&mut browser, "\r\n\r\n").await;
    browser.write_all(b"ping!").await.expect("open");
    assert!(read_until(&mut head, "!").await.ends_with("ping!"));
    head.write_all(b"pong!").await.expect("open");
    assert!(read_until(&mut browser, "!").await.ends_with("pong!"));
    drop(browser);
    let mut rest = Vec::new();
    timeout(PATIENCE, head.read_to_end(&mut rest)).await.expect("the other side sees the end").expect("readable");
}

#[tokio::test]
async fn browser_that_does_not_read_stops_the_head() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let scene = Scene::new(directory.path()).await;
    let mut browser = scene.connect().await;
    browser.write_all(scene.request("/big", "").as_bytes()).await.expect("open");
    let (mut head, _) = scene.accept().await;
    head.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n").await.expect("open");
    let piece = vec![0; 64 << 10];
    let mut sent = 0;
    // The buffers between both ends take some megabytes, and then no more.
    while timeout(Duration::from_secs(2), head.write_all(&piece)).await.is_ok() {
        sent += piece.len();
        assert!(sent < 100 << 20, "the relay holds {sent} bytes for a browser that reads nothing");
    }
}
