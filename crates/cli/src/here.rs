//! The directory in which the command was started.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use crate::failure::Failure;

/// The directory.
pub(crate) fn here() -> Result<PathBuf, Failure> {
    std::env::current_dir().map_err(|error| gone(&error))
}

/// The absolute path. Fails without the directory if the path is relative.
pub(crate) fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    std::path::absolute(path).map_err(|error| match path.as_os_str().is_empty() {
        true => Failure::usage("the path is empty"),
        false => gone(&error),
    })
}

/// Why the directory cannot be used.
pub(crate) fn gone(error: &io::Error) -> Failure {
    if error.kind() != ErrorKind::NotFound {
        return Failure::new("cannot use the current directory").because(error);
    }
    Failure::new("the current directory was deleted").hint("change to a directory that exists, e.g. with `cd`")
}
