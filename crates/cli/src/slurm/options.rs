//! Options of commands, each with what it sets. A row of a command's table is all that the command says about an option.

use std::ffi::OsString;

use hostler_slurm::getopt::{self, Mistake, Opt, Order, Parsed, Takes};

use super::{Ended, VERSION, mistaken, text};

/// An option of a command that collects its options in `Given`.
pub(super) struct Setter<Given> {
    /// The long names, separated by blanks.
    long: &'static str,
    /// The letters.
    short: &'static str,
    takes: Takes,
    set: Set<Given>,
}

enum Set<Given> {
    Nothing,
    Flag(fn(&mut Given)),
    Value(fn(&mut Given, &str)),
    Checked(fn(&mut Given, Option<&str>) -> Result<(), Ended>),
    /// Ends the command after printing a text.
    Print(fn() -> String),
}

/// An option without a value.
pub(super) const fn flag<G>(long: &'static str, short: &'static str, set: fn(&mut G)) -> Setter<G> {
    Setter { long, short, takes: Takes::Nothing, set: Set::Flag(set) }
}

/// An option with a value that is always valid.
pub(super) const fn value<G>(long: &'static str, short: &'static str, set: fn(&mut G, &str)) -> Setter<G> {
    Setter { long, short, takes: Takes::Value, set: Set::Value(set) }
}

/// An option that can be refused.
pub(super) const fn checked<G>(
    long: &'static str,
    short: &'static str,
    takes: Takes,
    set: fn(&mut G, Option<&str>) -> Result<(), Ended>,
) -> Setter<G> {
    Setter { long, short, takes, set: Set::Checked(set) }
}

/// An option that changes nothing.
pub(super) const fn nothing<G>(long: &'static str, short: &'static str, takes: Takes) -> Setter<G> {
    Setter { long, short, takes, set: Set::Nothing }
}

/// An option that prints a text.
pub(super) const fn prints<G>(long: &'static str, short: &'static str, text: fn() -> String) -> Setter<G> {
    Setter { long, short, takes: Takes::Nothing, set: Set::Print(text) }
}

/// The line of `--version`.
pub(super) fn version() -> String {
    format!("{VERSION}\n")
}

/// Parses a command line whose options may follow operands. The keys are positions in `options`.
pub(super) fn parse<G>(options: &[Setter<G>], args: Vec<OsString>) -> Result<Parsed<usize>, Mistake> {
    let mut all = Vec::new();
    for (key, Setter { long, short, takes, .. }) in options.iter().enumerate() {
        let (mut long, mut short) = (long.split(' '), short.bytes());
        loop {
            match (long.next(), short.next()) {
                (None, None) => break,
                (long, short) => all.push(Opt { key, long: long.unwrap_or_default(), short, takes: *takes }),
            }
        }
    }
    getopt::parse(&all, Order::Permute, args.into_iter().skip(1))
}

/// Applies the options in their order. An option that prints a text ends the command.
pub(super) fn apply<G>(
    options: &[Setter<G>],
    parsed: &[(usize, Option<OsString>)],
    given: &mut G,
) -> Result<(), Ended> {
    for (key, value) in parsed {
        match options[*key].set {
            Set::Nothing => {}
            Set::Flag(set) => set(given),
            Set::Value(set) => set(given, &text(value.as_ref())),
            Set::Checked(set) => set(given, value.as_ref().map(|value| text(Some(value))).as_deref())?,
            Set::Print(text) => return Err(Ended::printed(text())),
        }
    }
    Ok(())
}

/// Applies the options that variables of the environment give: `SCANCEL_USER` for `--user` of `scancel`. Those of flags are
/// `true`, `false` or a number. `variable` returns the value of one.
pub(super) fn apply_variables<G>(
    options: &[Setter<G>],
    name: &str,
    long: &[&str],
    variable: impl Fn(&str) -> Option<String>,
    given: &mut G,
) -> Result<(), Ended> {
    for long in long {
        let Some(key) = options.iter().position(|option| option.long.split(' ').any(|it| it == *long)) else {
            continue;
        };
        let variable_name = format!("{name}_{long}").to_ascii_uppercase();
        let Some(value) = variable(&variable_name) else { continue };
        let word = value.to_ascii_lowercase();
        match options[key].takes {
            Takes::Nothing if word == "false" || word == "0" => {}
            Takes::Nothing if word == "true" || word.parse::<u32>().is_ok() => apply(options, &[(key, None)], given)?,
            Takes::Nothing => return Err(Ended::error(format!("Unrecognized {variable_name} value: {value}"))),
            Takes::Value | Takes::Attached => apply(options, &[(key, Some(value.into()))], given)?,
        }
    }
    Ok(())
}

/// Parses a command line and applies its options. Returns the operands.
pub(super) fn read<G>(
    name: &str,
    options: &[Setter<G>],
    args: Vec<OsString>,
    given: &mut G,
) -> Result<Vec<OsString>, Ended> {
    let parsed = parse(options, args).map_err(|mistake| mistaken(name, &mistake))?;
    apply(options, &parsed.options, given)?;
    Ok(parsed.operands)
}
