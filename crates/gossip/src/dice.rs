//! Pseudo-random numbers from bits that the caller provides.

/// The random number generator `SplitMix64`. The same seed gives the same numbers on every machine. Not for secrets.
#[derive(Debug, Clone)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) const fn new(bits: u64) -> Self {
        Self(bits)
    }

    pub(crate) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `limit`; zero if `limit` is zero. The bias is below 2⁻³² for the limits in this crate.
    pub(crate) const fn below(&mut self, limit: usize) -> usize {
        if limit == 0 { 0 } else { (self.next() % limit as u64) as usize }
    }

    /// Returns true with probability `times / among`.
    pub(crate) const fn happens(&mut self, times: usize, among: usize) -> bool {
        self.below(among) < times
    }
}
