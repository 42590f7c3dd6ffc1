//! Random numbers, all from one seed: SplitMix64.

/// A stream of numbers that depends only on its seed.
#[derive(Debug, Clone)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        let mut rng = Self(seed);
        // Skips the first number, so that streams of adjacent seeds start differently.
        rng.next();
        rng
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number from `from` up to but not including `to`, which must be larger.
    pub(crate) fn range(&mut self, from: u64, to: u64) -> u64 {
        from + self.next() % (to - from)
    }

    /// A number below `limit`, which must not be zero.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.range(0, limit)
    }

    /// Returns true with a probability of `per_mille` in a thousand.
    pub(crate) fn chance(&mut self, per_mille: u64) -> bool {
        self.below(1000) < per_mille
    }

    /// An element of `from`, which must not be empty.
    pub(crate) fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len() as u64) as usize]
    }

    /// Returns a number that is usually near `usual`, and occasionally many times larger.
    pub(crate) fn skewed(&mut self, usual: u64) -> u64 {
        let scale = if self.chance(30) { 40 } else { 2 };
        self.below(usual * scale + 1)
    }
}

/// Mixes the bits of a number, so that each input bit affects all output bits.
pub(crate) fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}
