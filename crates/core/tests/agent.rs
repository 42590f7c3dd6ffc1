//! Scripted tests of an agent's restart: what it finds of a run in, effects and reports out.

use std::sync::Arc;

use hostler_core::agent::{Effect, Event, Exit, Found, RunLaunch, State, Why, update};
use hostler_model::{CpuSet, Digest, Ending, JobId, JobSpec, JobState, Request, Resources, RunId, Work};
use hostler_proto::link::{Fate, HeadMessage, JobLaunch, Placement, RunEnd, RunResult, RunStatus, Usage};

fn run() -> RunId {
    "7_0.1.1".parse().expect("a run")
}

fn launch() -> Arc<RunLaunch> {
    let spec = Arc::new(JobSpec::new("test", Work::command(["true"], "/"), Request::new(1, 1 << 20)));
    let job = JobLaunch { id: JobId(7), user: "ada".into(), uid: None, spec, array_len: 1, output_cap_bytes: None };
    let placement =
        Placement { run: run(), resources: Resources::new(CpuSet::first(1), 1 << 20), gang: None, files: None };
    Arc::new(RunLaunch { job: Arc::new(job), placement })
}

/// A restarted agent that has found a run, the effects, and the status in its hello.
fn restarted(found: Found) -> (State, Vec<Effect>, RunStatus) {
    let mut state = State::default();
    let effects = update(&mut state, Event::Recovered { launch: launch(), found });
    let status = state.reports().pop().expect("the run is reported").status;
    (state, effects, status)
}

fn exit(why: Why) -> Exit {
    Exit { why, message: Some("a message".into()), usage: Usage::default(), steps: Vec::new(), certificate: None }
}

fn end(state: JobState, exit_code: i32) -> RunEnd {
    RunEnd::without_result(Fate::Ended(Ending { state, exit_code: Some(exit_code) }), None)
}

#[test]
fn launch_of_this_boot_starts_and_one_of_an_earlier_boot_is_lost() {
    let (_, effects, status) = restarted(Found::Launch { is_of_this_boot: true });
    assert_eq!((effects, status), (vec![Effect::Start(launch())], RunStatus::Accepted));

    let (_, effects, status) = restarted(Found::Launch { is_of_this_boot: false });
    assert_eq!(effects, [], "it may have begun, so it must not begin again");
    let RunStatus::Ended(end) = status else { panic!("the run is over: {status:?}") };
    assert_eq!(end.fate, Fate::Lost);
    assert!(end.message.expect("users read why").contains("restarted"));
}

#[test]
fn run_with_its_files_reports_that_it_prepares_the_environment() {
    let (mut state, _, _) = restarted(Found::Launch { is_of_this_boot: true });
    update(&mut state, Event::Staged { run: run() });
    assert_eq!(state.reports()[0].status, RunStatus::Staged);
    update(&mut state, Event::Started { run: run() });
    update(&mut state, Event::Staged { run: run() });
    assert_eq!(state.reports()[0].status, RunStatus::Running, "a late event changes nothing");
}

#[test]
fn run_with_a_live_shepherd_continues_until_it_ends() {
    let (mut state, effects, status) = restarted(Found::Shepherd);
    assert_eq!((effects, status), (Vec::new(), RunStatus::Running));
    let effects = update(&mut state, Event::Exited { run: run(), exit: exit(Why::Exited(0)) });
    assert_eq!(effects, [Effect::Collect { launch: launch() }]);
}

#[test]
fn new_time_limit_applies_at_once_or_when_the_process_starts() {
    let received = |time_limit_ms| Event::Received(HeadMessage::TimeLimit { run: run(), time_limit_ms });
    let applied = |time_limit_ms| vec![Effect::ChangeLimit { run: run(), time_limit_ms }];
    let (mut state, _, _) = restarted(Found::Shepherd);
    assert_eq!(update(&mut state, received(Some(5))), applied(Some(5)));
    assert_eq!(update(&mut state, received(Some(5))), applied(Some(5)), "the head repeats it after a break");
    assert_eq!(update(&mut state, received(None)), applied(None));

    let (mut state, _, _) = restarted(Found::Launch { is_of_this_boot: true });
    assert_eq!(update(&mut state, received(Some(5))), [], "nothing runs yet");
    update(&mut state, Event::Staged { run: run() });
    assert_eq!(update(&mut state, received(Some(7))), []);
    assert_eq!(update(&mut state, Event::Started { run: run() }), applied(Some(7)));
    update(&mut state, Event::Exited { run: run(), exit: exit(Why::Exited(0)) });
    assert_eq!(update(&mut state, received(Some(9))), [], "the process has ended");
}

#[test]
fn results_of_an_ended_run_are_collected() {
    let (mut state, effects, status) = restarted(Found::Exit(exit(Why::Exited(3))));
    assert_eq!((effects, status), (vec![Effect::Collect { launch: launch() }], RunStatus::Completing));
    let result = RunResult { manifest: Digest([1; 32]), inline: Vec::new() };
    let collected = Event::Collected { run: run(), result: Ok((result.clone(), None)) };
    assert_eq!(update(&mut state, collected), [], "the exit record is on the disk, and the next hello reports the end");
    let failed = RunEnd { message: Some("a message".into()), result: Some(result), ..end(JobState::Failed, 3) };
    assert_eq!(state.reports()[0].status, RunStatus::Ended(failed));
}

#[test]
fn lost_run_is_reported_and_its_results_are_not_collected() {
    let (_, effects, status) = restarted(Found::Exit(exit(Why::Lost)));
    let lost = RunEnd::without_result(Fate::Lost, Some("a message".into()));
    assert_eq!((effects, status), (Vec::new(), RunStatus::Ended(lost)));
}

#[test]
fn stored_end_is_reported_until_the_head_forgets_the_run() {
    let stored = end(JobState::Timeout, 137);
    let (mut state, effects, status) = restarted(Found::Over(stored.clone()));
    assert_eq!((effects, status), (Vec::new(), RunStatus::Ended(stored)));
    let effects = update(&mut state, Event::Received(HeadMessage::Forget { run: run() }));
    assert_eq!(effects, [Effect::Remove { launch: launch() }]);
    assert!(state.reports().is_empty());
}

#[test]
fn message_of_an_end_fits_into_a_frame() {
    let long = "\u{1}é".repeat(3 << 20);
    let shown = |status: RunStatus| {
        let RunStatus::Ended(end) = status else { panic!("the run is over: {status:?}") };
        let message = end.message.expect("users read why");
        assert!(message.ends_with('…'));
        message.chars().count()
    };
    let exit = Exit { message: Some(long.clone()), ..exit(Why::Lost) };
    let (mut state, _, _) = restarted(Found::Launch { is_of_this_boot: true });
    update(&mut state, Event::Exited { run: run(), exit: exit.clone() });
    assert_eq!(shown(state.reports().pop().expect("reported").status), 2_001);
    assert_eq!(shown(restarted(Found::Exit(exit)).2), 2_001);
    // As an earlier version may have stored it.
    let stored = RunEnd { message: Some(long), ..end(JobState::Failed, 1) };
    assert_eq!(shown(restarted(Found::Over(stored)).2), 2_001);
}
