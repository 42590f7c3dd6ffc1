//! The key of one node for one run, and whom it trusts.
//!
//! A certificate is nothing but the bearer of a key here: nobody signs it but itself, and it is known by its fingerprint. Clocks have no say.

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

/// The name in every certificate; it means nothing.
const NAME: &str = "step.hostler.internal";

/// A key and the certificate by which it is known; both PEM.
#[derive(Clone, Serialize, Deserialize)]
pub struct Credentials {
    certificate: String,
    key: String,
}

impl Credentials {
    /// New ones.
    ///
    /// # Errors
    /// When the system has no randomness to give.
    pub fn generate() -> io::Result<Self> {
        let make = || -> Result<Self, rcgen::Error> {
            let key = KeyPair::generate()?;
            let certificate = CertificateParams::new(vec![NAME.to_owned()])?.self_signed(&key)?;
            Ok(Self { certificate: certificate.pem(), key: key.serialize_pem() })
        };
        make().map_err(io::Error::other)
    }

    /// By which others know them: BLAKE3 of the certificate's DER.
    ///
    /// # Errors
    /// When it is no certificate.
    pub fn fingerprint(&self) -> io::Result<Digest> {
        Ok(fingerprint_of(&self.certificate()?))
    }

    /// For a node that takes steps, or calls, of those with these fingerprints.
    ///
    /// # Errors
    /// When they are no credentials.
    pub fn to_accept(&self, trusted: Vec<Digest>) -> io::Result<Arc<ServerConfig>> {
        let config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])
            .map_err(io::Error::other)?
            .with_client_cert_verifier(Arc::new(Known { trusted }))
            .with_single_cert(vec![self.certificate()?], self.key()?);
        let mut config = config.map_err(io::Error::other)?;
        // Connections are few, and none is worth resuming.
        config.send_tls13_tickets = 0;
        config.alpn_protocols = vec![alpn()];
        Ok(Arc::new(config))
    }

    /// For one who launches on the node with this fingerprint.
    ///
    /// # Errors
    /// When they are no credentials.
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

/// The protocol of a connection, so that another version refuses it.
fn alpn() -> Vec<u8> {
    format!("hostler-remote/{PROTOCOL}").into_bytes()
}

/// Says in words that the other side has another version of the protocol.
#[must_use]
pub fn explain_tls(error: io::Error) -> io::Error {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
    match inner {
        Some(Error::AlertReceived(AlertDescription::NoApplicationProtocol)) => {
            io::Error::other("it runs another version of Hostler; update the older of the two")
        }
        _ => error,
    }
}

/// What a client calls every server.
///
/// # Panics
/// Never.
#[must_use]
pub fn server_name() -> ServerName<'static> {
    ServerName::try_from(NAME).expect("it is a name")
}

/// By which a certificate is known: BLAKE3 of its DER.
#[must_use]
pub fn fingerprint_of(certificate: &CertificateDer<'_>) -> Digest {
    Digest(*blake3::hash(certificate).as_bytes())
}

/// The one provider: named explicitly, so that no other crate's choice can matter.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// Takes the certificates with these fingerprints and no others.
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

/// That the other side has the key of its certificate is for the handshake's signature to prove.
fn verify_signature(
    message: &[u8],
    certificate: &CertificateDer<'_>,
    signature: &DigitallySignedStruct,
) -> Result<HandshakeSignatureValid, Error> {
    verify_tls13_signature(message, certificate, signature, &provider().signature_verification_algorithms)
}

/// There is no older protocol here.
fn refuse_tls12() -> Result<HandshakeSignatureValid, Error> {
    Err(Error::General("TLS 1.3 or nothing".into()))
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
