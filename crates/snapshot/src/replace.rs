//! Replacing a file as a whole.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Puts `bytes` in the place of the file at `path`, for its owner's eyes: a reader sees the old or the new, however many write at
/// once. It is not flushed, so a power cut may leave either, or a damaged one.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = path.with_added_extension(format!("{}.new", std::process::id()));
    let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
    file.write_all(bytes)?;
    fs::rename(&temporary, path)
}
