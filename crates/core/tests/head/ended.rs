//! Ended jobs are in the store and not in the state; commands about them still work.

use std::sync::Arc;

use hostler_core::head::{Caller, Command, Refusal, Setting, SubmissionKey};
use hostler_model::{Attempt, Dependency, Digest, Ending, IndexSet, JobId, JobSpec, JobState, Work};
use hostler_proto::api::JobAction;
use hostler_proto::link::{Fate, HeadMessage, RunEnd, RunResult, RunStatus};
use hostler_proto::stored::Change;

use crate::harness::{Head, ended, fate, spec, user};

/// A head with a node, and a job that has ended on it with this exit code.
fn head_with_ended_job(code: i32) -> (Head, JobId) {
    let mut head = Head::new();
    head.hello("n1", 1, "boot", vec![]);
    let job = head.submit(spec()).expect("accepted");
    end(&mut head, job, code);
    (head, job)
}

/// Ends a job's run with a result.
fn end(head: &mut Head, job: JobId, code: i32) {
    let RunStatus::Ended(end) = ended(code) else { unreachable!("`ended` returns another status") };
    let result = Some(RunResult { manifest: Digest([7; 32]), inline: Vec::new() });
    head.report(1, head.run_of(job), RunStatus::Ended(RunEnd { result, ..end })).expect("accepted");
}

fn after(text: &str) -> JobSpec {
    JobSpec { after: Dependency::parse_list(text).expect("valid").into(), ..spec() }
}

#[test]
fn ended_job_leaves_the_state_and_a_restart_does_not_bring_it_back() {
    let (mut head, job) = head_with_ended_job(0);
    assert!(head.state.job(job).is_none() && head.state.job_count() == 0);
    assert_eq!(head.stored.0[&job].state(), JobState::Completed);
    head.restart();
    assert_eq!(head.state.job_count(), 0);
    assert_eq!(head.submit(spec()).expect("accepted").0, job.0 + 1, "ids are not reused");
}

#[test]
fn retried_submission_of_an_ended_job_is_the_same_job() {
    let (mut head, job) = head_with_ended_job(0);
    head.restart();
    head.keys -= 1;
    assert_eq!(head.submit(spec()), Ok(job));
    assert_eq!((head.state.job_count(), head.stored.0.len()), (0, 1), "the job does not run twice");
}

#[test]
fn dependencies_on_ended_jobs_depend_on_their_final_state() {
    for (code, met, broken) in [(0, "afterok", "afternotok"), (1, "afternotok", "afterok")] {
        let (mut head, job) = head_with_ended_job(code);
        head.restart();
        let runs = |head: &Head, id| head.stored.0.get(&id).is_none_or(|job| job.state() != JobState::Cancelled);
        for condition in [met, "after", "afterany"] {
            let id = head.submit(after(&format!("{condition}:{job}"))).expect("accepted");
            assert!(runs(&head, id), "{condition} is satisfied");
        }
        let id = head.submit(after(&format!("{broken}:{job}"))).expect("accepted");
        assert_eq!(head.state_of(id), JobState::Cancelled);
        let how = if code == 0 { "completed" } else { "failed" };
        let says_how = |change: &Change| match change {
            Change::Ended(row) if row.job == id => row.message.as_deref().is_some_and(|it| it.contains(how)),
            _ => false,
        };
        assert!(head.changes.iter().any(says_how), "{:?}", head.changes.last());
    }
}

#[test]
fn ended_job_runs_again_when_it_is_requeued_and_ends_again() {
    let (mut head, job) = head_with_ended_job(1);
    head.restart();
    let eve = Command::Act { caller: user("eve"), job, index: None, action: JobAction::Requeue };
    assert!(matches!(head.command(&eve), Err(Refusal::NotYours { .. })));
    head.act(job, JobAction::Requeue).expect("an ended job may run again");
    assert!(!head.stored.0.contains_key(&job), "a live job is not in the store");
    assert_eq!(head.state.job_of_key(SubmissionKey(1)), Some(job));
    head.restart();
    head.hello("n1", 1, "boot", vec![]);
    assert_eq!(head.run_of(job).attempt.0, 2);
    end(&mut head, job, 0);
    assert_eq!(head.state_of(job), JobState::Completed);
    assert!(head.state.job(job).is_none() && head.stored.0.contains_key(&job));
}

/// The result whose files the job's run starts with, in the last launch.
fn files_of_launch(head: &mut Head) -> Option<Digest> {
    let launches = head.sent().into_iter().filter_map(|message| match message {
        HeadMessage::Launch(launch) => Some(launch.runs[0].files),
        _ => None,
    });
    launches.last().expect("a launch")
}

#[test]
fn requeued_job_starts_with_the_files_of_its_last_attempt_if_its_user_wants_so() {
    let mut head = Head::new();
    head.hello("n1", 1, "boot", vec![]);
    let work = Work::Project { snapshot: Digest([3; 32]), entrypoint: "main.py".to_owned(), args: Vec::new() };
    let job = head.submit(JobSpec { requeue: true, work, ..spec() }).expect("accepted");
    let requeue = |files: &[(u32, [u8; 32])]| Command::RequeueWithFiles {
        caller: user("ada"),
        job,
        index: None,
        action: JobAction::Requeue,
        files: files.iter().map(|(index, hash)| (*index, vec![(0, Digest(*hash))])).collect(),
    };
    assert_eq!(files_of_launch(&mut head), None);
    end(&mut head, job, 1);
    let refused = head.command(&requeue(&[])).expect_err("the head does not have the files");
    assert!(refused.to_string().contains("no files on the head"), "{refused}");
    head.command(&requeue(&[(0, [7; 32])])).expect("accepted");
    assert_eq!(files_of_launch(&mut head), Some(Digest([7; 32])));
    // The task of a lost node starts with the same files again, also after a restart of the head.
    head.report(1, head.run_of(job), fate(Fate::Lost)).expect("accepted");
    head.restart();
    head.hello("n1", 1, "boot", vec![]);
    assert_eq!((head.run_of(job).attempt.0, files_of_launch(&mut head)), (3, Some(Digest([7; 32]))));
    // A running task keeps what it has by its end.
    head.report(1, head.run_of(job), RunStatus::Running).expect("accepted");
    head.command(&requeue(&[])).expect("accepted");
    let result = Some(RunResult { manifest: Digest([8; 32]), inline: Vec::new() });
    let RunStatus::Ended(over) = fate(Fate::Requeued) else { unreachable!("`fate` returns another status") };
    head.report(1, head.run_of(job), RunStatus::Ended(RunEnd { result, ..over })).expect("accepted");
    assert_eq!(files_of_launch(&mut head), Some(Digest([8; 32])));
    end(&mut head, job, 1);
    head.act(job, JobAction::Requeue).expect("accepted");
    assert_eq!(files_of_launch(&mut head), None);
}

#[test]
fn results_of_requeued_attempts_stay_until_they_are_fetched() {
    let (mut head, job) = head_with_ended_job(1);
    let kept = |head: &Head, attempt| head.job(job).earlier_results(Attempt(attempt)).contains(0);
    let has = |head: &Head, wanted: fn(&Change) -> bool| head.changes.iter().any(wanted);
    head.act(job, JobAction::Requeue).expect("accepted");
    assert!(kept(&head, 1) && has(&head, |change| matches!(change, Change::SetAside(_))));
    // A run that is requeued while it runs leaves its result, too.
    head.report(1, head.run_of(job), RunStatus::Running).expect("accepted");
    head.act(job, JobAction::Requeue).expect("accepted");
    let result = Some(RunResult { manifest: Digest([8; 32]), inline: Vec::new() });
    let RunStatus::Ended(over) = fate(Fate::Requeued) else { unreachable!("`fate` returns another status") };
    head.report(1, head.run_of(job), RunStatus::Ended(RunEnd { result, ..over })).expect("accepted");
    assert!(kept(&head, 2) && has(&head, |change| matches!(change, Change::EarlierEnded(row) if row.attempt.0 == 2)));
    head.restart();
    head.hello("n1", 1, "boot", vec![]);
    end(&mut head, job, 0);
    assert!(head.state.job(job).is_none() && kept(&head, 1) && kept(&head, 2));

    let fetch = |attempt| Command::Fetched { caller: user("ada"), job, indices: IndexSet::one(0), attempt };
    for (attempt, left) in [(Some(Attempt(1)), true), (None, true), (Some(Attempt(2)), false)] {
        head.command(&fetch(attempt)).expect("accepted");
        assert_eq!(head.job(job).has_unfetched_results(), left, "{attempt:?} was fetched");
    }
    assert!(has(&head, |change| matches!(change, Change::EarlierFetched(_, Attempt(1)))));
    assert_eq!(head.job(job).earlier, None);
    // A result that was fetched gives way to the next attempt.
    head.act(job, JobAction::RequeueAll).expect("accepted");
    assert_eq!(head.job(job).earlier, None);
}

/// A head with a node, and a job in a folder that has completed on it with a result.
fn head_with_ended_project() -> (Head, JobId) {
    let mut head = Head::new();
    head.hello("n1", 1, "boot", vec![]);
    let work = Work::Project { snapshot: Digest([7; 32]), entrypoint: "main.py".to_owned(), args: Vec::new() };
    let job = head.submit(JobSpec { work, ..spec() }).expect("accepted");
    end(&mut head, job, 0);
    (head, job)
}

#[test]
fn unfetched_files_outlive_the_retention_until_they_are_fetched() {
    let (mut head, job) = head_with_ended_project();
    let command = head.submit(spec()).expect("accepted");
    end(&mut head, command, 0);
    let retention = head.state.settings.retention_ms;
    let for_space = Command::ForgetUnfetched { jobs: vec![job], for_space: true };
    head.command(&for_space).expect("accepted");
    assert!(head.stored.0.contains_key(&job), "a full disk does not shorten the retention");
    head.pass_ms(3 * retention);
    assert!(!head.stored.0.contains_key(&command), "the output of a command waits for nobody");
    assert!(head.stored.0.contains_key(&job));
    head.restart();
    let fetched = Command::Fetched { caller: user("ada"), job, indices: IndexSet::one(0), attempt: None };
    head.command(&fetched).expect("accepted");
    head.look();
    assert!(!head.stored.0.contains_key(&job), "its retention was over");
    assert_eq!(head.command(&fetched), Err(Refusal::NoSuchJob(job)));
}

#[test]
fn job_that_was_deleted_unfetched_is_remembered_for_another_retention() {
    let value = Some("15d".to_owned());
    let limit = Command::Set { by: "root".to_owned(), setting: Setting::UnfetchedRetention, value };
    for needs_space in [true, false] {
        let (mut head, job) = head_with_ended_project();
        let retention = head.state.settings.retention_ms;
        head.pass_ms(retention + 1);
        let for_space = Command::ForgetUnfetched { jobs: vec![job], for_space: true };
        head.command(if needs_space { &for_space } else { &limit }).expect("accepted");
        head.pass_ms(2 * 24 * 3_600_000);
        head.restart();
        assert!(!head.stored.0.contains_key(&job));
        let deleted = head.state.deleted.get(&job).cloned().expect("the head remembers it");
        assert_eq!(deleted.user, "ada");
        assert_eq!(head.act(job, JobAction::Requeue), Err(Refusal::Deleted { job, at: deleted.at }));
    }
}

/// An action of the job's user on one task.
fn act_on_task(job: JobId, index: u32, action: JobAction) -> Command {
    Command::Act { caller: user("ada"), job, index: Some(index), action }
}

#[test]
fn requeue_keeps_completed_tasks_and_their_results() {
    let mut head = Head::new();
    head.hello("n1", 1, "boot", vec![]);
    let array = JobSpec { array: Some("0-3".parse().expect("indices")), ..spec() };
    let job = head.submit(array).expect("accepted");
    [0, 1, 0, 1].into_iter().for_each(|code| end(&mut head, job, code));
    assert_eq!(head.state_of(job), JobState::Failed);
    let kept = |head: &Head| head.job(job).results.iter().collect::<Vec<u32>>();
    let placed = |head: &Head| head.job(job).active.keys().copied().collect::<Vec<u32>>();
    assert_eq!(kept(&head), [0, 1, 2, 3]);

    // The failed tasks run again, also after a restart, and a cancel does not affect completed tasks.
    head.act(job, JobAction::Requeue).expect("two tasks failed");
    assert_eq!((kept(&head), placed(&head)), (vec![0, 2], vec![1, 3]));
    let reopened = |change: &Change| matches!(change, Change::Reopened(task) if [0, 2].contains(&task.index));
    assert!(!head.changes.iter().any(reopened), "the records of completed tasks remain");
    head.restart();
    head.hello("n1", 1, "boot", vec![]);
    assert_eq!((kept(&head), placed(&head)), (vec![0, 2], vec![1, 3]));
    head.act(job, JobAction::Cancel).expect("accepted");
    let cancelled = Ending { state: JobState::Cancelled, exit_code: Some(143) };
    for _ in 0..2 {
        head.report(1, head.run_of(job), fate(Fate::Ended(cancelled))).expect("accepted");
    }
    assert_eq!((head.state_of(job), kept(&head)), (JobState::Cancelled, vec![0, 2]));
    assert_eq!(head.job(job).ended_counts(), (2, 2));

    // A completed task that the user names keeps its result, too.
    let named = |action| act_on_task(job, 2, action);
    assert_eq!(head.command(&named(JobAction::Requeue)).expect_err("completed"), Refusal::OnlyCompleted(job));
    assert_eq!(kept(&head), [0, 2]);
    // To run again, its result must have been fetched.
    let fetch = |indices: &[u32]| Command::Fetched {
        caller: user("ada"),
        job,
        indices: indices.iter().copied().collect(),
        attempt: None,
    };
    let refused = head.command(&named(JobAction::RequeueAll)).expect_err("not fetched");
    assert_eq!(refused, Refusal::ResultsNotFetched { job, owner: "ada".into(), tasks: 1 });
    assert_eq!(
        head.act(job, JobAction::RequeueAll),
        Err(Refusal::ResultsNotFetched { job, owner: "ada".into(), tasks: 2 })
    );
    assert_eq!(kept(&head), [0, 2]);
    head.command(&fetch(&[2])).expect("accepted");
    head.command(&named(JobAction::RequeueAll)).expect("fetched");
    assert_eq!((kept(&head), placed(&head)), (vec![0], vec![2]));
    end(&mut head, job, 0);
    head.act(job, JobAction::Requeue).expect("two tasks are cancelled");
    assert_eq!(placed(&head), [1, 3]);
    [0, 0].into_iter().for_each(|code| end(&mut head, job, code));
    assert_eq!((head.state_of(job), kept(&head)), (JobState::Completed, vec![0, 1, 2, 3]));

    let refused = head.act(job, JobAction::Requeue).expect_err("all tasks have completed");
    assert_eq!((&refused, refused.code()), (&Refusal::OnlyCompleted(job), "wrong_state"));
    assert_eq!(kept(&head), [0, 1, 2, 3]);
    // The second result of task 2 was not fetched.
    head.command(&fetch(&[0, 1, 3])).expect("accepted");
    assert_eq!(
        head.act(job, JobAction::RequeueAll),
        Err(Refusal::ResultsNotFetched { job, owner: "ada".into(), tasks: 1 })
    );
    head.command(&fetch(&[2])).expect("accepted");
    head.act(job, JobAction::RequeueAll).expect("accepted");
    assert_eq!((kept(&head), placed(&head)), (vec![], vec![0, 1]));
}

#[test]
fn completed_job_runs_again_only_on_request() {
    let (mut head, job) = head_with_ended_job(0);
    assert_eq!(head.act(job, JobAction::Requeue), Err(Refusal::OnlyCompleted(job)));
    let fetched = Command::Fetched { caller: user("ada"), job, indices: IndexSet::one(0), attempt: None };
    // Also after a restart, when the job is only in the store.
    for restarts in [false, true] {
        if restarts {
            head.restart();
            head.hello("n1", 1, "boot", vec![]);
        }
        assert_eq!(
            head.act(job, JobAction::RequeueAll),
            Err(Refusal::ResultsNotFetched { job, owner: "ada".into(), tasks: 1 })
        );
    }
    head.command(&fetched).expect("accepted");
    head.act(job, JobAction::RequeueAll).expect("accepted");
    assert_eq!(head.run_of(job).attempt.0, 2);
    end(&mut head, job, 0);
    let named = |action| act_on_task(job, 0, action);
    assert_eq!(head.command(&named(JobAction::Requeue)), Err(Refusal::OnlyCompleted(job)));
    head.command(&fetched).expect("accepted");
    head.command(&named(JobAction::RequeueAll)).expect("accepted");
    assert_eq!(head.run_of(job).attempt.0, 3);
}

#[test]
fn results_of_ended_jobs_are_fetched_and_dropped_in_the_store() {
    let (mut head, job) = head_with_ended_job(0);
    head.restart();
    let dropped = Command::DropResults { job, indices: IndexSet::one(0) };
    head.command(&dropped).expect("accepted");
    assert!(head.stored.0[&job].results.contains(0), "the result was not fetched");
    head.command(&Command::Fetched { caller: user("ada"), job, indices: IndexSet::one(0), attempt: None })
        .expect("accepted");
    assert!(head.stored.0[&job].fetched.contains(0));
    head.command(&dropped).expect("accepted");
    assert!(!head.stored.0[&job].results.contains(0));
    assert!(head.state.job(job).is_none());
    head.restart();
    assert_eq!(head.state.job_count(), 0);
}

#[test]
fn result_that_only_an_operator_has_read_is_kept_for_its_user() {
    let (mut head, job) = head_with_ended_job(0);
    let fetch = |caller| Command::Fetched { caller, job, indices: IndexSet::one(0), attempt: None };
    let dropped = Command::DropResults { job, indices: IndexSet::one(0) };
    for other in [user("olga"), user("ada@n1"), Caller { uid: Some(7), ..user("eve") }] {
        head.command(&fetch(other.clone())).expect_err("not theirs");
        head.command(&fetch(Caller { operator: true, ..other })).expect("operators may read it");
        head.command(&dropped).expect("accepted");
        assert!(head.stored.0[&job].results.contains(0), "its user has not fetched it");
    }
    head.command(&fetch(Caller { operator: true, ..user("ada") })).expect("hers");
    head.command(&dropped).expect("accepted");
    assert!(!head.stored.0[&job].results.contains(0));
}

#[test]
fn owner_cannot_release_what_an_operator_holds() {
    let mut head = Head::new();
    let job = head.submit(spec()).expect("accepted");
    let root = || Caller { user: "root".into(), uid: None, operator: true };
    let by = |caller, action| Command::Act { caller, job, index: None, action };
    // The operator's hold also replaces the owner's.
    for owner_holds in [false, true] {
        if owner_holds {
            head.act(job, JobAction::Hold).expect("the job waits");
        }
        head.command(&by(root(), JobAction::Hold)).expect("operators may hold any job");
        head.restart();
        let refused = head.act(job, JobAction::Release).expect_err("an operator holds it").to_string();
        assert!(refused.contains("is held by an operator"), "{refused}");
        head.act(job, JobAction::Hold).expect("nothing changes");
        assert!(head.act(job, JobAction::Release).is_err());
        head.command(&by(root(), JobAction::Release)).expect("operators may release any job");
        assert!(!head.job(job).held);
    }
    head.act(job, JobAction::Hold).expect("the job waits");
    head.act(job, JobAction::Release).expect("the owner holds it");
}

#[test]
fn other_actions_on_ended_jobs_work_or_are_refused() {
    let (mut head, job) = head_with_ended_job(0);
    assert_eq!(head.act(job, JobAction::Cancel), Ok(()));
    let why = |refused: Result<(), Refusal>| refused.expect_err("refused").to_string();
    assert!(why(head.act(job, JobAction::Hold)).contains("has ended"));
    assert!(why(head.act(job, JobAction::Release)).contains("is not held"));
    assert_eq!(head.act(JobId(99), JobAction::Requeue), Err(Refusal::NoSuchJob(JobId(99))));

    let held = head.submit(JobSpec { hold: true, ..spec() }).expect("accepted");
    head.act(held, JobAction::Cancel).expect("accepted");
    head.act(held, JobAction::Release).expect("a cancelled job may be released");
    head.act(held, JobAction::Requeue).expect("accepted");
    assert_eq!(head.state_of(held), JobState::Starting);
    head.act(held, JobAction::Cancel).expect("accepted");

    // The hold ends with the job; an operator's stays.
    let own = head.submit(JobSpec { hold: true, ..spec() }).expect("accepted");
    head.act(own, JobAction::Cancel).expect("accepted");
    head.act(own, JobAction::Requeue).expect("accepted");
    assert!(!head.job(own).held);
    let theirs = head.submit(JobSpec { hold: true, ..spec() }).expect("accepted");
    let root = Caller { user: "root".into(), uid: None, operator: true };
    let hold = Command::Act { caller: root, job: theirs, index: None, action: JobAction::Hold };
    head.command(&hold).expect("operators may hold any job");
    head.act(theirs, JobAction::Cancel).expect("accepted");
    head.act(theirs, JobAction::Requeue).expect("accepted");
    assert!(head.job(theirs).held);
}

#[test]
fn requeued_job_ignores_dependencies_that_ended_while_it_was_cancelled() {
    let mut head = Head::new();
    head.hello("n1", 1, "boot", vec![]);
    let first = head.submit(spec()).expect("accepted");
    let second = head.submit(after(&format!("afterok:{first}"))).expect("accepted");
    head.act(second, JobAction::Cancel).expect("accepted");
    end(&mut head, first, 1);
    head.act(second, JobAction::Requeue).expect("accepted");
    assert_eq!(head.state_of(second), JobState::Starting);
}

#[test]
fn requeued_dependents_wait_for_a_parent_that_was_requeued() {
    let mut head = Head::new();
    head.hello("n1", 1, "boot", vec![]);
    let first = head.submit(spec()).expect("accepted");
    let second = head.submit(after(&format!("afterok:{first}"))).expect("accepted");
    let third = head.submit(after(&format!("afterok:{second}"))).expect("accepted");
    end(&mut head, first, 1);
    assert_eq!([second, third].map(|job| head.state_of(job)), [JobState::Cancelled; 2]);
    for job in [first, second, third] {
        head.act(job, JobAction::Requeue).expect("accepted");
    }
    let states = [first, second, third].map(|job| head.state_of(job));
    assert_eq!(states, [JobState::Starting, JobState::Pending, JobState::Pending]);
    head.restart();
    head.hello("n1", 1, "boot", vec![]);
    for (job, next) in [(first, second), (second, third)] {
        assert_eq!(head.state_of(next), JobState::Pending);
        end(&mut head, job, 0);
    }
    assert_eq!(head.state_of(third), JobState::Starting);
    // A second failure cancels the dependent again.
    let fourth = head.submit(after(&format!("afterok:{third}"))).expect("accepted");
    end(&mut head, third, 1);
    assert_eq!(head.state_of(fourth), JobState::Cancelled);
}

#[test]
fn dependents_stay_cancelled_while_a_dependency_can_never_be_satisfied() {
    let mut head = Head::new();
    head.hello("n1", 1, "boot", vec![]);
    let [first, other, good] = [0; 3].map(|_| head.submit(spec()).expect("accepted"));
    let broken = |condition: &str, on: JobId| Dependency::parse_list(&format!("{condition}:{on}")).expect("valid")[0];
    let submit = |head: &mut Head, text: String| head.submit(after(&text)).expect("accepted");
    let of_first = submit(&mut head, format!("afterok:{first}"));
    let of_both = submit(&mut head, format!("afterok:{first}:{other}"));
    let of_fourth = submit(&mut head, format!("afterok:{of_both}"));
    let if_failed = submit(&mut head, format!("afterok:{first},afternotok:{good}"));
    let met = submit(&mut head, format!("afterok:{first}:{good},afternotok:{other}"));
    for (job, code) in [(first, 1), (other, 1), (good, 0)] {
        end(&mut head, job, code);
    }
    let dependents = [of_first, of_both, of_fourth, if_failed, met];
    assert_eq!(dependents.map(|job| head.state_of(job)), [JobState::Cancelled; 5]);
    let refused = |head: &mut Head, job: JobId, condition: &str, on: JobId| {
        let never = Refusal::NeverStarts { job, dependency: broken(condition, on) };
        assert_eq!(head.act(job, JobAction::RequeueDependent), Err(never));
        assert_eq!(head.state_of(job), JobState::Cancelled);
    };
    // The first job was not requeued, or has failed again.
    refused(&mut head, of_first, "afterok", first);
    head.act(first, JobAction::Requeue).expect("accepted");
    end(&mut head, first, 1);
    refused(&mut head, of_first, "afterok", first);
    // Another job of the dependencies has ended otherwise.
    head.act(first, JobAction::Requeue).expect("accepted");
    refused(&mut head, of_both, "afterok", other);
    refused(&mut head, of_fourth, "afterok", of_both);
    refused(&mut head, if_failed, "afternotok", good);
    for job in [of_first, met] {
        head.act(job, JobAction::RequeueDependent).expect("accepted");
        assert_eq!(head.state_of(job), JobState::Pending);
        let again = head.act(job, JobAction::RequeueDependent);
        assert!(matches!(again, Err(Refusal::WrongState { .. })), "{again:?}");
    }
    end(&mut head, first, 0);
    assert_eq!([of_first, met].map(|job| head.state_of(job)), [JobState::Starting; 2]);
    // A user can still run a dependent job regardless.
    head.act(of_both, JobAction::Requeue).expect("accepted");
    assert_ne!(head.state_of(of_both), JobState::Cancelled);
}

#[test]
fn environment_is_deleted_only_when_its_job_completes() {
    let environment = Some(Digest([3; 32]));
    for (code, is_kept) in [(1, true), (0, false)] {
        let mut head = Head::new();
        let submit = Command::Submit {
            caller: user("ada"),
            key: SubmissionKey(1),
            spec: Arc::new(spec()),
            environment,
            snapshot_is_complete: true,
        };
        head.command(&submit).expect("accepted");
        let job = JobId(1);
        let digest = Digest([3; 32]);
        let bytes = digest.0.to_vec().into();
        assert!(head.changes.contains(&Change::Environment { job, digest, bytes }));
        head.hello("n1", 1, "boot", vec![]);
        assert!(matches!(head.sent().as_slice(), [HeadMessage::Launch(launch)] if launch.environment == environment));
        end(&mut head, job, code);
        assert_eq!(head.stored.0[&job].environment, environment.filter(|_| is_kept));
        let again = head.act(job, JobAction::Requeue);
        assert_eq!(again.is_ok(), is_kept, "{again:?}");
        let relaunched = head
            .sent()
            .iter()
            .any(|message| matches!(message, HeadMessage::Launch(launch) if launch.environment == environment));
        assert_eq!(relaunched, is_kept);
    }
}
