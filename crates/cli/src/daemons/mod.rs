//! A real head and a real node on this machine: where their files are ([`places`]), what is set about them ([`settings`]), and what
//! they write down ([`log`]).
//!
//! The embedded cluster of `hostler up` has places of its own and no settings files; see [`crate::cluster`].

use nix::sys::stat::{Mode, umask};
use nix::unistd::geteuid;

pub(crate) mod log;
pub(crate) mod places;
pub(crate) mod settings;

/// Has what root makes from now on the permissions that are asked for, but for others' writing, whatever umask root has: closed directories
/// above those of a head or a node would shut users out of what is theirs. What is nobody's business asks for that.
pub(crate) fn ignore_umask_of_root() {
    if geteuid().is_root() {
        umask(Mode::S_IWGRP | Mode::S_IWOTH);
    }
}
