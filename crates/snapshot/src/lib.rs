//! Folders as content-addressed data: capture, store, lay out, compare, deliver.
//!
//! The steps that a project folder goes through, by module:
//!
//! 1. [`capture`] walks the user's folder, hashes it in content-defined chunks ([`chunk`]) and returns a manifest. It
//!    does not read unchanged files that an earlier capture has [`Seen`]. Nothing is copied: [`Sources`] reads a
//!    chunk again, and checks it, only if the head lacks it.
//! 2. Chunks travel together as a [`pack`], each in its compressed [`wire`] form, and are kept in a [`ChunkStore`].
//! 3. [`lay_out`] writes the folder into a job's work directory and returns a [`Baseline`] of it.
//! 4. [`changes`] compares the directory with that baseline after the job; its [`Sources`] feed the upload.
//! 5. [`Delivery`] puts the results into the user's destination: whole files only, resumable.
//!
//! [`mirror`] is for remote commands on nodes without the caller's disk.
//!
//! Two rules hold everywhere. First, bytes are named by their BLAKE3 hash, and the hash is checked whenever they
//! arrive from a peer or from the disk. Second, a foreign manifest or directory is untrusted until it is checked:
//! paths are opened beneath a directory and never through a symbolic link.
//!
//! Out of scope: async (callers use a blocking pool), the network, owners' names, extended attributes and hard links
//! between captured files (each name becomes a separate file).

mod baseline;
mod beneath;
pub mod bounds;
mod capture;
mod changes;
pub mod check;
pub mod chunk;
mod deliver;
mod hashing;
mod ignores;
mod index_file;
mod layout;
mod marker;
pub mod mirror;
pub mod pack;
mod paths;
mod remove;
mod seen;
mod sources;
mod sparse;
mod store;
mod tracked;
mod undelivered;
mod walk;
pub mod wire;

pub use baseline::Baseline;
pub use bounds::TooMuch;
pub use capture::{Capture, CaptureError, CaptureOptions, Progress, Scan, capture};
pub use changes::{Changes, ChangesOptions, changes};
pub use deliver::{Delivered, Delivery, OnConflict, Property, TIME_OF_DELIVERY};
pub use ignores::{Ignored, LargestIgnored, LeftOut, LeftOutKind};
pub use layout::{LaidOut, LayoutError, LayoutOptions, lay_out};
pub use marker::{RESULTS_MARKER, mark_results};
pub use paths::{fault, show};
pub use remove::remove_tree;
pub use seen::Seen;
pub use sources::{SourceError, Sources};
pub use store::{ChunkStore, Freed, StoreError};
pub use undelivered::{Conflict, DeliveryError};
pub use walk::{Problem, ProblemReason};
