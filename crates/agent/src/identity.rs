//! Who this node is: its key, the certificate that the head gave it, and the authority it trusts.
//!
//! A node joins once, with a code that names the head's address, the authority's fingerprint and a one-time secret. The key never
//! leaves the node. Key and certificate are one file, so that they are replaced together or not at all; the name is the certificate's.

use std::fs::{self, DirBuilder, File};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use hostler_client::tls::OwnCertificate;
use hostler_client::{Client, ClientError, Endpoint, tls};
use hostler_model::NodeName;
use hostler_proto::api::{JoinRequest, Joined, RenewRequest};
use hostler_proto::join::{HEAD_NAME, JoinCode};
use hostler_snapshot::remove_tree;
use nix::fcntl::{Flock, FlockArg};
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::directory::replace_file;
use crate::link::random;

/// Held by the agent that runs for the node, in the node's directory.
pub(crate) const LOCK: &str = "lock";

/// How long a join code may be good: nothing comes of trying for longer.
const CODE_LIFE: Duration = Duration::from_secs(3600);

/// The first and the longest pause between two attempts to join; each is that or down to half of it.
const JOIN_PAUSES: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(15));

/// The certificate, and the key behind it.
const CREDENTIALS: &str = "credentials.pem";

/// Where earlier releases kept the two.
const OLD_CERTIFICATE: &str = "certificate.pem";
const OLD_KEY: &str = "key.pem";

/// The authority of the cluster.
const AUTHORITY: &str = "authority.pem";

/// Where the head was when the node joined.
const HEAD: &str = "head";

/// A node that has joined, ready to connect.
#[derive(Debug)]
pub(crate) struct Identity {
    files: Files,
    /// The node's name, as its certificate has it.
    name: NodeName,
    own: Arc<OwnCertificate>,
    config: Arc<rustls::ClientConfig>,
    /// What the files say that is in use: certificate and key, and the authority.
    known: Mutex<(String, String)>,
    /// A file in which the head says its current address, for clusters on one machine whose port may change.
    head_file: Option<PathBuf>,
}

/// How a machine asks to be let in.
#[derive(Debug, Clone, Default)]
pub struct Introduction {
    /// The name that the node should have; that of the code when absent.
    pub name: Option<NodeName>,
    /// The machine's name, for a code that names no node.
    pub machine: Option<NodeName>,
}

/// Whether the node that is kept in `directory` has joined a cluster.
#[must_use]
pub fn has_joined(directory: &Path) -> bool {
    Files::of(directory).have_joined()
}

/// Makes the node that is kept in `directory` one that has never joined; nothing else of it is touched.
///
/// # Errors
/// When its certificate and key cannot be removed.
pub fn leave(directory: &Path) -> std::io::Result<()> {
    remove_tree(&Files::of(directory).0)
}

/// Joins the cluster that the code is for, and keeps what came of it in `directory`: the node's name and where its head is. If a node is
/// kept there, it becomes this one, and an agent that runs for it takes that up.
///
/// While the head is away, or has too much to do, this goes on trying for as long as a code may be good; `report` is told of each
/// failure and after which pause it will be tried again. The head gives the same answer to the same request, however often it comes.
///
/// # Errors
/// When the head cannot be reached at all, is not the one of the code, or does not let the machine in.
pub async fn join(
    directory: &Path,
    code: &JoinCode,
    introduction: Introduction,
    mut report: impl FnMut(&ClientError, Duration),
) -> anyhow::Result<(NodeName, String)> {
    let files = Files::of(directory);
    files.make()?;
    let (key, csr) = request()?;
    let endpoint =
        Endpoint::Tls { address: code.address.clone(), server_name: head_name(), config: tls::pinned(code.authority) };
    let Introduction { name, machine } = introduction;
    let request = JoinRequest { secret: code.secret.clone(), node: name, machine, csr };
    // The code is for this cluster and no other, whatever answers at its address.
    let client = Client::new(endpoint);
    let began = Instant::now();
    let mut pause = JOIN_PAUSES.0;
    let Joined { certificate, authority, node, .. } = loop {
        match client.join(&request).await {
            Ok(joined) => break joined,
            Err(error) if may_pass(&error) && began.elapsed() < CODE_LIFE => {
                let wait = pause.mul_f64((1.0 + random()) / 2.0);
                report(&error, wait);
                tokio::time::sleep(wait).await;
                pause = (pause * 2).min(JOIN_PAUSES.1);
            }
            Err(error) => return Err(error.into()),
        }
    };
    if tls::fingerprint(&certificate_in(&authority)?) != code.authority {
        bail!("the head at {} answered with another cluster's authority", code.address);
    }
    files.store(AUTHORITY, authority.as_bytes())?;
    files.store(HEAD, code.address.as_bytes())?;
    // Last: a node with a certificate has joined.
    files.store(CREDENTIALS, credentials(&certificate, &key).as_bytes())?;
    Ok((node, code.address.clone()))
}

/// Whether the same request may be granted later: the head is away, starts, or is flooded.
fn may_pass(error: &ClientError) -> bool {
    error.is_transient() || error.code() == Some("too_many_codes")
}

/// Whether an agent runs for the node that is kept in `directory`.
#[must_use]
pub fn is_running(directory: &Path) -> bool {
    let Ok(file) = File::open(directory.join(LOCK)) else { return false };
    Flock::lock(file, FlockArg::LockSharedNonblock).is_err()
}

impl Identity {
    /// The identity of the node in `directory`; joins with the code in `join_file` when there is none yet.
    pub(crate) async fn obtain(
        directory: &Path,
        name: Option<&NodeName>,
        join_file: Option<&Path>,
        head_file: Option<PathBuf>,
    ) -> anyhow::Result<Self> {
        if !has_joined(directory) {
            let Some(join_file) = join_file else {
                bail!(
                    "this node has not joined a cluster yet: run `hostler node invite` on the head's machine and \
                     `hostler agent join` with the code here"
                );
            };
            let text = fs::read_to_string(join_file)
                .with_context(|| format!("cannot read the join code in {}", join_file.display()))?;
            let code: JoinCode = text.parse().context("the join code is damaged")?;
            let introduction = Introduction { name: name.cloned(), machine: None };
            let report = |error: &ClientError, wait: Duration| {
                tracing::warn!(again_in = ?wait, "the head does not let this node in yet: {error}");
            };
            join(directory, &code, introduction, report)
                .await
                .with_context(|| format!("cannot join the cluster at {}", code.address))?;
        }
        let identity = Self::load(Files::of(directory), head_file)?;
        match name {
            Some(name) if *name != identity.name => bail!(
                "this node has joined as {}, not as {name}; leave out the name, or join again with a new code",
                identity.name
            ),
            Some(_) | None => Ok(identity),
        }
    }

    fn load(files: Files, head_file: Option<PathBuf>) -> anyhow::Result<Self> {
        let (certificate, key) = files.credentials()?;
        let own = Arc::new(OwnCertificate::from_pem(&certificate, &key).context("the node's certificate is damaged")?);
        let authority = files.read(AUTHORITY)?;
        let config = tls::mutual_as(&authority, Arc::clone(&own))?;
        let name = node_in(&certificate).context("the node's certificate names no node")?;
        Ok(Self { files, name, own, config, known: Mutex::new((certificate, authority)), head_file })
    }

    /// The node's name.
    pub(crate) fn name(&self) -> &NodeName {
        &self.name
    }

    /// Where the head is and how to prove who this node is.
    pub(crate) fn endpoint(&self) -> anyhow::Result<Endpoint> {
        let address = match self.announced_address() {
            Some(address) => address,
            None => self.files.read(HEAD)?,
        };
        Ok(Endpoint::Tls { server_name: head_name(), address, config: Arc::clone(&self.config) })
    }

    /// Gets a certificate for a new key and uses it from now on. The answer says in how long to do so again, in milliseconds.
    ///
    /// A crash at any point leaves a node with a key that is good: the head takes both until it has seen the new one.
    pub(crate) async fn renew(&self) -> anyhow::Result<u64> {
        let (key, csr) = request()?;
        // A client of its own: with the certificate that is the newest now.
        let joined = Client::new(self.endpoint()?).renew(&RenewRequest { csr }).await?;
        let both = credentials(&joined.certificate, &key);
        self.files.store(CREDENTIALS, both.as_bytes())?;
        self.own.replace(&both, &both)?;
        self.known().0 = both;
        Ok(joined.renew_in_ms)
    }

    /// Takes up what `hostler agent join` has put in place of this identity since: whether there was something new.
    ///
    /// # Errors
    /// When that is another node, or one of another cluster, which this agent cannot become while it runs.
    pub(crate) fn refresh(&self) -> anyhow::Result<bool> {
        let (certificate, key) = self.files.credentials()?;
        let mut known = self.known();
        if certificate == known.0 {
            return Ok(false);
        }
        let name = node_in(&certificate).context("the node's certificate names no node")?;
        if name != self.name || self.files.read(AUTHORITY)? != known.1 {
            bail!("this node has joined as {name} since this agent was started as {}: restart the agent", self.name);
        }
        self.own.replace(&certificate, &key)?;
        known.0 = certificate;
        Ok(true)
    }

    fn known(&self) -> MutexGuard<'_, (String, String)> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The address that the head on this machine has last announced.
    fn announced_address(&self) -> Option<String> {
        let text = fs::read(self.head_file.as_ref()?).ok()?;
        let announced: serde_json::Value = serde_json::from_slice(&text).ok()?;
        Some(announced.get("address")?.as_str()?.to_owned())
    }
}

/// The files of a node's identity, in a directory that only the agent may enter.
#[derive(Debug)]
struct Files(PathBuf);

impl Files {
    /// Those of the node that is kept in `directory`.
    fn of(directory: &Path) -> Self {
        Self(directory.join("identity"))
    }

    fn make(&self) -> anyhow::Result<()> {
        // What is above the node's directory is not only the node's: closed, it would shut users out of their jobs' files.
        let shared = self.0.ancestors().nth(2).map_or(Ok(()), fs::create_dir_all);
        let make = || DirBuilder::new().recursive(true).mode(0o700).create(&self.0);
        shared.and_then(|()| make()).with_context(|| format!("cannot make {}", self.0.display()))
    }

    fn have_joined(&self) -> bool {
        self.0.join(CREDENTIALS).exists() || self.0.join(OLD_CERTIFICATE).exists()
    }

    /// The certificate and the key, PEM; perhaps in one text.
    fn credentials(&self) -> anyhow::Result<(String, String)> {
        if self.0.join(CREDENTIALS).exists() {
            let both = self.read(CREDENTIALS)?;
            return Ok((both.clone(), both));
        }
        Ok((self.read(OLD_CERTIFICATE)?, self.read(OLD_KEY)?))
    }

    fn read(&self, name: &str) -> anyhow::Result<String> {
        let path = self.0.join(name);
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    }

    /// Writes a file that only the agent can read, whole or not at all; it is on disk when this returns.
    fn store(&self, name: &str, bytes: &[u8]) -> anyhow::Result<()> {
        let path = self.0.join(name);
        replace_file(&path, bytes).with_context(|| format!("cannot write {}", path.display()))
    }
}

/// A new key and a signing request for it. All that the head takes from the request is the key.
fn request() -> anyhow::Result<(KeyPair, String)> {
    let key = KeyPair::generate().context("cannot make a key")?;
    let csr = CertificateParams::default().serialize_request(&key)?.pem()?;
    Ok((key, csr))
}

fn credentials(certificate: &str, key: &KeyPair) -> String {
    format!("{certificate}{}", key.serialize_pem())
}

fn certificate_in(pem: &str) -> anyhow::Result<CertificateDer<'static>> {
    CertificateDer::from_pem_slice(pem.as_bytes()).context("not a certificate in PEM form")
}

/// The common name of a node's certificate, which is the node's.
fn node_in(pem: &str) -> Option<NodeName> {
    let der = certificate_in(pem).ok()?;
    let (_, certificate) = X509Certificate::from_der(&der).ok()?;
    certificate.subject().iter_common_name().next()?.as_str().ok()?.parse().ok()
}

/// How every head's certificate names it.
fn head_name() -> ServerName<'static> {
    ServerName::try_from(HEAD_NAME).expect("it is a valid name")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn self_signed(name: &str) -> (String, KeyPair) {
        let key = KeyPair::generate().expect("a key can be made");
        let mut params = CertificateParams::default();
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        (params.self_signed(&key).expect("a certificate can be made").pem(), key)
    }

    #[test]
    fn key_and_certificate_are_one_private_file_and_old_directories_are_read() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().expect("a temporary directory");
        let files = Files::of(directory.path());
        files.make().expect("it is ours");
        assert!(!has_joined(directory.path()));
        let (authority, _) = self_signed("the authority");
        files.store(AUTHORITY, authority.as_bytes()).expect("it is ours");
        let (certificate, key) = self_signed("n1");
        files.store(OLD_KEY, key.serialize_pem().as_bytes()).expect("it is ours");
        files.store(OLD_CERTIFICATE, certificate.as_bytes()).expect("it is ours");
        assert!(has_joined(directory.path()));
        let load = || Identity::load(Files::of(directory.path()), None).expect("it has joined");
        assert_eq!(load().name().as_str(), "n1");
        let (certificate, key) = self_signed("n2");
        files.store(CREDENTIALS, credentials(&certificate, &key).as_bytes()).expect("it is ours");
        assert_eq!(load().name().as_str(), "n2", "the newer form counts");

        let identity = load();
        assert!(!identity.refresh().expect("readable"), "nothing is new");
        let (certificate, key) = self_signed("n2");
        files.store(CREDENTIALS, credentials(&certificate, &key).as_bytes()).expect("it is ours");
        assert_eq!([(); 2].map(|()| identity.refresh().expect("of the same node")), [true, false]);
        let (certificate, key) = self_signed("n3");
        files.store(CREDENTIALS, credentials(&certificate, &key).as_bytes()).expect("it is ours");
        let refused = identity.refresh().expect_err("another node").to_string();
        assert!(refused.contains("joined as n3") && refused.contains("restart the agent"), "{refused}");
        let mode = fs::metadata(files.0.join(CREDENTIALS)).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(fs::metadata(&files.0).expect("it is there").permissions().mode() & 0o777, 0o700);
    }
}
