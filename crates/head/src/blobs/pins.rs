//! Pins protect table blobs from a collection before anything refers to them.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use hostler_model::Digest;

/// Minimum time for which a blob is protected while it is being written to the table.
const GENERATION: Duration = Duration::from_secs(15);

/// Blobs in the table that a collection must keep although nothing refers to them yet. For chunk files, the time of
/// last use serves this purpose.
#[derive(Default)]
pub(super) struct Pins {
    /// Blobs that the head has reported to a client as present, with the time of the report.
    asked: HashMap<Digest, Instant>,
    /// Blobs that are being written to the table, in two generations. A timestamp for each blob would cost too much at
    /// thousands of blobs per second. A generation lasts [`GENERATION`], which is much longer than a commit.
    arriving: [HashSet<Digest>; 2],
    /// When the younger generation of `arriving` began.
    began: Option<Instant>,
    /// Whether a collection is running. The collection does not mark blobs that arrive during this time.
    is_collecting: bool,
}

impl Pins {
    /// Pins blobs that the head is about to report to a client as present.
    pub(super) fn ask(&mut self, digests: &[Digest]) {
        let now = Instant::now();
        self.asked.extend(digests.iter().map(|digest| (*digest, now)));
    }

    /// Removes pins of blobs that turned out to be absent.
    pub(super) fn forget(&mut self, digests: &[Digest]) {
        digests.iter().for_each(|digest| {
            self.asked.remove(digest);
        });
    }

    /// Pins blobs that are being written to the table.
    pub(super) fn bring(&mut self, digests: impl Iterator<Item = Digest>) {
        if !self.is_collecting && self.began.is_none_or(|began| began.elapsed() > GENERATION) {
            let [younger, older] = &mut self.arriving;
            *older = std::mem::take(younger);
            self.began = Some(Instant::now());
        }
        self.arriving[0].extend(digests);
    }

    /// Starts or ends the protection of all arriving blobs. While a collection is running, no arriving blob loses its
    /// pin.
    pub(super) fn set_collecting(&mut self, is_collecting: bool) {
        self.is_collecting = is_collecting;
    }

    /// Whether a collection must keep this blob.
    pub(super) fn contains(&self, digest: &Digest) -> bool {
        self.asked.contains_key(digest) || self.arriving.iter().any(|generation| generation.contains(digest))
    }

    /// Removes pins of blobs that a client asked about more than `age` ago.
    pub(super) fn let_go(&mut self, age: Duration) {
        self.asked.retain(|_, since| since.elapsed() < age);
    }
}
