//! Retries while the head is unreachable.

use std::time::Duration;

use tokio::time::Instant;

use crate::{ClientError, ConnectFailure};

/// The first pause before a retry. Pauses double up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(10);

/// The longest pause, and so the longest delay until a client notices that the head was restarted.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// The number of pauses (about 150 ms in total) after which the client reports an outage.
const PAUSES_BEFORE_REPORT: u32 = 4;

/// How long a client retries while the head is unreachable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryLimits {
    /// Retry time before the first connection, if the socket exists but its head has ended: the head may be restarting.
    pub at_first: Duration,
    /// Retry time before the first connection, for an unreachable head on the network: the link may be down for a
    /// moment.
    pub to_reach: Duration,
    /// Retry time after a first connection has succeeded.
    pub later: Duration,
}

impl RetryLimits {
    /// Retries for this time, before and after the first connection.
    #[must_use]
    pub const fn of(time: Duration) -> Self {
        Self { at_first: time, to_reach: time, later: time }
    }

    /// No retries: reports every failure at once.
    pub const NONE: Self = Self { at_first: Duration::ZERO, to_reach: Duration::ZERO, later: Duration::ZERO };

    /// Retry times for programs that have retries of their own.
    pub const PROGRAM: Self =
        Self { at_first: Duration::from_secs(1), to_reach: Duration::ZERO, later: Duration::from_secs(60) };

    /// Retry times for commands that users wait for.
    pub const COMMAND: Self =
        Self { at_first: Duration::from_secs(10), to_reach: Duration::from_secs(5), later: Duration::from_secs(60) };

    /// Retry times for commands that wait for hours.
    pub const WATCH: Self =
        Self { at_first: Duration::from_secs(10), to_reach: Duration::from_secs(20), later: Duration::from_secs(600) };
}

/// A change that a client reports to its watcher.
#[derive(Debug)]
pub enum Outage<'a> {
    /// The head is unreachable; the call is retried.
    Begins(&'a ClientError),
    /// The head is reachable again.
    Over,
}

/// The retry state of one call.
#[derive(Debug)]
pub(crate) struct Tries {
    retry_limits: RetryLimits,
    began: Option<Instant>,
    pauses: u32,
    announced: bool,
}

impl Tries {
    pub(crate) fn new(retry_limits: RetryLimits) -> Self {
        Self { retry_limits, began: None, pauses: 0, announced: false }
    }

    /// Pauses before the next try.
    ///
    /// # Errors
    /// Returns `error` if it is permanent or the time for retries is up.
    pub(crate) async fn pause(&mut self, error: ClientError, was_connected: bool) -> Result<ClientError, ClientError> {
        let limit = if was_connected {
            self.retry_limits.later
        } else {
            match &error {
                ClientError::Connect { failure: ConnectFailure::StaleSocket, .. } => self.retry_limits.at_first,
                ClientError::Connect { failure: ConnectFailure::Unreachable, .. } => self.retry_limits.to_reach,
                _ => Duration::ZERO,
            }
        };
        let began = *self.began.get_or_insert_with(Instant::now);
        if !error.is_transient() || began.elapsed() >= limit {
            return Err(error);
        }
        tokio::time::sleep(FIRST_PAUSE.saturating_mul(1 << self.pauses.min(16)).min(LONGEST_PAUSE)).await;
        self.pauses += 1;
        Ok(error)
    }

    /// Whether to report the outage now: true once per outage, after some pauses.
    pub(crate) fn should_report(&mut self) -> bool {
        let is_long = self.pauses >= PAUSES_BEFORE_REPORT;
        is_long && !std::mem::replace(&mut self.announced, true)
    }

    /// Ends the outage. Returns whether it was reported.
    pub(crate) fn end(&mut self) -> bool {
        std::mem::replace(self, Self::new(self.retry_limits)).announced
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    fn error(failure: ConnectFailure) -> ClientError {
        ClientError::Connect {
            endpoint: "unix:/x".to_owned(),
            failure,
            source: io::Error::from(io::ErrorKind::NotFound),
        }
    }

    #[tokio::test]
    async fn retry_time_depends_on_an_earlier_connection() {
        let mut tries = Tries::new(RetryLimits::COMMAND);
        assert!(
            tries.pause(error(ConnectFailure::NoSocket), false).await.is_err(),
            "a client that was never connected gives up"
        );
        assert!(tries.pause(error(ConnectFailure::StaleSocket), false).await.is_ok(), "the head may be restarting");
        assert!(
            tries.pause(error(ConnectFailure::Unreachable), false).await.is_ok(),
            "the link may be down for a moment"
        );
        assert!(
            tries.pause(error(ConnectFailure::NoSocket), true).await.is_ok(),
            "a client that was connected before retries"
        );
        assert!(tries.pause(error(ConnectFailure::NotAllowed), true).await.is_err(), "a retry does not help");
        assert!(Tries::new(RetryLimits::NONE).pause(error(ConnectFailure::NoSocket), true).await.is_err());
    }

    #[tokio::test]
    async fn outage_is_reported_once() {
        let mut tries = Tries::new(RetryLimits::COMMAND);
        let mut words = 0;
        for _ in 0..PAUSES_BEFORE_REPORT + 2 {
            tries.pause(error(ConnectFailure::NoSocket), true).await.expect("a retry");
            words += u32::from(tries.should_report());
        }
        assert_eq!(words, 1);
        assert!(tries.end() && !tries.end());
    }
}
