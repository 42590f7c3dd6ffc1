//! State of one run from its start to its exit record, including how it is ended.
//!
//! A run is ended in steps: TERM to every process of the job, a grace period, then KILL repeatedly until no process is
//! left, with a timeout. Leftovers of the main process are ended in the same way, with a short grace period.
//! [`Run::advance`] performs the steps that are due; time is an argument, and [`Run::next_deadline`] returns the time
//! of the next call.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use nix::fcntl::{FallocateFlags, fallocate};

use crate::cgroup::Leaf;
use crate::launch::{Options, RunSignal};
use crate::members;
use crate::reap::{Reaped, Usage, reap};
use crate::record::{Cause, Containment, ExitRecord, Io, IoSource, Limits, Moment, Phase, Status, StatusReport};
use crate::spawn::ProgramEnd;
use crate::sys;
use crate::terminal::Terminal;
use crate::wire::Terminate;

/// Time between TERM and KILL for leftover processes.
const LEFTOVER_GRACE: Duration = Duration::from_secs(2);

/// Time between TERM and KILL for a call whose caller has disconnected.
const ABANDON_GRACE: Duration = Duration::from_secs(2);

/// Timeout for processes to end after KILL. A process in an uninterruptible wait can take longer.
const KILL_BOUND: Duration = Duration::from_secs(10);

/// Interval between repeated KILLs. A KILL can miss processes that are being forked.
const KILL_ROUND: Duration = Duration::from_millis(20);

/// Least time from the start to the signal before the time limit: a program that does not handle the signal yet would miss it
/// or end. With limits below twice that, half of the limit.
const PREPARATION: Duration = Duration::from_secs(2);

/// Longest time from the start of a run for which a signal waits until its step host has started the program.
const HOST_START: Duration = Duration::from_secs(10);

/// Interval of checks whether the step host has started the program, while a signal waits.
const HOST_ROUND: Duration = Duration::from_millis(20);

/// Interval of checks of the output size.
const OUTPUT_ROUND: Duration = Duration::from_secs(1);

pub(crate) struct Run {
    pub(crate) options: Options,
    pub(crate) terminal: Option<Terminal>,
    outputs: Outputs,
    started: Moment,
    started_at: Instant,
    /// Pid of the main process until it is reaped.
    child: Option<u32>,
    /// Status and time of the main process's end.
    ended: Option<(Status, Instant)>,
    cause: Option<Cause>,
    ladder: EndingStep,
    /// Whether the last check found a child process, alive or ended.
    has_children: bool,
    leftovers: Option<u32>,
    unkillable: Vec<u32>,
    usage: Usage,
    leaf_before: LeafCounters,
    containment: Containment,
    limits: Limits,
    has_peak: bool,
    next_output_check: Option<Instant>,
    /// Whether the signal before the time limit was sent.
    limit_signal_sent: bool,
    /// Signals that came before there was a program to get them.
    early_signals: Vec<RunSignal>,
    /// Whether a program was seen that gets signals. From then on, none waits.
    has_program: bool,
    recording: bool,
    /// How the program of a sandbox ends; `child` is then the init process.
    program: Option<ProgramEnd>,
}

/// Output files of a run. The shepherd keeps the files open to read their size.
#[derive(Default)]
pub(crate) struct Outputs {
    pub(crate) stdout: Option<File>,
    pub(crate) stderr: Option<File>,
}

impl Outputs {
    /// Frees the disk space of the outputs beyond their first `limit` bytes.
    fn cut(&self, limit: u64) -> io::Result<()> {
        for file in [&self.stdout, &self.stderr].into_iter().flatten() {
            let metadata = file.metadata()?;
            let held = metadata.blocks().saturating_mul(512);
            if metadata.len() <= limit && held > limit.saturating_mul(2) {
                // A process has reserved blocks beyond the end; file systems do not reserve that many by themselves.
                file.set_len(metadata.len())?;
            } else if metadata.len() > limit && held > limit {
                let flags = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
                fallocate(file, flags, limit.cast_signed(), (metadata.len() - limit).cast_signed())?;
            }
        }
        Ok(())
    }

    fn sizes(&self) -> (u64, u64) {
        let size = |file: &Option<File>| {
            file.as_ref().and_then(|file| file.metadata().ok()).map_or(0, |metadata| metadata.len())
        };
        (size(&self.stdout), size(&self.stderr))
    }
}

/// Outcome of starting the program.
pub(crate) struct Start {
    pub(crate) child: Result<u32, Status>,
    pub(crate) moment: Moment,
    pub(crate) terminal: Option<Terminal>,
    pub(crate) outputs: Outputs,
    pub(crate) containment: Containment,
    pub(crate) limits: Limits,
    /// Whether the leaf's peak memory belongs to this run only.
    pub(crate) has_peak: bool,
    pub(crate) leaf_before: LeafCounters,
    pub(crate) program: Option<ProgramEnd>,
}

/// Values of a leaf's counters at one time. A lingering shepherd uses one leaf for several runs, so a run's usage is
/// the difference of two such readings.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LeafCounters {
    user: Duration,
    system: Duration,
    oom_kills: Option<u64>,
    /// Bytes read and written.
    io: Option<(u64, u64)>,
}

impl LeafCounters {
    pub(crate) fn read(leaf: &Leaf) -> LeafCounters {
        let (user, system) = leaf.cpu_times().unwrap_or_default();
        LeafCounters { user, system, oom_kills: leaf.oom_kills(), io: leaf.io_bytes() }
    }
}

/// The last step that was taken to end the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EndingStep {
    NotEnding,
    Term { until: Instant },
    Kill { until: Instant, again: Instant },
    GivenUp,
}

impl Run {
    pub(crate) fn new(options: Options, start: Start) -> Run {
        let now = Instant::now();
        let (child, ended) = match start.child {
            Ok(pid) => (Some(pid), None),
            Err(status) => (None, Some((status, now))),
        };
        let next_output_check = options.output_limit_bytes.map(|_| now + OUTPUT_ROUND);
        Run {
            options,
            terminal: start.terminal,
            outputs: start.outputs,
            started: start.moment,
            started_at: now,
            child,
            ended,
            cause: None,
            ladder: EndingStep::NotEnding,
            has_children: true,
            leftovers: None,
            unkillable: Vec::new(),
            usage: Usage::default(),
            leaf_before: start.leaf_before,
            containment: start.containment,
            limits: start.limits,
            has_peak: start.has_peak,
            next_output_check,
            limit_signal_sent: false,
            early_signals: Vec::new(),
            has_program: false,
            recording: false,
            program: start.program,
        }
    }

    pub(crate) fn child(&self) -> Option<u32> {
        self.child
    }

    /// Whether the run is a call, which ends with its connection.
    pub(crate) fn is_call(&self) -> bool {
        self.options.call.is_some()
    }

    /// Sends a signal to the process group of a call's main process.
    pub(crate) fn signal(&self, signal: i32) -> Result<(), String> {
        let Some(call) = &self.options.call else { return Err("a run does not accept signals".into()) };
        // The pid is not reused until the process is reaped, so the group is still its own. The program of a sandbox is reaped
        // by its init process, and then the kernel ends the sandbox.
        let Some(group) = self.main_program() else { return Ok(()) };
        let signal = match signal {
            libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU if !call.terminal => libc::SIGSTOP,
            other => other,
        };
        sys::signal_group(group, signal)
            .map_err(|error| format!("cannot send signal {signal}: {}", sys::explain(&error)))
    }

    /// Sends a signal to processes of the run, as soon as there are such processes.
    pub(crate) fn signal_members(&mut self, signal: RunSignal) {
        self.early_signals.push(signal);
        self.send_early_signals(Instant::now());
    }

    fn send_early_signals(&mut self, now: Instant) {
        self.has_program |= now >= self.started_at + HOST_START || self.program_has_started();
        let is_early = !self.has_program;
        if let Some(main) = self.main_program().filter(|_| !is_early) {
            for signal in self.early_signals.drain(..) {
                members::signal_some(main, self.options.has_steps, self.program.is_some(), &signal);
            }
        }
    }

    /// Whether the run's program has started; false also if a step host has not started its own program or a step yet.
    fn program_has_started(&self) -> bool {
        self.main_program().is_some_and(|main| !self.options.has_steps || members::has_started_another(main))
    }

    /// The process of the program, which in a sandbox is not this process's child.
    fn main_program(&self) -> Option<u32> {
        match &self.program {
            Some(_) => self.child.and_then(members::program_in_sandbox),
            None => self.child,
        }
    }

    /// Replaces the time limit. A signal that was sent before the old limit is sent again before a later one.
    pub(crate) fn change_limit(&mut self, limit: Option<Duration>) {
        self.options.time_limit = limit.map(|limit| limit.saturating_sub(self.options.time_spent));
        self.limit_signal_sent &= self.limit_signal_time().is_some_and(|at| Instant::now() >= at);
    }

    /// The signal that has stopped the main process since this function was last used; `None` if it was not stopped.
    pub(crate) fn take_stop(&self) -> Option<i32> {
        sys::take_stop(self.child?)
    }

    /// Ends a call whose caller has disconnected.
    pub(crate) fn abandon(&mut self, leaf: Option<&Leaf>) {
        let cause = Cause::Other("the caller has disconnected".into());
        self.terminate(Terminate { cause, grace: ABANDON_GRACE }, leaf);
    }

    pub(crate) fn main_has_ended(&self) -> bool {
        self.ended.is_some()
    }

    /// Whether no process is left, or the shepherd has given up killing the remaining processes.
    pub(crate) fn is_over(&self, leaf: Option<&Leaf>) -> bool {
        self.ladder == EndingStep::GivenUp || (self.main_has_ended() && self.is_empty(leaf))
    }

    /// Whether the run left no processes behind.
    pub(crate) fn is_clean(&self) -> bool {
        self.unkillable.is_empty() && self.ladder != EndingStep::GivenUp
    }

    /// Marks the run as waiting for disk space for its exit record.
    pub(crate) fn set_recording(&mut self) {
        self.recording = true;
    }

    /// Reaps all children that have ended.
    pub(crate) fn reap(&mut self) {
        loop {
            match reap() {
                Reaped::AllAlive => self.has_children = true,
                Reaped::NoneLeft => self.has_children = false,
                Reaped::Child { pid, status, usage } => {
                    self.usage.user += usage.user;
                    self.usage.system += usage.system;
                    self.usage.max_rss_bytes = self.usage.max_rss_bytes.max(usage.max_rss_bytes);
                    self.usage.read_bytes += usage.read_bytes;
                    self.usage.write_bytes += usage.write_bytes;
                    self.usage.events += usage.events;
                    if self.child == Some(pid) {
                        self.child = None;
                        let of_program = self.program.as_ref().and_then(ProgramEnd::status);
                        self.ended = Some((status_of(of_program.unwrap_or(status)), Instant::now()));
                    }
                    continue;
                }
            }
            return;
        }
    }

    /// Starts to end the run. The first cause is kept; a shorter grace replaces a longer one.
    pub(crate) fn terminate(&mut self, terminate: Terminate, leaf: Option<&Leaf>) {
        if self.main_has_ended() {
            return;
        }
        let now = Instant::now();
        if self.cause.is_none() {
            self.tell_host(&terminate.cause);
        }
        self.cause.get_or_insert(terminate.cause);
        match self.ladder {
            EndingStep::NotEnding if terminate.grace > Duration::ZERO => self.send_term(now + terminate.grace),
            EndingStep::NotEnding => self.start_killing(now, leaf),
            EndingStep::Term { until } => self.ladder = EndingStep::Term { until: until.min(now + terminate.grace) },
            EndingStep::Kill { .. } | EndingStep::GivenUp => {}
        }
    }

    /// Tells the step host why the run ends, for the job's standard error. In a sandbox, the child is another process.
    fn tell_host(&self, cause: &Cause) {
        let host = self.child.filter(|_| self.options.has_steps && self.program.is_none());
        if let (Some(host), Some(number)) = (host, cause.signal_to_host()) {
            sys::signal(host, number);
        }
    }

    /// Performs the steps that are due at `now`.
    pub(crate) fn advance(&mut self, now: Instant, leaf: Option<&Leaf>) {
        self.limit_output(now, leaf);
        if !self.early_signals.is_empty() {
            self.send_early_signals(now);
        }
        if self.main_has_ended() {
            self.end_leftovers(now, leaf);
        } else {
            self.enforce_limits(now, leaf);
        }
        match self.ladder {
            EndingStep::Term { until } if now >= until => self.start_killing(now, leaf),
            EndingStep::Kill { until, .. } if now >= until => self.give_up(leaf),
            EndingStep::Kill { until, again } if now >= again => {
                kill_all(leaf);
                self.ladder = EndingStep::Kill { until, again: now + KILL_ROUND };
            }
            _ => {}
        }
    }

    /// Time of the next call of [`Run::advance`] if no event occurs.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        let next = match self.ladder {
            EndingStep::Term { until } => Some(until),
            EndingStep::Kill { until, again } => Some(until.min(again)),
            EndingStep::NotEnding => self.next_limit_signal().or_else(|| self.time_limit_end()),
            EndingStep::GivenUp => return None,
        };
        let early = (!self.early_signals.is_empty() && self.child.is_some()).then(|| Instant::now() + HOST_ROUND);
        [next, self.next_output_check, early].into_iter().flatten().min()
    }

    fn time_limit_end(&self) -> Option<Instant> {
        self.options.time_limit.and_then(|limit| self.started_at.checked_add(limit))
    }

    /// When the signal before the time limit is due; `None` if there is none, or it was sent.
    fn next_limit_signal(&self) -> Option<Instant> {
        self.limit_signal_time().filter(|_| !self.limit_signal_sent)
    }

    /// When the signal before the time limit is or was due.
    fn limit_signal_time(&self) -> Option<Instant> {
        let (limit, before) = (self.options.time_limit?, self.options.limit_signal.as_ref()?.1);
        self.started_at.checked_add(limit.saturating_sub(before).max(PREPARATION.min(limit / 2)))
    }

    fn enforce_limits(&mut self, now: Instant, leaf: Option<&Leaf>) {
        if self.ladder != EndingStep::NotEnding {
            return;
        }
        if self.next_limit_signal().is_some_and(|at| now >= at) {
            self.limit_signal_sent = true;
            if let Some((signal, _)) = self.options.limit_signal.clone() {
                self.signal_members(signal);
            }
        }
        let grace = self.options.grace;
        if self.time_limit_end().is_some_and(|end| now >= end) {
            self.terminate(Terminate { cause: Cause::TimeLimit, grace }, leaf);
        }
    }

    /// If a check is due, enforces the output limit.
    fn limit_output(&mut self, now: Instant, leaf: Option<&Leaf>) {
        let Some(limit) = self.options.output_limit_bytes else { return };
        if self.next_output_check.is_none_or(|check| now < check) {
            return;
        }
        self.next_output_check = Some(now + OUTPUT_ROUND);
        if self.outputs.cut(limit).is_err() {
            self.terminate(Terminate { cause: Cause::OutputLimit, grace: self.options.grace }, leaf);
        }
    }

    /// Ends the leftover processes of an ended main process, with a short grace period.
    fn end_leftovers(&mut self, now: Instant, leaf: Option<&Leaf>) {
        if self.leftovers.is_some() || self.is_empty(leaf) {
            return;
        }
        let found = members::list().len().max(leaf.map_or(0, |leaf| leaf.members().len()));
        self.leftovers = Some(found as u32);
        match self.ladder {
            EndingStep::NotEnding => self.send_term(now + LEFTOVER_GRACE),
            EndingStep::Term { until } => self.send_term(until.min(now + LEFTOVER_GRACE)),
            EndingStep::Kill { .. } | EndingStep::GivenUp => {}
        }
    }

    fn send_term(&mut self, until: Instant) {
        // A stopped process handles TERM only after it is continued.
        members::signal(&[libc::SIGTERM, libc::SIGCONT]);
        self.ladder = EndingStep::Term { until };
    }

    fn start_killing(&mut self, now: Instant, leaf: Option<&Leaf>) {
        kill_all(leaf);
        self.ladder = EndingStep::Kill { until: now + KILL_BOUND, again: now + KILL_ROUND };
    }

    fn give_up(&mut self, leaf: Option<&Leaf>) {
        self.unkillable = members::list();
        self.unkillable.extend(leaf.map(Leaf::members).unwrap_or_default());
        self.unkillable.sort_unstable();
        self.unkillable.dedup();
        self.ladder = EndingStep::GivenUp;
    }

    /// Whether no process of the run is left. Without children, a subreaper has no descendants; but processes may have
    /// been moved into the leaf.
    fn is_empty(&self, leaf: Option<&Leaf>) -> bool {
        !self.has_children && leaf.is_none_or(Leaf::is_empty)
    }

    pub(crate) fn report(&self, attached: usize) -> StatusReport {
        let (stdout_bytes, stderr_bytes) = self.outputs.sizes();
        StatusReport {
            identity: self.options.identity.clone(),
            phase: self.phase(),
            child: self.child,
            elapsed: self.started_at.elapsed(),
            stdout_bytes,
            stderr_bytes,
            cause: self.cause.clone(),
            processes: members::list().len() as u32,
            attached: attached as u32,
        }
    }

    fn phase(&self) -> Phase {
        match self.ladder {
            _ if self.recording => Phase::Recording,
            _ if self.main_has_ended() => Phase::CleaningUp,
            EndingStep::NotEnding => Phase::Running,
            EndingStep::Term { .. } => Phase::Terminating,
            EndingStep::Kill { .. } | EndingStep::GivenUp => Phase::Killing,
        }
    }

    /// Disk reads and writes, from the leaf's counters if available.
    fn io(&self, before: Option<(u64, u64)>, after: Option<(u64, u64)>) -> Io {
        let Some((read, written)) = after else {
            let Usage { read_bytes, write_bytes, .. } = self.usage;
            return Io { read_bytes, write_bytes, source: IoSource::Processes };
        };
        let (read_before, written_before) = before.unwrap_or_default();
        Io {
            read_bytes: read.saturating_sub(read_before),
            write_bytes: written.saturating_sub(written_before),
            source: IoSource::Leaf,
        }
    }

    /// The record of an ended run.
    pub(crate) fn record(&self, leaf: Option<&Leaf>) -> ExitRecord {
        let (status, ended_at) = self.ended.clone().unwrap_or((Status::Unkillable, Instant::now()));
        let (stdout_bytes, stderr_bytes) = self.outputs.sizes();
        let before = self.leaf_before;
        let after = leaf.map(LeafCounters::read).unwrap_or_default();
        let oom_kill = after.oom_kills.map(|kills| kills > before.oom_kills.unwrap_or(0));
        ExitRecord {
            identity: self.options.identity.clone(),
            status,
            cause: self.cause.clone(),
            started: self.started,
            ended: Moment::now(),
            wall_time: ended_at.saturating_duration_since(self.started_at),
            // The leaf also counts processes that no parent waited for; reaping also counts processes that left the
            // leaf.
            user_time: self.usage.user.max(after.user.saturating_sub(before.user)),
            system_time: self.usage.system.max(after.system.saturating_sub(before.system)),
            max_rss_bytes: self.usage.max_rss_bytes,
            stdout_bytes,
            stderr_bytes,
            oom_kill,
            leftovers: self.leftovers.unwrap_or(0),
            unkillable: self.unkillable.clone(),
            containment: self.containment.clone(),
            memory_peak_bytes: leaf.filter(|_| self.has_peak).and_then(Leaf::memory_peak_bytes),
            io: Some(self.io(before.io, after.io)),
            events: Some(self.usage.events),
            limits: self.limits.clone(),
            log_error: self.terminal.as_ref().and_then(|terminal| terminal.log_error()).map(str::to_owned),
        }
    }
}

/// Sends KILL once to all processes of the leaf, and to all descendants inside or outside of the leaf.
fn kill_all(leaf: Option<&Leaf>) {
    // Kernels before 5.14 have no cgroup.kill; then only the walk kills.
    let _ = leaf.map(Leaf::kill);
    members::signal(&[libc::SIGKILL]);
}

fn status_of(status: libc::c_int) -> Status {
    if libc::WIFSIGNALED(status) {
        Status::Signaled { signal: libc::WTERMSIG(status), core_dumped: libc::WCOREDUMP(status) }
    } else {
        Status::Exited { code: libc::WEXITSTATUS(status) }
    }
}
