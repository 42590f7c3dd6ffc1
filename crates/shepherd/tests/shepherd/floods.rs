//! Tests with malicious clients of a shepherd's socket: the agent gets its answers, memory and descriptors stay
//! bounded, and the run ends normally.

use std::fs;
use std::io::{IoSlice, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::Path;
use std::time::{Duration, Instant};

use hostler_shepherd::journal::JournalContent;
use hostler_shepherd::{Adopted, Attachment, Cause, Shepherd, Status, WindowSize, adopt, terminal_input_frame};
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};

use crate::common::{DEADLINE, directory, eventually, finish, script, start_run};

/// Limit for the memory growth of a shepherd during a flood.
const ROOM_BYTES: u64 = 40 << 20;

/// Timeout for answers to the agent.
const PROMPT: Duration = Duration::from_secs(2);

const STATUS: &[u8] = &[1, 0, 0, 0, 2];

fn connect(directory: &Path) -> UnixStream {
    let record = JournalContent::read(directory).expect("readable").taken.expect("taken");
    let address = SocketAddr::from_abstract_name(&record.socket).expect("a name");
    let stream = UnixStream::connect_addr(&address).expect("the shepherd listens");
    stream.set_read_timeout(Some(DEADLINE)).expect("a socket");
    stream.set_write_timeout(Some(Duration::from_millis(500))).expect("a socket");
    stream
}

/// Writes as many bytes as the other side accepts before it closes or stops reading.
fn pour(stream: &mut UnixStream, bytes: &[u8]) {
    let _ = stream.write_all(bytes);
}

/// Whether the other side has closed the connection, after all of its data.
fn is_closed(stream: &mut UnixStream) -> bool {
    // Unread data turns the close into a reset.
    let read = stream.read_to_end(&mut Vec::new());
    read.is_ok() || read.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionReset)
}

fn resident_bytes(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("the process runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("the file has a line `VmRSS`");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
}

fn descriptors(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).expect("the test's own process runs").count()
}

/// A run that waits to be killed, and the initial memory use of its shepherd.
struct Watched {
    shepherd: Shepherd,
    before: u64,
}

impl Watched {
    fn start(directory: &Path) -> Self {
        let shepherd = start_run(&script(directory, "exec sleep 600"));
        let before = resident_bytes(shepherd.pid());
        Self { shepherd, before }
    }

    fn assert_responsive_and_small(&mut self, what: &str) {
        let asked = Instant::now();
        self.shepherd.status().unwrap_or_else(|error| panic!("{what}: {error}"));
        assert!(asked.elapsed() < PROMPT, "{what}: the agent waited {:?} for an answer", asked.elapsed());
        let grown = resident_bytes(self.shepherd.pid()).saturating_sub(self.before);
        assert!(grown < ROOM_BYTES, "{what}: the shepherd has grown by {} MiB", grown >> 20);
    }

    fn end(mut self, directory: &Path) {
        self.shepherd.kill(Cause::Cancelled).expect("the shepherd runs");
        let record = finish(&mut self.shepherd, directory);
        assert_eq!(
            (record.status, record.cause),
            (Status::Signaled { signal: 9, core_dumped: false }, Some(Cause::Cancelled))
        );
    }
}

fn frame(kind: u8, body: &[u8]) -> Vec<u8> {
    [&(body.len() as u32 + 1).to_le_bytes(), [kind].as_slice(), body].concat()
}

#[test]
fn invalid_frames_close_only_their_connection() {
    let dir = directory();
    let mut watched = Watched::start(dir.path());
    let deep = [b"[".repeat(1 << 20), b"]".repeat(1 << 20)].concat();
    let rubbish: Vec<u8> = (0..100_000_u64).map(|n| (n * n % 251) as u8).collect();
    let bad = [
        ("an empty frame", vec![0; 4]),
        ("a frame of four gigabytes", [vec![0xff; 4], vec![2; 1 << 16]].concat()),
        ("a frame just too long", [((8_u32 << 20) + 1).to_le_bytes().as_slice(), &[7; 1 << 16]].concat()),
        ("an unknown kind", frame(99, b"x")),
        ("an answer in place of a question", frame(64, b"{}")),
        ("a cause that is none", frame(3, b"{\"cause\":7}")),
        ("a million lists in one another", frame(3, &deep)),
        ("a window of a negative size", frame(5, b"{\"rows\":-1,\"columns\":80}")),
        ("plain HTTP", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec()),
        ("rubbish", rubbish),
    ];
    for (what, bytes) in bad {
        let mut stream = connect(dir.path());
        pour(&mut stream, &bytes);
        assert!(is_closed(&mut stream), "{what} closes the connection");
        watched.assert_responsive_and_small(what);
    }
    // Valid frames, but not allowed at this time or without a terminal.
    for (what, bytes) in [("a second launch", frame(1, &[0xff; 64])), ("keys without a terminal", frame(7, b"ls\n"))] {
        let mut stream = connect(dir.path());
        pour(&mut stream, &bytes);
        stream.shutdown(Shutdown::Write).expect("a socket");
        let mut heard = Vec::new();
        stream.read_to_end(&mut heard).expect("the shepherd closes the connection");
        assert_eq!(heard.get(4), Some(&67), "{what} is refused: {heard:?}");
        watched.assert_responsive_and_small(what);
    }
    watched.end(dir.path());
}

#[test]
fn truncated_slow_and_half_closed_connections_do_not_block_others() {
    let dir = directory();
    let mut watched = Watched::start(dir.path());
    // Closed in the middle of a frame.
    let whole = frame(3, br#"{"cause":"cancelled","grace":{"secs":5,"nanos":0}}"#);
    for cut in 0..whole.len() {
        pour(&mut connect(dir.path()), &whole[..cut]);
    }
    watched.assert_responsive_and_small("truncated frames");
    // A query on a half-closed connection is still answered.
    let mut half = connect(dir.path());
    pour(&mut half, STATUS);
    half.shutdown(Shutdown::Write).expect("a socket");
    let mut answer = Vec::new();
    half.read_to_end(&mut answer).expect("an answer and the end");
    assert_eq!(answer.get(4), Some(&66), "a report: {answer:?}");
    // Single bytes of a frame that would be long.
    let mut drippers: Vec<UnixStream> = (0..32).map(|_| connect(dir.path())).collect();
    for byte in [&(8_u32 << 20).to_le_bytes()[..], &[7; 60]].concat() {
        for stream in &mut drippers {
            pour(stream, &[byte]);
        }
        watched.assert_responsive_and_small("a byte at a time");
    }
    // Many launches of maximum size, each without the last byte.
    let launch = [(8_u32 << 20).to_le_bytes().as_slice(), &[1], &vec![1; (8 << 20) - 2]].concat();
    for stream in &mut drippers {
        *stream = connect(dir.path());
        pour(stream, &launch);
    }
    watched.assert_responsive_and_small("launches that never end");
    // Queries whose answers are not read.
    let mut deaf = connect(dir.path());
    pour(&mut deaf, &STATUS.repeat(200_000));
    watched.assert_responsive_and_small("answers that the client does not read");
    drop(drippers);
    watched.end(dir.path());
}

#[test]
fn many_connections_do_not_lock_out_the_next_agent() {
    let dir = directory();
    let mut watched = Watched::start(dir.path());
    let crowd: Vec<UnixStream> = (0..300).map(|_| connect(dir.path())).collect();
    watched.assert_responsive_and_small("three hundred silent connections");
    assert!(descriptors(watched.shepherd.pid()) < 100, "the number of connections is limited");
    // A newly started agent adopts the run.
    let Adopted::Running(mut again) = adopt(dir.path()).expect("readable") else { panic!("the run has ended") };
    assert_eq!(again.status().expect("the shepherd answers").identity, "test");
    drop(again);
    // Connect and disconnect as fast as possible.
    for _ in 0..2000 {
        drop(connect(dir.path()));
    }
    watched.assert_responsive_and_small("connections that open and close");
    drop(crowd);
    watched.end(dir.path());
}

#[test]
fn descriptors_sent_by_clients_are_closed() {
    let dir = directory();
    let mut watched = Watched::start(dir.path());
    let before = descriptors(watched.shepherd.pid());
    for count in (0..200).map(|n| n % 8 + 1) {
        let stream = connect(dir.path());
        let many = vec![stream.as_raw_fd(); count];
        let along = [ControlMessage::ScmRights(&many)];
        let sent = sendmsg::<()>(stream.as_raw_fd(), &[IoSlice::new(STATUS)], &along, MsgFlags::empty(), None);
        // Linux 6.16 and newer refuse them.
        assert!(sent.is_ok() || sent == Err(nix::errno::Errno::EPERM), "{sent:?}");
    }
    watched.assert_responsive_and_small("descriptors sent with frames");
    eventually("all descriptors are closed", || descriptors(watched.shepherd.pid()) <= before);
    watched.end(dir.path());
}

#[test]
fn terminal_that_accepts_no_input_uses_no_memory() {
    let dir = directory();
    let mut launch = script(dir.path(), "stty raw; echo ready; exec sleep 600");
    let size = WindowSize { rows: 24, columns: 80 };
    launch.options.terminal = Some(size);
    let shepherd = start_run(&launch);
    let before = resident_bytes(shepherd.pid());
    let mut watched = Watched { shepherd, before };
    let attached: Vec<Attachment> =
        (0..8).map(|_| Attachment::open(dir.path(), size).expect("the run is attached")).collect();
    let keys = terminal_input_frame(&vec![b'x'; 60 << 10]);
    for attachment in &attached {
        attachment.stream().set_write_timeout(Some(Duration::from_millis(20))).expect("a socket");
        for _ in 0..40 {
            let _ = attachment.stream().write_all(&keys);
        }
    }
    watched.assert_responsive_and_small("input that the job does not read");
    // Clients that are not attached cannot send input.
    for _ in 0..20 {
        let mut stream = connect(dir.path());
        pour(&mut stream, &terminal_input_frame(&vec![b'y'; 4 << 20]));
    }
    watched.assert_responsive_and_small("input from clients that are not attached");
    // Attached clients that violate the protocol are dropped; others stay.
    for (number, bad) in [frame(99, b"x"), frame(6, b"[]"), vec![0; 4]].into_iter().enumerate() {
        let mut stream = connect(dir.path());
        pour(&mut stream, &frame(5, br#"{"rows":24,"columns":80}"#));
        pour(&mut stream, &bad);
        drop(stream);
        watched.assert_responsive_and_small(&format!("rule {number} broken"));
    }
    drop(attached);
    eventually("the shepherd drops these clients", || {
        watched.shepherd.status().expect("the shepherd runs").attached == 0
    });
    watched.end(dir.path());
}
