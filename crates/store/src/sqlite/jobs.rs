//! The rows of an ended job: the job, its environment, and the counts and sums that contain it.

use hostler_model::{Digest, JobId};
use rusqlite::{Connection, OptionalExtension, params};

use super::accounting;
use crate::EndedJob;

/// Stores an ended job, replaces an older row of it, and updates the counts.
pub(super) fn insert_job(connection: &Connection, job: &EndedJob) -> rusqlite::Result<()> {
    const SQL: &str = "INSERT OR REPLACE INTO ended_jobs
        (id, key, user, state, ended, snapshot, results, unfetched, fetched, bytes, ended_at, partition, name,
        cpu_held_ms, cpu_used_ms, gpu_held_ms, memory_held_mib_ms, memory_used_mib_ms, energy_uj)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19)";
    uncount_job(connection, job.id)?;
    accounting::uncount(connection, job.id)?;
    accounting::count(connection, job)?;
    let (ended_at, partition, name, used) = accounting::columns(job);
    connection.prepare_cached(SQL)?.execute(params![
        job.id.0.cast_signed(),
        job.key.to_be_bytes().as_slice(),
        job.user,
        job.state.as_str(),
        job.ended.0.cast_signed(),
        job.snapshot.as_ref().map(|digest| digest.0.as_slice()),
        job.results.any,
        job.results.unfetched,
        job.results.fetched,
        job.bytes.as_ref(),
        ended_at,
        partition,
        name,
        used[0],
        used[1],
        used[2],
        used[3],
        used[4],
        used[5],
    ])?;
    let sql = "INSERT INTO ended_counts VALUES (?1, ?2, 1) ON CONFLICT DO UPDATE SET jobs = jobs + 1";
    connection.prepare_cached(sql)?.execute(params![job.user, job.state.as_str()])?;
    for state in &job.other_states {
        let sql = "INSERT INTO ended_task_states VALUES (?1, ?2)";
        connection.prepare_cached(sql)?.execute(params![job.id.0.cast_signed(), state.as_str()])?;
    }
    if !job.keeps_environment {
        drop_environment(connection, job.id)?;
    }
    Ok(())
}

/// Removes an ended job that was requeued, also from the sums, if it is stored.
pub(super) fn reopen_job(connection: &Connection, id: JobId) -> rusqlite::Result<()> {
    accounting::uncount(connection, id)?;
    remove_job(connection, id)
}

/// Removes an ended job, if it is stored. The sums keep it.
pub(super) fn remove_job(connection: &Connection, id: JobId) -> rusqlite::Result<()> {
    uncount_job(connection, id)?;
    connection.prepare_cached("DELETE FROM ended_jobs WHERE id = ?1")?.execute([id.0.cast_signed()])?;
    Ok(())
}

/// Subtracts a stored job from the counts, and removes the states of its tasks.
fn uncount_job(connection: &Connection, id: JobId) -> rusqlite::Result<()> {
    let sql = "SELECT user, state FROM ended_jobs WHERE id = ?1";
    let kept: Option<(String, String)> = connection
        .prepare_cached(sql)?
        .query_row([id.0.cast_signed()], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    if let Some((user, state)) = kept {
        let sql = "UPDATE ended_counts SET jobs = jobs - 1 WHERE user = ?1 AND state = ?2";
        connection.prepare_cached(sql)?.execute(params![user, state])?;
    }
    connection.prepare_cached("DELETE FROM ended_task_states WHERE id = ?1")?.execute([id.0.cast_signed()])?;
    Ok(())
}

/// Stores an environment for a job.
pub(super) fn insert_environment(
    connection: &Connection,
    job: JobId,
    digest: &Digest,
    bytes: &[u8],
) -> rusqlite::Result<()> {
    let digest = digest.0.as_slice();
    let is_kept = connection.prepare_cached("SELECT 1 FROM environments WHERE digest = ?1")?.exists([digest])?;
    if !is_kept {
        let sql = "INSERT INTO environments (digest, bytes) VALUES (?1, ?2)";
        connection.prepare_cached(sql)?.execute(params![digest, bytes])?;
    }
    let sql = "INSERT OR REPLACE INTO job_environments (job, digest) VALUES (?1, ?2)";
    connection.prepare_cached(sql)?.execute(params![job.0.cast_signed(), digest])?;
    Ok(())
}

/// Removes the environment of a job, unless another job has the same.
pub(super) fn drop_environment(connection: &Connection, job: JobId) -> rusqlite::Result<()> {
    let sql = "DELETE FROM job_environments WHERE job = ?1 RETURNING digest";
    let mut statement = connection.prepare_cached(sql)?;
    let digest: Option<Vec<u8>> = statement.query_row([job.0.cast_signed()], |row| row.get(0)).optional()?;
    if let Some(digest) = digest {
        let sql = "DELETE FROM environments WHERE digest = ?1
            AND NOT EXISTS (SELECT 1 FROM job_environments WHERE digest = ?1)";
        connection.prepare_cached(sql)?.execute([digest])?;
    }
    Ok(())
}
