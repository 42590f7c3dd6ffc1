//! One connection to a controller and bounded exchanges on it.

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
use super::trust::{self, Trust, Verifier};
use crate::fault::quoted;
use crate::{Fault, FaultKind, Fingerprint};

/// How long a connection may take to be made, TLS included. Old controllers count on their fingers.
const CONNECT_LIMIT: Duration = Duration::from_secs(15);

/// How long an answer may take.
const EXCHANGE_LIMIT: Duration = Duration::from_secs(30);

/// The largest answer that is read. A system with all its disks is a tenth of that.
const MAX_ANSWER_BYTES: usize = 1 << 20;

/// A connection on which requests can be made, one after another.
#[derive(Debug)]
pub(crate) struct Line {
    sender: SendRequest<Full<Bytes>>,
    /// How many answers have come on it.
    answered: u64,
}

/// An answer that was read to its end.
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
    /// The controller had closed the connection, which was an old one, so that the request may be made again.
    pub(crate) was_stale: bool,
}

trait Stream: AsyncRead + AsyncWrite + Send {}

impl<T: AsyncRead + AsyncWrite + Send> Stream for T {}

impl Line {
    /// Connects, and makes sure who is there.
    pub(crate) async fn open(address: &Address, trust: Trust) -> Result<Self, Fault> {
        let stream = match tokio::time::timeout(CONNECT_LIMIT, dial(address, trust)).await {
            Ok(stream) => stream?,
            Err(_) => return Err(silence(address, CONNECT_LIMIT)),
        };
        let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(|error| failure(address, &error))?;
        // Its errors reach us through the request that they concern.
        tokio::spawn(async move { connection.await.ok() });
        Ok(Self { sender, answered: 0 })
    }

    /// Whether the controller has closed it.
    pub(crate) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// Makes one request and reads its answer, whatever that is.
    pub(crate) async fn exchange(&mut self, address: &Address, request: Request<Full<Bytes>>) -> Result<Reply, Broken> {
        let was_used = self.answered > 0;
        // What only asks may be asked twice; anything else only if it cannot have been read.
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
            let body = body.map_err(|error| (half(address, error.as_ref()), false))?.to_bytes();
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
    /// How long the controller wants to be left alone.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        let text = self.headers.get(RETRY_AFTER)?.to_str().ok()?;
        text.trim().parse().ok().map(Duration::from_secs)
    }

    /// Where something is that was asked for or made.
    pub(crate) fn location(&self) -> Option<&str> {
        self.headers.get(LOCATION)?.to_str().ok()
    }
}

async fn dial(address: &Address, trust: Trust) -> Result<Pin<Box<dyn Stream>>, Fault> {
    let connect = TcpStream::connect((address.host(), address.port())).await;
    let tcp = connect.map_err(|error| {
        Fault::unreachable(format!("the controller at {address} cannot be reached: {error}"))
            .hint("check that it has power, that its address is right and that the network between is up")
    })?;
    // A packet that waits for another is all that could go wrong.
    let _ = tcp.set_nodelay(true);
    if !address.is_encrypted() {
        return Ok(Box::pin(tcp));
    }
    let name = ServerName::try_from(address.host().to_owned()).map_err(|_| {
        Fault::unprepared(format!("{} is no name of a machine", address.host())).hint("write its IP address instead")
    })?;
    let (config, verifier) = trust::client(trust);
    match TlsConnector::from(Arc::clone(&config)).connect(name, tcp).await {
        Ok(stream) => Ok(Box::pin(stream)),
        Err(error) => Err(no_tls(address, trust, &verifier, &error)),
    }
}

/// Why there is no encrypted connection.
fn no_tls(address: &Address, trust: Trust, verifier: &Verifier, error: &io::Error) -> Fault {
    match (verifier.turned_away(), trust) {
        (Some(seen), Trust::Pinned(expected)) => {
            let why = format!(
                "what answers at {address} shows another certificate than it should: SHA-256 {seen} instead of {expected}"
            );
            Fault::new(FaultKind::Untrusted, why).hint(format!(
                "if its certificate was renewed, or it was reset, put `fingerprint = \"{seen}\"` into its configuration; \
                 if not, something else answers in its place"
            ))
        }
        (Some(seen), _) => unknown_certificate(address, seen),
        (None, _) => Fault::new(
            FaultKind::Untrusted,
            format!("no encrypted connection to {address}: {}", quoted(&error.to_string())),
        )
        .hint("its firmware may be too old for TLS 1.2 with forward secrecy: update it, or use `kind = \"ipmi\"`"),
    }
}

fn unknown_certificate(address: &Address, seen: Fingerprint) -> Fault {
    Fault::new(FaultKind::Untrusted, format!("the certificate of the controller at {address} is not known; its SHA-256 is {seen}"))
        .hint(format!(
            "compare it with what the controller's own page shows, then put `fingerprint = \"{seen}\"` into its configuration"
        ))
}

fn silence(address: &Address, limit: Duration) -> Fault {
    Fault::unreachable(format!("the controller at {address} has not answered within {} s", limit.as_secs()))
        .hint("if that lasts, reset the controller; the machine behind it is not touched by that")
}

/// What a failure of the HTTP layer means.
fn failure(address: &Address, error: &hyper::Error) -> Fault {
    if error.is_parse() {
        let why = format!("what answers at {address} does not speak HTTP: {}", quoted(&error.to_string()));
        return Fault::confused(why)
            .hint("check address and port; with `http://` where TLS is spoken it looks like this");
    }
    Fault::unreachable(format!(
        "the connection to {address} broke before there was an answer: {}",
        quoted(&error.to_string())
    ))
}

/// Why an answer could not be read to its end.
fn half(address: &Address, error: &(dyn std::error::Error + 'static)) -> Fault {
    if error.is::<LengthLimitError>() {
        let why =
            format!("the answer of {address} is larger than {} KiB, which no controller's is", MAX_ANSWER_BYTES >> 10);
        return Fault::confused(why).hint("check that a management controller listens there");
    }
    Fault::confused(format!("the answer of {address} ended in its middle: {}", quoted(&error.to_string())))
}
