//! The reverse proxy in front of the plain HTTP port, and the addresses of the clients behind it.
//!
//! Every user of this machine can connect to the port. So the header `X-Forwarded-For` counts only on connections that
//! the proxy has opened. TCP has no peer credentials, but the kernel's table of sockets names the account that opened a
//! connection of this machine. Root and the head's own account may always name clients: they control the head anyway.
//! An admin names the account of the proxy.
//!
//! The address is found once for each request, before pages and the API.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::http::HeaderMap;
use hostler_sys::tcp_peer_owner;
use nix::unistd::geteuid;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

/// Maximum number of concurrent searches for the owner of a connection. Each occupies one of the few threads for blocking
/// work.
const SEARCHES: usize = 2;

/// The listener through which a client reached the head; on the TLS port, also the certificate that the client got.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ListenerKind {
    /// The Unix socket, where the kernel identifies users.
    Socket,
    /// TLS with the cluster's certificate.
    Cluster,
    /// TLS with the site's certificate, or plain HTTP on loopback, for browsers at one of these origins.
    Site {
        origins: Arc<[String]>,
        /// Whether a reverse proxy adds the client's address; see [`Proxy`].
        is_proxied: bool,
    },
}

/// Who may name the client of a request on the plain HTTP port.
pub(crate) struct Proxy {
    /// The account that the admin has named.
    uid: Option<u32>,
    searches: Arc<Semaphore>,
    has_warned: AtomicBool,
}

impl Proxy {
    pub(crate) fn new(uid: Option<u32>) -> Self {
        Self { uid, searches: Arc::new(Semaphore::new(SEARCHES)), has_warned: AtomicBool::new(false) }
    }

    /// The listener kind of one connection to a port behind a proxy: not proxied, unless the proxy opened the connection.
    pub(crate) async fn prove(&self, kind: ListenerKind, stream: &TcpStream) -> ListenerKind {
        let ListenerKind::Site { origins, is_proxied: true } = kind else { return kind };
        let is_proxied = self.owner(stream).await.is_some_and(|uid| self.is_trusted(uid));
        ListenerKind::Site { origins, is_proxied }
    }

    /// The account that opened a connection. `None` if that is unknown, e.g. because the program is gone.
    async fn owner(&self, stream: &TcpStream) -> Option<u32> {
        let (peer, own) = (stream.peer_addr().ok()?, stream.local_addr().ok()?);
        let turn = Arc::clone(&self.searches).acquire_owned().await.expect("the semaphore is never closed");
        let search = tokio::task::spawn_blocking(move || {
            // The thread holds the permit, because a client that disconnects does not stop the search.
            let _turn = turn;
            tcp_peer_owner(peer, own)
        });
        search.await.ok()?.inspect_err(|error| tracing::warn!("cannot read the table of sockets: {error}")).ok()?
    }

    fn is_trusted(&self, uid: u32) -> bool {
        let is_trusted = uid == 0 || uid == geteuid().as_raw() || Some(uid) == self.uid;
        if !is_trusted && self.uid.is_none() && !self.has_warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                uid,
                "ignoring X-Forwarded-For of a connection to the plain HTTP port; if this account runs the reverse \
                 proxy, name it in `proxy_user` in head.toml"
            );
        }
        is_trusted
    }
}

/// The client of a request according to the proxy, which adds the address at the end of the header. `None` if no proxy
/// opened the connection, or if it names no address.
pub(crate) fn client(kind: &ListenerKind, headers: &HeaderMap) -> Option<IpAddr> {
    let ListenerKind::Site { is_proxied: true, .. } = kind else { return None };
    let last = headers.get_all("x-forwarded-for").iter().next_back()?;
    last.to_str().ok()?.rsplit(',').next()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::sync::Arc;

    use axum::http::HeaderValue;
    use tokio::net::TcpListener;

    use super::*;

    fn site(is_proxied: bool) -> ListenerKind {
        ListenerKind::Site { origins: Arc::from([]), is_proxied }
    }

    #[test]
    fn last_address_is_that_of_the_proxy() {
        let mut headers = HeaderMap::new();
        assert_eq!(client(&site(true), &headers), None);
        headers.append("x-forwarded-for", HeaderValue::from_static("192.0.2.1"));
        headers.append("x-forwarded-for", HeaderValue::from_static("203.0.113.9, 192.0.2.7"));
        assert_eq!(client(&site(true), &headers), Some([192, 0, 2, 7].into()));
        for kind in [site(false), ListenerKind::Cluster, ListenerKind::Socket] {
            assert_eq!(client(&kind, &headers), None, "{kind:?}");
        }
    }

    #[test]
    fn only_root_the_head_and_the_named_account_are_trusted() {
        let (proxy, unnamed) = (Proxy::new(Some(31_033)), Proxy::new(None));
        let own = geteuid().as_raw();
        for uid in [0, own, 31_033] {
            assert!(proxy.is_trusted(uid));
        }
        assert!(unnamed.is_trusted(0) && unnamed.is_trusted(own) && !unnamed.is_trusted(31_033));
        assert!(!proxy.is_trusted(31_009));
    }

    #[expect(clippy::disallowed_methods, reason = "a server of the test")]
    #[tokio::test]
    async fn connection_is_proxied_if_its_owner_may_name_clients() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
        let at = listener.local_addr().expect("an address");
        let client = TcpStream::connect(at).await.expect("the port is open");
        let (accepted, _) = listener.accept().await.expect("a connection");
        let proxy = Proxy::new(None);
        assert_eq!(proxy.prove(site(true), &accepted).await, site(true), "this test has the account of the head");
        assert_eq!(proxy.prove(site(false), &accepted).await, site(false), "without a proxy, nobody names clients");
        drop(client);
        assert_eq!(proxy.prove(site(true), &accepted).await, site(false), "nobody holds the connection any more");
    }
}
