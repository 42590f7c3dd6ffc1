//! Opens a store after checking all preconditions.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use rusqlite::{Connection, OpenFlags};

use super::filesystem::{self, directory_of};
use super::lock::Lock;
use super::read::{BUSY_TIMEOUT, Pool};
use super::reserve;
use super::rows::SqlError;
use super::schema;
use super::write::SqliteStore;
use crate::StoreError;

/// The oldest safe SQLite version. Earlier versions can lose committed pages when one connection checkpoints while
/// another writes.
const SAFE_SQLITE: (i32, &str) = (3_051_003, "3.51.3");

/// Options for opening a store. The default suits a local disk.
#[derive(Debug, Clone, Copy, Default)]
pub struct OpenOptions {
    allow_network_filesystem: bool,
}

impl OpenOptions {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Allows NFS, SMB and similar file systems with a warning instead of [`StoreError::NetworkFilesystem`]. On such a
    /// file system, any loss of the connection can damage the store.
    #[must_use]
    pub const fn allow_network_filesystem(mut self, allow: bool) -> Self {
        self.allow_network_filesystem = allow;
        self
    }

    /// Opens the database `path`, or creates it with mode 0600. Its directory must exist. Creates `-wal`, `-shm` and
    /// `.lock` files with the same prefix.
    ///
    /// # Errors
    /// [`StoreError::InUse`] while another head uses it; [`StoreError::Newer`], [`StoreError::Older`],
    /// [`StoreError::NotAStore`], [`StoreError::NetworkFilesystem`]; or the disk or SQLite fails.
    pub fn open(self, path: &Path) -> Result<SqliteStore, StoreError> {
        check_sqlite(rusqlite::version_number(), rusqlite::version())?;
        filesystem::check(path, self.allow_network_filesystem)?;
        let lock = Lock::acquire(path)?;
        reserve::make_files(path)?;
        let failed = |error| SqlError::Sqlite(error).at("open", path);
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut connection = Connection::open_with_flags(path, flags).map_err(failed)?;
        connection.busy_timeout(BUSY_TIMEOUT).map_err(failed)?;
        schema::check(&connection, path)?;
        configure(&connection).map_err(failed)?;
        schema::prepare(&mut connection, path)?;
        sync_directory(path)?;
        SqliteStore::new(connection, Arc::new(Pool::new(path)), lock)
    }
}

impl SqliteStore {
    /// Opens or creates the database `path` with the default [`OpenOptions`].
    ///
    /// # Errors
    /// The errors of [`OpenOptions::open`].
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        OpenOptions::new().open(path)
    }
}

fn check_sqlite(number: i32, found: &'static str) -> Result<(), StoreError> {
    let (oldest, required) = SAFE_SQLITE;
    if number < oldest { Err(StoreError::UnsafeSqlite { found, required }) } else { Ok(()) }
}

fn configure(connection: &Connection) -> rusqlite::Result<()> {
    connection.pragma_update(None, "journal_mode", "wal")?;
    // With WAL, FULL syncs the log once per commit; NORMAL would lose acknowledged commits in a power cut.
    connection.pragma_update(None, "synchronous", "full")?;
    // No automatic checkpoints: the writer checkpoints after acknowledging commits.
    connection.pragma_update(None, "wal_autocheckpoint", 0)?;
    // Truncates an oversized WAL. Below this size it stays, because overwriting a file is cheaper than growing it.
    connection.pragma_update(None, "journal_size_limit", 16 << 20)?;
    connection.pragma_update(None, "cell_size_check", true)?;
    connection.pragma_update(None, "trusted_schema", false)?;
    // A negative value is in KiB. 4 MiB are enough for the pages that writes touch: the end of the log and recent
    // history.
    connection.pragma_update(None, "cache_size", -4096)?;
    connection.set_prepared_statement_cache_capacity(32);
    Ok(())
}

/// Makes the names of new files durable.
fn sync_directory(path: &Path) -> Result<(), StoreError> {
    let directory = directory_of(path);
    File::open(directory)
        .and_then(|directory| directory.sync_all())
        .map_err(|error| StoreError::io("sync", directory, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bundled_sqlite_is_accepted_and_an_older_version_is_refused() {
        check_sqlite(rusqlite::version_number(), rusqlite::version()).expect("the bundled SQLite is recent");
        check_sqlite(3_051_003, "3.51.3").expect("the version is fixed");
        let error = check_sqlite(3_051_002, "3.51.2").expect_err("the version has the bug");
        assert_eq!(error.to_string(), "SQLite 3.51.2 can lose committed data, at least 3.51.3 is needed");
    }

    #[test]
    fn every_commit_is_synced() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let connection = Connection::open(directory.path().join("x.db")).expect("a new database can be opened");
        configure(&connection).expect("all settings are known");
        let number = |pragma| {
            connection.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0)).expect("a number can be read")
        };
        let mode: String = connection.pragma_query_value(None, "journal_mode", |row| row.get(0)).expect("a mode");
        assert_eq!((mode.as_str(), number("synchronous"), number("wal_autocheckpoint")), ("wal", 2, 0));
    }
}
