//! The node's identity: its key, its certificate from the head, and the trusted authority.
//!
//! A node joins once, with a code that contains the head's address, the authority's fingerprint and a one-time secret.
//! The key never leaves the node. Key and certificate are stored in one file, so they are replaced together. The node's
//! name is the one in the certificate.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use hostler_client::tls::OwnCertificate;
use hostler_client::{Client, ClientError, Endpoint, SharedAddress, tls};
use hostler_model::{Digest, NodeName};
use hostler_proto::api::{JoinRequest, Joined, RenewRequest};
use hostler_proto::join::{HEAD_NAME, JoinCode};
use hostler_snapshot::remove_tree;
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::mutex::lock;
use crate::random::random;
use crate::runs::directory::{RUNS, Runs};

/// Longest time for which a join code is valid, and for which joining is retried.
const CODE_LIFE: Duration = Duration::from_secs(3600);

/// First and longest delay between join attempts; the actual delay is random between half of it and all of it.
const JOIN_PAUSES: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(15));

/// File with the certificate and its key.
const CREDENTIALS: &str = "credentials.pem";

const AUTHORITY: &str = "authority.pem";

/// Name of the file with the address that the head had when the node joined.
const HEAD: &str = "head";

/// Identity of a node that has joined.
#[derive(Debug)]
pub(crate) struct Identity {
    files: Files,
    /// Name of the node, from its certificate.
    name: NodeName,
    own: Arc<OwnCertificate>,
    /// Address of `head`; the only place in the agent that knows it.
    address: SharedAddress,
    head: Endpoint,
    /// Contents of the files in use: certificate with key, and authority.
    known: Mutex<(String, String)>,
    /// File with the current address of a head on the same machine, whose port may change.
    head_file: Option<PathBuf>,
}

/// Names that a machine sends in a join request.
#[derive(Debug, Clone, Default)]
pub struct Introduction {
    /// Requested node name; `None` for the name in the join code.
    pub name: Option<NodeName>,
    /// Name of the machine, used if the code has no node name.
    pub machine: Option<NodeName>,
    /// Whether the machine may get another name although it has runs, which then end.
    pub may_end_runs: bool,
}

/// Whether the node in `directory` has joined a cluster.
#[must_use]
pub fn has_joined(directory: &Path) -> bool {
    Files::of(directory).have_joined()
}

/// Makes the node in `directory` leave its cluster by removing its identity. Other files stay.
///
/// # Errors
/// If its certificate and key cannot be removed.
pub fn leave(directory: &Path) -> std::io::Result<()> {
    remove_tree(&Files::of(directory).0)
}

/// Joins the cluster of the code. Stores the identity and the head's address in `directory`, and returns the node's
/// name and the head's address. An existing identity is replaced, and a running agent switches to the new one.
///
/// While the head is unreachable or overloaded, retries for as long as a join code can be valid. `report` gets each
/// error and the delay before the next attempt. The head answers repeated requests identically.
///
/// # Errors
/// If the head cannot be reached, does not match the code, or refuses the machine.
pub async fn join(
    directory: &Path,
    code: &JoinCode,
    introduction: Introduction,
    mut report: impl FnMut(&ClientError, Duration),
) -> anyhow::Result<(NodeName, String)> {
    let files = Files::of(directory);
    files.make()?;
    let (key, csr) = request()?;
    let endpoint = Endpoint::Tls {
        address: code.address.clone().into(),
        server_name: head_name(),
        config: tls::pinned(code.authority),
    };
    let Introduction { name, machine, may_end_runs } = introduction;
    let is_busy = !may_end_runs && !Runs::present(&directory.join(RUNS)).is_empty();
    let busy_as = files.read(CREDENTIALS).ok().and_then(|both| node_in(&both)).filter(|_| is_busy);
    let request = JoinRequest { secret: code.secret.clone(), node: name, machine, csr, busy_as };
    // The pinned fingerprint ensures that the code is only sent to its cluster.
    let client = Client::new(endpoint);
    let began = Instant::now();
    let mut pause = JOIN_PAUSES.0;
    let Joined { certificate, authority, node, .. } = loop {
        match client.join(&request).await {
            Ok(joined) => break joined,
            Err(error) if error.is_transient() && began.elapsed() < CODE_LIFE => {
                let wait = pause.mul_f64((1.0 + random()) / 2.0);
                report(&error, wait);
                tokio::time::sleep(wait).await;
                pause = (pause * 2).min(JOIN_PAUSES.1);
            }
            Err(error) => return Err(error.into()),
        }
    };
    if hostler_tls::fingerprint(&certificate_in(&authority)?) != code.authority {
        bail!("the head at {} answered with another cluster's authority", code.address);
    }
    files.store(AUTHORITY, authority.as_bytes())?;
    files.store(HEAD, code.address.as_bytes())?;
    // Written last: a node with a certificate has joined.
    files.store(CREDENTIALS, credentials(&certificate, &key).as_bytes())?;
    Ok((node, code.address.clone()))
}

impl Identity {
    /// Fails if there is neither an identity in `directory` nor a join code. Creates nothing, because the directory may
    /// be a wrong one.
    pub(crate) fn ensure_obtainable(directory: &Path, join_file: Option<&Path>) -> anyhow::Result<()> {
        if join_file.is_some() || has_joined(directory) {
            return Ok(());
        }
        bail!(
            "this node has not joined a cluster yet ({} has no certificate): run `hostler node invite` on the head's machine, then \
             `hostler agent join` with the code on this machine, and with the same --directory if you use one",
            directory.display()
        )
    }

    /// Loads the identity in `directory`. If there is none, joins the cluster first, with the code in `join_file`.
    pub(crate) async fn obtain(
        directory: &Path,
        name: Option<&NodeName>,
        join_file: Option<&Path>,
        head_file: Option<PathBuf>,
    ) -> anyhow::Result<Self> {
        if let Some(join_file) = join_file.filter(|_| !has_joined(directory)) {
            let text = fs::read_to_string(join_file)
                .with_context(|| format!("cannot read the join code in {}", join_file.display()))?;
            let code: JoinCode = text.parse().context("the join code is invalid")?;
            let introduction = Introduction { name: name.cloned(), ..Introduction::default() };
            let report = |error: &ClientError, wait: Duration| {
                tracing::warn!(again_in = ?wait, "cannot join yet; retrying: {error}");
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
        let both = files.read(CREDENTIALS)?;
        let own = Arc::new(OwnCertificate::from_pem(&both, &both).context("the node's certificate is damaged")?);
        let authority = files.read(AUTHORITY)?;
        let config = tls::mutual_as(&authority, Arc::clone(&own))?;
        let address: SharedAddress = head_address(&files, head_file.as_deref())?.into();
        let head = Endpoint::Tls { server_name: head_name(), address: address.clone(), config };
        let name = node_in(&both).context("the node's certificate names no node")?;
        Ok(Self { files, name, own, address, head, known: Mutex::new((both, authority)), head_file })
    }

    pub(crate) fn name(&self) -> &NodeName {
        &self.name
    }

    /// The fingerprint of the cluster's authority.
    pub(crate) fn cluster(&self) -> anyhow::Result<Digest> {
        Ok(hostler_tls::fingerprint(&certificate_in(&lock(&self.known).1)?))
    }

    /// The head, for everything on this node that connects to it. [`Self::refresh`] changes the address and the
    /// certificate of all clones.
    pub(crate) const fn head(&self) -> &Endpoint {
        &self.head
    }

    /// Requests a certificate for a new key and uses it from now on. Returns the time until the next renewal, in
    /// milliseconds.
    ///
    /// After a crash at any point, the node has a valid key: the head accepts both keys until the new one is used.
    pub(crate) async fn renew(&self) -> anyhow::Result<u64> {
        let (key, csr) = request()?;
        // A new client, which uses the latest certificate.
        let joined = Client::new(self.head.clone()).renew(&RenewRequest { csr }).await?;
        let both = credentials(&joined.certificate, &key);
        self.files.store(CREDENTIALS, both.as_bytes())?;
        self.own.replace(&both, &both)?;
        lock(&self.known).0 = both;
        Ok(joined.renew_in_ms)
    }

    /// If `hostler agent join` has replaced the identity or the head has another address, uses the new ones. Returns
    /// whether there were any.
    ///
    /// # Errors
    /// If the new identity is for another node name or cluster, which requires a restart.
    pub(crate) fn refresh(&self) -> anyhow::Result<bool> {
        let both = self.files.read(CREDENTIALS)?;
        let mut known = lock(&self.known);
        let name = node_in(&both).context("the node's certificate names no node")?;
        if name != self.name || self.files.read(AUTHORITY)? != known.1 {
            bail!(
                "this node has joined again as {name}, but this agent was started as {}: restart the agent",
                self.name
            );
        }
        let moved = self.address.replace(&head_address(&self.files, self.head_file.as_deref())?);
        if both == known.0 {
            return Ok(moved);
        }
        self.own.replace(&both, &both)?;
        known.0 = both;
        Ok(true)
    }
}

/// The head's address: the one that a head on this machine announced last, or else that of the join code.
fn head_address(files: &Files, head_file: Option<&Path>) -> anyhow::Result<String> {
    let announced = || {
        let announced: serde_json::Value = serde_json::from_slice(&fs::read(head_file?).ok()?).ok()?;
        Some(announced.get("address")?.as_str()?.to_owned())
    };
    announced().map_or_else(|| files.read(HEAD), Ok)
}

/// The identity files of a node, in a directory that only the agent can read.
#[derive(Debug)]
struct Files(PathBuf);

impl Files {
    fn of(directory: &Path) -> Self {
        Self(directory.join("identity"))
    }

    fn make(&self) -> anyhow::Result<()> {
        // Closed parent directories would lock users out of their jobs' files.
        let mode = if nix::unistd::geteuid().is_root() { 0o755 } else { 0o700 };
        let shared = self.0.ancestors().nth(2).map_or(Ok(()), |parent| hostler_sys::create_directory(parent, mode));
        shared
            .and_then(|()| hostler_sys::create_directory(&self.0, 0o700))
            .with_context(|| format!("cannot create {}", self.0.display()))
    }

    fn have_joined(&self) -> bool {
        self.0.join(CREDENTIALS).exists()
    }

    fn read(&self, name: &str) -> anyhow::Result<String> {
        let path = self.0.join(name);
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    }

    /// Atomically writes a file that only the agent can read. The data is on disk when this returns.
    fn store(&self, name: &str, bytes: &[u8]) -> anyhow::Result<()> {
        let path = self.0.join(name);
        hostler_sys::replace_file(&path, bytes, 0o600).with_context(|| format!("cannot write {}", path.display()))
    }
}

/// Creates a key and a certificate signing request. The head uses only the key from the request.
fn request() -> anyhow::Result<(KeyPair, String)> {
    let key = KeyPair::generate().context("cannot create a key")?;
    let csr = CertificateParams::default().serialize_request(&key)?.pem()?;
    Ok((key, csr))
}

fn credentials(certificate: &str, key: &KeyPair) -> String {
    format!("{certificate}{}", key.serialize_pem())
}

fn certificate_in(pem: &str) -> anyhow::Result<CertificateDer<'static>> {
    CertificateDer::from_pem_slice(pem.as_bytes()).context("not a certificate in PEM form")
}

/// Node name from a certificate's common name.
fn node_in(pem: &str) -> Option<NodeName> {
    let der = certificate_in(pem).ok()?;
    let (_, certificate) = X509Certificate::from_der(&der).ok()?;
    certificate.subject().iter_common_name().next()?.as_str().ok()?.parse().ok()
}

/// Name of the head in its certificate.
fn head_name() -> ServerName<'static> {
    ServerName::try_from(HEAD_NAME).expect("the constant is a valid name")
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
    fn credentials_are_private_and_refreshed_after_another_join() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().expect("a temporary directory");
        let files = Files::of(directory.path());
        files.make().expect("this test owns the path");
        assert!(!has_joined(directory.path()));
        let (authority, _) = self_signed("the authority");
        files.store(AUTHORITY, authority.as_bytes()).expect("this test owns the path");
        let (certificate, key) = self_signed("n2");
        files.store(CREDENTIALS, credentials(&certificate, &key).as_bytes()).expect("this test owns the path");
        files.store(HEAD, b"head:7760").expect("this test owns the path");
        assert!(has_joined(directory.path()));
        let identity = Identity::load(Files::of(directory.path()), None).expect("the node has joined");
        assert_eq!(identity.name().as_str(), "n2");
        assert!(!identity.refresh().expect("readable"), "nothing is new");
        files.store(HEAD, b"moved:7760").expect("this test owns the path");
        assert_eq!([(); 2].map(|()| identity.refresh().expect("readable")), [true, false], "the head has moved");
        let (certificate, key) = self_signed("n2");
        files.store(CREDENTIALS, credentials(&certificate, &key).as_bytes()).expect("this test owns the path");
        assert_eq!(
            [(); 2].map(|()| identity.refresh().expect("the new certificate is of the same node")),
            [true, false]
        );
        let (certificate, key) = self_signed("n3");
        files.store(CREDENTIALS, credentials(&certificate, &key).as_bytes()).expect("this test owns the path");
        let refused = identity.refresh().expect_err("another node").to_string();
        assert!(refused.contains("joined again as n3") && refused.contains("restart the agent"), "{refused}");
        let mode = fs::metadata(files.0.join(CREDENTIALS)).expect("the file exists").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(fs::metadata(&files.0).expect("the file exists").permissions().mode() & 0o777, 0o700);
    }
}
