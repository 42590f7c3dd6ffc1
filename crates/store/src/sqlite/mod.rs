//! The store on disk: one SQLite database, with SQLite compiled in.
//!
//! - `schema.sql` is the whole schema; [`schema`] makes it or brings an older one up to date.
//! - [`open`] holds all that must be true before the first byte is written: a safe SQLite, a safe filesystem, one head.
//! - [`mod@write`] is the one connection that writes and checkpoints; [`read`] is a small pool of connections that only read.
//! - [`reserve`] is room on the disk that the store has before it needs it.
//! - [`rows`] is the one place that knows how values become columns.
//!
//! Rules that the code relies on: WAL with `synchronous=FULL`, so a commit that returned is on disk; checkpoints by the writer
//! alone; short read transactions, since a long one keeps the WAL growing. The file never shrinks, its free pages are used
//! again. Do not open a live store for writing with another tool: older SQLite releases lose data in WAL mode.

mod filesystem;
mod lock;
mod open;
mod read;
mod reserve;
mod rows;
mod schema;
mod write;

pub use open::OpenOptions;
pub use write::SqliteStore;
