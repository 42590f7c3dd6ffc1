//! A connection to a controller, with limited requests and responses.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{HeaderMap, LOCATION, RETRY_AFTER};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::Address;
use super::encoding::{Undecodable, decode};
use super::trust::{self, Trust};
use crate::fault::quoted;
use crate::{Fault, FaultKind, Fingerprint};

/// Timeout for opening a connection, including TLS. Old controllers are slow.
const CONNECT_LIMIT: Duration = Duration::from_secs(15);

const EXCHANGE_LIMIT: Duration = Duration::from_secs(30);

/// Maximum size of a response. The description of a system with all its disks has a tenth of this size.
const MAX_ANSWER_BYTES: usize = 1 << 20;

/// A connection for consecutive requests.
#[derive(Debug)]
pub(crate) struct Line {
    sender: SendRequest<Full<Bytes>>,
    /// Number of responses on this connection.
    answered: u64,
}

/// A complete response.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// A failed exchange.
#[derive(Debug)]
pub(crate) struct Broken {
    pub(crate) fault: Fault,
    /// Whether the controller closed a reused connection before it could read the request. If so, the request may be
    /// repeated.
    pub(crate) was_stale: bool,
}

trait Stream: AsyncRead + AsyncWrite + Send {}

impl<T: AsyncRead + AsyncWrite + Send> Stream for T {}

impl Line {
    /// Connects and verifies the controller.
    pub(crate) async fn open(address: &Address, trust: Trust) -> Result<Self, Fault> {
        let stream = match tokio::time::timeout(CONNECT_LIMIT, dial(address, trust)).await {
            Ok(stream) => stream?,
            Err(_) => return Err(silence(address, CONNECT_LIMIT)),
        };
        let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(|error| failure(address, &error))?;
        // Errors reach the caller through the affected request.
        tokio::spawn(async move { connection.await.ok() });
        Ok(Self { sender, answered: 0 })
    }

    /// Whether the controller has closed the connection.
    pub(crate) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// Sends one request and reads the response, whatever its status.
    pub(crate) async fn exchange(&mut self, address: &Address, request: Request<Full<Bytes>>) -> Result<Reply, Broken> {
        let was_used = self.answered > 0;
        // A GET request may be repeated. Other requests may be repeated only if the controller cannot have read them.
        let only_asks = request.method() == Method::GET;
        let exchange = async {
            let broken = |error: hyper::Error| {
                let may_repeat =
                    error.is_canceled() || error.is_closed() || (only_asks && error.is_incomplete_message());
                (failure(address, &error), was_used && may_repeat)
            };
            self.sender.ready().await.map_err(broken)?;
            let response = self.sender.send_request(request).await.map_err(broken)?;
            let (parts, body) = response.into_parts();
            let body = Limited::new(body, MAX_ANSWER_BYTES).collect().await;
            let body = body.map_err(|error| (incomplete_response(address, error.as_ref()), false))?.to_bytes();
            let body = decode(&parts.headers, body, MAX_ANSWER_BYTES);
            let body = body.map_err(|why| (undecodable(address, &why), false))?;
            Ok(Reply { status: parts.status, headers: parts.headers, body })
        };
        let result = match tokio::time::timeout(EXCHANGE_LIMIT, exchange).await {
            Ok(result) => result,
            Err(_) => Err((silence(address, EXCHANGE_LIMIT), false)),
        };
        self.answered += 1;
        result.map_err(|(fault, was_stale)| Broken { fault, was_stale })
    }
}

impl Reply {
    /// The delay that the controller requests before a retry.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        let text = self.headers.get(RETRY_AFTER)?.to_str().ok()?;
        text.trim().parse().ok().map(Duration::from_secs)
    }

    /// Location of a redirect or of a created resource.
    pub(crate) fn location(&self) -> Option<&str> {
        self.headers.get(LOCATION)?.to_str().ok()
    }
}

async fn dial(address: &Address, trust: Trust) -> Result<Pin<Box<dyn Stream>>, Fault> {
    let connect = TcpStream::connect((address.host(), address.port())).await;
    let tcp = connect.map_err(|error| {
        Fault::unreachable(format!("the controller at {address} cannot be reached: {error}"))
            .hint("check the controller's power supply, its address, and the network")
    })?;
    // Without this option, only the latency is higher.
    let _ = tcp.set_nodelay(true);
    if !address.is_encrypted() {
        return Ok(Box::pin(tcp));
    }
    let name = ServerName::try_from(address.host().to_owned()).map_err(|_| {
        Fault::unprepared(format!("{} is not a valid host name", address.host())).hint("use the IP address instead")
    })?;
    let (config, rejected) = trust::client(trust);
    match TlsConnector::from(Arc::clone(&config)).connect(name, tcp).await {
        Ok(stream) => Ok(Box::pin(stream)),
        Err(error) => Err(no_tls(address, trust, rejected.get().copied(), &error)),
    }
}

/// Explains why the TLS connection failed.
fn no_tls(address: &Address, trust: Trust, rejected: Option<Fingerprint>, error: &io::Error) -> Fault {
    match (rejected, trust) {
        (Some(seen), Trust::Pinned(expected)) => {
            let why =
                format!("the server at {address} has an unexpected certificate: SHA-256 {seen} instead of {expected}");
            Fault::new(FaultKind::Untrusted, why).hint(format!(
                "if the controller's certificate was renewed, or the controller was reset, set `fingerprint = \"{seen}\"`; \
                 otherwise, another server may be impersonating the controller"
            ))
        }
        (Some(seen), _) => unknown_certificate(address, seen),
        (None, _) => Fault::new(
            FaultKind::Untrusted,
            format!("cannot open an encrypted connection to {address}: {}", quoted(&error.to_string())),
        )
        .hint("the firmware may be too old for TLS 1.2 with forward secrecy; update the firmware, or use `kind = \"ipmi\"`"),
    }
}

fn unknown_certificate(address: &Address, seen: Fingerprint) -> Fault {
    let why = format!("the certificate of the controller at {address} is unknown; its SHA-256 fingerprint is {seen}");
    Fault::new(FaultKind::Untrusted, why).hint(format!(
        "compare the fingerprint with the one on the controller's web page, then add `fingerprint = \"{seen}\"` to the configuration"
    ))
}

fn silence(address: &Address, limit: Duration) -> Fault {
    Fault::unreachable(format!("the controller at {address} did not respond within {} s", limit.as_secs()))
        .hint("if the problem persists, reset the controller, which does not affect the machine")
}

/// Converts an error of the HTTP layer.
fn failure(address: &Address, error: &hyper::Error) -> Fault {
    if error.is_parse() {
        let why = format!("the server at {address} does not speak HTTP: {}", quoted(&error.to_string()));
        return Fault::confused(why).hint("check address and port, and whether the server needs `https://`");
    }
    Fault::unreachable(format!(
        "the connection to {address} was closed before a response: {}",
        quoted(&error.to_string())
    ))
}

/// Explains why a response could not be read completely.
fn incomplete_response(address: &Address, error: &(dyn std::error::Error + 'static)) -> Fault {
    if error.is::<LengthLimitError>() {
        return too_large(address);
    }
    Fault::confused(format!("the response of {address} is incomplete: {}", quoted(&error.to_string())))
}

fn too_large(address: &Address) -> Fault {
    let why =
        format!("the response of {address} is larger than {} KiB, too large for a controller", MAX_ANSWER_BYTES >> 10);
    Fault::confused(why).hint("check that the address belongs to a management controller")
}

fn undecodable(address: &Address, why: &Undecodable) -> Fault {
    match why {
        Undecodable::TooLarge => too_large(address),
        Undecodable::Damaged(why) => {
            Fault::confused(format!("the compressed response of {address} is damaged: {}", quoted(why)))
        }
        Undecodable::Unknown(encoding) => {
            Fault::confused(format!("the response of {address} has the unknown encoding \"{}\"", quoted(encoding)))
        }
    }
}
