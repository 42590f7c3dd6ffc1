//! Limits of commands.

/// The largest number of dependencies of a job. Each is looked up, possibly in the store, before the submission is decided.
pub(super) const MAX_DEPENDENCIES: usize = 1_000;

/// The longest reason for a drain or a block, in characters.
pub(super) const MAX_REASON_CHARACTERS: usize = 500;

/// Whether a text is a valid reason: one line of limited length.
pub(super) fn is_reason(text: &str) -> bool {
    text.chars().count() <= MAX_REASON_CHARACTERS && !text.contains(char::is_control)
}
