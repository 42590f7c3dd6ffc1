//! Figures over time of nodes and tasks, in a database of their own.
//!
//! The figures explain what happened and decide nothing. So the database is never synced to disk: after a power cut, a
//! damaged database is deleted and begins empty. All calls block.
//!
//! | table | contents |
//! | --- | --- |
//! | `subject` | the nodes, and the parts of tasks on each of their nodes |
//! | `minute` | one row for each subject and minute that is not in a block yet |
//! | `block` | compressed values: hours of minutes and days of ten minutes for nodes, one block for a task's part |
//!
//! **Bounds.** A value takes six bytes, and one to three for its measured time (see [`curve`]). A node keeps minutes for [`MINUTE_DAYS`] days, then ten
//! minutes for [`TEN_MINUTE_DAYS`] days. A task's part has at most [`TASK_SLOTS`] values of each metric: when they are
//! full, they are merged in pairs. If the database grows beyond [`MOST_BYTES`] and [`MOST_BYTES_OF_NODE`](tables::MOST_BYTES_OF_NODE) for each node,
//! the figures of the oldest jobs are deleted.

mod curve;
mod resample;
mod tables;

use std::ffi::OsString;
use std::fs::{self, OpenOptions, Permissions};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hostler_model::{JobId, NodeName, TaskId};
use rusqlite::{Connection, ErrorCode, Transaction, TransactionBehavior};

pub use self::curve::Curve;
pub use self::resample::resample;
use self::tables::Tables;
pub use self::tables::{MINUTE_DAYS, Measured, Subject, TASK_SLOTS, TEN_MINUTE_DAYS};
use crate::StoreError;

/// Above this size, and some for each node, the figures of the jobs with the lowest ids are deleted.
const MOST_BYTES: u64 = 2 << 30;

/// The database with figures over time.
pub struct Series {
    path: PathBuf,
    connection: Mutex<Connection>,
}

impl Series {
    /// Opens the database `path`. If it is damaged or of another version, deletes it and begins with an empty one.
    ///
    /// # Errors
    /// The database can be neither opened nor created.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let connection = open(path).or_else(|error| {
            tracing::warn!(path = %path.display(), %error, "cannot read the figures over time; beginning with none");
            remove(path);
            open(path).map_err(|error| describe(error, "open", path))
        })?;
        Ok(Self { path: path.to_owned(), connection: Mutex::new(connection) })
    }

    /// Creates a database in memory.
    ///
    /// # Errors
    /// There is not enough memory.
    pub fn in_memory() -> Result<Self, StoreError> {
        let path = PathBuf::from(":memory:");
        let connection = open(&path).map_err(|error| describe(error, "create", &path))?;
        Ok(Self { path, connection: Mutex::new(connection) })
    }

    /// Stores figures, all or none. Figures of an earlier attempt of a task are ignored, and those of a later attempt
    /// replace the earlier ones. Figures of the same subject and minute are merged.
    ///
    /// # Errors
    /// The disk or SQLite fails.
    pub fn record(&self, measured: &[Measured]) -> Result<(), StoreError> {
        self.change("write to", |tables| measured.iter().try_for_each(|one| tables.record(one)))
    }

    /// Figures of a node that overlap a span, in minutes since the Unix epoch, oldest first.
    ///
    /// # Errors
    /// The disk or SQLite fails.
    pub fn of_node(&self, node: &NodeName, from: u64, to: u64) -> Result<Vec<Curve>, StoreError> {
        self.read(|tables| match tables.find(&tables::name_of_node(node))? {
            Some((id, _)) => tables.curves(id, from, to),
            None => Ok(Vec::new()),
        })
    }

    /// Figures of the last run of a task, on the node with this rank, oldest first.
    ///
    /// # Errors
    /// The disk or SQLite fails.
    pub fn of_task(&self, task: TaskId, rank: u32) -> Result<Vec<Curve>, StoreError> {
        self.read(|tables| match tables.find(&tables::name_of_task(task, rank))? {
            Some((id, _)) => tables.curves(id, 0, u64::MAX),
            None => Ok(Vec::new()),
        })
    }

    /// Merges old values and deletes those that are too old. `now` is in minutes since the Unix epoch. Expected once an
    /// hour.
    ///
    /// # Errors
    /// The disk or SQLite fails.
    pub fn maintain(&self, now: u64) -> Result<(), StoreError> {
        // Several short transactions, so that other calls do not wait long.
        let mut after = Some(0);
        while let Some(last) = after {
            after = self.change("write to", |tables| tables.maintain_after(last, now))?;
        }
        while self.change("write to", |tables| tables.shrink(MOST_BYTES))? {}
        Ok(())
    }

    /// Jobs with figures, by id after `after`, at most `limit`.
    ///
    /// # Errors
    /// The disk or SQLite fails.
    pub fn jobs(&self, after: Option<JobId>, limit: usize) -> Result<Vec<JobId>, StoreError> {
        self.read(|tables| tables.jobs(after.map_or(0, |job| job.0), limit))
    }

    /// Deletes the figures of jobs.
    ///
    /// # Errors
    /// The disk or SQLite fails.
    pub fn forget(&self, jobs: &[JobId]) -> Result<(), StoreError> {
        self.change("write to", |tables| jobs.iter().try_for_each(|job| tables.forget(*job)))
    }

    /// Size of the stored values and of the database file, in bytes.
    ///
    /// # Errors
    /// The disk or SQLite fails.
    pub fn size(&self) -> Result<(u64, u64), StoreError> {
        self.read(|tables| tables.size_of(&["minute", "block"]))
    }

    fn read<T>(&self, read: impl Fn(&Tables<'_>) -> rusqlite::Result<T>) -> Result<T, StoreError> {
        let mut connection = self.connection();
        let outcome = connection.transaction().and_then(|transaction| read(&Tables::of(&transaction)));
        outcome.map_err(|error| self.failed(&mut connection, "read", error))
    }

    fn change<T>(
        &self,
        doing: &'static str,
        change: impl FnOnce(&Tables<'_>) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        let mut connection = self.connection();
        let outcome = connection.transaction_with_behavior(TransactionBehavior::Immediate).and_then(|transaction| {
            let value = change(&Tables::of(&transaction))?;
            Transaction::commit(transaction)?;
            Ok(value)
        });
        outcome.map_err(|error| self.failed(&mut connection, doing, error))
    }

    /// Describes an error. Replaces a damaged database by an empty one.
    fn failed(&self, connection: &mut Connection, doing: &'static str, error: rusqlite::Error) -> StoreError {
        if is_damage(&error) {
            tracing::warn!(path = %self.path.display(), %error, "the figures over time are damaged; beginning with none");
            remove(&self.path);
            match open(&self.path) {
                Ok(empty) => *connection = empty,
                Err(error) => tracing::warn!(%error, "cannot create a new database for figures over time"),
            }
        }
        describe(error, doing, &self.path)
    }

    fn connection(&self) -> MutexGuard<'_, Connection> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn open(path: &Path) -> rusqlite::Result<Connection> {
    make_private(path);
    let mut connection = Connection::open(path)?;
    connection.pragma_update(None, "journal_mode", "wal")?;
    // A power cut may damage the database, which then begins empty.
    connection.pragma_update(None, "synchronous", "off")?;
    connection.pragma_update(None, "cell_size_check", true)?;
    connection.pragma_update(None, "trusted_schema", false)?;
    // In KiB, because negative.
    connection.pragma_update(None, "cache_size", -4096)?;
    connection.pragma_update(None, "journal_size_limit", 16 << 20)?;
    tables::prepare(&mut connection)?;
    Ok(connection)
}

/// Creates a missing database empty, for this user only. Closes one that an earlier release has left readable for others.
/// If that fails, opening the database says why.
fn make_private(path: &Path) {
    // Never opens an existing database: closing it would drop the locks that SQLite holds on it in this process.
    let _ = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    for file in files(path) {
        let _ = fs::set_permissions(file, Permissions::from_mode(0o600));
    }
}

fn remove(path: &Path) {
    for file in files(path) {
        // A file that cannot be removed is reported when the database is opened.
        let _ = fs::remove_file(file);
    }
}

/// The files of a database.
fn files(path: &Path) -> [OsString; 3] {
    ["", "-wal", "-shm"].map(|suffix| {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        name
    })
}

fn describe(error: rusqlite::Error, doing: &'static str, path: &Path) -> StoreError {
    StoreError::Sqlite { doing, path: path.to_owned(), source: Arc::new(error) }
}

fn is_damage(error: &rusqlite::Error) -> bool {
    let code = error.sqlite_error_code();
    code.is_some_and(|code| matches!(code, ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase))
}
