//! What a store knows of its whole files.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

use hostler_model::Digest;

use crate::beneath::Stat;

/// The store's state of whole files.
#[derive(Debug, Default)]
pub(super) struct WholeFiles {
    /// Set after a clone has failed, for example because folders are laid out on another file system.
    pub(super) is_off: AtomicBool,
    pub(super) known: Mutex<HashMap<Digest, Known>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Known {
    /// The content was laid out once.
    Seen,
    /// A thread is writing the whole file.
    BeingMade,
    /// The content of the whole file was verified when the file had these metadata.
    Right(Stat),
}
