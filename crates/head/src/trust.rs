//! The cluster's certificate authority, the head's certificate, and the certificates of nodes.
//!
//! The authority is created once and stored next to the database. It signs all certificates of the cluster. A node is
//! invited with a one-time secret. It sends the secret with a certificate signing request, and gets a certificate that
//! contains only its name.
//!
//! Certificate checks ignore wall clocks, because clocks of machines may be wrong by decades. All certificates are
//! formally valid from the year 2000 to 9999, and are verified at a time within that range. The state limits the
//! lifetime of a node's key on the cluster's own clock; see `hostler_core::head::Member`.
//!
//! Invitations are in [`crate::invitations`].

use std::fs::{self, DirBuilder};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use hostler_model::{Digest, NodeName};
use hostler_proto::join::{Address, HEAD_NAME};
use hostler_snapshot::chunk::digest_of;
use hostler_tls::Verifier;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, PublicKeyData, SanType,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::invitations::Invitations;
use crate::names::random_name;

/// Prefix of the URI with the node name in a certificate.
const NODE_URI: &str = "hostler:node/";

/// The cluster's authority and the head's own certificate.
pub(crate) struct Trust {
    authority_pem: String,
    fingerprint: Digest,
    issuer: Issuer<'static, KeyPair>,
    server: Arc<rustls::ServerConfig>,
    /// Secret from which the gossip secrets of nodes are derived.
    gossip_secret: String,
    pub(crate) invitations: Invitations,
}

/// The certificate signing request is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the certificate signing request is not valid: {0}")]
pub(crate) struct BadRequest(String);

/// A new certificate for a node.
pub(crate) struct Issued {
    /// In PEM form.
    pub(crate) certificate: String,
    /// Fingerprint of the certificate's public key.
    pub(crate) key: Digest,
}

/// The holder of a verified node certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Bearer {
    pub(crate) node: NodeName,
    /// Fingerprint of the public key: BLAKE3 of its DER form.
    pub(crate) key: Digest,
}

impl Trust {
    /// Opens the authority in `directory`, or creates one there. Creates the head's certificate if there is none for
    /// its current names.
    ///
    /// # Errors
    /// A file cannot be read or written, or is invalid.
    pub(crate) fn open(directory: &Path, listen: SocketAddr, advertised: &[Address]) -> anyhow::Result<Self> {
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
        let names = names_of(listen, advertised);
        if !server.is_for(&names, &authority_der) {
            server.make_server(&issuer, names)?;
        }
        Ok(Self {
            gossip_secret: gossip_secret(&directory.join("gossip.key"))?,
            server: server_config(&authority_der, &server)?,
            fingerprint: digest_of(&authority_der),
            authority_pem,
            issuer,
            invitations: Invitations::default(),
        })
    }

    /// The head's TLS configuration. Client certificates of the cluster are optional.
    pub(crate) fn server(&self) -> Arc<rustls::ServerConfig> {
        Arc::clone(&self.server)
    }

    /// Fingerprint of the authority. It identifies the cluster.
    pub(crate) fn fingerprint(&self) -> Digest {
        self.fingerprint
    }

    /// The shared secret of nodes for gossip, as 64 hexadecimal digits. It changes with the number of expelled nodes,
    /// and an old secret does not reveal the new one.
    pub(crate) fn gossip_secret(&self, expelled: u64) -> String {
        digest_of(format!("hostler gossip {} {expelled}", self.gossip_secret).as_bytes()).to_string()
    }

    /// The authority's certificate in PEM form.
    pub(crate) fn authority(&self) -> &str {
        &self.authority_pem
    }

    /// Signs a certificate for the key of a request. Other fields of the request are ignored.
    ///
    /// # Errors
    /// The request is invalid, or not signed with its own key.
    pub(crate) fn sign(&self, node: &NodeName, csr: &str) -> Result<Issued, BadRequest> {
        let bad = |error: rcgen::Error| BadRequest(error.to_string());
        let request = CertificateSigningRequestParams::from_pem(csr).map_err(bad)?;
        let uri = format!("{NODE_URI}{node}").try_into().map_err(bad)?;
        let mut params = end_entity(node.as_str(), vec![SanType::URI(uri)], ExtendedKeyUsagePurpose::ClientAuth);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        let certificate = params.signed_by(&request.public_key, &self.issuer).map_err(bad)?;
        let key = digest_of(&request.public_key.subject_public_key_info());
        Ok(Issued { certificate: certificate.pem(), key })
    }
}

/// The node name and key in a verified certificate.
pub(crate) fn bearer_of(certificate: &CertificateDer<'_>) -> Option<Bearer> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    let key = digest_of(parsed.public_key().raw);
    let names = parsed.subject_alternative_name().ok()??;
    names.value.general_names.iter().find_map(|name| match name {
        GeneralName::URI(uri) => Some(Bearer { node: uri.strip_prefix(NODE_URI)?.parse().ok()?, key }),
        _ => None,
    })
}

/// Reads the secret from a file, or creates it.
fn gossip_secret(path: &Path) -> anyhow::Result<String> {
    if !path.exists() {
        replace_file(path, format!("{}{}", random_name(), random_name()).as_bytes(), 0o600)?;
    }
    Ok(read(path)?.trim().to_owned())
}

/// Files of a certificate and its key.
struct Pair {
    certificate: PathBuf,
    key: PathBuf,
}

impl Pair {
    fn within(directory: &Path, name: &str) -> Self {
        Self { certificate: directory.join(format!("{name}.pem")), key: directory.join(format!("{name}.key")) }
    }

    /// Whether the pair exists. The key is written before the certificate, so an existing certificate implies an
    /// existing key.
    fn exists(&self) -> bool {
        self.certificate.exists()
    }

    fn certificate(&self) -> anyhow::Result<String> {
        read(&self.certificate)
    }

    fn key(&self) -> anyhow::Result<KeyPair> {
        KeyPair::from_pem(&read(&self.key)?).with_context(|| format!("{} contains no private key", self.key.display()))
    }

    fn make_authority(&self) -> anyhow::Result<()> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        // A unique name distinguishes the authorities of two clusters.
        params.distinguished_name = common_name(&format!("hostler cluster {}", &random_name()[..8]));
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        set_validity(&mut params);
        self.store(&key, &params.self_signed(&key)?.pem())
    }

    fn make_server(&self, issuer: &Issuer<'_, KeyPair>, names: Vec<SanType>) -> anyhow::Result<()> {
        let key = KeyPair::generate()?;
        let mut params = end_entity("hostler head", names, ExtendedKeyUsagePurpose::ServerAuth);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        self.store(&key, &params.signed_by(&key, issuer)?.pem())
    }

    fn store(&self, key: &KeyPair, certificate: &str) -> anyhow::Result<()> {
        replace_file(&self.key, key.serialize_pem().as_bytes(), 0o600)?;
        replace_file(&self.certificate, certificate.as_bytes(), 0o600)?;
        Ok(())
    }

    /// Whether the pair is a certificate of `authority` with exactly these names.
    fn is_for(&self, names: &[SanType], authority: &CertificateDer<'_>) -> bool {
        let covers = || -> Option<bool> {
            let der = certificate_in(&self.certificate().ok()?).ok()?;
            self.key().ok()?;
            let (_, certificate) = X509Certificate::from_der(&der).ok()?;
            let (_, authority) = X509Certificate::from_der(authority).ok()?;
            certificate.verify_signature(Some(authority.public_key())).ok()?;
            let held = certificate.subject_alternative_name().ok()??;
            let held = &held.value.general_names;
            let is_held = |name: &SanType| held.iter().any(|held| is_same(name, held));
            Some(names.len() == held.len() && names.iter().all(is_held))
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

/// The names under which clients may reach the head, without duplicates.
fn names_of(listen: SocketAddr, advertised: &[Address]) -> Vec<SanType> {
    let mut hosts = vec![HEAD_NAME.to_owned(), "localhost".to_owned()];
    hosts.extend([IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)].map(|ip| ip.to_string()));
    if !listen.ip().is_unspecified() {
        hosts.push(listen.ip().to_string());
    }
    hosts.extend(hostname());
    hosts.extend(advertised.iter().map(|address| address.host.clone()));
    let mut names: Vec<SanType> = Vec::new();
    for host in hosts {
        let name = match host.parse::<IpAddr>() {
            Ok(ip) => Some(SanType::IpAddress(ip)),
            // Some host names are not valid in certificates. Clients use another name then.
            Err(_) => host.try_into().ok().map(SanType::DnsName),
        };
        names.extend(name.filter(|name| !names.contains(name)));
    }
    names
}

pub(crate) fn hostname() -> Option<String> {
    nix::unistd::gethostname().ok()?.into_string().ok().filter(|name| !name.is_empty())
}

/// Parameters of an end-entity certificate.
fn end_entity(name: &str, names: Vec<SanType>, usage: ExtendedKeyUsagePurpose) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = common_name(name);
    params.subject_alt_names = names;
    params.extended_key_usages = vec![usage];
    params.use_authority_key_identifier_extension = true;
    set_validity(&mut params);
    params
}

fn common_name(name: &str) -> DistinguishedName {
    let mut all = DistinguishedName::new();
    all.push(DnType::CommonName, name);
    all
}

/// Makes a certificate formally valid from 2000 to 9999-12-31, which means no expiry (RFC 5280, 4.1.2.5). The comment
/// at the top of this file explains why.
fn set_validity(params: &mut CertificateParams) {
    params.not_before = rcgen::date_time_ymd(2000, 1, 1);
    params.not_after = rcgen::date_time_ymd(9999, 12, 31);
}

fn server_config(authority: &CertificateDer<'static>, server: &Pair) -> anyhow::Result<Arc<rustls::ServerConfig>> {
    let verifier = Arc::new(Verifier::authority(authority.clone())?.with_optional_clients());
    // Sends the authority's certificate too, so that a node that knows only its fingerprint can verify the chain.
    let chain = vec![certificate_in(&server.certificate()?)?, authority.clone()];
    let key = PrivateKeyDer::from_pem_file(&server.key)
        .with_context(|| format!("{} contains no private key", server.key.display()))?;
    let mut config = rustls::ServerConfig::builder_with_provider(hostler_tls::provider())
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

/// Replaces a file atomically. The error contains the file's path.
pub(crate) fn replace_file(path: &Path, bytes: &[u8], mode: u32) -> anyhow::Result<()> {
    hostler_sys::replace_file(path, bytes, mode).with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::time::Duration;

    use rustls::pki_types::UnixTime;
    use rustls::server::danger::ClientCertVerifier;

    use super::*;

    const LISTEN: &str = "127.0.0.1:0";

    fn csr() -> String {
        let key = KeyPair::generate().expect("a key can be made");
        let mut params = CertificateParams::new(vec!["evil".to_owned()]).expect("a valid name");
        // All other fields of the request are ignored.
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.serialize_request(&key).and_then(|csr| csr.pem()).expect("a request can be made")
    }

    fn node(name: &str) -> NodeName {
        name.parse().expect("a valid name")
    }

    fn open(directory: &Path, listen: &str, advertised: &[&str]) -> Trust {
        let advertised: Vec<Address> = advertised.iter().map(|text| text.parse().expect(text)).collect();
        Trust::open(directory, listen.parse().expect(listen), &advertised).expect("an authority can be made")
    }

    fn verify(trust: &Trust, certificate: &CertificateDer<'_>, now_secs: u64) -> Result<(), rustls::Error> {
        let authority = certificate_in(trust.authority()).expect("a certificate");
        let verifier = Verifier::authority(authority).expect("it can be trusted");
        let now = UnixTime::since_unix_epoch(Duration::from_secs(now_secs));
        verifier.verify_client_cert(certificate, &[], now).map(drop)
    }

    #[test]
    fn keys_are_private_and_survive_a_restart() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let first = open(directory.path(), LISTEN, &["head.example:7760"]);
        let files = |name: &str| fs::read(directory.path().join(name)).expect("the file was written");
        let before = [files("ca.pem"), files("ca.key"), files("server.pem"), files("server.key")];
        let second = open(directory.path(), LISTEN, &["head.example:7760"]);
        assert_eq!(first.fingerprint, second.fingerprint);
        assert_eq!(before, [files("ca.pem"), files("ca.key"), files("server.pem"), files("server.key")]);
        for key in ["ca.key", "server.key"] {
            let mode = fs::metadata(directory.path().join(key)).expect("the key file exists").permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{key}");
        }
    }

    #[test]
    fn new_addresses_get_a_new_certificate_of_the_same_authority() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let certificate = || fs::read(directory.path().join("server.pem")).expect("the file was written");
        let first = open(directory.path(), LISTEN, &[]);
        let mut seen = vec![certificate()];
        for (listen, advertised) in
            [("192.0.2.7:7777", &[][..]), (LISTEN, &["head.example", "[2001:db8::1]:1"][..]), (LISTEN, &[][..])]
        {
            let again = open(directory.path(), listen, advertised);
            assert_eq!(first.fingerprint, again.fingerprint);
            assert!(!seen.contains(&certificate()), "{listen} {advertised:?}");
            seen.push(certificate());
        }
        let names = names_of(LISTEN.parse().expect("an address"), &["head.example".parse().expect("an address")]);
        let text = format!("{names:?}");
        assert!(text.contains("head.example") && text.contains(HEAD_NAME) && text.contains("127.0.0.1"), "{text}");
    }

    #[test]
    fn certificate_contains_only_name_and_key() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let trust = open(directory.path(), LISTEN, &[]);
        assert!(trust.sign(&node("a"), "rubbish").is_err());
        let csr_of_a = csr();
        let issued = trust.sign(&node("a"), &csr_of_a).expect("a request");
        let der = certificate_in(&issued.certificate).expect("a certificate");
        assert_eq!(bearer_of(&der), Some(Bearer { node: node("a"), key: issued.key }));
        let (_, certificate) = X509Certificate::from_der(&der).expect("a certificate");
        assert!(!certificate.is_ca());
        assert!(!issued.certificate.contains("evil"));
        assert_eq!(
            trust.sign(&node("b"), &csr_of_a).expect("a request").key,
            issued.key,
            "the key comes from the request"
        );
        assert_ne!(trust.sign(&node("a"), &csr()).expect("a request").key, issued.key);
        let head = fs::read_to_string(directory.path().join("server.pem")).expect("the file was written");
        assert_eq!(
            bearer_of(&certificate_in(&head).expect("a certificate")),
            None,
            "the head's certificate contains no node name"
        );
    }

    #[test]
    fn verification_ignores_the_clock_and_rejects_other_authorities() {
        let (mine, other) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
        let trust = open(mine.path(), LISTEN, &[]);
        let issued = trust.sign(&node("a"), &csr()).expect("a request");
        let certificate = certificate_in(&issued.certificate).expect("a certificate");
        const YEAR: u64 = 365 * 24 * 3600;
        for now_secs in [0, 26 * YEAR, 56 * YEAR, 86 * YEAR, 9000 * YEAR] {
            verify(&trust, &certificate, now_secs).unwrap_or_else(|error| panic!("at {now_secs}: {error}"));
        }
        let stranger = open(other.path(), LISTEN, &[]);
        assert!(verify(&stranger, &certificate, 56 * YEAR).is_err());
    }
}
