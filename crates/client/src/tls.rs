//! Whom to trust. An agent that joins and a user elsewhere know the fingerprint of the one authority; an agent that has joined knows
//! the authority itself, and has a certificate of its own.
//!
//! The clock of this machine has no say: it may be decades wrong, before joining and after. A certificate is verified at a time at which it
//! says to be valid; how long it is good for is judged by the head, on the cluster's clock.

use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use hostler_model::Digest;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ResolvesClientCert, Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::sign::CertifiedKey;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use x509_parser::prelude::{FromDer, X509Certificate};

/// Why a configuration could not be made.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// Text that should be PEM is not.
    #[error("not a {what} in PEM form: {source}")]
    Pem {
        /// What it should be.
        what: &'static str,
        /// What is wrong.
        source: rustls::pki_types::pem::Error,
    },
    /// Certificates that cannot be used.
    #[error("these certificates cannot be used: {0}")]
    Unusable(#[from] Error),
}

/// The fingerprint of an authority: BLAKE3 of its certificate's DER.
#[must_use]
pub fn fingerprint(authority_der: &[u8]) -> Digest {
    Digest(*blake3::hash(authority_der).as_bytes())
}

/// Trusts servers whose certificate was signed by the authority with this [`fingerprint`], which the server sends along.
///
/// # Panics
/// Never: the built-in provider supports the default protocol versions.
#[must_use]
pub fn pinned(authority: Digest) -> Arc<ClientConfig> {
    verified_by(Arc::new(Pinned::new(Some(authority))))
}

/// Trusts whatever authority the server sends along, and tells which it was: for looking, before anything is said.
pub(crate) fn looking() -> (Arc<ClientConfig>, Arc<Pinned>) {
    let verifier = Arc::new(Pinned::new(None));
    (verified_by(Arc::clone(&verifier)), verifier)
}

fn verified_by(verifier: Arc<Pinned>) -> Arc<ClientConfig> {
    let config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .expect("the ring provider supports them")
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    Arc::new(config)
}

/// Trusts servers of the cluster whose `authority` this is and proves with `certificate` and `key` who we are; all PEM.
///
/// # Errors
/// When a text is not PEM, or key and certificate do not belong together.
pub fn mutual(authority: &str, certificate: &str, key: &str) -> Result<Arc<ClientConfig>, TlsError> {
    mutual_as(authority, Arc::new(OwnCertificate::from_pem(certificate, key)?))
}

/// The same with a certificate that can be replaced later on.
///
/// # Errors
/// When the authority is not PEM or cannot be used.
pub fn mutual_as(authority: &str, own: Arc<OwnCertificate>) -> Result<Arc<ClientConfig>, TlsError> {
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Timeless(verifier(certificate_in(authority)?)?)))
        .with_client_cert_resolver(own);
    // A session that is resumed goes on under the certificate with which it began, replaced or not.
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

/// A certificate with its key. It can be replaced; connections that are made afterwards show the new one.
#[derive(Debug)]
pub struct OwnCertificate(RwLock<Arc<CertifiedKey>>);

impl OwnCertificate {
    /// Both as PEM; they may be in one text.
    ///
    /// # Errors
    /// When a text is not PEM, or key and certificate do not belong together.
    pub fn from_pem(certificate: &str, key: &str) -> Result<Self, TlsError> {
        Ok(Self(RwLock::new(certified(certificate, key)?)))
    }

    /// Shows this one from now on.
    ///
    /// # Errors
    /// As for [`Self::from_pem`]; then the one before stays.
    pub fn replace(&self, certificate: &str, key: &str) -> Result<(), TlsError> {
        let certified = certified(certificate, key)?;
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = certified;
        Ok(())
    }
}

impl ResolvesClientCert for OwnCertificate {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner)))
    }

    fn has_certs(&self) -> bool {
        true
    }
}

fn certified(certificate: &str, key: &str) -> Result<Arc<CertifiedKey>, TlsError> {
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes())
        .map_err(|source| TlsError::Pem { what: "private key", source })?;
    Ok(Arc::new(CertifiedKey::from_der(vec![certificate_in(certificate)?], key, &provider())?))
}

/// The one provider: named explicitly, so that no other crate's choice can matter.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn certificate_in(pem: &str) -> Result<CertificateDer<'static>, TlsError> {
    CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|source| TlsError::Pem { what: "certificate", source })
}

/// Verifies that a server's certificate was signed by this authority.
fn verifier(authority: CertificateDer<'static>) -> Result<Arc<WebPkiServerVerifier>, Error> {
    let mut roots = RootCertStore::empty();
    roots.add(authority)?;
    WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider())
        .build()
        .map_err(|error| Error::General(error.to_string()))
}

/// The first moment at which a certificate says to be valid.
fn valid_time(certificate: &CertificateDer<'_>) -> Option<UnixTime> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    let seconds = u64::try_from(parsed.validity().not_before.timestamp()).ok()?;
    Some(UnixTime::since_unix_epoch(Duration::from_secs(seconds)))
}

/// Verifies at a time at which the certificate says to be valid.
#[derive(Debug)]
struct Timeless(Arc<WebPkiServerVerifier>);

impl ServerCertVerifier for Timeless {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let then = valid_time(end_entity).unwrap_or(now);
        self.0.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, then)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

/// Verifies against an authority of which at most the fingerprint is known, and which the server sends along.
#[derive(Debug)]
pub(crate) struct Pinned {
    /// The one that is trusted; any when absent.
    trusted: Option<Digest>,
    /// The first one that was seen.
    seen: OnceLock<Digest>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Pinned {
    fn new(trusted: Option<Digest>) -> Self {
        Self { trusted, seen: OnceLock::new(), algorithms: provider().signature_verification_algorithms }
    }

    /// The authority of the server that was connected to.
    pub(crate) fn seen(&self) -> Option<Digest> {
        self.seen.get().copied()
    }
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let is_trusted =
            |certificate: &&CertificateDer<'_>| self.trusted.is_none_or(|trusted| fingerprint(certificate) == trusted);
        let authority =
            intermediates.iter().find(is_trusted).ok_or(Error::InvalidCertificate(CertificateError::UnknownIssuer))?;
        let then = valid_time(end_entity).unwrap_or(now);
        let verified = verifier(authority.clone().into_owned())?.verify_server_cert(
            end_entity,
            intermediates,
            server_name,
            ocsp_response,
            then,
        )?;
        self.seen.get_or_init(|| fingerprint(authority));
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
