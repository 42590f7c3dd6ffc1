//! What was tried, and what came of it.

use serde::Serialize;

use crate::output::table::{Align, Table};

/// The promises in the order in which they were first tried.
#[derive(Debug, Default)]
pub(super) struct Report(Vec<Promise>);

/// A promise to students, with all attempts to break it.
#[derive(Debug, Serialize)]
pub(super) struct Promise {
    promise: String,
    /// How it was tried.
    tried: String,
    result: Result,
    attempts: Vec<Attempt>,
}

/// One attempt.
#[derive(Debug, Serialize)]
struct Attempt {
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<String>,
    result: Result,
    /// Why the promise is broken, or was not tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

/// The result of an attempt or, for a promise, the worst of its attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
enum Result {
    Kept,
    NotTried,
    Broken,
}

/// Result of one attempt, with the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Finding {
    Kept,
    NotTried(String),
    Broken(String),
}

impl Finding {
    /// A promise that is kept if `is_kept`, and else broken for this reason.
    pub(super) fn of(is_kept: bool, why_not: impl FnOnce() -> String) -> Self {
        if is_kept { Self::Kept } else { Self::Broken(why_not()) }
    }

    /// The worse of two findings; the first if they are alike.
    pub(super) fn and(self, other: Self) -> Self {
        match (&self, &other) {
            (Self::Broken(_), _) | (_, Self::Kept) => self,
            (_, Self::Broken(_)) | (Self::Kept, _) => other,
            (Self::NotTried(_), Self::NotTried(_)) => self,
        }
    }
}

impl Report {
    /// Adds an attempt on a promise.
    pub(super) fn add(&mut self, promise: &str, tried: &str, node: Option<&str>, finding: Finding) {
        let (result, why) = match finding {
            Finding::Kept => (Result::Kept, None),
            Finding::NotTried(why) => (Result::NotTried, Some(why)),
            Finding::Broken(why) => (Result::Broken, Some(why)),
        };
        let attempt = Attempt { node: node.map(str::to_owned), result, why };
        let index = self.0.iter().position(|known| known.promise == promise).unwrap_or_else(|| {
            let new = Promise { promise: promise.to_owned(), tried: tried.to_owned(), result, attempts: Vec::new() };
            self.0.push(new);
            self.0.len() - 1
        });
        let known = &mut self.0[index];
        known.result = known.result.max(result);
        known.attempts.push(attempt);
    }

    /// Adds promises, with how they are tried, that could not be tried.
    pub(super) fn untried(&mut self, node: Option<&str>, promises: &[(&str, &str)], why: &str) {
        for (promise, tried) in promises {
            self.add(promise, tried, node, Finding::NotTried(why.to_owned()));
        }
    }

    pub(super) fn promises(&self) -> &[Promise] {
        &self.0
    }

    pub(super) fn is_broken(&self) -> bool {
        self.0.iter().any(|promise| promise.result == Result::Broken)
    }

    pub(super) fn is_complete(&self) -> bool {
        self.0.iter().all(|promise| promise.result != Result::NotTried)
    }

    /// A line for each promise, and below it one for each attempt on a node that was not successful.
    pub(super) fn table(&self, width: Option<usize>) -> String {
        let mut table = Table::new(&[("RESULT", Align::Left), ("PROMISE", Align::Left), ("TRIED", Align::Left)]);
        for promise in &self.0 {
            table.row([promise.words(), promise.promise.clone(), promise.tried.clone()]);
        }
        let mut text = table.render(width);
        for promise in self.0.iter().filter(|promise| promise.result != Result::Kept) {
            for Attempt { node, result, why } in
                promise.attempts.iter().filter(|attempt| attempt.result != Result::Kept)
            {
                let node = node.as_ref().map(|node| format!(" on {node}")).unwrap_or_default();
                let why = why.as_deref().unwrap_or_default();
                text.push_str(&format!("{}{node}: {}: {why}\n", result.word(), promise.promise));
            }
        }
        text
    }
}

impl Promise {
    /// E.g. `kept`, `kept on 12 nodes` or `broken on 1 of 12 nodes`.
    fn words(&self) -> String {
        let of_result = self.attempts.iter().filter(|attempt| attempt.result == self.result).count();
        let (word, all) = (self.result.word(), self.attempts.len());
        match self.attempts.iter().all(|attempt| attempt.node.is_some()) {
            true if of_result == all && all == 1 => format!("{word} on 1 node"),
            true if of_result == all => format!("{word} on {all} nodes"),
            true => format!("{word} on {of_result} of {all} nodes"),
            false => word.to_owned(),
        }
    }
}

impl Result {
    const fn word(self) -> &'static str {
        match self {
            Self::Kept => "kept",
            Self::NotTried => "not tried",
            Self::Broken => "broken",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worst_attempt_decides_and_is_explained() {
        let mut report = Report::default();
        report.add("no network", "connect to the head", Some("n1"), Finding::Kept);
        report.add("no network", "connect to the head", Some("n2"), Finding::NotTried("n2 is down".to_owned()));
        assert!(!report.is_broken() && !report.is_complete());
        report.add("quotas", "read the quotas", None, Finding::of(false, || "ada has none".to_owned()));
        report.add("limits", "use too much", Some("n1"), Finding::of(true, String::new));
        assert!(report.is_broken());
        let expected = "\
RESULT                  PROMISE     TRIED
not tried on 1 of 2 nodes  no network  connect to the head
broken                  quotas      read the quotas
kept on 1 node          limits      use too much
not tried on n2: no network: n2 is down
broken: quotas: ada has none
";
        let squeeze = |text: &str| text.split(' ').filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
        assert_eq!(squeeze(&report.table(None)), squeeze(expected));
        let json = serde_json::to_value(report.promises()).expect("plain data");
        assert_eq!(json[0]["result"], "not_tried");
        assert_eq!(json[1]["attempts"][0]["why"], "ada has none");
    }
}
