//! Time limits, and elapsed times as the commands write them.

use std::fmt::Write;

/// A time limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// No limit.
    Unlimited,
    /// A limit in seconds.
    Seconds(u64),
}

/// Parses a time limit: `M`, `M:S`, `H:M:S`, `D-H`, `D-H:M` or `D-H:M:S`, or a word for none. Zero means no limit, too. Seconds
/// are rounded up to a minute, as Slurm does.
#[must_use]
pub fn parse_limit(text: &str) -> Option<Limit> {
    if ["-1", "INFINITE", "UNLIMITED"].iter().any(|none| none.eq_ignore_ascii_case(text)) {
        return Some(Limit::Unlimited);
    }
    let number = |text: &str| text.parse::<u64>().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()));
    let (days, clock) = match text.split_once('-') {
        Some((days, clock)) => (Some(number(days)?), clock),
        None => (None, text),
    };
    let parts = clock.split(':').map(number).collect::<Option<Vec<_>>>()?;
    let (hours, minutes, seconds) = match (days, parts.as_slice()) {
        (None, [minutes]) => (0, *minutes, 0),
        (None, [minutes, seconds]) => (0, *minutes, *seconds),
        (Some(_), [hours]) => (*hours, 0, 0),
        (Some(_), [hours, minutes]) => (*hours, *minutes, 0),
        (_, [hours, minutes, seconds]) => (*hours, *minutes, *seconds),
        _ => return None,
    };
    let hours = days.unwrap_or(0).checked_mul(24)?.checked_add(hours)?;
    let minutes = hours.checked_mul(60)?.checked_add(minutes)?;
    let minutes = minutes.checked_add(seconds.div_ceil(60))?;
    let seconds = minutes.checked_mul(60)?;
    Some(if seconds == 0 { Limit::Unlimited } else { Limit::Seconds(seconds) })
}

/// Writes an elapsed time as `squeue` does: `0:09`, `9:59`, `1:00:00`, `1-02:03:04`.
#[must_use]
pub fn short(seconds: u64) -> String {
    let Parts { days, hours, minutes, seconds } = Parts::of(seconds);
    match (days, hours) {
        (0, 0) => format!("{minutes}:{seconds:02}"),
        (0, _) => format!("{hours}:{minutes:02}:{seconds:02}"),
        _ => format!("{days}-{hours:02}:{minutes:02}:{seconds:02}"),
    }
}

/// Writes an elapsed time as `sacct` and `scontrol` do: `00:00:09`, `1-02:03:04`.
#[must_use]
pub fn long(seconds: u64) -> String {
    let Parts { days, hours, minutes, seconds } = Parts::of(seconds);
    let mut text = String::new();
    if days > 0 {
        write!(text, "{days}-").expect("text grows");
    }
    write!(text, "{hours:02}:{minutes:02}:{seconds:02}").expect("text grows");
    text
}

struct Parts {
    days: u64,
    hours: u64,
    minutes: u64,
    seconds: u64,
}

impl Parts {
    const fn of(seconds: u64) -> Self {
        Self { days: seconds / 86_400, hours: seconds / 3600 % 24, minutes: seconds / 60 % 60, seconds: seconds % 60 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_parsed() {
        for (text, seconds) in [
            ("30", 1800),
            ("0:10:0", 600),
            ("1:30", 120),
            ("0:10", 60),
            ("00:00:30", 60),
            ("0-0:0:20", 60),
            ("51:00:00", 183_600),
            ("1-0", 86_400),
            ("1-2:3", 93_780),
            ("1-02:03:04", 93_840),
        ] {
            assert_eq!(parse_limit(text), Some(Limit::Seconds(seconds)), "{text}");
        }
        for text in ["UNLIMITED", "infinite", "-1", "0", "0:00"] {
            assert_eq!(parse_limit(text), Some(Limit::Unlimited), "{text}");
        }
        for text in ["", "x", "1:2:3:4", "1-", "-5", "1-2-3", "+1", "1.5", " 1", "99999999999999999999", "1-1:1:1:1"] {
            assert_eq!(parse_limit(text), None, "{text}");
        }
    }

    #[test]
    fn elapsed_times_are_written() {
        for (seconds, squeue, sacct) in [
            (0, "0:00", "00:00:00"),
            (599, "9:59", "00:09:59"),
            (3600, "1:00:00", "01:00:00"),
            (93_784, "1-02:03:04", "1-02:03:04"),
        ] {
            assert_eq!((short(seconds).as_str(), long(seconds).as_str()), (squeue, sacct));
        }
    }
}
