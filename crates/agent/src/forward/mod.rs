//! Connections to TCP ports and Unix sockets of runs: connects only to sockets on which processes of the run listen, and
//! carries bytes between the socket and the head. [`reverse`] has the connections from runs.

mod listeners;
mod reverse;
mod sockets;
mod visit;

use std::fs;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hostler_client::Client;
use hostler_core::agent::RunLaunch;
use hostler_model::{RunId, Work, os_string_of};
use hostler_proto::forward::{Destination, ForwardAnswer, STEP_HOST};
use hostler_remote::step::SOCKET;
use socket2::{Domain, SockRef, Socket, Type};

use self::listeners::{Listener, find};
pub(crate) use self::reverse::listen;
use self::reverse::{Accepted, AcceptedConnections};
use self::sockets::Site;
pub(crate) use self::visit::interface_inside;
use self::visit::socket_inside;
use crate::account::Accounts;
use crate::measure::usage::run::RunPlace;
use crate::runs::control::Control;
use crate::runs::directory::Runs;

/// Time to find a listener and to connect to it. With the turns of others, it is shorter than the head waits.
const CONNECT_TIME: Duration = Duration::from_secs(4);

/// What connections of runs need of the node.
pub(crate) struct Forwarding {
    pub(crate) head: Arc<Client>,
    pub(crate) accounts: Arc<Accounts>,
    pub(crate) runs: Arc<Runs>,
    /// Connections of runs to the machines of their users.
    pub(crate) accepted: AcceptedConnections,
}

/// A run on this node.
pub(crate) struct Running {
    pub(crate) control: Control,
    pub(crate) place: RunPlace,
    pub(crate) launch: Arc<RunLaunch>,
}

/// A connection to a process of a run.
enum Near {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Near {
    /// Makes a TCP connection end with a reset if it is dropped before its data was carried: the other end then gets an error, not
    /// an end of file. Unix sockets have no reset.
    fn reset_when_dropped(&self) {
        if let Self::Tcp(stream) = self {
            // It may be reset already.
            let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO));
        }
    }
}

/// Answers the head's request for a connection to a run, and carries its bytes until it ends. `running` is absent for a run
/// that is not on this node.
pub(crate) async fn join(
    forwarding: &Forwarding,
    stream: &str,
    running: Option<Running>,
    to: Destination,
) -> anyhow::Result<()> {
    let nothing = match &to {
        Destination::Port(_) => ForwardAnswer::NothingListens,
        Destination::Socket(_) | Destination::Accepted(_) => ForwardAnswer::NothingOnSocket,
    };
    let connected = match running {
        Some(running) => running.connect(forwarding, to).await,
        None => Ok(None),
    };
    let (answer, near) = match connected {
        Ok(Some(near)) => (ForwardAnswer::Connected, Some(near)),
        Ok(None) => (nothing, None),
        Err(error) => (ForwardAnswer::Failed(format!("{error:#}")), None),
    };
    carry(forwarding, stream, &answer, near).await
}

/// Carries the bytes of a connection that a process of the run has made to a listener.
pub(crate) async fn join_accepted(
    forwarding: &Forwarding,
    stream: &str,
    run: RunId,
    number: u64,
) -> anyhow::Result<()> {
    let Some(Accepted { near, permit }) = forwarding.accepted.take(run, number) else {
        return carry(forwarding, stream, &ForwardAnswer::NothingOnSocket, None).await;
    };
    let carried = carry(forwarding, stream, &ForwardAnswer::Connected, Some(near)).await;
    drop(permit);
    carried
}

/// Answers the head, and carries the bytes of `near` until it ends.
async fn carry(
    forwarding: &Forwarding,
    stream: &str,
    answer: &ForwardAnswer,
    near: Option<Near>,
) -> anyhow::Result<()> {
    let far = forwarding.head.stream_forward(stream, answer).await?;
    match near {
        Some(Near::Tcp(near)) => {
            near.set_nonblocking(true)?;
            near.set_nodelay(true)?;
            SockRef::from(&near).set_linger(None)?;
            let mut near = tokio::net::TcpStream::from_std(near)?;
            if let Err(error) = far.carry(&mut near).await {
                // A reset, so that the job does not take a part of the data for all of it. Unix sockets have none.
                near.set_zero_linger()?;
                return Err(error.into());
            }
        }
        Some(Near::Unix(near)) => {
            near.set_nonblocking(true)?;
            far.carry(&mut tokio::net::UnixStream::from_std(near)?).await?;
        }
        None => {}
    }
    Ok(())
}

impl Running {
    /// Connects to a server of the run; `None` if the run does not listen there.
    async fn connect(self, forwarding: &Forwarding, to: Destination) -> anyhow::Result<Option<Near>> {
        match to {
            Destination::Port(port) => {
                let Self { control, place, .. } = self;
                let connected = control.connect(move || connect(&place, port)).await.flatten()?;
                Ok(connected.map(Near::Tcp))
            }
            Destination::Socket(path) => {
                let site = self.site(forwarding).await?;
                let path = match path.as_str() {
                    STEP_HOST => forwarding.runs.of(self.launch.run()).steps().join(SOCKET).display().to_string(),
                    _ => path,
                };
                let Self { control, place, .. } = self;
                let deadline = move || Instant::now() + CONNECT_TIME;
                let connected = control.connect(move || sockets::connect(&place, &site, &path, deadline())).await?;
                Ok(connected?.map(Near::Unix))
            }
            Destination::Accepted(_) => Ok(None),
        }
    }

    /// How the run sees files.
    async fn site(&self, forwarding: &Forwarding) -> anyhow::Result<Site> {
        let launch = &self.launch;
        let account = forwarding.accounts.of(&launch.job.user, launch.job.uid).await?;
        Ok(Site {
            folder: match &launch.spec().work {
                Work::Command { directory, .. } => os_string_of(directory).into(),
                Work::Project { .. } => forwarding.runs.of(launch.run()).work(),
            },
            is_sandboxed: launch.spec().surroundings.sandbox,
            user: account.map(|account| account.ids.clone()),
        })
    }
}

/// Connects to a port of a run; `None` if the run does not listen on it.
fn connect(place: &RunPlace, port: u16) -> anyhow::Result<Option<TcpStream>> {
    let deadline = Instant::now() + CONNECT_TIME;
    let mut failure = None;
    for listener in find(place, port, deadline)? {
        if Instant::now() >= deadline {
            break;
        }
        match connect_to(&listener, deadline) {
            // Meanwhile, the run may have closed the socket, and another program may have taken the port.
            Ok(stream) => {
                let is_same = |it: &Listener| it.namespace == listener.namespace && it.address == listener.address;
                return Ok(find(place, port, deadline)?.iter().any(is_same).then_some(stream));
            }
            // The machine does not have the address.
            Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => {}
            Err(error) => failure = Some(error),
        }
    }
    failure.map_or(Ok(None), |error| Err(error.into()))
}

fn connect_to(Listener { namespace, pid, address }: &Listener, deadline: Instant) -> io::Result<TcpStream> {
    let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
    let domain = Domain::for_address(*address);
    let socket = match fs::read_link("/proc/self/ns/net")? == *namespace {
        true => Socket::new(domain, Type::STREAM, None)?,
        false => socket_inside(namespace, *pid, domain)?,
    };
    connect_from_same(socket, *address, left)
}

/// Connects a socket to an address of its machine or sandbox, from the same address. Programs can listen at addresses that the machine does not
/// have; a connection to such an address must not reach the machine that has it.
fn connect_from_same(socket: Socket, address: SocketAddr, timeout: Duration) -> io::Result<TcpStream> {
    socket.bind(&SocketAddr::new(address.ip(), 0).into())?;
    socket.connect_timeout(&address.into(), timeout)?;
    Ok(socket.into())
}
