//! The process of ours that a run has on each of its nodes: it starts what the others ask for.
//!
//! It is the run's main process there, started by its shepherd, so it has the job's user, limits and leaf, and whatever it starts has them
//! too. On the first node it also starts the job's program and ends with it; on the others it ends when it is told to.
//!
//! Strangers may knock. What has not shown its certificate within [`HANDSHAKE_BOUND`] is closed, and where too many stand at the door the
//! one that has stood there longest goes: so they cannot keep out one who has a certificate, which takes milliseconds.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::fcntl::{Flock, FlockArg};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, ChildStdin, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::allocation::Allocation;
use super::environment::on_this_node;
use super::frame::{self, Directory, Frame, PIECE_BYTES, Start, WINDOW};
use crate::keep_alive::keep_alive;

/// How long somebody may take to show a certificate, and then to say what to start.
const HANDSHAKE_BOUND: Duration = Duration::from_secs(10);

/// How many may stand at the door.
const MAX_AT_THE_DOOR: usize = 64;

/// The most steps at a time: more processes than a node has CPUs, few enough to have descriptors for.
const MAX_STEPS: usize = 256;

/// How long the port may be another's: it was free when the run was made ready.
const BIND_BOUND: Duration = Duration::from_secs(5);

/// Between TERM and KILL for a step whose caller is gone.
const GRACE: Duration = Duration::from_secs(2);

/// What a step has left in the background may hold its outputs open: after this silence they count as closed.
const QUIET: Duration = Duration::from_millis(100);

/// The most that is read of them once it has ended; a pipe holds far less.
const LEFTOVER_BYTES: usize = 1 << 20;

/// Frames that wait to be sent.
const SAID_LEN: usize = 16;

/// Takes steps for this node's part of a run: until `program` has ended, whose exit code is returned, or without one until it is told to
/// end.
///
/// # Errors
/// When it cannot listen, or the program cannot be started.
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
    // These reach the program as well. They are to be lived through, not to be ignored: that would be inherited.
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
                // Out of descriptors, most likely; steps that end give some back.
                Err(_) => sleep(QUIET).await,
            },
            status = ended(&mut program) => return status.map(exit_code),
            _ = terminate.recv(), if program.is_none() => return Ok(0),
        }
    }
}

/// Locks the directory for temporary files, if it is there: `systemd-tmpfiles` would take one away that is not used for ten days, but not
/// one that is locked.
fn keep(temporary: &Path) -> Option<Flock<File>> {
    Flock::lock(File::open(temporary).ok()?, FlockArg::LockSharedNonblock).ok()
}

/// Listens at the port that the run was promised.
async fn listen(address: IpAddr, port: u16) -> io::Result<TcpListener> {
    let until = Instant::now() + BIND_BOUND;
    loop {
        match TcpListener::bind(SocketAddr::new(address, port)).await {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && Instant::now() < until => sleep(QUIET).await,
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

/// When the program has ended; never when there is none.
async fn ended(program: &mut Option<Child>) -> io::Result<ExitStatus> {
    match program {
        Some(child) => child.wait().await,
        None => std::future::pending().await,
    }
}

/// What every step needs.
struct Host {
    node: String,
    acceptor: TlsAcceptor,
    /// The job's directory here.
    directory: PathBuf,
    /// What is true on this node.
    environment: Vec<(OsString, OsString)>,
    door: Mutex<Door>,
    steps: Semaphore,
}

/// Who has knocked and not shown a certificate, longest first.
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
            // Whoever cannot show one learns that from the handshake.
            if let Ok(Ok(stream)) = shown {
                host.step(stream).await;
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

    /// One step from its start to its end. What breaks the connection ends it too.
    async fn step(&self, stream: TlsStream<TcpStream>) {
        let (mut from, mut to) = tokio::io::split(stream);
        let Ok(Ok(Some(Frame::Start(start)))) = timeout(HANDSHAKE_BOUND, frame::read(&mut from)).await else { return };
        let started = match self.steps.try_acquire() {
            Ok(permit) => self.start(&start).map(|child| (child, permit)),
            Err(_) => Err((1, format!("node {} has {MAX_STEPS} steps already; wait until some have ended", self.node))),
        };
        match started {
            Ok((child, _permit)) => follow(child, from, to).await,
            Err((code, why)) => {
                let _ = frame::write(&mut to, &Frame::Refused(code, why)).await;
                let _ = to.shutdown().await;
            }
        }
    }

    /// Starts the command; or the exit code that a shell would give, and why.
    fn start(&self, start: &Start) -> Result<Child, (u8, String)> {
        let directory = match start.directory() {
            Directory::Within(path) if path.as_os_str().is_empty() => self.directory.clone(),
            Directory::Within(path) => self.directory.join(path),
            Directory::Absolute(path) => path,
        };
        if !directory.is_dir() {
            let why = format!("the directory {} does not exist on node {}", directory.display(), self.node);
            return Err((1, why));
        }
        let argv = start.argv();
        let mut command = Command::new(&argv[0]);
        command.args(&argv[1..]).env_clear().envs(on_this_node(start.environment(), &self.environment));
        command.env("PWD", &directory).current_dir(&directory).process_group(0);
        command.stdin(if start.has_input { Stdio::piped() } else { Stdio::null() });
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().map_err(|error| {
            let code = if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 };
            (code, format!("node {} cannot start {}: {error}", self.node, argv[0].display()))
        })
    }
}

/// Carries what the step reads and writes until it has ended, or its caller is gone.
async fn follow(mut child: Child, from: ReadHalf<TlsStream<TcpStream>>, to: WriteHalf<TlsStream<TcpStream>>) {
    let Some(group) = child.id() else { return };
    let (say, said) = mpsc::channel(SAID_LEN);
    let sender = tokio::spawn(send(said, to));
    let (has_ended, ended) = watch::channel(false);
    let mut outputs = tokio::task::JoinSet::new();
    if let Some(stdout) = child.stdout.take() {
        outputs.spawn(pass_on(stdout, say.clone(), Frame::Stdout, ended.clone()));
    }
    if let Some(stderr) = child.stderr.take() {
        outputs.spawn(pass_on(stderr, say.clone(), Frame::Stderr, ended));
    }
    let (input, pieces) = mpsc::channel(WINDOW + 1);
    let feeder = tokio::spawn(feed(pieces, child.stdin.take(), say.clone()));
    let _ = say.send(Frame::Started).await;
    let status = tokio::select! {
        status = child.wait() => status.ok(),
        () = obey(from, input, group) => None,
    };
    match status {
        Some(status) => {
            let _ = has_ended.send(true);
            while outputs.join_next().await.is_some() {}
            let _ = say.send(Frame::Ended(u8::try_from(exit_code(status)).unwrap_or(u8::MAX))).await;
        }
        None => end(&mut child, group).await,
    }
    outputs.abort_all();
    feeder.abort();
    drop(say);
    let _ = sender.await;
}

/// Does what the caller says; ends when the caller is gone or does not keep to the protocol.
async fn obey(mut from: ReadHalf<TlsStream<TcpStream>>, input: mpsc::Sender<Option<Vec<u8>>>, group: u32) {
    loop {
        let is_kept = match frame::read(&mut from).await {
            Ok(Some(Frame::Input(piece))) => input.try_send(Some(piece)).is_ok(),
            Ok(Some(Frame::InputEnd)) => input.try_send(None).is_ok(),
            Ok(Some(Frame::Signal(number))) => {
                send_signal(group, number);
                true
            }
            _ => false,
        };
        if !is_kept {
            return;
        }
    }
}

/// Passes input on to the command, as far as it wants any.
async fn feed(mut pieces: mpsc::Receiver<Option<Vec<u8>>>, mut stdin: Option<ChildStdin>, say: mpsc::Sender<Frame>) {
    while let Some(piece) = pieces.recv().await {
        match (piece, &mut stdin) {
            (Some(piece), Some(pipe)) => {
                if pipe.write_all(&piece).await.is_err() {
                    stdin = None;
                }
                let _ = say.send(Frame::Taken).await;
            }
            (Some(_), None) => drop(say.send(Frame::Taken).await),
            (None, _) => stdin = None,
        }
    }
}

/// Passes one output on until it is closed, or the command has ended and nothing more comes.
async fn pass_on(
    mut from: impl AsyncRead + Unpin,
    say: mpsc::Sender<Frame>,
    frame: fn(Vec<u8>) -> Frame,
    mut ended: watch::Receiver<bool>,
) {
    let mut piece = vec![0; PIECE_BYTES];
    let mut leftover = LEFTOVER_BYTES;
    loop {
        let count = tokio::select! {
            biased;
            count = from.read(&mut piece) => count.unwrap_or(0),
            () = quiet(&mut ended) => 0,
        };
        if count == 0 || leftover == 0 || say.send(frame(piece[..count].to_vec())).await.is_err() {
            return;
        }
        if *ended.borrow() {
            leftover = leftover.saturating_sub(count);
        }
    }
}

async fn quiet(ended: &mut watch::Receiver<bool>) {
    let _ = ended.wait_for(|ended| *ended).await;
    sleep(QUIET).await;
}

/// Sends frames as they come, and closes the connection after the last.
async fn send(mut said: mpsc::Receiver<Frame>, mut to: WriteHalf<TlsStream<TcpStream>>) {
    while let Some(frame) = said.recv().await {
        if frame::write(&mut to, &frame).await.is_err() {
            return;
        }
    }
    let _ = timeout(GRACE, to.shutdown()).await;
}

/// Ends a step whose caller is gone.
async fn end(child: &mut Child, group: u32) {
    send_signal(group, nix::libc::SIGTERM);
    send_signal(group, nix::libc::SIGCONT);
    if timeout(GRACE, child.wait()).await.is_err() {
        send_signal(group, nix::libc::SIGKILL);
        let _ = child.wait().await;
    }
}

/// Signals the step's process group. Its leader has not been waited for, so the number is still its own.
fn send_signal(group: u32, number: i32) {
    let (Ok(group), Ok(signal)) = (i32::try_from(group), nix::sys::signal::Signal::try_from(number)) else { return };
    // One that has just ended needs no signal.
    let _ = nix::sys::signal::killpg(nix::unistd::Pid::from_raw(group), signal);
}

/// What a shell would say.
fn exit_code(status: ExitStatus) -> i32 {
    status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1)
}
