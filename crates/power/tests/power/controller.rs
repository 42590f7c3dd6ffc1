//! A simulated Redfish controller with configurable faults.

use std::collections::{BTreeMap, VecDeque};
use std::io::Write;
use std::sync::{Arc, Mutex};

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// The only user.
pub(crate) const USER: &str = "admin";
pub(crate) const PASSWORD: &str = "right:password";

/// A request that the controller received.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: String,
}

/// A response of the controller.
#[derive(Debug, Clone)]
pub(crate) enum Said {
    Json(u16, Vec<(&'static str, String)>, Value),
    /// Sends these bytes and closes the connection.
    Raw(Vec<u8>),
    Silence,
    /// Sends a response and closes the connection.
    Last(Box<Said>),
}

/// Behaves like iLO 5 since firmware 2.30.
fn compressed(asked: &Asked, said: Said) -> Said {
    let Said::Json(status, headers, body) = said else { return said };
    if !asked.headers.get("accept-encoding").is_some_and(|names| names.contains("gzip")) {
        return Said::Json(406, vec![], json!({}));
    }
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    let text = if status == 204 { String::new() } else { body.to_string() };
    let body = encoder.write_all(text.as_bytes()).and_then(|()| encoder.finish()).expect("memory");
    let mut head = format!("HTTP/1.1 {status} x\r\ncontent-encoding: gzip\r\ncontent-length: {}\r\n", body.len());
    headers.iter().for_each(|(name, value)| head.push_str(&format!("{name}: {value}\r\n")));
    Said::Raw([format!("{head}\r\n").into_bytes(), body].concat())
}

/// State of the simulated machine.
pub(crate) struct Machine {
    pub(crate) power: Value,
    pub(crate) allowable: Option<Vec<&'static str>>,
    pub(crate) has_sessions: bool,
    pub(crate) sessions: Vec<String>,
    pub(crate) made: usize,
    /// Whether a reset changes the power state immediately.
    pub(crate) obeys: bool,
    /// Whether responses are compressed, and requests must accept that.
    pub(crate) compresses: bool,
    pub(crate) asked: Vec<Asked>,
    /// Responses that replace the normal ones for a method and path, in order.
    pub(crate) instead: BTreeMap<(&'static str, &'static str), VecDeque<Said>>,
    /// Additional resources, by path.
    pub(crate) extra: BTreeMap<&'static str, Value>,
}

/// A running simulated controller.
#[derive(Clone)]
pub(crate) struct Bmc {
    pub(crate) port: u16,
    machine: Arc<Mutex<Machine>>,
}

pub(crate) const ROOT: &str = "/redfish/v1/";
pub(crate) const SYSTEMS: &str = "/redfish/v1/Systems";
pub(crate) const SYSTEM: &str = "/redfish/v1/Systems/Self";
pub(crate) const SESSIONS: &str = "/redfish/v1/Sessions";
pub(crate) const RESET: &str = "/redfish/v1/Systems/Self/Actions/Reset";

impl Bmc {
    /// Starts a controller on a free port, without TLS.
    pub(crate) async fn start() -> Self {
        Self::listen(None).await
    }

    /// Starts a controller with TLS.
    pub(crate) async fn start_tls(acceptor: TlsAcceptor) -> Self {
        Self::listen(Some(acceptor)).await
    }

    #[expect(clippy::disallowed_methods, reason = "a server of the test")]
    async fn listen(acceptor: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let port = listener.local_addr().expect("the socket is bound").port();
        let bmc = Self { port, machine: Arc::new(Mutex::new(Machine::new())) };
        let ours = bmc.clone();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.expect("the socket listens");
                let (bmc, acceptor) = (ours.clone(), acceptor.clone());
                tokio::spawn(async move {
                    match acceptor {
                        None => bmc.serve(stream).await,
                        Some(acceptor) => {
                            if let Ok(stream) = acceptor.accept(stream).await {
                                bmc.serve(stream).await;
                            }
                        }
                    }
                });
            }
        });
        bmc
    }

    /// Reads or changes the state.
    pub(crate) fn with<T>(&self, look: impl FnOnce(&mut Machine) -> T) -> T {
        look(&mut self.machine.lock().expect("the lock is not poisoned"))
    }

    /// Adds a response that replaces the next normal one.
    pub(crate) fn instead(&self, method: &'static str, path: &'static str, said: Said) {
        self.with(|machine| machine.instead.entry((method, path)).or_default().push_back(said));
    }

    /// Received requests with this method and path.
    pub(crate) fn asked(&self, method: &str, path: &str) -> Vec<Asked> {
        self.with(|machine| {
            machine.asked.iter().filter(|asked| asked.method == method && asked.path == path).cloned().collect()
        })
    }

    pub(crate) fn asked_in_all(&self) -> usize {
        self.with(|machine| machine.asked.len())
    }

    async fn serve(&self, stream: impl AsyncRead + AsyncWrite + Unpin) {
        let mut stream = BufReader::new(stream);
        while let Some(asked) = read(&mut stream).await {
            let mut said = self.with(|machine| {
                machine.asked.push(asked.clone());
                let said = machine.answer(&asked);
                if machine.compresses { compressed(&asked, said) } else { said }
            });
            let mut is_last = false;
            if let Said::Last(last) = said {
                (said, is_last) = (*last, true);
            }
            match said {
                Said::Json(status, headers, body) => {
                    let body = if status == 204 { String::new() } else { body.to_string() };
                    let mut head = format!("HTTP/1.1 {status} x\r\ncontent-length: {}\r\n", body.len());
                    headers.iter().for_each(|(name, value)| head.push_str(&format!("{name}: {value}\r\n")));
                    if stream.write_all(format!("{head}\r\n{body}").as_bytes()).await.is_err() {
                        return;
                    }
                }
                Said::Raw(bytes) => {
                    let _ = stream.write_all(&bytes).await;
                    is_last = true;
                }
                Said::Silence | Said::Last(_) => std::future::pending().await,
            }
            let _ = stream.flush().await;
            if is_last {
                let _ = stream.shutdown().await;
                return;
            }
        }
    }
}

async fn read(stream: &mut (impl AsyncBufReadExt + Unpin)) -> Option<Asked> {
    let mut line = String::new();
    stream.read_line(&mut line).await.ok()?;
    let mut words = line.split_whitespace();
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await.ok()?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        headers.insert(name.to_ascii_lowercase(), value.to_owned());
    }
    let length = headers.get("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    Some(Asked { method, path, headers, body: String::from_utf8(body).expect("the driver sends text") })
}

impl Machine {
    fn new() -> Self {
        Self {
            power: json!("Off"),
            allowable: Some(vec!["On", "GracefulShutdown", "ForceOff"]),
            has_sessions: true,
            sessions: Vec::new(),
            made: 0,
            obeys: true,
            compresses: false,
            asked: Vec::new(),
            instead: BTreeMap::new(),
            extra: BTreeMap::new(),
        }
    }

    fn answer(&mut self, asked: &Asked) -> Said {
        let instead =
            self.instead.iter_mut().find(|((method, path), _)| asked.method == *method && asked.path == *path);
        if let Some(said) = instead.and_then(|(_, queue)| queue.pop_front()) {
            return said;
        }
        let ok = |body: Value| Said::Json(200, vec![], body);
        match (asked.method.as_str(), asked.path.as_str()) {
            ("GET", ROOT) => ok(json!({
                "Systems": { "@odata.id": SYSTEMS },
                "Links": if self.has_sessions { json!({ "Sessions": { "@odata.id": SESSIONS } }) } else { json!({}) },
            })),
            ("POST", SESSIONS) => self.log_in(&asked.body),
            _ if !self.lets_in(asked) => Said::Json(401, vec![], json!({})),
            ("DELETE", path) => {
                let token = path.rsplit('/').next().unwrap_or_default().to_owned();
                self.sessions.retain(|session| *session != token);
                Said::Json(204, vec![], json!({}))
            }
            ("GET", path) if self.extra.contains_key(path) => ok(self.extra[path].clone()),
            ("GET", SYSTEMS) => ok(json!({ "Members": [{ "@odata.id": SYSTEM }] })),
            ("GET", SYSTEM) => ok(self.system()),
            ("POST", RESET) => self.reset(&asked.body),
            _ => Said::Json(404, vec![], json!({})),
        }
    }

    fn log_in(&mut self, body: &str) -> Said {
        let body: Value = serde_json::from_str(body).expect("the driver sends JSON");
        if body != json!({ "UserName": USER, "Password": PASSWORD }) {
            return Said::Json(401, vec![], json!({ "error": { "message": "Unauthorized." } }));
        }
        self.made += 1;
        let token = format!("token{}", self.made);
        let path = format!("{SESSIONS}/{token}");
        self.sessions.push(token.clone());
        Said::Json(201, vec![("X-Auth-Token", token), ("Location", path)], json!({}))
    }

    fn lets_in(&self, asked: &Asked) -> bool {
        // printf 'admin:right:password' | base64
        let basic = asked.headers.get("authorization").is_some_and(|it| it == "Basic YWRtaW46cmlnaHQ6cGFzc3dvcmQ=");
        basic || asked.headers.get("x-auth-token").is_some_and(|token| self.sessions.contains(token))
    }

    fn system(&self) -> Value {
        let mut reset = json!({ "target": RESET });
        if let Some(allowable) = &self.allowable {
            reset["ResetType@Redfish.AllowableValues"] = json!(allowable);
        }
        json!({
            "Id": "Self", "Name": "r1", "PowerState": self.power,
            "Links": { "Chassis": [{ "@odata.id": "/redfish/v1/Chassis/1" }] },
            "Actions": { "#ComputerSystem.Reset": reset },
        })
    }

    fn reset(&mut self, body: &str) -> Said {
        let body: Value = serde_json::from_str(body).expect("the driver sends JSON");
        let wanted = body["ResetType"].as_str().unwrap_or_default();
        if !self.allowable.as_ref().is_none_or(|allowable| allowable.contains(&wanted)) {
            return Said::Json(400, vec![], json!({ "error": { "message": "ActionParameterNotSupported" } }));
        }
        if self.obeys {
            self.power = json!(if wanted == "On" { "On" } else { "Off" });
        }
        Said::Json(204, vec![], json!({}))
    }
}
