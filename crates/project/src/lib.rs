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
mod poetry;
mod pylock;
mod requirements;
mod unread;
pub mod variables;

pub use detect::{Kind, LOCK_BYTES, OwnPackage, PROJECT_BYTES, Plan, Requirements, Survey, detect, survey};
pub use entry::{EntryError, check_entry};
pub use error::{Bound, GoesOn, ProjectError, Stopped};
pub use requirements::{Line, List, Local};
pub use unread::Unread;

#[cfg(test)]
mod tests;
