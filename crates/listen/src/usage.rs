//! Limits on the concurrent use of each authenticated party.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Arc, Mutex, PoisonError};

/// Limits how many units, e.g. connections, each party uses at once.
#[derive(Debug)]
pub struct UsageLimits<K> {
    most: usize,
    of: Mutex<BTreeMap<K, usize>>,
}

/// One unit of a party's share. Dropping it frees the unit.
#[derive(Debug)]
pub struct UsagePermit<K: Clone + Ord> {
    shares: Arc<UsageLimits<K>>,
    party: K,
}

impl<K: Clone + Ord> UsageLimits<K> {
    /// Creates a limit of `most` units per party.
    #[must_use]
    pub fn of(most: usize) -> Arc<Self> {
        Arc::new(Self { most, of: Mutex::default() })
    }

    /// Returns the number of units that each party may use at once.
    #[must_use]
    pub fn most(&self) -> usize {
        self.most
    }

    /// Takes one unit for a party; `None` if the party already uses all its units.
    pub fn take(self: &Arc<Self>, party: K) -> Option<UsagePermit<K>> {
        let mut of = self.of.lock().unwrap_or_else(PoisonError::into_inner);
        let own = of.entry(party.clone()).or_default();
        if *own >= self.most {
            return None;
        }
        *own += 1;
        Some(UsagePermit { shares: Arc::clone(self), party })
    }
}

impl<K: Clone + Ord> Drop for UsagePermit<K> {
    fn drop(&mut self) {
        let mut of = self.shares.of.lock().unwrap_or_else(PoisonError::into_inner);
        if let Entry::Occupied(mut own) = of.entry(self.party.clone()) {
            *own.get_mut() -= 1;
            if *own.get() == 0 {
                own.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_party_gets_no_more_than_its_share() {
        let shares = UsageLimits::of(2);
        let held = [shares.take("ada"), shares.take("ada")];
        assert!(held.iter().all(Option::is_some) && shares.take("ada").is_none() && shares.take("bob").is_some());
        drop(held);
        assert!(shares.take("ada").is_some());
        assert!(shares.of.lock().expect("the lock is not poisoned").is_empty());
    }
}
