//! Failed logins and wrong join codes, counted by address.
//!
//! A count never decides about a login or a code that is right: others may have the same address, behind a router or on
//! the same machine. All codes are long random numbers, so guessing is hopeless without any limit. The count bounds what
//! guesses cost: after some failures, an address gets a short refusal, which the audit log does not record.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hostler_listen::Network;

/// Number of failures per address and [`WINDOW`] whose reason an address learns.
const MAX_FAILURES: u32 = 10;

/// Time window for counting.
const WINDOW: Duration = Duration::from_secs(60);

/// Maximum number of addresses. If there are more, the count starts again.
const MAX_ADDRESSES: usize = 10_000;

/// Recent failures of each address.
#[derive(Default)]
pub(crate) struct Failures(Mutex<BTreeMap<Network, Count>>);

struct Count {
    since: Instant,
    failures: u32,
}

impl Failures {
    /// Counts a failure of this address. Returns the rest of the time window if there are too many. Clients without an
    /// address are users of this machine, whom the kernel identifies.
    pub(crate) fn count(&self, from: Option<IpAddr>) -> Option<Duration> {
        let network = Network::from(from?);
        let mut counts = self.counts();
        if counts.len() >= MAX_ADDRESSES && !counts.contains_key(&network) {
            counts.retain(|_, count| count.since.elapsed() < WINDOW);
            if counts.len() >= MAX_ADDRESSES {
                counts.clear();
            }
        }
        let fresh = || Count { since: Instant::now(), failures: 0 };
        let count = counts.entry(network).or_insert_with(fresh);
        if count.since.elapsed() >= WINDOW {
            *count = fresh();
        }
        count.failures += 1;
        if count.failures > MAX_FAILURES { WINDOW.checked_sub(count.since.elapsed()) } else { None }
    }

    /// Whether the next failure of this address is one too many.
    pub(crate) fn are_many(&self, from: Option<IpAddr>) -> bool {
        let Some(network) = from.map(Network::from) else { return false };
        self.counts()
            .get(&network)
            .is_some_and(|count| count.failures >= MAX_FAILURES && count.since.elapsed() < WINDOW)
    }

    fn counts(&self) -> MutexGuard<'_, BTreeMap<Network, Count>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> Option<IpAddr> {
        Some(text.parse().expect("an address"))
    }

    #[test]
    fn failures_are_counted_by_network_and_for_a_while() {
        let failures = Failures::default();
        for host in 0..MAX_FAILURES {
            assert!(!failures.are_many(address("2001:db8::1")));
            assert_eq!(failures.count(address(&format!("2001:db8::{host}"))), None);
        }
        assert!(failures.are_many(address("2001:db8::ffff")));
        assert!(failures.count(address("2001:db8::ffff")).is_some_and(|rest| rest <= WINDOW));
        assert_eq!((failures.count(address("2001:db9::1")), failures.count(None)), (None, None));
        assert!(!failures.are_many(address("2001:db9::1")) && !failures.are_many(None));
        let ago = Instant::now().checked_sub(WINDOW).expect("enough uptime");
        failures.counts().values_mut().for_each(|count| count.since = ago);
        assert!(!failures.are_many(address("2001:db8::1")));
        assert_eq!(failures.count(address("2001:db8::1")), None);
    }

    #[test]
    fn many_addresses_take_bounded_memory() {
        let failures = Failures::default();
        for number in 0..3 * MAX_ADDRESSES {
            failures.count(address(&format!("10.{}.{}.{}", number >> 16, (number >> 8) & 255, number & 255)));
        }
        assert!(failures.counts().len() <= MAX_ADDRESSES);
    }
}
