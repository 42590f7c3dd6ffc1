//! What a node may send in a second, whatever happens.

use std::collections::VecDeque;

use hostler_model::Timestamp;

/// Bounds the bytes of every second, wherever that second begins.
#[derive(Debug, Clone)]
pub(crate) struct Budget {
    bytes: usize,
    /// What was sent within the last second, the oldest first. Datagrams have a least size, so this is bounded too.
    sent: VecDeque<(Timestamp, usize)>,
    used: usize,
}

const SECOND_MS: u64 = 1000;

impl Budget {
    pub(crate) const fn new(bytes: usize) -> Self {
        Self { bytes, sent: VecDeque::new(), used: 0 }
    }

    /// How many bytes may be sent now.
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

    /// Takes so many bytes if there is room for them; says whether there was.
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
    fn no_second_has_more_than_the_budget() {
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
