//! The user's directories, by the XDG base directory specification: relative paths in its variables count for nothing.

use std::path::PathBuf;

/// The directory that `variable` names, or the one below the home directory that stands in for it.
pub(crate) fn directory(variable: &str, below_home: &str) -> Option<PathBuf> {
    absolute(variable).or_else(|| Some(absolute("HOME")?.join(below_home)))
}

/// The absolute path in an environment variable.
pub(crate) fn absolute(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute())
}
