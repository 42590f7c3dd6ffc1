//! How the value of an option is read that describes a job only to Slurm, or belongs to one command. The tables of options
//! name a reader for each, so no option takes a wrong value in silence.

use crate::getopt::Takes;
use crate::job_values::{BadValue, count, gpus, invalid, mebibytes, number};
use crate::time::parse_limit;

/// The kind of value that an option has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reads {
    /// No value.
    Nothing,
    /// A value of this kind, or none.
    Maybe(&'static Self),
    /// A name, a path or a list of them, which only a site could check.
    Text,
    /// The path of a file that must be readable; the command opens it.
    File,
    /// Features of nodes, as in `--constraint`; the command parses them.
    Features,
    /// A number of at least one.
    Count,
    /// A number.
    Number,
    /// `0` or `1`.
    Bit,
    /// An amount of memory or disk.
    Size,
    /// A time limit.
    TimeLimit,
    /// One of these words.
    Word(&'static [&'static str]),
    /// Some of these words, separated by commas.
    Words(&'static [&'static str]),
    /// Some of these letters.
    Letters(&'static str),
    /// Kinds of profiles.
    Profiles,
    /// Hints about a program.
    Hints,
    /// Seconds between measurements: `30`, `task=30,network=5`.
    Sampling,
    /// Sockets, cores and threads: `2`, `2:*:1`.
    Topology,
    /// Switches and how long to wait for them: `1@10:00`.
    Switches,
    /// A number of GPUs, perhaps after a model.
    Gpus,
    /// Amounts of resources: `cpu=2,gres/gpu:a100=1`.
    Amounts,
    /// Frequencies of CPUs: `low`, `1000-2000:performance`.
    CpuFrequency,
    /// Frequencies of GPUs: `high,memory=low`.
    GpuFrequency,
    /// How tasks are bound to GPUs, perhaps after `gres/gpu:`.
    GpuBinding,
    /// How tasks are bound to CPUs or memory: these words, and lists such as `map_cpu:0,1`.
    Binding(&'static [&'static str]),
}

/// How tasks are bound to CPUs.
pub(crate) const CPU_BINDING: Reads = Reads::Binding(&[
    "none",
    "no",
    "rank",
    "sockets",
    "socket",
    "cores",
    "core",
    "threads",
    "thread",
    "ldoms",
    "ldom",
    "rank_ldom",
    "one_thread",
    "map_cpu:",
    "mask_cpu:",
    "map_ldom:",
    "mask_ldom:",
]);

/// How tasks are bound to memory.
pub(crate) const MEMORY_BINDING: Reads =
    Reads::Binding(&["none", "no", "rank", "local", "prefer", "p", "sort", "nosort", "map_mem:", "mask_mem:"]);

/// Kinds of mail.
pub(crate) const MAIL_TYPES: Reads = Reads::Words(&[
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
]);

/// Hints about a program.
const HINTS: [&str; 4] = ["compute_bound", "memory_bound", "multithread", "nomultithread"];

impl Reads {
    /// Returns whether the option takes a value.
    #[must_use]
    pub const fn takes(&self) -> Takes {
        match self {
            Self::Nothing => Takes::Nothing,
            Self::Maybe(_) => Takes::Attached,
            _ => Takes::Value,
        }
    }

    /// Checks the value of an option.
    ///
    /// # Errors
    /// If the value is not of this kind, with Slurm's message about this option.
    pub fn check(&self, option: &str, value: &str) -> Result<(), BadValue> {
        let valid = |is_valid: bool| if is_valid { Ok(()) } else { Err(invalid(option)) };
        let items = || value.split(',').filter(|item| !item.is_empty());
        match self {
            // Variables have values for flags, too.
            Self::Nothing | Self::Text | Self::File | Self::Features => Ok(()),
            Self::Maybe(kind) => {
                if value.is_empty() {
                    Ok(())
                } else {
                    kind.check(option, value)
                }
            }
            Self::Count => count(value, option).map(drop),
            Self::Number => number::<u64>(value, option).map(drop),
            Self::Bit => valid(number::<u32>(value, option)? < 2),
            Self::Size => mebibytes(value, option).map(drop),
            Self::TimeLimit => valid(parse_limit(value).is_some()),
            Self::Word(words) => valid(is_one_of(words, value)),
            Self::Words(words) => valid(items().next().is_some() && items().all(|item| is_one_of(words, item))),
            Self::Letters(letters) => valid(!value.is_empty() && value.chars().all(|c| letters.contains(c))),
            Self::Profiles => {
                let kinds = ["none", "all", "energy", "task", "lustre", "network"];
                let is_known = value.split(',').all(|kind| is_one_of(&kinds, kind));
                let bad = || BadValue::new(format!("invalid --{option}={value} option"));
                if is_known { Ok(()) } else { Err(bad()) }
            }
            Self::Hints => match value.split(',').find(|hint| !is_one_of(&HINTS, hint)) {
                Some("help") => Err(BadValue { text: format!("--{option} is one of {}", HINTS.join(", ")), code: 1 }),
                Some(hint) => {
                    let text = format!("unrecognized --{option} argument \"{hint}\", see --{option}=help");
                    Err(BadValue { text, code: 1 })
                }
                None => Ok(()),
            },
            Self::Sampling => match items().find(|item| !is_sampling(item)) {
                Some(bad) => Err(BadValue::new(format!("Invalid --{option} specification: {bad}"))),
                None => Ok(()),
            },
            Self::Topology => {
                let places = ["first", "second", "third"].into_iter().zip(value.split(':'));
                let bad = places.into_iter().find(|(_, number)| !["", "*"].contains(number) && !is_number(number));
                let text = |(place, number)| format!("Invalid numeric value \"{number}\" for {place} arg of -B.");
                bad.map_or(Ok(()), |bad| Err(BadValue { text: text(bad), code: 1 }))
            }
            Self::Switches => {
                let (switches, wait) = value.split_once('@').unwrap_or((value, ""));
                count(switches, option)?;
                valid(wait.is_empty() || parse_limit(wait).is_some())
            }
            Self::Gpus => gpus(value, option).map(drop),
            Self::Amounts => {
                let is_amount = |item: &str| item.rsplit_once([':', '=']).is_some_and(|(_, amount)| is_number(amount));
                valid(items().next().is_some() && items().all(is_amount))
            }
            Self::CpuFrequency => {
                cpu_frequency(value).map_err(|why| BadValue::new(format!("{why}\nInvalid --{option} argument")))
            }
            Self::GpuFrequency | Self::GpuBinding => {
                let of_gpus = value.strip_prefix("gres/").unwrap_or(value);
                let of_gpus = of_gpus.strip_prefix("gpu:").unwrap_or(of_gpus);
                let is_valid =
                    if *self == Self::GpuBinding { is_gpu_binding(of_gpus) } else { is_gpu_frequency(of_gpus) };
                let bad = || BadValue::new(format!("Invalid --{option} argument: gpu:{of_gpus}"));
                if is_valid { Ok(()) } else { Err(bad()) }
            }
            Self::Binding(words) => match bad_binding(words, value) {
                // Slurm's commands end with another code if a binding to CPUs is wrong.
                Some(bad) => Err(BadValue {
                    text: format!("unrecognized --{option} argument \"{bad}\""),
                    code: if *self == CPU_BINDING { 1 } else { crate::job_values::MISTAKE },
                }),
                None => Ok(()),
            },
        }
    }
}

fn is_one_of(words: &[&str], value: &str) -> bool {
    words.iter().any(|word| word.eq_ignore_ascii_case(value))
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_sampling(item: &str) -> bool {
    let (kind, seconds) = item.split_once('=').unwrap_or(("task", item));
    is_one_of(&["task", "energy", "network", "filesystem"], kind) && is_number(seconds)
}

fn is_frequency(text: &str) -> bool {
    is_number(text) && text != "0" || is_one_of(&["low", "medium", "high", "highm1"], text)
}

fn cpu_frequency(value: &str) -> Result<(), String> {
    const GOVERNORS: [&str; 6] = ["conservative", "ondemand", "performance", "powersave", "schedutil", "userspace"];
    if is_one_of(&GOVERNORS, value) {
        return Ok(());
    }
    let (range, governor) = value.split_once(':').map_or((value, None), |(range, governor)| (range, Some(governor)));
    let (least, most) = range.split_once('-').map_or((range, None), |(least, most)| (least, Some(most)));
    if let Some(bad) = [Some(least), most].into_iter().flatten().find(|text| !is_frequency(text)) {
        return Err(format!("unrecognized --cpu-freq argument \"{bad}\""));
    }
    match governor {
        Some(governor) if most.is_none() => Err(format!("gov on cpu-frec ({governor}) illegal without max")),
        Some(governor) if !is_one_of(&GOVERNORS, governor) => {
            Err(format!("illegal governor: {governor} on --cpu-freq"))
        }
        _ => Ok(()),
    }
}

fn is_gpu_frequency(value: &str) -> bool {
    let is_valid = |item: &str| match item.split_once('=') {
        Some((what, frequency)) => what.eq_ignore_ascii_case("memory") && is_frequency(frequency),
        None => is_frequency(item) || item.eq_ignore_ascii_case("verbose"),
    };
    !value.is_empty() && value.split(',').filter(|item| !item.is_empty()).all(is_valid)
}

fn is_gpu_binding(value: &str) -> bool {
    let value = value.strip_prefix("verbose,").or_else(|| value.strip_prefix("v,")).unwrap_or(value);
    match value.split_once(':') {
        Some(("map_gpu" | "mask_gpu", list)) => list.split(',').all(is_listed),
        Some(("single" | "per_task", each)) => is_number(each) && each != "0",
        Some(_) => false,
        None => is_one_of(&["closest", "none"], value),
    }
}

/// Whether a text is a number or a mask of a list, perhaps repeated: `3`, `0x3`, `0*4`.
fn is_listed(text: &str) -> bool {
    let (number, times) = text.split_once('*').unwrap_or((text, "1"));
    let digits = number.strip_prefix("0x").unwrap_or(number);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit()) && is_number(times)
}

/// Returns the first invalid part of a `--cpu-bind` or `--mem-bind` value.
fn bad_binding<'a>(words: &[&str], value: &'a str) -> Option<&'a str> {
    let mut in_list = false;
    value.split(',').find(|part| {
        if in_list && is_listed(part) {
            return false;
        }
        let (name, list) = part.split_once(':').map_or((*part, None), |(name, list)| (name, Some(list)));
        in_list = list.is_some();
        let is_known = match list {
            Some(list) => {
                words.iter().any(|word| word.strip_suffix(':').is_some_and(|word| word.eq_ignore_ascii_case(name)))
                    && is_listed(list)
            }
            None => is_one_of(words, name) || is_one_of(&["quiet", "q", "verbose", "v"], name),
        };
        !is_known
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_those_that_slurm_accepts() {
        for (kind, valid, wrong) in [
            (Reads::Bit, "0 1", "2 x"),
            (Reads::Count, "1 4", "0 -1 x 1.5"),
            (Reads::Maybe(&Reads::Number), "0 5", "x -1"),
            (Reads::Letters("gmnv"), "g gv", "x gx"),
            (MAIL_TYPES, "end END,FAIL, array_tasks", "x , END,x"),
            (Reads::Profiles, "none energy,task", "x none,x"),
            (Reads::Hints, "multithread", "help x multithread,x"),
            (Reads::Sampling, "30 task=30,network=5", "task task=x bogus=5 -1 30,x"),
            (Reads::Topology, "1 1:2:3 *:*:* 1:", "x 1:x 1:1:x"),
            (Reads::Switches, "1 1@10 1@10:00 1@", "x 0 @5 1@x"),
            (Reads::Amounts, "cpu=2 gres/gpu:1,cpu:2 gres/gpu:a100=1", "x cpu= cpu=x"),
            (Reads::CpuFrequency, "low 2400000 1000-2000:performance OnDemand", "x 0 low-x low:performance low-high:x"),
            (Reads::GpuFrequency, "high 1000 low,memory=high,verbose", "x memory memory=x gpu=low"),
            (
                Reads::GpuBinding,
                "closest map_gpu:0,1 mask_gpu:0x3*2 per_task:1 verbose,closest gres/gpu:none",
                "x map_gpu: map_gpu:x single:x",
            ),
            (
                CPU_BINDING,
                "none cores,verbose q,map_cpu:0,1,2 mask_cpu:0x1,0x2 MAP_LDOM:0",
                "x cores,x map_cpu: map_cpu:x map_mem:0",
            ),
            (MEMORY_BINDING, "local v,prefer map_mem:0,1 sort,local", "x local,x cores"),
        ] {
            for value in valid.split(' ') {
                assert_eq!(kind.check("option", value), Ok(()), "{kind:?} {value}");
            }
            for value in wrong.split(' ') {
                assert!(kind.check("option", value).is_err(), "{kind:?} {value}");
            }
        }
    }

    #[test]
    fn mistakes_have_the_texts_of_slurm() {
        for (kind, option, value, text, code) in [
            (Reads::Sampling, "acctg-freq", "30,x", "Invalid --acctg-freq specification: x", 255),
            (Reads::Topology, "extra-node-info", "1:x", "Invalid numeric value \"x\" for second arg of -B.", 1),
            (Reads::Switches, "switches", "x@1", "Invalid numeric value \"x\" for --switches.", 1),
            (Reads::GpuBinding, "gpu-bind", "x", "Invalid --gpu-bind argument: gpu:x", 255),
            (MEMORY_BINDING, "mem-bind", "x", "unrecognized --mem-bind argument \"x\"", 255),
            (CPU_BINDING, "cpu-bind", "x", "unrecognized --cpu-bind argument \"x\"", 1),
            (
                Reads::CpuFrequency,
                "cpu-freq",
                "x",
                "unrecognized --cpu-freq argument \"x\"\nInvalid --cpu-freq argument",
                255,
            ),
        ] {
            assert_eq!(kind.check(option, value), Err(BadValue { text: text.to_owned(), code }));
        }
    }
}
