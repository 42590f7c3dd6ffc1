//! Verification of a controller's certificate.
//!
//! Controllers use self-signed certificates, often with odd names and dates, and some in formats that browsers reject.
//! Only two things therefore count: the certificate must have the configured fingerprint, and the controller must have
//! its private key.

use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, OnceLock};

use hostler_model::ParseError;
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, ring};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, SignatureScheme};
use serde::{Deserialize, Serialize};
use x509_parser::prelude::{FromDer, X509Certificate};

/// SHA-256 fingerprint of a certificate in DER form. The format is that of `openssl x509 -fingerprint -sha256`:
/// `AB:CD:…`; colons are optional.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    #[must_use]
    pub fn of(certificate_der: &[u8]) -> Self {
        let digest = ::ring::digest::digest(&::ring::digest::SHA256, certificate_der);
        Self(digest.as_ref().try_into().expect("SHA-256 has 32 bytes"))
    }
}

impl FromStr for Fingerprint {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let error = || ParseError::new(text, "a SHA-256 fingerprint: 32 pairs of hexadecimal digits, e.g. `AB:CD:…`");
        let digits = text.trim().replace(':', "");
        if digits.len() != 64 || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(error());
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(digits.as_bytes().chunks_exact(2)) {
            let pair = std::str::from_utf8(pair).expect("hexadecimal digits are ASCII");
            *byte = u8::from_str_radix(pair, 16).map_err(|_| error())?;
        }
        Ok(Self(bytes))
    }
}

impl TryFrom<String> for Fingerprint {
    type Error = ParseError;

    fn try_from(text: String) -> Result<Self, ParseError> {
        text.parse()
    }
}

impl From<Fingerprint> for String {
    fn from(fingerprint: Fingerprint) -> Self {
        fingerprint.to_string()
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for byte in self.0 {
            write!(f, "{separator}{byte:02X}")?;
            separator = ":";
        }
        Ok(())
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({self})")
    }
}

/// Certificates to accept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Trust {
    /// Accepts only the certificate with this fingerprint.
    Pinned(Fingerprint),
    /// Accepts no certificate. The connection only reads the fingerprint.
    Nobody,
    /// Accepts any certificate, as the operator has configured.
    Anybody,
}

/// TLS configuration for one connection. The verifier keeps the fingerprint of the server's certificate.
pub(crate) fn client(trust: Trust) -> (Arc<ClientConfig>, Arc<Verifier>) {
    let provider = Arc::new(ring::default_provider());
    let verifier = Arc::new(Verifier::new(trust, &provider));
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the ring provider supports TLS 1.2 and 1.3")
        .dangerous()
        .with_custom_certificate_verifier(Arc::clone(&verifier) as Arc<dyn ServerCertVerifier>)
        .with_no_client_auth();
    config.resumption = Resumption::disabled();
    (Arc::new(config), verifier)
}

/// Accepts certificates by their fingerprint.
#[derive(Debug)]
pub(crate) struct Verifier {
    trust: Trust,
    seen: OnceLock<Fingerprint>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Verifier {
    fn new(trust: Trust, provider: &CryptoProvider) -> Self {
        Self { trust, seen: OnceLock::new(), algorithms: provider.signature_verification_algorithms }
    }

    /// The certificate's fingerprint, if it was rejected.
    pub(crate) fn rejected_certificate(&self) -> Option<Fingerprint> {
        self.seen.get().copied().filter(|seen| !self.takes(*seen))
    }

    fn takes(&self, fingerprint: Fingerprint) -> bool {
        match self.trust {
            Trust::Pinned(pinned) => fingerprint == pinned,
            Trust::Nobody => false,
            Trust::Anybody => true,
        }
    }

    /// Verifies that the server has the certificate's private key. Ignores other fields of the certificate.
    fn verify_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let (_, parsed) = X509Certificate::from_der(certificate).map_err(|_| CertificateError::BadEncoding)?;
        let key: &[u8] = &parsed.tbs_certificate.subject_pki.subject_public_key.data;
        let candidates = self.algorithms.mapping.iter().find(|(scheme, _)| *scheme == signed.scheme);
        let candidates = candidates.map_or(&[][..], |(_, algorithms)| algorithms);
        let is_theirs = candidates.iter().any(|it| it.verify_signature(key, message, signed.signature()).is_ok());
        is_theirs
            .then(HandshakeSignatureValid::assertion)
            .ok_or(Error::InvalidCertificate(CertificateError::BadSignature))
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let seen = *self.seen.get_or_init(|| Fingerprint::of(end_entity));
        self.takes(seen)
            .then(ServerCertVerified::assertion)
            .ok_or(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verify_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        // TLS 1.3 also forbids these schemes for certificates.
        if matches!(
            signed.scheme,
            SignatureScheme::RSA_PKCS1_SHA256 | SignatureScheme::RSA_PKCS1_SHA384 | SignatureScheme::RSA_PKCS1_SHA512
        ) {
            return Err(Error::InvalidCertificate(CertificateError::BadSignature));
        }
        self.verify_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprints_match_openssl() {
        // printf '' | openssl dgst -sha256
        let shown = "E3:B0:C4:42:98:FC:1C:14:9A:FB:F4:C8:99:6F:B9:24:27:AE:41:E4:64:9B:93:4C:A4:95:99:1B:78:52:B8:55";
        let fingerprint = Fingerprint::of(b"");
        assert_eq!(fingerprint.to_string(), shown);
        assert_eq!(shown.to_lowercase().replace(':', "").parse(), Ok(fingerprint));
        for text in ["", "AB:CD", &shown[1..], &format!("{shown}0"), &shown.replace('E', "Ä")] {
            assert!(text.parse::<Fingerprint>().is_err(), "{text}");
        }
    }
}
