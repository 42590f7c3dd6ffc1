//! Subscriptions: where a job's owner wants notifications, and about which of the job's events.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::text::text_schema;
use crate::{ParseError, parse_duration};

/// The longest address of a subscription, in bytes: the longest mail address.
const MAX_ADDRESS_BYTES: usize = 254;

/// The shortest and the longest wait that a subscription may report, in milliseconds.
const WAITS_MS: std::ops::RangeInclusive<u64> = 1_000..=90 * 86_400_000;

const EXPECTED: &str = "a notification such as mail:ada@example.org, chat=failure or chat=start,end,wait:2h";

/// The name of a destination that an admin has defined: up to 63 letters, digits, `-` and `_`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(try_from = "String", into = "String")]
#[schema(value_type = String, pattern = "^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$")]
pub struct DestinationName(Arc<str>);

impl DestinationName {
    /// Returns the name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for DestinationName {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let is_valid = (1..=63).contains(&text.len())
            && text.starts_with(|c: char| c.is_ascii_alphanumeric())
            && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c));
        if is_valid {
            Ok(Self(text.into()))
        } else {
            Err(ParseError::new(text, "the name of a destination: up to 63 letters, digits, `-` and `_`"))
        }
    }
}

impl TryFrom<String> for DestinationName {
    type Error = ParseError;

    fn try_from(text: String) -> Result<Self, ParseError> {
        text.parse()
    }
}

impl From<DestinationName> for String {
    fn from(name: DestinationName) -> Self {
        name.0.as_ref().to_owned()
    }
}

impl fmt::Display for DestinationName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// An event of a job that a subscription may name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum JobOccasion {
    /// The job's first task has started.
    Start,
    /// The job's last task has ended, in any way.
    End,
    /// The job has ended and has failed: neither completed nor cancelled.
    Failure,
    /// The job has waited for the subscription's time and none of its tasks has started.
    Wait,
}

/// A request of a job's owner for notifications. Its text form is `DESTINATION[:ADDRESS][=EVENTS]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Subscription {
    /// The destination, which an admin has defined.
    pub to: DestinationName,
    /// The address at the destination, e.g. a mail address.
    pub address: Option<String>,
    /// Whether to report the job's start.
    pub start: bool,
    /// Whether to report the job's end.
    pub end: bool,
    /// Whether to report a failure of the job.
    pub failure: bool,
    /// The time after which to report that the job still waits, in milliseconds.
    pub wait_ms: Option<u64>,
}

impl Subscription {
    /// Returns whether the subscription names an event.
    #[must_use]
    pub const fn wants(&self, occasion: JobOccasion) -> bool {
        match occasion {
            JobOccasion::Start => self.start,
            JobOccasion::End => self.end,
            JobOccasion::Failure => self.failure,
            JobOccasion::Wait => self.wait_ms.is_some(),
        }
    }
}

impl FromStr for Subscription {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let wrong = || ParseError::new(text, EXPECTED);
        let (target, events) = match text.split_once('=') {
            Some((target, events)) => (target, Some(events)),
            None => (text, None),
        };
        let (to, address) = match target.split_once(':') {
            Some((to, address)) => (to, Some(address)),
            None => (target, None),
        };
        let is_address = |address: &&str| {
            (1..=MAX_ADDRESS_BYTES).contains(&address.len()) && address.bytes().all(|byte| byte.is_ascii_graphic())
        };
        if address.is_some_and(|address| !is_address(&address)) {
            return Err(wrong());
        }
        if address.is_none() && to.contains('@') {
            return Err(ParseError::new(to, format!("the name of a destination; for a mail address, write mail:{to}")));
        }
        let mut subscription = Self {
            to: to.parse()?,
            address: address.map(str::to_owned),
            start: false,
            end: events.is_none(),
            failure: false,
            wait_ms: None,
        };
        for event in events.into_iter().flat_map(|events| events.split(',')) {
            match event.split_once(':') {
                None if event == "start" => subscription.start = true,
                None if event == "end" => subscription.end = true,
                None if event == "failure" => subscription.failure = true,
                Some(("wait", time)) => {
                    let wait_ms = u64::try_from(parse_duration(time)?.as_millis()).unwrap_or(u64::MAX);
                    if !WAITS_MS.contains(&wait_ms) {
                        return Err(ParseError::new(time, "a wait from 1s to 90d"));
                    }
                    subscription.wait_ms = Some(wait_ms);
                }
                _ => return Err(ParseError::new(event, "an event: start, end, failure or wait:TIME")),
            }
        }
        Ok(subscription)
    }
}

impl fmt::Display for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.to)?;
        if let Some(address) = &self.address {
            write!(f, ":{address}")?;
        }
        let wait = self.wait_ms.map(|ms| format!("wait:{}", exact(ms)));
        let events = [(self.start, "start"), (self.end, "end"), (self.failure, "failure")];
        let events = events.into_iter().filter(|(is_wanted, _)| *is_wanted).map(|(_, name)| name);
        let mut separator = '=';
        for event in events.chain(wait.as_deref()) {
            write!(f, "{separator}{event}")?;
            separator = ',';
        }
        Ok(())
    }
}

/// Writes a time with the largest unit that loses nothing, because stored jobs contain the text.
fn exact(ms: u64) -> String {
    let units = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s")];
    let unit = units.into_iter().find(|(unit, _)| ms.is_multiple_of(*unit));
    let (unit, name) = unit.unwrap_or((1, "ms"));
    format!("{}{name}", ms / unit)
}

impl TryFrom<String> for Subscription {
    type Error = ParseError;

    fn try_from(text: String) -> Result<Self, ParseError> {
        text.parse()
    }
}

impl From<Subscription> for String {
    fn from(subscription: Subscription) -> Self {
        subscription.to_string()
    }
}

text_schema!(
    Subscription,
    "notification",
    r"^[A-Za-z0-9][A-Za-z0-9_-]{0,62}(:[!-<>-~]{1,254})?(=(start|end|failure|wait:([1-9][0-9]{0,5}s|[1-9][0-9]{0,4}m|[1-9][0-9]{0,2}h|[1-8]?[1-9]d))(,(start|end|failure|wait:([1-9][0-9]{0,5}s|[1-9][0-9]{0,4}m|[1-9][0-9]{0,2}h|[1-8]?[1-9]d)))*)?$",
    "A destination that an admin has defined, an address there if it needs one, and the events to report, such as \
     `mail:ada@example.org` or `chat=start,failure,wait:2h`. Without events: `end`. Of several waits, the last one counts."
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subscriptions_are_parsed_and_written_back() {
        for (text, written) in [
            ("chat", "chat=end"),
            ("mail:ada@example.org", "mail:ada@example.org=end"),
            ("chat=failure,start", "chat=start,failure"),
            ("chat=wait:120m", "chat=wait:2h"),
            ("mail:a:b@x=end,wait:1m30s", "mail:a:b@x=end,wait:90s"),
            ("chat=wait:1d1h1m1.5s", "chat=wait:90061500ms"),
        ] {
            let parsed: Subscription = text.parse().expect(text);
            assert_eq!(parsed.to_string(), written);
            assert_eq!(written.parse(), Ok(parsed));
        }
    }

    #[test]
    fn invalid_subscriptions_are_refused() {
        let long = format!("mail:{}", "x".repeat(255));
        for text in [
            "",
            ":ada",
            "mail:",
            "mail:a b@x",
            "mail:a@x\r\nBcc: eve@x",
            "chat=",
            "chat=done",
            "chat=wait",
            "chat=wait:soon",
            "chat=wait:0s",
            "a/b",
            &long,
        ] {
            assert!(text.parse::<Subscription>().is_err(), "{text:?}");
        }
    }
}
