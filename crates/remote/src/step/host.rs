//! The step host: a process on each node of a run that starts commands for the run's other nodes.
//!
//! The shepherd starts it as the run's main process there, so it has the job's user, limits and cgroup. Its steps
//! inherit them. On the first node, the host also starts the job's program and ends with it. On other nodes, it ends
//! on SIGTERM.
//!
//! Strangers may connect. A connection without a valid certificate is closed after [`HANDSHAKE_BOUND`]. When too many
//! connections wait for their handshake, the oldest is closed. Strangers thus cannot block peers with a certificate,
//! since their handshake takes milliseconds.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::fcntl::{Flock, FlockArg};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::allocation::Allocation;
use super::environment::on_this_node;
use crate::{
    Became, Channel, Frame, Input, Open, Refusal, RefusalKind, Reply, Report, StepStart, Streams, Wanted, carry,
    keep_alive, multiplex,
};

/// Timeout for the TLS handshake. The request that follows has a timeout of the same length.
const HANDSHAKE_BOUND: Duration = Duration::from_secs(10);

/// Maximum number of connections whose TLS handshake is in progress.
const MAX_AT_THE_DOOR: usize = 64;

/// Maximum number of concurrent steps: larger than a node's number of CPUs, but small enough for the limit of open
/// files.
const MAX_STEPS: usize = 256;

/// How long the host retries to bind the port. The port was free when the run was prepared, but another process may use
/// it briefly.
const BIND_BOUND: Duration = Duration::from_secs(5);

/// Time between SIGTERM and SIGKILL for a step whose caller has disconnected.
const GRACE: Duration = Duration::from_secs(2);

/// Pause before retrying to listen or to accept.
const PAUSE: Duration = Duration::from_millis(100);

/// Capacity of the queues between a step's streams and its supervision.
const EVENTS: usize = 16;

/// Serves steps for this node's part of a run. With a `program`, returns the program's exit code when the program ends;
/// without, returns 0 on SIGTERM.
///
/// # Errors
/// Fails when the host cannot listen or cannot start the program.
pub fn host(allocation: &Allocation, program: Option<&[OsString]>) -> io::Result<i32> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let code = runtime.block_on(serve(allocation, program));
    runtime.shutdown_background();
    code
}

async fn serve(allocation: &Allocation, program: Option<&[OsString]>) -> io::Result<i32> {
    let own = allocation.own()?;
    let trusted = allocation.nodes.iter().map(|place| place.certificate).collect();
    let _kept = allocation.temporary.as_deref().and_then(keep);
    let listener = listen(own.address.unwrap_or(Ipv4Addr::UNSPECIFIED.into()), own.port).await?;
    let host = Arc::new(Host {
        node: own.name.to_string(),
        acceptor: TlsAcceptor::from(allocation.credentials.to_accept(trusted)?),
        directory: allocation.directory.clone(),
        environment: std::env::vars_os().collect(),
        door: Mutex::default(),
        steps: Semaphore::new(MAX_STEPS),
    });
    let mut terminate = signal(SignalKind::terminate())?;
    // Catch these signals instead of ignoring them, because the program would inherit ignored signals. The program
    // receives them too.
    for kind in
        [SignalKind::interrupt(), SignalKind::hangup(), SignalKind::user_defined1(), SignalKind::user_defined2()]
    {
        drop(signal(kind)?);
    }
    let mut program = program.map(start_program).transpose()?;
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => host.receive(stream),
                // Most likely, no descriptor is free. Steps that end free some.
                Err(_) => sleep(PAUSE).await,
            },
            status = ended(&mut program) => return status.map(exit_code),
            _ = terminate.recv(), if program.is_none() => return Ok(0),
        }
    }
}

/// Locks the temporary directory, if it exists. `systemd-tmpfiles` removes directories that were unused for ten days,
/// unless they are locked.
fn keep(temporary: &Path) -> Option<Flock<File>> {
    Flock::lock(File::open(temporary).ok()?, FlockArg::LockSharedNonblock).ok()
}

/// Listens at the run's port. Retries for [`BIND_BOUND`] while the port is in use.
async fn listen(address: IpAddr, port: u16) -> io::Result<TcpListener> {
    let until = Instant::now() + BIND_BOUND;
    loop {
        match TcpListener::bind(SocketAddr::new(address, port)).await {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && Instant::now() < until => sleep(PAUSE).await,
            Err(error) => {
                return Err(io::Error::new(error.kind(), format!("cannot listen at {address} port {port}: {error}")));
            }
            bound => return bound,
        }
    }
}

fn start_program(argv: &[OsString]) -> io::Result<Child> {
    let cannot = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", argv[0].display()));
    Command::new(&argv[0]).args(&argv[1..]).spawn().map_err(cannot)
}

/// Waits for the program to end. Never returns without a program.
async fn ended(program: &mut Option<Child>) -> io::Result<ExitStatus> {
    match program {
        Some(child) => child.wait().await,
        None => std::future::pending().await,
    }
}

/// State that all steps share.
struct Host {
    node: String,
    acceptor: TlsAcceptor,
    /// The job's directory on this node.
    directory: PathBuf,
    /// Environment variables with this node's values.
    environment: Vec<(OsString, OsString)>,
    door: Mutex<Door>,
    steps: Semaphore,
}

/// Connections whose TLS handshake is in progress, oldest first.
#[derive(Default)]
struct Door {
    waiting: VecDeque<(u64, AbortHandle)>,
    count: u64,
}

impl Host {
    fn receive(self: &Arc<Self>, stream: TcpStream) {
        let mut door = self.door();
        let number = door.count;
        door.count += 1;
        let host = Arc::clone(self);
        let task = tokio::spawn(async move {
            let shown = timeout(HANDSHAKE_BOUND, async {
                keep_alive(&stream);
                host.acceptor.accept(stream).await
            });
            let shown = shown.await;
            host.door().waiting.retain(|(waiting, _)| *waiting != number);
            // A peer without a valid certificate gets the handshake's error.
            if let Ok(Ok(stream)) = shown {
                host.serve(stream).await;
            }
        });
        door.waiting.push_back((number, task.abort_handle()));
        if door.waiting.len() > MAX_AT_THE_DOOR
            && let Some((_, oldest)) = door.waiting.pop_front()
        {
            oldest.abort();
        }
    }

    fn door(&self) -> std::sync::MutexGuard<'_, Door> {
        self.door.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Serves the steps of one connection.
    async fn serve(self: &Arc<Self>, stream: TlsStream<TcpStream>) {
        let (_connection, mut incoming, run) = multiplex(stream, None);
        let steps = async {
            while let Some(mut channel) = incoming.next().await {
                let host = Arc::clone(self);
                tokio::spawn(async move {
                    if let Some(Frame::Open(Open::Step(start))) = channel.receive().await {
                        host.step(&mut channel, &start).await;
                    }
                });
            }
        };
        tokio::select! {
            _ = run => {}
            () = steps => {}
        }
    }

    /// Runs one step. Ends the step when its caller disconnects.
    async fn step(&self, channel: &mut Channel, start: &StepStart) {
        let refuse = |code, message| {
            let kind = RefusalKind::Hopeless;
            Frame::refused(Box::new(Refusal { kind, code, message, hints: Vec::new() }))
        };
        let Ok(_permit) = self.steps.try_acquire() else {
            let message =
                format!("node {} already runs {MAX_STEPS} steps, the maximum; wait until some have ended", self.node);
            return drop(channel.send(refuse(1, message)).await);
        };
        let (child, streams) = match self.start(start) {
            Ok(started) => started,
            Err((code, message)) => return drop(channel.send(refuse(code, message)).await),
        };
        if channel.send(Frame::Reply(Reply::Started(Box::default()))).await.is_err() {
            return end(child).await;
        }
        let (want, wanted) = mpsc::channel(EVENTS);
        let (tell, became) = mpsc::channel(EVENTS);
        tokio::join!(supervise(child, wanted, tell), carry(channel, streams, want, became));
    }

    /// Starts the command. On failure, returns the exit code that a shell would give, and the reason.
    fn start(&self, start: &StepStart) -> Result<(Child, Streams), (u8, String)> {
        let directory = match &start.below_job {
            Some(path) if path.is_empty() => self.directory.clone(),
            Some(path) => self.directory.join(OsStr::from_bytes(path)),
            None => start.command.directory(),
        };
        if !directory.is_dir() {
            let why = format!("the directory {} does not exist on node {}", directory.display(), self.node);
            return Err((1, why));
        }
        let argv = start.command.argv();
        let has_input = start.command.has_input;
        let mut command = Command::new(&argv[0]);
        command.args(&argv[1..]).env_clear();
        command.envs(on_this_node(start.command.environment(), &self.environment));
        command.env("PWD", &directory).current_dir(&directory).process_group(0);
        command.stdin(if has_input { Stdio::piped() } else { Stdio::null() });
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let failed = |error: io::Error| {
            let code = if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 };
            (code, format!("node {} cannot start {}: {error}", self.node, argv[0].display()))
        };
        let mut child = command.spawn().map_err(failed)?;
        let mut streams = || -> io::Result<Streams> {
            let input = child.stdin.take().map(ChildStdin::into_owned_fd).transpose()?;
            Ok(Streams {
                input: input.map(|pipe| Input::Pipe(pipe, None)),
                output: child.stdout.take().map(ChildStdout::into_owned_fd).transpose()?,
                errors: child.stderr.take().map(ChildStderr::into_owned_fd).transpose()?,
            })
        };
        let streams = streams().map_err(failed)?;
        Ok((child, streams))
    }
}

/// Carries out the caller's requests for a step, and reports the step's end.
async fn supervise(mut child: Child, mut wanted: mpsc::Receiver<Wanted>, tell: mpsc::Sender<Became>) {
    let Some(group) = child.id() else { return };
    loop {
        let status = tokio::select! {
            status = child.wait() => status,
            want = wanted.recv() => match want {
                Some(Wanted::Signal(number)) => {
                    send_signal(group, number);
                    continue;
                }
                Some(Wanted::End) | None => return end(child).await,
            },
        };
        let Ok(status) = status else { return };
        let report = Report { code: exit_code(status), ..Report::default() };
        return drop(tell.send(Became::Ended(Box::new(report))).await);
    }
}

/// Ends a step whose caller has disconnected.
async fn end(mut child: Child) {
    let Some(group) = child.id() else { return };
    send_signal(group, nix::libc::SIGTERM);
    send_signal(group, nix::libc::SIGCONT);
    if timeout(GRACE, child.wait()).await.is_err() {
        send_signal(group, nix::libc::SIGKILL);
        let _ = child.wait().await;
    }
}

/// Signals the step's process group. Nobody has reaped the leader yet, so the kernel cannot reuse the group's number.
fn send_signal(group: u32, number: i32) {
    let (Ok(group), Ok(signal)) = (i32::try_from(group), nix::sys::signal::Signal::try_from(number)) else { return };
    // The group may have just ended; ignore the error.
    let _ = nix::sys::signal::killpg(nix::unistd::Pid::from_raw(group), signal);
}

/// Returns the exit code that a shell would give.
fn exit_code(status: ExitStatus) -> i32 {
    status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1)
}
