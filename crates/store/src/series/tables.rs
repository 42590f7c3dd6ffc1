//! The tables with figures over time.

use hostler_model::{Figures, JobId, NodeName, RunId, TaskId};
use rusqlite::{Connection, OptionalExtension, Row, Transaction, TransactionBehavior, params};

use super::Curve;

/// Days for which a node's minutes are kept.
pub const MINUTE_DAYS: u64 = 14;

/// Days for which a node's ten-minute values are kept after its minutes.
pub const TEN_MINUTE_DAYS: u64 = 90;

/// Maximum number of values of each metric of a task's part.
pub const TASK_SLOTS: usize = 240;

/// Minutes per hour and per day.
const HOUR: u64 = 60;
const DAY: u64 = 24 * HOUR;

/// Width of a node's older values, in minutes.
const TEN_MINUTES: u64 = 10;

/// Number of a task's minutes that make it worth to write its block.
const TASK_MINUTES: u64 = 15;

/// Size that the database may have for each node.
const MOST_BYTES_OF_NODE: u64 = 4 << 20;

/// Age at which minutes of a subject that sends no more are moved into its block.
const LEFT_BEHIND: u64 = 2 * HOUR;

/// What figures are about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    Node(NodeName),
    /// The part of a run on the node with this rank.
    Run {
        run: RunId,
        rank: u32,
    },
}

/// The figures of one subject in one minute.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    pub subject: Subject,
    /// Minutes since the Unix epoch.
    pub minute: u64,
    pub figures: Figures,
}

/// Version of the tables and of the bytes in them. A database of another version is deleted.
const VERSION: u32 = 1;

const SCHEMA: &str = "
    CREATE TABLE subject (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, job INTEGER, run TEXT);
    CREATE INDEX subject_of_job ON subject (job) WHERE job IS NOT NULL;
    CREATE TABLE minute (
        subject INTEGER NOT NULL, at INTEGER NOT NULL, data BLOB NOT NULL, PRIMARY KEY (subject, at)
    ) WITHOUT ROWID;
    CREATE TABLE block (
        subject INTEGER NOT NULL, width INTEGER NOT NULL, start INTEGER NOT NULL, data BLOB NOT NULL,
        PRIMARY KEY (subject, width, start)
    ) WITHOUT ROWID;
";

/// Subjects per transaction of the maintenance.
const SUBJECTS_AT_ONCE: u64 = 64;

/// Jobs whose figures are deleted at once when the database is too large.
const JOBS_AT_ONCE: usize = 256;

/// Creates the tables in an empty database. A database of another version counts as damaged.
pub(super) fn prepare(connection: &mut Connection) -> rusqlite::Result<()> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let version: u32 = transaction.pragma_query_value(None, "user_version", |row| row.get(0))?;
    let tables: u64 = transaction.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    match (version, tables) {
        (VERSION, _) => {}
        (0, 0) => {
            transaction.execute_batch(SCHEMA)?;
            transaction.pragma_update(None, "user_version", VERSION)?;
        }
        _ => return Err(rusqlite::Error::InvalidQuery),
    }
    transaction.commit()
}

/// Name of a node in the tables.
pub(super) fn name_of_node(node: &NodeName) -> String {
    format!("node {node}")
}

/// Name of a task's part in the tables.
pub(super) fn name_of_task(task: TaskId, rank: u32) -> String {
    format!("task {task} {rank}")
}

/// The tables in one transaction.
pub(super) struct Tables<'a>(&'a Transaction<'a>);

impl<'a> Tables<'a> {
    pub(super) fn of(transaction: &'a Transaction<'a>) -> Self {
        Self(transaction)
    }

    /// The id of a subject, and its run if it is a task's part.
    pub(super) fn find(&self, name: &str) -> rusqlite::Result<Option<(u64, Option<RunId>)>> {
        let mut find = self.0.prepare_cached("SELECT id, run FROM subject WHERE name = ?1")?;
        let found = find.query_row([name], |row| Ok((row.get(0)?, row.get::<_, Option<String>>(1)?)));
        Ok(found.optional()?.map(|(id, run)| (id, run.and_then(|run| run.parse().ok()))))
    }

    /// Stores the figures of one minute. See [`super::Series::record`].
    pub(super) fn record(&self, measured: &Measured) -> rusqlite::Result<()> {
        let Measured { subject, minute, figures } = measured;
        let Some(id) = self.id_of(subject)? else { return Ok(()) };
        let mut curve = Curve::of_minute(*minute, figures);
        let stored = "SELECT at, data FROM minute WHERE subject = ?1 AND at = ?2";
        for earlier in self.minutes(stored, id, *minute)? {
            curve.absorb(&earlier);
        }
        let mut write =
            self.0.prepare_cached("INSERT OR REPLACE INTO minute (subject, at, data) VALUES (?1, ?2, ?3)")?;
        write.execute(params![id, minute, curve.encode_minute()])?;
        let first = self.first_minute(id)?.unwrap_or(*minute);
        match subject {
            Subject::Node(_) if first / HOUR < minute / HOUR => self.pack_node(id, minute / HOUR * HOUR),
            Subject::Run { .. } if first + TASK_MINUTES <= minute + 1 => self.pack_task(id),
            Subject::Node(_) | Subject::Run { .. } => Ok(()),
        }
    }

    /// The id of a subject, which is created if necessary; `None` for an earlier attempt than the stored one. Deletes
    /// the values of an earlier attempt.
    fn id_of(&self, subject: &Subject) -> rusqlite::Result<Option<u64>> {
        let (name, run) = match subject {
            Subject::Node(node) => (name_of_node(node), None),
            Subject::Run { run, rank } => (name_of_task(run.task, *rank), Some(*run)),
        };
        let age = |run: RunId| (run.attempt, run.epoch);
        match (self.find(&name)?, run) {
            (Some((_, Some(known))), Some(run)) if age(run) < age(known) => Ok(None),
            (Some((id, known)), Some(run)) if known != Some(run) => {
                self.clear(id)?;
                self.0.execute("UPDATE subject SET run = ?2 WHERE id = ?1", params![id, run.to_string()])?;
                Ok(Some(id))
            }
            (Some((id, _)), _) => Ok(Some(id)),
            (None, run) => {
                let job = run.map(|run| run.task.job.0);
                let mut add = self.0.prepare_cached("INSERT INTO subject (name, job, run) VALUES (?1, ?2, ?3)")?;
                add.insert(params![name, job, run.map(|run| run.to_string())])
                    .map(|id| Some(u64::try_from(id).unwrap_or_default()))
            }
        }
    }

    /// All values of a subject that overlap a span, oldest first.
    pub(super) fn curves(&self, id: u64, from: u64, to: u64) -> rusqlite::Result<Vec<Curve>> {
        let to = i64::try_from(to).unwrap_or(i64::MAX);
        // A node's block begins up to a day before its end, and a task's block is read as a whole.
        let mut read = self
            .0
            .prepare_cached("SELECT width, start, data FROM block WHERE subject = ?1 AND start >= ?2 AND start < ?3")?;
        let blocks = read.query_map(params![id, from.saturating_sub(DAY), to], block)?;
        let mut curves: Vec<Curve> = blocks.filter_map(Result::transpose).collect::<Result<_, _>>()?;
        let mut read = self
            .0
            .prepare_cached("SELECT at, data FROM minute WHERE subject = ?1 AND at >= ?2 AND at < ?3 ORDER BY at")?;
        let minutes = read.query_map(params![id, from, to], minute)?;
        for minute in minutes.filter_map(Result::transpose) {
            curves.push(minute?);
        }
        curves.retain(|curve| curve.end() > from);
        curves.sort_by_key(|curve| curve.start);
        Ok(curves)
    }

    /// Moves a node's minutes before `before` into blocks of an hour.
    fn pack_node(&self, id: u64, before: u64) -> rusqlite::Result<()> {
        let minutes =
            self.minutes("SELECT at, data FROM minute WHERE subject = ?1 AND at < ?2 ORDER BY at", id, before)?;
        for hour in minutes.chunk_by(|one, next| one.start / HOUR == next.start / HOUR) {
            let mut block = Curve::new(hour[0].start / HOUR * HOUR, 1, HOUR as usize);
            self.merge_block(id, &mut block)?;
            hour.iter().for_each(|minute| block.absorb(minute));
            self.write_block(id, &block)?;
        }
        self.0.execute("DELETE FROM minute WHERE subject = ?1 AND at < ?2", params![id, before]).map(drop)
    }

    /// Moves all minutes of a task's part into its block.
    fn pack_task(&self, id: u64) -> rusqlite::Result<()> {
        let minutes =
            self.minutes("SELECT at, data FROM minute WHERE subject = ?1 AND at < ?2 ORDER BY at", id, FOREVER)?;
        let (Some(first), Some(last)) = (minutes.first(), minutes.last()) else { return Ok(()) };
        let stored = self.curves_of_blocks(id)?;
        let mut block = stored.first().cloned().unwrap_or_else(|| Curve::new(first.start, 1, 1));
        if first.start < block.start {
            let slots = (block.start - first.start).div_ceil(block.width);
            let mut longer =
                Curve::new(block.start.saturating_sub(slots * block.width), block.width, block.len + slots as usize);
            longer.absorb(&block);
            block = longer;
        }
        block.extend_to(last.end(), TASK_SLOTS);
        minutes.iter().for_each(|minute| block.absorb(minute));
        self.clear(id)?;
        self.write_block(id, &block)
    }

    /// Maintains the next subjects with ids after `after`. Returns the last of them; `None` if there are no more. See
    /// [`super::Series::maintain`].
    pub(super) fn maintain_after(&self, after: u64, now: u64) -> rusqlite::Result<Option<u64>> {
        let mut list =
            self.0.prepare_cached("SELECT id, job IS NULL FROM subject WHERE id > ?1 ORDER BY id LIMIT ?2")?;
        let subjects = list.query_map(params![after, SUBJECTS_AT_ONCE], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let subjects: Vec<(u64, bool)> = subjects.collect::<Result<_, _>>()?;
        for &(id, is_node) in &subjects {
            if self.first_minute(id)?.is_some_and(|first| first + LEFT_BEHIND < now) {
                if is_node { self.pack_node(id, now / HOUR * HOUR)? } else { self.pack_task(id)? }
            }
            if is_node {
                self.age_node(id, now)?;
            }
        }
        Ok(subjects.last().map(|(id, _)| *id))
    }

    /// Replaces a node's old minutes by ten-minute values, and deletes values that are too old.
    fn age_node(&self, id: u64, now: u64) -> rusqlite::Result<()> {
        let first_day = now.saturating_sub(MINUTE_DAYS * DAY) / DAY * DAY;
        let sql = "SELECT width, start, data FROM block WHERE subject = ?1 AND width = 1 AND start < ?2 ORDER BY start";
        let mut read = self.0.prepare_cached(sql)?;
        let hours = read.query_map(params![id, first_day], block)?;
        let hours: Vec<Curve> = hours.filter_map(Result::transpose).collect::<Result<_, _>>()?;
        for day in hours.chunk_by(|one, next| one.start / DAY == next.start / DAY) {
            let mut block = Curve::new(day[0].start / DAY * DAY, TEN_MINUTES, (DAY / TEN_MINUTES) as usize);
            self.merge_block(id, &mut block)?;
            day.iter().for_each(|hour| block.absorb(hour));
            self.write_block(id, &block)?;
        }
        let mut delete = self.0.prepare_cached("DELETE FROM block WHERE subject = ?1 AND width = ?2 AND start < ?3")?;
        delete.execute(params![id, 1, first_day])?;
        let oldest = now.saturating_sub((MINUTE_DAYS + TEN_MINUTE_DAYS) * DAY) / DAY * DAY;
        delete.execute(params![id, TEN_MINUTES, oldest])?;
        let is_empty = "DELETE FROM subject WHERE id = ?1 AND NOT EXISTS (SELECT 1 FROM block WHERE subject = ?1)
             AND NOT EXISTS (SELECT 1 FROM minute WHERE subject = ?1)";
        self.0.prepare_cached(is_empty)?.execute([id]).map(drop)
    }

    /// Deletes figures of the jobs with the lowest ids if the database exceeds `most_bytes`, and some for each node. Returns whether there was something
    /// to delete.
    pub(super) fn shrink(&self, most_bytes: u64) -> rusqlite::Result<bool> {
        let nodes: u64 = self.0.query_row("SELECT count(*) FROM subject WHERE job IS NULL", [], |row| row.get(0))?;
        let free: u64 = self.0.pragma_query_value(None, "freelist_count", |row| row.get(0))?;
        let (pages, page_bytes) = self.pages()?;
        if (pages - free.min(pages)) * page_bytes <= most_bytes + nodes * MOST_BYTES_OF_NODE {
            return Ok(false);
        }
        let jobs = self.jobs(0, JOBS_AT_ONCE)?;
        jobs.iter().try_for_each(|job| self.forget(*job))?;
        Ok(!jobs.is_empty())
    }

    pub(super) fn jobs(&self, after: u64, limit: usize) -> rusqlite::Result<Vec<JobId>> {
        let sql = "SELECT DISTINCT job FROM subject WHERE job IS NOT NULL AND job > ?1 ORDER BY job LIMIT ?2";
        let mut list = self.0.prepare_cached(sql)?;
        list.query_map(params![after, limit], |row| row.get(0).map(JobId))?.collect()
    }

    pub(super) fn forget(&self, job: JobId) -> rusqlite::Result<()> {
        for table in ["minute", "block"] {
            let sql = format!("DELETE FROM {table} WHERE subject IN (SELECT id FROM subject WHERE job = ?1)");
            self.0.prepare_cached(&sql)?.execute([job.0])?;
        }
        self.0.prepare_cached("DELETE FROM subject WHERE job = ?1")?.execute([job.0]).map(drop)
    }

    /// Size of the values in some tables, and of the database file, in bytes.
    pub(super) fn size_of(&self, tables: &[&str]) -> rusqlite::Result<(u64, u64)> {
        let sum = |table: &str| {
            let sql = format!("SELECT coalesce(sum(length(data)), 0) FROM {table}");
            self.0.query_row(&sql, [], |row| row.get::<_, u64>(0))
        };
        let (pages, page_bytes) = self.pages()?;
        let sizes = tables.iter().map(|table| sum(table));
        Ok((sizes.sum::<rusqlite::Result<u64>>()?, pages * page_bytes))
    }

    fn pages(&self) -> rusqlite::Result<(u64, u64)> {
        let read = |pragma: &str| self.0.pragma_query_value(None, pragma, |row| row.get::<_, u64>(0));
        Ok((read("page_count")?, read("page_size")?))
    }

    fn first_minute(&self, id: u64) -> rusqlite::Result<Option<u64>> {
        self.0.prepare_cached("SELECT min(at) FROM minute WHERE subject = ?1")?.query_row([id], |row| row.get(0))
    }

    /// The minutes that a query selects. Skips those that cannot be decoded.
    fn minutes(&self, sql: &str, id: u64, bound: u64) -> rusqlite::Result<Vec<Curve>> {
        let mut read = self.0.prepare_cached(sql)?;
        let rows = read.query_map(params![id, bound], minute)?;
        rows.filter_map(Result::transpose).collect()
    }

    fn curves_of_blocks(&self, id: u64) -> rusqlite::Result<Vec<Curve>> {
        let mut read = self.0.prepare_cached("SELECT width, start, data FROM block WHERE subject = ?1")?;
        let rows = read.query_map([id], block)?;
        rows.filter_map(Result::transpose).collect()
    }

    /// Merges the stored block with the same start and width into `curve`.
    fn merge_block(&self, id: u64, curve: &mut Curve) -> rusqlite::Result<()> {
        let sql = "SELECT width, start, data FROM block WHERE subject = ?1 AND width = ?2 AND start = ?3";
        let mut read = self.0.prepare_cached(sql)?;
        if let Some(Some(stored)) = read.query_row(params![id, curve.width, curve.start], block).optional()? {
            curve.absorb(&stored);
        }
        Ok(())
    }

    fn write_block(&self, id: u64, curve: &Curve) -> rusqlite::Result<()> {
        let sql = "INSERT OR REPLACE INTO block (subject, width, start, data) VALUES (?1, ?2, ?3, ?4)";
        self.0.prepare_cached(sql)?.execute(params![id, curve.width, curve.start, curve.encode()]).map(drop)
    }

    /// Deletes all values of a subject.
    fn clear(&self, id: u64) -> rusqlite::Result<()> {
        self.0.prepare_cached("DELETE FROM minute WHERE subject = ?1")?.execute([id])?;
        self.0.prepare_cached("DELETE FROM block WHERE subject = ?1")?.execute([id]).map(drop)
    }
}

/// A bound after all minutes.
const FOREVER: u64 = i64::MAX as u64;

fn minute(row: &Row<'_>) -> rusqlite::Result<Option<Curve>> {
    Ok(Curve::decode_minute(row.get(0)?, row.get_ref(1)?.as_blob()?))
}

fn block(row: &Row<'_>) -> rusqlite::Result<Option<Curve>> {
    Ok(Curve::decode(row.get(1)?, row.get(0)?, row.get_ref(2)?.as_blob()?))
}
