//! Connections that only read.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use hostler_model::{Digest, JobId, TaskId};
use hostler_proto::record::{EndedTask, TaskResult};
use rusqlite::{Connection, OpenFlags, OptionalExtension, Params, Transaction, params};

use super::filesystem;
use super::open::BUSY_TIMEOUT;
use super::reserve::Reserve;
use super::rows::{Trouble, digest, ended, select_ended};
use crate::{Records, StoreError};

/// Most connections open at once; further queries wait for one. Queries take well below a millisecond each, so more would only
/// take memory.
const MOST_CONNECTIONS: usize = 4;

/// Opens connections as they are needed and keeps them.
#[derive(Debug)]
pub(super) struct Pool {
    path: PathBuf,
    connections: Mutex<Connections>,
    /// Signalled when a connection is free, or may be opened.
    freed: Condvar,
    /// Room on the disk; here because it must outlive every connection.
    reserve: Reserve,
}

#[derive(Debug, Default)]
struct Connections {
    idle: Vec<Connection>,
    in_use: usize,
}

impl Pool {
    pub(super) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), connections: Mutex::default(), freed: Condvar::new(), reserve: Reserve::of(path) }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn reserve(&self) -> &Reserve {
        &self.reserve
    }

    pub(super) fn close_idle(&self) {
        self.lock().idle.clear();
    }

    /// Runs `query` in a read transaction: one moment, however many statements.
    fn query<T>(&self, query: impl FnOnce(&Transaction<'_>) -> Result<T, Trouble>) -> Result<T, StoreError> {
        let run = || {
            let mut lent = self.borrow()?;
            let answer = query(&lent.connection().unchecked_transaction()?)?;
            // Only a connection that worked is used again.
            lent.worked = true;
            Ok(answer)
        };
        run().map_err(|trouble: Trouble| trouble.at("read", &self.path))
    }

    fn borrow(&self) -> Result<Lent<'_>, Trouble> {
        let mut connections = self.lock();
        while connections.idle.is_empty() && connections.in_use >= MOST_CONNECTIONS {
            connections = self.freed.wait(connections).unwrap_or_else(PoisonError::into_inner);
        }
        connections.in_use += 1;
        let mut lent = Lent { pool: self, connection: connections.idle.pop(), worked: false };
        drop(connections);
        if lent.connection.is_none() {
            lent.connection = Some(open(&self.path)?);
        }
        Ok(lent)
    }

    fn lock(&self) -> MutexGuard<'_, Connections> {
        // No code that can panic runs under this lock.
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place in the pool, given back whatever happens.
struct Lent<'a> {
    pool: &'a Pool,
    connection: Option<Connection>,
    worked: bool,
}

impl Lent<'_> {
    fn connection(&self) -> &Connection {
        self.connection.as_ref().expect("opened when it was borrowed")
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        let connection = self.connection.take().filter(|_| self.worked);
        let mut connections = self.pool.lock();
        connections.in_use -= 1;
        connections.idle.extend(connection);
        drop(connections);
        self.pool.freed.notify_one();
    }
}

fn open(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.pragma_update(None, "trusted_schema", false)?;
    connection.pragma_update(None, "cache_size", -1024)?;
    Ok(connection)
}

impl Records for Arc<Pool> {
    fn ended_of(&self, job: JobId, indices: RangeInclusive<u32>, limit: usize) -> Result<Vec<EndedTask>, StoreError> {
        const SQL: &str = select_ended!("WHERE job = ?1 AND idx BETWEEN ?2 AND ?3 ORDER BY idx LIMIT ?4");
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let (start, end) = indices.into_inner();
        self.query(|transaction| collect(transaction, SQL, params![job.0.cast_signed(), start, end, limit], ended))
    }

    fn ended_one(&self, task: TaskId) -> Result<Option<EndedTask>, StoreError> {
        Ok(self.ended_of(task.job, task.index..=task.index, 1)?.pop())
    }

    fn results_of(&self, jobs: &[JobId]) -> Result<Vec<TaskResult>, StoreError> {
        const SQL: &str = select_ended!("WHERE job = ?1 AND (result IS NOT NULL OR parts IS NOT NULL) ORDER BY idx");
        self.query(|transaction| {
            let mut results = Vec::new();
            for job in jobs {
                for row in collect(transaction, SQL, [job.0.cast_signed()], ended)? {
                    results.extend(row.results());
                }
            }
            Ok(results)
        })
    }

    fn blob(&self, digest: &Digest) -> Result<Option<Bytes>, StoreError> {
        self.query(|transaction| {
            let mut statement = transaction.prepare_cached("SELECT bytes FROM blobs WHERE digest = ?1")?;
            let bytes = statement.query_row([digest.0.as_slice()], |row| row.get::<_, Vec<u8>>(0)).optional()?;
            Ok(bytes.map(Bytes::from))
        })
    }

    fn missing_blobs(&self, digests: &[Digest]) -> Result<Vec<Digest>, StoreError> {
        self.query(|transaction| {
            let mut statement = transaction.prepare_cached("SELECT 1 FROM blobs WHERE digest = ?1")?;
            let mut missing = Vec::new();
            for digest in digests {
                if !statement.exists([digest.0.as_slice()])? {
                    missing.push(*digest);
                }
            }
            Ok(missing)
        })
    }

    fn blobs_after(&self, after: Option<Digest>, limit: usize) -> Result<Vec<Digest>, StoreError> {
        const SQL: &str = "SELECT digest FROM blobs WHERE digest > ?1 ORDER BY digest LIMIT ?2";
        // The empty string of bytes comes before every digest.
        let after = after.map_or_else(Vec::new, |digest| digest.0.to_vec());
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.query(|transaction| {
            collect(transaction, SQL, params![after, limit], |row| digest(&row.get::<_, Vec<u8>>(0)?))
        })
    }

    fn free_bytes(&self) -> Result<u64, StoreError> {
        filesystem::free_bytes(self.path())
    }
}

fn collect<T>(
    transaction: &Transaction<'_>,
    sql: &str,
    params: impl Params,
    read: impl Fn(&rusqlite::Row<'_>) -> Result<T, Trouble>,
) -> Result<Vec<T>, Trouble> {
    let mut statement = transaction.prepare_cached(sql)?;
    let mut rows = statement.query(params)?;
    let mut all = Vec::new();
    while let Some(row) = rows.next()? {
        all.push(read(row)?);
    }
    Ok(all)
}
