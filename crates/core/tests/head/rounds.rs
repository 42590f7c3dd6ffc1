//! Scripts of the head's loop: inputs are commands and the store's answers; outputs are batches, effects and replies.

use std::sync::{Arc, Mutex};

use hostler_core::head::{
    Answer, Command, Commit, Delivery, Done, Durability, Ended, Input, NotDone, Now, PendingMoves, Rounds, State,
    SubmissionKey, begin_epoch, epoch_starts,
};
use hostler_model::{JobId, JobSpec, Request, Timestamp, Work};
use hostler_proto::jobs::JobChange;

use crate::harness::{spec, user};

/// The head's loop, with a store whose answers the script controls.
struct Script {
    state: State,
    moves: Mutex<PendingMoves>,
    rounds: Rounds<u32>,
    durability: Durability,
}

impl Script {
    fn new() -> Self {
        let (moves, durability) = (Mutex::default(), Durability::default());
        Self { state: fresh_state(), moves, rounds: Rounds::new(1, 2), durability }
    }

    fn submit(&mut self, key: u128, reply: u32) -> Option<Commit<u32>> {
        self.submit_spec(spec(), key, reply)
    }

    fn submit_spec(&mut self, spec: JobSpec, key: u128, reply: u32) -> Option<Commit<u32>> {
        let command = Command::Submit {
            caller: user("ada"),
            key: SubmissionKey(key),
            spec: Arc::new(spec),
            environment: None,
            snapshot_is_complete: true,
        };
        self.round(Input { reply: Some(reply), ..Input::of(command) })
    }

    fn round(&mut self, input: Input<u32>) -> Option<Commit<u32>> {
        let now = Now::default();
        self.rounds.take(&mut self.state, &self.moves, &Ended::default(), input, now);
        self.rounds.follow_up(&mut self.state, &self.moves, now);
        self.rounds.finish()
    }

    /// Passes the store's answer to the loop; returns the replies.
    fn stored(&mut self, commit: Commit<u32>, outcome: Result<(), String>) -> Vec<(u32, Answer)> {
        let Delivery { replies, .. } = self.durability.stored(commit.after, outcome, &self.moves);
        replies
    }
}

/// The state of a head that has never run, with its first event.
fn fresh_state() -> State {
    let mut state = State::default();
    let first = epoch_starts(&state, Now::default(), None);
    let batch = begin_epoch(&mut state, 1, &first);
    assert_eq!((batch.first_sequence, batch.events.len()), (1, 1));
    state
}

fn is_refused(replies: &[(u32, Answer)]) -> bool {
    replies.iter().all(|(_, answer)| matches!(answer, Err(NotDone::NotStored(why)) if why == "the disk is full"))
}

#[test]
fn rounds_do_not_wait_for_the_store() {
    let mut script = Script::new();
    let first = script.submit(1, 1).expect("a submission makes a batch");
    let second = script.submit(2, 2).expect("a submission makes a batch");
    assert_eq!((first.batch.first_sequence, first.batch.events.len()), (2, 1));
    assert_eq!(second.batch.first_sequence, 3);
    for (commit, job) in [(first, 1), (second, 2)] {
        let replies = script.stored(commit, Ok(()));
        let [(reply, Ok(Done { submitted: Some((id, false)) }))] = &replies[..] else { panic!("{replies:?}") };
        assert_eq!((*reply, *id), (job, JobId(job.into())));
    }
}

#[test]
fn round_without_changes_sends_nothing_to_the_store() {
    let mut script = Script::new();
    assert!(script.round(Input::of(Command::Tick)).is_none());
}

#[test]
fn failed_batch_refuses_its_own_replies_and_all_later_ones() {
    let mut script = Script::new();
    let (first, second) = (
        script.submit(1, 1).expect("a submission makes a batch"),
        script.submit(2, 2).expect("a submission makes a batch"),
    );
    // The retry makes no event, so the store accepts its empty batch.
    let retry = script.submit(1, 3).expect("a reply");
    assert!(retry.batch.events.is_empty());
    assert!(is_refused(&script.stored(first, Err("the disk is full".to_owned()))));
    assert!(is_refused(&script.stored(second, Err("the disk is full".to_owned()))));
    assert!(is_refused(&script.stored(retry, Ok(()))));
    assert!(script.durability.has_failed());
}

#[test]
fn effects_of_a_failed_batch_are_dropped() {
    let mut script = Script::new();
    let commit = script.submit(1, 1).expect("a submission makes a batch");
    assert!(!commit.after.effects.is_empty(), "a submission notifies event streams");
    let delivery = script.durability.stored(commit.after, Err("no".to_owned()), &script.moves);
    assert!(delivery.effects.is_empty());
}

#[test]
fn failed_store_is_retried_every_second() {
    let mut script = Script::new();
    let commit = script.submit(1, 1).expect("a submission makes a batch");
    script.stored(commit, Err("the disk is full".to_owned()));
    let durability = &mut script.durability;
    assert!(durability.begin_recovery(Timestamp(5_000)), "the first retry is due immediately");
    durability.not_recovered("still full".to_owned());
    assert_eq!((durability.trouble(), durability.recovers_at()), (Some("still full"), Some(Timestamp(6_000))));
    assert!(!durability.begin_recovery(Timestamp(5_999)));
    assert!(durability.begin_recovery(Timestamp(6_000)));
    durability.recovered();
    assert_eq!((durability.trouble(), durability.recovers_at()), (None, None));
    assert!(!durability.begin_recovery(Timestamp(9_000)), "a working store needs no recovery");
}

#[test]
fn reloaded_state_continues_at_the_end_of_the_log() {
    let mut script = Script::new();
    script.submit(1, 1).expect("a submission makes a batch");
    let lost = script.submit(2, 2).expect("a submission makes a batch");
    script.stored(lost, Err("the disk is full".to_owned()));
    script.durability.begin_recovery(Timestamp(0));
    script.rounds.restart(&mut script.state, fresh_state(), 2);
    script.moves = Mutex::default();
    script.durability.recovered();
    let again = script.submit(2, 3).expect("a submission makes a batch");
    assert_eq!(again.batch.first_sequence, 2);
    assert!(script.stored(again, Ok(())).iter().all(|(_, answer)| answer.is_ok()));
}

#[test]
fn snapshot_of_a_discarded_state_is_not_saved() {
    let mut script = Script::new();
    let commit = script.submit(1, 1).expect("a submission makes a batch");
    let (sequence, loads) = (script.rounds.begin_snapshot(), script.durability.loads());
    assert_eq!(sequence, 2);
    assert!(script.durability.may_save(loads));
    script.stored(commit, Err("the disk is full".to_owned()));
    script.durability.begin_recovery(Timestamp(0));
    assert!(!script.durability.may_save(loads));
}

#[test]
fn changes_of_a_large_job_are_soon_replaced_by_a_snapshot() {
    let mut script = Script::new();
    let argument = "x".repeat(1 << 20);
    let large = JobSpec::new("large", Work::command(["true", &argument], "/"), Request::new(1, 1 << 30));
    script.submit_spec(large, 1, 1).expect("a submission makes a batch");
    let mut priority = 0;
    for _snapshot in 1..=2 {
        let mut stored = 0;
        while !script.rounds.snapshot_is_due(&script.state) {
            assert!(stored < 100 << 20, "no snapshot is due after {stored} bytes");
            priority -= 1;
            let change = Box::new(JobChange { priority: Some(priority), ..JobChange::default() });
            let commit = script.round(Input::of(Command::Change { caller: user("ada"), job: JobId(1), change }));
            stored += commit.expect("a change makes a batch").batch.events.iter().map(Vec::len).sum::<usize>();
        }
        script.rounds.begin_snapshot();
    }
}

#[test]
fn ended_job_is_in_moves_until_its_batch_is_durable() {
    let mut script = Script::new();
    script.submit(1, 1).expect("a submission makes a batch");
    let act = |action| Command::Act { caller: user("ada"), job: JobId(1), index: None, action };
    let ended =
        script.round(Input::of(act(hostler_proto::api::JobAction::Cancel))).expect("the cancellation makes a batch");
    let moving = |script: &Script| script.moves.lock().expect("the lock is not poisoned").job(JobId(1)).is_some();
    assert_eq!((script.state.job(JobId(1)).is_some(), moving(&script)), (false, true));
    script.stored(ended, Ok(()));
    assert!(!moving(&script), "a durable job is no longer in `moves`");
}
