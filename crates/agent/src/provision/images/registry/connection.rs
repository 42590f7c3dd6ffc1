//! One HTTP request over a connection of its own.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1::Builder;
use hyper::header::{HOST, HeaderMap, HeaderValue, USER_AGENT};
use hyper::{Method, Response, Uri};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Maximum time for a connection to one address of a host.
const CONNECT_BOUND: Duration = Duration::from_secs(10);

/// Maximum number of addresses of a host that are tried.
const MAX_ADDRESSES: usize = 5;

/// Maximum size of an answer's header in bytes.
const MAX_HEADER_BYTES: usize = 64 << 10;

/// Where admins of a machine put the certificate authorities of registries, by host, in files `*.crt`.
const AUTHORITIES: [&str; 2] = ["/etc/containers/certs.d", "/etc/docker/certs.d"];

/// An address with `http` or `https`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) is_plain: bool,
    /// Host, and the port if it is not the usual one.
    pub(super) authority: String,
    /// Path and query.
    pub(super) path: String,
}

impl Address {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let uri: Uri = text.parse().ok()?;
        let is_plain = match uri.scheme_str()? {
            "https" => false,
            "http" => true,
            _ => return None,
        };
        let authority = uri.authority()?.as_str();
        if authority.contains('@') {
            return None;
        }
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        Some(Self { is_plain, authority: authority.to_owned(), path: path.to_owned() })
    }

    /// The address that a redirect of this one leads to.
    pub(super) fn joined(&self, target: &str) -> Option<Self> {
        if target.starts_with('/') && !target.starts_with("//") {
            let path: Uri = target.parse().ok()?;
            return Some(Self { path: path.path_and_query()?.as_str().to_owned(), ..self.clone() });
        }
        Self::parse(target)
    }

    pub(super) fn is_same_server(&self, other: &Self) -> bool {
        (self.is_plain, self.host(), self.port()) == (other.is_plain, other.host(), other.port())
    }

    fn host(&self) -> Option<String> {
        let uri: Uri = self.authority.parse().ok()?;
        Some(uri.host()?.trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase())
    }

    fn port(&self) -> u16 {
        let uri = self.authority.parse::<Uri>().ok();
        uri.and_then(|uri| uri.port_u16()).unwrap_or(if self.is_plain { 80 } else { 443 })
    }
}

pub(super) struct Request<'a> {
    pub(super) method: Method,
    pub(super) address: &'a Address,
    pub(super) headers: HeaderMap,
    pub(super) body: Vec<u8>,
}

/// An answer, and whether it is from this machine or its network.
pub(super) struct Answered {
    pub(super) response: Response<Incoming>,
    pub(super) is_near: bool,
}

/// The server has only addresses of this machine or of a private network, and the admin has not listed it.
#[derive(Debug, thiserror::Error)]
#[error("it has an address of the node or of a private network")]
pub(super) struct Near;

/// Sends a request, and returns the answer when its header has arrived. `allows_near`: also to this machine and its network.
pub(super) async fn send(request: Request<'_>, allows_near: bool) -> anyhow::Result<Answered> {
    let address = request.address;
    let host = address.host().ok_or_else(|| anyhow!("{} is not the name of a host", address.authority))?;
    let tcp = connect(&host, address.port(), allows_near).await?;
    let (peer, own) = (tcp.peer_addr()?.ip(), tcp.local_addr()?.ip());
    let is_near = is_near(peer) || peer == own;
    if is_near && !allows_near {
        return Err(Near.into());
    }
    let _ = tcp.set_nodelay(true);
    if address.is_plain {
        // The name `localhost` may lead elsewhere on a strange machine.
        if host == "localhost" && !peer.is_loopback() {
            bail!("the name localhost leads to another machine here");
        }
        return Ok(Answered { response: exchange(request, tcp).await?, is_near });
    }
    let name = ServerName::try_from(host).map_err(|_| anyhow!("{} has no name for TLS", address.authority))?;
    let tls = TlsConnector::from(tls(&address.authority)?).connect(name, tcp).await.context("no TLS connection")?;
    Ok(Answered { response: exchange(request, tls).await?, is_near })
}

/// Connects to the first address of a host that accepts.
async fn connect(host: &str, port: u16, allows_near: bool) -> anyhow::Result<TcpStream> {
    let found: Vec<SocketAddr> = tokio::net::lookup_host((host, port)).await?.take(MAX_ADDRESSES).collect();
    let allowed = found.iter().filter(|at| allows_near || !is_near(at.ip()));
    let mut last = if found.is_empty() { anyhow!("the name has no address") } else { Near.into() };
    for at in allowed {
        last = match tokio::time::timeout(CONNECT_BOUND, TcpStream::connect(at)).await {
            Ok(Ok(tcp)) => return Ok(tcp),
            Ok(Err(error)) => error.into(),
            Err(_) => anyhow!("no connection within {} s", CONNECT_BOUND.as_secs()),
        };
    }
    Err(last)
}

/// Whether an address is of this machine or of a private network, or of no machine at all.
fn is_near(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(it) => {
            let [first, second, third, _] = it.octets();
            it.is_loopback()
                || it.is_private()
                || it.is_link_local()
                || it.is_multicast()
                || first == 0
                || first >= 240
                || (first == 100 && second & 0xc0 == 64)
                || (first == 198 && second & 0xfe == 18)
                || (first, second, third) == (192, 0, 0)
        }
        IpAddr::V6(it) => {
            // Translators and tunnels lead to the IPv4 address inside.
            let inside = |high: u16, low: u16| is_near(Ipv4Addr::from((u32::from(high) << 16) | u32::from(low)).into());
            match it.segments() {
                [0, 0, 0, 0, 0, 0, ..] => true,
                [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] => inside(high, low),
                [0x64, 0xff9b, 1, ..] => true,
                [first, ..] => is_near_ipv6(it, first),
            }
        }
    }
}

fn is_near_ipv6(it: Ipv6Addr, first: u16) -> bool {
    // Unique local, link-local and site-local addresses.
    it.is_multicast() || first & 0xfe00 == 0xfc00 || first & 0xff80 == 0xfe80
}

async fn exchange(
    request: Request<'_>,
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
) -> anyhow::Result<Response<Incoming>> {
    let builder = &mut Builder::new();
    let (mut sender, connection) =
        builder.max_buf_size(MAX_HEADER_BYTES).handshake(TokioIo::new(stream)).await.context("no HTTP")?;
    // It ends with the process at the latest.
    tokio::spawn(async move { connection.await.ok() });
    let Request { method, address, headers, body } = request;
    let mut request = hyper::Request::new(Full::new(Bytes::from(body)));
    *request.method_mut() = method;
    *request.uri_mut() = address.path.parse()?;
    *request.headers_mut() = headers;
    request.headers_mut().insert(HOST, HeaderValue::from_str(&address.authority)?);
    request.headers_mut().insert(USER_AGENT, HeaderValue::from_static("hostler"));
    sender.send_request(request).await.context("no answer")
}

/// Trusts the certificate authorities of the machine, and those that its admin has added for this server.
fn tls(authority: &str) -> anyhow::Result<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    // Without any authority, no server is trusted, and each request fails.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    for directory in AUTHORITIES {
        for entry in std::fs::read_dir(format!("{directory}/{authority}")).into_iter().flatten().flatten() {
            if entry.path().extension().is_some_and(|extension| extension == "crt") {
                let certificates = CertificateDer::pem_file_iter(entry.path()).into_iter().flatten().flatten();
                roots.add_parsable_certificates(certificates);
            }
        }
    }
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_the_machine_and_of_private_networks_are_near() {
        for near in [
            "127.0.0.1",
            "127.9.9.9",
            "10.1.2.3",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "0.0.0.0",
            "100.64.0.1",
            "198.18.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "::1",
            "::",
            "fe80::1",
            "fec0::1",
            "fd00::1",
            "ff02::1",
            "::ffff:10.0.0.1",
            "64:ff9b::10.0.0.1",
            "64:ff9b:1::1",
            "2002:a00:1::1",
        ] {
            assert!(is_near(near.parse().expect("an address")), "{near}");
        }
        for far in ["1.1.1.1", "172.32.0.1", "100.128.0.1", "2606:4700::1", "::ffff:1.1.1.1", "64:ff9b::1.1.1.1"] {
            assert!(!is_near(far.parse().expect("an address")), "{far}");
        }
    }

    #[test]
    fn login_goes_to_the_same_server_only() {
        let parse = |text: &str| Address::parse(text).expect("an address");
        let own = parse("https://registry.example:443/v2/");
        assert!(own.is_same_server(&parse("https://Registry.example/other")));
        for other in [
            "http://registry.example:443/",
            "https://registry.example:444/",
            "https://registry.example.evil/",
            "https://example/",
        ] {
            assert!(!own.is_same_server(&parse(other)), "{other}");
        }
        assert!(own.is_same_server(&own.joined("/relative?a=b").expect("a path")));
        assert_eq!(own.joined("/relative?a=b").expect("a path").path, "/relative?a=b");
        assert!(!own.is_same_server(&own.joined("https://a/b").expect("an address")));
        for wrong in ["//evil/a", "ftp://a/b", "relative", "https://user:password@registry.example/", "https://", ""] {
            assert_eq!(own.joined(wrong), None, "{wrong}");
        }
    }
}
