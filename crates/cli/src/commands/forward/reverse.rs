//! `hostler forward --reverse`: programs of a job reach an address from this machine.

use std::collections::HashSet;
use std::io;
use std::str::FromStr;
use std::sync::Arc;

use hostler_client::{Client, ClientError, ForwardControl};
use hostler_model::ParseError;
use hostler_proto::forward::{Announcement, Destination, MAX_PATH_BYTES, PICKUP};
use tokio::net::{TcpStream, UnixStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::local::Connection;
use super::pair::number;
use super::server::{JobServer, PAUSE, trouble};
use crate::context::Context;

const EXPECTED: &str = "a port of the job such as 8081, or where the job connects and where that leads, \
                        as in 8081:9000, 8081:host.lan:80 or ./job.sock:8081";
const EXPECTED_TARGET: &str = "a target: port 0 needs one, e.g. 0:9000";
const EXPECTED_SOCKET: &str = "the path of a socket, not of a directory, e.g. ./job.sock:9000";

/// Where a job connects, and the address that this leads to, on the command line: `8081`, `8081:9000`, `8081:host.lan:80`,
/// `./job.sock:9000` or `8081:./local.sock`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reverse {
    pub(super) at: Destination,
    pub(super) target: LocalAddress,
}

/// An address that is reached from this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum LocalAddress {
    /// `HOST:PORT`.
    Tcp(String),
    /// The path of a Unix socket.
    Unix(String),
}

impl FromStr for Reverse {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let wrong = || ParseError::new(text, EXPECTED);
        let (at, target) = match text.split_once(':') {
            Some((at, target)) => (at, Some(target)),
            None => (text, None),
        };
        let is_path = |text: &str| text.contains('/') && text.len() <= MAX_PATH_BYTES;
        let at = match number(at) {
            Some(port) => Destination::Port(port),
            None if ["/", "/.", "/.."].iter().any(|end| at.ends_with(end)) => {
                return Err(ParseError::new(text, EXPECTED_SOCKET));
            }
            None if is_path(at) => Destination::Socket(at.to_owned()),
            None => return Err(wrong()),
        };
        let on_loopback = |port: u16| LocalAddress::Tcp(format!("127.0.0.1:{port}"));
        let target = match (target, &at) {
            (None, Destination::Port(port)) if *port != 0 => on_loopback(*port),
            (None, Destination::Port(_)) => return Err(ParseError::new(text, EXPECTED_TARGET)),
            (None, _) => return Err(wrong()),
            (Some(target), _) => match (number(target), target.rsplit_once(':')) {
                (Some(0), _) => return Err(wrong()),
                (Some(port), _) => on_loopback(port),
                (None, _) if is_path(target) => LocalAddress::Unix(target.to_owned()),
                (None, Some((host, port))) if !host.is_empty() && number(port).is_some_and(|port| port != 0) => {
                    LocalAddress::Tcp(target.to_owned())
                }
                (None, _) => return Err(wrong()),
            },
        };
        Ok(Self { at, target })
    }
}

impl LocalAddress {
    pub(super) fn as_str(&self) -> &str {
        let (Self::Tcp(address) | Self::Unix(address)) = self;
        address
    }

    async fn connect(&self) -> io::Result<Connection> {
        match self {
            Self::Tcp(address) => {
                let stream = TcpStream::connect(address).await?;
                stream.set_nodelay(true)?;
                Ok(Connection::Tcp(stream))
            }
            Self::Unix(path) => Ok(Connection::Unix(UnixStream::connect(path).await?)),
        }
    }
}

/// A listener in the job.
pub(super) struct JobListener {
    control: ForwardControl,
    /// Where it listens; after the start not on port 0, so that it is on the same port when it listens again.
    pub(super) at: JobServer,
    pub(super) target: LocalAddress,
}

impl JobListener {
    /// Listens in the job.
    pub(super) async fn start(client: &Client, mut at: JobServer, target: LocalAddress) -> Result<Self, ClientError> {
        let (control, port) = client.listen(at.task, at.rank, &at.at).await?;
        if let Destination::Port(_) = at.at {
            at.at = Destination::Port(port);
        }
        Ok(Self { control, at, target })
    }

    /// Connects what programs of the job connect, for ever. If the way to the job breaks, listens again when it can.
    pub(super) async fn serve(mut self, context: &Context, client: &Arc<Client>) {
        let mut connections = JoinSet::new();
        let mut said = HashSet::new();
        let mut say = |text: String| {
            // A program tries again and again.
            if said.insert(text.clone()) {
                context.output.say(&text);
            }
        };
        loop {
            tokio::select! {
                announced = self.control.next() => match announced {
                    Ok(Announcement::Accepted(number)) => {
                        let from = JobServer { at: Destination::Accepted(number), ..self.at.clone() };
                        connections.spawn(carry(Arc::clone(client), from, self.target.clone()));
                    }
                    Ok(Announcement::Listening(_)) => {}
                    Err(_) => self.start_again(client, &mut say).await,
                },
                Some(Ok(trouble)) = connections.join_next() => if let Some(text) = trouble { say(text) },
            }
        }
    }

    /// Waits until the job can be reached again. Whether it has ended is found out elsewhere.
    async fn start_again(&mut self, client: &Client, say: &mut impl FnMut(String)) {
        let JobServer { task, rank, at } = &self.at;
        loop {
            // The node notices a broken connection later, and its old listener has the address until then. The job may wait,
            // or may not have made the directory of the socket yet.
            match client.listen(*task, *rank, at).await {
                Ok((control, _)) => {
                    self.control = control;
                    return;
                }
                Err(error) => say(format!("cannot listen on {at} again: {error}; retrying")),
            }
            sleep(PAUSE).await;
        }
    }
}

/// Carries one connection of the job. Returns what to tell the user.
async fn carry(client: Arc<Client>, from: JobServer, target: LocalAddress) -> Option<String> {
    // In time for the node, which gives up a connection that nobody asks for.
    let patience = PICKUP / 2;
    let connected = timeout(patience, target.connect()).await;
    let connected =
        connected.unwrap_or_else(|_| Err(io::Error::other(format!("no answer in {} s", patience.as_secs()))));
    match connected {
        Ok(connection) => trouble(&from.at, connection.carry(&client, &from).await),
        Err(error) => {
            // Taken and dropped, so that the program of the job sees a break at once.
            drop(client.forward(from.task, from.rank, &from.at).await);
            Some(format!("cannot connect to {}: {error}", target.as_str()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_parsed() {
        let port = Destination::Port;
        let socket = |path: &str| Destination::Socket(path.to_owned());
        let (tcp, unix) = (|at: &str| LocalAddress::Tcp(at.to_owned()), |at: &str| LocalAddress::Unix(at.to_owned()));
        for (text, at, target) in [
            ("8081", port(8081), tcp("127.0.0.1:8081")),
            ("8081:9000", port(8081), tcp("127.0.0.1:9000")),
            ("0:9000", port(0), tcp("127.0.0.1:9000")),
            ("8081:host.lan:80", port(8081), tcp("host.lan:80")),
            ("8081:[::1]:80", port(8081), tcp("[::1]:80")),
            ("8081:./x.sock", port(8081), unix("./x.sock")),
            ("./a.sock:9000", socket("./a.sock"), tcp("127.0.0.1:9000")),
            ("/tmp/a.sock:/run/b:c.sock", socket("/tmp/a.sock"), unix("/run/b:c.sock")),
        ] {
            assert_eq!(text.parse(), Ok(Reverse { at, target }), "{text}");
        }
        let wrong = ["", "0", "65536", "./a.sock", "a.sock:9000", "8081:", "8081:0", "8081:host", "8081:host:0", ":80"];
        for text in wrong.into_iter().chain(["8081::80", "8081:host.lan:http", "@a:80", "8081:80:"]) {
            assert!(text.parse::<Reverse>().is_err(), "{text}");
        }
        for (text, expected) in [("0", "port 0 needs one"), ("./:9000", "not of a directory")] {
            let error = text.parse::<Reverse>().expect_err(text);
            assert!(error.to_string().contains(expected), "{error}");
        }
    }
}
