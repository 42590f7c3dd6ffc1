//! What a project folder requires: its entry point, the Python versions that it accepts, and the packages to install.
//!
//! - [`check_entry`]: whether a folder has an entry point. For the client, before it captures the folder.
//! - [`survey`]: whether a node can install what the folder requires, and what the job does not get. For the client, too.
//! - [`detect`]: the [`Requirements`], with a fingerprint of all that they depend on. For the agent, which names
//!   environments by the fingerprint.
//!
//! The crate starts no program and writes nothing. Another user may control the folder, so the crate reads only regular
//! files inside it, within limits, and never blocks on one; see [`files`].

mod detect;
mod entry;
mod error;
pub mod files;
mod package;
mod plan;
mod poetry;
mod project;
mod pylock;
mod requirements;
mod script;
mod unread;
pub mod variables;

pub use detect::{Survey, detect, survey};
pub use entry::{EntryError, check_entry};
pub use error::{Bound, GoesOn, ProjectError, Stopped};
pub use plan::{Kind, Line, List, Local, OwnPackage, Plan, Requirements};
pub use project::{LOCK_BYTES, PROJECT_BYTES};
pub use unread::Unread;

#[cfg(test)]
mod tests;
