//! Approximate set of digests, in memory of constant size.
//!
//! A Bloom filter: a marked digest is always found. With eight million marks, about 0.2 % of other digests are found
//! too, so that a collection keeps them. Later collections use other bits of the digests and therefore delete those
//! blobs.

use hostler_model::Digest;

/// Number of bits, as a power of two. The bits take 16 MiB. A memory page is allocated when a bit on it is set.
const BITS_LOG2: u32 = 27;

/// Bits per digest.
const PROBES: usize = 4;

/// The marked digests.
pub(super) struct Marks {
    bits: Vec<u64>,
    /// Selects the part of a digest that determines its bits.
    turn: usize,
}

impl Marks {
    /// Creates an empty set. Sets with different values of `turn` have different false positives.
    pub(super) fn new(turn: usize) -> Self {
        Self { bits: vec![0; 1 << (BITS_LOG2 - 6)], turn }
    }

    /// Marks a digest. Returns whether it was not found before.
    pub(super) fn insert(&mut self, digest: &Digest) -> bool {
        let mut is_new = false;
        for (word, bit) in self.places(digest) {
            is_new |= self.bits[word] & bit == 0;
            self.bits[word] |= bit;
        }
        is_new
    }

    /// Whether a digest was marked. False positives are possible.
    pub(super) fn contains(&self, digest: &Digest) -> bool {
        self.places(digest).into_iter().all(|(word, bit)| self.bits[word] & bit != 0)
    }

    /// Word indices and bit masks of a digest. Digests are uniformly distributed, so their parts serve as hashes.
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
    fn every_mark_is_found_with_few_false_positives() {
        let name = |number: u32| name_of(&number.to_le_bytes());
        for turn in 0..9 {
            let mut marks = Marks::new(turn);
            assert!((0..20_000).filter(|number| marks.insert(&name(*number))).count() >= 19_999);
            assert!((0..20_000).all(|number| marks.contains(&name(number)) && !marks.insert(&name(number))));
            assert!((20_000..40_000).filter(|number| marks.contains(&name(*number))).count() < 10);
        }
    }
}
