//! What takes an attempt back that nobody confirms: a process of its own, which needs neither the terminal nor the connection nor the
//! process from which the attempt came.

use std::time::Duration;

use super::Gateway;
use super::error::GatewayError;
use super::process::Process;
use super::records::Trial;

/// How often it looks whether the attempt is over. It lives for a minute or so.
const PAUSE: Duration = Duration::from_millis(100);

const FILE: &str = "guarding.json";

impl Gateway {
    /// Watches the attempt of this token, which is about to begin, and takes it back when it was interrupted or its time is up. Ends with it.
    ///
    /// # Errors
    /// When records cannot be read or written.
    pub fn guard(&self, token: &str) -> Result<(), GatewayError> {
        let this = Process::this();
        self.records.write_text(FILE, &serde_json::to_string(&(token, this)).expect("it is JSON"))?;
        while self.watch(token)? {
            std::thread::sleep(PAUSE);
        }
        self.records.remove(FILE)
    }

    /// Looks once; whether there is still something to watch.
    fn watch(&self, token: &str) -> Result<bool, GatewayError> {
        let is_ours = |trial: &Trial| trial.token == token;
        let trial = self.records.read::<Trial>()?.filter(is_ours);
        if trial.is_some_and(|trial| trial.deadline_ms.is_some() && !trial.is_over()) {
            return Ok(true);
        }
        // Whoever makes the change has the lock until it is made: with the lock free and the change not made, they are dead.
        let Some(_lock) = self.records.try_lock()? else { return Ok(true) };
        let Some(trial) = self.records.read::<Trial>()?.filter(is_ours) else { return Ok(false) };
        let why = match trial.deadline_ms {
            None => "whoever made it was killed before it was complete",
            Some(_) if trial.is_over() => "nobody confirmed it in time",
            Some(_) => return Ok(true),
        };
        self.go_back(&trial, why)?;
        Ok(false)
    }

    /// Who watches the attempt of this token.
    pub(super) fn guard_of(&self, token: &str) -> Result<Option<Process>, GatewayError> {
        let Some(text) = self.records.read_text(FILE)? else { return Ok(None) };
        let guarding: Option<(String, Option<Process>)> = serde_json::from_str(&text).ok();
        Ok(guarding.filter(|(of, _)| of == token).and_then(|(_, process)| process))
    }
}
