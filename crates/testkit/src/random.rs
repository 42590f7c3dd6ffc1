//! Random numbers from a seed, for tests that can be repeated.

/// A generator of random numbers: SplitMix64.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A random number below `end`.
    ///
    /// # Panics
    /// If `end` is zero.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// A random element of `all`.
    ///
    /// # Panics
    /// If `all` is empty.
    pub fn one_of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len() as u64) as usize]
    }
}
