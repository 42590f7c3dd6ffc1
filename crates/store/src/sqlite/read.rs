//! Read-only connections.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use hostler_model::{Attempt, Digest, JobId, TaskId, Timestamp};
use hostler_proto::DecodeError;
use hostler_proto::record::{EndedTask, TaskResult};
use rusqlite::{Connection, OpenFlags, OptionalExtension, Params, Row, Transaction, params};

use super::accounting;
use super::filesystem;
use super::reserve::Reserve;
use super::rows::{SqlError, digest, ended, select_ended, unsigned};
use crate::{
    EndedPage, GroupedSums, History, HistoryFilter, JobFilter, MessageKey, Records, StoreError, StoredMessage,
    SumsFilter,
};

/// Only a backup tool can hold a lock; a commit fails if it takes longer than this.
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// The maximum number of open connections; further queries wait. A query takes well under a millisecond, so more
/// connections would only cost memory.
const MOST_CONNECTIONS: usize = 4;

/// Opens connections on demand and reuses them.
#[derive(Debug)]
pub(super) struct Pool {
    path: PathBuf,
    connections: Mutex<Connections>,
    /// Signalled when a connection is free or may be opened.
    freed: Condvar,
    /// Reserved disk space. The pool owns the reserve because the reserve must outlive every connection.
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

    /// Runs `query` in a read transaction, so that all its statements see the same state.
    fn query<T>(&self, query: impl FnOnce(&Transaction<'_>) -> Result<T, SqlError>) -> Result<T, StoreError> {
        let run = || {
            let mut lent = self.borrow()?;
            let answer = query(&lent.connection().unchecked_transaction()?)?;
            // Only a connection that worked is reused.
            lent.worked = true;
            Ok(answer)
        };
        run().map_err(|trouble: SqlError| trouble.at("read", &self.path))
    }

    fn borrow(&self) -> Result<PooledConnection<'_>, SqlError> {
        let mut connections = self.lock();
        while connections.idle.is_empty() && connections.in_use >= MOST_CONNECTIONS {
            connections = self.freed.wait(connections).unwrap_or_else(PoisonError::into_inner);
        }
        connections.in_use += 1;
        let mut lent = PooledConnection { pool: self, connection: connections.idle.pop(), worked: false };
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

/// A slot in the connection pool, released on drop.
struct PooledConnection<'a> {
    pool: &'a Pool,
    connection: Option<Connection>,
    worked: bool,
}

impl PooledConnection<'_> {
    fn connection(&self) -> &Connection {
        self.connection.as_ref().expect("the connection was opened when it was lent")
    }
}

impl Drop for PooledConnection<'_> {
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

    fn earlier_attempts(&self, (task, attempt): (TaskId, Attempt), limit: usize) -> Result<Vec<EndedTask>, StoreError> {
        let sql = "SELECT bytes FROM earlier_attempts WHERE (job, idx, attempt) > (?1, ?2, ?3) \
                   ORDER BY job, idx, attempt LIMIT ?4";
        let read = |row: &Row<'_>| {
            let damaged = |error: DecodeError| SqlError::damaged("an earlier attempt", error.to_string());
            hostler_proto::decode(&row.get::<_, Vec<u8>>(0)?).map_err(damaged)
        };
        let after = params![task.job.0.cast_signed(), task.index, attempt.0, as_limit(limit)];
        self.query(|transaction| collect(transaction, sql, after, read))
    }

    fn ended_job(&self, id: JobId) -> Result<Option<Bytes>, StoreError> {
        let sql = "SELECT bytes FROM ended_jobs WHERE id = ?1";
        self.query(|transaction| Ok(collect(transaction, sql, [id.0.cast_signed()], |row| bytes(row, 0))?.pop()))
    }

    fn job_of_key(&self, key: u128) -> Result<Option<JobId>, StoreError> {
        let sql = "SELECT id FROM ended_jobs WHERE key = ?1";
        let key = key.to_be_bytes();
        self.query(|transaction| {
            Ok(collect(transaction, sql, [key.as_slice()], |row| Ok(JobId(unsigned(row, 0)?)))?.pop())
        })
    }

    fn ended_jobs(&self, wanted: &JobFilter, before: Option<JobId>, limit: usize) -> Result<EndedPage, StoreError> {
        self.query(|transaction| {
            let total = count(transaction, wanted)?;
            let jobs = page(transaction, wanted, before, limit)?;
            Ok(EndedPage { jobs, total })
        })
    }

    fn sums(&self, wanted: &SumsFilter) -> Result<GroupedSums, StoreError> {
        self.query(|transaction| accounting::sums(transaction, wanted))
    }

    fn history(&self, wanted: &HistoryFilter) -> Result<History, StoreError> {
        self.query(|transaction| accounting::history(transaction, wanted))
    }

    fn jobs_with_results(
        &self,
        user: Option<&str>,
        unfetched: bool,
        after: JobId,
        limit: usize,
    ) -> Result<Vec<(JobId, Bytes)>, StoreError> {
        let sql = match (user, unfetched) {
            (Some(_), true) => {
                "SELECT id, bytes FROM ended_jobs WHERE user = ?1 AND unfetched AND id > ?2 ORDER BY id LIMIT ?3"
            }
            (Some(_), false) => {
                "SELECT id, bytes FROM ended_jobs WHERE user = ?1 AND results AND id > ?2 ORDER BY id LIMIT ?3"
            }
            (None, true) => {
                "SELECT id, bytes FROM ended_jobs WHERE ?1 IS NULL AND unfetched AND id > ?2 ORDER BY id LIMIT ?3"
            }
            (None, false) => {
                "SELECT id, bytes FROM ended_jobs WHERE ?1 IS NULL AND results AND id > ?2 ORDER BY id LIMIT ?3"
            }
        };
        let params = params![user, after.0.cast_signed(), as_limit(limit)];
        self.query(|transaction| {
            collect(transaction, sql, params, |row| Ok((JobId(unsigned(row, 0)?), bytes(row, 1)?)))
        })
    }

    fn jobs_with_fetched_results(&self, limit: usize) -> Result<Vec<Bytes>, StoreError> {
        let sql = "SELECT bytes FROM ended_jobs WHERE fetched ORDER BY ended, id LIMIT ?1";
        self.query(|transaction| collect(transaction, sql, [as_limit(limit)], |row| bytes(row, 0)))
    }

    fn first_ended(&self, awaiting: bool, limit: usize) -> Result<Vec<(JobId, Timestamp)>, StoreError> {
        let sql = match awaiting {
            true => {
                "SELECT id, ended FROM ended_jobs WHERE unfetched AND snapshot IS NOT NULL ORDER BY ended, id LIMIT ?1"
            }
            false => {
                "SELECT id, ended FROM ended_jobs WHERE NOT (unfetched AND snapshot IS NOT NULL) \
                 ORDER BY ended, id LIMIT ?1"
            }
        };
        let read = |row: &Row<'_>| Ok((JobId(unsigned(row, 0)?), Timestamp(unsigned(row, 1)?)));
        self.query(|transaction| collect(transaction, sql, [as_limit(limit)], read))
    }

    fn awaiting_fetch(&self, user: &str) -> Result<(u64, Option<Timestamp>), StoreError> {
        let sql = "SELECT count(*), min(ended) FROM ended_jobs WHERE user = ?1 AND unfetched AND snapshot IS NOT NULL";
        let read = |row: &Row<'_>| {
            let jobs = unsigned(row, 0)?;
            Ok((jobs, if jobs > 0 { Some(Timestamp(unsigned(row, 1)?)) } else { None }))
        };
        self.query(|transaction| Ok(collect(transaction, sql, [user], read)?.pop().unwrap_or_default()))
    }

    fn snapshots_of_ended(&self) -> Result<Vec<Digest>, StoreError> {
        let sql = "SELECT DISTINCT snapshot FROM ended_jobs WHERE snapshot IS NOT NULL";
        self.query(|transaction| collect(transaction, sql, [], |row| digest(&row.get::<_, Vec<u8>>(0)?)))
    }

    fn environment(&self, digest: &Digest) -> Result<Option<Bytes>, StoreError> {
        let sql = "SELECT bytes FROM environments WHERE digest = ?1";
        self.query(|transaction| Ok(collect(transaction, sql, [digest.0.as_slice()], |row| bytes(row, 0))?.pop()))
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
        // An empty byte string sorts before every digest.
        let after = after.map_or_else(Vec::new, |digest| digest.0.to_vec());
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.query(|transaction| {
            collect(transaction, SQL, params![after, limit], |row| digest(&row.get::<_, Vec<u8>>(0)?))
        })
    }

    fn messages_after(&self, after: &MessageKey, limit: usize) -> Result<Vec<StoredMessage>, StoreError> {
        const SQL: &str = "SELECT number, part, bytes FROM outbox WHERE (number, part) > (?1, ?2)
            ORDER BY number, part LIMIT ?3";
        self.query(|transaction| {
            collect(transaction, SQL, params![after.number.cast_signed(), after.part, as_limit(limit)], |row| {
                let key = MessageKey { number: unsigned(row, 0)?, part: row.get(1)? };
                Ok(StoredMessage { key, bytes: bytes(row, 2)? })
            })
        })
    }

    fn free_bytes(&self) -> Result<u64, StoreError> {
        filesystem::free_bytes(self.path())
    }
}

fn bytes(row: &Row<'_>, column: usize) -> Result<Bytes, SqlError> {
    Ok(Bytes::from(row.get::<_, Vec<u8>>(column)?))
}

fn as_limit(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

/// The number of selected jobs.
fn count(transaction: &Transaction<'_>, wanted: &JobFilter) -> Result<u64, SqlError> {
    let counted = collect(transaction, "SELECT user, state, jobs FROM ended_counts", [], |row| {
        let state: String = row.get(1)?;
        let state = state.parse().map_err(|error| SqlError::damaged("the counts of ended jobs", format!("{error}")))?;
        Ok(if wanted.wants(&row.get::<_, String>(0)?, state) { unsigned(row, 2)? } else { 0 })
    })?;
    let mut total: u64 = counted.into_iter().sum();
    for id in &wanted.except {
        let sql = "SELECT user, state FROM ended_jobs WHERE id = ?1";
        let kept = collect(transaction, sql, [id.0.cast_signed()], |row| {
            Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?))
        })?;
        let is_counted = |(user, state): (String, String)| state.parse().is_ok_and(|state| wanted.wants(&user, state));
        total = total.saturating_sub(u64::from(kept.into_iter().any(is_counted)));
    }
    Ok(total + count_by_tasks(transaction, wanted)?)
}

/// The number of jobs that are selected only because of the states of their tasks.
fn count_by_tasks(transaction: &Transaction<'_>, wanted: &JobFilter) -> Result<u64, SqlError> {
    if !wanted.any_task || wanted.states.is_empty() {
        return Ok(0);
    }
    // The names of states are constants without special characters.
    let states: Vec<String> = wanted.states.iter().map(|state| format!("'{state}'")).collect();
    let states = states.join(", ");
    let selected = format!(
        "SELECT count(DISTINCT id) FROM ended_task_states AS task JOIN ended_jobs AS job USING (id)
         WHERE task.state IN ({states}) AND job.state NOT IN ({states}) AND (?1 IS NULL OR job.user = ?1)"
    );
    let count = |sql: &str, id: Option<i64>| -> Result<u64, SqlError> {
        let read = |row: &Row<'_>| Ok(unsigned(row, 0)?);
        let counted = match id {
            None => collect(transaction, sql, params![wanted.user], read)?,
            Some(id) => collect(transaction, sql, params![wanted.user, id], read)?,
        };
        Ok(counted.into_iter().sum())
    };
    let mut total = count(&selected, None)?;
    let of_job = format!("{selected} AND id = ?2");
    for id in &wanted.except {
        total = total.saturating_sub(count(&of_job, Some(id.0.cast_signed()))?);
    }
    Ok(total)
}

/// The newest selected jobs. Reads the newest of each state and merges them, so that every filter uses an index.
fn page(
    transaction: &Transaction<'_>,
    wanted: &JobFilter,
    before: Option<JobId>,
    limit: usize,
) -> Result<Vec<Bytes>, SqlError> {
    // Reads more rows than `limit`, because `except` may remove as many as it has entries.
    let limit_with = as_limit(limit.saturating_add(wanted.except.len()));
    let before = before.map_or(i64::MAX, |before| before.0.cast_signed());
    let read = |row: &Row<'_>| Ok((JobId(unsigned(row, 0)?), bytes(row, 1)?));
    let states = wanted.states.iter().map(|state| state.as_str());
    let mut found: Vec<(JobId, Bytes)> = match &wanted.user {
        None if wanted.states.is_empty() => {
            let sql = "SELECT id, bytes FROM ended_jobs WHERE id < ?1 ORDER BY id DESC LIMIT ?2";
            collect(transaction, sql, params![before, limit_with], read)?
        }
        None => {
            let sql = "SELECT id, bytes FROM ended_jobs WHERE state = ?1 AND id < ?2 ORDER BY id DESC LIMIT ?3";
            let of_state = |state| collect(transaction, sql, params![state, before, limit_with], read);
            states.map(of_state).collect::<Result<Vec<_>, _>>()?.concat()
        }
        Some(user) if wanted.states.is_empty() => {
            let sql = "SELECT id, bytes FROM ended_jobs WHERE user = ?1 AND id < ?2 ORDER BY id DESC LIMIT ?3";
            collect(transaction, sql, params![user, before, limit_with], read)?
        }
        Some(user) => {
            let sql = "SELECT id, bytes FROM ended_jobs WHERE user = ?1 AND id < ?2 AND state = ?3 \
                       ORDER BY id DESC LIMIT ?4";
            let of_state = |state| collect(transaction, sql, params![user, before, state, limit_with], read);
            states.map(of_state).collect::<Result<Vec<_>, _>>()?.concat()
        }
    };
    if wanted.any_task {
        let sql = "SELECT id, bytes FROM ended_task_states AS task JOIN ended_jobs AS job USING (id)
            WHERE task.state = ?1 AND id < ?2 AND (?3 IS NULL OR job.user = ?3) ORDER BY id DESC LIMIT ?4";
        for state in &wanted.states {
            found.extend(collect(transaction, sql, params![state.as_str(), before, wanted.user, limit_with], read)?);
        }
    }
    found.sort_unstable_by_key(|(id, _)| std::cmp::Reverse(*id));
    found.dedup_by_key(|(id, _)| *id);
    found.retain(|(id, _)| !wanted.except.contains(id));
    found.truncate(limit);
    Ok(found.into_iter().map(|(_, bytes)| bytes).collect())
}

fn collect<T>(
    transaction: &Transaction<'_>,
    sql: &str,
    params: impl Params,
    read: impl Fn(&rusqlite::Row<'_>) -> Result<T, SqlError>,
) -> Result<Vec<T>, SqlError> {
    let mut statement = transaction.prepare_cached(sql)?;
    let mut rows = statement.query(params)?;
    let mut all = Vec::new();
    while let Some(row) = rows.next()? {
        all.push(read(row)?);
    }
    Ok(all)
}
