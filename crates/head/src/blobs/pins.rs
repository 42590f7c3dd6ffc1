//! Pins: what a collection leaves alone in the table though nothing refers to it yet.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use hostler_model::Digest;

/// How long blobs that are on their way into the table are left alone at least.
const GENERATION: Duration = Duration::from_secs(15);

/// Blobs of the table that a collection leaves alone though nothing refers to them: the table knows no times.
#[derive(Default)]
pub(super) struct Pins {
    /// Somebody was told that they are here, and when.
    asked: HashMap<Digest, Instant>,
    /// They are on their way into the table. Two generations, since a busy head sees thousands a second: each lasts
    /// [`GENERATION`], many times what a commit takes.
    arriving: [HashSet<Digest>; 2],
    /// When the younger generation began.
    began: Option<Instant>,
    /// A collection is under way: what arrives meanwhile was not marked.
    is_collecting: bool,
}

impl Pins {
    /// Somebody is told that these are here.
    pub(super) fn ask(&mut self, digests: &[Digest]) {
        let now = Instant::now();
        self.asked.extend(digests.iter().map(|digest| (*digest, now)));
    }

    /// They are not, after all.
    pub(super) fn forget(&mut self, digests: &[Digest]) {
        digests.iter().for_each(|digest| {
            self.asked.remove(digest);
        });
    }

    /// These are on their way into the table.
    pub(super) fn bring(&mut self, digests: impl Iterator<Item = Digest>) {
        if !self.is_collecting && self.began.is_none_or(|began| began.elapsed() > GENERATION) {
            let [younger, older] = &mut self.arriving;
            *older = std::mem::take(younger);
            self.began = Some(Instant::now());
        }
        self.arriving[0].extend(digests);
    }

    /// Until a collection is over nothing that arrives is let go.
    pub(super) fn set_collecting(&mut self, is_collecting: bool) {
        self.is_collecting = is_collecting;
    }

    /// Whether a collection must leave this one alone.
    pub(super) fn contains(&self, digest: &Digest) -> bool {
        self.asked.contains_key(digest) || self.arriving.iter().any(|generation| generation.contains(digest))
    }

    /// Forgets what was asked for longer than `age` ago.
    pub(super) fn let_go(&mut self, age: Duration) {
        self.asked.retain(|_, since| since.elapsed() < age);
    }
}
