//! Addresses of heads, and connections to them.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, PoisonError, RwLock};
use std::task::{Context, Poll};
use std::time::Duration;

use hostler_proto::join::HEAD_NAME;
use hyper::header::HeaderValue;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::{ClientError, ConnectFailure};

/// Time after which a connection counts as broken if the head is silent. An agent whose machine has got another address then connects
/// again before the head gives up the node's jobs, after the setting `lost-after`.
const SILENCE: Duration = Duration::from_secs(18);

/// Timeout for opening a connection, TLS included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The address of a head.
#[derive(Clone)]
pub enum Endpoint {
    /// Unix socket for users of the head's machine, identified by their uid.
    Unix(PathBuf),
    /// TCP port, for agents.
    Tls {
        /// Host and port. All clones of the endpoint follow when it changes.
        address: SharedAddress,
        /// Name that the head's certificate must carry.
        server_name: ServerName<'static>,
        /// The authority to trust, and the agent's own certificate; see [`crate::tls`].
        config: Arc<rustls::ClientConfig>,
    },
    /// TCP port, for users outside the cluster; see [`crate::remote_head`].
    Remote {
        /// Host and port.
        address: String,
        /// The authority to trust; see [`crate::tls`].
        config: Arc<rustls::ClientConfig>,
        token: Option<Token>,
    },
}

/// An address (host and port) that may change. Clones share it.
#[derive(Debug, Clone)]
pub struct SharedAddress(Arc<RwLock<String>>);

impl From<String> for SharedAddress {
    fn from(address: String) -> Self {
        Self(Arc::new(RwLock::new(address)))
    }
}

impl SharedAddress {
    /// The present address.
    #[must_use]
    pub fn get(&self) -> String {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes the address for later connections. Returns whether it differs from the present one.
    #[must_use]
    pub fn replace(&self, address: &str) -> bool {
        let mut present = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let differs = *present != address;
        if differs {
            address.clone_into(&mut present);
        }
        differs
    }
}

impl Endpoint {
    /// Parses `unix:/path` or an absolute path.
    ///
    /// # Errors
    /// If the text is neither.
    pub fn from_text(text: &str) -> Result<Self, hostler_model::ParseError> {
        let path = text.strip_prefix("unix:").unwrap_or(text);
        if path.starts_with('/') {
            Ok(Self::Unix(path.into()))
        } else {
            Err(hostler_model::ParseError::new(
                text,
                "an address of a head such as unix:/run/user/1000/hostler/head.sock",
            ))
        }
    }

    /// Connects, with a timeout of ten seconds.
    ///
    /// # Errors
    /// [`ClientError::Connect`] with the kind of failure.
    pub async fn connect(&self) -> Result<Stream, ClientError> {
        match tokio::time::timeout(CONNECT_TIMEOUT, self.dial()).await {
            Ok(result) => result.map_err(|source| self.connect_error(source)),
            Err(_) => Err(self.connect_error(io::Error::from(io::ErrorKind::TimedOut))),
        }
    }

    async fn dial(&self) -> io::Result<Stream> {
        match self {
            Self::Unix(path) => UnixStream::connect(path).await.map(Stream::Unix),
            Self::Tls { address, server_name, config } => tls(&address.get(), server_name.clone(), config).await,
            Self::Remote { address, config, .. } => {
                // Certificates of heads carry this name at every address; certificates of nodes never do.
                let server_name = ServerName::try_from(HEAD_NAME).expect("HEAD_NAME is a valid server name");
                tls(address, server_name, config).await
            }
        }
    }

    /// The value of the authorization header, if there is a token.
    #[must_use]
    pub fn authorization(&self) -> Option<HeaderValue> {
        match self {
            Self::Unix(_) | Self::Tls { .. } | Self::Remote { token: None, .. } => None,
            Self::Remote { token: Some(Token(token)), .. } => {
                // A token that is not a valid header value was not issued by a head. Omits this token.
                let mut value = HeaderValue::from_str(&format!("Bearer {token}")).ok()?;
                value.set_sensitive(true);
                Some(value)
            }
        }
    }

    fn connect_error(&self, source: io::Error) -> ClientError {
        let failure = match (self, source.kind()) {
            (Self::Unix(_), io::ErrorKind::NotFound) => ConnectFailure::NoSocket,
            (Self::Unix(_), io::ErrorKind::ConnectionRefused) => ConnectFailure::StaleSocket,
            (_, io::ErrorKind::PermissionDenied) => ConnectFailure::NotAllowed,
            (_, io::ErrorKind::InvalidData) => ConnectFailure::NotTrusted,
            _ => ConnectFailure::Unreachable,
        };
        ClientError::Connect { endpoint: self.to_string(), failure, source }
    }
}

async fn tls(
    address: &str,
    server_name: ServerName<'static>,
    config: &Arc<rustls::ClientConfig>,
) -> io::Result<Stream> {
    let tcp = TcpStream::connect(address).await?;
    tcp.set_nodelay(true)?;
    hostler_sys::limit_silence(&tcp, SILENCE);
    let tls = TlsConnector::from(Arc::clone(config)).connect(server_name, tcp).await?;
    Ok(Stream::Tls(Box::new(tls)))
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tls { address, .. } => f.write_str(&address.get()),
            Self::Remote { address, .. } => f.write_str(address),
        }
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Endpoint({self})")
    }
}

/// A login token. Secret; sent only to the head.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(pub String);

/// Hides the secret, because endpoints are logged.
impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

/// An open connection to a head.
#[derive(Debug)]
pub enum Stream {
    Unix(UnixStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Stream {
    /// Closes the connection if the head does not read what is sent for 18 seconds. Only for connections that the head always reads.
    pub fn limit_unread(&self) {
        if let Self::Tls(stream) = self {
            hostler_sys::limit_unread(stream.get_ref().0, SILENCE);
        }
    }

    /// IP address of the head, if connected by TCP.
    #[must_use]
    pub fn peer_address(&self) -> Option<IpAddr> {
        match self {
            Self::Unix(_) => None,
            Self::Tls(stream) => stream.get_ref().0.peer_addr().ok().map(|address| address.ip()),
        }
    }

    /// Returns this machine's IP address on the connection, if connected by TCP. Machines near the head reach this
    /// machine at that address.
    #[must_use]
    pub fn local_address(&self) -> Option<IpAddr> {
        match self {
            Self::Unix(_) => None,
            Self::Tls(stream) => stream.get_ref().0.local_addr().ok().map(|address| address.ip()),
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Unix(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Unix(stream) => Pin::new(stream).poll_write(cx, buf),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Unix(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Unix(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Self::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Unix(stream) => stream.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn socket_paths_are_parsed() {
        for text in ["unix:/run/head.sock", "/run/head.sock"] {
            assert_eq!(Endpoint::from_text(text).expect(text).to_string(), "unix:/run/head.sock");
        }
        for text in ["", "head.sock", "unix:head.sock", "http://localhost", "localhost:7000"] {
            assert!(Endpoint::from_text(text).is_err(), "{text}");
        }
    }
}
