//! The guard: a separate process that rolls back an unconfirmed change. It does not depend on the terminal, connection
//! or process that started the change.

use std::time::Duration;

use super::error::GatewayError;
use super::gateway::Gateway;
use super::process::Process;
use super::records::Trial;

/// Interval between checks. A guard runs for about a minute.
const PAUSE: Duration = Duration::from_millis(100);

const FILE: &str = "guarding.json";

impl Gateway {
    /// Watches the change with this token, which is about to begin. Rolls the change back if the change is interrupted,
    /// or is not confirmed in time.
    ///
    /// # Errors
    /// A record cannot be read or written.
    pub fn guard(&self, token: &str) -> Result<(), GatewayError> {
        let this = Process::this();
        self.records
            .write_text(FILE, &serde_json::to_string(&(token, this)).expect("plain data serializes to JSON"))?;
        while self.watch(token)? {
            std::thread::sleep(PAUSE);
        }
        self.records.remove(FILE)
    }

    /// Checks the change once. Returns whether to continue watching.
    fn watch(&self, token: &str) -> Result<bool, GatewayError> {
        let is_ours = |trial: &Trial| trial.token == token;
        let trial = self.records.read::<Trial>()?.filter(is_ours);
        if trial.is_some_and(|trial| trial.deadline_ms.is_some() && !trial.is_over()) {
            return Ok(true);
        }
        // The process that applies the change holds the lock. If the lock is free and the change is incomplete, that
        // process has died.
        let Some(_lock) = self.records.try_lock()? else { return Ok(true) };
        let Some(trial) = self.records.read::<Trial>()?.filter(is_ours) else { return Ok(false) };
        let why = match trial.deadline_ms {
            None => "the process that applied the change was killed before it finished",
            Some(_) if trial.is_over() => "the change was not confirmed in time",
            Some(_) => return Ok(true),
        };
        self.roll_back(&trial, why)?;
        Ok(false)
    }

    /// The guard of the change with this token.
    pub(super) fn guard_of(&self, token: &str) -> Result<Option<Process>, GatewayError> {
        let Some(text) = self.records.read_text(FILE)? else { return Ok(None) };
        let guarding: Option<(String, Option<Process>)> = serde_json::from_str(&text).ok();
        Ok(guarding.filter(|(of, _)| of == token).and_then(|(_, process)| process))
    }
}
