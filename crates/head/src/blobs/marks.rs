//! Marks: which of any number of digests were seen, in memory that does not grow.
//!
//! A Bloom filter. Whatever was marked is found; of what was not, a few are found all the same, at eight million marks two in a thousand.
//! What is kept because of that goes with a later collection, whose marks look at other bits of the digests.

use hostler_model::Digest;

/// Bits, as a power of two: 16 MiB, of which a page takes memory only when something on it is marked.
const BITS_LOG2: u32 = 27;

/// Bits for each digest.
const PROBES: usize = 4;

/// Digests that were seen.
pub(super) struct Marks {
    bits: Vec<u64>,
    /// Which part of a digest decides about its bits.
    turn: usize,
}

impl Marks {
    /// None yet. Marks of different turns find different digests by mistake.
    pub(super) fn new(turn: usize) -> Self {
        Self { bits: vec![0; 1 << (BITS_LOG2 - 6)], turn }
    }

    /// Marks a digest; says whether it was not found before.
    pub(super) fn insert(&mut self, digest: &Digest) -> bool {
        let mut is_new = false;
        for (word, bit) in self.places(digest) {
            is_new |= self.bits[word] & bit == 0;
            self.bits[word] |= bit;
        }
        is_new
    }

    /// Whether a digest was marked, or seems to be.
    pub(super) fn contains(&self, digest: &Digest) -> bool {
        self.places(digest).into_iter().all(|(word, bit)| self.bits[word] & bit != 0)
    }

    /// Words and bits for a digest. Digests are as good as random, so parts of them are hashes.
    fn places(&self, digest: &Digest) -> [(usize, u64); PROBES] {
        std::array::from_fn(|probe| {
            let at = (self.turn + probe) % 8 * 4;
            let part = digest.0[at..].first_chunk().expect("a digest has 32 bytes");
            let place = u32::from_le_bytes(*part) >> (32 - BITS_LOG2);
            (place as usize / 64, 1 << (place % 64))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blobs::name_of;

    #[test]
    fn every_mark_is_found_and_few_others_are() {
        let name = |number: u32| name_of(&number.to_le_bytes());
        for turn in 0..9 {
            let mut marks = Marks::new(turn);
            assert!((0..20_000).filter(|number| marks.insert(&name(*number))).count() >= 19_999);
            assert!((0..20_000).all(|number| marks.contains(&name(number)) && !marks.insert(&name(number))));
            assert!((20_000..40_000).filter(|number| marks.contains(&name(*number))).count() < 10);
        }
    }
}
