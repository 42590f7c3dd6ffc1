//! Sums over ended jobs, and ended jobs by the time of their end.

use bytes::Bytes;
use hostler_model::{JobId, JobState, PartitionName, WallTime};
use hostler_proto::accounting::{Consumption, GroupBy, JobEndings};
use rusqlite::{Connection, OptionalExtension, Row, ToSql, Transaction, params};

use super::rows::{SqlError, unsigned};
use crate::accounting::{Collector, KEPT_DAYS, MOST_NAMES, Sums, day_of};
use crate::{EndedJob, GroupedSums, History, HistoryFilter, SumsFilter};

/// The columns of `accounting_days` that are sums, in the order of [`numbers`].
const COLUMNS: [&str; 13] = [
    "completed",
    "failed",
    "cancelled",
    "timeout",
    "out_of_memory",
    "node_fail",
    "preempted",
    "cpu_held_ms",
    "cpu_used_ms",
    "gpu_held_ms",
    "memory_held_mib_ms",
    "memory_used_mib_ms",
    "energy_uj",
];

/// Where a job is counted.
struct Place {
    day: i64,
    user: String,
    partition: String,
    name: String,
}

/// Adds an ended job to the sums of its day.
pub(super) fn count(connection: &Connection, job: &EndedJob) -> rusqlite::Result<()> {
    let place = Place {
        day: day_of(job.used.ended_at),
        user: job.user.clone(),
        partition: job.used.partition.as_ref().map_or_else(String::new, |partition| partition.as_str().to_owned()),
        name: job.used.name.clone(),
    };
    let sums = Sums::of(job.state, &job.used);
    if add(connection, &place, &sums, 1)? {
        return Ok(());
    }
    let sql = "SELECT count(*) FROM (SELECT DISTINCT name FROM accounting_days WHERE day = ?1 AND user = ?2)";
    let names: i64 = connection.prepare_cached(sql)?.query_row(params![place.day, place.user], |row| row.get(0))?;
    let is_full = usize::try_from(names).is_ok_and(|names| names >= MOST_NAMES);
    let place = if is_full { Place { name: String::new(), ..place } } else { place };
    let sql = "DELETE FROM accounting_days WHERE day < ?1";
    connection.prepare_cached(sql)?.execute([place.day - KEPT_DAYS])?;
    let sql = "INSERT OR IGNORE INTO accounting_days (day, user, partition, name) VALUES (?1, ?2, ?3, ?4)";
    connection.prepare_cached(sql)?.execute(params![place.day, place.user, place.partition, place.name])?;
    add(connection, &place, &sums, 1).map(drop)
}

/// Subtracts a stored job from the sums of its day, if the job is stored.
pub(super) fn uncount(connection: &Connection, id: JobId) -> rusqlite::Result<()> {
    let sql = "SELECT user, state, ended_at, partition, name, cpu_held_ms, cpu_used_ms, gpu_held_ms,
        memory_held_mib_ms, memory_used_mib_ms, energy_uj FROM ended_jobs WHERE id = ?1";
    let stored = connection.prepare_cached(sql)?.query_row([id.0.cast_signed()], |row| {
        let place =
            Place { day: day_of(WallTime(row.get(2)?)), user: row.get(0)?, partition: row.get(3)?, name: row.get(4)? };
        let state: String = row.get(1)?;
        let counts = JobEndings::STATES.map(|ending| u64::from(ending.as_str() == state));
        Ok((place, Sums { endings: JobEndings::new(counts), consumed: consumption(row, 5)? }))
    });
    let Some((place, sums)) = stored.optional()? else { return Ok(()) };
    if !add(connection, &place, &sums, -1)? {
        add(connection, &Place { name: String::new(), ..place }, &sums, -1)?;
    }
    Ok(())
}

/// Adds or subtracts sums. Returns whether the row exists.
fn add(connection: &Connection, place: &Place, sums: &Sums, sign: i64) -> rusqlite::Result<bool> {
    let set: Vec<String> =
        (5..).zip(COLUMNS).map(|(index, column)| format!("{column} = {column} + ?{index}")).collect();
    let sql = format!(
        "UPDATE accounting_days SET {} WHERE day = ?1 AND user = ?2 AND partition = ?3 AND name = ?4",
        set.join(", ")
    );
    let numbers = numbers(sums).map(|number| sign * i64::try_from(number).unwrap_or(i64::MAX));
    let mut values: Vec<&dyn ToSql> = vec![&place.day, &place.user, &place.partition, &place.name];
    values.extend(numbers.iter().map(|number| number as &dyn ToSql));
    Ok(connection.prepare_cached(&sql)?.execute(values.as_slice())? > 0)
}

fn numbers(sums: &Sums) -> [u64; 13] {
    let Consumption { cpu_held_ms, cpu_used_ms, gpu_held_ms, memory_held_mib_ms, memory_used_mib_ms, energy_uj } =
        sums.consumed;
    let [completed, failed, cancelled, timeout, out_of_memory, node_fail, preempted] = sums.endings.counts();
    [
        completed,
        failed,
        cancelled,
        timeout,
        out_of_memory,
        node_fail,
        preempted,
        cpu_held_ms,
        cpu_used_ms,
        gpu_held_ms,
        memory_held_mib_ms,
        memory_used_mib_ms,
        energy_uj,
    ]
}

fn consumption(row: &Row<'_>, first: usize) -> rusqlite::Result<Consumption> {
    Ok(Consumption {
        cpu_held_ms: unsigned(row, first)?,
        cpu_used_ms: unsigned(row, first + 1)?,
        gpu_held_ms: unsigned(row, first + 2)?,
        memory_held_mib_ms: unsigned(row, first + 3)?,
        memory_used_mib_ms: unsigned(row, first + 4)?,
        energy_uj: unsigned(row, first + 5)?,
    })
}

/// The sums of the selected jobs.
pub(super) fn sums(transaction: &Transaction<'_>, wanted: &SumsFilter) -> Result<GroupedSums, SqlError> {
    let (key, order) = match wanted.by {
        GroupBy::User => ("user", "sum(cpu_held_ms) DESC, user"),
        GroupBy::Partition => ("partition", "sum(cpu_held_ms) DESC, partition"),
        GroupBy::Name => ("name", "sum(cpu_held_ms) DESC, name"),
        GroupBy::Day => ("day", "day"),
    };
    // `total` saturates instead of failing, as `sum` does when it overflows.
    let columns: Vec<String> = COLUMNS.iter().map(|column| format!("cast(total({column}) AS INTEGER)")).collect();
    let columns = columns.join(", ");
    let selected = "accounting_days WHERE day BETWEEN ?1 AND ?2 AND (?3 IS NULL OR user = ?3)";
    let (first, last) = wanted.days.clone().into_inner();
    let mut statement = transaction.prepare_cached(&format!("SELECT {columns} FROM {selected}"))?;
    let total = statement.query_row(params![first, last, wanted.user], |row| sums_at(row, 0))?;
    let order = order.replace("sum(", "total(");
    let sql = format!(
        "SELECT cast({key} AS TEXT), {columns} FROM {selected} GROUP BY {key}
         HAVING total(completed + failed + cancelled + timeout + out_of_memory + node_fail + preempted) > 0
         ORDER BY {order} LIMIT ?4"
    );
    let limit = i64::try_from(wanted.limit).unwrap_or(i64::MAX);
    let mut statement = transaction.prepare_cached(&sql)?;
    let groups =
        statement.query_map(params![first, last, wanted.user, limit], |row| Ok((row.get(0)?, sums_at(row, 1)?)))?;
    Ok(GroupedSums { groups: groups.collect::<rusqlite::Result<_>>()?, total })
}

fn sums_at(row: &Row<'_>, first: usize) -> rusqlite::Result<Sums> {
    let mut counts = [0; 7];
    for (index, count) in counts.iter_mut().enumerate() {
        *count = unsigned(row, first + index)?;
    }
    Ok(Sums { endings: JobEndings::new(counts), consumed: consumption(row, first + 7)? })
}

/// A page of ended jobs, the latest end first.
pub(super) fn history(transaction: &Transaction<'_>, wanted: &HistoryFilter) -> Result<History, SqlError> {
    let sql = match wanted.user {
        Some(_) => {
            "SELECT ended_at, id, name, state, bytes FROM ended_jobs
             WHERE user = ?4 AND ended_at >= ?3 AND (ended_at, id) < (?1, ?2) ORDER BY ended_at DESC, id DESC"
        }
        None => {
            "SELECT ended_at, id, name, state, bytes FROM ended_jobs
             WHERE ?4 IS NULL AND ended_at >= ?3 AND (ended_at, id) < (?1, ?2) ORDER BY ended_at DESC, id DESC"
        }
    };
    let mut statement = transaction.prepare_cached(sql)?;
    let (before, id) = wanted.before;
    let id = id.0.min(i64::MAX.cast_unsigned()).cast_signed();
    let mut rows = statement.query(params![before.0, id, wanted.from.0, wanted.user])?;
    let mut collector = Collector::default();
    while let Some(row) = rows.next()? {
        let at = (WallTime(row.get(0)?), JobId(unsigned(row, 1)?));
        let name: String = row.get(2)?;
        let state: String = row.get(3)?;
        let state: JobState =
            state.parse().map_err(|error| SqlError::damaged(format!("ended job {}", at.1), format!("{error}")))?;
        // SQLite reads the page of the table only if the job is selected.
        let bytes = || row.get::<_, Vec<u8>>(4).map(Bytes::from);
        if !collector.add(wanted, at, (&name, state), bytes)? {
            return Ok(collector.page);
        }
    }
    Ok(collector.at_end())
}

/// The columns of an ended job that [`count`] and [`history`] use, for an insertion.
pub(super) fn columns(job: &EndedJob) -> (i64, &str, &str, [i64; 6]) {
    let Consumption { cpu_held_ms, cpu_used_ms, gpu_held_ms, memory_held_mib_ms, memory_used_mib_ms, energy_uj } =
        job.used.sums;
    let numbers = [cpu_held_ms, cpu_used_ms, gpu_held_ms, memory_held_mib_ms, memory_used_mib_ms, energy_uj];
    let partition = job.used.partition.as_ref().map_or("", PartitionName::as_str);
    let numbers = numbers.map(|number| i64::try_from(number).unwrap_or(i64::MAX));
    (job.used.ended_at.0, partition, &job.used.name, numbers)
}
