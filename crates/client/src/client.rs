//! The client: endpoint, one idle connection, and retries.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::{Method, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::connection::{self, Connection, collect, full, interrupted, request};
use crate::retry_limits::Tries;
use crate::{ClientError, Endpoint, Outage, RetryLimits};

/// Timeout for the answer to an ordinary request.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

const JSON: &str = "application/json";

/// Called when the head becomes unreachable and when it is reachable again.
type Watcher = Arc<dyn Fn(Outage<'_>) + Send + Sync>;

/// A client of one head. Cheap to create and to share; every method takes `&self`.
pub struct Client {
    endpoint: Endpoint,
    retry_limits: RetryLimits,
    watcher: Option<Watcher>,
    /// An idle connection for the next call.
    idle: Mutex<Option<Connection>>,
    /// Generation of new connections: the number of calls of [`Client::renew_connections`]. Connections of earlier
    /// generations are not reused.
    generation: AtomicU64,
    /// Whether a connection has ever succeeded. If so, the client retries for longer.
    was_connected: AtomicBool,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("endpoint", &self.endpoint)
            .field("patience", &self.retry_limits)
            .finish_non_exhaustive()
    }
}

/// A request whose complete answer is read into memory. The request can be sent again.
pub(crate) struct Call {
    method: Method,
    path: String,
    content_type: Option<&'static str>,
    body: Bytes,
    timeout: Duration,
    repeatable: bool,
}

impl Call {
    pub(crate) fn get(path: impl Into<String>) -> Self {
        Self::new(Method::GET, path.into(), None, Bytes::new())
    }

    pub(crate) fn post(path: impl Into<String>) -> Self {
        Self::new(Method::POST, path.into(), None, Bytes::new())
    }

    pub(crate) fn put(path: impl Into<String>) -> Self {
        Self::new(Method::PUT, path.into(), None, Bytes::new())
    }

    pub(crate) fn delete(path: impl Into<String>) -> Self {
        Self::new(Method::DELETE, path.into(), None, Bytes::new())
    }

    fn new(method: Method, path: String, content_type: Option<&'static str>, body: Bytes) -> Self {
        Self { method, path, content_type, body, timeout: ANSWER_TIMEOUT, repeatable: true }
    }

    pub(crate) fn json(mut self, body: &impl Serialize) -> Self {
        self.body = serde_json::to_vec(body).expect("API types are valid JSON").into();
        self.content_type = Some(JSON);
        self
    }

    pub(crate) fn bytes(mut self, body: Bytes) -> Self {
        self.body = body;
        self.content_type = Some("application/octet-stream");
        self
    }

    /// Adds `extra` to the timeout.
    pub(crate) fn waiting(mut self, extra: Duration) -> Self {
        self.timeout = ANSWER_TIMEOUT + extra;
        self
    }

    /// Marks the call as not idempotent: the client does not retry after the request may have reached the head.
    pub(crate) fn once(mut self) -> Self {
        self.repeatable = false;
        self
    }
}

impl Client {
    /// Creates a client with [`RetryLimits::PROGRAM`]. The first call opens the connection.
    #[must_use]
    pub fn new(endpoint: Endpoint) -> Self {
        Self {
            endpoint,
            retry_limits: RetryLimits::PROGRAM,
            watcher: None,
            idle: Mutex::new(None),
            generation: AtomicU64::new(0),
            was_connected: AtomicBool::new(false),
        }
    }

    #[must_use]
    pub fn with_retry_limits(mut self, retry_limits: RetryLimits) -> Self {
        self.retry_limits = retry_limits;
        self
    }

    /// Calls `watcher` when the head becomes unreachable during a call and when it is reachable again.
    #[must_use]
    pub fn watched_by(mut self, watcher: impl Fn(Outage<'_>) + Send + Sync + 'static) -> Self {
        self.watcher = Some(Arc::new(watcher));
        self
    }

    #[must_use]
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Makes a call and parses its answer as JSON.
    pub(crate) async fn call<T: DeserializeOwned>(&self, call: Call) -> Result<T, ClientError> {
        let bytes = self.call_bytes(call).await?;
        serde_json::from_slice(&bytes).map_err(|error| ClientError::NotAHead {
            endpoint: self.endpoint.to_string(),
            what: format!("the answer has an unexpected form ({error})"),
        })
    }

    /// Makes a call, with retries, and reads its answer.
    pub(crate) async fn call_bytes(&self, call: Call) -> Result<Bytes, ClientError> {
        let mut tries = self.tries();
        loop {
            match self.call_once(&call).await {
                Ok(bytes) => {
                    self.end_outage(&mut tries);
                    return Ok(bytes);
                }
                Err(error @ ClientError::Interrupted { .. }) if !call.repeatable => return Err(error),
                Err(error) => self.retry_pause(&mut tries, error).await?,
            }
        }
    }

    async fn call_once(&self, call: &Call) -> Result<Bytes, ClientError> {
        // The head may have closed an idle connection, which looks like an interruption. Calls without retries need a
        // new one.
        let mut connection = self.connection(call.repeatable).await?;
        let request = request(call.method.clone(), &call.path, call.content_type, full(call.body.clone()));
        let exchange = async {
            let response = connection.exchange(&self.endpoint, request).await?;
            collect(&self.endpoint, response).await
        };
        let result = tokio::time::timeout(call.timeout, exchange).await;
        let bytes = result.unwrap_or_else(|_| Err(interrupted(&self.endpoint, "no answer in time")))?;
        self.keep(connection);
        Ok(bytes)
    }

    /// Makes a request whose answer is streamed. Not retried. Keep the connection while reading the answer; afterwards,
    /// [`Client::keep`] can put the connection back for the next call.
    pub(crate) async fn open(&self, path: &str) -> Result<(Connection, Response<Incoming>), ClientError> {
        self.open_with(Method::GET, path, None, full(Bytes::new())).await
    }

    /// Like [`Client::open`], with a body.
    pub(crate) async fn open_with(
        &self,
        method: Method,
        path: &str,
        content_type: Option<&'static str>,
        body: connection::Body,
    ) -> Result<(Connection, Response<Incoming>), ClientError> {
        let mut connection = self.connection(true).await?;
        let response = connection.exchange(&self.endpoint, request(method, path, content_type, body)).await?;
        Ok((connection, response))
    }

    /// Takes the idle connection if `may_be_kept` is true and the connection is open, else opens a new one.
    async fn connection(&self, may_be_kept: bool) -> Result<Connection, ClientError> {
        let kept = if may_be_kept { self.idle.lock().unwrap_or_else(PoisonError::into_inner).take() } else { None };
        match kept.filter(|connection| !connection.is_closed()) {
            Some(connection) => Ok(connection),
            None => {
                let connection = Connection::open(&self.endpoint, self.generation.load(Ordering::Relaxed)).await?;
                self.was_connected.store(true, Ordering::Relaxed);
                Ok(connection)
            }
        }
    }

    /// Puts a connection back for the next call. The last answer on the connection must have been read to the end.
    pub(crate) fn keep(&self, connection: Connection) {
        if connection.generation != self.generation.load(Ordering::Relaxed) {
            return;
        }
        *self.idle.lock().unwrap_or_else(PoisonError::into_inner) = Some(connection);
    }

    /// Uses new connections from now on, because the endpoint's certificate has changed.
    pub fn renew_connections(&self) {
        self.generation.fetch_add(1, Ordering::Relaxed);
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// The retry state of a new call or stream.
    pub(crate) fn tries(&self) -> Tries {
        Tries::new(self.retry_limits)
    }

    /// Pauses before a retry, or returns `error` if the error is permanent or the time for retries is up. Reports the
    /// outage after a few pauses.
    pub(crate) async fn retry_pause(&self, tries: &mut Tries, error: ClientError) -> Result<(), ClientError> {
        let error = tries.pause(error, self.was_connected.load(Ordering::Relaxed)).await?;
        if tries.should_report() {
            self.tell(Outage::Begins(&error));
        }
        Ok(())
    }

    /// Ends an outage. Reports the end if the beginning was reported.
    pub(crate) fn end_outage(&self, tries: &mut Tries) {
        if tries.end() {
            self.tell(Outage::Over);
        }
    }

    fn tell(&self, outage: Outage<'_>) {
        if let Some(watcher) = &self.watcher {
            watcher(outage);
        }
    }
}
