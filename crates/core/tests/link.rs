//! Scripts for both ends of the agent link: what arrives, and what follows.

use std::time::Duration;

use hostler_core::head::{Command, ConnectionId, State};
use hostler_core::link::{AgentLink, Check, Gap, HeadLink, LinkEnd, Outbox, Step, Terms};
use hostler_model::{Attempt, Digest, Ending, Epoch, JobId, JobState, NodeFacts, NodeName, RunId, TaskId, Timestamp};
use hostler_proto::link::{
    AgentHello, AgentMessage, Fate, Frame, HeadHello, HeadMessage, RunEnd, RunReport, RunResult, RunStatus,
};

const CONNECTION: ConnectionId = ConnectionId(7);

fn at(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn run(index: u32) -> RunId {
    RunId { task: TaskId { job: JobId(1), index }, attempt: Attempt(1), epoch: Epoch(1) }
}

fn running(index: u32) -> RunReport {
    RunReport { run: run(index), status: RunStatus::Running }
}

/// The end of a run whose result has the manifest `[index; 32]`, with these blobs inside the report.
fn ended(index: u32, inline: &[&str]) -> RunReport {
    let inline = inline.iter().map(|blob| blob.as_bytes().to_vec().into()).collect();
    let fate = Fate::Ended(Ending { state: JobState::Completed, exit_code: Some(0) });
    let end = RunEnd {
        result: Some(RunResult { manifest: Digest([index as u8; 32]), inline }),
        ..RunEnd::without_result(fate, None)
    };
    RunReport { run: run(index), status: RunStatus::Ended(end) }
}

fn node() -> NodeName {
    "n1".parse().expect("a valid name")
}

fn hello(runs: Vec<RunReport>) -> AgentHello {
    AgentHello::new(node(), 1, NodeFacts::default(), runs)
}

fn welcome(heartbeat_ms: u64) -> HeadHello {
    HeadHello::Welcome {
        protocol: 4,
        epoch: Epoch(1),
        version: "test".to_owned(),
        heartbeat_ms,
        renew_in_ms: Some(9_000),
        return_within_ms: 30,
    }
}

/// An agent's link that was opened at 0 ms, with a heartbeat every 4 s.
fn open() -> AgentLink {
    let mut link = AgentLink::new(at(0));
    link.answered(welcome(4_000), at(0)).expect("welcomed");
    link
}

fn report(report: RunReport) -> AgentMessage {
    AgentMessage::Report(report)
}

#[test]
fn messages_of_an_agent_wait_for_the_welcome() {
    let mut link = AgentLink::new(at(0));
    link.send(report(ended(1, &[])), at(5));
    assert_eq!((link.next_frame(at(5)), link.wake_at()), (Ok(None), at(10_000)));
    let terms = Terms { renew_in: Some(at(9_000)), return_within: at(30) };
    assert_eq!(link.answered(welcome(4_000), at(20)), Ok(terms));
    let frame = Frame { sequence: 1, messages: vec![report(ended(1, &[]))] };
    assert_eq!((link.wake_at(), link.next_frame(at(20))), (at(5), Ok(Some(frame))));
    assert_eq!((link.next_frame(at(20)), link.wake_at()), (Ok(None), at(4_020)));
}

#[test]
fn agent_gives_up_a_head_that_refuses_it_or_does_not_answer() {
    let mut link = AgentLink::new(at(0));
    assert_eq!((link.next_frame(at(9_999)), link.next_frame(at(10_000))), (Ok(None), Err(LinkEnd::NoAnswer)));
    let refused = HeadHello::Refused { message: "removed".to_owned() };
    assert_eq!(link.answered(refused, at(1)), Err(LinkEnd::Refused("removed".to_owned())));
}

#[test]
fn agent_sends_a_heartbeat_after_an_interval_without_another_message() {
    let mut link = open();
    link.send(report(running(1)), at(3_000));
    assert_eq!((link.wake_at(), link.next_frame(at(3_004))), (at(3_005), Ok(None)));
    let messages = |link: &mut AgentLink, now| link.next_frame(at(now)).expect("linked").map(|frame| frame.messages);
    assert_eq!(messages(&mut link, 3_005), Some(vec![report(running(1))]));
    assert_eq!((link.wake_at(), messages(&mut link, 7_004)), (at(7_005), None));
    assert_eq!(messages(&mut link, 7_005), Some(vec![AgentMessage::Heartbeat]));
}

#[test]
fn suspended_agent_ignores_what_arrived_meanwhile() {
    let frame = Frame { sequence: 1, messages: vec![HeadMessage::Forget { run: run(1) }] };
    assert_eq!(open().receive(frame.clone(), at(6_000)), Ok(frame.messages.clone()), "half an interval late");
    let suspended = LinkEnd::Suspended(at(2_001));
    assert_eq!(open().receive(frame, at(6_001)), Err(suspended.clone()));
    assert_eq!(open().next_frame(at(6_001)), Err(suspended));
}

#[test]
fn agent_that_was_suspended_while_it_sent_a_frame_notices_it_before_the_next() {
    let mut link = open();
    link.send(AgentMessage::Heartbeat, at(100));
    assert!(link.next_frame(at(100)).is_ok_and(|frame| frame.is_some()));
    assert_eq!(link.next_frame(at(60_100)), Err(LinkEnd::Suspended(at(56_000))));
}

#[test]
fn agent_takes_each_frame_once_and_ends_the_link_at_a_gap() {
    let (mut link, mut outbox) = (open(), Outbox::default());
    let frames: Vec<_> = (1..=3).map(|index| outbox.frame(vec![HeadMessage::Forget { run: run(index) }])).collect();
    assert_eq!(link.receive(frames[0].clone(), at(1)), Ok(frames[0].messages.clone()));
    assert_eq!(link.receive(frames[0].clone(), at(2)), Ok(vec![]));
    assert_eq!(link.receive(frames[2].clone(), at(3)), Err(LinkEnd::Gap(Gap { expected: 2, found: 3 })));
}

#[test]
fn large_messages_of_an_agent_leave_in_several_frames_in_order() {
    let mut link = open();
    let blob = "x".repeat(400_000);
    (1..=5).for_each(|index| link.send(report(ended(index, &[&blob])), at(1)));
    let mut frames = Vec::new();
    // Each frame takes three seconds to send, which is not a suspension.
    for now in (0..).map(|frame| at(1 + 3_000 * frame)) {
        let Some(frame) = link.next_frame(now).expect("linked") else { break };
        frames.push(frame);
    }
    assert_eq!(frames.iter().map(|frame| frame.sequence).collect::<Vec<_>>(), [1, 2, 3]);
    let messages: Vec<_> = frames.into_iter().flat_map(|frame| frame.messages).collect();
    assert_eq!(messages, (1..=5).map(|index| report(ended(index, &[&blob]))).collect::<Vec<_>>());
}

/// A head's link to an agent with these runs.
fn linked(runs: Vec<RunReport>) -> HeadLink {
    HeadLink::new(CONNECTION, &node(), Digest([9; 32]), hello(runs)).expect("the same protocol")
}

/// The check that the link demands next.
fn check(link: &mut HeadLink) -> Check {
    match link.next_step() {
        Some(Step::Check(check)) => check,
        other => panic!("{other:?} instead of a check"),
    }
}

/// The next message that the link posts, whether its result is complete, and its blobs.
fn posted(link: &mut HeadLink) -> (AgentMessage, bool, Vec<Vec<u8>>) {
    match link.next_step() {
        Some(Step::Post(Command::Message { connection: CONNECTION, message, result_is_complete }, blobs)) => {
            (message, result_is_complete, blobs.into_iter().map(|(_, blob)| blob).collect())
        }
        other => panic!("{other:?} instead of a message"),
    }
}

/// Answers a check: the head has the result if `is_complete`.
fn answer(link: &mut HeadLink, mut check: Check, is_complete: bool) {
    let blobs = std::mem::take(&mut check.inline).into_iter().map(|blob| (Digest([0; 32]), blob)).collect();
    link.checked(check, is_complete.then_some(blobs));
}

#[test]
fn head_checks_the_results_of_a_hello_before_the_loop_gets_it() {
    let mut link = linked(vec![ended(1, &["one"]), running(2), ended(3, &["three"]), ended(4, &[])]);
    for (index, inline, is_complete) in [(1, vec![b"one".to_vec()], true), (3, vec![b"three".to_vec()], false)] {
        let check = check(&mut link);
        assert_eq!((check.run(), check.manifest, &check.inline), (run(index), Digest([index as u8; 32]), &inline));
        answer(&mut link, check, is_complete);
    }
    let last = check(&mut link);
    answer(&mut link, last, true);
    assert!(link.next_step().is_none());
    let Some((Command::Hello { connection: CONNECTION, key, hello, complete }, blobs)) = link.introduction() else {
        panic!("the hello is complete");
    };
    assert_eq!(key, Digest([9; 32]));
    assert_eq!(hello.runs, [ended(1, &[]), running(2), ended(3, &[]), ended(4, &[])], "all runs, without content");
    assert!(complete.contains(&run(1)) && !complete.contains(&run(3)) && complete.contains(&run(4)));
    assert_eq!(blobs, [(Digest([0; 32]), b"one".to_vec())], "only blobs of complete results are stored");
    assert!(link.introduction().is_none(), "once");

    assert!(link.next_step().is_none() && !link.is_open(), "nothing is sent before the welcome");
    let welcome = link.welcome(&State::default(), Timestamp(0));
    assert!(matches!(welcome, HeadHello::Welcome { protocol: 9, heartbeat_ms: 4_000, .. }), "{welcome:?}");
    assert!(matches!(link.next_step(), Some(Step::Resend(again)) if again == run(3)));
    assert!(link.next_step().is_none(), "once");
}

#[test]
fn head_takes_messages_in_order_and_waits_at_a_check() {
    let mut link = opened();
    let messages = vec![report(running(1)), report(ended(1, &["result"])), AgentMessage::Heartbeat];
    link.receive(Frame { sequence: 1, messages }).expect("the first frame");
    assert_eq!(posted(&mut link), (report(running(1)), true, vec![]));
    let result = check(&mut link);
    answer(&mut link, result, true);
    assert_eq!(posted(&mut link), (report(ended(1, &[])), true, vec![b"result".to_vec()]));
    assert_eq!(posted(&mut link), (AgentMessage::Heartbeat, true, vec![]));
    assert!(link.next_step().is_none());
}

#[test]
fn incomplete_result_is_requested_again_and_the_end_does_not_count() {
    let mut link = opened();
    link.receive(Frame { sequence: 1, messages: vec![report(ended(1, &["part"]))] }).expect("the first frame");
    let result = check(&mut link);
    answer(&mut link, result, false);
    assert!(matches!(link.next_step(), Some(Step::Resend(again)) if again == run(1)));
    assert_eq!(posted(&mut link), (report(ended(1, &[])), false, vec![]));
    assert!(link.next_step().is_none());
}

#[test]
fn head_takes_each_frame_once_and_ends_the_link_at_a_gap() {
    let mut link = opened();
    let heartbeat = |sequence| Frame { sequence, messages: vec![AgentMessage::Heartbeat] };
    link.receive(heartbeat(1)).expect("the first frame");
    link.receive(heartbeat(1)).expect("a repeated frame");
    assert_eq!(posted(&mut link).0, AgentMessage::Heartbeat);
    assert!(link.next_step().is_none());
    assert_eq!(link.receive(heartbeat(3)), Err(Gap { expected: 2, found: 3 }));
}

/// An open link to an agent without runs.
fn opened() -> HeadLink {
    let mut link = linked(vec![]);
    assert!(link.next_step().is_none() && link.introduction().is_some());
    link.welcome(&State::default(), Timestamp(0));
    link
}
