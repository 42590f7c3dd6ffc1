//! Errors of reading a project folder.

use std::io;
use std::path::{Path, PathBuf};

use hostler_model::format_bytes;

/// Why the requirements of a project cannot be read. [`ProjectError::hint`] suggests a remedy.
#[derive(Debug, thiserror::Error)]
pub enum ProjectError {
    /// A file operation failed.
    #[error("cannot {action} {}", path.display())]
    Io {
        /// Attempted action, as a verb.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// A project file has invalid content.
    #[error("{file}: {problem}")]
    Invalid {
        /// The file, relative to the project folder.
        file: String,
        /// What is wrong.
        problem: String,
    },
    /// A project file, or the files that it includes, exceed a size limit.
    #[error("{file} is too large: {bound}")]
    TooLong {
        /// The file, relative to the project folder.
        file: String,
        /// The exceeded limit.
        bound: Bound,
    },
    /// A project file refers to a path outside the project folder, which is not copied to the node.
    #[error("{file} refers to {target}, which is outside the project folder")]
    OutsideProject {
        /// The file, relative to the project folder.
        file: String,
        /// The path as written.
        target: String,
    },
    /// Reading was stopped before its end.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

impl ProjectError {
    /// What the user can do, if known.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::OutsideProject { .. } => Some("only the project folder is copied to the node: move the file into it"),
            Self::TooLong { bound: Bound::LocalBytes(_), .. } => Some(
                "leave data out of the folder with .hostlerignore, and install large packages from an index, or from a URL with \
                 their hash (NAME @ https://...#sha256=...)",
            ),
            Self::Io { .. } | Self::Invalid { .. } | Self::TooLong { .. } | Self::Stopped(_) => None,
        }
    }
}

/// Size limits for files that describe a project, because the agent reads them outside the limits of the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Bound {
    /// Bytes of one file.
    #[error("more than {}", format_bytes(*.0))]
    Bytes(u64),
    /// Bytes of a script up to the end of its inline metadata.
    #[error("its `# /// script` block does not end within {}", format_bytes(*.0))]
    ScriptBytes(u64),
    /// Bytes of all requirements files and their includes.
    #[error("requirements files and their includes have more than {} in total", format_bytes(*.0))]
    RequirementsBytes(u64),
    /// Lines of all requirements files and their includes.
    #[error("requirements files and their includes have more than {0} lines in total")]
    RequirementsLines(usize),
    /// Bytes of all files whose content is part of the key of an environment.
    #[error("the local files that the environment depends on have more than {} in total", format_bytes(*.0))]
    LocalBytes(u64),
}

/// Why a job no longer needs what is being read or built for it.
#[derive(Debug, thiserror::Error)]
pub enum Stopped {
    /// The job was cancelled.
    #[error("the job was cancelled")]
    Cancelled,
    /// The job reached its time limit.
    #[error("the job reached its time limit of {limit_secs} s")]
    TimedOut {
        /// The time limit of the job.
        limit_secs: u64,
    },
    /// A system error.
    #[error(transparent)]
    System(#[from] io::Error),
}

/// Checks whether the job should continue. Called often while large files are read.
pub type GoesOn<'a> = &'a dyn Fn() -> Result<(), Stopped>;

/// Adds action and path to an I/O error.
pub(crate) trait IoContext<T> {
    fn context(self, action: &'static str, path: &Path) -> Result<T, ProjectError>;
}

impl<T> IoContext<T> for io::Result<T> {
    fn context(self, action: &'static str, path: &Path) -> Result<T, ProjectError> {
        self.map_err(|source| ProjectError::Io { action, path: path.to_owned(), source })
    }
}
