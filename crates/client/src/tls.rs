//! TLS configurations. Joining agents and users outside the cluster know the fingerprint of the authority. Agents
//! that have joined know the authority and have a certificate of their own.
//!
//! This machine's clock is not trusted, because it may be decades off. Certificates are verified as if the current time
//! were the start of their validity; the head decides how long they are accepted, by the cluster's clock.

use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use hostler_model::Digest;
use hostler_tls::{Verifier, client, fingerprint, provider};
use rustls::client::{ResolvesClientCert, Resumption};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, Error, SignatureScheme};

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

/// Trusts servers whose certificate is signed by the authority with this fingerprint. The server sends the
/// authority's certificate.
#[must_use]
pub fn pinned(authority: Digest) -> Arc<ClientConfig> {
    let verifier = Verifier::sent_authority(move |sent| fingerprint(sent) == authority);
    Arc::new(client(verifier).with_no_client_auth())
}

/// Trusts any authority that the server sends, and records the fingerprint of the first. Used to read a fingerprint
/// before sending data.
pub(crate) fn looking() -> (Arc<ClientConfig>, Arc<OnceLock<Digest>>) {
    let seen = Arc::new(OnceLock::new());
    let record = Arc::clone(&seen);
    let verifier = Verifier::sent_authority(move |sent| {
        record.get_or_init(|| fingerprint(sent));
        true
    });
    (Arc::new(client(verifier).with_no_client_auth()), seen)
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
    let mut config = client(Verifier::authority(certificate_in(authority)?)?).with_client_cert_resolver(own);
    // A resumed session would keep the certificate it began with, even after a replacement.
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

fn certificate_in(pem: &str) -> Result<CertificateDer<'static>, TlsError> {
    CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|source| TlsError::Pem { what: "certificate", source })
}
