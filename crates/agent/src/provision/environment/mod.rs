//! Python environments: provides a cached environment for a staged project folder.
//!
//! [`detect`](hostler_project::detect) reads a project's requirements, [`Cache::obtain`] returns a matching environment, and [`entry_command`]
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
//! <root>/downloads/{uv,python}        caches of uv, on the same file system so that it can hard-link
//! ```
//!
//! uv builds all environments. [`uv`] gets it for a node that has none; [`pip`] hands over pip's settings of indexes.
//!
//! On a node with several users, each user has a separate cache, see [`Environments`]. Sandboxed jobs of a user have another one,
//! whose commands all run in sandboxes.
//!
//! A project that is a package is installed too: a package of pure Python as editable, so that each job imports the source
//! in its own folder, and others as copies.
//!
//! Not supported: conda, Poetry and Pipenv files, and cache directories on network file systems (their locks are unreliable).

mod build;
mod cache;
mod cause;
mod collect;
mod entry;
mod error;
mod files;
mod key;
mod pip;
mod runner;
mod settings;
mod tools;
mod users;
mod uv;

pub use cache::{Cache, Lease};
pub use collect::{Collected, EnvironmentInfo};
pub use entry::{EntryCommand, entry_command, entry_command_in_image};
pub use error::{BuildError, EnvError};
pub use hostler_project::Stopped;
pub use key::Key;
pub use runner::{Confined, Ended, Runner, Step};
pub use settings::{BuildSandbox, Settings};
pub(crate) use tools::first_on_path;
pub use tools::python_features;
pub use users::Environments;

#[cfg(test)]
mod tests;
