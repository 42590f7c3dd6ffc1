//! Disk usage of results: its limit, and the results to drop when they exceed it.
//!
//! The limit applies to content: each chunk of a kept result once, uncompressed, plus the manifests. Usage on disk is
//! usually lower. Captured folders do not count, because they are deleted with their jobs.
//!
//! Above the limit, downloaded results are dropped, starting with the job that ended first. If that is not enough, jobs
//! whose results nobody has downloaded within their retention are deleted, oldest first. Younger ones stay and cause only
//! a warning.
//!
//! The following collections delete dropped results from disk, within about five minutes.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use hostler_model::format_bytes;
use tokio::sync::Notify;

/// Minimum amount of new results before another measurement, as a part of the limit.
const REMEASURE_PART: u64 = 32;

/// Measured disk usage of results.
#[derive(Debug)]
pub(crate) struct Room {
    cap_bytes: AtomicU64,
    /// Disk usage of results at the last measurement, in bytes.
    kept_bytes: AtomicU64,
    is_measured: AtomicBool,
    /// Size of results that arrived since the last measurement.
    new_bytes: AtomicU64,
    /// Notified when a new measurement is due.
    wanted: Notify,
}

impl Room {
    pub(super) fn new(cap_bytes: u64) -> Self {
        Self {
            cap_bytes: AtomicU64::new(cap_bytes),
            kept_bytes: AtomicU64::new(0),
            is_measured: AtomicBool::new(false),
            new_bytes: AtomicU64::new(0),
            wanted: Notify::new(),
        }
    }

    /// Records that a result was stored.
    pub(crate) fn came(&self, bytes: u64) {
        let come = self.new_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let is_worth_it = come >= self.cap_bytes() / REMEASURE_PART;
        if is_worth_it && self.kept_bytes.load(Ordering::Relaxed) + come > self.cap_bytes() {
            self.wanted.notify_one();
        }
    }

    /// Records that a client has downloaded results, so they may be dropped.
    pub(crate) fn fetched(&self) {
        if self.is_over() {
            self.wanted.notify_one();
        }
    }

    /// Waits until a collection is due because of the usage.
    pub(crate) async fn wanted(&self) {
        self.wanted.notified().await;
    }

    fn is_over(&self) -> bool {
        self.kept_bytes.load(Ordering::Relaxed) > self.cap_bytes()
    }

    pub(super) fn begin(&self) {
        self.new_bytes.store(0, Ordering::Relaxed);
    }

    pub(super) fn measured(&self, bytes: u64) {
        self.kept_bytes.store(bytes, Ordering::Relaxed);
        self.is_measured.store(true, Ordering::Relaxed);
    }

    /// The limit for all results, in bytes.
    pub(crate) fn cap_bytes(&self) -> u64 {
        self.cap_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn set_cap(&self, cap_bytes: u64) {
        self.cap_bytes.store(cap_bytes, Ordering::Relaxed);
        self.fetched();
    }

    /// Usage at the last measurement, in bytes.
    pub(crate) fn kept_bytes(&self) -> Option<u64> {
        self.is_measured.load(Ordering::Relaxed).then(|| self.kept_bytes.load(Ordering::Relaxed))
    }

    /// A warning for users if results exceed the limit.
    pub(crate) fn warning(&self) -> Option<String> {
        self.is_over().then(|| {
            format!(
                "results that were not fetched take {}, more than the limit of {}; they stay at least as long as the setting `retention` says: \
                 fetch them with `hostler fetch --all --outputs`, or raise the setting `results-cap`",
                format_bytes(self.kept_bytes.load(Ordering::Relaxed)),
                format_bytes(self.cap_bytes())
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measurement_is_requested_after_enough_new_results() {
        let is_wanted = |room: &Room| {
            use futures_util::FutureExt;
            room.wanted().now_or_never().is_some()
        };
        let room = Room::new(3_200);
        room.came(3_200);
        assert!(!is_wanted(&room), "no measurement is needed within the limit");
        room.came(1);
        assert!(is_wanted(&room));
        room.begin();
        room.measured(4_000);
        assert!(room.warning().is_some_and(|text| text.contains("not fetched")));
        room.came(99);
        assert!(!is_wanted(&room), "no measurement is needed after few new results");
        room.came(1);
        assert!(is_wanted(&room));
        room.fetched();
        assert!(is_wanted(&room), "downloaded results may be dropped");
        room.measured(3_200);
        room.fetched();
        assert!(!is_wanted(&room) && room.warning().is_none());
    }
}
