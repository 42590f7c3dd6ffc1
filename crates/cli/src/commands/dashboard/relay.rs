//! The relay between a browser on this machine and the head: HTTP/1.1 on both sides, streamed in both directions.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use hostler_client::{ClientError, Endpoint};
use hostler_listen::{Admission, Limits, Paced, Place, Tied, http1, service};
use hostler_model::escaped_html;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use super::session::{Session, Verdict};

/// The connections of browsers. Those of other users do not stay longer than the search for their owner takes.
const LIMITS: Limits = Limits { strangers: 64, time: Duration::from_secs(10), total: 256 };

/// Maximum number of concurrent searches for the owner of a connection.
const SEARCHES: usize = 2;

/// Maximum number of idle connections to the head.
const IDLE: usize = 16;

/// Number of ports to try until one is free for IPv4 and IPv6.
const PORTS: usize = 20;

/// Security headers of the relay's own answers.
const POLICY: &str = "default-src 'none'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'";

type Answer = Response<UnsyncBoxBody<Bytes, hyper::Error>>;

/// The relay's port, for IPv4 and, where the machine has it, IPv6.
pub(super) struct Listeners {
    port: u16,
    all: Vec<TcpListener>,
}

impl Listeners {
    pub(super) fn port(&self) -> u16 {
        self.port
    }
}

/// Opens `port`, or any free port if it is 0, on the loopback addresses.
///
/// # Errors
/// The port is in use.
pub(super) async fn listen(port: u16) -> io::Result<Listeners> {
    let mut tries = PORTS;
    loop {
        let four = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
        let bound = four.local_addr()?.port();
        // Browsers try IPv6 first for names below `localhost`. Another user must not get that port.
        match TcpListener::bind((Ipv6Addr::LOCALHOST, bound)).await {
            Ok(six) => return Ok(Listeners { port: bound, all: vec![four, six] }),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && port == 0 && tries > 0 => tries -= 1,
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => return Err(error),
            // The machine has no IPv6.
            Err(_) => return Ok(Listeners { port: bound, all: vec![four] }),
        }
    }
}

/// Passes the requests of browsers to the head.
pub(super) struct Relay {
    head: Endpoint,
    session: Arc<Session>,
    /// Connections to the head that carry no request.
    idle: Arc<Mutex<Vec<SendRequest<Paced>>>>,
    /// Concurrent searches for the owner of a connection.
    searches: Arc<Semaphore>,
}

impl Relay {
    pub(super) fn new(head: Endpoint, session: Arc<Session>) -> Arc<Self> {
        Arc::new(Self { head, session, idle: Arc::default(), searches: Arc::new(Semaphore::new(SEARCHES)) })
    }

    /// Serves browsers until the future is dropped.
    pub(super) async fn serve(self: Arc<Self>, listeners: Listeners) {
        let admission = Admission::new(LIMITS.within_descriptors());
        let servers = listeners.all.into_iter().map(|listener| self.serve_on(listener, &admission));
        futures_util::future::join_all(servers).await;
    }

    async fn serve_on(self: &Arc<Self>, mut listener: TcpListener, admission: &Arc<Admission<()>>) {
        loop {
            let (stream, place) = admission.accept(&mut listener).await;
            let relay = Arc::clone(self);
            tokio::spawn(async move { place.hold(relay.serve_browser(stream, &place)).await });
        }
    }

    async fn serve_browser(self: Arc<Self>, stream: TcpStream, place: &Arc<Place<()>>) {
        if !is_own(&stream, &self.searches).await || place.identify(&()).is_err() {
            return;
        }
        // Small answers must not wait for acknowledgements.
        let _ = stream.set_nodelay(true);
        let service = service(move |request| {
            let relay = Arc::clone(&self);
            async move { relay.answer(request).await }
        });
        // It is not an error if the browser disconnects.
        let stream = TokioIo::new(Tied::new(stream, place));
        let _ = http1().serve_connection(stream, service).with_upgrades().await;
    }

    async fn answer(&self, request: Request<Paced>) -> Answer {
        match self.session.judge(&request) {
            Verdict::Forward => match self.forward(request).await {
                Ok(answer) => answer,
                Err(error) => head_away(&error),
            },
            Verdict::Enter(cookie) => {
                // A page that loads the next page, because browsers keep back the cookie from a redirect that began in
                // a file or on another site. The next page replaces the link in the address bar.
                let mut answer = page(StatusCode::OK, "0;url=/", "<p><a href=\"/\">Continue</a></p>");
                answer.headers_mut().insert(header::SET_COOKIE, cookie);
                answer
            }
            Verdict::Expired => text(
                StatusCode::FORBIDDEN,
                "This link was used already or is older than 60 seconds.\nRun `hostler dashboard` again for a new one.\n",
            ),
            Verdict::NoSession => text(
                StatusCode::UNAUTHORIZED,
                "This browser has no session here.\nRun `hostler dashboard` again; it opens one.\n",
            ),
            Verdict::Foreign(why) => text(StatusCode::FORBIDDEN, &format!("Refused: {why}.\n")),
            Verdict::NoPage => text(
                StatusCode::NOT_FOUND,
                "There is no page at this address. Programs should call the API at the address of the head.\n",
            ),
        }
    }

    async fn forward(&self, mut request: Request<Paced>) -> Result<Answer, HeadError> {
        if let Some(path) = request.uri().path_and_query() {
            // A request may name a host in its first line too, as for a proxy.
            *request.uri_mut() = path.clone().into();
        }
        let headers = request.headers_mut();
        self.session.clean(headers);
        if let Some(value) = self.head.authorization() {
            headers.insert(header::AUTHORIZATION, value);
        }
        if headers.contains_key(header::UPGRADE) {
            return self.join(request).await;
        }
        headers.remove(header::CONNECTION);
        let mut sender = self.connection().await?;
        let response = sender.send_request(request).await?;
        let idle = Arc::clone(&self.idle);
        tokio::spawn(async move {
            // The connection is free when the browser has read the whole answer.
            if sender.ready().await.is_ok() {
                let mut idle = idle.lock().unwrap_or_else(PoisonError::into_inner);
                if idle.len() < IDLE {
                    idle.push(sender);
                }
            }
        });
        Ok(response.map(BodyExt::boxed_unsync))
    }

    /// An idle connection to the head, or a new one.
    async fn connection(&self) -> Result<SendRequest<Paced>, HeadError> {
        loop {
            let found = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            match found {
                Some(sender) if sender.is_ready() => return Ok(sender),
                Some(_) => {}
                None => return self.connect().await,
            }
        }
    }

    /// Forwards a request for a WebSocket. If the head agrees, joins the two connections.
    async fn join(&self, mut request: Request<Paced>) -> Result<Answer, HeadError> {
        let browser = hyper::upgrade::on(&mut request);
        let mut response = self.connect().await?.send_request(request).await?;
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            let head = hyper::upgrade::on(&mut response);
            tokio::spawn(async move {
                if let (Ok(browser), Ok(head)) = tokio::join!(browser, head) {
                    // If either side closes, the other side sees it.
                    let _ = copy_bidirectional(&mut TokioIo::new(browser), &mut TokioIo::new(head)).await;
                }
            });
        }
        Ok(response.map(BodyExt::boxed_unsync))
    }

    async fn connect(&self) -> Result<SendRequest<Paced>, HeadError> {
        let stream = self.head.connect().await?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        // Errors are reported by the affected request.
        tokio::spawn(async move { connection.with_upgrades().await.ok() });
        Ok(sender)
    }
}

/// Why the head gave no answer.
#[derive(Debug, thiserror::Error)]
enum HeadError {
    #[error(transparent)]
    Connect(#[from] ClientError),
    #[error("the connection to the head broke: {0}")]
    Broken(#[from] hyper::Error),
}

/// Whether a program of this user opened the connection.
async fn is_own(stream: &TcpStream, searches: &Arc<Semaphore>) -> bool {
    let (Ok(own), Ok(from)) = (stream.local_addr(), stream.peer_addr()) else { return false };
    let uid = nix::unistd::geteuid().as_raw();
    // Blocks while it reads the kernel's table.
    let turn = Arc::clone(searches).acquire_owned().await.expect("never closed");
    let search = move || {
        // The thread holds the permit, because a client that disconnects does not stop the search.
        let _turn = turn;
        hostler_sys::tcp_peer_owner(from, own)
    };
    let owner = tokio::task::spawn_blocking(search).await;
    matches!(owner, Ok(Ok(Some(owner))) if owner == uid)
}

fn head_away(error: &HeadError) -> Answer {
    let error = escaped_html(&error.to_string());
    let body =
        format!("<h1>The head does not answer</h1><p>{error}</p><p>Running jobs continue. This page tries again.</p>");
    page(StatusCode::BAD_GATEWAY, "5", &body)
}

/// A page of the relay itself, which loads again or loads another page.
fn page(status: StatusCode, refresh: &str, body: &str) -> Answer {
    let html = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta http-equiv=\"refresh\" content=\"{refresh}\">\n<title>Hostler</title>\n{body}\n"
    );
    own(status, "text/html; charset=utf-8", html)
}

fn text(status: StatusCode, text: &str) -> Answer {
    own(status, "text/plain; charset=utf-8", text.to_owned())
}

/// An answer of the relay itself.
fn own(status: StatusCode, kind: &'static str, body: String) -> Answer {
    let mut answer = Response::new(Full::new(Bytes::from(body)).map_err(|never| match never {}).boxed_unsync());
    *answer.status_mut() = status;
    for (name, value) in [
        (header::CONTENT_TYPE, kind),
        (header::CACHE_CONTROL, "no-store"),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ] {
        answer.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    answer
}

#[cfg(test)]
#[path = "relay_tests.rs"]
mod tests;
