//! Bounds on the waiting jobs of one user: checked at each submission, and counted correctly as jobs start, end and are requeued.

use std::sync::Arc;

use hostler_core::head::{Command, Refusal, State, SubmissionKey, WaitingJobs, memory_of};
use hostler_model::{Dependency, JobId, JobSpec, Work};
use hostler_proto::api::JobAction;
use proptest::prelude::*;

use crate::harness::{Head, ended, spec, user};

/// A job with a command line of about this length.
fn long(bytes: usize) -> JobSpec {
    JobSpec { work: Work::command(["true".to_owned(), "x".repeat(bytes)], "/"), ..spec() }
}

fn held(spec: JobSpec) -> JobSpec {
    JobSpec { hold: true, ..spec }
}

fn refused(outcome: Result<JobId, Refusal>) -> String {
    let refusal = outcome.expect_err("the queue limit refuses the job");
    assert_eq!(refusal.code(), "over_quota");
    refusal.to_string()
}

#[test]
fn waiting_jobs_of_one_user_are_bounded_in_bytes_and_operators_are_exempt() {
    let mut head = Head::new();
    head.state.settings.waiting_bytes = 3 << 20;
    let jobs: Vec<JobId> =
        (0..3).map(|_| head.submit(held(long(900 << 10))).expect("the waiting jobs are within the limit")).collect();
    let said = refused(head.submit(held(long(900 << 10))));
    assert!(said.starts_with("the waiting jobs of ada may take at most 3M of the head's memory"), "{said}");
    head.submit(held(long(100 << 10))).expect("a smaller job is within the limit");

    // Each user has a separate limit, and operators have none.
    let submit = |operator: bool, name: &str, key: u128| Command::Submit {
        caller: hostler_core::head::Caller { operator, ..user(name) },
        key: SubmissionKey(key << 64),
        spec: Arc::new(held(long(900 << 10))),
        environment: None,
        snapshot_is_complete: true,
    };
    head.command(&submit(false, "ben", 1)).expect("accepted");
    head.command(&submit(true, "ada", 2)).expect("operators have no limit");

    // A cancelled job no longer counts; a requeued job counts again.
    for &job in &jobs[..2] {
        head.act(job, JobAction::Cancel).expect("accepted");
    }
    head.submit(held(long(800 << 10))).expect("cancelled jobs do not count");
    let again = head.act(jobs[0], JobAction::Requeue).expect_err("the queue limit refuses the job");
    assert!(again.to_string().contains("waiting jobs of ada"), "{again}");
}

#[test]
fn gaps_that_dependencies_leave_in_an_array_count_as_memory() {
    let mut head = Head::new();
    head.state.settings.waiting_bytes = 1 << 20;
    let array = |text: &str| Some(text.parse().expect("an array"));
    let sparse = head.submit(JobSpec { array: array("0-19997:2,19998"), ..held(spec()) }).expect("accepted");
    head.act(sparse, JobAction::Cancel).expect("accepted");
    let again = Command::Act { caller: user("ada"), job: sparse, index: Some(19_998), action: JobAction::Requeue };
    head.command(&again).expect("accepted");
    // Every second task of these jobs ends at once.
    let after: Dependency = format!("aftercorr:{sparse}").parse().expect("a dependency");
    let dependent = || JobSpec { array: array("0-19999"), after: vec![after].into(), ..spec() };
    let accepted = (0..100).take_while(|_| head.submit(dependent()).is_ok()).count();
    assert!((2..20).contains(&accepted), "{accepted} jobs of about 160 KiB fit in 1 MiB");
    assert_eq!(head.state.waiting_jobs_of("ada"), recomputed(&head));
    assert!(refused(head.submit(dependent())).contains("the waiting jobs of ada"));
}

#[test]
fn array_with_too_many_gaps_and_long_grace_are_refused() {
    let mut head = Head::new();
    let array = |text: &str| JobSpec { array: Some(text.parse().expect("an array")), ..held(spec()) };
    head.submit(array("0-19998:2")).expect("ten thousand ranges");
    let refusal = head.submit(array("0-20000:2")).expect_err("one range more");
    assert!(refusal.to_string().contains("at most 10000 ranges of indices without gaps, and this one has 10001"));
    let grace = |ms| JobSpec { grace_ms: Some(ms), ..held(spec()) };
    head.submit(grace(3_600_000)).expect("an hour");
    let refusal = head.submit(grace(3_600_001)).expect_err("more than an hour").to_string();
    assert!(refusal.contains("at most one hour"), "{refusal}");
}

#[test]
fn cancel_that_changes_nothing_is_not_recorded() {
    let mut head = Head::new();
    let job = head.submit(JobSpec { array: Some("0-3".parse().expect("an array")), ..held(spec()) }).expect("accepted");
    let cancel = Command::Act { caller: user("ada"), job, index: Some(2), action: JobAction::Cancel };
    head.command(&cancel).expect("accepted");
    let events = head.log().len();
    head.command(&cancel).expect("it is cancelled");
    assert_eq!(head.log().len(), events);
}

#[test]
fn tasks_that_are_cancelled_together_make_one_event() {
    let mut head = Head::new();
    let job = head.submit(JobSpec { array: Some("0-9".parse().expect("an array")), ..held(spec()) }).expect("accepted");
    let cancel =
        |indices: &str| Command::CancelTasks { caller: user("ada"), job, indices: indices.parse().expect("indices") };
    let events = head.log().len();
    head.command(&cancel("2-4,7,20")).expect("some of them exist");
    assert_eq!(head.log().len(), events + 1);
    assert_eq!(head.job(job).pending.to_string(), "0-1,5-6,8-9");
    head.command(&cancel("3")).expect("it is cancelled");
    assert_eq!(head.log().len(), events + 1, "a repetition is not recorded");
    assert_eq!(head.command(&cancel("10-12")).expect_err("none of them exists").code(), "no_such_task");
    let eve = Command::CancelTasks { caller: user("eve"), job, indices: "0".parse().expect("indices") };
    assert_eq!(head.command(&eve).expect_err("it is not eve's job").code(), "not_yours");
    head.command(&cancel("0-9")).expect("the other tasks wait");
    assert!(head.state.job(job).is_none_or(|job| job.is_ended()), "all tasks are cancelled");
}

#[test]
fn singleton_waits_for_earlier_jobs_of_its_name_and_user() {
    let mut head = Head::new();
    let singleton = |name: &str| JobSpec { name: name.into(), singleton: true, ..spec() };
    let first = head.submit(held(singleton("a"))).expect("accepted");
    let second = head.submit(singleton("a")).expect("accepted");
    let third = head.submit(singleton("a")).expect("accepted");
    let other = head.submit(singleton("b")).expect("accepted");
    let waits_for = |head: &Head, job: JobId| -> Vec<String> {
        head.state.job(job).expect("the job waits").unmet.iter().map(ToString::to_string).collect()
    };
    assert_eq!(waits_for(&head, second), [format!("afterany:{first}")]);
    assert_eq!(waits_for(&head, third), [format!("afterany:{second}"), format!("afterany:{first}")]);
    assert!(waits_for(&head, other).is_empty(), "jobs of other names do not count");
    head.act(first, JobAction::Cancel).expect("accepted");
    assert!(waits_for(&head, second).is_empty());
    assert_eq!(waits_for(&head, third), [format!("afterany:{second}")]);
}

#[test]
fn job_with_more_than_a_thousand_dependencies_is_refused() {
    let mut head = Head::new();
    let first = head.submit(held(spec())).expect("accepted");
    let after = |many: usize| {
        let dependency: Dependency = format!("afterok:{first}").parse().expect("a dependency");
        JobSpec { after: vec![dependency; many].into(), ..spec() }
    };
    let job = head.submit(after(1_000)).expect("the most dependencies allowed");
    assert_eq!(head.job(job).unmet.len(), 1, "the same dependency counts once");
    let refusal = head.submit(after(1_001)).expect_err("too many");
    assert_eq!(refusal.code(), "bad_spec");
    assert!(refusal.to_string().contains("at most 1000 jobs, and this job depends on 1001"), "{refusal}");
}

#[test]
fn memory_estimate_counts_every_part_of_variable_length() {
    let small = memory_of(&spec());
    let mut parts = vec![
        long(1 << 10),
        JobSpec { name: "x".repeat(255).into(), ..spec() },
        JobSpec { work: Work::command(["true"], "/".repeat(1 << 10)), ..spec() },
        JobSpec { array: Some("0-999:2".parse().expect("an array")), ..spec() },
        JobSpec { after: vec!["1".parse().expect("a dependency"); 100].into(), ..spec() },
        JobSpec { constraint: Some("a|b|c|d|e|f|g|h".parse().expect("a constraint")), ..spec() },
        JobSpec { partition: Some("a-long-name-of-a-partition".parse().expect("a name")), ..spec() },
    ];
    let mut with_counted = spec();
    with_counted.request.counted.insert("license", 1).expect("a name");
    parts.push(with_counted);
    for part in parts {
        let more = memory_of(&part) - small;
        assert!(more > 10, "only {more} bytes are counted for {part:?}");
    }
    // Empty arguments are short in JSON but take memory.
    let empty = JobSpec { work: Work::command(vec![""; 1_000], "/"), ..spec() };
    assert!(memory_of(&empty) > 1_000 * size_of::<String>() as u64);
}

/// A step of a random history.
#[derive(Debug, Clone)]
enum Step {
    /// A user submits a job: command line bytes, tasks, whether held, whether dependent on an earlier job.
    Submit(usize, u32, bool, bool),
    /// An action on one of the jobs, by its index, or on one of its tasks.
    Act(usize, Option<u32>, JobAction),
    /// The first placed run ends with this exit code.
    End(i32),
    /// The node reboots.
    Reboot,
    /// The head is killed and restarted.
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    let action = prop_oneof![
        Just(JobAction::Cancel),
        Just(JobAction::Hold),
        Just(JobAction::Release),
        Just(JobAction::Requeue),
        Just(JobAction::RequeueAll)
    ];
    prop_oneof![
        4 => (0..300_usize, 1..5_u32, any::<bool>(), any::<bool>())
            .prop_map(|(bytes, tasks, held, after)| Step::Submit(bytes, tasks, held, after)),
        4 => (0..8_usize, proptest::option::of(0..5_u32), action).prop_map(|(job, index, action)| Step::Act(job, index, action)),
        3 => (0..2).prop_map(Step::End),
        1 => Just(Step::Reboot),
        1 => Just(Step::Restart),
    ]
}

/// The totals computed from the jobs, as after a restart.
fn recomputed(head: &Head) -> WaitingJobs {
    let waiting = head.state.jobs().filter(|job| job.user == "ada" && !job.pending.is_empty());
    let least: u64 = waiting.map(|job| memory_of(&job.spec)).sum();
    let stored: State = hostler_proto::decode(&hostler_proto::encode(&head.state)).expect("a state");
    let totals = stored.restored().waiting_jobs_of("ada");
    assert!(totals.bytes >= least, "{totals:?}");
    totals
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn stored_totals_equal_recomputed_ones(steps in proptest::collection::vec(step(), 1..60)) {
        let mut head = Head::new();
        let mut connection = 1;
        head.hello("n1", connection, "boot", vec![]);
        let mut jobs: Vec<JobId> = Vec::new();
        for step in steps {
            match step.clone() {
                Step::Submit(bytes, tasks, held, depends) => {
                    let array = (tasks > 1).then(|| format!("0-{}:2", 2 * tasks - 2).parse().expect("an array"));
                    let on = jobs.last().filter(|_| depends);
                    let after = on.map(|job| format!("afterok:{job}").parse().expect("a dependency")).into_iter().collect();
                    let spec = JobSpec { hold: held, array, after, requeue: tasks == 2, ..long(bytes) };
                    jobs.push(head.submit(spec).expect("the waiting jobs are within the limit"));
                }
                Step::Act(job, index, action) => {
                    if let Some(job) = jobs.get(job).copied() {
                        // The head refuses actions that do not apply.
                        let caller = user("ada");
                        let _ = head.command(&Command::Act { caller, job, index: index.map(|index| 2 * index), action });
                    }
                }
                Step::End(code) => {
                    let run = head.state.placed().next().map(|(_, active, _)| active.run);
                    if let Some(run) = run {
                        head.report(connection, run, ended(code)).expect("accepted");
                    }
                }
                Step::Reboot => {
                    connection += 1;
                    head.hello("n1", connection, &format!("boot {connection}"), vec![]);
                }
                Step::Restart => {
                    head.restart();
                    connection += 1;
                    head.hello("n1", connection, &format!("boot {connection}"), vec![]);
                }
            }
            prop_assert_eq!(head.state.waiting_jobs_of("ada"), recomputed(&head), "after {:?}", step);
            let (begun, waiting): (Vec<_>, Vec<_>) = head.state.jobs().partition(|job| job.has_progress());
            prop_assert_eq!(head.state.jobs_with_progress().collect::<Vec<_>>(), begun, "after {:?}", step);
            for user in [None, Some("ada")] {
                prop_assert_eq!(head.state.jobs_without_progress(user), waiting.len() as u64, "after {:?}", step);
            }
        }
    }
}
