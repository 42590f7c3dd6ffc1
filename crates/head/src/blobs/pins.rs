//! Pins protect table blobs from a collection before anything refers to them.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use hostler_model::Digest;

/// Minimum protection time of blobs on their way into the table.
const GENERATION: Duration = Duration::from_secs(15);

/// Blobs in the table that a collection must keep although nothing refers to them. Pins replace the times that chunk
/// files have.
#[derive(Default)]
pub(super) struct Pins {
    /// Blobs that a client was told are present, and when.
    asked: HashMap<Digest, Instant>,
    /// Blobs on their way into the table, in two generations: one timestamp per blob would cost too much at thousands
    /// of blobs per second. Each lasts [`GENERATION`], which is much longer than a commit.
    arriving: [HashSet<Digest>; 2],
    /// When the younger generation began.
    began: Option<Instant>,
    /// A collection runs. Blobs that arrive meanwhile are not marked.
    is_collecting: bool,
}

impl Pins {
    /// Pins blobs that a client is told are present.
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

    /// Pins blobs on their way into the table.
    pub(super) fn bring(&mut self, digests: impl Iterator<Item = Digest>) {
        if !self.is_collecting && self.began.is_none_or(|began| began.elapsed() > GENERATION) {
            let [younger, older] = &mut self.arriving;
            *older = std::mem::take(younger);
            self.began = Some(Instant::now());
        }
        self.arriving[0].extend(digests);
    }

    /// While a collection runs, no arriving blob loses its pin.
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
