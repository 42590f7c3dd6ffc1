//! Secrets that the head recognises without keeping them.
//!
//! A sealed secret contains random bits, the time at which it was made, and a keyed hash of both. The key belongs to this
//! process. So nobody else can make a secret, nobody can change its time, and all secrets end with the head's process.
//! Times are of the monotonic clock.

use std::time::{Duration, Instant};

use ring::hmac;

/// Length of the part that the hash covers: 128 random bits and the time in seconds.
const BODY: usize = 20;

/// Makes and checks secrets of one kind.
pub(crate) struct Seal {
    key: hmac::Key,
    /// Times in secrets count from here.
    start: Instant,
}

impl Seal {
    pub(crate) fn new() -> Self {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &hostler_sys::random::<32>());
        Self { key, start: Instant::now() }
    }

    /// Makes a secret.
    pub(crate) fn make(&self) -> [u8; 32] {
        self.make_at(self.start.elapsed())
    }

    /// Whether this process made the secret less than `life` ago. Takes the same time for every wrong secret.
    pub(crate) fn is_younger(&self, secret: &[u8; 32], life: Duration) -> bool {
        self.is_younger_at(secret, life, self.start.elapsed())
    }

    fn make_at(&self, now: Duration) -> [u8; 32] {
        let mut secret = hostler_sys::random::<32>();
        let seconds = u32::try_from(now.as_secs()).expect("no process runs for a hundred years");
        secret[BODY - 4..BODY].copy_from_slice(&seconds.to_be_bytes());
        let hash = hmac::sign(&self.key, &secret[..BODY]);
        secret[BODY..].copy_from_slice(&hash.as_ref()[..32 - BODY]);
        secret
    }

    fn is_younger_at(&self, secret: &[u8; 32], life: Duration, now: Duration) -> bool {
        let (body, shown) = secret.split_at(BODY);
        let hash = hmac::sign(&self.key, body);
        let differences = hash.as_ref().iter().zip(shown).fold(0, |all, (a, b)| all | (a ^ b));
        let seconds = body[BODY - 4..].iter().fold(0, |seconds, byte| (seconds << 8) | u64::from(*byte));
        // Both times are rounded down to seconds.
        differences == 0 && now.as_secs().checked_sub(seconds).is_some_and(|age| age < life.as_secs())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIFE: Duration = Duration::from_secs(600);

    #[test]
    fn secret_expires_and_its_time_cannot_be_changed() {
        let seal = Seal::new();
        let at = Duration::from_secs;
        let secret = seal.make_at(at(1000));
        let is_valid = |secret: &[u8; 32], now| seal.is_younger_at(secret, LIFE, at(now));
        assert!(is_valid(&secret, 1000) && is_valid(&secret, 1599));
        assert!(!is_valid(&secret, 1600) && !is_valid(&secret, 999));
        // Whoever changes a bit, of the time too, has no secret.
        for bit in 0..256 {
            let mut changed = secret;
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!((0..3000).step_by(100).all(|now| !is_valid(&changed, now)), "bit {bit}");
        }
        assert_ne!(seal.make(), seal.make());
    }

    #[test]
    fn secret_of_nobody_or_of_another_process_is_none() {
        let (seal, other) = (Seal::new(), Seal::new());
        assert!(seal.is_younger(&seal.make(), LIFE));
        for secret in [[0; 32], [255; 32], other.make(), hostler_sys::random()] {
            assert!(!seal.is_younger(&secret, LIFE));
        }
    }
}
