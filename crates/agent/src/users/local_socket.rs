//! The local socket: a Unix socket for users of this machine. The agent forwards their requests to the head and adds
//! the user that the kernel reports.
//!
//! Each user connection has its own connection to the head, with the node's certificate. The agent replaces any user
//! header of the request with the real user and streams the answer back. If a request becomes a terminal, the two
//! connections are joined. The agent stores and decides nothing here: the head knows which node forwarded a request,
//! and checks the rights.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hostler_client::{ClientError, ConnectFailure, Endpoint, HEAD_AWAY};
use hostler_listen::{Admission, Limits, LocalSocket, Paced, Party, Place, Tied, TooMany, http1, service};
use hostler_proto::api::{BASE, ErrorBody};
use hostler_proto::peers::LOAD_PATH;
use hostler_proto::users::RELAY_HEADER;
use hostler_sys::SocketAccess;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderName, HeaderValue, UPGRADE};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use nix::unistd::geteuid;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::UnixStream;
use tokio::sync::Mutex;

use crate::account::Accounts;
use crate::gossip::Gossiping;
use crate::measure::metrics::{Exporter, port};

/// The connections of clients. Each identified one needs one more connection, to the head, which admits more from one
/// node.
const LIMITS: Limits = Limits { strangers: 128, time: Duration::from_secs(60), total: 2048 };

/// Timeout for sending the answer that refuses a connection.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(1);

type Answer = Response<UnsyncBoxBody<Bytes, hyper::Error>>;

/// Who may connect to a socket of the agent: all users of this machine, or the agent's own user.
pub(crate) fn socket_access() -> SocketAccess {
    if geteuid().is_root() { SocketAccess::Everybody } else { SocketAccess::Owner }
}

/// Serves the users of the socket.
pub(crate) async fn serve(
    mut socket: LocalSocket,
    head: &Endpoint,
    accounts: &Arc<Accounts>,
    gossiping: Option<&Arc<Gossiping>>,
    exporter: Option<&Arc<Exporter>>,
) -> Infallible {
    let own = Own { gossiping: gossiping.cloned(), exporter: exporter.cloned() };
    let admission = Admission::new(LIMITS.within_descriptors());
    loop {
        let (stream, place) = admission.accept(&mut socket).await;
        let (head, accounts, own) = (head.clone(), Arc::clone(accounts), own.clone());
        tokio::spawn(async move {
            match place.hold(serve_user(stream, (head, own), &accounts, &place)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::debug!("a user's connection ended: {error:#}"),
                Err(why) => tracing::debug!("closed a user's connection: {why}"),
            }
        });
    }
}

/// The owner of connections to a socket of the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum LocalUser {
    /// Root or the agent's user, who could stop the agent.
    Owner,
    Account(u32),
    /// All users whose uid has no account. One user can have thousands of such uids.
    Nameless,
}

impl LocalUser {
    pub(crate) fn of(uid: u32, has_account: bool) -> Self {
        match uid {
            _ if uid == 0 || uid == geteuid().as_raw() => Self::Owner,
            _ if has_account => Self::Account(uid),
            _ => Self::Nameless,
        }
    }
}

impl Party for LocalUser {
    fn share(&self, total: usize) -> usize {
        match self {
            Self::Owner => total / 2,
            Self::Account(_) | Self::Nameless => total / 16,
        }
    }
}

async fn serve_user(
    stream: UnixStream,
    (head, own): (Endpoint, Own),
    accounts: &Accounts,
    place: &Arc<Place<LocalUser>>,
) -> anyhow::Result<()> {
    let uid = stream.peer_cred()?.uid();
    let name = accounts.known_name(uid).await;
    if let Err(full) = place.identify(&LocalUser::of(uid, name.is_some())) {
        refuse(stream, full).await;
        return Ok(());
    }
    // The user in the format of [`RELAY_HEADER`].
    let user = format!("{uid}:{}", name.unwrap_or_else(|| uid.to_string()));
    let user = HeaderValue::from_bytes(user.as_bytes())?;
    let relay = Arc::new(Relay { head, own, user, connection: Mutex::default() });
    let service = service(move |request| {
        let relay = Arc::clone(&relay);
        async move { relay.pass(request).await }
    });
    http1().serve_connection(TokioIo::new(Tied::new(stream, place)), service).with_upgrades().await?;
    Ok(())
}

/// Answers that the user has too many connections, with an error that makes clients retry.
async fn refuse(mut stream: UnixStream, TooMany { most }: TooMany) {
    let message = format!("this node serves at most {most} connections of one user at once, and you have that many");
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
    connection: Mutex<Option<SendRequest<Paced>>>,
}

impl Relay {
    async fn pass(&self, mut request: Request<Paced>) -> Answer {
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

    async fn send(&self, request: Request<Paced>) -> anyhow::Result<Answer> {
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
    async fn join(&self, mut request: Request<Paced>) -> anyhow::Result<Answer> {
        let user = hyper::upgrade::on(&mut request);
        let mut response = self.connect().await?.send_request(request).await?;
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            let head = hyper::upgrade::on(&mut response);
            tokio::spawn(async move {
                if let (Ok(user), Ok(head)) = tokio::join!(user, head) {
                    // If either side closes, the other side sees it.
                    let _ = copy_bidirectional(&mut TokioIo::new(user), &mut TokioIo::new(head)).await;
                }
            });
        }
        Ok(response.map(BodyExt::boxed_unsync))
    }

    async fn connect(&self) -> anyhow::Result<SendRequest<Paced>> {
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
    let is_distrust =
        matches!(error.downcast_ref(), Some(ClientError::Connect { failure: ConnectFailure::NotTrusted, .. }));
    let hint = match is_distrust {
        true => {
            "the cluster's authority may have been replaced: an admin must let the node join again, with `hostler node invite` on \
             the head and `hostler agent join` here; running jobs continue"
        }
        false => "running jobs continue; try again when the head is back",
    };
    answer(StatusCode::BAD_GATEWAY, &error_body(message, hint))
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
    use std::path::{Path, PathBuf};
    use std::time::Instant;

    use hostler_sys::Descriptors;
    use hyper::body::Incoming;
    use hyper::server::conn::http1;
    use hyper::service::service_fn;
    use tokio::net::UnixListener;

    use super::*;

    /// Timeout, long enough for a loaded machine.
    const PATIENCE: Duration = Duration::from_secs(30);

    const ASK: &[u8] = b"GET /api/v1/info HTTP/1.1\r\nHost: x\r\n\r\n";

    /// Starts a head that answers every request with `here`, on a socket in `directory`.
    #[expect(clippy::disallowed_methods, reason = "a server of the test")]
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
        let path = directory.join("agent.sock");
        let socket = LocalSocket::open(&path, SocketAccess::Owner, Descriptors::Refused);
        let socket = socket.await.expect("the socket opens");
        tokio::spawn(async move { serve(socket, &head, &Arc::new(Accounts::new(false)), None, None).await });
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
        let began = Instant::now();
        let mut crowd = Vec::new();
        let refused = loop {
            let mut stream = connect(&path).await;
            // A request with an unfinished body keeps its place until the body is too slow.
            stream
                .write_all(b"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n")
                .await
                .expect("the agent listens");
            crowd.push(stream);
            let answer = ask(&path).await;
            if !answer.ends_with("here") {
                break answer;
            }
            assert!(crowd.len() < LIMITS.total && began.elapsed() < PATIENCE, "one user gets all connections");
        };
        assert!(refused.starts_with("HTTP/1.1 502") && refused.contains(HEAD_AWAY), "{refused}");
        assert!(refused.contains("connections of one user"), "{refused}");
        // Places are free for this user again as soon as connections close.
        crowd.truncate(crowd.len() / 2);
        let began = Instant::now();
        while !ask(&path).await.ends_with("here") {
            assert!(began.elapsed() < PATIENCE, "their places are free again");
        }
    }
}
