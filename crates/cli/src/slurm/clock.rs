//! Times, as Slurm's commands write and read them.

use hostler_client::{Client, ClientError};
use hostler_model::{RequestedTime, WallTime};
use jiff::civil::{Date, DateTime, Time};
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};

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

impl Default for Clock {
    fn default() -> Self {
        Self::of_process()
    }
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

    /// The clock of this process, set to the head's time: the times of jobs are of the head's clock, and this machine's may be
    /// wrong.
    pub(crate) async fn of_head(client: &Client) -> Result<Self, ClientError> {
        Ok(Self { now: client.me().await?.now, ..Self::of_process() })
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
        self.parse_as(text, Choice::Current)
    }

    /// Parses the time of a start: the next `16:00`, the next `12/24`, or `now+1hour`, which goes by the head's clock.
    pub(crate) fn parse_next(&self, text: &str) -> Option<RequestedTime> {
        let at = self.parse_as(text, Choice::Next)?;
        let text = text.trim().to_ascii_lowercase();
        let is_relative = text.starts_with("now") || text == "today";
        Some(if is_relative { RequestedTime::In { in_ms: at.ms_since(self.now) } } else { RequestedTime::At(at) })
    }

    fn parse_as(&self, text: &str, choice: Choice) -> Option<WallTime> {
        let now = self.zoned(self.now)?;
        let at = parse(text, &now, choice)?;
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

/// Whether a time without a date, or a date without a year, is the next one. Otherwise, it is of this day or year.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Choice {
    Next,
    Current,
}

/// What a text says about a time.
#[derive(Debug, Default)]
struct Said {
    date: Option<Date>,
    time: Option<Time>,
    /// Whether the date lacks its year.
    is_yearless: bool,
}

/// Parses a time as the manual of `sbatch --begin` describes it: a date and a time in any order, separated by blanks, `T` or
/// `-`, words such as `noon`, or `now` with a span.
fn parse(text: &str, now: &Zoned, choice: Choice) -> Option<Zoned> {
    let text = text.trim().to_ascii_lowercase();
    if let Some(rest) = text.strip_prefix("now") {
        let rest = rest.trim_start();
        return match rest.chars().next() {
            None => Some(now.clone()),
            Some('+') => shift(now, rest[1..].trim(), 1),
            Some('-') => shift(now, rest[1..].trim(), -1),
            Some(_) => None,
        };
    }
    if text == "today" && choice == Choice::Next {
        return Some(now.clone());
    }
    let mut said = Said::default();
    for word in words(&text) {
        said.take(&word, now)?;
    }
    said.resolve(now, choice)
}

/// Splits a text into dates, times and words. `am` and `pm` belong to the time before them.
fn words(text: &str) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        // The only date whose parts are separated by `-`.
        let is_iso = |word: &str| word.get(..10).is_some_and(|date| date.parse::<Date>().is_ok());
        let rest = if is_iso(word) {
            all.push(word[..10].to_owned());
            let rest = &word[10..];
            rest.strip_prefix(['t', '-']).unwrap_or(rest)
        } else {
            word
        };
        // An empty part is a mistake, which has no meaning as a word.
        for part in rest.split('-').filter(|_| !rest.is_empty()) {
            match all.last_mut() {
                Some(last) if ["am", "pm"].contains(&part) => last.push_str(part),
                _ => all.push(part.to_owned()),
            }
        }
    }
    all
}

impl Said {
    /// Takes the next word of a time. `None` if it is neither a date nor a time of day, or if that part was given before.
    fn take(&mut self, word: &str, now: &Zoned) -> Option<()> {
        let hour = |hour: i8| Some(Time::constant(hour, 0, 0, 0));
        let (date, time) = match word {
            "today" => (Some(now.date()), None),
            "tomorrow" => (Some(now.date().tomorrow().ok()?), None),
            "midnight" => (None, hour(0)),
            "noon" => (None, hour(12)),
            "fika" => (None, hour(15)),
            "teatime" => (None, hour(16)),
            _ => match parse_time(word) {
                Some(time) => (None, Some(time)),
                None => {
                    let (date, is_yearless) = parse_date(word, now)?;
                    self.is_yearless = is_yearless;
                    (Some(date), None)
                }
            },
        };
        if date.is_some() && self.date.is_some() || time.is_some() && self.time.is_some() {
            return None;
        }
        (self.date, self.time) = (self.date.or(date), self.time.or(time));
        Some(())
    }

    fn resolve(self, now: &Zoned, choice: Choice) -> Option<Zoned> {
        let at = |date: Date| {
            DateTime::from_parts(date, self.time.unwrap_or_default()).to_zoned(now.time_zone().clone()).ok()
        };
        let is_next = choice == Choice::Next;
        match (self.date, self.time) {
            (None, None) => None,
            (None, Some(_)) => match at(now.date())? {
                today if is_next && today <= *now => at(now.date().tomorrow().ok()?),
                today => Some(today),
            },
            (Some(date), _) if is_next && self.is_yearless && date < now.date() => {
                at(Date::new(date.year() + 1, date.month(), date.day()).ok()?)
            }
            (Some(date), _) => at(date),
        }
    }
}

/// Parses `YYYY-MM-DD`, `MMDDYY`, `MM/DD/YY`, `MM.DD.YY`, or these without the year. Returns whether the year is absent.
fn parse_date(text: &str, now: &Zoned) -> Option<(Date, bool)> {
    if let Ok(date) = text.parse::<Date>() {
        return Some((date, false));
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
        [month, day] => (month, day, None),
        [month, day, year] => (month, day, Some(if *year < 100 { 2000 + year } else { *year })),
        _ => return None,
    };
    let (month, day) = (i8::try_from(*month).ok()?, i8::try_from(*day).ok()?);
    Some((Date::new(year.unwrap_or(now.date().year()), month, day).ok()?, year.is_none()))
}

/// Parses `HH:MM` or `HH:MM:SS`, with an optional `am` or `pm`.
fn parse_time(text: &str) -> Option<Time> {
    let (clock, half) = match (text.strip_suffix("am"), text.strip_suffix("pm")) {
        (Some(clock), _) => (clock, Some(0)),
        (_, Some(clock)) => (clock, Some(12)),
        _ => (text, None),
    };
    let parts = clock.split(':').map(|part| part.parse::<i8>().ok()).collect::<Option<Vec<_>>>()?;
    let (hour, minute, second) = match parts.as_slice() {
        [hour, minute] => (*hour, *minute, 0),
        [hour, minute, second] => (*hour, *minute, *second),
        _ => return None,
    };
    let hour = half.map_or(Some(hour), |half| (hour <= 12).then_some(hour % 12 + half))?;
    Time::new(hour, minute, second, 0).ok()
}

/// Shifts a time by a span such as `1hour`; without a unit, by seconds.
fn shift(now: &Zoned, span: &str, factor: i64) -> Option<Zoned> {
    let digits = span.bytes().take_while(u8::is_ascii_digit).count();
    let amount = factor.checked_mul(span[..digits].parse().ok()?)?;
    let unit = span[digits..].trim_start();
    let unit = unit.strip_suffix('s').filter(|one| !one.is_empty()).unwrap_or(unit);
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
            ("11/28-10:00", "2026-11-28T10:00:00"),
            ("fika", "2026-11-25T15:00:00"),
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
    fn times_of_starts_have_the_forms_of_the_manual() {
        let clock = clock(Form::Pattern(STANDARD.to_owned()));
        for (text, at) in [
            ("now", "2026-11-25T12:30:00"),
            ("now+1hour", "2026-11-25T13:30:00"),
            ("now + 1 hour", "2026-11-25T13:30:00"),
            ("now+90", "2026-11-25T12:31:30"),
            ("18:00", "2026-11-25T18:00:00"),
            ("12:30", "2026-11-26T12:30:00"),
            ("3:04pm", "2026-11-25T15:04:00"),
            ("3:04 AM", "2026-11-26T03:04:00"),
            ("12:00am", "2026-11-26T00:00:00"),
            ("today", "2026-11-25T12:30:00"),
            ("tomorrow", "2026-11-26T00:00:00"),
            ("midnight", "2026-11-26T00:00:00"),
            ("noon", "2026-11-26T12:00:00"),
            ("FIKA", "2026-11-25T15:00:00"),
            ("teatime", "2026-11-25T16:00:00"),
            ("noon tomorrow", "2026-11-26T12:00:00"),
            ("12/24", "2026-12-24T00:00:00"),
            ("1224", "2026-12-24T00:00:00"),
            ("0102", "2027-01-02T00:00:00"),
            ("01/02/30", "2030-01-02T00:00:00"),
            ("01.02.2030", "2030-01-02T00:00:00"),
            ("010230", "2030-01-02T00:00:00"),
            ("8:00 12/24", "2026-12-24T08:00:00"),
            ("12/24-8:00", "2026-12-24T08:00:00"),
            ("2030-12-01-10:00", "2030-12-01T10:00:00"),
            ("2026-12-24T18:00", "2026-12-24T18:00:00"),
            ("2030-01-20T12:34:56", "2030-01-20T12:34:56"),
        ] {
            assert_eq!(
                clock.parse_next(text).map(|begin| clock.write(begin.at(clock.now))).as_deref(),
                Some(at),
                "{text}"
            );
        }
        for text in [
            "",
            "soon",
            "now+",
            "now+1year",
            "nowhere",
            "25:00",
            "13:00pm",
            "2030-01-02T03",
            "8:00 9:00",
            "12/24-",
            "now+99999999days",
            "now+999999999999999",
        ] {
            assert_eq!(clock.parse_next(text), None, "{text}");
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
