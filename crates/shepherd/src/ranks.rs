//! Runs with several processes on one node: each process has a rank, and the failure of one process ends the others.
//!
//! The shepherd then starts Hostler's own executable, which starts the job's program several times and waits. It exits
//! with the exit code of the first process that failed. It is in the job's process group and cgroup leaf, so ending the
//! run ends all processes. On request, every output line is prefixed with the rank of its process. Otherwise, the
//! processes write to the outputs directly.
//!
//! This executable does not communicate with other nodes: the head starts and ends all nodes together.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use hostler_sys::explain_start_here;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

use crate::merge::{Labels, Merger, Source};
use crate::sys;

/// Time between the failure of one process and KILL for the other processes.
const GRACE: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ranks {
    /// Number of processes on this node.
    pub count: u32,
    /// Rank of this node in the run.
    pub node_rank: u32,
    /// Number of processes on all nodes.
    pub world_size: u64,
    /// Whether to prefix every output line with the rank of its process.
    pub label: bool,
    pub argv: Vec<OsString>,
}

impl Ranks {
    /// Runs all processes to their end. Returns the exit code of the first process that failed, or 0.
    ///
    /// # Errors
    /// If a process cannot be started or waited for. The processes that were already started are then killed.
    pub fn run(&self) -> io::Result<i32> {
        ignore_signals()?;
        let labelled = || Merger::new(Labels::Numbers { width: 0 });
        let merged = Merged { stdout: labelled(), stderr: labelled() };
        let mut running = Running { ranks: BTreeMap::new(), merged, failed: None, kill_at: None };
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

    fn start(&self, local: u32) -> io::Result<Rank> {
        let rank = u64::from(self.node_rank) * u64::from(self.count) + u64::from(local);
        let mut command = Command::new(&self.argv[0]);
        command.args(&self.argv[1..]).envs(variables(rank, local, self.world_size));
        if self.label {
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
        }
        let mut child = command.spawn().map_err(|error| explain_start_here(&self.argv[0], &error))?;
        let pidfd = sys::pidfd_open(child.id())?;
        let source = (usize::try_from(rank).unwrap_or(usize::MAX), 0);
        let pipe = |pipe: OwnedFd, to| Pipe { pipe: pipe.into(), source, to };
        let stdout = child.stdout.take().map(|stdout| pipe(stdout.into(), Output::Stdout));
        let stderr = child.stderr.take().map(|stderr| pipe(stderr.into(), Output::Stderr));
        Ok(Rank { child, pidfd: Some(pidfd), outputs: stdout.into_iter().chain(stderr).collect() })
    }
}

/// Ignores signals that end the run: the job's processes receive these signals too, and this process must wait for the
/// job's processes. Uses an empty handler, because the job's processes would inherit ignored signals.
fn ignore_signals() -> io::Result<()> {
    extern "C" fn nothing(_: libc::c_int) {}
    let action = SigAction::new(SigHandler::Handler(nothing), SaFlags::SA_RESTART, SigSet::empty());
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGUSR1, Signal::SIGUSR2] {
        // SAFETY: the handler does nothing, which is async-signal-safe.
        unsafe { sigaction(signal, &action) }?;
    }
    Ok(())
}

/// Variables with a process's rank, including those of PyTorch.
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

/// Processes that are running or have open outputs.
struct Running {
    ranks: BTreeMap<u32, Rank>,
    merged: Merged,
    /// Exit code of the first process that failed.
    failed: Option<i32>,
    /// Time at which the remaining processes are killed.
    kill_at: Option<Instant>,
}

struct Rank {
    child: Child,
    /// Handle of the process; `None` after its end.
    pidfd: Option<OwnedFd>,
    /// Open output pipes of the process; empty without labels.
    outputs: Vec<Pipe>,
}

impl Running {
    /// Waits for events and handles them.
    fn wait(&mut self) -> io::Result<()> {
        let readable = |fd: &dyn AsRawFd| libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let mut set = Vec::new();
        for rank in self.ranks.values() {
            set.extend(rank.pidfd.iter().map(|fd| readable(fd)));
            set.extend(rank.outputs.iter().map(|output| readable(&output.pipe)));
        }
        let next = self.kill_at.into_iter().chain(self.merged.due()).min();
        sys::poll(&mut set, next.map(|at| at.saturating_duration_since(Instant::now())))?;
        self.merged.write_due();
        if self.kill_at.is_some_and(|at| at <= Instant::now()) {
            self.kill_at = None;
            self.end(libc::SIGKILL);
        }
        let happened: Vec<_> = set.iter().filter(|entry| entry.revents != 0).map(|entry| entry.fd).collect();
        for fd in happened {
            self.handle_event(fd)?;
        }
        self.ranks.retain(|_, rank| rank.pidfd.is_some() || !rank.outputs.is_empty());
        Ok(())
    }

    /// Handles an event on a descriptor.
    fn handle_event(&mut self, fd: i32) -> io::Result<()> {
        let mut ended = None;
        for rank in self.ranks.values_mut() {
            if rank.pidfd.as_ref().is_some_and(|pidfd| pidfd.as_raw_fd() == fd) {
                rank.pidfd = None;
                ended = Some(rank.child.wait()?);
                // Background processes may keep the pipes open, so only the output up to now counts.
                rank.outputs.iter_mut().for_each(|output| self.merged.drain(output));
                rank.outputs.clear();
            }
            rank.outputs.retain_mut(|output| output.pipe.as_raw_fd() != fd || self.merged.pass_on(output));
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

    /// Signals all running processes.
    fn end(&self, signal: i32) {
        for pidfd in self.ranks.values().filter_map(|rank| rank.pidfd.as_ref()) {
            // An ended process needs no signal.
            let _ = sys::pidfd_signal(pidfd.as_fd(), signal);
        }
    }
}

/// Exit code as a shell reports it.
fn exit_code(status: ExitStatus) -> i32 {
    status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1)
}

/// Destination of labelled lines.
#[derive(Debug, Clone, Copy)]
enum Output {
    Stdout,
    Stderr,
}

/// An output of a process, forwarded with labels.
struct Pipe {
    pipe: std::fs::File,
    source: Source,
    to: Output,
}

/// The outputs of this process, to which the outputs of all ranks are forwarded.
struct Merged {
    stdout: Merger,
    stderr: Merger,
}

impl Merged {
    fn due(&self) -> Option<Instant> {
        self.stdout.due().into_iter().chain(self.stderr.due()).min()
    }

    /// Writes the incomplete lines that were held back for long enough.
    fn write_due(&mut self) {
        let now = Instant::now();
        write(Output::Stdout, &self.stdout.write_due(now));
        write(Output::Stderr, &self.stderr.write_due(now));
    }

    /// Forwards new output; `false` at the end of the output.
    fn pass_on(&mut self, output: &mut Pipe) -> bool {
        let mut bytes = [0; 16 << 10];
        let count = match output.pipe.read(&mut bytes) {
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return true,
            Err(_) => 0,
        };
        let merger = self.merger(output.to);
        let text = match count {
            0 => merger.finish(output.source),
            _ => merger.add(output.source, &bytes[..count], Instant::now()),
        };
        write(output.to, &text);
        count > 0
    }

    /// Forwards all output that is available now, and ends the output.
    fn drain(&mut self, output: &mut Pipe) {
        while sys::wait_readable(output.pipe.as_fd(), Some(Duration::ZERO)).unwrap_or(false) {
            if !self.pass_on(output) {
                return;
            }
        }
        let text = self.merger(output.to).finish(output.source);
        write(output.to, &text);
    }

    fn merger(&mut self, of: Output) -> &mut Merger {
        match of {
            Output::Stdout => &mut self.stdout,
            Output::Stderr => &mut self.stderr,
        }
    }
}

/// Writes labelled lines.
fn write(to: Output, text: &[u8]) {
    // Write errors cannot be reported here: the disk is full, and the run's record says so.
    let _ = match to {
        _ if text.is_empty() => Ok(()),
        Output::Stdout => io::stdout().lock().write_all(text).and_then(|()| io::stdout().lock().flush()),
        Output::Stderr => io::stderr().lock().write_all(text),
    };
}
