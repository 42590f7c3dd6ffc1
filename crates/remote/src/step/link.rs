//! The caller's connection with the step host of one node. It carries any number of processes.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hostler_model::WindowSize;
use serde_bytes::ByteBuf;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, broadcast, mpsc};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::allocation::{Allocation, Place};
use super::environment::for_another_node;
use super::input::Pieces;
use crate::connection::ChannelSender;
use crate::credentials;
use crate::inherited::Inherited;
use crate::{
    Channel, Command, Connection, Event, Frame, Open, PIECE_BYTES, Reply, Report, StepClaim, StepOutcome, StepStart,
    Stream, WINDOW, explain_tls, keep_alive, multiplex,
};

/// Timeout for connecting, because the host on the other node may still be starting.
pub const REACH_BOUND: Duration = Duration::from_secs(15);

/// Pause between two attempts to connect.
pub const AGAIN: Duration = Duration::from_millis(50);

/// Why a step did not start, or ended without a known exit code.
#[derive(Debug, thiserror::Error)]
pub enum StepError {
    /// The host does not answer.
    #[error("cannot connect to node {node} at {address} to start a step")]
    Unreachable { node: String, address: String, source: io::Error },
    /// The TLS handshake failed: the peer is another program, or does not trust this node's certificate.
    #[error("the program at {address} is not node {node} of this job, or rejects this node's certificate")]
    Stranger { node: String, address: String, source: io::Error },
    /// The host refused to start the step.
    #[error("{message}")]
    Refused {
        /// The exit code that a shell would give.
        code: u8,
        /// The reason, with the node's name.
        message: String,
    },
    /// The connection broke, which ends the step.
    #[error("the connection with node {node} broke before the end of the step")]
    Broken { node: String, source: io::Error },
    /// The caller ended the step, because it could not write the step's output.
    #[error("cannot write the output of the step on node {node}")]
    Output { node: String, source: io::Error },
}

/// What all processes of a step get from their caller.
#[derive(Debug, Clone)]
pub struct Surroundings {
    environment: Vec<(OsString, OsString)>,
    directory: PathBuf,
    below_job: Option<ByteBuf>,
    inherited: Inherited,
    step: Option<u32>,
}

impl Surroundings {
    /// Uses these variables, this directory, and the umask and the limits of this process. Each node replaces variables that have
    /// values of its own.
    #[must_use]
    pub fn new(
        allocation: &Allocation,
        environment: impl IntoIterator<Item = (OsString, OsString)>,
        directory: PathBuf,
    ) -> Self {
        let below_job = below(&directory, &allocation.directory).map(|path| path.into_os_string().into_vec().into());
        let environment = for_another_node(environment, allocation.temporary.as_deref());
        Self { environment, directory, below_job, inherited: Inherited::own(), step: None }
    }

    /// Hands on only the limits of resources that `is_kept` accepts by name.
    #[must_use]
    pub fn with_limits_of(self, is_kept: impl Fn(&str) -> bool) -> Self {
        Self { inherited: self.inherited.with_limits_of(is_kept), ..self }
    }

    /// Says to which step of the job the processes belong.
    #[must_use]
    pub fn of_step(self, claimed: &Claimed) -> Self {
        Self { step: Some(claimed.step), ..self }
    }
}

/// Returns the directory `current` relative to the job's directory; `None` if `current` is outside of it.
fn below(current: &Path, jobs: &Path) -> Option<PathBuf> {
    let canonical = jobs.canonicalize();
    let below = current.strip_prefix(jobs).ok().or_else(|| current.strip_prefix(canonical.as_deref().ok()?).ok());
    below.map(Path::to_owned)
}

/// One process of a step.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Process {
    pub argv: Vec<OsString>,
    /// Variables that replace those of the caller and of the node.
    pub variables: Vec<(OsString, OsString)>,
    /// The size of the process's terminal; `None` for a process without a terminal.
    pub terminal: Option<WindowSize>,
    /// The variable that names the process's descriptor for messages; `None` for a process without one.
    pub messages: Option<String>,
}

/// A message of the caller to running processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Control {
    Signal(i32),
    Resize(WindowSize),
}

/// A change of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress<'a> {
    Started,
    Output(Stream, &'a [u8]),
    /// A part of the process's messages.
    Message(&'a [u8]),
}

/// The connection with one node. Dropping it ends the processes that it carries.
#[derive(Debug)]
pub struct Link {
    node: String,
    address: String,
    connection: Connection,
    /// Why the connection broke.
    broke: Arc<Mutex<Option<io::Error>>>,
    /// Dropping the set closes the connection.
    _driver: JoinSet<()>,
}

/// The messages of the caller to a process.
pub type Messages = mpsc::Receiver<Vec<u8>>;

/// CPUs that a step holds until this is dropped.
#[derive(Debug)]
pub struct Claimed {
    /// The number of the step within its job.
    pub step: u32,
    channel: Channel,
}

impl Claimed {
    /// Tells the host how the step ended, for the records of the job, and frees the CPUs.
    pub async fn finish(mut self, outcome: StepOutcome) {
        if self.channel.send(Frame::Event(Event::Finish(outcome))).await.is_ok() {
            // The host answers once it has the record. If it has gone, the job has ended.
            let _ = self.channel.receive().await;
        }
    }
}

impl Link {
    /// Connects with the host on the node of this rank.
    ///
    /// # Errors
    /// Fails when the host cannot be reached, or is not the one of the allocation.
    ///
    /// # Panics
    /// Panics when the allocation has no such rank.
    pub async fn open(allocation: &Allocation, rank: u32) -> Result<Self, StepError> {
        let place = &allocation.nodes[rank as usize];
        let stream = connect(allocation, place).await?;
        Ok(Self::over(place.name.to_string(), address_of(place), stream))
    }

    /// Uses a connection with the host of a node.
    pub fn over(node: String, address: String, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Self {
        let (connection, _incoming, run) = multiplex(stream, None);
        let broke = Arc::new(Mutex::new(None));
        let mut driver = JoinSet::new();
        let why = Arc::clone(&broke);
        driver.spawn(async move {
            let outcome = run.await;
            *why.lock().unwrap_or_else(PoisonError::into_inner) = outcome.err();
        });
        Self { node, address, connection, broke, _driver: driver }
    }

    /// Runs a process to its end. Passes on the input, the messages and the controls, and tells about the progress.
    ///
    /// Dropping the future ends the process.
    ///
    /// # Errors
    /// Fails when the process cannot be started, or its outcome is unknown.
    pub async fn run(
        &self,
        process: &Process,
        surroundings: &Surroundings,
        mut input: Option<Pieces>,
        messages: Option<Messages>,
        mut controls: broadcast::Receiver<Control>,
        mut tell: impl FnMut(Progress<'_>) -> io::Result<()>,
    ) -> Result<Report, StepError> {
        let broken = |source| StepError::Broken { node: self.node.clone(), source };
        let mut command =
            Command::new(&process.argv, surroundings.environment.iter().cloned(), surroundings.directory.clone());
        command.has_input = input.is_some();
        command.terminal = process.terminal;
        command.umask = surroundings.inherited.umask;
        command.limits.clone_from(&surroundings.inherited.limits);
        let mut start = StepStart::new(command, surroundings.below_job.clone(), &process.variables);
        start.step = surroundings.step;
        start.messages.clone_from(&process.messages);
        let mut channel = self.connection.open().ok_or_else(|| broken(self.why()))?;
        channel.send(Frame::Open(Open::Step(Box::new(start)))).await.map_err(broken)?;
        let room = Arc::new(Semaphore::new(WINDOW));
        let room_for_messages = Arc::new(Semaphore::new(WINDOW));
        let mut feeding = JoinSet::new();
        if let Some(messages) = messages {
            feeding.spawn(post(channel.sender(), Arc::clone(&room_for_messages), messages));
        }
        let mut has_started = false;
        loop {
            let frame = tokio::select! {
                frame = channel.receive() => frame,
                Ok(control) = controls.recv() => {
                    let event = match control {
                        Control::Signal(number) => Event::Signal(number),
                        Control::Resize(size) => Event::Resize(size),
                    };
                    channel.send(Frame::Event(event)).await.map_err(broken)?;
                    continue;
                }
            };
            let output = |source| StepError::Output { node: self.node.clone(), source };
            match frame {
                Some(Frame::Reply(Reply::Started(started))) => {
                    if process.messages.is_some() && !started.has_messages {
                        let message = format!(
                            "node {} runs an older version of Hostler, which does not start MPI programs; update it",
                            self.node
                        );
                        return Err(StepError::Refused { code: 1, message });
                    }
                    has_started = true;
                    tell(Progress::Started).map_err(output)?;
                    if let Some(pieces) = input.take() {
                        feeding.spawn(feed(channel.sender(), Arc::clone(&room), pieces));
                    }
                }
                Some(Frame::Credit(Stream::STDIN, pieces)) => room.add_permits((pieces as usize).min(WINDOW)),
                Some(Frame::Credit(Stream::MESSAGES, pieces)) => {
                    room_for_messages.add_permits((pieces as usize).min(WINDOW));
                }
                Some(Frame::Data(stream @ (Stream::STDOUT | Stream::STDERR), bytes)) => {
                    tell(Progress::Output(stream, &bytes)).map_err(output)?;
                    channel.send(Frame::Credit(stream, 1)).await.map_err(broken)?;
                }
                Some(Frame::Data(Stream::MESSAGES, bytes)) => {
                    tell(Progress::Message(&bytes)).map_err(output)?;
                    channel.send(Frame::Credit(Stream::MESSAGES, 1)).await.map_err(broken)?;
                }
                Some(Frame::Reply(Reply::Ended(report))) => return Ok(*report),
                Some(Frame::Reply(Reply::Refused(refusal))) => {
                    return Err(StepError::Refused { code: refusal.code, message: refusal.message });
                }
                Some(_) => return Err(broken(io::ErrorKind::InvalidData.into())),
                // With TLS 1.3, only the first answer shows that the host accepted the caller's certificate.
                None if !has_started => return Err(self.rejected()),
                None => return Err(broken(self.why())),
            }
        }
    }

    /// Holds an allocation without a program until `code` yields the exit code with which the allocation ends.
    ///
    /// Dropping the future, or a broken connection, leaves the end to the host.
    ///
    /// # Errors
    /// Fails when the connection breaks, which also happens when the allocation ends.
    pub async fn hold(&self, code: impl Future<Output = i32>) -> Result<(), StepError> {
        let broken = |source| StepError::Broken { node: self.node.clone(), source };
        let mut channel = self.connection.open().ok_or_else(|| broken(self.why()))?;
        channel.send(Frame::Open(Open::Hold)).await.map_err(broken)?;
        match channel.receive().await {
            Some(Frame::Reply(Reply::Started(_))) => {}
            Some(Frame::Reply(Reply::Refused(refusal))) => {
                return Err(StepError::Refused { code: refusal.code, message: refusal.message });
            }
            Some(_) => return Err(broken(io::ErrorKind::InvalidData.into())),
            None => return Err(self.rejected()),
        }
        tokio::select! {
            code = code => {
                channel.send(Frame::Event(Event::Release(code))).await.map_err(broken)?;
                // The host answers once it has taken note of the end.
                let _ = channel.receive().await;
                Ok(())
            }
            _ = channel.receive() => Err(broken(self.why())),
        }
    }

    /// Waits until the CPUs of the claim are free, and holds them.
    ///
    /// # Errors
    /// Fails when the job does not have as many CPUs, or the connection breaks.
    pub async fn claim(&self, claim: StepClaim) -> Result<Claimed, StepError> {
        let broken = |source| StepError::Broken { node: self.node.clone(), source };
        let mut channel = self.connection.open().ok_or_else(|| broken(self.why()))?;
        channel.send(Frame::Open(Open::Claim(Box::new(claim)))).await.map_err(broken)?;
        match channel.receive().await {
            Some(Frame::Reply(Reply::Started(started))) => {
                Ok(Claimed { step: started.step.unwrap_or_default(), channel })
            }
            Some(Frame::Reply(Reply::Refused(refusal))) => {
                Err(StepError::Refused { code: refusal.code, message: refusal.message })
            }
            Some(_) => Err(broken(io::ErrorKind::InvalidData.into())),
            None => Err(self.rejected()),
        }
    }

    /// Watches a step that runs on the node. `tell` gets the output of its processes, each with its number. Returns the exit code
    /// of the step if this is the first node of the job.
    ///
    /// # Errors
    /// Fails when the step does not run there, the connection breaks, or `tell` fails.
    pub async fn watch(
        &self,
        step: u32,
        mut tell: impl FnMut(u32, Stream, &[u8]) -> io::Result<()>,
    ) -> Result<i32, StepError> {
        let broken = |source| StepError::Broken { node: self.node.clone(), source };
        let mut channel = self.connection.open().ok_or_else(|| broken(self.why()))?;
        channel.send(Frame::Open(Open::Watch(step))).await.map_err(broken)?;
        loop {
            match channel.receive().await {
                Some(Frame::Reply(Reply::Started(_))) => {}
                Some(Frame::Data(stream, piece)) => {
                    let (rank, bytes) =
                        piece.split_first_chunk().ok_or_else(|| broken(io::ErrorKind::InvalidData.into()))?;
                    let output = |source| StepError::Output { node: self.node.clone(), source };
                    tell(u32::from_le_bytes(*rank), stream, bytes).map_err(output)?;
                    channel.send(Frame::Credit(stream, 1)).await.map_err(broken)?;
                }
                Some(Frame::Reply(Reply::Ended(report))) => return Ok(report.code),
                Some(Frame::Reply(Reply::Refused(refusal))) => {
                    return Err(StepError::Refused { code: refusal.code, message: refusal.message });
                }
                Some(_) => return Err(broken(io::ErrorKind::InvalidData.into())),
                None => return Err(broken(self.why())),
            }
        }
    }

    /// The connection was closed before the host's first answer.
    fn rejected(&self) -> StepError {
        StepError::Stranger { node: self.node.clone(), address: self.address.clone(), source: self.why() }
    }

    fn why(&self) -> io::Error {
        let mut broke = self.broke.lock().unwrap_or_else(PoisonError::into_inner);
        broke.take().unwrap_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }
}

/// Sends the pieces of the input as the window allows.
async fn feed(sender: ChannelSender, room: Arc<Semaphore>, mut pieces: Pieces) -> io::Result<()> {
    while let Some(piece) = pieces.next().await {
        let Ok(permit) = room.acquire().await else { break };
        permit.forget();
        sender.send(Frame::Data(Stream::STDIN, piece.to_vec())).await?;
    }
    sender.send(Frame::Close(Stream::STDIN)).await
}

/// Sends messages as the window allows.
async fn post(sender: ChannelSender, room: Arc<Semaphore>, mut messages: Messages) -> io::Result<()> {
    while let Some(message) = messages.recv().await {
        for piece in message.chunks(PIECE_BYTES) {
            let Ok(permit) = room.acquire().await else { return Ok(()) };
            permit.forget();
            sender.send(Frame::Data(Stream::MESSAGES, piece.to_vec())).await?;
        }
    }
    Ok(())
}

fn address_of(place: &Place) -> String {
    match place.address {
        Some(address) => std::net::SocketAddr::new(address, place.port).to_string(),
        None => format!("{}:{}", place.name, place.port),
    }
}

async fn connect(allocation: &Allocation, place: &Place) -> Result<TlsStream<TcpStream>, StepError> {
    let address = address_of(place);
    let node = place.name.to_string();
    let unreachable = |source| StepError::Unreachable { node: node.clone(), address: address.clone(), source };
    let stream = reach(&address).await.map_err(unreachable)?;
    keep_alive(&stream);
    let stranger = |source| StepError::Stranger { node: node.clone(), address: address.clone(), source };
    let config = allocation.credentials.to_launch(place.certificate).map_err(stranger)?;
    let handshake = TlsConnector::from(config).connect(credentials::server_name(), stream);
    match timeout(REACH_BOUND, handshake).await {
        Ok(connected) => connected.map_err(explain_tls).map_err(stranger),
        Err(_) => Err(stranger(io::ErrorKind::TimedOut.into())),
    }
}

/// Connects to a host, and retries while the host is still starting.
async fn reach(address: &str) -> io::Result<TcpStream> {
    let until = Instant::now() + REACH_BOUND;
    let mut pause = Duration::from_millis(1);
    loop {
        let left = until.saturating_duration_since(Instant::now());
        match timeout(left, TcpStream::connect(address)).await {
            Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused && Instant::now() < until => {
                sleep(pause).await;
                pause = (2 * pause).min(AGAIN);
            }
            Ok(connected) => return connected,
            Err(_) => return Err(io::ErrorKind::TimedOut.into()),
        }
    }
}
