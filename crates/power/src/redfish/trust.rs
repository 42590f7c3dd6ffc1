//! Which certificate is a controller's own.
//!
//! Controllers sign their certificates themselves, often with odd names and dates, and some in a form that is older than browsers accept.
//! So nothing counts but the key: the certificate must be the one that the operator has seen, and whoever shows it must have its key.

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

/// SHA-256 of a certificate's DER, written as `openssl x509 -fingerprint -sha256` does: `AB:CD:…`; colons may be left out.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// That of a certificate.
    #[must_use]
    pub fn of(certificate_der: &[u8]) -> Self {
        let digest = ::ring::digest::digest(&::ring::digest::SHA256, certificate_der);
        Self(digest.as_ref().try_into().expect("SHA-256 has 32 bytes"))
    }
}

impl FromStr for Fingerprint {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let error =
            || ParseError::new(text, "a SHA-256 fingerprint: 32 pairs of hexadecimal digits, such as `AB:CD:…`");
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

/// Whose certificates are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Trust {
    /// This one alone.
    Pinned(Fingerprint),
    /// None: it is only looked at.
    Nobody,
    /// Any: the operator has said so.
    Anybody,
}

/// For one connection; the verifier says afterwards which certificate was shown.
pub(crate) fn client(trust: Trust) -> (Arc<ClientConfig>, Arc<Verifier>) {
    let provider = Arc::new(ring::default_provider());
    let verifier = Arc::new(Verifier::new(trust, &provider));
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the ring provider supports them")
        .dangerous()
        .with_custom_certificate_verifier(Arc::clone(&verifier) as Arc<dyn ServerCertVerifier>)
        .with_no_client_auth();
    config.resumption = Resumption::disabled();
    (Arc::new(config), verifier)
}

/// Takes certificates by their fingerprint.
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

    /// The certificate that was shown, if it was not taken.
    pub(crate) fn turned_away(&self) -> Option<Fingerprint> {
        self.seen.get().copied().filter(|seen| !self.takes(*seen))
    }

    fn takes(&self, fingerprint: Fingerprint) -> bool {
        match self.trust {
            Trust::Pinned(pinned) => fingerprint == pinned,
            Trust::Nobody => false,
            Trust::Anybody => true,
        }
    }

    /// That the other side has the key of its certificate. The certificate's form does not matter for that.
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
        // What TLS 1.3 has banned, it has banned in certificates and handshakes alike.
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
    fn fingerprints_are_those_of_openssl() {
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
