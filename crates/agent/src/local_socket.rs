//! The local socket: a Unix socket for users of this machine. The agent forwards their requests to the head and adds
//! the user that the kernel reports.
//!
//! Each user connection has its own connection to the head, with the node's certificate. The agent replaces any user
//! header of the request with the real user and streams the answer back. If a request becomes a terminal, the two
//! connections are joined. The agent stores and decides nothing here: the head knows which node forwarded a request,
//! and checks the rights.

use std::convert::Infallible;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hostler_client::{Endpoint, HEAD_AWAY};
use hostler_core::admission::{UsageLimits, UsagePermit};
use hostler_proto::api::{BASE, ErrorBody};
use hostler_proto::peers::LOAD_PATH;
use hostler_proto::users::RELAY_HEADER;
use hostler_sys::{Descriptors, SOCKET_CHECK_INTERVAL, SocketAccess, SocketFile};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderName, HeaderValue, UPGRADE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};
use tokio::task::spawn_blocking;

use crate::account;
use crate::gossip::Gossiping;
use crate::metrics::{Exporter, port};

/// Timeout for reading a request's headers.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum number of concurrent connections of clients. Each needs one more connection, to the head. Further clients
/// wait.
const CONNECTIONS: usize = 512;

/// Maximum number of connections per user, so that one user cannot block all others. Above the limit, users are asked
/// to retry.
const CONNECTIONS_OF_ONE: usize = CONNECTIONS / 2;

/// Timeout for sending the answer that refuses a connection.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(1);

/// Delay after a failed accept, to avoid a busy loop.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

type Answer = Response<UnsyncBoxBody<Bytes, hyper::Error>>;

/// The open socket, bound again whenever its file is lost. Dropping this value removes the file.
pub(crate) struct LocalSocket {
    file: Arc<SocketFile>,
    listener: UnixListener,
}

impl LocalSocket {
    /// Opens a socket at `path`, accessible for all users of this machine or for this user only, with or without
    /// descriptors from its clients.
    ///
    /// # Errors
    /// If another daemon already uses the socket, or `path` is a file of another type.
    pub(crate) async fn open(path: PathBuf, for_everybody: bool, descriptors: Descriptors) -> io::Result<Self> {
        let access = if for_everybody { SocketAccess::Everybody } else { SocketAccess::Owner };
        let (file, listener) = spawn_blocking(move || SocketFile::bind(&path, access, descriptors)).await??;
        Ok(Self { file: Arc::new(file), listener: UnixListener::from_std(listener)? })
    }

    pub(crate) fn path(&self) -> &Path {
        self.file.path()
    }

    /// Accepts the next connection.
    ///
    /// # Errors
    /// If the system cannot accept a connection.
    pub(crate) async fn accept(&mut self) -> io::Result<UnixStream> {
        loop {
            if let Ok(accepted) = tokio::time::timeout(SOCKET_CHECK_INTERVAL, self.listener.accept()).await {
                return Ok(accepted?.0);
            }
            let file = Arc::clone(&self.file);
            match spawn_blocking(move || file.restore()).await? {
                Ok(None) => {}
                Ok(Some(listener)) => {
                    self.listener = UnixListener::from_std(listener)?;
                    tracing::warn!(socket = %self.path().display(), "the socket was removed; it is bound again");
                }
                Err(error) => {
                    tracing::warn!(socket = %self.path().display(), %error, "the socket was removed and cannot be bound again");
                }
            }
        }
    }

    pub(crate) async fn serve(
        &mut self,
        head: &Endpoint,
        gossiping: Option<&Arc<Gossiping>>,
        exporter: Option<&Arc<Exporter>>,
    ) -> Infallible {
        let own = Own { gossiping: gossiping.cloned(), exporter: exporter.cloned() };
        let places = Arc::new(Semaphore::new(CONNECTIONS));
        let shares = UsageLimits::of(CONNECTIONS_OF_ONE);
        loop {
            let place = Arc::clone(&places).acquire_owned().await.expect("never closed");
            match self.accept().await {
                Ok(stream) => {
                    let (head, own, shares) = (head.clone(), own.clone(), Arc::clone(&shares));
                    tokio::spawn(async move {
                        if let Err(error) = serve_user(stream, head, own, place, &shares).await {
                            tracing::debug!("a user's connection ended: {error:#}");
                        }
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a user's connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
}

async fn serve_user(
    stream: UnixStream,
    head: Endpoint,
    own: Own,
    any: OwnedSemaphorePermit,
    shares: &Arc<UsageLimits<u32>>,
) -> anyhow::Result<()> {
    let uid = stream.peer_cred()?.uid();
    let Some(share) = shares.take(uid) else {
        drop(any);
        refuse(stream).await;
        return Ok(());
    };
    let user = user_called(uid).await?;
    let relay = Arc::new(Relay { head, own, user, connection: Mutex::default(), place: Arc::new((share, any)) });
    let service = service_fn(move |request| {
        let relay = Arc::clone(&relay);
        async move { Ok::<_, Infallible>(relay.pass(request).await) }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
    builder.serve_connection(TokioIo::new(stream), service).with_upgrades().await?;
    Ok(())
}

/// Answers that the user has too many connections, with an error that makes clients retry.
async fn refuse(mut stream: UnixStream) {
    let message = format!(
        "this node serves at most {CONNECTIONS_OF_ONE} connections of one user at once, and you have that many"
    );
    let body = error_body(message, "end some of your commands, or try again later");
    let body = serde_json::to_vec(&body).expect("API types are valid JSON");
    let answer = format!(
        "HTTP/1.1 502 Bad Gateway\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    let say = async {
        stream.write_all(answer.as_bytes()).await?;
        stream.write_all(&body).await?;
        stream.shutdown().await?;
        // Closing the socket with unread input would discard the answer.
        tokio::io::copy(&mut stream.take(64 << 10), &mut tokio::io::sink()).await
    };
    let _ = tokio::time::timeout(REFUSAL_TIMEOUT, say).await;
}

/// The user in the format of [`RELAY_HEADER`].
async fn user_called(uid: u32) -> anyhow::Result<HeaderValue> {
    let name = account::name_of(uid).await;
    Ok(HeaderValue::from_bytes(format!("{uid}:{name}").as_bytes())?)
}

/// What the agent answers itself.
#[derive(Clone)]
struct Own {
    gossiping: Option<Arc<Gossiping>>,
    exporter: Option<Arc<Exporter>>,
}

/// Forwards the requests of one connection, one after another.
struct Relay {
    head: Endpoint,
    own: Own,
    user: HeaderValue,
    connection: Mutex<Option<SendRequest<Incoming>>>,
    /// The user's connection slot. A connection that becomes a terminal keeps it.
    place: Arc<(UsagePermit<u32>, OwnedSemaphorePermit)>,
}

impl Relay {
    async fn pass(&self, mut request: Request<Incoming>) -> Answer {
        if request.method() == Method::GET && request.uri().path().strip_prefix(BASE) == Some(LOAD_PATH) {
            return self.load();
        }
        if request.method() == Method::GET
            && request.uri().path() == hostler_metrics::PATH
            && let Some(exporter) = &self.own.exporter
        {
            let answer = port::answer(exporter, request.headers());
            return answer.map(|body| body.map_err(|never| match never {}).boxed_unsync());
        }
        let headers = request.headers_mut();
        headers.remove(AUTHORIZATION);
        headers.insert(HeaderName::from_static(RELAY_HEADER), self.user.clone());
        let outcome = if headers.contains_key(UPGRADE) { self.join(request).await } else { self.send(request).await };
        outcome.unwrap_or_else(|error| head_unreachable(&error))
    }

    /// Answers with this node's load table, without a request to the head.
    fn load(&self) -> Answer {
        match &self.own.gossiping {
            Some(gossiping) => answer(StatusCode::OK, &gossiping.table()),
            None => answer(
                StatusCode::NOT_FOUND,
                &ErrorBody {
                    code: "no_gossip".to_owned(),
                    message: "this node does not gossip about its load".to_owned(),
                    hints: vec![
                        "remove `--gossip none` or `gossip = \"none\"` in agent.toml; if neither is set, the agent's log has the cause"
                            .to_owned(),
                    ],
                },
            ),
        }
    }

    async fn send(&self, request: Request<Incoming>) -> anyhow::Result<Answer> {
        let mut connection = self.connection.lock().await;
        let mut sender = match connection.take().filter(|sender| !sender.is_closed()) {
            Some(sender) => sender,
            None => self.connect().await?,
        };
        sender.ready().await?;
        let response = sender.send_request(request).await?;
        *connection = Some(sender);
        Ok(response.map(BodyExt::boxed_unsync))
    }

    /// Forwards an upgrade request to the head. If the head agrees, joins the client's connection and the head's.
    async fn join(&self, mut request: Request<Incoming>) -> anyhow::Result<Answer> {
        let user = hyper::upgrade::on(&mut request);
        let mut response = self.connect().await?.send_request(request).await?;
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            let head = hyper::upgrade::on(&mut response);
            let place = Arc::clone(&self.place);
            tokio::spawn(async move {
                if let (Ok(user), Ok(head)) = tokio::join!(user, head) {
                    // If either side closes, the other side sees it.
                    let _ = copy_bidirectional(&mut TokioIo::new(user), &mut TokioIo::new(head)).await;
                }
                drop(place);
            });
        }
        Ok(response.map(BodyExt::boxed_unsync))
    }

    async fn connect(&self) -> anyhow::Result<SendRequest<Incoming>> {
        let stream = self.head.connect().await?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        // Errors are reported by the affected request.
        tokio::spawn(async move { connection.with_upgrades().await.ok() });
        Ok(sender)
    }
}

/// Returns the answer to requests while the head is unreachable. Clients recognise this answer and retry.
fn head_unreachable(error: &anyhow::Error) -> Answer {
    let message = format!("this node cannot reach the head: {error:#}");
    answer(StatusCode::BAD_GATEWAY, &error_body(message, "running jobs continue; try again when the head is back"))
}

/// Creates an answer of the agent itself.
fn answer(status: StatusCode, body: &impl serde::Serialize) -> Answer {
    let text = serde_json::to_vec(body).expect("API types are valid JSON");
    let mut response = Response::new(Full::new(Bytes::from(text)).map_err(|never| match never {}).boxed_unsync());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Error with the code for an unreachable head. Clients retry when they receive this code.
fn error_body(message: String, hint: &str) -> ErrorBody {
    ErrorBody { code: HEAD_AWAY.to_owned(), message, hints: vec![hint.to_owned()] }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    /// Timeout, long enough for a loaded machine.
    const PATIENCE: Duration = Duration::from_secs(30);

    const ASK: &[u8] = b"GET /api/v1/info HTTP/1.1\r\nHost: x\r\n\r\n";

    /// Starts a head that answers every request with `here`, on a socket in `directory`.
    async fn head(directory: &Path) -> Endpoint {
        let socket = directory.join("head.sock");
        let listener = UnixListener::bind(&socket).expect("a short path");
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let service = service_fn(|request: Request<Incoming>| async move {
                    let _ = request.into_body().collect().await;
                    Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(b"here"))))
                });
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
            }
        });
        Endpoint::Unix(socket)
    }

    /// Opens the local socket of an agent whose head is started by [`head`].
    async fn open_socket(directory: &Path) -> PathBuf {
        let head = head(directory).await;
        let mut socket = LocalSocket::open(directory.join("agent.sock"), false, Descriptors::Refused)
            .await
            .expect("the socket opens");
        let path = socket.path().to_owned();
        tokio::spawn(async move { socket.serve(&head, None, None).await });
        path
    }

    async fn connect(path: &Path) -> UnixStream {
        UnixStream::connect(path).await.expect("the agent listens")
    }

    /// Sends a valid request on a new connection and returns the answer.
    async fn ask(path: &Path) -> String {
        let mut stream = connect(path).await;
        stream.write_all(ASK).await.expect("the agent listens");
        let mut heard = vec![0; 4096];
        let length = tokio::time::timeout(PATIENCE, stream.read(&mut heard)).await.expect("an answer").expect("one");
        String::from_utf8_lossy(&heard[..length]).into_owned()
    }

    #[tokio::test]
    async fn malformed_requests_do_not_block_other_users() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = open_socket(directory.path()).await;
        assert!(ask(&path).await.ends_with("here"));
        let long = format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(4 << 20));
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "X: y\r\n".repeat(100_000));
        let cases: [&[u8]; 6] = [
            b"\0\xff\x16\x03rubbish\r\n\r\n",
            b"GET",
            long.as_bytes(),
            many.as_bytes(),
            b"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n{",
            b"POST /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
        ];
        let mut kept = Vec::new();
        for bytes in cases {
            let mut stream = connect(&path).await;
            let _ = tokio::time::timeout(Duration::from_secs(2), stream.write_all(bytes)).await;
            // Half-close: the client sends nothing more.
            let _ = stream.shutdown().await;
            assert!(ask(&path).await.ends_with("here"), "{:?}", &bytes[..3]);
            kept.push(stream);
        }
    }

    #[tokio::test]
    async fn connections_are_limited_per_user() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = open_socket(directory.path()).await;
        let mut crowd = Vec::new();
        for _ in 0..CONNECTIONS_OF_ONE {
            let mut stream = connect(&path).await;
            // A request with an unfinished body keeps its slot until the head gives up.
            stream
                .write_all(b"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n")
                .await
                .expect("the agent listens");
            crowd.push(stream);
        }
        let refused = ask(&path).await;
        assert!(refused.starts_with("HTTP/1.1 502") && refused.contains(HEAD_AWAY), "{refused}");
        assert!(refused.contains("connections of one user"), "{refused}");
        // Slots are free for this user again as soon as connections close.
        crowd.truncate(CONNECTIONS_OF_ONE / 2);
        let began = Instant::now();
        while !ask(&path).await.ends_with("here") {
            assert!(began.elapsed() < PATIENCE, "their places are free again");
        }
    }
}
