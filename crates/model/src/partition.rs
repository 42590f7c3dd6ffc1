//! Partitions: named parts of a cluster. Patterns of node names select their nodes.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::text::text_schema;
use crate::{NodeName, ParseError};

/// The name of a partition: up to 63 letters, digits, `-`, `_`, `.` and `+`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(try_from = "String", into = "String")]
#[schema(value_type = String, pattern = "^[A-Za-z0-9][A-Za-z0-9_.+-]{0,62}$")]
pub struct PartitionName(Arc<str>);

impl PartitionName {
    /// Returns the name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for PartitionName {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let valid = (1..=63).contains(&text.len())
            && text.starts_with(|c: char| c.is_ascii_alphanumeric())
            && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.+".contains(c));
        if valid {
            Ok(Self(text.into()))
        } else {
            Err(ParseError::new(text, "the name of a partition: up to 63 letters, digits, `-`, `_`, `.` and `+`"))
        }
    }
}

impl TryFrom<String> for PartitionName {
    type Error = ParseError;

    fn try_from(text: String) -> Result<Self, ParseError> {
        text.parse()
    }
}

impl From<PartitionName> for String {
    fn from(name: PartitionName) -> Self {
        name.0.as_ref().to_owned()
    }
}

impl fmt::Display for PartitionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// Whether a partition accepts and starts jobs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PartitionState {
    /// Jobs are accepted and start.
    #[default]
    Open,
    /// Jobs are accepted and wait.
    Paused,
    /// No jobs are accepted; jobs that already wait still start.
    Closed,
}

impl PartitionState {
    /// Returns the state as a word in output and on the command line.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Paused => "paused",
            Self::Closed => "closed",
        }
    }
}

impl fmt::Display for PartitionState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for PartitionState {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let found = [Self::Open, Self::Paused, Self::Closed].into_iter().find(|state| state.as_str() == text);
        found.ok_or_else(|| ParseError::new(text, "open, paused or closed"))
    }
}

/// Whether the jobs of a partition run in a sandbox.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SandboxRule {
    /// Jobs that ask for a sandbox get one.
    #[default]
    Optional,
    /// Every job gets a sandbox. Jobs that a sandbox cannot run are refused.
    Always,
}

impl SandboxRule {
    /// Returns the rule as a word in output and on the command line.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Optional => "optional",
            Self::Always => "always",
        }
    }

    /// Returns whether jobs may do without a sandbox.
    #[must_use]
    pub fn is_optional(&self) -> bool {
        *self == Self::Optional
    }
}

impl fmt::Display for SandboxRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for SandboxRule {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let found = [Self::Optional, Self::Always].into_iter().find(|rule| rule.as_str() == text);
        found.ok_or_else(|| ParseError::new(text, "optional or always"))
    }
}

/// Whether the jobs of a partition have their nodes to themselves.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case", from = "StoredExclusiveRule")]
pub enum ExclusiveRule {
    /// Jobs that ask for it, with `--exclusive`.
    #[default]
    Optional,
    /// Every job, without asking.
    Always,
    /// No job. Those that ask for it are refused.
    Never,
}

/// What records have: older ones say whether the rule is `always`.
#[derive(Deserialize)]
#[serde(untagged)]
enum StoredExclusiveRule {
    IsAlways(bool),
    Rule(ExclusiveWord),
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum ExclusiveWord {
    Optional,
    Always,
    Never,
}

impl From<StoredExclusiveRule> for ExclusiveRule {
    fn from(stored: StoredExclusiveRule) -> Self {
        match stored {
            StoredExclusiveRule::IsAlways(true) | StoredExclusiveRule::Rule(ExclusiveWord::Always) => Self::Always,
            StoredExclusiveRule::IsAlways(false) | StoredExclusiveRule::Rule(ExclusiveWord::Optional) => Self::Optional,
            StoredExclusiveRule::Rule(ExclusiveWord::Never) => Self::Never,
        }
    }
}

impl ExclusiveRule {
    /// All rules.
    pub const ALL: [Self; 3] = [Self::Optional, Self::Always, Self::Never];

    /// Returns the rule as a word in output and on the command line.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Optional => "optional",
            Self::Always => "always",
            Self::Never => "never",
        }
    }

    /// Returns whether each job decides for itself.
    #[must_use]
    pub fn is_optional(&self) -> bool {
        *self == Self::Optional
    }
}

impl fmt::Display for ExclusiveRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for ExclusiveRule {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        // Scripts may still have the words from before there was `never`.
        let word = match text {
            "yes" => "always",
            "no" => "optional",
            _ => text,
        };
        let found = Self::ALL.into_iter().find(|rule| rule.as_str() == word);
        found.ok_or_else(|| ParseError::new(text, "optional, always or never"))
    }
}

/// The network of a sandboxed job. A later one reaches more than an earlier one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SandboxNetwork {
    /// Loopback only, and one of the sandbox's own.
    #[default]
    None,
    /// Loopback, and the other nodes of the job.
    Job,
    /// That of the node.
    Host,
}

impl SandboxNetwork {
    /// Returns the network as a word in output and on the command line.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Job => "job",
            Self::Host => "host",
        }
    }

    /// Returns whether no other machine can be reached.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::None
    }
}

impl fmt::Display for SandboxNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for SandboxNetwork {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let found = [Self::None, Self::Job, Self::Host].into_iter().find(|network| network.as_str() == text);
        found.ok_or_else(|| ParseError::new(text, "none, job or host"))
    }
}

/// Patterns that match node names: `n1,n3`, `n[1-4,7]`, `gpu*`, or `*` for all. Numbers may have leading zeros:
/// `node[01-16]`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct NodePatterns {
    /// The patterns as the operator wrote them.
    text: Arc<str>,
    patterns: Vec<Pattern>,
}

/// A pattern for a node's name: pieces that match successive parts of the name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Pattern(Vec<Piece>);

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Piece {
    Letters(String),
    /// Matches any text, also the empty one.
    Star,
    /// Matches a number in one of these ranges.
    Number(Vec<NumberRange>),
}

/// Numbers from `first` to `last` with at least this many digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct NumberRange {
    first: u64,
    last: u64,
    digits: usize,
}

/// The maximum length of the patterns' text, in bytes.
const MAX_BYTES: usize = 4096;

/// The maximum number of pieces per pattern that can match in several ways, since matching tries all combinations.
const MAX_CHOICES: usize = 4;

const EXPECTED: &str = "a list of nodes such as n1,n3 or n[1-4,7] or gpu* or *";

impl NodePatterns {
    /// Returns whether a pattern matches the node.
    #[must_use]
    pub fn matches(&self, node: &NodeName) -> bool {
        self.patterns.iter().any(|pattern| matches(&pattern.0, node.as_str()))
    }
}

/// Returns whether a name consists of these pieces.
fn matches(pieces: &[Piece], name: &str) -> bool {
    match pieces {
        [] => name.is_empty(),
        [Piece::Letters(letters), rest @ ..] => {
            name.strip_prefix(letters.as_str()).is_some_and(|end| matches(rest, end))
        }
        // Names are ASCII, so every byte is a character boundary.
        [Piece::Star, rest @ ..] => (0..=name.len()).any(|at| matches(rest, &name[at..])),
        [Piece::Number(ranges), rest @ ..] => {
            let digits = name.len() - name.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            let is_number = |digits: usize| ranges.iter().any(|range| range.contains(&name[..digits]));
            (1..=digits).any(|digits| is_number(digits) && matches(rest, &name[digits..]))
        }
    }
}

impl NumberRange {
    fn contains(&self, digits: &str) -> bool {
        let is_as_written = digits.len() == self.digits || digits.len() > self.digits && !digits.starts_with('0');
        is_as_written && digits.parse().is_ok_and(|number| (self.first..=self.last).contains(&number))
    }

    fn parse(text: &str) -> Option<Self> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let is_number = |text: &str| (1..=18).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
        if !is_number(first) || !is_number(last) {
            return None;
        }
        let digits = if first.starts_with('0') { first.len() } else { 1 };
        let range = Self { first: first.parse().ok()?, last: last.parse().ok()?, digits };
        (range.first <= range.last).then_some(range)
    }
}

impl Pattern {
    fn parse(text: &str) -> Option<Self> {
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            let piece = match first {
                '*' => {
                    rest = &rest[1..];
                    Piece::Star
                }
                '[' => {
                    let (inner, after) = rest[1..].split_once(']')?;
                    rest = after;
                    Piece::Number(inner.split(',').map(NumberRange::parse).collect::<Option<_>>()?)
                }
                _ => {
                    let (letters, after) = rest.split_at(rest.find(['*', '[']).unwrap_or(rest.len()));
                    rest = after;
                    Piece::Letters(letters.to_owned())
                }
            };
            pieces.push(piece);
        }
        let is_of_name = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        let is_possible = |piece: &Piece| !matches!(piece, Piece::Letters(text) if !text.chars().all(is_of_name));
        let choices = pieces.iter().filter(|piece| !matches!(piece, Piece::Letters(_))).count();
        let is_good = !pieces.is_empty() && pieces.iter().all(is_possible) && choices <= MAX_CHOICES;
        is_good.then_some(Self(pieces))
    }
}

impl FromStr for NodePatterns {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let error = || ParseError::new(text, EXPECTED);
        if text.len() > MAX_BYTES {
            return Err(error());
        }
        // Commas within brackets do not separate patterns.
        let mut is_inside = false;
        let parts = text.split(|c| {
            is_inside = c == '[' || is_inside && c != ']';
            c == ',' && !is_inside
        });
        let patterns = parts.map(|part| Pattern::parse(part.trim())).collect::<Option<Vec<_>>>().ok_or_else(error)?;
        Ok(Self { text: text.trim().into(), patterns })
    }
}

text_schema!(
    NodePatterns,
    "node-patterns",
    r"^[A-Za-z0-9_.*\[\],-]{1,4096}$",
    "Patterns for names of nodes: `n1,n3`, `n[1-4,7]`, `gpu*`, or `*` for all. A range ends at or after its start, and a pattern \
     has at most four choices."
);

impl TryFrom<String> for NodePatterns {
    type Error = ParseError;

    fn try_from(text: String) -> Result<Self, ParseError> {
        text.parse()
    }
}

impl From<NodePatterns> for String {
    fn from(patterns: NodePatterns) -> Self {
        patterns.text.as_ref().to_owned()
    }
}

impl fmt::Display for NodePatterns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matched(patterns: &str, names: &[&str]) -> Vec<String> {
        let patterns: NodePatterns = patterns.parse().expect(patterns);
        let name = |text: &&str| text.parse::<NodeName>().expect("a name");
        names.iter().map(name).filter(|name| patterns.matches(name)).map(|name| name.to_string()).collect()
    }

    #[test]
    fn patterns_match_names_ranges_and_stars() {
        let names = ["n1", "n2", "n10", "n02", "m1", "n1-a", "gpu-a", "gpu"];
        assert_eq!(matched("n1, m1", &names), ["n1", "m1"]);
        assert_eq!(matched("n[1-4,10]", &names), ["n1", "n2", "n10"]);
        assert_eq!(matched("n[01-04]", &names), ["n02"]);
        assert_eq!(matched("gpu*", &names), ["gpu-a", "gpu"]);
        assert_eq!(matched("*-a", &names), ["n1-a", "gpu-a"]);
        assert_eq!(matched("n[1-2]*", &names), ["n1", "n2", "n10", "n1-a"]);
        assert_eq!(matched("*", &names).len(), names.len());
    }

    #[test]
    fn invalid_patterns_are_refused() {
        for text in ["", ",", "n1,", "n[1", "n1]", "n[]", "n[a]", "n[3-1]", "n 1", "n/1", "n[[1]]", "*a*b*c*d*e"] {
            assert!(text.parse::<NodePatterns>().is_err(), "{text}");
        }
        assert!("n,".repeat(3000).parse::<NodePatterns>().is_err(), "too long");
        assert_eq!("n[1-4,7]".parse::<NodePatterns>().map(String::from).as_deref(), Ok("n[1-4,7]"));
    }

    #[test]
    fn partition_names_and_states_parse() {
        for text in ["gpu", "long-jobs_2", "4th", "long.q", "gpu+cpu"] {
            assert_eq!(text.parse::<PartitionName>().map(String::from).as_deref(), Ok(text));
        }
        for text in ["", "-x", ".", "..", "+a", "a b", "a/b", "a,b", "ä"] {
            assert!(text.parse::<PartitionName>().is_err(), "{text}");
        }
        for state in [PartitionState::Open, PartitionState::Paused, PartitionState::Closed] {
            assert_eq!(state.as_str().parse(), Ok(state));
        }
        for rule in [SandboxRule::Optional, SandboxRule::Always] {
            assert_eq!(rule.as_str().parse(), Ok(rule));
        }
        assert!("yes".parse::<SandboxRule>().is_err());
        for rule in ExclusiveRule::ALL {
            assert_eq!(rule.as_str().parse(), Ok(rule));
            let json = serde_json::to_string(&rule).expect("JSON");
            assert_eq!((json.as_str(), serde_json::from_str(&json).ok()), (&*format!("\"{rule}\""), Some(rule)));
        }
        assert_eq!("yes".parse(), Ok(ExclusiveRule::Always));
        // Older records have a truth value.
        assert_eq!(serde_json::from_str("true").ok(), Some(ExclusiveRule::Always));
        assert_eq!(serde_json::from_str("false").ok(), Some(ExclusiveRule::Optional));
        assert!(serde_json::from_str::<ExclusiveRule>("\"sometimes\"").is_err());
        for network in [SandboxNetwork::None, SandboxNetwork::Job, SandboxNetwork::Host] {
            assert_eq!(network.as_str().parse(), Ok(network));
        }
        assert!("net".parse::<SandboxNetwork>().is_err());
        assert!(SandboxNetwork::None < SandboxNetwork::Job && SandboxNetwork::Job < SandboxNetwork::Host);
    }
}
