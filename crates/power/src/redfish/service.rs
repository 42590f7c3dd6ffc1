//! A controller with its session, shared by its nodes.
//!
//! Controllers support few sessions and keep an abandoned one for half an hour. All nodes behind a controller therefore
//! share one session, which is closed after a minute without use. If the controller has no sessions or none is free,
//! each request carries the password.

use std::sync::{Arc, Weak};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderName, HeaderValue, USER_AGENT};
use hyper::{Method, Request, StatusCode, Uri};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::Mutex;
use tokio::time::Instant;
use zeroize::Zeroizing;

use super::Address;
use super::bodies::{self, Refusal, Root};
use super::line::{Line, Reply};
use super::trust::Trust;
use crate::credentials::{Credentials, Keyring};
use crate::{CredentialsConfig, Fault};

/// Path of the service root in the standard.
const ROOT: &str = "/redfish/v1/";

/// Header with a session's token.
const TOKEN: HeaderName = HeaderName::from_static("x-auth-token");

/// Header with the OData version. Without this header, iLO 4 uses a proprietary format.
const VERSION: HeaderName = HeaderName::from_static("odata-version");

/// Time without use after which a session is closed. If no session was free, the next attempt to open one also waits
/// this long.
const IDLE: Duration = if cfg!(test) { Duration::from_secs(2) } else { Duration::from_secs(60) };

/// Maximum number of redirects per request.
const MAX_REDIRECTS: usize = 4;

/// A controller's address, with the certificates and the credentials to use. Nodes with equal values share a service.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Identity {
    pub(crate) address: Address,
    pub(crate) trust: Trust,
    pub(crate) credentials: CredentialsConfig,
}

#[derive(Debug)]
pub(crate) struct Service {
    identity: Identity,
    keyring: Keyring,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    line: Option<Line>,
    root: Option<Arc<Root>>,
    session: Option<Session>,
    has_no_sessions: bool,
    /// The last time at which no session was free.
    no_session_since: Option<Instant>,
    last_used: Option<Instant>,
}

#[derive(Debug)]
struct Session {
    token: HeaderValue,
    /// Path for closing the session.
    path: Option<String>,
}

/// Authentication of a request.
enum Pass {
    Session(HeaderValue),
    Password(Credentials),
}

impl Service {
    pub(crate) fn new(identity: Identity) -> Self {
        let keyring = Keyring::new(identity.credentials.clone(), format!("the controller at {}", identity.address));
        Self { identity, keyring, state: Mutex::default() }
    }

    pub(crate) fn address(&self) -> &Address {
        &self.identity.address
    }

    pub(crate) async fn root(&self) -> Result<Arc<Root>, Fault> {
        self.root_of(&mut *self.state.lock().await).await
    }

    /// Reads the resource at a path.
    pub(crate) async fn get<T: DeserializeOwned>(self: &Arc<Self>, path: &str) -> Result<T, Fault> {
        let found = self.find(path).await?;
        found.ok_or_else(|| {
            Fault::confused(format!("the controller at {} links to {path}, which does not exist", self.address()))
        })
    }

    /// Reads the resource at a path. `None` if it does not exist.
    pub(crate) async fn find<T: DeserializeOwned>(self: &Arc<Self>, path: &str) -> Result<Option<T>, Fault> {
        let reply = self.call(&Method::GET, path, None).await?;
        match reply.status {
            StatusCode::NOT_FOUND => Ok(None),
            status if status.is_success() => self.read(path, &reply).map(Some),
            _ => Err(self.refusal(&reply)),
        }
    }

    /// Sends a POST request. The caller checks the status of the response.
    pub(crate) async fn post(self: &Arc<Self>, path: &str, body: &Value) -> Result<Reply, Fault> {
        self.call(&Method::POST, path, Some(Bytes::from(body.to_string()))).await
    }

    pub(crate) async fn leave(&self) {
        let mut state = self.state.lock().await;
        self.close_session(&mut state).await;
        state.line = None;
    }

    async fn close_session(&self, state: &mut State) {
        if let Some(Session { token, path: Some(path) }) = state.session.take() {
            // An error is harmless: the session may have expired.
            let _ = self.send(state, &Method::DELETE, &path, None, Some((TOKEN, token))).await;
        }
    }

    /// Converts an error response to a fault.
    pub(crate) fn refusal(&self, reply: &Reply) -> Fault {
        let words = bodies::read::<Refusal>(&reply.body).ok().and_then(|refusal| refusal.user_message());
        let words = words.map_or_else(String::new, |words| format!(": \"{words}\""));
        let why = format!("the controller at {} responded with {}{words}", self.address(), reply.status);
        match reply.status.as_u16() {
            401 => Fault::refused(why).hint("check the user and the password"),
            403 => Fault::refused(why).hint("give the user the permission to read and switch the machine's power"),
            409 | 423 | 429 | 502..=504 => Fault::busy(why).after(reply.retry_after()),
            400 | 405 | 501 => Fault::unsupported(why),
            _ => Fault::confused(why),
        }
    }

    /// Sends an authenticated request.
    async fn call(self: &Arc<Self>, method: &Method, path: &str, body: Option<Bytes>) -> Result<Reply, Fault> {
        let mut state = self.state.lock().await;
        state.last_used = Some(Instant::now());
        let is_old = state.session.is_some();
        let mut pass = self.pass(&mut state).await?;
        let mut reply = self.send(&mut state, method, path, body.clone(), Some(header(&pass)?)).await?;
        if is_old && is_rejected(&reply) {
            // The session has expired, e.g. after half an hour or a restart of the controller. If it has not, and only
            // the permission is missing, it must not stay open.
            self.close_session(&mut state).await;
            pass = self.pass(&mut state).await?;
            reply = self.send(&mut state, method, path, body, Some(header(&pass)?)).await?;
        }
        match (reply.status, &pass) {
            (StatusCode::UNAUTHORIZED, Pass::Password(credentials)) => Err(self.credentials_rejected(credentials)),
            (StatusCode::UNAUTHORIZED, Pass::Session(_)) => {
                state.session = None;
                let why = format!("the controller at {} rejects a session that it has just created", self.address());
                Err(Fault::confused(why).hint("reset the controller, which does not affect the machine"))
            }
            _ => {
                self.keyring.accepted();
                Ok(reply)
            }
        }
    }

    /// Returns the current session, a new one, or the password.
    async fn pass(self: &Arc<Self>, state: &mut State) -> Result<Pass, Fault> {
        if let Some(session) = &state.session {
            return Ok(Pass::Session(session.token.clone()));
        }
        // Send the password only to a server that looks like a Redfish controller.
        let root = self.root_of(state).await?;
        let credentials = self.keyring.load().await?;
        let is_full = state.no_session_since.is_some_and(|then| then.elapsed() < IDLE);
        let sessions = root.links.sessions.as_ref().filter(|_| !state.has_no_sessions && !is_full);
        let Some(path) = sessions.and_then(|link| self.address().path_of(&link.path)) else {
            return Ok(Pass::Password(credentials));
        };
        let body = Zeroizing::new(
            json!({ "UserName": credentials.user, "Password": credentials.password.reveal() }).to_string(),
        );
        let body = Bytes::copy_from_slice(body.as_bytes());
        let reply = self.send(state, &Method::POST, &path, Some(body), None).await?;
        let refusal: Refusal = bodies::read(&reply.body).unwrap_or_default();
        match reply.status.as_u16() {
            200..=299 => match reply.headers.get(TOKEN) {
                Some(token) => {
                    state.session = Some(self.session(token, &reply));
                    self.close_when_idle();
                    Ok(Pass::Session(state.session.as_ref().map_or_else(|| token.clone(), |it| it.token.clone())))
                }
                None => Ok(Pass::Password(credentials)),
            },
            404 | 405 | 501 => {
                state.has_no_sessions = true;
                Ok(Pass::Password(credentials))
            }
            _ if refusal.is("SessionLimitExceeded") || refusal.is("CreateLimitReached") => {
                state.no_session_since = Some(Instant::now());
                Ok(Pass::Password(credentials))
            }
            401 | 403 => Err(self.credentials_rejected(&credentials)),
            // iLO 4 responds with 400 instead of 401.
            400 if refusal.is("Unauthorized") => Err(self.credentials_rejected(&credentials)),
            _ => Err(self.refusal(&reply)),
        }
    }

    fn session(&self, token: &HeaderValue, reply: &Reply) -> Session {
        let mut token = token.clone();
        token.set_sensitive(true);
        let made = bodies::read::<bodies::Link>(&reply.body).unwrap_or_default();
        // Controllers often use their own host name in this link. Only the path is used.
        let link: Option<Uri> = reply.location().unwrap_or(&made.path).parse().ok();
        let path = link.map(|link| link.path().to_owned()).filter(|path| path.len() > 1);
        Session { token, path }
    }

    /// Closes the session after a time without use.
    fn close_when_idle(self: &Arc<Self>) {
        let service: Weak<Self> = Arc::downgrade(self);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(IDLE).await;
                let Some(service) = service.upgrade() else { return };
                let last_used = service.state.lock().await.last_used;
                if last_used.is_none_or(|last_used| last_used.elapsed() >= IDLE) {
                    return service.leave().await;
                }
            }
        });
    }

    /// Returns the service root, which needs no authentication. Reads it once.
    async fn root_of(&self, state: &mut State) -> Result<Arc<Root>, Fault> {
        if let Some(root) = &state.root {
            return Ok(Arc::clone(root));
        }
        let reply = self.send(state, &Method::GET, ROOT, None, None).await?;
        if !reply.status.is_success() {
            return Err(match reply.status {
                StatusCode::NOT_FOUND => self.not_redfish(&format!("has nothing at {ROOT}")),
                _ => self.refusal(&reply),
            });
        }
        let root: Root = bodies::read(&reply.body).map_err(|_| self.not_redfish("does not return JSON"))?;
        let root = Arc::new(root);
        state.root = Some(Arc::clone(&root));
        Ok(root)
    }

    /// Sends one request, and follows redirects within this controller.
    async fn send(
        &self,
        state: &mut State,
        method: &Method,
        path: &str,
        body: Option<Bytes>,
        pass: Option<(HeaderName, HeaderValue)>,
    ) -> Result<Reply, Fault> {
        let mut path = path.to_owned();
        for _ in 0..=MAX_REDIRECTS {
            let request = self.request(method, &path, body.clone(), pass.clone())?;
            let reply = self.exchange(state, request).await?;
            let follows = match reply.status.as_u16() {
                301..=303 => *method == Method::GET,
                307 | 308 => true,
                _ => return Ok(reply),
            };
            let location = reply.location().unwrap_or_default();
            path =
                self.address().path_of(location).filter(|_| follows).ok_or_else(|| self.foreign_redirect(location))?;
        }
        Err(Fault::confused(format!("the controller at {} redirects in circles", self.address())))
    }

    async fn exchange(&self, state: &mut State, request: Request<Full<Bytes>>) -> Result<Reply, Fault> {
        loop {
            // Takes the connection out of the state: if the exchange is cancelled, the connection must not be used
            // again.
            let kept = state.line.take().filter(|line| !line.is_closed());
            let mut line = match kept {
                Some(line) => line,
                None => Line::open(self.address(), self.identity.trust).await?,
            };
            match line.exchange(self.address(), request.clone()).await {
                Ok(reply) => {
                    state.line = Some(line);
                    return Ok(reply);
                }
                // A new connection is never stale, so the loop ends.
                Err(broken) if broken.was_stale => {}
                Err(broken) => return Err(broken.fault),
            }
        }
    }

    fn request(
        &self,
        method: &Method,
        path: &str,
        body: Option<Bytes>,
        pass: Option<(HeaderName, HeaderValue)>,
    ) -> Result<Request<Full<Bytes>>, Fault> {
        let mut builder = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, self.address().authority())
            .header(ACCEPT, "application/json")
            // iLO 5 since firmware 2.30 responds with 406 otherwise.
            .header(ACCEPT_ENCODING, "gzip")
            .header(USER_AGENT, "hostler")
            .header(VERSION, "4.0");
        if body.is_some() {
            builder = builder.header(CONTENT_TYPE, "application/json");
        }
        if let Some((name, value)) = pass {
            builder = builder.header(name, value);
        }
        builder
            .body(Full::new(body.unwrap_or_default()))
            .map_err(|_| Fault::confused(format!("the controller at {} links to an invalid path", self.address())))
    }

    fn read<T: DeserializeOwned>(&self, path: &str, reply: &Reply) -> Result<T, Fault> {
        bodies::read(&reply.body).map_err(|why| {
            Fault::confused(format!("the resource {path} of the controller at {} {why}", self.address()))
        })
    }

    fn credentials_rejected(&self, credentials: &Credentials) -> Fault {
        let why = format!(
            "the controller at {} rejects the user {} with the configured password",
            self.address(),
            credentials.user
        );
        self.keyring.refused(credentials, &why)
    }

    fn not_redfish(&self, what: &str) -> Fault {
        Fault::confused(format!("the server at {} {what}, so it is not a Redfish controller", self.address()))
            .hint("check the address; iLO 4 supports Redfish since firmware 2.30; for older controllers, use `kind = \"ipmi\"`")
    }

    fn foreign_redirect(&self, location: &str) -> Fault {
        Fault::confused(format!("the controller at {} redirects to {}", self.address(), crate::fault::quoted(location)))
            .hint("if the new address is correct, set it as the controller's `address`; credentials are not sent to other servers")
    }
}

/// Whether a controller rejects a session. Some send 403 instead of 401, and iLO sends 400 with a message.
fn is_rejected(reply: &Reply) -> bool {
    let refusal = || bodies::read::<Refusal>(&reply.body).unwrap_or_default();
    match reply.status.as_u16() {
        401 | 403 => true,
        400 => ["NoValidSession", "SessionTerminated", "Unauthorized"].iter().any(|kind| refusal().is(kind)),
        _ => false,
    }
}

fn header(pass: &Pass) -> Result<(HeaderName, HeaderValue), Fault> {
    match pass {
        Pass::Session(token) => Ok((TOKEN, token.clone())),
        Pass::Password(credentials) => {
            let pair = Zeroizing::new(format!("{}:{}", credentials.user, credentials.password.reveal()));
            let text = Zeroizing::new(format!("Basic {}", STANDARD.encode(pair.as_bytes())));
            let mut value = HeaderValue::from_str(&text)
                .map_err(|_| Fault::unprepared("the password cannot be sent in an HTTP header"))?;
            value.set_sensitive(true);
            Ok((AUTHORIZATION, value))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::fs::OpenOptionsExt;
    use std::sync::mpsc::{SyncSender, sync_channel};

    use super::*;
    use crate::redfish::bodies::System;

    /// Behaves like a controller that uses another host name for itself, and reports its requests.
    fn serve(stream: &TcpStream, asked: &SyncSender<String>) {
        let mut reader = BufReader::new(stream);
        while let Some(request) = read(&mut reader) {
            let (headers, body) = match request.as_str() {
                "GET /redfish/v1/" => ("", r#"{"Links":{"Sessions":{"@odata.id":"/sessions"}}}"#),
                "POST /sessions" => ("X-Auth-Token: t\r\nLocation: https://ILO1234.lan/sessions/7\r\n", "{}"),
                _ => ("", r#"{"PowerState":"On"}"#),
            };
            let answer = format!("HTTP/1.1 200 OK\r\n{headers}Content-Length: {}\r\n\r\n{body}", body.len());
            // Before the answer, so that the test has the request when it has the answer.
            asked.send(request).expect("the test receives");
            (&*stream).write_all(answer.as_bytes()).expect("the peer reads");
        }
    }

    /// The first line of a complete request.
    fn read(reader: &mut BufReader<&TcpStream>) -> Option<String> {
        let mut lines = reader.by_ref().lines().map_while(Result::ok);
        let request = lines.next()?.trim_end_matches(" HTTP/1.1").to_owned();
        let lengths = lines
            .take_while(|line| !line.is_empty())
            .filter_map(|line| line.strip_prefix("content-length: ").and_then(|length| length.parse::<u64>().ok()));
        let length = lengths.sum();
        std::io::copy(&mut reader.take(length), &mut std::io::sink()).ok()?;
        Some(request)
    }

    #[tokio::test]
    async fn unused_session_is_closed() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = format!("http://{}", listener.local_addr().expect("the socket is bound"));
        let (sender, asked) = sync_channel(64);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                serve(&stream, &sender);
            }
        });
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("secret");
        let file = std::fs::File::options().write(true).create_new(true).mode(0o600).open(&path);
        file.and_then(|mut file| file.write_all(b"a:b")).expect("permitted");
        let identity = Identity {
            address: address.parse().expect("an address"),
            trust: Trust::AcceptAny,
            credentials: CredentialsConfig::File(path),
        };
        let service = Arc::new(Service::new(identity));
        for _ in 0..4 {
            service.get::<System>("/system").await.expect("the system exists");
        }
        let said: Vec<String> = asked.try_iter().collect();
        assert_eq!(
            said,
            ["GET /redfish/v1/", "POST /sessions", "GET /system", "GET /system", "GET /system", "GET /system"]
        );
        let deadline = Instant::now() + Duration::from_secs(20);
        let given_back = loop {
            if let Ok(request) = asked.try_recv() {
                break request;
            }
            assert!(Instant::now() < deadline, "the session is still open");
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        assert_eq!(given_back, "DELETE /sessions/7");
    }
}
