//! A real head and a real node on this machine: their files ([`places`]), settings ([`settings`]) and logs ([`log`]).
//!
//! The embedded cluster of `hostler up` has other places and no settings files; see [`crate::cluster`].

use nix::sys::stat::{Mode, umask};

use crate::failure::Failure;

pub(crate) mod log;
pub mod places;

/// Begins a daemon, before it creates any file: only this user can access its files, and its log goes to standard error.
pub fn begin() -> Result<(), Failure> {
    keep_files_private();
    log::log_to_stderr()
}

/// Makes new files and directories accessible for this user only, whatever the umask of the caller. What others must
/// access sets its mode, e.g. by `hostler_sys::create_directory`. Jobs have the umask of their users.
pub fn keep_files_private() {
    umask(Mode::S_IRWXG | Mode::S_IRWXO);
}
