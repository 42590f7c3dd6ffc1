//! Parsing and formatting of sizes and times.
//!
//! Sizes use powers of 1024 (`512M`, `2G`, `1.5GiB`). A small number without a unit is refused, because people mean megabytes or
//! gigabytes; a large one is bytes. Times are `90m`, `1h30m`, `45s` or the batch-system forms
//! `MM:SS`, `HH:MM:SS`, `D-HH`, `D-HH:MM` and `D-HH:MM:SS`. A time needs a unit, because batch systems read a bare number as minutes and
//! shell commands as seconds.

use std::time::Duration;

use crate::ParseError;

const SIZE: &str = "a size such as 512M, 2G or 1.5T";
/// The smallest number without a unit that counts as bytes.
const LEAST_BARE_BYTES: u64 = 1 << 20;
const TIME: &str = "a time such as 90s, 30m, 2h, 1h30m, 10:00 or 1-12:00:00";

/// Parses a size in bytes.
///
/// # Errors
/// When the text is not a size, is a small number without a unit, or does not fit into 64 bits.
pub fn parse_bytes(text: &str) -> Result<u64, ParseError> {
    let error = || ParseError::new(text, SIZE);
    let trimmed = text.trim();
    let split = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(split);
    let unit = unit.trim();
    if unit.is_empty() && number.parse::<f64>().is_ok_and(|number| number > 0.0 && number < LEAST_BARE_BYTES as f64) {
        let both = format!(
            "a size with a unit: write {number}M for megabytes, {number}G for gigabytes or {number}B for bytes"
        );
        return Err(ParseError::new(text, both));
    }
    let shift = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        "p" | "pb" | "pib" => 50,
        _ => return Err(error()),
    };
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(1 << shift).ok_or_else(error);
    }
    let fraction: f64 = number.parse().map_err(|_| error())?;
    let bytes = fraction * (1_u64 << shift) as f64;
    if bytes.is_finite() && (0.0..9e18).contains(&bytes) { Ok(bytes as u64) } else { Err(error()) }
}

/// Formats a size in the largest unit that keeps the number at or above one, with at most one decimal.
#[must_use]
pub fn format_bytes(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["B", "K", "M", "G", "T", "P"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let text = if value >= 99.95 || value.fract() < 0.05 { format!("{value:.0}") } else { format!("{value:.1}") };
    format!("{text}{}", UNITS[unit])
}

/// Parses a duration.
///
/// # Errors
/// When the text has none of the accepted forms, is a number without a unit, or the time is too large.
pub fn parse_duration(text: &str) -> Result<Duration, ParseError> {
    let trimmed = text.trim();
    match trimmed.parse::<f64>() {
        Ok(0.0) => return Ok(Duration::ZERO),
        Ok(number) if number > 0.0 && !trimmed.contains(char::is_alphabetic) => {
            let both = format!("a time with a unit: write {trimmed}m for minutes or {trimmed}s for seconds");
            return Err(ParseError::new(text, both));
        }
        Ok(_) | Err(_) => {}
    }
    let seconds = if trimmed.contains(':') || trimmed.contains('-') {
        parse_clock_form(trimmed)
    } else {
        parse_unit_form(trimmed)
    };
    seconds.map(Duration::from_millis).ok_or_else(|| ParseError::new(text, TIME))
}

/// Parses `[D-]HH[:MM[:SS]]` with days, or `MM:SS` or `HH:MM:SS` without. Returns milliseconds.
fn parse_clock_form(text: &str) -> Option<u64> {
    let (days, clock) = match text.split_once('-') {
        Some((days, clock)) => (Some(days.parse::<u64>().ok()?), clock),
        None => (None, text),
    };
    let parts: Vec<u64> = clock.split(':').map(|part| part.parse().ok()).collect::<Option<_>>()?;
    let (hours, minutes, seconds) = match (days, parts.as_slice()) {
        (Some(_), [h]) => (*h, 0, 0),
        (Some(_), [h, m]) => (*h, *m, 0),
        (None, [m, s]) => (0, *m, *s),
        (_, [h, m, s]) => (*h, *m, *s),
        _ => return None,
    };
    let hours = days.unwrap_or(0).checked_mul(24)?.checked_add(hours)?;
    let minutes = hours.checked_mul(60)?.checked_add(minutes)?;
    minutes.checked_mul(60)?.checked_add(seconds)?.checked_mul(1000)
}

/// Parses a number with a unit, such as `90m`, `1h30m` or `250ms`. Returns milliseconds.
fn parse_unit_form(text: &str) -> Option<u64> {
    let mut rest = text;
    let mut total = 0_u64;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, tail) = rest.split_at(digits);
        let unit_end = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit_end);
        let scale_ms: f64 = match unit.trim().to_ascii_lowercase().as_str() {
            "ms" => 1.0,
            "s" | "sec" | "second" | "seconds" => 1e3,
            "m" | "min" | "minute" | "minutes" => 60e3,
            "h" | "hour" | "hours" => 3600e3,
            "d" | "day" | "days" => 86400e3,
            "w" | "week" | "weeks" => 604_800e3,
            _ => return None,
        };
        let value = number.parse::<f64>().ok()? * scale_ms;
        if !(0.0..9e15).contains(&value) {
            return None;
        }
        total = total.checked_add(value.round() as u64)?;
        rest = tail.trim_start();
    }
    (!text.is_empty()).then_some(total)
}

/// Formats a duration with its two largest units: `1d12h`, `5m03s`, `2.4s`, `12ms`.
#[must_use]
pub fn format_duration(span: Duration) -> String {
    let seconds = span.as_secs();
    match seconds {
        0 if span.as_millis() == 0 => "0s".to_owned(),
        0 => format!("{}ms", span.as_millis()),
        1..10 => format!("{:.1}s", span.as_secs_f64()),
        10..60 => format!("{seconds}s"),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3600..86400 => format!("{}h{:02}m", seconds / 3600, seconds / 60 % 60),
        _ => format!("{}d{:02}h", seconds / 86400, seconds / 3600 % 24),
    }
}

/// Formats a number of milliseconds like [`format_duration`].
#[must_use]
pub fn format_ms(ms: u64) -> String {
    format_duration(Duration::from_millis(ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_parse() {
        for (text, bytes) in [
            ("512M", 512 << 20),
            ("2G", 2 << 30),
            ("1.5k", 1536),
            ("10B", 10),
            ("3 GiB", 3 << 30),
            ("0", 0),
            ("1073741824", 1 << 30),
        ] {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
        }
        for text in ["", "G", "-1G", "1X", "1..5G", "99999999999999999999", "nan"] {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
        for text in ["8", "0.5", "1048575"] {
            let error = parse_bytes(text).expect_err("people mean megabytes or gigabytes").to_string();
            assert!(error.contains(&format!("{text}G for gigabytes")), "{error}");
        }
    }

    #[test]
    fn times_parse() {
        let cases = [
            ("90m", 5400),
            ("1h30m", 5400),
            ("1-12:00:00", 129_600),
            ("10:00", 600),
            ("02:00:00", 7200),
            ("2-0", 172_800),
            ("45s", 45),
            ("1.5h", 5400),
            ("0", 0),
        ];
        for (text, seconds) in cases {
            assert_eq!(parse_duration(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for text in ["", "h", "1x", "1:2:3:4", "-5", "1-", "5-:"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn time_without_a_unit_is_refused_with_both_readings() {
        for number in ["5", "45", "1.5", " 90 "] {
            let refusal = parse_duration(number).expect_err(number).to_string();
            let number = number.trim();
            assert!(refusal.contains(&format!("write {number}m for minutes or {number}s for seconds")), "{refusal}");
        }
    }

    #[test]
    fn sizes_and_times_are_formatted() {
        assert_eq!(format_bytes(600 << 20), "600M");
        assert_eq!(format_bytes(1536), "1.5K");
        assert_eq!(format_bytes(0), "0B");
        assert_eq!(format_duration(Duration::from_secs(129_600)), "1d12h");
        assert_eq!(format_duration(Duration::from_millis(2400)), "2.4s");
        assert_eq!(format_duration(Duration::from_secs(303)), "5m03s");
    }
}
