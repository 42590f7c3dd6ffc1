//! Rank expressions: a user's or an operator's own measure for comparing nodes, such as `load * load_weight`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::ParseError;

/// Longest text of an expression, in bytes. Bounds the depth of its parentheses.
const LONGEST: usize = 500;

const EXPECTED: &str = "an expression such as load * load_weight + 2 * (1 - free_memory / memory)";

/// An expression whose value ranks a node for a command: the lowest value is best.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Rank {
    text: String,
    /// The expression in postfix order.
    steps: Vec<Step>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Step {
    Number(f64),
    Value(RankValue),
    Negate,
    Apply(Operator),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    Plus,
    Minus,
    Times,
    Over,
    Min,
    Max,
}

/// A property of a node that an expression can name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RankValue {
    /// The load average of the last minute.
    Load,
    /// The number of busy CPUs.
    Busy,
    /// The number of CPUs that the node offers.
    Cpus,
    /// Memory that a command could get, in MiB.
    FreeMemory,
    /// Memory that the node offers, in MiB.
    Memory,
    /// Share of the time in which work waited for a CPU, 0 to 1.
    CpuPressure,
    /// Share of the time in which work waited for memory, 0 to 1.
    MemoryPressure,
    /// Share of the time in which work waited for IO, 0 to 1.
    IoPressure,
    /// The node's load weight.
    LoadWeight,
    /// The node's memory weight.
    MemoryWeight,
    /// The number of commands that were just sent to the node.
    UnderWay,
    /// The node's usual score, 1 for an idle node.
    Score,
}

impl RankValue {
    /// All values, in the order of the documentation.
    pub const ALL: [Self; 12] = [
        Self::Load,
        Self::Busy,
        Self::Cpus,
        Self::FreeMemory,
        Self::Memory,
        Self::CpuPressure,
        Self::MemoryPressure,
        Self::IoPressure,
        Self::LoadWeight,
        Self::MemoryWeight,
        Self::UnderWay,
        Self::Score,
    ];

    /// The value's name in expressions.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Load => "load",
            Self::Busy => "busy",
            Self::Cpus => "cpus",
            Self::FreeMemory => "free_memory",
            Self::Memory => "memory",
            Self::CpuPressure => "cpu_pressure",
            Self::MemoryPressure => "memory_pressure",
            Self::IoPressure => "io_pressure",
            Self::LoadWeight => "load_weight",
            Self::MemoryWeight => "memory_weight",
            Self::UnderWay => "under_way",
            Self::Score => "score",
        }
    }
}

impl Rank {
    /// Computes the expression. The result can be infinite or no number, e.g. after a division by zero.
    #[must_use]
    pub fn compute(&self, value: impl Fn(RankValue) -> f64) -> f64 {
        let mut stack = Vec::with_capacity(self.steps.len());
        let pop = |stack: &mut Vec<f64>| stack.pop().expect("the parser orders operands before operators");
        for step in &self.steps {
            let result = match step {
                Step::Number(number) => *number,
                Step::Value(named) => value(*named),
                Step::Negate => -pop(&mut stack),
                Step::Apply(operator) => {
                    let (right, left) = (pop(&mut stack), pop(&mut stack));
                    match operator {
                        Operator::Plus => left + right,
                        Operator::Minus => left - right,
                        Operator::Times => left * right,
                        Operator::Over => left / right,
                        Operator::Min => left.min(right),
                        Operator::Max => left.max(right),
                    }
                }
            };
            stack.push(result);
        }
        pop(&mut stack)
    }
}

impl FromStr for Rank {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        if text.len() > LONGEST {
            return Err(ParseError::new(text, format!("an expression of at most {LONGEST} bytes")));
        }
        let mut parser = Parser { text, rest: text, steps: Vec::new() };
        parser.sum()?;
        if !parser.rest().is_empty() {
            return Err(parser.error());
        }
        Ok(Self { text: text.to_owned(), steps: parser.steps })
    }
}

/// Parses by recursive descent: sums of products of factors.
struct Parser<'a> {
    text: &'a str,
    rest: &'a str,
    steps: Vec<Step>,
}

impl<'a> Parser<'a> {
    fn sum(&mut self) -> Result<(), ParseError> {
        self.chain(&[('+', Operator::Plus), ('-', Operator::Minus)], Self::product)
    }

    fn product(&mut self) -> Result<(), ParseError> {
        self.chain(&[('*', Operator::Times), ('/', Operator::Over)], Self::factor)
    }

    /// Parses one or more operands with operators between them.
    fn chain(
        &mut self,
        operators: &[(char, Operator)],
        operand: fn(&mut Self) -> Result<(), ParseError>,
    ) -> Result<(), ParseError> {
        operand(self)?;
        while let Some((_, operator)) = operators.iter().find(|(sign, _)| self.take(*sign)) {
            operand(self)?;
            self.steps.push(Step::Apply(*operator));
        }
        Ok(())
    }

    fn factor(&mut self) -> Result<(), ParseError> {
        if self.take('-') {
            self.factor()?;
            self.steps.push(Step::Negate);
            return Ok(());
        }
        if self.take('(') {
            self.sum()?;
            return self.demand(')');
        }
        let word = self.word(|c| c.is_ascii_alphanumeric() || c == '_' || c == '.');
        if word.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
            let number =
                word.parse().map_err(|_| ParseError::new(self.text, format!("numbers such as 0.5, not {word}")))?;
            self.steps.push(Step::Number(number));
            return Ok(());
        }
        let function = [("min", Operator::Min), ("max", Operator::Max)].into_iter().find(|(name, _)| *name == word);
        if let Some((_, operator)) = function {
            self.demand('(')?;
            self.sum()?;
            self.demand(',')?;
            self.sum()?;
            self.demand(')')?;
            self.steps.push(Step::Apply(operator));
            return Ok(());
        }
        match RankValue::ALL.into_iter().find(|value| value.name() == word) {
            Some(value) => self.steps.push(Step::Value(value)),
            None if word.is_empty() => return Err(self.error()),
            None => {
                let known: Vec<&str> = RankValue::ALL.iter().map(|value| value.name()).collect();
                let expected = format!("names from {}, or min(a, b) and max(a, b), not {word}", known.join(", "));
                return Err(ParseError::new(self.text, expected));
            }
        }
        Ok(())
    }

    /// The rest of the text, after spaces.
    fn rest(&mut self) -> &'a str {
        self.rest = self.rest.trim_start();
        self.rest
    }

    fn take(&mut self, sign: char) -> bool {
        let after = self.rest().strip_prefix(sign);
        self.rest = after.unwrap_or(self.rest);
        after.is_some()
    }

    fn demand(&mut self, sign: char) -> Result<(), ParseError> {
        if self.take(sign) { Ok(()) } else { Err(self.error()) }
    }

    fn word(&mut self, belongs: fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let (word, after) = rest.split_at(rest.find(|c| !belongs(c)).unwrap_or(rest.len()));
        self.rest = after;
        word
    }

    /// The error at the present place.
    fn error(&self) -> ParseError {
        let place = match self.rest {
            "" => "it ends too early".to_owned(),
            rest => format!("it is wrong from {rest:?}"),
        };
        ParseError::new(self.text, format!("{EXPECTED}; {place}"))
    }
}

/// Expressions with the same text are equal.
impl PartialEq for Rank {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Rank {}

impl fmt::Display for Rank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl TryFrom<String> for Rank {
    type Error = ParseError;

    fn try_from(text: String) -> Result<Self, ParseError> {
        text.parse()
    }
}

impl From<Rank> for String {
    fn from(rank: Rank) -> Self {
        rank.text
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn value(text: &str) -> f64 {
        let rank: Rank = text.parse().expect(text);
        rank.compute(|value| match value {
            RankValue::Load => 0.5,
            RankValue::LoadWeight => 2.0,
            RankValue::FreeMemory => 256.0,
            RankValue::Memory => 1024.0,
            _ => 0.0,
        })
    }

    #[test]
    fn expressions_have_the_usual_precedence() {
        for (text, expected) in [
            ("load", 0.5),
            (" load*load_weight + 2 * (1 - free_memory / memory) ", 2.5),
            ("1 - 2 - 3", -4.0),
            ("8 / 2 / 2", 2.0),
            ("-load + - - 1", 0.5),
            ("max(load, 1) + min(2, .5)", 1.5),
            ("((((1))))", 1.0),
        ] {
            assert!((value(text) - expected).abs() < 1e-9, "{text}: {}", value(text));
        }
        assert!(value("1 / busy").is_infinite() && value("busy / busy").is_nan());
    }

    #[test]
    fn errors_say_what_is_wrong() {
        for (text, named) in [
            ("", "ends too early"),
            ("load *", "ends too early"),
            ("load load", "wrong from \"load\""),
            ("(load", "ends too early"),
            ("load)", "wrong from \")\""),
            ("lod + 1", "not lod"),
            ("1.2.3", "not 1.2.3"),
            ("max(1)", "wrong from \")\""),
            ("load ^ 2", "wrong from \"^ 2\""),
        ] {
            let error = text.parse::<Rank>().expect_err(text).to_string();
            assert!(error.contains(named), "{text}: {error}");
        }
        assert!("(".repeat(LONGEST + 1).parse::<Rank>().is_err() && "(".repeat(LONGEST).parse::<Rank>().is_err());
        let deep = format!("{}1{}", "(".repeat(249), ")".repeat(249));
        assert!((value(&deep) - 1.0).abs() < 1e-9);
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_refused(text in "[-+*/(), .0-9a-z_é]{0,60}") {
            if let Ok(rank) = text.parse::<Rank>() {
                let _ = rank.compute(|_| 0.0);
            }
        }
    }
}
