//! The store on disk: one SQLite database, with SQLite compiled in.
//!
//! - `schema.sql` is the whole schema; [`schema`] creates it and refuses other versions.
//! - [`open`] checks all preconditions before the first write: a safe SQLite, a safe file system, one head.
//! - [`mod@write`] is the only connection that writes and checkpoints; [`read`] is a small pool of read-only
//!   connections.
//! - [`reserve`] reserves disk space for the store in advance.
//! - [`rows`] converts values to columns and back.
//!
//! The code relies on these rules. WAL with `synchronous=FULL` makes a completed commit durable. Only the writer
//! checkpoints. Read transactions are short, because a long one keeps the WAL growing. The file never shrinks, but
//! its free pages are reused. Do not open a live store for writing with another tool: older SQLite releases lose data
//! in WAL mode.

mod accounting;
mod filesystem;
mod jobs;
mod lock;
mod open;
mod read;
mod reserve;
mod rows;
mod schema;
mod write;

pub use open::OpenOptions;
pub use write::SqliteStore;
