//! Settings of the whole cluster.

use hostler_slurm::conf::{Kind, Problem, Record, Value};

use super::wanted::Wanted;

/// The longest grace time that Hostler accepts, in seconds.
const MAX_GRACE_SECONDS: u64 = 3600;

/// Adds the settings. The last value of a key counts.
pub(super) fn add(wanted: &mut Wanted, records: &[Record], problems: &mut Vec<Problem>) {
    for record in records.iter().filter(|record| record.kind == Kind::Cluster) {
        if let Some(second) = record.values.get(1) {
            let first = record.values.first().map_or("", |first| first.key.as_str());
            let text = format!(
                "{second} follows {first}, which is neither NodeName nor PartitionName; write it in a line of its own"
            );
            problems.push(Problem::new(&second.place, text));
            continue;
        }
        for value in &record.values {
            match setting(value) {
                Ok(setting) => wanted.settings.extend(setting),
                Err(text) => problems.push(Problem::new(&value.place, text)),
            }
        }
    }
}

/// The setting of Hostler that a pair stands for, with its value.
fn setting(value: &Value) -> Result<Option<(&'static str, String)>, String> {
    let text = value.text.to_ascii_lowercase();
    Ok(match value.key.to_ascii_lowercase().as_str() {
        "schedulertype" if text.ends_with("backfill") => Some(("policy", "easy".to_owned())),
        "schedulertype" if text.ends_with("builtin") => Some(("policy", "fcfs".to_owned())),
        "killwait" => {
            let seconds: u64 = text.parse().map_err(|_| format!("{value} is not a number of seconds"))?;
            Some(("grace", format!("{}s", seconds.min(MAX_GRACE_SECONDS))))
        }
        "defmempernode" | "defmempercpu" => mebibytes(value)?.map(|size| ("default-memory", size)),
        _ => None,
    })
}

/// Parses a number of mebibytes to a size for Hostler; `None` if it stands for all memory.
fn mebibytes(value: &Value) -> Result<Option<String>, String> {
    if ["0", "unlimited", "infinite"].contains(&value.text.to_ascii_lowercase().as_str()) {
        return Ok(None);
    }
    let number: u64 = value.text.parse().map_err(|_| format!("{value} is not a number of megabytes"))?;
    Ok(Some(if number.is_multiple_of(1024) { format!("{}G", number / 1024) } else { format!("{number}M") }))
}
