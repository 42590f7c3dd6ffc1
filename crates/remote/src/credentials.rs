//! The key and certificate of one node for one run, and the fingerprints that it trusts.
//!
//! Certificates are self-signed and identified by fingerprint. Their validity period is not checked, so clocks do not
//! matter.

use std::io;
use std::sync::Arc;

use hostler_model::Digest;
use rcgen::{CertificateParams, KeyPair};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::version::TLS13;
use rustls::{
    AlertDescription, CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, ServerConfig,
    SignatureScheme,
};
use serde::{Deserialize, Serialize};

use crate::frame::PROTOCOL;

/// The subject name in every certificate. Peers do not check the name.
const NAME: &str = "step.hostler.internal";

/// A private key and its certificate, both PEM.
#[derive(Clone, Serialize, Deserialize)]
pub struct Credentials {
    certificate: String,
    key: String,
}

impl Credentials {
    /// Generates a key and a self-signed certificate.
    ///
    /// # Errors
    /// Fails when the system provides no randomness.
    pub fn generate() -> io::Result<Self> {
        let make = || -> Result<Self, rcgen::Error> {
            let key = KeyPair::generate()?;
            let certificate = CertificateParams::new(vec![NAME.to_owned()])?.self_signed(&key)?;
            Ok(Self { certificate: certificate.pem(), key: key.serialize_pem() })
        };
        make().map_err(io::Error::other)
    }

    /// Returns the fingerprint of the certificate: BLAKE3 of its DER.
    ///
    /// # Errors
    /// Fails when the PEM holds no certificate.
    pub fn fingerprint(&self) -> io::Result<Digest> {
        Ok(fingerprint_of(&self.certificate()?))
    }

    /// Returns the TLS configuration of a server that accepts clients with the `trusted` fingerprints only.
    ///
    /// # Errors
    /// Fails when the PEM texts are invalid.
    pub fn to_accept(&self, trusted: Vec<Digest>) -> io::Result<Arc<ServerConfig>> {
        let config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])
            .map_err(io::Error::other)?
            .with_client_cert_verifier(Arc::new(Known { trusted }))
            .with_single_cert(vec![self.certificate()?], self.key()?);
        let mut config = config.map_err(io::Error::other)?;
        // Connections are few, so session resumption is off.
        config.send_tls13_tickets = 0;
        config.alpn_protocols = vec![alpn()];
        Ok(Arc::new(config))
    }

    /// Returns the TLS configuration of a client that connects to the server with the fingerprint `on`.
    ///
    /// # Errors
    /// Fails when the PEM texts are invalid.
    pub fn to_launch(&self, on: Digest) -> io::Result<Arc<ClientConfig>> {
        let config = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])
            .map_err(io::Error::other)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Known { trusted: vec![on] }))
            .with_client_auth_cert(vec![self.certificate()?], self.key()?);
        let mut config = config.map_err(io::Error::other)?;
        config.alpn_protocols = vec![alpn()];
        Ok(Arc::new(config))
    }

    fn certificate(&self) -> io::Result<CertificateDer<'static>> {
        CertificateDer::from_pem_slice(self.certificate.as_bytes()).map_err(io::Error::other)
    }

    fn key(&self) -> io::Result<PrivateKeyDer<'static>> {
        PrivateKeyDer::from_pem_slice(self.key.as_bytes()).map_err(io::Error::other)
    }
}

/// The ALPN name, which contains the protocol version. Peers with another version therefore refuse the connection.
fn alpn() -> Vec<u8> {
    format!("hostler-remote/{PROTOCOL}").into_bytes()
}

/// Replaces an ALPN failure with an error that names the version mismatch.
#[must_use]
pub fn explain_tls(error: io::Error) -> io::Error {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
    match inner {
        Some(Error::AlertReceived(AlertDescription::NoApplicationProtocol)) => {
            io::Error::other("the other side runs another version of Hostler; update the older one")
        }
        _ => error,
    }
}

/// The server name that every client uses.
///
/// # Panics
/// Never.
#[must_use]
pub fn server_name() -> ServerName<'static> {
    ServerName::try_from(NAME).expect("the constant is a valid server name")
}

/// Returns the fingerprint of a certificate: BLAKE3 of its DER.
#[must_use]
pub fn fingerprint_of(certificate: &CertificateDer<'_>) -> Digest {
    Digest(*blake3::hash(certificate).as_bytes())
}

/// The crypto provider, named explicitly so that other crates' feature choices do not matter.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// Accepts certificates with these fingerprints only.
#[derive(Debug)]
struct Known {
    trusted: Vec<Digest>,
}

impl Known {
    fn verify(&self, certificate: &CertificateDer<'_>) -> Result<(), Error> {
        let is_known = self.trusted.contains(&fingerprint_of(certificate));
        is_known.then_some(()).ok_or(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure))
    }
}

/// Verifies the handshake signature, which proves that the peer holds the private key.
fn verify_signature(
    message: &[u8],
    certificate: &CertificateDer<'_>,
    signature: &DigitallySignedStruct,
) -> Result<HandshakeSignatureValid, Error> {
    verify_tls13_signature(message, certificate, signature, &provider().signature_verification_algorithms)
}

/// Refuses TLS 1.2: both ends always support TLS 1.3.
fn refuse_tls12() -> Result<HandshakeSignatureValid, Error> {
    Err(Error::General("the peer uses TLS 1.2, but TLS 1.3 is required".into()))
}

fn schemes() -> Vec<SignatureScheme> {
    provider().signature_verification_algorithms.supported_schemes()
}

impl ServerCertVerifier for Known {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.verify(end_entity).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        refuse_tls12()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        schemes()
    }
}

impl ClientCertVerifier for Known {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.verify(end_entity).map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        refuse_tls12()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        schemes()
    }
}
