//! Dependencies on counterparts, on single tasks, with delays, and on one of several jobs.

use hostler_core::head::{Command, ConnectionId, Refusal, explain, explain_task};
use hostler_model::{CpuSet, Dependency, IndexSet, JobId, JobSpec, JobState, Reason, Resources, TaskId};
use hostler_proto::api::JobAction;
use hostler_proto::link::{AgentMessage, RunStatus};
use hostler_proto::stored::Change;
use proptest::prelude::*;

use crate::harness::{Head, ended, spec, user};

/// A head with one node that has room for `tasks` tasks.
fn head_for(tasks: u32) -> Head {
    let mut head = Head::new();
    head.hello_with("n1", 1, "boot", vec![], Resources::new(CpuSet::first(tasks), u64::from(tasks) << 30));
    head
}

/// A job with these dependencies, and with tasks unless `indices` is empty.
fn after(list: &str, indices: &str) -> JobSpec {
    let after = Dependency::parse_list(list).expect("valid").into();
    let array = (!indices.is_empty()).then(|| indices.parse().expect("valid"));
    JobSpec { after, array, ..spec() }
}

fn array(indices: &str) -> JobSpec {
    JobSpec { array: Some(indices.parse().expect("valid")), ..spec() }
}

fn placed(head: &Head, job: JobId) -> Vec<u32> {
    head.job(job).active.keys().copied().collect()
}

fn waiting(head: &Head, job: JobId) -> String {
    head.job(job).pending.to_string()
}

fn cancelled(head: &Head, job: JobId) -> String {
    let endings = head.job(job).endings.iter().filter(|(ending, _)| ending.state == JobState::Cancelled);
    let mut all = IndexSet::default();
    endings.for_each(|(_, indices)| all.add_all(indices));
    all.to_string()
}

/// Passes time while the agent sends heartbeats.
fn pass_ms(head: &mut Head, ms: u64) {
    for step in 0..ms.div_ceil(1_000) {
        let message = AgentMessage::Heartbeat;
        let connection = ConnectionId(1);
        head.command(&Command::Message { connection, message, result_is_complete: true })
            .expect("the agent is connected");
        head.pass_ms((ms - step * 1_000).min(1_000));
    }
}

/// Ends a placed task with this exit code.
fn end(head: &mut Head, job: JobId, index: u32, code: i32) {
    let run = head.job(job).active[&index].run;
    head.report(1, run, ended(code)).expect("the task is placed");
}

fn start(head: &mut Head, job: JobId, index: u32) {
    let run = head.job(job).active[&index].run;
    head.report(1, run, RunStatus::Running).expect("the task is placed");
}

fn act_on_task(head: &mut Head, job: JobId, index: u32, action: JobAction) {
    head.command(&Command::Act { caller: user("ada"), job, index: Some(index), action }).expect("accepted");
}

/// The messages of the cancelled tasks of a job that have one.
fn messages(head: &Head, job: JobId) -> Vec<(u32, String)> {
    let of_job = |change: &Change| match change {
        Change::Ended(row) if row.job == job => Some((row.index, row.message.clone()?)),
        _ => None,
    };
    head.changes.iter().filter_map(of_job).collect()
}

#[test]
fn tasks_start_when_their_counterparts_have_completed() {
    let mut head = head_for(4);
    let first = head.submit(array("0-3")).expect("accepted");
    let second = head.submit(after(&format!("aftercorr:{first}"), "0-5")).expect("accepted");
    assert_eq!(explain(&head.state, head.job(second)), Some(Reason::Dependency { jobs: vec![first] }));
    end(&mut head, first, 2, 0);
    assert_eq!((placed(&head, second), waiting(&head, second)), (vec![2], "0-1,3-5".to_owned()));
    end(&mut head, first, 0, 3);
    assert_eq!(cancelled(&head, second), "0", "its counterpart has failed");
    let message = format!(
        "the task of job {first} with the same index has not completed, so aftercorr:{first} can never be satisfied"
    );
    assert_eq!(messages(&head, second), [(0, message)]);
    head.restart();
    head.hello_with("n1", 1, "boot", vec![], Resources::new(CpuSet::first(4), 4 << 30));
    for index in [1, 3] {
        end(&mut head, first, index, 0);
    }
    assert_eq!((placed(&head, second), cancelled(&head, second)), (vec![1, 2, 3], "0,4-5".to_owned()));
}

#[test]
fn tasks_without_counterparts_wait_for_the_whole_job() {
    let mut head = head_for(4);
    let (job, first) = (head.submit(spec()).expect("accepted"), head.submit(array("0-1")).expect("accepted"));
    let of_job = head.submit(after(&format!("aftercorr:{job}"), "0-1")).expect("accepted");
    let no_array = head.submit(after(&format!("aftercorr:{first}"), "")).expect("accepted");
    let more = head.submit(after(&format!("aftercorr:{first}"), "1-2")).expect("accepted");
    end(&mut head, first, 1, 0);
    assert_eq!((placed(&head, more), placed(&head, no_array)), (vec![1], vec![]));
    end(&mut head, first, 0, 0);
    assert_eq!((placed(&head, more), placed(&head, no_array)), (vec![1, 2], vec![0]));
    assert_eq!(head.job(more).partly_met, None, "nothing is left of a settled dependency");
    end(&mut head, job, 0, 1);
    assert_eq!((head.state_of(of_job), messages(&head, of_job).len()), (JobState::Cancelled, 1));
}

#[test]
fn counterparts_of_ended_jobs_are_known_at_submission() {
    let mut head = head_for(4);
    let first = head.submit(array("0-3")).expect("accepted");
    [(0, 0), (1, 1), (2, 0), (3, 0)].into_iter().for_each(|(index, code)| end(&mut head, first, index, code));
    head.restart();
    head.hello_with("n1", 1, "boot", vec![], Resources::new(CpuSet::first(4), 4 << 30));
    let second = head.submit(after(&format!("aftercorr:{first}"), "0-4")).expect("accepted");
    assert_eq!((placed(&head, second), cancelled(&head, second)), (vec![0, 2, 3], "1,4".to_owned()));
    head.restart();
}

#[test]
fn cancelled_array_cancels_the_counterparts_of_its_waiting_tasks() {
    let mut head = head_for(2);
    let first = head.submit(array("0-99999")).expect("accepted");
    let second = head.submit(after(&format!("aftercorr:{first}"), "0-99999")).expect("accepted");
    let third = head.submit(after(&format!("aftercorr:{second}"), "5-9")).expect("accepted");
    act_on_task(&mut head, first, 7, JobAction::Cancel);
    assert_eq!((cancelled(&head, second), cancelled(&head, third)), ("7".to_owned(), "7".to_owned()));
    head.act(first, JobAction::Cancel).expect("accepted");
    assert_eq!((waiting(&head, second), head.state_of(third)), ("0-1".to_owned(), JobState::Cancelled));
    assert_eq!(messages(&head, second).len(), 2, "one record stands for the other tasks");
    end(&mut head, first, 0, 0);
    assert_eq!(placed(&head, second), [0]);
}

#[test]
fn requeued_task_waits_again_for_its_open_counterpart() {
    let mut head = head_for(3);
    let first = head.submit(array("0-2")).expect("accepted");
    let second = head.submit(after(&format!("aftercorr:{first}"), "0-2")).expect("accepted");
    end(&mut head, first, 1, 1);
    end(&mut head, first, 2, 0);
    assert_eq!((placed(&head, second), cancelled(&head, second)), (vec![2], "1".to_owned()));
    // The other task runs again, and fails again: a user may run the dependent task regardless.
    act_on_task(&mut head, first, 1, JobAction::Requeue);
    act_on_task(&mut head, second, 1, JobAction::Requeue);
    assert_eq!(waiting(&head, second), "0-1", "task 1 waits for its counterpart");
    let why = explain_task(&head.state, head.job(second), 1);
    assert_eq!(why, Some(Reason::Dependency { jobs: vec![first] }));
    end(&mut head, first, 1, 0);
    assert_eq!(placed(&head, second), [1, 2]);
    // A requeue after a settled dependency does not wait.
    end(&mut head, second, 2, 1);
    act_on_task(&mut head, second, 2, JobAction::Requeue);
    assert_eq!(placed(&head, second), [1, 2]);
    head.restart();
}

#[test]
fn dependents_of_an_array_are_queued_again_for_its_failed_tasks() {
    let mut head = head_for(4);
    let first = head.submit(array("0-1")).expect("accepted");
    let second = head.submit(after(&format!("aftercorr:{first}"), "0-1")).expect("accepted");
    end(&mut head, first, 0, 0);
    end(&mut head, first, 1, 1);
    end(&mut head, second, 0, 0);
    assert_eq!((head.state_of(first), head.state_of(second)), (JobState::Failed, JobState::Cancelled));
    head.act(first, JobAction::Requeue).expect("a task has failed");
    head.act(second, JobAction::RequeueDependent).expect("the dependency is open again");
    assert_eq!((placed(&head, first), placed(&head, second)), (vec![1], vec![]));
    end(&mut head, first, 1, 0);
    assert_eq!(placed(&head, second), [1]);
}

#[test]
fn one_of_several_conditions_is_enough() {
    let mut head = head_for(8);
    let jobs: Vec<JobId> = (0..3).map(|_| head.submit(spec()).expect("accepted")).collect();
    let list = format!("afterok:{}?afterok:{}?afternotok:{}", jobs[0], jobs[1], jobs[2]);
    let any = head.submit(after(&list, "")).expect("accepted");
    let none = head.submit(after(&format!("afternotok:{}?afternotok:{}", jobs[1], jobs[2]), "")).expect("accepted");
    end(&mut head, jobs[0], 0, 1);
    assert_eq!(explain(&head.state, head.job(any)), Some(Reason::Dependency { jobs: jobs[1..].to_vec() }));
    end(&mut head, jobs[1], 0, 0);
    assert_eq!((placed(&head, any), head.state_of(none)), (vec![0], JobState::Pending));
    end(&mut head, jobs[2], 0, 0);
    assert_eq!(head.state_of(none), JobState::Cancelled, "no alternative can still be satisfied");
    let late = head.submit(after(&format!("afterok:{}?afterok:{}", jobs[0], jobs[2]), "")).expect("accepted");
    assert_eq!(placed(&head, late), [0]);
    let singleton = JobSpec { singleton: true, ..after("1?2", "") };
    assert!(matches!(head.submit(singleton), Err(Refusal::Contradiction(_))));
}

#[test]
fn counterparts_may_be_one_of_several_conditions() {
    let mut head = head_for(8);
    let (first, other) = (head.submit(array("0-2")).expect("accepted"), head.submit(spec()).expect("accepted"));
    let second = head.submit(after(&format!("aftercorr:{first}?afterok:{other}"), "0-2")).expect("accepted");
    end(&mut head, first, 0, 0);
    end(&mut head, first, 1, 1);
    assert_eq!((placed(&head, second), waiting(&head, second)), (vec![0], "1-2".to_owned()));
    end(&mut head, other, 0, 1);
    assert_eq!((cancelled(&head, second), waiting(&head, second)), ("1".to_owned(), "2".to_owned()));
    end(&mut head, first, 2, 0);
    assert_eq!(placed(&head, second), [0, 2]);
}

#[test]
fn delays_count_from_the_start_of_the_other_job() {
    let minute = 60_000;
    let mut head = head_for(8);
    let first = head.submit(spec()).expect("accepted");
    let second = head.submit(after(&format!("after:{first}+5"), "")).expect("accepted");
    pass_ms(&mut head, 10 * minute);
    assert_eq!(head.state_of(second), JobState::Pending, "the other job has not begun");
    start(&mut head, first, 0);
    pass_ms(&mut head, 3 * minute);
    let late = head.submit(after(&format!("after:{first}+4"), "")).expect("accepted");
    let any = head.submit(after(&format!("after:{first}+4?afterok:{first}"), "")).expect("accepted");
    assert_eq!(explain(&head.state, head.job(second)), Some(Reason::Dependency { jobs: vec![first] }));
    end(&mut head, first, 0, 1);
    let after_end = head.submit(after(&format!("after:{first}+6"), "")).expect("accepted");
    head.restart();
    head.hello_with("n1", 1, "boot", vec![], Resources::new(CpuSet::first(8), 8 << 30));
    let left = |head: &Head| [late, any, second, after_end].map(|job| placed(head, job).len());
    pass_ms(&mut head, minute - 1);
    assert_eq!(left(&head), [0, 0, 0, 0]);
    pass_ms(&mut head, 1);
    assert_eq!(left(&head), [1, 1, 0, 0], "four minutes after the start");
    pass_ms(&mut head, minute);
    assert_eq!(left(&head), [1, 1, 1, 0]);
    pass_ms(&mut head, minute);
    assert_eq!(left(&head), [1, 1, 1, 1]);
    let zero = head.submit(after(&format!("after:{first}+0,after:{first}+1"), "")).expect("accepted");
    assert_eq!(placed(&head, zero), [0]);
}

#[test]
fn delay_ends_while_the_dependent_job_is_gone_or_held() {
    let mut head = head_for(8);
    let first = head.submit(spec()).expect("accepted");
    start(&mut head, first, 0);
    let (held, gone) = (
        head.submit(JobSpec { hold: true, ..after(&format!("after:{first}+1"), "") }).expect("accepted"),
        head.submit(after(&format!("after:{first}+1"), "")).expect("accepted"),
    );
    head.act(gone, JobAction::Cancel).expect("accepted");
    pass_ms(&mut head, 60_000);
    assert_eq!(explain(&head.state, head.job(held)), Some(Reason::Held));
    head.act(held, JobAction::Release).expect("accepted");
    assert_eq!(placed(&head, held), [0]);
    head.act(gone, JobAction::Requeue).expect("accepted");
    assert_eq!(head.state_of(gone), JobState::Starting);
}

#[test]
fn conditions_may_concern_single_tasks() {
    let mut head = head_for(8);
    let first = head.submit(array("0-3")).expect("accepted");
    let of = |text: &str| after(&text.replace('N', &first.to_string()), "");
    let ok = head.submit(of("afterok:N_1")).expect("accepted");
    let not_ok = head.submit(of("afternotok:N_1")).expect("accepted");
    let begun = head.submit(of("after:N_2")).expect("accepted");
    start(&mut head, first, 2);
    assert_eq!(placed(&head, begun), [0]);
    end(&mut head, first, 1, 0);
    assert_eq!((placed(&head, ok), head.state_of(not_ok)), (vec![0], JobState::Cancelled));
    let message = format!("task {first}_1 has ended (completed), so afternotok:{first}_1 can never be satisfied");
    assert_eq!(messages(&head, not_ok), [(0, message)]);
    let late = head.submit(of("afterany:N_1,afterok:N_1")).expect("accepted");
    assert_eq!(placed(&head, late), [0]);
    let no_task = Err(Refusal::NoSuchTaskDependency(TaskId { job: first, index: 4 }));
    assert_eq!(head.submit(of("afterok:N_4")), no_task);
    for index in [0, 2, 3] {
        end(&mut head, first, index, i32::from(index == 0));
    }
    assert_eq!(head.submit(of("afterok:N_4")), no_task, "the job has ended");
    assert!(head.submit(after(&format!("afterok:{ok}_0"), "")).is_err(), "a job without an array has no tasks");
    let ended = [("afterok:N_3", true), ("afternotok:N_0,afterok:N_2", true), ("afterok:N_0", false)];
    for (text, starts) in ended {
        let job = head.submit(of(text)).expect("accepted");
        assert_eq!(head.state_of(job) == JobState::Starting, starts, "{text}");
    }
    head.restart();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Compares freed and cancelled tasks with a check of each task alone.
    #[test]
    fn tasks_become_free_as_if_each_was_checked_alone(
        any in any::<bool>(),
        sizes in prop::collection::vec(1_u32..6, 2..4),
        ends in prop::collection::vec((0_usize..3, 0_u32..6, any::<bool>()), 0..24),
        restart_at in 0_usize..24,
        submitted_at in 0_usize..12,
    ) {
        let mut head = head_for(64);
        let others: Vec<JobId> =
            sizes.iter().map(|size| head.submit(array(&format!("0-{}", size - 1))).expect("accepted")).collect();
        let list: Vec<String> = others.iter().map(|job| format!("aftercorr:{job}")).collect();
        let list = list.join(if any { "?" } else { "," });
        let mut outcomes: Vec<Vec<Option<bool>>> = sizes.iter().map(|size| vec![None; *size as usize]).collect();
        let mut job = None;
        // What a task is expected to do is final, even if a later end would change it.
        let mut expected: [Option<bool>; 7] = [None; 7];
        for (step, (other, index, completes)) in ends.into_iter().enumerate() {
            if step == submitted_at.min(5) {
                job = Some(head.submit(after(&list, "0-6")).expect("accepted"));
            }
            let other = other % others.len();
            if let Some(outcome @ None) = outcomes[other].get_mut(index as usize) {
                *outcome = Some(completes);
                end(&mut head, others[other], index, i32::from(!completes));
            }
            if step == restart_at {
                head.restart();
                head.hello_with("n1", 1, "boot", vec![], Resources::new(CpuSet::first(64), 64 << 30));
            }
            let Some(job) = job else { continue };
            for (task, expected) in expected.iter_mut().enumerate().filter(|(_, it)| it.is_none()) {
                let alone = outcomes.iter().map(|outcomes| match outcomes.get(task) {
                    Some(outcome) => *outcome,
                    None if outcomes.contains(&None) => None,
                    None => Some(outcomes.iter().all(|outcome| *outcome == Some(true))),
                });
                let alone: Vec<Option<bool>> = alone.collect();
                let settles = alone.contains(&Some(any));
                *expected = match (settles, alone.contains(&None)) {
                    (true, _) => Some(any),
                    (false, true) => None,
                    (false, false) => Some(!any),
                };
            }
            for (task, expected) in (0..).zip(expected) {
                let is_placed = head.job(job).active.contains_key(&task);
                let is_cancelled = head.job(job).ending_of(task).is_some_and(|it| it.state == JobState::Cancelled);
                prop_assert_eq!((is_placed, is_cancelled), (expected == Some(true), expected == Some(false)), "task {}", task);
            }
        }
    }
}

#[test]
fn requeue_with_a_hold_of_a_job_that_can_never_start_is_harmless() {
    let mut head = Head::new();
    head.hello("n1", 1, "boot", vec![]);
    let other = head.submit(JobSpec { array: Some("0-1".parse().expect("indices")), ..spec() }).expect("accepted");
    let held = head.submit(JobSpec { hold: true, ..spec() }).expect("accepted");
    let after: Vec<Dependency> = [format!("afterok:{other}_0"), format!("afterok:{held}")]
        .map(|text| text.parse().expect("a dependency"))
        .into();
    let job = head.submit(JobSpec { after: after.into(), ..spec() }).expect("accepted");
    head.act(job, JobAction::Cancel).expect("accepted");
    let first = head.job(other).active.values().next().expect("placed").run;
    head.report(1, first, ended(1)).expect("accepted");
    head.act(job, JobAction::RequeueHeld { completed: false }).expect("accepted");
    // The user wants it to run although its first dependency can never be satisfied; it waits for the other one.
    let again = head.job(job);
    assert!(again.held && again.unmet.iter().all(|it| it.job == held), "{:?}", again.unmet);
}

#[test]
fn failure_of_the_first_job_of_a_long_chain_cancels_all_others() {
    let mut head = head_for(1);
    let first = head.submit(spec()).expect("accepted");
    let mut last = first;
    for _ in 0..5_000 {
        last = head.submit(after(&format!("afterok:{last}"), "")).expect("accepted");
    }
    end(&mut head, first, 0, 1);
    assert_eq!(head.job(last).state(), JobState::Cancelled);
}
