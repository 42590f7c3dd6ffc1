//! Figures over time, through the real database: bounds, age, attempts, damage.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use hostler_model::{Attempt, Bucket, Epoch, Figures, JobId, Metric, NodeName, RunId, TaskId};
use hostler_store::series::{Curve, MINUTE_DAYS, Measured, Series, Subject, TASK_SLOTS, TEN_MINUTE_DAYS};
use tempfile::TempDir;

const DAY: u64 = 24 * 60;

/// A minute at which a day begins.
const BEGIN: u64 = 20_000 * DAY;

struct Scene {
    directory: TempDir,
    series: Series,
}

impl Scene {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let series = Series::open(&directory.path().join("series.db")).expect("a new database");
        Self { directory, series }
    }

    fn reopen(&mut self) {
        self.series = Series::open(&self.directory.path().join("series.db")).expect("a database");
    }

    fn record(&self, subject: &Subject, minute: u64, figures: Figures) {
        let measured = Measured { subject: subject.clone(), minute, figures };
        self.series.record(&[measured]).expect("the disk has space");
    }

    fn of_task(&self, run: RunId) -> Vec<Curve> {
        self.series.of_task(run.task, 0).expect("the database is readable")
    }

    fn values(&self) -> u64 {
        self.series.size().expect("the database is readable").0
    }
}

fn node() -> NodeName {
    "n1".parse().expect("a node name")
}

fn run(job: u64, attempt: u32) -> RunId {
    RunId { task: TaskId { job: JobId(job), index: 0 }, attempt: Attempt(attempt), epoch: Epoch(1) }
}

fn subject(run: RunId) -> Subject {
    Subject::Run { run, rank: 0 }
}

fn cpu(value: f32) -> Figures {
    Figures::from([(Metric::Cpu, Bucket::of(value, 60))])
}

/// Figures that hardly compress, from a linear congruential generator.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> f32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 40) as f32
    }

    fn figures(&mut self, metrics: &[Metric]) -> Figures {
        let mut bucket = || {
            let mut three = [self.next(), self.next(), self.next()];
            three.sort_by(f32::total_cmp);
            Bucket { min: three[0], mean: three[1], max: three[2], seconds: 60 }
        };
        metrics.iter().map(|metric| (*metric, bucket())).collect()
    }
}

/// All values in curves.
fn all(curves: &[Curve], metric: Metric) -> Vec<Bucket> {
    curves.iter().filter_map(|curve| curve.columns.get(&metric)).flatten().flatten().copied().collect()
}

#[test]
fn months_of_a_node_stay_within_the_documented_bound() {
    const METRICS: [Metric; 1] = [Metric::Memory];
    let scene = Scene::new();
    let mut noise = Noise(1);
    let mut largest = 0;
    for day in 0..MINUTE_DAYS + TEN_MINUTE_DAYS + 4 {
        let minutes = (0..DAY).map(|minute| Measured {
            subject: Subject::Node(node()),
            minute: BEGIN + day * DAY + minute,
            figures: noise.figures(&METRICS),
        });
        scene.series.record(&minutes.collect::<Vec<_>>()).expect("the disk has space");
        scene.series.maintain(BEGIN + (day + 1) * DAY).expect("the disk has space");
        largest = largest.max(scene.values());
    }
    let values = (MINUTE_DAYS + 1) * DAY + (TEN_MINUTE_DAYS + 1) * DAY / 10;
    assert!(largest <= 7 * values * METRICS.len() as u64, "{largest} bytes");
}

#[test]
fn weeks_of_a_task_stay_within_the_documented_bound() {
    let scene = Scene::new();
    let (mut noise, task) = (Noise(2), run(1, 1));
    let metrics: Vec<Metric> = Metric::ALL.into_iter().filter(|metric| metric.is_of_runs()).collect();
    let mut told = Vec::new();
    for minute in 0..21 * DAY {
        let measured = Measured { subject: subject(task), minute: BEGIN + minute, figures: noise.figures(&metrics) };
        told.push(measured);
    }
    for some in told.chunks(100) {
        scene.series.record(some).expect("the disk has space");
    }
    scene.series.maintain(BEGIN + 30 * DAY).expect("the disk has space");
    let curves = scene.of_task(task);
    assert_eq!(curves.len(), 1, "all minutes are in the block");
    assert!(curves[0].len <= TASK_SLOTS && curves[0].width == 128, "{} slots of {}", curves[0].len, curves[0].width);
    // The measured time of two hours takes two bytes.
    assert!(scene.values() <= (TASK_SLOTS * metrics.len() * 8) as u64, "{} bytes", scene.values());
    for metric in metrics {
        let (told, kept) = (told.iter().map(|one| one.figures[&metric]), all(&curves, metric));
        let extremes = |all: Vec<Bucket>| {
            let min = all.iter().map(|one| one.min).fold(f32::MAX, f32::min);
            (min, all.iter().map(|one| one.max).fold(0.0, f32::max), all.iter().map(|one| one.seconds).sum::<u32>())
        };
        let (told, kept) = (extremes(told.collect()), extremes(kept));
        assert!((told.0 - kept.0).abs() <= told.0 * 0.002 && (told.1 - kept.1).abs() <= told.1 * 0.002);
        assert_eq!(told.2, kept.2, "no measured second is lost or counted twice");
    }
}

#[test]
fn figures_survive_a_restart_and_gaps_stay_gaps() {
    let mut scene = Scene::new();
    let about = Subject::Node(node());
    for minute in (0..200).filter(|minute| !(70..80).contains(minute)) {
        scene.record(&about, BEGIN + minute, cpu(minute as f32));
    }
    scene.reopen();
    let curves = scene.series.of_node(&node(), BEGIN, BEGIN + DAY).expect("the database is readable");
    let mut whole = Curve::new(BEGIN, 1, 200);
    curves.iter().for_each(|curve| whole.absorb(curve));
    for (minute, value) in (0..200).zip(&whole.columns[&Metric::Cpu]) {
        let expected = (!(70..80).contains(&minute)).then_some(minute as f32);
        assert_eq!(value.map(|bucket| bucket.mean), expected, "minute {minute}");
    }
    let part = scene.series.of_node(&node(), BEGIN + 190, BEGIN + 195).expect("the database is readable");
    assert!(part.iter().all(|curve| curve.start < BEGIN + 195 && curve.end() > BEGIN + 190));
}

#[test]
fn two_reports_about_one_minute_are_merged() {
    let scene = Scene::new();
    scene.record(&subject(run(1, 1)), BEGIN, cpu(1.0));
    scene.record(&subject(run(1, 1)), BEGIN, Figures::from([(Metric::Cpu, Bucket::of(3.0, 20))]));
    assert_eq!(all(&scene.of_task(run(1, 1)), Metric::Cpu), [Bucket { min: 1.0, mean: 1.5, max: 3.0, seconds: 80 }]);
}

#[test]
fn late_minutes_of_a_packed_task_are_kept() {
    let scene = Scene::new();
    for minute in (20..60).chain(5..20) {
        scene.record(&subject(run(1, 1)), BEGIN + minute, cpu(1.0));
    }
    scene.series.maintain(BEGIN + DAY).expect("the disk has space");
    let curves = scene.of_task(run(1, 1));
    assert_eq!((curves[0].start, all(&curves, Metric::Cpu).len()), (BEGIN + 5, 55));
}

#[test]
fn only_the_last_attempt_of_a_task_is_kept() {
    let scene = Scene::new();
    let report = |attempt, minute, value| scene.record(&subject(run(1, attempt)), BEGIN + minute, cpu(value));
    (0..40).for_each(|minute| report(1, minute, 1.0));
    report(2, 50, 2.0);
    report(1, 40, 1.0);
    assert_eq!(all(&scene.of_task(run(1, 1)), Metric::Cpu), [Bucket::of(2.0, 60)]);
}

#[test]
fn figures_of_forgotten_jobs_are_deleted() {
    let scene = Scene::new();
    for job in [3, 5, 9] {
        (0..40).for_each(|minute| scene.record(&subject(run(job, 1)), BEGIN + minute, cpu(1.0)));
    }
    assert_eq!(scene.series.jobs(Some(JobId(3)), 10).expect("readable"), [JobId(5), JobId(9)]);
    scene.series.forget(&[JobId(3), JobId(9)]).expect("the disk has space");
    assert_eq!(scene.series.jobs(None, 10).expect("readable"), [JobId(5)]);
    assert!(scene.of_task(run(3, 1)).is_empty() && !scene.of_task(run(5, 1)).is_empty());
    scene.series.forget(&[JobId(5)]).expect("the disk has space");
    assert_eq!(scene.values(), 0);
}

#[test]
fn damaged_and_foreign_databases_begin_empty() {
    let mut scene = Scene::new();
    let path = scene.directory.path().join("series.db");
    for damage in [b"no database at all".repeat(1000), Vec::new()] {
        scene.record(&Subject::Node(node()), BEGIN, cpu(1.0));
        fs::write(&path, damage).expect("the test owns the file");
        for rest in ["series.db-wal", "series.db-shm"] {
            let _ = fs::remove_file(scene.directory.path().join(rest));
        }
        scene.reopen();
        assert!(scene.series.of_node(&node(), 0, u64::MAX).expect("readable").is_empty());
        scene.record(&Subject::Node(node()), BEGIN, cpu(2.0));
        assert_eq!(scene.series.of_node(&node(), 0, u64::MAX).expect("readable").len(), 1);
    }
}

#[test]
fn a_database_that_is_damaged_while_it_is_open_begins_empty() {
    let scene = Scene::new();
    let path = scene.directory.path().join("series.db");
    let minutes: Vec<_> = (0..20_000)
        .map(|minute| Measured { subject: subject(run(1 + minute / 10, 1)), minute: BEGIN + minute, figures: cpu(1.0) })
        .collect();
    scene.series.record(&minutes).expect("the disk has space");
    let length = fs::metadata(&path).expect("the file exists").len() as usize;
    fs::write(&path, vec![0xA5; length]).expect("the test owns the file");
    fs::write(scene.directory.path().join("series.db-wal"), b"").expect("the test owns the file");
    let mut failures = 0;
    while scene.series.record(&minutes).is_err() {
        failures += 1;
        assert!(failures < 5, "the database is not replaced");
    }
    assert!(!scene.of_task(run(1, 1)).is_empty());
}

#[test]
fn database_of_an_earlier_release_is_closed_to_other_users() {
    let mut scene = Scene::new();
    let path = scene.directory.path().join("series.db");
    let mode = || fs::metadata(&path).expect("the file exists").permissions().mode() & 0o777;
    assert_eq!(mode(), 0o600, "a new one");
    fs::set_permissions(&path, Permissions::from_mode(0o644)).expect("ours");
    scene.reopen();
    assert_eq!(mode(), 0o600);
}
