//! A real head and a real node on this machine: their files ([`places`]), settings ([`settings`]) and logs ([`log`]).
//!
//! The embedded cluster of `hostler up` has other places and no settings files; see [`crate::cluster`].

use nix::sys::stat::{Mode, umask};
use nix::unistd::geteuid;

pub(crate) mod log;
pub(crate) mod places;
pub(crate) mod settings;

/// Sets a permissive umask for root (022), because a stricter one would close parent directories to users. Private
/// files set their own mode.
pub(crate) fn ignore_umask_of_root() {
    if geteuid().is_root() {
        umask(Mode::S_IWGRP | Mode::S_IWOTH);
    }
}
