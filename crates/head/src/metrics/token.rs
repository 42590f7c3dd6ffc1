//! The token with which a program may read `/metrics`, and nothing else.
//!
//! The head writes it to a file on its first start. Logins expire after hours, which does not suit a program that
//! scrapes for months. To replace the token, delete the file and restart the head.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context, bail};
use hostler_model::Digest;

use crate::blobs::name_of;
use crate::login::secret;
use crate::trust::replace_file;

/// Name of the file in the head's directory.
const FILE: &str = "metrics.token";

/// Minimum length of a token that an operator wrote to the file.
const MIN_LEN: usize = 16;

/// The token's hash. Comparing hashes reveals nothing about the token by its duration.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Token(Digest);

impl Token {
    /// Reads the token from its file, or creates one.
    ///
    /// # Errors
    /// The file cannot be read or written, or its content is too short.
    pub(crate) fn obtain(directory: &Path) -> anyhow::Result<Self> {
        let path = directory.join(FILE);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let text = secret() + "\n";
                replace_file(&path, text.as_bytes(), 0o600)?;
                text
            }
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
        };
        let token = text.trim();
        if token.len() < MIN_LEN {
            bail!(
                "the token in {} has fewer than {MIN_LEN} characters; delete the file to get a new one",
                path.display()
            );
        }
        Ok(Self(name_of(token.as_bytes())))
    }

    /// The token's hash, if the value of a header `Authorization` contains the token.
    pub(crate) fn shown_in(&self, authorization: &[u8]) -> Option<Digest> {
        let shown = name_of(authorization.strip_prefix(b"Bearer ")?);
        (shown == self.0).then_some(shown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_stays_until_its_file_is_deleted() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join(FILE);
        let first = Token::obtain(directory.path()).expect("writable");
        let text = fs::read_to_string(&path).expect("written");
        assert_eq!(fs::metadata(&path).expect("written").permissions().mode() & 0o777, 0o600);
        let shown = format!("Bearer {}", text.trim());
        let is_in = |token: Token, shown: &[u8]| token.shown_in(shown).is_some();
        assert!(is_in(first, shown.as_bytes()) && !is_in(first, text.as_bytes()) && !is_in(first, b"Bearer "));
        assert!(is_in(Token::obtain(directory.path()).expect("readable"), shown.as_bytes()));
        fs::remove_file(&path).expect("written");
        assert!(!is_in(Token::obtain(directory.path()).expect("writable"), shown.as_bytes()));
        fs::write(&path, "short\n").expect("writable");
        assert!(Token::obtain(directory.path()).expect_err("short").to_string().contains("metrics.token"));
    }
}
