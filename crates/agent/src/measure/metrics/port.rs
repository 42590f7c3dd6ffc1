//! The port for metrics: plain HTTP with one path.

use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hostler_listen::{Admission, Limits, http1, service};
use http_body_util::Full;
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderValue};
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

use super::Exporter;

/// Maximum number of connections. A further one replaces the oldest.
const CONNECTIONS: usize = 64;

/// Maximum duration of a connection.
const CONNECTION_TIME: Duration = Duration::from_secs(60);

/// A port that is open but not served yet.
pub(crate) struct Port(StdListener);

impl Port {
    /// Opens the port.
    ///
    /// # Errors
    /// If the address is in use or does not belong to this machine.
    pub(crate) fn open(address: SocketAddr) -> io::Result<Self> {
        let listener = StdListener::bind(address).map_err(|error| {
            let hint = "change `metrics` in agent.toml, or stop the process that uses the port (`ss -ltnp`)";
            io::Error::new(error.kind(), format!("cannot listen on {address} for metrics: {error}; {hint}"))
        })?;
        listener.set_nonblocking(true)?;
        tracing::info!(at = %listener.local_addr()?, "serving metrics");
        Ok(Self(listener))
    }

    /// Serves the port until the agent stops.
    ///
    /// # Errors
    /// If the runtime cannot use the listener.
    pub(crate) fn serve(self, exporter: Arc<Exporter>) -> io::Result<()> {
        tokio::spawn(serve(TcpListener::from_std(self.0)?, exporter));
        Ok(())
    }
}

async fn serve(mut listener: TcpListener, exporter: Arc<Exporter>) {
    let admission = Admission::<()>::new(Limits::of_strangers(CONNECTIONS, CONNECTION_TIME));
    loop {
        let (stream, place) = admission.accept(&mut listener).await;
        let exporter = Arc::clone(&exporter);
        tokio::spawn(async move {
            let service = service(move |request: Request<_>| std::future::ready(answer_on_port(&request, &exporter)));
            // If a client disconnects or breaks the protocol, others are not affected.
            let _ = place.hold(http1().serve_connection(TokioIo::new(stream), service)).await;
        });
    }
}

fn answer_on_port<B>(request: &Request<B>, exporter: &Exporter) -> Response<Full<Bytes>> {
    if request.uri().path() != hostler_metrics::PATH {
        return refusal(StatusCode::NOT_FOUND, "the metrics are at /metrics\n");
    }
    if request.method() != Method::GET {
        return refusal(StatusCode::METHOD_NOT_ALLOWED, "use GET\n");
    }
    answer(exporter, request.headers())
}

/// The answer to a request for the metrics.
pub(crate) fn answer(exporter: &Exporter, headers: &HeaderMap) -> Response<Full<Bytes>> {
    let (kind, text) = exporter.answer(headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()));
    let mut response = Response::new(Full::new(Bytes::from(text)));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

fn refusal(status: StatusCode, text: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from_static(text.as_bytes())));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}
