//! Changes of submitted jobs, and holds of single tasks.

use hostler_core::head::{Caller, Command, Refusal, explain};
use hostler_model::{Dependency, JobId, JobSpec, JobState, Reason, RequestedTime, WallTime};
use hostler_proto::api::{JobAction, JobChange};
use hostler_proto::link::{HeadMessage, RunReport, RunStatus};

use crate::harness::{Head, ended, name, spec, user};

fn root() -> Caller {
    Caller { operator: true, ..user("root") }
}

fn change_as(head: &mut Head, caller: Caller, job: JobId, change: JobChange) -> Result<(), Refusal> {
    head.command(&Command::Change { caller, job, change: Box::new(change) })
}

fn change(head: &mut Head, job: JobId, change: JobChange) -> Result<(), Refusal> {
    change_as(head, user("ada"), job, change)
}

fn limit(ms: u64) -> JobChange {
    JobChange { time_limit_ms: Some(ms), ..JobChange::default() }
}

fn after(list: &str) -> JobChange {
    JobChange { after: Some(Dependency::parse_list(list).expect("dependencies")), ..JobChange::default() }
}

fn code(outcome: Result<(), Refusal>) -> &'static str {
    outcome.expect_err("the change is refused").code()
}

fn act(head: &mut Head, caller: Caller, job: JobId, index: u32, action: JobAction) -> Result<(), Refusal> {
    head.command(&Command::Act { caller, job, index: Some(index), action })
}

fn limits(head: &mut Head) -> Vec<(u64, Option<u64>)> {
    let limit = |(connection, message)| match message {
        HeadMessage::TimeLimit { time_limit_ms, .. } => Some((connection, time_limit_ms)),
        _ => None,
    };
    head.sent_to().into_iter().filter_map(limit).collect()
}

#[test]
fn waiting_job_gets_new_values_that_survive_a_restart() {
    let mut head = Head::new();
    let first = head.submit(JobSpec { hold: true, ..spec() }).expect("accepted");
    let job = head.submit(JobSpec { hold: true, ..spec() }).expect("accepted");
    let labels = [("a".to_owned(), Some("b".to_owned()))].into();
    let new = JobChange {
        name: Some("other".to_owned()),
        time_limit_ms: Some(60_000),
        priority: Some(-3),
        cpus: Some(2),
        requeue: Some(true),
        labels,
        ..after(&format!("afterok:{first}"))
    };
    change(&mut head, job, new.clone()).expect("the job waits");
    let events = head.log().len();
    change(&mut head, job, new).expect("a repeated change is harmless");
    assert_eq!(head.log().len(), events, "a repeated change creates no event");
    head.restart();
    let changed = head.job(job);
    assert_eq!((&*changed.spec.name, changed.spec.time_limit_ms, changed.spec.priority), ("other", Some(60_000), -3));
    assert_eq!((changed.spec.request.cpus, changed.spec.requeue, changed.unmet.len()), (2, true, 1));
    assert_eq!(changed.spec.labels().collect::<Vec<_>>(), [("a", "b")]);
    // The job starts only after the other one, and with the new request.
    head.hello("n1", 1, "boot", Vec::new());
    head.act(job, JobAction::Release).expect("held");
    assert!(head.job(job).active.is_empty());
    head.act(first, JobAction::Release).expect("held");
    let run = head.run_of(first);
    head.report(1, run, ended(0)).expect("accepted");
    assert_eq!(head.job(job).active[&0].parts[0].resources.cpus.len(), 2);
}

#[test]
fn begin_after_a_duration_counts_from_the_heads_clock() {
    let mut head = Head::new();
    let job = head.submit(JobSpec { hold: true, ..spec() }).expect("accepted");
    let begin = Some(Some(RequestedTime::In { in_ms: 60_000 }));
    change(&mut head, job, JobChange { begin, ..JobChange::default() }).expect("the job waits");
    assert_eq!(head.job(job).spec.begin.as_deref(), Some(&WallTime(head.now.wall.0 + 60_000)));
}

#[test]
fn changes_pass_the_checks_of_a_submission() {
    let mut head = Head::new();
    head.hello("n1", 1, "boot", Vec::new());
    let job = head.submit(JobSpec { hold: true, ..spec() }).expect("accepted");
    let none = JobChange::default;
    assert_eq!(code(change(&mut head, job, JobChange { cpus: Some(3), ..none() })), "never_fits");
    assert_eq!(code(change(&mut head, job, JobChange { priority: Some(1), ..none() })), "priority_too_high");
    assert_eq!(code(change(&mut head, job, JobChange { name: Some(String::new()), ..none() })), "bad_spec");
    assert_eq!(code(change(&mut head, job, JobChange { array_limit: Some(1), ..none() })), "bad_spec");
    let missing = Some("missing".parse().expect("a name"));
    assert_eq!(code(change(&mut head, job, JobChange { partition: missing, ..none() })), "no_such_partition");
    assert_eq!(code(change_as(&mut head, user("eve"), job, limit(1))), "not_yours");
    assert_eq!(code(change(&mut head, JobId(99), limit(1))), "no_such_job");
    change_as(&mut head, root(), job, JobChange { priority: Some(5), ..none() }).expect("operators may raise it");
    change(&mut head, job, limit(5_000)).expect("the raised priority does not change");
    head.act(job, JobAction::Cancel).expect("accepted");
    assert_eq!(code(change(&mut head, job, limit(1))), "wrong_state");
}

#[test]
fn jobs_cannot_wait_for_themselves_or_for_what_never_comes() {
    let mut head = Head::new();
    let held = || JobSpec { hold: true, ..spec() };
    let (first, second, third) = (head.submit(held()), head.submit(held()), head.submit(held()));
    let [first, second, third] = [first, second, third].map(|job| job.expect("accepted"));
    change(&mut head, second, after(&format!("afterany:{first}"))).expect("accepted");
    change(&mut head, third, after(&format!("after:{second}"))).expect("accepted");
    assert_eq!(code(change(&mut head, first, after(&format!("afterok:{first}")))), "bad_spec");
    assert_eq!(code(change(&mut head, first, after(&format!("afterok:{third}")))), "bad_spec");
    assert_eq!(code(change(&mut head, first, after("afterok:99"))), "no_such_dependency");
    head.act(first, JobAction::Cancel).expect("accepted");
    assert_eq!(head.job(second).unmet.len(), 0);
    assert_eq!(code(change(&mut head, third, after(&format!("afterok:{first}")))), "bad_spec");
    change(&mut head, third, after(&format!("afternotok:{first}"))).expect("satisfied already");
    assert_eq!(head.job(third).unmet.len(), 0);
    assert_eq!(head.state_of(third), JobState::Pending);
}

#[test]
fn new_limit_of_a_running_job_reaches_its_agent_also_after_breaks_and_restarts() {
    let mut head = Head::new();
    head.hello("n1", 1, "boot", Vec::new());
    let job = head.submit(JobSpec { time_limit_ms: Some(60_000), ..spec() }).expect("accepted");
    let run = head.run_of(job);
    head.report(1, run, RunStatus::Running).expect("accepted");
    assert_eq!(code(change(&mut head, job, limit(90_000))), "forbidden");
    assert_eq!(code(change(&mut head, job, limit(0))), "forbidden");
    assert_eq!(code(change(&mut head, job, JobChange { cpus: Some(2), ..JobChange::default() })), "wrong_state");
    let memory = JobChange { memory_bytes: Some(2 << 30), ..JobChange::default() };
    assert_eq!(code(change(&mut head, job, memory)), "wrong_state");
    assert_eq!(code(change(&mut head, job, JobChange { priority: Some(-1), ..JobChange::default() })), "wrong_state");
    assert!(limits(&mut head).is_empty());
    change(&mut head, job, limit(30_000)).expect("owners may lower it");
    assert_eq!(limits(&mut head), [(1, Some(30_000))]);
    // The node is away.
    head.command(&Command::ConnectionEnded { connection: hostler_core::head::ConnectionId(1) }).expect("accepted");
    change_as(&mut head, root(), job, limit(0)).expect("operators may raise it");
    assert!(limits(&mut head).is_empty());
    head.restart();
    let holds = || vec![RunReport { run, status: RunStatus::Running }];
    head.hello("n1", 2, "boot", holds());
    assert_eq!(limits(&mut head), [(2, None)]);
    head.hello("n1", 3, "boot", holds());
    assert_eq!(limits(&mut head), [(3, None)], "the agent may have been restarted");
    assert_eq!(head.state.node(&name("n1")).expect("known").runs.len(), 1);
}

#[test]
fn array_limit_of_a_running_array_lets_more_tasks_start() {
    let mut head = Head::new();
    head.hello("n1", 1, "boot", Vec::new());
    let array = Some("0-3%1".parse().expect("an array"));
    let job = head.submit(JobSpec { array, ..spec() }).expect("accepted");
    assert_eq!(head.job(job).active.len(), 1);
    change(&mut head, job, JobChange { array_limit: Some(2), ..JobChange::default() }).expect("accepted");
    assert_eq!(head.job(job).active.len(), 2);
    let two = JobChange { cpus: Some(2), ..JobChange::default() };
    assert_eq!(code(change(&mut head, job, two)), "wrong_state");
}

/// A head with an array, of which task 0 runs and task 1 waits, and with a held job.
fn running_array_and_held_job() -> (Head, JobId, JobId) {
    let mut head = Head::new();
    head.hello("n1", 1, "boot", Vec::new());
    let other = head.submit(JobSpec { hold: true, ..spec() }).expect("accepted");
    let array = Some("0-1%1".parse().expect("an array"));
    let job = head.submit(JobSpec { array, requeue: true, ..spec() }).expect("accepted");
    let run = head.job(job).active[&0].run;
    head.report(1, run, RunStatus::Running).expect("accepted");
    (head, job, other)
}

#[test]
fn lost_task_runs_again_although_a_new_dependency_of_its_job_can_never_be_satisfied() {
    let (mut head, job, other) = running_array_and_held_job();
    change(&mut head, job, after(&format!("afterok:{other}"))).expect("task 1 waits");
    head.act(other, JobAction::Cancel).expect("accepted");
    assert_eq!((head.job(job).active.len(), head.job(job).pending.is_empty()), (1, true), "task 1 is cancelled");
    head.hello("n1", 2, "another boot", Vec::new());
    assert_eq!(head.job(job).active[&0].run.attempt.0, 2);
}

#[test]
fn lost_task_waits_for_dependencies_that_its_job_got_meanwhile() {
    let (mut head, job, other) = running_array_and_held_job();
    change(&mut head, job, after(&format!("afterany:{other}"))).expect("task 1 waits");
    assert_eq!(head.job(job).active.len(), 1, "task 0 runs on");
    head.hello("n1", 2, "another boot", Vec::new());
    assert_eq!((head.job(job).active.len(), head.job(job).pending.to_string()), (0, "0-1".to_owned()));
    head.act(other, JobAction::Cancel).expect("accepted");
    assert_eq!(head.job(job).active[&0].run.attempt.0, 2);
}

#[test]
fn held_tasks_wait_and_the_others_start() {
    let mut head = Head::new();
    let array = Some("0-3".parse().expect("an array"));
    let job = head.submit(JobSpec { array, ..spec() }).expect("accepted");
    for index in [0, 2] {
        act(&mut head, user("ada"), job, index, JobAction::Hold).expect("the task waits");
    }
    act(&mut head, root(), job, 2, JobAction::Hold).expect("the task waits");
    head.restart();
    head.hello("n1", 1, "boot", Vec::new());
    assert_eq!(head.job(job).active.keys().copied().collect::<Vec<_>>(), [1, 3]);
    assert_eq!(explain(&head.state, head.job(job)), Some(Reason::Held));
    assert_eq!(code(act(&mut head, user("ada"), job, 1, JobAction::Hold)), "wrong_state");
    let refused = act(&mut head, user("ada"), job, 2, JobAction::Release).expect_err("an operator holds it");
    assert_eq!(refused.to_string(), format!("task {job}_2 is held by an operator; ask an operator to release it"));
    assert_eq!(code(act(&mut head, user("ada"), job, 3, JobAction::Release)), "wrong_state");
    head.act(job, JobAction::Release).expect("the owner holds task 0");
    assert_eq!(code(head.act(job, JobAction::Release)), "wrong_state", "an operator still holds task 2");
    let run = head.run_of(job);
    head.report(1, run, ended(0)).expect("accepted");
    assert_eq!(head.job(job).active.keys().copied().collect::<Vec<_>>(), [0, 3]);
    head.command(&Command::Act { caller: root(), job, index: None, action: JobAction::Release }).expect("accepted");
    assert!(head.job(job).held_tasks.is_none());
}

#[test]
fn release_of_one_task_leaves_the_rest_of_a_held_array_held() {
    let mut head = Head::new();
    let array = Some("0-3".parse().expect("an array"));
    let job = head.submit(JobSpec { array, hold: true, ..spec() }).expect("accepted");
    act(&mut head, user("ada"), job, 1, JobAction::Release).expect("held");
    head.hello("n1", 1, "boot", Vec::new());
    assert_eq!(head.job(job).active.keys().copied().collect::<Vec<_>>(), [1]);
    head.restart();
    head.act(job, JobAction::Hold).expect("tasks wait");
    head.act(job, JobAction::Release).expect("held");
    head.hello("n1", 2, "boot", vec![RunReport { run: head.run_of(job), status: RunStatus::Running }]);
    assert_eq!(head.job(job).active.len(), 2, "the release of the job releases all tasks");
}

#[test]
fn requeued_and_held_job_waits_until_its_release() {
    let mut head = Head::new();
    head.hello("n1", 1, "boot", Vec::new());
    let job = head.submit(spec()).expect("accepted");
    let run = head.run_of(job);
    head.report(1, run, ended(1)).expect("accepted");
    assert_eq!(head.state_of(job), JobState::Failed);
    head.act(job, JobAction::RequeueHeld { completed: false }).expect("the job has failed");
    assert!(head.job(job).active.is_empty() && head.job(job).held);
    head.act(job, JobAction::Release).expect("held");
    assert_eq!(head.job(job).active.len(), 1);
}
