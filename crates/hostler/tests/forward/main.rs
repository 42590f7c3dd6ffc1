//! `hostler forward`: users reach the ports and sockets of their own jobs, and no others, and let their jobs reach this
//! machine. Needs root, and accounts that every Debian has.

mod ports;
mod reverse;
mod sockets;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use hostler_testkit::{Outcome, SharedCluster};

const HOSTLER: &str = env!("CARGO_BIN_EXE_hostler");

/// Two accounts without processes of their own.
const ADA: &str = "games";
const BOB: &str = "news";

fn uid_of(user: &str) -> u32 {
    nix::unistd::User::from_name(user).expect("readable").expect("on every Debian").uid.as_raw()
}

/// A running `hostler forward`.
struct Forward {
    process: Child,
    /// The lines that it prints at its start, up to the arrow.
    local: Vec<String>,
    /// The same lines after the arrow.
    to: Vec<String>,
}

impl Forward {
    fn start(mut command: Command, ports: usize) -> Self {
        let mut process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the executable starts");
        let printed = BufReader::new(process.stdout.take().expect("piped")).lines().take(ports);
        let lines: Vec<String> = printed.map(|line| line.expect("text")).collect();
        assert_eq!(lines.len(), ports, "{:?}", process.try_wait());
        let parts = |line: &String| {
            let (local, to) = line.split_once(" -> ").unwrap_or((line, ""));
            (local.to_owned(), to.to_owned())
        };
        let (local, to) = lines.iter().map(parts).unzip();
        Self { process, local, to }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.local[0]).expect("the program listens");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a valid timeout");
        stream
    }

    /// Whether a new connection works.
    fn works(&self) -> bool {
        let mut stream = self.connect();
        stream.write_all(b"x").and_then(|()| stream.read_exact(&mut [0])).is_ok()
    }

    /// Waits for the end of the program. Returns its exit code and what it said.
    fn end(mut self) -> (Option<i32>, String) {
        let mut said = String::new();
        self.process.stderr.take().expect("piped").read_to_string(&mut said).expect("text");
        (self.process.wait().expect("not reaped yet").code(), said)
    }
}

impl Drop for Forward {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Sends a message to a server of a job on standard input, ends it, and returns everything that comes back.
fn through_stdio(cluster: &SharedCluster, user: &str, id: &str, to: &str) -> Outcome {
    send(cluster, user, id, to, b"hello ")
}

/// Like [`through_stdio`], with this message.
fn send(cluster: &SharedCluster, user: &str, id: &str, to: &str, message: &[u8]) -> Outcome {
    let mut command = cluster.command(user, &["forward", id, to, "--stdio"]);
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = command.spawn().expect("the executable starts");
    let mut input = process.stdin.take().expect("piped");
    thread::scope(|scope| {
        // A program that is refused does not read.
        scope.spawn(move || drop(input.write_all(message)));
        Outcome::of(&process.wait_with_output().expect("not reaped yet"))
    })
}
