//! Features of nodes, and constraints of jobs on them.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::ParseError;

/// A feature of some nodes: a word such as `ssd` or `rack-2`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(try_from = "String", into = "String")]
#[schema(value_type = String, pattern = "^[A-Za-z0-9][A-Za-z0-9._:+-]{0,62}$")]
pub struct Feature(Arc<str>);

impl Feature {
    /// Returns the feature as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Feature {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let valid = (1..=63).contains(&text.len())
            && text.starts_with(|c: char| c.is_ascii_alphanumeric())
            && text.chars().all(is_of_feature);
        if valid {
            Ok(Self(text.into()))
        } else {
            Err(ParseError::new(text, "a feature: up to 63 letters, digits, `-`, `_`, `.`, `:` and `+`"))
        }
    }
}

const fn is_of_feature(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':' | '+')
}

impl TryFrom<String> for Feature {
    type Error = ParseError;

    fn try_from(text: String) -> Result<Self, ParseError> {
        text.parse()
    }
}

impl From<Feature> for String {
    fn from(feature: Feature) -> Self {
        feature.0.as_ref().to_owned()
    }
}

/// Allows lookups by text in sets of features.
impl std::borrow::Borrow<str> for Feature {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A condition on the features of nodes, such as `ssd&!old` or `(intel|amd)&rack-2`. A job may use only nodes that
/// satisfy it.
///
/// `&` binds more tightly than `|`, and a comma means `&`. A node's name is also one of its features. The pattern shows
/// one level of parentheses; the head also accepts deeper levels and spaces between the parts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(try_from = "String", into = "String")]
#[schema(
    value_type = String,
    format = "node-constraint",
    max_length = 1000,
    pattern = "^!?([A-Za-z0-9][A-Za-z0-9._:+-]{0,62}|\\(!?[A-Za-z0-9][A-Za-z0-9._:+-]{0,62}([&|,]!?[A-Za-z0-9][A-Za-z0-9._:+-]{0,62})*\\))([&|,]!?([A-Za-z0-9][A-Za-z0-9._:+-]{0,62}|\\(!?[A-Za-z0-9][A-Za-z0-9._:+-]{0,62}([&|,]!?[A-Za-z0-9][A-Za-z0-9._:+-]{0,62})*\\)))*$"
)]
pub struct Constraint(Box<Term>);

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Term {
    Has(Feature),
    Not(Box<Term>),
    All(Vec<Term>),
    Any(Vec<Term>),
}

/// The longest constraint, in bytes.
const MAX_BYTES: usize = 1000;

/// The maximum nesting depth of parentheses and negations.
const MAX_DEPTH: u32 = 32;

const EXPECTED: &str = "a constraint on the features of nodes, such as ssd, ssd&!old or (intel|amd)&rack-2";

impl Constraint {
    /// Returns whether a node satisfies the constraint. `has` returns whether the node has a feature.
    pub fn holds(&self, has: impl Fn(&Feature) -> bool) -> bool {
        self.0.holds(&has)
    }

    /// Returns a constraint that demands a feature in addition to `before`. The result may be [too large](Self::is_readable).
    #[must_use]
    pub fn demanding(before: Option<Self>, feature: Feature) -> Self {
        let demanded = Term::Has(feature);
        let mut terms = match before.map(|before| *before.0) {
            None => Vec::new(),
            Some(Term::All(terms)) => terms,
            Some(term) => vec![term],
        };
        if !terms.contains(&demanded) {
            terms.push(demanded);
        }
        Self(Box::new(alone_or(terms, Term::All)))
    }

    /// Returns whether the constraint's text is within the limits of length and depth. Constraints are stored and sent as text,
    /// so nobody could read a larger one again.
    #[must_use]
    pub fn is_readable(&self) -> bool {
        self.to_string().parse::<Self>().is_ok()
    }

    /// Returns every feature in the constraint.
    #[must_use]
    pub fn features(&self) -> BTreeSet<&Feature> {
        let mut all = BTreeSet::new();
        self.0.collect(&mut all);
        all
    }
}

impl Term {
    fn holds(&self, has: &impl Fn(&Feature) -> bool) -> bool {
        match self {
            Self::Has(feature) => has(feature),
            Self::Not(term) => !term.holds(has),
            Self::All(terms) => terms.iter().all(|term| term.holds(has)),
            Self::Any(terms) => terms.iter().any(|term| term.holds(has)),
        }
    }

    fn collect<'a>(&'a self, all: &mut BTreeSet<&'a Feature>) {
        match self {
            Self::Has(feature) => {
                all.insert(feature);
            }
            Self::Not(term) => term.collect(all),
            Self::All(terms) | Self::Any(terms) => terms.iter().for_each(|term| term.collect(all)),
        }
    }

    /// Writes the term. Adds parentheses if the surrounding operator binds at least as tightly as the term's own.
    fn write(&self, f: &mut fmt::Formatter<'_>, around: Binding) -> fmt::Result {
        let (own, separator, terms) = match self {
            Self::Has(feature) => return f.write_str(feature.as_str()),
            Self::Not(term) => {
                f.write_str("!")?;
                return term.write(f, Binding::Not);
            }
            Self::All(terms) => (Binding::All, "&", terms),
            Self::Any(terms) => (Binding::Any, "|", terms),
        };
        let in_parentheses = own <= around;
        f.write_str(if in_parentheses { "(" } else { "" })?;
        for (at, term) in terms.iter().enumerate() {
            f.write_str(if at == 0 { "" } else { separator })?;
            term.write(f, own)?;
        }
        f.write_str(if in_parentheses { ")" } else { "" })
    }
}

/// The precedence of an operator; the loosest operator comes first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Binding {
    Whole,
    Any,
    All,
    Not,
}

impl fmt::Display for Constraint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.write(f, Binding::Whole)
    }
}

impl FromStr for Constraint {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let mut parser = Parser { rest: text.trim(), depth: 0 };
        let term = (text.len() <= MAX_BYTES).then(|| parser.any()).flatten();
        match term {
            Some(term) if parser.rest.is_empty() => Ok(Self(Box::new(term))),
            _ => Err(ParseError::new(text, EXPECTED)),
        }
    }
}

impl TryFrom<String> for Constraint {
    type Error = ParseError;

    fn try_from(text: String) -> Result<Self, ParseError> {
        text.parse()
    }
}

impl From<Constraint> for String {
    fn from(constraint: Constraint) -> Self {
        constraint.to_string()
    }
}

/// A recursive-descent parser. Each method consumes one construct from the start of `rest`, or returns `None`.
struct Parser<'a> {
    rest: &'a str,
    depth: u32,
}

impl Parser<'_> {
    fn any(&mut self) -> Option<Term> {
        let terms = self.list(Self::all, &['|'])?;
        Some(alone_or(terms, Term::Any))
    }

    fn all(&mut self) -> Option<Term> {
        let terms = self.list(Self::one, &['&', ','])?;
        Some(alone_or(terms, Term::All))
    }

    fn one(&mut self) -> Option<Term> {
        if self.take(&['!']) {
            return self.deeper(Self::one).map(|term| Term::Not(Box::new(term)));
        }
        if self.take(&['(']) {
            let inner = self.deeper(Self::any)?;
            return self.take(&[')']).then_some(inner);
        }
        let end = self.rest.find(|c| !is_of_feature(c)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest.trim_start();
        word.parse().ok().map(Term::Has)
    }

    fn list(&mut self, part: fn(&mut Self) -> Option<Term>, separators: &[char]) -> Option<Vec<Term>> {
        let mut terms = vec![part(self)?];
        while self.take(separators) {
            terms.push(part(self)?);
        }
        Some(terms)
    }

    fn deeper(&mut self, part: fn(&mut Self) -> Option<Term>) -> Option<Term> {
        self.depth += 1;
        let term = if self.depth > MAX_DEPTH { None } else { part(self) };
        self.depth -= 1;
        term
    }

    fn take(&mut self, any_of: &[char]) -> bool {
        let Some(rest) = self.rest.strip_prefix(any_of) else { return false };
        self.rest = rest.trim_start();
        true
    }
}

fn alone_or(mut terms: Vec<Term>, several: fn(Vec<Term>) -> Term) -> Term {
    if terms.len() == 1 { terms.remove(0) } else { several(terms) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(constraint: &str, features: &[&str]) -> bool {
        let constraint: Constraint = constraint.parse().expect(constraint);
        constraint.holds(|feature| features.contains(&feature.as_str()))
    }

    #[test]
    fn and_binds_more_tightly_than_or() {
        assert!(holds("a|b&c", &["a"]));
        assert!(!holds("a|b&c", &["b"]));
        assert!(holds("a | b , c", &["b", "c"]));
        assert!(!holds("(a|b)&c", &["a"]));
        assert!(holds("!a&!(b|c)", &["d"]) && !holds("!a&!(b|c)", &["c"]));
    }

    #[test]
    fn constraints_round_trip_through_text() {
        for (text, written) in [
            (" ssd ", "ssd"),
            ("a,b", "a&b"),
            ("((a|b))&c", "(a|b)&c"),
            ("!(a&b)|c", "!(a&b)|c"),
            ("!!a", "!!a"),
            ("(a&b)|c", "a&b|c"),
            ("gpu:h200+nvlink", "gpu:h200+nvlink"),
        ] {
            let constraint: Constraint = text.parse().expect(text);
            assert_eq!(constraint.to_string(), written);
            assert_eq!(written.parse(), Ok(constraint), "{written}");
        }
    }

    #[test]
    fn invalid_and_too_deep_constraints_are_refused() {
        for text in ["", "&", "a&", "|a", "a b", "(a", "a)", "!", "[a]", "a==b", "ä"] {
            assert!(text.parse::<Constraint>().is_err(), "{text}");
        }
        let deep = |levels: usize| format!("{}a{}", "(".repeat(levels), ")".repeat(levels));
        assert!(deep(32).parse::<Constraint>().is_ok());
        assert!(deep(33).parse::<Constraint>().is_err());
        assert!("!".repeat(900).parse::<Constraint>().is_err());
        assert!("a&".repeat(600).parse::<Constraint>().is_err(), "too long");
    }

    #[test]
    fn demanded_feature_is_added_once() {
        let demanding = |before: Option<&str>| {
            let before = before.map(|text| text.parse().expect("a constraint"));
            Constraint::demanding(before, "x".parse().expect("a feature")).to_string()
        };
        assert_eq!(demanding(None), "x");
        assert_eq!(demanding(Some("x")), "x");
        assert_eq!(demanding(Some("a|b")), "(a|b)&x");
        assert_eq!(demanding(Some("(a|b)&x")), "(a|b)&x");
        assert_eq!(demanding(Some("a&b")), "a&b&x");
        assert_eq!(demanding(Some("x|a")), "(x|a)&x");
    }

    #[test]
    fn features_are_listed_once() {
        let constraint: Constraint = "a&!(b|a)".parse().expect("a constraint");
        let names: Vec<&str> = constraint.features().into_iter().map(Feature::as_str).collect();
        assert_eq!(names, ["a", "b"]);
    }
}
