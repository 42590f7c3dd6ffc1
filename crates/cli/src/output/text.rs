//! Parts of text views: lines with a key, lists, dates, energy.

use std::fmt::Write as _;
use std::str::FromStr;
use std::time::Duration;

use hostler_client::{Client, ClientError};
use hostler_model::{GpuId, ParseError, WallTime, format_duration, parse_duration};
use hostler_proto::power::JobEnergy;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

use super::table::one_line;

/// The time and time zone of a view.
#[derive(Debug, Clone)]
pub(crate) struct Moment {
    pub(crate) now: WallTime,
    /// Time zone for dates.
    pub(crate) zone: TimeZone,
}

impl Moment {
    /// Now, in the user's time zone.
    pub(crate) fn now() -> Self {
        Self { now: WallTime(jiff::Timestamp::now().as_millisecond()), zone: TimeZone::system() }
    }

    /// The head's time, from which times count that it sends: this machine's clock may be wrong.
    pub(crate) async fn of_head(client: &Client) -> Result<Self, ClientError> {
        Ok(Self { now: client.me().await?.now, zone: TimeZone::system() })
    }

    /// This moment by a clock that is ahead.
    pub(crate) fn ahead_by(self, ms: i64) -> Self {
        Self { now: WallTime(self.now.0.saturating_add(ms)), ..self }
    }

    /// The time at which `since` begins.
    pub(crate) fn start_of(&self, since: Since) -> WallTime {
        match since {
            Since::Ago(ago) => WallTime(self.now.0.saturating_sub(i64::try_from(ago.as_millis()).unwrap_or(i64::MAX))),
            Since::Date(date) => match date.to_zoned(self.zone.clone()) {
                Ok(at) => WallTime(at.timestamp().as_millisecond()),
                Err(_) => WallTime(0),
            },
        }
    }

    /// Date and time of day.
    pub(crate) fn date(&self, at: WallTime) -> String {
        match jiff::Timestamp::from_millisecond(at.0) {
            Ok(at) => at.to_zoned(self.zone.clone()).strftime("%Y-%m-%d %H:%M:%S").to_string(),
            Err(_) => "unknown".to_owned(),
        }
    }

    /// Time of day with the time zone.
    pub(crate) fn clock(&self, at: WallTime) -> String {
        match jiff::Timestamp::from_millisecond(at.0) {
            Ok(at) => at.to_zoned(self.zone.clone()).strftime("%H:%M:%S %Z").to_string(),
            Err(_) => "unknown".to_owned(),
        }
    }

    /// The time from `start` to `end`, or to now.
    pub(crate) fn span(&self, start: WallTime, end: Option<WallTime>) -> String {
        format_duration(span(start, end.unwrap_or(self.now)))
    }
}

/// The value of `--since`: a time before now, or a date, with or without the time of day.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Since {
    Ago(Duration),
    Date(DateTime),
}

impl FromStr for Since {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        match (parse_duration(text), text.parse()) {
            (Ok(ago), _) => Ok(Self::Ago(ago)),
            // jiff would ignore an offset.
            (Err(_), Ok(date)) if !text.contains('+') => Ok(Self::Date(date)),
            (Err(_), _) => {
                Err(ParseError::new(text, "a time such as 12h or 7d, or a date such as 2026-12-24 or 2026-12-24T18:00"))
            }
        }
    }
}

/// The time between two readings of the wall clock; 0 if it was set back.
pub(super) fn span(from: WallTime, to: WallTime) -> Duration {
    Duration::from_millis(to.0.saturating_sub(from.0).try_into().unwrap_or(0))
}

/// Lines of the form `key   value`.
#[derive(Default)]
pub struct Lines {
    pub(super) text: String,
}

impl Lines {
    pub fn into_text(self) -> String {
        self.text
    }

    pub fn add(&mut self, key: &str, value: impl AsRef<str>) {
        let value = one_line(value.as_ref());
        writeln!(self.text, "{key:<10} {value}").expect("strings can always be written to");
    }

    pub fn add_some(&mut self, key: &str, value: Option<impl AsRef<str>>) {
        if let Some(value) = value {
            self.add(key, value);
        }
    }
}

/// Words separated by commas, or `-`.
pub(crate) fn words<'a, T: std::fmt::Display + 'a>(all: impl IntoIterator<Item = &'a T>) -> String {
    let all: Vec<String> = all.into_iter().map(ToString::to_string).collect();
    if all.is_empty() { "-".to_owned() } else { all.join(",") }
}

/// The ids of the GPUs, if any.
pub(super) fn held_gpus(ids: &[GpuId]) -> Option<String> {
    let ids: Vec<&str> = ids.iter().map(GpuId::as_str).collect();
    (!ids.is_empty()).then(|| ids.join(", "))
}

/// E.g. `camera 1 of 1 free, license 8 of 10 free`; `None` if there are no resources.
pub(super) fn counted<'a>(all: impl Iterator<Item = (&'a str, u64)>, free: impl Fn(&str) -> u64) -> Option<String> {
    let parts: Vec<String> = all.map(|(name, count)| format!("{name} {} of {count} free", free(name))).collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// E.g. `1.2 Wh, estimated`.
pub(super) fn job_energy(energy: &JobEnergy) -> String {
    let by = match energy.measured_joules {
        0 => ", estimated".to_owned(),
        measured if measured >= energy.joules => ", measured".to_owned(),
        measured => format!(", of which {} measured", watt_hours(measured)),
    };
    format!("{}{by}", watt_hours(energy.joules))
}

fn watt_hours(joules: u64) -> String {
    match joules {
        0..3_600 => format!("{:.2} Wh", joules as f64 / 3_600.0),
        3_600..360_000 => format!("{:.1} Wh", joules as f64 / 3_600.0),
        _ => kwh(joules / 3_600),
    }
}

/// Energy, rounded.
pub(super) fn kwh(watt_hours: u64) -> String {
    if watt_hours < 1_000 { format!("{watt_hours} Wh") } else { format!("{:.1} kWh", watt_hours as f64 / 1_000.0) }
}
