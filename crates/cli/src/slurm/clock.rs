//! Times, as Slurm's commands write and read them.

use hostler_model::WallTime;
use jiff::civil::{Date, DateTime, Time};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan, Zoned};

/// The usual form of a time.
const STANDARD: &str = "%Y-%m-%dT%H:%M:%S";

/// Writes times in the time zone and the form that the user chose.
#[derive(Debug, Clone)]
pub(crate) struct Clock {
    zone: TimeZone,
    form: Form,
    pub(crate) now: WallTime,
}

#[derive(Debug, Clone)]
enum Form {
    Pattern(String),
    /// Only what differs from now.
    Relative,
}

impl Clock {
    /// The clock of this process: now, its time zone, and the form in `SLURM_TIME_FORMAT`.
    pub(crate) fn of_process() -> Self {
        let form = match std::env::var("SLURM_TIME_FORMAT").ok().as_deref() {
            None | Some("" | "standard") => Form::Pattern(STANDARD.to_owned()),
            Some("relative") => Form::Relative,
            Some(pattern) => Form::Pattern(pattern.to_owned()),
        };
        Self { zone: TimeZone::system(), form, now: WallTime(Timestamp::now().as_millisecond()) }
    }

    fn zoned(&self, at: WallTime) -> Option<Zoned> {
        Some(Timestamp::from_millisecond(at.0).ok()?.to_zoned(self.zone.clone()))
    }

    /// Writes a time.
    pub(crate) fn write(&self, at: WallTime) -> String {
        let Some(time) = self.zoned(at) else { return "Unknown".to_owned() };
        match &self.form {
            Form::Pattern(pattern) => write(&time, pattern),
            Form::Relative => write(&time, self.relative(&time)),
        }
    }

    fn relative(&self, time: &Zoned) -> &'static str {
        let Some(now) = self.zoned(self.now) else { return STANDARD };
        let (day, today) = (time.date(), now.date());
        let days = today.until(day).map_or(i32::MAX, |span| span.get_days());
        match days {
            0 => "%H:%M:%S",
            -1 => "Ystday %H:%M",
            1 => "Tomorr %H:%M",
            -6..=6 => "%a %H:%M",
            _ if day.year() == today.year() => "%-d %b %H:%M",
            _ => "%-d %b %Y",
        }
    }

    /// Writes the current time as the shell command `date` does.
    pub(crate) fn date_line(&self) -> String {
        self.zoned(self.now).map(|now| write(&now, "%a %b %d %H:%M:%S %Y")).unwrap_or_default()
    }

    /// Parses a time of a period, such as `2026-01-02T03:04`, `010226`, `12:30`, `now-1hour` or `midnight`.
    pub(crate) fn parse(&self, text: &str) -> Option<WallTime> {
        let now = self.zoned(self.now)?;
        let at = parse(text, &now)?;
        Some(WallTime(at.timestamp().as_millisecond()))
    }

    /// The last midnight.
    pub(crate) fn midnight(&self) -> WallTime {
        let start = self.zoned(self.now).and_then(|now| now.start_of_day().ok());
        start.map_or(self.now, |start| WallTime(start.timestamp().as_millisecond()))
    }
}

/// Writes a time; with the usual form if the pattern is not valid.
fn write(time: &Zoned, pattern: &str) -> String {
    let written = jiff::fmt::strtime::format(pattern, time);
    written.unwrap_or_else(|_| time.strftime(STANDARD).to_string())
}

fn parse(text: &str, now: &Zoned) -> Option<Zoned> {
    let text = text.trim();
    for (sign, factor) in [('+', 1), ('-', -1)] {
        if let Some(span) = text.strip_prefix("now").and_then(|rest| rest.strip_prefix(sign)) {
            return shift(now, span, factor);
        }
    }
    let start = |at: Zoned| at.start_of_day().ok();
    let at = |hour: i8| now.with().time(Time::constant(hour, 0, 0, 0)).build().ok();
    match text {
        "now" => return Some(now.clone()),
        "today" | "midnight" => return start(now.clone()),
        "tomorrow" => return start(now.checked_add(1.day()).ok()?),
        "noon" => return at(12),
        "fika" => return at(15),
        "teatime" => return at(16),
        _ => {}
    }
    let zone = now.time_zone().clone();
    // A date and a time: `DATE`, `DATETtime`, and `DATE-time` as some programs write it.
    let split = [text.split_once('T'), text.match_indices('-').nth(2).map(|(at, _)| (&text[..at], &text[at + 1..]))];
    for (date, time) in split.into_iter().flatten() {
        if let (Some(date), Some(time)) = (parse_date(date, now), parse_time(time)) {
            return DateTime::from_parts(date, time).to_zoned(zone).ok();
        }
    }
    if let Some(time) = parse_time(text) {
        return DateTime::from_parts(now.date(), time).to_zoned(zone).ok();
    }
    parse_date(text, now)?.to_zoned(zone).ok()
}

/// Parses `YYYY-MM-DD`, `MMDDYY`, `MM/DD/YY`, `MM.DD.YY`, or these without the year.
fn parse_date(text: &str, now: &Zoned) -> Option<Date> {
    if let Ok(date) = text.parse::<Date>() {
        return Some(date);
    }
    let number = |text: &str| text.parse::<i16>().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()));
    let parts: Vec<&str> = match text.len() {
        4 | 6 if number(text.get(..4)?).is_some() => {
            (0..text.len() / 2).map(|part| &text[2 * part..2 * part + 2]).collect()
        }
        _ => text.split(['/', '.']).collect(),
    };
    let parts = parts.into_iter().map(number).collect::<Option<Vec<_>>>()?;
    let (month, day, year) = match parts.as_slice() {
        [month, day] => (month, day, now.date().year()),
        [month, day, year] => (month, day, if *year < 100 { 2000 + year } else { *year }),
        _ => return None,
    };
    Date::new(year, i8::try_from(*month).ok()?, i8::try_from(*day).ok()?).ok()
}

/// Parses `HH:MM` or `HH:MM:SS`, with an optional `AM` or `PM`.
fn parse_time(text: &str) -> Option<Time> {
    let upper = text.to_ascii_uppercase();
    let (clock, half) = match (upper.strip_suffix("AM"), upper.strip_suffix("PM")) {
        (Some(clock), _) => (clock.trim_end(), Some(0)),
        (_, Some(clock)) => (clock.trim_end(), Some(12)),
        _ => (upper.as_str(), None),
    };
    let parts = clock.split(':').map(|part| part.parse::<i8>().ok()).collect::<Option<Vec<_>>>()?;
    let (hour, minute, second) = match parts.as_slice() {
        [hour, minute] => (*hour, *minute, 0),
        [hour, minute, second] => (*hour, *minute, *second),
        // A time may lack its minutes after a date: `2026-01-02T03`.
        [hour] if clock.len() == 2 => (*hour, 0, 0),
        _ => return None,
    };
    let hour = half.map_or(Some(hour), |half| Some(hour % 12 + half))?;
    Time::new(hour, minute, second, 0).ok()
}

/// Shifts a time by a span such as `1hour`; without a unit, by seconds.
fn shift(now: &Zoned, span: &str, factor: i64) -> Option<Zoned> {
    let digits = span.bytes().take_while(u8::is_ascii_digit).count();
    let amount = factor.checked_mul(span[..digits].parse().ok()?)?;
    let unit = span[digits..].strip_suffix('s').filter(|unit| !unit.is_empty()).unwrap_or(&span[digits..]);
    let span = match unit {
        "" | "s" | "second" => jiff::Span::new().try_seconds(amount),
        "m" | "minute" => jiff::Span::new().try_minutes(amount),
        "h" | "hour" => jiff::Span::new().try_hours(amount),
        "d" | "day" => jiff::Span::new().try_days(amount),
        "w" | "week" => jiff::Span::new().try_weeks(amount),
        _ => return None,
    };
    now.checked_add(span.ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock(form: Form) -> Clock {
        let now: Timestamp = "2026-11-25T12:30:00Z".parse().expect("a time");
        Clock { zone: TimeZone::UTC, form, now: WallTime(now.as_millisecond()) }
    }

    #[test]
    fn times_are_parsed() {
        let clock = clock(Form::Pattern(STANDARD.to_owned()));
        for (text, at) in [
            ("now", "2026-11-25T12:30:00"),
            ("now-2hours", "2026-11-25T10:30:00"),
            ("now+90", "2026-11-25T12:31:30"),
            ("midnight", "2026-11-25T00:00:00"),
            ("2026-01-02", "2026-01-02T00:00:00"),
            ("2026-01-02T03:04", "2026-01-02T03:04:00"),
            ("2026-01-02T03:00", "2026-01-02T03:00:00"),
            ("1970-01-01-00:00:01", "1970-01-01T00:00:01"),
            ("010226", "2026-01-02T00:00:00"),
            ("0102", "2026-01-02T00:00:00"),
            ("01/02/26", "2026-01-02T00:00:00"),
            ("15:10", "2026-11-25T15:10:00"),
            ("3:10PM", "2026-11-25T15:10:00"),
        ] {
            let parsed = clock.parse(text).map(|at| clock.write(at));
            assert_eq!(parsed.as_deref(), Some(at), "{text}");
        }
        for text in ["", "soon", "25:00", "2026-13-01", "now+1year", "13/45", "now+99999999days", "now-999999999999999"]
        {
            assert_eq!(clock.parse(text), None, "{text}");
        }
    }

    #[test]
    fn times_are_written_as_the_user_chose() {
        let at = |text: &str| WallTime(text.parse::<Timestamp>().expect("a time").as_millisecond());
        let seconds = clock(Form::Pattern("%s".to_owned()));
        assert_eq!(seconds.write(at("1970-01-01T00:01:00Z")), "60");
        let relative = clock(Form::Relative);
        for (time, text) in [
            ("2026-11-25T01:02:03Z", "01:02:03"),
            ("2026-11-24T01:02:03Z", "Ystday 01:02"),
            ("2026-11-21T01:02:03Z", "Sat 01:02"),
            ("2026-02-03T01:02:03Z", "3 Feb 01:02"),
            ("2020-02-03T01:02:03Z", "3 Feb 2020"),
        ] {
            assert_eq!(relative.write(at(time)), text);
        }
    }
}
