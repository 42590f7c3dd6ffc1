//! The head's writer thread: stores batches and snapshots in groups, and reloads the state after a failed write.

use hostler_core::head::{After, ConnectionId, Delivery, State, begin_epoch, epoch_starts};
use hostler_proto::stored::Batch;
use hostler_store::{Request, Store, Work};

use super::rules::Rule;
use super::world::World;
use super::world::head::{AfterWrite, HeadStep, ReplyTo};
use super::world::time::{MS, SECOND};

impl World {
    /// Copies the state; another thread then needs some time to encode the copy.
    pub(super) fn take_snapshot(&mut self) {
        let delay = if self.rng.chance(400) { self.rng.below(6 * SECOND) } else { self.rng.below(20 * MS) };
        let process = self.process();
        let bytes = hostler_proto::encode(&process.state);
        let (sequence, loads) = (process.rounds.begin_snapshot(), process.durability.loads());
        self.head_later(delay, HeadStep::Encoded { sequence, bytes, loads });
    }

    /// Saves an encoded snapshot.
    pub(super) fn encoded(&mut self, sequence: u64, bytes: Vec<u8>, loads: u64) {
        if self.process().durability.may_save(loads) || self.breaks(Rule::SnapshotsOfThisLoad) {
            self.order(Request::Snapshot { sequence, bytes, done: AfterWrite::Snapshot });
        }
    }

    /// Hands a request to the writer.
    pub(super) fn order(&mut self, request: Request<AfterWrite, ()>) {
        self.process().writes.push(request);
        self.let_writer_work();
    }

    pub(super) fn let_writer_work(&mut self) {
        let most = self.rng.range(1, 6) as usize;
        let usual = if self.rng.chance(20) { 100 * MS } else { 3 * MS };
        let delay = self.rng.below(usual);
        let process = self.process();
        if process.current.is_some() {
            return;
        }
        let Some(work) = process.writes.take_at_most(most) else { return };
        let is_nothing = match &work {
            Work::Commits { batches, .. } => {
                batches.iter().all(|batch| batch.events.is_empty() && batch.changes.is_empty())
            }
            Work::Snapshot { .. } | Work::Reload(()) => false,
        };
        process.current = Some(work);
        self.head_later(if is_nothing { 0 } else { delay }, HeadStep::Written);
    }

    /// Handles a completed write.
    pub(super) fn written(&mut self) {
        match self.process().current.take().expect("a write was in progress") {
            Work::Commits { batches, dones } => self.commit(&batches, dones),
            Work::Snapshot { sequence, bytes, .. } => self.save_snapshot(sequence, &bytes),
            Work::Reload(()) => self.reload(),
        }
        self.let_writer_work();
    }

    /// Stores a group of batches; each batch may fail separately.
    pub(super) fn commit(&mut self, batches: &[Batch], dones: Vec<AfterWrite>) {
        let outcomes = self.process().committer.commit(batches);
        for (batch, _) in batches.iter().zip(&outcomes).filter(|(_, outcome)| outcome.is_ok()) {
            self.head.disk.note_blobs(batch, self.now_us);
        }
        self.watch_log();
        for (outcome, done) in outcomes.into_iter().zip(dones) {
            let outcome = outcome.map_err(|error| error.to_string());
            match done {
                AfterWrite::Round(after) => self.deliver(after, outcome),
                AfterWrite::Epoch(loaded) => self.recovered(*loaded, outcome),
                AfterWrite::Snapshot => {}
            }
        }
    }

    /// Sends the replies and messages of a round as far as the outcome permits.
    pub(super) fn deliver(&mut self, after: After<ReplyTo>, outcome: Result<(), String>) {
        let (process, has_failed) = (self.process(), outcome.is_err());
        if has_failed && !process.durability.has_failed() {
            self.note(format_args!("the head cannot store events"));
        }
        let process = self.process();
        let Delivery { effects, replies } = process.durability.stored(after, outcome, &process.moves);
        if has_failed {
            self.schedule_wake_up();
        }
        self.perform(effects);
        replies.into_iter().for_each(|(to, answer)| self.reply(to, answer));
    }

    pub(super) fn save_snapshot(&mut self, sequence: u64, bytes: &[u8]) {
        if self.process().committer.save_snapshot(sequence, bytes).is_ok() {
            self.note(format_args!("a snapshot replaces the log up to event {sequence}"));
            if let Ok(loaded) = self.head.disk.store.load() {
                self.read_back(&loaded);
            }
        }
    }

    /// Ends every link and starts to reload the state from the disk.
    pub(super) fn begin_reload(&mut self) {
        let process = self.process();
        process.is_reloading = true;
        let links: Vec<ConnectionId> = process.lines.keys().copied().collect();
        links.into_iter().for_each(|connection| self.end_link(connection, "the state is thrown away"));
        self.order(Request::Reload(()));
    }

    /// Begins an epoch on the state from the disk.
    pub(super) fn reload(&mut self) {
        let loaded = match self.process().committer.reload() {
            Ok(loaded) => loaded,
            Err(error) => return self.end_reload(Err(error.to_string())),
        };
        let Some((mut state, next)) = self.read_back(&loaded) else { return };
        let first = epoch_starts(&state, self.head_now(), None);
        let batch = begin_epoch(&mut state, next, &first);
        self.order(Request::Commit { batch, done: AfterWrite::Epoch(Box::new((state, next + 1))) });
    }

    /// Replaces the state with the one from the disk if the disk accepts events again.
    pub(super) fn recovered(&mut self, (state, next_sequence): (State, u64), outcome: Result<(), String>) {
        if outcome.is_ok() {
            let process = self.process();
            process.rounds.restart(&mut process.state, state, next_sequence);
            process.moves.lock().expect("no thread panics while it holds the lock").clear();
        }
        self.end_reload(outcome);
    }

    pub(super) fn end_reload(&mut self, outcome: Result<(), String>) {
        match &outcome {
            Ok(()) => self.note(format_args!("the head goes on with what is stored")),
            Err(why) => self.note(format_args!("the head cannot go on with what is stored yet: {why}")),
        }
        let process = self.process();
        process.is_reloading = false;
        match outcome {
            Ok(()) => {
                process.durability.recovered();
                self.let_loop_run();
            }
            Err(why) => {
                process.durability.not_recovered(why);
                self.refuse_all();
            }
        }
        self.schedule_wake_up();
    }

    /// Refuses all queued requests while writes fail.
    pub(super) fn refuse_all(&mut self) {
        let process = self.process();
        let refusal = process.durability.refusal();
        let inputs = std::mem::take(&mut process.queue);
        for reply in inputs.into_iter().filter_map(|input| input.reply) {
            self.reply(reply, Err(refusal.clone()));
        }
    }
}
