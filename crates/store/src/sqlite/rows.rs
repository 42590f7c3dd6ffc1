//! Converts values to columns and back.
//!
//! SQLite's integers are signed. Unsigned 64-bit values keep their bits, so every value is restored exactly. Numbers
//! that SQL compares (jobs, sequence numbers) count from 1 and never reach the sign bit.

use std::path::Path;
use std::sync::Arc;

use hostler_model::{Attempt, Digest, Ending, JobId, NodeName, TaskState, WallTime};
use hostler_proto::certificate::Certificate;
use hostler_proto::link::Usage;
use hostler_proto::record::EndedTask;
use hostler_proto::stages::Stages;
use rusqlite::{CachedStatement, Connection, ErrorCode, Row, params};
use serde::{Deserialize, Serialize};

use super::filesystem::free_bytes;
use crate::StoreError;

/// Free space below which an I/O error of SQLite counts as a full disk, because SQLite does not always report a full
/// disk.
const NO_ROOM_BYTES: u64 = 64 << 10;

/// An error of one operation, without the path of the store.
#[derive(Debug)]
pub(super) enum SqlError {
    Sqlite(rusqlite::Error),
    Damaged { what: String, why: String },
}

impl From<rusqlite::Error> for SqlError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

impl SqlError {
    pub(super) fn damaged(what: impl Into<String>, why: impl Into<String>) -> Self {
        Self::Damaged { what: what.into(), why: why.into() }
    }

    /// Converts the error to a [`StoreError`], with the attempted action and the path of the store.
    pub(super) fn at(self, doing: &'static str, path: &Path) -> StoreError {
        let error = match self {
            Self::Sqlite(error) => error,
            Self::Damaged { what, why } => return StoreError::damaged(path, what, why),
        };
        let free = || free_bytes(path).unwrap_or(0);
        match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => StoreError::DiskFull { path: path.to_owned(), free_bytes: free() },
            Some(ErrorCode::SystemIoFailure) if free() < NO_ROOM_BYTES => {
                StoreError::DiskFull { path: path.to_owned(), free_bytes: free() }
            }
            Some(ErrorCode::DatabaseCorrupt) => StoreError::damaged(path, "the database", error.to_string()),
            Some(ErrorCode::NotADatabase) => {
                StoreError::NotAStore { path: path.to_owned(), why: "the file is not an SQLite database".to_owned() }
            }
            _ => StoreError::Sqlite { doing, path: path.to_owned(), source: Arc::new(error) },
        }
    }
}

/// Computes a checksum that detects a damaged row, and a row that was stored under another sequence number.
pub(super) fn checksum(sequence: u64, bytes: &[u8]) -> i64 {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&sequence.to_le_bytes()).update(bytes);
    let hash = *hasher.finalize().as_bytes();
    i64::from_le_bytes(*hash.first_chunk().expect("a hash is longer than 8 bytes"))
}

pub(super) const INSERT_ENDED: &str = "INSERT OR REPLACE INTO ended_tasks
    (job, idx, attempt, state, exit_code, message, node, started_at, ended_at, result, parts, usage,
    placed_at, staged_at, exited_at, steps)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)";

/// The columns that [`ended`] reads, in order.
macro_rules! select_ended {
    ($rest:literal) => {
        concat!(
            "SELECT job, idx, attempt, state, exit_code, message, node, started_at, ended_at, result, ",
            "parts, usage, placed_at, staged_at, exited_at, steps FROM ended_tasks ",
            $rest
        )
    };
}
pub(super) use select_ended;

/// The content of the column `usage`. Programs that do not know the other fields skip them.
#[derive(Serialize, Deserialize)]
struct Measured {
    #[serde(flatten)]
    usage: Usage,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    certificate: Option<Box<Certificate>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    collected_at: Option<WallTime>,
}

/// Runs [`INSERT_ENDED`] for `task`.
pub(super) fn insert_ended(connection: &Connection, task: &EndedTask) -> rusqlite::Result<()> {
    let mut statement: CachedStatement<'_> = connection.prepare_cached(INSERT_ENDED)?;
    statement.execute(params![
        task.job.0.cast_signed(),
        task.index,
        task.attempt.0,
        task.ending.state.as_str(),
        task.ending.exit_code,
        task.message,
        task.node.as_ref().map(NodeName::as_str),
        task.started_at.map(|time| time.0),
        task.ended_at.0,
        task.result.as_ref().map(|digest| digest.0.as_slice()),
        (!task.parts.is_empty()).then(|| hostler_proto::encode(&task.parts)),
        hostler_proto::encode(&Measured {
            usage: task.usage,
            certificate: task.certificate.clone(),
            collected_at: task.stages.collected_at,
        }),
        task.stages.placed_at.map(|time| time.0),
        task.stages.staged_at.map(|time| time.0),
        task.stages.exited_at.map(|time| time.0),
        (!task.steps.is_empty()).then(|| hostler_proto::encode(&task.steps)),
    ])?;
    Ok(())
}

/// Reads a row of [`select_ended`].
pub(super) fn ended(row: &Row<'_>) -> Result<EndedTask, SqlError> {
    let job = JobId(unsigned(row, 0)?);
    let index: u32 = row.get(1)?;
    let damaged = |why: String| SqlError::damaged(format!("the history of task {job}_{index}"), why);
    let state: String = row.get(3)?;
    let state: TaskState = state.parse().map_err(|error| damaged(format!("{error}")))?;
    let node: Option<String> = row.get(6)?;
    let node = node.map(|name| name.parse::<NodeName>()).transpose().map_err(|error| damaged(format!("{error}")))?;
    let result: Option<Vec<u8>> = row.get(9)?;
    let result = result.map(|bytes| digest(&bytes)).transpose()?;
    let parts: Option<Vec<u8>> = row.get(10)?;
    let parts = parts.map(|bytes| hostler_proto::decode(&bytes)).transpose();
    let steps: Option<Vec<u8>> = row.get(15)?;
    let steps = steps.map(|bytes| hostler_proto::decode(&bytes)).transpose();
    let usage: Vec<u8> = row.get(11)?;
    let measured: Result<Measured, _> = hostler_proto::decode(&usage);
    let Measured { usage, certificate, collected_at } = measured.map_err(|error| damaged(format!("{error}")))?;
    let time = |column| row.get::<_, Option<i64>>(column).map(|time| time.map(WallTime));
    Ok(EndedTask {
        job,
        index,
        attempt: Attempt(row.get(2)?),
        ending: Ending { state, exit_code: row.get(4)? },
        message: row.get(5)?,
        node,
        started_at: time(7)?,
        ended_at: WallTime(row.get(8)?),
        stages: Stages { placed_at: time(12)?, staged_at: time(13)?, exited_at: time(14)?, collected_at },
        result,
        usage,
        certificate,
        steps: steps.map_err(|error| damaged(format!("{error}")))?.unwrap_or_default(),
        parts: parts.map_err(|error| damaged(format!("{error}")))?.unwrap_or_default(),
    })
}

pub(super) fn digest(bytes: &[u8]) -> Result<Digest, SqlError> {
    bytes
        .try_into()
        .map(Digest)
        .map_err(|_| SqlError::damaged("a content hash", format!("{} bytes instead of 32", bytes.len())))
}

pub(super) fn unsigned(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    row.get::<_, i64>(column).map(i64::cast_unsigned)
}
