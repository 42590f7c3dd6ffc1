//! Creates the schema of a new store, and refuses a store of another version.
//!
//! `user_version` is the schema's version. A release that can read stores of the previous version migrates them here, in one
//! transaction.

use std::path::Path;

use rusqlite::{Connection, TransactionBehavior};

use super::rows::SqlError;
use crate::StoreError;

/// Version of `schema.sql` and of the bytes that the head stores in it.
const VERSION: u32 = 8;

/// Identifies the file as a store, for the program `file` and for [`check`]: the letters `Hstl`.
const APPLICATION_ID: i32 = 0x4873_746C;

/// The state of a database file.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    Empty,
    /// A store whose schema has the current version.
    Store,
}

/// Checks, before the first write, that the file is empty or a store of this version.
pub(super) fn check(connection: &Connection, path: &Path) -> Result<(), StoreError> {
    found(connection, path).map(drop)
}

/// Creates the schema in an empty database. Adds missing tables to a store of an earlier build.
pub(super) fn prepare(connection: &mut Connection, path: &Path) -> Result<(), StoreError> {
    let failed = |error| SqlError::Sqlite(error).at("prepare the schema of", path);
    match found(connection, path)? {
        Found::Store => connection.execute_batch(include_str!("schema.sql")).map_err(failed),
        Found::Empty => create(connection).map_err(failed),
    }
}

fn found(connection: &Connection, path: &Path) -> Result<Found, StoreError> {
    let read = |pragma: &str| connection.pragma_query_value(None, pragma, |row| row.get::<_, i32>(0));
    let identify = || {
        let tables: i64 = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
        Ok((read("application_id")?, read("user_version")?, tables))
    };
    let (application, version, tables) = identify().map_err(|error| SqlError::Sqlite(error).at("read", path))?;
    let not_ours = |why: &str| Err(StoreError::NotAStore { path: path.to_owned(), why: why.to_owned() });
    match (application, u32::try_from(version), tables) {
        (0, Ok(0), 0) => Ok(Found::Empty),
        (APPLICATION_ID, Ok(found), _) if found > VERSION => {
            Err(StoreError::Newer { path: path.to_owned(), found, supported: VERSION })
        }
        (APPLICATION_ID, Ok(VERSION), _) => Ok(Found::Store),
        (APPLICATION_ID, Ok(found), _) if found > 0 => {
            Err(StoreError::Older { path: path.to_owned(), found, supported: VERSION })
        }
        (APPLICATION_ID, _, _) => not_ours("the schema version in the file is invalid"),
        _ => not_ours("the file is the database of another program"),
    }
}

fn create(connection: &mut Connection) -> rusqlite::Result<()> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    transaction.execute_batch(include_str!("schema.sql"))?;
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.pragma_update(None, "user_version", VERSION)?;
    transaction.commit()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new_store() -> Connection {
        let mut connection = Connection::open_in_memory().expect("memory is available");
        prepare(&mut connection, Path::new("test")).expect("an empty database becomes a store");
        connection
    }

    #[test]
    fn preparing_twice_changes_nothing() {
        let mut connection = new_store();
        prepare(&mut connection, Path::new("test")).expect("the schema is current");
        connection.execute_batch(include_str!("schema.sql")).expect("the schema is idempotent");
        assert_eq!(found(&connection, Path::new("test")).expect("the database is a store"), Found::Store);
    }

    #[test]
    fn stores_of_other_versions_and_other_files_are_refused() {
        let connection = new_store();
        connection.pragma_update(None, "user_version", VERSION + 1).expect("the version can be set");
        let error = check(&connection, Path::new("test")).expect_err("the version is newer");
        assert!(matches!(error, StoreError::Newer { found, supported: VERSION, .. } if found == VERSION + 1));

        connection.pragma_update(None, "user_version", VERSION - 1).expect("the version can be set");
        let error = check(&connection, Path::new("test")).expect_err("the version is older").to_string();
        assert!(error.contains("version 7") && error.contains("start the older release again"), "{error}");

        let other = Connection::open_in_memory().expect("memory is available");
        other.execute_batch("CREATE TABLE theirs (x)").expect("the table can be created");
        let error = check(&other, Path::new("test")).expect_err("the file is not a store");
        assert!(matches!(error, StoreError::NotAStore { .. }));
    }
}
