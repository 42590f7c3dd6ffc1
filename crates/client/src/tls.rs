//! For agents: whom to trust. Before joining, the one authority whose fingerprint is in the join code; afterwards that
//! authority, with a certificate of one's own.

use std::sync::Arc;

use hostler_model::Digest;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

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
    let provider = provider();
    let verifier = Pinned { authority, algorithms: provider.signature_verification_algorithms };
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the ring provider supports them")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    Arc::new(config)
}

/// Trusts servers of the cluster whose `authority` this is and proves with `certificate` and `key` who we are; all PEM.
///
/// # Errors
/// When a text is not PEM, or key and certificate do not belong together.
pub fn mutual(authority: &str, certificate: &str, key: &str) -> Result<Arc<ClientConfig>, TlsError> {
    let mut roots = RootCertStore::empty();
    roots.add(certificate_in(authority)?)?;
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes())
        .map_err(|source| TlsError::Pem { what: "private key", source })?;
    let config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_client_auth_cert(vec![certificate_in(certificate)?], key)?;
    Ok(Arc::new(config))
}

/// The one provider: named explicitly, so that no other crate's choice can matter.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn certificate_in(pem: &str) -> Result<CertificateDer<'static>, TlsError> {
    CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|source| TlsError::Pem { what: "certificate", source })
}

/// Verifies against an authority of which only the fingerprint is known.
#[derive(Debug)]
struct Pinned {
    authority: Digest,
    algorithms: WebPkiSupportedAlgorithms,
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
        let authority = intermediates
            .iter()
            .find(|certificate| fingerprint(certificate) == self.authority)
            .ok_or(Error::InvalidCertificate(CertificateError::UnknownIssuer))?;
        let mut roots = RootCertStore::empty();
        roots.add(authority.clone().into_owned())?;
        WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider())
            .build()
            .map_err(|error| Error::General(error.to_string()))?
            .verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
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
