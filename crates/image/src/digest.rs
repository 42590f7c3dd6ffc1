//! SHA-256 digests.

use std::fmt;
use std::io::{self, Read};
use std::str::FromStr;

use ring::digest::{Context, SHA256, digest};

/// A SHA-256 digest, as text `sha256:` and 64 lowercase hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Sha256([u8; 32]);

impl Sha256 {
    /// Computes the digest of these bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self::from_ring(&digest(&SHA256, bytes))
    }

    /// Returns the digest without `sha256:`, as a plain file name.
    #[must_use]
    pub fn hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn from_ring(found: &ring::digest::Digest) -> Self {
        Self(found.as_ref().try_into().expect("SHA-256 has 32 bytes"))
    }
}

impl fmt::Display for Sha256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", self.hex())
    }
}

/// A text that is no SHA-256 digest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not `sha256:` and 64 lowercase hexadecimal digits")]
pub struct NoDigest(String);

impl FromStr for Sha256 {
    type Err = NoDigest;

    fn from_str(text: &str) -> Result<Self, NoDigest> {
        let wrong = || NoDigest(text.chars().take(80).collect());
        let hex = text.strip_prefix("sha256:").ok_or_else(wrong)?;
        let is_hex = |byte: &u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(byte);
        if hex.len() != 64 || !hex.as_bytes().iter().all(is_hex) {
            return Err(wrong());
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(hex.as_bytes().chunks(2)) {
            let pair = std::str::from_utf8(pair).map_err(|_| wrong())?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| wrong())?;
        }
        Ok(Self(bytes))
    }
}

/// Computes the digest of bytes that arrive in parts.
#[derive(Clone)]
pub struct Hasher(Context);

impl Default for Hasher {
    fn default() -> Self {
        Self(Context::new(&SHA256))
    }
}

impl Hasher {
    /// Adds bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Returns the digest of all bytes.
    #[must_use]
    pub fn finish(self) -> Sha256 {
        Sha256::from_ring(&self.0.finish())
    }
}

/// A reader that computes the digest of what passes, and fails beyond a number of bytes.
pub(crate) struct Hashing<R> {
    inner: R,
    hasher: Hasher,
    /// Number of bytes that may still pass.
    left: u64,
}

impl<R: Read> Hashing<R> {
    pub(crate) fn new(inner: R, most_bytes: u64) -> Self {
        Self { inner, hasher: Hasher::default(), left: most_bytes }
    }

    /// Reads the rest, and returns the digest of all bytes.
    pub(crate) fn finish(mut self) -> io::Result<Sha256> {
        io::copy(&mut self, &mut io::sink())?;
        Ok(self.hasher.finish())
    }
}

impl<R: Read> Read for Hashing<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(into)?;
        self.left = self.left.checked_sub(read as u64).ok_or(io::ErrorKind::FileTooLarge)?;
        self.hasher.update(&into[..read]);
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digest_has_one_form() {
        let text = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(Sha256::of(b"").to_string(), text);
        assert_eq!(text.parse(), Ok(Sha256::of(b"")));
        assert_eq!(Hashing::new(&b"abc"[..], 3).finish().expect("readable"), Sha256::of(b"abc"));
        for wrong in ["", "sha256:", "sha512:00", &text[..70], &text.to_uppercase(), "sha256:../../../etc/passwd"] {
            assert!(wrong.parse::<Sha256>().is_err(), "{wrong}");
        }
    }
}
