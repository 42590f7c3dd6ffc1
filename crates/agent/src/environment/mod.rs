//! Python environments: provides a cached environment for a staged project folder.
//!
//! [`detect`] reads a project's requirements, [`Cache::obtain`] returns a matching environment, and [`entry_command`]
//! builds the command that starts the entry point in it. An environment's name is a hash of its *content*:
//! requirements, interpreter, tool and package index. File names and times do not matter. The same requirements thus
//! always lead to the same environment, and changed ones never to a stale one. A ready environment costs a few file
//! reads and no process. A missing one is built once, even if many jobs need it at the same time. The commands of a
//! build run within the limits of the job that builds, see [`Runner`].
//!
//! All functions block and should be called on a blocking thread. The state consists only of files and kernel locks, so
//! threads, several agents, and an agent after a restart need no further coordination:
//!
//! ```text
//! <root>/tools.json                   properties of the interpreters and uv
//! <root>/locks/<key>                  shared lock: in use; exclusive lock: being built or removed; content: last failure
//! <root>/envs/<key>/ready             written last; without it, the environment is incomplete
//! <root>/envs/<key>/last_used         its modification time determines the eviction order
//! <root>/envs/<key>/users/<run>       pins of runs, which outlive the agent and its locks
//! <root>/envs/<key>/<attempt>/venv    the environment, built in place because environments cannot be moved
//! <root>/envs/<key>/<attempt>/python  the interpreter, if uv had to install one
//! <root>/downloads/{uv,pip,python}    caches of the tools, on the same file system so that uv can hard-link
//! ```
//!
//! On a node with several users, each user has a separate cache, see [`Environments`].
//!
//! Not supported: conda, Poetry and Pipenv files, installation of the project itself (a job runs in its folder), and
//! cache directories on network file systems (their locks are unreliable).

mod build;
mod cache;
mod collect;
mod detect;
mod entry;
mod files;
mod key;
mod runner;
mod tools;
mod users;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use hostler_model::format_bytes;
use serde::{Deserialize, Serialize};

pub use cache::{Cache, Lease, Settings};
pub use collect::{Collected, EnvironmentInfo};
pub use detect::{Kind, Requirements, detect, python_wanted};
pub use entry::{EntryCommand, entry_command};
pub use key::Key;
pub use runner::{Confined, Ended, Runner, Step, Stopped};
pub use users::Environments;

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
    /// A project file has invalid content.
    #[error("{file}: {problem}")]
    Project {
        /// The file, relative to the project folder.
        file: String,
        problem: String,
    },
    /// A project file, or the files that it includes, exceed a size limit.
    #[error("{file} is too large: {bound}")]
    TooLong {
        /// The file, relative to the project folder.
        file: String,
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
        /// Whether the settings allow uv to install a wanted version, but uv is missing.
        lacks_uv: bool,
    },
    /// An interpreter or uv exists but does not work.
    #[error("{} does not work: {problem}", program.display())]
    BrokenTool {
        program: PathBuf,
        /// Error of the program or the system.
        problem: String,
    },
    /// The project is locked by uv and the node has no uv.
    #[error("the project has a uv.lock, but uv is not installed on this node")]
    UvNeeded,
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
    #[error("path {} is not valid UTF-8", .0.display())]
    NotUtf8(PathBuf),
}

/// Why a build failed. It is stored as text, because jobs that waited for the build get the same error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum BuildError {
    /// A command of the build failed.
    #[error("building the environment failed: {command} {status}\n{output}")]
    Failed {
        /// Tool and subcommand, e.g. `uv pip install`.
        command: String,
        /// Exit status, e.g. `exited with 1`.
        status: String,
        /// The last lines of the command's output.
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
    /// The interpreter cannot create environments.
    #[error("{} cannot create environments: its venv or ensurepip module is missing", python.display())]
    VenvMissing {
        python: PathBuf,
        /// Debian package with the missing modules, e.g. `python3.11-venv`.
        package: String,
    },
    /// A command of the build reached the memory limit of the job.
    #[error("building the environment exceeded the job's memory limit of {}: {command}\n{output}", format_bytes(*limit_bytes))]
    OutOfMemory { command: String, limit_bytes: u64, output: String },
    /// The build, or waiting for another job's build, exceeded the time limit of the job.
    #[error("building the environment exceeded the job's time limit of {limit_secs} s\n{output}")]
    TimedOut { limit_secs: u64, output: String },
    /// Another system error during the build.
    #[error("building the environment failed: {0}")]
    System(String),
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
}

impl BuildError {
    /// Whether the limits of the building job caused the failure, so that a build for another job may succeed.
    pub fn is_of_the_builder(&self) -> bool {
        matches!(self, Self::OutOfMemory { .. } | Self::TimedOut { .. })
    }
}

impl EnvError {
    /// What the user or the node's operator can do, if known.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::OutsideProject { .. } => "only the project folder is copied to the node: move the file into it".into(),
            Self::NoPython { .. } => "install Python 3 on this node (Debian, Ubuntu: apt install python3)".into(),
            Self::PythonVersion { lacks_uv: true, .. } => {
                "install uv on the node, which may then install the required version, or change requires-python or .python-version".into()
            }
            Self::PythonVersion { .. } => {
                "change requires-python or .python-version, or ask an admin of the node to install a matching version \
                 (python3.N on the agent's PATH) or to let uv install it (install_python = true in agent.toml)".into()
            }
            Self::UvNeeded => {
                "install uv on the node, or replace uv.lock by `uv export --format requirements-txt -o requirements.txt`".into()
            }
            Self::Build(BuildError::VenvMissing { package, .. }) => {
                format!("install uv on this node, or the missing modules (Debian, Ubuntu: apt install {package})")
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
            Self::NotExecutable { entry } => format!("chmod +x {entry}"),
            Self::NoEntry { candidates, .. } if !candidates.is_empty() => {
                format!("the folder contains {}", candidates.join(", "))
            }
            Self::Io { .. }
            | Self::Project { .. }
            | Self::TooLong { .. }
            | Self::BrokenTool { .. }
            | Self::Build(BuildError::Failed { .. } | BuildError::System(_))
            | Self::Cancelled
            | Self::RunId(_)
            | Self::NoEntry { .. }
            | Self::NotUtf8(_) => return None,
        };
        Some(hint)
    }
}

/// Node features for the Python versions of this node, e.g. `python3.11`.
pub fn python_features(settings: &Settings) -> std::collections::BTreeSet<hostler_model::Feature> {
    tools::python_features(settings)
}

/// Path of the first program in `names` that exists on a search path.
pub(crate) fn first_on_path(names: &[&str], search_path: &std::ffi::OsStr) -> Option<PathBuf> {
    names.iter().find_map(|name| tools::which(name, search_path))
}

/// Adds the attempted action and the path to an I/O error.
trait IoContext<T> {
    fn context(self, action: &'static str, path: &Path) -> Result<T, EnvError>;
}

impl<T> IoContext<T> for io::Result<T> {
    fn context(self, action: &'static str, path: &Path) -> Result<T, EnvError> {
        self.map_err(|source| EnvError::Io { action, path: path.to_owned(), source })
    }
}

/// An error and its causes on one line.
fn one_line(error: &dyn std::error::Error) -> String {
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

#[cfg(test)]
mod tests;
