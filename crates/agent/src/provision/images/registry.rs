//! Reads images from registries. The client runs in a process of its own, which has no rights.
//!
//! It speaks the protocol of the OCI distribution specification, over HTTPS, and over plain HTTP where the order says so. A
//! registry may be hostile: each answer has a limit in size and time, content must have the expected digest, and login data and
//! tokens go only to the registry itself and to the login server that it names. It leads to servers of the node and its network
//! only if it is one, or if the admin has listed them. `oci-client` reads manifests of any size, bounds no waits, and brings a
//! second HTTP client.

mod challenge;
mod connection;

use std::cell::Cell;
use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hostler_image::{Document, Hasher, MAX_JSON_BYTES, Remote, Sha256};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::header::{ACCEPT, AUTHORIZATION, HeaderMap, HeaderValue, LOCATION, WWW_AUTHENTICATE};
use hyper::{Method, Response, StatusCode};
use serde::{Deserialize, Serialize};

use self::challenge::Challenge;
use self::connection::{Address, Near, Request, send};

/// Manifests that this client understands.
const MANIFESTS: &str = "application/vnd.oci.image.index.v1+json, application/vnd.oci.image.manifest.v1+json, \
     application/vnd.docker.distribution.manifest.list.v2+json, application/vnd.docker.distribution.manifest.v2+json";

/// The header with the digest of a manifest.
const DIGEST: &str = "docker-content-digest";

/// Maximum number of redirects of one request.
const MAX_REDIRECTS: u32 = 5;

/// Maximum size of a login server's answer in bytes.
const MAX_TOKEN_BYTES: u64 = 256 << 10;

/// Maximum time between a request and the header of its answer, and the time in which a body must bring [`PACE_BYTES`].
const PATIENCE: Duration = Duration::from_secs(60);

/// Number of bytes that a body must bring in each span of [`PATIENCE`], unless it ends.
const PACE_BYTES: u64 = 64 << 10;

/// What to read, with everything that the process needs to know.
#[derive(Serialize, Deserialize)]
pub(crate) struct Order {
    /// Host of the registry with its port, as in references.
    pub(crate) host: String,
    pub(crate) repository: String,
    /// Registries that the agent may reach over plain HTTP.
    pub(crate) plain: Vec<String>,
    /// Registries that may be on the node or on a private network, as the admin has listed them.
    pub(crate) listed: Vec<String>,
    pub(crate) login: Option<Login>,
    /// A note for the user if the registry demands a login.
    pub(crate) login_note: String,
    pub(crate) want: Want,
}

/// What a user has for a registry.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum Login {
    Password {
        user: String,
        password: String,
    },
    /// A token with which the login server gives others.
    Refresh(String),
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Login")
    }
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Want {
    /// The manifest of a tag or digest, for this machine, and its configuration. `known`: the digest that it had before.
    Description { reference: String, known: Option<String> },
    /// A layer, to this file.
    Layer { digest: String, length: u64, path: String },
}

/// What the process prints about an image.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Said {
    New(Description),
    /// The tag or digest names what was known before.
    Same,
    /// The registry does not answer, or refuses for now, for this reason. The image may have changed or not.
    Away(String),
}

/// What a registry has said about an image. Its parts have proved to have these digests.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Description {
    /// Digest of the manifest or the index that the tag names.
    pub(crate) named: String,
    /// Digest of the manifest for this machine.
    pub(crate) digest: String,
    pub(crate) manifest: String,
    pub(crate) config: String,
}

/// Reads what the order on standard input says, and prints a description.
///
/// # Errors
/// If the registry has no such image, refuses it, or does not obey the protocol. The message is for the user.
pub fn fetch_image() -> anyhow::Result<()> {
    // Other processes of this user, if there are any, must not reach this one.
    nix::sys::prctl::set_dumpable(false)?;
    let order: Order = serde_json::from_reader(io::stdin())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut registry = Registry::new(&order);
        match &order.want {
            Want::Description { reference, known } => {
                let said = registry.ask(reference, known.as_deref()).await?;
                Ok(serde_json::to_writer(io::stdout(), &said)?)
            }
            Want::Layer { digest, length, path } => {
                let mut file = File::options().write(true).open(path).context("cannot open the file for the layer")?;
                registry.layer(digest.parse()?, *length, &mut file).await
            }
        }
    })
}

/// A registry, for one order.
struct Registry<'a> {
    order: &'a Order,
    address: Address,
    /// What the registry demanded, once it has.
    authorization: Option<HeaderValue>,
    /// Whether the registry is on this machine or its network.
    is_near: Cell<bool>,
    patience: Duration,
}

/// The registry is not available for now.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Away(String);

impl<'a> Registry<'a> {
    fn new(order: &'a Order) -> Self {
        let host = if order.host == hostler_model::DOCKER_HUB { "registry-1.docker.io" } else { &order.host };
        let is_plain = has(&order.plain, host);
        let address = Address { is_plain, authority: host.to_owned(), path: String::new() };
        Self { order, address, authorization: None, is_near: Cell::new(false), patience: PATIENCE }
    }

    /// Asks for an image. First asks only for its digest if that may be the known one: registries count that less or not at all.
    async fn ask(&mut self, reference: &str, known: Option<&str>) -> anyhow::Result<Said> {
        let is_same = match known {
            Some(known) => self.named(reference).await.map(|named| named.as_deref() == Some(known)),
            None => Ok(false),
        };
        let found = match is_same {
            Ok(true) => return Ok(Said::Same),
            Err(error) if error.downcast_ref::<Away>().is_some() => Err(error),
            // Some registries refuse the short question only.
            Ok(false) | Err(_) => self.description(reference).await.map(Said::New),
        };
        match found {
            Err(error) if known.is_some() && error.downcast_ref::<Away>().is_some() => {
                Ok(Said::Away(format!("{error:#}")))
            }
            found => found,
        }
    }

    /// The digest of a tag, if the registry states it without the manifest.
    async fn named(&mut self, reference: &str) -> anyhow::Result<Option<String>> {
        let answer = self.request(Method::HEAD, &format!("manifests/{reference}"), &manifests()).await?;
        Ok(answer.headers().get(DIGEST).and_then(|it| it.to_str().ok()).map(str::to_owned))
    }

    async fn description(&mut self, reference: &str) -> anyhow::Result<Description> {
        let at = if reference.contains(':') { '@' } else { ':' };
        let name = format!("{}/{}{at}{reference}", self.order.host, self.order.repository);
        let mut manifest = self.manifest(reference).await?;
        let named = Sha256::of(&manifest).to_string();
        let mut document = Document::parse(&name, &manifest)?;
        if let Document::Index(digest) = document {
            manifest = self.manifest(&digest.to_string()).await?;
            document = Document::parse(&name, &manifest)?;
        }
        let Document::Manifest { config: expected } = document else { bail!("{name} is an index in an index") };
        let mut config = Vec::new();
        self.blob(expected.digest, expected.size, &mut config).await.context("cannot read its configuration")?;
        Remote::parse(&name, &manifest, &config)?;
        let digest = Sha256::of(&manifest).to_string();
        Ok(Description { named, digest, manifest: String::from_utf8(manifest)?, config: String::from_utf8(config)? })
    }

    async fn layer(&mut self, digest: Sha256, length: u64, file: &mut File) -> anyhow::Result<()> {
        self.blob(digest, length, file).await.with_context(|| format!("cannot pull the layer {digest}"))
    }

    /// Reads a manifest, and verifies the digest if that is how it is named.
    async fn manifest(&mut self, reference: &str) -> anyhow::Result<Vec<u8>> {
        let answer = self.request(Method::GET, &format!("manifests/{reference}"), &manifests()).await?;
        let said = answer.headers().get(DIGEST).map(|it| it.to_str().unwrap_or_default().to_owned());
        let mut bytes = Vec::new();
        let digest = self.receive(answer, Expected::AtMost(MAX_JSON_BYTES), &mut bytes).await?;
        let expected = if reference.contains(':') { Some(reference.to_owned()) } else { said };
        match expected.filter(|expected| expected.starts_with("sha256:") && *expected != digest.to_string()) {
            Some(expected) => bail!("{} sent a manifest with the digest {digest} for {expected}", self.order.host),
            None => Ok(bytes),
        }
    }

    async fn blob(&mut self, expected: Sha256, size: u64, into: &mut impl Write) -> anyhow::Result<()> {
        let answer = self.request(Method::GET, &format!("blobs/{expected}"), &HeaderMap::new()).await?;
        let digest = self.receive(answer, Expected::Exactly(size), into).await?;
        if digest != expected {
            bail!("{} sent content with the digest {digest} instead of {expected}", self.order.host);
        }
        Ok(())
    }

    /// Requests something of the repository. Logs in if the registry demands it, and follows redirects.
    async fn request(&mut self, method: Method, path: &str, headers: &HeaderMap) -> anyhow::Result<Response<Incoming>> {
        let Order { host, repository, .. } = self.order;
        let repository = match host == hostler_model::DOCKER_HUB && !repository.contains('/') {
            true => format!("library/{repository}"),
            false => repository.clone(),
        };
        let mut address = Address { path: format!("/v2/{repository}/{path}"), ..self.address.clone() };
        for _ in 0..=MAX_REDIRECTS {
            let mut headers = headers.clone();
            let is_own = self.address.is_same_server(&address);
            if let Some(authorization) = self.authorization.as_ref().filter(|_| is_own) {
                headers.insert(AUTHORIZATION, authorization.clone());
            }
            let had_login = self.authorization.is_some();
            let method = method.clone();
            let answer = self.send(Request { method, address: &address, headers, body: Vec::new() }).await?;
            match answer.status() {
                StatusCode::OK => return Ok(answer),
                StatusCode::UNAUTHORIZED if is_own && !had_login => {
                    self.authorization = Some(self.log_in(&answer, &repository).await?);
                }
                status if status.is_redirection() => {
                    let target = answer.headers().get(LOCATION).and_then(|it| it.to_str().ok());
                    let target = target.and_then(|target| address.joined(target));
                    address = target.ok_or_else(|| anyhow!("{host} sent a redirect without a valid address"))?;
                    self.allow(&address)?;
                }
                status => return Err(self.refusal(status, &repository)),
            }
        }
        bail!("{host} sent more than {MAX_REDIRECTS} redirects")
    }

    /// Refuses servers without encryption, except the registry itself and those that the admin allows.
    fn allow(&self, address: &Address) -> anyhow::Result<()> {
        if address.is_plain && !self.address.is_same_server(address) && !has(&self.order.plain, &address.authority) {
            bail!("{} names {}, which has no encryption", self.order.host, address.authority);
        }
        Ok(())
    }

    async fn send(&self, request: Request<'_>) -> anyhow::Result<Response<Incoming>> {
        let authority = request.address.authority.clone();
        let is_own = self.address.is_same_server(request.address);
        let name = if is_own { &self.order.host } else { &authority };
        let is_listed = has(&self.order.listed, name);
        let allows_near = is_listed || (!is_own && self.is_near.get());
        let answered = tokio::time::timeout(self.patience, send(request, allows_near)).await;
        let late = || anyhow!("it does not answer within {:?}", self.patience);
        match answered.map_err(|_| late()).flatten() {
            Ok(answered) => {
                if is_own {
                    self.is_near.set(answered.is_near);
                }
                Ok(answered.response)
            }
            Err(error) if error.downcast_ref::<Near>().is_some() => Err(anyhow!(
                "{name} has an address of the node or of a private network; the node's admin can list it in \
                 `[images] registries` of agent.toml"
            )),
            Err(error) if is_listed => Err(Away(format!("cannot reach {authority}: {error:#}")).into()),
            // The reason would tell users of sandboxes without a network which ports are open.
            Err(_) => Err(Away(format!("cannot reach {authority}, or it has no valid certificate")).into()),
        }
    }

    /// Obtains what the registry demands before it shows the repository.
    async fn log_in(&self, answer: &Response<Incoming>, repository: &str) -> anyhow::Result<HeaderValue> {
        let Order { host, login, login_note, .. } = self.order;
        let demanded = answer.headers().get_all(WWW_AUTHENTICATE).iter().filter_map(|it| it.to_str().ok());
        match demanded.filter_map(Challenge::parse).next() {
            Some(Challenge::Basic) => match login {
                Some(Login::Password { user, password }) => basic(user, password),
                _ => bail!("{host} demands a login{login_note}"),
            },
            Some(Challenge::Bearer { realm, service }) => {
                let mut address = Address::parse(&realm).ok_or_else(|| anyhow!("{host} names no login server"))?;
                self.allow(&address)?;
                let scope = format!("repository:{repository}:pull");
                let fields = |more: &[(&str, &str)]| {
                    let mut text = form_urlencoded::Serializer::new(String::new());
                    text.extend_pairs(service.iter().map(|service| ("service", service.as_str())));
                    text.append_pair("scope", &scope).extend_pairs(more).finish()
                };
                let mut headers = HeaderMap::new();
                let (method, body) = match login {
                    Some(Login::Refresh(token)) => {
                        let form = HeaderValue::from_static("application/x-www-form-urlencoded");
                        headers.insert(hyper::header::CONTENT_TYPE, form);
                        let grant =
                            [("grant_type", "refresh_token"), ("client_id", "hostler"), ("refresh_token", token)];
                        (Method::POST, fields(&grant).into_bytes())
                    }
                    other => {
                        if let Some(Login::Password { user, password }) = other {
                            headers.insert(AUTHORIZATION, basic(user, password)?);
                        }
                        address.path.push(if address.path.contains('?') { '&' } else { '?' });
                        address.path.push_str(&fields(&[]));
                        (Method::GET, Vec::new())
                    }
                };
                let answer = self.send(Request { method, address: &address, headers, body }).await?;
                if answer.status() != StatusCode::OK {
                    return Err(self.refusal(answer.status(), repository));
                }
                let mut text = Vec::new();
                self.receive(answer, Expected::AtMost(MAX_TOKEN_BYTES), &mut text).await?;
                let token = serde_json::from_slice::<Token>(&text).ok().and_then(|it| it.token.or(it.access_token));
                let token = token.ok_or_else(|| anyhow!("{} sent no token", address.authority))?;
                secret(&format!("Bearer {token}"))
            }
            None => bail!("{host} demands a kind of login that is not supported"),
        }
    }

    /// Why there is no content, for the user.
    fn refusal(&self, status: StatusCode, repository: &str) -> anyhow::Error {
        let Order { host, want, login_note, .. } = self.order;
        let what = match want {
            Want::Description { reference, .. } => reference,
            Want::Layer { digest, .. } => digest,
        };
        let at = if what.contains(':') { '@' } else { ':' };
        match status {
            StatusCode::NOT_FOUND => anyhow!("{host} has no image {repository}{at}{what}"),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => anyhow!(
                "{host} has no image {repository}, or does not let you read it (status {}){login_note}",
                status.as_u16()
            ),
            StatusCode::TOO_MANY_REQUESTS => {
                Away(format!("{host} allows no more downloads for now (status 429); it may allow more after a login"))
                    .into()
            }
            status if status.is_server_error() => {
                Away(format!("{host} answered with status {}", status.as_u16())).into()
            }
            status => anyhow!("{host} answered with status {}", status.as_u16()),
        }
    }

    /// Receives a body. Returns its digest.
    async fn receive(
        &self,
        answer: Response<Incoming>,
        expected: Expected,
        into: &mut impl Write,
    ) -> anyhow::Result<Sha256> {
        let (Expected::AtMost(most) | Expected::Exactly(most)) = expected;
        let (mut body, mut hasher, mut received) = (answer.into_body(), Hasher::default(), 0);
        loop {
            let window = async {
                let end = received + PACE_BYTES;
                while received < end {
                    let Some(frame) = body.frame().await else { return Ok(true) };
                    let Ok(data) = frame.map_err(broken)?.into_data() else { continue };
                    received += data.len() as u64;
                    if received > most {
                        bail!("the answer is larger than expected: more than {most} bytes");
                    }
                    hasher.update(&data);
                    into.write_all(&data).context("cannot store it")?;
                }
                Ok(false)
            };
            let is_whole = tokio::time::timeout(self.patience, window).await;
            if is_whole.map_err(|_| anyhow!("fewer than {PACE_BYTES} bytes arrived within {:?}", self.patience))?? {
                break;
            }
        }
        match expected {
            Expected::Exactly(size) if received != size => bail!("the answer has {received} bytes instead of {size}"),
            _ => Ok(hasher.finish()),
        }
    }
}

#[derive(Deserialize)]
struct Token {
    token: Option<String>,
    access_token: Option<String>,
}

/// Why a body did not arrive whole, without the advice of the library for its callers.
fn broken(error: hyper::Error) -> anyhow::Error {
    let cause = std::error::Error::source(&error).and_then(|it| it.downcast_ref::<io::Error>());
    let is_early_end =
        error.is_incomplete_message() || cause.is_some_and(|it| it.kind() == io::ErrorKind::UnexpectedEof);
    if is_early_end { anyhow!("the connection ended early") } else { anyhow!(error).context("the connection broke") }
}

/// Whether a list of hosts has this one.
fn has(hosts: &[String], host: &str) -> bool {
    hosts.iter().any(|it| it.eq_ignore_ascii_case(host))
}

fn manifests() -> HeaderMap {
    [(ACCEPT, HeaderValue::from_static(MANIFESTS))].into_iter().collect()
}

fn basic(user: &str, password: &str) -> anyhow::Result<HeaderValue> {
    secret(&format!("Basic {}", STANDARD.encode(format!("{user}:{password}"))))
}

fn secret(text: &str) -> anyhow::Result<HeaderValue> {
    let mut value = HeaderValue::from_str(text).map_err(|_| anyhow!("a token or password has forbidden characters"))?;
    value.set_sensitive(true);
    Ok(value)
}

/// How much an answer may contain, in bytes.
#[derive(Clone, Copy)]
enum Expected {
    AtMost(u64),
    Exactly(u64),
}

#[cfg(test)]
mod tests;
