//! Outcomes of actions. A form's answer redirects to a page, and that page shows the outcome.
//!
//! The outcome waits in memory under a number, which the page's address contains. So its text cannot be forged by a
//! link, and it may be longer than a cookie. Only the user who acted sees it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

/// Number of outcomes to keep. The oldest is dropped first.
const KEPT: usize = 256;

/// Maximum number of lines of an outcome.
const MAX_LINES: usize = 100;

/// The outcome of an action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Notice {
    /// Whether the action succeeded completely.
    pub(crate) is_good: bool,
    /// What happened, one sentence per line.
    pub(crate) lines: Vec<String>,
}

impl Notice {
    /// The action succeeded.
    pub(crate) fn good(line: impl Into<String>) -> Self {
        Self { is_good: true, lines: vec![line.into()] }
    }

    /// The action failed, at least partly.
    pub(crate) fn bad(mut lines: Vec<String>) -> Self {
        let more = lines.len().saturating_sub(MAX_LINES);
        if more > 0 {
            lines.truncate(MAX_LINES);
            lines.push(format!("{more} more lines are not shown."));
        }
        Self { is_good: false, lines }
    }
}

/// The outcomes that pages may show.
#[derive(Debug, Default)]
pub(crate) struct Notices {
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    last: u64,
    notices: VecDeque<(u64, String, Arc<Notice>)>,
}

impl Notices {
    /// Stores an outcome for a user and returns its number.
    pub(crate) fn keep(&self, user: &str, notice: Notice) -> u64 {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.last += 1;
        let number = kept.last;
        kept.notices.push_back((number, user.to_owned(), Arc::new(notice)));
        if kept.notices.len() > KEPT {
            kept.notices.pop_front();
        }
        number
    }

    /// The outcome with this number, if it belongs to the user.
    pub(crate) fn find(&self, user: &str, number: u64) -> Option<Arc<Notice>> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let found = kept.notices.iter().find(|(of, owner, _)| *of == number && owner == user);
        found.map(|(.., notice)| Arc::clone(notice))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_user_who_acted_sees_an_outcome() {
        let notices = Notices::default();
        let number = notices.keep("ada", Notice::good("Job 1 is cancelled."));
        assert!(notices.find("ada", number).is_some_and(|notice| notice.is_good));
        assert!(notices.find("bob", number).is_none());
        assert!(notices.find("ada", number + 1).is_none());
    }

    #[test]
    fn oldest_outcomes_are_dropped() {
        let notices = Notices::default();
        let first = notices.keep("ada", Notice::good("first"));
        for _ in 0..KEPT {
            notices.keep("ada", Notice::good("more"));
        }
        assert!(notices.find("ada", first).is_none());
        assert!(notices.find("ada", first + 1).is_some());
    }
}
