//! The delay between an agent's connection attempts.

use std::time::Duration;

/// First and longest delay between connection attempts.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// Longest delay after the head has refused this agent. Retrying helps only if the node joins again.
const REFUSED_PAUSE: Duration = Duration::from_secs(15);

/// How long an agent may take to return to a head that has started: the longest pause, and an attempt that the head's
/// machine has not answered, which the client gives up after ten seconds.
pub(crate) const LONGEST_RETURN: Duration = PAUSES.1.saturating_add(Duration::from_secs(10));

/// How a connection attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attempt {
    /// There was no answer, or no connection.
    Failed,
    /// The head refused the agent.
    Refused,
    /// The head welcomed the agent, and the link has broken since.
    Welcomed {
        /// Time span for a random reconnect delay. It spreads reconnections, because all agents lose a head at the same
        /// time.
        return_within: Duration,
    },
}

/// Determines how long an agent waits before it connects again: exponential back-off with jitter.
#[derive(Debug, Clone)]
pub struct Dialler {
    pause: Duration,
}

impl Default for Dialler {
    fn default() -> Self {
        Self { pause: PAUSES.0 }
    }
}

impl Dialler {
    /// The delay after an attempt. `random` is a number from 0 to 1.
    pub fn pause_after(&mut self, attempt: Attempt, random: f64) -> Duration {
        let longest = match attempt {
            Attempt::Welcomed { return_within } => {
                *self = Self::default();
                return return_within.max(PAUSES.0).mul_f64(random);
            }
            Attempt::Failed => PAUSES.1,
            Attempt::Refused => REFUSED_PAUSE,
        };
        let pause = self.pause.mul_f64((1.0 + random) / 2.0);
        self.pause = (self.pause * 2).min(longest);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    #[test]
    fn pause_doubles_up_to_a_limit_that_is_higher_for_a_refused_agent() {
        let mut dialler = Dialler::default();
        let pauses: Vec<Duration> = (0..8).map(|_| dialler.pause_after(Attempt::Failed, 1.0)).collect();
        assert_eq!(pauses, [100, 200, 400, 800, 1600, 3200, 5000, 5000].map(MS));
        let pauses: Vec<Duration> = (0..3).map(|_| dialler.pause_after(Attempt::Refused, 1.0)).collect();
        assert_eq!(pauses, [5000, 10_000, 15_000].map(MS));
    }

    #[test]
    fn random_number_spreads_the_pause_over_its_second_half() {
        let pause = |random| Dialler::default().pause_after(Attempt::Failed, random);
        assert_eq!([pause(0.0), pause(0.5), pause(1.0)], [50, 75, 100].map(MS));
    }

    #[test]
    fn welcomed_agent_returns_within_the_time_that_the_head_named() {
        let mut dialler = Dialler::default();
        (0..8).for_each(|_| _ = dialler.pause_after(Attempt::Failed, 1.0));
        let welcomed = |ms| Attempt::Welcomed { return_within: MS(ms) };
        assert_eq!(dialler.pause_after(welcomed(3000), 0.5), MS(1500));
        assert_eq!(dialler.pause_after(welcomed(6), 1.0), MS(100), "never much less than the first pause");
        assert_eq!(dialler.pause_after(Attempt::Failed, 1.0), MS(100), "the back-off starts again");
    }
}
