//! Streams end with the session of their reader, and readers that read nothing cost the head no memory.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant};

use hostler_testkit::wait_until;

use crate::http::{Ask, read};
use crate::site::{Site, free_port};

/// Deadline for what a stream must show, and for its end.
const PATIENCE: Duration = Duration::from_secs(30);

/// The answer to a request, while it arrives.
struct Stream {
    name: String,
    connection: TcpStream,
    text: String,
}

impl Stream {
    fn open(ask: &Ask<'_>, port: u16) -> Self {
        let mut connection = TcpStream::connect(("127.0.0.1", port)).expect("the port is open");
        connection.set_read_timeout(Some(Duration::from_millis(100))).expect("a valid timeout");
        connection.write_all(ask.text().as_bytes()).expect("the server reads");
        Self { name: ask.path.to_owned(), connection, text: String::new() }
    }

    /// Reads what has arrived. Returns whether more may follow.
    fn read(&mut self) -> bool {
        let mut piece = [0; 16 << 10];
        match self.connection.read(&mut piece) {
            Ok(0) => false,
            Ok(length) => {
                self.text.push_str(&String::from_utf8_lossy(&piece[..length]));
                true
            }
            Err(error) => matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut),
        }
    }

    fn wait_for(&mut self, words: &str) {
        let end = Instant::now() + PATIENCE;
        while !self.text.contains(words) {
            let is_open = self.read();
            let shown = self.text.chars().take(2_000).collect::<String>();
            assert!(is_open || self.text.contains(words), "{} ended without {words}: {shown}", self.name);
            assert!(Instant::now() < end, "{} does not show {words}: {shown}", self.name);
        }
    }

    /// Waits for the end of the stream. Returns everything that arrived.
    fn end(mut self) -> String {
        let end = Instant::now() + PATIENCE;
        while self.read() {
            assert!(Instant::now() < end, "{} outlives its session", self.name);
        }
        self.text
    }
}

/// A site with a node, a running job that prints, a waiting job, and the admin ada.
fn site(http: &str) -> (Site, String, String) {
    let mut site = Site::start(&["--http", http]);
    site.start_agent();
    site.admin(&["configure", "user", "add", "ada", "--role", "admin"]);
    let run = |words: &[&str]| site.admin(&[&["run", "--detach", "-m", "16M"], words].concat());
    let printing = run(&["--", "sh", "-c", "while :; do echo tick; sleep 0.2; done"]);
    let waiting = run(&["--hold", "--", "true"]);
    wait_until("the job runs", 30, || {
        let job = site.cluster.json(&["--head", &site.socket(), "job", &printing]);
        (job["state"] == "running").then_some(())
    });
    (site, printing, waiting)
}

/// A token of ada, as the value of the header `Authorization`.
fn token(site: &Site, port: u16, host: &str) -> String {
    let cookie = site.sign_in(port, host, &site.invite("ada"));
    format!("Bearer {}", cookie.split_once('=').expect("a cookie").1)
}

#[test]
fn streams_end_with_the_session_token_or_user() {
    let port = free_port();
    let host = &format!("127.0.0.1:{port}");
    let (site, printing, waiting) = site(host);
    let output = format!("/api/v1/jobs/{printing}/tasks/0/output/stdout?follow=true");
    let usage = format!("/api/v1/jobs/{printing}/tasks/0/usage/live");
    let unstarted = format!("/api/v1/jobs/{waiting}/tasks/0/output/stdout?follow=true");
    let cookie = site.sign_in(port, host, &site.invite("ada"));
    let with_token = |path: &str, token: &str| Stream::open(&Ask::get(path, host).with("authorization", token), port);
    // All streams of one caller, each after its first data.
    let open = |token: &str| {
        let mut streams = [(output.as_str(), "tick"), ("/api/v1/events", "200 OK"), (&usage, "data:")]
            .map(|(path, first)| (with_token(path, token), first));
        streams.iter_mut().for_each(|(stream, first)| stream.wait_for(first));
        (streams.map(|(stream, _)| stream), with_token(&unstarted, token))
    };
    let end_all = |(streams, silent): ([Stream; 3], Stream), status: u16| {
        for stream in streams {
            let name = stream.name.clone();
            let text = stream.end();
            // Whoever follows output learns that it is incomplete.
            assert_eq!(text.ends_with("0\r\n\r\n"), name != output, "{name}: {text}");
        }
        let text = silent.end();
        assert_eq!(read(text.as_bytes()).status, status, "{text}");
    };

    // A session: the live updates of the pages, and the API by the same token.
    let bearer = format!("Bearer {}", cookie.split_once('=').expect("a cookie").1);
    let mut live = Stream::open(&Ask::get("/live", host).with("cookie", &cookie), port);
    live.wait_for("event: changed");
    let mut raw = Stream::open(&Ask::get(&output, host).with("authorization", &bearer), port);
    raw.wait_for("tick");
    let others = token(&site, port, host);
    let mut of_other = with_token(&output, &others);
    of_other.wait_for("tick");
    let form = format!("token={}", Ask::get("/", host).with("cookie", &cookie).send(port).field("token"));
    let leave = Ask::post("/sign-out", host, &form).with("cookie", &cookie).with("sec-fetch-site", "same-origin");
    assert_eq!(leave.send(port).status, 200);
    assert!(live.end().ends_with("0\r\n\r\n"), "the browser connects again and learns why");
    raw.end();
    assert_eq!(Ask::get("/live", host).with("cookie", &cookie).send(port).status, 401);
    // Another session of the same user goes on.
    of_other.text.clear();
    of_other.wait_for("tick");
    drop(of_other);

    // A logout by a program.
    let streams = open(&others);
    let logout = Ask { method: "POST", ..Ask::get("/api/v1/logout", host) };
    let logout = logout.with("authorization", &others).with("content-type", "application/json");
    assert_eq!(logout.send(port).status, 204);
    end_all(streams, 401);
    // A lower role: the jobs belong to somebody else.
    let third = token(&site, port, host);
    let streams = open(&third);
    site.admin(&["configure", "user", "role", "ada", "user"]);
    end_all(streams, 403);
    // A removed user.
    site.admin(&["configure", "user", "role", "ada", "admin"]);
    let fourth = token(&site, port, host);
    let streams = open(&fourth);
    site.admin(&["configure", "user", "remove", "ada"]);
    end_all(streams, 401);
}

#[test]
fn visitors_without_sign_in_get_no_stream_of_changes() {
    let port = free_port();
    let host = &format!("127.0.0.1:{port}");
    let site = Site::start(&["--http", host]);
    assert_eq!(Ask::get("/live", host).send(port).status, 401);
    site.admin(&["configure", "setting", "dashboard-public", "yes"]);
    // This status tells a browser not to ask again.
    assert_eq!(Ask::get("/live", host).send(port).status, 204);
}

/// Resident memory of a process, in bytes.
fn memory(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("the process runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("the kernel says it");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
}

#[test]
fn readers_that_read_nothing_are_dropped_and_cost_little_memory() {
    const READERS: usize = 200;
    /// Memory of the head for each reader: buffers of its connection and of the agent's.
    const EACH: u64 = 400 << 10;
    let port = free_port();
    let host = &format!("127.0.0.1:{port}");
    let (site, _, _) = site(host);
    let cookie = site.sign_in(port, host, &site.invite("ada"));
    let flood = site.admin(&["run", "--detach", "-m", "64M", "--", "sh", "-c", "head -c 200M /dev/zero; sleep 1000"]);
    let path = format!("/jobs/{flood}/tasks/0/output/stdout/raw");
    wait_until("the job has printed", 60, || {
        let page = Ask::get(&path, host).with("cookie", &cookie).with("range", "bytes=0-9");
        let mut stream = Stream::open(&page, port);
        stream.wait_for("\r\n\r\n");
        stream.read().then_some(()).filter(|()| stream.text.len() > 4_000)
    });
    let pid = site.head_pid();
    let before = memory(pid);
    let mut readers = Vec::new();
    for number in 0..READERS {
        // Half of them want output, and half want changes.
        let path = if number % 2 == 0 { path.as_str() } else { "/live" };
        let mut reader = TcpStream::connect(("127.0.0.1", port)).expect("the port is open");
        reader.write_all(Ask::get(path, host).with("cookie", &cookie).text().as_bytes()).expect("the head reads");
        readers.push(reader);
    }
    let began = Instant::now();
    let connections = || {
        let lines =
            Command::new("ss").args(["-Htn", "state", "established", "sport", "=", &format!(":{port}")]).output();
        String::from_utf8_lossy(&lines.expect("ss is installed").stdout).lines().count()
    };
    let mut most = before;
    wait_until("the head drops the readers of output", 60, || {
        most = most.max(memory(pid));
        (began.elapsed() > Duration::from_secs(5) && connections() <= READERS / 2).then_some(())
    });
    let (time, grown) = (began.elapsed(), most.saturating_sub(before));
    assert!(time < Duration::from_secs(45), "{time:?}");
    assert!(grown < READERS as u64 * EACH, "the head has grown by {} MiB", grown >> 20);
    // The head still answers.
    assert_eq!(Ask::get("/", host).with("cookie", &cookie).send(port).status, 200);
    drop(readers);
}
