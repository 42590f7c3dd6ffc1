//! The session of one relay: which requests of browsers it accepts.
//!
//! The relay has two addresses. `h<random>.localhost` is a site of its own for browsers, so that servers on other ports
//! neither get its cookie nor count as related. `127.0.0.1` is for browsers that do not know names below `localhost`.

use std::fmt::Write;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use hostler_proto::browser::{BrowserRequest, Foreign};
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, Uri};

/// Validity of the link that starts a session.
pub(super) const LINK_TTL: Duration = Duration::from_secs(60);

/// Path of the link that starts a session.
const ENTRY: &str = "/enter";

/// Headers that say who a request is from. Only the relay may set them.
const IDENTITY_HEADERS: [&str; 6] =
    ["authorization", "proxy-authorization", "forwarded", "x-real-ip", "via", hostler_proto::users::RELAY_HEADER];

pub(super) struct Session {
    port: u16,
    /// The dashboard's addresses, the usual one first.
    origins: [String; 2],
    cookie: String,
    /// The secret in the link.
    secret: String,
    /// When the link was made, until its first use.
    entry: Mutex<Option<Instant>>,
}

/// What the relay does with a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Pass it to the head.
    Forward,
    /// Start the session: set this cookie.
    Enter(HeaderValue),
    /// The link was used already, or has expired.
    Expired,
    /// The browser has no session.
    NoSession,
    Foreign(Foreign),
    /// The path is not a page.
    NoPage,
}

impl Session {
    pub(super) fn new(port: u16) -> Self {
        let origins = [format!("http://h{}.localhost:{port}", random(16)), format!("http://127.0.0.1:{port}")];
        let entry = Mutex::new(Some(Instant::now()));
        Self { port, origins, cookie: random(32), secret: random(32), entry }
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// The dashboard's address, without the secret.
    pub(super) fn address(&self) -> String {
        format!("{}/", self.origins[0])
    }

    /// The link that starts the session. It contains the secret.
    pub(super) fn link(&self) -> String {
        self.link_at(&self.origins[0])
    }

    /// The same link for browsers that do not know names below `localhost`.
    pub(super) fn plain_link(&self) -> String {
        self.link_at(&self.origins[1])
    }

    fn link_at(&self, origin: &str) -> String {
        format!("{origin}{ENTRY}?key={}", self.secret)
    }

    /// Decides about a request, from its head only.
    pub(super) fn judge<B>(&self, request: &Request<B>) -> Verdict {
        let headers = request.headers();
        let said = BrowserRequest {
            method: request.method().as_str(),
            is_upgrade: headers.contains_key(header::UPGRADE) || *request.method() == Method::CONNECT,
            host: single(headers, &header::HOST),
            origin: single(headers, &header::ORIGIN),
            fetch_site: single(headers, &HeaderName::from_static("sec-fetch-site")),
            fetch_mode: single(headers, &HeaderName::from_static("sec-fetch-mode")),
            fetch_dest: single(headers, &HeaderName::from_static("sec-fetch-dest")),
        };
        if let Err(foreign) = said.check(&self.origins) {
            return Verdict::Foreign(foreign);
        }
        if request.uri().path() == ENTRY {
            return if *request.method() == Method::GET { self.enter(request.uri()) } else { Verdict::NoPage };
        }
        if !self.has_cookie(headers) {
            return Verdict::NoSession;
        }
        // Programs use the API directly. Through the relay, it would lack the protection that forms have.
        let path = request.uri().path();
        if path == "/api" || path.starts_with("/api/") || !path.starts_with('/') {
            return Verdict::NoPage;
        }
        Verdict::Forward
    }

    /// Uses up the secret. A wrong guess changes nothing.
    fn enter(&self, uri: &Uri) -> Verdict {
        let shown = uri.query().and_then(|query| query.strip_prefix("key="));
        let is_right = shown.is_some_and(|shown| is_same(&self.secret, shown));
        let mut entry = self.entry.lock().unwrap_or_else(PoisonError::into_inner);
        if !is_right || !entry.is_some_and(|made| made.elapsed() < LINK_TTL) {
            return Verdict::Expired;
        }
        *entry = None;
        let cookie = format!("{}={}; HttpOnly; SameSite=Strict; Path=/", self.cookie_name(), self.cookie);
        Verdict::Enter(HeaderValue::from_str(&cookie).expect("hexadecimal digits"))
    }

    /// All ports of a host share their cookies, so the name contains the port.
    fn cookie_name(&self) -> String {
        format!("hostler-relay-{}", self.port)
    }

    fn has_cookie(&self, headers: &HeaderMap) -> bool {
        let name = self.cookie_name();
        cookies(headers).any(|(cookie, value)| cookie == name && is_same(&self.cookie, value))
    }

    /// Removes what the head must not see, or must not believe: the relay's cookie, and headers that name a caller.
    pub(super) fn clean(&self, headers: &mut HeaderMap) {
        for name in IDENTITY_HEADERS {
            headers.remove(name);
        }
        let forwarded: Vec<HeaderName> =
            headers.keys().filter(|name| name.as_str().starts_with("x-forwarded-")).cloned().collect();
        for name in forwarded {
            headers.remove(name);
        }
        let name = self.cookie_name();
        let rest =
            cookies(headers).filter(|(cookie, _)| *cookie != name).map(|(name, value)| format!("{name}={value}"));
        let rest = rest.collect::<Vec<_>>().join("; ");
        headers.remove(header::COOKIE);
        if let Ok(rest) = HeaderValue::from_str(&rest)
            && !rest.is_empty()
        {
            headers.insert(header::COOKIE, rest);
        }
    }
}

fn cookies(headers: &HeaderMap) -> impl Iterator<Item = (&str, &str)> {
    let lines = headers.get_all(header::COOKIE).iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(';')).filter_map(|cookie| cookie.trim().split_once('='))
}

/// A header as text. An unreadable or repeated header counts as a foreign value.
fn single<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?;
    Some(if values.next().is_some() { "?" } else { value.to_str().unwrap_or("?") })
}

/// Compares a secret in a time that does not depend on the first difference.
fn is_same(secret: &str, shown: &str) -> bool {
    let differences = secret.bytes().zip(shown.bytes()).fold(0, |all, (a, b)| all | (a ^ b));
    secret.len() == shown.len() && differences == 0
}

/// Random bytes as hexadecimal digits.
fn random(bytes: usize) -> String {
    let mut text = String::new();
    while text.len() < 2 * bytes {
        write!(text, "{:016x}", u64::from_be_bytes(hostler_sys::random())).expect("strings can always be written to");
    }
    text.truncate(2 * bytes);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(session: &Session, host: &str, path: &str) -> Request<()> {
        let cookie = format!("other=1; hostler-relay-{}={}", session.port, session.cookie);
        let request = Request::builder().uri(path).header("host", host).header("cookie", cookie);
        request.body(()).expect("a valid request")
    }

    fn host(session: &Session) -> String {
        session.origins[0].strip_prefix("http://").expect("an origin").to_owned()
    }

    #[test]
    fn link_works_once_and_for_a_limited_time() {
        let session = Session::new(8000);
        let link: Uri = session.link().parse().expect("a link");
        for guess in ["http://x/enter?key=0000", "http://x/enter?key=", "http://x/enter"] {
            assert_eq!(session.enter(&guess.parse().expect("a link")), Verdict::Expired);
        }
        let Verdict::Enter(cookie) = session.enter(&link) else { panic!("the first use") };
        let cookie = cookie.to_str().expect("text");
        assert!(cookie.starts_with("hostler-relay-8000=") && cookie.ends_with("; HttpOnly; SameSite=Strict; Path=/"));
        assert_eq!(session.enter(&link), Verdict::Expired);

        let session = Session::new(8000);
        let link = session.link().parse().expect("a link");
        *session.entry.lock().expect("no thread panicked") = Instant::now().checked_sub(LINK_TTL);
        assert_eq!(session.enter(&link), Verdict::Expired);
    }

    #[test]
    fn two_sessions_share_no_secret() {
        let (a, b) = (Session::new(8000), Session::new(8000));
        assert_ne!(a.link(), b.link());
        assert_ne!(a.origins[0], b.origins[0]);
        assert_ne!(a.cookie, b.cookie);
        assert_eq!(a.cookie.len(), 64);
        assert_eq!(host(&a).len(), "h.localhost:8000".len() + 32);
    }

    #[test]
    fn pages_need_the_cookie_and_the_api_is_closed() {
        let session = Session::new(8000);
        let host = host(&session);
        assert_eq!(session.judge(&get(&session, &host, "/jobs?state=failed")), Verdict::Forward);
        assert_eq!(session.judge(&get(&session, "127.0.0.1:8000", "/")), Verdict::Forward);
        for other in ["evil:8000", "localhost:8000", "127.0.0.1", "127.0.0.1:80"] {
            assert_eq!(session.judge(&get(&session, other, "/")), Verdict::Foreign(Foreign::Host), "{other}");
        }
        for path in ["/api/v1/info", "/api", "/api/"] {
            assert_eq!(session.judge(&get(&session, &host, path)), Verdict::NoPage, "{path}");
        }
        let mut request = get(&session, &host, "/");
        request.headers_mut().insert("cookie", HeaderValue::from_static("hostler-relay-8000=x"));
        assert_eq!(session.judge(&request), Verdict::NoSession);
        request.headers_mut().insert("authorization", HeaderValue::from_static("Bearer x"));
        assert_eq!(session.judge(&request), Verdict::NoSession);
    }

    #[test]
    fn head_gets_neither_the_cookie_nor_claims_about_the_caller() {
        let session = Session::new(8000);
        let mut request = get(&session, "x", "/");
        for name in
            ["authorization", "x-forwarded-for", "x-forwarded-host", "forwarded", "hostler-relayed-user", "accept"]
        {
            request.headers_mut().insert(name, HeaderValue::from_static("root"));
        }
        session.clean(request.headers_mut());
        let mut left: Vec<&str> = request.headers().keys().map(HeaderName::as_str).collect();
        left.sort_unstable();
        assert_eq!(left, ["accept", "cookie", "host"]);
        assert_eq!(request.headers()["cookie"], "other=1");
    }
}
