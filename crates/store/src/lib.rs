//! The head's durable storage.
//!
//! The head is event-sourced. For this crate, its events and snapshots are opaque bytes. A [`Store`] keeps a log, a
//! history and small blobs. The log is the latest snapshot and every event after it. The history is ended jobs, one
//! row per ended task, and the environments of jobs that may run. A [`Batch`] changes all three in one transaction,
//! and a completed commit survives a crash.
//!
//! - [`SqliteStore`] is for a head; [`MemoryStore`] is for tests and the simulator, and can inject faults.
//! - [`Queue`] and [`Committer`] decide which commits share a transaction, and what a failure stops.
//! - [`Writer`] drives them on the only thread that writes. It puts the waiting batches into one transaction (group
//!   commit), because a transaction costs one fsync for one batch or for two hundred.
//! - [`Reader`] answers queries about history and blobs, from any thread, concurrently with the writer.
//!
//! [`series`] keeps figures over time, in a database of its own that may be lost.
//!
//! All calls block. An asynchronous caller passes callbacks to the writer and reads on threads that may block. The
//! crate does not interpret events, decide what to keep, or compress data. Large chunks are files, not blobs.

mod accounting;
mod commits;
mod ended;
mod error;
mod memory;
mod reader;
pub mod series;
mod sqlite;
mod store;
mod writer;

pub use accounting::{GroupedSums, History, HistoryFilter, Sums, SumsFilter, day_of};
pub use commits::{Committer, Queue, Request, Work};
pub use ended::{EndedPage, JobFilter};
pub use error::StoreError;
pub use hostler_proto::stored::{Batch, Change, EndedJob, KeptResults, Loaded, MessageKey, Snapshot, StoredMessage};
pub use memory::{Fault, MemoryStore};
pub use reader::{Reader, Records};
pub use sqlite::{OpenOptions, SqliteStore};
pub use store::Store;
pub use writer::{Commit, Done, Full, Stats, Writer};
