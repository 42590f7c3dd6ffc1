//! Listening: two doors, and who stands at them.
//!
//! The Unix socket is for users of this machine, whom the kernel identifies. The TCP port is for agents, who show a certificate of
//! the cluster; whoever has none may join, log in, or show the token of a login. Behind both is the same HTTP service, which finds the [`Peer`] of a request among its
//! extensions.
//!
//! Anything may knock at a port. Another protocol gets a short answer where there is one, and a line in the log; handshakes and
//! request heads must be done in ten seconds. Strangers are few at a time, and when there are too many the oldest has to go, so that
//! silent ones keep nobody out; see [`crate::guests`].

use std::convert::Infallible;
use std::fs::{self, Permissions};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, bail};
use axum::Router;
use hostler_core::doorway::{Place, Share};
use hostler_model::NodeName;
use hostler_proto::api::ErrorBody;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use nix::unistd::{Uid, User, geteuid};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::oneshot;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use crate::answers::Unsent;
use crate::guests::UserShare;
use crate::head::Head;
use crate::trust::{Bearer, bearer_of, random_name};

/// How long a TLS handshake, and each request's head, may take.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a stranger may stay: joining is one request.
const STRANGER_TIME: Duration = Duration::from_secs(60);

/// HTTP/2 windows: the defaults allow one stream 64 KiB a round trip. Agents may send and fetch chunks this way.
const STREAM_WINDOW: u32 = 2 << 20;
const CONNECTION_WINDOW: u32 = 8 << 20;

/// What an HTTP/1 connection or a stream of HTTP/2 may hold of an answer that is being written, and the former also of a request that is
/// being read.
const BUFFER_BYTES: usize = 128 << 10;

/// Requests at once on one HTTP/2 connection.
const STREAMS: u32 = 64;

/// How often a quiet HTTP/2 connection is asked whether it is alive.
const PING: Duration = Duration::from_secs(20);

/// A pause after the system had no connection to give, so as not to spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Who is at the other end of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Peer {
    /// A user of this machine, as the kernel says.
    Local {
        /// The user id.
        uid: u32,
        /// The user's name, or the id where there is no name.
        user: String,
    },
    /// An agent, as its certificate says; whether that is still good is asked at each request.
    Node(Bearer),
    /// Somebody without a certificate; a token may say who it is.
    Unknown,
}

/// Somebody who came over TLS. Whoever has no certificate is a stranger, who goes when others come and in any case after a short while,
/// until a request of theirs shows that they are known.
#[derive(Clone)]
pub(crate) struct Visitor {
    /// Where they are.
    pub(crate) from: SocketAddr,
    /// Their place, wherever that is.
    place: Arc<Mutex<Standing>>,
}

/// Where a visitor's place is. Giving it up makes room for others.
enum Standing {
    /// Among those who have shown nothing yet.
    Stranger { _place: Place<oneshot::Sender<()>> },
    /// Among the connections of a user.
    User { _share: UserShare },
    /// Among those of a node.
    Node { _share: Share<NodeName> },
}

impl Visitor {
    fn stranger(from: SocketAddr, place: Place<oneshot::Sender<()>>) -> Self {
        Self { from, place: Arc::new(Mutex::new(Standing::Stranger { _place: place })) }
    }

    /// Says that a stranger is this user; `false` when that user has as many connections as one may have.
    pub(crate) fn welcome(&self, head: &Head, user: &str) -> bool {
        let mut standing = self.standing();
        if matches!(*standing, Standing::Stranger { .. }) {
            let Some(share) = head.guests.users.take(user.to_owned()) else { return false };
            *standing = Standing::User { _share: share };
        }
        true
    }

    fn is_stranger(&self) -> bool {
        matches!(*self.standing(), Standing::Stranger { .. })
    }

    fn standing(&self) -> MutexGuard<'_, Standing> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The two doors, open.
pub(crate) struct Doors {
    socket: UnixListener,
    port: TcpListener,
}

impl Doors {
    /// Opens the port and the socket. Where any port will do, `usual_port` is taken if it is free.
    ///
    /// # Errors
    /// When the address is taken, or another head answers on the socket.
    pub(crate) async fn open(
        socket: &Path,
        listen: SocketAddr,
        usual_port: Option<u16>,
        embedded: bool,
    ) -> anyhow::Result<Self> {
        let port = bind_port(listen, usual_port).await.with_context(|| format!("cannot listen on {listen}"))?;
        // An embedded cluster is its owner's; on a shared head everybody may come and is told apart by the kernel.
        let mode = if embedded { 0o600 } else { 0o666 };
        Ok(Self { socket: bind_socket(socket, mode).await?, port })
    }

    /// Where the port is.
    ///
    /// # Errors
    /// When the system does not say.
    pub(crate) fn address(&self) -> io::Result<SocketAddr> {
        self.port.local_addr()
    }

    /// Lets everyone in until the head stops.
    pub(crate) fn serve(self, head: &Arc<Head>, routes: &Router) {
        head.tasks.spawn(serve_socket(self.socket, Arc::clone(head), routes.clone()));
        head.tasks.spawn(serve_port(self.port, Arc::clone(head), routes.clone()));
    }
}

async fn bind_port(listen: SocketAddr, usual_port: Option<u16>) -> io::Result<TcpListener> {
    if let Some(port) = usual_port.filter(|_| listen.port() == 0)
        && let Ok(listener) = TcpListener::bind(SocketAddr::new(listen.ip(), port)).await
    {
        return Ok(listener);
    }
    TcpListener::bind(listen).await
}

/// Binds the Unix socket in place of one that a dead head left. The new one appears under its name with its mode already set.
async fn bind_socket(path: &Path, mode: u32) -> anyhow::Result<UnixListener> {
    let what = || format!("cannot listen on {}", path.display());
    match UnixStream::connect(path).await {
        Ok(_) => bail!("{} is in use: another head answers there", path.display()),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => {}
        Err(error) => return Err(error).with_context(what),
    }
    let is_socket = |metadata: &fs::Metadata| {
        use std::os::unix::fs::FileTypeExt;
        metadata.file_type().is_socket()
    };
    if fs::symlink_metadata(path).is_ok_and(|metadata| !is_socket(&metadata)) {
        bail!("{} is in the way: it is no socket", path.display());
    }
    let temporary = temporary_beside(path);
    let listener = UnixListener::bind(&temporary).with_context(what)?;
    let publish = || {
        fs::set_permissions(&temporary, Permissions::from_mode(mode))?;
        fs::rename(&temporary, path)
    };
    if let Err(error) = publish() {
        let _ = fs::remove_file(&temporary);
        return Err(error).with_context(what);
    }
    Ok(listener)
}

/// A name in the same directory, short because the names of sockets are limited to 107 bytes.
fn temporary_beside(path: &Path) -> PathBuf {
    path.with_file_name(format!(".{}", &random_name()[..8]))
}

async fn serve_socket(listener: UnixListener, head: Arc<Head>, routes: Router) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = head.stop.cancelled() => return,
        };
        match accepted {
            Ok((stream, _)) => {
                let (head, routes) = (Arc::clone(&head), routes.clone());
                head.clone().tasks.spawn(async move {
                    if let Err(error) = serve_local(&head, &routes, stream).await {
                        tracing::warn!(%error, "cannot find out who is at the socket");
                    }
                });
            }
            Err(error) => pause_after("socket", &error).await,
        }
    }
}

/// Serves a user of this machine.
async fn serve_local(head: &Arc<Head>, routes: &Router, mut stream: UnixStream) -> io::Result<()> {
    let uid = stream.peer_cred()?.uid();
    // Root and the user who runs the head could harm it in other ways.
    let counts = uid != 0 && uid != geteuid().as_raw();
    let share = counts.then(|| head.guests.uids.take(uid));
    if matches!(share, Some(None)) {
        tracing::warn!(
            uid,
            most = head.guests.uids.most(),
            "a user has as many connections as one may have; closing this one"
        );
        answer_at_once(&mut stream, "503 Service Unavailable", "application/json", &too_many_connections(head)).await;
        return Ok(());
    }
    let peer = local_peer(uid).await?;
    serve_connection(head, routes, stream, (peer, None), Http::One).await;
    drop(share);
    Ok(())
}

/// What a user is told who has too many connections, as the API's errors are.
fn too_many_connections(head: &Head) -> String {
    let message =
        format!("you have {} connections to the head, which is as many as one user may have", head.guests.uids.most());
    let hints = vec!["end some of your commands that wait or follow, and try again".to_owned()];
    let body = ErrorBody { code: "too_many_connections".to_owned(), message, hints };
    serde_json::to_string(&body).expect("API types are valid JSON")
}

/// The user at the other end, by the kernel's word.
async fn local_peer(uid: u32) -> io::Result<Peer> {
    // Where names come from a directory server, this may take a while.
    let name = tokio::task::spawn_blocking(move || User::from_uid(Uid::from_raw(uid)).ok().flatten());
    let name = name.await.map_err(io::Error::other)?.map(|user| user.name);
    Ok(Peer::Local { uid, user: name.unwrap_or_else(|| uid.to_string()) })
}

async fn serve_port(listener: TcpListener, head: Arc<Head>, routes: Router) {
    let acceptor = TlsAcceptor::from(head.trust.server());
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = head.stop.cancelled() => return,
        };
        match accepted {
            Ok((stream, from)) => {
                let (head, routes, acceptor) = (Arc::clone(&head), routes.clone(), acceptor.clone());
                head.clone().tasks.spawn(async move {
                    if let Err(error) = serve_stranger(&head, &routes, &acceptor, stream, from).await {
                        tracing::debug!(%from, "connection refused: {error:#}");
                    }
                });
            }
            Err(error) => pause_after("port", &error).await,
        }
    }
}

async fn pause_after(door: &str, error: &io::Error) {
    tracing::warn!(door, %error, "cannot accept a connection");
    tokio::time::sleep(ACCEPT_PAUSE).await;
}

/// Finds out who it is and serves them.
async fn serve_stranger(
    head: &Arc<Head>,
    routes: &Router,
    acceptor: &TlsAcceptor,
    stream: TcpStream,
    from: SocketAddr,
) -> anyhow::Result<()> {
    let (waiting, must_go) = head.guests.begin(from.ip());
    // Small answers must not wait for acknowledgements.
    stream.set_nodelay(true)?;
    let handshake = async {
        let mut first = [0];
        if stream.peek(&mut first).await? == 0 {
            bail!("closed before a word was said");
        }
        match first[0] {
            TLS_HANDSHAKE => Ok(acceptor.accept(stream).await?),
            first => {
                turn_away(stream, first).await;
                bail!("it speaks {}, not TLS", guess(first))
            }
        }
    };
    let stream = tokio::select! {
        outcome = timeout(HANDSHAKE_TIMEOUT, handshake) => outcome.context("no TLS handshake in time")??,
        _ = must_go => bail!("no TLS handshake yet, and there are too many others"),
        () = head.stop.cancelled() => return Ok(()),
    };
    let session = stream.get_ref().1;
    let http = if session.alpn_protocol() == Some(b"h2") { Http::Two } else { Http::One };
    let certificate = session.peer_certificates().and_then(|chain| chain.first());
    match certificate.map(bearer_of) {
        None => {
            let (place, must_go) = head.guests.stay(from.ip());
            drop(waiting);
            let visitor = Visitor::stranger(from, place);
            let mut service =
                pin!(serve_connection(head, routes, stream, (Peer::Unknown, Some(visitor.clone())), http));
            let why = tokio::select! {
                () = service.as_mut() => return Ok(()),
                () = tokio::time::sleep(STRANGER_TIME) => "stayed too long without a certificate or a token",
                // Also when its place was given up because it is known now.
                _ = must_go => "no certificate and no token yet, and there are too many others",
            };
            if visitor.is_stranger() {
                bail!(why);
            }
            service.await;
        }
        Some(None) => bail!("its certificate names no node"),
        Some(Some(bearer)) => {
            head.guests.know(from.ip());
            drop(waiting);
            let share = head.guests.nodes.take(bearer.node.clone());
            let share = share.with_context(|| format!("node {} has too many connections", bearer.node))?;
            let visitor = Visitor { from, place: Arc::new(Mutex::new(Standing::Node { _share: share })) };
            serve_connection(head, routes, stream, (Peer::Node(bearer), Some(visitor)), http).await;
        }
    }
    Ok(())
}

/// The first byte of a TLS handshake.
const TLS_HANDSHAKE: u8 = 0x16;

/// What a protocol that begins with this byte may be.
fn guess(first: u8) -> &'static str {
    match first {
        b'A'..=b'Z' => "plain HTTP or something like it",
        0x80.. => "an old form of SSL or something binary",
        _ => "another protocol",
    }
}

/// Tells a client that speaks plain HTTP what this is. Others would not understand.
async fn turn_away(mut stream: TcpStream, first: u8) {
    if !first.is_ascii_uppercase() {
        return;
    }
    const TEXT: &str = "This is a Hostler head, which speaks TLS here. Agents use https with the certificate they were given; \
                        users run `hostler login` with this address, or talk to the head through its socket on this machine.\n";
    answer_at_once(&mut stream, "400 Bad Request", "text/plain; charset=utf-8", TEXT).await;
}

/// Answers whatever is asked, and closes.
async fn answer_at_once(stream: &mut (impl AsyncRead + AsyncWrite + Unpin), status: &str, kind: &str, text: &str) {
    let answer = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{text}",
        text.len()
    );
    if stream.write_all(answer.as_bytes()).await.is_ok() && stream.shutdown().await.is_ok() {
        // Closing with the request unread would reset the connection and take the answer with it.
        let mut rest = tokio::io::AsyncReadExt::take(stream, 64 << 10);
        let _ = timeout(Duration::from_secs(1), tokio::io::copy(&mut rest, &mut tokio::io::sink())).await;
    }
}

/// The version of HTTP that is spoken on a connection. It is agreed on in the TLS handshake, else it is the first: to look for it in
/// the first bytes would mean to wait for those, and nothing limits how long.
#[derive(Debug, Clone, Copy)]
enum Http {
    One,
    Two,
}

/// Serves requests until the connection ends or the head stops.
async fn serve_connection<S>(
    head: &Arc<Head>,
    routes: &Router,
    stream: S,
    (peer, visitor): (Peer, Option<Visitor>),
    http: Http,
) where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let routes = TowerToHyperService::new(routes.clone());
    let who = peer.clone();
    let unsent = Arc::new(Unsent::default());
    let watch = Arc::clone(&unsent);
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(peer.clone());
        if let Some(visitor) = &visitor {
            request.extensions_mut().insert(visitor.clone());
        }
        let (answer, watch) = (routes.call(request), Arc::clone(&watch));
        async move { Ok::<_, Infallible>(watch.watch(answer.await.unwrap_or_else(|never| match never {}))) }
    });
    let stream = TokioIo::new(stream);
    let serve = async {
        match http {
            Http::One => {
                let mut connection = pin!(http1().serve_connection(stream, service).with_upgrades());
                tokio::select! {
                    outcome = connection.as_mut() => outcome,
                    () = head.stop.cancelled() => {
                        connection.as_mut().graceful_shutdown();
                        connection.await
                    }
                }
            }
            Http::Two => {
                let mut connection = pin!(http2().serve_connection(stream, service));
                tokio::select! {
                    outcome = connection.as_mut() => outcome,
                    () = head.stop.cancelled() => {
                        connection.as_mut().graceful_shutdown();
                        connection.await
                    }
                }
            }
        }
    };
    tokio::select! {
        outcome = serve => if let Err(error) = outcome {
            tracing::debug!(peer = ?who, "connection ended: {error}");
        },
        () = unsent.stalled() => tracing::info!(peer = ?who, "closing a connection whose client does not read its answers"),
    }
}

/// Without a timer hyper panics as soon as a peer makes it use one.
fn http1() -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HANDSHAKE_TIMEOUT).max_buf_size(BUFFER_BYTES);
    builder
}

/// The same.
fn http2() -> http2::Builder<TokioExecutor> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_concurrent_streams(STREAMS)
        .max_send_buf_size(BUFFER_BYTES)
        .keep_alive_interval(PING)
        .keep_alive_timeout(PING);
    builder
}
