//! Whatever is done to a shepherd's socket by those whom it listens to: its agent is answered meanwhile, its memory and descriptors
//! stay bounded, and the run ends as it would have.

use std::fs;
use std::io::{IoSlice, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::Path;
use std::time::{Duration, Instant};

use hostler_shepherd::{
    Adopted, Attachment, Cause, RunningRecord, Shepherd, Status, WindowSize, adopt, terminal_input_frame,
};
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};

use crate::common::{DEADLINE, directory, eventually, finish, script, start_run};

/// What a flood may cost a shepherd while it lasts.
const ROOM_BYTES: u64 = 40 << 20;

/// The agent is answered within this time.
const PROMPT: Duration = Duration::from_secs(2);

const STATUS: &[u8] = &[1, 0, 0, 0, 2];

fn connect(directory: &Path) -> UnixStream {
    let record = RunningRecord::read(directory).expect("readable").expect("taken");
    let address = SocketAddr::from_abstract_name(&record.socket).expect("a name");
    let stream = UnixStream::connect_addr(&address).expect("the shepherd listens");
    stream.set_read_timeout(Some(DEADLINE)).expect("a socket");
    stream.set_write_timeout(Some(Duration::from_millis(500))).expect("a socket");
    stream
}

/// As much of it as the other side takes before it closes or stops reading.
fn pour(stream: &mut UnixStream, bytes: &[u8]) {
    let _ = stream.write_all(bytes);
}

/// Whether the other side has closed it, after whatever it had to say.
fn is_closed(stream: &mut UnixStream) -> bool {
    // What it has not read makes the end a reset.
    let read = stream.read_to_end(&mut Vec::new());
    read.is_ok() || read.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionReset)
}

fn resident_bytes(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it lives");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("the kernel tells");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
}

fn descriptors(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).expect("it lives, and is ours").count()
}

/// A run that waits to be killed, and how much memory its shepherd had before anything was done to it.
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

    fn all_is_well(&mut self, what: &str) {
        let asked = Instant::now();
        self.shepherd.status().unwrap_or_else(|error| panic!("{what}: {error}"));
        assert!(asked.elapsed() < PROMPT, "{what}: the agent waits {:?}", asked.elapsed());
        let grown = resident_bytes(self.shepherd.pid()).saturating_sub(self.before);
        assert!(grown < ROOM_BYTES, "{what}: the shepherd has grown by {} MiB", grown >> 20);
    }

    fn end(mut self, directory: &Path) {
        self.shepherd.kill(Cause::Cancelled).expect("there");
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
fn garbage_and_frames_that_are_too_long_close_their_connection_only() {
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
        watched.all_is_well(what);
    }
    // Well formed, but not now, and not like this.
    for (what, bytes) in [("a second launch", frame(1, &[0xff; 64])), ("keys without a terminal", frame(7, b"ls\n"))] {
        let mut stream = connect(dir.path());
        pour(&mut stream, &bytes);
        stream.shutdown(Shutdown::Write).expect("a socket");
        let mut heard = Vec::new();
        stream.read_to_end(&mut heard).expect("it closes");
        assert_eq!(heard.get(4), Some(&67), "{what} is refused: {heard:?}");
        watched.all_is_well(what);
    }
    watched.end(dir.path());
}

#[test]
fn truncated_slow_and_half_closed_connections_hold_up_nobody() {
    let dir = directory();
    let mut watched = Watched::start(dir.path());
    // Closed in the middle of a frame.
    let whole = frame(3, br#"{"cause":"cancelled","grace":{"secs":5,"nanos":0}}"#);
    for cut in 0..whole.len() {
        pour(&mut connect(dir.path()), &whole[..cut]);
    }
    watched.all_is_well("truncated frames");
    // A question, and then nothing more will be said: the answer still comes.
    let mut half = connect(dir.path());
    pour(&mut half, STATUS);
    half.shutdown(Shutdown::Write).expect("a socket");
    let mut answer = Vec::new();
    half.read_to_end(&mut answer).expect("an answer and the end");
    assert_eq!(answer.get(4), Some(&66), "a report: {answer:?}");
    // A byte now and then, of a frame that would be long.
    let mut drippers: Vec<UnixStream> = (0..32).map(|_| connect(dir.path())).collect();
    for byte in [&(8_u32 << 20).to_le_bytes()[..], &[7; 60]].concat() {
        for stream in &mut drippers {
            pour(stream, &[byte]);
        }
        watched.all_is_well("a byte at a time");
    }
    // Many launches of the largest kind, all but their last byte.
    let launch = [(8_u32 << 20).to_le_bytes().as_slice(), &[1], &vec![1; (8 << 20) - 2]].concat();
    for stream in &mut drippers {
        *stream = connect(dir.path());
        pour(stream, &launch);
    }
    watched.all_is_well("launches that never end");
    // Questions whose answers nobody reads.
    let mut deaf = connect(dir.path());
    pour(&mut deaf, &STATUS.repeat(200_000));
    watched.all_is_well("answers that nobody reads");
    drop(drippers);
    watched.end(dir.path());
}

#[test]
fn a_crowd_of_connections_does_not_keep_the_next_agent_out() {
    let dir = directory();
    let mut watched = Watched::start(dir.path());
    let crowd: Vec<UnixStream> = (0..300).map(|_| connect(dir.path())).collect();
    watched.all_is_well("three hundred silent connections");
    assert!(descriptors(watched.shepherd.pid()) < 100, "only so many are kept");
    // An agent that has just been started finds its run again.
    let Adopted::Running(mut again) = adopt(dir.path()).expect("readable") else { panic!("it runs") };
    assert_eq!(again.status().expect("it is heard").identity, "test");
    drop(again);
    // Come and gone, as fast as that goes.
    for _ in 0..2000 {
        drop(connect(dir.path()));
    }
    watched.all_is_well("connections that come and go");
    drop(crowd);
    watched.end(dir.path());
}

#[test]
fn descriptors_that_somebody_sends_along_are_not_kept() {
    let dir = directory();
    let mut watched = Watched::start(dir.path());
    let before = descriptors(watched.shepherd.pid());
    for count in (0..200).map(|n| n % 8 + 1) {
        let stream = connect(dir.path());
        let many = vec![stream.as_raw_fd(); count];
        let along = [ControlMessage::ScmRights(&many)];
        sendmsg::<()>(stream.as_raw_fd(), &[IoSlice::new(STATUS)], &along, MsgFlags::empty(), None).expect("sent");
    }
    watched.all_is_well("descriptors sent along");
    eventually("nothing of it is left", || descriptors(watched.shepherd.pid()) <= before);
    watched.end(dir.path());
}

#[test]
fn a_terminal_that_takes_nothing_costs_no_memory() {
    let dir = directory();
    let mut launch = script(dir.path(), "stty raw; echo ready; exec sleep 600");
    let size = WindowSize { rows: 24, columns: 80 };
    launch.options.terminal = Some(size);
    let shepherd = start_run(&launch);
    let before = resident_bytes(shepherd.pid());
    let mut watched = Watched { shepherd, before };
    let attached: Vec<Attachment> = (0..8).map(|_| Attachment::open(dir.path(), size).expect("it runs")).collect();
    let keys = terminal_input_frame(&vec![b'x'; 60 << 10]);
    for attachment in &attached {
        attachment.stream().set_write_timeout(Some(Duration::from_millis(100))).expect("a socket");
        for _ in 0..40 {
            let _ = attachment.stream().write_all(&keys);
        }
    }
    watched.all_is_well("keys that the job does not read");
    // Somebody who has not attached has no say in it.
    for _ in 0..20 {
        let mut stream = connect(dir.path());
        pour(&mut stream, &terminal_input_frame(&vec![b'y'; 4 << 20]));
    }
    watched.all_is_well("keys of somebody who has not attached");
    // Attached clients that break the rules are dropped; the others stay.
    for (number, bad) in [frame(99, b"x"), frame(6, b"[]"), vec![0; 4]].into_iter().enumerate() {
        let mut stream = connect(dir.path());
        pour(&mut stream, &frame(5, br#"{"rows":24,"columns":80}"#));
        pour(&mut stream, &bad);
        drop(stream);
        watched.all_is_well(&format!("rule {number} broken"));
    }
    drop(attached);
    eventually("they are seen to go", || watched.shepherd.status().expect("there").attached == 0);
    watched.end(dir.path());
}
