//! Rate limits for controllers, and back-off after faults.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::MutexGuard;
use tokio::time::Instant;

use crate::{Fault, FaultKind};

/// Rate limits and timeouts of a controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// Minimum time between the end of a request and the start of the next.
    pub gap: Duration,
    pub time_limit: Duration,
    /// Back-off after a first fault. Each further fault doubles the back-off.
    pub first_pause: Duration,
    pub longest_pause: Duration,
}

impl Pace {
    /// Limits for management controllers, which freeze under frequent requests.
    pub const CONTROLLER: Self = Self {
        gap: Duration::from_millis(500),
        time_limit: Duration::from_secs(60),
        first_pause: Duration::from_secs(2),
        longest_pause: Duration::from_secs(120),
    };

    /// Limits for programs on the head's machine.
    pub const PROGRAM: Self = Self { gap: Duration::ZERO, ..Self::CONTROLLER };
}

/// Queue for the nodes that share a controller, with their common back-off.
#[derive(Debug, Default)]
pub(crate) struct Lane {
    last: tokio::sync::Mutex<Option<Instant>>,
    pub(crate) outage: Outage,
}

/// The exclusive right to use a controller. Dropping this value ends the right.
pub(crate) struct Turn<'a>(MutexGuard<'a, Option<Instant>>);

impl Lane {
    /// Waits for all earlier users of the controller, and then until `gap` has passed since the last use.
    pub(crate) async fn turn(&self, gap: Duration) -> Turn<'_> {
        let last = self.last.lock().await;
        if let Some(last) = *last {
            tokio::time::sleep_until(last + gap).await;
        }
        Turn(last)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *self.0 = Some(Instant::now());
    }
}

/// Back-off after faults.
#[derive(Debug, Default)]
pub(crate) struct Outage(Mutex<Option<Pause>>);

#[derive(Debug)]
struct Pause {
    until: Instant,
    length: Duration,
    fault: Fault,
}

impl Outage {
    /// Whether the controller may be used now.
    ///
    /// # Errors
    /// The last fault, with the remaining back-off.
    pub(crate) fn check(&self, now: Instant) -> Result<(), Fault> {
        match &*self.lock() {
            Some(pause) if now < pause.until => Err(pause.fault.clone().after(Some(pause.until - now))),
            _ => Ok(()),
        }
    }

    /// Records the result of a request. Returns the result; a fault contains the resulting back-off.
    pub(crate) fn note<T>(&self, now: Instant, pace: &Pace, result: Result<T, Fault>) -> Result<T, Fault> {
        let mut pause = self.lock();
        match result {
            Err(fault) if causes_back_off(fault.kind()) => {
                let doubled = pause.as_ref().map_or(pace.first_pause, |before| before.length * 2);
                let length = doubled.max(fault.retry_after().unwrap_or_default()).min(pace.longest_pause);
                let fault = fault.after(Some(length));
                *pause = Some(Pause { until: now + length, length, fault: fault.clone() });
                Err(fault)
            }
            // Any other result means that the controller responded.
            result => {
                *pause = None;
                result
            }
        }
    }

    pub(crate) fn forget(&self) {
        *self.lock() = None;
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Pause>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a fault causes a back-off. Rejected credentials have their own back-off, and local problems do not involve
/// the controller.
const fn causes_back_off(kind: FaultKind) -> bool {
    match kind {
        FaultKind::Unreachable | FaultKind::Busy | FaultKind::Confused | FaultKind::Untrusted => true,
        FaultKind::Refused | FaultKind::Unsupported | FaultKind::Unprepared => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACE: Pace = Pace::CONTROLLER;

    fn fail(outage: &Outage, now: Instant, fault: Fault) -> Option<Duration> {
        outage.note::<()>(now, &PACE, Err(fault)).expect_err("a fault").retry_after()
    }

    #[test]
    fn back_off_doubles_up_to_a_limit_and_ends_with_a_success() {
        let outage = Outage::default();
        let mut now = Instant::now();
        let mut pauses = Vec::new();
        for _ in 0..9 {
            let pause = fail(&outage, now, Fault::unreachable("x")).expect("the fault causes a pause");
            let rest = outage.check(now + pause / 2).expect_err("half of the pause is left").retry_after();
            assert_eq!(rest, Some(pause - pause / 2));
            now += pause;
            assert_eq!(outage.check(now), Ok(()));
            pauses.push(pause.as_secs());
        }
        assert_eq!(pauses, [2, 4, 8, 16, 32, 64, 120, 120, 120]);
        outage.note(now, &PACE, Ok(())).expect("no fault");
        assert_eq!(fail(&outage, now, Fault::busy("x")), Some(PACE.first_pause));
    }

    #[test]
    fn controller_can_request_a_longer_back_off_up_to_the_limit() {
        let (outage, now) = (Outage::default(), Instant::now());
        let asks_for = |seconds| Fault::busy("x").after(Some(Duration::from_secs(seconds)));
        assert_eq!(fail(&outage, now, asks_for(30)), Some(Duration::from_secs(30)));
        assert_eq!(fail(&outage, now, asks_for(1_000_000)), Some(PACE.longest_pause));
        outage.forget();
        assert_eq!(outage.check(now), Ok(()));
    }

    #[test]
    fn permanent_faults_cause_no_back_off() {
        let (outage, now) = (Outage::default(), Instant::now());
        assert_eq!(fail(&outage, now, Fault::unsupported("x")), None);
        assert_eq!(outage.check(now), Ok(()));
    }

    #[tokio::test]
    async fn turns_keep_the_minimum_gap() {
        let (lane, gap) = (Lane::default(), Duration::from_millis(20));
        let begun = Instant::now();
        for _ in 0..3 {
            drop(lane.turn(gap).await);
        }
        assert!(begun.elapsed() >= gap * 2, "{:?}", begun.elapsed());
    }
}
