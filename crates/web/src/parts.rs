//! Parts that many pages show: states, times, bars and buttons. Each is a template of its own, so it escapes its texts
//! itself, and pages insert it with `{{ part }}`.

use std::time::Duration;

use askama::Template;
use askama::filters::HtmlSafe;
use hostler_model::{JobState, NodeState, WallTime, format_duration};
use hostler_proto::api::JobSummary;
use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::url::Url;

/// Colour of a state. The text always says the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tone {
    Good,
    Active,
    Waiting,
    Bad,
    Muted,
}

impl Tone {
    /// Class in the style sheet.
    pub(crate) const fn class(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Active => "active",
            Self::Waiting => "waiting",
            Self::Bad => "bad",
            Self::Muted => "muted",
        }
    }
}

/// A state as a coloured label.
#[derive(Debug, Clone, Template)]
#[template(source = "<span class=\"badge {{ tone.class() }}\">{{ text }}</span>", ext = "html")]
pub(crate) struct Badge {
    pub(crate) text: String,
    pub(crate) tone: Tone,
}

impl HtmlSafe for Badge {}

impl Badge {
    pub(crate) fn new(text: impl Into<String>, tone: Tone) -> Self {
        Self { text: text.into(), tone }
    }

    /// The state of a job or task.
    pub(crate) fn job(state: JobState) -> Self {
        let tone = match state {
            JobState::Pending => Tone::Waiting,
            JobState::Starting | JobState::Running | JobState::Completing => Tone::Active,
            JobState::Completed => Tone::Good,
            _ if state.is_failure() => Tone::Bad,
            _ => Tone::Muted,
        };
        Self::new(state.as_str().replace('_', " "), tone)
    }

    /// The state of a job, or `unknown` while its node is silent.
    pub(crate) fn shown(job: &JobSummary) -> Self {
        match job.shown_state() {
            "unknown" => Self::new("unknown", Tone::Waiting),
            _ => Self::job(job.state),
        }
    }

    /// The state of a node.
    pub(crate) fn node(state: NodeState) -> Self {
        let tone = match state {
            NodeState::Up => Tone::Good,
            NodeState::Waking | NodeState::Stopping => Tone::Active,
            NodeState::Suspect | NodeState::Draining => Tone::Waiting,
            NodeState::Down => Tone::Bad,
            NodeState::Off | NodeState::Drained | NodeState::Removed => Tone::Muted,
        };
        Self::new(state.as_str(), tone)
    }
}

/// A time, as text for people and as `datetime` for programs.
#[derive(Debug, Clone, Template)]
#[template(source = "<time datetime=\"{{ machine }}\" title=\"{{ title }}\">{{ text }}</time>", ext = "html")]
pub(crate) struct Time {
    machine: String,
    title: String,
    text: String,
}

impl HtmlSafe for Time {}

/// How [`Time`] shows a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// `2026-03-14 15:09:26 CET`.
    Full,
    /// `5m03s ago` or `in 5m03s`; the full time is the tooltip.
    Relative,
    /// `for 5m03s`, for a time in the past; the full time is the tooltip.
    Duration,
}

impl Time {
    pub(crate) fn new(at: WallTime, now: Timestamp, zone: &TimeZone, shape: Shape) -> Self {
        let at = Timestamp::from_millisecond(at.0).unwrap_or(now);
        let full = at.to_zoned(zone.clone()).strftime("%Y-%m-%d %H:%M:%S %Z").to_string();
        let text = match shape {
            Shape::Full => full.clone(),
            Shape::Relative => relative(now.as_millisecond() - at.as_millisecond()),
            Shape::Duration => format!("for {}", seconds(now.as_millisecond() - at.as_millisecond())),
        };
        Self { machine: at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(), title: full, text }
    }
}

/// A span before (positive) or after now, in milliseconds, as text.
fn relative(ms: i64) -> String {
    let span = seconds(ms);
    match ms {
        ..=-1000 => format!("in {span}"),
        -999..1000 => "just now".to_owned(),
        _ => format!("{span} ago"),
    }
}

/// The length of a span of milliseconds in whole seconds: a tenth of a second is noise on a page.
fn seconds(ms: i64) -> String {
    let seconds = ms.unsigned_abs() / 1000;
    if seconds < 60 { format!("{seconds}s") } else { format_duration(Duration::from_secs(seconds)) }
}

/// A bar that shows which share of an amount is used, or when something happened.
#[derive(Debug, Clone, Template)]
#[template(path = "parts/bar.html")]
pub(crate) struct Bar {
    label: String,
    /// Where the used share begins, of 100.
    from: f64,
    /// Used share of 100.
    used: f64,
}

impl HtmlSafe for Bar {}

impl Bar {
    /// `label` says the same in words, for screen readers.
    pub(crate) fn new(label: impl Into<String>, used: u64, total: u64) -> Self {
        Self::between(label, 0, used, total)
    }

    /// A piece of the bar, from one amount to another one.
    pub(crate) fn between(label: impl Into<String>, from: u64, to: u64, total: u64) -> Self {
        let share = |amount: u64| if total == 0 { 0.0 } else { amount.min(total) as f64 * 100.0 / total as f64 };
        let [from, to] = [from, to].map(|amount| (share(amount) * 10.0).round() / 10.0);
        Self { label: label.into(), from, used: ((to - from).max(0.0) * 10.0).round() / 10.0 }
    }
}

/// A button that sends a form.
#[derive(Debug, Clone, Template)]
#[template(path = "parts/action.html")]
pub(crate) struct Action {
    url: Url,
    label: String,
    token: String,
    fields: Vec<(String, String)>,
    question: Option<String>,
}

impl HtmlSafe for Action {}

impl Action {
    /// A button with this label that posts to `url`. `token` is [`crate::page::Frame::token`].
    pub(crate) fn new(url: Url, label: impl Into<String>, token: impl Into<String>) -> Self {
        Self { url, label: label.into(), token: token.into(), fields: Vec::new(), question: None }
    }

    /// Adds a hidden field.
    pub(crate) fn field(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.fields.push((name.into(), value.into()));
        self
    }

    /// Asks before the action. The button first opens the question; a second button acts.
    pub(crate) fn confirm(mut self, question: impl Into<String>) -> Self {
        self.question = Some(question.into());
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn html(part: &impl Template) -> String {
        part.render().expect("templates write to memory")
    }

    #[test]
    fn parts_escape_their_texts() {
        let evil = "<script>alert(\"1\")</script>'";
        let action = Action::new(Url::of(["jobs", evil]), evil, evil).field(evil, evil).confirm(evil);
        for text in [html(&Badge::new(evil, Tone::Bad)), html(&Bar::new(evil, 1, 2)), html(&action)] {
            assert!(!text.contains("<script") && !text.contains("alert(\""), "{text}");
        }
    }

    #[test]
    fn times_have_a_zone_and_a_machine_form() {
        let now = Timestamp::from_second(1_800_000_000).expect("in range");
        let at = WallTime(1_800_000_000_000 - 303_000);
        let time = Time::new(at, now, &TimeZone::UTC, Shape::Relative);
        assert_eq!(
            html(&time),
            "<time datetime=\"2027-01-15T07:54:57Z\" title=\"2027-01-15 07:54:57 UTC\">5m03s ago</time>"
        );
        let time = Time::new(at, now, &TimeZone::UTC, Shape::Duration);
        assert!(html(&time).ends_with(">for 5m03s</time>"), "{}", html(&time));
        assert_eq!(relative(-61_000), "in 1m01s");
        assert_eq!(relative(0), "just now");
        assert_eq!(relative(3_900), "3s ago");
    }

    #[test]
    fn bars_stay_in_their_frame() {
        for (used, total, share) in [(0, 0, 0.0), (1, 3, 33.3), (9, 3, 100.0)] {
            assert!((Bar::new("", used, total).used - share).abs() < 0.01);
        }
        let piece = Bar::between("", 1, 3, 4);
        assert_eq!((piece.from, piece.used), (25.0, 50.0));
        let late = Bar::between("", 9, 12, 4);
        assert_eq!((late.from, late.used), (100.0, 0.0));
    }
}
