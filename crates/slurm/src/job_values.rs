//! Values of the options that describe a job, and the errors about wrong ones.

use crate::size;

/// A mistake in the value of an option.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadValue {
    /// The lines of the command's error.
    pub text: String,
    /// The exit code of the command.
    pub code: u8,
}

impl BadValue {
    /// A value that the option cannot have.
    #[must_use]
    pub const fn new(text: String) -> Self {
        Self { text, code: MISTAKE }
    }
}

/// Exit code of the commands for most mistakes in their options.
pub const MISTAKE: u8 = 255;

/// A number, perhaps after blanks.
///
/// # Errors
/// If the text is not a number, or does not fit the type.
pub fn number<N: std::str::FromStr>(text: &str, option: &str) -> Result<N, BadValue> {
    text.trim_start().parse().map_err(|_| not_a_number(text, option))
}

/// A number of at least one.
pub(crate) fn count(text: &str, option: &str) -> Result<u32, BadValue> {
    number::<u32>(text, option).and_then(|count| match count {
        0 => Err(not_a_number(text, option)),
        count => Ok(count),
    })
}

/// A number of GPUs, perhaps after the name of a type. An empty value is none, as in Slurm.
pub(crate) fn gpus(text: &str, option: &str) -> Result<u32, BadValue> {
    if text.is_empty() {
        return Ok(0);
    }
    let last = text.rsplit([':', '=']).next().unwrap_or(text);
    let text = || format!("Invalid --{option} specification: {text}");
    last.parse().map_err(|_| BadValue { text: text(), code: 1 })
}

/// The model in a request for GPUs such as `a100:2` or `a100`; `None` for a number alone.
pub(crate) fn gpu_model(text: &str) -> Option<String> {
    let first = text.split([':', '=', ',']).next()?;
    first.starts_with(|c: char| c.is_ascii_alphabetic()).then(|| first.to_owned())
}

pub(crate) fn mebibytes(text: &str, option: &str) -> Result<u64, BadValue> {
    size::parse(text).ok_or_else(|| invalid(option))
}

pub(crate) fn invalid(option: &str) -> BadValue {
    BadValue::new(format!("Invalid --{option} specification"))
}

/// Slurm's commands end with another code if a number is wrong.
fn not_a_number(text: &str, option: &str) -> BadValue {
    BadValue { text: format!("Invalid numeric value \"{text}\" for --{option}."), code: 1 }
}

/// The resources whose limits `--propagate` names.
const LIMITS: [&str; 12] =
    ["ALL", "NONE", "AS", "CORE", "CPU", "DATA", "FSIZE", "MEMLOCK", "NOFILE", "NPROC", "RSS", "STACK"];

/// A list of resource limits, in upper case; `ALL` without a list.
pub(crate) fn propagated(text: &str) -> Result<String, BadValue> {
    let upper = if text.is_empty() { "ALL".to_owned() } else { text.to_ascii_uppercase() };
    let names: Vec<&str> = upper.split(',').map(|name| name.strip_prefix("RLIMIT_").unwrap_or(name)).collect();
    match names.iter().find(|name| !LIMITS.contains(name)) {
        None => Ok(names.join(",")),
        Some(name) => {
            Err(BadValue { text: format!("Bad rlimit name: {name}\n--propagate={text} is not valid."), code: 1 })
        }
    }
}

/// The seconds that a login may take, of the value of `--get-user-env`: a timeout and a mode, in this order or the other one.
/// Every login here is a full one.
pub(crate) fn login_time(value: &str) -> Result<u32, BadValue> {
    let is_digit = |c: char| c.is_ascii_digit();
    if !["", "S", "s", "L", "l"].contains(&value.trim_matches(is_digit)) {
        return Err(invalid("get-user-env"));
    }
    let seconds = value.trim_matches(|c| !is_digit(c));
    Ok(if seconds.is_empty() { LOGIN_SECONDS } else { seconds.parse().unwrap_or(u32::MAX) })
}

/// How long a login may take without `--get-user-env`, in seconds.
pub const LOGIN_SECONDS: u32 = 8;

/// A way to deal out tasks to nodes, in lower case, such as `block:cyclic,pack` or `plane=2`.
pub(crate) fn distribution(value: &str) -> Result<String, BadValue> {
    let value = value.to_ascii_lowercase();
    let is_known = |word: &str| ["block", "cyclic", "fcyclic", "arbitrary", "*", "pack", "nopack"].contains(&word);
    let is_plane = value.strip_prefix("plane=").is_some_and(|size| size.parse::<u32>().is_ok_and(|size| size > 0));
    if is_plane || value.split([':', ',']).all(is_known) {
        return Ok(value);
    }
    let mut bad = invalid("distribution");
    if value.starts_with("plane") {
        bad.text = format!("Invalid plane size or size not specified\n{}", bad.text);
    }
    Err(bad)
}

/// A number of nodes, such as `2` or `2-4`.
pub(crate) fn nodes(text: &str) -> Result<(u32, u32), BadValue> {
    let (least, most) = text.split_once('-').unwrap_or((text, text));
    let number = |text: &str| {
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let bad = || BadValue::new(format!("\"{text}\" is not a valid node count"));
        text.parse::<u32>().ok().filter(|_| is_number).ok_or_else(bad)
    };
    match (number(least)?, number(most)?) {
        (0, _) | (_, 0) => {
            let text = "Batch job submission failed: Node count specification invalid".to_owned();
            Err(BadValue { text, code: 1 })
        }
        (least, most) if least > most => {
            Err(BadValue::new(format!("Maximum node count {most} is less than minimum node count {least}")))
        }
        range => Ok(range),
    }
}
