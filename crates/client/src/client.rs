//! The client: where the head is, one idle connection, and patience.

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
use crate::patience::Tries;
use crate::{ClientError, Endpoint, Outage, Patience};

/// How long the head may take to answer an ordinary request before the connection counts as lost.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// JSON bodies say so.
const JSON: &str = "application/json";

/// Whoever wants to know that the head is away and back.
type Watcher = Arc<dyn Fn(Outage<'_>) + Send + Sync>;

/// A client of one head. Cheap to make and to share; every method takes `&self`.
pub struct Client {
    endpoint: Endpoint,
    patience: Patience,
    watcher: Option<Watcher>,
    /// Kept for the next call: most commands make a few calls one after another.
    idle: Mutex<Option<Connection>>,
    /// How often [`Client::renew_connections`] was called: older connections are not kept.
    generation: AtomicU64,
    /// Whether a connection was ever made: then a head that cannot be reached is away, not absent.
    was_connected: AtomicBool,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("endpoint", &self.endpoint)
            .field("patience", &self.patience)
            .finish_non_exhaustive()
    }
}

/// One request whose answer is read whole. It is a value so that it can be made again.
pub(crate) struct Call {
    method: Method,
    path: String,
    content_type: Option<&'static str>,
    body: Bytes,
    timeout: Duration,
    /// Whether making it twice is the same as making it once.
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

    /// Allows this much time on top of what any answer may take.
    pub(crate) fn waiting(mut self, extra: Duration) -> Self {
        self.timeout = ANSWER_TIMEOUT + extra;
        self
    }

    /// Must not be made again once it may have arrived.
    pub(crate) fn once(mut self) -> Self {
        self.repeatable = false;
        self
    }
}

impl Client {
    /// A client with the patience of a program; nothing is connected yet.
    #[must_use]
    pub fn new(endpoint: Endpoint) -> Self {
        Self {
            endpoint,
            patience: Patience::PROGRAM,
            watcher: None,
            idle: Mutex::new(None),
            generation: AtomicU64::new(0),
            was_connected: AtomicBool::new(false),
        }
    }

    /// The same client with another patience.
    #[must_use]
    pub fn with_patience(mut self, patience: Patience) -> Self {
        self.patience = patience;
        self
    }

    /// Calls `watcher` when the head goes away in the middle of something and when it is back.
    #[must_use]
    pub fn watched_by(mut self, watcher: impl Fn(Outage<'_>) + Send + Sync + 'static) -> Self {
        self.watcher = Some(Arc::new(watcher));
        self
    }

    /// Where the head is.
    #[must_use]
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Makes a call and reads its answer as JSON.
    pub(crate) async fn call<T: DeserializeOwned>(&self, call: Call) -> Result<T, ClientError> {
        let bytes = self.call_bytes(call).await?;
        serde_json::from_slice(&bytes).map_err(|error| ClientError::NotAHead {
            endpoint: self.endpoint.to_string(),
            what: format!("it answered with something else than was asked for ({error})"),
        })
    }

    /// Makes a call, again and again if need be, and reads its answer.
    pub(crate) async fn call_bytes(&self, call: Call) -> Result<Bytes, ClientError> {
        let mut tries = self.tries();
        loop {
            match self.call_once(&call).await {
                Ok(bytes) => {
                    self.back_again(&mut tries);
                    return Ok(bytes);
                }
                Err(error @ ClientError::Interrupted { .. }) if !call.repeatable => return Err(error),
                Err(error) => self.away(&mut tries, error).await?,
            }
        }
    }

    async fn call_once(&self, call: &Call) -> Result<Bytes, ClientError> {
        // A kept connection may have been closed by now, which looks like an interruption.
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

    /// Makes a request whose answer is read bit by bit. Not tried again. The connection comes with the answer: it has to be kept
    /// apart while that is read, and may be given back with [`Client::keep`] when it was read to its end.
    pub(crate) async fn open(&self, path: &str) -> Result<(Connection, Response<Incoming>), ClientError> {
        self.open_with(Method::GET, path, None, full(Bytes::new())).await
    }

    /// The same with a body.
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

    /// The kept connection if it may be used and is still good, or a new one.
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

    /// Takes a connection whose last answer was read to its end, for the next call.
    pub(crate) fn keep(&self, connection: Connection) {
        if connection.generation != self.generation.load(Ordering::Relaxed) {
            return;
        }
        *self.idle.lock().unwrap_or_else(PoisonError::into_inner) = Some(connection);
    }

    /// Makes every further call on a connection that is made from now on: the endpoint's certificate has been replaced.
    pub fn renew_connections(&self) {
        self.generation.fetch_add(1, Ordering::Relaxed);
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// A fresh count of tries, for one call or one stream.
    pub(crate) fn tries(&self) -> Tries {
        Tries::new(self.patience)
    }

    /// Waits a little after `error`, or gives up with it. The first pause is not worth a word: a restart may be over by then.
    pub(crate) async fn away(&self, tries: &mut Tries, error: ClientError) -> Result<(), ClientError> {
        let error = tries.pause(error, self.was_connected.load(Ordering::Relaxed)).await?;
        if tries.becomes_worth_a_word() {
            self.tell(Outage::Begins(&error));
        }
        Ok(())
    }

    /// The head answered: says that the outage is over, if there was one.
    pub(crate) fn back_again(&self, tries: &mut Tries) {
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
