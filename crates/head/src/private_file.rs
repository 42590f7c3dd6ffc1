//! Configuration files with secrets, which only root and the head's user may read.

use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use hostler_model::quote_advice;
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// A text that must not appear in logs or answers.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub(crate) struct Secret(pub(crate) String);

/// Why the head does not use a file.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FileError {
    #[error("cannot read {}: {error}", path.display())]
    Unreadable { path: PathBuf, error: io::Error },
    #[error("{} is ignored: {why}", path.display())]
    Wrong { path: PathBuf, why: String },
}

/// Reads and parses a file. Returns `None` if the file does not exist.
pub(crate) fn read<T>(path: &Path, parse: impl FnOnce(&str) -> Result<T, String>) -> Result<Option<T>, FileError> {
    let unreadable = |error| FileError::Unreadable { path: path.to_owned(), error };
    let wrong = |why: String| FileError::Wrong { path: path.to_owned(), why };
    let mut file = match std::fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unreadable(error)),
    };
    let metadata = file.metadata().map_err(unreadable)?;
    check_access(metadata.uid(), metadata.mode(), path).map_err(wrong)?;
    let mut text = String::new();
    file.read_to_string(&mut text).map_err(unreadable)?;
    parse(&text).map(Some).map_err(wrong)
}

/// Parses TOML. The error names the line but does not quote it, because it may hold a secret.
pub(crate) fn from_toml<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    toml::from_str(text).map_err(|error| match error.span() {
        Some(span) => {
            let advice = quote_advice(text, span.start).map(|advice| format!("; {advice}")).unwrap_or_default();
            format!("line {}: {}{advice}", 1 + text[..span.start].matches('\n').count(), error.message())
        }
        None => error.message().to_owned(),
    })
}

/// Checks the file's owner and mode.
fn check_access(uid: u32, mode: u32, path: &Path) -> Result<(), String> {
    if uid != 0 && uid != nix::unistd::geteuid().as_raw() {
        return Err("the file belongs to a user other than root and the head's user".to_owned());
    }
    if mode & 0o077 != 0 {
        return Err(format!("other users may read or change the file; run `chmod 600 {}`", path.display()));
    }
    Ok(())
}
