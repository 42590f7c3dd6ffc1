//! States of jobs: names and codes.

/// The state of a job or of one of its tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names are those of Slurm")]
pub enum State {
    Pending,
    Running,
    Suspended,
    Completing,
    Completed,
    Cancelled,
    Failed,
    Timeout,
    NodeFail,
    Preempted,
    OutOfMemory,
}

/// Each state with its name and its code.
const NAMES: &[(State, &str, &str)] = &[
    (State::Pending, "PENDING", "PD"),
    (State::Running, "RUNNING", "R"),
    (State::Suspended, "SUSPENDED", "S"),
    (State::Completing, "COMPLETING", "CG"),
    (State::Completed, "COMPLETED", "CD"),
    (State::Cancelled, "CANCELLED", "CA"),
    (State::Failed, "FAILED", "F"),
    (State::Timeout, "TIMEOUT", "TO"),
    (State::NodeFail, "NODE_FAIL", "NF"),
    (State::Preempted, "PREEMPTED", "PR"),
    (State::OutOfMemory, "OUT_OF_MEMORY", "OOM"),
];

/// States that Slurm knows and no job of this cluster has. Filters may name them.
const OTHERS: &[(&str, &str)] = &[
    ("BOOT_FAIL", "BF"),
    ("CONFIGURING", "CF"),
    ("DEADLINE", "DL"),
    ("LAUNCH_FAILED", "LF"),
    ("REQUEUED", "RQ"),
    ("REQUEUE_FED", "RF"),
    ("REQUEUE_HOLD", "RH"),
    ("RESIZING", "RS"),
    ("RESV_DEL_HOLD", "RD"),
    ("REVOKED", "RV"),
    ("SIGNALING", "SI"),
    ("SPECIAL_EXIT", "SE"),
    ("STAGE_OUT", "SO"),
    ("STOPPED", "ST"),
];

impl State {
    /// The states that `squeue` lists by default.
    pub const OF_QUEUE: [Self; 4] = [Self::Pending, Self::Running, Self::Suspended, Self::Completing];

    /// Returns the name, such as `RUNNING`.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.texts().0
    }

    /// Returns the code, such as `R`.
    #[must_use]
    pub fn code(self) -> &'static str {
        self.texts().1
    }

    fn texts(self) -> (&'static str, &'static str) {
        let found = NAMES.iter().find(|(state, ..)| *state == self);
        found.map_or(("UNKNOWN", "??"), |(_, name, code)| (*name, *code))
    }

    /// Whether the job or task has ended.
    #[must_use]
    pub const fn is_ended(self) -> bool {
        !matches!(self, Self::Pending | Self::Running | Self::Suspended | Self::Completing)
    }
}

/// Parses a list of names and codes of states, in upper or lower case. `None` stands for all states. States that no job of
/// this cluster has are left out.
///
/// # Errors
/// Returns the first word that is not a state.
pub fn parse_list(list: &str) -> Result<Option<Vec<State>>, String> {
    let mut states = Vec::new();
    for word in list.split(',').map(str::trim).filter(|word| !word.is_empty()) {
        let is = |text: &str| text.eq_ignore_ascii_case(word);
        if is("all") {
            return Ok(None);
        }
        match NAMES.iter().find(|(_, name, code)| is(name) || is(code)) {
            Some((state, ..)) => states.push(*state),
            None if OTHERS.iter().any(|(name, code)| is(name) || is(code)) => {}
            None => return Err(word.to_owned()),
        }
    }
    Ok(Some(states))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_have_names_and_codes() {
        assert_eq!(parse_list("pd,RUNNING,oom"), Ok(Some(vec![State::Pending, State::Running, State::OutOfMemory])));
        assert_eq!(parse_list("PD,CF,RF,RH,RQ,SE"), Ok(Some(vec![State::Pending])));
        assert_eq!((parse_list("r,all"), parse_list("CF")), (Ok(None), Ok(Some(Vec::new()))));
        assert_eq!(parse_list("R,soon"), Err("soon".to_owned()));
    }

    #[test]
    fn every_state_has_a_name_and_a_code() {
        assert!(NAMES.iter().all(|(state, name, code)| (state.name(), state.code()) == (*name, *code)));
        assert!(State::OF_QUEUE.iter().all(|state| !state.is_ended()) && State::Timeout.is_ended());
    }
}
