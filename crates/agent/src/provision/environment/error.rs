//! Errors of environments.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use hostler_model::format_bytes;
use hostler_project::{ProjectError, Stopped};
use hostler_sys::MARKED;
use serde::{Deserialize, Serialize};

/// Why an environment or the entry point cannot be provided. [`EnvError::hint`] suggests a remedy.
#[derive(Debug, thiserror::Error)]
pub enum EnvError {
    /// A file operation of the cache or on the project failed.
    #[error("cannot {action} {}", path.display())]
    Io {
        /// Attempted action, as a verb.
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    /// A file of the project cannot be used.
    #[error(transparent)]
    Project(ProjectError),
    /// No Python interpreter was found.
    #[error("no python3 on this node (looked in {searched})")]
    NoPython {
        /// Search path, or the configured interpreter.
        searched: String,
    },
    /// No interpreter has a version that the project accepts.
    #[error(
        "the project requires Python {wanted}, and this node has {}",
        if found.is_empty() { "none".to_owned() } else { found.join(", ") }
    )]
    PythonVersion {
        /// Versions from `requires-python` and `.python-version`.
        wanted: String,
        /// Versions of the interpreters that the job's user can start.
        found: Vec<String>,
    },
    /// An interpreter or uv exists but does not work.
    #[error("{} does not work: {problem}", program.display())]
    BrokenTool {
        program: PathBuf,
        /// Error of the program or the system.
        problem: String,
    },
    /// The node has no uv, and pip could not get it.
    #[error("this node has no uv, which installs packages, and could not get it: {why}")]
    NoUv { why: String },
    /// The build failed, here or in another job that built the same environment.
    #[error(transparent)]
    Build(#[from] BuildError),
    #[error("cancelled while preparing the environment")]
    Cancelled,
    /// The run id cannot be used as a file name.
    #[error("run id {0:?} is not a plain file name")]
    RunId(String),
    /// The entry point is neither a file of the project nor a command.
    #[error("entry point {entry} is neither a file in the project folder nor a command on this node")]
    NoEntry {
        entry: String,
        /// Python files in the folder that the user may have meant.
        candidates: Vec<String>,
    },
    #[error("entry point {entry} is not executable")]
    NotExecutable { entry: String },
    #[error("cannot run entry point {entry}: {MARKED}")]
    Marked { entry: String },
    #[error("path {} is not valid UTF-8", .0.display())]
    NotUtf8(PathBuf),
}

/// Why a build failed. It is stored as text, because jobs that waited for the build get the same error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum BuildError {
    /// A command of the build failed.
    #[error(
        "building the environment failed: {command} {status}{}{cause}",
        if cause.is_empty() { "" } else { ": " }
    )]
    Failed {
        /// Tool and subcommand, e.g. `uv pip install`.
        command: String,
        /// Exit status, e.g. `exited with 1`.
        status: String,
        /// The line of the output that states the cause.
        cause: String,
        /// The last lines of the output, for the setup logs of jobs that waited for the build.
        output: String,
    },
    /// The file system of the cache is full.
    #[error("no space left for environments in {} ({} MiB free)", path.display(), free_bytes / (1024 * 1024))]
    DiskFull {
        /// Root directory of the cache.
        path: PathBuf,
        /// Free space right after the failure.
        free_bytes: u64,
    },
    /// A command of the build reached the memory limit of the job.
    #[error("building the environment exceeded the job's memory limit of {}: {command}", format_bytes(*limit_bytes))]
    OutOfMemory { command: String, limit_bytes: u64 },
    /// The build, or waiting for another job's build, exceeded the time limit of the job.
    #[error("building the environment exceeded the job's time limit of {limit_secs} s")]
    TimedOut { limit_secs: u64 },
    /// Another system error during the build.
    #[error("building the environment failed: {0}")]
    System(String),
}

impl BuildError {
    /// Whether the limits of the building job caused the failure, so that another job may succeed.
    pub fn is_of_the_builder(&self) -> bool {
        matches!(self, Self::OutOfMemory { .. } | Self::TimedOut { .. })
    }
}

impl EnvError {
    /// What the user or the node's operator can do, if known.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Project(error) => return error.hint().map(str::to_owned),
            Self::NoPython { .. } => "install Python 3 on this node (Debian, Ubuntu: apt install python3)".into(),
            Self::PythonVersion { .. } => {
                "change requires-python or .python-version, or ask an admin of the node to install one (python3.N on the agent's PATH) \
                 or to let uv install it (install_python = true in agent.toml)".into()
            }
            Self::NoUv { .. } => {
                "the node's admin can install uv, or name one in agent.toml ([environment] uv = \"/opt/uv\"), or let pip get it: with \
                 pip or venv (Debian, Ubuntu: apt install python3-venv) and a package index in /etc/pip.conf".into()
            }
            Self::Build(BuildError::DiskFull { path, .. }) => {
                format!("free some space on the file system of {}, or lower the size limit of the cache", path.display())
            }
            Self::Build(BuildError::OutOfMemory { .. }) => {
                "environments are built within the limits of the job: request more with --memory".into()
            }
            Self::Build(BuildError::TimedOut { .. }) => {
                "the time limit of the job includes building: request more with --time; a built environment is kept".into()
            }
            Self::Build(BuildError::Failed { output, .. }) if output.contains("--index-strategy") => {
                "uv takes a package from the first index that has it; to consider all indexes as pip does, submit with \
                 --env UV_INDEX_STRATEGY=unsafe-best-match, or set index-strategy in [tool.uv] or uv.toml".into()
            }
            Self::Build(BuildError::Failed { cause, .. }) if cause.contains("unable to detect version") => {
                "the version comes from git: include its history with a line !.git/ in .hostlerignore, or submit with \
                 --env SETUPTOOLS_SCM_PRETEND_VERSION=1.0".into()
            }
            Self::Build(BuildError::Failed { .. }) => "`hostler logs --setup` shows the output of the build".into(),
            Self::NotExecutable { entry } => format!("chmod +x {entry}"),
            Self::NoEntry { candidates, .. } if !candidates.is_empty() => {
                format!("the folder contains {}", candidates.join(", "))
            }
            Self::Io { .. }
            | Self::BrokenTool { .. }
            | Self::Build(BuildError::System(_))
            | Self::Cancelled
            | Self::RunId(_)
            | Self::NoEntry { .. }
            | Self::Marked { .. }
            | Self::NotUtf8(_) => return None,
        };
        Some(hint)
    }
}

impl From<ProjectError> for EnvError {
    fn from(error: ProjectError) -> Self {
        match error {
            ProjectError::Stopped(Stopped::Cancelled) => Self::Cancelled,
            ProjectError::Stopped(Stopped::TimedOut { limit_secs }) => BuildError::TimedOut { limit_secs }.into(),
            error => Self::Project(error),
        }
    }
}

/// Converts the reason why a job was stopped to the error of the build; `root` is the cache's directory.
pub(super) fn explain(stopped: Stopped, root: &Path) -> EnvError {
    match stopped {
        Stopped::System(error) => system_error(root, &error),
        stopped => ProjectError::from(stopped).into(),
    }
}

/// Adds action and path to an I/O error.
pub(super) trait IoContext<T> {
    fn context(self, action: &'static str, path: &Path) -> Result<T, EnvError>;
}

impl<T> IoContext<T> for io::Result<T> {
    fn context(self, action: &'static str, path: &Path) -> Result<T, EnvError> {
        self.map_err(|source| EnvError::Io { action, path: path.to_owned(), source })
    }
}

/// An error and its causes on one line.
pub(super) fn one_line(error: &dyn std::error::Error) -> String {
    struct Chain<'a>(&'a dyn std::error::Error);
    impl fmt::Display for Chain<'_> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "{}", self.0)?;
            let mut cause = self.0.source();
            while let Some(error) = cause {
                write!(f, ": {error}")?;
                cause = error.source();
            }
            Ok(())
        }
    }
    Chain(error).to_string()
}

/// Converts a system error during a build to an error that can be stored for waiting jobs.
pub(super) fn system_error(root: &Path, error: &io::Error) -> EnvError {
    let error = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => disk_full(root),
        _ => BuildError::System(error.to_string()),
    };
    error.into()
}

pub(super) fn disk_full(root: &Path) -> BuildError {
    BuildError::DiskFull { path: root.to_owned(), free_bytes: free_bytes(root) }
}

/// Free space in bytes; zero if no file can be created. An unknown size counts as unlimited.
pub(super) fn free_bytes(root: &Path) -> u64 {
    match nix::sys::statvfs::statvfs(root) {
        // Some file systems have no fixed number of files and report zero.
        Ok(stat) if stat.files() > 0 && stat.files_available() == 0 => 0,
        Ok(stat) => stat.blocks_available() * stat.fragment_size(),
        Err(_) => u64::MAX,
    }
}
