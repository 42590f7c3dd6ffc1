//! Settings of the whole cluster.

use std::collections::BTreeMap;

use hostler_slurm::conf::{Kind, Record, Value};

use super::power;
use super::verdict::Judgement;

/// The longest grace time that Hostler accepts, in seconds.
const MAX_GRACE_SECONDS: u64 = 3600;

/// What a pair means for Hostler.
struct Meaning {
    judgement: Judgement,
    /// The setting that the pair changes, and its value.
    setting: Option<(&'static str, String)>,
}

impl From<Judgement> for Meaning {
    fn from(judgement: Judgement) -> Self {
        Self { judgement, setting: None }
    }
}

fn set(name: &'static str, value: String, judgement: fn(String) -> Judgement, difference: &str) -> Meaning {
    let command = format!("`hostler configure setting {name} {value}`{difference}");
    Meaning { judgement: judgement(command), setting: Some((name, value)) }
}

fn meaning(value: &Value) -> Result<Meaning, String> {
    let text = value.text.to_ascii_lowercase();
    Ok(match value.key.to_ascii_lowercase().as_str() {
        "schedulertype" => match text.rsplit('/').next() {
            Some("backfill") => set("policy", "easy".to_owned(), Judgement::taken, ""),
            Some("builtin") => set("policy", "fcfs".to_owned(), Judgement::taken, ""),
            _ => Judgement::missing("no such policy; see the setting `policy`").into(),
        },
        "killwait" => {
            let seconds: u64 = text.parse().map_err(|_| format!("{value} is not a number of seconds"))?;
            match seconds {
                ..=MAX_GRACE_SECONDS => set("grace", format!("{seconds}s"), Judgement::taken, ""),
                _ => set("grace", "1h".to_owned(), Judgement::differs, ", the longest time"),
            }
        }
        "defmempernode" | "defmempercpu" => match mebibytes(value)? {
            None => {
                Judgement::missing("jobs never get all memory of a node by default; see the setting `default-memory`")
                    .into()
            }
            Some(size) if value.is("DefMemPerNode") => set("default-memory", size, Judgement::taken, ""),
            Some(size) => {
                let difference = ", per node: jobs with several CPUs need --mem or --mem-per-cpu";
                set("default-memory", size, Judgement::differs, difference)
            }
        },
        "jobrequeue" if text == "0" => {
            Judgement::missing("`sbatch` requeues jobs of lost nodes. Use `sbatch --no-requeue` or SBATCH_NO_REQUEUE")
                .into()
        }
        "jobrequeue" => Judgement::unneeded("`sbatch` always requeues jobs of lost nodes").into(),
        "selecttype" if text == "select/linear" => {
            Judgement::missing("jobs share nodes. Use --exclusive for jobs that need whole nodes").into()
        }
        "selecttype" => Judgement::unneeded("each job gets its own CPUs, memory and GPUs of its nodes").into(),
        _ => power::judge(value)?.into(),
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

/// Judges a pair. A pair whose key occurs again later does not count.
pub(super) fn judge(value: &Value, later: &[Record]) -> Result<Judgement, String> {
    let judgement = meaning(value)?.judgement;
    match values(later).find(|other| other.is(&value.key)) {
        Some(other) => Ok(Judgement::unneeded(format!("{} sets it again", other.place))),
        None => Ok(judgement),
    }
}

/// The settings of Hostler. All pairs must have been judged.
pub(super) fn wanted(records: &[Record]) -> BTreeMap<&'static str, String> {
    values(records).filter_map(|value| meaning(value).ok()?.setting).collect()
}

fn values(records: &[Record]) -> impl Iterator<Item = &Value> {
    records.iter().filter(|record| record.kind == Kind::Cluster).flat_map(|record| &record.values)
}
