//! One test suite for all backends, which must all give the same guarantees.

mod accounting;
#[path = "../common/mod.rs"]
mod common;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use accounting::{
    history_is_listed_by_the_time_of_the_end, names_beyond_the_limit_share_their_sums,
    sums_follow_jobs_that_end_run_again_and_are_forgotten,
};
use bytes::Bytes;
use common::{changes, digest_of, ended, ended_bare, ended_on_two_nodes, event, events, put, task};
use hostler_model::{Attempt, Digest, JobId, JobState, TaskId, Timestamp};
use hostler_proto::accounting::EndedUse;
use hostler_proto::record::TaskResult;
use hostler_store::{
    Batch, Change, EndedJob, JobFilter, KeptResults, Loaded, MemoryStore, Reader, Snapshot, SqliteStore, Store,
    StoreError,
};
use proptest::prelude::*;

/// A store that can be closed and opened again.
trait Backend {
    type Store: Store;
    fn open(&self) -> Self::Store;
}

struct Sqlite(tempfile::TempDir);

impl Sqlite {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary directory"))
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("store.db")
    }
}

impl Backend for Sqlite {
    type Store = SqliteStore;

    fn open(&self) -> SqliteStore {
        SqliteStore::open(&self.path()).expect("the store opens")
    }
}

impl Backend for MemoryStore {
    type Store = Self;

    fn open(&self) -> Self {
        self.clone()
    }
}

/// Makes each function a test on each backend.
macro_rules! suite {
    ($($name:ident),* $(,)?) => {
        mod sqlite {
            $(#[test] fn $name() { super::$name(&super::Sqlite::new()); })*
        }
        mod memory {
            $(#[test] fn $name() { super::$name(&super::MemoryStore::new()); })*
        }
    };
}

suite!(
    new_store_has_no_events,
    events_are_loaded_in_order,
    commit_with_events_out_of_sequence_is_refused_completely,
    a_snapshot_replaces_the_events_before_it,
    snapshot_at_an_invalid_sequence_is_refused,
    history_rows_round_trip,
    history_is_read_in_pages,
    changes_are_applied_in_order,
    blobs_are_stored_listed_and_deleted,
    ended_jobs_are_found_by_id_and_key_and_replaced,
    ended_jobs_are_listed_newest_first_in_pages_with_their_total,
    arrays_are_found_by_the_states_of_their_tasks,
    jobs_are_found_by_the_state_of_their_results,
    jobs_that_ended_first_and_their_folders_are_listed,
    equal_environments_are_stored_once_while_a_job_needs_them,
    sums_follow_jobs_that_end_run_again_and_are_forgotten,
    names_beyond_the_limit_share_their_sums,
    history_is_listed_by_the_time_of_the_end,
);

fn arrays_are_found_by_the_states_of_their_tasks(backend: &impl Backend) {
    use JobState::{Cancelled, Completed, Failed, OutOfMemory, Timeout};
    let mut store = backend.open();
    let array = |id: u64, user: &str, state, others: &[JobState]| EndedJob {
        other_states: others.iter().copied().collect(),
        ..job(id, user, state, id)
    };
    let all = [
        array(1, "ada", OutOfMemory, &[Failed, Completed]),
        array(2, "bob", Timeout, &[Failed, Cancelled]),
        job(3, "ada", Failed, 3),
        job(4, "bob", Completed, 4),
        array(5, "ada", Failed, &[Completed]),
    ];
    store.commit(&changes(all.map(Change::JobEnded))).expect("jobs");
    let reader = store.reader();
    let list = |user: Option<&str>, states: &[JobState], any_task, except: &[u64], before: Option<u64>| {
        let except = except.iter().map(|id| JobId(*id)).collect();
        let wanted = JobFilter { user: user.map(str::to_owned), states: states.to_vec(), any_task, except };
        let page = reader.ended_jobs(&wanted, before.map(JobId), 3).expect("the store can be read");
        (ids(&page.jobs), page.total)
    };
    assert_eq!(list(None, &[Failed], false, &[], None), (vec![5, 3], 2), "only the states of the jobs");
    assert_eq!(list(None, &[Failed], true, &[], None), (vec![5, 3, 2], 4));
    assert_eq!(list(None, &[Failed], true, &[], Some(2)), (vec![1], 4));
    assert_eq!(list(None, &[Failed], true, &[2, 3], None), (vec![5, 1], 2));
    assert_eq!(list(Some("bob"), &[Failed], true, &[], None), (vec![2], 1));
    assert_eq!(list(None, &[Failed, Cancelled, Timeout], true, &[], None), (vec![5, 3, 2], 4), "each job counts once");
    assert_eq!(list(None, &[Completed], true, &[], None), (vec![5, 4, 1], 3));
    assert_eq!(list(None, &[], true, &[], None), (vec![5, 4, 3], 5));

    // After a requeue, job 1 ends with other states.
    store.commit(&changes([Change::JobReopened(JobId(1)), Change::Forgotten(JobId(2))])).expect("changes");
    store.commit(&changes([Change::JobEnded(array(1, "ada", Timeout, &[Completed]))])).expect("a job");
    assert_eq!(list(None, &[Failed], true, &[], None), (vec![5, 3], 2));
    assert_eq!(list(None, &[Cancelled], true, &[], None), (vec![], 0));
    assert_eq!(list(None, &[Timeout], true, &[], None), (vec![1], 1));
}

/// A job that ended at this time of the cluster's clock.
fn job(id: u64, user: &str, state: JobState, ended: u64) -> EndedJob {
    EndedJob {
        id: JobId(id),
        key: u128::from(id) << 70 | 7,
        user: user.to_owned(),
        state,
        other_states: BTreeSet::new(),
        ended: Timestamp(ended),
        snapshot: None,
        used: EndedUse::default(),
        results: KeptResults::default(),
        keeps_environment: false,
        bytes: Bytes::from(format!("job {id}")),
    }
}

/// The ids of jobs, decoded from their bytes.
fn ids(jobs: &[Bytes]) -> Vec<u64> {
    let id = |bytes: &Bytes| str::from_utf8(bytes).ok()?.strip_prefix("job ")?.parse().ok();
    jobs.iter().map(|bytes| id(bytes).expect("the bytes have the written form")).collect()
}

fn ended_jobs_are_found_by_id_and_key_and_replaced(backend: &impl Backend) {
    let mut store = backend.open();
    let first = job(1, "ada", JobState::Failed, 5);
    store.commit(&changes([Change::JobEnded(first.clone()), Change::Ended(ended(1, 0))])).expect("a job");
    drop(store);
    let mut store = backend.open();
    let reader = store.reader();
    let total = |states: &[JobState]| {
        let wanted = JobFilter { states: states.to_vec(), ..JobFilter::default() };
        reader.ended_jobs(&wanted, None, 9).expect("the store can be read").total
    };
    assert_eq!(reader.ended_job(JobId(1)).expect("the store can be read"), Some(first.bytes.clone()));
    assert_eq!(reader.job_of_key(first.key).expect("the store can be read"), Some(JobId(1)));
    assert_eq!(reader.job_of_key(first.key + 1).expect("the store can be read"), None);

    store.commit(&changes([Change::JobReopened(JobId(1))])).expect("an ended job can be reopened");
    assert_eq!(reader.job_of_key(first.key).expect("the store can be read"), None);
    assert_eq!(
        reader.ended_of(JobId(1), 0..=9, 9).expect("the store can be read").len(),
        1,
        "reopening a job keeps the rows of its tasks"
    );
    let again = EndedJob { state: JobState::Completed, bytes: Bytes::from_static(b"again"), ..first };
    for _ in 0..2 {
        store.commit(&changes([Change::JobEnded(again.clone())])).expect("a reopened job can end again");
    }
    assert_eq!(reader.ended_job(JobId(1)).expect("the store can be read"), Some(again.bytes));
    assert_eq!([total(&[]), total(&[JobState::Failed]), total(&[JobState::Completed])], [1, 0, 1]);

    store
        .commit(&changes([Change::Forgotten(JobId(1)), Change::Forgotten(JobId(2))]))
        .expect("ended jobs can be forgotten");
    assert_eq!(reader.ended_job(JobId(1)).expect("the store can be read"), None);
    assert_eq!(reader.ended_of(JobId(1), 0..=9, 9).expect("the store can be read"), []);
    assert_eq!(total(&[]), 0);
}

fn ended_jobs_are_listed_newest_first_in_pages_with_their_total(backend: &impl Backend) {
    let mut store = backend.open();
    let states = [JobState::Completed, JobState::Failed, JobState::Cancelled];
    let all = (1..=30).map(|id| {
        let user = if id % 2 == 0 { "ada" } else { "bob" };
        Change::JobEnded(job(id, user, states[id as usize % 3], 100 - id))
    });
    store.commit(&changes(all.collect::<Vec<_>>())).expect("jobs");
    let reader = store.reader();
    let list = |user: Option<&str>, states: &[JobState], except: &[u64], before: Option<u64>| {
        let except = except.iter().map(|id| JobId(*id)).collect();
        let wanted = JobFilter { user: user.map(str::to_owned), states: states.to_vec(), any_task: false, except };
        let page = reader.ended_jobs(&wanted, before.map(JobId), 4).expect("the store can be read");
        (ids(&page.jobs), page.total)
    };
    assert_eq!(list(None, &[], &[], None), (vec![30, 29, 28, 27], 30));
    assert_eq!(list(None, &[], &[], Some(27)), (vec![26, 25, 24, 23], 30));
    assert_eq!(list(None, &[], &[], Some(3)), (vec![2, 1], 30));
    assert_eq!(list(None, &[], &[29, 31], None), (vec![30, 28, 27, 26], 29));
    assert_eq!(list(Some("ada"), &[], &[], None), (vec![30, 28, 26, 24], 15));
    assert_eq!(list(None, &[JobState::Failed], &[28], None), (vec![25, 22, 19, 16], 9));
    let bad = [JobState::Failed, JobState::Cancelled];
    assert_eq!(list(None, &bad, &[], Some(28)), (vec![26, 25, 23, 22], 20));
    assert_eq!(list(Some("bob"), &bad, &[29], None), (vec![25, 23, 19, 17], 9));
    assert_eq!(list(Some("eve"), &[], &[], None), (vec![], 0));
    assert_eq!(list(None, &[JobState::Timeout], &[], None), (vec![], 0));
}

fn jobs_are_found_by_the_state_of_their_results(backend: &impl Backend) {
    let mut store = backend.open();
    let with = |id, user, any, unfetched, fetched, ended| {
        let results = KeptResults { any, unfetched, fetched };
        Change::JobEnded(EndedJob { results, ..job(id, user, JobState::Completed, ended) })
    };
    let jobs = [
        with(1, "ada", false, false, false, 1),
        with(2, "ada", true, true, false, 2),
        with(3, "bob", true, true, true, 9),
        with(4, "ada", true, false, true, 4),
        with(5, "ada", true, true, false, 5),
    ];
    store.commit(&changes(jobs)).expect("jobs");
    let reader = store.reader();
    let list = |user, unfetched, after, limit| -> Vec<u64> {
        let found = reader.jobs_with_results(user, unfetched, JobId(after), limit).expect("the store can be read");
        found.into_iter().map(|(id, _)| id.0).collect()
    };
    assert_eq!(list(None, false, 0, 9), [2, 3, 4, 5]);
    assert_eq!(list(None, false, 2, 2), [3, 4]);
    assert_eq!(list(None, true, 0, 9), [2, 3, 5]);
    assert_eq!(list(Some("ada"), false, 0, 9), [2, 4, 5]);
    assert_eq!(list(Some("ada"), true, 2, 9), [5]);
    assert_eq!(ids(&reader.jobs_with_fetched_results(9).expect("the store can be read")), [4, 3]);
    assert_eq!(ids(&reader.jobs_with_fetched_results(1).expect("the store can be read")), [4]);
}

fn jobs_that_ended_first_and_their_folders_are_listed(backend: &impl Backend) {
    let mut store = backend.open();
    let in_folder = |id, ended, folder| {
        Change::JobEnded(EndedJob { snapshot: Some(digest_of(&[folder])), ..job(id, "ada", JobState::Failed, ended) })
    };
    let last = Change::JobEnded(job(4, "ada", JobState::Failed, 1));
    store.commit(&changes([in_folder(1, 9, 7), in_folder(2, 3, 7), in_folder(3, 5, 8), last])).expect("jobs");
    let first = store.reader().first_ended(false, 3).expect("the store can be read");
    assert_eq!(first, [(JobId(4), Timestamp(1)), (JobId(2), Timestamp(3)), (JobId(3), Timestamp(5))]);
    let unfetched = KeptResults { any: true, unfetched: true, fetched: false };
    let waiting =
        EndedJob { snapshot: Some(digest_of(&[7])), results: unfetched, ..job(2, "ada", JobState::Failed, 3) };
    store.commit(&changes([Change::JobEnded(waiting)])).expect("a job");
    let first = |unfetched| store.reader().first_ended(unfetched, 9).expect("the store can be read");
    assert_eq!(first(true), [(JobId(2), Timestamp(3))]);
    assert_eq!(first(false), [(JobId(4), Timestamp(1)), (JobId(3), Timestamp(5)), (JobId(1), Timestamp(9))]);
    let mut folders = store.reader().snapshots_of_ended().expect("the store can be read");
    folders.sort_unstable();
    let mut expected = [digest_of(&[7]), digest_of(&[8])];
    expected.sort_unstable();
    assert_eq!(folders, expected);
}

fn equal_environments_are_stored_once_while_a_job_needs_them(backend: &impl Backend) {
    let mut store = backend.open();
    let digest = digest_of(&[1]);
    let keep = |job| Change::Environment { job: JobId(job), digest, bytes: Bytes::from_static(b"HOME=/") };
    store.commit(&changes([keep(1), keep(2), keep(2), keep(3)])).expect("environments");
    let is_kept = |store: &dyn Store| store.reader().environment(&digest).expect("the store can be read").is_some();
    let ended =
        |id, keeps_environment| Change::JobEnded(EndedJob { keeps_environment, ..job(id, "ada", JobState::Failed, 1) });
    store.commit(&changes([ended(1, false), ended(2, true)])).expect("jobs");
    assert!(is_kept(&store), "jobs 2 and 3 need the environment");
    store.commit(&changes([Change::JobReopened(JobId(2)), ended(3, false)])).expect("jobs");
    assert!(is_kept(&store), "the reopened job 2 needs the environment");
    store.commit(&changes([ended(2, true), Change::Forgotten(JobId(2))])).expect("ended jobs can be forgotten");
    assert!(!is_kept(&store));
    store.commit(&changes([keep(4)])).expect("an environment");
    assert_eq!(
        store.reader().environment(&digest).expect("the store can be read"),
        Some(Bytes::from_static(b"HOME=/"))
    );
}

fn new_store_has_no_events(backend: &impl Backend) {
    let mut store = backend.open();
    let loaded = store.load().expect("the store can be loaded");
    assert_eq!(loaded, Loaded::default());
    assert_eq!((loaded.first_sequence(), loaded.next_sequence()), (1, 1));
    store.save_snapshot(0, b"nothing yet").expect("a snapshot of no events");
    assert_eq!(store.load().expect("the store can be loaded").next_sequence(), 1);
}

fn events_are_loaded_in_order(backend: &impl Backend) {
    let mut store = backend.open();
    store.commit(&events(1, 1)).expect("one event");
    store.commit_all(&[events(2, 40), Batch::default(), events(41, 41)]).expect("several batches");
    store.commit(&Batch { first_sequence: 42, events: vec![Vec::new()], changes: Vec::new() }).expect("an empty event");
    drop(store);

    let mut expected: Vec<_> = (1..=41).map(event).collect();
    expected.push(Vec::new());
    let mut store = backend.open();
    assert_eq!(store.load().expect("the store can be loaded"), Loaded { snapshot: None, events: expected });
    store.commit(&events(43, 43)).expect("the next event continues the log");
}

fn commit_with_events_out_of_sequence_is_refused_completely(backend: &impl Backend) {
    let mut store = backend.open();
    store.commit(&events(1, 5)).expect("the first events");
    for first in [0, 1, 5, 7] {
        let error = store.commit_all(&[changes([put(1)]), events(first, first)]).expect_err("a gap or a repetition");
        assert!(matches!(error, StoreError::Sequence { expected: 6, found } if found == first), "{error}");
    }
    assert_eq!(
        store.reader().blob(&digest_of(&[1])).expect("the store can be read"),
        None,
        "a refused commit stores no changes"
    );
    store.commit(&events(6, 6)).expect("the store still works");
    assert_eq!(store.load().expect("the store can be loaded").next_sequence(), 7);
}

fn a_snapshot_replaces_the_events_before_it(backend: &impl Backend) {
    let mut store = backend.open();
    store.commit(&events(1, 10)).expect("events");
    store.commit(&changes([Change::Ended(ended(1, 0)), put(1)])).expect("changes");
    let state = |loaded: &Loaded| -> Vec<u8> {
        let snapshot = loaded.snapshot.iter().flat_map(|snapshot| snapshot.bytes.clone());
        snapshot.chain(loaded.events.concat()).collect()
    };
    let before = state(&store.load().expect("the store can be loaded"));

    for sequence in [4, 4, 9, 10] {
        let covered: Vec<u8> = (1..=sequence).flat_map(event).collect();
        store.save_snapshot(sequence, &covered).expect("a snapshot");
        let loaded = store.load().expect("the store can be loaded");
        assert_eq!(loaded.snapshot, Some(Snapshot { sequence, bytes: covered }));
        assert_eq!(loaded.events.len() as u64, 10 - sequence, "events before the snapshot are deleted");
        assert_eq!(state(&loaded), before, "snapshot and events give the same state");
    }
    drop(store);

    let mut store = backend.open();
    store.commit(&events(11, 11)).expect("events continue after a snapshot of all events");
    let loaded = store.load().expect("the store can be loaded");
    assert_eq!((loaded.first_sequence(), loaded.events), (11, vec![event(11)]));
    let reader = store.reader();
    assert!(reader.ended_one(task(1, 0)).expect("the store can be read").is_some(), "a snapshot deletes no history");
    assert!(reader.blob(&digest_of(&[1])).expect("the store can be read").is_some());
}

fn snapshot_at_an_invalid_sequence_is_refused(backend: &impl Backend) {
    let mut store = backend.open();
    store.commit(&events(1, 10)).expect("events");
    store.save_snapshot(5, b"five").expect("a snapshot");
    for sequence in [4, 11] {
        let error = store.save_snapshot(sequence, b"wrong").expect_err("older than the snapshot, or not yet stored");
        assert!(matches!(error, StoreError::Sequence { .. }), "{error}");
    }
    assert_eq!(
        store.load().expect("the store can be loaded").snapshot,
        Some(Snapshot { sequence: 5, bytes: b"five".to_vec() })
    );
}

fn history_rows_round_trip(backend: &impl Backend) {
    let rows = [ended(7, 0), ended_bare(7, 1), ended(7, u32::MAX), ended_on_two_nodes(8, 5)];
    let mut store = backend.open();
    store.commit(&changes(rows.clone().map(Change::Ended))).expect("history");
    drop(store);

    let store = backend.open();
    let reader = store.reader();
    for row in &rows {
        assert_eq!(
            reader.ended_one(TaskId { job: row.job, index: row.index }).expect("the store can be read").as_ref(),
            Some(row)
        );
    }
    assert_eq!(reader.ended_one(task(7, 2)).expect("the store can be read"), None);
    assert_eq!(reader.ended_of(JobId(7), 0..=u32::MAX, usize::MAX).expect("the store can be read"), rows[..3]);
    let results = reader.results_of(&[JobId(8), JobId(99), JobId(7)]).expect("the store can be read");
    let of = |results: Vec<TaskResult>| -> Vec<(TaskId, u32)> {
        results.into_iter().map(|result| (result.task, result.rank)).collect()
    };
    assert_eq!(
        results.iter().map(|result| result.manifest).collect::<Vec<_>>(),
        [
            rows[3].parts[1].end.manifest().expect("the row has a result"),
            rows[3].result.expect("the row has a result"),
            rows[0].result.expect("the row has a result"),
            rows[2].result.expect("the row has a result"),
        ]
    );
    let expected = [(task(8, 5), 1), (task(8, 5), 0), (task(7, 0), 0), (task(7, u32::MAX), 0)];
    assert_eq!(of(results), expected, "in the requested order, without tasks that have no result");
}

fn history_is_read_in_pages(backend: &impl Backend) {
    let mut store = backend.open();
    let rows: Vec<_> = (0..25).map(|index| ended(1, index * 2)).collect();
    store.commit(&changes(rows.iter().cloned().map(Change::Ended).collect::<Vec<_>>())).expect("history");
    let reader = store.reader();

    let mut read = Vec::new();
    let mut next = 0;
    loop {
        let page = reader.ended_of(JobId(1), next..=u32::MAX, 10).expect("the store can be read");
        let Some(last) = page.last() else { break };
        next = last.index + 1;
        read.extend(page);
    }
    assert_eq!(read, rows);
    let indices = |range, limit| -> Vec<u32> {
        reader.ended_of(JobId(1), range, limit).expect("the store can be read").iter().map(|row| row.index).collect()
    };
    assert_eq!(indices(3..=8, 100), [4, 6, 8]);
    assert_eq!(indices(0..=100, 0), [0; 0]);
    #[expect(clippy::reversed_empty_ranges, reason = "a query may contain a reversed range")]
    let backward = indices(8..=3, 100);
    assert_eq!(backward, [0; 0]);
}

fn changes_are_applied_in_order(backend: &impl Backend) {
    let mut store = backend.open();
    let (first, again) = (ended(1, 0), ended_bare(1, 0));
    let reopened = || Change::Reopened(task(1, 0));
    let reader = store.reader();
    let one = || reader.ended_one(task(1, 0)).expect("the store can be read");
    run(&mut store, [Change::Ended(first.clone()), reopened(), Change::Ended(again.clone())]);
    assert_eq!(one(), Some(again));
    run(&mut store, [Change::Ended(first.clone())]);
    assert_eq!(one(), Some(first.clone()), "each task has one row");
    run(&mut store, [reopened(), reopened()]);
    assert_eq!(one(), None);
    run(
        &mut store,
        [Change::Ended(first), Change::Ended(ended(1, 9)), Change::Ended(ended(2, 0)), Change::Forgotten(JobId(1))],
    );
    assert_eq!(reader.ended_of(JobId(1), 0..=u32::MAX, 10).expect("the store can be read"), []);
    assert_eq!(reader.ended_of(JobId(2), 0..=u32::MAX, 10).expect("the store can be read"), [ended(2, 0)]);
}

fn blobs_are_stored_listed_and_deleted(backend: &impl Backend) {
    let mut store = backend.open();
    let mut digests: Vec<Digest> = (0..5).map(|number| digest_of(&[number])).collect();
    run(&mut store, (0..5).map(put).collect::<Vec<_>>());
    run(&mut store, [Change::PutBlob(digests[0], Bytes::from_static(b"other"))]);
    drop(store);

    let mut store = backend.open();
    let reader = store.reader();
    assert_eq!(
        reader.blob(&digests[0]).expect("the store can be read").as_deref(),
        Some(&*event(0)),
        "a second blob with the same digest is ignored"
    );
    run(&mut store, [Change::DropBlob(digests[1]), Change::DropBlob(digests[1])]);
    let absent = digest_of(&[99]);
    assert_eq!(
        reader.missing_blobs(&[absent, digests[0], digests[1]]).expect("the store can be read"),
        [absent, digests[1]]
    );

    digests.remove(1);
    digests.sort();
    assert_eq!(reader.blobs_after(None, 2).expect("the store can be read"), digests[..2]);
    assert_eq!(reader.blobs_after(Some(digests[1]), 100).expect("the store can be read"), digests[2..]);
    assert!(reader.free_bytes().expect("the file system reports it") > 0);
}

fn run(store: &mut impl Store, all: impl Into<Vec<Change>>) {
    store.commit(&changes(all)).expect("the changes are stored");
}

/// A random operation on a store.
#[derive(Debug, Clone)]
enum Step {
    Commit { events: u8, changes: Vec<Change> },
    WrongSequence,
    Snapshot { back: u8 },
    Reopen,
}

fn change() -> impl Strategy<Value = Change> {
    let id = || (1u64..4, 0u32..4);
    prop_oneof![
        4 => id().prop_map(|(job, index)| Change::Ended(ended(job, index))),
        1 => id().prop_map(|(job, index)| Change::Ended(ended_bare(job, index))),
        2 => id().prop_map(|(job, index)| Change::Reopened(task(job, index))),
        2 => id().prop_map(|(job, index)| Change::SetAside(task(job, index))),
        1 => id().prop_map(|(job, index)| Change::EarlierEnded(ended(job, index))),
        1 => (id(), 0u32..3).prop_map(|((job, index), attempt)| Change::EarlierFetched(task(job, index), Attempt(attempt))),
        1 => (1u64..4).prop_map(|job| Change::Forgotten(JobId(job))),
        3 => (0u64..6).prop_map(put),
        1 => (0u64..6).prop_map(|number| Change::DropBlob(digest_of(&[number]))),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0u8..4, prop::collection::vec(change(), 0..6)).prop_map(|(events, changes)| Step::Commit { events, changes }),
        1 => Just(Step::WrongSequence),
        2 => (0u8..5).prop_map(|back| Step::Snapshot { back }),
        1 => Just(Step::Reopen),
    ]
}

/// All readable data of a store.
fn view(store: &mut impl Store) -> String {
    let loaded = store.load().expect("the store can be loaded");
    let reader: Reader = store.reader();
    let jobs = [JobId(1), JobId(2), JobId(3)];
    let history = jobs.map(|job| reader.ended_of(job, 0..=u32::MAX, 100).expect("the store can be read"));
    let results = reader.results_of(&jobs).expect("the store can be read");
    let blobs = reader.blobs_after(None, 100).expect("the store can be read");
    format!("{loaded:?} {history:?} {results:?} {blobs:?}")
}

fn apply(store: &mut impl Store, step: &Step) -> bool {
    let next = store.load().expect("the store can be loaded").next_sequence();
    match step {
        Step::Commit { events: count, changes } => {
            let batch = Batch { changes: changes.clone(), ..events(next, next + u64::from(*count) - 1) };
            store.commit(&batch).is_ok()
        }
        Step::WrongSequence => store.commit_all(&[changes([put(1)]), events(next + 1, next + 1)]).is_ok(),
        Step::Snapshot { back } => store.save_snapshot(next.saturating_sub(u64::from(*back)), b"state").is_ok(),
        Step::Reopen => true,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Both backends behave equally for every sequence of steps.
    #[test]
    fn backends_agree(steps in prop::collection::vec(step(), 1..25)) {
        let backend = Sqlite::new();
        let (mut disk, mut memory) = (Some(backend.open()), MemoryStore::new());
        for step in &steps {
            if matches!(step, Step::Reopen) {
                drop(disk.take());
                memory = memory.after_crash();
            }
            let disk = disk.get_or_insert_with(|| backend.open());
            prop_assert_eq!(apply(disk, step), apply(&mut memory, step), "{:?}", step);
            prop_assert_eq!(view(disk), view(&mut memory));
        }
    }
}

#[test]
fn second_head_is_refused_with_the_holder_of_the_store() {
    let backend = Sqlite::new();
    let first = backend.open();
    let error = SqliteStore::open(&backend.path()).expect_err("the store is in use");
    assert!(matches!(error, StoreError::InUse { pid: Some(pid), .. } if pid == std::process::id()), "{error}");
    drop(first);
    backend.open();
}

#[test]
fn only_the_owner_may_read_the_files() {
    use std::os::unix::fs::PermissionsExt;
    let backend = Sqlite::new();
    let mut store = backend.open();
    store.commit(&events(1, 1)).expect("an event");
    let files: Vec<_> =
        std::fs::read_dir(backend.0.path()).expect("a directory").map(|file| file.expect("a file")).collect();
    assert_eq!(files.len(), 4, "database, log, shared memory and lock: {files:?}");
    for file in files {
        let mode = file.metadata().expect("the file exists").permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{}", file.path().display());
    }
}

#[test]
fn file_that_is_not_a_store_is_refused_unchanged() {
    let backend = Sqlite::new();
    for contents in [b"notes, and more notes: ".repeat(50), other_database(&backend.0.path().join("other.db"))] {
        std::fs::write(backend.path(), &contents).expect("the file is writable");
        let error = SqliteStore::open(&backend.path()).expect_err("the file is not a store");
        assert!(matches!(error, StoreError::NotAStore { .. }), "{error}");
        assert_eq!(std::fs::read(backend.path()).expect("the file exists"), contents);
    }
}

fn other_database(path: &Path) -> Vec<u8> {
    let connection = rusqlite::Connection::open(path).expect("a new database");
    connection.execute_batch("CREATE TABLE theirs (x)").expect("the table can be created");
    drop(connection);
    std::fs::read(path).expect("the file exists")
}

#[test]
fn damage_is_detected_and_reported() {
    let damages = [
        ("UPDATE events SET bytes = x'00' WHERE sequence = 4", "event 4"),
        ("UPDATE events SET checksum = checksum + 1 WHERE sequence = 5", "event 5"),
        ("DELETE FROM events WHERE sequence = 6", "event 6"),
        ("UPDATE snapshot SET bytes = x'00'", "the snapshot of event 3"),
        ("UPDATE snapshot SET sequence = 2", "the snapshot of event 2"),
    ];
    for (damage, named) in damages {
        let backend = Sqlite::new();
        let mut store = backend.open();
        store.commit(&events(1, 10)).expect("events");
        store.save_snapshot(3, b"three").expect("a snapshot");
        drop(store);
        let connection = rusqlite::Connection::open(backend.path()).expect("the store can be opened");
        assert_eq!(connection.execute(damage, []).expect("the row can be damaged"), 1);
        drop(connection);

        let error = backend.open().load().expect_err(damage);
        assert!(matches!(&error, StoreError::Damaged { what, .. } if what == named), "{damage}: {error}");
    }
}

#[test]
fn flipped_byte_in_the_file_is_detected() {
    let backend = Sqlite::new();
    let mut store = backend.open();
    store.commit(&events(1, 299)).expect("events");
    drop(store);
    let mut file = std::fs::read(backend.path()).expect("the log was moved into the database when it closed");
    let needle = event(250);
    let at = file.windows(needle.len()).position(|window| window == needle).expect("the event is in the file");
    file[at + 100] ^= 1;
    std::fs::write(backend.path(), file).expect("the file is writable");

    let error = backend.open().load().expect_err("one bit is wrong");
    assert!(matches!(&error, StoreError::Damaged { what, .. } if what == "event 250"), "{error}");
}

#[test]
fn maintenance_moves_the_log_into_the_database() {
    let backend = Sqlite::new();
    let mut store = backend.open();
    let wal = backend.path().with_file_name("store.db-wal");
    let mut largest = 0;
    for number in 0..100 {
        let bytes = Bytes::from(vec![number; 1 << 20]);
        run(&mut store, [Change::PutBlob(digest_of(&[u64::from(number)]), bytes)]);
        store.maintain();
        largest = largest.max(wal.metadata().expect("the log exists").len());
    }
    assert!(largest < 32 << 20, "the log grew to {largest} bytes while 100 MiB went through it");
}

#[test]
fn readers_work_concurrently_and_outlive_the_store() {
    let backend = Sqlite::new();
    let mut store = backend.open();
    let reader = store.reader();
    std::thread::scope(|scope| {
        for _ in 0..16 {
            let reader = reader.clone();
            scope.spawn(move || {
                // A batch is visible as a whole: both rows of a pair or none.
                let mut seen = 0;
                while seen < 200 {
                    let rows = reader.ended_of(JobId(1), 0..=u32::MAX, 1000).expect("the store can be read");
                    assert_eq!(rows.len() % 2, 0);
                    assert!(rows.len() >= seen);
                    seen = rows.len();
                }
            });
        }
        for pair in 0..100 {
            run(&mut store, [Change::Ended(ended(1, pair * 2)), Change::Ended(ended(1, pair * 2 + 1))]);
            store.maintain();
        }
    });
    drop(store);
    assert_eq!(reader.ended_of(JobId(1), 0..=u32::MAX, 1000).expect("the reader outlives the store").len(), 200);
    let mut store = backend.open();
    run(&mut store, [put(1)]);
    assert!(reader.blob(&digest_of(&[1])).expect("the reader sees changes of the new store").is_some());
}
