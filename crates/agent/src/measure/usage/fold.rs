//! Folds measurements into minutes, and keeps the minutes until the head has them.

use std::collections::{BTreeMap, VecDeque};

use hostler_model::{Bucket, Figures, Metric, RunId};
use hostler_proto::usage::{MAX_SPANS, UsageReport, UsageSpan};

/// Length of a minute in milliseconds.
pub(super) const MINUTE_MS: u64 = 60_000;

/// Maximum number of spans that wait for the head. The oldest are dropped.
const MAX_WAITING: usize = 2 * MAX_SPANS;

/// Age at which a span is dropped. The head ignores older ones.
const MAX_AGE_MS: u64 = 20 * MINUTE_MS;

/// A node or a run; `None` is the node.
pub(super) type Subject = Option<RunId>;

/// Minutes in progress and finished minutes. Times are milliseconds on any clock that does not stand still.
#[derive(Debug, Default)]
pub(super) struct Folds {
    open: BTreeMap<(Subject, u64), Figures>,
    waiting: VecDeque<Span>,
}

/// The figures of a subject in one minute.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Span {
    subject: Subject,
    minute: u64,
    figures: Figures,
}

impl Folds {
    /// Adds values that were measured at `now_ms` and cover the `span_ms` before.
    pub(super) fn add(&mut self, subject: Subject, values: &BTreeMap<Metric, f32>, now_ms: u64, span_ms: u64) {
        let minute = now_ms.saturating_sub(span_ms / 2) / MINUTE_MS;
        let seconds = u32::try_from((span_ms + 500) / 1000).unwrap_or(u32::MAX).clamp(1, 60);
        let figures = self.open.entry((subject, minute)).or_default();
        for (metric, value) in values {
            // NaN must become a gap, not zero.
            let bucket = Bucket::of(if *value < 0.0 { 0.0 } else { *value }, seconds);
            if bucket.is_valid() {
                figures.entry(*metric).and_modify(|sum| *sum = sum.merge(bucket)).or_insert(bucket);
            }
        }
    }

    /// Finishes all minutes before the current one, which contains `now_ms`. For subjects that are no longer measured, also
    /// finishes the current minute.
    pub(super) fn finish(&mut self, now_ms: u64, is_measured: impl Fn(&Subject) -> bool) {
        let this = now_ms / MINUTE_MS;
        let is_over = |(subject, minute): &(Subject, u64)| *minute < this || !is_measured(subject);
        let over: Vec<_> = self.open.keys().filter(|key| is_over(key)).copied().collect();
        for key in over {
            let (subject, minute) = key;
            let figures = self.open.remove(&key).unwrap_or_default();
            if !figures.is_empty() {
                self.waiting.push_back(Span { subject, minute, figures });
            }
        }
        let oldest = now_ms.saturating_sub(MAX_AGE_MS) / MINUTE_MS;
        self.waiting.retain(|span| span.minute >= oldest);
        let excess = self.waiting.len().saturating_sub(MAX_WAITING);
        self.waiting.drain(..excess);
    }

    /// Whether finished minutes wait for the head.
    pub(super) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Takes the next spans to send.
    pub(super) fn take(&mut self) -> Vec<Span> {
        self.waiting.drain(..self.waiting.len().min(MAX_SPANS)).collect()
    }

    /// Puts spans back that could not be sent.
    pub(super) fn put_back(&mut self, spans: Vec<Span>) {
        spans.into_iter().rev().for_each(|span| self.waiting.push_front(span));
    }
}

/// The report of some spans.
pub(super) fn report(spans: &[Span], now_ms: u64) -> UsageReport {
    let spans = spans.iter().map(|span| UsageSpan {
        run: span.subject,
        age_ms: now_ms.saturating_sub(span.minute * MINUTE_MS + MINUTE_MS / 2),
        figures: span.figures.clone(),
    });
    UsageReport { spans: spans.collect() }
}

#[cfg(test)]
mod tests {
    use hostler_model::{Attempt, Epoch, JobId, TaskId};

    use super::*;

    fn cpu(value: f32) -> BTreeMap<Metric, f32> {
        BTreeMap::from([(Metric::Cpu, value)])
    }

    fn run(index: u32) -> Subject {
        Some(RunId { task: TaskId { job: JobId(1), index }, attempt: Attempt(1), epoch: Epoch(1) })
    }

    #[test]
    fn measurements_are_folded_into_the_minute_that_they_cover() {
        let mut folds = Folds::default();
        for (at, value) in [(10_000, 1.0), (20_000, 4.0), (60_000, 1.0), (70_000, 9.0)] {
            folds.add(None, &cpu(value), MINUTE_MS * 100 + at, 10_000);
        }
        folds.finish(MINUTE_MS * 101 + 10_000, |_| true);
        let taken = folds.take();
        let report = report(&taken, MINUTE_MS * 101 + 12_000);
        let expected = Bucket { min: 1.0, mean: 2.0, max: 4.0, seconds: 30 };
        assert_eq!((report.spans[0].age_ms, report.spans[0].figures[&Metric::Cpu]), (42_000, expected));
        assert_eq!(taken.len(), 1, "the second minute is not over");
        folds.finish(MINUTE_MS * 102, |_| true);
        folds.put_back(taken);
        let minutes: Vec<u64> = folds.take().iter().map(|span| span.minute).collect();
        assert_eq!(minutes, [100, 101]);
        assert!(!folds.has_waiting());
    }

    #[test]
    fn minutes_of_ended_runs_are_finished_at_once() {
        let mut folds = Folds::default();
        for subject in [None, run(1), run(2)] {
            folds.add(subject, &cpu(1.0), 5_000, 5_000);
        }
        folds.finish(10_000, |subject| *subject != run(1));
        assert_eq!(folds.take().iter().map(|span| span.subject).collect::<Vec<_>>(), [run(1)]);
    }

    #[test]
    fn gaps_and_impossible_values_are_not_reported() {
        let mut folds = Folds::default();
        folds.add(None, &BTreeMap::new(), 5_000, 5_000);
        folds.add(run(1), &cpu(f32::NAN), 5_000, 5_000);
        folds.add(run(2), &cpu(f32::INFINITY), 5_000, 5_000);
        folds.finish(MINUTE_MS, |_| true);
        assert!(!folds.has_waiting());
    }

    #[test]
    fn spans_that_cannot_be_sent_are_bounded_in_number_and_age() {
        let mut folds = Folds::default();
        for minute in 0..100 {
            for index in 0..200 {
                folds.add(run(index), &cpu(1.0), minute * MINUTE_MS + 10_000, 10_000);
            }
            folds.finish((minute + 1) * MINUTE_MS, |_| true);
            assert!(folds.waiting.len() <= MAX_WAITING);
        }
        let taken = folds.take();
        assert_eq!(taken.len(), MAX_SPANS);
        assert!(report(&taken, 100 * MINUTE_MS).spans.iter().all(|span| span.age_ms <= MAX_AGE_MS + MINUTE_MS));
        folds.finish(200 * MINUTE_MS, |_| true);
        assert!(!folds.has_waiting());
    }
}
