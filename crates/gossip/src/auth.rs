//! Authentication of datagrams: each must come from a member, be made for this node, and be new.

use std::fmt;

use crate::MemberId;
use crate::wire::TAG_BYTES;

/// The secret key that all gossiping nodes of a cluster share, and that authenticates their datagrams.
#[derive(Clone, PartialEq, Eq)]
pub struct Key([u8; 32]);

impl Key {
    /// Derives the key from 32 secret bytes, which must come from a secure random source.
    #[must_use]
    pub fn new(secret: &[u8; 32]) -> Self {
        // Derived with a context, so that reuse of the secret elsewhere by mistake reveals nothing.
        Self(blake3::derive_key("hostler gossip 2026-11-21 datagrams", secret))
    }

    /// Computes the tag of a datagram for `receiver`. The tag also covers the receiver, which the datagram does not
    /// contain. A datagram for one node is therefore invalid at another.
    fn tag(&self, receiver: MemberId, untagged: &[u8]) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        hasher.update(&receiver.0.to_le_bytes());
        hasher.update(untagged);
        hasher.finalize()
    }

    /// Appends the tag to a datagram.
    pub(crate) fn seal(&self, receiver: MemberId, datagram: &mut Vec<u8>) {
        let tag = self.tag(receiver, datagram);
        datagram.extend_from_slice(tag.as_bytes());
    }

    /// Returns the datagram without its tag; `None` if the tag is invalid.
    pub(crate) fn open<'a>(&self, receiver: MemberId, datagram: &'a [u8]) -> Option<&'a [u8]> {
        let (untagged, tag) = datagram.split_last_chunk::<TAG_BYTES>()?;
        // blake3 compares hashes in constant time.
        (self.tag(receiver, untagged) == blake3::Hash::from_bytes(*tag)).then_some(untagged)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key")
    }
}

/// The counters of a sender that have arrived recently, to detect repeated datagrams.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ReplayWindow {
    highest: u64,
    /// Bit `n` is set if counter `highest - n` has arrived.
    seen: u64,
}

/// Whether a counter is new.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arrival {
    New,
    Repeated,
    /// The counter is too old: the window cannot tell whether it has arrived before.
    TooLate,
}

impl ReplayWindow {
    const WIDTH: u64 = u64::BITS as u64;

    /// Records a counter; returns whether it is new.
    pub(crate) fn arrive(&mut self, counter: u64) -> Arrival {
        if counter > self.highest {
            let ahead = counter - self.highest;
            self.seen = if ahead < Self::WIDTH { self.seen << ahead } else { 0 } | 1;
            self.highest = counter;
            return Arrival::New;
        }
        let behind = self.highest - counter;
        if behind >= Self::WIDTH || counter == 0 {
            return Arrival::TooLate;
        }
        let bit = 1 << behind;
        let arrival = if self.seen & bit == 0 { Arrival::New } else { Arrival::Repeated };
        self.seen |= bit;
        arrival
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: MemberId = MemberId(3);

    fn key(secret: u8) -> Key {
        Key::new(&[secret; 32])
    }

    fn sealed(secret: u8) -> Vec<u8> {
        let mut datagram = b"news".to_vec();
        key(secret).seal(ME, &mut datagram);
        datagram
    }

    #[test]
    fn only_datagrams_for_the_receiver_with_a_valid_key_are_opened() {
        let key = key(1);
        let whole = sealed(1);
        assert_eq!(key.open(ME, &whole), Some(&b"news"[..]));
        assert_eq!(key.open(MemberId(4), &whole), None, "a datagram for another node is refused");
        assert_eq!(key.open(ME, &sealed(2)), None, "a datagram with another key is refused");
        for cut in 0..whole.len() {
            assert_eq!(key.open(ME, &whole[..cut]), None, "{cut} bytes");
        }
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            assert_eq!(key.open(ME, &damaged), None, "damaged at {at}");
        }
    }

    #[test]
    fn debug_output_hides_keys() {
        assert_eq!(format!("{:?}", key(1)), "Key");
    }

    #[test]
    fn counters_are_accepted_once_in_any_order_within_the_window() {
        let mut window = ReplayWindow::default();
        for (counter, arrival) in [
            (0, Arrival::TooLate),
            (1, Arrival::New),
            (1, Arrival::Repeated),
            (5, Arrival::New),
            (3, Arrival::New),
            (3, Arrival::Repeated),
            (66, Arrival::New),
            (3, Arrival::Repeated),
            (4, Arrival::New),
            (2, Arrival::TooLate),
            (1000, Arrival::New),
            (66, Arrival::TooLate),
            (999, Arrival::New),
            (u64::MAX, Arrival::New),
            (u64::MAX, Arrival::Repeated),
            (1000, Arrival::TooLate),
        ] {
            assert_eq!(window.arrive(counter), arrival, "{counter}");
        }
    }
}
