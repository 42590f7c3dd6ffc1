//! Heads whose state is older than the runs on their nodes, because a backup was restored.

use hostler_core::head::{Command, ConnectionId};
use hostler_model::{Attempt, Epoch, JobId, JobState, NodeState, RunId, TaskId};
use hostler_proto::link::{AgentMessage, HeadMessage, RunReport, RunStatus};

use crate::harness::*;

#[test]
fn runs_of_jobs_that_a_restored_head_never_had_go_on_until_an_operator_resumes_the_node() {
    let mut head = Head::new();
    head.hello("n1", 1, "boot", vec![]);
    let run = RunId { task: TaskId { job: JobId(40), index: 0 }, attempt: Attempt(1), epoch: Epoch(3) };
    let holds = vec![RunReport { run, status: RunStatus::Running }];
    let forget = HeadMessage::Forget { run };
    // The second node skips the numbers of the first one, whose run is unknown all the same.
    head.last_job = Some(JobId(90));
    head.hello("n2", 2, "boot", vec![]);
    head.last_job = None;
    assert_eq!(head.state.next_job(), JobId(91), "nodes remember the jobs that they had");
    for (is_connected, connections) in [(true, 3..5), (false, 7..9)] {
        for connection in connections.clone() {
            head.reload();
            head.sent();
            head.hello("n1", connection, "boot", holds.clone());
            assert!(!head.sent().contains(&forget));
            assert_eq!(head.node_state("n1"), NodeState::Drained);
        }
        let drain = head.state.node(&name("n1")).and_then(|node| node.drain.clone());
        let reason = drain.and_then(|drain| drain.reason).expect("a reason");
        assert!(reason.contains("(40)") && reason.matches("restored").count() == 1, "{reason}");
        if !is_connected {
            head.reload();
        }
        head.command(&Command::ResumeNode { node: name("n1") }).expect("known");
        if !is_connected {
            head.hello("n1", connections.end, "boot", holds.clone());
        }
        assert!(head.sent().contains(&forget));
        head.hello("n1", connections.end + 1, "boot", vec![]);
        assert_eq!(head.node_state("n1"), NodeState::Up);
        head.reload();
    }
}

#[test]
fn launch_of_an_earlier_head_may_have_started() {
    let mut head = Head::new();
    head.hello("n1", 1, "boot", vec![]);
    let job = head.submit(spec()).expect("accepted");
    // The agent starts the run, but the head is killed before the report and stays down; the node never returns.
    head.restart();
    // Silence counts from when the agent could be back.
    head.pass_ms(61_000);
    assert_eq!(head.state_of(job), JobState::Starting);
    head.pass_ms(15_000);
    assert_eq!(head.state_of(job), JobState::NodeFail);

    // If the node returns, its hello decides: a run that it does not have never arrived.
    let job = head.submit(spec()).expect("accepted");
    head.hello("n1", 2, "boot", vec![]);
    let run = head.run_of(job);
    head.restart();
    head.sent();
    head.hello("n1", 3, "boot", vec![]);
    assert!(matches!(head.sent().as_slice(), [HeadMessage::Launch(launch)] if launch.runs[0].run == run));
    head.report(3, run, RunStatus::Running).expect("accepted");
    assert_eq!(head.state_of(job), JobState::Running);
}

#[test]
fn node_that_has_returned_to_a_head_stays_up() {
    for has_reloaded in [false, true] {
        let mut head = Head::new();
        head.hello("n1", 1, "boot", vec![]);
        if has_reloaded {
            head.reload();
        } else {
            head.restart();
        }
        head.pass_ms(1_000);
        head.hello("n1", 2, "boot", vec![]);
        for _ in 0..60 {
            head.pass_ms(1_000);
            let (connection, message) = (ConnectionId(2), AgentMessage::Heartbeat);
            head.command(&Command::Message { connection, message, result_is_complete: false }).expect("connected");
        }
        assert_eq!(head.node_state("n1"), NodeState::Up);
    }
}
