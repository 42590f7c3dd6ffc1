//! The node's door: a Unix socket for the users of this machine, whose requests the agent passes on to the head with the word of the
//! kernel for who they are.
//!
//! Every connection of a user has one to the head, with the node's certificate; a request goes on as it came, with a header that names
//! the user instead of whatever it claimed itself. Answers stream back as they come, and what becomes a terminal is joined, both ways.
//! Nothing is kept and nothing is decided here: the head knows through which node a request came, and what that is worth.

use std::convert::Infallible;
use std::fs::{self, DirBuilder, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hostler_client::{Endpoint, HEAD_AWAY};
use hostler_proto::api::ErrorBody;
use hostler_proto::users::RELAY_HEADER;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderName, HeaderValue, UPGRADE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use nix::unistd::{Uid, User};
use tokio::io::copy_bidirectional;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Mutex, Semaphore};

/// How long the head of a request may take.
const HEAD_TIME: Duration = Duration::from_secs(10);

/// Connections at once; each has another one to the head. The others wait.
const CONNECTIONS: usize = 256;

/// A pause after the system had no connection to give, so as not to spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

type Answer = Response<UnsyncBoxBody<Bytes, hyper::Error>>;

/// The open door. Its socket goes when it is dropped.
pub(crate) struct Door {
    listener: UnixListener,
    path: PathBuf,
}

impl Door {
    /// Opens a socket at `path` that everybody of this machine may use, or nobody but this user.
    ///
    /// # Errors
    /// When another agent answers there, or something else is in the way.
    pub(crate) async fn open(path: PathBuf, for_everybody: bool) -> io::Result<Self> {
        if UnixStream::connect(&path).await.is_ok() {
            return Err(io::Error::new(ErrorKind::AddrInUse, "another agent answers there"));
        }
        if fs::symlink_metadata(&path).is_ok_and(|metadata| !metadata.file_type().is_socket()) {
            return Err(io::Error::new(ErrorKind::AlreadyExists, "what is there is no socket"));
        }
        if let Some(parent) = path.parent() {
            DirBuilder::new().recursive(true).mode(if for_everybody { 0o755 } else { 0o700 }).create(parent)?;
        }
        // It appears under its name with its mode already set.
        let temporary = path.with_file_name(format!(".door-{}", std::process::id()));
        let _ = fs::remove_file(&temporary);
        let listener = UnixListener::bind(&temporary)?;
        fs::set_permissions(&temporary, Permissions::from_mode(if for_everybody { 0o666 } else { 0o600 }))?;
        fs::rename(&temporary, &path)?;
        Ok(Self { listener, path })
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Lets users in for as long as it is polled.
    pub(crate) async fn serve(&self, head: &Endpoint) -> Infallible {
        let places = Arc::new(Semaphore::new(CONNECTIONS));
        loop {
            let place = Arc::clone(&places).acquire_owned().await.expect("never closed");
            match self.listener.accept().await {
                Ok((stream, _)) => {
                    let head = head.clone();
                    tokio::spawn(async move {
                        if let Err(error) = serve_user(stream, head).await {
                            tracing::debug!("a user's connection ended: {error:#}");
                        }
                        drop(place);
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

impl Drop for Door {
    fn drop(&mut self) {
        // Left behind it would be recognised as stale.
        let _ = fs::remove_file(&self.path);
    }
}

async fn serve_user(stream: UnixStream, head: Endpoint) -> anyhow::Result<()> {
    let user = user_at(&stream).await?;
    let relay = Arc::new(Relay { head, user, connection: Mutex::default() });
    let service = service_fn(move |request| {
        let relay = Arc::clone(&relay);
        async move { Ok::<_, Infallible>(relay.pass(request).await) }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_TIME);
    builder.serve_connection(TokioIo::new(stream), service).with_upgrades().await?;
    Ok(())
}

/// The user at the other end, by the kernel's word, as the head wants to have it said.
async fn user_at(stream: &UnixStream) -> anyhow::Result<HeaderValue> {
    let uid = stream.peer_cred()?.uid();
    // Where names come from a directory server, this may take a while.
    let found = tokio::task::spawn_blocking(move || User::from_uid(Uid::from_raw(uid)).ok().flatten()).await?;
    let name = found.map_or_else(|| uid.to_string(), |user| user.name);
    Ok(HeaderValue::from_bytes(format!("{uid}:{name}").as_bytes())?)
}

/// What passes one user's requests on, one after another.
struct Relay {
    head: Endpoint,
    user: HeaderValue,
    connection: Mutex<Option<SendRequest<Incoming>>>,
}

impl Relay {
    async fn pass(&self, mut request: Request<Incoming>) -> Answer {
        let headers = request.headers_mut();
        headers.remove(AUTHORIZATION);
        headers.insert(HeaderName::from_static(RELAY_HEADER), self.user.clone());
        let outcome = if headers.contains_key(UPGRADE) { self.join(request).await } else { self.send(request).await };
        outcome.unwrap_or_else(|error| away(&error))
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

    /// A request for another protocol: when the head agrees, both connections become one.
    async fn join(&self, mut request: Request<Incoming>) -> anyhow::Result<Answer> {
        let user = hyper::upgrade::on(&mut request);
        let mut response = self.connect().await?.send_request(request).await?;
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            let head = hyper::upgrade::on(&mut response);
            tokio::spawn(async move {
                if let (Ok(user), Ok(head)) = tokio::join!(user, head) {
                    // Whichever side ends it, the other sees the end.
                    let _ = copy_bidirectional(&mut TokioIo::new(user), &mut TokioIo::new(head)).await;
                }
            });
        }
        Ok(response.map(BodyExt::boxed_unsync))
    }

    async fn connect(&self) -> anyhow::Result<SendRequest<Incoming>> {
        let stream = self.head.connect().await?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        // Its errors reach us through the request that they concern.
        tokio::spawn(async move { connection.with_upgrades().await.ok() });
        Ok(sender)
    }
}

/// The answer while the head cannot be reached; clients know it and try again.
fn away(error: &anyhow::Error) -> Answer {
    let body = ErrorBody {
        code: HEAD_AWAY.to_owned(),
        message: format!("this node cannot reach the head: {error:#}"),
        hints: vec!["jobs go on; try again when the head is back".to_owned()],
    };
    let text = serde_json::to_vec(&body).expect("API types are valid JSON");
    let mut response = Response::new(Full::new(Bytes::from(text)).map_err(|never| match never {}).boxed_unsync());
    *response.status_mut() = StatusCode::BAD_GATEWAY;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
