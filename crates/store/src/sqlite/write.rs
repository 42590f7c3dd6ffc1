//! The only connection that writes.

use std::sync::Arc;

use hostler_model::TaskId;
use hostler_proto::record::EndedTask;
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};

use super::jobs::{drop_environment, insert_environment, insert_job, remove_job, reopen_job};
use super::lock::Lock;
use super::read::Pool;
use super::rows::{SqlError, checksum, ended, insert_ended, select_ended, unsigned};
use crate::store::Tail;
use crate::{Batch, Change, Loaded, Reader, Snapshot, Store, StoreError, StoredMessage};

/// The number of log pages, 8 MiB, at which a checkpoint is due. Only pages that are not in the database yet count. The
/// limit keeps the log short for a restarted head, and thousands of commits share the cost of a checkpoint.
const CHECKPOINT_PAGES: i64 = 2048;

/// The number of log pages (256 MiB) above which the store warns that a reader blocks checkpoints.
const HUGE_LOG_PAGES: i64 = 65_536;

/// A store in one SQLite database.
#[derive(Debug)]
pub struct SqliteStore {
    connection: Connection,
    tail: Tail,
    readers: Arc<Pool>,
    /// Whether a failure of housekeeping was logged; it is logged once.
    complained: bool,
    /// The lock against other heads. Declared after the connection, so that no other head writes before the connection
    /// is closed.
    _lock: Lock,
}

impl SqliteStore {
    pub(super) fn new(connection: Connection, readers: Arc<Pool>, lock: Lock) -> Result<Self, StoreError> {
        let tail = read_tail(&connection).map_err(|error| SqlError::Sqlite(error).at("read", readers.path()))?;
        readers.reserve().hold();
        Ok(Self { connection, tail, readers, complained: false, _lock: lock })
    }

    /// Runs `work` in a transaction that either becomes durable or has no effect.
    fn transaction(&mut self, work: impl Fn(&Transaction<'_>) -> rusqlite::Result<()>) -> Result<(), StoreError> {
        match self.try_transaction(&work) {
            // After a complete checkpoint, the log is overwritten from its beginning, which needs no new space.
            Err(error) if error.is_disk_full() && self.checkpoint_all().is_ok_and(|is_all| is_all) => {
                self.try_transaction(&work)
            }
            outcome => outcome,
        }
    }

    fn try_transaction(&mut self, work: &impl Fn(&Transaction<'_>) -> rusqlite::Result<()>) -> Result<(), StoreError> {
        let Self { connection, readers, .. } = self;
        let mut run = || {
            // Immediate, because a transaction that starts as a reader might fail to become a writer.
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            work(&transaction)?;
            transaction.commit()
        };
        run().map_err(|error| SqlError::Sqlite(error).at("commit to", readers.path()))
    }

    /// Moves the whole log into the database, if the disk has space and no reader prevents it. Returns whether the
    /// whole log was moved.
    fn checkpoint_all(&self) -> rusqlite::Result<bool> {
        let size = self.checkpoint_pragma("PRAGMA wal_checkpoint(passive)")?;
        self.readers.reserve().hold();
        Ok(size.checkpointed >= size.pages)
    }

    /// Checkpoints when the log is long enough.
    fn checkpoint(&self) -> rusqlite::Result<LogSize> {
        let size = self.checkpoint_pragma("PRAGMA wal_checkpoint(noop)")?;
        if size.pages - size.checkpointed < CHECKPOINT_PAGES.min(self.readers.reserve().checkpoint_pages()) {
            return Ok(size);
        }
        // Passive: the checkpoint moves only pages that no reader needs, and never waits.
        let size = self.checkpoint_pragma("PRAGMA wal_checkpoint(passive)");
        // The checkpoint has used or freed the reserved space beyond the end of the database, so reserve it again.
        self.readers.reserve().hold();
        size
    }

    fn checkpoint_pragma(&self, sql: &str) -> rusqlite::Result<LogSize> {
        let mut statement = self.connection.prepare_cached(sql)?;
        statement.query_row([], |row| Ok(LogSize { pages: row.get(1)?, checkpointed: row.get(2)? }))
    }
}

/// Size of the write-ahead log, in pages.
struct LogSize {
    pages: i64,
    checkpointed: i64,
}

impl Store for SqliteStore {
    fn load(&mut self) -> Result<Loaded, StoreError> {
        let (tail, loaded) = load(&self.connection).map_err(|trouble| trouble.at("load", self.readers.path()))?;
        self.tail = tail;
        Ok(loaded)
    }

    fn commit_all(&mut self, batches: &[Batch]) -> Result<(), StoreError> {
        let tail = batches.iter().try_fold(self.tail, Tail::after)?;
        self.transaction(|transaction| batches.iter().try_for_each(|batch| write(transaction, batch)))?;
        self.tail = tail;
        Ok(())
    }

    fn save_snapshot(&mut self, sequence: u64, bytes: &[u8]) -> Result<(), StoreError> {
        let tail = self.tail.after_snapshot(sequence)?;
        self.transaction(|transaction| {
            transaction.prepare_cached("INSERT OR REPLACE INTO snapshot VALUES (1, ?1, ?2, ?3)")?.execute(params![
                sequence.cast_signed(),
                checksum(sequence, bytes),
                bytes
            ])?;
            transaction.prepare_cached("DELETE FROM events WHERE sequence <= ?1")?.execute([sequence.cast_signed()])?;
            Ok(())
        })?;
        self.tail = tail;
        Ok(())
    }

    fn maintain(&mut self) {
        let path = self.readers.path();
        let complaint = match self.checkpoint() {
            Ok(size) if size.pages > HUGE_LOG_PAGES => {
                Some(format!("a reader keeps {} pages in the write-ahead log", size.pages))
            }
            Ok(_) => None,
            // The log still has all commits, so nothing is lost. If the disk is full, the next commit reports it.
            Err(error) => Some(format!("could not checkpoint: {error}")),
        };
        if let Some(why) = &complaint
            && !self.complained
        {
            tracing::warn!(path = %path.display(), why, "the store's log grows");
        }
        self.complained = complaint.is_some();
    }

    fn reader(&self) -> Reader {
        Reader::new(Arc::clone(&self.readers))
    }
}

impl Drop for SqliteStore {
    /// Closes the idle readers first. The writer must close last, because the last connection to close checkpoints the
    /// log.
    fn drop(&mut self) {
        self.readers.close_idle();
    }
}

fn read_tail(connection: &Connection) -> rusqlite::Result<Tail> {
    let sql = "SELECT coalesce((SELECT sequence FROM snapshot), 0), coalesce((SELECT max(sequence) FROM events), 0)";
    connection.query_row(sql, [], |row| {
        let snapshot = unsigned(row, 0)?;
        Ok(Tail { snapshot, last: snapshot.max(unsigned(row, 1)?) })
    })
}

fn load(connection: &Connection) -> Result<(Tail, Loaded), SqlError> {
    // One transaction, so that all reads see the same state.
    let transaction = connection.unchecked_transaction()?;
    let mut loaded = Loaded { snapshot: load_snapshot(&transaction)?, events: Vec::new() };
    let mut statement = transaction
        .prepare_cached("SELECT sequence, checksum, bytes FROM events WHERE sequence >= ?1 ORDER BY sequence")?;
    let mut rows = statement.query([loaded.first_sequence().cast_signed()])?;
    while let Some(row) = rows.next()? {
        let (expected, found) = (loaded.next_sequence(), unsigned(row, 0)?);
        if found != expected {
            return Err(SqlError::damaged(
                format!("event {expected}"),
                format!("the event is missing, the next stored event is {found}"),
            ));
        }
        let bytes: Vec<u8> = row.get(2)?;
        check(&format!("event {found}"), found, row.get(1)?, &bytes)?;
        loaded.events.push(bytes);
    }
    let tail = Tail { snapshot: loaded.first_sequence() - 1, last: loaded.next_sequence() - 1 };
    Ok((tail, loaded))
}

fn load_snapshot(connection: &Connection) -> Result<Option<Snapshot>, SqlError> {
    let row = connection
        .query_row("SELECT sequence, checksum, bytes FROM snapshot", [], |row| {
            Ok((unsigned(row, 0)?, row.get(1)?, row.get::<_, Vec<u8>>(2)?))
        })
        .optional()?;
    let Some((sequence, expected, bytes)) = row else { return Ok(None) };
    check(&format!("the snapshot of event {sequence}"), sequence, expected, &bytes)?;
    Ok(Some(Snapshot { sequence, bytes }))
}

fn check(what: &str, sequence: u64, expected: i64, bytes: &[u8]) -> Result<(), SqlError> {
    if checksum(sequence, bytes) == expected {
        Ok(())
    } else {
        Err(SqlError::damaged(what, "the bytes do not match the checksum"))
    }
}

fn write(transaction: &Transaction<'_>, batch: &Batch) -> rusqlite::Result<()> {
    let mut insert =
        transaction.prepare_cached("INSERT INTO events (sequence, checksum, bytes) VALUES (?1, ?2, ?3)")?;
    for (sequence, event) in (batch.first_sequence..).zip(&batch.events) {
        insert.execute(params![sequence.cast_signed(), checksum(sequence, event), event])?;
    }
    batch.changes.iter().try_for_each(|change| apply(transaction, change))
}

/// Moves the row of an ended task to the earlier attempts. A damaged row stays, so that the next read reports it.
fn set_aside(transaction: &Transaction<'_>, task: TaskId) -> rusqlite::Result<()> {
    let place = params![task.job.0.cast_signed(), task.index];
    let row = transaction
        .prepare_cached(select_ended!("WHERE job = ?1 AND idx = ?2"))?
        .query_row(place, |row| Ok(ended(row)))
        .optional()?;
    let Some(Ok(row)) = row else { return Ok(()) };
    insert_earlier(transaction, &row)?;
    transaction.prepare_cached("DELETE FROM ended_tasks WHERE job = ?1 AND idx = ?2")?.execute(place)?;
    Ok(())
}

fn insert_earlier(transaction: &Transaction<'_>, task: &EndedTask) -> rusqlite::Result<()> {
    transaction
        .prepare_cached("INSERT OR REPLACE INTO earlier_attempts (job, idx, attempt, bytes) VALUES (?1, ?2, ?3, ?4)")?
        .execute(params![task.job.0.cast_signed(), task.index, task.attempt.0, hostler_proto::encode(task)])?;
    Ok(())
}

fn apply(transaction: &Transaction<'_>, change: &Change) -> rusqlite::Result<()> {
    match change {
        Change::Ended(task) => return insert_ended(transaction, task),
        Change::Reopened(task) => transaction
            .prepare_cached("DELETE FROM ended_tasks WHERE job = ?1 AND idx = ?2")?
            .execute(params![task.job.0.cast_signed(), task.index])?,
        Change::SetAside(task) => return set_aside(transaction, *task),
        Change::EarlierEnded(task) => return insert_earlier(transaction, task),
        Change::EarlierFetched(task, attempt) => transaction
            .prepare_cached("DELETE FROM earlier_attempts WHERE job = ?1 AND idx = ?2 AND attempt = ?3")?
            .execute(params![task.job.0.cast_signed(), task.index, attempt.0])?,
        Change::JobEnded(job) => return insert_job(transaction, job),
        Change::JobReopened(id) => return reopen_job(transaction, *id),
        Change::Environment { job, digest, bytes } => return insert_environment(transaction, *job, digest, bytes),
        Change::Forgotten(job) => {
            remove_job(transaction, *job)?;
            drop_environment(transaction, *job)?;
            transaction
                .prepare_cached("DELETE FROM earlier_attempts WHERE job = ?1")?
                .execute([job.0.cast_signed()])?;
            transaction.prepare_cached("DELETE FROM ended_tasks WHERE job = ?1")?.execute([job.0.cast_signed()])?
        }
        Change::PutBlob(digest, bytes) => transaction
            .prepare_cached("INSERT OR IGNORE INTO blobs (digest, bytes) VALUES (?1, ?2)")?
            .execute(params![digest.0.as_slice(), bytes.as_ref()])?,
        Change::DropBlob(digest) => {
            transaction.prepare_cached("DELETE FROM blobs WHERE digest = ?1")?.execute([digest.0.as_slice()])?
        }
        Change::PutMessage(StoredMessage { key, bytes }) => transaction
            .prepare_cached("INSERT OR REPLACE INTO outbox (number, part, bytes) VALUES (?1, ?2, ?3)")?
            .execute(params![key.number.cast_signed(), key.part, bytes.as_ref()])?,
        Change::DropMessage(key) => transaction
            .prepare_cached("DELETE FROM outbox WHERE number = ?1 AND part = ?2")?
            .execute(params![key.number.cast_signed(), key.part])?,
    };
    Ok(())
}
