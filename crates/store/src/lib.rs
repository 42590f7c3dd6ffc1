//! The head's durable memory.
//!
//! The head is event-sourced, and to this crate its events and snapshots are opaque bytes. A [`Store`] keeps three things: the
//! log (the latest snapshot and every event after it), the history (jobs that have ended, one row for each of their tasks that has, and the
//! environments of jobs that may run) and small blobs.
//! A [`Batch`] changes all three in one transaction, and a commit that has returned survives a crash.
//!
//! - [`SqliteStore`] is what a head uses; [`MemoryStore`] is for tests and the simulator, and can be told to fail.
//! - [`Queue`] and [`Committer`] decide which commits share a transaction, and what a failure stops.
//! - [`Writer`] drives them on the one thread that writes. It puts the batches that wait into one transaction (group commit), since a
//!   transaction costs one fsync whether it holds one batch or two hundred.
//! - [`Reader`] answers queries about history and blobs, from any thread, beside the writer.
//!
//! Everything here blocks: an asynchronous caller hands the writer callbacks and reads on threads where blocking is allowed.
//! Nothing here knows what an event means, decides what to keep, or compresses anything. Large chunks are files, not blobs.

mod commits;
mod ended;
mod error;
mod memory;
mod reader;
mod sqlite;
mod store;
mod writer;

pub use commits::{Committer, Queue, Request, Work};
pub use ended::{EndedPage, JobFilter};
pub use error::StoreError;
pub use hostler_proto::stored::{Batch, Change, EndedJob, KeptResults, Loaded, Snapshot};
pub use memory::{Fault, MemoryStore};
pub use reader::{Reader, Records};
pub use sqlite::{OpenOptions, SqliteStore};
pub use store::Store;
pub use writer::{Commit, Done, Full, Stats, Writer};
