//! One HTTP/1.1 connection to the head, and one exchange on it.

use std::io;

use bytes::Bytes;
use hostler_proto::api::{API_VERSION, BASE, ErrorBody, VERSION_HEADER};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;

use crate::{ClientError, Endpoint};

/// The body of a request: bytes or a stream.
pub(crate) type Body = UnsyncBoxBody<Bytes, io::Error>;

/// Maximum size of an answer in memory. Transfers use far smaller pieces.
const MAX_ANSWER_BYTES: usize = 256 << 20;

/// Maximum size of an error answer.
const MAX_ERROR_BYTES: usize = 1 << 20;

/// A connection for one request at a time.
#[derive(Debug)]
pub(crate) struct Connection {
    sender: SendRequest<Body>,
    /// The client's generation when this connection was opened; see [`crate::Client::renew_connections`].
    pub(crate) generation: u64,
}

impl Connection {
    /// Connects and starts the connection's I/O task.
    pub(crate) async fn open(endpoint: &Endpoint, generation: u64) -> Result<Self, ClientError> {
        let stream = endpoint.connect().await?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(|e| failure(endpoint, &e))?;
        // The affected request reports the error.
        tokio::spawn(async move { connection.await.ok() });
        Ok(Self { sender, generation })
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// Sends a request and waits for the headers of the answer. A status other than success is an error.
    pub(crate) async fn exchange(
        &mut self,
        endpoint: &Endpoint,
        mut request: Request<Body>,
    ) -> Result<Response<Incoming>, ClientError> {
        if let Some(value) = endpoint.authorization() {
            request.headers_mut().insert(AUTHORIZATION, value);
        }
        self.sender.ready().await.map_err(|e| failure(endpoint, &e))?;
        let response = self.sender.send_request(request).await.map_err(|e| failure(endpoint, &e))?;
        if response.status().is_success() { Ok(response) } else { Err(refusal(endpoint, response).await) }
    }
}

/// A request to the head. `path` starts with `/` and is below [`BASE`].
pub(crate) fn request(method: Method, path: &str, content_type: Option<&'static str>, body: Body) -> Request<Body> {
    let mut builder = Request::builder()
        .method(method)
        .uri(format!("{BASE}{path}"))
        // HTTP/1.1 requires this header; on a Unix socket it has no meaning.
        .header(HOST, "hostler")
        .header(VERSION_HEADER, API_VERSION);
    if let Some(content_type) = content_type {
        builder = builder.header(CONTENT_TYPE, content_type);
    }
    builder.body(body).expect("paths are made of ids and numbers, which are valid in a URI")
}

pub(crate) fn full(bytes: Bytes) -> Body {
    Full::new(bytes).map_err(|never| match never {}).boxed_unsync()
}

/// Reads an answer to its end.
pub(crate) async fn collect(endpoint: &Endpoint, response: Response<Incoming>) -> Result<Bytes, ClientError> {
    read_limited(response, MAX_ANSWER_BYTES).await.map_err(|what| interrupted(endpoint, what))
}

async fn read_limited(response: Response<Incoming>, limit: usize) -> Result<Bytes, String> {
    let collected = Limited::new(response.into_body(), limit).collect().await.map_err(|e| e.to_string())?;
    Ok(collected.to_bytes())
}

/// Converts an answer with an error status into an error.
async fn refusal(endpoint: &Endpoint, response: Response<Incoming>) -> ClientError {
    let status = response.status();
    let theirs = response.headers().get(VERSION_HEADER).and_then(|v| v.to_str().ok()).map(str::to_owned);
    if let Some(theirs) = theirs.filter(|theirs| *theirs != API_VERSION.to_string()) {
        return ClientError::OtherVersion { endpoint: endpoint.to_string(), theirs };
    }
    let bytes = match read_limited(response, MAX_ERROR_BYTES).await {
        Ok(bytes) => bytes,
        Err(what) => return interrupted(endpoint, what),
    };
    refused(endpoint, status.as_u16(), &bytes)
}

/// Reads the error from `bytes`, the body of an answer.
pub(crate) fn refused(endpoint: &Endpoint, status: u16, bytes: &[u8]) -> ClientError {
    match serde_json::from_slice::<ErrorBody>(bytes) {
        Ok(body) => ClientError::Refused { status, body },
        Err(_) => ClientError::NotAHead {
            endpoint: endpoint.to_string(),
            what: format!("the answer has HTTP status {status} and no error body"),
        },
    }
}

/// Converts a failure of the HTTP layer into an error.
pub(crate) fn failure(endpoint: &Endpoint, error: &hyper::Error) -> ClientError {
    if error.is_parse() {
        return ClientError::NotAHead { endpoint: endpoint.to_string(), what: "the answer is not HTTP".to_owned() };
    }
    let what = if error.is_incomplete_message() {
        "the connection closed before the answer was complete".to_owned()
    } else {
        innermost(error)
    };
    interrupted(endpoint, what)
}

pub(crate) fn interrupted(endpoint: &Endpoint, what: impl Into<String>) -> ClientError {
    ClientError::Interrupted { endpoint: endpoint.to_string(), what: what.into() }
}

/// Returns the innermost cause, which is usually an error of the operating system.
fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    let mut last = error;
    while let Some(source) = last.source() {
        last = source;
    }
    last.to_string()
}
