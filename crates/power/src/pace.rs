//! How often a controller is asked, and for how long it is left alone after a fault.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::MutexGuard;
use tokio::time::Instant;

use crate::{Fault, FaultKind};

/// How a controller is treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// From the end of one command to the beginning of the next.
    pub gap: Duration,
    /// So long may a command take in all.
    pub time_limit: Duration,
    /// How long it is left alone after a first fault; twice as long after each one more.
    pub first_pause: Duration,
    /// So long at most.
    pub longest_pause: Duration,
}

impl Pace {
    /// For management controllers, which freeze when they are asked too often.
    pub const CONTROLLER: Self = Self {
        gap: Duration::from_millis(500),
        time_limit: Duration::from_secs(60),
        first_pause: Duration::from_secs(2),
        longest_pause: Duration::from_secs(120),
    };

    /// For what is a program on this machine.
    pub const PROGRAM: Self = Self { gap: Duration::ZERO, ..Self::CONTROLLER };
}

/// Where those who use one controller wait for each other, and learn that it does not answer.
#[derive(Debug, Default)]
pub(crate) struct Lane {
    last: tokio::sync::Mutex<Option<Instant>>,
    pub(crate) outage: Outage,
}

/// The right to use a controller, until it is dropped.
pub(crate) struct Turn<'a>(MutexGuard<'a, Option<Instant>>);

impl Lane {
    /// Waits for all who came before, and until the last of them is `gap` ago.
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

/// The pause after faults.
#[derive(Debug, Default)]
pub(crate) struct Outage(Mutex<Option<Pause>>);

#[derive(Debug)]
struct Pause {
    until: Instant,
    length: Duration,
    fault: Fault,
}

impl Outage {
    /// Whether the controller may be asked now.
    ///
    /// # Errors
    /// The last fault, with the rest of its pause.
    pub(crate) fn check(&self, now: Instant) -> Result<(), Fault> {
        match &*self.lock() {
            Some(pause) if now < pause.until => Err(pause.fault.clone().after(Some(pause.until - now))),
            _ => Ok(()),
        }
    }

    /// Takes note of how a command has ended; gives it back with the pause that follows.
    pub(crate) fn note<T>(&self, now: Instant, pace: &Pace, result: Result<T, Fault>) -> Result<T, Fault> {
        let mut pause = self.lock();
        match result {
            Err(fault) if calls_for_a_pause(fault.kind()) => {
                let doubled = pause.as_ref().map_or(pace.first_pause, |before| before.length * 2);
                let length = doubled.max(fault.retry_after().unwrap_or_default()).min(pace.longest_pause);
                let fault = fault.after(Some(length));
                *pause = Some(Pause { until: now + length, length, fault: fault.clone() });
                Err(fault)
            }
            // It has answered, and sensibly.
            result => {
                *pause = None;
                result
            }
        }
    }

    /// Lets the controller be asked at once.
    pub(crate) fn forget(&self) {
        *self.lock() = None;
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Pause>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Refused credentials have pauses of their own, and what is wrong on this side does not trouble the controller.
const fn calls_for_a_pause(kind: FaultKind) -> bool {
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
        outage.note::<()>(now, &PACE, Err(fault)).expect_err("it was one").retry_after()
    }

    #[test]
    fn pauses_double_up_to_the_longest_and_end_with_an_answer() {
        let outage = Outage::default();
        let mut now = Instant::now();
        let mut pauses = Vec::new();
        for _ in 0..9 {
            let pause = fail(&outage, now, Fault::unreachable("x")).expect("there is one");
            let rest = outage.check(now + pause / 2).expect_err("half of it is left").retry_after();
            assert_eq!(rest, Some(pause - pause / 2));
            now += pause;
            assert_eq!(outage.check(now), Ok(()));
            pauses.push(pause.as_secs());
        }
        assert_eq!(pauses, [2, 4, 8, 16, 32, 64, 120, 120, 120]);
        outage.note(now, &PACE, Ok(())).expect("it was fine");
        assert_eq!(fail(&outage, now, Fault::busy("x")), Some(PACE.first_pause));
    }

    #[test]
    fn the_controller_may_ask_for_a_longer_pause_but_not_for_any() {
        let (outage, now) = (Outage::default(), Instant::now());
        let asks_for = |seconds| Fault::busy("x").after(Some(Duration::from_secs(seconds)));
        assert_eq!(fail(&outage, now, asks_for(30)), Some(Duration::from_secs(30)));
        assert_eq!(fail(&outage, now, asks_for(1_000_000)), Some(PACE.longest_pause));
        outage.forget();
        assert_eq!(outage.check(now), Ok(()));
    }

    #[test]
    fn what_a_person_has_to_mend_does_not_make_the_controller_wait() {
        let (outage, now) = (Outage::default(), Instant::now());
        assert_eq!(fail(&outage, now, Fault::unsupported("x")), None);
        assert_eq!(outage.check(now), Ok(()));
    }

    #[tokio::test]
    async fn turns_are_apart() {
        let (lane, gap) = (Lane::default(), Duration::from_millis(20));
        let begun = Instant::now();
        for _ in 0..3 {
            drop(lane.turn(gap).await);
        }
        assert!(begun.elapsed() >= gap * 2, "{:?}", begun.elapsed());
    }
}
