//! The shepherd process: receives a launch, supervises the run, possibly supervises further launches, and exits.
//!
//! The process has one thread and one `poll`. It wakes up when a child ends, a deadline of the [`Run`] passes, a client
//! connects or sends data, or the terminal has output. File names are relative to the current directory, which is the
//! run's directory.

use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use crate::cgroup::{Entrant, Leaf, wanted};
use crate::connection::Connection;
use crate::journal::Journal;
use crate::launch::{CallOptions, Credentials, Options, Sandbox};
use crate::process::ProcessId;
use crate::record::{Containment, Enforcement, Moment, RunningRecord, STDERR, STDOUT, Status};
use crate::run::{LeafCounters, Outputs, Run, Start};
use crate::sandbox::Plan;
use crate::spawn::{self, Program};
use crate::sys;
use crate::terminal::Terminal;
use crate::wire::{self, LaunchFrame, LaunchView, Request, Started};

/// Maximum number of clients. Above the limit, a new client replaces a client that has sent nothing, or is refused.
const CONNECTION_LIMIT: usize = 64;

/// Maximum number of clients that are attached to a terminal. The other places are for agents.
const ATTACHED_LIMIT: usize = CONNECTION_LIMIT / 2;

/// Limit for incomplete frames of all clients together, in bytes: enough for a few of the largest launches.
const HELD_LIMIT: usize = 3 * wire::FRAME_LIMIT;

/// Delay between attempts to write the exit record to a full disk.
const RECORD_ROUND: Duration = Duration::from_secs(1);

/// Main function of a shepherd process. `socket` is the agent's connection, on which the first launch arrives.
///
/// # Errors
/// If the process cannot be set up; nothing was started then.
pub(crate) fn serve(socket: UnixStream, boot_id: &str) -> io::Result<()> {
    let mut keeper = Keeper::new(socket, boot_id)?;
    let mut next = keeper.next_launch(None);
    while let Some(asked) = next {
        next = keeper.run_launch(asked).and_then(|linger| keeper.next_launch(Some(linger)));
    }
    keeper.drop_leaf();
    Ok(())
}

/// A requested launch.
struct Asked {
    /// Index of the requesting connection.
    by: usize,
    frame: LaunchFrame,
    /// Descriptors sent with the launch.
    descriptors: Vec<OwnedFd>,
}

struct Keeper {
    me: ProcessId,
    boot_id: String,
    signals: SignalFd,
    listener: UnixListener,
    /// Abstract socket name of the listener.
    address: String,
    connections: Vec<Connection>,
    /// The leaf, which a lingering shepherd keeps between runs.
    leaf: Option<Leaf>,
    /// Whether the agent has received a pidfd of this process.
    introduced: bool,
}

impl Keeper {
    fn new(socket: UnixStream, boot_id: &str) -> io::Result<Keeper> {
        sys::set_name(c"hostler-sheph");
        nix::unistd::setsid()?;
        sys::become_subreaper()?;
        nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o077));
        // The launcher process ignores SIGCHLD so that shepherds are reaped automatically; a shepherd must reap its
        // children.
        let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
        // SAFETY: this installs no handler.
        unsafe { sigaction(Signal::SIGCHLD, &default) }?;
        let mut chld = SigSet::empty();
        chld.add(Signal::SIGCHLD);
        let (listener, address) = sys::listen_anywhere()?;
        Ok(Keeper {
            listener,
            address,
            me: ProcessId::current(),
            boot_id: boot_id.to_owned(),
            // The launcher process has blocked all signals, so only KILL can end a shepherd.
            signals: SignalFd::with_flags(&chld, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?,
            connections: vec![Connection::new(socket)?],
            leaf: None,
            introduced: false,
        })
    }

    /// Waits for a launch; `None` after `retry_limits`, or when no client is connected.
    fn next_launch(&mut self, retry_limits: Option<Duration>) -> Option<Asked> {
        let end = retry_limits.map(|retry_limits| Instant::now() + retry_limits);
        loop {
            self.connections.retain(|connection| !connection.closed);
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            if self.connections.is_empty() || left == Some(Duration::ZERO) {
                return None;
            }
            let mut set: Vec<_> = self.connections.iter().map(|connection| entry(&connection.stream)).collect();
            set.push(entry(&self.listener));
            sys::poll(&mut set, left).ok()?;
            for (index, ready) in set[..self.connections.len()].iter().enumerate() {
                if ready.revents == 0 {
                    continue;
                }
                self.fill(index);
                while let Some((request, descriptors)) = self.connections[index].next_request() {
                    match request {
                        Request::Launch(frame) => return Some(Asked { by: index, frame, descriptors }),
                        Request::Status | Request::Attach(_) => {
                            self.connections[index].send(&wire::refused_frame("no run is in progress"));
                        }
                        // These requests refer to the run that has just ended. The client would mistake an answer for
                        // the answer to the next launch.
                        Request::Terminate(_)
                        | Request::Signal(_)
                        | Request::SignalRun(_)
                        | Request::ChangeLimit(_)
                        | Request::Resize(_)
                        | Request::Input(_) => {}
                    }
                }
            }
            if set[self.connections.len()].revents != 0 {
                self.accept();
            }
        }
    }

    /// Starts the run of a launch and supervises it to its end. Returns the time to wait for another launch; `None` to
    /// exit.
    fn run_launch(&mut self, asked: Asked) -> Option<Duration> {
        let by = asked.by;
        let (mut run, journal) = match self.begin(&asked) {
            Ok(begun) => begun,
            Err(reason) => {
                self.connections[by].send(&wire::refused_frame(&reason));
                return None;
            }
        };
        self.connections[by].is_caller = run.is_call();
        self.announce(by, &run);
        // Free memory for arguments and environment, and close the streams of a call, which otherwise never reach their
        // end. After the announcement, because closing a file waits for its file system.
        drop(asked);
        self.watch(&mut run);
        self.finish(&mut run, journal.as_ref());
        run.options.linger.filter(|_| run.is_clean())
    }

    /// Claims the run and starts its program. An error means that the run was not claimed. If the program cannot be
    /// started, returns a run that has already ended.
    fn begin(&mut self, asked: &Asked) -> Result<(Run, Option<Journal>), String> {
        let view = asked.frame.view().map_err(|error| error.to_string())?;
        let streams = view.options.call.as_ref().map(|call| streams_of_call(call, &asked.descriptors)).transpose()?;
        let mut journal = match streams {
            Some(_) => None,
            None => Some(self.take(&view)?),
        };
        let (containment, has_peak) = self.make_leaf(&view.options);
        let otherwise = match &containment {
            Containment::Descent { reason } => reason,
            Containment::Leaf { .. } => "the cgroup does not have this limit",
        };
        let limits = wanted::enforced_limits(&view.options, self.leaf.as_ref(), otherwise);
        let moment = Moment::now();
        let leaf_before = self.leaf.as_ref().map(LeafCounters::read).unwrap_or_default();
        let mut start = Start {
            child: Err(Status::Unkillable),
            moment,
            terminal: None,
            outputs: Outputs::default(),
            containment,
            limits,
            has_peak,
            leaf_before,
            program: None,
        };
        start.child =
            self.start(&view, streams, &mut start).map_err(|(message, code)| Status::StartFailed { message, code });
        if let (Ok(pid), Some(journal)) = (&start.child, &mut journal) {
            journal.started(*pid);
        }
        Ok((Run::new(view.options, start), journal))
    }

    /// Claims the run in its journal, before anything is started.
    fn take(&self, view: &LaunchView<'_>) -> Result<Journal, String> {
        let directory = view.directory.to_string_lossy();
        nix::unistd::chdir(view.directory)
            .map_err(|errno| format!("cannot enter the run's directory `{directory}`: {}", errno.desc()))?;
        let record = RunningRecord {
            shepherd: self.me,
            boot_id: self.boot_id.clone(),
            socket: self.address.clone(),
            identity: view.options.identity.clone(),
            taken: Moment::now(),
            child: None,
            leaf: view.options.leaf.as_ref().map(|leaf| leaf.path.clone()),
        };
        Journal::take(&record, view.options.has_journal)
            .map_err(|error| format!("cannot claim the run in `{directory}`: {error}"))
    }

    /// Creates the requested leaf, or returns why no leaf exists. Also returns whether the leaf's peak memory will
    /// belong to this run only.
    fn make_leaf(&mut self, options: &Options) -> (Containment, bool) {
        let Some(spec) = &options.leaf else {
            self.drop_leaf();
            return (Containment::Descent { reason: "no leaf was requested".into() }, false);
        };
        let wanted = wanted::limits_of(options);
        let contained = Containment::Leaf { path: spec.path.clone() };
        if let Some(leaf) = &mut self.leaf
            && leaf.take_over(spec, &wanted)
        {
            return (contained, true);
        }
        self.drop_leaf();
        match Leaf::create(spec, &wanted, Entrant::Shepherd) {
            Ok(leaf) => {
                self.leaf = Some(leaf);
                (contained, true)
            }
            Err(error) => {
                let reason = format!("cannot create `{}`: {}", spec.path.display(), sys::explain(&error));
                (Containment::Descent { reason }, false)
            }
        }
    }

    fn start(
        &self,
        view: &LaunchView<'_>,
        streams: Option<(Streams<'_>, Option<BorrowedFd<'_>>)>,
        start: &mut Start,
    ) -> Result<u32, (String, i32)> {
        let (streams, namespace) = streams.map_or((None, None), |(streams, namespace)| (Some(streams), namespace));
        let options = &view.options;
        if let Some(reason) = wanted::unenforced_device_rule(options, &start.limits) {
            return Err((format!("cannot deny devices that the job does not hold: {reason}"), 126));
        }
        let call = options.call.as_ref();
        let is_on_terminal = call.map_or(options.terminal.is_some(), |call| call.terminal);
        let stdio = match streams {
            Some(streams) => {
                if is_on_terminal {
                    check_terminal(streams[0])?;
                }
                streams
            }
            None => {
                (start.terminal, start.outputs) = open_outputs(options)?;
                streams_of_run(start.terminal.as_ref(), &start.outputs)
            }
        };
        let terminal = is_on_terminal.then_some(stdio[0]);
        let sandbox = options.sandbox.as_ref().map(|wanted| plan(wanted, view, terminal)).transpose()?;
        // Relative paths of files start in the job's folder, also if the program starts elsewhere.
        let absolute = options.start_in().map(|_| options.files.from(view.cwd));
        let hosts = options.hosts.as_deref().and_then(|path| CString::new(path).ok());
        let program = Program {
            argv: &view.argv,
            env: &view.env,
            cwd: options.start_in().unwrap_or(view.cwd),
            stdio,
            files: absolute.as_ref().unwrap_or(&options.files),
            terminal: is_on_terminal,
            umask: options.umask,
            limits: call.map_or(&[], |call| &call.limits),
            namespace,
            hosts: hosts.as_deref().filter(|_| options.sandbox.is_none()),
            credentials: options.credentials.as_ref(),
            may_gain_rights: options.may_gain_rights,
            // If the leaf enforces the CPUs, an affinity is not needed.
            cpus: options.cpus.as_deref().filter(|_| start.limits.cpus != Some(Enforcement::Enforced)),
            leaf: self.leaf.as_ref(),
            sandbox,
        };
        start.moment = Moment::now();
        let child = spawn::spawn(&program)?;
        start.program = child.program;
        if let Some(error) = child.outside_leaf {
            let reason = format!("cannot enter the cgroup leaf: {}", sys::explain(&error));
            start.containment = Containment::Descent { reason };
        }
        if let Some(Enforcement::Advisory(reason)) = &mut start.limits.cpus {
            *reason = match child.unbound {
                Some(error) => format!("cannot bind to the CPUs: {}; {reason}", sys::explain(&error)),
                None => format!("only by CPU affinity, which the job can change; {reason}"),
            };
        }
        Ok(child.pid)
    }

    /// Reports to the requester that the run was claimed. The first report carries a pidfd of this process.
    fn announce(&mut self, asker: usize, run: &Run) {
        let frame = wire::started_frame(&Started { shepherd: self.me.pid, child: run.child() });
        if self.introduced {
            self.connections[asker].send(&frame);
            return;
        }
        self.introduced = true;
        let connection = &mut self.connections[asker];
        let pidfd = sys::pidfd_open(self.me.pid);
        let sent = pidfd.and_then(|pidfd| sys::send(connection.stream.as_fd(), &frame, &[pidfd.as_fd()]));
        connection.closed |= sent.is_err();
    }

    /// Waits for the end of the run and of all its processes.
    fn watch(&mut self, run: &mut Run) {
        loop {
            run.reap();
            if run.is_call() {
                self.check_caller(run);
            }
            run.advance(Instant::now(), self.leaf.as_ref());
            if run.is_over(self.leaf.as_ref()) {
                return;
            }
            self.handle_events(run, run.next_deadline());
        }
    }

    /// Reports to the caller of a call that a signal has stopped the call. Ends a call whose caller has disconnected.
    fn check_caller(&mut self, run: &mut Run) {
        let caller = self.connections.iter_mut().find(|connection| connection.is_caller && !connection.closed);
        let Some(caller) = caller else { return run.abandon(self.leaf.as_ref()) };
        if let Some(signal) = run.take_stop() {
            caller.send(&wire::stopped_frame(signal));
        }
    }

    /// Waits once for events and handles them.
    fn handle_events(&mut self, run: &mut Run, deadline: Option<Instant>) {
        let congested = run.terminal.as_ref().is_some_and(Terminal::is_congested);
        let mut set = vec![entry(&self.signals), entry(&self.listener)];
        set.extend(self.connections.iter().map(|connection| interest(connection, run.terminal.as_ref())));
        // After the main process has ended, the terminal would only report its hang-up; it is drained without polling.
        let polled = run.terminal.as_ref().filter(|_| !run.main_has_ended());
        if let Some((terminal, events)) = polled.and_then(|terminal| Some((terminal, terminal.interest()?))) {
            set.push(libc::pollfd { events, ..entry(&terminal.master()) });
        }
        let timeout = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if sys::poll(&mut set, timeout).is_err() {
            // Only a lack of kernel memory causes this error; retry after a short delay.
            std::thread::sleep(Duration::from_millis(10));
            return;
        }
        if set[0].revents != 0 {
            // A signal that arrived meanwhile wakes up the next wait.
            let _ = self.signals.read_signal();
        }
        self.pump_terminal(run);
        let count = self.connections.len();
        for (index, ready) in set[2..2 + count].iter().enumerate() {
            self.hear(index, ready.revents, congested, run);
        }
        self.connections.retain(|connection| !connection.closed);
        if set[1].revents != 0 {
            self.accept();
        }
    }

    /// Forwards input and output of the terminal, and sends the output to the clients.
    fn pump_terminal(&mut self, run: &mut Run) {
        let Some(terminal) = &mut run.terminal else { return };
        terminal.flush_typed();
        terminal.take_output();
        for connection in &mut self.connections {
            if let Some(position) = &mut connection.viewing {
                connection.closed |= terminal.show(&connection.stream, position).is_err();
            }
        }
    }

    fn hear(&mut self, index: usize, revents: libc::c_short, congested: bool, run: &mut Run) {
        let has_gone = revents & (libc::POLLHUP | libc::POLLERR) != 0;
        if revents & libc::POLLIN != 0 || (has_gone && !congested) {
            self.fill(index);
        } else if has_gone {
            self.connections[index].closed = true;
        }
        while let Some((request, _)) = self.connections[index].next_request() {
            self.answer(index, request, run);
        }
    }

    fn answer(&mut self, index: usize, request: Request, run: &mut Run) {
        let attached = self.connections.iter().filter(|connection| connection.viewing.is_some()).count();
        let connection = &mut self.connections[index];
        match (request, &mut run.terminal) {
            // Only attached clients are paused while the terminal accepts no input, so others may not send any.
            (Request::Input(_) | Request::Resize(_), Some(_)) if connection.viewing.is_none() => {
                connection.send(&wire::refused_frame("attach first"));
            }
            (Request::Input(bytes), Some(terminal)) => terminal.type_in(&bytes),
            (Request::Resize(size), Some(terminal)) => terminal.resize(size),
            (Request::Attach(_), Some(_)) if attached >= ATTACHED_LIMIT && connection.viewing.is_none() => {
                let reason = format!("{ATTACHED_LIMIT} clients are attached to the run's terminal, the maximum");
                connection.send(&wire::refused_frame(&reason));
            }
            (Request::Attach(size), Some(terminal)) => {
                connection.send(&wire::attached_frame());
                let mut position = terminal.first_position();
                terminal.resize(size);
                connection.closed |= terminal.show(&connection.stream, &mut position).is_err();
                connection.viewing = Some(position);
            }
            (Request::Input(_) | Request::Resize(_) | Request::Attach(_), None) => {
                connection.send(&wire::refused_frame("this run has no terminal"));
            }
            // An attached client reads raw output and could not distinguish an answer from it.
            (Request::Status | Request::Launch(_) | Request::Signal(_), _) if connection.viewing.is_some() => {}
            (Request::Status, _) => connection.send(&wire::report_frame(&run.report(attached))),
            (Request::Signal(signal), _) => {
                if let Err(reason) = run.signal(signal) {
                    connection.send(&wire::refused_frame(&reason));
                }
            }
            (Request::SignalRun(signal), _) => run.signal_members(signal),
            (Request::ChangeLimit(limit), _) => run.change_limit(limit),
            (Request::Terminate(terminate), _) => run.terminate(terminate, self.leaf.as_ref()),
            (Request::Launch(_), _) => connection.send(&wire::refused_frame("another run is in progress")),
        }
    }

    /// Accepts clients of root and of the shepherd's own user, verified by the kernel.
    fn accept(&mut self) {
        let own = nix::unistd::geteuid().as_raw();
        // Limited, so that a client that connects endlessly does not delay the run.
        for _ in 0..CONNECTION_LIMIT {
            let Ok((stream, _)) = self.listener.accept() else { return };
            let allowed = sys::peer(&stream).is_ok_and(|peer| peer.uid == 0 || peer.uid == own);
            if allowed
                && self.make_room()
                && let Ok(connection) = Connection::new(stream)
            {
                self.connections.push(connection);
            }
        }
    }

    /// Makes sure that a connection slot is free: at the limit, drops the connection that has been silent for the
    /// longest time. Returns whether a slot is free.
    fn make_room(&mut self) -> bool {
        if self.connections.len() < CONNECTION_LIMIT {
            return true;
        }
        let silent = self.connections.iter().position(|connection| !connection.has_spoken);
        silent.map(|index| self.connections.remove(index)).is_some()
    }

    /// Reads data of a connection. If all connections together buffer too much, closes the connection with the largest
    /// buffer.
    fn fill(&mut self, index: usize) {
        self.connections[index].fill();
        let held: usize = self.connections.iter().map(Connection::held_bytes).sum();
        if held > HELD_LIMIT
            && let Some(largest) = self.connections.iter_mut().max_by_key(|connection| connection.held_bytes())
        {
            largest.drop_inbox();
        }
    }

    /// Writes the exit record (except for a call), and reports the end of the run to the clients.
    fn finish(&mut self, run: &mut Run, journal: Option<&Journal>) {
        self.drain_terminal(run);
        let record = wire::json(&run.record(self.leaf.as_ref()));
        while journal.is_some_and(|journal| journal.ended(&record, run.options.durable).is_err()) {
            run.set_recording();
            let again = Instant::now() + RECORD_ROUND;
            while Instant::now() < again {
                self.handle_events(run, Some(again));
            }
        }
        // Clients that connected before the record was written also hear of the end.
        self.accept();
        let frame = wire::finished_frame(&record);
        for connection in &mut self.connections {
            connection.is_caller = false;
            match connection.viewing {
                Some(_) => connection.closed = true,
                None => connection.send(&frame),
            }
        }
        self.connections.retain(|connection| !connection.closed);
    }

    fn drain_terminal(&mut self, run: &mut Run) {
        while run.terminal.as_mut().is_some_and(Terminal::take_output) {}
        self.pump_terminal(run);
    }

    /// Removes the leaf. A leaf that is not empty stays for the next agent's sweep.
    fn drop_leaf(&mut self) {
        let _ = self.leaf.take().map(Leaf::remove);
    }
}

/// What the sandbox of a run consists of.
fn plan<'a>(
    wanted: &'a Sandbox,
    view: &'a LaunchView<'_>,
    terminal: Option<BorrowedFd<'a>>,
) -> Result<Plan<'a>, (String, i32)> {
    /// Size of file systems in memory without a memory limit.
    const USUAL_BYTES: u64 = 1 << 30;
    let refused = |why: &str| (format!("cannot build the sandbox: {why}"), 126);
    let options = &view.options;
    let own = nix::unistd::geteuid();
    let user = options.credentials.as_ref().filter(|user| user.uid != 0);
    Ok(Plan {
        wanted,
        user: user.filter(|user| own.is_root() || user.uid == own.as_raw()).ok_or_else(|| {
            refused("it needs a user other than root, who is that of the agent unless the agent is of root")
        })?,
        is_unprivileged: !own.is_root(),
        folder: view.cwd.to_str().map_err(|_| refused("the job's folder has a path that is not text"))?,
        memory_bytes: options.memory_limit_bytes.unwrap_or(USUAL_BYTES),
        terminal,
    })
}

/// Standard input, output and error.
type Streams<'a> = [BorrowedFd<'a>; 3];

/// Splits the descriptors of a call into its three streams and its optional mount namespace.
fn streams_of_call<'a>(
    call: &CallOptions,
    descriptors: &'a [OwnedFd],
) -> Result<(Streams<'a>, Option<BorrowedFd<'a>>), String> {
    match descriptors {
        [stdin, stdout, stderr, more @ ..] if more.len() == usize::from(call.namespace) => {
            Ok(([stdin.as_fd(), stdout.as_fd(), stderr.as_fd()], more.first().map(AsFd::as_fd)))
        }
        _ if call.namespace => {
            Err(format!("a call with a namespace needs four descriptors, but got {}", descriptors.len()))
        }
        _ => Err(format!("a call needs three descriptors, but got {}", descriptors.len())),
    }
}

/// Checks that the standard input of a call is a terminal. Does not change the terminal's owner: only the agent knows
/// whether it opened the terminal itself, or a user sent the terminal of somebody else.
fn check_terminal(input: BorrowedFd<'_>) -> Result<(), (String, i32)> {
    match nix::unistd::isatty(input) {
        Ok(true) => Ok(()),
        _ => Err(("cannot take the terminal: standard input is not a terminal".to_owned(), 126)),
    }
}

/// Opens the output files of a run.
fn open_outputs(options: &Options) -> Result<(Option<Terminal>, Outputs), (String, i32)> {
    let failed = |what: &str, error: &io::Error| (format!("cannot open {what}: {}", sys::explain(error)), 126);
    let owner = options.credentials.as_ref();
    let stdout = open_log(STDOUT, owner).map_err(|error| failed("`stdout`", &error))?;
    let (mut terminal, mut stderr) = (None, None);
    if let Some(size) = options.terminal {
        let copy = stdout.try_clone().map_err(|error| failed("`stdout`", &error))?;
        terminal = Some(Terminal::open(size, copy, owner).map_err(|error| failed("a terminal", &error))?);
    } else if !options.merge_output {
        stderr = Some(open_log(STDERR, owner).map_err(|error| failed("`stderr`", &error))?);
    }
    Ok((terminal, Outputs { stdout: Some(stdout), stderr }))
}

/// The streams of a run's program.
fn streams_of_run<'a>(terminal: Option<&'a Terminal>, outputs: &'a Outputs) -> [BorrowedFd<'a>; 3] {
    // SAFETY: the launcher process made descriptor 0 /dev/null, and nothing here closes it.
    let null = unsafe { BorrowedFd::borrow_raw(0) };
    match (terminal, &outputs.stdout) {
        (Some(terminal), _) => [terminal.slave(); 3],
        (None, Some(stdout)) => [null, stdout.as_fd(), outputs.stderr.as_ref().unwrap_or(stdout).as_fd()],
        (None, None) => [null; 3],
    }
}

fn entry(fd: &impl AsFd) -> libc::pollfd {
    libc::pollfd { fd: sys::raw(fd), events: libc::POLLIN, revents: 0 }
}

fn interest(connection: &Connection, terminal: Option<&Terminal>) -> libc::pollfd {
    let mut entry = entry(&connection.stream);
    if let (Some(position), Some(terminal)) = (connection.viewing, terminal) {
        let read = if terminal.is_congested() { 0 } else { libc::POLLIN };
        let write = if terminal.is_up_to_date(position) { 0 } else { libc::POLLOUT };
        entry.events = read | write;
    }
    entry
}

/// Opens an output file and makes the run's user its owner, because programs may reopen the file by name, e.g. as
/// `/dev/stdout`.
fn open_log(name: &str, owner: Option<&Credentials>) -> io::Result<File> {
    let file = OpenOptions::new().append(true).create(true).custom_flags(libc::O_NOFOLLOW).open(name)?;
    if let Some(owner) = owner
        && file.metadata()?.uid() != owner.uid
    {
        fchown(&file, Some(owner.uid), Some(owner.gid))?;
    }
    Ok(file)
}
