//! Reads the files of a configuration.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hostler_slurm::accounts::Accounts;
use hostler_slurm::conf::{Found, Kind, MAX_BYTES, NotFound, Place, Problem, Record, Value, read, records};

use super::wanted::Sources;

/// Reads `slurm.conf` with the files that it includes, and the accounts.
///
/// # Errors
/// Returns all mistakes in the files.
pub(super) fn load(slurm_conf: &Path, accounts: Option<&Path>) -> Result<Sources, Vec<Problem>> {
    let mut problems = Vec::new();
    let directory = slurm_conf.parent().unwrap_or(Path::new("")).to_owned();
    let records = records(lines(slurm_conf, &directory).unwrap_or_else(|wrong| {
        problems.extend(wrong);
        Vec::new()
    }));
    let accounts = match accounts.map(dump) {
        Some(Ok(accounts)) => Some(accounts),
        Some(Err(wrong)) => {
            problems.extend(wrong);
            None
        }
        None => None,
    };
    if problems.is_empty() && !is_configuration(&records) {
        let place = Place { file: name(slurm_conf, &directory), line: 1 };
        problems.push(Problem::new(&place, "no NodeName and no PartitionName line; this is not a slurm.conf"));
    }
    if problems.is_empty() { Ok(Sources { records, accounts }) } else { Err(problems) }
}

fn is_configuration(records: &[Record]) -> bool {
    records.iter().any(|record| matches!(record.kind, Kind::Nodes | Kind::Partition))
}

/// The lines of a file and of those that it includes. Relative names are those of files in the directory.
fn lines(path: &Path, directory: &Path) -> Result<Vec<Vec<Value>>, Vec<Problem>> {
    let problem = |NotFound(text)| vec![Problem { place: Place { file: name(path, directory), line: 1 }, text }];
    let first = found(path, directory).map_err(problem)?;
    read(&first, &mut |name| found(&directory.join(name), directory))
}

fn dump(path: &Path) -> Result<Accounts, Vec<Problem>> {
    let directory = path.parent().unwrap_or(Path::new(""));
    let file = name(path, directory);
    let problem = |text: &str| vec![Problem::new(&Place { file: Arc::clone(&file), line: 1 }, text)];
    let Found { text, .. } = found(path, directory).map_err(|NotFound(text)| problem(&text))?;
    if text.contains('\0') {
        return Err(problem("this is not a text file"));
    }
    Accounts::parse(&file, &text)
}

fn found(path: &Path, directory: &Path) -> Result<Found, NotFound> {
    let failed = |error: io::Error| NotFound(format!("cannot read {}: {error}", path.display()));
    let id = path.canonicalize().unwrap_or_else(|_| PathBuf::from(path)).display().to_string();
    let mut bytes = Vec::new();
    File::open(path).and_then(|file| file.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes)).map_err(failed)?;
    if bytes.len() > MAX_BYTES {
        return Err(NotFound(format!("{} has more than {} MiB", path.display(), MAX_BYTES >> 20)));
    }
    // Comments may be in any encoding. Elsewhere a replacement character is part of no valid value.
    Ok(Found { id, name: name(path, directory), text: String::from_utf8_lossy(&bytes).into_owned() })
}

/// The name of a file in messages: without the directory of the configuration.
fn name(path: &Path, directory: &Path) -> Arc<str> {
    path.strip_prefix(directory).unwrap_or(path).to_string_lossy().into()
}
