//! Python environments: from a laid-out project folder to a cached environment on this node.
//!
//! [`detect`] reads what a project asks for, [`Cache::obtain`] answers with an environment that holds exactly that, and
//! [`entry_command`] says how the entry point is started with it. An environment is named by a hash of its *content*
//! (what is asked for, which interpreter, which tool, which package index), never by file name or time, so the same
//! question always finds the same environment and a changed one never finds a stale one. A ready environment costs a
//! few file reads and no process; a missing one is built once, however many jobs ask at the same moment. Commands of a
//! build run within the limits of the job that builds, see [`Runner`].
//!
//! Everything here blocks and is meant for a blocking thread. State is files and kernel locks only, so several threads,
//! several agents and a restarted agent all agree without talking:
//!
//! ```text
//! <root>/tools.json                   what the interpreters and uv answered about themselves
//! <root>/locks/<key>                  shared lock: in use; exclusive lock: being built or removed; text: last failure
//! <root>/envs/<key>/ready             written last; an environment without it does not exist
//! <root>/envs/<key>/last_used         its modification time orders eviction
//! <root>/envs/<key>/users/<run>       pins: runs that outlive the agent and its locks
//! <root>/envs/<key>/<attempt>/venv    the environment, built in place because environments cannot be moved
//! <root>/envs/<key>/<attempt>/python  the interpreter, where uv had to install one
//! <root>/downloads/{uv,pip,python}    the tools' own caches, on the same filesystem so that uv can hard-link
//! ```
//!
//! On a node with several users each has a cache like this one, see [`Environments`].
//!
//! Deliberately absent: conda, Poetry and Pipenv files, installing the project itself (a job runs in its folder), and cache roots on
//! network filesystems, whose locks cannot be trusted.

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

/// Why there is no environment, or no way to start the entry point. [`EnvError::hint`] says what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum EnvError {
    /// A file operation of the cache or on the project failed.
    #[error("cannot {action} {}", path.display())]
    Io {
        /// What was tried, as a verb.
        action: &'static str,
        /// On which path.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A project file does not say what it should.
    #[error("{file}: {problem}")]
    Project {
        /// The file, relative to the project folder.
        file: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A project file has more than one may have, or with it the files that are read with it have.
    #[error("{file} is too long: {bound}")]
    TooLong {
        /// The file, relative to the project folder.
        file: String,
        /// How much there may be.
        bound: Bound,
    },
    /// A project file refers to something that does not travel with the project.
    #[error("{file} refers to {target}, which is outside the project folder")]
    OutsideProject {
        /// The file, relative to the project folder.
        file: String,
        /// What it refers to, as written.
        target: String,
    },
    /// No Python interpreter was found.
    #[error("no python3 on this node (looked in {searched})")]
    NoPython {
        /// The search path, or the configured interpreter.
        searched: String,
    },
    /// No interpreter is of a version that the project asks for.
    #[error("the project asks for Python {wanted}, and this node has {}", if found.is_empty() { "none".to_owned() } else { found.join(", ") })]
    PythonVersion {
        /// What `requires-python` and `.python-version` say.
        wanted: String,
        /// The versions of the interpreters that the job's user can start.
        found: Vec<String>,
        /// uv may install such a version, and is not there.
        lacks_uv: bool,
    },
    /// An interpreter or uv is there but does not work.
    #[error("{} does not work: {problem}", program.display())]
    BrokenTool {
        /// The program.
        program: PathBuf,
        /// Its own words, or the system's.
        problem: String,
    },
    /// The project is locked by uv and the node has no uv.
    #[error("the project has a uv.lock, and there is no uv on this node to install it")]
    UvNeeded,
    /// The build failed, here or in the job that was building the same environment.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// The caller's cancel flag was raised.
    #[error("cancelled while preparing the environment")]
    Cancelled,
    /// A run id that cannot name a pin.
    #[error("run id {0:?} is not a plain file name")]
    RunId(String),
    /// The entry point is neither in the project nor a command.
    #[error("entry point {entry} is neither a file in the project folder nor a command on this node")]
    NoEntry {
        /// The entry point as given.
        entry: String,
        /// Python files of the folder that may have been meant.
        candidates: Vec<String>,
    },
    /// The entry point is a file that cannot be executed.
    #[error("entry point {entry} is not executable")]
    NotExecutable {
        /// The entry point as given.
        entry: String,
    },
    /// A path that cannot be passed on as text.
    #[error("path {} is not valid UTF-8", .0.display())]
    NotUtf8(PathBuf),
}

/// Why a build failed: kept as text, because the jobs that waited for it get the same answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum BuildError {
    /// A command of the build ended badly.
    #[error("building the environment failed: {command} {status}\n{output}")]
    Failed {
        /// The tool and its verb, such as `uv pip install`.
        command: String,
        /// How it ended, such as `exited with 1`.
        status: String,
        /// The last lines of its output.
        output: String,
    },
    /// The filesystem of the cache is full.
    #[error("no space left for environments in {} ({} MiB free)", path.display(), free_bytes / (1024 * 1024))]
    DiskFull {
        /// The cache root.
        path: PathBuf,
        /// What the filesystem had free right after the failure.
        free_bytes: u64,
    },
    /// The interpreter cannot make environments.
    #[error("{} cannot create environments: its venv or ensurepip module is missing", python.display())]
    VenvMissing {
        /// The interpreter.
        python: PathBuf,
        /// The Debian package that has the modules, such as `python3.11-venv`.
        package: String,
    },
    /// A command of the build reached the memory limit of the job that builds.
    #[error("building the environment needed more memory than the job's {}: {command}\n{output}", format_bytes(*limit_bytes))]
    OutOfMemory {
        /// The tool and its verb.
        command: String,
        /// The job's limit.
        limit_bytes: u64,
        /// The last lines of its output.
        output: String,
    },
    /// Building, or waiting for another job's build, used up the time limit of the job.
    #[error("building the environment used up the job's time limit of {limit_secs} s\n{output}")]
    TimedOut {
        /// The job's limit.
        limit_secs: u64,
        /// The last lines of the build's output.
        output: String,
    },
    /// Anything else the system refused while building.
    #[error("building the environment failed: {0}")]
    System(String),
}

/// How much may be read of what describes a project: the agent reads it outside the limits of the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Bound {
    /// Bytes of this file.
    #[error("more than {}", format_bytes(*.0))]
    Bytes(u64),
    /// Bytes of the inline metadata of a script, and of what is before it.
    #[error("its `# /// script` block does not end within {}", format_bytes(*.0))]
    ScriptBytes(u64),
    /// Bytes of requirements files with everything that they include.
    #[error("requirements files and all that they include have more than {} together", format_bytes(*.0))]
    RequirementsBytes(u64),
    /// Lines of requirements files with everything that they include.
    #[error("requirements files and all that they include have more than {0} lines together")]
    RequirementsLines(usize),
}

impl BuildError {
    /// Whether the limits of the job that built are to blame: another job's may do.
    pub fn is_of_the_builder(&self) -> bool {
        matches!(self, Self::OutOfMemory { .. } | Self::TimedOut { .. })
    }
}

impl EnvError {
    /// What the user or the node's operator can do, if anything is known to help.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::OutsideProject { .. } => "only the project folder is copied to the node: move the file into it".into(),
            Self::NoPython { .. } => "install Python 3 on this node (Debian, Ubuntu: apt install python3)".into(),
            Self::PythonVersion { lacks_uv: true, .. } => {
                "install uv on the node, which may install the versions that projects ask for, or change requires-python or .python-version".into()
            }
            Self::PythonVersion { .. } => {
                "change requires-python or .python-version, or ask an admin of the node to install one (python3.N on the agent's PATH) \
                 or to let uv install it (install_python = true in agent.toml)".into()
            }
            Self::UvNeeded => {
                "install uv on the node, or replace uv.lock by `uv export --format requirements-txt -o requirements.txt`".into()
            }
            Self::Build(BuildError::VenvMissing { package, .. }) => {
                format!("install uv on this node, or the missing modules (Debian, Ubuntu: apt install {package})")
            }
            Self::Build(BuildError::DiskFull { path, .. }) => {
                format!("free some space on the filesystem of {}, or lower the cap of the cache", path.display())
            }
            Self::Build(BuildError::OutOfMemory { .. }) => {
                "an environment is built within the limits of the job: ask for more with --memory".into()
            }
            Self::Build(BuildError::TimedOut { .. }) => {
                "building counts against the time limit of the job: ask for more with --time; a built environment is kept".into()
            }
            Self::NotExecutable { entry } => format!("chmod +x {entry}"),
            Self::NoEntry { candidates, .. } if !candidates.is_empty() => {
                format!("the folder has {}", candidates.join(", "))
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

/// The features by which the versions of Python of this node are known to the cluster, with the interpreters of these settings.
pub fn python_features(settings: &Settings) -> std::collections::BTreeSet<hostler_model::Feature> {
    tools::python_features(settings)
}

/// The first of these programs on a search path.
pub(crate) fn first_on_path(names: &[&str], search_path: &std::ffi::OsStr) -> Option<PathBuf> {
    names.iter().find_map(|name| tools::which(name, search_path))
}

/// Adds what was tried, and on what, to an I/O error.
trait IoContext<T> {
    fn context(self, action: &'static str, path: &Path) -> Result<T, EnvError>;
}

impl<T> IoContext<T> for io::Result<T> {
    fn context(self, action: &'static str, path: &Path) -> Result<T, EnvError> {
        self.map_err(|source| EnvError::Io { action, path: path.to_owned(), source })
    }
}

/// The part of `error` and its causes that fits on one line.
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
