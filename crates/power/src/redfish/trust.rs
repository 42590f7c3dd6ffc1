//! Verification of a controller's certificate.
//!
//! Controllers use self-signed certificates, often with odd names and dates, and some in formats that browsers reject.
//! Only two things therefore count: the certificate must have the configured fingerprint, and the controller must have
//! its private key.

use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, OnceLock};

use hostler_model::ParseError;
use hostler_tls::Verifier;
use rustls::ClientConfig;
use rustls::client::Resumption;
use serde::{Deserialize, Serialize};

/// SHA-256 fingerprint of a certificate in DER form. The format is that of `openssl x509 -fingerprint -sha256`:
/// `AB:CD:…`; colons are optional.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    #[must_use]
    pub fn of(certificate_der: &[u8]) -> Self {
        let digest = ring::digest::digest(&ring::digest::SHA256, certificate_der);
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
    RejectAll,
    /// Accepts any certificate, as the operator has configured.
    AcceptAny,
}

impl Trust {
    fn takes(self, fingerprint: Fingerprint) -> bool {
        match self {
            Self::Pinned(pinned) => fingerprint == pinned,
            Self::RejectAll => false,
            Self::AcceptAny => true,
        }
    }
}

/// TLS configuration for one connection, and the place for the fingerprint of a rejected certificate.
pub(crate) fn client(trust: Trust) -> (Arc<ClientConfig>, Arc<OnceLock<Fingerprint>>) {
    let rejected = Arc::new(OnceLock::new());
    let record = Arc::clone(&rejected);
    let verifier = Verifier::certificate(move |certificate| {
        let seen = Fingerprint::of(certificate);
        let is_trusted = trust.takes(seen);
        if !is_trusted {
            record.get_or_init(|| seen);
        }
        is_trusted
    });
    let mut config = hostler_tls::client(verifier).with_no_client_auth();
    config.resumption = Resumption::disabled();
    (Arc::new(config), rejected)
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
