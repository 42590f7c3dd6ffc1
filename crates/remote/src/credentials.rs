//! The key and certificate of one node for one run, and the fingerprints that it trusts.
//!
//! Certificates are self-signed and identified by fingerprint. Their validity period is not checked, so clocks do not
//! matter.

use std::io;
use std::sync::Arc;

use hostler_model::Digest;
use hostler_tls::{Verifier, fingerprint, provider};
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::version::TLS13;
use rustls::{AlertDescription, ClientConfig, Error, ServerConfig};
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
        Ok(fingerprint(&self.certificate()?))
    }

    /// Returns the TLS configuration of a server that accepts clients with the `trusted` fingerprints only.
    ///
    /// # Errors
    /// Fails when the PEM texts are invalid.
    pub fn to_accept(&self, trusted: Vec<Digest>) -> io::Result<Arc<ServerConfig>> {
        let config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])
            .map_err(io::Error::other)?
            .with_client_cert_verifier(one_of(trusted))
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
            .with_custom_certificate_verifier(one_of(vec![on]))
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

/// Replaces the error of a failed ALPN negotiation with one that names the version mismatch.
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

/// Creates a verifier that accepts only certificates with the `trusted` fingerprints.
fn one_of(trusted: Vec<Digest>) -> Arc<Verifier> {
    Arc::new(Verifier::certificate(move |certificate| trusted.contains(&fingerprint(certificate))))
}
