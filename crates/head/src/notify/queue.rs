//! The queue of one destination: what to deliver next, when to retry, and when to give up. No I/O.
//!
//! News for one recipient that wait at the same time become one message. A message that the head has tried to deliver,
//! or that it found in the store when it started, never changes: its receiver may know its id already.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use hostler_model::{JobOccasion, WallTime};
use hostler_proto::notify::{GivenUp, Happening, Message, Recipient};
use hostler_store::{Change, MessageKey, StoredMessage};

use super::fault::{Fault, Scope};
use super::file::Timing;

/// The largest number of messages in a queue. Beyond it, the oldest is dropped.
const MAX_MESSAGES: usize = 10_000;

/// The largest number of news in a message.
const MAX_NEWS: usize = 50;

/// The largest number of recipients whose last message is remembered.
const MAX_RECIPIENTS: usize = 10_000;

/// How long the first of several operators' messages waits for the others, e.g. when a rack fails.
const OPERATORS_DELAY: Duration = Duration::from_secs(1);

/// Messages for one destination.
#[derive(Debug, Default)]
pub(super) struct Queue {
    entries: BTreeMap<MessageKey, Entry>,
    /// When the last endings were delivered, by recipient.
    last: BTreeMap<Recipient, Instant>,
    /// Failures of the destination in a row.
    faults: usize,
    /// No delivery before this time.
    paused_until: Option<Instant>,
    /// Why the last delivery failed.
    pub(super) fault: Option<String>,
    /// Whether the receiver has answered that it is gone.
    pub(super) is_disabled: bool,
}

#[derive(Debug)]
struct Entry {
    message: Message,
    due: Instant,
    is_in_flight: bool,
    /// Whether the receiver may know the message.
    is_sealed: bool,
}

/// What follows from an arrival or from the outcome of a delivery.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Outcome {
    /// Changes of the store.
    pub(super) changes: Vec<Change>,
    /// Messages that the head gives up.
    pub(super) dead: Vec<(MessageKey, Message)>,
    /// The number of dropped messages.
    pub(super) dropped: u64,
}

impl Queue {
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Adds a message, or adds its news to a message that waits for the same recipient. `is_old`: an earlier head may
    /// have sent it.
    pub(super) fn arrive(
        &mut self,
        key: MessageKey,
        message: Message,
        is_old: bool,
        now: Instant,
        timing: &Timing,
    ) -> Outcome {
        let mut outcome = Outcome::default();
        let due = if is_old { now } else { self.due(&message, now, timing) };
        let same = |entry: &Entry| !is_old && !entry.is_sealed && !entry.is_in_flight && entry.message.to == message.to;
        let waiting = self.entries.iter_mut().find(|(_, entry)| same(entry));
        if let Some((first, entry)) = waiting {
            for news in message.news {
                if entry.message.news.len() < MAX_NEWS {
                    entry.message.news.push(news);
                } else {
                    entry.message.omitted += 1;
                }
            }
            entry.due = entry.due.min(due);
            outcome.changes = vec![put(first, &entry.message), Change::DropMessage(key)];
            return outcome;
        }
        self.entries.insert(key, Entry { message, due, is_in_flight: false, is_sealed: is_old });
        if self.entries.len() > MAX_MESSAGES
            && let Some((oldest, _)) = self.entries.pop_first()
        {
            outcome.changes.push(Change::DropMessage(oldest));
            outcome.dropped = 1;
        }
        outcome
    }

    /// When to deliver a new message. Endings wait for further endings; everything else is urgent.
    fn due(&self, message: &Message, now: Instant, timing: &Timing) -> Instant {
        if !matches!(message.to, Recipient::User { .. }) {
            return now + OPERATORS_DELAY.min(timing.digest_first.0);
        }
        if !is_ending(message) {
            return now;
        }
        let next = self.last.get(&message.to).map(|last| *last + timing.digest.0);
        next.filter(|next| *next > now).unwrap_or(now + timing.digest_first.0)
    }

    /// Takes the next message that is due, if any. The caller reports the outcome of the delivery.
    pub(super) fn take(&mut self, now: Instant) -> Option<(MessageKey, Message)> {
        if self.is_disabled || self.paused_until.is_some_and(|until| until > now) {
            return None;
        }
        let due = self.entries.iter_mut().filter(|(_, entry)| !entry.is_in_flight && entry.due <= now);
        let (key, entry) = due.min_by_key(|(_, entry)| entry.due)?;
        entry.is_in_flight = true;
        entry.is_sealed = true;
        Some((key.clone(), entry.message.clone()))
    }

    /// When the next message is due.
    pub(super) fn wake_at(&self) -> Option<Instant> {
        if self.is_disabled {
            return None;
        }
        let due = self.entries.values().filter(|entry| !entry.is_in_flight).map(|entry| entry.due).min()?;
        Some(self.paused_until.map_or(due, |until| until.max(due)))
    }

    /// Records a delivery. After failures of the destination, all other messages become due.
    pub(super) fn delivered(&mut self, key: &MessageKey, now: Instant, timing: &Timing) -> Outcome {
        if let Some(entry) = self.entries.remove(key)
            && is_ending(&entry.message)
        {
            self.last.retain(|_, last| now.duration_since(*last) < timing.digest.0);
            if self.last.len() < MAX_RECIPIENTS {
                self.last.insert(entry.message.to, now);
            }
        }
        if self.faults > 0 {
            self.entries.values_mut().filter(|entry| entry.message.tries > 0).for_each(|entry| entry.due = now);
        }
        (self.faults, self.paused_until, self.fault) = (0, None, None);
        Outcome { changes: vec![Change::DropMessage(key.clone())], ..Outcome::default() }
    }

    /// Waits before the next delivery, for receivers that limit the rate.
    pub(super) fn pause(&mut self, until: Instant) {
        self.paused_until = self.paused_until.max(Some(until));
    }

    /// Records a failed delivery. A failure of the destination counts for all messages that are due.
    pub(super) fn failed(
        &mut self,
        key: &MessageKey,
        fault: &Fault,
        (now, wall): (Instant, WallTime),
        timing: &Timing,
        jitter: impl Fn(Duration) -> Duration,
    ) -> Outcome {
        let mut outcome = Outcome::default();
        let delay = |tries: u32| timing.retry.get(tries as usize - 1).map(|delay| jitter(delay.0));
        let mut failed = vec![key.clone()];
        let is_for_all = matches!(fault.scope, Scope::Destination | Scope::Gone);
        if is_for_all {
            let due = self
                .entries
                .iter()
                .filter(|(_, entry)| !entry.is_in_flight && (entry.due <= now || fault.scope == Scope::Gone));
            failed.extend(due.map(|(key, _)| key.clone()));
            self.faults += 1;
            self.is_disabled |= fault.scope == Scope::Gone;
            // New messages probe the destination at least every few minutes, however long the old ones wait.
            let pause =
                timing.retry.get((self.faults - 1).min(1)).or(timing.retry.first()).map(|delay| jitter(delay.0));
            self.paused_until = fault.retry_after.or(pause).map(|pause| now + pause);
        }
        self.fault = Some(fault.text.clone());
        for key in failed {
            let Some(entry) = self.entries.get_mut(&key) else { continue };
            entry.is_in_flight = false;
            entry.is_sealed = true;
            entry.message.tries += 1;
            let is_final = matches!(fault.scope, Scope::Permanent | Scope::Gone);
            match delay(entry.message.tries).filter(|_| !is_final) {
                Some(delay) => {
                    entry.due = now + delay.max(fault.retry_after.unwrap_or_default());
                    outcome.changes.push(put(&key, &entry.message));
                }
                None => {
                    let Some(mut entry) = self.entries.remove(&key) else { continue };
                    entry.message.given_up = Some(GivenUp { why: fault.text.clone(), at: wall });
                    outcome.changes.push(put(&key, &entry.message));
                    outcome.dead.push((key, entry.message));
                }
            }
        }
        outcome
    }

    /// Forgets failures, because the destination's settings have changed or it works again.
    pub(super) fn reset(&mut self, now: Instant) {
        (self.faults, self.paused_until, self.fault, self.is_disabled) = (0, None, None, false);
        self.entries.values_mut().filter(|entry| entry.message.tries > 0).for_each(|entry| entry.due = now);
    }

    /// Removes all messages, because the destination was removed.
    pub(super) fn drain(&mut self) -> Vec<(MessageKey, Message)> {
        std::mem::take(&mut self.entries).into_iter().map(|(key, entry)| (key, entry.message)).collect()
    }
}

fn is_ending(message: &Message) -> bool {
    message.news.iter().all(|news| {
        matches!(&news.what, Happening::Job(job) if matches!(job.event, JobOccasion::End | JobOccasion::Failure))
    })
}

pub(super) fn put(key: &MessageKey, message: &Message) -> Change {
    Change::PutMessage(StoredMessage { key: key.clone(), bytes: hostler_proto::encode(message).into() })
}

#[cfg(test)]
mod tests {
    use hostler_model::JobState;

    use super::super::text::tests::{job, message};
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn key(number: u64) -> MessageKey {
        MessageKey { number, part: String::new() }
    }

    fn ending() -> Message {
        message(vec![job("train", JobOccasion::End, JobState::Completed)])
    }

    fn start() -> Message {
        message(vec![job("train", JobOccasion::Start, JobState::Running)])
    }

    fn fail(queue: &mut Queue, number: u64, fault: &Fault, now: Instant) -> Outcome {
        queue.failed(&key(number), fault, (now, WallTime(7)), &Timing::default(), |delay| delay)
    }

    #[test]
    fn endings_within_the_window_become_one_message() {
        let (mut queue, start_at, timing) = (Queue::default(), Instant::now(), Timing::default());
        for number in 1..=60 {
            queue.arrive(key(number), ending(), false, start_at + 30 * SECOND, &timing);
        }
        assert_eq!(queue.take(start_at + 89 * SECOND), None);
        let (first, message) = queue.take(start_at + 90 * SECOND).expect("due after a minute");
        assert_eq!((first.number, message.news.len(), message.omitted), (1, 50, 10));
        let now = start_at + 91 * SECOND;
        queue.delivered(&first, now, &timing);
        queue.arrive(key(61), ending(), false, now + SECOND, &timing);
        assert_eq!(queue.wake_at(), Some(now + timing.digest.0));
        let outcome = queue.arrive(key(62), start(), false, now + 2 * SECOND, &timing);
        assert_eq!(outcome.changes.len(), 2, "the stored message changes, and the new one is dropped");
        let (first, message) = queue.take(now + 2 * SECOND).expect("a start is urgent");
        assert_eq!((first.number, message.news.len()), (61, 2));
    }

    #[test]
    fn messages_that_were_sent_or_loaded_never_change() {
        let (mut queue, now, timing) = (Queue::default(), Instant::now(), Timing::default());
        queue.arrive(key(1), ending(), true, now, &timing);
        queue.arrive(key(2), ending(), false, now, &timing);
        assert_eq!(queue.len(), 2, "an earlier head may have sent the first message");
        let (first, _) = queue.take(now).expect("a loaded message is due");
        fail(&mut queue, first.number, &Fault::unreachable(), now);
        queue.take(now + 90 * SECOND).expect("a retry");
        queue.arrive(key(3), ending(), false, now, &timing);
        assert_eq!(queue.len(), 2, "the third message joins the second");
    }

    #[test]
    fn failures_are_retried_with_growing_delays_and_then_given_up() {
        let (mut queue, mut now, timing) = (Queue::default(), Instant::now(), Timing::default());
        queue.arrive(key(1), start(), false, now, &timing);
        for delay in &timing.retry {
            queue.take(now).expect("due");
            assert!(fail(&mut queue, 1, &Fault::unreachable(), now).dead.is_empty());
            assert_eq!(queue.wake_at(), Some(now + delay.0));
            now += delay.0;
        }
        queue.take(now).expect("the last retry");
        let outcome = fail(&mut queue, 1, &Fault::unreachable(), now);
        let given_up = outcome.dead[0].1.given_up.as_ref().expect("given up");
        assert_eq!(
            (given_up.why.as_str(), given_up.at, queue.len()),
            ("cannot connect to the receiver", WallTime(7), 0)
        );
    }

    #[test]
    fn failure_of_the_destination_postpones_all_messages_until_it_works_again() {
        let (mut queue, now, timing) = (Queue::default(), Instant::now(), Timing::default());
        let other = |user: &str| {
            let to = Recipient::User { user: user.to_owned(), to: "lab".parse().expect("a name"), address: None };
            Message { to, ..start() }
        };
        queue.arrive(key(1), other("a"), false, now, &timing);
        queue.arrive(key(2), other("b"), false, now, &timing);
        let (first, _) = queue.take(now).expect("due");
        fail(&mut queue, first.number, &Fault { retry_after: Some(100 * SECOND), ..Fault::unreachable() }, now);
        assert_eq!(queue.take(now + 99 * SECOND), None, "the receiver asked for a delay");
        let now = now + 100 * SECOND;
        let (first, message) = queue.take(now).expect("due");
        assert_eq!(message.tries, 1);
        queue.delivered(&first, now, &timing);
        assert!(queue.take(now).is_some(), "the destination works");
    }

    #[test]
    fn permanent_failure_concerns_one_message_and_gone_receivers_get_none() {
        let (mut queue, now, timing) = (Queue::default(), Instant::now(), Timing::default());
        queue.arrive(key(1), start(), false, now, &timing);
        queue.take(now).expect("due");
        queue.arrive(key(2), ending(), false, now, &timing);
        assert_eq!(fail(&mut queue, 1, &Fault::new(Scope::Permanent, "no"), now).dead.len(), 1);
        queue.arrive(key(3), start(), false, now, &timing);
        let (first, _) = queue.take(now).expect("the destination works");
        assert_eq!(fail(&mut queue, first.number, &Fault::new(Scope::Gone, "gone"), now).dead.len(), 1);
        queue.arrive(key(4), start(), false, now, &timing);
        assert_eq!((queue.take(now), queue.wake_at()), (None, None));
        queue.reset(now);
        assert!(queue.take(now).is_some());
    }

    #[test]
    fn full_queue_drops_its_oldest_message() {
        let (mut queue, now, timing) = (Queue::default(), Instant::now(), Timing::default());
        for number in 0..=MAX_MESSAGES as u64 {
            let outcome = queue.arrive(key(number), ending(), true, now, &timing);
            assert_eq!(outcome.dropped, u64::from(number == MAX_MESSAGES as u64));
        }
        assert_eq!(queue.len(), MAX_MESSAGES);
    }
}
