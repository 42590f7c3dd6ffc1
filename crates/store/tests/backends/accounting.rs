//! Sums over ended jobs, and ended jobs by the time of their end.

use hostler_model::{JobId, JobState, WallTime};
use hostler_proto::accounting::{Consumption, EndedUse, GroupBy, JobEndings};
use hostler_store::{Change, EndedJob, HistoryFilter, Reader, Store, SumsFilter};

use super::common::changes;
use super::{Backend, ids, job};

const DAY_MS: i64 = 86_400_000;

/// A job of `user` that ended at this wall time and held its CPUs for `cpu_held_ms`.
fn used(id: u64, user: &str, name: &str, ended_at: i64, cpu_held_ms: u64) -> EndedJob {
    let sums = Consumption { cpu_held_ms, cpu_used_ms: cpu_held_ms / 2, ..Consumption::default() };
    let partition = id.is_multiple_of(2).then(|| "even".parse().expect("a name"));
    let used = EndedUse { name: name.to_owned(), partition, ended_at: WallTime(ended_at), sums };
    EndedJob { used, ..job(id, user, JobState::Completed, id) }
}

/// The groups of some days: key, jobs and core time.
fn groups(
    reader: &Reader,
    days: std::ops::RangeInclusive<i64>,
    user: Option<&str>,
    by: GroupBy,
) -> Vec<(String, u64, u64)> {
    let wanted = SumsFilter { days, user: user.map(str::to_owned), by, limit: 1_000 };
    let sums = reader.sums(&wanted).expect("the sums are readable");
    let total: (u64, u64) = sums
        .groups
        .iter()
        .fold((0, 0), |(jobs, held), (_, sums)| (jobs + sums.jobs(), held + sums.consumed.cpu_held_ms));
    assert_eq!(total, (sums.total.jobs(), sums.total.consumed.cpu_held_ms), "the groups add up to the total");
    sums.groups.into_iter().map(|(key, sums)| (key, sums.jobs(), sums.consumed.cpu_held_ms)).collect()
}

fn group(key: &str, jobs: u64, held: u64) -> (String, u64, u64) {
    (key.to_owned(), jobs, held)
}

pub(crate) fn sums_follow_jobs_that_end_run_again_and_are_forgotten(backend: &impl Backend) {
    let mut store = backend.open();
    store.load().expect("the store loads");
    let failed = EndedJob { state: JobState::Failed, ..used(3, "bob", "train", DAY_MS + 1, 300) };
    let all = [used(1, "ada", "train", 0, 100), used(2, "ada", "test", DAY_MS - 1, 20), failed];
    store.commit(&changes(all.map(Change::JobEnded).to_vec())).expect("the jobs are stored");
    let reader = store.reader();
    assert_eq!(groups(&reader, 0..=1, None, GroupBy::User), [group("bob", 1, 300), group("ada", 2, 120)]);
    assert_eq!(groups(&reader, 0..=0, None, GroupBy::User), [group("ada", 2, 120)]);
    assert_eq!(groups(&reader, 0..=1, Some("ada"), GroupBy::Name), [group("train", 1, 100), group("test", 1, 20)]);
    assert_eq!(groups(&reader, 0..=1, None, GroupBy::Partition), [group("", 2, 400), group("even", 1, 20)]);
    assert_eq!(groups(&reader, 0..=1, None, GroupBy::Day), [group("0", 2, 120), group("1", 1, 300)]);
    let wanted = SumsFilter { days: 1..=1, user: None, by: GroupBy::User, limit: 1 };
    let endings = reader.sums(&wanted).expect("the sums are readable").total.endings;
    assert_eq!(endings, JobEndings { failed: 1, ..JobEndings::default() });

    // Storing a job again changes nothing, e.g. when its results are fetched.
    store.commit(&changes(vec![Change::JobEnded(used(1, "ada", "train", 0, 100))])).expect("the job is stored");
    // A requeued job is counted when it ends again, with everything that it used.
    store.commit(&changes(vec![Change::JobReopened(JobId(2))])).expect("the job is removed");
    assert_eq!(groups(&reader, 0..=1, Some("ada"), GroupBy::Day), [group("0", 1, 100)]);
    store.commit(&changes(vec![Change::JobEnded(used(2, "ada", "test", DAY_MS, 50))])).expect("the job is stored");
    store.commit(&changes(vec![Change::Forgotten(JobId(1))])).expect("the job is removed");
    assert_eq!(groups(&reader, 0..=1, Some("ada"), GroupBy::Day), [group("0", 1, 100), group("1", 1, 50)]);
}

pub(crate) fn names_beyond_the_limit_share_their_sums(backend: &impl Backend) {
    let mut store = backend.open();
    store.load().expect("the store loads");
    let all = (1..=150).map(|id| Change::JobEnded(used(id, "ada", &format!("job-{id}"), 0, 1)));
    store.commit(&changes(all.collect::<Vec<_>>())).expect("the jobs are stored");
    store.commit(&changes(vec![Change::JobEnded(used(200, "bob", "job-1", 0, 1))])).expect("the job is stored");
    let found = groups(&store.reader(), 0..=0, Some("ada"), GroupBy::Name);
    assert_eq!(found.len(), 101);
    assert!(found.contains(&group("", 50, 50)) && found.contains(&group("job-100", 1, 1)), "{found:?}");
    assert_eq!(groups(&store.reader(), 0..=0, Some("bob"), GroupBy::Name), [group("job-1", 1, 1)]);
    store.commit(&changes(vec![Change::JobReopened(JobId(149))])).expect("the job is removed");
    assert!(groups(&store.reader(), 0..=0, Some("ada"), GroupBy::Name).contains(&group("", 49, 49)));
}

pub(crate) fn history_is_listed_by_the_time_of_the_end(backend: &impl Backend) {
    let mut store = backend.open();
    store.load().expect("the store loads");
    // Several jobs end at the same time.
    let all = (1..=30).map(|id| {
        let state = if id % 3 == 0 { JobState::Failed } else { JobState::Completed };
        let user = if id % 2 == 0 { "ada" } else { "bob" };
        Change::JobEnded(EndedJob { state, ..used(id, user, &format!("Train-{id}"), (id as i64 % 4) * 10, 1) })
    });
    store.commit(&changes(all.collect::<Vec<_>>())).expect("the jobs are stored");
    let reader = store.reader();
    let all = HistoryFilter {
        user: None,
        states: Vec::new(),
        name: String::new(),
        from: WallTime(0),
        before: (WallTime(i64::MAX), JobId(0)),
        limit: 4,
        most_bytes: 1 << 20,
    };
    let walk = |wanted: &HistoryFilter| -> Vec<u64> {
        let (mut wanted, mut found) = (wanted.clone(), Vec::new());
        loop {
            let page = reader.history(&wanted).expect("the history is readable");
            found.extend(ids(&page.jobs));
            match page.next {
                Some(next) => wanted.before = next,
                None => return found,
            }
        }
    };
    let mut expected: Vec<u64> = (1..=30).collect();
    expected.sort_by_key(|id| std::cmp::Reverse((id % 4, *id)));
    assert_eq!(walk(&all), expected);
    let only = |keep: &dyn Fn(u64) -> bool| expected.iter().copied().filter(|id| keep(*id)).collect::<Vec<u64>>();
    assert_eq!(walk(&HistoryFilter { user: Some("ada".to_owned()), ..all.clone() }), only(&|id| id % 2 == 0));
    assert_eq!(walk(&HistoryFilter { states: vec![JobState::Failed], ..all.clone() }), only(&|id| id % 3 == 0));
    assert_eq!(
        walk(&HistoryFilter { name: "train-1".to_owned(), ..all.clone() }),
        only(&|id| id == 1 || (10..20).contains(&id))
    );
    let middle = HistoryFilter { from: WallTime(10), before: (WallTime(30), JobId(0)), ..all.clone() };
    assert_eq!(walk(&middle), only(&|id| [1, 2].contains(&(id % 4))));
    assert_eq!(walk(&HistoryFilter { most_bytes: 1, ..all }), expected, "small pages lose no job");
}
