//! The caller's side of a step.

use std::env;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, broadcast};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::allocation::{Allocation, Place};
use super::environment::for_another_node;
use crate::connection::ChannelSender;
use crate::credentials;
use crate::{
    Command, Event, Frame, Open, PIECE_BYTES, Reply, StepStart, Stream, WINDOW, explain_tls, keep_alive, multiplex,
};

/// Timeout for connecting, because the host on the other node may still be starting.
const REACH_BOUND: Duration = Duration::from_secs(15);

/// Pause between two attempts to connect.
const AGAIN: Duration = Duration::from_millis(50);

/// The command of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    pub argv: Vec<OsString>,
    /// Whether the step reads this process's standard input.
    pub has_input: bool,
}

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

/// Runs a step on the node with rank `rank`, in the current directory and environment. Forwards the output and the
/// signals, and returns the exit code.
///
/// Dropping the future ends the step.
///
/// # Errors
/// Fails when the step cannot be started, or its outcome is unknown.
///
/// # Panics
/// Panics when the allocation has no such rank.
pub async fn launch(
    allocation: &Allocation,
    rank: u32,
    step: &Step,
    mut signals: broadcast::Receiver<i32>,
    mut output: impl FnMut(Stream, &[u8]) -> io::Result<()>,
) -> Result<u8, StepError> {
    let place = &allocation.nodes[rank as usize];
    let node = place.name.to_string();
    let broken = |source| StepError::Broken { node: node.clone(), source };
    let environment = for_another_node(env::vars_os(), allocation.temporary.as_deref());
    let directory = env::current_dir().map_err(broken)?;
    let below_job = below(&directory, &allocation.directory).map(|path| path.into_os_string().into_vec().into());
    let mut command = Command::new(&step.argv, environment, directory);
    command.has_input = step.has_input;

    let (connection, _incoming, run) = multiplex(connect(allocation, place).await?, None);
    // Dropping the set ends these tasks.
    let mut running = JoinSet::new();
    running.spawn(run);
    let closed = || io::Error::from(io::ErrorKind::UnexpectedEof);
    let mut channel = connection.open().ok_or_else(closed).map_err(broken)?;
    let start = Frame::Open(Open::Step(Box::new(StepStart { command, below_job })));
    channel.send(start).await.map_err(broken)?;
    let room = Arc::new(Semaphore::new(WINDOW));
    let mut has_started = false;
    loop {
        let frame = tokio::select! {
            frame = channel.receive() => frame,
            Ok(signal) = signals.recv() => {
                channel.send(Frame::Event(Event::Signal(signal))).await.map_err(broken)?;
                continue;
            }
        };
        match frame {
            Some(Frame::Reply(Reply::Started(_))) => {
                has_started = true;
                if step.has_input {
                    running.spawn(feed(channel.sender(), Arc::clone(&room)));
                }
            }
            Some(Frame::Credit(Stream::STDIN, pieces)) => room.add_permits((pieces as usize).min(WINDOW)),
            Some(Frame::Data(stream @ (Stream::STDOUT | Stream::STDERR), bytes)) => {
                output(stream, &bytes).map_err(|source| StepError::Output { node: node.clone(), source })?;
                channel.send(Frame::Credit(stream, 1)).await.map_err(broken)?;
            }
            Some(Frame::Reply(Reply::Ended(report))) => return Ok(u8::try_from(report.code).unwrap_or(u8::MAX)),
            Some(Frame::Reply(Reply::Refused(refusal))) => {
                return Err(StepError::Refused { code: refusal.code, message: refusal.message });
            }
            Some(_) => return Err(broken(io::ErrorKind::InvalidData.into())),
            None => {
                let ended = running.join_next().await.and_then(Result::ok);
                let source = ended.and_then(Result::err).unwrap_or_else(closed);
                // With TLS 1.3, only the first answer shows that the host accepted this node's certificate.
                if !has_started {
                    return Err(StepError::Stranger { node, address: address_of(place), source });
                }
                return Err(broken(source));
            }
        }
    }
}

/// Returns the directory `current` relative to the job's directory; `None` if `current` is outside of it.
fn below(current: &Path, jobs: &Path) -> Option<PathBuf> {
    let canonical = jobs.canonicalize();
    let below = current.strip_prefix(jobs).ok().or_else(|| current.strip_prefix(canonical.as_deref().ok()?).ok());
    below.map(Path::to_owned)
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
    loop {
        let left = until.saturating_duration_since(Instant::now());
        match timeout(left, TcpStream::connect(address)).await {
            Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused && Instant::now() < until => {
                sleep(AGAIN).await;
            }
            Ok(connected) => return connected,
            Err(_) => return Err(io::ErrorKind::TimedOut.into()),
        }
    }
}

/// Sends this process's standard input as the window allows.
async fn feed(sender: ChannelSender, room: Arc<Semaphore>) -> io::Result<()> {
    let mut stdin = tokio::io::stdin();
    while let Ok(permit) = room.acquire().await {
        permit.forget();
        let mut piece = vec![0; PIECE_BYTES];
        let count = stdin.read(&mut piece).await.unwrap_or(0);
        piece.truncate(count);
        if count == 0 {
            break;
        }
        sender.send(Frame::Data(Stream::STDIN, piece)).await?;
    }
    sender.send(Frame::Close(Stream::STDIN)).await
}
