//! Paths in messages.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

/// Maximum number of paths sent with one command, in either direction.
pub const MOST_PATHS: usize = 1000;

/// Paths in a message: absolute, of bounded length and number.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Paths(Vec<ByteBuf>);

impl Paths {
    /// Returns the valid paths.
    #[must_use]
    pub fn to_vec(&self) -> Vec<PathBuf> {
        const LONGEST: usize = 4096;
        let is_sound = |bytes: &&ByteBuf| bytes.starts_with(b"/") && bytes.len() < LONGEST && !bytes.contains(&0);
        let path = |bytes: &ByteBuf| PathBuf::from(OsString::from_vec(bytes.to_vec()));
        self.0.iter().take(MOST_PATHS).filter(is_sound).map(path).collect()
    }
}

impl FromIterator<PathBuf> for Paths {
    fn from_iter<I: IntoIterator<Item = PathBuf>>(paths: I) -> Self {
        Self(paths.into_iter().take(MOST_PATHS).map(|path| path.into_os_string().into_vec().into()).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_travels_is_looked_at() {
        let long = format!("/{}", "e".repeat(5000));
        let all: Paths = ["/a", "b", "/c\0d", &long].into_iter().map(PathBuf::from).collect();
        assert_eq!(all.to_vec(), [PathBuf::from("/a")]);
        assert_eq!((0..2 * MOST_PATHS).map(|_| "/a".into()).collect::<Paths>().to_vec().len(), MOST_PATHS);
    }
}
