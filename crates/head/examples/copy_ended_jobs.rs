//! Fills the store of a head that is down with copies of the first job that has ended there, for `cargo xtask bench ended`.
//!
//! `copy_ended_jobs head.db 1000000`

use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use hostler_core::head::{Job, SubmissionKey};
use hostler_model::JobId;
use hostler_store::{Batch, Change, EndedJob, KeptResults, SqliteStore, Store};

/// First job id of the copies, far above the ids that the head assigns.
const FIRST: u64 = 1_000_000_000;

/// Number of copies per transaction.
const AT_ONCE: u64 = 10_000;

fn main() -> anyhow::Result<()> {
    let mut words = std::env::args().skip(1);
    let path = words.next().context("the first argument must be the database")?;
    let count: u64 = words.next().context("the second argument must be the number of copies")?.parse()?;
    let mut store = SqliteStore::open(Path::new(&path))?;
    store.load()?;
    let (first, _) = *store.reader().first_ended(false, 1)?.first().context("the database has no ended job")?;
    let bytes = store.reader().ended_job(first)?.context("the listed job is not in the database")?;
    let job: Job = hostler_proto::decode(&bytes)?;
    let rows = store.reader().ended_of(first, 0..=u32::MAX, 1)?;
    for some in (0..count).step_by(AT_ONCE as usize) {
        let mut changes = Vec::new();
        for number in some..(some + AT_ONCE).min(count) {
            let id = JobId(FIRST + number);
            // Pseudo-random keys.
            let key = u128::from(number).wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C834);
            let copy = Job { id, key: SubmissionKey(key), spec: Arc::clone(&job.spec), ..job.clone() };
            changes.push(Change::JobEnded(EndedJob {
                id,
                key,
                user: copy.user.clone(),
                state: copy.state(),
                other_states: std::collections::BTreeSet::new(),
                ended: copy.ended.unwrap_or_default(),
                snapshot: None,
                used: hostler_proto::accounting::EndedUse {
                    name: format!("{}-{}", copy.spec.name, number % 40),
                    partition: copy.spec.partition.clone(),
                    // Spread over a month.
                    ended_at: hostler_model::WallTime(
                        copy.ended_at.unwrap_or_default().0 - i64::try_from(number % 2_592_000)? * 1_000,
                    ),
                    sums: copy.used.as_deref().copied().unwrap_or_default().sums,
                },
                results: KeptResults { any: true, unfetched: true, fetched: false },
                keeps_environment: false,
                bytes: hostler_proto::encode(&copy).into(),
            }));
            changes.extend(
                rows.iter().map(|row| Change::Ended(hostler_proto::record::EndedTask { job: id, ..row.clone() })),
            );
        }
        store.commit(&Batch::of_changes(changes))?;
        store.maintain();
    }
    Ok(())
}
