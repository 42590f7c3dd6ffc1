//! The filter of a list: `user:` and `state:` select at the head, other words in the rows that the head has sent.

use hostler_model::JobState;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Filter {
    /// As typed.
    pub(super) text: String,
    pub(super) user: Option<String>,
    pub(super) states: Vec<JobState>,
    /// Words that a row must contain, in lower case.
    words: Vec<String>,
}

impl Filter {
    pub(super) fn parse(text: &str) -> Self {
        let mut filter = Self { text: text.to_owned(), ..Self::default() };
        for word in text.split_whitespace() {
            if let Some(user) = word.strip_prefix("user:") {
                filter.user = Some(user.to_owned()).filter(|user| !user.is_empty());
            } else if let Some(states) = word.strip_prefix("state:") {
                // A state that is not typed completely selects nothing yet.
                filter.states = states.split(',').filter_map(|state| state.parse().ok()).collect();
            } else {
                filter.words.push(word.to_lowercase());
            }
        }
        filter
    }

    /// Whether every word is in one of these fields.
    pub(super) fn matches<'a>(&self, fields: &(impl Iterator<Item = &'a str> + Clone)) -> bool {
        self.words.iter().all(|word| fields.clone().any(|field| field.to_lowercase().contains(word)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_prefixes_select_at_the_head_and_words_in_rows() {
        let filter = Filter::parse("user:ada Train state:failed,time gpu");
        assert_eq!((filter.user.as_deref(), filter.states.as_slice()), (Some("ada"), &[JobState::Failed][..]));
        assert!(filter.matches(&["training", "node-GPU"].into_iter()));
        assert!(!filter.matches(&["training"].into_iter()));
        assert_eq!(Filter::parse("user: state:").user, None);
        assert!(Filter::parse("  ").matches(&[].into_iter()));
    }
}
