//! The processes of a run on one node when it has several: each has its rank, and one failure ends the rest.
//!
//! The program that a shepherd starts is then this one, which starts the job's program as often as asked, waits, and leaves with the
//! exit code of the first that failed. It is in the job's own process group and cgroup leaf, so whatever ends the run ends them all.
//! On request every line of output is passed on with the rank of its writer before it; otherwise nobody stands between a
//! process and its output.
//!
//! Deliberately absent: any word with other nodes. The head sees to it that all nodes begin and end together.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

use crate::sys;

/// How long the others may take to end by themselves after one has failed.
const GRACE: Duration = Duration::from_secs(5);

/// What is passed on of a line at once: a longer one comes in pieces, each with its rank.
const LINE_BYTES: usize = 64 << 10;

/// What to start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ranks {
    /// How many processes there are on this node.
    pub count: u32,
    /// The rank of this node among those of the run.
    pub node_rank: u32,
    /// How many processes there are on all nodes.
    pub world_size: u64,
    /// Begin every line of output with the rank of its writer.
    pub label: bool,
    /// The program and its arguments.
    pub argv: Vec<OsString>,
}

impl Ranks {
    /// Runs them all to their end; the exit code of the first that failed, or 0.
    ///
    /// # Errors
    /// When a process cannot be started or waited for; those that were started have been ended then.
    pub fn run(&self) -> io::Result<i32> {
        outlive_signals()?;
        let mut running = Running { ranks: BTreeMap::new(), failed: None, kill_at: None };
        for local in 0..self.count {
            match self.start(local) {
                Ok(rank) => {
                    running.ranks.insert(local, rank);
                }
                Err(error) => {
                    running.end(libc::SIGKILL);
                    running.ranks.values_mut().for_each(|rank| drop(rank.child.wait()));
                    return Err(error);
                }
            }
        }
        while !running.ranks.is_empty() {
            running.wait()?;
        }
        Ok(running.failed.unwrap_or(0))
    }

    /// Starts one process.
    fn start(&self, local: u32) -> io::Result<Rank> {
        let rank = u64::from(self.node_rank) * u64::from(self.count) + u64::from(local);
        let mut command = Command::new(&self.argv[0]);
        command.args(&self.argv[1..]).envs(variables(rank, local, self.world_size));
        if self.label {
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
        }
        let mut child = command.spawn()?;
        let pidfd = sys::pidfd_open(child.id())?;
        let label = format!("{rank}: ");
        let stdout = child.stdout.take().map(|pipe| Labelled::new(pipe.into(), &label, Output::Stdout));
        let stderr = child.stderr.take().map(|pipe| Labelled::new(pipe.into(), &label, Output::Stderr));
        Ok(Rank { child, pidfd: Some(pidfd), outputs: stdout.into_iter().chain(stderr).collect() })
    }
}

/// Lives through the signals that end the run, for they reach its processes as well, and somebody must wait for those. A handler and not
/// to ignore them: what is ignored would stay so in the processes.
fn outlive_signals() -> io::Result<()> {
    extern "C" fn nothing(_: libc::c_int) {}
    let action = SigAction::new(SigHandler::Handler(nothing), SaFlags::SA_RESTART, SigSet::empty());
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGUSR1, Signal::SIGUSR2] {
        // SAFETY: the handler does nothing, which is safe at any moment.
        unsafe { sigaction(signal, &action) }?;
    }
    Ok(())
}

/// The names under which a process finds its rank, those of PyTorch among them.
#[must_use]
pub fn variables(rank: u64, local: u32, world_size: u64) -> Vec<(&'static str, String)> {
    vec![
        ("HOSTLER_RANK", rank.to_string()),
        ("HOSTLER_LOCAL_RANK", local.to_string()),
        ("RANK", rank.to_string()),
        ("LOCAL_RANK", local.to_string()),
        ("WORLD_SIZE", world_size.to_string()),
    ]
}

/// The processes that have not ended, or whose output has not.
struct Running {
    ranks: BTreeMap<u32, Rank>,
    /// The exit code of the first that failed.
    failed: Option<i32>,
    /// When the others are killed that have not ended by themselves.
    kill_at: Option<Instant>,
}

/// One process.
struct Rank {
    child: Child,
    /// `None` once it has ended.
    pidfd: Option<OwnedFd>,
    /// Its outputs that are still open, when they are labelled.
    outputs: Vec<Labelled>,
}

impl Running {
    /// Waits until something happens, and sees to it.
    fn wait(&mut self) -> io::Result<()> {
        let readable = |fd: &dyn AsRawFd| libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let mut set = Vec::new();
        for rank in self.ranks.values() {
            set.extend(rank.pidfd.iter().map(|fd| readable(fd)));
            set.extend(rank.outputs.iter().map(|output| readable(&output.pipe)));
        }
        sys::poll(&mut set, self.kill_at.map(|at| at.saturating_duration_since(Instant::now())))?;
        if self.kill_at.is_some_and(|at| at <= Instant::now()) {
            self.kill_at = None;
            self.end(libc::SIGKILL);
        }
        let happened: Vec<_> = set.iter().filter(|entry| entry.revents != 0).map(|entry| entry.fd).collect();
        for fd in happened {
            self.see_to(fd)?;
        }
        self.ranks.retain(|_, rank| rank.pidfd.is_some() || !rank.outputs.is_empty());
        Ok(())
    }

    /// Something happened at a descriptor.
    fn see_to(&mut self, fd: i32) -> io::Result<()> {
        let mut ended = None;
        for rank in self.ranks.values_mut() {
            if rank.pidfd.as_ref().is_some_and(|pidfd| pidfd.as_raw_fd() == fd) {
                rank.pidfd = None;
                ended = Some(rank.child.wait()?);
                // What it left behind in the background may hold its pipes for ever; what is in them by now is all that counts.
                rank.outputs.iter_mut().for_each(Labelled::drain);
                rank.outputs.clear();
            }
            rank.outputs.retain_mut(|output| output.pipe.as_raw_fd() != fd || output.pass_on());
        }
        if let Some(code) = ended.map(exit_code).filter(|code| *code != 0)
            && self.failed.is_none()
        {
            self.failed = Some(code);
            self.kill_at = Some(Instant::now() + GRACE);
            self.end(libc::SIGTERM);
        }
        Ok(())
    }

    /// Signals all that have not ended.
    fn end(&self, signal: i32) {
        for pidfd in self.ranks.values().filter_map(|rank| rank.pidfd.as_ref()) {
            // One that has just ended needs no signal.
            let _ = sys::pidfd_signal(pidfd.as_fd(), signal);
        }
    }
}

/// What a shell would say.
fn exit_code(status: ExitStatus) -> i32 {
    status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1)
}

/// Where labelled lines go.
#[derive(Clone, Copy)]
enum Output {
    Stdout,
    Stderr,
}

/// One output of a process, passed on line by line with a label.
struct Labelled {
    pipe: std::fs::File,
    label: String,
    to: Output,
    /// The beginning of a line whose end has not come.
    line: Vec<u8>,
}

impl Labelled {
    fn new(pipe: OwnedFd, label: &str, to: Output) -> Self {
        Self { pipe: pipe.into(), label: label.to_owned(), to, line: Vec::new() }
    }

    /// Passes on what has come; `false` when that was the last.
    fn pass_on(&mut self) -> bool {
        let mut bytes = [0; 16 << 10];
        let count = match self.pipe.read(&mut bytes) {
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return true,
            Err(_) => 0,
        };
        let mut whole = Vec::new();
        for piece in bytes[..count].split_inclusive(|byte| *byte == b'\n') {
            self.line.extend(piece);
            if piece.ends_with(b"\n") || self.line.len() >= LINE_BYTES {
                self.end_line(&mut whole);
            }
        }
        if count == 0 && !self.line.is_empty() {
            self.end_line(&mut whole);
        }
        // Nobody can be told when output cannot be written: the disk is full, and the run's record says so.
        let _ = match self.to {
            Output::Stdout => io::stdout().lock().write_all(&whole).and_then(|()| io::stdout().lock().flush()),
            Output::Stderr => io::stderr().lock().write_all(&whole),
        };
        count > 0
    }

    /// Moves the line that is complete, with its label, to what is to be written.
    fn end_line(&mut self, whole: &mut Vec<u8>) {
        whole.extend(self.label.as_bytes());
        whole.append(&mut self.line);
        if !whole.ends_with(b"\n") {
            whole.push(b'\n');
        }
    }

    /// Passes on what is there now.
    fn drain(&mut self) {
        while sys::wait_readable(self.pipe.as_fd(), Some(Duration::ZERO)).unwrap_or(false) {
            if !self.pass_on() {
                return;
            }
        }
        if !self.line.is_empty() {
            let mut whole = Vec::new();
            self.end_line(&mut whole);
            let _ = match self.to {
                Output::Stdout => io::stdout().lock().write_all(&whole),
                Output::Stderr => io::stderr().lock().write_all(&whole),
            };
        }
    }
}
