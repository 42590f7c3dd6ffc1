//! Sizes of memory, which Slurm counts in mebibytes.

/// Parses a size such as `500`, `7GB`, `4g` or `2048K` to mebibytes, rounded up. Without a unit: mebibytes.
#[must_use]
pub fn parse(text: &str) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let number: u64 = text[..digits].parse().ok()?;
    let unit = text[digits..].to_ascii_uppercase();
    match unit.strip_suffix('B').filter(|unit| !unit.is_empty()).unwrap_or(&unit) {
        "K" => Some(number.div_ceil(1024)),
        "" | "M" => Some(number),
        "G" => number.checked_mul(1024),
        "T" => number.checked_mul(1024 * 1024),
        _ => None,
    }
}

/// The unit of an amount. Each unit is 1024 times the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the names are those of the units")]
pub enum Unit {
    One,
    Kilo,
    Mega,
    Giga,
    Tera,
    Peta,
}

impl Unit {
    const ALL: [(Self, &str); 6] = [
        (Self::One, ""),
        (Self::Kilo, "K"),
        (Self::Mega, "M"),
        (Self::Giga, "G"),
        (Self::Tera, "T"),
        (Self::Peta, "P"),
    ];

    /// Parses a letter such as `G`.
    #[must_use]
    pub fn parse(letter: &str) -> Option<Self> {
        let found = Self::ALL.iter().find(|(_, text)| !text.is_empty() && text.eq_ignore_ascii_case(letter));
        found.map(|(unit, _)| *unit)
    }
}

/// Which unit to write an amount with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Conversion {
    /// The largest unit of which the amount is a whole number, or a whole number and a half.
    #[default]
    Exact,
    /// The unit that the amount has.
    Keep,
    /// This unit.
    To(Unit),
}

/// Writes an amount with its unit: `2G`, `1.50G`, `1500M`, `0`.
#[must_use]
pub fn convert(amount: f64, unit: Unit, conversion: Conversion) -> String {
    let steps = |unit: Unit| Unit::ALL.iter().position(|(known, _)| *known == unit).unwrap_or(0);
    let (mut amount, mut step) = (amount, steps(unit));
    if amount < 1.0 {
        return "0".to_owned();
    }
    match conversion {
        Conversion::Keep => {}
        Conversion::To(wanted) => {
            let wanted = steps(wanted);
            amount *= 1024_f64.powi(step as i32 - wanted as i32);
            step = wanted;
        }
        Conversion::Exact => {
            while amount >= 1024.0 && (amount as u64).is_multiple_of(512) && step + 1 < Unit::ALL.len() {
                (amount, step) = (amount / 1024.0, step + 1);
            }
        }
    }
    let letter = Unit::ALL[step].1;
    if amount.fract() == 0.0 { format!("{amount:.0}{letter}") } else { format!("{amount:.2}{letter}") }
}

/// Writes mebibytes with the largest unit that loses nothing: `2G`, `1.50G`, `1500M`, `0`.
#[must_use]
pub fn exact(mebibytes: u64) -> String {
    convert(mebibytes as f64, Unit::Mega, Conversion::Exact)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_parsed() {
        for (text, mebibytes) in [
            ("500", Some(500)),
            ("7GB", Some(7168)),
            ("3584MB", Some(3584)),
            ("4g", Some(4096)),
            ("2048K", Some(2)),
            ("1K", Some(1)),
            ("1T", Some(1_048_576)),
            ("0", Some(0)),
            ("5Q", None),
            ("x", None),
            ("", None),
            ("B", None),
            ("1B", None),
            ("-1", None),
            ("99999999999999999999", None),
            ("18446744073709551615G", None),
        ] {
            assert_eq!(parse(text), mebibytes, "{text}");
        }
    }

    #[test]
    fn sizes_are_written() {
        for (mebibytes, text) in [
            (0, "0"),
            (500, "500M"),
            (1024, "1G"),
            (1500, "1500M"),
            (1536, "1.50G"),
            (2560, "2.50G"),
            (1_572_864, "1.50T"),
            (2_097_152, "2T"),
        ] {
            assert_eq!(exact(mebibytes), text);
        }
    }

    #[test]
    fn amounts_have_the_chosen_unit() {
        for (amount, unit, conversion, text) in [
            (1_263_616.0, Unit::One, Conversion::Exact, "1234K"),
            (1_263_616.0, Unit::One, Conversion::Keep, "1263616"),
            (1_263_616.0, Unit::One, Conversion::To(Unit::Mega), "1.21M"),
            (2048.0, Unit::Mega, Conversion::Keep, "2048M"),
            (2048.0, Unit::Mega, Conversion::To(Unit::Kilo), "2097152K"),
            (12.345, Unit::Mega, Conversion::Exact, "12.35M"),
            (0.0, Unit::Mega, Conversion::To(Unit::Kilo), "0"),
        ] {
            assert_eq!(convert(amount, unit, conversion), text);
        }
        assert_eq!((Unit::parse("g"), Unit::parse(""), Unit::parse("X")), (Some(Unit::Giga), None, None));
    }
}
