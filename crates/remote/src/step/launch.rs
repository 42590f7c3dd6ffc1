//! One step, from the side of who asks for it.

use std::env;
use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, ReadHalf, WriteHalf};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, broadcast, mpsc};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::allocation::{Allocation, Place};
use super::environment::for_another_node;
use super::frame::{self, Directory, Frame, PIECE_BYTES, Start, WINDOW};
use crate::credentials;
use crate::keep_alive::keep_alive;

/// How long the node may take to answer: its part of the run may be starting at this very moment.
const REACH_BOUND: Duration = Duration::from_secs(15);

/// Between two attempts.
const AGAIN: Duration = Duration::from_millis(50);

/// What to start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The program and its arguments.
    pub argv: Vec<OsString>,
    /// Whether it reads this process's standard input.
    pub has_input: bool,
}

/// An output of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// Why a step could not be followed to its end.
#[derive(Debug, thiserror::Error)]
pub enum StepError {
    /// Nobody answers there.
    #[error("node {node} cannot be reached for a step at {address}")]
    Unreachable {
        /// The node.
        node: String,
        /// Where it should be.
        address: String,
        /// Why not.
        source: io::Error,
    },
    /// Whoever answers is not the node, or does not know us.
    #[error("what answers at {address} is not node {node} of this job, or does not take steps of it")]
    Stranger {
        /// The node.
        node: String,
        /// Where it should be.
        address: String,
        /// Why not.
        source: io::Error,
    },
    /// The node would not start it.
    #[error("{message}")]
    Refused {
        /// What a shell would exit with.
        code: u8,
        /// Why, with the node's name.
        message: String,
    },
    /// The connection broke, which ends the step.
    #[error("the connection with node {node} broke before the step had ended")]
    Broken {
        /// The node.
        node: String,
        /// How.
        source: io::Error,
    },
    /// Its output cannot be passed on, so it was ended.
    #[error("cannot write the output of the step on node {node}")]
    Output {
        /// The node.
        node: String,
        /// Why not.
        source: io::Error,
    },
}

/// Runs a step on the node of this rank, in the current directory and environment, and passes its output and these signals on. Its exit
/// code.
///
/// Dropping it ends the step.
///
/// # Errors
/// When it could not be started, or its end is not known.
///
/// # Panics
/// When the allocation has no such rank.
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
    let start = Start::new(&step.argv, &environment, place_of(&directory, &allocation.directory), step.has_input);

    let (from, mut to) = tokio::io::split(connect(allocation, place).await?);
    frame::write(&mut to, &Frame::Start(Box::new(start))).await.map_err(broken)?;
    let (say, said) = mpsc::channel(WINDOW);
    let (hear, mut heard) = mpsc::channel(WINDOW);
    let room = Arc::new(Semaphore::new(WINDOW));
    // They end with this call, however it ends.
    let mut helpers = tokio::task::JoinSet::new();
    helpers.spawn(send(said, to));
    helpers.spawn(receive(from, hear));
    let mut has_started = false;
    loop {
        let frame = tokio::select! {
            frame = heard.recv() => frame.unwrap_or_else(|| Err(io::ErrorKind::UnexpectedEof.into())),
            Ok(signal) = signals.recv() => {
                let _ = say.send(Frame::Signal(signal)).await;
                continue;
            }
        };
        let written = match frame {
            Ok(Frame::Started) => {
                has_started = true;
                if step.has_input {
                    helpers.spawn(feed(say.clone(), Arc::clone(&room)));
                }
                Ok(())
            }
            Ok(Frame::Taken) => {
                room.add_permits(1);
                Ok(())
            }
            Ok(Frame::Stdout(bytes)) => output(Stream::Stdout, &bytes),
            Ok(Frame::Stderr(bytes)) => output(Stream::Stderr, &bytes),
            Ok(Frame::Ended(code)) => return Ok(code),
            Ok(Frame::Refused(code, message)) => return Err(StepError::Refused { code, message }),
            Ok(_) => return Err(broken(io::ErrorKind::InvalidData.into())),
            // With this version of TLS only the first answer tells whether our certificate was taken.
            Err(source) if !has_started => {
                return Err(StepError::Stranger { node, address: address_of(place), source });
            }
            Err(source) => return Err(broken(source)),
        };
        written.map_err(|source| StepError::Output { node: node.clone(), source })?;
    }
}

/// Where a step starts: in the same place of the job's directory, wherever that is on its node.
fn place_of(current: &Path, jobs: &Path) -> Directory {
    let canonical = jobs.canonicalize();
    let within = current.strip_prefix(jobs).ok().or_else(|| current.strip_prefix(canonical.as_deref().ok()?).ok());
    within.map_or_else(|| Directory::Absolute(current.to_owned()), |path| Directory::Within(path.to_owned()))
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
        Ok(connected) => connected.map_err(stranger),
        Err(_) => Err(stranger(io::ErrorKind::TimedOut.into())),
    }
}

/// Dials until somebody answers; a node that has not begun yet refuses.
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

async fn send(mut said: mpsc::Receiver<Frame>, mut to: WriteHalf<TlsStream<TcpStream>>) {
    while let Some(frame) = said.recv().await {
        if frame::write(&mut to, &frame).await.is_err() {
            return;
        }
    }
    // Whoever no longer says anything may still listen.
    std::future::pending::<()>().await;
}

async fn receive(mut from: ReadHalf<TlsStream<TcpStream>>, hear: mpsc::Sender<io::Result<Frame>>) {
    loop {
        let frame = frame::read(&mut from).await.and_then(|frame| frame.ok_or(io::ErrorKind::UnexpectedEof.into()));
        let is_last = frame.is_err();
        if hear.send(frame).await.is_err() || is_last {
            return;
        }
    }
}

/// Sends this process's standard input, as far as there is room for it.
async fn feed(say: mpsc::Sender<Frame>, room: Arc<Semaphore>) {
    let mut stdin = tokio::io::stdin();
    loop {
        let mut piece = vec![0; PIECE_BYTES];
        let Ok(permit) = room.acquire().await else { return };
        permit.forget();
        match stdin.read(&mut piece).await {
            Ok(0) | Err(_) => return drop(say.send(Frame::InputEnd).await),
            Ok(count) => {
                piece.truncate(count);
                if say.send(Frame::Input(piece)).await.is_err() {
                    return;
                }
            }
        }
    }
}
