//! Random numbers.

/// Random bits from the system, for names and for delays that differ between nodes.
pub(crate) fn random_bits() -> u64 {
    u64::from_ne_bytes(hostler_sys::random())
}

/// A random number from 0 to 1.
pub(crate) fn random() -> f64 {
    (random_bits() >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::random;

    #[test]
    fn random_reconnect_delays_are_spread_evenly() {
        let mut all: Vec<f64> = (0..1_000).map(|_| random()).collect();
        all.sort_by(f64::total_cmp);
        assert!((0.0..1.0).contains(&all[0]) && (0.0..1.0).contains(&all[999]));
        let widest_gap = all.windows(2).map(|pair| pair[1] - pair[0]).fold(0.0, f64::max);
        assert!(widest_gap < 0.05, "they are spread: {widest_gap}");
    }
}
