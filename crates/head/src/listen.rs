//! The head's listeners, and identification of peers.
//!
//! The Unix socket serves users of this machine; the kernel reports their uid. The TCP port serves agents, which show a
//! certificate of the cluster. Clients without a certificate may join, log in, or show a login token. Browsers reach the
//! dashboard on the same port under the names of the site's certificate, or through a reverse proxy on a port of the
//! loopback address. All listeners use the same HTTP service. It finds the [`Peer`] and the [`ListenerKind`] of a request
//! in the request's extensions.
//!
//! Any program may connect to the port. A client that speaks plain HTTP gets a short answer. Handshakes and request
//! heads must finish within ten seconds. Each connection has a [`Place`], unidentified at first. When there are too many
//! unidentified connections, a new one replaces an old one, so that silent clients cannot block others. An identified
//! connection counts for its [`Client`].

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use axum::Router;
use hostler_core::head::ConnectionId;
use hostler_listen::{Admission, LocalSocket, Paced, Place, Tied, TooMany, http1, service};
use hostler_proto::api::ErrorBody;
use hostler_sys::{Descriptors, SocketAccess, SocketFile};
use hyper::Request;
use hyper::server::conn::http2;
use hyper::service::Service;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use nix::unistd::{Uid, User, geteuid};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::time::timeout;
use tokio_rustls::LazyConfigAcceptor;

use crate::answers::Unsent;
use crate::client_limits::Client;
use crate::head::Head;
use crate::proxy;
use crate::proxy::ListenerKind;
use crate::trust::{Bearer, bearer_of};

/// Timeout of a TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// HTTP/2 window of a stream. The default limits a stream to 64 KiB per round trip, which is too slow for chunks.
const STREAM_WINDOW: u32 = 2 << 20;
/// HTTP/2 window of a connection.
const CONNECTION_WINDOW: u32 = 8 << 20;

/// Size of the send buffer of an HTTP/1 connection or an HTTP/2 stream, and of the receive buffer of an HTTP/1
/// connection.
const BUFFER_BYTES: usize = 128 << 10;

/// Maximum number of concurrent requests on an HTTP/2 connection.
const STREAMS: u32 = 64;

/// Interval of keep-alive pings on a quiet HTTP/2 connection.
const PING: Duration = Duration::from_secs(20);

/// The identity of a connection's peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Peer {
    /// A user of this machine, identified by the kernel.
    Local {
        uid: u32,
        /// The user name, or the uid if there is no name.
        user: String,
    },
    /// An agent, identified by its certificate. Each request checks that the certificate is still valid.
    Node(Bearer),
    /// A client without a certificate; a token may identify it.
    Unknown,
}

/// A client that connected over TCP. Newer connections or a time limit end its connection, until a request identifies
/// it.
#[derive(Clone)]
pub(crate) struct Visitor {
    pub(crate) from: SocketAddr,
    /// The connection's id, in the order in which the head accepted connections.
    pub(crate) connection: ConnectionId,
    place: Arc<Place<Client>>,
    is_of_node: bool,
}

impl Visitor {
    /// The same connection, with the client's address as a reverse proxy reports it.
    pub(crate) fn on_behalf_of(&self, client: IpAddr) -> Self {
        Self { from: SocketAddr::new(client, 0), ..self.clone() }
    }

    /// Identifies the client as this user. A connection of a node stays the node's, which may invent the users of its requests.
    ///
    /// # Errors
    /// The user has the maximum number of connections.
    pub(crate) fn welcome(&self, user: &str) -> Result<(), TooMany> {
        if self.is_of_node { Ok(()) } else { self.place.identify(&Client::User(user.to_owned())) }
    }
}

/// The Unix socket, the TCP port, and the port for plain HTTP.
pub(crate) struct Listeners {
    socket: LocalSocket,
    port: TcpListener,
    http: Option<TcpListener>,
}

impl Listeners {
    /// Opens the port and the socket. If `listen` has port 0, `usual_port` is used when it is free.
    ///
    /// # Errors
    /// The address is in use, or another head answers on the socket.
    pub(crate) async fn open(
        socket: &Path,
        listen: SocketAddr,
        usual_port: Option<u16>,
        http: Option<SocketAddr>,
        embedded: bool,
    ) -> anyhow::Result<Self> {
        let port = bind_port(listen, usual_port).await.with_context(|| format!("cannot listen on {listen}"))?;
        // The owner alone uses an embedded cluster. A shared head accepts all users, and the kernel identifies them.
        let access = if embedded { SocketAccess::Owner } else { SocketAccess::Everybody };
        let http = match http {
            Some(at) => Some(TcpListener::bind(at).await.with_context(|| format!("cannot listen on {at}"))?),
            None => None,
        };
        Ok(Self {
            socket: LocalSocket::open(socket, access, Descriptors::Refused)
                .await
                .with_context(|| format!("cannot listen on {}", socket.display()))?,
            port,
            http,
        })
    }

    /// The address of the port for plain HTTP.
    pub(crate) fn http_address(&self) -> io::Result<Option<SocketAddr>> {
        self.http.as_ref().map(TcpListener::local_addr).transpose()
    }

    /// The file of the Unix socket.
    pub(crate) fn socket_file(&self) -> Arc<SocketFile> {
        self.socket.file()
    }

    /// The address of the TCP port.
    pub(crate) fn address(&self) -> io::Result<SocketAddr> {
        self.port.local_addr()
    }

    /// Accepts connections until the head stops.
    pub(crate) fn serve(self, head: &Arc<Head>, routes: &Router) {
        head.tasks.spawn(serve_socket(self.socket, Arc::clone(head), routes.clone()));
        head.tasks.spawn(serve_port(self.port, Arc::clone(head), routes.clone()));
        if let (Some(http), Some(kind)) = (self.http, head.site.http_listener_kind()) {
            head.tasks.spawn(serve_http(http, kind, Arc::clone(head), routes.clone()));
        }
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

async fn serve_socket(mut listener: LocalSocket, head: Arc<Head>, routes: Router) {
    loop {
        let (stream, place) = tokio::select! {
            accepted = head.client_limits.socket.accept(&mut listener) => accepted,
            () = head.stop.cancelled() => return,
        };
        let (head, routes) = (Arc::clone(&head), routes.clone());
        head.clone().tasks.spawn(async move {
            match place.hold(serve_local(&head, &routes, stream, &place)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::warn!(%error, "cannot identify a user on the socket"),
                Err(why) => tracing::debug!("closed a connection on the socket: {why}"),
            }
        });
    }
}

async fn serve_local(
    head: &Arc<Head>,
    routes: &Router,
    mut stream: UnixStream,
    place: &Arc<Place<Client>>,
) -> io::Result<()> {
    let uid = stream.peer_cred()?.uid();
    let (peer, is_account) = local_peer(uid).await?;
    // Root and the head's own user have no limit, because they can stop the head anyway.
    if uid == 0 || uid == geteuid().as_raw() {
        place.release();
    } else if let Err(full) = place.identify(&if is_account { Client::Uid(uid) } else { Client::Nameless }) {
        tracing::warn!(uid, most = full.most, "a user has the maximum number of connections; closing a new one");
        answer_at_once(&mut stream, "503 Service Unavailable", "application/json", &too_many_connections(full)).await;
        return Ok(());
    }
    serve_connection(head, routes, stream, place, (peer, None, ListenerKind::Socket), Http::One).await;
    Ok(())
}

/// The API error for a user with too many connections.
fn too_many_connections(TooMany { most }: TooMany) -> String {
    let message = format!("you have {most} connections to the head, the maximum per user");
    let hints = vec!["stop some commands that wait for jobs or follow output, and try again".to_owned()];
    let body = ErrorBody { code: "too_many_connections".to_owned(), message, hints };
    serde_json::to_string(&body).expect("API types are valid JSON")
}

/// Looks up the user of a uid that the kernel reported. Returns whether the uid has an account.
async fn local_peer(uid: u32) -> io::Result<(Peer, bool)> {
    // The lookup blocks: names may come from a directory server.
    let name = tokio::task::spawn_blocking(move || User::from_uid(Uid::from_raw(uid)).ok().flatten());
    let name = name.await.map_err(io::Error::other)?.map(|user| user.name);
    let is_account = name.is_some();
    Ok((Peer::Local { uid, user: name.unwrap_or_else(|| uid.to_string()) }, is_account))
}

async fn serve_port(mut listener: TcpListener, head: Arc<Head>, routes: Router) {
    let admission = Arc::clone(&head.client_limits.port);
    serve_tcp(&mut listener, &admission, &head, |stream, visitor| {
        let (head, routes) = (Arc::clone(&head), routes.clone());
        async move { serve_tls(&head, &routes, stream, visitor).await }
    })
    .await;
}

/// Serves browsers over plain HTTP, usually through a reverse proxy.
async fn serve_http(mut listener: TcpListener, kind: ListenerKind, head: Arc<Head>, routes: Router) {
    let admission = Arc::clone(&head.client_limits.http);
    serve_tcp(&mut listener, &admission, &head, |stream, visitor| {
        let (head, routes, kind, place) = (Arc::clone(&head), routes.clone(), kind.clone(), Arc::clone(&visitor.place));
        async move {
            let kind = head.site.proxy.prove(kind, &stream).await;
            let who = (Peer::Unknown, Some(visitor), kind);
            serve_connection(&head, &routes, stream, &place, who, Http::One).await;
            Ok(())
        }
    })
    .await;
}

/// Accepts connections until the head stops, and serves each one as long as it may stay.
async fn serve_tcp<F>(
    listener: &mut TcpListener,
    admission: &Arc<Admission<Client>>,
    head: &Arc<Head>,
    serve: impl Fn(TcpStream, Visitor) -> F,
) where
    F: Future<Output = anyhow::Result<()>> + Send + 'static,
{
    loop {
        let (stream, place) = tokio::select! {
            accepted = admission.accept(listener) => accepted,
            () = head.stop.cancelled() => return,
        };
        // Small responses must not wait for acknowledgements. Both calls fail if the client has gone already.
        let Ok((from, ())) = stream.peer_addr().and_then(|from| Ok((from, stream.set_nodelay(true)?))) else {
            continue;
        };
        let work = serve(
            stream,
            Visitor { from, connection: head.connection(), place: Arc::clone(&place), is_of_node: false },
        );
        head.tasks.spawn(async move {
            match place.hold(work).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::debug!(%from, "connection refused: {error:#}"),
                Err(why) => tracing::debug!(%from, "connection closed: {why}"),
            }
        });
    }
}

/// Identifies a client on the port and serves it.
async fn serve_tls(head: &Arc<Head>, routes: &Router, stream: TcpStream, visitor: Visitor) -> anyhow::Result<()> {
    let handshake = async {
        let mut first = [0];
        if stream.peek(&mut first).await? == 0 {
            bail!("the client closed the connection without sending data");
        }
        match first[0] {
            TLS_HANDSHAKE => {
                let handshake = LazyConfigAcceptor::new(rustls::server::Acceptor::default(), stream).await?;
                let of_site = head.site.at(handshake.client_hello().server_name());
                let (config, kind) = of_site.unwrap_or_else(|| (head.trust.server(), ListenerKind::Cluster));
                Ok((handshake.into_stream(config).await?, kind))
            }
            first => {
                reject_plain_http(stream, first).await;
                bail!("the client speaks {}, not TLS", guess(first))
            }
        }
    };
    let (stream, kind) = tokio::select! {
        outcome = timeout(HANDSHAKE_TIMEOUT, handshake) => outcome.context("no TLS handshake in time")??,
        () = head.stop.cancelled() => return Ok(()),
    };
    let session = stream.get_ref().1;
    let http = if session.alpn_protocol() == Some(b"h2") { Http::Two } else { Http::One };
    let certificate = session.peer_certificates().and_then(|chain| chain.first());
    let peer = match certificate.map(bearer_of) {
        None => Peer::Unknown,
        Some(None) => bail!("the certificate names no node"),
        Some(Some(bearer)) => {
            let node = &bearer.node;
            visitor.place.identify(&Client::Node(node.clone())).with_context(|| format!("node {node}"))?;
            Peer::Node(bearer)
        }
    };
    let place = Arc::clone(&visitor.place);
    let visitor = Visitor { is_of_node: peer != Peer::Unknown, ..visitor };
    serve_connection(head, routes, stream, &place, (peer, Some(visitor), kind), http).await;
    Ok(())
}

/// First byte of a TLS handshake.
const TLS_HANDSHAKE: u8 = 0x16;

/// The protocol that may begin with this byte.
fn guess(first: u8) -> &'static str {
    match first {
        b'A'..=b'Z' => "plain HTTP or a similar protocol",
        0x80.. => "an old version of SSL or a binary protocol",
        _ => "another protocol",
    }
}

/// Answers a client that speaks plain HTTP. Other protocols get no answer.
async fn reject_plain_http(mut stream: TcpStream, first: u8) {
    if !first.is_ascii_uppercase() {
        return;
    }
    const TEXT: &str = "This is a Hostler head. This port requires TLS. Agents use https with their certificate; \
                        users run `hostler login` with this address, or use the head's Unix socket on this machine.\n";
    answer_at_once(&mut stream, "400 Bad Request", "text/plain; charset=utf-8", TEXT).await;
}

/// Sends one fixed response to any request, and closes the connection.
async fn answer_at_once(stream: &mut (impl AsyncRead + AsyncWrite + Unpin), status: &str, kind: &str, text: &str) {
    let answer = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{text}",
        text.len()
    );
    if stream.write_all(answer.as_bytes()).await.is_ok() && stream.shutdown().await.is_ok() {
        // Closing with unread data would reset the connection, and the client could lose the response.
        let mut rest = tokio::io::AsyncReadExt::take(stream, 64 << 10);
        let _ = timeout(Duration::from_secs(1), tokio::io::copy(&mut rest, &mut tokio::io::sink())).await;
    }
}

/// HTTP version of a connection. The TLS handshake negotiates it; without negotiation it is HTTP/1. Detection from the
/// first bytes would have to wait for these bytes without a time limit.
#[derive(Debug, Clone, Copy)]
enum Http {
    One,
    Two,
}

async fn serve_connection<S>(
    head: &Arc<Head>,
    routes: &Router,
    stream: S,
    place: &Arc<Place<Client>>,
    (peer, visitor, kind): (Peer, Option<Visitor>, ListenerKind),
    http: Http,
) where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let routes = TowerToHyperService::new(routes.clone());
    let who = peer.clone();
    let unsent = Arc::new(Unsent::default());
    let watch = Arc::clone(&unsent);
    let stream = TokioIo::new(Tied::new(stream, place));
    let place = Arc::clone(place);
    let service = service(move |mut request: Request<Paced>| {
        // The next request on a connection of a reverse proxy may come from somebody else.
        if peer == Peer::Unknown && matches!(http, Http::One) {
            place.forget();
        }
        request.extensions_mut().insert(peer.clone());
        request.extensions_mut().insert(kind.clone());
        if let Some(visitor) = &visitor {
            let client = proxy::client(&kind, request.headers());
            let visitor = client.map_or_else(|| visitor.clone(), |client| visitor.on_behalf_of(client));
            request.extensions_mut().insert(visitor);
        }
        let (answer, watch) = (routes.call(request), Arc::clone(&watch));
        async move { watch.watch(answer.await.unwrap_or_else(|never| match never {})) }
    });
    let serve = async {
        match http {
            Http::One => {
                let mut connection =
                    pin!(http1().max_buf_size(BUFFER_BYTES).serve_connection(stream, service).with_upgrades());
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

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use hostler_listen::Limits;

    use super::*;

    #[tokio::test]
    async fn connection_of_a_node_stays_the_nodes_whoever_its_requests_name() {
        let limits = Limits { strangers: 8, time: Duration::from_secs(60), total: 32 };
        let admission = Admission::new(limits);
        let mut listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
        let from = listener.local_addr().expect("it listens");
        let mut visitors = Vec::new();
        for _ in 0..5 {
            let _client = TcpStream::connect(from).await.expect("it listens");
            let (_, place) = admission.accept(&mut listener).await;
            visitors.push(Visitor { from, connection: ConnectionId(0), place, is_of_node: false });
        }
        for visitor in &mut visitors[..3] {
            visitor.place.identify(&Client::Node("n1".parse().expect("a name"))).expect("within its share");
            visitor.is_of_node = true;
            visitor.welcome("zed").expect("the node's connection does not count for zed");
        }
        // A user has two of 32 connections.
        assert!(visitors[3..].iter().all(|visitor| visitor.welcome("zed").is_ok()));
    }
}
