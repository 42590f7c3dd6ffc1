//! The verifier of all TLS certificates, of servers and of clients. The verifier's constructor determines which
//! certificate the peer must have, or which authority must have signed it.
//!
//! Clocks are not trusted, because they may be decades off. A certificate signed by an authority is verified as if the
//! current time were the start of its validity period. The head decides by the cluster's clock how long such a
//! certificate is accepted.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use hostler_model::Digest;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WantsClientCert, WebPkiServerVerifier};
use rustls::crypto::{self, CryptoProvider};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, ClientConfig, ConfigBuilder, DigitallySignedStruct, DistinguishedName, Error, RootCertStore,
    SignatureScheme,
};
use x509_parser::prelude::{FromDer, X509Certificate};

/// The fingerprint of a certificate: BLAKE3 of its DER.
#[must_use]
pub fn fingerprint(certificate_der: &[u8]) -> Digest {
    Digest(*blake3::hash(certificate_der).as_bytes())
}

/// The crypto provider for all TLS connections. Named explicitly, so that the choice does not depend on the features of
/// other crates.
#[must_use]
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(crypto::ring::default_provider())
}

/// Starts the configuration of a client that accepts the servers that `verifier` accepts.
///
/// # Panics
/// Never: the provider supports the default protocol versions.
#[must_use]
pub fn client(verifier: Verifier) -> ConfigBuilder<ClientConfig, WantsClientCert> {
    ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .expect("the ring provider supports the default protocol versions")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
}

/// Decides whether a peer's certificate is the expected one.
pub struct Verifier {
    expected: Expected,
    /// Subjects of the authorities that sign client certificates. A server sends them to clients as a hint.
    hints: Vec<DistinguishedName>,
    is_client_optional: bool,
    provider: Arc<CryptoProvider>,
}

/// A function that returns whether a certificate is the expected one.
type Accepts = Box<dyn Fn(&CertificateDer<'_>) -> bool + Send + Sync>;

enum Expected {
    /// A certificate for which the function returns `true`. The verifier does not check the certificate's fields.
    Certificate(Accepts),
    /// A certificate signed by an authority whose certificate the peer also sends, and for which the function returns
    /// `true`.
    SentAuthority(Accepts),
    /// A certificate signed by this authority.
    Authority(Arc<RootCertStore>),
}

impl Verifier {
    /// Expects a certificate for which `accepts` returns `true`. The verifier checks no field of the certificate, so
    /// the certificate may be self-signed.
    pub fn certificate(accepts: impl Fn(&CertificateDer<'_>) -> bool + Send + Sync + 'static) -> Self {
        Self::new(Expected::Certificate(Box::new(accepts)))
    }

    /// Expects a certificate signed by an authority for whose certificate `accepts` returns `true`. The peer must also
    /// send the authority's certificate.
    pub fn sent_authority(accepts: impl Fn(&CertificateDer<'_>) -> bool + Send + Sync + 'static) -> Self {
        Self::new(Expected::SentAuthority(Box::new(accepts)))
    }

    /// Expects a certificate signed by `authority`.
    ///
    /// # Errors
    /// If the authority's certificate is not usable.
    pub fn authority(authority: CertificateDer<'_>) -> Result<Self, Error> {
        let roots = roots(authority)?;
        Ok(Self { hints: roots.subjects(), ..Self::new(Expected::Authority(roots)) })
    }

    /// Accepts clients without a certificate too.
    #[must_use]
    pub fn with_optional_clients(mut self) -> Self {
        self.is_client_optional = true;
        self
    }

    fn new(expected: Expected) -> Self {
        Self { expected, hints: Vec::new(), is_client_optional: false, provider: provider() }
    }

    /// The authority that must have signed the peer's certificate; `None` if the verifier expects the certificate
    /// itself. Fails if the certificate or the authority is not the expected one.
    fn expected_authority(
        &self,
        certificate: &CertificateDer<'_>,
        sent: &[CertificateDer<'_>],
    ) -> Result<Option<Arc<RootCertStore>>, Error> {
        match &self.expected {
            Expected::Certificate(accepts) if accepts(certificate) => Ok(None),
            Expected::Certificate(_) => Err(CertificateError::ApplicationVerificationFailure.into()),
            Expected::SentAuthority(accepts) => {
                let authority = sent.iter().find(|sent| accepts(sent)).ok_or(CertificateError::UnknownIssuer)?;
                roots(authority.clone()).map(Some)
            }
            Expected::Authority(roots) => Ok(Some(Arc::clone(roots))),
        }
    }

    /// Verifies that the peer has the private key of an expected certificate. Reads only the key from the certificate,
    /// because other verifiers reject some fields in certificates of management controllers.
    fn verify_key(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let (_, parsed) = X509Certificate::from_der(certificate).map_err(|_| CertificateError::BadEncoding)?;
        let key: &[u8] = &parsed.tbs_certificate.subject_pki.subject_public_key.data;
        let mapping = self.provider.signature_verification_algorithms.mapping;
        let candidates = mapping.iter().find(|(scheme, _)| *scheme == signed.scheme).map_or(&[][..], |found| found.1);
        let is_theirs = candidates.iter().any(|it| it.verify_signature(key, message, signed.signature()).is_ok());
        is_theirs.then(HandshakeSignatureValid::assertion).ok_or(CertificateError::BadSignature.into())
    }
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Verifier")
    }
}

/// Implements the methods that both of rustls's verifier traits have. They verify that the peer has the private key of
/// its certificate.
macro_rules! verify_handshakes {
    () => {
        fn verify_tls12_signature(
            &self,
            message: &[u8],
            certificate: &CertificateDer<'_>,
            signed: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            match self.expected {
                Expected::Certificate(_) => self.verify_key(message, certificate, signed),
                Expected::SentAuthority(_) | Expected::Authority(_) => {
                    let algorithms = &self.provider.signature_verification_algorithms;
                    crypto::verify_tls12_signature(message, certificate, signed, algorithms)
                }
            }
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            certificate: &CertificateDer<'_>,
            signed: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            use SignatureScheme::{RSA_PKCS1_SHA256, RSA_PKCS1_SHA384, RSA_PKCS1_SHA512};
            match (&self.expected, signed.scheme) {
                // TLS 1.3 also forbids these schemes for certificates.
                (Expected::Certificate(_), RSA_PKCS1_SHA256 | RSA_PKCS1_SHA384 | RSA_PKCS1_SHA512) => {
                    Err(CertificateError::BadSignature.into())
                }
                (Expected::Certificate(_), _) => self.verify_key(message, certificate, signed),
                (Expected::SentAuthority(_) | Expected::Authority(_), _) => {
                    let algorithms = &self.provider.signature_verification_algorithms;
                    crypto::verify_tls13_signature(message, certificate, signed, algorithms)
                }
            }
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            self.provider.signature_verification_algorithms.supported_schemes()
        }
    };
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(roots) = self.expected_authority(end_entity, intermediates)? else {
            return Ok(ServerCertVerified::assertion());
        };
        let now = valid_time(end_entity).unwrap_or(now);
        WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&self.provider))
            .build()
            .map_err(|error| Error::General(error.to_string()))?
            .verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    verify_handshakes!();
}

impl ClientCertVerifier for Verifier {
    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let Some(roots) = self.expected_authority(end_entity, intermediates)? else {
            return Ok(ClientCertVerified::assertion());
        };
        let now = valid_time(end_entity).unwrap_or(now);
        WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(&self.provider))
            .build()
            .map_err(|error| Error::General(error.to_string()))?
            .verify_client_cert(end_entity, intermediates, now)
    }

    fn client_auth_mandatory(&self) -> bool {
        !self.is_client_optional
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.hints
    }

    verify_handshakes!();
}

fn roots(authority: CertificateDer<'_>) -> Result<Arc<RootCertStore>, Error> {
    let mut roots = RootCertStore::empty();
    roots.add(authority.into_owned())?;
    Ok(Arc::new(roots))
}

/// The start of the certificate's validity period.
fn valid_time(certificate: &CertificateDer<'_>) -> Option<UnixTime> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    let seconds = u64::try_from(parsed.validity().not_before.timestamp()).ok()?;
    Some(UnixTime::since_unix_epoch(Duration::from_secs(seconds)))
}
