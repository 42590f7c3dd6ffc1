//! A hard limit on the bytes that a node sends per second.

use std::collections::VecDeque;

use hostler_model::Timestamp;

/// Limits how many bytes a node sends within any second.
#[derive(Debug, Clone)]
pub(crate) struct Budget {
    bytes: usize,
    /// Datagrams of the last second, the oldest first. The minimum size of a datagram bounds their number.
    sent: VecDeque<(Timestamp, usize)>,
    used: usize,
}

const SECOND_MS: u64 = 1000;

impl Budget {
    pub(crate) const fn new(bytes: usize) -> Self {
        Self { bytes, sent: VecDeque::new(), used: 0 }
    }

    /// Returns how many bytes may be sent now.
    pub(crate) fn room(&mut self, now: Timestamp) -> usize {
        while let Some(&(at, bytes)) = self.sent.front() {
            if now.ms_since(at) < SECOND_MS {
                break;
            }
            self.used -= bytes;
            self.sent.pop_front();
        }
        self.bytes.saturating_sub(self.used)
    }

    /// Subtracts bytes from the budget if they fit; returns whether they did.
    pub(crate) fn take(&mut self, bytes: usize, now: Timestamp) -> bool {
        let fits = bytes <= self.room(now);
        if fits {
            self.sent.push_back((now, bytes));
            self.used += bytes;
        }
        fits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_interval_of_a_second_exceeds_the_budget() {
        let mut budget = Budget::new(100);
        assert!(budget.take(60, Timestamp(0)));
        assert!(!budget.take(41, Timestamp(500)));
        assert!(budget.take(40, Timestamp(500)));
        assert!(!budget.take(1, Timestamp(999)));
        assert!(budget.take(60, Timestamp(1000)), "the first 60 were sent a second ago");
        assert_eq!(budget.room(Timestamp(1499)), 0);
        assert_eq!(budget.room(Timestamp(1500)), 40);
        assert_eq!(budget.room(Timestamp(9000)), 100);
        assert!(!budget.take(101, Timestamp(9000)));
    }
}
