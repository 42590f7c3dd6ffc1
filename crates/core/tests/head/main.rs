//! Scripted tests of the head's state machine: commands in, messages and records out.

mod changes;
mod containers;
mod counted;
mod counts;
mod dependencies;
mod dry_run;
mod ended;
mod exclusive;
mod fairness;
mod formats;
mod gangs;
mod gpus;
mod harness;
mod limits;
mod notifications;
mod partitions;
mod peers;
mod power;
mod quiet_machine;
mod restored;
mod rounds;
mod sandbox;
mod settings;
mod waiting;

use std::collections::BTreeSet;
use std::sync::Arc;

use harness::*;
use hostler_core::head::{Caller, Command, ConnectionId, NewUser, Refusal, SubmissionKey, UsersCommand, explain};
use hostler_model::{
    CpuSet, Dependency, Digest, Ending, JobId, JobSpec, JobState, NodeState, Reason, Request, Resources, Role, RunId,
    WallTime,
};
use hostler_proto::api::JobAction;
use hostler_proto::link::{
    AgentMessage, EndCause, Fate, HeadMessage, RunAge, RunEnd, RunReport, RunResult, RunStatus, Usage,
};
use hostler_proto::stages::Stages;
use hostler_proto::stored::Change;

#[test]
fn launch_contains_the_users_uid_in_the_cluster() {
    let mut head = Head::new();
    head.hello("n1", 1, "boot", vec![]);
    let uid = |head: &mut Head, uid: Option<u32>| {
        let caller = Caller { uid, ..user("ada") };
        head.keys += 1;
        let (key, spec) = (SubmissionKey(head.keys), Arc::new(spec()));
        head.command(&Command::Submit { caller, key, spec, environment: None, snapshot_is_complete: true })
            .expect("accepted");
        let job = head.state.job_of_key(key).expect("accepted");
        let sent = head.sent();
        head.act(job, JobAction::Cancel).expect("accepted");
        let found = sent.into_iter().find_map(|message| match message {
            HeadMessage::Launch(launch) => Some(launch.job.uid),
            _ => None,
        });
        found.expect("the head sent a launch")
    };
    assert_eq!(uid(&mut head, Some(1000)), Some(1000), "the uid of the submission");
    let ada = NewUser {
        name: "ada".parse().expect("a name"),
        uid: Some(2000),
        role: Role::User,
        groups: BTreeSet::new(),
        keys: Vec::new(),
    };
    head.command(&Command::Users(UsersCommand::Add(ada))).expect("accepted");
    assert_eq!(uid(&mut head, None), Some(2000), "the uid that an admin has set");
    head.hello("n2", 2, "boot", vec![]);
    assert_eq!(
        uid(&mut head, Some(1000)),
        Some(1000),
        "a job of another person with this name never runs as the added user"
    );
}

#[test]
fn job_passes_through_its_states() {
    let mut head = Head::new();
    let job = head.submit(spec()).expect("accepted before there are nodes");
    assert_eq!(head.state_of(job), JobState::Pending);
    head.hello("n1", 1, "boot", vec![]);
    let run = head.run_of(job);
    assert!(matches!(head.sent().as_slice(), [HeadMessage::Launch(launch)] if launch.runs[0].run == run));
    for (status, state) in [
        (RunStatus::Accepted, JobState::Starting),
        (RunStatus::Staged, JobState::Starting),
        (RunStatus::Running, JobState::Running),
        (ended(0), JobState::Completed),
    ] {
        head.report(1, run, status).expect("accepted");
        assert_eq!(head.state_of(job), state);
    }
    assert_eq!(head.sent(), [HeadMessage::Forget { run }]);
    assert!(
        matches!(head.changes.as_slice(), [Change::Ended(task), Change::JobEnded(_)] if task.ending.exit_code == Some(0))
    );
}

#[test]
fn ended_task_records_when_it_reached_each_stage() {
    let mut head = Head::new();
    head.hello("n1", 1, "boot", vec![]);
    let stages_of = |head: &Head| match head.changes.as_slice() {
        [.., Change::Ended(task), Change::JobEnded(_)] => (task.stages, task.started_at),
        other => panic!("the job has ended: {other:?}"),
    };
    let at = |ms: i64| Some(WallTime(1_000_000 + ms));
    let job = head.submit(spec()).expect("accepted");
    let run = head.run_of(job);
    for status in [RunStatus::Accepted, RunStatus::Staged, RunStatus::Running, RunStatus::Completing, ended(0)] {
        head.now.wall.0 += 1_000;
        head.report(1, run, status).expect("accepted");
    }
    let stages = Stages { placed_at: at(0), staged_at: at(2_000), exited_at: at(4_000), collected_at: at(5_000) };
    assert_eq!(stages_of(&head), (stages, at(3_000)));

    // A short run reports only its end, with the time that it ran.
    let short = head.submit(spec()).expect("accepted");
    head.now.wall.0 += 1_000;
    let RunStatus::Ended(end) = ended(0) else { unreachable!("`ended` returns another status") };
    let end = RunEnd { usage: Usage { wall_ms: 10, ..Usage::default() }, ..end };
    head.report(1, head.run_of(short), RunStatus::Ended(end)).expect("accepted");
    let stages = Stages { placed_at: at(5_000), staged_at: None, exited_at: at(6_000), collected_at: at(6_000) };
    assert_eq!(stages_of(&head), (stages, at(5_990)));
}

#[test]
fn times_of_a_job_are_those_of_its_node_when_the_head_was_away() {
    let mut head = Head::new();
    head.hello("n1", 1, "boot", vec![]);
    // The node reports the start after the end, and the cluster's clock stands still while the head is away.
    let job = head.submit(spec()).expect("accepted");
    let run = head.run_of(job);
    let placed = head.now.wall;
    head.now.wall.0 += 52_000;
    let RunStatus::Ended(end) = ended(0) else { unreachable!("`ended` returns another status") };
    let end = RunEnd { usage: Usage { wall_ms: 20_000, ..Usage::default() }, ..end };
    head.ages = vec![RunAge { run, started_ms: 50_000, exited_ms: Some(30_000) }];
    head.hello("n1", 2, "boot", vec![RunReport { run, status: RunStatus::Ended(end) }]);
    let [.., Change::Ended(task), Change::JobEnded(job)] = head.changes.as_slice() else { panic!("the job has ended") };
    let at = |ms: i64| Some(WallTime(placed.0 + ms));
    assert_eq!((task.started_at, Some(task.ended_at), task.stages.collected_at), (at(2_000), at(22_000), at(52_000)));
    assert_eq!((Some(job.used.ended_at), job.used.sums.cpu_held_ms), (at(22_000), 20_000));
}

#[test]
fn retried_submission_is_the_same_job_and_impossible_jobs_are_refused() {
    let mut head = Head::new();
    head.hello("n1", 1, "boot", vec![]);
    let first = head.submit(spec()).expect("accepted");
    head.keys -= 1;
    assert_eq!(head.submit(spec()), Ok(first));
    let huge = JobSpec { request: Request::new(3, 8 << 20), ..spec() };
    let refusal = head.submit(huge).expect_err("the node has two CPUs");
    assert!(refusal.to_string().contains("3 CPUs"), "{refusal}");
    let ghost = JobSpec { after: Dependency::parse_list("afterok:99").expect("valid").into(), ..spec() };
    assert_eq!(head.submit(ghost), Err(Refusal::NoSuchDependency(JobId(99))));
}

#[test]
fn users_cannot_cancel_jobs_of_others() {
    let mut head = Head::new();
    let job = head.submit(spec()).expect("accepted");
    let cancel = |caller| Command::Act { caller, job, index: None, action: JobAction::Cancel };
    let refusal = head.command(&cancel(user("eve"))).expect_err("eve does not own the job");
    assert_eq!(refusal, Refusal::NotYours { job, owner: "ada".into() });
    head.command(&cancel(Caller { user: "root".into(), uid: None, operator: true }))
        .expect("operators may cancel any job");
    assert_eq!(head.state_of(job), JobState::Cancelled);
}

#[test]
fn hello_with_two_reports_about_one_run_counts_the_first() {
    // Found by fuzzing: the second report was about a run that the first one had ended.
    for (first, second) in [(ended(0), RunStatus::Running), (ended(3), ended(0)), (RunStatus::Running, ended(0))] {
        let mut head = Head::new();
        head.hello("n1", 1, "boot", vec![]);
        let job = head.submit(spec()).expect("accepted");
        let run = head.run_of(job);
        let is_over = first != RunStatus::Running;
        head.hello("n1", 2, "boot", vec![RunReport { run, status: first }, RunReport { run, status: second }]);
        assert_eq!(head.state.job(job).is_none_or(|job| job.active.is_empty()), is_over);
        head.restart();
    }
}

#[test]
fn restarted_head_and_agents_agree_after_the_hello() {
    let mut head = Head::new();
    head.hello("n1", 1, "boot", vec![]);
    let running = head.submit(spec()).expect("accepted");
    let unsent = head.submit(spec()).expect("accepted");
    let waiting = head.submit(spec()).expect("accepted");
    let run = head.run_of(running);
    head.report(1, run, RunStatus::Running).expect("accepted");
    head.restart();
    assert_eq!(head.state.node(&name("n1")).expect("known").state(), NodeState::Suspect);
    head.sent();

    // The agent has the first; the launch of the second was lost with the connection.
    let lost_launch = head.run_of(unsent);
    let stray = RunId { attempt: hostler_model::Attempt(7), ..run };
    let holds = [run, stray].map(|run| RunReport { run, status: RunStatus::Running });
    head.hello("n1", 2, "boot", holds.to_vec());
    let sent = head.sent();
    assert!(sent.contains(&HeadMessage::Forget { run: stray }), "unknown runs are forgotten: {sent:?}");
    assert!(
        sent.iter().any(|message| matches!(message, HeadMessage::Launch(launch) if launch.runs[0].run == lost_launch)),
        "a lost launch is sent again: {sent:?}"
    );
    assert_eq!(head.run_of(running), run, "the running run continues");
    assert_eq!(head.state_of(waiting), JobState::Pending);
    assert_eq!(head.report(1, run, ended(0)), Err(Refusal::Stale), "the old connection is stale");
    head.report(2, run, ended(0)).expect("the new connection is current");
    assert_eq!(head.state_of(running), JobState::Completed);
}

#[test]
fn late_hello_of_an_older_connection_is_refused() {
    // Found by simulation: a stalled head took the hello of a new boot first, and then that of the boot before.
    let mut head = Head::new();
    head.hello("n1", 2, "second", vec![]);
    let job = head.submit(spec()).expect("accepted");
    let run = head.run_of(job);
    for is_linked in [true, false] {
        if !is_linked {
            head.command(&Command::ConnectionEnded { connection: ConnectionId(2) }).expect("accepted");
        }
        assert_eq!(head.late_hello("n1", 1, "first"), Err(Refusal::Stale));
        assert_eq!(head.run_of(job), run, "the run continues");
    }
    head.hello("n1", 3, "second", vec![RunReport { run, status: RunStatus::Running }]);
    head.report(3, run, ended(0)).expect("the newest connection counts");
    assert_eq!(head.state_of(job), JobState::Completed);
    head.restart();
    head.hello("n1", 1, "second", vec![]);
}

#[test]
fn late_hello_of_an_older_connection_is_refused_after_a_reload() {
    // A link closes only after the answer to its hello. So a hello can wait for a slow disk while the state is loaded again.
    let mut head = Head::new();
    head.hello("n1", 2, "second", vec![]);
    let job = head.submit(JobSpec { requeue: true, ..spec() }).expect("accepted");
    let run = head.run_of(job);
    head.report(2, run, RunStatus::Running).expect("accepted");
    head.reload();
    assert_eq!(head.late_hello("n1", 1, "first"), Err(Refusal::Stale));
    assert_eq!(head.run_of(job), run, "the run continues");
    head.hello("n1", 3, "second", vec![RunReport { run, status: RunStatus::Running }]);
    head.report(3, run, ended(0)).expect("the newest connection counts");
    assert_eq!(head.state_of(job), JobState::Completed);
}

#[test]
fn runs_missing_after_a_reboot_are_lost_or_requeued() {
    let mut head = Head::new();
    head.hello("n1", 1, "boot", vec![]);
    let again = head.submit(JobSpec { requeue: true, ..spec() }).expect("accepted");
    let lost = head.submit(spec()).expect("accepted");
    for job in [again, lost] {
        let run = head.run_of(job);
        head.report(1, run, RunStatus::Running).expect("accepted");
    }
    let old = head.run_of(again);
    head.hello("n1", 2, "another boot", vec![]);
    assert_eq!(head.state_of(lost), JobState::NodeFail);
    assert_eq!(head.run_of(again).attempt.0, 2);
    head.report(2, old, ended(0)).expect("ignored, not refused");
    assert_eq!(head.state_of(again), JobState::Starting, "a report about the first attempt changes nothing");
}

#[test]
fn silent_node_gets_no_work_and_its_runs_are_given_up() {
    let mut head = Head::new();
    head.hello("n1", 1, "boot", vec![]);
    let job = head.submit(spec()).expect("accepted");
    let run = head.run_of(job);
    head.report(1, run, RunStatus::Running).expect("accepted");
    head.pass_ms(7_500);
    assert_eq!(head.node_state("n1"), NodeState::Suspect);
    let waiting = head.submit(spec()).expect("accepted");
    assert!(matches!(explain(&head.state, head.job(waiting)), Some(Reason::NodesDown { .. })));
    head.pass_ms(2_500);
    assert_eq!(head.node_state("n1"), NodeState::Down, "a silent node is down within ten seconds");
    assert_eq!(head.state_of(job), JobState::Running, "a run that cannot run again gets more time");
    head.pass_ms(51_000);
    assert_eq!(head.state_of(job), JobState::NodeFail);
    assert_eq!(head.state.next_deadline(head.now), None, "no deadline but the job's retention is left");
    let retention_is_over = head.job(job).ended.map(|at| at.plus_ms(head.state.settings.retention_ms + 1));
    assert!(head.deadline().is_some() && head.deadline() <= retention_is_over);
    // The node was only suspended: it must end the run that was given up.
    head.sent();
    head.hello("n1", 2, "boot", vec![RunReport { run, status: RunStatus::Running }]);
    assert!(head.sent().contains(&HeadMessage::Forget { run }));
    assert_eq!(head.state_of(waiting), JobState::Starting);
}

#[test]
fn head_that_was_stopped_gives_a_suspect_node_the_full_time() {
    let mut head = Head::new();
    head.hello("n1", 1, "boot", vec![]);
    let job = head.submit(spec()).expect("accepted");
    let run = head.run_of(job);
    head.report(1, run, RunStatus::Running).expect("accepted");
    head.pass_ms(7_500);
    assert_eq!(head.node_state("n1"), NodeState::Suspect);
    head.stand_still_ms(600_000);
    assert_eq!(head.node_state("n1"), NodeState::Down);
    head.pass_ms(40_000);
    assert_eq!(head.state_of(job), JobState::Running, "the agent could not say anything while the head was stopped");
    head.pass_ms(20_000);
    assert_eq!(head.state_of(job), JobState::NodeFail);
}

#[test]
fn requeueable_run_moves_away_from_a_down_node() {
    let mut head = Head::new();
    head.hello("n1", 1, "boot", vec![]);
    let job = head.submit(JobSpec { requeue: true, ..spec() }).expect("accepted");
    let run = head.run_of(job);
    head.report(1, run, RunStatus::Running).expect("accepted");
    head.pass_ms(5_000);
    head.hello("n2", 2, "boot", vec![]);
    head.pass_ms(5_000);
    assert_eq!((head.node_state("n1"), head.node_state("n2")), (NodeState::Down, NodeState::Up));
    assert_eq!(head.job(job).active[&0].parts[0].node, name("n2"));
    // The node was only disconnected: its run is no longer current.
    head.sent();
    head.hello("n1", 3, "boot", vec![RunReport { run, status: RunStatus::Running }]);
    assert_eq!(head.sent(), [HeadMessage::Forget { run }]);
    assert_eq!(head.node_state("n1"), NodeState::Up);
}

#[test]
fn late_heartbeat_does_not_mark_the_node_down() {
    let mut head = Head::new();
    head.hello("n1", 1, "boot", vec![]);
    let heartbeat =
        Command::Message { connection: ConnectionId(1), message: AgentMessage::Heartbeat, result_is_complete: true };
    for late_ms in [0, 1_000, 2_000, 2_900] {
        head.pass_ms(head.state.settings.heartbeat_ms + late_ms);
        head.command(&heartbeat).expect("accepted");
        assert_eq!(head.node_state("n1"), NodeState::Up, "the heartbeat was {late_ms} ms late");
    }
    // An even later heartbeat forces a reconnect and nothing else.
    head.pass_ms(head.state.settings.heartbeat_ms + 5_000);
    assert_eq!(head.node_state("n1"), NodeState::Suspect);
    assert_eq!(head.command(&heartbeat), Err(Refusal::Stale));
}

#[test]
fn run_that_may_have_started_is_not_placed_again() {
    let mut head = Head::new();
    head.hello("n1", 1, "boot", vec![]);
    let (unheard, accepted) = (head.submit(spec()).expect("accepted"), head.submit(spec()).expect("accepted"));
    head.report(1, head.run_of(accepted), RunStatus::Accepted).expect("accepted");
    head.hello("n2", 2, "boot", vec![]);
    let heartbeat =
        Command::Message { connection: ConnectionId(2), message: AgentMessage::Heartbeat, result_is_complete: true };
    for _ in 0..15 {
        head.pass_ms(4_000);
        head.command(&heartbeat).expect("the heartbeat of n2 is accepted");
    }
    head.pass_ms(2_000);
    assert_eq!(head.state_of(accepted), JobState::NodeFail, "the run may have started");
    assert_eq!(head.state_of(unheard), JobState::NodeFail, "the run may have started, with its confirmation lost");
}

#[test]
fn unconfirmed_run_missing_in_the_hello_is_launched_again() {
    let mut head = Head::new();
    head.hello("n1", 1, "boot", vec![]);
    let job = head.submit(spec()).expect("accepted");
    let run = head.run_of(job);
    head.pass_ms(12_000);
    assert_eq!(head.node_state("n1"), NodeState::Down);
    head.sent();
    head.hello("n1", 2, "boot", vec![]);
    assert!(matches!(head.sent().as_slice(), [HeadMessage::Launch(launch)] if launch.runs[0].run == run));
}

#[test]
fn only_a_disconnected_node_without_runs_is_forgotten() {
    let mut head = Head::new();
    for (connection, node) in [(1, "n1"), (2, "n2"), (3, "n3")] {
        head.hello(node, connection, "boot", vec![]);
    }
    let job = head.submit(spec()).expect("accepted");
    let run = head.run_of(job);
    assert_eq!(head.job(job).active[&0].parts[0].node, name("n1"));
    let forget = |node| Command::ForgetNode { node: name(node) };
    let refusal = head.command(&forget("n2")).expect_err("the node is connected");
    assert!(refusal.to_string().contains("connected"), "{refusal}");
    for connection in [1, 2] {
        head.command(&Command::ConnectionEnded { connection: ConnectionId(connection) }).expect("accepted");
    }
    let refusal = head.command(&forget("n1")).expect_err("a run is placed there");
    assert!(refusal.to_string().contains("still has a task"), "{refusal}");
    head.command(&forget("n2")).expect("accepted");
    assert!(head.state.node(&name("n2")).is_none());
    assert_eq!(head.command(&forget("n2")), Err(Refusal::NoSuchNode(name("n2"))));

    // The other nodes keep their indexes, also after a restart, and the forgotten node may return.
    head.restart();
    for (connection, node) in [(4, "n2"), (5, "n3")] {
        head.hello(node, connection, "boot", vec![]);
    }
    head.hello("n1", 6, "boot", vec![RunReport { run, status: RunStatus::Running }]);
    let states = ["n1", "n2", "n3"].map(|node| head.node_state(node));
    assert_eq!(states, [NodeState::Up; 3]);
    assert_eq!(head.state_of(job), JobState::Running);
}

#[test]
fn no_deadline_while_nothing_can_become_due() {
    let mut head = Head::new();
    assert_eq!(head.state.next_deadline(head.now), None);
    head.hello("n1", 1, "boot", vec![]);
    head.pass_ms(61_000);
    assert_eq!(head.node_state("n1"), NodeState::Down);
    assert_eq!(head.state.next_deadline(head.now), None, "a down node has no further deadline");
    head.restart();
    assert_eq!(head.state.next_deadline(head.now), None);
}

#[test]
fn result_counts_only_when_complete() {
    let mut head = Head::new();
    head.hello("n1", 1, "boot", vec![]);
    let job = head.submit(spec()).expect("accepted");
    let run = head.run_of(job);
    let result = Some(RunResult { manifest: Digest([7; 32]), inline: vec![] });
    let fate = Fate::Ended(Ending { state: JobState::Completed, exit_code: Some(0) });
    let status = RunStatus::Ended(RunEnd { result, ..RunEnd::without_result(fate, None) });
    let message = AgentMessage::Report(RunReport { run, status });
    let mut command = Command::Message { connection: ConnectionId(1), message, result_is_complete: false };
    head.command(&command).expect("accepted");
    assert_ne!(head.state_of(job), JobState::Completed);
    if let Command::Message { result_is_complete, .. } = &mut command {
        *result_is_complete = true;
    }
    head.command(&command).expect("accepted");
    assert_eq!(head.state_of(job), JobState::Completed);
    assert!(head.job(job).results.contains(0));
}

#[test]
fn cancel_and_requeue_of_a_run_wait_for_the_agent() {
    let mut head = Head::new();
    head.hello("n1", 1, "boot", vec![]);
    let job = head.submit(spec()).expect("accepted");
    let run = head.run_of(job);
    head.report(1, run, RunStatus::Running).expect("accepted");
    head.sent();
    head.act(job, JobAction::Requeue).expect("accepted");
    assert!(matches!(head.sent().as_slice(), [HeadMessage::End { cause: EndCause::Requeued, .. }]));
    head.report(1, run, fate(Fate::Requeued)).expect("accepted");
    let second = head.run_of(job);
    assert_eq!(second.attempt.0, 2);
    head.act(job, JobAction::Cancel).expect("accepted");
    let cancelled = Fate::Ended(Ending { state: JobState::Cancelled, exit_code: Some(143) });
    head.report(1, second, fate(cancelled)).expect("accepted");
    assert_eq!(head.state_of(job), JobState::Cancelled);
    head.act(job, JobAction::Requeue).expect("an ended job may run again");
    assert_eq!(head.run_of(job).attempt.0, 3);
    assert!(head.changes.iter().any(|change| matches!(change, Change::Reopened(task) if task.job == job)));
}

#[test]
fn dependencies_are_satisfied_or_broken() {
    let mut head = Head::new();
    head.hello("n1", 1, "boot", vec![]);
    let first = head.submit(spec()).expect("accepted");
    let after = |text: &str| JobSpec { after: Dependency::parse_list(text).expect("valid").into(), ..spec() };
    let ok = head.submit(after(&format!("afterok:{first}"))).expect("accepted");
    let not_ok = head.submit(after(&format!("afternotok:{first}"))).expect("accepted");
    let chained = head.submit(after(&format!("afterok:{ok}"))).expect("accepted");
    let started = head.submit(after(&format!("after:{first}"))).expect("accepted");
    assert_eq!(explain(&head.state, head.job(ok)), Some(Reason::Dependency { jobs: vec![first] }));
    let run = head.run_of(first);
    head.report(1, run, RunStatus::Running).expect("accepted");
    assert_eq!(head.state_of(started), JobState::Starting);
    head.report(1, run, ended(1)).expect("accepted");
    assert_eq!(head.state_of(not_ok), JobState::Starting);
    assert_eq!(head.state_of(ok), JobState::Cancelled);
    assert_eq!(head.state_of(chained), JobState::Cancelled, "a job that depends on the cancelled one is cancelled too");
}

#[test]
fn arrays_stay_within_their_limit_and_in_one_record() {
    let mut head = Head::new();
    head.hello("n1", 1, "boot", vec![]);
    let job = head.submit(JobSpec { array: Some("0-999%1".parse().expect("valid")), ..spec() }).expect("accepted");
    for index in 0..3 {
        let run = head.run_of(job);
        assert_eq!((run.task.index, head.job(job).active.len()), (index, 1));
        head.report(1, run, ended(0)).expect("accepted");
    }
    assert_eq!(head.job(job).endings.len(), 1);
    assert_eq!(head.job(job).pending.to_string(), "4-999");
    head.act(job, JobAction::Cancel).expect("accepted");
    assert_eq!(head.job(job).pending.len(), 0);
    assert!(!head.job(job).is_ended(), "one task still runs");
}

#[test]
fn ended_jobs_are_forgotten_after_their_retention() {
    let mut head = Head::new();
    head.hello("n1", 1, "boot", vec![]);
    let job = head.submit(spec()).expect("accepted");
    let run = head.run_of(job);
    head.report(1, run, ended(0)).expect("accepted");
    let retention = head.state.settings.retention_ms;
    head.pass_ms(retention / 2);
    assert!(head.stored.0.contains_key(&job));
    head.pass_ms(retention / 2 + 1);
    assert!(!head.stored.0.contains_key(&job));
    assert!(head.changes.contains(&Change::Forgotten(job)));
}

#[test]
fn job_may_have_two_dependencies_on_one_job() {
    let mut head = Head::new();
    head.hello("n1", 1, "boot", vec![]);
    let first = head.submit(spec()).expect("accepted");
    let after = Dependency::parse_list(&format!("after:{first},afterany:{first}")).expect("valid").into();
    let second = head.submit(JobSpec { after, ..spec() }).expect("accepted");
    let run = head.run_of(first);
    head.report(1, run, RunStatus::Running).expect("accepted");
    assert_eq!(head.state_of(second), JobState::Pending);
    head.report(1, run, ended(0)).expect("accepted");
    assert_eq!(head.state_of(second), JobState::Starting, "the second dependency is still checked");
}

#[test]
fn forgotten_job_has_no_dependencies_left() {
    let mut head = Head::new();
    head.hello("n1", 1, "boot", vec![]);
    let fails = head.submit(spec()).expect("accepted");
    let held = head.submit(JobSpec { hold: true, ..spec() }).expect("accepted");
    let after = Dependency::parse_list(&format!("afterok:{fails}:{held}")).expect("valid").into();
    let broken = head.submit(JobSpec { after, ..spec() }).expect("accepted");
    let run = head.run_of(fails);
    head.report(1, run, ended(1)).expect("accepted");
    assert_eq!(head.state_of(broken), JobState::Cancelled);
    head.pass_ms(head.state.settings.retention_ms + 1);
    assert!(!head.stored.0.contains_key(&broken));
    head.act(held, JobAction::Cancel).expect("accepted");
    assert_eq!(head.state_of(held), JobState::Cancelled);
}

#[test]
fn requeued_run_never_reuses_the_id_of_a_lost_run() {
    let mut head = Head::new();
    head.hello("n1", 1, "boot", vec![]);
    let job = head.submit(spec()).expect("accepted");
    let lost = head.run_of(job);
    head.report(1, lost, RunStatus::Running).expect("accepted");
    head.pass_ms(61_000);
    assert_eq!(head.state_of(job), JobState::NodeFail);
    head.act(job, JobAction::Requeue).expect("accepted");
    // The node was only disconnected and still has the run.
    head.hello("n1", 2, "boot", vec![RunReport { run: lost, status: RunStatus::Running }]);
    assert_ne!(head.run_of(job), lost);
}

#[test]
fn later_of_cancel_and_requeue_applies() {
    let mut head = Head::new();
    head.hello("n1", 1, "boot", vec![]);
    let job = head.submit(spec()).expect("accepted");
    let run = head.run_of(job);
    head.report(1, run, RunStatus::Running).expect("accepted");
    head.act(job, JobAction::Requeue).expect("accepted");
    head.act(job, JobAction::Cancel).expect("accepted");
    head.report(1, run, fate(Fate::Requeued)).expect("accepted");
    assert_eq!(head.state_of(job), JobState::Cancelled);

    let job = head.submit(spec()).expect("accepted");
    let run = head.run_of(job);
    head.act(job, JobAction::Cancel).expect("accepted");
    head.act(job, JobAction::Requeue).expect("accepted");
    let cancelled = Fate::Ended(Ending { state: JobState::Cancelled, exit_code: Some(143) });
    head.report(1, run, fate(cancelled)).expect("accepted");
    assert_eq!(head.run_of(job).attempt.0, 2);
}

#[test]
fn stopped_head_gives_its_agents_time_to_reconnect() {
    let mut head = Head::new();
    head.hello("n1", 1, "boot", vec![]);
    let job = head.submit(spec()).expect("accepted");
    let run = head.run_of(job);
    head.report(1, run, RunStatus::Running).expect("accepted");
    head.stand_still_ms(3_600_000);
    head.pass_ms(500);
    assert_eq!(head.state.node(&name("n1")).expect("known").state(), NodeState::Suspect);
    head.hello("n1", 2, "boot", vec![RunReport { run, status: RunStatus::Running }]);
    assert_eq!(head.state.node(&name("n1")).expect("known").state(), NodeState::Up);
    assert_eq!(head.run_of(job), run);
}

#[test]
fn run_reported_as_lost_is_not_placed_again() {
    let mut head = Head::new();
    head.hello("n1", 1, "boot", vec![]);
    let job = head.submit(spec()).expect("accepted");
    let run = head.run_of(job);
    // The head got no report before the machine rebooted.
    head.hello("n1", 2, "another boot", vec![RunReport { run, status: fate(Fate::Lost) }]);
    assert_eq!(head.state_of(job), JobState::NodeFail);
}

#[test]
fn memory_totals_saturate() {
    let mut head = Head::new();
    for (connection, node) in ["n1", "n2"].into_iter().enumerate() {
        let resources = Resources::new(CpuSet::first(1), u64::MAX);
        head.hello_with(node, connection as u64, "boot", Vec::new(), resources);
    }
    assert_eq!(head.state.capacity().memory_bytes.total, u64::MAX);
}

#[test]
fn requeue_resets_the_start_time() {
    let mut head = Head::new();
    head.hello("n1", 1, "boot", vec![]);
    let job = head.submit(spec()).expect("accepted");
    let first = head.run_of(job);
    head.report(1, first, RunStatus::Running).expect("accepted");
    let started = head.job(job).started_at.expect("the job runs");
    head.act(job, JobAction::Requeue).expect("accepted");
    head.now.wall = WallTime(started.0 + 1_000);
    head.report(1, first, fate(Fate::Requeued)).expect("accepted");
    assert_eq!(head.job(job).started_at, None, "the start time of the first attempt is reset");
    let again = head.run_of(job);
    head.report(1, again, RunStatus::Running).expect("accepted");
    let again = head.job(job).started_at.expect("the job runs");
    assert!(again.0 >= started.0 + 1_000, "{again:?} is the start of the first attempt, {started:?}");
}

#[test]
fn job_with_too_little_memory_is_refused_with_the_least_that_works() {
    let mut head = Head::new();
    let tiny = JobSpec { request: Request::new(1, 1 << 20), ..spec() };
    let refusal = head.submit(tiny).expect_err("1M is below the minimum").to_string();
    assert!(refusal.contains("at least 8M") && refusal.contains("asks for 1M"), "{refusal}");
}

#[test]
fn begin_times_are_of_the_wall_clock() {
    let mut head = Head::new();
    let mut begin = |ms: i64| {
        let begin = Some(Box::new(WallTime(head.now.wall.0 + ms)));
        head.submit(JobSpec { begin, ..spec() }).expect("accepted")
    };
    let (past, later) = (begin(-1), begin(60_000));
    let is_early = |head: &Head, job| matches!(explain(&head.state, head.job(job)), Some(Reason::BeginTime { .. }));
    head.pass_ms(50_000);
    assert_eq!((is_early(&head, past), is_early(&head, later)), (false, true));
    head.restart();
    // An administrator sets the clock back by half a minute.
    head.now.wall.0 -= 30_000;
    head.pass_ms(39_999);
    assert!(is_early(&head, later));
    head.pass_ms(1);
    assert!(!is_early(&head, later));
    head.hello("n1", 1, "boot", vec![]);
    head.run_of(later);
}
