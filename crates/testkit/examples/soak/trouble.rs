//! Random faults, one after another.

use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use hostler_testkit::{Random, fill_disk};
use nix::sys::signal::Signal;

use crate::world::{NODES, World};

/// Causes random faults until `over` is set. Spares the head once `calm` is set. Returns the number of faults of each
/// kind and of unexpected daemon exits.
pub(crate) fn make(world: &World, mut random: Random, over: &AtomicBool, calm: &AtomicBool) -> String {
    let mut counts = [0_u32; 8];
    let mut ended = 0;
    while !over.load(Ordering::Relaxed) {
        let node = random.below(NODES.len() as u64) as usize;
        let kind = random.below(if calm.load(Ordering::Relaxed) { 5 } else { 8 }) as usize;
        counts[kind] += 1;
        match kind {
            0 => {
                world.signal(Some(node), Signal::SIGKILL);
                pause(over, random.below(15));
                world.start_agent(node);
            }
            1 => {
                world.signal(Some(node), Signal::SIGSTOP);
                pause(over, 1 + random.below(20));
                world.signal(Some(node), Signal::SIGCONT);
            }
            2 => silent_clients(world, over),
            3 => nonsense(world, &mut random),
            4 => full_disk(world, "n1/filler", over),
            5 => {
                world.signal(None, Signal::SIGKILL);
                pause(over, random.below(5));
                world.start_head();
            }
            6 => full_disk(world, "head/filler", over),
            // Stop the agent for long enough that the head gives up the node and its runs.
            _ => {
                world.signal(Some(node), Signal::SIGKILL);
                pause(over, 80);
                world.start_agent(node);
            }
        }
        for daemon in (0..NODES.len()).map(Some).chain([None]) {
            if world.has_ended(daemon) {
                ended += 1;
                world.signal(daemon, Signal::SIGKILL);
                daemon.map_or_else(|| world.start_head(), |index| world.start_agent(index));
            }
        }
        pause(over, 3 + random.below(12));
    }
    let [killed, stopped, silent, nonsense, node_disk, heads, head_disk, lost] = counts;
    format!(
        "agents killed {killed}, stopped {stopped}, away for 80 s {lost}; heads killed {heads}; groups of silent clients {silent}, \
         of invalid requests {nonsense}; disks filled: node {node_disk}, head {head_disk}; daemons that ended unexpectedly {ended}"
    )
}

/// Waits, but stops early when `over` is set.
fn pause(over: &AtomicBool, seconds: u64) {
    for _ in 0..seconds * 10 {
        if over.load(Ordering::Relaxed) {
            return;
        }
        thread::sleep(Duration::from_millis(100));
    }
}

/// Opens 200 connections and sends nothing on them.
fn silent_clients(world: &World, over: &AtomicBool) {
    let strangers: Vec<_> = (0..150).filter_map(|_| TcpStream::connect(("127.0.0.1", world.port())).ok()).collect();
    let users: Vec<_> = (0..50).filter_map(|_| UnixStream::connect(world.socket()).ok()).collect();
    pause(over, 10);
    drop((strangers, users));
}

/// Sends invalid requests.
fn nonsense(world: &World, random: &mut Random) {
    let noise: Vec<u8> = (0..4_096).map(|_| random.below(256) as u8).collect();
    let huge = format!("POST /api/v1/jobs HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n", u64::MAX);
    let header = format!("GET /api/v1/jobs HTTP/1.1\r\nx: {}\r\n\r\n", "y".repeat(1 << 20));
    for bytes in [noise.as_slice(), huge.as_bytes(), header.as_bytes(), b"GET /api/v1/jobs/../../x HTTP/1.1\r\n\r\n"] {
        if let Ok(mut socket) = UnixStream::connect(world.socket()) {
            let _ = socket.write_all(bytes);
        }
        if let Ok(mut socket) = TcpStream::connect(("127.0.0.1", world.port())) {
            let _ = socket.write_all(bytes);
        }
    }
}

/// Fills the disk of a daemon for a while.
fn full_disk(world: &World, filler: &str, over: &AtomicBool) {
    let filler = world.path(filler);
    fill_disk(&filler, 0);
    pause(over, 10);
    fs::remove_file(filler).expect("root has permission");
}
