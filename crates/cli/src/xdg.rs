//! The user's directories, by the XDG base directory specification, which requires that relative paths are ignored.

use std::path::PathBuf;

/// Returns the path in the environment variable, or `below_home` in the home directory if the variable has no absolute
/// path.
pub(crate) fn directory(variable: &str, below_home: &str) -> Option<PathBuf> {
    absolute(variable).or_else(|| Some(absolute("HOME")?.join(below_home)))
}

/// Returns the path in an environment variable, if it is absolute.
pub(crate) fn absolute(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute())
}
