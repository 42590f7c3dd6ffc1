//! Options of a job whose values the command must look up: files with names of nodes, other files, and features.

use std::ffi::OsString;
use std::fmt::Display;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use hostler_slurm::job_options::{JobOptions, Key};
use hostler_slurm::reads::Reads;

use super::{Ended, bad_value, request};

/// Applies an option of a job.
pub(crate) fn apply(options: &mut JobOptions, key: Key, value: Option<&OsString>) -> Result<(), Ended> {
    // A list of nodes with a `/` is a file, which is on this machine.
    let is_file = |value: &&OsString| match key {
        Key::Nodefile => true,
        Key::Nodelist | Key::Exclude => value.as_bytes().contains(&b'/'),
        _ => false,
    };
    match (key, value) {
        (Key::Accepted(name, Reads::File), Some(path)) if fs::File::open(path).is_err() => {
            return Err(Ended::error(format!("Invalid --{name} specification")));
        }
        (Key::Accepted(_, Reads::Features), Some(features)) => {
            let constraint = Some(features.to_string_lossy().into_owned());
            request::constraint(&JobOptions { constraint, ..JobOptions::default() })?;
        }
        _ => {}
    }
    let listed = value.filter(is_file).map(|path| nodes_in(Path::new(path)).map(OsString::from)).transpose()?;
    options.apply(key, listed.as_ref().or(value)).map_err(bad_value)
}

/// Without a list of nodes, takes that of the file which `SLURM_HOSTFILE` names. With one for each task, their numbers are those of
/// the list.
pub(crate) fn place_by_file(options: &mut JobOptions) -> Result<(), Ended> {
    let file = std::env::var_os("SLURM_HOSTFILE").filter(|file| !file.is_empty() && options.nodelist.is_none());
    if let Some(file) = file {
        options.nodelist = Some(nodes_in(Path::new(&file))?);
        options.distribution = Some("arbitrary".to_owned());
    }
    let Some(list) = options.nodelist.as_ref().filter(|_| options.is_arbitrary()) else { return Ok(()) };
    let mut names = request::expanded(Some(list))?;
    let number = |names: &Vec<String>| u32::try_from(names.len()).unwrap_or(u32::MAX);
    let tasks = *options.ntasks.get_or_insert(number(&names));
    if tasks > number(&names) {
        let hint =
            format!("hint: list a node for each of the {tasks} tasks, and a node again for each further task on it");
        let failed = Ended::error("Too few NodeNames in Slurm Hostfile");
        return Err(failed.and("error: Failure getting NodeNames from hostfile").and(hint));
    }
    names.sort_unstable();
    names.dedup();
    options.nodes.get_or_insert((number(&names), number(&names)));
    Ok(())
}

/// Reads the names of nodes in a file, separated by commas, blanks or line ends.
pub(crate) fn nodes_in(path: &Path) -> Result<String, Ended> {
    let failed = |why: &dyn Display| Ended::error(format!("Unable to read the node list {}: {why}", path.display()));
    let text = fs::read_to_string(path).map_err(|error| failed(&error))?;
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default());
    let names: Vec<&str> = lines.flat_map(str::split_whitespace).map(|name| name.trim_matches(',')).collect();
    if names.is_empty() { Err(failed(&"it names no node")) } else { Ok(names.join(",")) }
}
