//! Trust: the cluster's own certificate authority, the head's certificate, and how a node gets one.
//!
//! The authority is made once and kept beside the store; every certificate of the cluster hangs from it. A node is invited with a
//! one-time secret, shows it together with a certificate signing request, and gets a certificate that says nothing but its name.
//! Certificates are valid from a day before they were made and for ten years, because the clocks of nodes may be hours wrong and
//! nothing here may depend on them.
//!
//! Invitations live in memory and on the monotonic clock: they end with the head's process, and an hour is an hour.

use std::collections::HashMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use anyhow::Context;
use hostler_model::{Digest, NodeName};
use hostler_proto::join::JoinCode;
use hostler_snapshot::chunk::digest_of;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, SanType,
};
use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

/// How long an invitation can be taken.
const INVITATION_TTL: Duration = Duration::from_secs(3600);

/// Invitations that wait at once. The oldest makes room: whoever asks for more can ask again.
const MAX_INVITATIONS: usize = 10_000;

/// How far back certificates are valid, for clocks that are behind.
const BACKDATED: Duration = Duration::from_secs(24 * 3600);

const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// How long a certificate is valid.
const LEAF_VALIDITY: Duration = YEAR.saturating_mul(10);

/// How long the authority is valid: longer than what it signs for a good while.
const AUTHORITY_VALIDITY: Duration = YEAR.saturating_mul(40);

/// What a node's certificate says, before the node's name.
const NODE_URI: &str = "hostler:node/";

/// The cluster's authority and the head's own certificate.
pub(crate) struct Trust {
    authority_pem: String,
    fingerprint: Digest,
    issuer: Issuer<'static, KeyPair>,
    server: Arc<rustls::ServerConfig>,
    invitations: Mutex<HashMap<Digest, Invited>>,
}

/// A secret that was handed out; its hash is the key of the map.
struct Invited {
    node: NodeName,
    at: Instant,
    /// The request that took it. An agent that did not hear the answer may ask again with the same.
    taken_by: Option<Digest>,
}

/// Why a node does not get a certificate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum JoinError {
    /// The secret is unknown, too old, or was used by someone else. Which of them is for nobody to know.
    #[error("the join code is unknown, was used already or is older than an hour")]
    NotInvited,
    /// The secret was made for another node.
    #[error("the join code was made for node {0}")]
    OtherNode(NodeName),
    /// The request is no valid certificate signing request.
    #[error("the certificate signing request is not valid: {0}")]
    BadRequest(String),
}

impl Trust {
    /// Opens the authority in `directory`, or makes one there; gives the head a certificate for `listen` if it has none.
    ///
    /// # Errors
    /// When files cannot be read or written, or are not what they should be.
    pub(crate) fn open(directory: &Path, listen: SocketAddr) -> anyhow::Result<Self> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)
            .with_context(|| format!("cannot create {}", directory.display()))?;
        let authority = Pair::within(directory, "ca");
        if !authority.exists() {
            authority.make_authority()?;
        }
        let authority_pem = authority.certificate()?;
        let authority_der = certificate_in(&authority_pem)?;
        let issuer = Issuer::from_ca_cert_pem(&authority_pem, authority.key()?)
            .context("the cluster's authority cannot be used")?;
        let server = Pair::within(directory, "server");
        let names = names_of(listen);
        if !server.is_for(&names, &authority_der) {
            server.make_server(&issuer, names)?;
        }
        Ok(Self {
            server: server_config(&authority_der, &server)?,
            fingerprint: digest_of(&authority_der),
            authority_pem,
            issuer,
            invitations: Mutex::default(),
        })
    }

    /// How the head speaks TLS: clients may show a certificate of the cluster, and are strangers without.
    pub(crate) fn server(&self) -> Arc<rustls::ServerConfig> {
        Arc::clone(&self.server)
    }

    /// The fingerprint of the authority: the cluster's name in what must hold for no other.
    pub(crate) fn fingerprint(&self) -> Digest {
        self.fingerprint
    }

    /// The authority's certificate, PEM.
    pub(crate) fn authority(&self) -> &str {
        &self.authority_pem
    }

    /// A code with which a node of this name can join the head at `address`, for an hour.
    pub(crate) fn invite(&self, node: &NodeName, address: String) -> JoinCode {
        let secret = random_name();
        let mut invitations = self.invitations();
        invitations.retain(|_, invited| invited.at.elapsed() < INVITATION_TTL);
        if invitations.len() >= MAX_INVITATIONS
            && let Some(oldest) = invitations.iter().min_by_key(|(_, invited)| invited.at).map(|(key, _)| *key)
        {
            invitations.remove(&oldest);
        }
        let invited = Invited { node: node.clone(), at: Instant::now(), taken_by: None };
        invitations.insert(digest_of(secret.as_bytes()), invited);
        JoinCode { address, authority: self.fingerprint, secret }
    }

    /// Takes an invitation: the certificate for `node`, PEM.
    ///
    /// # Errors
    /// When there is no such invitation or the request is no good; an invitation is used up only by success.
    pub(crate) fn join(&self, secret: &str, node: &NodeName, csr: &str) -> Result<String, JoinError> {
        let key = digest_of(secret.as_bytes());
        let by = digest_of(csr.as_bytes());
        let mut invitations = self.invitations();
        let invited = invitations
            .get_mut(&key)
            .filter(|invited| invited.at.elapsed() < INVITATION_TTL)
            .filter(|invited| invited.taken_by.is_none_or(|taken| taken == by))
            .ok_or(JoinError::NotInvited)?;
        if invited.node != *node {
            return Err(JoinError::OtherNode(invited.node.clone()));
        }
        let certificate = self.sign(node, csr)?;
        invited.taken_by = Some(by);
        Ok(certificate)
    }

    /// A certificate for the key of a request. Nothing else of the request counts.
    fn sign(&self, node: &NodeName, csr: &str) -> Result<String, JoinError> {
        let bad = |error: rcgen::Error| JoinError::BadRequest(error.to_string());
        let request = CertificateSigningRequestParams::from_pem(csr).map_err(bad)?;
        let uri = format!("{NODE_URI}{node}").try_into().map_err(bad)?;
        let mut params = leaf(node.as_str(), vec![SanType::URI(uri)], ExtendedKeyUsagePurpose::ClientAuth);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.signed_by(&request.public_key, &self.issuer).map(|certificate| certificate.pem()).map_err(bad)
    }

    fn invitations(&self) -> MutexGuard<'_, HashMap<Digest, Invited>> {
        self.invitations.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The node that a verified certificate was made for.
pub(crate) fn node_of(certificate: &CertificateDer<'_>) -> Option<NodeName> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    let names = parsed.subject_alternative_name().ok()??;
    names.value.general_names.iter().find_map(|name| match name {
        GeneralName::URI(uri) => uri.strip_prefix(NODE_URI)?.parse().ok(),
        _ => None,
    })
}

/// A name that nobody can guess: 128 random bits in hexadecimal digits.
pub(crate) fn random_name() -> String {
    let mut bytes = [0; 16];
    rustls::crypto::ring::default_provider()
        .secure_random
        .fill(&mut bytes)
        .expect("the kernel has random bytes once it has booted");
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A certificate and its key, as two files.
struct Pair {
    certificate: PathBuf,
    key: PathBuf,
}

impl Pair {
    fn within(directory: &Path, name: &str) -> Self {
        Self { certificate: directory.join(format!("{name}.pem")), key: directory.join(format!("{name}.key")) }
    }

    /// Whether it was made: the certificate is written last.
    fn exists(&self) -> bool {
        self.certificate.exists()
    }

    fn certificate(&self) -> anyhow::Result<String> {
        read(&self.certificate)
    }

    fn key(&self) -> anyhow::Result<KeyPair> {
        KeyPair::from_pem(&read(&self.key)?).with_context(|| format!("{} holds no key", self.key.display()))
    }

    fn make_authority(&self) -> anyhow::Result<()> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        // A name of its own, so that nobody mixes up two clusters' authorities.
        params.distinguished_name = common_name(&format!("hostler cluster {}", &random_name()[..8]));
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        set_validity(&mut params, AUTHORITY_VALIDITY);
        self.store(&key, &params.self_signed(&key)?.pem())
    }

    fn make_server(&self, issuer: &Issuer<'_, KeyPair>, names: Vec<SanType>) -> anyhow::Result<()> {
        let key = KeyPair::generate()?;
        let mut params = leaf("hostler head", names, ExtendedKeyUsagePurpose::ServerAuth);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        self.store(&key, &params.signed_by(&key, issuer)?.pem())
    }

    fn store(&self, key: &KeyPair, certificate: &str) -> anyhow::Result<()> {
        replace_file(&self.key, key.serialize_pem().as_bytes(), 0o600)?;
        replace_file(&self.certificate, certificate.as_bytes(), 0o644)?;
        Ok(())
    }

    /// Whether there is a certificate of `authority` with at least these names.
    fn is_for(&self, names: &[SanType], authority: &CertificateDer<'_>) -> bool {
        let covers = || -> Option<bool> {
            let der = certificate_in(&self.certificate().ok()?).ok()?;
            self.key().ok()?;
            let (_, certificate) = X509Certificate::from_der(&der).ok()?;
            let (_, authority) = X509Certificate::from_der(authority).ok()?;
            certificate.verify_signature(Some(authority.public_key())).ok()?;
            let held = certificate.subject_alternative_name().ok()??;
            Some(names.iter().all(|name| held.value.general_names.iter().any(|held| is_same(name, held))))
        };
        covers().unwrap_or(false)
    }
}

fn is_same(wanted: &SanType, held: &GeneralName<'_>) -> bool {
    match (wanted, held) {
        (SanType::DnsName(wanted), GeneralName::DNSName(held)) => wanted.as_str() == *held,
        (SanType::IpAddress(IpAddr::V4(wanted)), GeneralName::IPAddress(held)) => wanted.octets() == *held,
        (SanType::IpAddress(IpAddr::V6(wanted)), GeneralName::IPAddress(held)) => wanted.octets() == *held,
        _ => false,
    }
}

/// By which names agents may call a head that listens on `listen`.
fn names_of(listen: SocketAddr) -> Vec<SanType> {
    let mut addresses = vec![IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
    if !listen.ip().is_unspecified() && !addresses.contains(&listen.ip()) {
        addresses.push(listen.ip());
    }
    let mut names: Vec<SanType> = addresses.into_iter().map(SanType::IpAddress).collect();
    let hostname = hostname();
    for name in std::iter::once("localhost").chain(hostname.as_deref().filter(|name| *name != "localhost")) {
        if let Ok(name) = name.to_owned().try_into() {
            names.push(SanType::DnsName(name));
        }
    }
    names
}

/// This machine's name.
pub(crate) fn hostname() -> Option<String> {
    nix::unistd::gethostname().ok()?.into_string().ok().filter(|name| !name.is_empty())
}

/// A certificate for one end of a connection.
fn leaf(name: &str, names: Vec<SanType>, usage: ExtendedKeyUsagePurpose) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = common_name(name);
    params.subject_alt_names = names;
    params.extended_key_usages = vec![usage];
    params.use_authority_key_identifier_extension = true;
    set_validity(&mut params, LEAF_VALIDITY);
    params
}

fn common_name(name: &str) -> DistinguishedName {
    let mut all = DistinguishedName::new();
    all.push(DnType::CommonName, name);
    all
}

fn set_validity(params: &mut CertificateParams, validity: Duration) {
    let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    params.not_before = epoch + since_epoch.saturating_sub(BACKDATED);
    params.not_after = epoch + since_epoch + validity;
}

fn server_config(authority: &CertificateDer<'static>, server: &Pair) -> anyhow::Result<Arc<rustls::ServerConfig>> {
    // Named explicitly: with two providers linked in, rustls would panic rather than choose.
    let provider: Arc<CryptoProvider> = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add(authority.clone())?;
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
        .allow_unauthenticated()
        .build()?;
    // The authority goes along, so that a node that knows only its fingerprint can find it.
    let chain = vec![certificate_in(&server.certificate()?)?, authority.clone()];
    let key =
        PrivateKeyDer::from_pem_file(&server.key).with_context(|| format!("{} holds no key", server.key.display()))?;
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

fn certificate_in(pem: &str) -> anyhow::Result<CertificateDer<'static>> {
    CertificateDer::from_pem_slice(pem.as_bytes()).context("not a certificate in PEM form")
}

fn read(path: &Path) -> anyhow::Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

/// Writes a file whole or not at all. It has `mode` from its first instant, and is on disk when this returns.
pub(crate) fn replace_file(path: &Path, bytes: &[u8], mode: u32) -> anyhow::Result<()> {
    let partial = path.with_added_extension("partial");
    let write = || -> io::Result<()> {
        // Left by a crash, perhaps with another mode.
        if let Err(error) = fs::remove_file(&partial)
            && error.kind() != io::ErrorKind::NotFound
        {
            return Err(error);
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&partial)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&partial, path)?;
        path.parent().map_or(Ok(()), |parent| File::open(parent)?.sync_all())
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

    fn csr() -> String {
        let key = KeyPair::generate().expect("a key can be made");
        let mut params = CertificateParams::new(vec!["evil".to_owned()]).expect("a valid name");
        // Everything a request asks for beyond its key is ignored.
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.serialize_request(&key).and_then(|csr| csr.pem()).expect("a request can be made")
    }

    fn node(name: &str) -> NodeName {
        name.parse().expect("a valid name")
    }

    #[test]
    fn keys_are_private_and_a_restart_changes_nothing() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let first = Trust::open(directory.path(), LISTEN).expect("an authority is made");
        let files = |name: &str| fs::read(directory.path().join(name)).expect("it was written");
        let before = [files("ca.pem"), files("ca.key"), files("server.pem"), files("server.key")];
        let second = Trust::open(directory.path(), LISTEN).expect("it is opened again");
        assert_eq!(first.fingerprint, second.fingerprint);
        assert_eq!(before, [files("ca.pem"), files("ca.key"), files("server.pem"), files("server.key")]);
        for key in ["ca.key", "server.key"] {
            let mode = fs::metadata(directory.path().join(key)).expect("it exists").permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{key}");
        }
    }

    #[test]
    fn another_address_gets_another_certificate_of_the_same_authority() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let first = Trust::open(directory.path(), LISTEN).expect("an authority is made");
        let before = fs::read(directory.path().join("server.pem")).expect("it was written");
        let elsewhere = "192.0.2.7:7777".parse().expect("an address");
        let second = Trust::open(directory.path(), elsewhere).expect("it is opened again");
        assert_eq!(first.fingerprint, second.fingerprint);
        assert_ne!(before, fs::read(directory.path().join("server.pem")).expect("it was written"));
    }

    #[test]
    fn an_invitation_is_for_one_node_and_one_key() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let trust = Trust::open(directory.path(), LISTEN).expect("an authority is made");
        let code = trust.invite(&node("a"), "127.0.0.1:1".to_owned());
        let csr_of_a = csr();
        assert_eq!(trust.join("guess", &node("a"), &csr_of_a), Err(JoinError::NotInvited));
        assert_eq!(trust.join(&code.secret, &node("b"), &csr_of_a), Err(JoinError::OtherNode(node("a"))));
        assert!(matches!(trust.join(&code.secret, &node("a"), "rubbish"), Err(JoinError::BadRequest(_))));

        let pem = trust.join(&code.secret, &node("a"), &csr_of_a).expect("invited");
        let der = certificate_in(&pem).expect("a certificate");
        assert_eq!(node_of(&der), Some(node("a")));
        let (_, certificate) = X509Certificate::from_der(&der).expect("a certificate");
        assert!(!certificate.is_ca());
        assert!(!pem.contains("evil"));

        assert!(trust.join(&code.secret, &node("a"), &csr_of_a).is_ok(), "the answer may have been lost");
        assert_eq!(trust.join(&code.secret, &node("a"), &csr()), Err(JoinError::NotInvited));
    }

    #[test]
    fn an_invitation_ends() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let trust = Trust::open(directory.path(), LISTEN).expect("an authority is made");
        let code = trust.invite(&node("a"), "127.0.0.1:1".to_owned());
        let long_ago = Instant::now().checked_sub(INVITATION_TTL).expect("the clock can tell");
        trust.invitations().values_mut().for_each(|invited| invited.at = long_ago);
        assert_eq!(trust.join(&code.secret, &node("a"), &csr()), Err(JoinError::NotInvited));
        trust.invite(&node("b"), "127.0.0.1:1".to_owned());
        assert_eq!(trust.invitations().len(), 1, "the next one makes room");
    }

    #[test]
    fn the_heads_own_certificate_names_no_node() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        Trust::open(directory.path(), LISTEN).expect("an authority is made");
        let pem = fs::read_to_string(directory.path().join("server.pem")).expect("it was written");
        assert_eq!(node_of(&certificate_in(&pem).expect("a certificate")), None);
    }
}
