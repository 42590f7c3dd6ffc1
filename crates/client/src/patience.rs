//! How long to wait for a head that went away.

use std::time::Duration;

use tokio::time::Instant;

use crate::{ClientError, ConnectFailure};

/// The first pause between two tries; each one after is twice as long, up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(10);

/// So long at most: a head that is back is noticed within this time.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// Shorter outages (about 150 ms) go unmentioned.
const PAUSES_BEFORE_A_WORD: u32 = 4;

/// How long a client goes on trying when the head goes away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// Before the first connection was ever made: only for a socket whose head is gone, which may be restarting.
    pub at_first: Duration,
    /// The same, for a head across a network that did not answer: the link may be cut for a moment.
    pub to_reach: Duration,
    /// After a connection had been made.
    pub later: Duration,
}

impl Patience {
    /// Every failure is reported at once.
    pub const NONE: Self = Self { at_first: Duration::ZERO, to_reach: Duration::ZERO, later: Duration::ZERO };

    /// For programs that try again by themselves when they cannot reach the head.
    pub const PROGRAM: Self =
        Self { at_first: Duration::from_secs(1), to_reach: Duration::ZERO, later: Duration::from_secs(60) };

    /// For commands that people wait for: a second for a head that is just restarting, a few for a broken link, a minute once it was
    /// there.
    pub const COMMAND: Self =
        Self { at_first: Duration::from_secs(1), to_reach: Duration::from_secs(5), later: Duration::from_secs(60) };

    /// For commands that wait for hours anyway.
    pub const WATCH: Self =
        Self { at_first: Duration::from_secs(1), to_reach: Duration::from_secs(20), later: Duration::from_secs(600) };
}

/// What a client tells whoever watches it.
#[derive(Debug)]
pub enum Outage<'a> {
    /// The head went away; the call will be tried again.
    Begins(&'a ClientError),
    /// It is back.
    Over,
}

/// The tries of one call.
#[derive(Debug)]
pub(crate) struct Tries {
    patience: Patience,
    began: Option<Instant>,
    pauses: u32,
    announced: bool,
}

impl Tries {
    pub(crate) fn new(patience: Patience) -> Self {
        Self { patience, began: None, pauses: 0, announced: false }
    }

    /// Pauses before the next try.
    ///
    /// # Errors
    /// Gives `error` back when it will not go away, or patience has run out.
    pub(crate) async fn pause(&mut self, error: ClientError, was_connected: bool) -> Result<ClientError, ClientError> {
        let limit = if was_connected {
            self.patience.later
        } else {
            match &error {
                ClientError::Connect { failure: ConnectFailure::StaleSocket, .. } => self.patience.at_first,
                ClientError::Connect { failure: ConnectFailure::Unreachable, .. } => self.patience.to_reach,
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

    /// Whether the outage has just become long enough to be mentioned: true once for each outage.
    pub(crate) fn becomes_worth_a_word(&mut self) -> bool {
        let is_long = self.pauses >= PAUSES_BEFORE_A_WORD;
        is_long && !std::mem::replace(&mut self.announced, true)
    }

    /// The head answered. Says whether there had been an outage worth a word; the next one is a new one.
    pub(crate) fn end(&mut self) -> bool {
        std::mem::replace(self, Self::new(self.patience)).announced
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
    async fn patience_depends_on_what_was_there_before() {
        let mut tries = Tries::new(Patience::COMMAND);
        assert!(tries.pause(error(ConnectFailure::NoSocket), false).await.is_err(), "never there");
        assert!(tries.pause(error(ConnectFailure::StaleSocket), false).await.is_ok(), "may be restarting");
        assert!(
            tries.pause(error(ConnectFailure::Unreachable), false).await.is_ok(),
            "the link may be cut for a moment"
        );
        assert!(tries.pause(error(ConnectFailure::NoSocket), true).await.is_ok(), "was there a moment ago");
        assert!(tries.pause(error(ConnectFailure::NotAllowed), true).await.is_err(), "waiting does not help");
        assert!(Tries::new(Patience::NONE).pause(error(ConnectFailure::NoSocket), true).await.is_err());
    }

    #[tokio::test]
    async fn an_outage_is_mentioned_once() {
        let mut tries = Tries::new(Patience::COMMAND);
        let mut words = 0;
        for _ in 0..PAUSES_BEFORE_A_WORD + 2 {
            tries.pause(error(ConnectFailure::NoSocket), true).await.expect("patient");
            words += u32::from(tries.becomes_worth_a_word());
        }
        assert_eq!(words, 1);
        assert!(tries.end() && !tries.end());
    }
}
