//! Makes the schema, or brings an older one up to date.
//!
//! `user_version` is the schema's version. A new store gets `schema.sql` as it stands; an older one goes through the numbered steps.
//! Either way everything happens in one transaction, so a crash leaves the version there was.

use std::path::Path;

use rusqlite::{Connection, Transaction, TransactionBehavior};

use super::rows::Trouble;
use crate::StoreError;

/// What `schema.sql` describes.
const VERSION: u32 = 4;

/// Marks the file as ours, for `file` and for the check below: the letters `Hstl`.
const APPLICATION_ID: i32 = 0x4873_746C;

/// Brings a store from the version before `to` up to it.
struct Step {
    to: u32,
    sql: &'static str,
}

/// Ended jobs and environments, which version 4 added as they are now.
const ENDED_JOBS: &str = include_str!("ended_jobs.sql");

/// In order, one for every version after the first.
const STEPS: &[Step] = &[
    Step { to: 2, sql: "ALTER TABLE ended_tasks ADD COLUMN parts BLOB" },
    Step { to: 3, sql: "ALTER TABLE ended_tasks ADD COLUMN usage BLOB" },
    Step { to: 4, sql: ENDED_JOBS },
];

/// What a file turns out to be.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    /// Nothing is in it.
    Empty,
    /// A store, with this version.
    Store(u32),
}

/// Reads what the file is, before anything is written to it.
pub(super) fn check(connection: &Connection, path: &Path) -> Result<(), StoreError> {
    found(connection, path).map(drop)
}

/// Makes the schema current.
pub(super) fn prepare(connection: &mut Connection, path: &Path) -> Result<(), StoreError> {
    let failed = |error| Trouble::Sqlite(error).at("prepare the schema of", path);
    match found(connection, path)? {
        Found::Store(VERSION) => Ok(()),
        Found::Store(version) => migrate(connection, version, STEPS).map_err(failed),
        Found::Empty => create(connection).map_err(failed),
    }
}

fn found(connection: &Connection, path: &Path) -> Result<Found, StoreError> {
    let read = |pragma: &str| connection.pragma_query_value(None, pragma, |row| row.get::<_, i32>(0));
    let identify = || {
        let tables: i64 = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
        Ok((read("application_id")?, read("user_version")?, tables))
    };
    let (application, version, tables) = identify().map_err(|error| Trouble::Sqlite(error).at("read", path))?;
    let not_ours = |why: &str| Err(StoreError::NotAStore { path: path.to_owned(), why: why.to_owned() });
    match (application, u32::try_from(version), tables) {
        (0, Ok(0), 0) => Ok(Found::Empty),
        (APPLICATION_ID, Ok(found), _) if found > VERSION => {
            Err(StoreError::Newer { path: path.to_owned(), found, supported: VERSION })
        }
        (APPLICATION_ID, Ok(version), _) if version > 0 => Ok(Found::Store(version)),
        (APPLICATION_ID, _, _) => not_ours("its schema version makes no sense"),
        _ => not_ours("it is the database of another program"),
    }
}

fn create(connection: &mut Connection) -> rusqlite::Result<()> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    transaction.execute_batch(include_str!("schema.sql"))?;
    transaction.execute_batch(ENDED_JOBS)?;
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    finish(transaction, VERSION)
}

fn migrate(connection: &mut Connection, from: u32, steps: &[Step]) -> rusqlite::Result<()> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let mut version = from;
    for step in steps.iter().filter(|step| step.to > from) {
        transaction.execute_batch(step.sql)?;
        version = step.to;
        tracing::info!(version, "migrated the store");
    }
    finish(transaction, version)
}

fn finish(transaction: Transaction<'_>, version: u32) -> rusqlite::Result<()> {
    transaction.pragma_update(None, "user_version", version)?;
    transaction.commit()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MADE_UP: &[Step] = &[
        Step { to: 2, sql: "CREATE TABLE IF NOT EXISTS two (x INTEGER) STRICT" },
        Step { to: 3, sql: "CREATE TABLE IF NOT EXISTS three (x INTEGER) STRICT; INSERT INTO three VALUES (3)" },
    ];

    fn new_store() -> Connection {
        let mut connection = Connection::open_in_memory().expect("memory is there");
        prepare(&mut connection, Path::new("test")).expect("an empty database becomes a store");
        connection
    }

    fn version(connection: &Connection) -> u32 {
        connection.pragma_query_value(None, "user_version", |row| row.get(0)).expect("a store has a version")
    }

    fn tables(connection: &Connection) -> i64 {
        connection
            .query_row("SELECT count(*) FROM sqlite_schema WHERE name IN ('two', 'three')", [], |row| row.get(0))
            .expect("the schema can be read")
    }

    #[test]
    fn steps_are_numbered_up_to_the_version() {
        let numbers: Vec<u32> = STEPS.iter().map(|step| step.to).collect();
        assert_eq!(numbers, (1..VERSION).map(|before| before + 1).collect::<Vec<_>>());
    }

    #[test]
    fn a_store_goes_through_the_steps_it_lacks() {
        let mut connection = new_store();
        migrate(&mut connection, 1, MADE_UP).expect("both steps run");
        assert_eq!((version(&connection), tables(&connection)), (3, 2));

        let mut connection = new_store();
        migrate(&mut connection, 2, MADE_UP).expect("the last step runs");
        assert_eq!((version(&connection), tables(&connection)), (3, 1));
    }

    #[test]
    fn the_first_version_gets_what_the_current_one_has() {
        let mut connection = new_store();
        connection
            .execute_batch("ALTER TABLE ended_tasks DROP COLUMN parts; ALTER TABLE ended_tasks DROP COLUMN usage")
            .expect("as it was in version 1");
        connection.pragma_update(None, "user_version", 1).expect("it can be set");
        prepare(&mut connection, Path::new("test")).expect("an old store becomes a current one");
        connection.prepare("SELECT parts, usage FROM ended_tasks").expect("the columns are there");
        assert_eq!(version(&connection), VERSION);
    }

    #[test]
    fn a_step_that_fails_leaves_the_store_as_it_was() {
        let mut connection = new_store();
        let broken = [Step { to: 2, sql: MADE_UP[0].sql }, Step { to: 3, sql: "CREATE TABLE nonsense (" }];
        migrate(&mut connection, 1, &broken).expect_err("the second step is no SQL");
        assert_eq!((version(&connection), tables(&connection)), (VERSION, 0));
    }

    #[test]
    fn preparing_twice_changes_nothing() {
        let mut connection = new_store();
        prepare(&mut connection, Path::new("test")).expect("it is current");
        connection.execute_batch(include_str!("schema.sql")).expect("the schema is idempotent");
        assert_eq!(found(&connection, Path::new("test")).expect("it is a store"), Found::Store(VERSION));
    }

    #[test]
    fn what_is_newer_or_not_ours_is_refused() {
        let connection = new_store();
        connection.pragma_update(None, "user_version", VERSION + 1).expect("it can be set");
        let error = check(&connection, Path::new("test")).expect_err("it is newer");
        assert!(matches!(error, StoreError::Newer { found, supported: VERSION, .. } if found == VERSION + 1));

        let other = Connection::open_in_memory().expect("memory is there");
        other.execute_batch("CREATE TABLE theirs (x)").expect("any table will do");
        let error = check(&other, Path::new("test")).expect_err("it is not ours");
        assert!(matches!(error, StoreError::NotAStore { .. }));
    }
}
