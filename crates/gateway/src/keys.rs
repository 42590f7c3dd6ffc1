//! WireGuard keys: 32 bytes on Curve25519, encoded in base64.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use curve25519_dalek::montgomery::MontgomeryPoint;
use serde::{Deserialize, Serialize};

/// A private key. It has no `Display`, and its `Debug` output does not contain the key.
#[derive(Clone, PartialEq, Eq)]
pub struct PrivateKey([u8; 32]);

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PublicKey([u8; 32]);

/// The text is not a key. The error does not repeat it, because it may be a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a WireGuard key, which is 32 bytes in base64")]
pub struct KeyError;

impl PrivateKey {
    /// Generates a key.
    #[must_use]
    pub fn generate() -> Self {
        Self::from_bytes(hostler_sys::random())
    }

    /// Creates a key from bytes, with the fixed bits of Curve25519 set as by `wg genkey`.
    #[must_use]
    pub fn from_bytes(mut bytes: [u8; 32]) -> Self {
        bytes[0] &= 248;
        bytes[31] = (bytes[31] & 127) | 64;
        Self(bytes)
    }

    #[must_use]
    pub fn public(&self) -> PublicKey {
        PublicKey(MontgomeryPoint::mul_base_clamped(self.0).to_bytes())
    }

    /// The key in base64, for files that only their owner can read.
    #[must_use]
    pub fn to_text(&self) -> String {
        STANDARD.encode(self.0)
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PrivateKey")
    }
}

impl FromStr for PrivateKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        decode(text).map(Self::from_bytes)
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&STANDARD.encode(self.0))
    }
}

impl FromStr for PublicKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        decode(text).map(Self)
    }
}

impl TryFrom<String> for PublicKey {
    type Error = KeyError;

    fn try_from(text: String) -> Result<Self, KeyError> {
        text.parse()
    }
}

impl From<PublicKey> for String {
    fn from(key: PublicKey) -> Self {
        key.to_string()
    }
}

fn decode(text: &str) -> Result<[u8; 32], KeyError> {
    let bytes = STANDARD.decode(text.trim()).map_err(|_| KeyError)?;
    bytes.try_into().map_err(|_| KeyError)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 7748, section 5.2, first iteration: the scalar 9 and the base point.
    #[test]
    fn public_key_matches_the_test_vector() {
        let mut nine = [0; 32];
        nine[0] = 9;
        let expected = "422c8e7a6227d7bca1350b3e2bb7279f7897b87bb6854b783c60e80311ae3079";
        let public: String = PrivateKey::from_bytes(nine).public().0.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(public, expected);
    }

    #[test]
    fn keys_round_trip_and_debug_hides_secrets() {
        let key = PrivateKey::generate();
        assert_eq!(key.to_text().parse(), Ok(key.clone()));
        assert_eq!(key.public().to_string().parse(), Ok(key.public()));
        assert_eq!(format!("{key:?}"), "PrivateKey");
        assert_ne!(PrivateKey::generate(), key);
        for wrong in ["", "abc", "AAAA", "not base64 at all, although it is rather long"] {
            assert_eq!(wrong.parse::<PublicKey>(), Err(KeyError));
        }
    }
}
