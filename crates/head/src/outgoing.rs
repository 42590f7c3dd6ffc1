//! HTTP requests to other servers, without redirects, proxies or long answers. The caller opens the connection, so it
//! decides which addresses are allowed.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::handshake;
use hyper::header::{CONTENT_LENGTH, HOST, HeaderMap, HeaderValue, USER_AGENT};
use hyper::{Method, Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// A request.
pub(crate) struct Call<'a> {
    pub(crate) method: Method,
    /// An absolute address that begins with `https` or `http`.
    pub(crate) uri: &'a Uri,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    /// A file with the authorities of the server's certificate; the machine's authorities if absent.
    pub(crate) ca: Option<&'a Path>,
    pub(crate) max_answer_bytes: usize,
}

/// A server's answer.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    /// `None` if the body is longer than the limit, or did not arrive completely.
    pub(crate) body: Option<Bytes>,
}

/// Why a server gave no answer.
#[derive(Debug)]
pub(crate) enum CallError {
    BadUri,
    Tls(std::io::Error),
    /// The server closed the connection without an answer.
    Broken,
    UnreadableCa,
    BadCa,
}

/// The port of an address.
pub(crate) fn port(uri: &Uri) -> u16 {
    uri.port_u16().unwrap_or(if is_encrypted(uri) { 443 } else { 80 })
}

/// The host of an address, without the brackets of IPv6.
pub(crate) fn host(uri: &Uri) -> Option<&str> {
    Some(uri.host()?.trim_start_matches('[').trim_end_matches(']'))
}

fn is_encrypted(uri: &Uri) -> bool {
    uri.scheme_str() == Some("https")
}

impl Call<'_> {
    /// Sends the request over a connection to the server.
    pub(crate) async fn send(self, tcp: TcpStream) -> Result<Answer, CallError> {
        // Without this option, only the latency is higher.
        let _ = tcp.set_nodelay(true);
        if !is_encrypted(self.uri) {
            return self.exchange(tcp).await;
        }
        let host = host(self.uri).ok_or(CallError::BadUri)?;
        let name = ServerName::try_from(host.to_owned()).map_err(|_| CallError::BadUri)?;
        let tls = TlsConnector::from(tls(self.ca)?).connect(name, tcp).await.map_err(CallError::Tls)?;
        self.exchange(tls).await
    }

    async fn exchange(self, stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) -> Result<Answer, CallError> {
        let (mut sender, connection) = handshake(TokioIo::new(stream)).await.map_err(|_| CallError::Broken)?;
        let connection = tokio::spawn(async move { connection.await.ok() });
        // The task must not outlive the request, e.g. at a timeout.
        let _guard = AbortOnDrop(connection);
        let path = self.uri.path_and_query().map_or("/", |path| path.as_str());
        let authority = self.uri.authority().map_or("", |authority| authority.as_str());
        let mut request = Request::new(Full::new(self.body.clone()));
        *request.method_mut() = self.method;
        *request.uri_mut() = path.parse().map_err(|_| CallError::BadUri)?;
        *request.headers_mut() = self.headers;
        let host = HeaderValue::from_str(authority).map_err(|_| CallError::BadUri)?;
        request.headers_mut().insert(HOST, host);
        request.headers_mut().insert(USER_AGENT, HeaderValue::from_static("hostler"));
        request.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(self.body.len()));
        let response = sender.send_request(request).await.map_err(|_| CallError::Broken)?;
        let (parts, body) = response.into_parts();
        let body = Limited::new(body, self.max_answer_bytes).collect().await;
        let body = body.ok().map(http_body_util::Collected::to_bytes);
        Ok(Answer { status: parts.status, headers: parts.headers, body })
    }
}

struct AbortOnDrop<T>(tokio::task::JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn tls(ca: Option<&Path>) -> Result<Arc<ClientConfig>, CallError> {
    static USUAL: OnceLock<Arc<ClientConfig>> = OnceLock::new();
    if let Some(path) = ca {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_file_iter(path).map_err(|_| CallError::UnreadableCa)? {
            roots.add(certificate.map_err(|_| CallError::UnreadableCa)?).map_err(|_| CallError::BadCa)?;
        }
        return Ok(client(roots));
    }
    Ok(Arc::clone(USUAL.get_or_init(|| {
        let mut roots = RootCertStore::empty();
        // Without any authority, no server is trusted, and each request fails.
        let found = rustls_native_certs::load_native_certs();
        roots.add_parsable_certificates(found.certs);
        client(roots)
    })))
}

fn client(roots: RootCertStore) -> Arc<ClientConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider supports the default versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    Arc::new(config)
}
