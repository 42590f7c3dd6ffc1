//! Tests of the exact text of views.

use hostler_model::{Counted, JobId, Labels, WallTime};
use hostler_proto::api::{Amount, Capacity, HeadInfo, LiveCounts, NodeCounts, Pace, Stages};
use hostler_proto::link::{IoSource, IoUsage};
use hostler_proto::power::JobEnergy;
use jiff::tz::TimeZone;

use super::*;
use crate::output::job_columns::{Chosen, table, totals};

fn moment() -> Moment {
    Moment { now: WallTime(1_800_000_100_000), zone: TimeZone::UTC }
}

fn name(text: &str) -> NodeName {
    text.parse().expect("valid")
}

fn plain(id: u64) -> JobSummary {
    JobSummary {
        id: JobId(id),
        name: "train".to_owned(),
        user: "ada".to_owned(),
        state: JobState::Running,
        reason: None,
        node_problem: None,
        attempt: Attempt(1),
        nodes: vec![name("n1")],
        exit_code: None,
        command: None,
        expected_start_at: None,
        message: None,
        partition: None,
        node_count: 1,
        cpus: 2,
        memory_bytes: 600 << 20,
        gpus: 0,
        counted: Counted::NONE,
        priority: 0,
        time_limit_ms: None,
        array: None,
        labels: Labels::new(),
        tasks: TaskCounts::new([(JobState::Running, 1)]),
        submitted_at: WallTime(1_800_000_000_000),
        started_at: Some(WallTime(1_800_000_001_000)),
        ended_at: None,
    }
}

fn array(id: u64) -> JobSummary {
    JobSummary {
        name: "sweep".to_owned(),
        nodes: vec![name("n1"), name("n2"), name("n3")],
        array: Some("0-7".parse().expect("valid")),
        tasks: TaskCounts::new([
            (JobState::Pending, 2),
            (JobState::Running, 3),
            (JobState::Completed, 2),
            (JobState::Failed, 1),
        ]),
        ..plain(id)
    }
}

fn waiting(id: u64) -> JobSummary {
    JobSummary {
        state: JobState::Pending,
        reason: Some("waits for job 7".to_owned()),
        nodes: Vec::new(),
        started_at: None,
        ..plain(id)
    }
}

fn detail(summary: JobSummary, tasks_shown: Vec<TaskView>) -> JobDetail {
    JobDetail {
        notify: Vec::new(),
        summary,
        requeue: false,
        constraint: None,
        after: Vec::new(),
        command: "main.py --epochs 3".to_owned(),
        snapshot: None,
        directory: None,
        tasks_per_node: 1,
        surroundings: hostler_model::Surroundings::default(),
        held: None,
        allocation: false,
        step_hosts: Vec::new(),
        script: false,
        files: None,
        limits: vec![
            LimitView { name: "cpus".to_owned(), value: 2, enforcement: "enforced".to_owned(), why: None },
            LimitView {
                name: "memory".to_owned(),
                value: 600 << 20,
                enforcement: "advisory".to_owned(),
                why: Some("no cgroup".to_owned()),
            },
        ],
        energy: Some(JobEnergy { joules: 9_000, measured_joules: 0 }),
        terminal: false,
        unfetched: 1,
        kept_until: None,
        tasks_shown,
        tasks_next: None,
        indices: None,
    }
}

fn ended_task() -> TaskView {
    TaskView {
        index: 0,
        state: JobState::Failed,
        attempt: Attempt(2),
        node: Some(name("n1")),
        gpu_ids: Vec::new(),
        exit_code: Some(1),
        message: Some("exit code 1".to_owned()),
        started_at: Some(WallTime(1_800_000_001_000)),
        ended_at: Some(WallTime(1_800_000_031_000)),
        stages: Stages {
            placed_at: Some(WallTime(1_800_000_000_000)),
            staged_at: Some(WallTime(1_800_000_000_400)),
            exited_at: Some(WallTime(1_800_000_031_000)),
            collected_at: None,
        },
        result: None,
        fetched: false,
        usage: Some(Usage {
            wall_ms: 30_000,
            user_ms: 28_000,
            system_ms: 90,
            max_rss_bytes: 100 << 20,
            memory_peak_bytes: Some(110 << 20),
            io: Some(IoUsage { read_bytes: 3 << 20, write_bytes: 7 << 10, source: IoSource::Cgroup }),
        }),
        steps: Vec::new(),
        certificate: None,
        parts: Vec::new(),
    }
}

#[test]
fn jobs_are_shown_in_a_table() {
    let expected = "\
ID  NAME   USER  STATE        CPUS  MEMORY   TIME  NODE           REASON
 9  train  ada   pending         2    600M      -  -              waits for job 7
 8  sweep  ada   running 3/8     2    600M  1m39s  n1 and 2 more  1 failed, 2 completed
 7  train  ada   running         2    600M  1m39s  n1
";
    let all = [waiting(9), array(8), plain(7)];
    assert_eq!(table(&all, &[], &moment(), None), expected);

    let chosen: Vec<Chosen> = ["id", "LIMIT", "partition"].iter().map(|name| name.parse().expect("a column")).collect();
    let limited = JobSummary { time_limit_ms: Some(90_000), ..plain(7) };
    assert_eq!(table(&[limited], &chosen, &moment(), None), "ID  LIMIT  PARTITION\n 7  1m30s  -\n");
    let error = "colour".parse::<Chosen>().expect_err("unknown column").to_string();
    assert!(error.contains("partition"), "{error}");

    let other = |id, user: &str| JobSummary { user: user.to_owned(), ..waiting(id) };
    assert_eq!(
        totals(&[waiting(9), array(8), other(6, "ben")]).as_deref(),
        Some("ada: 1 pending, 1 running; ben: 1 pending")
    );
    let many: Vec<JobSummary> = (0..9).map(|id| other(id, &format!("u{id}"))).collect();
    assert!(totals(&many).expect("several").ends_with("u5: 1 pending; 3 other users: 3 jobs"));
    assert_eq!(totals(&[plain(1)]), None);
}

#[test]
fn array_names_each_state_of_its_tasks() {
    use JobState::{
        Cancelled, Completed, Completing, Failed, NodeFail, OutOfMemory, Pending, Preempted, Running, Starting, Timeout,
    };
    let shown = |state, tasks: &[(JobState, u64)]| {
        let job = JobSummary { state, tasks: TaskCounts::new(tasks.iter().copied()), exit_code: Some(3), ..array(8) };
        (super::state(&job), outcome(&job), counts(&job))
    };
    let said = |state: &str, outcome: &str, counts: &str| (state.to_owned(), outcome.to_owned(), counts.to_owned());
    assert_eq!(
        shown(Failed, &[(Completed, 429), (Failed, 71)]),
        said("failed", "71 failed, 429 completed", "500 tasks: 429 completed, 71 failed")
    );
    assert_eq!(shown(Cancelled, &[(Cancelled, 8)]), said("cancelled", "8 cancelled", "8 tasks: 8 cancelled"));
    assert_eq!(shown(Completed, &[(Completed, 8)]), said("completed", "", "8 tasks: 8 completed"));
    let mixed = "1 failed, 3 cancelled, 1 timeout, 1 out_of_memory, 2 node_fail, 1 preempted";
    let all = [(Failed, 1), (OutOfMemory, 1), (Timeout, 1), (Cancelled, 3), (NodeFail, 2), (Preempted, 1)];
    assert_eq!(shown(NodeFail, &all), said("node_fail", mixed, &format!("9 tasks: {mixed}")));
    let live = [(Starting, 2), (Running, 1), (Completing, 1), (Pending, 4), (OutOfMemory, 1)];
    let live_counts = "9 tasks: 4 pending, 2 starting, 1 running, 1 completing, 1 out_of_memory";
    assert_eq!(shown(Running, &live), said("running 1/9", "1 out_of_memory", live_counts));
}

#[test]
fn list_says_what_a_placed_job_does_and_why_other_tasks_wait() {
    let said = Some("node n1 prepares the environment".to_owned());
    let single = JobSummary { state: JobState::Starting, message: said.clone(), ..plain(7) };
    assert_eq!(outcome(&single), "node n1 prepares the environment");
    let tasks = TaskCounts::new([(JobState::Starting, 2), (JobState::Pending, 4)]);
    let message = Some("task 0: node n1 prepares the environment (and 1 more starting)".to_owned());
    let reason = Some("no node has enough free now".to_owned());
    let starting = JobSummary { state: JobState::Starting, tasks, message, reason: reason.clone(), ..array(8) };
    let both = "task 0: node n1 prepares the environment (and 1 more starting); 4 pending: no node has enough free now";
    assert_eq!(outcome(&starting), both);
    let text = job(&detail(starting, vec![]), &moment(), None);
    assert!(text.contains("waits      4 pending: no node has enough free now\n"), "{text}");
    let pending = JobSummary { state: JobState::Pending, tasks, reason, ..array(8) };
    assert_eq!(outcome(&pending), "no node has enough free now", "no task is placed");
    let running = JobSummary { state: JobState::Running, message: None, ..plain(7) };
    assert_eq!(outcome(&running), "");
}

#[test]
fn each_end_has_a_reason() {
    let ended = |state, exit_code, started: bool| JobSummary {
        state,
        exit_code,
        started_at: plain(7).started_at.filter(|_| started),
        ended_at: Some(WallTime(1_800_000_031_000)),
        time_limit_ms: Some(20_000),
        ..plain(7)
    };
    let cases = [
        (ended(JobState::Completed, Some(0), true), ""),
        (ended(JobState::Failed, Some(3), true), "exit code 3"),
        (ended(JobState::Failed, None, false), "could not start"),
        (ended(JobState::Timeout, Some(143), true), "reached its time limit of 20s"),
        (ended(JobState::OutOfMemory, Some(137), true), "exceeded its memory limit"),
        (ended(JobState::Cancelled, Some(143), true), "a user cancelled it while it ran"),
        (ended(JobState::Cancelled, None, false), "a user cancelled it before it ran"),
        (ended(JobState::NodeFail, None, true), "its node was lost"),
        (ended(JobState::Preempted, Some(143), true), "ended to free resources for another job"),
    ];
    for (summary, expected) in cases {
        assert_eq!(outcome(&summary), expected, "{}", summary.state);
        let told = JobSummary { message: Some("node n1 says why\nwith a log".to_owned()), ..summary.clone() };
        let code = if summary.exit_code == Some(3) { "exit code 3; " } else { "" };
        assert_eq!(outcome(&told), format!("{code}node n1 says why"));

        let (state, exit_code) = (summary.state, summary.exit_code);
        let task = TaskView { state, exit_code, message: None, started_at: summary.started_at, ..ended_task() };
        let text = job(&detail(summary, vec![task]), &moment(), None);
        let shown = text.lines().find_map(|line| line.strip_prefix("message    ")).unwrap_or_default();
        let is_code = expected.starts_with("exit code");
        assert_eq!(shown, if is_code { "" } else { expected }, "the state has the exit code: {text}");
    }
}

#[test]
fn array_task_is_shown_like_a_job() {
    let text = task(&detail(array(8), vec![ended_task()]), "8_0".parse().expect("a task"), &moment(), None);
    assert!(text.starts_with("job        8_0  sweep\n"), "{text}");
    assert!(text.contains("state      failed with exit code 1 on n1, attempt 2\n"), "{text}");
    assert!(text.contains("message    exit code 1\n") && text.contains("used       CPU time 28s"), "{text}");
}

#[test]
fn array_of_which_tasks_failed_did_not_end_with_code_0() {
    let failed = |exit_code| JobSummary { state: JobState::Failed, exit_code, ..array(8) };
    assert_eq!(ending(&failed(Some(3))), "failed with exit code 3");
    assert_eq!(ending(&failed(Some(0))), "failed");
}

#[test]
fn array_says_how_many_tasks_are_shown() {
    let part = JobDetail { tasks_next: Some(3), ..detail(array(8), vec![ended_task()]) };
    let text = job(&part, &moment(), None);
    let expected = "1 of 8 tasks shown. `hostler job 8 --from 3` shows the next; `hostler job 8_3` shows one.\n";
    assert!(text.ends_with(expected), "{text}");
}

#[test]
fn failed_job_is_shown_in_detail() {
    let summary = JobSummary {
        state: JobState::Failed,
        attempt: Attempt(2),
        exit_code: Some(1),
        ended_at: Some(WallTime(1_800_000_031_000)),
        ..plain(7)
    };
    let expected = "\
job        7  train
user       ada
state      failed with exit code 1 on n1, attempt 2
command    main.py --epochs 3
needs      2 CPUs and 600M of memory
limits     cpus 2 (enforced); memory 600M (advisory: no cgroup)
submitted  2027-01-15 08:00:00
started    2027-01-15 08:00:01
ended      2027-01-15 08:00:31, after 30s
stages     queued 0s, staging 400ms, environment 600ms, running 30s, collecting 0s
used       CPU time 28s user, 90ms system; at most 100M of memory in one process, 110M in total with cached files; \
3M read from disk, 7K written
message    exit code 1
energy     2.5 Wh, estimated
results    not fetched yet: hostler fetch 7
";
    let task = TaskView { result: Some("0".repeat(64).parse().expect("a digest")), ..ended_task() };
    assert_eq!(job(&detail(summary, vec![task]), &moment(), None), expected);
}

#[test]
fn results_of_an_earlier_attempt_are_named() {
    let text = |state, attempt, tasks| {
        let summary = JobSummary { state, attempt: Attempt(attempt), ..plain(7) };
        results("7", &JobDetail { unfetched: 1, ..detail(summary, tasks) })
    };
    let earlier = Some("not fetched yet: hostler fetch 7 --attempt 1".to_owned());
    assert_eq!(text(JobState::Pending, 1, vec![]), earlier);
    assert_eq!(text(JobState::Cancelled, 1, vec![]), earlier);
    assert_eq!(text(JobState::Running, 2, vec![TaskView { result: None, ..ended_task() }]), earlier);
    assert_eq!(text(JobState::NodeFail, 2, vec![TaskView { result: None, ..ended_task() }]), earlier);
    let own = TaskView { result: Some("0".repeat(64).parse().expect("a digest")), ..ended_task() };
    assert_eq!(text(JobState::Failed, 2, vec![own]).as_deref(), Some("not fetched yet: hostler fetch 7"));
}

#[test]
fn ended_job_says_that_its_results_were_fetched() {
    let text = |state| {
        let result = Some("0".repeat(64).parse().expect("a digest"));
        let task = TaskView { result, fetched: true, ..ended_task() };
        let summary = JobSummary { state, ..plain(7) };
        job(&JobDetail { unfetched: 0, ..detail(summary, vec![task]) }, &moment(), None)
    };
    assert!(text(JobState::Failed).ends_with("results    fetched\n"));
    assert!(!text(JobState::Running).contains("results"));
}

#[test]
fn array_shows_a_table_of_tasks() {
    let text = job(&detail(array(8), vec![ended_task()]), &moment(), None);
    assert!(text.contains("array      0-7  (8 tasks: 2 pending, 3 running, 2 completed, 1 failed)\n"), "{text}");
    let table = "\
TASK  STATE   NODE  ATTEMPT  EXIT  TIME  PEAK MEMORY  MESSAGE
   0  failed  n1          2     1   30s         100M  exit code 1
";
    assert!(text.ends_with(&format!("{table}\n1 of 8 tasks shown; 2 are waiting.\n")), "{text}");
}

#[test]
fn info_summarises_the_cluster() {
    let cluster = Info {
        head: HeadInfo {
            pid: 42,
            version: "0.1.0".to_owned(),
            api: 1,
            epoch: 3,
            embedded: true,
            address: "127.0.0.1:7000".to_owned(),
            authority: None,
            directory: "/state/head".to_owned(),
            refusing: None,
            results_bytes: Some(3 << 30),
            results_cap_bytes: 40 << 30,
            warning: None,
            machine: None,
        },
        nodes: NodeCounts { up: 4, ..NodeCounts::default() },
        pace: Some(Pace { ended: 78, over_ms: 599_400, through_in_ms: 346_000 }),
        tasks: LiveCounts { pending: 45, starting: 0, running: 2, completing: 0 },
        capacity: Capacity {
            cpus: Amount { total: 8, free: 6 },
            memory_bytes: Amount { total: 16 << 30, free: 12 << 30 },
            gpus: Amount::default(),
            counted: [("license".to_owned(), 10)].into(),
            counted_free: [("license".to_owned(), 8)].into(),
        },
    };
    let expected = "\
head       version 0.1.0, pid 42, epoch 3, embedded cluster
address    127.0.0.1:7000
state in   /state/head
nodes      4 up, 0 suspect, 0 down
cpus       6 of 8 free
memory     12G of 16G free
resources  license 8 of 10 free
tasks      45 pending, 0 starting, 2 running, 0 completing
pace       78 tasks ended in 10m00s; at this pace the 45 waiting ones take about 5m46s
results    3G of at most 40G
";
    assert_eq!(info(&cluster), expected);
}

#[test]
fn why_shows_the_expected_start_once() {
    let answer = Why {
        id: JobId(9),
        state: JobState::Pending,
        reason: None,
        lines: vec![
            "Job 9 waits: one job is ahead in the queue.".to_owned(),
            "It should start within 1m00s.".to_owned(),
        ],
        expected_start_at: Some(WallTime(1_800_000_160_000)),
    };
    let expected = "Job 9 waits: one job is ahead in the queue.\nIt should start within 1m00s.\n\
                    That is 2027-01-15 08:02:40 at the latest.\n";
    assert_eq!(why(&answer, &moment()), expected);
}
