//! TLS configurations. Joining agents and users outside the cluster know the fingerprint of the authority. Agents
//! that have joined know the authority and have a certificate of their own.
//!
//! Clocks of this machine are not trusted, because they may be decades off. Certificates are verified at a time
//! within their validity; the head decides how long they are valid, by the cluster's clock.

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

#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A text is not PEM.
    #[error("not a {what} in PEM form: {source}")]
    Pem {
        /// What the text should be.
        what: &'static str,
        source: rustls::pki_types::pem::Error,
    },
    /// The certificates are not usable.
    #[error("the certificates cannot be used: {0}")]
    Unusable(#[from] Error),
}

/// The fingerprint of an authority: BLAKE3 of its certificate's DER.
#[must_use]
pub fn fingerprint(authority_der: &[u8]) -> Digest {
    Digest(*blake3::hash(authority_der).as_bytes())
}

/// Trusts servers whose certificate is signed by the authority with this [`fingerprint`]. The server sends the
/// authority's certificate.
///
/// # Panics
/// Never: the built-in provider supports the default protocol versions.
#[must_use]
pub fn pinned(authority: Digest) -> Arc<ClientConfig> {
    verified_by(Arc::new(Pinned::new(Some(authority))))
}

/// Trusts any authority that the server sends, and records it. Used to read a fingerprint before sending data.
pub(crate) fn looking() -> (Arc<ClientConfig>, Arc<Pinned>) {
    let verifier = Arc::new(Pinned::new(None));
    (verified_by(Arc::clone(&verifier)), verifier)
}

fn verified_by(verifier: Arc<Pinned>) -> Arc<ClientConfig> {
    let config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .expect("the ring provider supports the default protocol versions")
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    Arc::new(config)
}

/// Trusts servers of the cluster with this `authority`, and authenticates with `certificate` and `key`. All three are
/// PEM texts.
///
/// # Errors
/// If a text is not PEM, or key and certificate do not match.
pub fn mutual(authority: &str, certificate: &str, key: &str) -> Result<Arc<ClientConfig>, TlsError> {
    mutual_as(authority, Arc::new(OwnCertificate::from_pem(certificate, key)?))
}

/// Like [`mutual`], with a certificate that can be replaced later.
///
/// # Errors
/// If the authority is not PEM or not usable.
pub fn mutual_as(authority: &str, own: Arc<OwnCertificate>) -> Result<Arc<ClientConfig>, TlsError> {
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Timeless(verifier(certificate_in(authority)?)?)))
        .with_client_cert_resolver(own);
    // A resumed session would still use the old certificate after a replacement.
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

/// A certificate with its key. After a replacement, new connections use the new certificate.
#[derive(Debug)]
pub struct OwnCertificate(RwLock<Arc<CertifiedKey>>);

impl OwnCertificate {
    /// Parses a certificate and its key from PEM. One text may contain both.
    ///
    /// # Errors
    /// If a text is not PEM, or key and certificate do not match.
    pub fn from_pem(certificate: &str, key: &str) -> Result<Self, TlsError> {
        Ok(Self(RwLock::new(certified(certificate, key)?)))
    }

    /// Uses this certificate from now on.
    ///
    /// # Errors
    /// As for [`Self::from_pem`]; the previous certificate stays in use.
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

/// Returns the ring crypto provider. rustls's default would depend on the features of other crates.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn certificate_in(pem: &str) -> Result<CertificateDer<'static>, TlsError> {
    CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|source| TlsError::Pem { what: "certificate", source })
}

/// Verifies that a server's certificate is signed by this authority.
fn verifier(authority: CertificateDer<'static>) -> Result<Arc<WebPkiServerVerifier>, Error> {
    let mut roots = RootCertStore::empty();
    roots.add(authority)?;
    WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider())
        .build()
        .map_err(|error| Error::General(error.to_string()))
}

/// The start of the certificate's validity.
fn valid_time(certificate: &CertificateDer<'_>) -> Option<UnixTime> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    let seconds = u64::try_from(parsed.validity().not_before.timestamp()).ok()?;
    Some(UnixTime::since_unix_epoch(Duration::from_secs(seconds)))
}

/// Verifies certificates at the start of their validity.
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

/// Verifies a server's certificate against the authority that the server sends, after checking the authority's
/// fingerprint.
#[derive(Debug)]
pub(crate) struct Pinned {
    /// Trusted fingerprint; `None` accepts any.
    trusted: Option<Digest>,
    /// Fingerprint of the first authority seen.
    seen: OnceLock<Digest>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Pinned {
    fn new(trusted: Option<Digest>) -> Self {
        Self { trusted, seen: OnceLock::new(), algorithms: provider().signature_verification_algorithms }
    }

    /// The authority of the connected server.
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
