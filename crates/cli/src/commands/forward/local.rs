//! The local ends of forwarded connections: ports on loopback, and Unix sockets.

use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use hostler_client::{Client, ClientError};
use nix::sys::stat::{Mode, umask};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

use super::server::JobServer;
use crate::failure::{During, Failure};

/// Listens for local connections.
pub(in crate::commands) enum Listener {
    Port(TcpListener),
    Socket(UnixListener, SocketFile),
}

/// A local connection.
pub(in crate::commands) enum Connection {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// The file of a Unix socket, removed when this value is dropped.
pub(in crate::commands) struct SocketFile(PathBuf);

impl Listener {
    /// Listens on a port of 127.0.0.1; 0 stands for any free port.
    pub(in crate::commands) async fn on_port(port: u16) -> Result<Self, Failure> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await;
        let listener = listener.during(|| format!("cannot listen on 127.0.0.1:{port}"));
        listener.map(Self::Port)
    }

    /// Listens on a Unix socket that only this user can connect to.
    pub(in crate::commands) fn on_socket(path: &Path) -> Result<Self, Failure> {
        let bind = || {
            if is_stale(path) {
                fs::remove_file(path)?;
            }
            let before = umask(Mode::S_IRWXG | Mode::S_IRWXO | Mode::S_IXUSR);
            let listener = UnixListener::bind(path);
            umask(before);
            listener
        };
        let listener = bind().during(|| format!("cannot listen on {}", path.display()))?;
        Ok(Self::Socket(listener, SocketFile(path.to_owned())))
    }

    /// Where it listens, for people.
    pub(in crate::commands) fn address(&self) -> Result<String, Failure> {
        match self {
            Self::Port(listener) => {
                let address = listener.local_addr().during(|| "cannot read the local port".to_owned())?;
                Ok(address.to_string())
            }
            Self::Socket(_, SocketFile(path)) => Ok(path.display().to_string()),
        }
    }

    /// Accepts the next connection. Cancel safe.
    #[expect(clippy::disallowed_methods, reason = "the user's own listener; the head limits the connections to a run")]
    pub(in crate::commands) async fn accept(&self) -> io::Result<Connection> {
        match self {
            Self::Port(listener) => {
                let (stream, _) = listener.accept().await?;
                stream.set_nodelay(true)?;
                Ok(Connection::Tcp(stream))
            }
            Self::Socket(listener, _) => Ok(Connection::Unix(listener.accept().await?.0)),
        }
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Somebody may have removed it.
        let _ = fs::remove_file(&self.0);
    }
}

impl Connection {
    /// Carries bytes to and from a server of a job.
    pub(in crate::commands) async fn carry(self, client: &Client, to: &JobServer) -> Result<(), ClientError> {
        match self {
            Self::Unix(mut stream) => to.carry(client, &mut stream).await,
            Self::Tcp(mut stream) => {
                let outcome = to.carry(client, &mut stream).await;
                if outcome.is_err() {
                    // The local program gets an error instead of an early end. A Unix socket has no such close.
                    let _ = stream.set_zero_linger();
                }
                outcome
            }
        }
    }
}

/// Whether a program that has ended without removing its socket has left it here.
fn is_stale(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket())
        && std::os::unix::net::UnixStream::connect(path)
            .is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}
