//! Values of the options that describe a job, and the errors about wrong ones.

use crate::size;
use crate::time::parse_limit;

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

pub(crate) fn number<N: std::str::FromStr>(text: &str, option: &str) -> Result<N, BadValue> {
    text.parse().map_err(|_| not_a_number(text, option))
}

/// A number of at least one.
pub(crate) fn count(text: &str, option: &str) -> Result<u32, BadValue> {
    number::<u32>(text, option).and_then(|count| match count {
        0 => Err(not_a_number(text, option)),
        count => Ok(count),
    })
}

/// A number of GPUs, perhaps after the name of a type.
pub(crate) fn gpus(text: &str, option: &str) -> Result<u32, BadValue> {
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

/// Kinds of mail.
const MAIL_TYPES: [&str; 14] = [
    "NONE",
    "BEGIN",
    "END",
    "FAIL",
    "REQUEUE",
    "ALL",
    "INVALID_DEPEND",
    "STAGE_OUT",
    "TIME_LIMIT",
    "TIME_LIMIT_90",
    "TIME_LIMIT_80",
    "TIME_LIMIT_50",
    "ARRAY_TASKS",
    "",
];

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

/// Checks the value of an option that changes nothing, if scripts rely on the refusal of wrong ones.
pub(crate) fn check_accepted(option: &str, value: &str) -> Result<(), BadValue> {
    let is_one_of = |words: &[&str], value: &str| words.iter().any(|word| word.eq_ignore_ascii_case(value));
    match option {
        "core-spec" | "cores-per-socket" | "cpus-per-gpu" | "ntasks-per-core" | "ntasks-per-gpu"
        | "ntasks-per-socket" | "sockets-per-node" | "thread-spec" | "threads-per-core" | "wait-all-nodes" => {
            number::<u32>(value, option).map(drop)
        }
        "delay-boot" | "time-min" => parse_limit(value).map(drop).ok_or_else(|| invalid(option)),
        "tmp" => mebibytes(value, option).map(drop),
        "profile" => {
            let kinds = ["none", "all", "energy", "task", "lustre", "network"];
            let is_known = value.split(',').all(|kind| is_one_of(&kinds, kind));
            let bad = || BadValue::new(format!("invalid --profile={value} option"));
            if is_known { Ok(()) } else { Err(bad()) }
        }
        "mail-type" if !value.split(',').all(|word| is_one_of(&MAIL_TYPES, word)) => Err(invalid(option)),
        "kill-on-invalid-dep" if !is_one_of(&["yes", "no"], value) => Err(invalid(option)),
        "hint" => {
            let hints = ["compute_bound", "memory_bound", "multithread", "nomultithread", "help"];
            match value.split(',').find(|hint| !is_one_of(&hints, hint)) {
                Some(_) => {
                    let text = format!("unrecognized --hint argument \"{value}\", see --hint=help");
                    Err(BadValue { text, code: 1 })
                }
                None => Ok(()),
            }
        }
        _ => Ok(()),
    }
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
